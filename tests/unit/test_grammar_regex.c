/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions as networks: examples, refusals with their place, and random ones against the C library's own
 * (POSIX extended), as whole answers and as patterns of strings of JSON, with lengths beside them. */
#include <check.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json/json_writer.h"
#include "base/text.h"
#include "runtime/grammar/configurations.h"
#include "runtime/grammar/regex.h"
#include "runtime/grammar/schema.h"
#include "runtime/grammar/text_states.h"

Suite *suite_grammar_regex(void);

static bool takes(tri_configs *c, const char *answer) {
  uint32_t at = tri_configs_walk(c, tri_configs_begin(c), answer, strlen(answer));
  return at && tri_configs_may_end(c, at);
}

/* The schema of a string with a pattern, and lengths where they are not negative. */
static tri_status compile_pattern(const char *pattern, int least, int most, tri_net **net, tri_error *err) {
  tri_buf text = {0};
  tri_json_doc *doc;
  tri_text_printf(&text, "{\"type\":\"string\",\"pattern\":");
  tri_json_add_string(&text, pattern, strlen(pattern));
  if (least >= 0) tri_text_printf(&text, ",\"minLength\":%d", least);
  if (most >= 0) tri_text_printf(&text, ",\"maxLength\":%d", most);
  tri_text_printf(&text, "}");
  ck_assert_int_eq(tri_json_parse(text.data, text.len, &doc, err), TRI_OK);
  tri_status st = tri_schema_compile(tri_json_root(doc), NULL, net, err);
  tri_json_free(doc);
  tri_buf_free(&text);
  return st;
}

/* ---- examples ---- */

typedef struct example {
  const char *regex;
  const char *good[10], *bad[12];
} example;

static const example whole[] = {
    {"", {""}, {"a"}},
    {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
    {"^abc$", {"abc"}, {"ab", "abcd"}},
    {"a|b|", {"a", "b", ""}, {"ab", "c"}},
    {"(?:ab|c)+d?", {"ab", "c", "abc", "cabd"}, {"", "d", "abd0"}},
    {"(?<year>\\d{4})-(\\d\\d)", {"2026-11"}, {"2026-1", "26-11", "2026-111"}},
    {"[a-c]{2,3}", {"ab", "abc", "ccc"}, {"a", "abcd", "abd"}},
    {"x{3}", {"xxx"}, {"xx", "xxxx"}},
    {"x{3,}", {"xxx", "xxxxxxx"}, {"xx", "xxxy"}},
    {"x{10,12}", {"xxxxxxxxxx", "xxxxxxxxxxxx"}, {"xxxxxxxxx", "xxxxxxxxxxxxx"}},
    {"(ab){0}c", {"c"}, {"abc"}},
    {"x{0,0}", {""}, {"x"}},
    {"a*?b+?c??", {"b", "aabbc"}, {"a", "ac"}},
    {".", {"a", "\xc3\xa9", "\xf0\x9f\x98\x80", "\t"}, {"\n", "\r", "\xe2\x80\xa8", "", "ab", "\x80"}},
    {"[^a]",
     {"b", "\n", "\xed\x9f\xbf", "\xee\x80\x80", "\xf4\x8f\xbf\xbf"},
     {"a", "\xed\xa0\x80", "\xf4\x90\x80\x80"}},
    {"[\\w-]+", {"a_B-9"}, {" ", "\xc3\xa9"}},
    {"[\\w-.]+", {"a-b.c"}, {"a b"}},
    {"[a\\-z]+", {"a-z"}, {"b"}},
    {"[]", {NULL}, {"", "a"}},
    {"[]|a", {"a"}, {"", "]"}},
    {"[^]", {"a", "\n", "]"}, {"", "ab"}},
    {"\\d\\D\\w\\W\\s\\S", {"1a_- x", "0\xc3\xa9Z\xc3\xa9\xc2\xa0y"}, {"1a-- x", "123456"}},
    {"\\u00e9\\u{1F600}\\uD83D\\uDE00\\x41\\cJ\\0?",
     {"\xc3\xa9\xf0\x9f\x98\x80\xf0\x9f\x98\x80"
      "A\n"},
     {"\xc3\xa9"}},
    {"\\t\\n\\v\\f\\r\\.\\*\\/\\-\\ ", {"\t\n\v\f\r.*/- "}, {"tnvfr.*/- "}},
    {"{\"a\": ?[0-9]}", {"{\"a\": 1}", "{\"a\":1}"}, {"{\"a\":}"}},
    {"a{,}b]", {"a{,}b]"}, {"b]"}},
    {"\\p{Lu}\\p{Letter}*\\P{L}", {"\xc3\x89t\xc3\xa9.", "A1"}, {"\xc3\xa9.", "AA"}},
    {"[\\p{Nd}\\p{gc=Sc}x]+", {"1x$\xe2\x82\xac\xd9\xa3"}, {"y", "\xc2\xb2"}},
    {"(^|,)a($|;)", {"a", ",a;", "a;", ",a"}, {",", "a,"}},
    {"(?:(^a)|b)c", {"ac", "bc"}, {"c"}},
    {"(a*)*b", {"b", "aaab"}, {"a", "ba"}},
    {"(a{0,6}){3}b", {"b", "aaaaaaaaaaaaaaaaaab"}, {"aaaaaaaaaaaaaaaaaaab"}},
    {"[\xc3\xa9-\xc3\xaf]{5,9}", {"\xc3\xa9\xc3\xaa\xc3\xab\xc3\xac\xc3\xaf"}, {"\xc3\xa9\xc3\xaa\xc3\xab\xc3\xac"}},
};

START_TEST(answers_match) {
  const example *e = &whole[_i];
  tri_net *net;
  tri_configs *c;
  tri_error err = {0};
  tri_status st = tri_regex_compile(e->regex, strlen(e->regex), &net, &err);
  if (!e->good[0]) {
    ck_assert_int_eq(st, TRI_INVALID_ARGUMENT);
    ck_assert_str_eq(err.message, "nothing fits it");
    return;
  }
  ck_assert_msg(st == TRI_OK, "%s: %s", e->regex, err.message);
  ck_assert_int_eq(tri_configs_create(net, 64 << 20, &c), TRI_OK);
  for (int i = 0; i < 10 && e->good[i]; i++) ck_assert_msg(takes(c, e->good[i]), "%s: %s", e->regex, e->good[i]);
  for (int i = 0; i < 12 && e->bad[i]; i++) ck_assert_msg(!takes(c, e->bad[i]), "%s: %s", e->regex, e->bad[i]);
  tri_configs_destroy(c);
  tri_net_destroy(net);
}
END_TEST

typedef struct in_string {
  const char *regex;
  int least, most;
  const char *good[10], *bad[12];
} in_string;

static const in_string strings[] = {
    {"b",
     -1,
     -1,
     {"\"b\"", "\"abc\"",
      "\"\\n\xc3\xa9"
      "b\\u0001\""},
     {"\"\"", "\"a\"", "b"}},
    {"", -1, -1, {"\"\"", "\"x\\\"\""}, {"\"", "\"\\x\""}},
    {"^a", -1, -1, {"\"a\"", "\"abc\""}, {"\"ba\"", "\"\""}},
    {"a$", -1, -1, {"\"a\"", "\"bca\""}, {"\"ab\"", "\"a\\n\""}},
    {"^a|b$", -1, -1, {"\"axx\"", "\"xxb\"", "\"ab\""}, {"\"xax\"", "\"bx\""}},
    {"^(a|b)$", -1, -1, {"\"a\"", "\"b\""}, {"\"ab\"", "\"ac\""}},
    {"(^|/)x(/|$)", -1, -1, {"\"x\"", "\"a/x/b\"", "\"a/x\""}, {"\"ax\"", "\"xb\""}},
    {"^[^b]*$",
     -1,
     -1,
     {"\"\\\"\\\\\\n\\u0000\\u001f\xc3\xa9\"", "\"\""},
     {"\"b\"", "\"\\/\"", "\"\\u0041\"", "\"\n\"", "\"\\u000a\"", "\"\\u001F\"", "\"\\u0022\""}},
    {"^[\\x00-\\x1f]$",
     -1,
     -1,
     {"\"\\u0000\"", "\"\\b\"", "\"\\t\"", "\"\\u000b\"", "\"\\u001e\""},
     {"\"\\u0008\"", "\"\\u0020\"", "\" \"", "\"\\\"\""}},
    {"^\\\"\\\\$", -1, -1, {"\"\\\"\\\\\""}, {"\"\"\\\"", "\"\\\\\""}},
    {"^\\u0001\\t$", -1, -1, {"\"\\u0001\\t\""}, {"\"\x01\t\""}},
    {"^\\S+ \\S+$", 0, 9, {"\"a b\"", "\"abcd efgh\""}, {"\"abcd efghi\"", "\"ab\""}},
    {"^[a-z]{1,10}$", 3, 5, {"\"abc\"", "\"abcde\""}, {"\"ab\"", "\"abcdef\""}},
    {"^[a-z]{2,4}$", 1, 100, {"\"ab\"", "\"abcd\""}, {"\"a\"", "\"abcde\""}},
    {"^(aaa)*$", 4, 7, {"\"aaaaaa\""}, {"\"aaa\"", "\"aaaaaaaaa\"", "\"\""}},
    {"b", 2, 3, {"\"bx\"", "\"xb\"", "\"xxb\"", "\"\\nb\xc3\xa9\""}, {"\"b\"", "\"xxxb\"", "\"bxxx\"", "\"xxx\""}},
    {"^a+$", 3, -1, {"\"aaa\"", "\"aaaaaaa\""}, {"\"aa\"", "\"aaab\""}},
    {"^a*$", 0, 0, {"\"\""}, {"\"a\""}},
    {"a*", 0, 0, {"\"\""}, {"\"a\""}},
};

START_TEST(strings_match) {
  const in_string *e = &strings[_i];
  tri_net *net;
  tri_configs *c;
  tri_error err = {0};
  tri_status st = compile_pattern(e->regex, e->least, e->most, &net, &err);
  ck_assert_msg(st == TRI_OK, "%s: %s %s", e->regex, err.field, err.message);
  ck_assert_int_eq(tri_configs_create(net, 64 << 20, &c), TRI_OK);
  for (int i = 0; i < 10 && e->good[i]; i++) ck_assert_msg(takes(c, e->good[i]), "%s: %s", e->regex, e->good[i]);
  for (int i = 0; i < 12 && e->bad[i]; i++) ck_assert_msg(!takes(c, e->bad[i]), "%s: %s", e->regex, e->bad[i]);
  tri_configs_destroy(c);
  tri_net_destroy(net);
}
END_TEST

/* ---- refusals ---- */

typedef struct refusal {
  const char *regex;
  tri_status st;
  const char *message;
} refusal;

static const refusal refusals[] = {
    {"ab(?=c)", TRI_UNSUPPORTED, "character 3: lookaround cannot be kept"},
    {"(?<!a)b", TRI_UNSUPPORTED, "character 1: lookaround cannot be kept"},
    {"(a)\\1", TRI_UNSUPPORTED, "character 4: references to groups cannot be kept"},
    {"\\k<a>", TRI_UNSUPPORTED, "character 1: references to groups cannot be kept"},
    {"a\\b", TRI_UNSUPPORTED, "character 2: \\b and \\B cannot be kept"},
    {"(?i)a", TRI_UNSUPPORTED, "character 1: only (...), (?:...) and (?<name>...) are kept"},
    {"a^b", TRI_UNSUPPORTED, "character 2: ^ is kept at the beginning of an alternative alone"},
    {"(a$)?b", TRI_UNSUPPORTED, "character 3: $ is kept at the end of an alternative alone"},
    {"\xc3\xa9(", TRI_INVALID_ARGUMENT, "character 2: the group has no end"},
    {"a)", TRI_INVALID_ARGUMENT, "character 2: a parenthesis that closes no group"},
    {"[a", TRI_INVALID_ARGUMENT, "character 1: the class has no end"},
    {"[z-a]", TRI_INVALID_ARGUMENT, "character 2: the range ends before it begins"},
    {"*a", TRI_INVALID_ARGUMENT, "character 1: there is nothing to repeat"},
    {"a|{2}", TRI_INVALID_ARGUMENT, "character 3: there is nothing to repeat"},
    {"a**", TRI_INVALID_ARGUMENT, "character 3: there is nothing to repeat"},
    {"a{3,2}", TRI_INVALID_ARGUMENT, "character 2: the larger number comes first"},
    {"a{,2}", TRI_UNSUPPORTED, "character 2: {,n} must be written as {0,n}"},
    {"a{99999999999}", TRI_TOO_LARGE, "character 2: the number of repetitions is too large"},
    {"a{2000000000}", TRI_TOO_LARGE, "character 2: more than 1073741824 repetitions"},
    {"(ab){1001}", TRI_TOO_LARGE, "character 5: more than 1000 repetitions, where they become copies"},
    {"^*", TRI_INVALID_ARGUMENT, "character 2: ^ and $ cannot be repeated"},
    {"\\", TRI_INVALID_ARGUMENT, "character 1: nothing follows the backslash"},
    {"\\a", TRI_INVALID_ARGUMENT, "character 1: an escape that is not known"},
    {"\\xg0", TRI_INVALID_ARGUMENT, "character 1: \\x needs two hexadecimal digits"},
    {"\\ud83d", TRI_INVALID_ARGUMENT, "character 1: a surrogate is no character"},
    {"\\u{110000}", TRI_INVALID_ARGUMENT, "character 1: \\u{...} needs a code point up to 10FFFF"},
    {"\\p{Greek}", TRI_UNSUPPORTED,
     "character 1: \\p{Greek}: only general categories are known, Any, ASCII and Assigned"},
    {"\\pL", TRI_INVALID_ARGUMENT, "character 1: \\p needs a name in braces"},
    {"a\xff", TRI_INVALID_ARGUMENT, "byte 2 is no UTF-8"},
};

START_TEST(what_cannot_be_kept_is_refused) {
  const refusal *r = &refusals[_i];
  tri_net *net;
  tri_error err = {0};
  tri_status st = tri_regex_compile(r->regex, strlen(r->regex), &net, &err);
  ck_assert_msg(st == r->st, "%s: %s: %s", r->regex, tri_status_name(st), err.message);
  ck_assert_str_eq(err.message, r->message);
}
END_TEST

START_TEST(patterns_are_refused_with_the_pointer) {
  static const struct {
    const char *schema, *field, *words;
  } all[] = {
      {"{\"items\":{\"pattern\":\"a\\\\b\"}}", "/items/pattern", "character 2: \\b and \\B"},
      {"{\"pattern\":1}", "/pattern", "must be a text"},
      {"{\"format\":1}", "/format", "must be a text"},
      {"{\"format\":\"iri\"}", "/format", "the format iri cannot be kept"},
      {"{\"allOf\":[{\"pattern\":\"a\"},{\"pattern\":\"b\"}]}", "/allOf/1/pattern", "beside another pattern or format"},
      {"{\"pattern\":\"a\",\"format\":\"date\"}", "/format", "beside another pattern or format"},
      {"{\"enum\":[\"a\"],\"pattern\":\"a\"}", "/pattern", "beside enum or const"},
      {"{\"const\":\"a\",\"format\":\"date\"}", "/format", "beside enum or const"},
      {"{\"type\":\"string\",\"pattern\":\"^(ab)*c$\",\"maxLength\":20000}", "/pattern", "lengths of more than"},
      {"{\"type\":\"string\",\"pattern\":\"^a{5}$\",\"maxLength\":4}", "", "nothing fits"},
      {"{\"type\":\"string\",\"pattern\":\"^(aa)*$\",\"minLength\":3,\"maxLength\":3}", "", "nothing fits"},
      {"{\"type\":\"string\",\"pattern\":\"^[]$\"}", "", "nothing fits"},
      {"{\"type\":\"string\",\"pattern\":\"^((a{0,9}b){0,99}c){0,999}$\",\"maxLength\":15000}", "/pattern",
       "takes too long to compile"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    tri_json_doc *doc;
    tri_net *net;
    tri_error err = {0};
    ck_assert_int_eq(tri_json_parse(all[i].schema, strlen(all[i].schema), &doc, &err), TRI_OK);
    ck_assert_int_ne(tri_schema_compile(tri_json_root(doc), NULL, &net, &err), TRI_OK);
    tri_json_free(doc);
    ck_assert_msg(!strcmp(err.field, all[i].field) && strstr(err.message, all[i].words), "%s: %s: %s", all[i].schema,
                  err.field, err.message);
  }
}
END_TEST

/* Nests of repetitions, and as many classes of letters as fit. */
START_TEST(sizes_have_limits) {
  static const char *const large[] = {"((a|bc){900}d){900}", "(((a{0,99}b){0,99}c){0,99}d){0,99}",
                                      "((((((((((a?){9}){9}){9}){9}){9}){9}){9}){9}){9}){9}"};
  tri_net *net;
  tri_buf text = {0};
  for (size_t i = 0; i < sizeof large / sizeof *large; i++)
    ck_assert_int_eq(tri_regex_compile(large[i], strlen(large[i]), &net, NULL), TRI_TOO_LARGE);
  tri_text_add(&text, "[", 1);
  for (int i = 0; i < 9000; i++) tri_text_add(&text, "\\p{L}", 5);
  tri_text_add(&text, "]", 1);
  ck_assert_int_eq(tri_regex_compile(text.data, text.len, &net, NULL), TRI_TOO_LARGE);
  tri_buf_free(&text);
  for (int i = 0; i < 200; i++) tri_text_add(&text, "(", 1);
  ck_assert_int_eq(tri_regex_compile(text.data, text.len, &net, NULL), TRI_TOO_LARGE);
  tri_buf_free(&text);
}
END_TEST

/* ---- random expressions ---- */

/* Writes an expression over a, b and c that POSIX and ECMA-262 read alike. */
static void write_random(tri_buf *b, uint64_t *seed, int depth) {
  static const char *const atoms[] = {"a", "b", "c", "a", "b", ".", "[ab]", "[^a]", "[b-c]"};
  static const char *const times[] = {"", "", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "{5,6}"};
  int parts = 1 + (int)(tri_splitmix64(seed) % 3);
  for (int i = 0; i < parts; i++) {
    bool is_group = depth && tri_splitmix64(seed) % 3 == 0;
    if (is_group) {
      tri_text_add(b, "(", 1);
      write_random(b, seed, depth - 1);
      if (tri_splitmix64(seed) % 2) {
        tri_text_add(b, "|", 1);
        write_random(b, seed, depth - 1);
      }
      tri_text_add(b, ")", 1);
    } else {
      const char *atom = atoms[tri_splitmix64(seed) % (sizeof atoms / sizeof *atoms)];
      tri_text_add(b, atom, strlen(atom));
    }
    const char *own = times[tri_splitmix64(seed) % (sizeof times / sizeof *times)];
    tri_text_add(b, own, strlen(own));
  }
}

enum { LONGEST = 6, TEXTS = 1093 }; /* 3^0 + ... + 3^6 */
static char texts[TEXTS][LONGEST + 1];

/* All texts over a, b and c, the shorter first: those of text i with one letter more are i * 3 + 1 to i * 3 + 3. */
static void list_texts(void) {
  for (int i = 1; i < TEXTS; i++) {
    size_t len = strlen(texts[(i - 1) / 3]);
    memcpy(texts[i], texts[(i - 1) / 3], len);
    texts[i][len] = "abc"[(i - 1) % 3];
    texts[i][len + 1] = 0;
  }
}

static void match_all(const char *regex, bool *matches) {
  regex_t r;
  ck_assert_msg(!regcomp(&r, regex, REG_EXTENDED | REG_NOSUB), "%s", regex);
  for (int i = 0; i < TEXTS; i++) matches[i] = !regexec(&r, texts[i], 0, NULL, 0);
  regfree(&r);
}

enum { RANDOM = 250 };

START_TEST(whole_answers_are_those_of_posix) {
  uint64_t seed = (uint64_t)_i * 1000;
  list_texts();
  for (int n = 0; n < RANDOM; n++) {
    bool matches[TEXTS];
    tri_buf own = {0}, posix = {0};
    tri_net *net;
    tri_configs *c;
    tri_error err = {0};
    write_random(&own, &seed, 2);
    tri_text_printf(&posix, "^(%s)$", own.data);
    match_all(posix.data, matches);
    ck_assert_msg(tri_regex_compile(own.data, own.len, &net, &err) == TRI_OK, "%s: %s", own.data, err.message);
    ck_assert_int_eq(tri_configs_create(net, 64 << 20, &c), TRI_OK);
    for (int i = 0; i < TEXTS; i++)
      if (takes(c, texts[i]) != matches[i]) ck_abort_msg("%s: %s: POSIX says %d", own.data, texts[i], matches[i]);
    tri_configs_destroy(c);
    tri_net_destroy(net);
    tri_buf_free(&own);
    tri_buf_free(&posix);
  }
}
END_TEST

/* Whatever begins an answer can be ended: as there are at most LONGEST characters, by one of the texts. */
static void check_beginnings(tri_configs *c, const char *regex, const bool *matches, int most) {
  bool goes_on[TEXTS];
  for (int i = TEXTS - 1; i >= 0; i--) {
    char text[LONGEST + 2];
    goes_on[i] = matches[i];
    for (int k = 1; k <= 3 && 3 * i + k < TEXTS; k++) goes_on[i] = goes_on[i] || goes_on[3 * i + k];
    int len = snprintf(text, sizeof text, "\"%.6s", texts[i]);
    bool own = tri_configs_walk(c, tri_configs_begin(c), text, (size_t)len) != 0;
    if (own != goes_on[i]) ck_abort_msg("%s with %d at most: '%s' goes on: %d", regex, most, texts[i], own);
  }
}

static void check_pattern(const char *regex, int least, int most) {
  bool matches[TEXTS], any = false;
  tri_net *net;
  tri_configs *c;
  tri_error err = {0};
  match_all(regex, matches);
  for (int i = 0; i < TEXTS; i++) {
    int len = (int)strlen(texts[i]);
    matches[i] = matches[i] && len >= least && (most < 0 || len <= most);
    any = any || matches[i];
  }
  tri_status st = compile_pattern(regex, least, most, &net, &err);
  if (!any && (most >= 0 || st != TRI_OK)) { /* without a limit longer ones may fit */
    ck_assert_msg(st == TRI_INVALID_ARGUMENT, "%s, %d to %d: something fits", regex, least, most);
    return;
  }
  ck_assert_msg(st == TRI_OK, "%s, %d to %d: %s", regex, least, most, err.message);
  ck_assert_int_eq(tri_configs_create(net, 64 << 20, &c), TRI_OK);
  for (int i = 0; i < TEXTS; i++) {
    char text[LONGEST + 3];
    snprintf(text, sizeof text, "\"%.6s\"", texts[i]);
    if (takes(c, text) != matches[i])
      ck_abort_msg("%s, %d to %d: %s: POSIX says %d", regex, least, most, text, matches[i]);
  }
  if (most >= 0) check_beginnings(c, regex, matches, most);
  tri_configs_destroy(c);
  tri_net_destroy(net);
}

START_TEST(strings_are_those_of_posix) {
  uint64_t seed = (uint64_t)_i * 777 + 3;
  list_texts();
  for (int n = 0; n < RANDOM; n++) {
    tri_buf own = {0};
    int ways = 1 + (int)(tri_splitmix64(&seed) % 2);
    for (int i = 0; i < ways; i++) {
      uint64_t anchors = tri_splitmix64(&seed);
      if (i) tri_text_add(&own, "|", 1);
      if (anchors & 1) tri_text_add(&own, "^", 1);
      write_random(&own, &seed, 1);
      if (anchors & 2) tri_text_add(&own, "$", 1);
    }
    int least = (int)(tri_splitmix64(&seed) % 5) - 1, most = (int)(tri_splitmix64(&seed) % (LONGEST + 1));
    check_pattern(own.data, -1, -1);
    check_pattern(own.data, least, least < 0 && most % 2 ? -1 : most < least ? least : most);
    check_pattern(own.data, least, -1);
    tri_buf_free(&own);
  }
}
END_TEST

/* ---- characters one by one ---- */

typedef bool is_in(uint32_t c);
static bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000 || c == 0xfeff;
}
static bool is_no_space(uint32_t c) { return !is_space(c); }
static bool is_word(uint32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || c == '_' || (c >= 'a' && c <= 'z');
}
static bool is_no_word(uint32_t c) { return !is_word(c); }
static bool is_dot(uint32_t c) { return c != '\n' && c != '\r' && c != 0x2028 && c != 0x2029; }
static bool is_some(uint32_t c) {
  return (c >= 0x10 && c <= 0x22) || (c >= 0x5b && c <= 0x85) || (c >= 0x7fe && c <= 0x801) ||
         (c >= 0xd7f0 && c <= 0xe010) || (c >= 0xfff0 && c <= 0x10010) || c == 0x10ffff;
}
static bool is_none_of_some(uint32_t c) { return !is_some(c); }
#define SOME "\\x10-\\x22\\u005b-\\u0085\\u07fe-\\u0801\\ud7f0-\\ue010\\ufff0-\\u{10010}\\u{10ffff}"

static const struct {
  const char *regex;
  is_in *is_in;
} classes[] = {
    {"^\\s$", is_space}, {"^\\S$", is_no_space},    {"^[\\s]$", is_space},
    {"^\\w$", is_word},  {"^[^\\w]$", is_no_word},  {"^\\W$", is_no_word},
    {"^.$", is_dot},     {"^[" SOME "]$", is_some}, {"^[^" SOME "]$", is_none_of_some},
};

START_TEST(classes_have_their_characters) {
  tri_net *net, *in_json;
  tri_configs *c, *j;
  tri_error err = {0};
  const char *regex = classes[_i].regex;
  ck_assert_int_eq(tri_regex_compile(regex, strlen(regex), &net, &err), TRI_OK);
  ck_assert_int_eq(compile_pattern(regex, -1, -1, &in_json, &err), TRI_OK);
  ck_assert_int_eq(tri_configs_create(net, 256 << 20, &c), TRI_OK);
  ck_assert_int_eq(tri_configs_create(in_json, 256 << 20, &j), TRI_OK);
  for (uint32_t p = 0; p <= 0x10ffff; p += p < 0x11000 ? 1 : 97) {
    char text[8] = "\"";
    if (p >= 0xd800 && p < 0xe000) continue;
    int len = tri_text_spell(p, text + 1);
    text[len + 1] = '"';
    uint32_t at = tri_configs_walk(j, tri_configs_begin(j), text, (size_t)len + 2);
    if ((at && tri_configs_may_end(j, at)) != classes[_i].is_in(p)) ck_abort_msg("%s: U+%04X in a string", regex, p);
    if (p < 0x80) text[1] = (char)p;
    at = tri_configs_walk(c, tri_configs_begin(c), text + 1, p < 0x80 ? 1 : (size_t)len);
    if ((at && tri_configs_may_end(c, at)) != classes[_i].is_in(p)) ck_abort_msg("%s: U+%04X", regex, p);
  }
  tri_configs_destroy(c);
  tri_configs_destroy(j);
  tri_net_destroy(net);
  tri_net_destroy(in_json);
}
END_TEST

#define LOOP(tests, list) tcase_add_loop_test(c, tests, 0, (int)(sizeof list / sizeof *list))

Suite *suite_grammar_regex(void) {
  Suite *s = suite_create("grammar_regex");
  TCase *c = tcase_create("all");
  tcase_set_timeout(c, 120);
  LOOP(answers_match, whole);
  LOOP(strings_match, strings);
  LOOP(what_cannot_be_kept_is_refused, refusals);
  tcase_add_test(c, patterns_are_refused_with_the_pointer);
  tcase_add_test(c, sizes_have_limits);
  tcase_add_loop_test(c, whole_answers_are_those_of_posix, 0, 4);
  tcase_add_loop_test(c, strings_are_those_of_posix, 0, 4);
  LOOP(classes_have_their_characters, classes);
  suite_add_tcase(s, c);
  return s;
}
