/* SPDX-License-Identifier: Apache-2.0 */
/* JSON documents: what is refused, numbers of any size, and files as other programs write them. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json/json.h"

Suite *suite_json(void);

static tri_status parse(const char *text, size_t len) {
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  tri_status st = tri_json_parse(text, len, &doc, &err);
  ck_assert_msg((st == TRI_OK) == (doc != NULL), "%.60s", text);
  if (st != TRI_OK) ck_assert_msg(err.status == st && err.message[0], "%.60s: no reason given", text);
  tri_json_free(doc);
  return st;
}

static const char *const malformed[] = {
    "",
    " ",
    "{",
    "}",
    "]",
    "[1,]",
    "[,1]",
    "{\"a\":1,}",
    "{\"a\" 1}",
    "{\"a\":1 \"b\":2}",
    "{a:1}",
    "{'a':1}",
    "[1] [2]",
    "{} x",
    "{\"a\":1,\"a\":2}",
    "{\"\\u0000\":1}", /* a key that a C string cannot hold */
    "\"\xff\"",
    "\"\xc0\x80\"",
    "\"\xed\xa0\x80\"",
    "\"\\ud800\"",
    "\"\\ud800\\u0041\"",
    "\"\\x41\"",
    "\"\n\"",
    "\"open",
    "\"\\",
    "nul",
    "True",
    "NaN",
    "Infinity",
    "-",
    "01",
    "+1",
    "1.",
    ".5",
    "1e",
    "0x10",
    "// comment\n1",
    "\xef\xbb\xbf{}", /* byte order mark */
};

START_TEST(malformed_json) { ck_assert_int_eq(parse(malformed[_i], strlen(malformed[_i])), TRI_CORRUPT); }
END_TEST

/* ---- numbers of any size ---- */

static const struct number {
  const char *text, *spelling; /* NULL: 64 bits, or a double, hold it */
  tri_json_kind kind;
} numbers[] = {
    {"9223372036854775807", NULL, TRI_JSON_INT},
    {"9223372036854775808", "9223372036854775808", TRI_JSON_INT},
    {"-9223372036854775808", NULL, TRI_JSON_INT},
    {"-9223372036854775809", "-9223372036854775809", TRI_JSON_INT},
    {"1000000000000000019884624838656", "1000000000000000019884624838656", TRI_JSON_INT},
    {"1e308", NULL, TRI_JSON_REAL},
    {"1.7976931348623157e308", NULL, TRI_JSON_REAL},
    {"179769313486231580e291", NULL, TRI_JSON_REAL},
    {"1.7976931348623159e308", "1.7976931348623159e308", TRI_JSON_REAL},
    {"-17976931348623159E+292", "-17976931348623159E+292", TRI_JSON_REAL},
    {"1e400", "1e400", TRI_JSON_REAL},
    {"0.00001e400", "0.00001e400", TRI_JSON_REAL},
    {"0.0e999999999999999999999", NULL, TRI_JSON_REAL},
    {"100000e-400", NULL, TRI_JSON_REAL},
    {"1e99999999999999999999999", "1e99999999999999999999999", TRI_JSON_REAL},
};

/* A number that nothing holds is a number of its document, and spelled as it was. */
START_TEST(numbers_of_any_size) {
  const struct number *n = &numbers[_i];
  char text[256];
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  int64_t integer = 5;
  double real = 5;
  size_t len = 0;
  int size = snprintf(text, sizeof text, "{\"\\\"1\": [%s,%s ], \"k\":%s}", n->text, n->text, n->text);
  ck_assert_msg(tri_json_parse(text, (size_t)size, &doc, &err) == TRI_OK, "%s", err.message);
  const tri_json *root = tri_json_root(doc), *list = tri_json_get(root, "\"1");
  const tri_json *places[] = {tri_json_get(root, "k"), tri_json_at(list, 0), tri_json_at(list, 1)};
  for (int i = 0; i < 3; i++) {
    const char *s = tri_json_spelling(places[i], &len);
    ck_assert_int_eq(tri_json_kind_of(places[i]), n->kind);
    ck_assert_ptr_null(tri_json_as_str(places[i], &len));
    ck_assert_uint_eq(tri_json_size(places[i]), 0);
    ck_assert_msg((s != NULL) == (n->spelling != NULL), "%s", text);
    if (!s) continue;
    tri_json_spelling(places[i], &len);
    ck_assert(len == strlen(n->spelling) && !memcmp(s, n->spelling, len));
    ck_assert(!tri_json_as_int(places[i], &integer) && integer == 5);
    ck_assert_int_eq(tri_json_read_int(places[i], "k", &integer, &err), TRI_OUT_OF_RANGE);
    ck_assert_msg(strstr(err.message, "k is ") == err.message && strstr(err.message, "64 bits"), "%s", err.message);
    tri_error_clear(&err);
    ck_assert(tri_json_as_num(places[i], &real) == (n->kind == TRI_JSON_INT));
  }
  tri_json_free(doc);
}
END_TEST

/* Strings and keys that look like those that hold such numbers are themselves. */
START_TEST(strings_beside_large_numbers) {
  static const char text[] =
      "{\"\\u00011\":\"\\u000199999999999999999999\",\"b\":[\"\\u0001\",\"\\u0001\\u0001x\",1e999,\"\"]}";
  tri_json_doc *doc = NULL;
  size_t len;
  ck_assert_int_eq(tri_json_parse(text, sizeof text - 1, &doc, NULL), TRI_OK);
  const tri_json *root = tri_json_root(doc), *list = tri_json_get(root, "b");
  ck_assert_str_eq(tri_json_get_str(root, "\1"
                                          "1"),
                   "\1"
                   "99999999999999999999");
  ck_assert_int_eq(tri_json_kind_of(tri_json_get(root, "\1"
                                                       "1")),
                   TRI_JSON_STRING);
  ck_assert_str_eq(tri_json_as_str(tri_json_at(list, 0), NULL), "\1");
  ck_assert_str_eq(tri_json_as_str(tri_json_at(list, 1), &len), "\1\1x");
  ck_assert_uint_eq(len, 3);
  ck_assert_int_eq(tri_json_kind_of(tri_json_at(list, 2)), TRI_JSON_REAL);
  ck_assert_int_eq(tri_json_kind_of(tri_json_at(list, 3)), TRI_JSON_STRING);
  tri_json_free(doc);
}
END_TEST

/* A text that is no JSON does not become one by what is done for large numbers. */
START_TEST(malformed_large_numbers) {
  static const char *const texts[] = {"{99999999999999999999:1}",
                                      "{1e999 : 1}",
                                      "[099999999999999999999]",
                                      "[99999999999999999999.]",
                                      "[1.e999]",
                                      "[1e999e1]",
                                      "[--99999999999999999999]",
                                      "[99999999999999999999 1]",
                                      "[1e+]",
                                      "[NaN]",
                                      "[-Infinity]",
                                      "99999999999999999999x",
                                      "\"99999999999999999999"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    ck_assert_msg(parse(texts[i], strlen(texts[i])) == TRI_CORRUPT, "%s", texts[i]);
}
END_TEST

static const char *spelled(const tri_json *j) {
  size_t len;
  return tri_json_spelling(j, &len);
}

/* Files have Python's words for numbers; of a key that comes twice Python takes the last value. */
START_TEST(as_python) {
  static const char words[] = "{\"a\":[0.0,Infinity,-Infinity],\"b\" : NaN}", keys[] = "{\"a\":1,\"b\":2,\"a\":3}",
                    none[] = "{NaN:1}", glued[] = "[NaN1]";
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  int64_t n = 0;
  double x;
  ck_assert_msg(tri_json_parse_file(words, sizeof words - 1, &doc, &err) == TRI_OK, "%s", err.message);
  const tri_json *a = tri_json_get(tri_json_root(doc), "a"), *b = tri_json_get(tri_json_root(doc), "b");
  ck_assert_str_eq(spelled(tri_json_at(a, 1)), "Infinity");
  ck_assert_str_eq(spelled(tri_json_at(a, 2)), "-Infinity");
  ck_assert_str_eq(spelled(b), "NaN");
  ck_assert_int_eq(tri_json_kind_of(b), TRI_JSON_REAL);
  ck_assert(!tri_json_as_num(b, &x) && !tri_json_as_num(tri_json_at(a, 1), &x));
  tri_json_free(doc);
  ck_assert_int_eq(tri_json_parse_file(keys, sizeof keys - 1, &doc, &err), TRI_CORRUPT);
  ck_assert_int_eq(tri_json_parse_python(keys, sizeof keys - 1, &doc, &err), TRI_OK);
  ck_assert(tri_json_get_int(tri_json_root(doc), "a", &n) && n == 3);
  ck_assert_uint_eq(tri_json_size(tri_json_root(doc)), 2);
  tri_json_free(doc);
  ck_assert_int_eq(tri_json_parse_python(none, sizeof none - 1, &doc, NULL), TRI_CORRUPT);
  ck_assert_int_eq(tri_json_parse_python(glued, sizeof glued - 1, &doc, NULL), TRI_CORRUPT);
}
END_TEST

START_TEST(json_depth) {
  enum { MAX = 64 };
  char text[4 * 100000 + 1];
  for (int depth = MAX - 1; depth <= MAX + 1; depth++) {
    memset(text, '[', (size_t)depth);
    memset(text + depth, ']', (size_t)depth);
    ck_assert_int_eq(parse(text, 2 * (size_t)depth), depth <= MAX ? TRI_OK : TRI_TOO_LARGE);
  }
  memset(text, '[', 100000);
  ck_assert_int_eq(parse(text, 100000), TRI_TOO_LARGE); /* no recursion before the check */
  size_t n = 0;
  for (int i = 0; i < 65; i++) n += (size_t)sprintf(text + n, "{\"a\":");
  ck_assert_int_eq(parse(text, n), TRI_TOO_LARGE);
  /* Brackets inside strings are no nesting, and an escaped quote does not end one. */
  n = (size_t)sprintf(text, "[\"\\\"");
  memset(text + n, '[', 200);
  n += 200 + (size_t)sprintf(text + n + 200, "\"]");
  ck_assert_int_eq(parse(text, n), TRI_OK);
  /* Closing brackets earn no credit for more opening ones. */
  memset(text, ']', 100);
  memset(text + 100, '[', 150);
  ck_assert_int_ne(parse(text, 250), TRI_OK);
}
END_TEST

static tri_status collect(void *ctx, const char *key, const tri_json *value) {
  int64_t v = 0;
  ck_assert(tri_json_as_int(value, &v));
  sprintf((char *)ctx + strlen(ctx), "%s=%lld ", key, (long long)v);
  return v == 3 ? TRI_ABORTED : TRI_OK;
}

START_TEST(json_getters) {
  static const char text[] = "{\"i\":-9223372036854775808,\"r\":0.5,\"b\":true,\"s\":\"a\\u0000b\\u00e9\",\"n\":null,"
                             "\"a\":[1,\"x\"],\"o\":{\"z\":1,\"y\":2,\"x\":3,\"w\":4}}";
  tri_json_doc *doc = NULL;
  ck_assert_int_eq(tri_json_parse(text, sizeof text - 1, &doc, NULL), TRI_OK);
  const tri_json *root = tri_json_root(doc);
  int64_t i = 5;
  double d = 5;
  bool b = false;
  size_t len;
  ck_assert_int_eq(tri_json_kind_of(root), TRI_JSON_OBJECT);
  ck_assert_uint_eq(tri_json_size(root), 7);
  ck_assert(tri_json_get_int(root, "i", &i) && i == INT64_MIN);
  ck_assert(tri_json_as_num(tri_json_get(root, "i"), &d) && d == -0x1p63);
  i = 5, d = 5;
  ck_assert(!tri_json_get_int(root, "r", &i) && i == 5); /* no silent rounding */
  ck_assert(!tri_json_get_int(root, "s", &i) && !tri_json_get_int(root, "n", &i) && !tri_json_get_int(root, "?", &i));
  ck_assert(tri_json_as_num(tri_json_get(root, "r"), &d) && d == 0.5);
  ck_assert(tri_json_as_bool(tri_json_get(root, "b"), &b) && b);
  ck_assert(!tri_json_as_bool(tri_json_get(root, "i"), &b) && !tri_json_as_num(tri_json_get(root, "b"), &d) &&
            d == 0.5);
  ck_assert_ptr_null(tri_json_get_str(root, "i"));
  const char *s = tri_json_as_str(tri_json_get(root, "s"), &len);
  ck_assert_uint_eq(len, 5);
  ck_assert_ptr_null(tri_json_get_str(root, "s")); /* as a C string it would be "a" */
  ck_assert_mem_eq(s, "a\0b\xc3\xa9", 6);
  ck_assert_int_eq(tri_json_kind_of(tri_json_get(root, "n")), TRI_JSON_NULL);
  ck_assert_int_eq(tri_json_kind_of(NULL), TRI_JSON_NULL);
  const tri_json *a = tri_json_get(root, "a");
  ck_assert_uint_eq(tri_json_size(a), 2);
  ck_assert_str_eq(tri_json_as_str(tri_json_at(a, 1), NULL), "x");
  ck_assert_ptr_null(tri_json_at(a, 2));
  ck_assert_ptr_null(tri_json_at(root, 0)); /* no array */
  ck_assert_ptr_null(tri_json_get(a, "x")); /* no object */
  ck_assert_ptr_null(tri_json_get(NULL, "x"));
  ck_assert_ptr_null(tri_json_at(NULL, 0));
  ck_assert_uint_eq(tri_json_size(tri_json_get(root, "s")), 0);
  char seen[100] = "";
  ck_assert_int_eq(tri_json_each(tri_json_get(root, "o"), collect, seen), TRI_ABORTED);
  ck_assert_str_eq(seen, "z=1 y=2 x=3 "); /* the file's order, up to the one that said stop */
  seen[0] = '\0';
  ck_assert_int_eq(tri_json_each(a, collect, seen), TRI_OK); /* not an object: no members */
  ck_assert_str_eq(seen, "");
  tri_json_free(doc);
  tri_json_free(NULL);
}
END_TEST

START_TEST(json_files) {
  static const char path[] = TRI_TEST_SCRATCH "/base_json", text[] = "{\"a\":1}";
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  unlink(path);
  ck_assert_int_eq(tri_json_read_file(path, 100, &doc, &err), TRI_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(err.message, "base_json"));
  FILE *f = fopen(path, "w");
  ck_assert_ptr_nonnull(f);
  fputs(text, f);
  fclose(f);
  ck_assert_int_eq(tri_json_read_file(path, sizeof text - 2, &doc, NULL), TRI_TOO_LARGE);
  ck_assert_int_eq(tri_json_read_file(path, sizeof text - 1, &doc, NULL), TRI_OK);
  tri_json_free(doc);
  doc = NULL;
  tri_error_clear(&err);
  ck_assert_int_eq(truncate(path, 3), 0);
  ck_assert_int_eq(tri_json_read_file(path, 100, &doc, &err), TRI_CORRUPT);
  ck_assert_ptr_nonnull(strstr(err.message, "base_json")); /* says in which file */
  unlink(path);
  ck_assert_int_eq(tri_json_read_file(TRI_TEST_SCRATCH, 100, &doc, NULL), TRI_IO); /* a folder */
  ck_assert_int_eq(mkfifo(path, 0600), 0);
  ck_assert_int_eq(tri_json_read_file(path, 100, &doc, NULL), TRI_IO); /* a pipe without a writer must not hang us */
  unlink(path);
  ck_assert_ptr_null(doc);
}
END_TEST

/* A member is found without what follows it being read. */
START_TEST(one_member) {
  static const char text[] = " {\"a\" : [1,{\"b\":\"]}\\\"\"}],\"b\":\"x,\" , \"c\": {\"d\":2} ,\"e\":nonsense,";
  static const struct {
    const char *key, *value;
  } cases[] = {{"a", "[1,{\"b\":\"]}\\\"\"}]"},
               {"b", "\"x,\" "},
               {"c", "{\"d\":2} "},
               {"e", "nonsense"},
               {"d", NULL},
               {"", NULL}};
  size_t len;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *value = tri_json_find_member(text, sizeof text - 1, cases[i].key, &len);
    ck_assert_msg((value != NULL) == (cases[i].value != NULL), "%s", cases[i].key);
    if (value)
      ck_assert_msg(len == strlen(cases[i].value) && !memcmp(value, cases[i].value, len), "%.*s", (int)len, value);
  }
  for (size_t n = 0; n < sizeof text; n++) { /* of any beginning */
    const char *value = tri_json_find_member(text, n, "c", &len);
    ck_assert(!value || (value + len <= text + n));
  }
  ck_assert_ptr_null(tri_json_find_member("{\"a\":1}", 7, "b", &len));
  ck_assert_ptr_null(tri_json_find_member("[\"a\",1]", 7, "a", &len));
  ck_assert_ptr_null(tri_json_find_member("{}", 2, "a", &len));
}
END_TEST

/* ---- files of other programs ---- */

/* Reads a file of tests/data/published, and NULL where the folder has none. */
static tri_json_doc *published(const char *folder, const char *file) {
  char path[512];
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  snprintf(path, sizeof path, TRI_SOURCE "/tests/data/published/%s/%s", folder, file);
  tri_status st = tri_json_read_file(path, 1 << 20, &doc, &err);
  ck_assert_msg(st == TRI_OK || st == TRI_NOT_FOUND, "%s", err.message);
  return doc;
}

/* Folders as transformers 4 and 5 save them are read, each file of them. */
START_TEST(files_of_transformers) {
  static const char *const folders[] = {"v4-llama", "v4-qwen", "v4-mamba", "v5-llama"};
  static const char *const files[] = {"config.json", "generation_config.json", "tokenizer_config.json",
                                      "special_tokens_map.json"};
  int read = 0;
  size_t len;
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
      tri_json_doc *doc = published(folders[i], files[k]);
      read += doc != NULL;
      const char *most = tri_json_spelling(tri_json_get(tri_json_root(doc), "model_max_length"), &len);
      if (k == 2) ck_assert_str_eq(most, "1000000000000000019884624838656");
      tri_json_free(doc);
    }
  ck_assert_int_eq(read, 14);
}
END_TEST

/* The inner object's members count, and of the outer one's those that are kept and that the inner one lacks, and those
 * that go first. */
START_TEST(an_object_inside_instead) {
  static const char text[] = "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"f\":8,\"g\":null,"
                             "\"in\":{\"a\":5,\"b\":null,\"e\":6,\"f\":9,\"g\":10,\"in\":7}}";
  tri_json_doc *doc = NULL;
  int64_t a, b, e, f, g, in;
  ck_assert_int_eq(tri_json_parse(text, sizeof text - 1, &doc, NULL), TRI_OK);
  ck_assert_int_eq(tri_json_narrow(doc, "in", "a b d", "f g h"), TRI_OK);
  const tri_json *root = tri_json_root(doc);
  ck_assert(tri_json_as_int(tri_json_get(root, "a"), &a) && a == 5);
  ck_assert(tri_json_as_int(tri_json_get(root, "b"), &b) && b == 2);
  ck_assert(tri_json_as_int(tri_json_get(root, "e"), &e) && e == 6);
  ck_assert(tri_json_as_int(tri_json_get(root, "f"), &f) && f == 8);
  ck_assert(tri_json_as_int(tri_json_get(root, "g"), &g) && g == 10);
  ck_assert(tri_json_as_int(tri_json_get(root, "in"), &in) && in == 7);
  ck_assert(!tri_json_get(root, "c") && tri_json_get(root, "d") && tri_json_size(root) == 7);
  tri_json_free(doc);
}
END_TEST

Suite *suite_json(void) {
  Suite *s = suite_create("json");
  TCase *t = tcase_create("json");
  tcase_add_loop_test(t, malformed_json, 0, sizeof malformed / sizeof *malformed);
  tcase_add_loop_test(t, numbers_of_any_size, 0, sizeof numbers / sizeof *numbers);
  tcase_add_test(t, strings_beside_large_numbers);
  tcase_add_test(t, malformed_large_numbers);
  tcase_add_test(t, as_python);
  tcase_add_test(t, json_depth);
  tcase_add_test(t, json_getters);
  tcase_add_test(t, json_files);
  tcase_add_test(t, one_member);
  tcase_add_test(t, an_object_inside_instead);
  tcase_add_test(t, files_of_transformers);
  suite_add_tcase(s, t);
  return s;
}
