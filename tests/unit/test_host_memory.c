/* SPDX-License-Identifier: Apache-2.0 */
/* The host's free memory as control groups limit it, from trees of files like theirs, and pages of it. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

Suite *suite_host_memory(void);

#define ROOT TRI_TEST_SCRATCH "/cgroup"

static void put(const char *name, const char *text) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%s", ROOT, name);
  for (char *at = path + strlen(ROOT); (at = strchr(at + 1, '/'));) {
    *at = '\0';
    mkdir(path, 0700);
    *at = '/';
  }
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
}

static int64_t room(const char *groups) {
  put("self", groups);
  return tri_control_group_room(ROOT "/self", ROOT);
}

static void clear(void) {
  mkdir(ROOT, 0700);
  ck_assert_int_eq(system("rm -rf " ROOT "/*"), 0);
}

START_TEST(version_2) {
  clear();
  put("memory.max", "1000000\n");
  put("memory.current", "100000\n");
  ck_assert_int_eq(room("0::/\n"), 900000);
  put("job/step/memory.max", "max\n");
  put("job/step/memory.current", "5\n");
  ck_assert_int_eq(room("0::/job/step\n"), 900000);
  put("job/memory.max", "50000\n"); /* of the group above: as Slurm limits a job */
  put("job/memory.current", "20000\n");
  ck_assert_int_eq(room("0::/job/step\n"), 30000);
  put("job/memory.stat", "anon 1\nfile 9000\ninactive_file 7000\nactive_file 2000\n");
  ck_assert_int_eq(room("0::/job/step\n"), 37000);
  put("job/memory.current", "90000\n");
  ck_assert_int_eq(room("0::/job/step\n"), 0);
  ck_assert_int_eq(room("0::/../../other\n"), 900000);
}
END_TEST

START_TEST(version_1) {
  clear();
  put("memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("memory/memory.usage_in_bytes", "77\n");
  put("memory/docker/one/memory.limit_in_bytes", "4000\n");
  put("memory/docker/one/memory.usage_in_bytes", "3000\n");
  put("memory/docker/one/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n");
  ck_assert_int_eq(room("9:pids:/docker/one\n4:memory:/docker/one\n0::/\n"), 1500);
  ck_assert_int_eq(room("9:cpu,memory:/docker/one\n"), 1500);
  ck_assert_int_eq(room("9:memory,cpu:/docker/one\n"), 1500);
  ck_assert_int_eq(room("9:memoryless:/docker/one\n"), INT64_MAX);
  ck_assert_int_gt(room("9:memory:/docker\n"), (int64_t)1 << 60);
}
END_TEST

START_TEST(nothing_there) {
  clear();
  ck_assert_int_eq(room("0::/\n"), INT64_MAX);
  ck_assert_int_eq(room(""), INT64_MAX);
  ck_assert_int_eq(room("nonsense\n0:\n::\n0::\n"), INT64_MAX);
  ck_assert_int_eq(tri_control_group_room(ROOT "/absent", ROOT), INT64_MAX);
  ck_assert_int_gt(tri_host_memory_available(), 0);
}
END_TEST

/* One byte of each 2 MiB: pages around them would be there where the system gives huge ones. */
START_TEST(small_pages_are_those_used) {
  enum { HUGE = 2 << 20, BYTES = 16 * HUGE, MOST = BYTES / 4096 };
  unsigned char there[MOST];
  size_t page = (size_t)sysconf(_SC_PAGESIZE), resident = 0;
  void *p = NULL;
  ck_assert_int_eq(tri_small_pages_alloc(BYTES, &p), TRI_OK);
  for (size_t at = 0; at < BYTES; at += HUGE) ((volatile char *)p)[at] = 1;
  ck_assert_int_eq(mincore(p, BYTES, there), 0);
  for (size_t i = 0; i < BYTES / page; i++) resident += there[i] & 1;
  tri_pages_free(p, BYTES);
  ck_assert_uint_eq(resident, BYTES / HUGE);
}
END_TEST

Suite *suite_host_memory(void) {
  Suite *s = suite_create("host_memory");
  TCase *t = tcase_create("groups");
  suite_add_tcase(s, t);
  tcase_add_test(t, version_2);
  tcase_add_test(t, version_1);
  tcase_add_test(t, nothing_there);
  t = tcase_create("pages");
  suite_add_tcase(s, t);
  tcase_add_test(t, small_pages_are_those_used);
  return s;
}
