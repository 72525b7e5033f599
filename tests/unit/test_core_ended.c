/* SPDX-License-Identifier: Apache-2.0 */
/* Groups whose end the supervisor tells: they get no job any more, and what a rank has said before counts more. */
#include "base/log.h"
#include "tests/unit/core_world.h"

Suite *suite_core_ended(void);

static tri_replica_status status_of(struct world *w, uint32_t replica) {
  static tri_cluster_status status;
  static uint64_t id = 5000;
  tri_client_msg ask = {.op = TRI_OP_STATUS, .id = ++id};
  w->status = &status;
  tri_core_client(w->core, w->now, &open_stream(w, "status", id)->peer, &ask);
  w->status = NULL;
  return status.replicas[replica];
}

static bool has_text(tri_wire_str s, const char *text) { return s.len == strlen(text) && !memcmp(s.s, text, s.len); }

static void run_for(struct world *w, int64_t ns, bool reports) {
  for (int64_t t = 0; t < ns; t += 100 * MS) {
    for (uint32_t g = 0; reports && g < 2; g++) send_health(w, g, 1, 0, 0, false);
    tick(w, 100 * MS);
  }
}

START_TEST(test_died) {
  struct world *w = world_create(2);
  start_replica(w, 0, 1, 1);
  start_replica(w, 1, 1, 1);
  tri_core_replica_died(w->core, w->now, 1, 1, "replica 1 was killed by signal 9 (Killed)");
  for (uint64_t i = 0; i < 4; i++) { /* none to the one that died */
    tri_client_msg m = submit_msg(i + 1);
    submit(w, "a", &m);
    tri_peer live = rank_peer(0, 1, 0);
    ck_assert(tri_peer_equal(&w->assigns[w->num_assigns - 1].to, &live));
  }
  tick(w, 100 * MS);
  ck_assert_int_eq(w->lost, 0);
  tick(w, 100 * MS);
  ck_assert_int_eq(w->lost, 1);
  ck_assert_uint_eq(w->loss.replica, 1);
  ck_assert_int_eq(w->loss.rank, -1);
  ck_assert_str_eq(w->lost_reason, "replica 1 was killed by signal 9 (Killed)");
  ck_assert(has_text(status_of(w, 1).state, "lost"));
  ck_assert(has_text(status_of(w, 1).reason, "replica 1 was killed by signal 9 (Killed)"));
  ck_assert(has_text(status_of(w, 0).state, "ready") && !status_of(w, 0).reason.len);
  run_for(w, SECOND, false);
  ck_assert_int_eq(w->lost, 1);
  world_destroy(w);
}
END_TEST

/* A rank's own words, which may come behind the supervisor's. */
START_TEST(test_last_words) {
  static const char words[] = "the device has failed", code[] = "device_lost";
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 2);
  tri_core_replica_died(w->core, w->now, 0, 1, "replica 0 ended with code 5");
  tri_replica_msg m = {.op = TRI_REPLICA_FAILED, .failed = {.replica = 0, .rank = 1, .epoch = 1}};
  m.failed.message = (tri_wire_str){words, sizeof words - 1};
  m.failed.code = (tri_wire_str){code, sizeof code - 1};
  send_worker(w, 0, 1, 1, &m);
  ck_assert_int_eq(w->lost, 1);
  ck_assert_int_eq(w->loss.rank, 1);
  ck_assert_int_eq(w->loss.status, TRI_DEVICE_LOST);
  ck_assert_str_eq(w->lost_reason, "rank 1: the device has failed");
  run_for(w, SECOND, false);
  ck_assert_int_eq(w->lost, 1);
  ck_assert(has_text(status_of(w, 0).reason, "rank 1: the device has failed"));
  world_destroy(w);
}
END_TEST

START_TEST(test_died_of_another_epoch) {
  struct world *w = world_create(2);
  start_replica(w, 0, 3, 1);
  tri_core_replica_died(w->core, w->now, 0, 2, "an earlier start");
  tri_core_replica_died(w->core, w->now, 7, 1, "no such group");
  tick(w, SECOND);
  ck_assert_int_eq(w->lost, 0);
  /* One that never came, of which a status tells all the same. */
  tri_core_replica_died(w->core, w->now, 1, 1, "replica 1 ended with code 1");
  tick(w, SECOND);
  ck_assert_int_eq(w->lost, 0);
  ck_assert(has_text(status_of(w, 1).state, "absent"));
  ck_assert(has_text(status_of(w, 1).reason, "replica 1 ended with code 1"));
  world_destroy(w);
}
END_TEST

/* A replica that is told to leave at the end may end. */
START_TEST(test_died_at_the_end) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_core_drain(w->core);
  ck_assert_int_eq(w->drains, 1);
  tri_core_replica_died(w->core, w->now, 0, 1, "replica 0 ended with code 0");
  tick(w, SECOND);
  ck_assert_int_eq(w->lost, 0);
  world_destroy(w);
}
END_TEST

START_TEST(test_held) {
  struct world *w = world_create(2);
  start_replica(w, 0, 1, 1);
  start_replica(w, 1, 1, 1);
  tri_core_replica_died(w->core, w->now, 1, 1, "replica 1 ended with code 1");
  tri_core_replica_held(w->core, 1, TRI_CORE_GIVEN_UP, w->now + 30 * SECOND, "too often");
  tick(w, SECOND);
  tri_replica_status s = status_of(w, 1);
  ck_assert(has_text(s.state, "given_up") && has_text(s.reason, "too often"));
  ck_assert_double_eq_tol(s.retry_s, 29, 1e-6);
  tri_core_replica_held(w->core, 1, TRI_CORE_QUARANTINED, w->now + 30 * SECOND, "host b");
  ck_assert(has_text(status_of(w, 1).state, "quarantined"));
  run_for(w, 31 * SECOND, true);
  ck_assert_double_eq(status_of(w, 1).retry_s, 0);
  start_replica(w, 1, 2, 1);
  s = status_of(w, 1);
  ck_assert(has_text(s.state, "ready") && !s.reason.len && s.retry_s <= 0);
  world_destroy(w);
}
END_TEST

Suite *suite_core_ended(void) {
  Suite *suite = suite_create("core_ended");
  tri_log_setup(TRI_LOG_ERROR, "core");
  TCase *t = add_case(suite, "ended");
  tcase_add_test(t, test_died);
  tcase_add_test(t, test_last_words);
  tcase_add_test(t, test_died_of_another_epoch);
  tcase_add_test(t, test_died_at_the_end);
  tcase_add_test(t, test_held);
  return suite;
}
