/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/grammar/expression.h"

#include <string.h>

#include "base/text.h"

/* ---- expressions ---- */

tri_status expr_work(expr_context *x, uint64_t steps) {
  x->work += steps;
  if (x->work <= x->most_work) return TRI_OK;
  return tri_fail(x->err, TRI_TOO_LARGE, "", "it takes too long to compile: more than %llu steps",
                  (unsigned long long)x->most_work);
}

expr *expr_make(expr_context *x, expr_kind kind, size_t place) {
  expr *e = tri_arena_alloc(x->arena, 1, sizeof *e);
  if (!e) return NULL;
  e->kind = kind;
  e->place = place;
  e->has_anchor = kind == EXPR_BEGIN || kind == EXPR_END;
  e->shortest = e->longest = kind == EXPR_CLASS;
  if (kind == EXPR_RULE) e->longest = UINT64_MAX;
  return e;
}

static uint64_t times(uint64_t a, uint64_t b) {
  uint64_t product;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

static void note_part(expr *e, const expr *part) {
  bool is_first = e->num == 0;
  e->has_anchor = e->has_anchor || part->has_anchor;
  if (e->kind == EXPR_SEQUENCE) {
    e->shortest = sum(e->shortest, part->shortest);
    e->longest = sum(e->longest, part->longest);
  } else if (e->kind == EXPR_ALTERNATIVES) {
    if (is_first || part->shortest < e->shortest) e->shortest = part->shortest;
    if (part->longest > e->longest) e->longest = part->longest;
  } else {
    e->shortest = times(part->shortest, e->least);
    e->longest = e->most == EXPR_NO_LIMIT && part->longest ? UINT64_MAX : times(part->longest, e->most);
  }
}

tri_status expr_append(expr_context *x, expr *e, const expr *part) {
  note_part(e, part);
  if (e->num == e->room) {
    size_t room = e->room ? 2 * e->room : 2;
    const expr **grown = tri_arena_alloc(x->arena, room, sizeof *grown);
    if (!grown) return TRI_NO_MEMORY;
    if (e->num) memcpy(grown, e->parts, e->num * sizeof *grown);
    e->parts = grown;
    e->room = room;
  }
  e->parts[e->num++] = part;
  return expr_work(x, 10);
}

tri_status expr_repeat(expr_context *x, const expr *of, uint32_t least, uint32_t most, size_t place, const expr **out) {
  expr *e = expr_make(x, EXPR_REPEAT, place);
  if (!e) return TRI_NO_MEMORY;
  e->least = least;
  e->most = most;
  *out = e;
  return expr_append(x, e, of);
}

tri_status expr_class(expr_context *x, const charset *set, size_t place, const expr **out) {
  expr *e = expr_make(x, EXPR_CLASS, place);
  charset *own = tri_arena_alloc(x->arena, 1, sizeof *own);
  if (!e || !own) return TRI_NO_MEMORY;
  *own = *set;
  e->set = own;
  *out = e;
  return expr_work(x, 10 + set->num);
}

tri_status expr_decode(expr_context *x, const char *text, size_t len, uint32_t **out, size_t *num) {
  *out = tri_arena_alloc(x->arena, len + 1, sizeof **out);
  if (!*out) return TRI_NO_MEMORY;
  *num = 0;
  for (size_t i = 0; i < len;) {
    size_t n = tri_utf8_length(text + i, len - i);
    if (!n) return tri_fail(x->err, TRI_INVALID_ARGUMENT, "", "byte %zu is no UTF-8", i + 1);
    uint32_t c = (uint8_t)text[i];
    if (n > 1) c &= 0x7fu >> n;
    for (size_t k = 1; k < n; k++) c = c << 6 | ((uint8_t)text[i + k] & 0x3f);
    (*out)[(*num)++] = c;
    i += n;
  }
  return expr_work(x, 1 + len);
}

/* ---- sets of counts ---- */

uint64_t *expr_counts(const expr_builder *b) { return tri_arena_alloc(b->x->arena, b->words, sizeof(uint64_t)); }

bool expr_counts_have(const uint64_t *counts, uint32_t count) { return counts[count / 64] >> count % 64 & 1; }

void expr_counts_add(const expr_builder *b, uint64_t *counts, uint32_t lo, uint32_t hi) {
  for (uint32_t i = lo; i <= hi && i <= b->top; i++) counts[i / 64] |= 1ull << i % 64;
}

void expr_counts_add_below(const expr_builder *b, uint64_t *counts) {
  size_t w = b->words;
  while (w && !counts[w - 1]) w--;
  if (!w) return;
  int high = 63 - __builtin_clzll(counts[w - 1]);
  counts[w - 1] |= high == 63 ? UINT64_MAX : (1ull << (high + 1)) - 1;
  for (size_t i = 0; i + 1 < w; i++) counts[i] = UINT64_MAX;
}

/* A count of `top` stays one. */
void expr_counts_before(const expr_builder *b, uint64_t *counts) {
  bool at_top = expr_counts_have(counts, b->top);
  for (size_t i = 0; i < b->words; i++) counts[i] = counts[i] >> 1 | (i + 1 < b->words ? counts[i + 1] << 63 : 0);
  if (at_top) counts[b->top / 64] |= 1ull << b->top % 64;
}

static void join_counts(const expr_builder *b, uint64_t *counts, const uint64_t *others) {
  for (size_t i = 0; i < b->words; i++) counts[i] |= others[i];
}

static tri_status copy_counts(expr_builder *b, const uint64_t *counts, uint64_t **out) {
  *out = NULL;
  if (!counts) return TRI_OK;
  *out = expr_counts(b);
  if (!*out) return TRI_NO_MEMORY;
  memcpy(*out, counts, b->words * sizeof **out);
  return expr_work(b->x, 5 + b->words);
}

/* Writes the runs of a set; returns how many. spans: [top / 2 + 2]. */
static size_t list_spans(const expr_builder *b, const uint64_t *counts, tri_net_span *spans) {
  size_t num = 0;
  for (uint32_t i = 0; i <= b->top; i++) {
    if (!expr_counts_have(counts, i)) continue;
    if (num && spans[num - 1].hi + 1 == i)
      spans[num - 1].hi = i;
    else
      spans[num++] = (tri_net_span){i, i};
  }
  return num;
}

tri_status expr_guard(expr_builder *b, const uint64_t *counts, uint32_t *guard, bool *is_never) {
  enum { KEPT = 8 };
  *is_never = true;
  for (size_t i = 0; i < b->words; i++) *is_never = *is_never && !counts[i];
  *guard = 0;
  if (*is_never || b->is_dry) return TRI_OK;
  for (int i = 0; i < KEPT; i++)
    if (b->guard_sets[i] && !memcmp(b->guard_sets[i], counts, b->words * sizeof *counts)) {
      *guard = b->guards[i];
      return expr_work(b->x, 4 + b->words / 2);
    }
  tri_net_span *spans = tri_arena_alloc(b->x->arena, b->top / 2 + 2, sizeof *spans);
  uint64_t *own;
  if (!spans) return TRI_NO_MEMORY;
  TRI_CHECK(copy_counts(b, counts, &own));
  *guard = tri_net_add_guard(b->net, spans, list_spans(b, counts, spans));
  uint32_t at = b->next_guard++ % KEPT;
  b->guard_sets[at] = own;
  b->guards[at] = *guard;
  return expr_work(b->x, 10 + b->top);
}

/* ---- characters ---- */

static bool has_escape(uint32_t c) { return c < ' ' || c == '"' || c == '\\'; }

/* The characters of a set that have escapes inside a string, each in its one spelling. */
static void add_escapes(const expr_builder *b, const bool *is_there, uint32_t rule, uint32_t from, uint32_t to) {
  uint32_t escape = tri_net_add_state(b->net, rule), high = 0, u = 0;
  uint32_t digits[2] = {0, 0}; /* after \u000 and \u001 */
  tri_net_add_edge(b->net, from, '\\', '\\', escape, TRI_NET_ANY);
  for (uint32_t c = 0; c < 128; c++) {
    char text[6];
    if (!is_there[c] || !has_escape(c)) continue;
    int len = tri_text_spell(c, text);
    if (len == 2) {
      tri_net_add_edge(b->net, escape, (uint8_t)text[1], (uint8_t)text[1], to, TRI_NET_ANY);
      continue;
    }
    if (!u) u = tri_net_add_bytes(b->net, escape, "u00", 3, TRI_NET_ANY);
    high = c >> 4;
    if (!digits[high]) digits[high] = tri_net_add_bytes(b->net, u, text + 4, 1, TRI_NET_ANY);
    tri_net_add_edge(b->net, digits[high], (uint8_t)text[5], (uint8_t)text[5], to, TRI_NET_ANY);
  }
}

/* Makes the rule of the characters of a set that are more than a byte. */
static tri_status rule_of_long(expr_builder *b, const charset *set, const bool *escaped, bool has_escapes,
                               uint32_t *rule) {
  TRI_CHECK(expr_work(b->x, 4 + b->num_known));
  for (size_t i = 0; i < b->num_known; i++)
    if (b->known[i].set == set || charset_equal(b->known[i].set, set)) {
      *rule = b->known[i].rule;
      return TRI_OK;
    }
  if (b->num_known == b->room_known) {
    size_t room = b->room_known ? 2 * b->room_known : 8;
    struct expr_known *grown = tri_arena_alloc(b->x->arena, room, sizeof *grown);
    if (!grown) return TRI_NO_MEMORY;
    if (b->num_known) memcpy(grown, b->known, b->num_known * sizeof *grown);
    b->known = grown;
    b->room_known = room;
  }
  *rule = tri_net_add_rule(b->net, 0);
  uint32_t from = tri_net_first_state(b->net, *rule), to = tri_net_add_state(b->net, *rule);
  for (size_t i = 0; i < set->num; i++)
    if (set->list[i].hi >= 0x80)
      tri_net_add_characters(b->net, from, set->list[i].lo < 0x80 ? 0x80 : set->list[i].lo, set->list[i].hi, to,
                             TRI_NET_ANY);
  if (has_escapes) add_escapes(b, escaped, *rule, from, to);
  tri_net_set_final(b->net, to, 0);
  b->known[b->num_known++] = (struct expr_known){set, *rule};
  return expr_work(b->x, 30 + 40 * set->num);
}

static void add_one(const expr_builder *b, uint32_t c, uint32_t from, uint32_t to, tri_net_count count) {
  char text[6] = {(char)c};
  int len = c >= 0x80 || b->in_string ? tri_text_spell(c, text) : 1;
  uint8_t last = (uint8_t)text[len - 1];
  uint32_t at = tri_net_add_bytes(b->net, from, text, (size_t)len - 1, count);
  tri_net_add_edge(b->net, at, last, last, to, len > 1 ? TRI_NET_ANY : count);
}

static tri_status add_set(expr_builder *b, const charset *set, uint32_t from, uint32_t to, tri_net_count count) {
  bool is_there[129] = {false}, has_escapes = false, has_long = false;
  if (set->num == 1 && set->list[0].lo == set->list[0].hi) {
    add_one(b, set->list[0].lo, from, to, count);
    return expr_work(b->x, 20);
  }
  for (size_t i = 0; i < set->num; i++) {
    for (uint32_t c = set->list[i].lo; c <= set->list[i].hi && c < 0x80; c++) is_there[c] = true;
    has_long = has_long || set->list[i].hi >= 0x80;
  }
  for (uint32_t c = 0; c < 0x80; c++) has_escapes = has_escapes || (b->in_string && is_there[c] && has_escape(c));
  for (uint32_t lo = 0, hi; lo < 0x80; lo = hi + 1) {
    hi = lo;
    if (!is_there[lo] || (b->in_string && has_escape(lo))) continue;
    while (is_there[hi + 1] && !(b->in_string && has_escape(hi + 1))) hi++;
    tri_net_add_edge(b->net, from, (uint8_t)lo, (uint8_t)hi, to, count);
  }
  TRI_CHECK(expr_work(b->x, 40));
  if (!has_long && !has_escapes) return TRI_OK;
  uint32_t rule;
  TRI_CHECK(rule_of_long(b, set, is_there, has_escapes, &rule));
  tri_net_add_call(b->net, from, rule, to, count);
  return TRI_OK;
}

static tri_status add_class(expr_builder *b, const expr *e, uint32_t from, uint32_t to, uint64_t *counts) {
  tri_net_count count = TRI_NET_ANY;
  bool is_never = !e->set->num;
  if (counts && is_never) memset(counts, 0, b->words * sizeof *counts);
  if (counts) {
    expr_counts_before(b, counts);
    count.action = TRI_NET_ADD;
    TRI_CHECK(expr_guard(b, counts, &count.guard, &is_never));
    TRI_CHECK(expr_work(b->x, b->words / 4));
  }
  return is_never || b->is_dry ? TRI_OK : add_set(b, e->set, from, to, count);
}

/* ---- what is made of parts ---- */

static tri_status add_sequence(expr_builder *b, const expr *e, uint32_t from, uint32_t to, uint64_t *counts) {
  if (!e->num && !b->is_dry) tri_net_add_step(b->net, from, to, TRI_NET_ANY);
  for (size_t i = e->num; i; i--) {
    uint32_t begin = i == 1 || b->is_dry ? from : tri_net_add_state(b->net, tri_net_state_at(b->net, from)->rule);
    TRI_CHECK(expr_build(b, e->parts[i - 1], begin, to, counts));
    to = begin;
  }
  return TRI_OK;
}

static tri_status add_alternatives(expr_builder *b, const expr *e, uint32_t from, uint32_t to, uint64_t *counts) {
  uint64_t *before = NULL;
  if (counts) {
    before = expr_counts(b);
    if (!before) return TRI_NO_MEMORY;
  }
  for (size_t i = 0; i < e->num; i++) {
    uint64_t *own;
    TRI_CHECK(copy_counts(b, counts, &own));
    TRI_CHECK(expr_build(b, e->parts[i], from, to, own));
    if (counts) join_counts(b, before, own);
  }
  if (counts) memcpy(counts, before, b->words * sizeof *counts);
  return TRI_OK;
}

/* A rule that counts the characters of a class. */
static tri_status add_counted(expr_builder *b, const expr *e, uint32_t from, uint32_t to) {
  bool has_limit = e->most != EXPR_NO_LIMIT;
  uint32_t top = has_limit ? e->most : e->least;
  if (top > TRI_NET_MAX_COUNT)
    return tri_fail(b->x->err, TRI_TOO_LARGE, "", "%s %zu: more than %d repetitions", b->x->place_name, e->place,
                    TRI_NET_MAX_COUNT);
  if (!e->parts[0]->set->num) return TRI_OK;
  uint32_t rule = tri_net_add_rule(b->net, top), at = tri_net_first_state(b->net, rule);
  tri_net_count fewer = {has_limit ? tri_net_add_range(b->net, 0, top - 1) : 0, TRI_NET_ADD, 0};
  TRI_CHECK(add_set(b, e->parts[0]->set, at, at, fewer));
  tri_net_set_final(b->net, at, tri_net_add_range(b->net, e->least, UINT32_MAX));
  tri_net_add_call(b->net, from, rule, to, TRI_NET_ANY);
  return TRI_OK;
}

/* Finds the counts before any number of repetitions, of which those after them are some. */
static tri_status find_loop_counts(expr_builder *b, const expr *part, uint64_t *counts) {
  bool was_dry = b->is_dry, grown = true;
  if (part->kind == EXPR_CLASS) {
    if (part->set->num) expr_counts_add_below(b, counts);
    return expr_work(b->x, b->words / 4);
  }
  b->is_dry = true;
  while (grown) {
    uint64_t *own;
    TRI_CHECK(copy_counts(b, counts, &own));
    TRI_CHECK(expr_build(b, part, 0, 0, own));
    grown = false;
    for (size_t i = 0; i < b->words; i++) grown = grown || own[i] & ~counts[i];
    join_counts(b, counts, own);
  }
  b->is_dry = was_dry;
  return TRI_OK;
}

static tri_status add_loop(expr_builder *b, const expr *e, uint32_t from, uint32_t to, uint64_t *counts) {
  uint64_t *again;
  if (counts) TRI_CHECK(find_loop_counts(b, e->parts[0], counts));
  if (b->is_dry) return TRI_OK;
  uint32_t loop = tri_net_add_state(b->net, tri_net_state_at(b->net, from)->rule);
  tri_net_add_step(b->net, from, loop, TRI_NET_ANY);
  tri_net_add_step(b->net, loop, to, TRI_NET_ANY);
  TRI_CHECK(copy_counts(b, counts, &again));
  return expr_build(b, e->parts[0], loop, loop, again);
}

/* Copies from the last one to the first. */
static tri_status add_copies(expr_builder *b, const expr *e, uint32_t from, uint32_t to, uint64_t *counts) {
  bool has_limit = e->most != EXPR_NO_LIMIT;
  uint32_t copies = has_limit ? e->most : e->least, next = to;
  uint64_t *after;
  if (copies > EXPR_MAX_COPIES)
    return tri_fail(b->x->err, TRI_TOO_LARGE, "", "%s %zu: more than %d repetitions, where they become copies",
                    b->x->place_name, e->place, EXPR_MAX_COPIES);
  TRI_CHECK(copy_counts(b, counts, &after));
  if (!copies && has_limit && !b->is_dry) tri_net_add_step(b->net, from, to, TRI_NET_ANY);
  for (uint32_t i = copies + !has_limit; i; i--) {
    bool is_loop = !has_limit && i == copies + 1;
    uint32_t begin = i == 1 || b->is_dry ? from : tri_net_add_state(b->net, tri_net_state_at(b->net, from)->rule);
    TRI_CHECK(is_loop ? add_loop(b, e, begin, next, counts) : expr_build(b, e->parts[0], begin, next, counts));
    if (!is_loop && i > e->least) {
      if (!b->is_dry) tri_net_add_step(b->net, begin, to, TRI_NET_ANY);
      if (counts) join_counts(b, counts, after);
    }
    next = begin;
  }
  return TRI_OK;
}

static tri_status add_repeat(expr_builder *b, const expr *e, uint32_t from, uint32_t to, uint64_t *counts) {
  enum { FEW = 4 };
  bool has_limit = e->most != EXPR_NO_LIMIT;
  if (!counts && e->parts[0]->kind == EXPR_CLASS && (has_limit ? e->most : e->least) > FEW)
    return add_counted(b, e, from, to);
  return add_copies(b, e, from, to, counts);
}

tri_status expr_build(expr_builder *b, const expr *e, uint32_t from, uint32_t to, uint64_t *counts) {
  TRI_CHECK(expr_work(b->x, 20));
  if (!b->is_dry) TRI_CHECK(tri_net_check(b->net, b->x->err));
  switch (e->kind) {
  case EXPR_SEQUENCE: return add_sequence(b, e, from, to, counts);
  case EXPR_ALTERNATIVES: return add_alternatives(b, e, from, to, counts);
  case EXPR_CLASS: return add_class(b, e, from, to, counts);
  case EXPR_REPEAT: return add_repeat(b, e, from, to, counts);
  case EXPR_RULE: tri_net_add_call(b->net, from, b->rules[e->rule], to, TRI_NET_ANY); return TRI_OK;
  case EXPR_BEGIN:
  case EXPR_END: break; /* the reader of the expression has taken them out */
  }
  return TRI_INTERNAL;
}
