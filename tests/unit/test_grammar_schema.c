/* SPDX-License-Identifier: Apache-2.0 */
/* JSON Schema as networks: what may be answered, and what is refused with the pointer to it. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "runtime/grammar/configurations.h"
#include "runtime/grammar/schema.h"

Suite *suite_grammar_schema(void);

static tri_status compile(const char *text, tri_net **net, tri_error *err) {
  tri_json_doc *doc;
  *err = (tri_error){0};
  ck_assert_msg(tri_json_parse(text, strlen(text), &doc, err) == TRI_OK, "%s: %s", text, err->message);
  tri_status st = tri_schema_compile(tri_json_root(doc), NULL, net, err);
  tri_json_free(doc);
  return st;
}

static bool takes(const tri_net *net, const char *answer) {
  tri_configs *c;
  ck_assert_int_eq(tri_configs_create(net, 64 << 20, &c), TRI_OK);
  uint32_t at = tri_configs_walk(c, tri_configs_begin(c), answer, strlen(answer));
  bool whole = at && tri_configs_may_end(c, at);
  tri_configs_destroy(c);
  return whole;
}

typedef struct example {
  const char *schema;
  const char *good[12], *bad[16];
} example;

static const example examples[] = {
    {"{\"type\":\"integer\"}", {"0", "-7", "12345"}, {"01", "1.5", "\"1\"", "", "-", "1e3", "12345678901234567890"}},
    {"{\"type\":\"integer\",\"minimum\":-12,\"maximum\":305}",
     {"-12", "-9", "-1", "0", "7", "99", "100", "299", "300", "305"},
     {"-13", "-20", "306", "310", "1000", "-100"}},
    {"{\"type\":\"integer\",\"exclusiveMinimum\":3}", {"4", "10", "99"}, {"3", "0", "-5"}},
    {"{\"type\":\"number\",\"minimum\":0}", {"0", "0.5", "10", "3.25"}, {"-1", "-0.1", "1e5"}},
    {"{\"type\":\"number\",\"exclusiveMinimum\":1.25,\"maximum\":10.5}",
     {"1.26", "1.250001", "1.3", "2", "9.99", "10", "10.5", "10.50", "10.49"},
     {"1.25", "1.2500", "1.2", "1", "10.51", "10.6", "11", "0"}},
    {"{\"type\":\"number\",\"minimum\":-2.5,\"exclusiveMaximum\":-0.5}",
     {"-2.5", "-2", "-1.75", "-0.51"},
     {"-2.51", "-0.5", "0", "-0.4", "-3"}},
    {"{\"type\":\"number\"}", {"1", "-0.5", "1e10", "2.5E-3"}, {"1.", ".5", "1e", "+1", "1e1000"}},
    {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "\"\\n\\\"\""},
     {"\"a\"", "\"abcd\"", "\"\"", "\"\\u0041b\"", "\"\\/a\""}},
    {"{\"type\":[\"null\",\"boolean\"]}", {"null", "true", "false"}, {"0", "\"null\""}},
    {"{\"enum\":[1,\"a\",null,[1,{\"b\":2}]]}",
     {"1", "\"a\"", "null", "[1,{\"b\":2}]", "[1, {\"b\": 2}]"},
     {"2", "[1]"}},
    {"{\"const\":\"x\\ty\"}", {"\"x\\ty\""}, {"\"x\ty\"", "\"x\""}},
    {"{\"type\":\"string\",\"enum\":[\"a\",1]}", {"\"a\""}, {"1"}},
    {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
     {"[1]", "[1,2]", "[1, 2, 3]", "[\n  1,\n  2\n]"},
     {"[]", "[1,2,3,4]", "[1,]", "[,1]", "[1  ]", "[\"a\"]"}},
    {"{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":false}",
     {"[]", "[1]", "[1,\"a\"]"},
     {"[\"a\"]", "[1,\"a\",2]"}},
    {"{\"type\":\"array\",\"items\":[{\"type\":\"integer\"}],\"additionalItems\":{\"type\":\"null\"},\"minItems\":2}",
     {"[1,null]", "[1,null,null]"},
     {"[1]", "[1,2]", "[]"}},
    {"{\"properties\":{\"a\":{\"type\":\"integer\"},\"ab\":{\"type\":\"string\"},\"b\":{}},\"required\":[\"ab\"],"
     "\"type\":\"object\"}",
     {"{\"ab\":\"x\"}", "{\"a\":1,\"ab\":\"\"}", "{\"a\": 1, \"ab\": \"x\", \"b\": [1, {}]}",
      "{\"ab\":\"x\",\"b\":null}"},
     {"{}", "{\"a\":1}", "{\"ab\":\"x\",\"a\":1}", "{\"a\":1,\"ab\":\"x\",\"c\":1}", "{\"ab\":1}",
      "{\"a\":1,\"a\":1,\"ab\":\"\"}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":"
     "\"boolean\"}}",
     {"{}", "{\"a\":1}", "{\"b\":true}", "{\"a\":1,\"b\":true,\"ab\":false}", "{\"\":true}", "{\"\xc3\xa9\":true}"},
     {"{\"a\":true}", "{\"b\":1}", "{\"b\":true,\"a\":1}", "{\"b\":true,\"a\":true}"}},
    {"{\"type\":\"object\",\"required\":[\"x\"]}", {"{\"x\":1}", "{\"x\":{},\"y\":2}"}, {"{}", "{\"y\":1}"}},
    {"{\"type\":\"object\",\"properties\":{\"a\":false,\"b\":{}}}", {"{}", "{\"b\":1}"}, {"{\"a\":1}", "{\"a"}},
    {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", {"1", "\"a\""}, {"null", "1.5"}},
    {"{\"type\":\"object\",\"properties\":{\"k\":{}},\"anyOf\":[{\"required\":[\"k\"]},{\"properties\":{\"m\":{"
     "\"type\":"
     "\"null\"}},\"required\":[\"m\"]}]}",
     {"{\"k\":1}", "{\"k\":1,\"m\":null}", "{\"m\":null}"},
     {"{}", "{\"m\":1}"}},
    {"{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"a\"},\"x\":{\"type\":\"integer\"}},"
     "\"required\":"
     "[\"t\"]},{\"type\":\"object\",\"properties\":{\"t\":{\"const\":\"b\"}},\"required\":[\"t\"]}]}",
     {"{\"t\":\"a\"}", "{\"t\":\"a\",\"x\":1}", "{\"t\":\"b\"}"},
     {"{\"t\":\"b\",\"x\":1}", "{\"t\":\"c\"}", "{}"}},
    {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":5},{\"maximum\":20}]}", {"5", "20", "11"}, {"4", "21"}},
    {"{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
     "\"next\":{\"$ref\":\"#/$defs/node\"}},\"required\":[\"v\"]}}}",
     {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3}}}"},
     {"{}", "{\"v\":1,\"next\":{}}"}},
    {"{\"$ref\":\"#x\",\"$defs\":{\"a~b/c\":{\"$anchor\":\"x\",\"$ref\":\"#/$defs/d%20e\"},\"d "
     "e\":{\"type\":\"null\"}}}",
     {"null"},
     {"1"}},
    {"true", {"null", "[1,{\"a\":[\"b\"]}]", "{\"a\":{\"b\":1.5e3}}", "\"\""}, {"", "[", "{\"a\"}"}},
    {"{\"type\":\"object\",\"minProperties\":1,\"properties\":{\"a\":{}},\"required\":[\"a\"],\"title\":\"t\",\"x-y\":"
     "1}",
     {"{\"a\":1}"},
     {"{}"}},
    {"{\"type\":\"string\",\"nullable\":true}", {"null", "\"\""}, {"1"}},
    {"{\"type\":\"integer\",\"enum\":[0.5,2,1e300]}", {"2"}, {"0.5"}},
    {"{\"oneOf\":[{\"$ref\":\"#\"}]}", {"1", "{}"}, {"x"}},
    {"{\"type\":\"string\",\"maxLength\":4294967297}", {"\"\"", "\"abc\""}, {"1"}},
    {"{\"properties\":{\"a\":{},\"n\":{\"$ref\":\"#/$defs/"
     "n\"}},\"type\":\"object\",\"$defs\":{\"n\":{\"type\":\"object\","
     "\"properties\":{\"b\":{},\"m\":{\"$ref\":\"#/$defs/n\"}},\"required\":[\"m\"]}}}",
     {"{}", "{\"a\":1}"},
     {"{\"a\":1,\"n\":{}}"}},
    {"{\"properties\":{\"ab\":{},\"abcd\":{}},\"additionalProperties\":{\"type\":\"null\"}}",
     {"{\"ab\":1,\"abcd\":2,\"abc\":null}", "{\"a\":null,\"abcde\":null,\"\":null,\"abx\":null,\"\\n\":null}"},
     {"{\"abc\":1}", "{\"abx\":null,\"abcd\":2}"}},
    {"{\"type\":\"string\",\"maxLength\":0}", {"\"\""}, {"\"a\"", "\"\\n\""}},
};

START_TEST(answers_fit) {
  const example *e = &examples[_i];
  tri_net *net;
  tri_error err;
  tri_status st = compile(e->schema, &net, &err);
  ck_assert_msg(st == TRI_OK, "%s: %s %s", e->schema, err.field, err.message);
  for (int i = 0; i < 12 && e->good[i]; i++) ck_assert_msg(takes(net, e->good[i]), "%s: %s", e->schema, e->good[i]);
  for (int i = 0; i < 16 && e->bad[i]; i++) ck_assert_msg(!takes(net, e->bad[i]), "%s: %s", e->schema, e->bad[i]);
  tri_net_destroy(net);
}
END_TEST

typedef struct refusal {
  const char *schema;
  tri_status st;
  const char *field, *words;
} refusal;

static const refusal refusals[] = {
    {"{\"properties\":{\"a/b\":{\"not\":{}}}}", TRI_UNSUPPORTED, "/properties/a~1b/not", "not cannot be kept"},
    {"{\"items\":{\"uniqueItems\":true}}", TRI_UNSUPPORTED, "/items/uniqueItems", "cannot be kept"},
    {"{\"type\":\"text\"}", TRI_INVALID_ARGUMENT, "/type", "type must be one of"},
    {"{\"anyOf\":[]}", TRI_INVALID_ARGUMENT, "/anyOf", "a list of schemas"},
    {"{\"anyOf\":[1]}", TRI_INVALID_ARGUMENT, "/anyOf/0", "must be an object"},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}", TRI_UNSUPPORTED, "/oneOf", "branches 0 and 1"},
    {"{\"$ref\":\"other.json\"}", TRI_UNSUPPORTED, "/$ref", "begin with #"},
    {"{\"$ref\":\"#/$defs/x\"}", TRI_INVALID_ARGUMENT, "/$ref", "nothing is at #/$defs/x"},
    {"{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2}]}", TRI_UNSUPPORTED, "/oneOf", "branches 0 and 1"},
    {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", TRI_INVALID_ARGUMENT, "",
     "nothing fits"},
    {"false", TRI_INVALID_ARGUMENT, "", "nothing fits"},
    {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":2}", TRI_INVALID_ARGUMENT, "", "nothing fits"},
    {"{\"type\":\"string\",\"minLength\":-1}", TRI_INVALID_ARGUMENT, "/minLength", "integer from 0"},
    {"{\"type\":\"integer\",\"minimum\":1e300}", TRI_UNSUPPORTED, "/minimum", "18 digits"},
    {"{\"type\":\"object\",\"minProperties\":2}", TRI_UNSUPPORTED, "/minProperties", "cannot be kept here"},
    {"{\"type\":\"string\",\"minLength\":1e12}", TRI_INVALID_ARGUMENT, "", "nothing fits"},
    {"{\"oneOf\":[{\"type\":\"string\",\"nullable\":true},{\"type\":\"null\"}]}", TRI_UNSUPPORTED, "/oneOf",
     "branches 0 and 1"},
    {"{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
     TRI_INVALID_ARGUMENT, "", "nothing fits"},
    {"{\"enum\":[]}", TRI_INVALID_ARGUMENT, "/enum", "1 to 10000"},
    {"{\"enum\":[\"a\"],\"minLength\":2}", TRI_UNSUPPORTED, "/minLength", "beside enum"},
    {"{\"type\":\"integer\",\"maximum\":-5,\"minimum\":5}", TRI_INVALID_ARGUMENT, "", "nothing fits"},
};

START_TEST(what_cannot_be_kept_is_refused) {
  const refusal *r = &refusals[_i];
  tri_net *net;
  tri_error err;
  tri_status st = compile(r->schema, &net, &err);
  ck_assert_msg(st == r->st, "%s: %s, field '%s': %s", r->schema, tri_status_name(st), err.field, err.message);
  ck_assert_str_eq(err.field, r->field);
  ck_assert_msg(strstr(err.message, r->words), "%s: %s", r->schema, err.message);
}
END_TEST

/* ---- work ---- */

static tri_status compile_text(tri_buf *text, uint64_t most_work, tri_error *err) {
  tri_json_doc *doc;
  tri_net *net = NULL;
  *err = (tri_error){0};
  ck_assert(!text->failed);
  ck_assert_int_eq(tri_json_parse(text->data, text->len, &doc, err), TRI_OK);
  tri_status st = tri_schema_compile(tri_json_root(doc), &(tri_schema_options){.most_work = most_work}, &net, err);
  tri_json_free(doc);
  tri_net_destroy(net);
  tri_buf_free(text);
  return st;
}

static void add(tri_buf *b, const char *text) { tri_text_add(b, text, strlen(text)); }

static void add_times(tri_buf *b, const char *text, int times) {
  for (int i = 0; i < times; i++) add(b, text);
}

/* 2^40 alternatives, none of which is left at the end. */
START_TEST(branches_have_a_limit) {
  tri_buf b = {0};
  tri_error err;
  add(&b, "{\"properties\":{\"p\":{\"allOf\":[");
  add_times(&b, "{\"anyOf\":[{},{}]},", 40);
  add(&b, "false]}}}");
  ck_assert_int_eq(compile_text(&b, 0, &err), TRI_TOO_LARGE);
  ck_assert_str_eq(err.field, "/properties/p");
  ck_assert(strstr(err.message, "takes too long to compile"));
}
END_TEST

START_TEST(enums_beside_each_other_have_a_limit) {
  tri_buf b = {0};
  tri_error err;
  add(&b, "{\"allOf\":[");
  for (int k = 0; k < 2; k++) {
    add(&b, "{\"enum\":[");
    for (int i = 0; i < 4000; i++) {
      char value[16];
      snprintf(value, sizeof value, "%s%d", i ? "," : "", k ? i : -i - 1);
      add(&b, value);
    }
    add(&b, k ? "]}" : "]},");
  }
  add(&b, "]}");
  ck_assert_int_eq(compile_text(&b, 0, &err), TRI_TOO_LARGE);
  ck_assert(strstr(err.message, "takes too long to compile"));
}
END_TEST

/* Values beyond those that a configuration keeps would never be drawn. */
START_TEST(an_enum_has_a_limit) {
  tri_buf b = {0};
  tri_error err;
  add(&b, "{\"enum\":[0");
  add_times(&b, ",0", 4096);
  add(&b, "]}");
  ck_assert_int_eq(compile_text(&b, 0, &err), TRI_TOO_LARGE);
  ck_assert_str_eq(err.field, "/enum");
  ck_assert_str_eq(err.message, "4097 values, where an enum may have 4096");
}
END_TEST

/* Each level would look into all below it twice. */
START_TEST(one_of_is_checked_once) {
  tri_buf b = {0};
  tri_error err;
  add_times(&b, "{\"oneOf\":[", 30);
  add(&b, "{}");
  add_times(&b, "]}", 30);
  ck_assert_int_eq(compile_text(&b, 100000, &err), TRI_OK);
}
END_TEST

/* Work grows with the number of properties, not with its square. */
START_TEST(properties_are_found_by_a_table) {
  tri_buf b = {0};
  tri_error err;
  for (int i = 0; i < 2000; i++) {
    char key[40];
    snprintf(key, sizeof key, "%s\"key%d\":{\"type\":\"null\"}", i ? "," : "{\"properties\":{", i);
    add(&b, key);
  }
  add(&b, "}}");
  ck_assert_int_eq(compile_text(&b, 2000000, &err), TRI_OK);
}
END_TEST

START_TEST(a_long_key_is_no_recursion) {
  tri_buf b = {0};
  tri_error err;
  add(&b, "{\"properties\":{\"");
  add_times(&b, "a", 190000);
  add(&b, "\":{}}}");
  ck_assert_int_eq(compile_text(&b, 0, &err), TRI_OK);
}
END_TEST

START_TEST(depth_of_branches_has_a_limit) {
  tri_buf b = {0};
  tri_error err;
  char part[160];
  add(&b, "{\"$ref\":\"#/$defs/l0\",\"$defs\":{");
  for (int i = 0; i < 100; i++) {
    snprintf(part, sizeof part, "\"c%d\":{\"anyOf\":[{\"$ref\":\"#/$defs/c%d\"}]},", i, i + 1);
    add(&b, part);
    snprintf(part, sizeof part, "\"l%d\":{\"$ref\":\"#/$defs/c0\",\"items\":{\"$ref\":\"#/$defs/l%d\"}},", i, i + 1);
    add(&b, part);
  }
  add(&b, "\"c100\":{},\"l100\":{}}}");
  ck_assert_int_eq(compile_text(&b, 0, &err), TRI_TOO_LARGE);
  ck_assert(strstr(err.message, "within each other"));
}
END_TEST

/* Up to three texts with what stands around them; the end and the separator may begin alike. */
START_TEST(a_frame_is_around_texts) {
  static const tri_schema_frame frame = {"<a>", "</a><a>", "</a>", 3, 7, 4, 3}, bare = {NULL, "; ", "", 0, 2, 0, 2},
                                one = {"(", NULL, ")", 1, 0, 1, 1};
  static const struct {
    const tri_schema_frame *frame;
    const char *answer;
    bool fits;
  } cases[] = {
      {&frame, "<a>12</a>", true},
      {&frame, "<a>12</a><a>true</a>", true},
      {&frame, "<a>12</a><a>12</a><a>12</a>", true},
      {&frame, "12", false},
      {&frame, "<a>12</a><a>", false},
      {&frame, "<a>12</a><a>12</a><a>12</a><a>12</a>", false},
      {&frame, "<a>13</a>", false},
      {&frame, "<a>12", false},
      {&frame, "", false},
      {&bare, "12", true},
      {&bare, "12; true", true},
      {&bare, "12; ", false},
      {&bare, "12; true; 12", false},
      {&one, "(true)", true},
      {&one, "(true)(true)", false},
      {&one, "(truetrue)", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static const char schema[] = "{\"enum\":[12,true]}";
    tri_net *net;
    tri_error err = {0};
    const tri_schema_options options = {.frame = cases[i].frame};
    ck_assert_int_eq(tri_schema_compile_text(schema, sizeof schema - 1, &options, &net, &err), TRI_OK);
    ck_assert_msg(takes(net, cases[i].answer) == cases[i].fits, "%s", cases[i].answer);
    tri_net_destroy(net);
  }
}
END_TEST

START_TEST(frames_without_a_meaning_are_refused) {
  static const tri_schema_frame frames[] = {
      {"a", NULL, "b", 1, 0, 1, 2}, {"a", ";", "b", 1, 1, 1, 0}, {"", ";", "", 0, 1, 0, TRI_SCHEMA_MAX_TEXTS + 1}};
  for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
    tri_net *net;
    tri_error err = {0};
    const tri_schema_options options = {.frame = &frames[i]};
    ck_assert_int_eq(tri_schema_compile_text("{}", 2, &options, &net, &err), TRI_INVALID_ARGUMENT);
  }
}
END_TEST

Suite *suite_grammar_schema(void) {
  Suite *s = suite_create("grammar_schema");
  TCase *c = tcase_create("all");
  tcase_add_loop_test(c, answers_fit, 0, (int)(sizeof examples / sizeof *examples));
  tcase_add_loop_test(c, what_cannot_be_kept_is_refused, 0, (int)(sizeof refusals / sizeof *refusals));
  tcase_add_test(c, branches_have_a_limit);
  tcase_add_test(c, enums_beside_each_other_have_a_limit);
  tcase_add_test(c, an_enum_has_a_limit);
  tcase_add_test(c, one_of_is_checked_once);
  tcase_add_test(c, properties_are_found_by_a_table);
  tcase_add_test(c, a_long_key_is_no_recursion);
  tcase_add_test(c, depth_of_branches_has_a_limit);
  tcase_add_test(c, a_frame_is_around_texts);
  tcase_add_test(c, frames_without_a_meaning_are_refused);
  suite_add_tcase(s, c);
  return s;
}
