/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's scheduler with sources and beam searches. Every answer must be that of the request alone. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/scheduler_kit.h"

Suite *suite_beam_schedule(void);

enum { JOBS = 24, MICRO_BATCHES = 3, LEN = 64, SLOTS = 16, N = MAX_CHOICES };

static const uint32_t bad[] = {7};

/* Makes a request for the n best answers of a search; of one beam, for n that are drawn. */
static struct request *search_init(struct sim *s, int i, int prompt, int max_tokens, int num_beams, int n) {
  struct request *r = request_init(s, i, prompt, max_tokens, n);
  r->assign.sampling.num_beams = num_beams;
  r->assign.sampling.length_penalty = 1;
  return r;
}

/* ---- random workloads ---- */

static struct config simple(bool source, int slots, int budget, int len, int block, int blocks, int jobs) {
  return (struct config){.limits = {.max_num_seqs = slots,
                                    .max_num_batched_tokens = budget,
                                    .max_model_len = len,
                                    .block_size = block,
                                    .num_blocks = blocks,
                                    .vocab_size = VOCAB,
                                    .has_source = source},
                         .model = {.eos = sim_eos, .num_eos = 1, .start = {0, 9}, .num_start = source},
                         .micro_batches = 1,
                         .jobs = jobs};
}

static struct config random_config(uint64_t seed) {
  struct sim r = {.rng = sim_mix(seed * 3 + 1)};
  bool source = sim_chance(&r, 60);
  struct config c = simple(source, sim_range(&r, N, SLOTS), 0, sim_range(&r, 12, LEN), sim_range(&r, 1, 9), 0,
                           sim_range(&r, 1, JOBS));
  tri_limits *l = &c.limits;
  l->max_num_batched_tokens = sim_range(&r, l->max_num_seqs, 90);
  if (l->max_num_batched_tokens < 12) l->max_num_batched_tokens = 12;
  int full = (l->max_model_len + l->block_size - 1) / l->block_size * (source ? 2 : 1); /* an engine has no less */
  l->num_blocks = sim_chance(&r, 60) ? full + sim_range(&r, 0, full) : full * sim_range(&r, 2, l->max_num_seqs);
  if (l->num_blocks * l->block_size > MAX_BLOCKS) l->num_blocks = MAX_BLOCKS / l->block_size;
  if (!source && sim_chance(&r, 40))
    c.micro_batches = sim_range(&r, 2, MICRO_BATCHES); /* encoder-decoders have one stage */
  c.late_percent = sim_chance(&r, 50) ? 0 : 60;
  c.by_priority = sim_chance(&r, 30);
  c.model.num_start = source ? sim_range(&r, 1, 2) : 0;
  c.model.num_eos = sim_range(&r, 1, 2);
  c.model.bad = bad;
  c.model.num_bad = sim_range(&r, 0, 1);
  return c;
}

static void random_request(struct sim *s, int i) {
  const tri_limits *l = &s->cfg.limits;
  int most = l->has_source ? l->max_num_batched_tokens - s->cfg.model.num_start : l->max_model_len - 1;
  if (most > l->max_model_len) most = l->max_model_len;
  if (most > 20 && sim_chance(s, 70)) most = 20;
  int beams = sim_chance(s, 60) ? sim_range(s, 2, s->cfg.model.num_eos > 1 ? 5 : N) : 1;
  int n = beams > 1 ? sim_range(s, 1, beams) : sim_chance(s, 30) ? sim_range(s, 2, N) : 1;
  struct request *r = search_init(s, i, sim_range(s, 1, most), sim_chance(s, 10) ? -1 : sim_range(s, 1, 30), beams, n);
  tri_sampling *p = &r->assign.sampling;
  if (sim_chance(s, 30)) p->min_tokens = sim_range(s, 0, p->max_tokens > 0 ? (int)p->max_tokens : 10);
  p->ignore_eos = sim_chance(s, 20);
  p->length_penalty = sim_range(s, -10, 20) / 10.0;
  p->early_stopping = (tri_early_stopping)sim_range(s, TRI_EARLY_FALSE, TRI_EARLY_NEVER);
  p->priority = sim_range(s, -2, 2);
  r->arrive_at = sim_chance(s, 50) ? 0 : sim_range(s, 0, 60);
  if (sim_chance(s, 15)) r->abort_at = r->arrive_at + sim_range(s, 0, 50);
  if (sim_chance(s, 10)) r->assign.remaining_ms = sim_range(s, 0, 60);
  tri_job *job = NULL;
  tri_error err = {0};
  if (sim_create_job(s, r, &job, &err) != TRI_OK) {
    ck_assert_str_eq(err.field, "num_beams"); /* too few blocks for a search, or too many alternatives */
    p->num_beams = 1;
  }
  tri_job_destroy(job);
  request_expect(s, r);
}

START_TEST(test_random_workloads) {
  uint64_t preemptions = 0;
  int copies = 0, forks = 0, sources = 0, searches = 0;
  for (uint64_t seed = (uint64_t)_i * 100; seed < (uint64_t)_i * 100 + 100; seed++) {
    struct config c = random_config(seed);
    struct sim *s = sim_create(&c, seed);
    for (int i = 0; i < c.jobs; i++) {
      random_request(s, i);
      searches += s->requests[i].assign.sampling.num_beams > 1;
    }
    sim_run(s);
    sim_check_answers(s);
    preemptions += tri_sched_get_stats(s->sched).preemptions;
    copies += s->copies, forks += s->forks, sources += s->sources;
    sim_destroy(s);
  }
  /* What the workloads are meant to provoke did happen. */
  ck_assert_uint_gt(preemptions, 100);
  ck_assert_int_gt(copies, 100);
  ck_assert_int_gt(forks, 1000);
  ck_assert_int_gt(sources, 300);
  ck_assert_int_gt(searches, 300);
}
END_TEST

/* ---- particular cases ---- */

/* An abort at every iteration of a search, from the queue to the last token of its answers: the others do not mind. */
START_TEST(test_abort_a_search) {
  for (int source = 0; source < 2; source++)
    for (int at = 0; at < 36; at++) {
      struct config c = simple(source, 6, 32, 40, 4, 40, 3);
      struct sim *s = sim_create(&c, (uint64_t)at);
      s->out.cap = 5;
      for (int i = 0; i < c.jobs; i++) {
        struct request *r = search_init(s, i, 9, 20, i ? 3 : 4, i ? 2 : 3);
        r->assign.sampling.ignore_eos = true;
        if (i == 1) r->abort_at = at;
        request_expect(s, r);
      }
      sim_run(s);
      sim_check_answers(s);
      sim_destroy(s);
    }
}
END_TEST

/* Answers longer than the outbox come in several pieces. */
START_TEST(test_small_outbox) {
  for (uint32_t cap = 1; cap < 8; cap++) {
    struct config c = simple(true, 8, 64, 48, 4, 200, 6);
    struct sim *s = sim_create(&c, cap);
    s->out.cap = cap;
    for (int i = 0; i < c.jobs; i++) {
      struct request *r = search_init(s, i, 5 + i, 30, 2 + i % 4, 2);
      if (i % 2) r->assign.sampling.ignore_eos = true;
      request_expect(s, r);
    }
    sim_run(s);
    sim_check_answers(s);
    sim_destroy(s);
  }
}
END_TEST

/* Just the blocks that one search can need: the others wait, or are pushed out and begin anew. */
START_TEST(test_least_blocks) {
  uint64_t preemptions = 0;
  for (int block = 1; block <= 8; block++) {
    int len = 24, beams = 4, blocks = (16 + block - 1) / block + beams * ((len + block - 1) / block);
    struct config c = simple(true, 12, 32, len, block, blocks, 8);
    struct sim *s = sim_create(&c, (uint64_t)block);
    for (int i = 0; i < c.jobs; i++) {
      struct request *r = search_init(s, i, sim_range(s, 1, 16), -1, i % 3 ? beams : 1, i % 3 ? 2 : 3);
      r->assign.sampling.ignore_eos = true; /* up to max_model_len */
      request_expect(s, r);
    }
    sim_run(s);
    sim_check_answers(s);
    preemptions += tri_sched_get_stats(s->sched).preemptions;
    sim_destroy(s);
  }
  ck_assert_uint_gt(preemptions, 10);
}
END_TEST

/* Beams and choices share the source's blocks and those of the prompt. */
START_TEST(test_shared_blocks) {
  for (int beams = 0; beams < 2; beams++)
    for (int start = 1; start <= 2; start++) {
      struct config c = simple(true, 8, 64, 64, 4, 100, 1);
      c.model.num_start = start;
      struct sim *s = sim_create(&c, 4);
      struct request *r = search_init(s, 0, 40, 3, beams ? 5 : 1, 5);
      r->assign.sampling.ignore_eos = true;
      request_expect(s, r);
      sim_run(s);
      sim_check_answers(s);
      ck_assert_int_eq(s->sources, 1);
      ck_assert_uint_le(s->most_blocks, 10 + 2 * 5);
      sim_destroy(s);
    }
}
END_TEST

/* The model's bad tokens never come, whatever the request adds to them. */
START_TEST(test_bad_tokens) {
  enum { NEVER = VOCAB - 2 };
  static uint32_t never[NEVER]; /* more than a model has: all tokens but the last two */
  struct config c = simple(false, 4, 32, 40, 4, 40, 1);
  for (uint32_t i = 0; i < NEVER; i++) never[i] = i;
  c.model.bad = never, c.model.num_bad = NEVER;
  struct sim *s = sim_create(&c, 1);
  struct request *r = search_init(s, 0, 4, 30, 1, 1);
  struct tri_wire_bias bias = {.id = 1, .bias = 100};
  tri_error err = {0};
  r->assign.sampling.logit_bias = &bias, r->assign.sampling.num_logit_bias = 1;
  ck_assert_int_eq(sim_create_job(s, r, &r->job, &err), TRI_OK);
  tri_sched_add(s->sched, r->job);
  ck_assert_int_eq(r->job->params.num_logit_bias, NEVER + 1);
  ck_assert(r->job->params.logit_bias[0].bias == 100);
  for (int i = 1; i < NEVER + 1; i++)
    ck_assert(r->job->params.logit_bias[i].id == (uint32_t)i - 1 && r->job->params.logit_bias[i].bias < -1e38f);
  sim_destroy(s);
}
END_TEST

START_TEST(test_refused) {
  static const struct {
    const char *field, *numbers[2];
    int prompt, beams, eos;
    tri_status status;
  } cases[] = {{"prompt", {"33", "max_model_len 32"}, 33, 1, 1, TRI_NO_CAPACITY},
               {"prompt", {"24", "max_num_batched_tokens 24"}, 24, 1, 1, TRI_NO_CAPACITY},
               {"num_beams", {"7", "max_num_seqs 6"}, 8, 7, 1, TRI_OUT_OF_RANGE},
               {"num_beams", {"6 beams", "can need 50 KV blocks, there are 20"}, 8, 6, 1, TRI_NO_CAPACITY},
               {"num_beams", {"24 best", "limit is 20"}, 8, 6, 3, TRI_OUT_OF_RANGE}};
  for (int i = 0; i < 5; i++) {
    static const uint32_t ends[] = {1, 2, 3};
    struct config c = simple(true, 6, 24, 32, 4, 20, 1);
    c.model.eos = ends, c.model.num_eos = cases[i].eos;
    struct sim *s = sim_create(&c, 1);
    struct request *r = search_init(s, 0, cases[i].prompt, -1, cases[i].beams, 1);
    tri_error err = {0};
    ck_assert_int_eq(sim_create_job(s, r, &r->job, &err), cases[i].status);
    ck_assert_str_eq(err.field, cases[i].field);
    for (int k = 0; k < 2; k++) ck_assert_msg(strstr(err.message, cases[i].numbers[k]), "%s", err.message);
    ck_assert_ptr_null(r->job);
    sim_destroy(s);
  }
}
END_TEST

/* Destroyed in the middle of its work, with searches in every state. */
START_TEST(test_destroy_busy) {
  for (int steps = 0; steps < 25; steps++) {
    struct config c = simple(true, 8, 32, 40, 4, 60, 6);
    struct sim *s = sim_create(&c, 8);
    for (int i = 0; i < c.jobs; i++) request_expect(s, search_init(s, i, 9, 9, 1 + i % 3, 1 + i % 3));
    for (int i = 0; i < steps; i++) sim_iterate(s);
    sim_destroy(s);
  }
}
END_TEST

Suite *suite_beam_schedule(void) {
  Suite *suite = suite_create("beam_schedule");
  TCase *random = tcase_create("random"), *cases = tcase_create("cases");
  tcase_set_timeout(random, 120);
  tcase_add_loop_test(random, test_random_workloads, 0, 5);
  tcase_add_test(cases, test_abort_a_search);
  tcase_add_test(cases, test_small_outbox);
  tcase_add_test(cases, test_least_blocks);
  tcase_add_test(cases, test_shared_blocks);
  tcase_add_test(cases, test_bad_tokens);
  tcase_add_test(cases, test_refused);
  tcase_add_test(cases, test_destroy_busy);
  suite_add_tcase(suite, random);
  suite_add_tcase(suite, cases);
  return suite;
}
