/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that lose their ends: what stays is the beginning of the whole text's ids, between the same special tokens. How
 * many ids of each text of a pair stay is what Hugging Face's tokenizers 0.23 answered ("longest_first"). */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

Suite *suite_tokenizer_truncation(void);

static tri_tokenizer *load(const char *folder, tri_tokenizer_scratch **s) {
  char path[500];
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  snprintf(path, sizeof path, "%s/tokenizers/%s/tokenizer.json", TRI_TEST_DATA, folder);
  ck_assert_msg(tri_tokenizer_load(path, &t, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, s), TRI_OK);
  return t;
}

/* Words of several tokens among them, which are cut in their middle, too. */
static const char text[] =
    "Incomprehensible antidisestablishmentarianism, d\xc3\xa9j\xc3\xa0 vu: 12345 unbelievabilities!";

/* prefix and suffix: how many special tokens stand around the text. */
static void check_single(const char *folder, size_t prefix, size_t suffix) {
  tri_tokenizer_scratch *s = NULL;
  tri_tokenizer *t = load(folder, &s);
  uint32_t whole[256];
  const uint32_t *ids;
  size_t n, count, second;
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, strlen(text), true, 0, &ids, &n), TRI_OK);
  ck_assert_uint_lt(n, 256);
  memcpy(whole, ids, n * sizeof *ids);
  for (size_t most = 0; most < n + 3; most++) { /* 0: without a limit */
    tri_status st = tri_tokenizer_encode_truncated(t, s, text, strlen(text), NULL, 0, most, &ids, &count, &second);
    if (most && most < prefix + suffix) {
      ck_assert_int_eq(st, TRI_TOO_LARGE);
      continue;
    }
    size_t want = most && most < n ? most : n;
    ck_assert_msg(st == TRI_OK, "%s, %zu of %zu: %s", folder, most, n, tri_status_text(st));
    ck_assert_uint_eq(second, 0);
    ck_assert_uint_eq(count, want);
    ck_assert_mem_eq(ids, whole, (want - suffix) * sizeof *ids);
    ck_assert_mem_eq(ids + want - suffix, whole + n - suffix, suffix * sizeof *ids);
  }
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}

/* What stays is the end of the whole text's ids, between the same special tokens, or without any. */
static void check_end(const char *folder, bool special, size_t prefix, size_t suffix) {
  tri_tokenizer_scratch *s = NULL;
  tri_tokenizer *t = load(folder, &s);
  uint32_t whole[256];
  const uint32_t *ids;
  size_t n, count;
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, strlen(text), special, 0, &ids, &n), TRI_OK);
  ck_assert_uint_lt(n, 256);
  memcpy(whole, ids, n * sizeof *ids);
  for (size_t most = 0; most < n + 3; most++) { /* 0: without a limit */
    tri_status st = tri_tokenizer_encode_end(t, s, text, strlen(text), special, most, &ids, &count);
    if (most && most < prefix + suffix) {
      ck_assert_int_eq(st, TRI_TOO_LARGE);
      continue;
    }
    size_t want = most && most < n ? most : n;
    ck_assert_msg(st == TRI_OK, "%s, %zu of %zu: %s", folder, most, n, tri_status_text(st));
    ck_assert_uint_eq(count, want);
    ck_assert_mem_eq(ids, whole, prefix * sizeof *ids);
    ck_assert_mem_eq(ids + prefix, whole + n - (want - prefix), (want - prefix) * sizeof *ids);
  }
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}

START_TEST(test_ends) {
  check_end("wordpiece_bert", true, 1, 1);
  check_end("wordpiece_bert", false, 0, 0);
  check_end("unigram_t5", true, 0, 1);
  check_end("bytelevel_bpe_llama3", true, 1, 0);
}
END_TEST

START_TEST(test_one_text) {
  check_single("wordpiece_bert", 1, 1);
  check_single("unigram_t5", 0, 1);
  check_single("spm_bpe_metaspace_first", 1, 0);
  check_single("bytelevel_bpe_llama3", 1, 0);
  check_single("bytelevel_bpe_gpt2", 0, 0);
}
END_TEST

static size_t repeat(char *out, const char *word, size_t times) {
  size_t len = 0;
  for (size_t i = 0; i < times; i++) len += (size_t)sprintf(out + len, "%s%s", i ? " " : "", word);
  return len;
}

START_TEST(test_pairs) {
  static const struct {
    size_t a, b, most, left_a, left_b;
  } cases[] = {{10, 10, 13, 5, 5}, {10, 10, 12, 4, 5}, {10, 2, 9, 4, 2}, {2, 10, 9, 2, 4},
               {3, 3, 9, 3, 3},    {3, 4, 9, 3, 3},    {4, 3, 9, 3, 3},  {20, 5, 14, 6, 5},
               {5, 20, 14, 5, 6},  {6, 6, 14, 5, 6},   {6, 5, 14, 6, 5}, {5, 6, 13, 5, 5},
               {1, 20, 5, 1, 1},   {20, 1, 5, 1, 1},   {9, 9, 3, 0, 0},  {9, 9, 4, 0, 1}};
  tri_tokenizer_scratch *s = NULL;
  tri_tokenizer *t = load("wordpiece_bert", &s);
  uint32_t the, of, sep;
  ck_assert(tri_tokenizer_id(t, "the", 3, &the) && tri_tokenizer_id(t, "of", 2, &of));
  ck_assert(tri_tokenizer_id(t, "[SEP]", 5, &sep));
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char a[200], b[200];
    const uint32_t *ids;
    size_t n, second;
    size_t len_a = repeat(a, "the", cases[i].a), len_b = repeat(b, "of", cases[i].b);
    ck_assert_int_eq(tri_tokenizer_encode_truncated(t, s, a, len_a, b, len_b, cases[i].most, &ids, &n, &second),
                     TRI_OK);
    ck_assert_msg(n == cases[i].left_a + cases[i].left_b + 3 && second == cases[i].left_a + 3, "case %zu: %zu", i, n);
    for (size_t k = 1; k < n; k++) {
      uint32_t want = k + 1 < second ? the : of;
      if (k + 2 == second || k == n - 1) want = sep;
      ck_assert_uint_eq(ids[k], want);
    }
  }
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* Truncation ends the work where the room ends: a text of a million words costs no more than a short one. */
START_TEST(test_long_text) {
  enum { WORDS = 200000 };
  tri_tokenizer_scratch *s = NULL;
  tri_tokenizer *t = load("wordpiece_bert", &s);
  char *many = tri_malloc(WORDS * 4 + 1, 1);
  const uint32_t *ids;
  size_t n, second;
  size_t len = repeat(many, "the", WORDS);
  ck_assert_int_eq(tri_tokenizer_encode_truncated(t, s, many, len, NULL, 0, 256, &ids, &n, &second), TRI_OK);
  ck_assert_uint_eq(n, 256);
  ck_assert_int_eq(tri_tokenizer_encode_truncated(t, s, many, len, many, len, 256, &ids, &n, &second), TRI_OK);
  ck_assert(n == 256 && second == 129);
  tri_free(many);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

Suite *suite_tokenizer_truncation(void) {
  Suite *suite = suite_create("tokenizer_truncation");
  TCase *t = tcase_create("truncation");
  tcase_add_test(t, test_one_text);
  tcase_add_test(t, test_ends);
  tcase_add_test(t, test_pairs);
  tcase_add_test(t, test_long_text);
  suite_add_tcase(suite, t);
  return suite;
}
