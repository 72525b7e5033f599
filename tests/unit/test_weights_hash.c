/* SPDX-License-Identifier: Apache-2.0 */
/* The hash of a checkpoint's weights: copies have the same, whatever their names and times; others have not. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/model/weights_hash.h"

Suite *suite_weights_hash(void);

enum { SMALL = 3000, LARGE = 64 << 20 };

static void make_dir(char path[256], const char *name) {
  snprintf(path, 256, TRI_TEST_SCRATCH "/weights_hash_%s", name);
  mkdir(path, 0700);
}

/* A checkpoint of one tensor of so many bytes, which are zero but for one. */
static void write_checkpoint(const char *dir, size_t bytes, size_t at, char value) {
  char path[300], header[256];
  int n = snprintf(header + 8, sizeof header - 8, "{\"w\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
                   bytes, bytes);
  for (int i = 0; i < 8; i++) header[i] = (char)((uint64_t)n >> 8 * i);
  snprintf(path, sizeof path, "%s/model.safetensors", dir);
  int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(write(fd, header, (size_t)n + 8), n + 8);
  ck_assert_int_eq(ftruncate(fd, n + 8 + (off_t)bytes), 0);
  ck_assert_int_eq(pwrite(fd, &value, 1, n + 8 + (off_t)at), 1);
  close(fd);
}

static void remove_checkpoint(const char *dir) {
  char path[300];
  snprintf(path, sizeof path, "%s/model.safetensors", dir);
  unlink(path);
  rmdir(dir);
}

static uint64_t hash_of(const char *dir) {
  uint64_t hash = 0;
  tri_error err = {0};
  ck_assert_msg(tri_weights_hash(dir, &hash, &err) == TRI_OK, "%s", err.message);
  ck_assert(hash != 0);
  return hash;
}

START_TEST(copies_and_others) {
  char a[256], b[256];
  make_dir(a, "a");
  make_dir(b, "b");
  write_checkpoint(a, SMALL, 0, 1);
  write_checkpoint(b, SMALL, 0, 1);
  char path[300];
  snprintf(path, sizeof path, "%s/model.safetensors", b);
  struct timespec old[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
  utimensat(AT_FDCWD, path, old, 0);
  uint64_t first = hash_of(a);
  ck_assert_uint_eq(first, hash_of(b));
  for (size_t at = 0; at < SMALL; at += 499) { /* every byte of a small one counts */
    write_checkpoint(b, SMALL, at, 2);
    ck_assert_uint_ne(first, hash_of(b));
  }
  write_checkpoint(b, SMALL + 1, 0, 1);
  ck_assert_uint_ne(first, hash_of(b));
  remove_checkpoint(a);
  remove_checkpoint(b);
}
END_TEST

/* Of a large one, what covers some hundredths of it is seen, and its last byte. */
START_TEST(a_large_one) {
  char a[256], b[256], path[300];
  make_dir(a, "large_a");
  make_dir(b, "large_b");
  write_checkpoint(a, LARGE, 0, 0);
  write_checkpoint(b, LARGE, LARGE - 1, 1);
  uint64_t first = hash_of(a);
  ck_assert_uint_ne(first, hash_of(b));
  write_checkpoint(b, LARGE, 0, 0);
  ck_assert_uint_eq(first, hash_of(b));
  enum { CHANGED = LARGE / TRI_WEIGHTS_HASH_BLOCKS + TRI_WEIGHTS_HASH_BLOCK };
  char *ones = malloc(CHANGED);
  memset(ones, 1, CHANGED);
  snprintf(path, sizeof path, "%s/model.safetensors", b);
  for (off_t at = 1 << 20; at < LARGE - CHANGED; at += 7777777) {
    write_checkpoint(b, LARGE, 0, 0);
    int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, ones, CHANGED, at), CHANGED);
    close(fd);
    ck_assert_uint_ne(first, hash_of(b));
  }
  free(ones);
  remove_checkpoint(a);
  remove_checkpoint(b);
}
END_TEST

START_TEST(what_is_not_there) {
  uint64_t hash = 0;
  tri_error err = {0};
  ck_assert_int_eq(tri_weights_hash(TRI_TEST_SCRATCH "/no_such_folder", &hash, &err), TRI_NOT_FOUND);
  ck_assert(err.message[0] && !hash);
}
END_TEST

Suite *suite_weights_hash(void) {
  Suite *s = suite_create("weights_hash");
  TCase *t = tcase_create("hash");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, copies_and_others);
  tcase_add_test(t, a_large_one);
  tcase_add_test(t, what_is_not_there);
  suite_add_tcase(s, t);
  return s;
}
