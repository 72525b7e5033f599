/* SPDX-License-Identifier: Apache-2.0 */
/* Networks, configurations and masks, against a search that keeps nothing: every token's bytes from every place, by
 * trying all ways one after the other. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "runtime/grammar/masks.h"
#include "runtime/grammar/regex_impl.h"

Suite *suite_grammar_masks(void);

/* ---- the search ---- */

typedef struct frame {
  uint32_t state, count;
  const struct frame *parent;
} frame;

static const tri_net *net;

/* Returns whether the bytes from `at` on can be taken from a state, whatever follows them; *ends: where no byte is left
 * the whole may end. empty: ways without a byte that may still be gone. */
static bool takes(uint32_t state, uint32_t count, const frame *on, const uint8_t *at, size_t left, int empty,
                  bool *ends) {
  const tri_net_state *s = tri_net_state_at(net, state);
  const tri_net_arc *arcs = tri_net_arcs_of(net, s);
  bool found = !left && !ends;
  if (!empty) return false;
  for (uint32_t i = 0; i < s->num_arcs && !found; i++) {
    const tri_net_arc *a = &arcs[i];
    if (!tri_net_allows(net, a->guard, count)) continue;
    uint32_t next = tri_net_counted(net, a, s->rule, count);
    if (a->kind == TRI_NET_EDGE && left && a->lo <= *at && *at <= a->hi)
      found = takes(a->to, next, on, at + 1, left - 1, 40, ends);
    if (a->kind == TRI_NET_STEP) found = takes(a->to, next, on, at, left, empty - 1, ends);
    frame f = {a->to, next, on};
    if (a->kind == TRI_NET_CALL) found = takes(tri_net_first_state(net, a->rule), 0, &f, at, left, empty - 1, ends);
  }
  if (found || !s->is_final || !tri_net_allows(net, s->guard, count)) return found;
  if (on) return takes(on->state, on->count, on->parent, at, left, empty - 1, ends);
  if (!left && ends) return *ends = true;
  return false;
}

static bool text_goes_on(const uint8_t *text, size_t len) {
  return takes(tri_net_begin(net), 0, NULL, text, len, 40, NULL);
}
static bool text_is_whole(const uint8_t *text, size_t len) {
  bool ends = false;
  return takes(tri_net_begin(net), 0, NULL, text, len, 40, &ends);
}

/* ---- a vocabulary ---- */

enum { TOKENS = 700, MOST = 6, SIZE = 1024 };
static uint8_t pool[TOKENS][MOST];
static tri_token_bytes tokens[TOKENS];

static const char *const pieces[] = {"{",    "}",        "[",    "]",        ",",        ":",    "\"",    "\"", "\"",
                                     " ",    "\n",       "a",    "b",        "ab",       "1",    "2",     "0",  "-",
                                     ".",    "e",        "true", "null",     "\\",       "\\n",  "\\u00", "u",  "\xc3",
                                     "\xa9", "\xe2\x82", "\xac", "\xf0\x9f", "\x98\x80", "\x7f", "\x01"};

static tri_vocabulary *make_vocabulary(uint64_t seed) {
  tri_vocabulary *v;
  for (int i = 0; i < TOKENS; i++) {
    uint32_t len = 0, wanted = 1 + (uint32_t)(tri_splitmix64(&seed) % MOST);
    while (len < wanted) {
      const char *p = pieces[tri_splitmix64(&seed) % (sizeof pieces / sizeof *pieces)];
      for (; *p && len < MOST; p++) pool[i][len++] = (uint8_t)*p;
    }
    tokens[i] = (tri_token_bytes){(uint32_t)i * 7 % SIZE, len, pool[i]};
  }
  for (int i = 0; i < TOKENS; i++) tokens[i].id = (uint32_t)i + 11;
  ck_assert_int_eq(tri_vocabulary_create(tokens, TOKENS, SIZE, &v, NULL), TRI_OK);
  return v;
}

/* ---- networks ---- */

static const tri_net_count any = {0, TRI_NET_KEEP, 0}, one_more = {0, TRI_NET_ADD, 0};

/* A string of `least` to `most` characters. */
static uint32_t add_string(tri_net *n, uint32_t least, uint32_t most) {
  uint32_t rule = tri_net_add_rule(n, most ? most + 1 : 0), text = tri_net_add_state(n, rule);
  uint32_t inside = most ? tri_net_add_range(n, 0, most - 1) : 0, ends = most ? tri_net_add_range(n, least, most) : 0;
  tri_net_add_edge(n, tri_net_first_state(n, rule), '"', '"', text, any);
  tri_net_set_final(n, tri_net_add_text(n, text, inside, ends), 0);
  return rule;
}

/* An integer without leading zeros, of at most three digits. */
static uint32_t add_integer(tri_net *n) {
  uint32_t rule = tri_net_add_rule(n, 3), first = tri_net_first_state(n, rule), signed_ = tri_net_add_state(n, rule);
  uint32_t zero = tri_net_add_state(n, rule), digits = tri_net_add_state(n, rule);
  uint32_t fewer = tri_net_add_range(n, 0, 2);
  tri_net_add_step(n, first, signed_, any);
  tri_net_add_edge(n, first, '-', '-', signed_, any);
  tri_net_add_edge(n, signed_, '0', '0', zero, any);
  tri_net_add_edge(n, signed_, '1', '9', digits, one_more);
  tri_net_add_edge(n, digits, '0', '9', digits, (tri_net_count){fewer, TRI_NET_ADD, 0});
  tri_net_set_final(n, zero, 0);
  tri_net_set_final(n, digits, 0);
  return rule;
}

/* `open` items `close`, with `least` to `most` items (most 0: any number), commas between them. */
static void add_list(tri_net *n, uint32_t rule, char open, char close, uint32_t item, uint32_t least, uint32_t most) {
  uint32_t first = tri_net_first_state(n, rule), before = tri_net_add_state(n, rule),
           behind = tri_net_add_state(n, rule);
  uint32_t item_at = tri_net_add_state(n, rule), end = tri_net_add_state(n, rule);
  uint32_t fewer = most ? tri_net_add_range(n, 0, most - 1) : 0;
  uint32_t enough = tri_net_add_range(n, least, UINT32_MAX);
  tri_net_add_edge(n, first, (uint8_t)open, (uint8_t)open, before, any);
  if (!least) tri_net_add_edge(n, before, (uint8_t)close, (uint8_t)close, end, any);
  tri_net_add_call(n, before, item, behind, (tri_net_count){fewer, TRI_NET_ADD, 0});
  tri_net_add_edge(n, behind, (uint8_t)close, (uint8_t)close, end, (tri_net_count){enough, TRI_NET_KEEP, 0});
  tri_net_add_edge(n, behind, ',', ',', item_at, any);
  tri_net_add_call(n, item_at, item, behind, (tri_net_count){fewer, TRI_NET_ADD, 0});
  tri_net_set_final(n, end, 0);
}

/* Any JSON without white space. */
static uint32_t add_value(tri_net *n) {
  uint32_t value = tri_net_add_rule(n, 0), list = tri_net_add_rule(n, 3), object = tri_net_add_rule(n, 3);
  uint32_t member = tri_net_add_rule(n, 0), first = tri_net_first_state(n, value), end = tri_net_add_state(n, value);
  uint32_t text = add_string(n, 0, 0), integer = add_integer(n), colon = tri_net_add_state(n, member);
  uint32_t of_member = tri_net_add_state(n, member), member_end = tri_net_add_state(n, member);
  tri_net_add_call(n, tri_net_first_state(n, member), text, colon, any);
  tri_net_add_edge(n, colon, ':', ':', of_member, any);
  tri_net_add_call(n, of_member, value, member_end, any);
  tri_net_set_final(n, member_end, 0);
  add_list(n, list, '[', ']', value, 1, 3);
  add_list(n, object, '{', '}', member, 0, 0);
  tri_net_add_call(n, first, text, end, any);
  tri_net_add_call(n, first, integer, end, any);
  tri_net_add_call(n, first, list, end, any);
  tri_net_add_call(n, first, object, end, any);
  tri_net_add_step(n, tri_net_add_bytes(n, first, "true", 4, any), end, any);
  tri_net_add_step(n, tri_net_add_bytes(n, first, "null", 4, any), end, any);
  tri_net_set_final(n, end, 0);
  return value;
}

/* {"a": integer, "ab": string, "b": any} in this order, "ab" required, the place being a count. */
static uint32_t add_object(tri_net *n) {
  static const char *const keys[] = {"\"a\":", "\"ab\":", "\"b\":"};
  uint32_t rule = tri_net_add_rule(n, 4), first = tri_net_first_state(n, rule), key = tri_net_add_state(n, rule);
  uint32_t behind = tri_net_add_state(n, rule), end = tri_net_add_state(n, rule), more = tri_net_add_state(n, rule);
  uint32_t values[] = {add_integer(n), add_string(n, 1, 3), add_value(n)};
  uint32_t may[] = {tri_net_add_range(n, 0, 0), tri_net_add_range(n, 0, 1), tri_net_add_range(n, 2, 2)};
  uint32_t whole = tri_net_add_range(n, 2, 4);
  tri_net_add_edge(n, first, '{', '{', key, any);
  for (uint32_t i = 0; i < 3; i++) {
    uint32_t at = tri_net_add_bytes(n, key, keys[i], strlen(keys[i]), (tri_net_count){may[i], TRI_NET_SET, i + 1});
    tri_net_add_call(n, at, values[i], behind, any);
  }
  tri_net_add_edge(n, behind, '}', '}', end, (tri_net_count){whole, TRI_NET_KEEP, 0});
  tri_net_add_edge(n, behind, ',', ',', more, (tri_net_count){tri_net_add_range(n, 0, 2), TRI_NET_KEEP, 0});
  tri_net_add_step(n, more, key, any);
  tri_net_set_final(n, end, 0);
  return rule;
}

/* A string of two to four characters, or one of any length in brackets, so that two texts are open at once. */
static uint32_t add_two_texts(tri_net *n) {
  uint32_t rule = tri_net_add_rule(n, 0), first = tri_net_first_state(n, rule), end = tri_net_add_state(n, rule);
  uint32_t closing = tri_net_add_state(n, rule);
  tri_net_add_call(n, first, add_string(n, 2, 4), end, any);
  tri_net_add_call(n, first, add_string(n, 0, 0), closing, any);
  tri_net_add_edge(n, closing, ']', ']', end, any);
  tri_net_set_final(n, end, 0);
  return rule;
}

/* A string of JSON with a pattern, of so many characters. */
static uint32_t add_pattern(tri_net *n, const char *regex, int64_t least, int64_t most) {
  tri_error err = {0};
  expr_context x = {.err = &err, .most_work = 1000000};
  regex_ways ways = {0};
  const expr *e;
  uint32_t rule;
  bool is_never;
  ck_assert_int_eq(tri_arena_create(4096, &x.arena), TRI_OK);
  ck_assert_int_eq(regex_read(&x, regex, strlen(regex), &e), TRI_OK);
  ck_assert_int_eq(regex_split(&x, e, &ways), TRI_OK);
  ck_assert_int_eq(regex_string_rule(&x, n, &ways, least, most, &rule, &is_never), TRI_OK);
  ck_assert(!is_never);
  tri_arena_destroy(x.arena);
  return rule;
}

static uint32_t add_counted_pattern(tri_net *n) {
  return add_pattern(n, "^[ab1]{1,6}(true|nu?ll)*[^a]{0,5}$", 0, INT64_MAX);
}
static uint32_t add_found_pattern(tri_net *n) { return add_pattern(n, "ab|\\n|\\xe9$", 2, 7); }
static uint32_t add_free_pattern(tri_net *n) { return add_pattern(n, "1.a|^[\\x00-\\x1f]", 0, INT64_MAX); }

typedef uint32_t add_whole(tri_net *n);

/* ---- tests ---- */

static void check_mask(tri_configs *c, tri_masks *m, uint32_t config, uint8_t *text, size_t len) {
  const uint64_t *bits = tri_masks_of(m, config);
  ck_assert_ptr_nonnull(bits);
  for (int i = 0; i < TOKENS; i++) {
    memcpy(text + len, tokens[i].bytes, tokens[i].len);
    bool slow = text_goes_on(text, len + tokens[i].len), fast = bits[tokens[i].id / 64] >> tokens[i].id % 64 & 1;
    ck_assert_msg(slow == fast, "token %u after '%.*s', '%.*s': %d, and a search says %d", tokens[i].id, (int)len, text,
                  (int)tokens[i].len, tokens[i].bytes, fast, slow);
  }
  ck_assert_int_eq(tri_configs_may_end(c, config), text_is_whole(text, len));
}

/* Answers that are drawn token by token, each mask compared. */
static void draw_answers(add_whole *add, uint64_t seed, int answers, int most_tokens) {
  tri_net *n;
  tri_configs *c;
  tri_masks *m;
  tri_error err = {0};
  tri_vocabulary *v = make_vocabulary(seed);
  ck_assert_int_eq(tri_net_create(&n), TRI_OK);
  uint32_t whole = add(n);
  ck_assert_msg(tri_net_finish(n, whole, &err) == TRI_OK, "%s", err.message);
  net = n;
  ck_assert_int_eq(tri_configs_create(n, 64 << 20, &c), TRI_OK);
  ck_assert_int_eq(tri_masks_create(c, v, 5, &m), TRI_OK);
  for (int a = 0; a < answers; a++) {
    uint8_t text[400];
    size_t len = 0;
    uint32_t config = tri_configs_begin(c);
    for (int t = 0; t < most_tokens && tri_configs_may_go_on(c, config) && len < 300; t++) {
      check_mask(c, m, config, text, len);
      const uint64_t *bits = tri_masks_of(m, config);
      int at = (int)(tri_splitmix64(&seed) % TOKENS), left = TOKENS;
      while (left && !(bits[tokens[at].id / 64] >> tokens[at].id % 64 & 1)) at = (at + 1) % TOKENS, left--;
      if (!left) break;
      memcpy(text + len, tokens[at].bytes, tokens[at].len);
      len += tokens[at].len;
      config = tri_configs_walk(c, config, tokens[at].bytes, tokens[at].len);
      ck_assert_uint_ne(config, 0);
    }
  }
  tri_masks_destroy(m);
  tri_configs_destroy(c);
  tri_net_destroy(n);
  tri_vocabulary_destroy(v);
}

static add_whole *const networks[] = {add_value,           add_object,        add_two_texts,   add_integer,
                                      add_counted_pattern, add_found_pattern, add_free_pattern};

START_TEST(masks_are_those_of_a_search) { draw_answers(networks[_i / 4], (uint64_t)_i * 91 + 5, 6, 14); }
END_TEST

static uint32_t add_left_recursion(tri_net *n) {
  uint32_t a = tri_net_add_rule(n, 0), b = tri_net_add_rule(n, 0), end = tri_net_add_state(n, b);
  uint32_t optional = tri_net_add_rule(n, 0), middle = tri_net_add_state(n, a), last = tri_net_add_state(n, a);
  tri_net_set_final(n, tri_net_first_state(n, optional), 0);
  tri_net_add_call(n, tri_net_first_state(n, a), optional, middle, any);
  tri_net_add_call(n, middle, b, last, any);
  tri_net_add_call(n, tri_net_first_state(n, b), a, end, any);
  tri_net_add_edge(n, tri_net_first_state(n, b), 'x', 'x', end, any);
  tri_net_set_final(n, last, 0);
  tri_net_set_final(n, end, 0);
  return a;
}

START_TEST(a_rule_may_not_begin_with_itself) {
  tri_net *n;
  ck_assert_int_eq(tri_net_create(&n), TRI_OK);
  ck_assert_int_eq(tri_net_finish(n, add_left_recursion(n), NULL), TRI_UNSUPPORTED);
  tri_net_destroy(n);
}
END_TEST

/* A list of lists without end, one of which is a member that need not be there. */
START_TEST(ways_without_an_end_are_taken_away) {
  tri_net *n;
  tri_configs *c;
  ck_assert_int_eq(tri_net_create(&n), TRI_OK);
  uint32_t list = tri_net_add_rule(n, 1), end = tri_net_add_state(n, list);
  add_list(n, list, '[', ']', list, 1, 0);
  tri_net_add_edge(n, end, 'x', 'x', end, any);
  ck_assert_int_eq(tri_net_finish(n, list, NULL), TRI_INVALID_ARGUMENT);
  tri_net_destroy(n);
  ck_assert_int_eq(tri_net_create(&n), TRI_OK);
  list = tri_net_add_rule(n, 1);
  uint32_t endless = tri_net_add_rule(n, 0);
  add_list(n, list, '[', ']', endless, 0, 0);
  tri_net_add_call(n, tri_net_first_state(n, endless), endless, tri_net_add_state(n, endless), any);
  ck_assert_int_eq(tri_net_finish(n, list, NULL), TRI_OK);
  ck_assert_int_eq(tri_configs_create(n, 1 << 20, &c), TRI_OK);
  ck_assert_uint_ne(tri_configs_walk(c, tri_configs_begin(c), "[]", 2), 0);
  ck_assert_uint_eq(tri_configs_walk(c, tri_configs_begin(c), "[[", 2), 0);
  tri_configs_destroy(c);
  tri_net_destroy(n);
}
END_TEST

START_TEST(networks_have_limits) {
  tri_net *n;
  tri_error err = {0};
  ck_assert_int_eq(tri_net_create(&n), TRI_OK);
  uint32_t rule = tri_net_add_rule(n, 0);
  for (int i = 0; i <= TRI_NET_MAX_STATES; i++) tri_net_add_state(n, rule);
  ck_assert(!tri_net_is_whole(n));
  ck_assert_uint_eq(tri_net_add_state(n, rule), 0);
  ck_assert_int_eq(tri_net_finish(n, rule, &err), TRI_TOO_LARGE);
  ck_assert_ptr_nonnull(strstr(err.message, "200000 states"));
  tri_net_destroy(n);
}
END_TEST

/* What is full says so, and is whole again after a reset. */
START_TEST(configurations_have_a_limit) {
  tri_net *n;
  tri_configs *c;
  uint8_t deep[400];
  memset(deep, '[', sizeof deep);
  ck_assert_int_eq(tri_net_create(&n), TRI_OK);
  uint32_t whole = add_value(n);
  ck_assert_int_eq(tri_net_finish(n, whole, NULL), TRI_OK);
  ck_assert_int_eq(tri_configs_create(n, 40 << 10, &c), TRI_OK);
  ck_assert_uint_eq(tri_configs_walk(c, tri_configs_begin(c), deep, sizeof deep), 0);
  ck_assert(tri_configs_is_full(c));
  ck_assert_uint_le(tri_configs_bytes_used(c), 40 << 10);
  tri_configs_reset(c);
  ck_assert_uint_ne(tri_configs_walk(c, tri_configs_begin(c), "[[1]", 4), 0);
  tri_configs_destroy(c);
  ck_assert_int_eq(tri_configs_create(n, 64 << 20, &c), TRI_OK);
  ck_assert_uint_ne(tri_configs_walk(c, tri_configs_begin(c), deep, TRI_CONFIG_DEPTH / 2), 0);
  ck_assert_uint_eq(tri_configs_walk(c, tri_configs_begin(c), deep, sizeof deep), 0); /* too deep */
  ck_assert(!tri_configs_is_full(c));
  tri_configs_destroy(c);
  tri_net_destroy(n);
}
END_TEST

START_TEST(vocabularies_refuse_what_they_cannot_hold) {
  static const uint8_t bytes[TRI_VOCABULARY_TOKEN + 1] = {0};
  tri_vocabulary *v;
  tri_token_bytes beyond = {5, 1, bytes}, long_one = {0, sizeof bytes, bytes};
  ck_assert_int_eq(tri_vocabulary_create(&beyond, 1, 5, &v, NULL), TRI_INVALID_ARGUMENT);
  ck_assert_int_eq(tri_vocabulary_create(&long_one, 1, 5, &v, NULL), TRI_TOO_LARGE);
  ck_assert_int_eq(tri_vocabulary_create(NULL, 0, 0, &v, NULL), TRI_OK);
  tri_vocabulary_destroy(v);
}
END_TEST

Suite *suite_grammar_masks(void) {
  Suite *s = suite_create("grammar_masks");
  TCase *c = tcase_create("all");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, masks_are_those_of_a_search, 0, 28);
  tcase_add_test(c, a_rule_may_not_begin_with_itself);
  tcase_add_test(c, ways_without_an_end_are_taken_away);
  tcase_add_test(c, networks_have_limits);
  tcase_add_test(c, configurations_have_a_limit);
  tcase_add_test(c, vocabularies_refuse_what_they_cannot_hold);
  suite_add_tcase(s, c);
  return s;
}
