/* SPDX-License-Identifier: Apache-2.0 */
/* Two texts with the template for pairs. The expected ids and types are those of Hugging Face's tokenizers 0.23. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/tokenizer.h"

Suite *suite_tokenizer_pairs(void);

enum { MAX_IDS = 64 };
static const char text[] = "How many people live in Berlin?", pair[] = "Berlin has 3.7 million inhabitants.";

static const struct expected {
  const char *folder;
  uint32_t ids[MAX_IDS]; /* 0: the end */
  size_t second;         /* counted from 1 */
} files[] = {
    {"wordpiece_bert",
     {2,   1537, 2443, 2122, 271, 192, 1003, 269, 188, 293, 1250, 172, 35,  3,   293, 1250,
      172, 460,  23,   18,   27,  55,  350,  194, 188, 157, 272,  183, 628, 138, 18,  3},
     15},
    {"unigram_t5",
     {312, 262, 3,  803, 90, 3,   723, 63, 31,  161, 3,   69, 249, 42, 207, 41,  69,  92, 448,
      1,   207, 41, 69,  92, 426, 727, 81, 191, 777, 159, 42, 624, 39, 109, 437, 139, 1},
     0},
    {"spm_bpe_metaspace_first",
     {1,   358, 301, 340, 1464, 338,  916, 500, 456, 499, 470, 658, 443, 295, 375, 516, 292, 1,   358,
      295, 375, 337, 443, 1206, 1731, 284, 358, 338, 465, 470, 482, 364, 333, 462, 417, 384, 345, 420},
     0},
};

static void check(const tri_tokenizer *t, const struct expected *x) {
  tri_tokenizer_scratch *s = NULL;
  const uint32_t *ids;
  size_t n, second = 99;
  ck_assert(tri_tokenizer_has_pairs(t));
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_encode_pair(t, s, text, strlen(text), pair, strlen(pair), 0, &ids, &n, &second),
                   TRI_OK);
  for (size_t i = 0; i < n; i++) ck_assert_msg(ids[i] == x->ids[i], "%s: id %zu is %u", x->folder, i, ids[i]);
  ck_assert_uint_eq(x->ids[n], 0);
  ck_assert_uint_eq(second, x->second);
  /* as many as there are, and one fewer */
  ck_assert_int_eq(tri_tokenizer_encode_pair(t, s, text, strlen(text), pair, strlen(pair), n, &ids, &n, &second),
                   TRI_OK);
  ck_assert_int_eq(tri_tokenizer_encode_pair(t, s, text, strlen(text), pair, strlen(pair), n - 1, &ids, &n, &second),
                   TRI_TOO_LARGE);
  tri_tokenizer_scratch_destroy(s);
}

START_TEST(test_files) {
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char path[500];
    tri_tokenizer *t = NULL;
    tri_error err = {0};
    snprintf(path, sizeof path, "%s/tokenizers/%s/tokenizer.json", TRI_TEST_DATA, files[i].folder);
    ck_assert_msg(tri_tokenizer_load(path, &t, &err) == TRI_OK, "%s", err.message);
    check(t, &files[i]);
    tri_tokenizer_destroy(t);
  }
}
END_TEST

/* A vocabulary of three words and two special tokens, with a post-processor. */
static tri_tokenizer *tiny(const char *post_processor) {
  static const char form[] =
      "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
      "\"rstrip\":false,\"normalized\":false},{\"id\":1,\"content\":\"</s>\",\"special\":true,\"single_word\":false,"
      "\"lstrip\":false,\"rstrip\":false,\"normalized\":false}],\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},"
      "\"post_processor\":%s,\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"<s>\",\"continuing_subword_prefix\":"
      "\"##\",\"max_input_chars_per_word\":100,\"vocab\":{\"<s>\":0,\"</s>\":1,\"a\":2,\"b\":3,\"c\":4}}}";
  char json[4000];
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  snprintf(json, sizeof json, form, post_processor);
  ck_assert_msg(tri_tokenizer_parse(json, strlen(json), &t, &err) == TRI_OK, "%s: %s", err.field, err.message);
  return t;
}

#define SPECIALS                                                                                                       \
  "\"special_tokens\":{\"S\":{\"id\":\"S\",\"ids\":[0],\"tokens\":[\"<s>\"]},\"E\":{\"id\":\"E\",\"ids\":[1],"         \
  "\"tokens\":[\"</s>\"]}}"
#define S(t) "{\"SpecialToken\":{\"id\":\"S\",\"type_id\":" #t "}}"
#define E(t) "{\"SpecialToken\":{\"id\":\"E\",\"type_id\":" #t "}}"
#define TEXT(name, t) "{\"Sequence\":{\"id\":\"" #name "\",\"type_id\":" #t "}}"
#define TEMPLATE(pair_)                                                                                                \
  "{\"type\":\"TemplateProcessing\",\"single\":[" S(0) "," TEXT(A, 0) "],\"pair\":[" pair_ "]," SPECIALS "}"
#define AROUND(type) "{\"type\":\"" type "\",\"sep\":[\"</s>\",1],\"cls\":[\"<s>\",0]}"
#define NO_TRIM(type)                                                                                                  \
  "{\"type\":\"" type "\",\"sep\":[\"</s>\",1],\"cls\":[\"<s>\",0],\"trim_offsets\":true,\"add_prefix_space\":false}"

/* Of a first text without ids the second one's are of the second type, also where they are all that there is. */
START_TEST(test_empty_first_text) {
  static const struct {
    const char *post_processor;
    size_t second;
  } cases[] = {{TEMPLATE(TEXT(A, 0) "," TEXT(B, 1)), 1},
               {TEMPLATE(TEXT(A, 0) "," TEXT(B, 0)), 0},
               {TEMPLATE(S(0) "," TEXT(A, 0) "," E(0) "," TEXT(B, 1) "," E(1)), 3},
               {AROUND("BertProcessing"), 3}};
  static const char *const firsts[] = {"", " \t"}; /* white space is no word */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int k = 0; k < 4; k++) {
      tri_tokenizer *t = tiny(cases[i].post_processor);
      tri_tokenizer_scratch *s = NULL;
      const uint32_t *ids;
      const char *first = firsts[k % 2];
      size_t n, second;
      ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
      tri_status st = k < 2 ? tri_tokenizer_encode_pair(t, s, first, strlen(first), "c", 1, 0, &ids, &n, &second)
                            : tri_tokenizer_encode_truncated(t, s, first, strlen(first), "c", 1, 9, &ids, &n, &second);
      ck_assert_int_eq(st, TRI_OK);
      ck_assert_msg(second == cases[i].second, "case %zu: %zu", i, second);
      tri_tokenizer_scratch_destroy(s);
      tri_tokenizer_destroy(t);
    }
}
END_TEST

START_TEST(test_templates) {
  static const struct {
    const char *post_processor, *ids; /* of "a b" and "c"; NULL: pairs are not known */
    size_t second;
  } cases[] = {
      {TEMPLATE(S(0) "," TEXT(A, 0) "," E(0) "," TEXT(B, 1) "," E(1)), "0 2 3 1 4 1 ", 5},
      {TEMPLATE(TEXT(A, 0) "," E(0) "," E(1) "," TEXT(B, 1)), "2 3 1 1 4 ", 4},
      {TEMPLATE(TEXT(A, 0) "," TEXT(B, 0)), "2 3 4 ", 0},
      {TEMPLATE(TEXT(A, 0) "," TEXT(B, 1)), "2 3 4 ", 3},
      {AROUND("BertProcessing"), "0 2 3 1 4 1 ", 5},
      {NO_TRIM("RobertaProcessing"), "0 2 3 1 1 4 1 ", 0},
      {"{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," AROUND("BertProcessing") "]}", "0 2 3 1 4 1 ",
       5},
      {"null", NULL, 0},
      {"{\"type\":\"ByteLevel\"}", NULL, 0},
      {"{\"type\":\"Sequence\",\"processors\":[" AROUND("BertProcessing") "," AROUND("BertProcessing") "]}", NULL, 0},
      {TEMPLATE(TEXT(B, 0) "," TEXT(A, 0)), NULL, 0},
      {TEMPLATE(TEXT(A, 0) "," TEXT(A, 0)), NULL, 0},
      {TEMPLATE(TEXT(A, 0)), NULL, 0},
      {TEMPLATE(TEXT(A, 0) "," TEXT(B, 1) "," TEXT(B, 1)), NULL, 0},
      {TEMPLATE(TEXT(A, 0) "," E(1) "," TEXT(B, 0)), NULL, 0},
      {TEMPLATE(TEXT(A, 0) "," TEXT(B, 0) "," E(1)), NULL, 0},
      {TEMPLATE(TEXT(A, 1) "," TEXT(B, 1)), NULL, 0},
      {TEMPLATE(TEXT(A, 0) "," TEXT(B, 2)), NULL, 0},
      {TEMPLATE(TEXT(A, 0) "," TEXT(B, -1)), NULL, 0},
      {TEMPLATE(TEXT(A, 0) "," TEXT(C, 0)), NULL, 0},
      {TEMPLATE(TEXT(A, 0) ",7,{}"), NULL, 0},
      {TEMPLATE(""), NULL, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_tokenizer *t = tiny(cases[i].post_processor);
    tri_tokenizer_scratch *s = NULL;
    const uint32_t *ids;
    size_t n, second, used = 0;
    char got[100] = "";
    ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
    tri_status st = tri_tokenizer_encode_pair(t, s, "a b", 3, "c", 1, 0, &ids, &n, &second);
    ck_assert_msg(st == (cases[i].ids ? TRI_OK : TRI_UNSUPPORTED), "case %zu: %s", i, tri_status_text(st));
    ck_assert(tri_tokenizer_has_pairs(t) == (st == TRI_OK));
    for (size_t k = 0; st == TRI_OK && k < n; k++)
      used += (size_t)snprintf(got + used, sizeof got - used, "%u ", ids[k]);
    if (st == TRI_OK) ck_assert_str_eq(got, cases[i].ids);
    if (st == TRI_OK) ck_assert_msg(second == cases[i].second, "case %zu: %zu", i, second);
    tri_tokenizer_scratch_destroy(s);
    tri_tokenizer_destroy(t);
  }
}
END_TEST

Suite *suite_tokenizer_pairs(void) {
  Suite *suite = suite_create("tokenizer_pairs");
  TCase *t = tcase_create("tokenizer_pairs");
  tcase_add_test(t, test_files);
  tcase_add_test(t, test_templates);
  tcase_add_test(t, test_empty_first_text);
  suite_add_tcase(suite, t);
  return suite;
}
