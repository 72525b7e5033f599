/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers in other files than tokenizer.json: the libraries' answers, which file of a folder counts, refusals, long
 * runs. tests/tools/make_tokenizer_files.py made the data. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json/json.h"
#include "base/mem.h"
#include "text/tokenizer/tokenizer.h"

Suite *suite_tokenizer_files(void);

static const struct {
  const char *folder, *file;
} fixtures[] = {{"tekken_v3", "tekken.json"},
                {"tekken_v13", "tekken.json"},
                {"tiktoken_kimi", "tiktoken.model"},
                {"tiktoken_llama", "tokenizer.model"},
                {"spm_unigram_t5", "spiece.model"},
                {"spm_unigram_xlmr", "sentencepiece.bpe.model"},
                {"spm_unigram_bytes", "tokenizer.model"},
                {"spm_bpe_llama", "tokenizer.model"},
                {"spm_bpe_user", "tokenizer.model"},
                {"spm_bpe_gemma", "tokenizer.model"},
                {"spm_bpe_after", "tokenizer.model"}};
enum { FIXTURES = sizeof fixtures / sizeof *fixtures };

/* ---- helpers ---- */

static tri_tokenizer *load(const char *name) {
  char path[512];
  tri_error err = {0};
  tri_tokenizer *t = NULL;
  snprintf(path, sizeof path, "%s/tokenizer_files/%s", TRI_TEST_DATA, name);
  ck_assert_msg(tri_tokenizer_load_folder(path, &t, &err) == TRI_OK, "%s: %s: %s", path, err.field, err.message);
  return t;
}

static tri_tokenizer_scratch *scratch_of(const tri_tokenizer *t) {
  tri_tokenizer_scratch *s = NULL;
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
  return s;
}

/* ---- the libraries' answers ---- */

static void check_ids(const tri_tokenizer *t, tri_tokenizer_scratch *s, const char *name, const tri_json *item,
                      const char *key, bool add_special) {
  const uint32_t *ids;
  size_t len, count;
  const char *text = tri_json_as_str(tri_json_get(item, "text"), &len);
  const tri_json *want = tri_json_get(item, key);
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, len, add_special, 0, &ids, &count), TRI_OK);
  ck_assert_msg(count == tri_json_size(want), "%s: %s of \"%s\": %zu ids, want %zu", name, key, text, count,
                tri_json_size(want));
  for (size_t i = 0; i < count; i++) {
    int64_t id = -1;
    tri_json_as_int(tri_json_at(want, i), &id);
    ck_assert_msg(ids[i] == id, "%s: %s of \"%s\": id %zu is %u, want %lld", name, key, text, i, ids[i], (long long)id);
  }
}

static void check_stream(const tri_tokenizer *t, const uint32_t *ids, size_t count, const char *want, size_t len) {
  tri_detokenizer *d = NULL;
  const char *piece;
  size_t at = 0, n;
  ck_assert_int_eq(tri_detokenizer_create(t, true, &d), TRI_OK);
  for (size_t i = 0; i <= count; i++) {
    tri_status st = i < count ? tri_detokenizer_push(d, ids[i], &piece, &n) : tri_detokenizer_finish(d, &piece, &n);
    ck_assert_int_eq(st, TRI_OK);
    ck_assert_uint_le(n, len - at);
    ck_assert_mem_eq(piece, want + at, n);
    at += n;
  }
  ck_assert_uint_eq(at, len);
  tri_detokenizer_destroy(d);
}

static void check_decoded(const tri_tokenizer *t, const char *name, const tri_json *item) {
  uint32_t ids[4096];
  const tri_json *list = tri_json_get(item, "ids");
  size_t len, got_len, count = tri_json_size(list);
  const char *want = tri_json_as_str(tri_json_get(item, "decoded"), &len);
  char *got = NULL;
  if (!want) return;
  ck_assert_uint_le(count, sizeof ids / sizeof *ids);
  for (size_t i = 0; i < count; i++) {
    int64_t id = -1;
    tri_json_as_int(tri_json_at(list, i), &id);
    ids[i] = (uint32_t)id;
  }
  ck_assert_int_eq(tri_tokenizer_decode(t, ids, count, true, &got, &got_len), TRI_OK);
  ck_assert_msg(got_len == len && !memcmp(got, want, len), "%s: decoded \"%s\", want \"%s\"", name, got, want);
  check_stream(t, ids, count, want, len);
  tri_free(got);
}

START_TEST(answers) {
  const char *name = fixtures[_i].folder;
  char path[512];
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  tri_tokenizer *t = load(name);
  tri_tokenizer_scratch *s = scratch_of(t);
  snprintf(path, sizeof path, "%s/tokenizer_files/%s", TRI_TEST_DATA, name);
  ck_assert_str_eq(tri_tokenizer_file(path), fixtures[_i].file);
  snprintf(path, sizeof path, "%s/tokenizer_files/%s/expected.json", TRI_TEST_DATA, name);
  ck_assert_msg(tri_json_read_file(path, 1 << 24, &doc, &err) == TRI_OK, "%s", err.message);
  const tri_json *cases = tri_json_root(doc);
  ck_assert_uint_gt(tri_json_size(cases), 100);
  for (size_t i = 0; i < tri_json_size(cases); i++) {
    const tri_json *item = tri_json_at(cases, i);
    if (tri_json_get(item, "text")) {
      check_ids(t, s, name, item, "ids", true);
      check_ids(t, s, name, item, "ids_plain", false);
    }
    check_decoded(t, name, item);
  }
  tri_json_free(doc);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* ---- folders ---- */

static void copy(const char *from, const char *dir, const char *to) {
  char command[1200];
  snprintf(command, sizeof command, "cp %s/%s %s/%s", TRI_TEST_DATA, from, dir, to);
  ck_assert_int_eq(system(command), 0);
}

/* Each file that is added comes before those that were there. */
START_TEST(the_first_file_counts) {
  static const struct {
    const char *from, *file, *token;
    uint32_t id;
  } files[] = {{"tokenizer_files/spm_unigram_xlmr/sentencepiece.bpe.model", "sentencepiece.bpe.model", "<s>", 1},
               {"tokenizer_files/spm_unigram_t5/spiece.model", "spiece.model", "<pad>", 3},
               {"tokenizer_files/spm_bpe_llama/tokenizer.model", "tokenizer.model", "</s>", 2},
               {"tokenizer_files/tiktoken_llama/tokenizer.model", "tiktoken.model", "<|begin_of_text|>", 400},
               {"tokenizer_files/tekken_v3/tekken.json", "tekken.json", "[INST]", 3},
               {"tokenizers/spm_bpe_llama2/tokenizer.json", "tokenizer.json", "</s>", 2}};
  char dir[] = "/tmp/tokenizer_files_XXXXXX", command[64];
  tri_error err = {0};
  tri_tokenizer *t = NULL;
  uint64_t last = 0;
  ck_assert_ptr_nonnull(mkdtemp(dir));
  ck_assert_ptr_null(tri_tokenizer_file(dir));
  ck_assert_int_eq(tri_tokenizer_load_folder(dir, &t, &err), TRI_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(err.message, "tokenizer.json"));
  copy("tokenizer_files/spm_bpe_llama/config.json", dir, "config.json");
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    uint32_t id = UINT32_MAX;
    copy(files[i].from, dir, files[i].file);
    ck_assert_str_eq(tri_tokenizer_file(dir), files[i].file);
    ck_assert_msg(tri_tokenizer_load_folder(dir, &t, &err) == TRI_OK, "%s: %s", files[i].file, err.message);
    ck_assert(tri_tokenizer_id(t, files[i].token, strlen(files[i].token), &id));
    ck_assert_uint_eq(id, files[i].id);
    ck_assert_uint_ne(tri_tokenizer_hash(t), last);
    last = tri_tokenizer_hash(t);
    tri_tokenizer_destroy(t);
  }
  snprintf(command, sizeof command, "rm -r %s", dir);
  ck_assert_int_eq(system(command), 0);
}
END_TEST

/* ---- refusals ---- */

static const struct {
  const char *file, *config, *data, *field, *message;
  tri_status status;
  size_t len; /* 0: of the text */
} refusals[] = {
    {"tekken.json", "{}", "{", "", "JSON", TRI_CORRUPT, 0},
    {"tekken.json", "{}", "{}", "config.pattern", "must be a string", TRI_CORRUPT, 0},
    {"tekken.json", "{}", "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":-1}}", "config.default_vocab_size",
     "not negative", TRI_CORRUPT, 0},
    {"tekken.json", "{}",
     "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":5000000,\"default_num_special_tokens\":1}}",
     "config.default_vocab_size", "the limit is", TRI_TOO_LARGE, 0},
    {"tekken.json", "{}", "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":3,\"default_num_special_tokens\":4}}",
     "config.default_num_special_tokens", "4 of 3", TRI_CORRUPT, 0},
    {"tekken.json", "{}",
     "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":3,\"default_num_special_tokens\":1,\"version\":\"v11\"}}",
     "special_tokens", "must be there, as of version v8", TRI_CORRUPT, 0},
    {"tekken.json", "{}",
     "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":3,\"default_num_special_tokens\":1,\"version\":\"x\"}}",
     "config.version", "x is no version", TRI_UNSUPPORTED, 0},
    {"tekken.json", "{}",
     "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":3,\"default_num_special_tokens\":1},\"special_tokens\":[{"
     "\"rank\":1,\"token_str\":\"s\"}]}",
     "special_tokens[0].rank", "must be 0", TRI_CORRUPT, 0},
    {"tekken.json", "{}",
     "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":3,\"default_num_special_tokens\":1},\"special_tokens\":[],"
     "\"vocab\":[]}",
     "vocab", "0 tokens, default_vocab_size wants 2", TRI_CORRUPT, 0},
    {"tekken.json", "{}",
     "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":2,\"default_num_special_tokens\":1},\"special_tokens\":[],"
     "\"vocab\":[{\"rank\":0,\"token_bytes\":\"?\"}]}",
     "vocab[0].token_bytes", "is no base64", TRI_CORRUPT, 0},
    {"tekken.json", "{}",
     "{\"config\":{\"pattern\":\"a\",\"default_vocab_size\":2,\"default_num_special_tokens\":1},\"special_tokens\":[],"
     "\"vocab\":[{\"rank\":0,\"token_bytes\":\"AA==\"}]}",
     "vocab", "the byte 1 is no token", TRI_CORRUPT, 0},
    {"tekken.json", "{}",
     "{\"config\":{\"pattern\":\"(\",\"default_vocab_size\":2,\"default_num_special_tokens\":1},\"special_tokens\":[],"
     "\"vocab\":[{\"rank\":0,\"token_bytes\":\"AA==\"}]}",
     "config.pattern", "parenthesis", TRI_UNSUPPORTED, 0},
    {"tiktoken.model", "{\"model_type\":\"qwen\"}", "IQ== 0\n", "model_type", "of the family qwen: the pattern",
     TRI_NOT_FOUND, 0},
    {"tiktoken.model", "{}", "IQ== 0\n", "model_type", "of the family (none)", TRI_NOT_FOUND, 0},
    {"tiktoken.model", "{\"model_type\":\"kimi_k2\"}", "IQ== 0\n\nIQ==0\n", "line 3", "and its rank", TRI_CORRUPT, 0},
    {"tiktoken.model", "{\"model_type\":\"kimi_k2\"}", "I! 0\n", "line 1", "no base64", TRI_CORRUPT, 0},
    {"tiktoken.model", "{\"model_type\":\"kimi_k2\"}", "IQ== 0\nIg== 0\n", "line 2", "came before", TRI_CORRUPT, 0},
    {"tiktoken.model", "{\"model_type\":\"kimi_k2\"}", "IQ== 0\nIg== 2\n", "line 2", "above the number",
     TRI_OUT_OF_RANGE, 0},
    {"tiktoken.model", "{\"model_type\":\"kimi_k2\"}", "IQ== 0\nIQ== 1\n", "tokens[1]", "is there twice", TRI_CORRUPT,
     0},
    {"tiktoken.model", "{\"model_type\":\"kimi_k2\"}", "IQ== 0\n", "tokens", "the byte 0 is no token", TRI_CORRUPT, 0},
    {"tiktoken.model", "{\"model_type\":\"kimi_k2\"}", "\n\n", "", "0 tokens", TRI_OUT_OF_RANGE, 0},
    {"spiece.model", "{\"model_type\":\"bert\"}", "\x0a\x00", "model_type", "of the family bert", TRI_NOT_FOUND, 2},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x12\x00", "pieces", "there are none", TRI_CORRUPT, 2},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x05", "", "cut off", TRI_CORRUPT, 2},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "", "cut off",
     TRI_CORRUPT, 11},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0b", "", "cut off or no message", TRI_CORRUPT, 1},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x00", "pieces[0].piece", "is empty", TRI_CORRUPT, 2},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x02\x0a\x00", "pieces[0].piece", "is empty", TRI_CORRUPT, 4},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x03\x0a\x01\xff", "pieces[0].piece", "is not UTF-8", TRI_CORRUPT,
     5},
    {"spiece.model", "{\"model_type\":\"t5\"}",
     "\x0a\x04\x0a\x02"
     "a\0",
     "pieces[0].piece", "NUL", TRI_UNSUPPORTED, 6},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x02\x08\x01", "pieces[0].piece", "wire type", TRI_CORRUPT, 4},
    {"spiece.model", "{\"model_type\":\"t5\"}",
     "\x0a\x08\x0a\x01"
     "a\x15\x00\x00\xc0\x7f",
     "pieces[0].score", "no finite number", TRI_OUT_OF_RANGE, 10},
    {"spiece.model", "{\"model_type\":\"t5\"}",
     "\x0a\x05\x0a\x01"
     "a\x18\x07",
     "pieces[0].type", "no type", TRI_CORRUPT, 7},
    {"spiece.model", "{\"model_type\":\"t5\"}",
     "\x0a\x03\x0a\x01"
     "a",
     "pieces", "none is the unknown token", TRI_CORRUPT, 5},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x05\x0a\x01u\x18\x02\x0a\x05\x0a\x01v\x18\x02", "pieces[1]",
     "second unknown token", TRI_CORRUPT, 14},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x05\x0a\x01u\x18\x02\x0a\x05\x0a\x01v\x18\x06", "pieces[1]",
     "byte_fallback is false", TRI_CORRUPT, 14},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x05\x0a\x01u\x18\x02\x12\x03\x98\x02\x01", "pieces",
     "the byte 0 is missing", TRI_CORRUPT, 12},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x05\x0a\x01u\x18\x02\x0a\x03\x0a\x01v\x0a\x03\x0a\x01v",
     "pieces[2]", "v is there twice", TRI_CORRUPT, 17},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x05\x0a\x01u\x18\x02\x12\x02\x18\x03", "trainer_spec.model_type",
     "3 is not supported", TRI_UNSUPPORTED, 11},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x05\x0a\x01u\x18\x02\x0a\x05\x0a\x01v\x18\x05\x12\x02\x18\x02",
     "pieces[1]", "unused token of a BPE model", TRI_UNSUPPORTED, 18},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x05\x0a\x01u\x18\x02\x1a\x03\x12\x01m",
     "normalizer_spec.precompiled_charsmap", "the map has 1 bytes", TRI_CORRUPT, 12},
    {"spiece.model", "{\"model_type\":\"t5\"}", "\x0a\x05\x0a\x01u\x18\x02\x2a\x03\x12\x01m",
     "denormalizer_spec.precompiled_charsmap", "not supported", TRI_UNSUPPORTED, 12},
    {"sentencepiece.bpe.model", "{\"model_type\":\"xlm-roberta\"}", "\x0a\x05\x0a\x01u\x18\x02", "pieces",
     "1 tokens are too few", TRI_CORRUPT, 7},
};

START_TEST(refused) {
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  tri_tokenizer_texts x = {.file = refusals[_i].file, .data = refusals[_i].data, .config = refusals[_i].config};
  x.len = refusals[_i].len ? refusals[_i].len : strlen(x.data);
  x.config_len = strlen(x.config);
  tri_status st = tri_tokenizer_parse_texts(&x, &t, &err);
  ck_assert_msg(st == refusals[_i].status, "refusal %d: status %d: %s: %s", _i, st, err.field, err.message);
  ck_assert_str_eq(err.field, refusals[_i].field);
  ck_assert_msg(strstr(err.message, refusals[_i].message), "refusal %d: %s", _i, err.message);
}
END_TEST

/* The other files' faults are refused with their names. */
START_TEST(other_files_refused) {
  static const struct {
    const char *tokenizer_config, *added_tokens, *field, *message;
  } cases[] = {{"[", NULL, "", "tokenizer_config.json"},
               {NULL, "[1]", "added_tokens.json", "must be an object"},
               {NULL, "{\"a\":-1}", "added_tokens.json.a", "token id -1"},
               {"{\"added_tokens_decoder\":{\"x\":{}}}", NULL, "tokenizer_config.json.added_tokens_decoder.x", "no id"},
               {"{\"added_tokens_decoder\":{\"7\":{}}}", NULL, "tokenizer_config.json.added_tokens_decoder.7.content",
                "must be a string"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_tokenizer *t = NULL;
    tri_error err = {0};
    static const char data[] = "\x0a\x05\x0a\x01u\x18\x02\x0a\x03\x0a\x01v", config[] = "{\"model_type\":\"llama\"}";
    tri_tokenizer_texts x = {.file = "spiece.model", .data = data, .len = 12, .config = config};
    x.config_len = sizeof config - 1;
    x.tokenizer_config = cases[i].tokenizer_config;
    x.tokenizer_config_len = x.tokenizer_config ? strlen(x.tokenizer_config) : 0;
    x.added_tokens = cases[i].added_tokens;
    x.added_tokens_len = x.added_tokens ? strlen(x.added_tokens) : 0;
    tri_status st = tri_tokenizer_parse_texts(&x, &t, &err);
    ck_assert_msg(st != TRI_OK && strstr(err.message, cases[i].message), "case %zu: %d, %s: %s", i, st, err.field,
                  err.message);
    ck_assert_str_eq(err.field, cases[i].field);
  }
}
END_TEST

/* ---- added tokens ---- */

/* An id that the file has gets an added token's text; its old text is one no more. */
START_TEST(an_id_is_renamed) {
  static const char data[] = "\x0a\x05\x0a\x01u\x18\x02\x0a\x03\x0a\x01v\x0a\x03\x0a\x01w",
                    config[] = "{\"model_type\":\"gemma\"}",
                    tokens[] = "{\"added_tokens_decoder\":{\"1\":{\"content\":\"<new>\",\"special\":"
                               "true},\"9\":{\"content\":\"more\"}}}";
  tri_tokenizer_texts x = {.file = "tokenizer.model",
                           .data = data,
                           .len = sizeof data - 1,
                           .config = config,
                           .config_len = sizeof config - 1,
                           .tokenizer_config = tokens,
                           .tokenizer_config_len = sizeof tokens - 1};
  static const uint32_t want[] = {0, 2, 1, 9, 2};
  tri_tokenizer *t = NULL;
  tri_error err = {0};
  const uint32_t *ids;
  size_t count;
  ck_assert_msg(tri_tokenizer_parse_texts(&x, &t, &err) == TRI_OK, "%s: %s", err.field, err.message);
  tri_tokenizer_scratch *s = scratch_of(t);
  ck_assert_int_eq(tri_tokenizer_encode(t, s, "vw<new>morew", 12, false, 0, &ids, &count), TRI_OK);
  ck_assert_uint_eq(count, sizeof want / sizeof *want);
  ck_assert_mem_eq(ids, want, sizeof want);
  ck_assert_str_eq(tri_tokenizer_token(t, 1), "<new>");
  ck_assert(tri_tokenizer_is_special(t, 1));
  ck_assert(!tri_tokenizer_is_special(t, 9));
  ck_assert_uint_eq(tri_tokenizer_vocab_size(t), 10);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* Of foreign text no special token is made. */
START_TEST(foreign_text) {
  tri_tokenizer *t = load(fixtures[_i].folder);
  tri_tokenizer_scratch *s = scratch_of(t);
  static const char text[] = "  a<s> </s>[INST]<|eot_id|>[BOS]  ab  ";
  tri_span all = {0, sizeof text - 1}, some = {3, 6};
  const uint32_t *ids;
  size_t count;
  ck_assert_int_eq(tri_tokenizer_encode_spans(t, s, text, sizeof text - 1, &all, 1, false, 0, &ids, &count), TRI_OK);
  for (size_t i = 0; i < count; i++) {
    const char *token = tri_tokenizer_token(t, ids[i]);
    ck_assert_msg(!strstr(text, token) || !tri_tokenizer_is_special(t, ids[i]), "%s", token);
  }
  ck_assert_int_eq(tri_tokenizer_encode_spans(t, s, text, sizeof text - 1, &some, 1, false, 0, &ids, &count), TRI_OK);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* ---- long runs ---- */

/* Quadratic time would be hours here. */
START_TEST(long_runs) {
  enum { LEN = 1 << 20, EACH = 1 << 16 };
  static const char letters[] = "a -\n0\xe6";
  tri_tokenizer *t = load(fixtures[_i].folder);
  tri_tokenizer_scratch *s = scratch_of(t);
  char *text = malloc(LEN);
  const uint32_t *ids;
  size_t count;
  ck_assert_ptr_nonnull(text);
  for (size_t i = 0; i < sizeof letters - 1; i++) {
    size_t len = i ? EACH : LEN;
    memset(text, letters[i], len);
    for (size_t k = 0; letters[i] == '\xe6' && k + 3 <= len; k += 3) memcpy(text + k, "\xe6\x97\xa5", 3);
    ck_assert_int_eq(tri_tokenizer_encode(t, s, text, len, false, 0, &ids, &count), TRI_OK);
    ck_assert_uint_le(count, 2 * len);
  }
  memset(text, 'a', LEN); /* a limit of ids ends it early */
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, LEN, false, 100, &ids, &count), TRI_TOO_LARGE);
  free(text);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

/* Kimi's program cuts runs at 25000 characters: no token lies across. */
START_TEST(runs_are_cut) {
  enum { RUN = 25000, MOST = 60000 };
  tri_tokenizer *t = load("tiktoken_kimi");
  tri_tokenizer_scratch *s = scratch_of(t);
  char *text = malloc(MOST);
  const uint32_t *ids;
  size_t count, whole, rest;
  ck_assert_ptr_nonnull(text);
  memset(text, '0', MOST); /* tokens of up to three digits */
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, RUN, false, 0, &ids, &whole), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, 2, false, 0, &ids, &rest), TRI_OK);
  uint32_t last = ids[rest - 1];
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, 2 * RUN + 2, false, 0, &ids, &count), TRI_OK);
  ck_assert_uint_eq(count, 2 * whole + rest);
  ck_assert_uint_eq(ids[count - 1], last);
  memset(text + RUN / 2, ' ', 1); /* shorter runs, and no cut */
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, RUN + 1, false, 0, &ids, &count), TRI_OK);
  free(text);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
}
END_TEST

Suite *suite_tokenizer_files(void) {
  Suite *s = suite_create("tokenizer_files");
  TCase *t = tcase_create("tokenizer_files");
  tcase_set_timeout(t, 120);
  tcase_add_loop_test(t, answers, 0, FIXTURES);
  tcase_add_test(t, the_first_file_counts);
  tcase_add_loop_test(t, refused, 0, sizeof refusals / sizeof *refusals);
  tcase_add_test(t, other_files_refused);
  tcase_add_test(t, an_id_is_renamed);
  tcase_add_loop_test(t, foreign_text, 0, FIXTURES);
  tcase_add_loop_test(t, long_runs, 0, FIXTURES);
  tcase_add_test(t, runs_are_cut);
  suite_add_tcase(s, t);
  return s;
}
