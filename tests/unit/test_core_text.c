/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core against recorded actions: the text of answers, where stop strings cut it, and clients that
 * come back for it. */
#include "base/log.h"
#include "tests/unit/core_world.h"

Suite *suite_core_text(void);

/* ---- where an answer begins ---- */

/* The answer is what stands after the prompt in the text of both: its first space is no beginning of a text's. The
 * source of an encoder-decoder is another text. */
START_TEST(test_first_space) {
  tri_error err = {0};
  tri_tokenizer *kept = tokenizer;
  ck_assert_msg(tri_tokenizer_load(TRI_TEST_DATA "/tokenizers/spm_bpe_llama2/tokenizer.json", &tokenizer, &err) ==
                    TRI_OK,
                "%s", err.message);
  uint32_t word = 0;
  for (uint32_t i = 0; i < tri_tokenizer_vocab_size(tokenizer) && !word; i++) {
    const char *name = tri_tokenizer_token(tokenizer, i);
    if (name && !strncmp(name, "\xe2\x96\x81", 3) && strlen(name) == 4) word = i;
  }
  ck_assert_uint_ne(word, 0);
  const char letter = tri_tokenizer_token(tokenizer, word)[3], want[] = {' ', letter, ' ', letter, 0};
  const uint32_t prompt[] = {1, word};
  for (int only_special = 0; only_special < 2; only_special++) {
    struct world *w = world_create(1);
    start_replica(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    m.submit.token_ids = prompt;
    m.submit.num_token_ids = only_special ? 1 : 2;
    m.submit.sampling.logprobs = 0;
    struct stream *s = submit(w, "a", &m);
    token(w, last_job(w), 0, 0, word, 0, 0);
    token(w, last_job(w), 0, 1, word, TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
    ck_assert(s->done);
    expect_text(s, 0, want + only_special);
    ck_assert_str_eq(s->choice[0].pieces, want + only_special); /* the tokens' texts are the text */
    world_destroy(w);
  }
  tri_tokenizer_destroy(tokenizer);
  tokenizer = kept;
}
END_TEST

/* ---- stop strings ---- */

START_TEST(test_stop_string) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  set_stop(&m, "world");
  struct stream *s = submit(w, "a", &m);
  bytes(w, last_job(w), 0, "wor wo worlds apart");
  expect_text(s, 0, "wor wo ");
  ck_assert(s->done);
  ck_assert_int_eq(s->choice[0].reason, TRI_FINISH_STOP);
  ck_assert_uint_eq(s->choice[0].num, 12);
  ck_assert_uint_eq(s->choice[0].len_after[3], 0); /* held back */
  ck_assert_uint_eq(s->choice[0].len_after[4], 4);
  ck_assert_int_eq(w->num_aborts, 1); /* the replica need not go on */
  ck_assert_uint_eq(w->aborts[0], last_job(w));
  world_destroy(w);
}
END_TEST

/* The text may go on to the end of what has stopped it, which `done` names. */
START_TEST(test_stop_reason) {
  for (int include = 0; include < 2; include++)
    for (int by_id = 0; by_id < 2; by_id++) {
      struct world *w = world_create(1);
      start_replica(w, 0, 1, 1);
      tri_client_msg m = submit_msg(1);
      set_stop(&m, "zz");
      set_stop(&m, "lo");
      m.submit.sampling.include_stop = include;
      m.submit.sampling.stop_token_ids[m.submit.sampling.num_stop_token_ids++] = byte_token['h'];
      struct stream *s = submit(w, "a", &m);
      if (by_id) {
        token(w, last_job(w), 0, 0, byte_token['x'], 0, TRI_FINISH_STOP);
        token(w, last_job(w), 0, 1, byte_token['h'], TRI_TOKEN_LAST | TRI_TOKEN_STOP_ID, TRI_FINISH_STOP);
      } else {
        bytes(w, last_job(w), 0, "hello");
      }
      ck_assert_msg(s->done && s->choice[0].reason == TRI_FINISH_STOP, "%d %d", include, by_id);
      ck_assert_int_eq(s->choice[0].stop_string, by_id ? -1 : 1);
      ck_assert_int_eq(s->choice[0].stop_token_id, by_id ? (int64_t)byte_token['h'] : -1);
      const char *want = by_id ? "x" : "hel", *whole = by_id ? "xh" : "hello";
      if (include) want = whole;
      expect_text(s, 0, want);
      world_destroy(w);
    }
}
END_TEST

/* A choice that a stop string ended is still computed by its replica: it is told when the others have ended. */
START_TEST(test_stop_string_of_one_choice) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.n = 2;
  set_stop(&m, "b");
  struct stream *s = submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['b'], 0, 0);
  token(w, last_job(w), 1, 0, byte_token['c'], 0, 0);
  token(w, last_job(w), 0, 1, byte_token['d'], 0, 0); /* too late */
  ck_assert_int_eq(w->num_aborts, 0);
  token(w, last_job(w), 1, 1, byte_token['c'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  ck_assert(s->done);
  expect_text(s, 0, "");
  expect_text(s, 1, "cc");
  ck_assert_int_eq(w->num_aborts, 1);
  world_destroy(w);
}
END_TEST

START_TEST(test_held_back_text_comes_at_the_end) {
  for (int how = 0; how < 3; how++) {
    struct world *w = world_create(1);
    start_replica(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    set_stop(&m, "abcd");
    struct stream *s = submit(w, "a", &m);
    uint64_t job = last_job(w);
    token(w, job, 0, 0, byte_token['x'], 0, 0);
    token(w, job, 0, 1, byte_token['a'], 0, 0);
    token(w, job, 0, 2, byte_token['b'], 0, 0);
    expect_text(s, 0, "x");
    if (how == 0) token(w, job, 0, 3, byte_token['c'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
    if (how == 1) token(w, job, 0, 3, 0, TRI_TOKEN_LAST | TRI_TOKEN_NONE, TRI_FINISH_ABORT);
    if (how == 2) cancel(w, "a", 2, s);
    ck_assert(s->done);
    expect_text(s, 0, how ? "xab" : "xabc");
    /* Whoever comes back with all tokens gets it as well. */
    struct stream *t = attach(w, 3, s, 3);
    expect_text(t, 0, how ? "xab" : "xabc");
    ck_assert(t->done);
    world_destroy(w);
  }
}
END_TEST

/* min_tokens lets a stop string pass; it is text then and cuts nothing later. */
START_TEST(test_stop_before_min_tokens) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.min_tokens = 4;
  set_stop(&m, "ab");
  set_stop(&m, "0123456789");
  struct stream *s = submit(w, "a", &m);
  bytes(w, last_job(w), 0, "xabxxxxxabxx");
  expect_text(s, 0, "xabxxxxx");
  ck_assert(s->done);
  world_destroy(w);
}
END_TEST

/* ---- random texts, tokens, stop strings, slow and returning clients ---- */

static uint64_t rng;
static uint32_t range(uint32_t n) {
  rng += 0x9e3779b97f4a7c15u;
  uint64_t x = (rng ^ (rng >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return (uint32_t)((x ^ (x >> 31)) % n);
}

static size_t random_text(char *to, uint32_t most) {
  static const char *const letters[] = {"a", "b", "se", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "self", " "};
  size_t n = 0;
  for (uint32_t i = 1 + range(most); i; i--)
    for (const char *p = letters[range(8)]; *p; p++) to[n++] = *p;
  to[n] = '\0';
  return n;
}

/* Cuts a text at random into tokens of the vocabulary. */
static size_t random_tokens(const char *text, size_t len, uint32_t *ids) {
  uint32_t fitting[8192], vocab = tri_tokenizer_vocab_size(tokenizer);
  size_t n = 0;
  for (size_t at = 0; at < len; at += token_len[ids[n - 1]]) {
    uint32_t num = 0;
    for (uint32_t i = 0; i < vocab; i++)
      if (token_len[i] && token_len[i] <= len - at && !memcmp(token_text[i], text + at, token_len[i]))
        fitting[num++] = i;
    ck_assert_uint_gt(num, 0);
    ids[n++] = fitting[range(num)];
  }
  return n;
}

/* Where the text must end: in front of the longest of the stop strings that are complete first. */
static size_t cut_text(const char *text, size_t len, const tri_client_msg *m, size_t *end) {
  for (size_t e = 1; e <= len; e++) {
    size_t best = SIZE_MAX;
    for (int i = 0; i < m->submit.sampling.num_stop; i++) {
      tri_wire_str s = m->submit.sampling.stop[i];
      if (s.len <= e && !memcmp(text + e - s.len, s.s, s.len) && e - s.len < best) best = e - s.len;
    }
    *end = e;
    if (best != SIZE_MAX) return best;
  }
  return len;
}

struct story {
  char text[512], stops[3][64];
  size_t len, cut, end, num; /* end: bytes until the stop string is complete */
  uint32_t ids[512];
  tri_client_msg m;
};

static void make_story(struct story *x, int i) {
  *x = (struct story){.m = submit_msg(1)};
  x->len = random_text(x->text, 20);
  for (uint32_t k = range(4); k; k--) {
    char *s = x->stops[k - 1];
    if (range(2))
      random_text(s, 3);
    else
      snprintf(s, 64, "%.2s", x->text + range((uint32_t)x->len)); /* likely there, perhaps half a character */
    if (*s) set_stop(&x->m, s);
  }
  x->num = random_tokens(x->text, x->len, x->ids);
  x->m.submit.on_disconnect = TRI_DISCONNECT_CONTINUE;
  x->m.submit.request_id.bytes[0] = (uint8_t)(i + 1);
  x->m.submit.has_request_id = true;
}

/* Stop strings are found in whole characters only: a text cut elsewhere is not what this test is about. */
static bool whole_characters(const struct story *x) {
  for (int i = 0; i < x->m.submit.sampling.num_stop; i++) {
    const uint8_t *s = (const uint8_t *)x->m.submit.sampling.stop[i].s;
    size_t n = x->m.submit.sampling.stop[i].len, k = 0;
    while (k < n) k += s[k] < 0x80 ? 1 : s[k] < 0xc0 ? 100 : s[k] < 0xe0 ? 2 : s[k] < 0xf0 ? 3 : 4;
    if (k != n) return false;
  }
  return true;
}

static void check_story(const struct story *x, const struct stream *s, bool stopped) {
  ck_assert(s->done);
  ck_assert_msg(s->choice[0].len == x->cut && !memcmp(s->choice[0].text, x->text, x->cut),
                "\"%.*s\", not the first %zu bytes of \"%s\"", (int)s->choice[0].len, s->choice[0].text, x->cut,
                x->text);
  ck_assert_int_eq(s->choice[0].reason, stopped ? TRI_FINISH_STOP : TRI_FINISH_LENGTH);
  ck_assert_mem_eq(s->choice[0].ids, x->ids, s->choice[0].num * sizeof *x->ids);
  ck_assert_uint_eq(s->choice[0].num, s->completion_tokens);
}

/* What has been sent is a beginning of what will have been, and no more is held back than a stop string needs. */
static void check_progress(const struct story *x, const struct stream *s, size_t bytes_so_far) {
  size_t longest = 1 + 3; /* of a character */
  for (int i = 0; i < x->m.submit.sampling.num_stop; i++)
    if (x->m.submit.sampling.stop[i].len + 3 > longest) longest = x->m.submit.sampling.stop[i].len + 3;
  ck_assert_uint_le(s->choice[0].len, x->cut);
  ck_assert_mem_eq(s->choice[0].text, x->text, s->choice[0].len);
  ck_assert_uint_gt(s->choice[0].len + longest, bytes_so_far < x->cut ? bytes_so_far : x->cut);
}

static void tell_story(struct world *w, const struct story *x, uint64_t job, struct stream *prompt) {
  size_t at = 0;
  for (size_t i = 0; i < x->num; i++) {
    token(w, job, 0, i, x->ids[i], i + 1 == x->num ? TRI_TOKEN_LAST : 0, TRI_FINISH_LENGTH);
    at += token_len[x->ids[i]];
    if (prompt) check_progress(x, prompt, at);
  }
}

/* A client that reads at once, then clients that come back with every number of tokens. */
START_TEST(test_stories) {
  for (int i = 0; i < 60; i++) {
    struct story x;
    rng = (uint64_t)(_i * 1000 + i);
    do make_story(&x, i % 200);
    while (!whole_characters(&x));
    x.cut = cut_text(x.text, x.len, &x.m, &x.end);
    bool stopped = x.cut < x.len || x.end < x.len;
    struct world *w = world_create(1);
    start_replica(w, 0, 1, 1);
    struct stream *s = submit(w, "a", &x.m);
    tell_story(w, &x, last_job(w), s);
    check_story(&x, s, stopped);
    ck_assert_int_eq(w->num_aborts, s->choice[0].num < x.num);
    for (size_t k = 0; k <= s->choice[0].num; k++) check_story(&x, attach(w, 100 + k, s, k), stopped);
    world_destroy(w);
  }
}
END_TEST

/* The same with clients that read in fits and starts, vanish and come back while the job runs. */
START_TEST(test_stories_slow) {
  for (int i = 0; i < 60; i++) {
    struct story x;
    rng = (uint64_t)(_i * 1000 + i + 500);
    do make_story(&x, i % 200);
    while (!whole_characters(&x));
    x.cut = cut_text(x.text, x.len, &x.m, &x.end);
    struct world *w = world_create(1);
    start_replica(w, 0, 1, 1);
    struct stream *s = submit(w, "a", &x.m);
    uint64_t job = last_job(w);
    for (size_t k = 0; k < x.num; k++) {
      if (!range(3)) s->pass = (int)range(3), s->again = (int)range(6);
      if (!range(5)) s->closed = true;
      token(w, job, 0, k, x.ids[k], k + 1 == x.num ? TRI_TOKEN_LAST : 0, TRI_FINISH_LENGTH);
      if (!range(2)) tick(w, MS);
      if (s->closed) s = attach(w, 100 + k, s, s->choice[0].num); /* with what it has read */
    }
    for (int k = 0; k < 10 && !s->done; k++) tick(w, MS);
    check_story(&x, s, x.cut < x.len || x.end < x.len);
    world_destroy(w);
  }
}
END_TEST

Suite *suite_core_text(void) {
  Suite *suite = suite_create("core_text");
  tri_log_setup(TRI_LOG_ERROR, "core");
  TCase *t = add_case(suite, "text");
  tcase_add_test(t, test_first_space);
  tcase_add_test(t, test_stop_string);
  tcase_add_test(t, test_stop_string_of_one_choice);
  tcase_add_test(t, test_stop_reason);
  tcase_add_test(t, test_held_back_text_comes_at_the_end);
  tcase_add_test(t, test_stop_before_min_tokens);
  tcase_add_loop_test(t, test_stories, 0, 5);
  tcase_add_loop_test(t, test_stories_slow, 0, 5);
  return suite;
}
