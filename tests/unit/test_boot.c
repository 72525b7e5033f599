/* SPDX-License-Identifier: Apache-2.0 */
/* The boot file and its variable, which tell workers of their coordinator: any path of a socket comes through. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/wire/boot.h"
#include "base/mem.h"
#include "base/wait.h"

Suite *suite_boot(void);

static const char path[] = TRI_TEST_SCRATCH "/boot test";

static void same(const tri_boot *a, const tri_boot *b) {
  ck_assert_str_eq(a->endpoint, b->endpoint);
  ck_assert_str_eq(a->server_key, b->server_key);
  ck_assert_uint_eq(a->first_replica, b->first_replica);
  ck_assert_uint_eq(a->replicas, b->replicas);
  ck_assert_uint_eq(a->ranks, b->ranks);
  ck_assert_mem_eq(a->secrets, b->secrets, (size_t)a->replicas * a->ranks * sizeof *a->secrets);
  ck_assert(tri_boot_equal(a, b));
}

static tri_boot_rank of_rank(const tri_boot *b, uint32_t group, uint32_t rank) {
  tri_boot_rank r;
  tri_error err = {0};
  ck_assert_msg(tri_boot_of_rank(b, group, rank, &r, &err) == TRI_OK, "%s", err.message);
  return r;
}

static void make(tri_boot *b, uint32_t groups, uint32_t ranks, const char *endpoint) {
  tri_error err = {0};
  tri_zkeypair server;
  ck_assert_int_eq(tri_zkeypair_make(&server, &err), TRI_OK);
  ck_assert_msg(tri_boot_make_keys(b, groups, ranks, &err) == TRI_OK, "%s", err.message);
  strcpy(b->server_key, server.public_key);
  strcpy(b->endpoint, endpoint);
}

START_TEST(there_and_back) {
  static const char *const endpoints[] = {"tcp://10.0.0.1:5555", "ipc:///tmp/a/workers",
                                          "ipc:///run/user x/a  b/c\td "};
  for (size_t i = 0; i < sizeof endpoints / sizeof *endpoints; i++) {
    tri_boot boot = {0}, file = {0}, env = {0};
    tri_error err = {0};
    make(&boot, 3, 2, endpoints[i]);
    ck_assert_int_eq(tri_boot_save(path, &boot, &err), TRI_OK);
    ck_assert_int_eq(tri_boot_load(path, tri_now_ns(), &file, &err), TRI_OK);
    same(&boot, &file);
    ck_assert_int_eq(tri_boot_to_env(&boot, 1, &err), TRI_OK);
    char *text = getenv(TRI_BOOT_ENV);
    size_t len = strlen(text);
    ck_assert_ptr_null(strstr(text, boot.secrets[0])); /* those of another group stay behind */
    ck_assert_ptr_null(strstr(text, boot.secrets[4]));
    ck_assert_int_eq(tri_boot_from_env(&env, &err), TRI_OK);
    for (size_t k = 0; k < len; k++) ck_assert_int_eq(text[k], 0); /* nor does /proc show it any more */
    ck_assert_int_eq(tri_boot_from_env(&env, &err), TRI_NOT_FOUND);
    tri_boot_rank a = of_rank(&boot, 1, 1), b = of_rank(&env, 1, 1);
    ck_assert_str_eq(a.endpoint, endpoints[i]);
    ck_assert_mem_eq(&a, &b, sizeof a);
    ck_assert_int_eq(tri_boot_of_rank(&env, 0, 1, &b, &err), TRI_USAGE);
    tri_error_clear(&err);
    tri_boot_free(&boot);
    tri_boot_free(&file);
    tri_boot_free(&env);
  }
  unlink(path);
}
END_TEST

/* Every rank of every group has a pair of its own. */
START_TEST(own_keys) {
  enum { GROUPS = 3, RANKS = 4 };
  tri_boot boot = {0};
  tri_error err = {0};
  char keys[GROUPS * RANKS][TRI_Z_KEY];
  make(&boot, GROUPS, RANKS, "tcp://10.0.0.1:5555");
  for (uint32_t i = 0; i < GROUPS * RANKS; i++) {
    tri_boot_rank r = of_rank(&boot, i / RANKS, i % RANKS);
    strcpy(keys[i], r.own.public_key);
    for (uint32_t k = 0; k < i; k++) ck_assert_str_ne(keys[i], keys[k]);
    for (size_t at = 0; at + TRI_Z_KEY <= sizeof r; at++)
      for (uint32_t k = 0; k < GROUPS * RANKS; k++)
        ck_assert(k == i || memcmp((char *)&r + at, boot.secrets[k], TRI_Z_KEY - 1));
  }
  tri_boot_rank r;
  ck_assert_int_eq(tri_boot_of_rank(&boot, 0, RANKS, &r, &err), TRI_USAGE);
  ck_assert_ptr_nonnull(strstr(err.message, "no key for rank 4 of replica 0"));
  tri_error_clear(&err);
  ck_assert_int_eq(tri_boot_of_rank(&boot, GROUPS, 0, &r, &err), TRI_USAGE);
  tri_boot_free(&boot);
  ck_assert_ptr_null(boot.secrets);
  tri_error_clear(&err);
  ck_assert_int_eq(tri_boot_make_keys(&boot, 1, TRI_BOOT_MAX_RANKS + 1, &err), TRI_TOO_LARGE);
  tri_error_clear(&err);
  ck_assert_int_eq(tri_boot_make_keys(&boot, 0, 1, &err), TRI_TOO_LARGE);
}
END_TEST

/* The longest text that there is: its keys are read in one pass. */
START_TEST(large) {
  tri_boot boot = {.replicas = TRI_BOOT_MAX_REPLICAS, .ranks = TRI_BOOT_MAX_RANKS}, again = {0};
  size_t keys = (size_t)boot.replicas * boot.ranks;
  tri_error err = {0};
  make(&again, 1, 2, "tcp://10.0.0.1:5555");
  boot.secrets = tri_calloc(keys, sizeof *boot.secrets);
  for (size_t i = 0; i < keys; i++) strcpy(boot.secrets[i], again.secrets[i % 2]);
  strcpy(boot.server_key, again.server_key);
  strcpy(boot.endpoint, again.endpoint);
  tri_boot_free(&again);
  ck_assert_int_eq(tri_boot_save(path, &boot, &err), TRI_OK);
  ck_assert_msg(tri_boot_load(path, tri_now_ns(), &again, &err) == TRI_OK, "%s", err.message);
  same(&boot, &again);
  tri_boot_free(&again);
  ck_assert_int_eq(tri_boot_to_env(&boot, 63, &err), TRI_OK);
  ck_assert_int_eq(tri_boot_from_env(&again, &err), TRI_OK);
  ck_assert_uint_eq(again.first_replica, 63);
  ck_assert_uint_eq(again.replicas, 1);
  tri_boot_free(&again);
  tri_boot_free(&boot);
  unlink(path);
}
END_TEST

static void refuse_text(const char *text, const char *why) {
  tri_boot b = {0};
  tri_error err = {0};
  setenv(TRI_BOOT_ENV, text, 1);
  ck_assert_int_eq(tri_boot_from_env(&b, &err), TRI_CORRUPT);
  ck_assert_msg(strstr(err.message, why), "%s", err.message);
  ck_assert_ptr_null(b.secrets);
  ck_assert_ptr_null(getenv(TRI_BOOT_ENV));
}

#define KEY "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
START_TEST(damaged) {
  refuse_text(KEY " " KEY " " KEY " tcp://10.0.0.1:5", "of another version"); /* of the first version */
  refuse_text("trireme-boot-3 " KEY " 0 1 1 " KEY " tcp://10.0.0.1:5", "of another version");
  refuse_text("trireme-boot-22 " KEY " 0 1 1 " KEY " tcp://10.0.0.1:5", "of another version");
  refuse_text("trireme-boot-2 short 0 1 1 " KEY " tcp://10.0.0.1:5", "the coordinator's key has not 40 characters");
  refuse_text("trireme-boot-2 " KEY " 0 1", "the number of ranks is missing or no number; it can be 1 to 1024");
  refuse_text("trireme-boot-2 " KEY " 0 1 1025 " KEY " tcp://10.0.0.1:5", "ranks is 1025; it can be 1 to 1024");
  refuse_text("trireme-boot-2 " KEY " 0 65 1 " KEY " tcp://10.0.0.1:5", "replicas is 65; it can be 1 to 64");
  refuse_text("trireme-boot-2 " KEY " 0 0 1 " KEY " tcp://10.0.0.1:5", "replicas is 0; it can be 1 to 64");
  /* Numbers that are not cut down to 32 or 64 bits, nor read as far as they go. */
  refuse_text("trireme-boot-2 " KEY " 0 1 4294967297 " KEY " tcp://10.0.0.1:5", "ranks is 4294967297; it can");
  refuse_text("trireme-boot-2 " KEY " 0 18446744073709551617 1 " KEY " tcp://10.0.0.1:5", "it can be 1 to 64");
  refuse_text("trireme-boot-2 " KEY " -0 1 1 " KEY " tcp://10.0.0.1:5",
              "the first replica is missing or no number; it can be 0 to 63");
  refuse_text("trireme-boot-2 " KEY " 0 1x 1 " KEY " tcp://10.0.0.1:5",
              "replicas is missing or no number; it can be 1 to 64");
  refuse_text("trireme-boot-2 " KEY " 5 1 2 " KEY " tcp://10.0.0.1:5", "damaged: the key of rank 1 of replica 5");
  refuse_text("trireme-boot-2 " KEY " 0 1 1 short tcp://10.0.0.1:5",
              "the key of rank 0 of replica 0 does not have 40 characters");
  refuse_text("trireme-boot-2 " KEY " 0 1 1 " KEY, "damaged: it has no address");
}
END_TEST

/* A key that is none, and one that is missing, are said with their rank and where they were looked for. */
START_TEST(named) {
  tri_boot b = {0};
  tri_boot_rank r;
  tri_error err = {0};
  char text[300] = "trireme-boot-2 " KEY " 5 1 2 " KEY " ", key[TRI_Z_KEY] = KEY;
  key[7] = '"'; /* not of Z85 */
  strcat(strcat(text, key), " tcp://10.0.0.1:5");
  setenv(TRI_BOOT_ENV, text, 1);
  ck_assert_int_eq(tri_boot_from_env(&b, &err), TRI_OK);
  ck_assert_int_eq(tri_boot_of_rank(&b, 5, 0, &r, &err), TRI_OK);
  ck_assert_int_eq(tri_boot_of_rank(&b, 5, 1, &r, &err), TRI_CORRUPT);
  ck_assert_msg(strstr(err.message, "TRIREME_BOOT: the key of rank 1 of replica 5 is invalid"), "%s", err.message);
  tri_error_clear(&err);
  ck_assert_int_eq(tri_boot_save(path, &b, &err), TRI_OK);
  tri_boot_free(&b);
  ck_assert_int_eq(tri_boot_load(path, tri_now_ns(), &b, &err), TRI_OK);
  ck_assert_int_eq(tri_boot_public_key(&b, 5, 1, r.own.public_key, &err), TRI_CORRUPT);
  ck_assert_msg(strstr(err.message, "boot test: the key of rank 1 of replica 5 is invalid"), "%s", err.message);
  tri_error_clear(&err);
  ck_assert_int_eq(tri_boot_of_rank(&b, 4, 1, &r, &err), TRI_USAGE);
  ck_assert_msg(strstr(err.message, "boot test: the coordinator has no key for rank 1 of replica 4"), "%s",
                err.message);
  tri_boot_free(&b);
  unlink(path);
}
END_TEST

START_TEST(refused) {
  tri_boot b = {0};
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
  tcase_add_test(c, own_keys);
  tcase_add_test(c, large);
  tcase_add_test(c, damaged);
  tcase_add_test(c, named);
  tcase_add_test(c, refused);
  suite_add_tcase(s, c);
  return s;
}
