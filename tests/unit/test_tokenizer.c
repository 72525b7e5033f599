/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers: the reference's answers, hostile files, streams, long words, threads. */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

Suite *suite_tokenizer(void);

/* The first two give every text back. */
static const char *const fixtures[] = {"bytelevel_bpe_gpt2",      "bytelevel_bpe_llama3", "spm_bpe_llama2",
                                       "spm_bpe_metaspace_first", "unigram_precompiled",  "unigram_t5",
                                       "wordpiece_bert"};
enum { FIXTURES = sizeof fixtures / sizeof *fixtures, LOSSLESS = 2 };

/* ---- helpers ---- */

static tri_tokenizer *load_fixture(const char *name, tri_json_doc **cases) {
  char path[512];
  tri_error err = {0};
  tri_tokenizer *t = NULL;
  snprintf(path, sizeof path, "%s/tokenizers/%s/tokenizer.json", TRI_TEST_DATA, name);
  ck_assert_msg(tri_tokenizer_load(path, &t, &err) == TRI_OK, "%s: %s: %s", path, err.field, err.message);
  snprintf(path, sizeof path, "%s/tokenizers/%s/expected.json", TRI_TEST_DATA, name);
  if (cases)
    ck_assert_msg(tri_json_read_file(path, 64 << 20, cases, &err) == TRI_OK, "%s: %s: %s", path, err.field,
                  err.message);
  return t;
}

static tri_tokenizer *parse(const char *json) {
  tri_error err = {0};
  tri_tokenizer *t = NULL;
  ck_assert_msg(tri_tokenizer_parse(json, strlen(json), &t, &err) == TRI_OK, "%s: %s", err.field, err.message);
  return t;
}

static tri_tokenizer_scratch *scratch_of(const tri_tokenizer *t) {
  tri_tokenizer_scratch *s = NULL;
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
  return s;
}

/* The text's tokens joined by '|', for small tokenizers. */
static void check_tokens(const tri_tokenizer *t, const char *text, const char *want) {
  tri_tokenizer_scratch *s = scratch_of(t);
  const uint32_t *ids;
  size_t count, n = 0;
  char got[1024] = "";
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, strlen(text), true, 0, &ids, &count), TRI_OK);
  for (size_t i = 0; i < count; i++)
    n += (size_t)snprintf(got + n, sizeof got - n, "%s%s", i ? "|" : "", tri_tokenizer_token(t, ids[i]));
  ck_assert_str_eq(got, want);
  tri_tokenizer_scratch_destroy(s);
}

/* All pieces of a stream, malloced. */
static char *stream(const tri_tokenizer *t, const uint32_t *ids, size_t count, bool skip_special, size_t *len) {
  tri_detokenizer *d = NULL;
  ck_assert_int_eq(tri_detokenizer_create(t, skip_special, &d), TRI_OK);
  char *all = NULL;
  size_t size = 0;
  FILE *f = open_memstream(&all, &size);
  for (size_t i = 0; i <= count; i++) {
    const char *piece;
    size_t n;
    tri_status st = i < count ? tri_detokenizer_push(d, ids[i], &piece, &n) : tri_detokenizer_finish(d, &piece, &n);
    ck_assert_int_eq(st, TRI_OK);
    if (n) ck_assert_int_ne((unsigned char)piece[0] & 0xc0, 0x80); /* begins with a whole character */
    fwrite(piece, 1, n, f);
  }
  fclose(f);
  tri_detokenizer_destroy(d);
  *len = size;
  return all;
}

static void check_stream_equals_decode(const tri_tokenizer *t, const uint32_t *ids, size_t count, bool skip) {
  char *whole = NULL;
  size_t whole_len, len;
  ck_assert_int_eq(tri_tokenizer_decode(t, ids, count, skip, &whole, &whole_len), TRI_OK);
  char *pieces = stream(t, ids, count, skip, &len);
  ck_assert_uint_eq(len, whole_len);
  ck_assert_mem_eq(pieces, whole, len);
  free(pieces);
  tri_free(whole);
}

/* ---- the reference's answers ---- */

static void check_ids(const tri_tokenizer *t, tri_tokenizer_scratch *s, const tri_json *item, const char *key,
                      bool add_special, const uint32_t **ids, size_t *count) {
  size_t len;
  const char *text = tri_json_as_str(tri_json_get(item, "text"), &len);
  const tri_json *want = tri_json_get(item, key);
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, len, add_special, 0, ids, count), TRI_OK);
  ck_assert_msg(*count == tri_json_size(want), "%s of \"%s\": %zu ids, want %zu", key, text, *count,
                tri_json_size(want));
  for (size_t i = 0; i < *count; i++) {
    int64_t id = -1;
    tri_json_as_int(tri_json_at(want, i), &id);
    ck_assert_msg((*ids)[i] == id, "%s of \"%s\": id %zu is %u, want %lld", key, text, i, (*ids)[i], (long long)id);
  }
}

static size_t without_spaces(char *s, size_t len) {
  size_t n = 0;
  for (size_t i = 0; i < len; i++)
    if (s[i] != ' ') s[n++] = s[i];
  return n;
}

/* The bytes of a text's tokens make the text; one that the decoder lets begin with a space may lack it, and WordPiece's
 * clean-up takes spaces away. */
START_TEST(bytes_of_tokens) {
  tri_json_doc *doc = NULL;
  tri_tokenizer *t = load_fixture(fixtures[_i], &doc);
  tri_tokenizer_scratch *s = scratch_of(t);
  const tri_json *cases = tri_json_root(doc);
  bool wordpiece = !strcmp(fixtures[_i], "wordpiece_bert");
  size_t compared = 0;
  char all[4096], one[64];
  for (size_t i = 0; i < tri_json_size(cases); i++) {
    const uint32_t *ids;
    size_t count, len, given, n = 0;
    char *text = NULL;
    const char *in = tri_json_as_str(tri_json_get(tri_json_at(cases, i), "text"), &given);
    ck_assert_int_eq(tri_tokenizer_encode(t, s, in, given, false, 0, &ids, &count), TRI_OK);
    ck_assert_int_eq(tri_tokenizer_decode(t, ids, count, false, &text, &len), TRI_OK);
    bool whole = !strstr(text, "\xef\xbf\xbd") && !strstr(text, "n't") && len < sizeof all / 2;
    for (size_t k = 0; whole && k < count; k++) n += tri_tokenizer_token_bytes(t, ids[k], all + n, sizeof all - n);
    if (whole && wordpiece) len = without_spaces(text, len);
    if (whole && wordpiece) n = without_spaces(all, n);
    size_t skip = n == len + 1 && all[0] == ' ';
    if (whole) ck_assert_msg(n - skip == len && !memcmp(all + skip, text, len), "\"%s\": \"%.*s\"", text, (int)n, all);
    compared += whole && len;
    tri_free(text);
  }
  ck_assert_uint_gt(compared, 50);
  /* Never more than there is room for, and none for an id that is not there. */
  for (uint32_t id = 0; id < tri_tokenizer_vocab_size(t) + 2; id++) {
    memset(one, 'z', sizeof one);
    size_t n = tri_tokenizer_token_bytes(t, id, one, 3);
    if (n > 3 || one[3] != 'z' || (id >= tri_tokenizer_vocab_size(t) && n)) ck_abort_msg("id %u: %zu", id, n);
  }
  tri_tokenizer_scratch_destroy(s);
  tri_json_free(doc);
  tri_tokenizer_destroy(t);
}
END_TEST

START_TEST(reference_answers) {
  tri_json_doc *doc = NULL;
  tri_tokenizer *t = load_fixture(fixtures[_i], &doc);
  tri_tokenizer_scratch *s = scratch_of(t);
  const tri_json *cases = tri_json_root(doc);
  ck_assert_uint_gt(tri_json_size(cases), 100);
  for (size_t i = 0; i < tri_json_size(cases); i++) {
    const tri_json *item = tri_json_at(cases, i);
    const uint32_t *ids;
    size_t count, len, want_len;
    check_ids(t, s, item, "ids_plain", false, &ids, &count);
    check_ids(t, s, item, "ids", true, &ids, &count);
    const char *want = tri_json_as_str(tri_json_get(item, "decoded"), &want_len);
    char *text = NULL;
    ck_assert_int_eq(tri_tokenizer_decode(t, ids, count, true, &text, &len), TRI_OK);
    ck_assert_msg(len == want_len && !memcmp(text, want, len), "decoded \"%s\", want \"%s\"", text, want);
    tri_free(text);
    check_stream_equals_decode(t, ids, count, true);
    check_stream_equals_decode(t, ids, count, false);
  }
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
  tri_json_free(doc);
}
END_TEST

START_TEST(vocabulary) {
  tri_tokenizer *t = load_fixture("bytelevel_bpe_llama3", NULL);
  uint32_t id = 99;
  ck_assert_uint_eq(tri_tokenizer_vocab_size(t), 4000);
  ck_assert_str_eq(tri_tokenizer_token(t, 0), "<|begin_of_text|>");
  ck_assert_ptr_null(tri_tokenizer_token(t, 4000));
  ck_assert(tri_tokenizer_id(t, "<|eot_id|>", 10, &id) && id == 2);
  ck_assert(!tri_tokenizer_id(t, "<|eot_id|>", 9, &id) && id == 2);
  ck_assert(tri_tokenizer_is_special(t, 2) && !tri_tokenizer_is_special(t, 3) && !tri_tokenizer_is_special(t, 4000));
  char *text = NULL;
  size_t len;
  ck_assert_int_eq(tri_tokenizer_decode(t, (uint32_t[]){3, 4000}, 2, false, &text, &len), TRI_OUT_OF_RANGE);
  tri_tokenizer_destroy(t);
}
END_TEST

/* ---- splitting and added tokens, with a vocabulary of single characters ---- */

#define LETTERS                                                                                                        \
  "\"a\":0,\"b\":1,\"c\":2,\"-\":3,\".\":4,\"1\":5,\"2\":6,\"\\u0120\":7,\"ab\":8,\"--\":9,\"-a\":10,\"a-\":11,"       \
  "\"é\":12,\"x\":13,\" \":14,\"A\":15,\"a1\":16,\"12\":17"
#define MERGES "[\"a b\",\"- -\",\"- a\",\"a -\",\"a 1\",\"1 2\"]"
#define TOKENIZER(normalizer, pretok, added)                                                                           \
  "{\"normalizer\":" normalizer ",\"pre_tokenizer\":" pretok ",\"added_tokens\":[" added "],\"model\":{\"type\":"      \
  "\"BPE\",\"vocab\":{" LETTERS "},\"merges\":" MERGES "}}"
#define SPLIT(pattern, behavior, invert)                                                                               \
  TOKENIZER("null",                                                                                                    \
            "{\"type\":\"Split\",\"pattern\":{" pattern "},\"behavior\":\"" behavior "\",\"invert\":" invert "}", "")

START_TEST(split_behaviors) {
  /* Merges across a cut cannot happen: "--", "a-" and "-a" tell where the cuts are. U+180E is no white space and,
   * unknown to the model, vanishes. */
  static const struct {
    const char *json, *text, *want;
  } cases[] = {
      {SPLIT("\"String\":\"-\"", "Removed", "false"), "ab--a-a", "ab|a|a"},
      {SPLIT("\"String\":\"-\"", "Isolated", "false"), "ab--a-a", "ab|-|-|a|-|a"},
      {SPLIT("\"String\":\"-\"", "Contiguous", "false"), "ab--a-a", "ab|--|a|-|a"},
      {SPLIT("\"String\":\"-\"", "MergedWithPrevious", "false"), "c--a-a", "c|-|-|a-|a"},
      {SPLIT("\"String\":\"-\"", "MergedWithNext", "false"), "c--a-a", "c|-|-a|-a"},
      {SPLIT("\"String\":\"-\"", "Removed", "true"), "ab--a-a", "-|-|-"},
      {SPLIT("\"Regex\":\"-+\"", "Isolated", "false"), "ab--a-a", "ab|--|a|-|a"},
      {SPLIT("\"Regex\":\"\"", "Isolated", "false"), "ab--", "a|b|-|-"},
      {SPLIT("\"Regex\":\"(?=-)\"", "Isolated", "false"), "ab-a--", "ab|-a|-|-"},
      {SPLIT("\"Regex\":\"[^(\\\\s|[.,])]+\"", "Removed", "true"), "ab.a (-", "ab|a|-"},
      {SPLIT("\"Regex\":\"\\\\s\"", "Removed", "true"),
       "a\xe1\xa0\x8e"
       "b",
       ""},
      {SPLIT("\"Regex\":\"\\\\S+\"", "Removed", "true"),
       "a\xe1\xa0\x8e"
       "b a",
       "ab|a"},
      {SPLIT("\"Regex\":\"[^\\\\S-]\"", "Isolated", "false"), "a- a", "a-| |a"},
      {SPLIT("\"Regex\":\"^a\"", "Removed", "false"), "ab\nab", "b|b"},
      {TOKENIZER("null", "{\"type\":\"Digits\",\"individual_digits\":true}", ""), "a12", "a|1|2"},
      {TOKENIZER("null", "{\"type\":\"Digits\",\"individual_digits\":false}", ""), "a12", "a|12"},
      {TOKENIZER("null", "{\"type\":\"Punctuation\"}", ""), "a--.", "a|-|-|."},
      {TOKENIZER("null", "{\"type\":\"Whitespace\"}", ""), "ab --a", "ab|--|a"},
      {TOKENIZER("null", "{\"type\":\"WhitespaceSplit\"}", ""), "ab  --a", "ab|--|a"},
      {TOKENIZER("null", "null", ""), "a1a-b", "a1|a-|b"},
      {TOKENIZER("null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", ""), "ab", "\xc4\xa0|ab"},
      {TOKENIZER("null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}", ""), "", ""},
      {TOKENIZER("{\"type\":\"NFC\"}", "null", ""), "ae\xcc\x81", "a|é"},
      {TOKENIZER("{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}]}", "null", ""), "e\xcc\x81", "é"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_tokenizer *t = parse(cases[i].json);
    check_tokens(t, cases[i].text, cases[i].want);
    tri_tokenizer_destroy(t);
  }
}
END_TEST

#define ADDED(id, text, flags) "{\"id\":" id ",\"content\":\"" text "\"" flags "}"

START_TEST(added_tokens) {
  static const struct {
    const char *json, *text, *want;
  } cases[] = {
      /* the longest of those that begin at one place */
      {TOKENIZER("null", "null", ADDED("18", "<a", "") "," ADDED("19", "<ab>", "") "," ADDED("20", "b>", "")),
       "a<ab>b<ac", "a|<ab>|b|<a|c"},
      {TOKENIZER("null", "null", ADDED("18", "<s>", ",\"lstrip\":true")), "a  <s> b", "a|<s>| |b"},
      {TOKENIZER("null", "null", ADDED("18", "<s>", ",\"rstrip\":true")), "a <s>  <s>b", "a| |<s>|<s>|b"},
      {TOKENIZER("null", "null", ADDED("18", "xx", ",\"single_word\":true")), "axx xx xxé xx",
       "a|x|x| |xx| |x|x|é| |xx"},
      /* a raw token is found before the normalizer, a normalized one in its normalized spelling behind it */
      {TOKENIZER("{\"type\":\"NFC\"}", "null", ADDED("18", "<e\xcc\x81>", ",\"normalized\":true")), "<\xc3\xa9>a",
       "<e\xcc\x81>|a"},
      {TOKENIZER("{\"type\":\"NFC\"}", "null", ADDED("18", "<e\xcc\x81>", ",\"normalized\":false")), "<\xc3\xa9>a",
       "é|a"},
      /* one that the model has as well keeps its id */
      {TOKENIZER("null", "null", ADDED("2", "c", ",\"special\":true")), "acb", "a|c|b"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_tokenizer *t = parse(cases[i].json);
    check_tokens(t, cases[i].text, cases[i].want);
    tri_tokenizer_destroy(t);
  }
}
END_TEST

#define MODEL(fields)                                                                                                  \
  "{\"pre_tokenizer\":null,\"model\":{\"vocab\":{\"<u>\":0,\"a\":1,\"<0xC3>\":2,\"<0xA9>\":3,\"ab\":4,\"b\":5}"        \
  "," fields "}}"

START_TEST(model_options) {
  static const struct {
    const char *json, *text, *want;
  } cases[] = {
      {MODEL("\"merges\":[]"), "ab\xc3\xa9", "a|b"},
      {MODEL("\"merges\":[[\"a\",\"b\"]]"), "ab", "ab"},
      {MODEL("\"merges\":[\"#version: 0.2\",\"a b\"]"), "ab", "ab"},
      {MODEL("\"merges\":[],\"ignore_merges\":true"), "ab", "ab"},
      {MODEL("\"merges\":[],\"unk_token\":\"<u>\""), "axxb", "a|<u>|<u>|b"},
      {MODEL("\"merges\":[],\"unk_token\":\"<u>\",\"fuse_unk\":true"), "axxbx", "a|<u>|b|<u>"},
      {MODEL("\"merges\":[],\"unk_token\":\"<u>\",\"byte_fallback\":true"), "a\xc3\xa9x", "a|<0xC3>|<0xA9>|<u>"},
      {MODEL("\"merges\":[],\"unk_token\":\"\",\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":\"\","
             "\"dropout\":0"),
       "ab", "a|b"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_tokenizer *t = parse(cases[i].json);
    check_tokens(t, cases[i].text, cases[i].want);
    tri_tokenizer_destroy(t);
  }
}
END_TEST

#define POST(p)                                                                                                        \
  "{\"post_processor\":" p ",\"model\":{\"vocab\":{\"[\":0,\"a\":1,\"]\":2,\"(\":3,\")\":4},\"merges\":[]}}"
#define TEMPLATE(single)                                                                                               \
  "{\"type\":\"TemplateProcessing\",\"single\":[" single                                                               \
  "],\"special_tokens\":{\"[\":{\"id\":\"[\",\"ids\":[0]},\"]\":{"                                                     \
  "\"id\":\"]\",\"ids\":[2,2]}}}"
#define SPECIAL(t) "{\"SpecialToken\":{\"id\":\"" t "\",\"type_id\":0}}"
#define TEXT_A "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define ROBERTA                                                                                                        \
  "{\"type\":\"RobertaProcessing\",\"cls\":[\"(\",3],\"sep\":[\")\",4],\"trim_offsets\":true,\"add_prefix_space\":"    \
  "true}"

START_TEST(post_processors) {
  static const struct {
    const char *json, *want;
  } cases[] = {
      {POST("null"), "a|a"},
      {POST("{\"type\":\"ByteLevel\"}"), "a|a"},
      {POST(TEMPLATE(SPECIAL("[") "," TEXT_A "," SPECIAL("]"))), "[|a|a|]|]"},
      {POST(ROBERTA), "(|a|a|)"},
      {POST("{\"type\":\"Sequence\",\"processors\":[" ROBERTA
            "," TEMPLATE(SPECIAL("[") "," TEXT_A "," SPECIAL("]")) "]}"),
       "[|(|a|a|)|]|]"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_tokenizer *t = parse(cases[i].json);
    check_tokens(t, "aa", cases[i].want);
    tri_tokenizer_destroy(t);
  }
}
END_TEST

/* ---- hostile files ---- */

#define OK_MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define WITH(rest) "{" OK_MODEL "," rest "}"
#define VOCAB(v) "{\"model\":{\"type\":\"BPE\",\"vocab\":" v ",\"merges\":[]}}"
#define MERGE(m) "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":" m "}}"
#define OPTION(o) "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]," o "}}"
#define UNIGRAM(vocab, unk) "{\"model\":{\"type\":\"Unigram\",\"vocab\":" vocab ",\"unk_id\":" unk "}}"
#define WORDPIECE(unk, prefix, max)                                                                                    \
  "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":" unk ",\"continuing_subword_prefix\":" prefix \
  ",\"max_input_chars_per_word\":" max "}}"
#define CHARSMAP(base64) WITH("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"" base64 "\"}")
#define REGEX(r)                                                                                                       \
  WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" r                                             \
       "\"},\"behavior\":\"Isolated\",\"invert\":false}")

static const struct {
  const char *json, *field;
} hostile[] = {
    {"[]", ""},
    {"{", ""},
    {"{}", "model"},
    {"{\"model\":[]}", "model"},
    {"{\"model\":{}}", "model.type"},
    {"{\"model\":{\"type\":7}}", "model.type"},
    {"{\"model\":{\"type\":\"WordLevel\"}}", "model.vocab"},
    {"{\"model\":{\"type\":\"Sparkle\"}}", "model.type"},
    {WITH("\"surprise\":1"), "surprise"},
    {VOCAB("[]"), "model.vocab"},
    {VOCAB("{\"a\":-1}"), "model.vocab[\"a\"]"},
    {VOCAB("{\"a\":4294967296}"), "model.vocab[\"a\"]"},
    {VOCAB("{\"a\":4000000000}"), "model.vocab[\"a\"]"},
    {VOCAB("{\"a\":1.5}"), "model.vocab[\"a\"]"},
    {VOCAB("{\"a\":\"0\"}"), "model.vocab[\"a\"]"},
    {VOCAB("{\"a\":0,\"b\":0}"), "model.vocab[\"b\"]"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "model.merges"},
    {MERGE("{}"), "model.merges"},
    {MERGE("[\"a c\"]"), "model.merges[0]"},
    {MERGE("[\"a b\",\"b a\"]"), "model.merges[1]"},
    {MERGE("[\"ab\"]"), "model.merges[0]"},
    {MERGE("[\"a  b\"]"), "model.merges[0]"},
    {MERGE("[\" b\"]"), "model.merges[0]"},
    {MERGE("[[\"a\"]]"), "model.merges[0]"},
    {MERGE("[[\"a\",1]]"), "model.merges[0]"},
    {MERGE("[null]"), "model.merges[0]"},
    {OPTION("\"dropout\":1.1"), "model.dropout"},
    {OPTION("\"dropout\":\"0\""), "model.dropout"},
    {OPTION("\"unk_token\":\"zzz\""), "model.unk_token"},
    {OPTION("\"unk_token\":0"), "model.unk_token"},
    {OPTION("\"continuing_subword_prefix\":1"), "model.continuing_subword_prefix"},
    {OPTION("\"end_of_word_suffix\":false"), "model.end_of_word_suffix"},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a "
     "b\"],\"continuing_subword_prefix\":\"##\"}}",
     "model.merges[0]"},
    {UNIGRAM("[]", "0"), "model.vocab"},
    {UNIGRAM("{}", "0"), "model.vocab"},
    {UNIGRAM("[1]", "0"), "model.vocab[0]"},
    {UNIGRAM("[[\"a\"]]", "0"), "model.vocab[0]"},
    {UNIGRAM("[[\"a\",\"-1\"]]", "0"), "model.vocab[0]"},
    {UNIGRAM("[[1,-1]]", "0"), "model.vocab[0][0]"},
    {UNIGRAM("[[\"a\",-1]]", "1"), "model.unk_id"},
    {UNIGRAM("[[\"a\",-1]]", "null"), "model.unk_id"},
    {WORDPIECE("\"b\"", "\"##\"", "100"), "model.unk_token"},
    {WORDPIECE("null", "\"##\"", "100"), "model.unk_token"},
    {WORDPIECE("\"a\"", "null", "100"), "model.continuing_subword_prefix"},
    {WORDPIECE("\"a\"", "\"##\"", "-1"), "model.max_input_chars_per_word"},
    {OPTION("\"byte_fallback\":1"), "model.byte_fallback"},
    {OPTION("\"sparkle\":null"), "model.sparkle"},
    {WITH("\"added_tokens\":{}"), "added_tokens"},
    {WITH("\"added_tokens\":[1]"), "added_tokens[0]"},
    {WITH("\"added_tokens\":[{\"content\":\"x\"}]"), "added_tokens[0].id"},
    {WITH("\"added_tokens\":[{\"id\":3}]"), "added_tokens[0].content"},
    {WITH("\"added_tokens\":[{\"id\":-3,\"content\":\"x\"}]"), "added_tokens[0].id"},
    {WITH("\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]"), "added_tokens[0].id"},
    {WITH("\"added_tokens\":[{\"id\":9,\"content\":\"x\"}]"), "added_tokens[0].id"},
    {WITH("\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"lstrip\":\"yes\"}]"), "added_tokens[0].lstrip"},
    {WITH("\"added_tokens\":[{\"id\":3,\"content\":\"x\",\"color\":1}]"), "added_tokens[0].color"},
    {WITH("\"normalizer\":{\"type\":\"BertNormaliser\"}"), "normalizer.type"},
    {WITH("\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":\"yes\"}"), "normalizer.lowercase"},
    {WITH("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Precompiled\"}]}"),
     "normalizer.normalizers[0].precompiled_charsmap"},
    {CHARSMAP("AAAA"), "normalizer.precompiled_charsmap"},
    {CHARSMAP("AAAAA==="), "normalizer.precompiled_charsmap"},
    {CHARSMAP("AA=AAAAA"), "normalizer.precompiled_charsmap"},
    {CHARSMAP("BAAAAA=="), "normalizer.precompiled_charsmap"},
    {CHARSMAP("AAAAAP8="), "normalizer.precompiled_charsmap"},
    {WITH("\"normalizer\":{\"type\":\"Prepend\"}"), "normalizer.prepend"},
    {WITH("\"normalizer\":{\"type\":\"Strip\",\"strip_left\":1}"), "normalizer.strip_left"},
    {WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":\"a\",\"content\":\"b\"}"), "normalizer.pattern"},
    {WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"b\"}"),
     "normalizer.pattern.Regex"},
    {WITH("\"normalizer\":{\"type\":\"Sequence\"}"), "normalizer.normalizers"},
    {WITH("\"normalizer\":{\"type\":\"NFC\",\"form\":2}"), "normalizer.form"},
    {WITH("\"pre_tokenizer\":[]"), "pre_tokenizer"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Metaphysics\"}"), "pre_tokenizer.type"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\"}"), "pre_tokenizer.replacement"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}"), "pre_tokenizer.replacement"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}"),
     "pre_tokenizer.prepend_scheme"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"first\","
          "\"add_prefix_space\":false}"),
     "pre_tokenizer.prepend_scheme"},
    {WITH("\"pre_tokenizer\":{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"\"}"), "pre_tokenizer.delimiter"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\",\"x\":1}]}"),
     "pre_tokenizer.pretokenizers[0].x"},
    {WITH("\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":\"\"}"), "pre_tokenizer.use_regex"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a\"},\"behavior\":\"Mangled\"}"),
     "pre_tokenizer.behavior"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{},\"behavior\":\"Removed\"}"), "pre_tokenizer.pattern"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Glob\":\"*\"},\"behavior\":\"Removed\"}"),
     "pre_tokenizer.pattern.Glob"},
    {REGEX("("), "pre_tokenizer.pattern.Regex"},
    {REGEX("[a"), "pre_tokenizer.pattern.Regex"},
    {REGEX("(*LIMIT_MATCH=1)a"), "pre_tokenizer.pattern.Regex"},
    {REGEX("(?R)"), "pre_tokenizer.pattern.Regex"},
    {REGEX("a(?i)b"), "pre_tokenizer.pattern.Regex"},
    {REGEX("[[:lower:]]"), "pre_tokenizer.pattern.Regex"},
    {REGEX("[[:sparkle:]]"), "pre_tokenizer.pattern.Regex"},
    {REGEX("\\\\Gx"), "pre_tokenizer.pattern.Regex"},
    {REGEX("(a)\\\\1"), "pre_tokenizer.pattern.Regex"},
    {REGEX("\\\\p{N}{1,3}+"), "pre_tokenizer.pattern.Regex"},
    {REGEX("a\\\\"), "pre_tokenizer.pattern.Regex"},
    {WITH("\"post_processor\":{\"type\":\"Blender\"}"), "post_processor.type"},
    {WITH("\"post_processor\":" TEMPLATE(SPECIAL("["))), "post_processor.single"},
    {WITH("\"post_processor\":" TEMPLATE(TEXT_A "," TEXT_A)), "post_processor.single[1]"},
    {WITH("\"post_processor\":" TEMPLATE(TEXT_A "," SPECIAL("?"))), "post_processor.single[1].SpecialToken.id"},
    {WITH("\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"c\",3],\"sep\":[\"s\",0]}"),
     "post_processor.cls[1]"},
    {WITH("\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"c\",0],\"sep\":\"s\"}"), "post_processor.sep"},
    {WITH("\"decoder\":{\"type\":\"Rot13\"}"), "decoder.type"},
    {WITH("\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"CTC\"}]}"),
     "decoder.decoders[1].type"},
    {WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}"), "decoder.start"},
    {WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1}"), "decoder.stop"},
    {WITH("\"decoder\":{\"type\":\"WordPiece\"}"), "decoder.prefix"},
    {WITH("\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"\"}"), "decoder.suffix"},
};

START_TEST(hostile_files) {
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  tri_status st = tri_tokenizer_parse(hostile[_i].json, strlen(hostile[_i].json), &t, &err);
  ck_assert_msg(st != TRI_OK, "accepted: %s", hostile[_i].json);
  ck_assert_ptr_null(t);
  ck_assert_msg(!strcmp(err.field, hostile[_i].field), "field %s, want %s: %s", err.field, hostile[_i].field,
                err.message);
  ck_assert_int_eq(err.status, st);
  ck_assert_int_gt(strlen(err.message), 0);
}
END_TEST

/* ---- texts and streams ---- */

START_TEST(ill_formed_utf8) {
  static const struct {
    const char *bytes, *repaired;
  } cases[] = {
      {"a\xff"
       "b",
       "a\xef\xbf\xbd"
       "b"},
      {"\xe2\x82", "\xef\xbf\xbd"},
      {"\xe2\x82"
       "a",
       "\xef\xbf\xbd"
       "a"},
      {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
      {"\xf0\x9f\x98\xf0\x9f\x98\x80", "\xef\xbf\xbd\xf0\x9f\x98\x80"},
      {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
  };
  tri_tokenizer *t = load_fixture(fixtures[0], NULL);
  tri_tokenizer_scratch *s = scratch_of(t);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const uint32_t *ids;
    size_t count, len;
    char *text = NULL;
    ck_assert_int_eq(tri_tokenizer_encode(t, s, cases[i].bytes, strlen(cases[i].bytes), false, 0, &ids, &count),
                     TRI_OK);
    ck_assert_int_eq(tri_tokenizer_decode(t, ids, count, false, &text, &len), TRI_OK);
    ck_assert_str_eq(text, cases[i].repaired);
    tri_free(text);
  }
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* Random ids are byte soup: characters cut anywhere, continuation bytes without a beginning. */
START_TEST(byte_soup_streams) {
  tri_tokenizer *t = load_fixture(fixtures[_i], NULL);
  uint32_t seed = 12345, ids[64];
  for (int round = 0; round < 2000; round++) {
    for (size_t i = 0; i < 64; i++) {
      seed = seed * 1664525u + 1013904223u;
      /* mostly single bytes, which stand first in the vocabulary */
      ids[i] = (seed >> 8) % (round & 1 ? 260 : tri_tokenizer_vocab_size(t));
    }
    check_stream_equals_decode(t, ids, (size_t)round % 65, round & 2);
  }
  tri_tokenizer_destroy(t);
}
END_TEST

START_TEST(token_limit) {
  tri_tokenizer *t = load_fixture("bytelevel_bpe_llama3", NULL);
  tri_tokenizer_scratch *s = scratch_of(t);
  const uint32_t *ids;
  size_t count, whole;
  const char *text = "The quick brown fox jumps over the lazy dog.";
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, strlen(text), true, 0, &ids, &whole), TRI_OK);
  for (size_t limit = 1; limit < whole + 2; limit++) {
    tri_status st = tri_tokenizer_encode(t, s, text, strlen(text), true, limit, &ids, &count);
    ck_assert_int_eq(st, limit < whole ? TRI_TOO_LARGE : TRI_OK);
  }
  ck_assert_uint_eq(count, whole);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* A word of a quarter of a million letters and no space, and runs that make patterns backtrack. Quadratic work would
 * take hours; what is checked is the answer. */
START_TEST(long_words) {
  enum { N = 1 << 18 };
  static const char *const units[] = {"a", "abcdefgh", " ", "\n", " \n", "9", "'", "é", "\xcc\x81", "\xcc\x81\xcc\xa7"};
  tri_tokenizer *t = load_fixture(fixtures[_i], NULL);
  tri_tokenizer_scratch *s = scratch_of(t);
  char *text = tri_malloc(N + 1, 1);
  for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
    size_t unit = strlen(units[u]), len = 0, count, back_len;
    const uint32_t *ids;
    char *back = NULL;
    for (; len + unit <= N; len += unit) memcpy(text + len, units[u], unit);
    ck_assert_int_eq(tri_tokenizer_encode(t, s, text, len, false, 0, &ids, &count), TRI_OK);
    ck_assert_int_eq(tri_tokenizer_decode(t, ids, count, false, &back, &back_len), TRI_OK);
    if (_i < LOSSLESS) {
      ck_assert_uint_eq(back_len, len);
      ck_assert_mem_eq(back, text, len);
    }
    tri_free(back);
    tri_status st = count > 100 ? TRI_TOO_LARGE : TRI_OK; /* a word may be one unknown token */
    ck_assert_int_eq(tri_tokenizer_encode(t, s, text, len, false, 100, &ids, &count), st);
  }
  tri_free(text);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* Long words take the heap, short ones the scan; on a word made of independent parts both must agree. */
START_TEST(long_and_short_words_merge_alike) {
  tri_tokenizer *t =
      parse("{\"model\":{\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"|\":3,\"aa\":4,\"ab\":5,\"abc\":6,\"bc\":7,"
            "\"aab\":8,\"aaab\":9,\"ca\":10},\"merges\":[\"b c\",\"a a\",\"a b\",\"ab c\",\"a bc\",\"aa b\","
            "\"aa ab\",\"c a\"]}}");
  tri_tokenizer_scratch *s = scratch_of(t);
  uint32_t seed = 7, want[4096];
  for (int round = 0; round < 300; round++) {
    char text[1024];
    size_t len = 0, wanted = 0, count;
    const uint32_t *ids;
    while (len < 900) {
      size_t start = len;
      seed = seed * 1664525u + 1013904223u;
      for (uint32_t left = 1 + (seed >> 20) % 30; left--;) {
        seed = seed * 1664525u + 1013904223u;
        text[len++] = "abc"[(seed >> 16) % 3];
      }
      ck_assert_int_eq(tri_tokenizer_encode(t, s, text + start, len - start, false, 0, &ids, &count), TRI_OK);
      memcpy(want + wanted, ids, count * sizeof *ids);
      wanted += count;
      text[len++] = '|'; /* merges with nothing */
      want[wanted++] = 3;
    }
    ck_assert_int_eq(tri_tokenizer_encode(t, s, text, len, false, 0, &ids, &count), TRI_OK);
    ck_assert_uint_eq(count, wanted);
    ck_assert_mem_eq(ids, want, count * sizeof *ids);
  }
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* ---- threads ---- */

struct encoder {
  const tri_tokenizer *t;
  const tri_json *cases;
  size_t wrong;
};

static void *encode_cases(void *arg) {
  struct encoder *e = arg;
  tri_tokenizer_scratch *s = NULL;
  if (tri_tokenizer_scratch_create(e->t, &s) != TRI_OK) return e->wrong = 1, NULL;
  for (size_t round = 0; round < 20; round++)
    for (size_t i = 0; i < tri_json_size(e->cases); i++) {
      const tri_json *item = tri_json_at(e->cases, i), *want = tri_json_get(item, "ids");
      const uint32_t *ids;
      size_t len, count;
      const char *text = tri_json_as_str(tri_json_get(item, "text"), &len);
      if (tri_tokenizer_encode(e->t, s, text, len, true, 0, &ids, &count) != TRI_OK || count != tri_json_size(want)) {
        e->wrong++;
        continue;
      }
      for (size_t k = 0; k < count; k++) {
        int64_t id = -1;
        tri_json_as_int(tri_json_at(want, k), &id);
        e->wrong += id != ids[k];
      }
    }
  tri_tokenizer_scratch_destroy(s);
  return NULL;
}

START_TEST(two_threads) {
  tri_json_doc *doc = NULL;
  tri_tokenizer *t = load_fixture(fixtures[_i], &doc);
  struct encoder e[2];
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    e[i] = (struct encoder){t, tri_json_root(doc), 0};
    ck_assert_int_eq(pthread_create(&threads[i], NULL, encode_cases, &e[i]), 0);
  }
  for (int i = 0; i < 2; i++) {
    ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert_uint_eq(e[i].wrong, 0);
  }
  tri_tokenizer_destroy(t);
  tri_json_free(doc);
}
END_TEST

Suite *suite_tokenizer(void) {
  Suite *suite = suite_create("tokenizer");
  TCase *c = tcase_create("tokenizer");
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, reference_answers, 0, FIXTURES);
  tcase_add_loop_test(c, bytes_of_tokens, 0, FIXTURES);
  tcase_add_test(c, vocabulary);
  tcase_add_test(c, split_behaviors);
  tcase_add_test(c, added_tokens);
  tcase_add_test(c, model_options);
  tcase_add_test(c, post_processors);
  tcase_add_loop_test(c, hostile_files, 0, sizeof hostile / sizeof *hostile);
  tcase_add_test(c, ill_formed_utf8);
  tcase_add_loop_test(c, byte_soup_streams, 0, FIXTURES);
  tcase_add_test(c, token_limit);
  tcase_add_loop_test(c, long_words, 0, FIXTURES);
  tcase_add_test(c, long_and_short_words_merge_alike);
  suite_add_tcase(suite, c);
  c = tcase_create("threads"); /* alone under the thread sanitizer */
  tcase_set_timeout(c, 120);
  tcase_add_loop_test(c, two_threads, 0, FIXTURES);
  suite_add_tcase(suite, c);
  return suite;
}
