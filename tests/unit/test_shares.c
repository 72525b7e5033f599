/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of clients: --client-share, and the file of allowed keys. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "coordinator/queue/shares.h"

Suite *suite_shares(void);

#define PATH TRI_TEST_SCRATCH "/shares.keys"

static tri_allowed_keys keys;
static tri_shares shares;

static tri_status read_keys(const char *text, tri_error *err) {
  FILE *f = fopen(PATH, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
  tri_status st = tri_allowed_keys_read(PATH, &keys, err);
  remove(PATH);
  return st;
}

START_TEST(test_keys) {
  tri_zkeypair pair[3];
  tri_error err = {0};
  char text[400];
  uint8_t raw[TRI_OWNER_BYTES];
  for (int i = 0; i < 3; i++) ck_assert_int_eq(tri_zkeypair_make(&pair[i], &err), TRI_OK);
  snprintf(text, sizeof text, "# of us\n%s weight=2.5 ann\n%s\tbob, weight=7\n%s", pair[0].public_key,
           pair[1].public_key, pair[2].public_key);
  ck_assert_msg(read_keys(text, &err) == TRI_OK, "%s", err.message);
  ck_assert(keys.count == 3 && keys.weights[0] == 2.5 && keys.weights[1] == 1 && keys.weights[2] == 1);
  ck_assert_str_eq(keys.list[2], pair[2].public_key);
  ck_assert_int_eq(tri_shares_read("ann=3,a=b=0.5", &keys, &shares, &err), TRI_USAGE); /* "b=0.5" is no number */
  ck_assert_int_eq(tri_shares_read("ann=3,bob=0.5", &keys, &shares, &err), TRI_OK);
  ck_assert_uint_eq(shares.count, 3);
  ck_assert(!strcmp(shares.list[0].name, "ann") && shares.list[0].weight == 3);
  ck_assert(!strcmp(shares.list[1].name, "bob") && shares.list[1].weight == 0.5);
  ck_assert(tri_zkey_raw(pair[0].public_key, raw) && shares.list[2].weight == 2.5 &&
            shares.list[2].owner.kind == TRI_OWNER_KEY && !memcmp(shares.list[2].owner.bytes, raw, sizeof raw));
  const char *const wrong[] = {"weight=", "weight=0", "weight=1001", "weight=nan", "weight=2x"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    snprintf(text, sizeof text, "%s %s\n", pair[0].public_key, wrong[i]);
    ck_assert_int_eq(read_keys(text, &err), TRI_INVALID_ARGUMENT);
    ck_assert_msg(strstr(err.message, "0.01 to 1000") != NULL, "%s", err.message);
  }
  err = (tri_error){0};
  ck_assert_int_eq(mkfifo(PATH, 0600), 0); /* nobody writes to it */
  ck_assert_int_eq(tri_allowed_keys_read(PATH, &keys, &err), TRI_IO);
  ck_assert_msg(strstr(err.message, "not a regular file") != NULL, "%s", err.message);
  remove(PATH);
}
END_TEST

START_TEST(test_callers) {
  tri_error err = {0};
  const tri_allowed_keys none = {.count = 0};
  const char *const wrong[] = {"ann",          "=3",
                               "ann=",         "ann=0",
                               "ann=1e9",      "ann=nan",
                               "ann=1,",       ",",
                               "ann=1,,bob=2", "0123456789012345678901234567890123456789012345678901234567890123x=2"};
  ck_assert(tri_shares_read(NULL, &none, &shares, &err) == TRI_OK && !shares.count);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    bool is_whole = !strcmp(wrong[i], "ann=1,"); /* nothing follows */
    ck_assert_msg(tri_shares_read(wrong[i], &none, &shares, &err) == (is_whole ? TRI_OK : TRI_USAGE), "%s", wrong[i]);
  }
  ck_assert_str_eq(err.field, "client_share");
  char many[TRI_MAX_CALLER_SHARES * 4 + 8] = "";
  for (int i = 0; i <= TRI_MAX_CALLER_SHARES; i++) memcpy(many + i * 4, "a=1,", 5);
  ck_assert_int_eq(tri_shares_read(many, &none, &shares, &err), TRI_TOO_LARGE);
}
END_TEST

Suite *suite_shares(void) {
  Suite *s = suite_create("shares");
  TCase *t = tcase_create("shares");
  tcase_add_test(t, test_keys);
  tcase_add_test(t, test_callers);
  suite_add_tcase(s, t);
  return s;
}
