/* SPDX-License-Identifier: Apache-2.0 */
/* The report about a replica that hangs: every rank, and who is late. */
#include "base/log.h"
#include "tests/unit/core_world.h"

Suite *suite_core_hang(void);

enum { IDLE = UINT32_MAX };
struct place {
  uint64_t step;
  uint32_t layer;
  uint64_t collective;
};

static void report_place(struct world *w, uint32_t rank, struct place p) {
  tri_replica_msg m = {.op = TRI_REPLICA_HEALTH,
                       .health = {.epoch = 1, .rank = rank, .busy = true, .step = p.step, .layer = p.layer}};
  m.health.collective = p.collective;
  send_worker(w, 0, 1, rank, &m);
}

/* Four ranks, two of each stage, that stand at these places until the watchdog gives them up. */
static struct world *hang_at(const struct place places[4]) {
  struct world *w = world_create(1);
  for (uint32_t r = 0; r < 4; r++) {
    tri_replica_msg m = registration(0, 1, r, 4);
    m.reg.tp = m.reg.pp = 2;
    send_worker(w, 0, 1, r, &m);
  }
  send_ready(w, 0, 1);
  for (int i = 0; i < 200 && !w->lost; i++) {
    for (uint32_t r = 0; i % 10 == 0 && r < 4; r++) report_place(w, r, places[r]);
    tick(w, 100 * MS);
  }
  ck_assert_int_eq(w->lost, 1);
  ck_assert_int_eq(w->hangs, 1);
  return w;
}

static void expect_late(const struct place places[4], const char *late) {
  struct world *w = hang_at(places);
  ck_assert_msg(strstr(w->report, late) != NULL, "not '%s' in:\n%s", late, w->report);
  world_destroy(w);
}

START_TEST(test_who_is_late) {
  /* one behind by a step; by a layer; by a collective, of its stage */
  expect_late((struct place[]){{8, IDLE, 90}, {7, 3, 80}, {8, 2, 91}, {8, 2, 91}}, "late: rank 1\n");
  expect_late((struct place[]){{8, 4, 90}, {8, 3, 89}, {8, IDLE, 91}, {8, IDLE, 91}}, "late: rank 1\n");
  expect_late((struct place[]){{8, 4, 90}, {8, 4, 89}, {8, IDLE, 12}, {8, IDLE, 12}}, "late: rank 1\n");
  /* those of a stage, which are equal */
  expect_late((struct place[]){{8, IDLE, 90}, {8, IDLE, 90}, {8, 5, 70}, {8, 5, 70}},
              "late: rank 2, rank 3; these are at the same place");
}
END_TEST

START_TEST(test_every_rank_is_there) {
  struct world *w = hang_at((struct place[]){{8, 4, 90}, {8, 4, 89}, {8, IDLE, 12}, {9, IDLE, 12}});
  ck_assert(strstr(w->report, "replica 0 (epoch 1, -tp 2 -pp 2 -dp 1) hangs: no progress for 10"));
  int lines = 0;
  for (const char *s = w->report; (s = strchr(s, '\n')); s++) lines++;
  ck_assert_int_eq(lines, 3 + 4);
  ck_assert(strstr(w->report, "    1 node"));
  ck_assert(strstr(w->report, "8      4          89         -"));
  ck_assert(strstr(w->report, "9      -          12         -"));
  world_destroy(w);
}
END_TEST

START_TEST(test_silent) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 2);
  for (int i = 0; i < 200 && !w->lost; i++) {
    if (i % 10 == 0) report_place(w, 0, (struct place){8, 4, 90});
    tick(w, 100 * MS);
  }
  ck_assert_int_eq(w->hangs, 1);
  ck_assert(strstr(w->report, "late: rank 1\n") && strstr(w->report, "has been silent for"));
  world_destroy(w);
}
END_TEST

/* The coordinator stood still: what its ranks have reported meanwhile comes behind the tick. */
START_TEST(test_stood_still) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 2);
  for (int i = 0; i < 40; i++) {
    w->now += 5 * SECOND;
    tri_core_stood_still(w->core, w->now);
    tick(w, 100 * MS);
    for (uint32_t r = 0; r < 2; r++) report_place(w, r, (struct place){8, 4, 90 + (uint64_t)i});
    ck_assert_int_eq(w->lost, 0);
  }
  for (int i = 0; i < 60 && !w->lost; i++) tick(w, 100 * MS);
  ck_assert_int_eq(w->hangs, 1); /* and who is silent behind that is given up as ever */
  world_destroy(w);
}
END_TEST

/* A request to end that came meanwhile is read in front of the reports. */
START_TEST(test_drains_behind_a_standstill) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 2);
  tri_client_msg m = submit_msg(1);
  submit(w, "a", &m);
  w->now += 5 * SECOND;
  tri_core_drain(w->core);
  ck_assert_int_eq(w->lost, 0);
  tri_core_stood_still(w->core, w->now);
  tick(w, 100 * MS);
  for (uint32_t r = 0; r < 2; r++) report_place(w, r, (struct place){8, 4, 90});
  for (int i = 0; i < 20; i++) tick(w, 100 * MS);
  ck_assert_int_eq(w->lost, 0);
  bytes(w, last_job(w), 0, "a");
  ck_assert(w->streams[0].done);
  tick(w, 100 * MS);
  ck_assert_int_eq(w->drains, 2);
  world_destroy(w);
}
END_TEST

START_TEST(test_never_came) {
  struct world *w = world_create(1);
  send_register(w, 0, 1, 0, 3);
  send_register(w, 0, 1, 2, 3);
  for (int i = 0; i < 700 && !w->lost; i++) {
    if (i % 10 == 0) report_place(w, 0, (struct place){0, IDLE, 0});
    if (i % 10 == 0) report_place(w, 2, (struct place){0, IDLE, 0});
    tick(w, 100 * MS);
  }
  ck_assert_int_eq(w->hangs, 1);
  ck_assert(strstr(w->report, "late: rank 1\n") && strstr(w->report, "    1  has not registered  late\n"));
  world_destroy(w);
}
END_TEST

/* A replica that is lost for another reason is none that hangs. */
START_TEST(test_no_hang) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_core_replica_died(w->core, w->now, 0, 1, "replica 0 ended with code 1");
  tick(w, SECOND);
  ck_assert_int_eq(w->lost, 1);
  ck_assert_int_eq(w->hangs, 0);
  world_destroy(w);
}
END_TEST

Suite *suite_core_hang(void) {
  Suite *suite = suite_create("core_hang");
  tri_log_setup(TRI_LOG_ERROR, "core");
  TCase *t = add_case(suite, "hang");
  tcase_add_test(t, test_who_is_late);
  tcase_add_test(t, test_every_rank_is_there);
  tcase_add_test(t, test_silent);
  tcase_add_test(t, test_stood_still);
  tcase_add_test(t, test_drains_behind_a_standstill);
  tcase_add_test(t, test_never_came);
  tcase_add_test(t, test_no_hang);
  return suite;
}
