/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's scheduler with an encoder: sequences go whole, once, in order, and every result finds its job. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/wait.h"
#include "worker/schedule/scheduler.h"

Suite *suite_embed_schedule(void);

enum { VOCAB = 50, MAX_JOBS = 200, MAX_MICRO_BATCHES = 3, MAX_LEN = 24, COLS = 2, MAX_ROWS = 512, MAX_BLOCKS = 100 };

static const tri_job_model model; /* no ids that mean anything */

/* ck_assert notes every call in a file, which is too slow for what is checked often. */
#define MUST(condition)                                                                                                \
  do {                                                                                                                 \
    if (!(condition)) ck_abort_msg("%s", #condition);                                                                  \
  } while (0)

struct request {
  uint32_t ids[MAX_LEN];
  int len;
  int results, ends, step; /* step: in which it ran; 0: not yet */
};

struct sim {
  tri_limits limits;
  int micro_batches;
  bool by_token;
  tri_encoder_batching batching;
  tri_sched *sched;
  tri_plan_writer *writer;
  tri_slots *slots;
  tri_batch_builder *batch;
  tri_outbox out;
  struct request requests[MAX_JOBS];
  int num_requests, steps;
  struct late {
    bool on;
    float values[MAX_ROWS * COLS];
    tri_embed_result r;
  } late[MAX_MICRO_BATCHES];
  /* of the last step */
  int seqs, tokens, order[MAX_JOBS];
  int paddings; /* sequences of nobody behind them */
};

static struct sim *create_with(tri_limits limits, int micro_batches, bool by_token, tri_sched_config sc) {
  struct sim *s = calloc(1, sizeof *s);
  ck_assert_ptr_nonnull(s);
  limits.embeds = limits.whole_sequences = true;
  limits.vocab_size = VOCAB;
  sc.limits = limits;
  sc.num_micro_batches = micro_batches;
  s->batching = sc.encoder_batching;
  s->limits = limits;
  s->micro_batches = micro_batches;
  s->by_token = by_token;
  size_t seqs = (size_t)limits.max_num_seqs, tokens = (size_t)limits.max_num_batched_tokens;
  ck_assert_int_eq(tri_sched_create(&sc, &s->sched), TRI_OK);
  tri_plan_sizes sizes = {.seqs = 2 * seqs, .ids = tokens, .blocks = tri_limits_plan_sizes(&limits).blocks};
  ck_assert_int_eq(tri_plan_writer_create(&sizes, &s->writer), TRI_OK);
  ck_assert_int_eq(tri_slots_create(&limits, &s->slots), TRI_OK);
  ck_assert_int_eq(tri_batch_builder_create(&limits, &s->batch), TRI_OK);
  ck_assert_int_eq(tri_outbox_init_results(&s->out, (int)seqs, (by_token ? tokens : seqs) * COLS), TRI_OK);
  return s;
}

static struct sim *create(tri_limits limits, int micro_batches, bool by_token, bool by_priority) {
  return create_with(limits, micro_batches, by_token, (tri_sched_config){.by_priority = by_priority});
}

static void destroy(struct sim *s) {
  tri_sched_destroy(s->sched);
  tri_plan_writer_destroy(s->writer);
  tri_slots_destroy(s->slots);
  tri_batch_builder_destroy(s->batch);
  tri_outbox_free(&s->out);
  free(s);
}

static void add(struct sim *s, int len, int64_t priority, int64_t remaining_ms) {
  struct request *r = &s->requests[s->num_requests];
  tri_replica_assign a = {.job = (uint64_t)s->num_requests++, .token_ids = r->ids, .remaining_ms = remaining_ms};
  tri_job *job;
  tri_error err = {0};
  *r = (struct request){.len = len};
  for (int i = 0; i < len; i++) r->ids[i] = (uint32_t)(1 + rand() % (VOCAB - 1)); /* 0 is padding's */
  a.num_token_ids = (size_t)len;
  a.sampling = (tri_sampling){.n = 1, .logprobs = -1, .prompt_logprobs = -1, .max_tokens = 16, .priority = priority};
  ck_assert_msg(tri_job_create(&a, &s->limits, &model, 0, &job, &err) == TRI_OK, "%s", err.message);
  tri_sched_add(s->sched, job);
}

static float row_value(const struct request *r, int token, int col, bool by_token) {
  float sum = (float)(col * 1000);
  for (int i = 0; !by_token && i < r->len; i++) sum += (float)r->ids[i];
  return by_token ? sum + (float)r->ids[token] : sum;
}

/* The first request with these tokens that has not run. */
static int find(const struct sim *s, const uint32_t *ids, int len) {
  for (int i = 0; i < s->num_requests; i++)
    if (s->requests[i].len == len && !s->requests[i].step &&
        !memcmp(s->requests[i].ids, ids, (size_t)len * sizeof *ids))
      return i;
  return -1;
}

/* No two sequences of a step write to one block. */
static void check_blocks(const tri_batch *b) {
  bool named[MAX_BLOCKS] = {false};
  for (int i = 0; i < b->block_start[b->num_seqs]; i++) {
    MUST(!named[b->block_table[i]]);
    named[b->block_table[i]] = true;
  }
}

/* A padded batch has as many tokens as its longest sequence times their number. */
static void check_rectangle(const struct sim *s) {
  int longest = 0;
  for (int q = 0; q < s->seqs; q++)
    if (s->requests[s->order[q]].len > longest) longest = s->requests[s->order[q]].len;
  MUST(s->batching == TRI_BATCHING_PACKED ? !s->paddings : s->tokens == s->seqs * longest);
}

/* Runs a micro-batch's next step as a rank would; its result waits in late. False: there was none. */
static bool step(struct sim *s, int micro_batch) {
  size_t bytes;
  tri_plan_view plan;
  struct late *l = &s->late[micro_batch];
  if (tri_sched_micro_batch_busy(s->sched, micro_batch) || !tri_sched_compose(s->sched, micro_batch, s->writer))
    return false;
  const void *finished = tri_plan_finish(s->writer, &bytes);
  MUST(tri_plan_read(finished, bytes, &plan) == TRI_OK);
  MUST(tri_batch_build(s->batch, s->slots, &plan) == TRI_OK);
  MUST(s->batch->num_samples == 0 && s->batch->batch.num_logits == s->batch->batch.num_seqs);
  for (int i = 0; i < s->batch->batch.num_seqs; i++)
    MUST(s->batch->batch.logit_rows[i] == s->batch->batch.seq_start[i + 1] - 1);
  MUST((int)plan.h.num_tokens <= s->limits.max_num_batched_tokens);
  MUST((int)plan.h.num_seqs <= s->limits.max_num_seqs && plan.h.num_seqs > 0);
  s->steps++;
  s->seqs = s->paddings = 0;
  s->tokens = (int)plan.h.num_tokens;
  check_blocks(&s->batch->batch);
  int rows = 0;
  for (int q = 0; q < (int)plan.h.num_seqs; q++) {
    int first = s->batch->batch.seq_start[q], len = s->batch->batch.seq_start[q + 1] - first;
    if (!s->batch->batch.token_ids[first]) {
      s->paddings++;
      rows += s->by_token ? len : 1;
      continue;
    }
    int i = find(s, s->batch->batch.token_ids + first, len);
    MUST(i >= 0 && !s->paddings);
    s->seqs++;
    s->order[q] = i;
    s->requests[i].step = s->steps;
    for (int t = 0; t < (s->by_token ? len : 1); t++, rows++)
      for (int c = 0; c < COLS; c++) l->values[rows * COLS + c] = row_value(&s->requests[i], t, c, s->by_token);
  }
  check_rectangle(s);
  l->r = (tri_embed_result){plan.h.step, plan.h.micro_batch, {l->values, rows, COLS, COLS, TRI_F32}};
  l->on = true;
  return true;
}

static void read_outbox(struct sim *s) {
  for (uint32_t i = 0; i < s->out.num_results; i++) {
    const tri_replica_result *g = &s->out.results[i];
    struct request *r = &s->requests[g->job];
    int rows = s->by_token ? r->len : 1;
    MUST(!r->results && !r->ends && g->num_values == (size_t)(rows * COLS));
    r->results++;
    for (int k = 0; k < rows * COLS; k++) MUST(g->values[k] == row_value(r, k / COLS, k % COLS, s->by_token));
  }
  for (uint32_t i = 0; i < s->out.num; i++) {
    const tri_replica_token *t = &s->out.tokens[i];
    int flags = t->flags & ~TRI_TOKEN_WAITED; /* one that a step had taken in says so */
    MUST(flags == (TRI_TOKEN_LAST | TRI_TOKEN_NONE) && t->reason == TRI_FINISH_ABORT);
    MUST(!s->requests[t->job].results && !s->requests[t->job].ends);
    s->requests[t->job].ends++;
  }
  s->out.num = s->out.num_results = 0;
  s->out.num_values = 0;
  for (tri_job *j; (j = tri_sched_retired(s->sched));) tri_job_destroy(j);
}

static void absorb(struct sim *s, int micro_batch) {
  struct late *l = &s->late[micro_batch];
  MUST(tri_sched_absorb_embed(s->sched, micro_batch, &l->r, s->by_token, &s->out) == TRI_OK);
  l->on = false;
  read_outbox(s);
}

/* The micro-batch whose result comes next: steps run one behind the other. -1: none is under way. */
static int oldest(const struct sim *s) {
  int first = -1;
  for (int micro_batch = 0; micro_batch < s->micro_batches; micro_batch++)
    if (s->late[micro_batch].on && (first < 0 || s->late[micro_batch].r.step < s->late[first].r.step))
      first = micro_batch;
  return first;
}

static const tri_limits small = {
    .max_num_seqs = 4, .max_num_batched_tokens = 30, .max_model_len = MAX_LEN, .block_size = 4, .num_blocks = 100};

/* What fits into a step goes with it, in the order of arrival; the first that does not fit waits, and all behind it. */
START_TEST(test_whole_and_in_order) {
  struct sim *s = create(small, 1, false, false);
  const int lens[] = {10, 20, 5, 24, 1, 1, 1, 1, 1};
  const int want[][4] = {{0, 1}, {2, 3, 4}, {5, 6, 7, 8}};
  const int counts[] = {2, 3, 4};
  srand(1);
  for (int i = 0; i < 9; i++) add(s, lens[i], 0, -1);
  for (int k = 0; k < 3; k++) {
    ck_assert(step(s, 0));
    ck_assert_int_eq(s->seqs, counts[k]);
    for (int q = 0; q < s->seqs && k < 2; q++) ck_assert_int_eq(s->order[q], want[k][q]); /* the last are alike */
    ck_assert(!step(s, 0));
    ck_assert_uint_gt(tri_sched_get_stats(s->sched).blocks_used, 0);
    absorb(s, 0);
    ck_assert_uint_eq(tri_sched_get_stats(s->sched).blocks_used, 0); /* for one step alone */
  }
  ck_assert(!step(s, 0) && !tri_sched_has_work(s->sched));
  ck_assert_uint_eq(tri_sched_get_stats(s->sched).tokens, 64);
  ck_assert_uint_eq(tri_sched_get_stats(s->sched).preemptions, 0);
  destroy(s);
}
END_TEST

START_TEST(test_limits_of_a_step) {
  tri_limits blocks = small;
  blocks.num_blocks = 6; /* one full sequence */
  struct sim *s = create(blocks, 1, false, false);
  srand(2);
  for (int i = 0; i < 3; i++) add(s, 12, 0, -1);
  ck_assert(step(s, 0));
  ck_assert_int_eq(s->seqs, 2); /* three blocks each */
  absorb(s, 0);
  ck_assert(step(s, 0));
  ck_assert_int_eq(s->seqs, 1);
  absorb(s, 0);
  for (int i = 0; i < 6; i++) add(s, 2, 0, -1);
  ck_assert(step(s, 0));
  ck_assert_int_eq(s->seqs, 4); /* max_num_seqs */
  absorb(s, 0);
  destroy(s);
}
END_TEST

START_TEST(test_by_priority) {
  struct sim *s = create(small, 1, false, true);
  srand(3);
  add(s, 20, 5, -1);
  add(s, 21, 0, -1);
  add(s, 22, -3, -1);
  const int want[] = {2, 1, 0};
  for (int i = 0; i < 3; i++) {
    ck_assert(step(s, 0));
    ck_assert_int_eq(s->seqs, 1);
    ck_assert_int_eq(s->order[0], want[i]);
    absorb(s, 0);
  }
  destroy(s);
}
END_TEST

/* Waiting, under way, or past its deadline: each ends once, and the others get their own results. */
START_TEST(test_aborts) {
  struct sim *s = create(small, 1, true, false);
  srand(4);
  for (int i = 0; i < 4; i++) add(s, 10, 0, i == 3 ? 5 : -1);
  ck_assert(step(s, 0)); /* 0, 1, 2 */
  ck_assert(tri_sched_abort(s->sched, 1));
  ck_assert(tri_sched_reap(s->sched, 4 * 1000000, &s->out));
  read_outbox(s);
  ck_assert_int_eq(s->requests[1].ends + s->requests[3].ends, 0);
  absorb(s, 0);
  ck_assert(s->requests[0].results && !s->requests[1].results && s->requests[2].results);
  ck_assert(tri_sched_reap(s->sched, 6 * 1000000, &s->out));
  read_outbox(s);
  ck_assert(s->requests[1].ends == 1 && s->requests[3].ends == 1);
  ck_assert(!tri_sched_has_work(s->sched) && !step(s, 0));
  ck_assert_uint_eq(tri_sched_get_stats(s->sched).blocks_used, 0);
  destroy(s);
}
END_TEST

START_TEST(test_wrong_rows) {
  for (int change = -1; change <= 1; change += 2) {
    struct sim *s = create(small, 1, true, false);
    srand(5);
    add(s, 10, 0, -1);
    ck_assert(step(s, 0));
    s->late[0].r.values.rows += change;
    ck_assert_int_eq(tri_sched_absorb_embed(s->sched, 0, &s->late[0].r, true, &s->out), TRI_CORRUPT);
    destroy(s);
  }
}
END_TEST

START_TEST(test_refused) {
  uint32_t ids[MAX_LEN + 1] = {0};
  tri_limits l = small;
  l.embeds = l.whole_sequences = true;
  l.vocab_size = VOCAB;
  tri_replica_assign a = {
      .remaining_ms = -1, .token_ids = ids, .num_token_ids = MAX_LEN, .sampling = {.n = 1, .prompt_logprobs = -1}};
  tri_job *job = NULL;
  tri_error err = {0};
  ck_assert_int_eq(tri_job_create(&a, &l, &model, 0, &job, &err), TRI_OK); /* needs no room for an answer */
  tri_job_destroy(job);
  a.num_token_ids++;
  ck_assert_int_eq(tri_job_create(&a, &l, &model, 0, &job, &err), TRI_NO_CAPACITY);
  ck_assert_str_eq(err.field, "text");
  err = (tri_error){0};
  a.num_token_ids = 3;
  a.sampling.n = 2;
  ck_assert_int_eq(tri_job_create(&a, &l, &model, 0, &job, &err), TRI_UNSUPPORTED);
}
END_TEST

/* Any number of micro-batches, results that come late, arrivals and aborts in between. */
START_TEST(test_random) {
  srand((unsigned)_i + 10);
  int micro_batches = 1 + _i % MAX_MICRO_BATCHES;
  tri_limits l = small;
  l.max_num_seqs = 2 + rand() % 10;
  l.max_num_batched_tokens = MAX_LEN + rand() % 60;
  l.num_blocks = 6 + rand() % 20;
  tri_sched_config sc = {.by_priority = _i % 3 == 0, .latency_limit_ns = 1000000};
  sc.encoder_batching = (tri_encoder_batching)(_i % 5);
  struct sim *s = create_with(l, micro_batches, _i % 2, sc);
  for (int round = 0; round < 3000; round++) {
    if (s->num_requests < MAX_JOBS && rand() % 3 == 0) add(s, 1 + rand() % MAX_LEN, rand() % 3, -1);
    if (s->num_requests && rand() % 20 == 0) tri_sched_abort(s->sched, (uint64_t)(rand() % s->num_requests));
    MUST(tri_sched_reap(s->sched, round * 100000, &s->out));
    read_outbox(s);
    int micro_batch = rand() % micro_batches;
    if (s->late[micro_batch].on)
      absorb(s, oldest(s));
    else
      step(s, micro_batch);
  }
  while (oldest(s) >= 0) absorb(s, oldest(s));
  while (tri_sched_has_work(s->sched)) {
    tri_sched_reap(s->sched, INT64_MAX / 2, &s->out);
    read_outbox(s);
    if (step(s, 0)) absorb(s, 0);
  }
  for (int i = 0; i < s->num_requests; i++) MUST(s->requests[i].results + s->requests[i].ends == 1);
  tri_sched_stats stats = tri_sched_get_stats(s->sched);
  ck_assert(!stats.blocks_used && !stats.running && !stats.waiting && !stats.preemptions);
  ck_assert_int_gt(s->steps, 20);
  destroy(s);
}
END_TEST

/* The step that is expected: how many sequences of how many tokens, with padding. */
static void expect(struct sim *s, int seqs, int tokens) {
  ck_assert(step(s, 0));
  ck_assert_int_eq(s->seqs, seqs);
  ck_assert_int_eq(s->tokens, tokens);
  absorb(s, 0);
  ck_assert_uint_eq(tri_sched_get_stats(s->sched).blocks_used, 0);
}

static const tri_limits roomy = {
    .max_num_seqs = 8, .max_num_batched_tokens = 60, .max_model_len = MAX_LEN, .block_size = 4, .num_blocks = 100};

START_TEST(test_naive_and_none) {
  static const int lens[] = {10, 3, 24, 5, 6, 7, 8, 9};
  for (int by_token = 0; by_token < 2; by_token++) {
    struct sim *s = create_with(roomy, 1, by_token, (tri_sched_config){.encoder_batching = TRI_BATCHING_NAIVE});
    for (int i = 0; i < 8; i++) add(s, lens[i], 0, -1);
    expect(s, 2, 20); /* the third would make it 72 */
    expect(s, 2, 48);
    expect(s, 4, 36); /* half of max_num_seqs: padding has the other half */
    ck_assert(!tri_sched_has_work(s->sched));
    destroy(s);
    s = create_with(roomy, 1, by_token, (tri_sched_config){.encoder_batching = TRI_BATCHING_NONE});
    for (int i = 0; i < 8; i++) add(s, lens[i], 0, -1);
    for (int i = 0; i < 8; i++) expect(s, 1, lens[i]);
    destroy(s);
  }
  tri_limits few = roomy;
  few.num_blocks = 6;
  struct sim *s = create_with(few, 1, false, (tri_sched_config){.encoder_batching = TRI_BATCHING_NAIVE});
  for (int i = 0; i < 4; i++) add(s, 12, 0, -1);
  expect(s, 2, 24); /* three blocks each */
  expect(s, 2, 24);
  destroy(s);
}
END_TEST

/* A table in which a step costs so much before its first token. */
static tri_batch_cost table_of(const tri_limits *l, double start_s) {
  tri_batch_cost c;
  tri_batch_cost_init(&c, l->max_model_len, l->max_num_seqs, l->max_num_batched_tokens);
  for (int i = 0; i < c.num_lengths; i++)
    for (int j = 0; j < c.num_sizes; j++) c.measured[i][j] = start_s + c.lengths[i] * c.sizes[j] * 1e-6;
  tri_batch_cost_complete(&c);
  return c;
}

/* The batch of the oldest sequence goes first: with those of about its length where starts are cheap, with all where
 * they are not. */
START_TEST(test_cheapest) {
  static const int lens[] = {20, 9, 8};
  struct sim *s = create_with(roomy, 1, false, (tri_sched_config){.encoder_batching = TRI_BATCHING_DP_HUNGRY});
  tri_batch_cost cheap = table_of(&roomy, 3e-6), dear = table_of(&roomy, 1);
  for (int round = 0; round < 2; round++) {
    tri_sched_set_batch_cost(s->sched, round ? &dear : &cheap);
    for (int i = 0; i < 3; i++) add(s, lens[i], 0, -1);
    expect(s, round ? 3 : 1, round ? 60 : 20);
    if (!round) expect(s, 2, 18);
    ck_assert(!tri_sched_has_work(s->sched));
  }
  destroy(s);
}
END_TEST

/* Waits for more until half of the limit is used up with what all batches take, or a batch is full. */
START_TEST(test_lazy) {
  tri_sched_config sc = {.encoder_batching = TRI_BATCHING_DP_LAZY, .latency_limit_ns = 100000000};
  struct sim *s = create_with(roomy, 1, false, sc);
  tri_batch_cost c = table_of(&roomy, 0.01);
  tri_sched_set_batch_cost(s->sched, &c);
  add(s, 20, 0, -1);
  add(s, 20, 0, -1);
  for (int64_t ms = 0; ms < 39; ms++) {
    ck_assert(tri_sched_reap(s->sched, ms * 1000000, &s->out));
    ck_assert(!step(s, 0));
  }
  ck_assert(tri_sched_reap(s->sched, 41 * 1000000, &s->out));
  expect(s, 2, 40);
  ck_assert(tri_sched_reap(s->sched, 0, &s->out)); /* no time passes any more */
  for (int i = 0; i < 4; i++) {
    ck_assert(!step(s, 0));
    add(s, 10, 0, -1);
  }
  expect(s, 4, 40);
  destroy(s);
}
END_TEST

/* A batch that has no room left runs at once; the limit holds for requests of a lower priority, too. */
START_TEST(test_lazy_full_and_late) {
  tri_sched_config sc = {.encoder_batching = TRI_BATCHING_DP_LAZY, .latency_limit_ns = 100000000, .by_priority = true};
  struct sim *s = create_with(roomy, 1, false, sc);
  tri_batch_cost c = table_of(&roomy, 0.01);
  tri_sched_set_batch_cost(s->sched, &c);
  ck_assert(tri_sched_reap(s->sched, 0, &s->out));
  add(s, 24, 0, -1);
  ck_assert(!step(s, 0));
  add(s, 24, 0, -1);
  expect(s, 2, 48);
  add(s, 10, 0, -1); /* the less urgent one came first */
  ck_assert(tri_sched_reap(s->sched, 39 * 1000000, &s->out));
  add(s, 12, -1, -1);
  ck_assert(!step(s, 0));
  ck_assert(tri_sched_reap(s->sched, 41 * 1000000, &s->out));
  expect(s, 1, 12);
  expect(s, 1, 10);
  destroy(s);
}
END_TEST

/* Packed steps have no more tokens than make a token cheap, and any sequence all the same. */
START_TEST(test_enough_tokens) {
  struct sim *s = create(roomy, 1, false, false);
  tri_batch_cost c = table_of(&roomy, 0);
  for (int i = 0; i < 4; i++) add(s, 20, 0, -1);
  expect(s, 3, 60);
  tri_sched_set_batch_cost(s->sched, &c);
  expect(s, 1, 20);
  for (int i = 0; i < 8; i++) add(s, 6, 0, -1);
  expect(s, 4, 24); /* the longest sequence that there could be */
  expect(s, 4, 24);
  destroy(s);
}
END_TEST

/* Types of tokens reach the batch, and are refused where the model has one. */
START_TEST(test_types) {
  tri_limits l = small;
  l.num_types = 2;
  struct sim *s = create(l, 1, false, false);
  uint32_t ids[5] = {1, 2, 3, 4, 5};
  tri_replica_assign a = {.token_ids = ids, .num_token_ids = 5, .second_start = 4, .remaining_ms = -1};
  a.sampling.n = 1;
  a.sampling.prompt_logprobs = -1;
  tri_job *job;
  tri_error err = {0};
  const uint64_t starts[] = {4, 0, 1}; /* counted from 1: of some, of none, and of all */
  for (int i = 0; i < 3; i++) {
    a.second_start = starts[i];
    ck_assert_int_eq(tri_job_create(&a, &s->limits, &model, 0, &job, &err), TRI_OK);
    tri_sched_add(s->sched, job);
  }
  tri_plan_view plan;
  size_t bytes;
  ck_assert(tri_sched_compose(s->sched, 0, s->writer));
  const void *finished = tri_plan_finish(s->writer, &bytes);
  ck_assert_int_eq(tri_plan_read(finished, bytes, &plan), TRI_OK);
  ck_assert_int_eq(tri_batch_build(s->batch, s->slots, &plan), TRI_OK);
  ck_assert_int_eq(s->batch->batch.num_tokens, 15);
  for (int t = 0; t < 15; t++) ck_assert_int_eq(s->batch->batch.types[t], t == 3 || t == 4 || t >= 10);
  a.second_start = 6;
  ck_assert_int_eq(tri_job_create(&a, &s->limits, &model, 0, &job, &err), TRI_OUT_OF_RANGE);
  ck_assert_str_eq(err.field, "text_pair");
  a.second_start = 3;
  s->slots->limits.num_types = s->limits.num_types = 1;
  ck_assert_int_eq(tri_job_create(&a, &s->limits, &model, 0, &job, &err), TRI_OUT_OF_RANGE);
  ck_assert_int_eq(tri_batch_build(s->batch, s->slots, &plan), TRI_CORRUPT);
  destroy(s);
}
END_TEST

/* Rows of a matrix with gaps, there and back; and bytes that are none. */
START_TEST(test_packed) {
  float values[3][4] = {{1, 2, 9, 9}, {3, 4, 9, 9}, {5, 6, 9, 9}};
  tri_embed_result in = {7, 2, {values[0], 3, 2, 4, TRI_F32}}, out;
  _Alignas(16) char buf[256];
  size_t n = tri_embed_result_pack(&in, buf, sizeof buf);
  ck_assert_uint_eq(n, tri_embed_result_bytes(3, 2));
  ck_assert_uint_eq(tri_embed_result_pack(&in, buf, n - 1), 0);
  ck_assert_int_eq(tri_embed_result_unpack(buf, n, 3, 2, &out), TRI_OK);
  ck_assert(out.step == 7 && out.micro_batch == 2 && out.values.rows == 3 && out.values.cols == 2 &&
            out.values.ld == 2);
  for (int i = 0; i < 6; i++) ck_assert_float_eq(out.values.data[i], (float)(i + 1));
  ck_assert_int_eq(tri_embed_result_unpack(buf, n, 2, 2, &out), TRI_CORRUPT);
  ck_assert_int_eq(tri_embed_result_unpack(buf, n, 3, 3, &out), TRI_CORRUPT);
  for (size_t k = 0; k < n; k++) ck_assert_int_eq(tri_embed_result_unpack(buf, k, 3, 2, &out), TRI_CORRUPT);
}
END_TEST

Suite *suite_embed_schedule(void) {
  Suite *suite = suite_create("embed_schedule");
  TCase *t = tcase_create("embed_schedule");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, test_whole_and_in_order);
  tcase_add_test(t, test_limits_of_a_step);
  tcase_add_test(t, test_by_priority);
  tcase_add_test(t, test_aborts);
  tcase_add_test(t, test_wrong_rows);
  tcase_add_test(t, test_refused);
  tcase_add_loop_test(t, test_random, 0, 30);
  tcase_add_test(t, test_naive_and_none);
  tcase_add_test(t, test_cheapest);
  tcase_add_test(t, test_lazy);
  tcase_add_test(t, test_lazy_full_and_late);
  tcase_add_test(t, test_enough_tokens);
  tcase_add_test(t, test_types);
  tcase_add_test(t, test_packed);
  suite_add_tcase(suite, t);
  return suite;
}
