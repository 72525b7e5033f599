/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's scheduler against an engine that computes nothing but remembers everything (scheduler_kit.h). */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/scheduler_kit.h"

Suite *suite_scheduler(void);

/* ---- properties over random workloads ---- */

static struct config random_config(uint64_t seed) {
  struct sim r = {.rng = sim_mix(seed * 3 + 1)};
  struct config c = {.micro_batches = sim_chance(&r, 50) ? 1 : sim_range(&r, 2, MAX_MICRO_BATCHES),
                     .by_priority = sim_chance(&r, 30)};
  c.jobs = sim_range(&r, 1, MAX_JOBS);
  c.depth = c.micro_batches == 1 && sim_chance(&r, 60) ? 2 : 1;
  c.late_percent = sim_chance(&r, 50) ? 0 : 60;
  tri_limits *l = &c.limits;
  l->vocab_size = VOCAB;
  l->block_size = sim_chance(&r, 20) ? 1 : sim_range(&r, 2, 17);
  l->max_num_seqs = sim_range(&r, MAX_N, MAX_SLOTS);
  l->max_num_batched_tokens = sim_chance(&r, 30) ? l->max_num_seqs : sim_range(&r, l->max_num_seqs, 200);
  l->max_model_len = sim_range(&r, 20, MAX_LEN);
  int full = (l->max_model_len + l->block_size - 1) / l->block_size; /* the least that an engine accepts */
  l->num_blocks = sim_chance(&r, 50) ? full + sim_range(&r, 0, full) : full * sim_range(&r, 2, l->max_num_seqs);
  if (l->num_blocks * l->block_size > MAX_BLOCKS) l->num_blocks = MAX_BLOCKS / l->block_size;
  if (c.micro_batches > 1 && sim_chance(&r, 50)) c.prompt_tokens = sim_range(&r, 1, 40);
  c.score_percent = sim_chance(&r, 50) ? 30 : 0;
  c.begun_percent = sim_chance(&r, 40) ? 40 : 0;
  sim_add_host_blocks(&r, &c);
  sim_add_prefixes(&r, &c);
  return c;
}

START_TEST(test_random_workloads) {
  uint64_t preemptions = 0;
  uint64_t hits = 0, evictions = 0;
  int copies = 0, forks = 0, ahead = 0, resumed = 0, scored = 0, begun = 0;
  for (uint64_t seed = (uint64_t)_i * 100; seed < (uint64_t)_i * 100 + 100; seed++) {
    struct config c = random_config(seed);
    struct sim *s = sim_create(&c, seed);
    for (int i = 0; i < c.jobs; i++) request_random(s, i);
    sim_run(s);
    sim_check_answers(s);
    tri_sched_stats st = tri_sched_get_stats(s->sched);
    preemptions += st.preemptions, hits += st.prefix_hits, evictions += st.prefix_evictions;
    copies += s->copies, forks += s->forks, ahead += s->ahead, resumed += s->resumed, scored += s->scored;
    begun += s->begun;
    sim_destroy(s);
  }
  /* What the workloads are meant to provoke did happen. */
  ck_assert_uint_gt(preemptions, 100);
  ck_assert_int_gt(copies, 100);
  ck_assert_int_gt(forks, 100);
  ck_assert_int_gt(ahead, 1000);
  ck_assert_int_gt(resumed, 50);
  ck_assert_int_gt(scored, 1000);
  ck_assert_int_gt(begun, 100);
  ck_assert_uint_gt(hits, 1000);
  ck_assert_uint_gt(evictions, 1000);
}
END_TEST

/* ---- particular cases ---- */

static bool is_settled(const struct request *r) { return r->job && r->job->seqs[0].micro_batch >= 0; }

static struct config simple_config(int seqs, int budget, int len, int block, int blocks, int jobs) {
  return (struct config){.limits = {.max_num_seqs = seqs,
                                    .max_num_batched_tokens = budget,
                                    .max_model_len = len,
                                    .block_size = block,
                                    .num_blocks = blocks,
                                    .vocab_size = VOCAB},
                         .micro_batches = 1,
                         .jobs = jobs};
}

/* Earlier requests get their first token no later than later ones, at whatever budget and however few blocks. */
START_TEST(test_first_come_first_served) {
  for (int budget = 8; budget <= 64; budget += 7) {
    struct config c = simple_config(8, budget, 100, 4, 30, 30);
    struct sim *s = sim_create(&c, (uint64_t)budget);
    for (int i = 0; i < c.jobs; i++) {
      struct request *r = request_init(s, i, sim_range(s, 1, 60), sim_range(s, 1, 30), 1);
      r->assign.sampling.priority = sim_range(s, -3, 3); /* must not matter */
      r->arrive_at = i / 3;
      request_expect(s, r);
    }
    sim_run(s);
    sim_check_answers(s);
    for (int i = 1; i < c.jobs; i++)
      ck_assert_int_le(s->requests[i - 1].choice[0].first_step, s->requests[i].choice[0].first_step);
    sim_destroy(s);
  }
}
END_TEST

START_TEST(test_priority) {
  struct config c = simple_config(4, 16, 80, 4, 24, 24);
  c.by_priority = true;
  struct sim *s = sim_create(&c, 1);
  for (int i = 0; i < c.jobs; i++) {
    struct request *r = request_init(s, i, sim_range(s, 1, 40), sim_range(s, 1, 20), 1);
    r->assign.sampling.priority = sim_range(s, -3, 3);
    request_expect(s, r);
  }
  sim_run(s);
  sim_check_answers(s);
  for (int i = 0; i < c.jobs; i++)
    for (int k = 0; k < c.jobs; k++) {
      const struct request *a = &s->requests[i], *b = &s->requests[k];
      int64_t pa = a->assign.sampling.priority, pb = b->assign.sampling.priority;
      if (pa < pb || (pa == pb && i < k)) ck_assert_int_le(a->choice[0].first_step, b->choice[0].first_step);
    }
  sim_destroy(s);
}
END_TEST

/* Running requests make way for one that matters more: for want of a slot as many as it takes, for want of blocks only
 * where that lets it in, and never for one that matters as much. */
START_TEST(test_urgent) {
  static const struct {
    int slots, blocks, prompt, preempted;
    int64_t priority;
  } cases[] = {{2, 60, 10, 1, -1}, {4, 24, 66, 2, -1}, {2, 60, 10, 0, 0}, {2, 60, 10, 0, 1}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    for (int micro_batches = 1; micro_batches <= 2; micro_batches++) {
      struct config c = simple_config(cases[k].slots, 64, 80, 4, cases[k].blocks, 3);
      c.by_priority = true;
      c.micro_batches = micro_batches;
      struct sim *s = sim_create(&c, k);
      for (int i = 0; i < c.jobs; i++) {
        bool urgent = i == c.jobs - 1;
        struct request *r = request_init(s, i, urgent ? cases[k].prompt : 20, urgent ? 4 : 30, 1);
        r->assign.sampling.ignore_eos = true;
        r->assign.sampling.priority = urgent ? cases[k].priority : 0;
        r->arrive_at = urgent ? 10 : 0;
        request_expect(s, r);
      }
      sim_run(s);
      sim_check_answers(s);
      const struct choice *late = &s->requests[c.jobs - 1].choice[0], *other = &s->requests[0].choice[0];
      uint64_t preempted = tri_sched_get_stats(s->sched).preemptions;
      if (!cases[k].preempted) ck_assert_uint_eq(preempted, 0);
      if (micro_batches == 1)
        ck_assert_uint_ge(preempted, (uint64_t)cases[k].preempted); /* coming back may take more */
      if (cases[k].preempted) ck_assert_int_le(late->first_step, 10 * micro_batches + 3);
      ck_assert_int_lt(other->first_step, late->first_step);
      sim_destroy(s);
    }
}
END_TEST

/* An abort at every iteration of a job's life: its blocks and slots are free one iteration later. */
START_TEST(test_abort_from_any_state) {
  for (int at = 0; at < 40; at++)
    for (int micro_batches = 1; micro_batches <= 2; micro_batches++) {
      struct config c = simple_config(6, 8, 60, 4, 20, 3);
      c.micro_batches = micro_batches;
      struct sim *s = sim_create(&c, (uint64_t)at);
      for (int i = 0; i < c.jobs; i++) {
        struct request *r = request_init(s, i, 20, 25, i == 1 ? 3 : 1);
        r->assign.sampling.ignore_eos = true;
        if (i == 1) r->abort_at = at;
        request_expect(s, r);
      }
      struct request *victim = &s->requests[1];
      while (!s->requests[0].arrived || tri_sched_has_work(s->sched)) {
        sim_iterate(s);
        if (s->iteration > at) ck_assert_ptr_null(victim->job);
      }
      sim_check_answers(s);
      ck_assert_uint_eq(tri_sched_get_stats(s->sched).blocks_used, 0);
      sim_destroy(s);
    }
}
END_TEST

START_TEST(test_deadline) {
  struct config c = simple_config(2, 8, 60, 4, 40, 3);
  struct sim *s = sim_create(&c, 5);
  static const int deadlines[] = {7, 0, 12}; /* running; at once; the third waits for a slot until then */
  for (int i = 0; i < c.jobs; i++) {
    struct request *r = request_init(s, i, 10, 50, i == 2 ? 2 : 1);
    r->assign.sampling.ignore_eos = true;
    r->assign.remaining_ms = deadlines[i];
    request_expect(s, r);
  }
  while (!s->requests[0].arrived || tri_sched_has_work(s->sched)) {
    sim_iterate(s);
    for (int i = 0; i < c.jobs; i++) {
      if (s->iteration <= deadlines[i]) ck_assert_ptr_nonnull(s->requests[i].job);
      if (s->iteration > deadlines[i]) ck_assert_ptr_null(s->requests[i].job);
    }
  }
  sim_check_answers(s);
  ck_assert_int_eq(s->requests[0].choice[0].reason, TRI_FINISH_ABORT);
  ck_assert_int_gt(s->requests[0].choice[0].got, 0);
  ck_assert_int_eq(s->requests[1].choice[0].got, 0);
  sim_destroy(s);
}
END_TEST

/* With one slot the second job waits for the first one's end, and is told so; the third is never taken in. */
START_TEST(test_wait) {
  struct config c = simple_config(1, 8, 60, 4, 40, 3);
  struct sim *s = sim_create(&c, 6);
  for (int i = 0; i < c.jobs; i++) {
    struct request *r = request_init(s, i, 10, 10, 1);
    r->assign.sampling.ignore_eos = true;
    if (i == 2) r->assign.remaining_ms = 5;
    request_expect(s, r);
  }
  sim_run(s);
  sim_check_answers(s);
  ck_assert_int_eq(s->requests[0].waited_ns, 0);
  ck_assert_int_ge(s->requests[1].waited_ns, 10 * MS);
  ck_assert_int_le(s->requests[1].waited_ns, 20 * MS);
  ck_assert_int_eq(s->requests[2].waited_ns, -1);
  sim_destroy(s);
}
END_TEST

/* A prompt of 50 tokens at a budget of 4 takes 13 steps, and a decode beside it misses none. */
START_TEST(test_chunked_prefill) {
  struct config c = simple_config(4, 4, 64, 16, 16, 2);
  struct sim *s = sim_create(&c, 3);
  for (int i = 0; i < 2; i++) {
    struct request *r = request_init(s, i, i ? 48 : 1, i ? 1 : 30, 1);
    r->assign.sampling.ignore_eos = true;
    r->arrive_at = i * 3;
    request_expect(s, r);
  }
  int before = 0;
  while (!s->requests[1].choice[0].ended) {
    sim_iterate(s);
    ck_assert_int_eq(s->requests[0].choice[0].got, before + 1);
    before++;
  }
  /* Three tokens of each step are the prompt's from iteration 3 on. */
  ck_assert_int_eq(s->requests[1].choice[0].first_step, 3 + 16);
  sim_run(s);
  sim_check_answers(s);
  sim_destroy(s);
}
END_TEST

/* Chunks of one prompt follow each other through the stages: no micro-batch waits for another one's result, and the
 * prompt's last chunk draws. A decode beside it has its own micro-batch's steps, with no more of the prompt in each
 * than is allowed. */
START_TEST(test_prompt_goes_with_every_micro_batch) {
  for (int beside = 0; beside < 2; beside++) {
    struct config c = simple_config(4, 16, 100, 4, 60, 1 + beside);
    c.micro_batches = 3;
    c.prompt_tokens = 7;
    struct sim *s = sim_create(&c, 9);
    for (int i = 0; i < c.jobs; i++) {
      struct request *r = request_init(s, i, i < beside ? 1 : 65, i < beside ? 30 : 2, 1);
      r->assign.sampling.ignore_eos = true;
      r->arrive_at = i < beside ? 0 : 3;
      request_expect(s, r);
    }
    struct request *prompt = &s->requests[beside];
    while (s->iteration < 3) sim_iterate(s);
    int steps = s->steps;
    sim_take_events(s);
    for (int round = 0, got; !prompt->choice[0].got; round++) {
      got = s->requests[0].choice[0].got;
      for (int micro_batch = 0; micro_batch < c.micro_batches && !is_settled(prompt); micro_batch++) {
        ck_assert(tri_sched_compose(s->sched, micro_batch, s->writer));
        sim_execute(s, micro_batch);
        sim_check_books(s);
      }
      ck_assert_int_lt(round, 4); /* 10 chunks of 7 tokens, 3 at a time */
      while (s->num_results) sim_return_result(s);
      if (beside) ck_assert_int_eq(s->requests[0].choice[0].got, got + 1);
    }
    ck_assert_int_eq(s->steps - steps, 10 + beside); /* the first micro-batch has its share without the prompt */
    sim_run(s);
    sim_check_answers(s);
    sim_destroy(s);
  }
}
END_TEST

/* Lanes stay even: sequences that come together, and those that are left where others have ended. */
START_TEST(test_micro_batches_are_even) {
  struct config c = simple_config(8, 64, 100, 4, 200, 8);
  c.micro_batches = 2;
  struct sim *s = sim_create(&c, 10);
  for (int i = 0; i < c.jobs; i++) {
    struct request *r = request_init(s, i, 5, i < 4 ? 4 : 60, 1);
    r->assign.sampling.ignore_eos = true;
    request_expect(s, r);
  }
  while (s->iteration < 40) {
    sim_iterate(s);
    int running[2] = {0};
    for (int i = 0; i < c.jobs; i++)
      if (s->requests[i].job && s->requests[i].job->seqs[0].micro_batch >= 0)
        running[s->requests[i].job->seqs[0].micro_batch]++;
    if (s->iteration != 4) ck_assert_int_eq(running[0], running[1]); /* when four have just ended */
  }
  sim_run(s);
  sim_check_answers(s);
  sim_destroy(s);
}
END_TEST

/* Choices share the prompt's blocks: n choices cost little more than one. */
START_TEST(test_choices_share_blocks) {
  struct config c = simple_config(8, 64, 64, 4, 64, 1);
  struct sim *s = sim_create(&c, 4);
  struct request *r = request_init(s, 0, 41, 4, MAX_N);
  r->assign.sampling.ignore_eos = true;
  request_expect(s, r);
  uint64_t most = 0;
  while (!s->requests[0].arrived || tri_sched_has_work(s->sched)) {
    sim_iterate(s);
    uint64_t used = tri_sched_get_stats(s->sched).blocks_used;
    most = used > most ? used : most;
  }
  sim_check_answers(s);
  ck_assert_int_eq(s->forks, MAX_N - 1);
  ck_assert_uint_eq(most, 10 + MAX_N); /* 40 shared positions, and one block for each choice's own */
  sim_destroy(s);
}
END_TEST

/* Memory for one full sequence only: all others wait or are computed again, and everybody finishes. */
START_TEST(test_least_blocks) {
  for (int block = 1; block <= 16; block++) {
    struct config c = simple_config(8, 32, 48, block, (48 + block - 1) / block, 12);
    struct sim *s = sim_create(&c, (uint64_t)block);
    for (int i = 0; i < c.jobs; i++) {
      struct request *r = request_init(s, i, sim_range(s, 1, 20), -1, i % 4 ? 1 : 3);
      r->assign.sampling.ignore_eos = true; /* up to max_model_len */
      request_expect(s, r);
    }
    sim_run(s);
    sim_check_answers(s);
    sim_destroy(s);
  }
}
END_TEST

/* More endings than the outbox holds: the rest come with the next reap, none is lost. */
START_TEST(test_full_outbox) {
  struct config c = simple_config(4, 16, 32, 4, 32, MAX_JOBS);
  struct sim *s = sim_create(&c, 7);
  int rounds = 0, ended = 0;
  for (int i = 0; i < c.jobs; i++) {
    request_expect(s, request_init(s, i, 5, 5, 4));
    sim_arrive(s, &s->requests[i]);
    ck_assert(tri_sched_abort(s->sched, s->requests[i].assign.job));
  }
  for (bool all = false; !all; rounds++) {
    all = tri_sched_reap(s->sched, 0, &s->out);
    ended += (int)s->out.num;
    sim_drain(s);
  }
  ck_assert_int_eq(ended, MAX_JOBS * 4);
  ck_assert_int_gt(rounds, 1);
  ck_assert(!tri_sched_has_work(s->sched));
  ck_assert(!tri_sched_abort(s->sched, 100));
  sim_destroy(s);
}
END_TEST

/* Marks the draws of a job as such that are no answers. */
static void break_draws(const tri_job *j, struct result *r) {
  for (uint32_t i = 0; i < r->r.num_tokens; i++)
    for (int k = 0; k < j->num_choices; k++)
      if (j->seqs[k].slot == (int)r->tokens[i].slot) r->tokens[i].sample.broken = true;
}

/* Takes what has come. Returns how many entries say that the first job has no answer; nothing else is said of it but
 * that its choices end. */
static int take_entries(struct sim *s) {
  int told = 0;
  for (uint32_t i = 0; i < s->out.num; i++) {
    const tri_replica_token *t = &s->out.tokens[i];
    if (t->job != s->requests[0].assign.job) {
      sim_hear(s, t);
      continue;
    }
    ck_assert(t->flags & TRI_TOKEN_NONE);
    told += t->reason == TRI_FINISH_ERROR;
    if (t->reason != TRI_FINISH_ERROR) ck_assert(t->reason == TRI_FINISH_ABORT && t->flags & TRI_TOKEN_LAST);
  }
  s->out.num = 0;
  sim_drain(s);
  return told;
}

/* Drawn from logits that are no numbers: the job ends, once, whatever it asks for, and the other goes on. */
START_TEST(test_broken_draws) {
  struct config c = simple_config(8, 8, 60, 4, 40, 2);
  struct sim *s = sim_create(&c, 3);
  struct result r;
  int told = 0, steps = 0;
  for (int i = 0; i < 2; i++) {
    struct request *q = request_init(s, i, 9, 20, i ? 1 : 3);
    if (!i && _i) q->assign.sampling.num_beams = 3;
    request_expect(s, q);
    sim_arrive(s, q);
  }
  for (; steps < 200 && tri_sched_has_work(s->sched); steps++, s->iteration++) {
    tri_sched_reap(s->sched, sim_now(s), &s->out);
    told += take_entries(s);
    while (!tri_sched_micro_batch_busy(s->sched, 0) && tri_sched_compose(s->sched, 0, s->writer)) sim_execute(s, 0);
    while (s->num_results) {
      sim_take_result(s, &r);
      if (!told) break_draws(s->requests[0].job, &r);
      tri_sched_absorb(s->sched, r.micro_batch, &r.r, &s->out);
      told += take_entries(s);
    }
  }
  ck_assert_int_eq(told, 1);
  ck_assert_int_lt(steps, 200);
  ck_assert(s->requests[1].choice[0].ended && s->requests[1].choice[0].got == s->requests[1].choice[0].num_want);
  sim_destroy(s);
}
END_TEST

/* Destroyed in the middle of its work, with jobs in every state. */
START_TEST(test_destroy_busy) {
  struct config c = simple_config(4, 8, 64, 4, 40, 8);
  for (int steps = 0; steps < 12; steps++) {
    struct sim *s = sim_create(&c, 8);
    for (int i = 0; i < c.jobs; i++) request_expect(s, request_init(s, i, 9, 9, 1 + i % 3));
    for (int i = 0; i < steps; i++) sim_iterate(s);
    sim_destroy(s);
  }
}
END_TEST

Suite *suite_scheduler(void) {
  Suite *suite = suite_create("scheduler");
  TCase *random = tcase_create("random"), *cases = tcase_create("cases");
  tcase_set_timeout(random, 120);
  tcase_add_loop_test(random, test_random_workloads, 0, 5);
  tcase_add_test(cases, test_first_come_first_served);
  tcase_add_test(cases, test_priority);
  tcase_add_test(cases, test_urgent);
  tcase_add_test(cases, test_abort_from_any_state);
  tcase_add_test(cases, test_deadline);
  tcase_add_test(cases, test_wait);
  tcase_add_test(cases, test_chunked_prefill);
  tcase_add_test(cases, test_prompt_goes_with_every_micro_batch);
  tcase_add_test(cases, test_micro_batches_are_even);
  tcase_add_test(cases, test_choices_share_blocks);
  tcase_add_test(cases, test_least_blocks);
  tcase_add_test(cases, test_full_outbox);
  tcase_add_test(cases, test_destroy_busy);
  tcase_add_loop_test(cases, test_broken_draws, 0, 2);
  suite_add_tcase(suite, random);
  suite_add_tcase(suite, cases);
  return suite;
}
