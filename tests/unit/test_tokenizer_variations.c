/* SPDX-License-Identifier: Apache-2.0 */
/* Small tokenizers with one part each changed, and the reference's answers: tests/data/tokenizers/variations.json. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

Suite *suite_tokenizer_variations(void);

static tri_tokenizer *join(const tri_json *models, const tri_json *variation) {
  const char *model = tri_json_get_str(models, tri_json_get_str(variation, "model"));
  const char *parts = tri_json_get_str(variation, "parts");
  char *json = NULL;
  size_t len = 0;
  tri_error err = {0};
  tri_tokenizer *t = NULL;
  ck_assert(model && parts);
  FILE *f = open_memstream(&json, &len);
  fprintf(f, "{\"model\":%s,%s}", model, parts);
  fclose(f);
  ck_assert_msg(tri_tokenizer_parse(json, len, &t, &err) == TRI_OK, "%s: %s: %s", parts, err.field, err.message);
  free(json);
  return t;
}

static bool same_ids(const tri_json *want, const uint32_t *ids, size_t count) {
  if (tri_json_size(want) != count) return false;
  for (size_t i = 0; i < count; i++) {
    int64_t id = -1;
    if (!tri_json_as_int(tri_json_at(want, i), &id) || id != ids[i]) return false;
  }
  return true;
}

/* The first difference of a variation is told with what the tokenizer is made of. */
static void check_encoded(const tri_tokenizer *t, const tri_json *variation) {
  const tri_json *cases = tri_json_get(variation, "encoded");
  tri_tokenizer_scratch *s = NULL;
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
  for (size_t i = 0; i < tri_json_size(cases); i++) {
    size_t len, count = 0;
    const char *text = tri_json_as_str(tri_json_at(tri_json_at(cases, i), 0), &len);
    const uint32_t *ids = NULL;
    tri_status st = tri_tokenizer_encode(t, s, text, len, true, 0, &ids, &count);
    if (st != TRI_OK || !same_ids(tri_json_at(tri_json_at(cases, i), 1), ids, count))
      ck_abort_msg("%s, %s: \"%s\" becomes other ids", tri_json_get_str(variation, "model"),
                   tri_json_get_str(variation, "parts"), text);
  }
  tri_tokenizer_scratch_destroy(s);
}

static char *stream(const tri_tokenizer *t, const uint32_t *ids, size_t count, size_t *len) {
  char *all = NULL;
  tri_detokenizer *d = NULL;
  ck_assert_int_eq(tri_detokenizer_create(t, true, &d), TRI_OK);
  FILE *f = open_memstream(&all, len);
  for (size_t i = 0; i <= count; i++) {
    const char *piece;
    size_t n;
    tri_status st = i < count ? tri_detokenizer_push(d, ids[i], &piece, &n) : tri_detokenizer_finish(d, &piece, &n);
    if (st != TRI_OK || (n && ((unsigned char)piece[0] & 0xc0) == 0x80)) ck_abort_msg("push %zu", i);
    fwrite(piece, 1, n, f);
  }
  fclose(f);
  tri_detokenizer_destroy(d);
  return all;
}

static void check_decoded(const tri_tokenizer *t, const tri_json *variation) {
  const tri_json *cases = tri_json_get(variation, "decoded");
  for (size_t i = 0; i < tri_json_size(cases); i++) {
    const tri_json *list = tri_json_at(tri_json_at(cases, i), 0);
    uint32_t ids[64];
    size_t count = tri_json_size(list), len = 0, want_len, streamed_len = 0;
    char *text = NULL;
    if (count > 64) ck_abort_msg("more than 64 ids");
    for (size_t k = 0; k < count; k++) {
      int64_t id = -1;
      tri_json_as_int(tri_json_at(list, k), &id);
      ids[k] = (uint32_t)id;
    }
    const char *want = tri_json_as_str(tri_json_at(tri_json_at(cases, i), 1), &want_len);
    tri_status st = tri_tokenizer_decode(t, ids, count, true, &text, &len);
    char *streamed = stream(t, ids, count, &streamed_len);
    if (st != TRI_OK || len != want_len || memcmp(text, want, len) != 0)
      ck_abort_msg("%s: \"%s\", want \"%s\"", tri_json_get_str(variation, "parts"), text, want);
    if (streamed_len != want_len || memcmp(streamed, want, want_len) != 0)
      ck_abort_msg("%s: streamed \"%s\", want \"%s\"", tri_json_get_str(variation, "parts"), streamed, want);
    tri_free(text);
    free(streamed);
  }
}

START_TEST(variations) {
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  ck_assert_msg(tri_json_read_file(TRI_TEST_DATA "/tokenizers/variations.json", 8 << 20, &doc, &err) == TRI_OK, "%s",
                err.message);
  const tri_json *models = tri_json_get(tri_json_root(doc), "models");
  const tri_json *list = tri_json_get(tri_json_root(doc), "variations");
  ck_assert_uint_gt(tri_json_size(list), 100);
  for (size_t i = 0; i < tri_json_size(list); i++) {
    tri_tokenizer *t = join(models, tri_json_at(list, i));
    check_encoded(t, tri_json_at(list, i));
    check_decoded(t, tri_json_at(list, i));
    tri_tokenizer_destroy(t);
  }
  tri_json_free(doc);
}
END_TEST

/* ---- what no file of the reference shows ---- */

static tri_tokenizer *parse(const char *json) {
  tri_error err = {0};
  tri_tokenizer *t = NULL;
  ck_assert_msg(tri_tokenizer_parse(json, strlen(json), &t, &err) == TRI_OK, "%s: %s", err.field, err.message);
  return t;
}

#define LIMITED_MODELS                                                                                                 \
  "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"aa\",-1.5],[\"aaaa\",-2.5]]}"

/* A million characters in one word: what would take hours if it were quadratic. */
START_TEST(long_words) {
  static const char *const tokenizers[] = {
      "{" LIMITED_MODELS "}",
      "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Replace\",\"pattern\":"
      "{\"String\":\"aab\"},\"content\":\"a\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"b{2,}\"},\"content\":"
      "\"b\"},"
      "{\"type\":\"Strip\"},{\"type\":\"Lowercase\"}]}," LIMITED_MODELS "}",
      "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"continuing_subword_prefix\":\"##\","
      "\"max_input_chars_per_word\":1000000000,\"vocab\":{\"u\":0,\"a\":1,\"##a\":2,\"##aaaaaaaa\":3}}}",
      "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":"
      "0,"
      "\"aa\":1,\"aaaa\":2,\"u\":3,\"_\":4},\"merges\":[\"a a\",\"aa aa\"],\"unk_token\":\"u\",\"fuse_unk\":true}}",
  };
  static const char *const units[] = {"a", "b", "ab", " ", "é", "\xcc\x81", "\xcc\x81\xcc\xa7", "A", "\xef\xb7\xba"};
  enum { N = 1 << 20 };
  tri_tokenizer *t = parse(tokenizers[_i]);
  tri_tokenizer_scratch *s = NULL;
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
  char *text = tri_malloc(N, 1);
  for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
    size_t unit = strlen(units[u]), len = 0, count;
    const uint32_t *ids;
    for (; len + unit <= N; len += unit) memcpy(text + len, units[u], unit);
    ck_assert_int_eq(tri_tokenizer_encode(t, s, text, len, false, 0, &ids, &count), TRI_OK);
    if (u == 0) ck_assert_uint_eq(count, _i == 2 ? (N - 1) / 8 + 1 + (N - 1) % 8 : N / 4 + (_i == 3));
  }
  tri_free(text);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* Each step eight times as long as the one before: the chain stops at a limit instead of filling the memory. */
START_TEST(exploding_chains) {
  char json[8192];
  size_t n = 0;
  n += (size_t)snprintf(json + n, sizeof json - n, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
  for (int i = 0; i < 30; i++)
    n += (size_t)snprintf(json + n, sizeof json - n,
                          "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaa\"}",
                          i ? "," : "");
  snprintf(json + n, sizeof json - n, "]}," LIMITED_MODELS "}");
  tri_tokenizer *t = parse(json);
  tri_tokenizer_scratch *s = NULL;
  const uint32_t *ids;
  size_t count;
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_encode(t, s, "a", 1, false, 0, &ids, &count), TRI_TOO_LARGE);
  ck_assert_int_eq(tri_tokenizer_encode(t, s, "b", 1, false, 0, &ids, &count), TRI_OK);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* What a stream shows after each token: no more than is certain, and no less. */
START_TEST(streams_hold_back_only_the_uncertain) {
#define STREAM(decoder)                                                                                                \
  "{\"decoder\":" decoder ",\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"\xe2\x96\x81the\":0,\"x\":1,"       \
  "\"<0xC3>\":2,\"<0xA9>\":3,\"##y\":4,\".\":5,\"e</w>\":6,\"\xe2\x96\x81\":7}}}"
#define LLAMA                                                                                                          \
  "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":"  \
  "\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" "                         \
  "\",\"start\":1,\"stop\":0}]}"
  static const struct {
    const char *json;
    uint32_t ids[5];
    const char *pieces[6]; /* the last one from finish */
  } cases[] = {
      {STREAM(LLAMA), {0, 2, 3, 1, 0}, {"the", "", "", "\xc3\xa9x", " the", ""}},
      {STREAM(LLAMA), {2, 1, 2, 2, 1}, {"", "\xef\xbf\xbdx", "", "\xef\xbf\xbd\xef\xbf\xbd", "x", ""}},
      {STREAM(LLAMA), {7, 7, 0, 1, 2}, {"", " ", " the", "x", "", "\xef\xbf\xbd"}},
      {STREAM("{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}"),
       {1, 4, 1, 5, 1},
       {"x", "y", " x", ".", " x", ""}},
      {STREAM("{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}"), {1, 6, 1, 6, 6}, {"x", "e", " x", "e", " e", ""}},
      {STREAM("{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\"}"),
       {0, 0, 7, 1, 7},
       {"the", " the", " ", "x", " ", ""}},
  };
  tri_tokenizer *t = parse(cases[_i].json);
  tri_detokenizer *d = NULL;
  ck_assert_int_eq(tri_detokenizer_create(t, false, &d), TRI_OK);
  for (size_t i = 0; i < 6; i++) {
    const char *piece;
    size_t n;
    tri_status st =
        i < 5 ? tri_detokenizer_push(d, cases[_i].ids[i], &piece, &n) : tri_detokenizer_finish(d, &piece, &n);
    ck_assert_int_eq(st, TRI_OK);
    ck_assert_msg(n == strlen(cases[_i].pieces[i]) && !memcmp(piece, cases[_i].pieces[i], n), "piece %zu: \"%.*s\"", i,
                  (int)n, piece);
  }
  tri_detokenizer_destroy(d);
  tri_tokenizer_destroy(t);
}
END_TEST

Suite *suite_tokenizer_variations(void) {
  Suite *suite = suite_create("tokenizer_variations");
  TCase *c = tcase_create("tokenizer_variations");
  tcase_set_timeout(c, 120);
  tcase_add_test(c, variations);
  tcase_add_loop_test(c, long_words, 0, 4);
  tcase_add_test(c, exploding_chains);
  tcase_add_loop_test(c, streams_hold_back_only_the_uncertain, 0, 6);
  suite_add_tcase(suite, c);
  return suite;
}
