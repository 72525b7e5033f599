/* SPDX-License-Identifier: Apache-2.0 */
/* The response cache in front of the replicas: that a hit is the first answer again, what is kept, what a hit costs. */
#include <time.h>

#include "tests/unit/core_cache_kit.h"

Suite *suite_core_cache(void);

/* ---- hits ---- */

START_TEST(a_hit_is_the_first_answer) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy();
  m.submit.sampling.n = 2;
  struct stream *a = answered(w, "a", &m, "a text");
  w->now += SECOND;
  struct stream *b = again(w, "b", &m);
  ck_assert(b->done && b->cached && w->num_assigns == 1);
  ck_assert_int_eq(b->messages, 1 + 2 + 1); /* accepted, the tokens of each choice, done */
  expect_same(a, b, 2);
  expect_text(b, 1, "a text");
  ck_assert(b->queue_ms == 0 && b->preemptions == 0);
  ck_assert(memcmp(&a->request_id, &b->request_id, sizeof a->request_id) != 0);
  ck_assert(tri_core_is_idle(w->core));
  tri_client_msg whole = m;
  whole.submit.stream = false;
  struct stream *c = again(w, "c", &whole);
  ck_assert(c->cached && c->messages == 2 && !c->choice[0].num);
  expect_text(c, 0, "a text");
  expect_text(c, 1, "a text");
  ck_assert_uint_eq(tri_core_generated_tokens(w->core), 12); /* those of the replica alone */
  world_destroy(w);
}
END_TEST

/* One that reads slowly gets the rest when it does. */
START_TEST(a_slow_client) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy();
  m.submit.sampling.n = 3;
  struct stream *a = answered(w, "a", &m, "slowly");
  for (int pass = 0; pass < 5; pass++) {
    m.id = ++next_id;
    struct stream *s = open_stream(w, "b", m.id);
    s->pass = pass;
    s->again = 1;
    tri_core_client(w->core, w->now, &s->peer, &m);
    ck_assert(!s->done && s->messages == pass && w->num_assigns == 1);
    tick(w, 100 * MS);
    ck_assert(s->done && s->cached && s->messages == 5);
    expect_same(a, s, 3);
  }
  world_destroy(w);
}
END_TEST

/* Logprobs, an echo, a stop string: the ways in which an answer is more than its text. */
START_TEST(all_of_an_answer_comes_again) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy();
  m.submit.sampling.logprobs = 2;
  struct stream *a = answered(w, "a", &m, "logprobs"), *b = again(w, "b", &m);
  ck_assert(b->cached && b->choice[0].num_logprobs == 8 && b->choice[0].num_alternatives == 16);
  expect_same(a, b, 1);
  m = greedy();
  m.submit.sampling.echo = true;
  m.submit.prompt = (tri_wire_str){"pr\xc3", 3};
  m.submit.token_ids = NULL;
  w->tokenize_now = true;
  w->now_ids = some_ids;
  w->num_now_ids = 3;
  a = answered(w, "a", &m, "!");
  b = again(w, "b", &m);
  ck_assert(b->cached);
  expect_same(a, b, 1);
  expect_text(b, 0, "pr\xef\xbf\xbd!");
  m = greedy();
  set_stop(&m, "END");
  a = again(w, "a", &m);
  const char *text = "for ENDE";
  for (size_t i = 0; i < 7; i++) token(w, last_job(w), 0, i, byte_token[(uint8_t)text[i]], 0, 0);
  ck_assert(a->done && a->choice[0].reason == TRI_FINISH_STOP);
  b = again(w, "b", &m);
  ck_assert(b->cached && b->choice[0].reason == TRI_FINISH_STOP);
  expect_same(a, b, 1);
  expect_text(b, 0, "for ");
  world_destroy(w);
}
END_TEST

/* A client that comes back to a hit goes on behind any token, and gets its text to the byte. */
START_TEST(a_hit_can_be_attached_to) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy();
  set_stop(&m, "xyz");
  answered(w, "a", &m, "axy\xc3\xa4xyw");
  struct stream *hit = again(w, "b", &m);
  ck_assert(hit->cached);
  struct stream *full = attach(w, ++next_id, hit, 0);
  ck_assert(full->done && full->existing && full->cached);
  expect_text(full, 0, "axy\xc3\xa4xyw");
  /* The cached stream came in one piece: how much text lies before a token, the first stream knows. */
  for (uint64_t offset = 0; offset <= 8; offset++) {
    size_t got = 0;
    struct stream *rest = open_stream(w, "rest", ++next_id);
    rest->choice[0].num = offset;
    tri_client_msg at = {.op = TRI_OP_ATTACH, .id = rest->id, .attach = {hit->request_id, offset}};
    tri_core_client(w->core, w->now, &rest->peer, &at);
    got = rest->choice[0].len;
    static const size_t before[] = {0, 1, 1, 1, 1, 5, 5, 5, 8};
    ck_assert(rest->done);
    ck_assert_msg(got == 8 - before[offset], "%d: %zu bytes", (int)offset, got);
  }
  world_destroy(w);
}
END_TEST

/* Hits come fast, and each has memory of its own as long as its client may come back: the oldest make room. */
START_TEST(hits_are_retained_within_bounds) {
  enum { HITS = 1000, MOST = 256 << 10 };
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy();
  m.submit.sampling.logprobs = 0;
  answered(w, "a", &m, "a text of some length");
  w->core->cfg.most_retained = MOST;
  struct stream *last = NULL;
  for (int i = 0; i < HITS; i++) {
    w->num_streams = 0;
    last = again(w, "b", &m);
    ck_assert(last->cached);
    tick(w, 0);
    ck_assert_uint_le(w->core->jobs->retained, MOST);
  }
  ck_assert_uint_gt(w->core->jobs->retained, MOST / 2);
  ck_assert_int_lt(w->core->jobs->num_retained, HITS / 2);
  struct stream *full = attach(w, ++next_id, last, 0);
  ck_assert(full->done && full->cached);
  expect_text(full, 0, "a text of some length");
  tick(w, 61 * SECOND);
  ck_assert_uint_eq(w->core->jobs->retained, 0);
  world_destroy(w);
}
END_TEST

static int pieces;
static size_t piece_ids;

static tri_status count_pieces(void *ctx, const tri_peer *to, const tri_server_msg *m) {
  (void)ctx, (void)to;
  pieces += m->op == TRI_REPLY_TOKENS;
  if (m->op == TRI_REPLY_TOKENS) piece_ids += m->tokens.choices[0].num_ids;
  return TRI_OK;
}

/* An answer that a stream gives in parts comes whole, unless it is too large to be kept. */
START_TEST(long_answers) {
  enum { KEPT = 10000, TOO_MANY = 40000 }; /* 8 bytes of a token are its id and how much text it made certain */
  struct world *w = world_create_caching(CACHE);
  tri_replica_token *all = calloc(TOO_MANY, sizeof *all);
  tri_client_msg m = greedy();
  w->core->cfg.io.to_client = count_pieces;
  for (uint32_t n = KEPT; n <= TOO_MANY; n += TOO_MANY - KEPT) {
    m.submit.sampling.min_tokens = n == KEPT; /* another request */
    submit(w, "a", &m);
    for (uint32_t i = 0; i < n; i++)
      all[i] = (tri_replica_token){.job = last_job(w), .token = byte_token['x'], .offset = i};
    all[n - 1].flags = TRI_TOKEN_LAST;
    send_tokens(w, 0, 1, all, n);
    pieces = 0;
    piece_ids = 0;
    m.id = ++next_id;
    submit(w, "b", &m);
    ck_assert_int_eq(pieces, n == KEPT);
    ck_assert_uint_eq(piece_ids, n == KEPT ? KEPT : 0);
  }
  free(all);
  world_destroy(w);
}
END_TEST

/* With every replica busy, and with a queue behind them. */
START_TEST(busy_replicas_do_not_matter) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy(), other = submit_msg(0);
  answered(w, "a", &m, "x");
  for (int i = 0; i < 15; i++) again(w, "load", &other);
  ck_assert(again(w, "b", &m)->cached);
  world_destroy(w);
}
END_TEST

/* Without a replica nobody knows how long an answer may be: the job waits for one, as any other. */
START_TEST(a_lost_replica) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy();
  answered(w, "a", &m, "x");
  tri_replica_msg gone = {.op = TRI_REPLICA_FAILED, .failed = {.replica = 0, .epoch = 1}};
  send_worker(w, 0, 1, 0, &gone);
  ck_assert_int_eq(w->lost, 1);
  struct stream *s = again(w, "b", &m);
  ck_assert(s->accepted && !s->done && !s->cached);
  start_replica(w, 0, 2, 1);
  ck_assert(!s->done && w->num_assigns == 2);
  ck_assert(again(w, "c", &m)->cached);
  w->core->replicas->list[0].facts.max_model_len--; /* a default of max_tokens would be cut elsewhere */
  ck_assert(!hits(w, &m));
  world_destroy(w);
}
END_TEST

/* ---- what is not kept ---- */

START_TEST(only_whole_answers_are_kept) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy();
  struct stream *s = again(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['x'], 0, 0);
  cancel(w, "a", ++next_id, s);
  ck_assert(s->done && s->choice[0].reason == TRI_FINISH_ABORT);
  ck_assert(!hits(w, &m));
  m.submit.sampling.n = 2; /* one choice has ended, the other is cancelled */
  s = again(w, "a", &m);
  bytes(w, last_job(w), 0, "x");
  cancel(w, "a", ++next_id, s);
  ck_assert(!hits(w, &m));
  m.submit.sampling.n = 1;
  again(w, "a", &m); /* its deadline passes in the replica */
  token(w, last_job(w), 0, 0, 0, TRI_TOKEN_NONE | TRI_TOKEN_LAST, TRI_FINISH_ABORT);
  ck_assert(!hits(w, &m));
  again(w, "a", &m);
  token(w, last_job(w), 0, 0, 0, TRI_TOKEN_NONE | TRI_TOKEN_LAST, TRI_FINISH_ERROR);
  ck_assert(!hits(w, &m));
  tri_replica_msg no = {.op = TRI_REPLICA_REFUSED, .refused = {.epoch = 1, .code = {"no_capacity", 11}}};
  again(w, "a", &m);
  no.refused.job = last_job(w);
  send_worker(w, 0, 1, 0, &no);
  ck_assert(!hits(w, &m));
  m.submit.sampling.prompt_logprobs = 0; /* they are not kept */
  again(w, "a", &m);
  bytes(w, last_job(w), 0, "x");
  ck_assert(!hits(w, &m));
  ck_assert_uint_eq(tri_response_cache_figures_of(w->core->jobs->cache).entries, 0);
  world_destroy(w);
}
END_TEST

/* `cache` false neither takes an answer nor leaves one. */
START_TEST(the_client_may_skip_it) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy();
  m.submit.cache = false;
  answered(w, "a", &m, "first");
  m.submit.cache = true;
  answered(w, "a", &m, "second");
  m.submit.cache = false;
  answered(w, "a", &m, "third");
  m.submit.cache = true;
  expect_text(again(w, "b", &m), 0, "second");
  tri_response_cache_figures f = tri_response_cache_figures_of(w->core->jobs->cache);
  ck_assert(f.hits == 1 && f.misses == 1);
  world_destroy(w);
}
END_TEST

START_TEST(off_by_default) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = greedy();
  answered(w, "a", &m, "x");
  answered(w, "b", &m, "x");
  char stats[STATS_BYTES] = "";
  w->stats = stats;
  tri_client_msg ask = {.op = TRI_OP_STATS, .id = ++next_id};
  submit(w, "a", &ask);
  ck_assert(strlen(stats) > 100 && !strstr(stats, "response_cache"));
  world_destroy(w);
}
END_TEST

/* A job that comes too late for its own deadline is not saved by the cache. */
START_TEST(a_passed_deadline) {
  struct world *w = world_create_caching(CACHE);
  tri_client_msg m = greedy();
  answered(w, "a", &m, "x");
  m.submit.sampling.deadline_ms = 10;
  m.submit.prompt = (tri_wire_str){"text", 4};
  m.submit.token_ids = NULL;
  struct stream *s = again(w, "b", &m);
  w->now += 20 * MS;
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, some_ids, 3, 0);
  ck_assert(s->done && s->timed_out && !s->cached);
  world_destroy(w);
}
END_TEST

/* ---- figures ---- */

START_TEST(figures) {
  struct world *w = world_create_caching(TRI_RESPONSE_CACHE_LEAST);
  static char text[250];
  tri_client_msg m = greedy();
  memset(text, 'x', sizeof text - 1);
  for (uint32_t i = 0; i < 60; i++) {
    uint32_t ids[] = {i + 1, 2};
    m.submit.token_ids = ids;
    m.submit.num_token_ids = 2;
    m.submit.sampling.logprobs = 20;
    answered(w, "a", &m, text);
    w->num_assigns = w->num_streams = 0;
    if (i % 2) ck_assert(again(w, "b", &m)->cached);
  }
  static tri_cluster_status status;
  char stats[STATS_BYTES] = "", want[100];
  w->stats = stats;
  w->status = &status;
  tri_client_msg ask = {.op = TRI_OP_STATS, .id = ++next_id};
  submit(w, "a", &ask);
  ask = (tri_client_msg){.op = TRI_OP_STATUS, .id = ++next_id};
  submit(w, "a", &ask);
  ck_assert(status.response_cache_hits == 30 && status.response_cache_misses == 60);
  ck_assert(status.response_cache_entries > 3 && status.response_cache_limit == TRI_RESPONSE_CACHE_LEAST);
  ck_assert_uint_eq(status.response_cache_entries + status.response_cache_evictions, 60);
  ck_assert(status.response_cache_bytes <= TRI_RESPONSE_CACHE_LEAST &&
            status.response_cache_bytes == tri_core_cached_bytes(w->core));
  const struct {
    const char *name;
    uint64_t value;
  } rows[] = {{"hits_total", 30},
              {"misses_total", 60},
              {"evictions_total", status.response_cache_evictions},
              {"entries", status.response_cache_entries},
              {"bytes", status.response_cache_bytes}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    snprintf(want, sizeof want, "\ntrireme:response_cache_%s %llu\n", rows[i].name, (unsigned long long)rows[i].value);
    ck_assert_msg(strstr(stats, want) != NULL, "%s", want);
  }
  world_destroy(w);
}
END_TEST

static uint64_t assigned_job;

static tri_status take_job(void *ctx, const tri_peer *to, tri_replica_msg *m) {
  (void)ctx, (void)to;
  if (m->op == TRI_REPLICA_ASSIGN) assigned_job = m->assign.job;
  return TRI_OK;
}

static double us_between(struct timespec from, struct timespec to) {
  return (double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) * 1e-3;
}

/* Prints what a hit costs in the core, from the request that has been unpacked to the last reply handed over. */
static void measure(size_t prompt, uint32_t answer, int64_t logprobs) {
  enum { HITS = 1000, MOST = 8192 };
  static uint32_t ids[MOST];
  static tri_replica_token all[MOST];
  static const float top[5] = {-1, -2, -3, -4, -5};
  struct world *w = world_create_caching(4 * CACHE);
  struct timespec from, to;
  tri_client_msg m = greedy();
  w->core->cfg.io.to_client = count_pieces;
  w->core->cfg.io.to_worker = take_job;
  w->core->replicas->list[0].facts.max_model_len = w->core->replicas->list[0].facts.kv_blocks = 4 * MOST;
  w->core->cfg.max_prompt = 4 * MOST;
  for (uint32_t i = 0; i < MOST; i++) ids[i] = i % 500 + 1;
  m.submit.token_ids = ids;
  m.submit.num_token_ids = prompt;
  m.submit.sampling.logprobs = logprobs;
  submit(w, "a", &m);
  for (uint32_t i = 0; i < answer; i++) {
    all[i] =
        (tri_replica_token){.job = assigned_job, .token = byte_token['x'], .offset = i, .flags = TRI_TOKEN_LOGPROB};
    all[i].num_top = logprobs > 0 ? 5 : 0;
    all[i].top_ids = ids;
    all[i].top_logprobs = top;
  }
  all[answer - 1].flags |= TRI_TOKEN_LAST;
  send_tokens(w, 0, 1, all, answer);
  struct stream *s = open_stream(w, "b", 0);
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (int i = 0; i < HITS; i++) {
    m.id = ++next_id;
    tri_core_client(w->core, w->now, &s->peer, &m);
  }
  clock_gettime(CLOCK_MONOTONIC, &to);
  printf("a hit of %u tokens%s behind %zu: %.1f us\n", answer, logprobs < 0 ? "" : " with 5 logprobs each", prompt,
         us_between(from, to) / HITS);
  ck_assert_uint_eq(tri_response_cache_figures_of(w->core->jobs->cache).hits, HITS);
  world_destroy(w);
}

START_TEST(cost) {
  measure(100, 28, -1);
  measure(8000, 28, -1);
  measure(100, 2000, -1);
  measure(100, 100, 5);
}
END_TEST

Suite *suite_core_cache(void) {
  Suite *s = suite_create("core_cache");
  TCase *t = add_case(s, "hits");
  tcase_add_test(t, a_hit_is_the_first_answer);
  tcase_add_test(t, a_slow_client);
  tcase_add_test(t, all_of_an_answer_comes_again);
  tcase_add_test(t, a_hit_can_be_attached_to);
  tcase_add_test(t, hits_are_retained_within_bounds);
  tcase_add_test(t, long_answers);
  tcase_add_test(t, busy_replicas_do_not_matter);
  tcase_add_test(t, a_lost_replica);
  t = add_case(s, "kept");
  tcase_add_test(t, only_whole_answers_are_kept);
  tcase_add_test(t, the_client_may_skip_it);
  tcase_add_test(t, off_by_default);
  tcase_add_test(t, a_passed_deadline);
  t = add_case(s, "figures");
  tcase_add_test(t, figures);
  tcase_add_test(t, cost);
  return s;
}
