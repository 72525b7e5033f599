/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of the scheduler under a bound on tokens of prompts: decodes go on, prompts too, in their order. */
#include "tests/unit/scheduler_kit.h"

Suite *suite_schedule_bound(void);

static struct config config_of(int seqs, int jobs) {
  return (struct config){.limits = {.max_num_seqs = seqs,
                                    .max_num_batched_tokens = 100,
                                    .max_model_len = 150,
                                    .block_size = 4,
                                    .num_blocks = 400,
                                    .vocab_size = VOCAB},
                         .micro_batches = 1,
                         .jobs = jobs};
}

static struct request *request(struct sim *s, int i, int prompt, int tokens, int arrive_at) {
  struct request *r = request_init(s, i, prompt, tokens, 1);
  r->assign.sampling.ignore_eos = true;
  r->arrive_at = arrive_at;
  request_expect(s, r);
  return r;
}

static void end(struct sim *s) {
  sim_run(s);
  sim_check_answers(s);
  sim_destroy(s);
}

/* A prompt of 120 tokens next to two decodes has as many as it may in each step, and the decodes miss none. */
START_TEST(test_long_prompt) {
  struct config c = config_of(4, 3);
  struct sim *s = sim_create(&c, 1);
  request(s, 0, 1, 60, 0);
  request(s, 1, 1, 60, 0);
  request(s, 2, 120, 1, 3);
  tri_sched_bound_prompts(s->sched, 7);
  for (int i = 0; !s->requests[2].choice[0].ended; i++) {
    sim_iterate(s);
    for (int k = 0; k < 2; k++) ck_assert_int_eq(s->requests[k].choice[0].got, i + 1);
    tri_step_load load = tri_sched_load_of(s->sched, s->writer);
    if (i < 3) continue;
    ck_assert_int_eq(load.decodes, 2);
    ck_assert_int_eq(load.prompt_tokens, i < 3 + 17 ? 7 : 1); /* 17 times 7, and the last one */
  }
  ck_assert_int_eq(s->requests[2].choice[0].first_step, 3 + 18);
  end(s);
}
END_TEST

/* Many short ones come in by their order, or by their priority, no more of them in a step than it may have. */
START_TEST(test_short_prompts) {
  for (int by_priority = 0; by_priority < 2; by_priority++) {
    struct config c = config_of(16, 13);
    c.by_priority = by_priority;
    struct sim *s = sim_create(&c, 2);
    request(s, 0, 1, 60, 0);
    for (int i = 1; i < 13; i++) request(s, i, 5, 1, 2)->assign.sampling.priority = i == 12 ? -1 : 0;
    tri_sched_bound_prompts(s->sched, 10);
    for (int i = 0; i < 8; i++) {
      sim_iterate(s);
      ck_assert_int_eq(s->requests[0].choice[0].got, i + 1);
      if (i >= 2) ck_assert_int_eq(tri_sched_load_of(s->sched, s->writer).prompt_tokens, 10);
    }
    for (int i = 1; i < 13; i++) {
      int place = by_priority ? i % 12 : i - 1; /* the last one comes first */
      ck_assert_int_eq(s->requests[i].choice[0].first_step, 3 + place / 2);
    }
    end(s);
  }
}
END_TEST

/* A step that is to have no prompts has none, and one without decodes either is none. */
START_TEST(test_decodes_alone) {
  struct config c = config_of(4, 2);
  struct sim *s = sim_create(&c, 3);
  request(s, 0, 10, 20, 0);
  request(s, 1, 10, 20, 1);
  sim_iterate(s);
  tri_sched_bound_prompts(s->sched, 0);
  for (int i = 1; i < 5; i++) {
    sim_iterate(s);
    ck_assert_int_eq(s->requests[0].choice[0].got, i + 1);
    ck_assert_int_eq(tri_sched_load_of(s->sched, s->writer).prompt_tokens, 0);
  }
  ck_assert_int_eq(s->requests[1].choice[0].got, 0);
  tri_sched_bound_prompts(s->sched, TRI_NO_PROMPT_BOUND);
  sim_iterate(s);
  ck_assert_int_eq(s->requests[1].choice[0].got, 1);
  end(s);
  s = sim_create(&c, 3);
  request(s, 0, 10, 20, 0);
  request(s, 1, 10, 20, 0);
  sim_take_events(s);
  tri_sched_bound_prompts(s->sched, 0);
  ck_assert(!tri_sched_compose(s->sched, 0, s->writer));
  tri_sched_bound_prompts(s->sched, TRI_NO_PROMPT_BOUND);
  ck_assert(tri_sched_compose(s->sched, 0, s->writer));
  ck_assert_int_eq(tri_sched_load_of(s->sched, s->writer).prompt_tokens, 20);
  sim_execute(s, 0);
  end(s);
}
END_TEST

static void check_outlook(const struct sim *s, int decodes, int sequences, bool prompts) {
  tri_step_outlook o = tri_sched_outlook(s->sched, 0);
  ck_assert_int_eq(o.decodes, decodes);
  ck_assert_int_eq(o.sequences, sequences);
  ck_assert_int_eq(o.prompts, prompts);
}

START_TEST(test_outlook) {
  struct config c = config_of(4, 7);
  c.limits.num_blocks = 60;
  struct sim *s = sim_create(&c, 4);
  check_outlook(s, 0, 0, false);
  request(s, 0, 20, 40, 0);
  for (int i = 1; i < 7; i++) request(s, i, 110, 20, i == 1 ? 1 : 3);
  sim_iterate(s);
  check_outlook(s, 1, 1, false);
  tri_sched_bound_prompts(s->sched, 40);
  sim_iterate(s); /* the second one begins */
  check_outlook(s, 1, 2, true);
  sim_iterate(s);
  sim_take_events(s); /* more come than there are slots, and blocks for two: which is not known yet */
  check_outlook(s, 1, 4, true);
  for (int i = 0; i < 4; i++) sim_iterate(s);
  ck_assert_ptr_nonnull(s->sched->blocked);
  check_outlook(s, 2, 2, true); /* those that wait find no blocks */
  tri_sched_expect(s->sched, 5);
  check_outlook(s, 2, 2, true);
  end(s);
}
END_TEST

/* Sources and whole sequences are as long as they are. */
START_TEST(test_whole) {
  struct config c = config_of(4, 1);
  c.limits.has_source = true;
  c.model = (tri_job_model){.start = {3}, .num_start = 1};
  struct sim *s = sim_create(&c, 5);
  tri_sched_bound_prompts(s->sched, 2);
  ck_assert_int_eq(s->sched->prompt_bound, TRI_NO_PROMPT_BOUND);
  sim_destroy(s);
}
END_TEST

/* Whatever the bound, and however often it changes: every answer is that of the request alone. */
START_TEST(test_random_bounds) {
  int bounded = 0;
  for (uint64_t seed = 0; seed < 150; seed++) {
    struct sim r = {.rng = sim_mix(seed * 11 + 5)};
    struct config c = config_of(sim_range(&r, MAX_N, MAX_SLOTS), sim_range(&r, 2, MAX_JOBS));
    c.limits.max_model_len = MAX_LEN;
    c.limits.num_blocks = sim_range(&r, MAX_LEN / 4, 200);
    c.depth = sim_range(&r, 1, 2);
    c.by_priority = sim_chance(&r, 30);
    c.search_percent = c.score_percent = 10;
    c.late_percent = c.depth > 1 ? 40 : 0;
    sim_add_host_blocks(&r, &c);
    sim_add_prefixes(&r, &c);
    struct sim *s = sim_create(&c, seed);
    for (int i = 0; i < c.jobs; i++) request_random(s, i);
    for (int i = 0; i < 400; i++) {
      int bound = sim_chance(&r, 20) ? TRI_NO_PROMPT_BOUND : sim_range(&r, 0, 40);
      int steps = s->steps;
      tri_sched_bound_prompts(s->sched, bound);
      sim_iterate(s);
      tri_step_load load = tri_sched_load_of(s->sched, s->writer);
      if (s->steps == steps) continue;
      MUST_SAY(load.prompt_tokens >= 0 && load.prompt_tokens <= bound, "%d tokens, %d allowed", load.prompt_tokens,
               bound);
      bounded += load.prompt_tokens == bound && bound && load.decodes;
    }
    tri_sched_bound_prompts(s->sched, 1);
    end(s);
  }
  ck_assert_int_gt(bounded, 500);
}
END_TEST

Suite *suite_schedule_bound(void) {
  Suite *s = suite_create("schedule_bound");
  TCase *t = tcase_create("schedule_bound");
  tcase_set_timeout(t, 120);
  tcase_add_test(t, test_long_prompt);
  tcase_add_test(t, test_short_prompts);
  tcase_add_test(t, test_decodes_alone);
  tcase_add_test(t, test_outlook);
  tcase_add_test(t, test_whole);
  tcase_add_test(t, test_random_bounds);
  suite_add_tcase(s, t);
  return s;
}
