/* SPDX-License-Identifier: Apache-2.0 */
/* A first argument that stands for an option, as `trireme plan DIR`; values as other programs spell them. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/options/options.h"

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

/* Arguments after it are as in any program; the command line wins over the environment. */
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

/* ---- values ---- */

typedef struct values {
  const char *parser;
  int type, length;
} values;

static const char *const types[] = {"float32", "float16", "auto", NULL}, *const parsers[] = {"none", "think", NULL};
static const tri_option value_table[] = {
    {TRI_OPT(values, parser), .name = "parser", .choices = parsers, .also = "qwen3=think deepseek_r1=think"},
    {TRI_OPT(values, type), .name = "type", .choices = types, .also = "half=float16 float=float32"},
    {TRI_OPT(values, length), .name = "length", .max = 1 << 24, .counts = true},
};
static const tri_options_spec value_spec = {.program = "demo", TRI_OPTIONS(value_table)};

static tri_status parse_value(const char *name, const char *value, values *v, tri_error *err) {
  char option[32], text[32], *argv[] = {(char[]){"demo"}, option, text, NULL};
  tri_options *o = NULL;
  snprintf(option, sizeof option, "--%s", name);
  snprintf(text, sizeof text, "%s", value);
  *v = (values){.type = -1};
  *err = (tri_error){0};
  tri_status st = tri_options_parse(&value_spec, v, 3, argv, &o, err);
  tri_options_free(o);
  return st;
}

START_TEST(names_of_other_programs) {
  static const struct {
    const char *text;
    int type;
  } all[] = {{"float32", 0}, {"float", 0}, {"half", 1}, {"float16", 1}, {"auto", 2}};
  values v;
  tri_error err;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    ck_assert_msg(parse_value("type", all[i].text, &v, &err) == TRI_OK, "%s", err.message);
    ck_assert_int_eq(v.type, all[i].type);
  }
  ck_assert(parse_value("parser", "deepseek_r1", &v, &err) == TRI_OK);
  ck_assert_str_eq(v.parser, "think");
  ck_assert(parse_value("parser", "deepseek-r1", &v, &err) == TRI_OK);
  ck_assert_int_eq(parse_value("parser", "deepseek_r", &v, &err), TRI_INVALID_ARGUMENT);
  ck_assert_str_eq(err.message, "--parser is \"deepseek_r\"; it can be none, think; also qwen3, deepseek_r1");
}
END_TEST

START_TEST(counts_with_letters) {
  static const struct {
    const char *text;
    int length; /* -1: refused */
  } all[] = {{"8", 8},   {"8k", 8000}, {"8K", 8192}, {"1m", 1000000}, {"1M", 1 << 20}, {"17M", -1},
             {"1G", -1}, {"8KB", -1},  {"k", -1},    {"8 k", -1},     {"1.5k", -1},    {"9223372036854775807K", -1}};
  values v;
  tri_error err;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    bool ok = parse_value("length", all[i].text, &v, &err) == TRI_OK;
    ck_assert_msg(ok == (all[i].length >= 0), "%s: %s", all[i].text, err.message);
    if (ok) ck_assert_int_eq(v.length, all[i].length);
  }
}
END_TEST

Suite *suite_arg_option(void) {
  Suite *s = suite_create("arg_option");
  TCase *t = tcase_create("arg_option");
  tcase_add_test(t, either_way);
  tcase_add_test(t, arguments_behind_it);
  tcase_add_test(t, refused);
  tcase_add_test(t, names_of_other_programs);
  tcase_add_test(t, counts_with_letters);
  suite_add_tcase(s, t);
  return s;
}
