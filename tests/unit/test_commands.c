/* SPDX-License-Identifier: Apache-2.0 */
/* Commands that wait for a leader's step thread: more than the ring holds, in its order, and jobs that are aborted
 * before. And refusals that wait for room. */
#include <check.h>
#include <stdlib.h>

#include "comm/wire/sampling.h"
#include "worker/process/commands.h"
#include "worker/process/refused_jobs.h"

Suite *suite_commands(void);

static tri_job *job(uint64_t id) {
  static const tri_limits limits = {.max_num_seqs = 4,
                                    .max_num_batched_tokens = 16,
                                    .max_model_len = 32,
                                    .block_size = 4,
                                    .num_blocks = 8,
                                    .vocab_size = 10};
  static const tri_job_model model = {.num_eos = 0};
  const uint32_t ids[] = {1, 2};
  tri_replica_assign a = {.job = id, .remaining_ms = -1, .token_ids = ids, .num_token_ids = 2};
  tri_job *j = NULL;
  tri_error err = {0};
  tri_sampling_init(&a.sampling);
  a.sampling.max_tokens = 1;
  ck_assert_msg(tri_job_create(&a, &limits, &model, 0, &j, &err) == TRI_OK, "%s", err.message);
  return j;
}

static void add(tri_commands *c, uint64_t id) { ck_assert_int_eq(tri_commands_add(c, job(id)), TRI_OK); }
static void end(tri_commands *c, uint64_t id) { ck_assert_int_eq(tri_commands_abort(c, id), TRI_OK); }

/* The next one is that job, or the end of it. */
static void expect(tri_commands *c, uint64_t id, bool aborts) {
  tri_job *j;
  uint64_t abort;
  ck_assert(tri_commands_take(c, &j, &abort));
  ck_assert(aborts == !j);
  ck_assert_uint_eq(j ? tri_job_id(j) : abort, id);
  tri_job_destroy(j);
}

static void expect_none(tri_commands *c) {
  tri_job *j;
  uint64_t abort;
  ck_assert(!tri_commands_take(c, &j, &abort));
}

START_TEST(in_order) {
  tri_commands c;
  ck_assert_int_eq(tri_commands_init(&c, 4), TRI_OK);
  ck_assert(!tri_commands_hold(&c));
  for (uint64_t id = 1; id <= 6; id++) add(&c, id);
  end(&c, 2); /* it is in the ring: the step thread is told */
  end(&c, 6); /* it is not */
  add(&c, 7);
  ck_assert(!tri_commands_move(&c));
  expect(&c, 1, false);
  add(&c, 8); /* there is room, but others came before */
  ck_assert(tri_commands_move(&c));
  for (uint64_t id = 2; id <= 5; id++) expect(&c, id, false);
  expect_none(&c);
  ck_assert(tri_commands_hold(&c));
  ck_assert(tri_commands_move(&c));
  expect(&c, 2, true);
  expect(&c, 7, false);
  expect(&c, 8, false);
  expect_none(&c);
  ck_assert(!tri_commands_hold(&c));
  end(&c, UINT64_MAX >> 1);
  expect(&c, UINT64_MAX >> 1, true);
  tri_commands_free(&c);
}
END_TEST

/* Jobs that come and are cancelled during one step leave nothing behind. */
START_TEST(come_and_go) {
  tri_commands c;
  ck_assert_int_eq(tri_commands_init(&c, 2), TRI_OK);
  add(&c, 1);
  add(&c, 2);
  for (uint64_t id = 3; id < 1000; id++) {
    add(&c, id);
    end(&c, id);
  }
  ck_assert(TAILQ_EMPTY(&c.behind));
  add(&c, 1000);
  tri_commands_forget(&c);
  expect(&c, 1, false);
  ck_assert(!tri_commands_move(&c));
  add(&c, 1001);
  add(&c, 1002);
  tri_commands_free(&c); /* with what is in both */
}
END_TEST

struct link {
  int room;
  uint64_t said[8];
  int num;
};

static tri_status send(void *ctx, const tri_refusal *r) {
  struct link *l = ctx;
  if (!l->room) return TRI_AGAIN;
  l->room--;
  ck_assert_str_eq(r->err.message, "why");
  l->said[l->num++] = r->job;
  return TRI_OK;
}

START_TEST(refusals) {
  tri_refusals r = STAILQ_HEAD_INITIALIZER(r);
  tri_error err = {0};
  struct link l = {.room = 2};
  tri_fail(&err, TRI_NO_CAPACITY, "", "why");
  for (uint64_t id = 1; id <= 5; id++) ck_assert_int_eq(tri_refusals_add(&r, id, &err), TRI_OK);
  tri_refusals_flush(&r, send, &l);
  tri_refusals_flush(&r, send, &l);
  ck_assert_int_eq(l.num, 2);
  l.room = 1;
  tri_refusals_flush(&r, send, &l);
  ck_assert_int_eq(l.num, 3);
  for (int i = 0; i < l.num; i++) ck_assert_uint_eq(l.said[i], (uint64_t)i + 1);
  tri_refusals_forget(&r);
  l.room = 1;
  tri_refusals_flush(&r, send, &l);
  ck_assert_int_eq(l.num, 3);
}
END_TEST

Suite *suite_commands(void) {
  Suite *s = suite_create("commands");
  TCase *t = tcase_create("commands");
  tcase_add_test(t, in_order);
  tcase_add_test(t, come_and_go);
  tcase_add_test(t, refusals);
  suite_add_tcase(s, t);
  return s;
}
