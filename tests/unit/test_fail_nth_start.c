/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a group without memory: a rank that fails says so in what its peers wait for next, and leaves no
 * collective to them alone. */
#include <check.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/distinct.h"
#include "tests/unit/fail_nth.h"

Suite *suite_fail_nth_start(void);

enum { RANKS = 3, MOST_CALLS = 64 };

/* This is rank 0 of some, whose peers do as it does. */
static struct group {
  tri_comm comm;
  char calls[MOST_CALLS]; /* g: gather; r: it can go on; f: it cannot */
  int num;
  bool twin; /* rank 2 says what rank 0 says */
} group;

static void note(char call) {
  if (group.num < MOST_CALLS - 1) group.calls[group.num++] = call;
}

static tri_status all_reduce(tri_comm *c, float *buf, size_t count) {
  (void)c;
  note(count == 1 && buf[0] > 0 ? 'f' : 'r');
  return TRI_OK;
}

static tri_status all_gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  note('g');
  for (int r = 0; r < c->size; r++) {
    memcpy((char *)recv + (size_t)r * bytes, send, bytes);
    if (r && !(group.twin && r == 2) && bytes > sizeof(int32_t)) ((char *)recv)[(size_t)r * bytes] ^= (char)(r * 16);
  }
  return TRI_OK;
}

static const tri_comm_ops ops = {.name = "test", .all_reduce = all_reduce, .all_gather = all_gather};

static void begin(void) {
  memset(&group, 0, sizeof group);
  group.comm = (tri_comm){.ops = &ops, .size = RANKS, .cfg.timeout_ms = 1000};
}

/* Runs with each allocation failing: behind a failure nothing but the word of it is said. */
static void fail_each(tri_status (*run)(void)) {
  char whole[MOST_CALLS];
  begin();
  ck_assert_int_eq(run(), TRI_OK);
  memcpy(whole, group.calls, sizeof whole);
  int failures = 0;
  for (uint64_t n = 1;; n++) {
    begin();
    fail_nth_arm(n);
    tri_status st = run();
    bool failed = fail_nth_has_failed();
    fail_nth_arm(0);
    if (!failed) break;
    failures++;
    if (st == TRI_OK) { /* it could do without */
      ck_assert_str_eq(group.calls, whole);
      continue;
    }
    ck_assert_int_eq(st, TRI_NO_MEMORY);
    ck_assert_msg(group.num > 0 && group.calls[group.num - 1] == 'f', "allocation %d: %s", (int)n, group.calls);
    ck_assert_msg(!memcmp(group.calls, whole, (size_t)group.num - 1) && whole[group.num - 1] == 'r', "%s, not %s",
                  group.calls, whole);
  }
  ck_assert_int_gt(failures, 0);
}

static tri_status confine(void) { return tri_mpi_confine(&group.comm); }

static tri_status find_twins(void) {
  int twins[2];
  return tri_comm_find_twins(&group.comm, "own bytes", 9, twins);
}

START_TEST(ports) { fail_each(confine); }
END_TEST

START_TEST(devices) {
  int twins[2];
  fail_each(find_twins);
  begin();
  ck_assert_int_eq(tri_comm_find_twins(&group.comm, "own bytes", 9, twins), TRI_OK);
  ck_assert(twins[0] == -1 && twins[1] == -1);
  group.twin = true;
  ck_assert_int_eq(tri_comm_find_twins(&group.comm, "own bytes", 9, twins), TRI_OK);
  ck_assert(twins[0] == 0 && twins[1] == 2);
}
END_TEST

Suite *suite_fail_nth_start(void) {
  Suite *s = suite_create("fail_nth_start");
  TCase *t = tcase_create("fail_nth_start");
  tcase_add_test(t, ports);
  tcase_add_test(t, devices);
  suite_add_tcase(s, t);
  return s;
}
