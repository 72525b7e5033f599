/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences that wait with their keys and values in the host's memory, in the scheduler's stand-in for an engine
 * (scheduler_kit.h), which notices any block that is read before it has come or overwritten before it has gone. The
 * random workloads of test_scheduler.c and test_shards.c have such blocks, too. */
#include "tests/unit/scheduler_kit.h"
#include "worker/schedule/scheduler_impl.h"

Suite *suite_swap(void);

enum { JOBS = 12, BLOCK = 4, LEN = 60 };

/* Room for two full sequences, which six would like to be. */
static struct config small_cache(int budget, int host_blocks) {
  return (struct config){.limits = {.max_num_seqs = 6,
                                    .max_num_batched_tokens = budget,
                                    .max_model_len = LEN,
                                    .block_size = BLOCK,
                                    .num_blocks = 2 * LEN / BLOCK,
                                    .num_host_blocks = host_blocks,
                                    .vocab_size = VOCAB},
                         .micro_batches = 1,
                         .jobs = JOBS};
}

/* Answers of 30 tokens behind short prompts. Returns the tokens that it takes to compute each once. */
static int add_jobs(struct sim *s, int n) {
  int tokens = 0;
  for (int i = 0; i < JOBS; i++) {
    struct request *r = request_init(s, i, 5 + i % 7, 30, n);
    r->assign.sampling.ignore_eos = true;
    if (n > 1) r->arrive_at = 6 * i; /* so that choices find slots beside the first one */
    request_expect(s, r);
    tokens += 5 + i % 7 + 29;
  }
  return tokens;
}

static tri_sched_stats run(const struct config *c, int n, int *wanted, int *computed) {
  struct sim *s = sim_create(c, 1);
  *wanted = add_jobs(s, n);
  sim_run(s);
  sim_check_answers(s);
  tri_sched_stats st = tri_sched_get_stats(s->sched);
  *computed = s->tokens;
  if (c->micro_batches == 1) ck_assert_uint_eq(st.swaps_in, (uint64_t)s->resumed);
  ck_assert_uint_eq(st.swaps_in, st.swaps_out);
  ck_assert_uint_eq(st.blocks_in, st.blocks_out);
  sim_destroy(s);
  return st;
}

/* Nothing is computed twice where there is room for all, whether steps are long or shorter than a sequence. */
START_TEST(test_computes_once) {
  for (int budget = 6; budget < 200; budget += 40) {
    struct config c = small_cache(budget, 6 * LEN / BLOCK);
    int wanted, computed;
    tri_sched_stats st = run(&c, 1, &wanted, &computed);
    ck_assert_uint_gt(st.preemptions, 3);
    ck_assert_uint_eq(st.swaps_out, st.preemptions);
    ck_assert_int_eq(computed, wanted);
    c.limits.num_host_blocks = 0;
    st = run(&c, 1, &wanted, &computed);
    ck_assert_uint_eq(st.swaps_out, 0);
    ck_assert_int_gt(computed, wanted);
  }
}
END_TEST

/* A step ahead of its draws drops one of them at most, and computes one token again. */
START_TEST(test_ahead) {
  struct config c = small_cache(40, 6 * LEN / BLOCK);
  c.depth = 2;
  int wanted, computed;
  tri_sched_stats st = run(&c, 1, &wanted, &computed);
  ck_assert_uint_gt(st.preemptions, 3);
  ck_assert_uint_eq(st.swaps_out, st.preemptions);
  ck_assert_int_le(computed, wanted + 2 * (int)st.swaps_out + JOBS); /* a token may be behind each end, too */
}
END_TEST

/* Those for whom the host has no blocks are computed again. */
START_TEST(test_full_pool) {
  for (int host_blocks = 1; host_blocks < 12; host_blocks++) {
    struct config c = small_cache(40, host_blocks);
    int wanted, computed;
    tri_sched_stats st = run(&c, 1, &wanted, &computed);
    ck_assert_uint_gt(st.preemptions, st.swaps_out);
    if (host_blocks > 4) ck_assert_uint_gt(st.swaps_out, 3);
  }
}
END_TEST

START_TEST(test_cost) {
  static const struct {
    tri_swap_cost cost;
    bool swaps, computes;
  } cases[] = {
      {{.block_s = 1, .token_s = 0.24}, false, true}, /* a block of four tokens costs more than they do */
      {{.block_s = 1, .token_s = 2}, true, false},    /* and less, even the last one of a single token */
      {{.block_s = 1, .token_s = 0.26}, true, true},  /* and less if it is nearly full */
      {{.block_s = 1e-9, .token_s = 1, .free_tokens = LEN}, false, true}, /* steps wait for their weights */
      {{.block_s = 1, .token_s = 2, .free_tokens = 13}, true, true},
      {{.block_s = 0}, true, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct config c = small_cache(40, 6 * LEN / BLOCK);
    c.swap_cost = cases[i].cost;
    int wanted, computed;
    tri_sched_stats st = run(&c, 1, &wanted, &computed);
    ck_assert_uint_gt(st.preemptions, 0);
    ck_assert_msg(!!st.swaps_out == cases[i].swaps, "case %zu: %d of %d", i, (int)st.swaps_out, (int)st.preemptions);
    ck_assert_msg((st.preemptions > st.swaps_out) == cases[i].computes, "case %zu: %d of %d", i, (int)st.swaps_out,
                  (int)st.preemptions);
  }
}
END_TEST

/* Choices that share their prompt's blocks are computed again, and the last that has them alone is swapped. */
START_TEST(test_shared_blocks) {
  struct config c = small_cache(40, 6 * LEN / BLOCK);
  int wanted, computed;
  tri_sched_stats st = run(&c, 3, &wanted, &computed);
  ck_assert_uint_gt(st.preemptions, st.swaps_out);
  ck_assert_uint_gt(st.swaps_out, 0);
}
END_TEST

/* Whoever ends while it waits gives its blocks of the host back. */
START_TEST(test_abort) {
  struct config c = small_cache(40, 6 * LEN / BLOCK);
  struct sim *s = sim_create(&c, 1);
  add_jobs(s, 1);
  while (tri_sched_get_stats(s->sched).host_blocks_used < 8) sim_iterate(s);
  for (int i = 0; i < JOBS; i++) {
    struct request *r = &s->requests[i];
    if (r->job && r->job->seqs[0].num_host_blocks) r->abort_at = s->iteration;
  }
  sim_take_events(s);
  ck_assert_uint_eq(tri_sched_get_stats(s->sched).host_blocks_used, 0);
  for (int i = 0; i < JOBS; i++)
    if (s->requests[i].abort_at == s->iteration) s->requests[i].abort_at = 0; /* has been */
  sim_run(s);
  sim_check_answers(s);
  sim_destroy(s);
}
END_TEST

/* A scheduler that ends with sequences in the host's memory leaves nothing behind. */
START_TEST(test_destroy) {
  struct config c = small_cache(40, 6 * LEN / BLOCK);
  struct sim *s = sim_create(&c, 1);
  add_jobs(s, 1);
  while (!tri_sched_get_stats(s->sched).host_blocks_used) sim_iterate(s);
  sim_destroy(s);
}
END_TEST

/* Two full sequences' blocks, and sequences that outgrow them in several micro-batches. */
static struct config small_micro_batches(int micro_batches) {
  struct config c = small_cache(40, 6 * LEN / BLOCK);
  c.micro_batches = micro_batches;
  c.late_percent = 50;
  return c;
}

/* Sequences of idle micro-batches leave and come back to their slots: nobody waits for blocks who has begun, and
 * nothing is computed twice. */
START_TEST(test_idle_micro_batches) {
  struct config c = small_micro_batches(2 + _i);
  struct sim *s = sim_create(&c, 1);
  int wanted = add_jobs(s, 1);
  sim_run(s);
  sim_check_answers(s);
  tri_sched_stats st = tri_sched_get_stats(s->sched);
  ck_assert_uint_gt(st.swaps_out, st.preemptions + 20);
  ck_assert_uint_eq(st.swaps_in, st.swaps_out);
  ck_assert_uint_eq(st.blocks_in, st.blocks_out);
  ck_assert_int_le(s->tokens, wanted + (int)st.preemptions); /* who is preempted may lose a draw */
  sim_destroy(s);
}
END_TEST

/* Who has left with the step of a micro-batch is of another one, and those of micro-batches that run later have left
 * before. Returns how many have. */
static int check_left(const struct sim *s, int micro_batch, const bool *was_away) {
  int left = 0;
  for (int i = 0; i < JOBS; i++) {
    const tri_job *j = s->requests[i].job;
    if (!j || !j->seqs[0].swapped || was_away[i]) continue;
    int of = j->seqs[0].micro_batch;
    ck_assert_int_ne(of, micro_batch);
    left++;
    for (int l = 0; l < s->cfg.micro_batches; l++)
      for (const tri_sequence *q = s->sched->micro_batches[l].running.head; q; q = q->next)
        if (l != micro_batch && s->sched->micro_batches[l].last_step > s->sched->micro_batches[of].last_step)
          ck_assert(q->swapped || tri_seq_ends(q));
  }
  return left;
}

/* Whoever has come in with a step has left blocks for all that are away. */
static void check_room(const struct sim *s, bool arrived) {
  const tri_sched *sched = s->sched;
  if (sched->blocks_swapped && arrived) ck_assert_int_ge(tri_block_num_free(&sched->pool), sched->blocks_swapped);
}

START_TEST(test_last_micro_batch_leaves) {
  enum { MICRO_BATCHES = 3 };
  struct config c = small_micro_batches(MICRO_BATCHES);
  struct sim *s = sim_create(&c, 1);
  int left = 0;
  add_jobs(s, 1);
  do {
    sim_take_events(s);
    for (int micro_batch = 0; micro_batch < MICRO_BATCHES; micro_batch++) {
      bool was_away[JOBS];
      for (int i = 0; i < JOBS; i++) was_away[i] = s->requests[i].job && s->requests[i].job->seqs[0].swapped;
      if (s->num_results == MICRO_BATCHES) sim_return_result(s);
      uint32_t running = tri_sched_get_stats(s->sched).running;
      if (tri_sched_micro_batch_busy(s->sched, micro_batch) || !tri_sched_compose(s->sched, micro_batch, s->writer))
        continue;
      sim_execute(s, micro_batch);
      left += check_left(s, micro_batch, was_away);
      check_room(s, tri_sched_get_stats(s->sched).running > running);
    }
    if (s->num_results) sim_return_result(s);
    s->iteration++;
  } while (tri_sched_has_work(s->sched));
  ck_assert_int_gt(left, 20);
  sim_destroy(s);
}
END_TEST

/* They stay where leaving is predicted to cost more than a sequence in flight is worth, or the host has no room. */
START_TEST(test_stays) {
  static const struct {
    tri_swap_cost cost;
    int host_blocks;
    bool leaves;
  } cases[] = {
      {{.block_s = 1, .token_s = 100, .decode_s = 0.9}, 90, false}, /* one block alone costs more */
      {{.block_s = 1, .token_s = 100, .decode_s = 20}, 90, true},
      {{.block_s = 1, .token_s = 100, .decode_s = 20}, 2, false}, /* two blocks are soon full */
      {{.block_s = 1, .token_s = 0, .decode_s = 20}, 90, true},   /* who is preempted is computed again */
      {{.block_s = 1, .token_s = 100}, 90, false},                /* no prediction of a step */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct config c = small_micro_batches(2);
    c.limits.num_host_blocks = cases[i].host_blocks;
    c.swap_cost = cases[i].cost;
    int wanted, computed;
    tri_sched_stats st = run(&c, 1, &wanted, &computed);
    ck_assert_msg((st.swaps_out > st.preemptions) == cases[i].leaves, "case %zu: %d of %d", i, (int)st.swaps_out,
                  (int)st.preemptions);
  }
}
END_TEST

/* Whoever ends while it is away gives its blocks of the host back, and nobody waits for them. */
START_TEST(test_abort_away) {
  struct config c = small_micro_batches(2);
  struct sim *s = sim_create(&c, 1);
  int aborted = 0;
  add_jobs(s, 1);
  do sim_iterate(s);
  while (!s->sched->blocks_swapped && tri_sched_has_work(s->sched));
  for (int i = 0; i < JOBS; i++) {
    struct request *r = &s->requests[i];
    if (!r->job || !r->job->seqs[0].swapped) continue;
    r->abort_at = s->iteration;
    aborted++;
  }
  ck_assert_int_gt(aborted, 0);
  s->sched->blocked = &s->requests[0].job->seqs[0];
  sim_take_events(s);
  ck_assert_int_eq(s->sched->blocks_swapped, 0);
  ck_assert_ptr_null(s->sched->blocked); /* whoever waits looks for blocks again */
  for (int i = 0; i < JOBS; i++)
    if (s->requests[i].abort_at == s->iteration) s->requests[i].abort_at = 0; /* has been */
  sim_run(s);
  sim_check_answers(s);
  sim_destroy(s);
}
END_TEST

Suite *suite_swap(void) {
  Suite *suite = suite_create("swap");
  TCase *cases = tcase_create("cases");
  tcase_add_test(cases, test_computes_once);
  tcase_add_test(cases, test_ahead);
  tcase_add_test(cases, test_full_pool);
  tcase_add_test(cases, test_cost);
  tcase_add_test(cases, test_shared_blocks);
  tcase_add_test(cases, test_abort);
  tcase_add_test(cases, test_destroy);
  tcase_add_loop_test(cases, test_idle_micro_batches, 0, 3);
  tcase_add_test(cases, test_last_micro_batch_leaves);
  tcase_add_test(cases, test_stays);
  tcase_add_test(cases, test_abort_away);
  suite_add_tcase(suite, cases);
  return suite;
}
