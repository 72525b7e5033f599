/* SPDX-License-Identifier: Apache-2.0 */
/* Folders for packs as they are named, and what the disks that they lie on give together. /proc and /sys stand for
 * disks of their own. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "runtime/engine/offload_folders.h"
#include "runtime/cost/disk_rate.h"
#include "runtime/cost/machine_file.h"

Suite *suite_disk_rate(void);

#define ONE TRI_TEST_SCRATCH "/folder_a"
#define TWO TRI_TEST_SCRATCH "/folder_b"

static void setup(void) {
  mkdir(ONE, 0700);
  mkdir(TWO, 0700);
  ck_assert(!setenv("XDG_CACHE_HOME", ONE, 1));
}

static void teardown(void) {
  char path[PATH_MAX];
  tri_machine_file_path(path);
  unlink(path);
  rmdir(ONE "/trireme");
  rmdir(ONE);
  rmdir(TWO);
}

/* ---- names ---- */

static void expect_refused(const char *list, const char *why) {
  tri_offload_folders f;
  tri_error err = {0};
  ck_assert_int_eq(tri_offload_folders_make(list, &f, &err), TRI_INVALID_ARGUMENT);
  ck_assert_str_eq(err.field, "nvme_path");
  ck_assert_msg(strstr(err.message, why) != NULL, "%s, not %s", err.message, why);
  ck_assert_int_eq(f.count, 0);
}

START_TEST(in_one_order) {
  static const char *const lists[] = {ONE "," TWO, TWO "," ONE, TWO "//," ONE "/../folder_a"};
  for (int i = 0; i < 3; i++) {
    tri_offload_folders f;
    ck_assert_int_eq(tri_offload_folders_make(lists[i], &f, NULL), TRI_OK);
    ck_assert_int_eq(f.count, 2);
    ck_assert_str_eq(f.list[0], ONE);
    ck_assert_str_eq(f.list[1], TWO);
    tri_offload_folders_free(&f);
  }
}
END_TEST

START_TEST(lists_that_are_refused) {
  char many[(TRI_STRIPES_MAX_FILES + 1) * sizeof TWO "/16,"] = "", *next = many;
  expect_refused("", "folder 1 of the list");
  expect_refused(ONE ",", "folder 2 of the list");
  expect_refused("," ONE, "folder 1 of the list");
  expect_refused(ONE "," TWO "/none", "there is no folder " TWO "/none for packs: --nvme-path makes none");
  expect_refused("/proc/self/stat", "something else");
  expect_refused(ONE "," TWO "," ONE "/", "the folder " ONE "/ for packs is named twice");
  ck_assert(!symlink(ONE, TWO "/link"));
  expect_refused(ONE "," TWO "/link", "is named twice");
  unlink(TWO "/link");
  for (int i = 0; i <= TRI_STRIPES_MAX_FILES; i++) {
    char *folder = next;
    next += sprintf(next, "%s/%d", TWO, i);
    mkdir(folder, 0700);
    if (i < TRI_STRIPES_MAX_FILES) next += sprintf(next, ",");
  }
  expect_refused(many, "/folder_b/16 is one folder more than the 16 that a pack can have");
  for (int i = 0; i <= TRI_STRIPES_MAX_FILES; i++) {
    sprintf(many, "%s/%d", TWO, i);
    rmdir(many);
  }
}
END_TEST

/* A folder whose name has a comma is never taken for two, and a link to it is as good. */
START_TEST(a_comma_in_a_name) {
  static const char *const lists[] = {TWO "/a,b", ONE "," TWO "/a,b", TWO "/a,b," ONE};
  tri_offload_folders f;
  mkdir(TWO "/a,b", 0700);
  for (int i = 0; i < 3; i++) expect_refused(lists[i], "the folder " TWO "/a,b for packs has a comma in its name");
  expect_refused(TWO "/a,c", "there is no folder " TWO "/a for packs");
  ck_assert(!symlink(TWO "/a,b", TWO "/link"));
  ck_assert_int_eq(tri_offload_folders_make(TWO "/link", &f, NULL), TRI_OK);
  ck_assert_str_eq(f.list[0], TWO "/a,b");
  tri_offload_folders_free(&f);
  unlink(TWO "/link");
  rmdir(TWO "/a,b");
}
END_TEST

/* ---- rates ---- */

/* Names hold as many disks as a pack can have, with numbers as long as they can be, and are kept. */
START_TEST(name_of_many_disks) {
  dev_t devices[TRI_STRIPES_MAX_FILES];
  char path[PATH_MAX], name[TRI_DISK_NAME];
  double rate = 0;
  for (unsigned i = 0; i < TRI_STRIPES_MAX_FILES; i++) devices[i] = makedev(UINT32_MAX - i, UINT32_MAX);
  tri_disk_name_of(devices, TRI_STRIPES_MAX_FILES, name);
  ck_assert_msg(strstr(name, "4294967280:4294967295 of ") != NULL, "%s", name);
  tri_machine_file_path(path);
  ck_assert_int_eq(tri_machine_file_add_disk(path, name, 7e9, NULL), TRI_OK);
  ck_assert(tri_machine_file_find_disk(path, name, &rate));
  ck_assert_double_eq_tol(rate, 7e9, 1e4);
  tri_disk_name_of(devices, 0, name);
  ck_assert_str_eq(name, "");
}
END_TEST

static void keep(const char *const *folders, int count, double rate) {
  char path[PATH_MAX], name[TRI_DISK_NAME];
  int fds[TRI_STRIPES_MAX_FILES] = {0};
  for (int i = 0; i < count; i++) fds[i] = open(folders[i], O_RDONLY | O_DIRECTORY);
  tri_disk_name(fds, count, name);
  for (int i = 0; i < count; i++) close(fds[i]);
  tri_machine_file_path(path);
  ck_assert_int_eq(tri_machine_file_add_disk(path, name, rate, NULL), TRI_OK);
}

static void expect_rate(const char *list, double rate, int num_disks, const char *slowest) {
  tri_disk_rate r;
  ck_assert_msg(tri_disk_rate_kept(NULL, list, &r), "%s", list);
  ck_assert_double_eq_tol(r.bytes_per_s, rate, 1e3);
  ck_assert_int_eq(r.num_disks, num_disks);
  ck_assert_str_eq(r.slowest, slowest);
}

/* Folders have equal shares: the last disk that ends decides. */
START_TEST(of_several_disks) {
  const char *const proc[] = {"/proc"}, *const sys[] = {"/sys"}, *const own[] = {ONE},
                    *const both[] = {"/sys", "/proc"};
  tri_disk_rate r;
  if (access("/proc/self", F_OK) || access("/sys/kernel", F_OK)) return;
  ck_assert(!tri_disk_rate_kept(NULL, "/proc", &r));
  keep(proc, 1, 4e9);
  expect_rate("/proc", 4e9, 1, "");
  ck_assert(!tri_disk_rate_kept(NULL, "/proc,/sys", &r)); /* one of them has never been read */
  keep(sys, 1, 1e9);
  expect_rate("/proc,/sys", 2e9, 2, "/sys");
  keep(own, 1, 3e9);
  expect_rate(ONE "," TWO, 3e9, 1, "");
  expect_rate(ONE "," TWO ",/proc", 3 * 1.5e9, 2, ONE);
  keep(both, 2, 1.9e9); /* what they had together is believed before that */
  expect_rate("/sys,/proc", 1.9e9, 2, "");
  expect_rate("/sys", 1e9, 1, "");
}
END_TEST

Suite *suite_disk_rate(void) {
  Suite *s = suite_create("disk_rate");
  TCase *c = tcase_create("folders");
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, in_one_order);
  tcase_add_test(c, lists_that_are_refused);
  tcase_add_test(c, a_comma_in_a_name);
  tcase_add_test(c, name_of_many_disks);
  tcase_add_test(c, of_several_disks);
  suite_add_tcase(s, c);
  return s;
}
