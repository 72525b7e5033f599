/* SPDX-License-Identifier: Apache-2.0 */
/* Constrained answers in the scheduler, against an engine that computes nothing but remembers everything
 * (scheduler_kit.h): each answer is that of the request alone, whose tokens are found without masks, however late masks
 * come and whatever else happens to its sequences. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/scheduler_kit.h"

Suite *suite_constrained_schedule(void);

static struct config random_config(uint64_t seed) {
  struct sim r = {.rng = sim_mix(seed * 5 + 2)};
  struct config c = {.micro_batches = sim_chance(&r, 50) ? 1 : sim_range(&r, 2, MAX_MICRO_BATCHES),
                     .by_priority = sim_chance(&r, 30)};
  c.jobs = sim_range(&r, 1, MAX_JOBS);
  c.depth = c.micro_batches == 1 && sim_chance(&r, 60) ? 2 : 1;
  c.late_percent = sim_chance(&r, 50) ? 0 : 60;
  tri_limits *l = &c.limits;
  l->vocab_size = VOCAB;
  l->block_size = sim_range(&r, 1, 9);
  l->max_num_seqs = sim_range(&r, MAX_N, MAX_SLOTS);
  l->max_num_batched_tokens = sim_range(&r, l->max_num_seqs, 100);
  l->max_model_len = sim_range(&r, 20, MAX_LEN);
  int full = (l->max_model_len + l->block_size - 1) / l->block_size;
  l->num_blocks = sim_chance(&r, 50) ? full + sim_range(&r, 0, full) : full * sim_range(&r, 2, l->max_num_seqs);
  if (l->num_blocks * l->block_size > MAX_BLOCKS) l->num_blocks = MAX_BLOCKS / l->block_size;
  c.score_percent = sim_chance(&r, 30) ? 30 : 0;
  c.begun_percent = sim_chance(&r, 40) ? 40 : 0;
  c.constrained_percent = sim_chance(&r, 30) ? 100 : 60;
  c.slow_masks_percent = sim_chance(&r, 30) ? 0 : sim_range(&r, 10, 80);
  sim_add_host_blocks(&r, &c);
  sim_add_prefixes(&r, &c);
  return c;
}

START_TEST(test_random_workloads) {
  uint64_t preemptions = 0;
  int forks = 0, ahead = 0, resumed = 0, begun = 0, left_out = 0, bare = 0;
  for (uint64_t seed = (uint64_t)_i * 50; seed < (uint64_t)_i * 50 + 50; seed++) {
    struct config c = random_config(seed);
    struct sim *s = sim_create(&c, seed);
    for (int i = 0; i < c.jobs; i++) request_random(s, i);
    sim_run(s);
    sim_check_answers(s);
    for (int i = 0; i < c.jobs; i++) bare += s->requests[i].choice[0].bare;
    preemptions += tri_sched_get_stats(s->sched).preemptions;
    forks += s->forks, ahead += s->ahead, resumed += s->resumed, begun += s->begun, left_out += s->left_out;
    sim_destroy(s);
  }
  /* What the workloads are meant to provoke did happen. */
  ck_assert_uint_gt(preemptions, 50);
  ck_assert_int_gt(forks, 50);
  ck_assert_int_gt(ahead, 10);
  ck_assert_int_gt(resumed, 20);
  ck_assert_int_gt(begun, 50);
  ck_assert_int_gt(left_out, 100);
  ck_assert_int_gt(bare, 100);
}
END_TEST

static struct config one_config(void) {
  return (struct config){.limits = {.max_num_seqs = 4,
                                    .max_num_batched_tokens = 64,
                                    .max_model_len = 60,
                                    .block_size = 4,
                                    .num_blocks = 60,
                                    .vocab_size = VOCAB},
                         .micro_batches = 1,
                         .depth = 2,
                         .jobs = 2,
                         .constrained_percent = 1};
}

static void constrain(struct sim *s, struct request *r, int kind) {
  r->assign.sampling.constraint = constrained_wire(kind);
  request_expect(s, r);
}

/* A sequence whose mask is not there is left out of a step, and others are not; then it is in the next one. */
START_TEST(test_late_mask) {
  struct config c = one_config();
  struct sim *s = sim_create(&c, 1);
  struct request *constrained = request_init(s, 0, 3, 30, 1), *open = request_init(s, 1, 3, 30, 1);
  open->assign.sampling.ignore_eos = true;
  constrain(s, constrained, 4);
  request_expect(s, open);
  s->cfg.slow_masks_percent = 100;
  sim_iterate(s);
  ck_assert_int_ge(open->choice[0].got, 1); /* it passes one whose schema is still compiled */
  ck_assert_int_eq(constrained->choice[0].got, 0);
  tri_mask_maker_run(s->cfg.model.maker);
  while (!constrained->choice[0].got) sim_iterate(s);
  int got = constrained->choice[0].got;
  for (int i = 0; i < 5; i++) sim_iterate(s);
  ck_assert_int_eq(constrained->choice[0].got, got);
  ck_assert_int_ge(open->choice[0].got, 7);
  ck_assert(!tri_sched_awaits_masks(s->sched, 0, false)); /* a step has been without it */
  ck_assert(tri_sched_awaits_masks(s->sched, 0, true));
  tri_mask_maker_run(s->cfg.model.maker);
  sim_iterate(s);
  ck_assert_int_eq(constrained->choice[0].got, got + 1);
  s->cfg.slow_masks_percent = 0;
  sim_run(s);
  sim_check_answers(s);
  sim_destroy(s);
}
END_TEST

/* A job whose mask is being made may end; what makes the mask keeps what it needs. */
START_TEST(test_abort_while_made) {
  struct config c = one_config();
  struct sim *s = sim_create(&c, 2);
  c.jobs = s->cfg.jobs = 1;
  constrain(s, request_init(s, 0, 3, 30, 2), 4);
  s->cfg.slow_masks_percent = 100;
  sim_iterate(s);
  tri_mask_maker_run(s->cfg.model.maker);
  sim_iterate(s);
  sim_iterate(s);
  ck_assert(tri_sched_abort(s->sched, 100));
  sim_iterate(s);
  sim_iterate(s);
  ck_assert(!tri_sched_has_work(s->sched));
  tri_mask_maker_run(s->cfg.model.maker);
  sim_destroy(s);
}
END_TEST

/* A job ends with an error where no token of the model can continue its answer, and never without its constraint. */
START_TEST(test_no_token) {
  static const char text[] = "{\"const\":\"ab!\"}"; /* no token has '!' */
  struct config c = one_config();
  struct sim *s = sim_create(&c, 3);
  s->cfg.jobs = 1;
  struct request *r = request_init(s, 0, 3, 30, 1);
  r->assign.sampling.constraint =
      (tri_wire_constraint){.kind = TRI_CONSTRAINT_JSON_SCHEMA, .text = {text, sizeof text - 1}};
  sim_arrive(s, r);
  bool told = false;
  for (int i = 0; i < 50 && !told; i++) {
    tri_mask_maker_run(s->cfg.model.maker);
    tri_sched_reap(s->sched, sim_now(s), &s->out);
    for (uint32_t k = 0; k < s->out.num && !told; k++) {
      const tri_replica_token *t = &s->out.tokens[k];
      told = t->flags & TRI_TOKEN_NONE;
      if (!told) continue;
      ck_assert_int_eq(t->reason, TRI_FINISH_ERROR);
      ck_assert_int_eq(t->token, TRI_TOKEN_NO_OTHER);
    }
    s->out.num = 0;
    if (!told && tri_sched_compose(s->sched, 0, s->writer)) sim_execute(s, 0);
    struct result got;
    if (!s->num_results) continue;
    sim_take_result(s, &got);
    tri_sched_absorb(s->sched, 0, &got.r, &s->out);
    for (uint32_t k = 0; k < s->out.num; k++) ck_assert(!(s->out.tokens[k].flags & TRI_TOKEN_LAST));
    s->out.num = 0;
  }
  ck_assert(told);
  r->job = NULL;
  sim_destroy(s);
}
END_TEST

static void refused(struct sim *s, const struct request *r, tri_status want, const char *words) {
  tri_error err = {0};
  tri_job *job = NULL;
  ck_assert_int_eq(sim_create_job(s, r, &job, &err), want);
  ck_assert_str_eq(err.field, "constraint");
  ck_assert_msg(strstr(err.message, words) != NULL, "%s", err.message);
}

START_TEST(test_refused) {
  struct config c = one_config();
  struct sim *s = sim_create(&c, 4);
  struct request *r = request_init(s, 0, 3, 30, 1);
  tri_sampling *p = &r->assign.sampling;
  tri_grammar_source *grammars = s->cfg.model.grammars;
  p->constraint = constrained_wire(0);
  p->num_beams = 2;
  refused(s, r, TRI_UNSUPPORTED, "beam search");
  p->num_beams = 1;
  s->cfg.model.grammars = NULL;
  refused(s, r, TRI_UNSUPPORTED, "by this replica");
  s->cfg.model.grammars = grammars;
  sim_destroy(s);
}
END_TEST

Suite *suite_constrained_schedule(void) {
  Suite *s = suite_create("constrained_schedule");
  TCase *t = tcase_create("properties");
  tcase_set_timeout(t, 300);
  tcase_add_loop_test(t, test_random_workloads, 0, 8);
  suite_add_tcase(s, t);
  t = tcase_create("cases");
  tcase_add_test(t, test_late_mask);
  tcase_add_test(t, test_abort_while_made);
  tcase_add_test(t, test_no_token);
  tcase_add_test(t, test_refused);
  suite_add_tcase(s, t);
  return s;
}
