/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts whose log probabilities are wanted, in the scheduler with its stand-in for an engine (scheduler_kit.h), which
 * notices a token that is told twice, out of order, or with other tokens in front of it. The random workloads of
 * test_scheduler.c and test_shards.c have such prompts, too; here is what they cost themselves and others. */
#include <string.h>

#include "tests/unit/scheduler_kit.h"

Suite *suite_schedule_scores(void);

static struct config score_config(int seqs, int blocks, int jobs) {
  return (struct config){.limits = {.max_num_seqs = seqs,
                                    .max_num_batched_tokens = 64,
                                    .max_model_len = 140,
                                    .block_size = 4,
                                    .num_blocks = blocks,
                                    .vocab_size = VOCAB},
                         .micro_batches = 1,
                         .jobs = jobs};
}

/* Request i, whose prompt is scored where `scored` is 0 or more. */
static struct request *add(struct sim *s, int i, int prompt, int max_tokens, int scored) {
  struct request *r = request_init(s, i, prompt, max_tokens, 1);
  r->assign.sampling.prompt_logprobs = scored;
  r->assign.sampling.ignore_eos = true;
  request_expect(s, r);
  return r;
}

static void run(struct sim *s) {
  sim_run(s);
  sim_check_answers(s);
  for (int i = 0; i < s->cfg.jobs; i++) {
    const struct request *r = &s->requests[i];
    ck_assert_int_eq(r->scored, r->assign.sampling.prompt_logprobs < 0 ? 0 : (int)r->assign.num_token_ids - 1);
  }
}

/* A prompt alone takes all draws of each step, whatever the step's other limits. */
START_TEST(test_alone) {
  static const struct {
    int prompt, max_tokens, steps;
  } cases[] = {{1, 0, 1}, {1, 1, 1}, {2, 0, 1}, {8, 0, 1}, {9, 1, 2}, {16, 3, 4}, {129, 0, 17}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct config c = score_config(8, 200, 1);
    struct sim *s = sim_create(&c, i);
    add(s, 0, cases[i].prompt, cases[i].max_tokens, 2);
    run(s);
    ck_assert_int_eq(s->steps, cases[i].steps);
    ck_assert_int_eq(s->tokens, cases[i].prompt + (cases[i].max_tokens ? cases[i].max_tokens - 1 : 0));
    sim_destroy(s);
  }
}
END_TEST

/* Many of them beside others in few slots, at every depth and number of micro-batches. */
START_TEST(test_many) {
  for (int how = 0; how < 12; how++) {
    struct config c = score_config(2 + how % 5, 300, 24);
    c.micro_batches = 1 + how % 3;
    c.depth = c.micro_batches == 1 ? 1 + how % 2 : 1;
    struct sim *s = sim_create(&c, (uint64_t)how);
    for (int i = 0; i < c.jobs; i++)
      add(s, i, sim_range(s, 1, 60), sim_range(s, 1, 20), i % 3 ? sim_range(s, 0, 5) : -1);
    run(s);
    sim_destroy(s);
  }
}
END_TEST

/* Prompts that come behind a long one that is scored begin before that has ended. */
START_TEST(test_others_go_on) {
  struct config c = score_config(8, 300, 5);
  struct sim *s = sim_create(&c, 1);
  add(s, 0, 120, 0, 0);
  for (int i = 1; i < c.jobs; i++) add(s, i, 20, 6, -1)->arrive_at = 3;
  sim_run(s);
  sim_check_answers(s);
  for (int i = 1; i < c.jobs; i++) ck_assert_int_le(s->requests[i].choice[0].first_step, 6);
  ck_assert_int_ge(s->steps, 15);
  sim_destroy(s);
}
END_TEST

/* A prompt that is computed again, be it half scored, is told once, and is not moved to the host's memory with steps of
 * it under way. */
START_TEST(test_preempted) {
  for (int host = 0; host < 2; host++)
    for (int depth = 1; depth <= 2; depth++) {
      struct config c = score_config(6, 36, 12);
      c.depth = depth;
      c.late_percent = 60;
      c.limits.num_host_blocks = host ? 100 : 0;
      struct sim *s = sim_create(&c, 7);
      for (int i = 0; i < c.jobs; i++) add(s, i, 40 + i, 30, i % 2 ? 1 : -1);
      run(s);
      ck_assert_uint_gt(tri_sched_get_stats(s->sched).preemptions, 0);
      int least = 0;
      for (int i = 1; i < c.jobs; i += 2) least += 40 + i - 1;
      ck_assert_int_gt(s->scored, least); /* some of them more than once */
      sim_destroy(s);
    }
}
END_TEST

/* Blocks that hold the prompt are not taken, as they have no logits; those of a scored one serve others. */
START_TEST(test_prefix_cache) {
  struct config c = score_config(8, 300, 3);
  c.limits.prefix_caching = true;
  struct sim *s = sim_create(&c, 5);
  for (int i = 0; i < c.jobs; i++) {
    struct request *r = add(s, i, 40, 2, i == 1 ? 0 : -1);
    memcpy(r->prompt, s->requests[0].prompt, sizeof r->prompt);
    request_expect(s, r);
    r->arrive_at = 30 * i;
  }
  run(s);
  ck_assert_int_eq(s->requests[1].cached, 0);
  ck_assert_int_eq(s->requests[2].cached, 36);
  sim_destroy(s);
}
END_TEST

/* The first of several choices scores; its forks share what it has computed. */
START_TEST(test_choices) {
  struct config c = score_config(5, 300, 1);
  struct sim *s = sim_create(&c, 5);
  struct request *r = request_init(s, 0, 30, 5, 4);
  r->assign.sampling.prompt_logprobs = 3;
  r->assign.sampling.logprobs = 1;
  r->assign.sampling.ignore_eos = true;
  request_expect(s, r);
  run(s);
  ck_assert_int_eq(s->scored, 29);
  ck_assert_int_eq(s->forks, 3);
  sim_destroy(s);
}
END_TEST

Suite *suite_schedule_scores(void) {
  Suite *suite = suite_create("schedule_scores");
  TCase *t = tcase_create("scores");
  tcase_add_test(t, test_alone);
  tcase_add_test(t, test_many);
  tcase_add_test(t, test_others_go_on);
  tcase_add_test(t, test_preempted);
  tcase_add_test(t, test_prefix_cache);
  tcase_add_test(t, test_choices);
  suite_add_tcase(suite, t);
  return suite;
}
