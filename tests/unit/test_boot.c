/* SPDX-License-Identifier: Apache-2.0 */
/* The boot file and its variable, which tell workers of their coordinator: any path of a socket comes through. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/wire/boot.h"
#include "runtime/base/wait.h"

Suite *suite_boot(void);

static const char path[] = TRI_TEST_SCRATCH "/boot test";

static void same(const tri_boot *a, const tri_boot *b) {
  ck_assert_str_eq(a->endpoint, b->endpoint);
  ck_assert_str_eq(a->server_key, b->server_key);
  ck_assert_str_eq(a->worker.public_key, b->worker.public_key);
  ck_assert_str_eq(a->worker.secret_key, b->worker.secret_key);
}

START_TEST(there_and_back) {
  static const char *const endpoints[] = {"tcp://10.0.0.1:5555", "ipc:///tmp/a/workers",
                                          "ipc:///run/user x/a  b/c\td "};
  for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
    tri_boot boot = {0}, file = {0}, env = {0};
    tri_error err = {0};
    tri_zkeypair server;
    ck_assert_int_eq(tri_zkeypair_make(&server, &err), TRI_OK);
    ck_assert_int_eq(tri_zkeypair_make(&boot.worker, &err), TRI_OK);
    strcpy(boot.server_key, server.public_key);
    strcpy(boot.endpoint, endpoints[i]);
    ck_assert_int_eq(tri_boot_save(path, &boot, &err), TRI_OK);
    ck_assert_int_eq(tri_boot_load(path, tri_now_ns(), &file, &err), TRI_OK);
    same(&boot, &file);
    ck_assert_int_eq(tri_boot_to_env(&boot, &err), TRI_OK);
    ck_assert_int_eq(tri_boot_from_env(&env, &err), TRI_OK);
    same(&boot, &env);
    ck_assert_int_eq(tri_boot_from_env(&env, &err), TRI_NOT_FOUND); /* the keys are in no environment any more */
  }
  unlink(path);
}
END_TEST

START_TEST(refused) {
  tri_boot b;
  tri_error err = {0};
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs("three short words\n", f);
  fclose(f);
  chmod(path, 0600);
  ck_assert_int_eq(tri_boot_load(path, tri_now_ns(), &b, &err), TRI_CORRUPT);
  tri_error_clear(&err);
  chmod(path, 0644);
  ck_assert_int_eq(tri_boot_load(path, tri_now_ns(), &b, &err), TRI_PERMISSION);
  tri_error_clear(&err);
  unlink(path);
  ck_assert_int_eq(tri_boot_load(path, tri_now_ns(), &b, &err), TRI_TIMEOUT);
  ck_assert_str_eq(err.field, "boot_file");
  tri_error_clear(&err);
  setenv(TRI_BOOT_ENV, "", 1);
  ck_assert_int_eq(tri_boot_from_env(&b, &err), TRI_CORRUPT);
}
END_TEST

Suite *suite_boot(void) {
  Suite *s = suite_create("boot");
  TCase *c = tcase_create("boot");
  tcase_add_test(c, there_and_back);
  tcase_add_test(c, refused);
  suite_add_tcase(s, c);
  return s;
}
