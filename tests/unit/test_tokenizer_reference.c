/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of the Hugging Face library (version 0.23.3) that hang on details of its own parts. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/config.h"
#include "text/tokenizer/tokenizer.h"

Suite *suite_tokenizer_reference(void);

static tri_tokenizer *parse(const char *json) {
  tri_error err = {0};
  tri_tokenizer *t = NULL;
  ck_assert_msg(tri_tokenizer_parse(json, strlen(json), &t, &err) == TRI_OK, "%s: %s", err.field, err.message);
  return t;
}

/* Compares the text's ids, written one after the other with spaces between them. */
static void check_ids(const tri_tokenizer *t, const char *text, size_t len, const char *want) {
  tri_tokenizer_scratch *s = NULL;
  const uint32_t *ids;
  size_t count, n = 0;
  char got[512] = "";
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, len, false, 0, &ids, &count), TRI_OK);
  for (size_t i = 0; i < count && n < sizeof got; i++)
    n += (size_t)snprintf(got + n, sizeof got - n, "%s%u", i ? " " : "", ids[i]);
  ck_assert_msg(!strcmp(got, want), "\"%s\" becomes %s, not %s", text, got, want);
  tri_tokenizer_scratch_destroy(s);
}

static void check_decoded(const tri_tokenizer *t, const uint32_t *ids, size_t count, bool skip_special,
                          const char *want) {
  char *text = NULL;
  size_t len;
  ck_assert_int_eq(tri_tokenizer_decode(t, ids, count, skip_special, &text, &len), TRI_OK);
  ck_assert_str_eq(text, want);
  tri_free(text);
}

/* ---- numbers ---- */

START_TEST(reals_are_rounded_twice) {
  static const struct {
    const char *text;
    double want;
  } cases[] = {
      {"0.0", 0},
      {"-2.5", -2.5},
      {"-5.2875173039647217", -0x1.5266aefa64012p+2}, /* the nearest is one bit further from 0 */
      {"1e22", 1e22},
      {"25E-1", 2.5},
      {"2.5e+1", 25},
      {"18446744073709551615.9", 0x1p64},       /* the last digit would exceed 64 bits and is dropped */
      {"184467440737095516150.9", 0x1p64 * 10}, /* so are all behind it */
      {"1844674407370955161.63", 1844674407370955161.6},
      {"0e999999999999", 0},
      {"1e-400", 0},
      {"123456789012345678901234567890e-40", 12345678901234567890.0 / 1e30},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    double got = tok_real_read(cases[i].text, strlen(cases[i].text));
    ck_assert_msg(got == cases[i].want, "%s is read as %a, not %a", cases[i].text, got, cases[i].want);
  }
}
END_TEST

START_TEST(scores_decide_as_the_reference_reads_them) {
  tri_tokenizer *t = parse("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<u>\",0.0],"
                           "[\"-\",-5.2875173039647217],[\"--\",-10.575034607929444]]}}");
  check_ids(t, "--", 2, "1 1"); /* with the nearest doubles the sums are equal and the longer token wins */
  tri_tokenizer_destroy(t);
}
END_TEST

/* ---- tokens ---- */

START_TEST(tokens_of_nul) {
  tri_tokenizer *t = parse("{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"\\u0000\":1,\"\\u0001\":2,"
                           "\"\\\\u0000\":3,\"0\":4,\"a\\u0000\\u0001\":5}},\"added_tokens\":[{\"id\":6,\"content\":"
                           "\"<\\u0000>\",\"normalized\":false}]}");
  check_ids(t, "a\0\1\0000<\0>", 8, "0 1 2 1 4 6");
  uint32_t id = 0;
  ck_assert(tri_tokenizer_id(t, "a\0\1", 3, &id) && id == 5);
  ck_assert(tri_tokenizer_id(t, "\\u0000", 6, &id) && id == 3);
  check_decoded(t, (uint32_t[]){0, 2}, 2, false, "a \1");
  tri_tokenizer_destroy(t);
}
END_TEST

#define LOWER(added)                                                                                                   \
  "{\"normalizer\":{\"type\":\"Lowercase\"},\"added_tokens\":[" added "],\"model\":{\"type\":\"BPE\",\"merges\":[],"   \
  "\"vocab\":{\"<\":0,\">\":1,\"x\":2,\" \":3}}}"
#define ADDED(id, text, flags) "{\"id\":" #id ",\"content\":\"" text "\"" flags "}"
#define SPECIAL ",\"special\":true"
#define NORMALIZED ",\"normalized\":true"
#define RAW ",\"normalized\":false"

START_TEST(tokens_listed_twice) {
  static const struct {
    const char *json, *upper, *lower, *shown; /* shown: special tokens left out */
  } cases[] = {
      {LOWER(ADDED(4, "<X>", RAW) "," ADDED(4, "<X>", RAW)), "3 4", "3 0 2 1", "<X>"},
      {LOWER(ADDED(4, "<X>", RAW) "," ADDED(4, "<X>", RAW ",\"lstrip\":true")), "4", "3 0 2 1", "<X>"},
      {LOWER(ADDED(4, "<X>", RAW ",\"lstrip\":true") "," ADDED(4, "<X>", RAW)), "3 4", "3 0 2 1", "<X>"},
      {LOWER(ADDED(4, "<X>", RAW) "," ADDED(4, "<X>", NORMALIZED)), "3 4", "3 4", "<x>"},
      {LOWER(ADDED(4, "<X>", NORMALIZED) "," ADDED(4, "<X>", RAW)), "3 4", "3 0 2 1", "<x>"},
      {LOWER(ADDED(4, "<X>", RAW SPECIAL) "," ADDED(4, "<X>", RAW)), "3 4", "3 0 2 1", ""},
      {LOWER(ADDED(4, "<X>", RAW) "," ADDED(4, "<X>", RAW SPECIAL)), "3 4", "3 0 2 1", ""},
      {LOWER(ADDED(4, "<X>", RAW) "," ADDED(5, "<Y>", RAW) "," ADDED(4, "<X>", RAW)), "3 4", "3 0 2 1", "<X>"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_tokenizer *t = parse(cases[i].json);
    check_ids(t, " <X>", 4, cases[i].upper);
    check_ids(t, " <x>", 4, cases[i].lower);
    check_decoded(t, (uint32_t[]){4}, 1, true, cases[i].shown);
    tri_tokenizer_destroy(t);
  }
}
END_TEST

/* Special is what is spelled like a special token's text, and spelled is a normalized one as the normalizer leaves it.
 */
START_TEST(skipped_when_decoding) {
  tri_tokenizer *t = parse(LOWER(ADDED(4, "<X>", SPECIAL NORMALIZED) "," ADDED(5, "<y>", SPECIAL NORMALIZED) "," ADDED(
      6, "<Z>", SPECIAL) "," ADDED(7, "<W>", NORMALIZED) "," ADDED(8, "<w>", SPECIAL) "," ADDED(9, "<z>", NORMALIZED)));
  const uint32_t ids[] = {4, 5, 6, 7, 8, 9};
  check_decoded(t, ids, 6, false, "<x> <y> <Z> <w> <w> <z>");
  check_decoded(t, ids, 6, true, "<x> <z>");
  ck_assert(tri_tokenizer_is_special(t, 4) && !tri_tokenizer_is_special(t, 7)); /* as the file has it */
  tri_tokenizer_destroy(t);
}
END_TEST

/* ---- Unicode: each part of the reference has a version of its own ---- */

/* Single bytes become themselves and other characters bytes: the vocabulary has nothing but "<0x00>".. in it. */
static tri_tokenizer *bytes_behind(const char *parts) {
  char json[12000];
  size_t n = (size_t)snprintf(json, sizeof json,
                              "{%s,\"model\":{\"type\":\"BPE\",\"merges\":[],\"byte_fallback\":true,"
                              "\"unk_token\":\"<0x00>\",\"vocab\":{",
                              parts);
  for (int i = 0; i < 256; i++)
    n += (size_t)snprintf(json + n, sizeof json - n, "%s\"<0x%02X>\":%d", i ? "," : "", i, i);
  snprintf(json + n, sizeof json - n, "}}}");
  return parse(json);
}

static void check_normalized(const char *normalizer, const char *text, const char *want) {
  tri_tokenizer *t = bytes_behind(normalizer);
  char ids[512] = "";
  size_t n = 0;
  for (const char *c = want; *c; c++)
    n += (size_t)snprintf(ids + n, sizeof ids - n, "%s%d", n ? " " : "", (unsigned char)*c);
  check_ids(t, text, strlen(text), ids);
  tri_tokenizer_destroy(t);
}

#define NORMALIZER(type) "\"normalizer\":{\"type\":\"" type "\"}"
#define BERT(clean, accents)                                                                                           \
  "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":" clean ",\"handle_chinese_chars\":false,"               \
  "\"strip_accents\":" accents ",\"lowercase\":false}"

START_TEST(versions_of_unicode) {
  static const struct {
    const char *normalizer, *text, *want;
  } cases[] = {
      {NORMALIZER("NFKC"), u8"\u3231\u32ff", u8"(\u682a)\u32ff"}, /* of 1993 and of 2019 */
      {NORMALIZER("NFD"), u8"a\u1dfa\u0316", u8"a\u1dfa\u0316"},  /* without a class */
      {NORMALIZER("NFD"), u8"a\u0301\u0316", u8"a\u0316\u0301"},
      {NORMALIZER("NFC"), u8"a\u1dfa\u0301", u8"a\u1dfa\u0301"},
      {NORMALIZER("NFC"), u8"\U00011935\U00011930", u8"\U00011935\U00011930"}, /* composes since 13 */
      {NORMALIZER("NFC"), u8"e\u0301\u1dfae\u0301", u8"\u00e9\u1dfa\u00e9"},
      {NORMALIZER("StripAccents"), u8"a\u0301b\u1dfac\u08e2", u8"ab\u1dfac\u08e2"},
      {NORMALIZER("StripAccents"), u8"a\u08d4b\u0afc", u8"ab\u0afc"},                    /* marks since 9 and 10 */
      {NORMALIZER("Lowercase"), u8"\u00c9\ua7dc\U00016ea0", u8"\u00e9\u019b\U00016ebb"}, /* of 16 and 17 */
      {BERT("false", "true"), u8"a\u0301b\u1dfac\u0afc\u1734", u8"ab\u1dfac\u0afc"},     /* a mark until 14 */
      {BERT("false", "true"), u8"a\u08d4b", u8"a\u08d4b"},                               /* a mark since 9 */
      {BERT("true", "false"), u8"a\u200db\u08e2c", u8"ab\u08e2c"}, /* a control character since 9 */
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    check_normalized(cases[i].normalizer, cases[i].text, cases[i].want);
}
END_TEST

/* Compares the words: each ends with a token of its own, as the model's suffix belongs to a word's last character. */
static void check_words(const char *pretokenizer, const char *text, const char *want) {
  char json[2048], got[512] = "";
  size_t n = 0, count;
  static const char *const letters[] = {"a",
                                        "b",
                                        "x",
                                        "1",
                                        "-",
                                        ".",
                                        " ",
                                        "A",
                                        u8"\u05d0",
                                        u8"\u00b2",
                                        u8"\u0301",
                                        u8"\u3042",
                                        u8"\u30fc",
                                        u8"\u4e00",
                                        u8"\u3001",
                                        u8"\U0001fa77",
                                        u8"\U00031350",
                                        u8"\u2e52",
                                        u8"\U0001cccc"};
  n = (size_t)snprintf(json, sizeof json,
                       "{\"pre_tokenizer\":%s,\"model\":{\"type\":\"BPE\",\"merges\":[],"
                       "\"end_of_word_suffix\":\"|\",\"unk_token\":\"?\",\"vocab\":{\"?\":99",
                       pretokenizer);
  for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
    n += (size_t)snprintf(json + n, sizeof json - n, ",\"%s\":%zu,\"%s|\":%zu", letters[i], 2 * i, letters[i],
                          2 * i + 1);
  snprintf(json + n, sizeof json - n, "}}}");
  tri_tokenizer *t = parse(json);
  tri_tokenizer_scratch *s = NULL;
  const uint32_t *ids;
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, strlen(text), false, 0, &ids, &count), TRI_OK);
  n = 0;
  for (size_t i = 0; i < count; i++)
    n += (size_t)snprintf(got + n, sizeof got - n, "%s", tri_tokenizer_token(t, ids[i]));
  ck_assert_msg(!strcmp(got, want), "%s cuts \"%s\" into %s, not %s", pretokenizer, text, got, want);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}

START_TEST(words) {
  static const struct {
    const char *pretokenizer, *text, *want;
  } cases[] = {
      {"{\"type\":\"UnicodeScripts\"}", u8"ab \u05d0\u05d0a", u8"ab |\u05d0\u05d0|a|"},
      {"{\"type\":\"UnicodeScripts\"}", u8"\u3042\u30fc \u4e00-b", u8"\u3042\u30fc \u4e00|-|b|"},
      {"{\"type\":\"UnicodeScripts\"}", " a", "a|"}, /* what stands before the first script is lost */
      {"{\"type\":\"UnicodeScripts\"}", " ", ""},
      {"{\"type\":\"UnicodeScripts\"}", u8"a\U0001fa77b", u8"a\U0001fa77b|"}, /* of Unicode 15: no script */
      {"{\"type\":\"FixedLength\",\"length\":2}", u8"a\u4e00b1-", u8"a\u4e00|b1|-|"},
      {"{\"type\":\"FixedLength\"}", "ababab", "ababa|b|"},
      {"{\"type\":\"Punctuation\"}", u8"a-b\u2e52a", u8"a|-|b\u2e52a|"}, /* punctuation since 13 */
      {"{\"type\":\"BertPreTokenizer\"}", u8"a-b \u2e52a", u8"a|-|b|\u2e52a|"},
      {"{\"type\":\"Digits\",\"individual_digits\":true}", u8"a11\U0001cccca", u8"a|1|1|\U0001cccca|"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    check_words(cases[i].pretokenizer, cases[i].text, cases[i].want);
}
END_TEST

/* Sets of characters that PCRE2 spells otherwise, or does not know yet. */
#define CUT(regex)                                                                                                     \
  "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,\"pattern\":{\"Regex\":\"" regex "\"}}"

START_TEST(patterns) {
  static const struct {
    const char *pretokenizer, *text, *want;
  } cases[] = {
      {CUT("\\\\p{S}+"), u8"a\U0001fa77\U0001fa77b", u8"a|\U0001fa77\U0001fa77|b|"}, /* of Unicode 15 */
      {CUT("[\\\\p{L}]+"), u8"a\U00031350-\U0001fa77", u8"a\U00031350|-\U0001fa77|"},
      {CUT("[^\\\\p{L}]+"), u8"a\U00031350-\U0001fa77", u8"a\U00031350|-\U0001fa77|"},
      {CUT("[\\\\P{L}a]+"), u8"a\U00031350-\U0001fa77", u8"a|\U00031350|-\U0001fa77|"},
      {CUT("\\\\p{Cn}+"), u8"a\U00031350b", u8"a\U00031350b|"},
      {CUT("\\\\p{Han}+"), u8"a\u4e00\U00031350\u3001", u8"a|\u4e00\U00031350|\u3001|"}, /* not its extensions */
      {CUT("[\\\\p{L}&&[^\\\\p{Han}]]+"), u8"a\u05d0\u4e00b", u8"a\u05d0|\u4e00|b|"},
      {CUT("[^\\\\p{L}&&[^-]]+"), "a-1.b", "a|-1.|b|"},
      {CUT("[\\\\W_]+"), "a-.b", "a|-.|b|"},
      {CUT("[^\\\\W\\\\d]+"), "a1-b", "a|1-|b|"},
      {CUT("[a-b[x]-]+"), "1ax-1", "1|ax-|1|"},
      {CUT("[1[-]x]+"), "a1-xa", "a|1-x|a|"},
      {CUT("\\\\h+"), "xaA1x", "x|aA1|x|"},
      {CUT("\\\\b"), u8"a\u0301-\u00b2", u8"a\u0301|-|\u00b2|"},
      {CUT("\\\\B-"), "--a-", "-|-|a-|"},
      {CUT("[[:alpha:]]+"), u8"a\u05d01", u8"a\u05d0|1|"},
      {CUT("[[:^alpha:]]+"), "a1-b", "a|1-|b|"},
      {CUT("[[:punct:]]+"), u8"a-\U0001fa77b", u8"a|-\U0001fa77|b|"},
      {CUT("\\\\p{Punct}+"), u8"a-\U0001fa77b", u8"a|-|\U0001fa77b|"},
      {CUT("[[:upper:]1]"), "aA1", "a|A|1|"},
      {CUT("\\\\p{Uppercase_Letter}"), "aA1", "a|A|1|"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    check_words(cases[i].pretokenizer, cases[i].text, cases[i].want);
}
END_TEST

START_TEST(word_level) {
  tri_tokenizer *t =
      parse("{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"type\":\"WordLevel\",\"unk_token\":"
            "\"?\",\"vocab\":{\"ab\":0,\"b\":1,\"?\":2}}}");
  check_ids(t, "ab b a ab", 9, "0 1 2 0");
  tri_tokenizer_destroy(t);
  t = parse("{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"ab\":0}}}");
  check_ids(t, "ab", 2, "0");
  tri_tokenizer_scratch *s = NULL;
  const uint32_t *ids;
  size_t count;
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_encode(t, s, "b", 1, false, 0, &ids, &count), TRI_NOT_FOUND);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* Dropout is for training: it loads, with a warning, and nothing is left out. */
START_TEST(dropout) {
  tri_tokenizer *t =
      parse("{\"model\":{\"type\":\"BPE\",\"dropout\":0.9,\"merges\":[\"a b\"],\"vocab\":{\"a\":0,\"b\":1,"
            "\"ab\":2}}}");
  check_ids(t, "abababab", 8, "2 2 2 2");
  tri_tokenizer_destroy(t);
}
END_TEST

Suite *suite_tokenizer_reference(void) {
  Suite *suite = suite_create("tokenizer_reference");
  TCase *c = tcase_create("tokenizer_reference");
  tcase_add_test(c, reals_are_rounded_twice);
  tcase_add_test(c, scores_decide_as_the_reference_reads_them);
  tcase_add_test(c, tokens_of_nul);
  tcase_add_test(c, tokens_listed_twice);
  tcase_add_test(c, skipped_when_decoding);
  tcase_add_test(c, versions_of_unicode);
  tcase_add_test(c, words);
  tcase_add_test(c, patterns);
  tcase_add_test(c, word_level);
  tcase_add_test(c, dropout);
  suite_add_tcase(suite, c);
  return suite;
}
