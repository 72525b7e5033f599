/* SPDX-License-Identifier: Apache-2.0 */
/* Text of ids that stand after others: what the text of all of them has after that of the first. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

Suite *suite_detokenizer(void);

static const char *const fixtures[] = {"bytelevel_bpe_gpt2",      "bytelevel_bpe_llama3", "spm_bpe_llama2",
                                       "spm_bpe_metaspace_first", "unigram_precompiled",  "unigram_t5",
                                       "wordpiece_bert"};
enum { FIXTURES = sizeof fixtures / sizeof *fixtures, MOST_IDS = 400 };

static const char *const texts[] = {
    "The capital of France is Paris, and that of Italy is Rome.",
    "def f(x):\n    if x:\n        return \"a  b\"\n",
    "   three spaces\n\n\tand a tab   ",
    "\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80\xf0\x9f\x98\x80 \xe6\x97\xa5"
    "\xe6\x9c\xac\xe8\xaa\x9e\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac\xe2\x82\xac"
    "\xe2\x82\xac\xe2\x82\xac x",
    "don't . do not , it 's",
};
enum { TEXTS = sizeof texts / sizeof *texts };

/* Returns the text of the ids after the first `from` of them, as they come. */
static void text_after(const tri_tokenizer *t, const uint32_t *ids, size_t from, size_t count, bool skip,
                       tri_buf *out) {
  tri_detokenizer *d = NULL;
  const char *piece;
  size_t n;
  out->len = 0;
  ck_assert_int_eq(tri_detokenizer_create(t, skip, &d), TRI_OK);
  ck_assert_int_eq(tri_detokenizer_after(d, ids, from), TRI_OK);
  for (size_t i = from; i < count; i++) {
    ck_assert_int_eq(tri_detokenizer_push(d, ids[i], &piece, &n), TRI_OK);
    ck_assert_int_eq(tri_buf_append(out, piece, n), TRI_OK);
  }
  ck_assert_int_eq(tri_detokenizer_finish(d, &piece, &n), TRI_OK);
  ck_assert_int_eq(tri_buf_append(out, piece, n), TRI_OK);
  tri_detokenizer_destroy(d);
}

/* Compares at one place. Returns whether the text of the first ids is a beginning of that of all: where a character is
 * cut it is not. */
static bool same_at(const tri_tokenizer *t, const uint32_t *ids, size_t from, size_t count, bool skip) {
  char *all, *before;
  size_t len_all, len_before;
  tri_buf got = {0};
  ck_assert_int_eq(tri_tokenizer_decode(t, ids, count, skip, &all, &len_all), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_decode(t, ids, from, skip, &before, &len_before), TRI_OK);
  bool begins = len_before <= len_all && !memcmp(all, before, len_before);
  text_after(t, ids, from, count, skip, &got);
  if (begins && (got.len != len_all - len_before || (got.len && memcmp(got.data, all + len_before, got.len) != 0)))
    ck_abort_msg("after %zu of %zu ids of \"%s\": \"%.*s\"", from, count, all, (int)got.len, got.data);
  tri_free(all);
  tri_free(before);
  tri_buf_free(&got);
  return begins;
}

START_TEST(after_any_beginning) {
  char path[512];
  tri_error err = {0};
  tri_tokenizer *t = NULL;
  tri_tokenizer_scratch *s = NULL;
  snprintf(path, sizeof path, "%s/tokenizers/%s/tokenizer.json", TRI_TEST_DATA, fixtures[_i]);
  ck_assert_msg(tri_tokenizer_load(path, &t, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
  size_t places = 0, compared = 0;
  for (int i = 0; i < TEXTS; i++)
    for (int skip = 0; skip < 2; skip++) {
      uint32_t ids[MOST_IDS];
      const uint32_t *found;
      size_t count;
      ck_assert_int_eq(tri_tokenizer_encode(t, s, texts[i], strlen(texts[i]), true, 0, &found, &count), TRI_OK);
      ck_assert_uint_le(count, MOST_IDS);
      memcpy(ids, found, count * sizeof *ids);
      for (size_t from = 0; from <= count; from++) compared += same_at(t, ids, from, count, skip);
      places += count + 1;
    }
  ck_assert_uint_gt(compared, places / 2);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* A tokenizer of sentencepiece's kind takes the space away that a text begins with, and of a run of bytes gives what is
 * whole at its end. */
START_TEST(spaces_and_bytes) {
  static const char json[] =
      "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true,\"single_word\":false,\"lstrip\":false,"
      "\"rstrip\":false,\"normalized\":false}],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,"
      "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},"
      "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \","
      "\"start\":1,\"stop\":0}]},\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":null,\"vocab\":"
      "{\"<s>\":0,\"_a\":1,\"___\":2,\"<0xE2>\":3,\"<0x82>\":4,\"<0xAC>\":5,\"b\":6},\"merges\":[]}}";
  static const struct {
    uint32_t ids[24];
    size_t from, count;
    const char *want;
  } cases[] = {{{0, 1, 1}, 0, 3, "a a"},
               {{0, 1, 1}, 1, 3, "a a"}, /* nothing is shown before it */
               {{0, 1, 1}, 2, 3, " a"},
               {{6, 2}, 1, 2, "   "},
               {{6, 3, 4, 5, 1}, 4, 5, " a"}, /* the character is the prompt's, though it is held back */
               {{6, 3, 4, 5, 1}, 2, 5, "\xe2\x82\xac a"},
               {{6, 3, 4, 5}, 4, 4, ""},
               {{6, 3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5, 3, 4, 5, 6},
                19,
                23,
                "\xe2\x82\xac"
                "b"}};
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  tri_buf got = {0};
  ck_assert_msg(tri_tokenizer_parse(json, sizeof json - 1, &t, &err) == TRI_OK, "%s: %s", err.field, err.message);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    text_after(t, cases[i].ids, cases[i].from, cases[i].count, true, &got);
    ck_assert_msg(got.len == strlen(cases[i].want) && (!got.len || !memcmp(got.data, cases[i].want, got.len)),
                  "%zu: \"%.*s\"", i, (int)got.len, got.data);
  }
  static const struct {
    uint32_t id;
    const char *inside, *first;
  } tokens[] = {{1, " a", "a"}, {2, "   ", "  "}, {3, "\xe2", "\xe2"}, {6, "b", "b"}, {0, "<s>", "<s>"}, {99, "", ""}};
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
    char text[16];
    size_t n = tri_tokenizer_token_bytes(t, tokens[i].id, text, sizeof text);
    ck_assert(n == strlen(tokens[i].inside) && !memcmp(text, tokens[i].inside, n));
    ck_assert_int_eq(tri_tokenizer_first_bytes(t, tokens[i].id, text, sizeof text, &n), TRI_OK);
    ck_assert_msg(n == strlen(tokens[i].first) && !memcmp(text, tokens[i].first, n), "%u", tokens[i].id);
  }
  tri_buf_free(&got);
  tri_tokenizer_destroy(t);
}
END_TEST

Suite *suite_detokenizer(void) {
  Suite *s = suite_create("detokenizer");
  TCase *c = tcase_create("after");
  tcase_add_loop_test(c, after_any_beginning, 0, FIXTURES);
  tcase_add_test(c, spaces_and_bytes);
  suite_add_tcase(s, c);
  return s;
}
