/* SPDX-License-Identifier: Apache-2.0 */
/* Names of labels out of config.json. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/model/labels.h"

Suite *suite_labels(void);

#define FOLDER TRI_TEST_SCRATCH "/labels"

/* Loads labels from a folder whose config.json is this. */
static tri_status load(const char *json, size_t count, tri_labels *out, tri_error *err) {
  mkdir(FOLDER, 0700);
  FILE *f = fopen(FOLDER "/config.json", "w");
  ck_assert_ptr_nonnull(f);
  fputs(json, f);
  ck_assert_int_eq(fclose(f), 0);
  return tri_labels_load(FOLDER, count, out, err);
}

static tri_labels accept(const char *json, size_t count) {
  tri_labels l = {0};
  tri_error err = {0};
  ck_assert_msg(load(json, count, &l, &err) == TRI_OK, "%s", err.message);
  ck_assert_uint_eq(l.count, count);
  return l;
}

static void refuse(const char *json, size_t count, tri_status status, const char *field) {
  tri_labels l = {0};
  tri_error err = {0};
  ck_assert_int_eq(load(json, count, &l, &err), status);
  ck_assert_str_eq(err.field, field);
  ck_assert_ptr_null(l.names);
}

START_TEST(test_names) {
  tri_labels l = accept("{\"id2label\":{\"1\":\"bad \xc3\xa9\",\"0\":\"good\"}}", 3);
  ck_assert_str_eq(l.names[0], "good");
  ck_assert_str_eq(l.names[1], "bad \xc3\xa9");
  ck_assert_str_eq(l.names[2], "LABEL_2"); /* without a name */
  ck_assert_int_eq(l.problem, TRI_PROBLEM_SINGLE);
  tri_labels_free(&l);
  tri_labels_free(&l);
  l = accept("{\"id2label\":null}", 2);
  ck_assert_str_eq(l.names[1], "LABEL_1");
  tri_labels_free(&l);
  l = accept("{\"id2label\":{\"0\":\"a\",\"00\":\"b\"}}", 1);
  ck_assert_str_eq(l.names[0], "b");
  tri_labels_free(&l);
}
END_TEST

START_TEST(test_problems) {
  static const char *const names[] = {"single_label_classification", "multi_label_classification", "regression"};
  for (int i = 0; i < 3; i++) {
    char json[100];
    snprintf(json, sizeof json, "{\"problem_type\":\"%s\"}", names[i]);
    tri_labels l = accept(json, 2);
    ck_assert_int_eq((int)l.problem, i);
    tri_labels_free(&l);
  }
  refuse("{\"problem_type\":\"guessing\"}", 2, TRI_UNSUPPORTED, "problem_type");
  refuse("{\"problem_type\":3}", 2, TRI_UNSUPPORTED, "problem_type");
}
END_TEST

START_TEST(test_refused_names) {
  static const char *const keys[] = {"2", "-1", "x", "", "1x", "99999999999999999999999", " 1"};
  char json[1000], name[400];
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    snprintf(json, sizeof json, "{\"id2label\":{\"%s\":\"a\"}}", keys[i]);
    refuse(json, 2, TRI_OUT_OF_RANGE, "id2label");
  }
  refuse("{\"id2label\":{\"0\":1}}", 2, TRI_INVALID_ARGUMENT, "id2label");
  refuse("{\"id2label\":[\"a\",\"b\"]}", 2, TRI_INVALID_ARGUMENT, "id2label");
  memset(name, 'n', sizeof name);
  snprintf(json, sizeof json, "{\"id2label\":{\"0\":\"%.*s\"}}", TRI_LABEL_BYTES + 1, name);
  refuse(json, 1, TRI_INVALID_ARGUMENT, "id2label");
  snprintf(json, sizeof json, "{\"id2label\":{\"0\":\"%.*s\"}}", TRI_LABEL_BYTES, name);
  tri_labels l = accept(json, 1);
  tri_labels_free(&l);
}
END_TEST

START_TEST(test_file_at_fault) {
  static const char path[] = FOLDER "/config.json";
  tri_labels l = {0};
  tri_error err = {0};
  ck_assert_int_eq(load("{\"id2label\":[\"a\"]}", 1, &l, &err), TRI_INVALID_ARGUMENT);
  ck_assert_msg(!strncmp(err.message, path, strlen(path)), "%s", err.message);
}
END_TEST

Suite *suite_labels(void) {
  Suite *suite = suite_create("labels");
  TCase *t = tcase_create("labels");
  tcase_add_test(t, test_names);
  tcase_add_test(t, test_problems);
  tcase_add_test(t, test_refused_names);
  tcase_add_test(t, test_file_at_fault);
  suite_add_tcase(suite, t);
  return suite;
}
