/* SPDX-License-Identifier: Apache-2.0 */
/* A coordinator that comes back under replicas that have served the one before: their ranks register again. */
#include "tests/unit/core_world.h"

Suite *suite_core_revive(void);

static bool register_again(struct world *w, uint32_t rank, uint32_t world) {
  tri_replica_msg m = registration(0, 1, rank, world);
  if (!rank) m.reg.layer_seconds = 0.001;
  w->welcome = false;
  send_worker(w, 0, 1, rank, &m);
  return w->welcome;
}

START_TEST(earlier_starts_are_refused) {
  struct world *w = world_create(2);
  tri_core_replica_expected(w->core, 0, 3);
  tri_core_replica_expected(w->core, 9, 3); /* there is none */
  ck_assert(!send_register(w, 0, 2, 0, 1));
  ck_assert(strstr(w->welcome_text, "this start of the replica is over"));
  start_replica(w, 0, 3, 1);
  ck_assert_int_eq(w->ready, 1);
  tri_core_replica_expected(w->core, 0, 7); /* too late: it is here */
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  ck_assert_uint_eq(w->assigns[0].a.epoch, 3);
  token_of(w, 3, last_job(w), 0, 0, byte_token['a'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  ck_assert(s->done);
  start_replica(w, 1, 1, 1); /* the first start of that one */
  ck_assert_int_eq(w->ready, 2);
  world_destroy(w);
}
END_TEST

/* Numbers of jobs begin anew without a journal. What a leader says before it is ready is of no job of this one. */
START_TEST(no_tokens_before_it_is_ready) {
  struct world *w = world_create(1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  ck_assert(register_again(w, 0, 1));
  token(w, 1, 0, 0, byte_token['x'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  ck_assert(!s->done);
  ck_assert_int_eq(w->num_assigns, 0);
  send_ready(w, 0, 1);
  ck_assert_uint_eq(last_job(w), 1);
  token(w, 1, 0, 0, byte_token['a'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  ck_assert(s->done);
  expect_text(s, 0, "a");
  world_destroy(w);
}
END_TEST

static void run(struct world *w, int seconds, bool busy) {
  for (int i = 0; i < seconds * 10 && !w->lost; i++) {
    if (i % 10 == 0) send_health(w, 0, 1, 0, 5, busy);
    tick(w, 100 * MS);
  }
}

/* Ranks of a first start may come much later. */
START_TEST(a_rank_stays_away) {
  struct world *w = world_create(1);
  ck_assert(send_register(w, 0, 1, 0, 2));
  run(w, 30, false);
  ck_assert_int_eq(w->lost, 0);
  world_destroy(w);

  w = world_create(1);
  ck_assert(register_again(w, 0, 2));
  run(w, 30, false);
  ck_assert_int_eq(w->lost, 1);
  ck_assert_msg(strstr(w->lost_reason, "rank 1 did not register"), "%s", w->lost_reason);
  ck_assert(!register_again(w, 1, 2));
  world_destroy(w);
}
END_TEST

/* The leader drops the jobs of the coordinator before, for which a step must end. */
START_TEST(it_hangs_before_it_is_ready) {
  struct world *w = world_create(1);
  ck_assert(register_again(w, 0, 1));
  run(w, 30, false);
  ck_assert_int_eq(w->lost, 0);
  run(w, 30, true);
  ck_assert_int_eq(w->lost, 1);
  ck_assert_int_eq(w->hangs, 1);
  ck_assert_msg(strstr(w->lost_reason, "no progress"), "%s", w->lost_reason);
  world_destroy(w);
}
END_TEST

Suite *suite_core_revive(void) {
  Suite *s = suite_create("core_revive");
  TCase *t = add_case(s, "revive");
  tcase_add_test(t, earlier_starts_are_refused);
  tcase_add_test(t, no_tokens_before_it_is_ready);
  tcase_add_test(t, a_rank_stays_away);
  tcase_add_test(t, it_hangs_before_it_is_ready);
  return s;
}
