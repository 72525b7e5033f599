/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix cache in the scheduler, with its stand-in for an engine (scheduler_kit.h), which notices any block that
 * does not hold what a sequence has read. The random workloads of test_scheduler.c and test_shards.c have prefixes that
 * are shared, too; here is what they save. */
#include <string.h>

#include "tests/unit/scheduler_kit.h"

Suite *suite_schedule_prefix(void);

enum { BLOCK = 4, LEN = 100 };

static struct config prefix_config(int jobs) {
  return (struct config){.limits = {.max_num_seqs = 6,
                                    .max_num_batched_tokens = 64,
                                    .max_model_len = LEN,
                                    .block_size = BLOCK,
                                    .num_blocks = 200,
                                    .prefix_caching = true,
                                    .vocab_size = VOCAB},
                         .micro_batches = 1,
                         .jobs = jobs};
}

/* Request i of so many tokens, of which the first ones are those of request 0, and an answer of six. */
static struct request *add(struct sim *s, int i, int prompt, int like_first, int at) {
  struct request *r = request_init(s, i, prompt, 6, 1);
  memcpy(r->prompt, s->requests[0].prompt, (size_t)like_first * sizeof *r->prompt);
  r->assign.sampling.ignore_eos = true;
  r->arrive_at = at;
  request_expect(s, r);
  return r;
}

/* Runs a prompt and, when it has ended, another one. Returns how many of the second one's tokens were there. */
static int found_behind(const struct config *c, int first, int second, int same) {
  struct sim *s = sim_create(c, 3);
  add(s, 0, first, first, 0);
  add(s, 1, second, same, 30);
  sim_run(s);
  sim_check_answers(s);
  tri_sched_stats st = tri_sched_get_stats(s->sched);
  ck_assert_uint_eq(st.prefix_hits, (uint64_t)s->requests[1].cached);
  ck_assert_uint_eq(st.prefix_queries, (uint64_t)(first + second));
  ck_assert_int_eq(s->tokens, first + second + 10 - (int)st.prefix_hits);
  int found = s->requests[1].cached;
  sim_destroy(s);
  return found;
}

/* Full blocks are found, and one token at least is computed. */
START_TEST(test_same_prompt) {
  static const struct {
    int first, second, same, found;
  } cases[] = {{20, 20, 20, 16}, {20, 21, 20, 20}, {21, 21, 21, 20}, {23, 23, 23, 20},
               {20, 60, 20, 20}, {60, 20, 20, 16}, {20, 20, 19, 16}, {20, 20, 7, 4},
               {20, 20, 3, 0},   {3, 3, 3, 0},     {4, 5, 4, 4},     {1, 1, 1, 0}};
  struct config c = prefix_config(2);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_int_eq(found_behind(&c, cases[i].first, cases[i].second, cases[i].same), cases[i].found);
}
END_TEST

/* A second turn finds the first one's answer, too, but for its last token, which no step has read. */
START_TEST(test_second_turn) {
  for (int depth = 1; depth <= 2; depth++) {
    struct config c = prefix_config(2);
    c.depth = depth;
    struct sim *s = sim_create(&c, 4);
    struct request *first = add(s, 0, 18, 18, 0), *second = request_init(s, 1, 30, 4, 1);
    memcpy(second->prompt, first->prompt, 18 * sizeof *first->prompt);
    memcpy(second->prompt + 18, first->choice[0].want, 6 * sizeof *first->prompt);
    second->arrive_at = 20;
    request_expect(s, second);
    sim_run(s);
    sim_check_answers(s);
    ck_assert_int_eq(second->cached, 20); /* of 23 tokens */
    sim_destroy(s);
  }
}
END_TEST

/* Prompts that come together share what the first one of them computes in the same step. */
START_TEST(test_together) {
  struct config c = prefix_config(5);
  struct sim *s = sim_create(&c, 5);
  for (int i = 0; i < 5; i++) add(s, i, 33, 32, 0);
  sim_run(s);
  sim_check_answers(s);
  ck_assert_uint_eq(tri_sched_get_stats(s->sched).prefix_hits, 4 * 32);
  for (int i = 1; i < 5; i++)
    ck_assert_int_eq(s->requests[i].choice[0].first_step, s->requests[0].choice[0].first_step);
  sim_destroy(s);
}
END_TEST

/* Other salts share nothing, nor do those with one and without. */
START_TEST(test_salt) {
  static const char *const salts[] = {"", "a", "b", "a", "", "ab"};
  static const int found[] = {0, 0, 0, 20, 20, 0};
  struct config c = prefix_config(6);
  struct sim *s = sim_create(&c, 6);
  for (int i = 0; i < 6; i++) {
    add(s, i, 21, 21, 30 * i);
    s->requests[i].assign.cache_salt = (tri_wire_str){salts[i], strlen(salts[i])};
  }
  sim_run(s);
  sim_check_answers(s);
  for (int i = 0; i < 6; i++) ck_assert_int_eq(s->requests[i].cached, found[i]);
  sim_destroy(s);
}
END_TEST

/* Where a rotary scaling goes by the prompt's length, prompts beyond the length that it stretches share nothing with
 * others: only with those of the same length where it goes by how far they are beyond. */
START_TEST(test_rope) {
  static const struct {
    tri_rope_kind kind;
    int first, second, found;
  } cases[] = {{TRI_ROPE_DYNAMIC, 30, 40, 28},   {TRI_ROPE_DYNAMIC, 30, 41, 0},    {TRI_ROPE_DYNAMIC, 45, 45, 44},
               {TRI_ROPE_DYNAMIC, 45, 46, 0},    {TRI_ROPE_BY_LENGTH, 30, 40, 28}, {TRI_ROPE_BY_LENGTH, 40, 41, 0},
               {TRI_ROPE_BY_LENGTH, 45, 50, 44}, {TRI_ROPE_FIXED, 40, 50, 40}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct config c = prefix_config(2);
    c.prefixes.rope = cases[i].kind;
    c.prefixes.original_len = 40;
    int same = cases[i].first < cases[i].second ? cases[i].first : cases[i].second;
    ck_assert_int_eq(found_behind(&c, cases[i].first, cases[i].second, same), cases[i].found);
  }
}
END_TEST

/* Room for two full sequences, which six would like to be: who is preempted finds most of what it has computed, if not
 * all, and nothing else than that makes a difference to what runs. */
START_TEST(test_preempted) {
  int computed[2];
  for (int on = 0; on < 2; on++) {
    struct config c = prefix_config(12);
    c.limits.num_blocks = 2 * LEN / BLOCK;
    c.limits.prefix_caching = on;
    struct sim *s = sim_create(&c, 7);
    for (int i = 0; i < 12; i++) {
      struct request *r = request_init(s, i, 15 + i % 7, 60, 1);
      r->assign.sampling.ignore_eos = true;
      request_expect(s, r);
    }
    sim_run(s);
    sim_check_answers(s);
    ck_assert_uint_gt(tri_sched_get_stats(s->sched).preemptions, 3);
    ck_assert_uint_eq(tri_sched_get_stats(s->sched).prefix_hits, 0); /* of those that came for the first time */
    computed[on] = s->tokens;
    sim_destroy(s);
  }
  ck_assert_int_lt(computed[1], computed[0]);
}
END_TEST

/* Blocks that are kept count as free, and the first to go are the end of what was let go first. */
START_TEST(test_evicts) {
  struct config c = prefix_config(4);
  c.limits.num_blocks = LEN / BLOCK;
  struct sim *s = sim_create(&c, 8);
  add(s, 0, 40, 40, 0);
  add(s, 1, 60, 0, 30); /* takes 16 or 17 blocks, of which the cache holds 11 */
  add(s, 2, 40, 40, 60);
  add(s, 3, 95, 0, 90);
  while (s->iteration < 60) sim_iterate(s);
  tri_sched_stats st = tri_sched_get_stats(s->sched);
  ck_assert_uint_eq(st.blocks_used, 0);
  ck_assert_uint_gt(st.prefix_evictions, 0);
  ck_assert_uint_lt(st.prefix_evictions, 10);
  sim_run(s);
  sim_check_answers(s);
  ck_assert_int_gt(s->requests[2].cached, 0);
  ck_assert_int_lt(s->requests[2].cached, 36);
  sim_destroy(s);
}
END_TEST

/* A job that is aborted while a step computes its prompt leaves what that step fills. */
START_TEST(test_abort) {
  for (int at = 0; at < 6; at++) {
    struct config c = prefix_config(2);
    c.limits.max_num_batched_tokens = 16;
    c.late_percent = 60;
    struct sim *s = sim_create(&c, (uint64_t)at);
    add(s, 0, 60, 60, 0)->abort_at = at;
    add(s, 1, 60, 60, at);
    sim_run(s);
    sim_check_answers(s);
    sim_destroy(s);
  }
}
END_TEST

/* Choices draw behind a prompt that was there, each its own first token. */
START_TEST(test_choices) {
  for (int prompt = 20; prompt < 24; prompt++) {
    struct config c = prefix_config(2);
    struct sim *s = sim_create(&c, 9);
    add(s, 0, prompt, prompt, 0);
    struct request *r = add(s, 1, prompt, prompt, 30);
    r->assign.sampling.n = 4;
    request_expect(s, r);
    sim_run(s);
    sim_check_answers(s);
    ck_assert_int_eq(r->cached, (prompt - 2) / BLOCK * BLOCK);
    ck_assert_int_eq(s->forks, 3);
    sim_destroy(s);
  }
}
END_TEST

Suite *suite_schedule_prefix(void) {
  Suite *suite = suite_create("schedule_prefix");
  TCase *cases = tcase_create("cases");
  tcase_add_test(cases, test_same_prompt);
  tcase_add_test(cases, test_second_turn);
  tcase_add_test(cases, test_together);
  tcase_add_test(cases, test_salt);
  tcase_add_test(cases, test_rope);
  tcase_add_test(cases, test_preempted);
  tcase_add_test(cases, test_evicts);
  tcase_add_test(cases, test_abort);
  tcase_add_test(cases, test_choices);
  suite_add_tcase(suite, cases);
  return suite;
}
