/* SPDX-License-Identifier: Apache-2.0 */
/* A first argument that stands for an option, as `trireme plan DIR`. */
#include <check.h>
#include <stdlib.h>

#include "runtime/base/options.h"

Suite *suite_arg_option(void);

typedef struct config {
  const char *model;
  tri_opt_list rest;
} config;

static const tri_option table[] = {
    {TRI_OPT(config, model), .name = "model", .alias = "m", .env = "TRI_TEST_MODEL"},
    {TRI_OPT(config, rest), .name = "names", .several = true},
};
static const tri_options_spec spec = {.program = "demo", .arg_option = "model", TRI_OPTIONS(table), .max_args = 1};

enum { MOST = 8 };
static tri_status parse(char *const words[MOST], config *c, tri_options **o, tri_error *err) {
  char *argv[MOST + 1] = {(char[]){"demo"}};
  int argc = 1;
  for (int i = 0; i < MOST && words[i]; i++) argv[argc++] = words[i];
  *c = (config){0};
  *err = (tri_error){0};
  *o = NULL;
  return tri_options_parse(&spec, c, argc, argv, o, err);
}

START_TEST(either_way) {
  static char *const lines[][MOST] = {
      {"dir"}, {"--model", "dir"}, {"-m", "dir"}, {"dir", "--names", "a", "b"}, {"--names", "a", "b", "--", "dir"}};
  for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
    config c;
    tri_options *o;
    tri_error err;
    ck_assert_msg(parse(lines[i], &c, &o, &err) == TRI_OK, "line %zu: %s", i, err.message);
    ck_assert_str_eq(c.model, "dir");
    ck_assert_str_eq(tri_options_text(o, "model"), "dir");
    ck_assert(tri_options_commanded(o, "model") && tri_options_num_args(o) == 0);
    tri_options_free(o);
  }
}
END_TEST

/* What follows it is an argument as in any program; the command line wins over the environment. */
START_TEST(arguments_behind_it) {
  config c;
  tri_options *o;
  tri_error err;
  setenv("TRI_TEST_MODEL", "other", 1);
  ck_assert(parse((char *[MOST]){"dir", "file"}, &c, &o, &err) == TRI_OK);
  unsetenv("TRI_TEST_MODEL");
  ck_assert_str_eq(c.model, "dir");
  ck_assert(tri_options_num_args(o) == 1 && !tri_options_arg(o, 1));
  ck_assert_str_eq(tri_options_arg(o, 0), "file");
  tri_options_free(o);
}
END_TEST

START_TEST(refused) {
  static const struct {
    char *const words[MOST];
    const char *message;
  } bad[] = {
      {{"dir", "--model", "other"}, "dir and --model other exclude each other"},
      {{"-m", "other", "dir"}, "dir and --model other exclude each other"},
      {{"dir", "file", "more"}, "\"more\" is one argument too many"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    config c;
    tri_options *o;
    tri_error err;
    ck_assert_int_eq(parse(bad[i].words, &c, &o, &err), TRI_INVALID_ARGUMENT);
    ck_assert_str_eq(err.message, bad[i].message);
  }
}
END_TEST

Suite *suite_arg_option(void) {
  Suite *s = suite_create("arg_option");
  TCase *t = tcase_create("arg_option");
  tcase_add_test(t, either_way);
  tcase_add_test(t, arguments_behind_it);
  tcase_add_test(t, refused);
  suite_add_tcase(s, t);
  return s;
}
