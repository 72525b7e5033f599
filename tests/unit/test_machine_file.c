/* SPDX-License-Identifier: Apache-2.0 */
/* The file of measured figures: what is written is read, what is malformed is not used, and nothing else is lost. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "runtime/cost/machine_file.h"

Suite *suite_machine_file(void);

static const char path[] = TRI_TEST_SCRATCH "/machine_file/sub/machine.json";
static const char h200[] = "NVIDIA H200, sm_90, 132 SMs";

static bool has(const char *device, tri_dtype type, double read, double flops) {
  tri_machine_figures f = {0};
  bool found = tri_machine_file_find(path, device, type, &f);
  return found && f.read_bytes_per_s >= read && f.read_bytes_per_s <= read && f.flops_per_s >= flops &&
         f.flops_per_s <= flops;
}

static void add(const char *device, tri_dtype type, double read, double flops) {
  tri_machine_figures f = {read, flops};
  tri_error err = {0};
  ck_assert_msg(tri_machine_file_add(path, device, type, &f, &err) == TRI_OK, "%s", err.message);
}

static int syncs;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
  syncs++;
  return __real_fsync(fd);
}

/* A disk may be busy for longer than a rank may be silent. */
START_TEST(nobody_waits_for_the_disk) {
  syncs = 0;
  add(h200, TRI_BF16, 4.57e12, 790e12);
  ck_assert_int_eq(tri_machine_file_add_disk(path, "disk 254:1 of a", 3.5e9, NULL), TRI_OK);
  ck_assert_int_eq(syncs, 0);
  ck_assert_int_eq(tri_file_replace(path, "{}", 2, NULL), TRI_OK);
  ck_assert_int_eq(syncs, 1);
  unlink(path);
}
END_TEST

START_TEST(written_and_read) {
  unlink(path);
  ck_assert(!has(h200, TRI_BF16, 1, 1));
  add(h200, TRI_BF16, 4.57e12, 790e12);
  add("a \"quoted\\\" device", TRI_F32, 1e9, 2e9);
  ck_assert(has(h200, TRI_BF16, 4.57e12, 790e12));
  ck_assert(has("a \"quoted\\\" device", TRI_F32, 1e9, 2e9));
  ck_assert(!has(h200, TRI_F16, 4.57e12, 790e12) && !has("NVIDIA H200", TRI_BF16, 4.57e12, 790e12));
  add(h200, TRI_I8, 4.5e12, 948e12); /* another type, and what is the same for both anew */
  ck_assert(has(h200, TRI_BF16, 4.5e12, 790e12) && has(h200, TRI_I8, 4.5e12, 948e12));
  ck_assert(has("a \"quoted\\\" device", TRI_F32, 1e9, 2e9));
}
END_TEST

START_TEST(disks) {
  double rate = 0;
  unlink(path);
  ck_assert(!tri_machine_file_find_disk(path, "disk 254:1 of a", &rate));
  add(h200, TRI_BF16, 4.57e12, 790e12);
  ck_assert_int_eq(tri_machine_file_add_disk(path, "disk 254:1 of a", 3.5e9, NULL), TRI_OK);
  ck_assert_int_eq(tri_machine_file_add_disk(path, "disk 254:1 of b", 2e9, NULL), TRI_OK);
  ck_assert_int_eq(tri_machine_file_add_disk(path, "disk 254:1 of a", 3e9, NULL), TRI_OK);
  ck_assert(tri_machine_file_find_disk(path, "disk 254:1 of a", &rate));
  ck_assert_double_eq(rate, 3e9);
  ck_assert(!tri_machine_file_find_disk(path, h200, &rate) && !has("disk 254:1 of a", TRI_BF16, 0, 0));
  ck_assert(has(h200, TRI_BF16, 4.57e12, 790e12));
  ck_assert_int_eq(tri_machine_file_add_disk(path, "x", 0, NULL), TRI_INVALID_ARGUMENT);
  ck_assert_int_eq(tri_machine_file_add_disk(path, "", 1, NULL), TRI_INVALID_ARGUMENT);
}
END_TEST

static const struct {
  const char *text, *said;
} bad[] = {
    {"", "is empty"},
    {"[1]", "the file must be an object"},
    {"{\"x\": 1}", "x must be an object"},
    {"{\"x\": {}}", "x.read_bytes_per_s is missing"},
    {"{\"x\": {\"read_bytes_per_s\": \"fast\"}}", "x.read_bytes_per_s must be a number above 0"},
    {"{\"x\": {\"read_bytes_per_s\": 1, \"bfloat16_flops_per_s\": -1}}",
     "x.bfloat16_flops_per_s must be a number above 0"},
    {"{\"x\": {\"read_bytes_per_s\": 1, \"bfloat16_flops_per_s\": 1}, \"y\": {\"read_bytes_per_s\": 0}}",
     "y.read_bytes_per_s must be a number above 0"},
    {"{\"x\": {\"read_bytes_per_s\": 1, \"bfloat16_flops_per_s\": 1}", NULL},
};
enum { NUM_BAD = sizeof bad / sizeof *bad };

/* Runs a search with stderr in a file, and returns what was said there. */
static bool find_saying(char *said, size_t size) {
  char name[] = TRI_TEST_SCRATCH "/machine_file.XXXXXX";
  int fd = mkstemp(name), kept = dup(2);
  ck_assert(fd >= 0 && kept >= 0);
  dup2(fd, 2);
  tri_machine_figures f;
  bool found = tri_machine_file_find(path, "x", TRI_BF16, &f);
  dup2(kept, 2);
  close(kept);
  ssize_t n = pread(fd, said, size - 1, 0);
  said[n > 0 ? n : 0] = 0;
  close(fd);
  unlink(name);
  return found;
}

START_TEST(malformed) {
  char said[1000];
  ck_assert_int_eq(tri_file_replace(path, bad[_i].text, strlen(bad[_i].text), NULL), TRI_OK);
  ck_assert(!find_saying(said, sizeof said));
  ck_assert_msg(strstr(said, path) && strstr(said, "the file is not used"), "%s", said);
  if (_i && bad[_i].said) ck_assert_msg(strstr(said, bad[_i].said) != NULL, "no \"%s\" in %s", bad[_i].said, said);
  add(h200, TRI_BF16, 1, 2); /* begins a new one */
  ck_assert(has(h200, TRI_BF16, 1, 2));
}
END_TEST

START_TEST(later_keys_are_none_of_ours) {
  static const char text[] = "{\"x\": {\"read_bytes_per_s\": 3, \"bfloat16_flops_per_s\": 4, \"smell\": \"rose\"}}";
  ck_assert_int_eq(tri_file_replace(path, text, sizeof text - 1, NULL), TRI_OK);
  ck_assert(has("x", TRI_BF16, 3, 4));
}
END_TEST

START_TEST(no_figures) {
  static const tri_machine_figures figures[] = {{0, 1}, {1, -1}, {1.0 / 0.0, 1}, {1, 1}};
  static const char *const devices[] = {"x", "x", "x", ""};
  for (int i = 0; i < 4; i++)
    ck_assert_int_eq(tri_machine_file_add(path, devices[i], TRI_BF16, &figures[i], NULL), TRI_INVALID_ARGUMENT);
}
END_TEST

START_TEST(names) {
  char name[TRI_MACHINE_NAME], at[PATH_MAX], *kept = getenv("XDG_CACHE_HOME");
  tri_machine_name("NVIDIA H200, sm_90, 132 SMs, cuBLASLt 130100", name);
  ck_assert_str_eq(name, h200);
  tri_machine_name("", name);
  ck_assert_str_eq(name, "");
  if (kept) kept = strdup(kept);
  setenv("XDG_CACHE_HOME", "/c", 1);
  tri_machine_file_path(at);
  ck_assert_str_eq(at, "/c/trireme/machine.json");
  if (kept)
    setenv("XDG_CACHE_HOME", kept, 1);
  else
    unsetenv("XDG_CACHE_HOME");
  free(kept);
}
END_TEST

Suite *suite_machine_file(void) {
  Suite *s = suite_create("machine_file");
  TCase *t = tcase_create("machine_file");
  tcase_add_test(t, nobody_waits_for_the_disk);
  tcase_add_test(t, written_and_read);
  tcase_add_test(t, disks);
  tcase_add_loop_test(t, malformed, 0, NUM_BAD);
  tcase_add_test(t, later_keys_are_none_of_ours);
  tcase_add_test(t, no_figures);
  tcase_add_test(t, names);
  suite_add_tcase(s, t);
  return s;
}
