/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's scheduler with an encoder whose tokens see those before them alone: texts go in pieces, after what the
 * prefix cache has, and every answer is that of its text's last token. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "worker/schedule/scheduler.h"

Suite *suite_embed_pieces(void);

enum { VOCAB = 50, TEXTS = 60, MOST = 24, MICRO_BATCHES = 2, SEQS = 4, STEP = 10 };

static const tri_job_model model;

typedef struct text {
  uint32_t ids[MOST];
  int len, answers;
} text;

typedef struct sim {
  tri_sched *sched;
  tri_plan_writer *writer;
  tri_slots *slots;
  tri_batch_builder *batch;
  tri_outbox out;
  text texts[TEXTS];
  float values[MICRO_BATCHES][SEQS];
  tri_embed_result results[MICRO_BATCHES];
  bool is_under_way[MICRO_BATCHES];
  int micro_batches, pieces; /* steps' sequences that did not end */
} sim;

static const tri_limits limits = {.max_num_seqs = SEQS,
                                  .max_num_batched_tokens = STEP,
                                  .max_model_len = MOST,
                                  .block_size = 4,
                                  .num_blocks = 30,
                                  .vocab_size = VOCAB,
                                  .embeds = true};

static sim *create(int micro_batches, bool prefixes) {
  sim *s = calloc(1, sizeof *s);
  tri_limits l = limits;
  l.prefix_caching = prefixes;
  tri_sched_config c = {.limits = l, .num_micro_batches = micro_batches};
  tri_plan_sizes sizes = {.seqs = 3 * SEQS, .ids = 4 * MOST, .blocks = tri_limits_plan_sizes(&l).blocks};
  s->micro_batches = micro_batches;
  ck_assert_int_eq(tri_sched_create(&c, &s->sched), TRI_OK);
  ck_assert_int_eq(tri_plan_writer_create(&sizes, &s->writer), TRI_OK);
  ck_assert_int_eq(tri_slots_create(&l, &s->slots), TRI_OK);
  ck_assert_int_eq(tri_batch_builder_create(&l, &s->batch), TRI_OK);
  ck_assert_int_eq(tri_outbox_init_results(&s->out, SEQS, SEQS), TRI_OK);
  return s;
}

static void destroy(sim *s) {
  tri_sched_destroy(s->sched);
  tri_plan_writer_destroy(s->writer);
  tri_slots_destroy(s->slots);
  tri_batch_builder_destroy(s->batch);
  tri_outbox_free(&s->out);
  free(s);
}

/* Half of the texts begin as another one. */
static void add(sim *s, int i) {
  text *t = &s->texts[i];
  tri_error err = {0};
  tri_job *job;
  t->len = 1 + rand() % MOST;
  for (int k = 0; k < t->len; k++) t->ids[k] = (uint32_t)(rand() % VOCAB);
  if (i && rand() % 2) memcpy(t->ids, s->texts[rand() % i].ids, (size_t)(t->len / 2) * sizeof *t->ids);
  tri_replica_assign a = {.job = (uint64_t)i, .token_ids = t->ids, .num_token_ids = (size_t)t->len, .remaining_ms = -1};
  a.sampling = (tri_sampling){.n = 1, .logprobs = -1, .prompt_logprobs = -1, .max_tokens = 16};
  ck_assert_msg(tri_job_create(&a, &limits, &model, 0, &job, &err) == TRI_OK, "%s", err.message);
  tri_sched_add(s->sched, job);
}

static float value_of(const uint32_t *ids, int len) {
  float sum = 0;
  for (int i = 0; i < len; i++) sum = sum / 2 + (float)ids[i];
  return sum;
}

/* Runs a step as a rank would, that knows a sequence by its slot alone. False: there was none. */
static bool step(sim *s, int micro_batch) {
  size_t bytes;
  tri_plan_view plan;
  if (tri_sched_micro_batch_busy(s->sched, micro_batch) || !tri_sched_compose(s->sched, micro_batch, s->writer))
    return false;
  const void *finished = tri_plan_finish(s->writer, &bytes);
  ck_assert_int_eq(tri_plan_read(finished, bytes, &plan), TRI_OK);
  ck_assert_int_eq(tri_batch_build(s->batch, s->slots, &plan), TRI_OK);
  const tri_batch *b = &s->batch->batch;
  ck_assert(b->num_tokens <= STEP && b->num_logits == s->batch->num_samples && b->num_logits <= b->num_seqs);
  s->pieces += b->num_seqs - b->num_logits;
  for (int i = 0; i < b->num_logits; i++) {
    const tri_slot *slot = &s->slots->slots[s->batch->samples[i].slot];
    s->values[micro_batch][i] = value_of(slot->history, slot->length);
  }
  s->results[micro_batch] =
      (tri_embed_result){plan.h.step, plan.h.micro_batch, {s->values[micro_batch], b->num_logits, 1, 1, TRI_F32}};
  s->is_under_way[micro_batch] = true;
  return true;
}

static void absorb(sim *s, int micro_batch) {
  ck_assert_int_eq(tri_sched_absorb_embed(s->sched, micro_batch, &s->results[micro_batch], false, &s->out), TRI_OK);
  s->is_under_way[micro_batch] = false;
  for (uint32_t i = 0; i < s->out.num_results; i++) {
    const tri_replica_result *r = &s->out.results[i];
    text *t = &s->texts[r->job];
    ck_assert(r->num_values == 1 && r->values[0] == value_of(t->ids, t->len));
    t->answers++;
  }
  s->out.num_results = 0;
  s->out.num_values = 0;
  for (tri_job *j; (j = tri_sched_retired(s->sched));) tri_job_destroy(j);
}

/* Texts come while others are under way; every one has one answer, and all blocks come back. */
static void serve(sim *s) {
  int added = 0, idle = 0;
  while (idle < 2) {
    for (int n = rand() % 4; n > 0 && added < TEXTS; n--) add(s, added++);
    bool any = false;
    for (int m = 0; m < s->micro_batches; m++) any |= !s->is_under_way[m] && step(s, m);
    for (int m = 0; m < s->micro_batches; m++)
      if (s->is_under_way[m]) absorb(s, m);
    idle = any || added < TEXTS ? 0 : idle + 1;
  }
  for (int i = 0; i < TEXTS; i++) ck_assert_msg(s->texts[i].answers == 1, "text %d has %d", i, s->texts[i].answers);
  ck_assert(!tri_sched_has_work(s->sched) && s->pieces > 0);
}

START_TEST(texts_go_in_pieces) {
  sim *s = create(1 + _i % MICRO_BATCHES, false);
  srand((unsigned)_i);
  serve(s);
  ck_assert_uint_eq(tri_sched_get_stats(s->sched).blocks_used, 0);
  destroy(s);
}
END_TEST

START_TEST(texts_continue_others) {
  sim *s = create(1 + _i % MICRO_BATCHES, true);
  srand((unsigned)_i);
  serve(s);
  ck_assert_uint_gt(tri_sched_get_stats(s->sched).prefix_hits, 0);
  destroy(s);
}
END_TEST

Suite *suite_embed_pieces(void) {
  Suite *suite = suite_create("embed_pieces");
  TCase *t = tcase_create("embed_pieces");
  tcase_add_loop_test(t, texts_go_in_pieces, 0, 20);
  tcase_add_loop_test(t, texts_continue_others, 0, 20);
  suite_add_tcase(suite, t);
  return suite;
}
