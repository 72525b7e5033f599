/* SPDX-License-Identifier: Apache-2.0 */
/* GBNF grammars and choices as networks: what may be answered, and what is refused with its line. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "runtime/grammar/choice.h"
#include "runtime/grammar/configurations.h"
#include "runtime/grammar/gbnf.h"

Suite *suite_grammar_gbnf(void);

static bool takes(const tri_net *net, const char *answer, size_t len) {
  tri_configs *c;
  ck_assert_int_eq(tri_configs_create(net, 64 << 20, &c), TRI_OK);
  uint32_t at = tri_configs_walk(c, tri_configs_begin(c), answer, len);
  bool whole = at && tri_configs_may_end(c, at);
  tri_configs_destroy(c);
  return whole;
}

typedef struct example {
  const char *grammar;
  const char *good[10], *bad[10];
} example;

static const example examples[] = {
    {"root ::= \"a\" \"b\"", {"ab"}, {"a", "abc", ""}},
    {"root ::= \"a\" | \"b\" |\n  \"c\"", {"a", "b", "c"}, {"ab", ""}},
    {"# nothing\n\nroot ::= x y # x, then y\n\nx ::= \"1\"\r\ny ::= \"2\"?\n", {"1", "12"}, {"2", "122"}},
    {"root ::= (\n \"a\"\n | \"b\" # or\n)+ \".\"\n", {"a.", "abba."}, {".", "ab"}},
    {"root ::= \"ab\"* [0-9]{2} [^x-z\\n]{1,} \"é\"{0,1}",
     {"12a", "abab99\xc3\xa9\xc3\xa9"},
     {"1a", "12", "12x", "12\n"}},
    {"root ::= .{3}", {"a\n\xf0\x9f\x98\x80"}, {"ab", "abcd", "ab\xff"}},
    {"root ::= [-a-] [a^] [\\x41\\u00e9\\U0001F600\\]\\t]",
     {"-aA", "a^\xc3\xa9", "-^\xf0\x9f\x98\x80", "-a]", "-a\t"},
     {"baA", "-bA", "-aB"}},
    {"root ::= \"\\\"\\\\\\n\\r\\x41\"", {"\"\\\n\rA"}, {"\"\\nrA"}},
    {"root ::= ( \"a\"{ 2 , 3 } )? \"\"", {"", "aa", "aaa"}, {"a", "aaaa"}},
    {"root ::= e\ne ::= e \"+\" t | e \"-\" t | t\nt ::= [0-9]+ | \"(\" e \")\"",
     {"1", "1+2-3", "(1-2)+(3)", "((12))"},
     {"", "+1", "1+", "(1", "1)"}},
    {"root ::= root \"a\" | \"b\" | root", {"b", "baaa"}, {"", "a", "bb"}},
    {"root ::= \"(\" root \")\" | \"\"", {"", "(())"}, {"(", "())"}},
    {"root ::= a-1 a_2\na-1 ::= \"x\"\na_2 ::= \"y\"", {"xy"}, {"x"}},
    {"root ::= [a-z]{5,1000}", {"abcde"}, {"abcd", "ABCDE"}},
    {"root ::= \"a\"+?", {"", "aa"}, {"b"}},
};

START_TEST(answers_fit) {
  const example *e = &examples[_i];
  tri_net *net;
  tri_error err = {0};
  tri_status st = tri_gbnf_compile(e->grammar, strlen(e->grammar), &net, &err);
  ck_assert_msg(st == TRI_OK, "%s: %s", e->grammar, err.message);
  for (int i = 0; i < 10 && e->good[i]; i++)
    ck_assert_msg(takes(net, e->good[i], strlen(e->good[i])), "%s: %s", e->grammar, e->good[i]);
  for (int i = 0; i < 10 && e->bad[i]; i++)
    ck_assert_msg(!takes(net, e->bad[i], strlen(e->bad[i])), "%s: %s", e->grammar, e->bad[i]);
  tri_net_destroy(net);
}
END_TEST

typedef struct refusal {
  const char *grammar;
  tri_status st;
  const char *message;
} refusal;

#define ROW "left recursion, where each rule may begin with the next one: "

static const refusal refusals[] = {
    {"", TRI_INVALID_ARGUMENT, "there is no rule root, with which answers begin"},
    {"a ::= \"b\"", TRI_INVALID_ARGUMENT, "there is no rule root, with which answers begin"},
    {"root ::= a\n\nb ::= \"x\"", TRI_INVALID_ARGUMENT, "line 1: there is no rule a"},
    {"root ::= \"a\"\nroot ::= \"b\"", TRI_INVALID_ARGUMENT, "line 2: the rule root is there twice"},
    {"root ::= a\na ::= b | \"x\"\nb ::= \"y\"? c\nc ::= a \"z\"", TRI_UNSUPPORTED, "line 1: " ROW "a, b, c, a"},
    {"root ::= \"x\"? root \"y\" | \"z\"", TRI_UNSUPPORTED, "line 1: " ROW "root, root"},
    {"root ::= root", TRI_INVALID_ARGUMENT, "nothing fits it"},
    {"root ::= \"a\" root", TRI_INVALID_ARGUMENT, "nothing fits it"},
    {"root = \"a\"", TRI_INVALID_ARGUMENT, "line 1: ::= must follow the name of a rule"},
    {"root ::= \"a", TRI_INVALID_ARGUMENT, "line 1: the text has no end"},
    {"root ::= [a", TRI_INVALID_ARGUMENT, "line 1: the class has no end"},
    {"root ::= [b-a]", TRI_INVALID_ARGUMENT, "line 1: a range ends before it begins"},
    {"root ::= (\n\"a\"\n", TRI_INVALID_ARGUMENT, "line 3: a group has no end"},
    {"root ::= \"a\" )", TRI_INVALID_ARGUMENT, "line 1: something that no rule can have"},
    {"root ::= * \"a\"", TRI_INVALID_ARGUMENT, "line 1: something that no rule can have"},
    {"root ::= \"\\q\"", TRI_INVALID_ARGUMENT, "line 1: an escape that is not known"},
    {"root ::= \"\\ud800\"", TRI_INVALID_ARGUMENT, "line 1: an escape that is no character"},
    {"root ::= \"\\x4\"", TRI_INVALID_ARGUMENT, "line 1: \\x, \\u and \\U need 2, 4 and 8 hexadecimal digits"},
    {"root ::= \"a\"{3,2}", TRI_INVALID_ARGUMENT, "line 1: the larger number of repetitions comes first"},
    {"root ::= \"a\"{,2}", TRI_INVALID_ARGUMENT, "line 1: a number must stand here"},
    {"root ::= \"a\"{2", TRI_INVALID_ARGUMENT, "line 1: a repetition has no }"},
    {"root ::= \"a\"{9999999999}", TRI_TOO_LARGE, "line 1: the number of repetitions is too large"},
    {"root ::= \"ab\"\nx ::= (\"cd\"){2000}", TRI_TOO_LARGE,
     "line 2: more than 1000 repetitions, where they become copies"},
    {"root ::= <think>", TRI_UNSUPPORTED, "line 1: tokens by name or number cannot be kept"},
    {"%llguidance {}\nstart: \"a\"", TRI_UNSUPPORTED, "line 1: a % begins something that is not GBNF"},
    {"root ::= \"a\xff\"", TRI_INVALID_ARGUMENT, "byte 12 is no UTF-8"},
};

START_TEST(what_cannot_be_kept_is_refused) {
  const refusal *r = &refusals[_i];
  tri_net *net;
  tri_error err = {0};
  tri_status st = tri_gbnf_compile(r->grammar, strlen(r->grammar), &net, &err);
  ck_assert_msg(st == r->st, "%s: %s: %s", r->grammar, tri_status_name(st), err.message);
  ck_assert_str_eq(err.message, r->message);
}
END_TEST

/* A rule of each name, every one the beginning of the next. */
START_TEST(many_rules_have_a_limit) {
  tri_buf b = {0};
  tri_net *net;
  tri_error err = {0};
  for (int i = 0; i < 9000; i++) tri_text_printf(&b, "r%d ::= r%d \"a\" | \"b\"\n", i, i + 1);
  tri_text_printf(&b, "r9000 ::= \"c\"\nroot ::= r8990\n");
  ck_assert_msg(tri_gbnf_compile(b.data, b.len, &net, &err) == TRI_OK, "%s", err.message);
  ck_assert(takes(net, "caaaaaaaaaa", 11));
  ck_assert(!takes(net, "caaaaaaaaaaa", 12));
  tri_net_destroy(net);
  for (int i = 0; i < 1001; i++) tri_text_printf(&b, "s%d ::= \"a\"\n", i);
  ck_assert_int_eq(tri_gbnf_compile(b.data, b.len, &net, &err), TRI_TOO_LARGE);
  ck_assert_ptr_nonnull(strstr(err.message, "more than 10000 rules"));
  tri_buf_free(&b);
}
END_TEST

/* ---- choices ---- */

enum { CHOICES = 300 };

START_TEST(choices_are_their_texts) {
  static char texts[CHOICES][8];
  tri_choice_text list[CHOICES];
  tri_net *net;
  uint64_t seed = 5;
  for (int i = 0; i < CHOICES; i++) {
    size_t len = tri_splitmix64(&seed) % 7;
    for (size_t k = 0; k < len; k++) texts[i][k] = "ab\xc3\xa9"[tri_splitmix64(&seed) % 4];
    list[i] = (tri_choice_text){texts[i], len};
  }
  ck_assert_int_eq(tri_choice_compile(list, CHOICES, &net, NULL), TRI_OK);
  for (int n = 0; n < 4000; n++) {
    char text[8] = "";
    bool is_there = false;
    size_t len = tri_splitmix64(&seed) % 7;
    for (size_t k = 0; k < len; k++) text[k] = "ab\xc3\xa9"[tri_splitmix64(&seed) % 4];
    for (int i = 0; i < CHOICES; i++) is_there = is_there || (list[i].len == len && !memcmp(texts[i], text, len));
    if (takes(net, text, len) != is_there) ck_abort_msg("%s: %d", text, is_there);
  }
  tri_net_destroy(net);
}
END_TEST

START_TEST(choices_have_limits) {
  static tri_choice_text list[TRI_CHOICE_MAX + 1];
  static char text[TRI_NET_MAX_STATES];
  tri_net *net;
  tri_error err = {0};
  memset(text, 'x', sizeof text);
  for (int i = 0; i <= TRI_CHOICE_MAX; i++) list[i] = (tri_choice_text){text, 3};
  ck_assert_int_eq(tri_choice_compile(list, 0, &net, NULL), TRI_INVALID_ARGUMENT);
  ck_assert_int_eq(tri_choice_compile(list, TRI_CHOICE_MAX + 1, &net, &err), TRI_TOO_LARGE);
  ck_assert_str_eq(err.message, "10001 texts to choose from, more than 10000");
  ck_assert_int_eq(tri_choice_compile(list, TRI_CHOICE_MAX, &net, NULL), TRI_OK);
  ck_assert(takes(net, "xxx", 3));
  tri_net_destroy(net);
  list[0].len = sizeof text;
  ck_assert_int_eq(tri_choice_compile(list, 1, &net, NULL), TRI_TOO_LARGE);
}
END_TEST

#define LOOP(tests, list) tcase_add_loop_test(c, tests, 0, (int)(sizeof list / sizeof *list))

Suite *suite_grammar_gbnf(void) {
  Suite *s = suite_create("grammar_gbnf");
  TCase *c = tcase_create("all");
  tcase_set_timeout(c, 60);
  LOOP(answers_fit, examples);
  LOOP(what_cannot_be_kept_is_refused, refusals);
  tcase_add_test(c, many_rules_have_a_limit);
  tcase_add_test(c, choices_are_their_texts);
  tcase_add_test(c, choices_have_limits);
  suite_add_tcase(s, c);
  return s;
}
