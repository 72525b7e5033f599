/* Where the Hugging Face library's answers hang on details of its own parts; what is expected here is what it (version
 * 0.23.3) says. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"
#include "runtime/tokenizer/config.h"
#include "runtime/tokenizer/tokenizer.h"

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

Suite *suite_tokenizer_reference(void) {
  Suite *suite = suite_create("tokenizer_reference");
  TCase *c = tcase_create("tokenizer_reference");
  tcase_add_test(c, reals_are_rounded_twice);
  tcase_add_test(c, scores_decide_as_the_reference_reads_them);
  tcase_add_test(c, tokens_of_nul);
  tcase_add_test(c, tokens_listed_twice);
  tcase_add_test(c, skipped_when_decoding);
  suite_add_tcase(suite, c);
  return suite;
}
