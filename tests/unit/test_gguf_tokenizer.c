/* SPDX-License-Identifier: Apache-2.0 */
/* Tokenizers in the keys of GGUF files: the ids of the tokenizer.json or SentencePiece file that they are made of here,
 * chat templates, and what is refused by its name. */
#include <stdlib.h>

#include "base/file.h"
#include "base/json/json.h"
#include "base/mem.h"
#include "client/chat/chat_template.h"
#include "tests/unit/gguf_file.h"
#include "tests/unit/scratch_folder.h"
#include "text/tokenizer/files/gguf.h"
#include "text/tokenizer/files/model_proto.h"

Suite *suite_gguf_tokenizer(void);

#define KEY "tokenizer.ggml."
#define FOLDERS TRI_TEST_DATA "/tokenizers/"

static const char *const texts[] = {"",
                                    " ",
                                    "Hello, world! don't WE'LL",
                                    "1. one\n2. two\n\n10. ten\n\n\n123 4567",
                                    "a  b   c\t\td \r\n e  ",
                                    "\n\n1",
                                    "na\xc3\xafve \xf0\x9f\x8e\x89\xf0\x9f\x8e\x82 \xd9\x85\xd8\xb1\xd8\xad\xd8\xa8",
                                    "<|begin_of_text|>x<|eot_id|>\n<s>y</s> z"};
enum { NUM_TEXTS = sizeof texts / sizeof *texts };

static gguf_file f;

static tri_status read(tri_tokenizer **out, tri_error *err) {
  tri_gguf *g;
  *err = (tri_error){0};
  gguf_file_end(&f);
  ck_assert_msg(tri_gguf_parse(f.whole.data, f.whole.len, f.whole.len, &g, err) == TRI_OK, "%s", err->message);
  tri_status st = tok_gguf_read(g, out, err);
  tri_gguf_close(g);
  gguf_file_free(&f);
  return st;
}

/* Both give the same ids of all texts, with special tokens around them and without, and the same text back. */
static void compare(const tri_tokenizer *a, const tri_tokenizer *b) {
  tri_tokenizer_scratch *s[2];
  ck_assert_int_eq(tri_tokenizer_scratch_create(a, &s[0]), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_scratch_create(b, &s[1]), TRI_OK);
  for (int i = 0; i < 2 * NUM_TEXTS; i++) {
    const uint32_t *ids[2];
    size_t count[2], len[2];
    char *back[2];
    for (int k = 0; k < 2; k++) {
      const tri_tokenizer *t = k ? b : a;
      const char *x = texts[i / 2];
      ck_assert_int_eq(tri_tokenizer_encode(t, s[k], x, strlen(x), i % 2, 0, &ids[k], &count[k]), TRI_OK);
      ck_assert_int_eq(tri_tokenizer_decode(t, ids[k], count[k], false, &back[k], &len[k]), TRI_OK);
    }
    ck_assert_msg(count[0] == count[1], "\"%s\": other ids", texts[i / 2]);
    for (size_t j = 0; j < count[0]; j++) ck_assert_msg(ids[0][j] == ids[1][j], "\"%s\": other ids", texts[i / 2]);
    ck_assert_str_eq(back[0], back[1]);
    tri_free(back[0]);
    tri_free(back[1]);
  }
  tri_tokenizer_scratch_destroy(s[0]);
  tri_tokenizer_scratch_destroy(s[1]);
}

/* ---- byte-level BPE ---- */

/* Keys of a tokenizer.json, the added tokens of which are special. */
static void put_bytes(const char *folder, const char *pre) {
  char path[512];
  tri_json_doc *doc;
  tri_error err = {0};
  tri_tokenizer *t;
  snprintf(path, sizeof path, "%s/tokenizer.json", folder);
  ck_assert_int_eq(tri_json_read_file(path, 64 << 20, &doc, &err), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_load(path, &t, &err), TRI_OK);
  const tri_json *merges = tri_json_get(tri_json_get(tri_json_root(doc), "model"), "merges");
  uint32_t n = tri_tokenizer_vocab_size(t);
  gguf_key_text(&f, KEY "model", "gpt2");
  gguf_key_text(&f, KEY "pre", pre);
  gguf_key_array(&f, KEY "tokens", TRI_GGUF_STRING, n);
  for (uint32_t id = 0; id < n; id++) {
    const char *text = tri_tokenizer_token(t, id);
    ck_assert_ptr_nonnull(text);
    gguf_put_text(&f.keys, text, strlen(text));
  }
  gguf_key_array(&f, KEY "token_type", TRI_GGUF_I32, n);
  for (uint32_t id = 0; id < n; id++) gguf_put(&f.keys, tri_tokenizer_is_special(t, id) ? 3 : 1, 4);
  gguf_key_array(&f, KEY "merges", TRI_GGUF_STRING, tri_json_size(merges));
  for (size_t i = 0; i < tri_json_size(merges); i++) {
    const tri_json *m = tri_json_at(merges, i);
    char pair[256];
    const char *whole = tri_json_as_str(m, NULL);
    if (!whole) {
      snprintf(pair, sizeof pair, "%s %s", tri_json_as_str(tri_json_at(m, 0), NULL),
               tri_json_as_str(tri_json_at(m, 1), NULL));
      whole = pair;
    }
    gguf_put_text(&f.keys, whole, strlen(whole));
  }
  tri_json_free(doc);
  tri_tokenizer_destroy(t);
}

static const struct {
  const char *folder, *pre, *bos;
} byte_level[] = {{FOLDERS "bytelevel_bpe_llama3", "llama-bpe", "<|begin_of_text|>"},
                  {FOLDERS "bytelevel_bpe_gpt2", "gpt-2", NULL}};

START_TEST(test_bytes) {
  tri_tokenizer *t, *original;
  tri_error err = {0};
  char path[512];
  uint32_t bos = 0;
  snprintf(path, sizeof path, "%s/tokenizer.json", byte_level[_i].folder);
  ck_assert_int_eq(tri_tokenizer_load(path, &original, &err), TRI_OK);
  put_bytes(byte_level[_i].folder, byte_level[_i].pre);
  if (byte_level[_i].bos) {
    ck_assert(tri_tokenizer_id(original, byte_level[_i].bos, strlen(byte_level[_i].bos), &bos));
    gguf_key_uint(&f, KEY "bos_token_id", bos); /* Llama 3's files need not say that it is added */
  }
  ck_assert_msg(read(&t, &err) == TRI_OK, "%s: %s", err.field, err.message);
  compare(t, original);
  tri_tokenizer_destroy(t);
  tri_tokenizer_destroy(original);
}
END_TEST

/* Ids of a text that differ by the pre-tokenizer: "12" is a token of GPT-2's split alone. */
START_TEST(test_digits) {
  static const struct {
    const char *pre;
    size_t count;
  } cases[] = {{"gpt-2", 1}, {"smollm", 2}, {"qwen2", 2}, {"llama-bpe", 1}, {"deepseek-v3", 1}, {"tekken", 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_tokenizer *t;
    tri_tokenizer_scratch *s;
    tri_error err;
    const uint32_t *ids;
    size_t count;
    gguf_key_text(&f, KEY "model", "gpt2");
    gguf_key_text(&f, KEY "pre", cases[i].pre);
    gguf_key_array(&f, KEY "tokens", TRI_GGUF_STRING, 3);
    gguf_put_text(&f.keys, "1", 1);
    gguf_put_text(&f.keys, "2", 1);
    gguf_put_text(&f.keys, "12", 2);
    gguf_key_array(&f, KEY "merges", TRI_GGUF_STRING, 1);
    gguf_put_text(&f.keys, "1 2", 3);
    ck_assert_msg(read(&t, &err) == TRI_OK, "%s: %s: %s", cases[i].pre, err.field, err.message);
    ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
    ck_assert_int_eq(tri_tokenizer_encode(t, s, "12", 2, true, 0, &ids, &count), TRI_OK);
    ck_assert_msg(count == cases[i].count, "%s: %zu tokens", cases[i].pre, count);
    tri_tokenizer_scratch_destroy(s);
    tri_tokenizer_destroy(t);
  }
}
END_TEST

/* Returns how many tokens a text is: pairs of its bytes are joined where no split is between them. */
static size_t count_tokens(const char *pre, const char *text) {
  static const char *const tokens[] = {"a",
                                       "b",
                                       "1",
                                       "2",
                                       ".",
                                       "x",
                                       "\xc4\xa0",
                                       "ab",
                                       "a1",
                                       "12",
                                       "x.",
                                       "1212",
                                       "\xc4\xa0"
                                       "1",
                                       "\xc3\xa4",
                                       "\xc2\xb8",
                                       "\xc5\x83",
                                       "a\xc3\xa4"},
                           *const merges[] = {"a b", "a 1", "1 2", "x .", "12 12", "\xc4\xa0 1", "a \xc3\xa4"};
  tri_tokenizer *t;
  tri_tokenizer_scratch *s;
  tri_error err;
  const uint32_t *ids;
  size_t count;
  gguf_key_text(&f, KEY "model", "gpt2");
  gguf_key_text(&f, KEY "pre", pre);
  gguf_key_array(&f, KEY "tokens", TRI_GGUF_STRING, sizeof tokens / sizeof *tokens);
  for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) gguf_put_text(&f.keys, tokens[i], strlen(tokens[i]));
  gguf_key_array(&f, KEY "merges", TRI_GGUF_STRING, sizeof merges / sizeof *merges);
  for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) gguf_put_text(&f.keys, merges[i], strlen(merges[i]));
  ck_assert_msg(read(&t, &err) == TRI_OK, "%s: %s: %s", pre, err.field, err.message);
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &s), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_encode(t, s, text, strlen(text), true, 0, &ids, &count), TRI_OK);
  tri_tokenizer_scratch_destroy(s);
  tri_tokenizer_destroy(t);
  return count;
}

/* GLM splits digits from letters, and takes three of them at once; BLOOM splits at dots, and neither digits nor
 * letters; Falcon splits dots, digits from letters and from a space before them, and three digits that follow each
 * other. */
#define HAN "a\xe4\xb8\xad" /* its first byte would join the letter before it */
START_TEST(test_splits) {
  static const struct {
    const char *pre, *text;
    size_t count;
  } cases[] = {{"glm4", "a1", 2},    {"glm4", "1212", 3},    {"glm4", "x.", 2},   {"glm4", " 1", 2},
               {"bloom", "a1", 1},   {"bloom", "1212", 1},   {"bloom", "x.", 2},  {"bloom", " 1", 1},
               {"falcon", "a1", 2},  {"falcon", "1212", 3},  {"falcon", "x.", 2}, {"falcon", " 1", 2},
               {"gpt-2", "a1", 2},   {"gpt-2", "1212", 1},   {"gpt-2", "x.", 2},  {"gpt-2", " 1", 1},
               {"kimi-k2", "a1", 2}, {"kimi-k2", "1212", 3}, {"kimi-k2", HAN, 4}, {"qwen2", HAN, 3}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t count = count_tokens(cases[i].pre, cases[i].text);
    ck_assert_msg(count == cases[i].count, "%s: \"%s\" has %zu tokens, not %zu", cases[i].pre, cases[i].text, count,
                  cases[i].count);
  }
}
END_TEST

/* ---- pieces ---- */

/* Gemma's, whose files have no space before a text. Some have the unknown token among the control tokens, and a key for
 * it. */
START_TEST(test_pieces) {
  static const char folder[] = TRI_TEST_DATA "/tokenizer_files/spm_bpe_gemma";
  char *data;
  size_t len;
  tok_model_proto m = {0};
  tri_tokenizer *t, *original;
  tri_error err = {0};
  char path[512];
  snprintf(path, sizeof path, "%s/tokenizer.model", folder);
  ck_assert_int_eq(tri_file_read(path, 64 << 20, &data, &len, &err), TRI_OK);
  ck_assert_int_eq(tok_model_proto_read(&m, data, len, &err), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_load_folder(folder, &original, &err), TRI_OK);
  ck_assert(m.count > 10 && !m.charsmap.len);
  gguf_key_text(&f, KEY "model", "llama");
  gguf_key_array(&f, KEY "tokens", TRI_GGUF_STRING, m.count);
  for (size_t i = 0; i < m.count; i++) gguf_put_text(&f.keys, m.pieces[i].text, m.pieces[i].len);
  gguf_key_array(&f, KEY "scores", TRI_GGUF_F32, m.count);
  for (size_t i = 0; i < m.count; i++) gguf_put_float(&f.keys, m.pieces[i].score);
  gguf_key_array(&f, KEY "token_type", TRI_GGUF_I32, m.count);
  uint32_t bos = 0, unknown = 0;
  for (size_t i = 0; i < m.count; i++) {
    bool is_unknown = m.pieces[i].kind == TOK_PIECE_UNKNOWN;
    if (is_unknown) unknown = (uint32_t)i;
    gguf_put(&f.keys, is_unknown && _i ? TOK_PIECE_CONTROL : m.pieces[i].kind, 4);
    if (m.pieces[i].len == 5 && !memcmp(m.pieces[i].text, "<bos>", 5)) bos = (uint32_t)i;
  }
  gguf_key_bool(&f, KEY "add_space_prefix", m.add_dummy_prefix);
  gguf_key_uint(&f, KEY "bos_token_id", bos);
  if (_i) gguf_key_uint(&f, KEY "unknown_token_id", unknown);
  ck_assert_msg(read(&t, &err) == TRI_OK, "%s: %s", err.field, err.message);
  compare(t, original);
  tri_tokenizer_destroy(t);
  tri_tokenizer_destroy(original);
  tok_model_proto_free(&m);
  tri_free(data);
}
END_TEST

/* Gemma's runs of spaces are user pieces that have spaces in files, and U+2581 in a tokenizer.model. */
START_TEST(test_user_pieces_with_spaces) {
  static const char *const texts[] = {"<unk>", "\xe2\x96\x81", "a", "b", "  "};
  static const int kinds[] = {TOK_PIECE_UNKNOWN, TOK_PIECE_NORMAL, TOK_PIECE_NORMAL, TOK_PIECE_NORMAL, TOK_PIECE_USER};
  enum { COUNT = 5 };
  static const uint32_t want[] = {2, 4, 3, 1, 2};
  tri_tokenizer *t;
  tri_tokenizer_scratch *scratch;
  tri_error err = {0};
  const uint32_t *ids;
  size_t count;
  gguf_key_text(&f, KEY "model", "llama");
  gguf_key_array(&f, KEY "tokens", TRI_GGUF_STRING, COUNT);
  for (int i = 0; i < COUNT; i++) gguf_put_text(&f.keys, texts[i], strlen(texts[i]));
  gguf_key_array(&f, KEY "scores", TRI_GGUF_F32, COUNT);
  for (int i = 0; i < COUNT; i++) gguf_put_float(&f.keys, -(float)i);
  gguf_key_array(&f, KEY "token_type", TRI_GGUF_I32, COUNT);
  for (int i = 0; i < COUNT; i++) gguf_put(&f.keys, (uint32_t)kinds[i], 4);
  gguf_key_bool(&f, KEY "add_space_prefix", false);
  ck_assert_msg(read(&t, &err) == TRI_OK, "%s: %s", err.field, err.message);
  ck_assert_int_eq(tri_tokenizer_scratch_create(t, &scratch), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_encode(t, scratch, "a  b a", 6, false, 0, &ids, &count), TRI_OK);
  ck_assert(count == COUNT && !memcmp(ids, want, sizeof want));
  tri_tokenizer_scratch_destroy(scratch);
  tri_tokenizer_destroy(t);
}
END_TEST

/* ---- refusals ---- */

static void refuse(tri_status want, const char *field) {
  tri_tokenizer *t;
  tri_error err;
  tri_status st = read(&t, &err);
  ck_assert_msg(st == want && !strcmp(err.field, field), "%s: %s (%s)", err.field, err.message, tri_status_name(st));
}

static void put_tokens(const char *model, const char *pre) {
  gguf_key_text(&f, KEY "model", model);
  if (pre) gguf_key_text(&f, KEY "pre", pre);
  gguf_key_array(&f, KEY "tokens", TRI_GGUF_STRING, 2);
  gguf_put_text(&f.keys, "a", 1);
  gguf_put_text(&f.keys, "b", 1);
}

START_TEST(test_refusals) {
  gguf_key_uint(&f, "x", 1);
  refuse(TRI_NOT_FOUND, KEY "model");
  put_tokens("bert", NULL);
  refuse(TRI_UNSUPPORTED, KEY "model");
  put_tokens("gpt2", NULL);
  refuse(TRI_UNSUPPORTED, KEY "pre");
  put_tokens("gpt2", "to-come");
  refuse(TRI_UNSUPPORTED, KEY "pre");
  put_tokens("gpt2", "gpt-2");
  refuse(TRI_CORRUPT, KEY "merges");
  put_tokens("llama", NULL);
  refuse(TRI_CORRUPT, KEY "scores");
  put_tokens("llama", NULL);
  gguf_key_array(&f, KEY "scores", TRI_GGUF_F32, 1);
  gguf_put_float(&f.keys, 0);
  refuse(TRI_CORRUPT, KEY "scores");
  put_tokens("llama", NULL);
  gguf_key_array(&f, KEY "token_type", TRI_GGUF_STRING, 0);
  refuse(TRI_CORRUPT, KEY "token_type");
  gguf_key_text(&f, KEY "model", "gpt2");
  gguf_key_array(&f, KEY "tokens", TRI_GGUF_I32, 0);
  refuse(TRI_CORRUPT, KEY "tokens");
}
END_TEST

START_TEST(test_template) {
  char dir[SCRATCH_BYTES], path[SCRATCH_BYTES + 16];
  chat_template *t = NULL;
  tri_error err = {0};
  scratch_make(dir);
  snprintf(path, sizeof path, "%s/m.gguf", dir);
  put_tokens("gpt2", "gpt-2");
  gguf_key_uint(&f, KEY "bos_token_id", 1);
  gguf_file_write(&f, path);
  ck_assert_int_eq(chat_template_load(path, NULL, &t, &err), TRI_NOT_FOUND);
  err = (tri_error){0};
  gguf_key_text(&f, "tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}");
  gguf_file_write(&f, path);
  ck_assert_msg(chat_template_load(path, NULL, &t, &err) == TRI_OK, "%s", err.message);
  tri_json_doc *doc;
  static const char messages[] = "[{\"role\":\"user\",\"content\":\"hi\"}]";
  ck_assert_int_eq(tri_json_parse(messages, sizeof messages - 1, &doc, &err), TRI_OK);
  chat_request r = {.messages = tri_json_root(doc)};
  tri_jinja_output out = {0};
  ck_assert_msg(chat_template_render(t, &r, &out, &err) == TRI_OK, "%s", err.message);
  ck_assert(out.text.len == 3 && !memcmp(out.text.data, "bhi", 3));
  tri_jinja_output_free(&out);
  tri_json_free(doc);
  chat_template_free(t);
  gguf_file_free(&f);
  scratch_remove(dir);
}
END_TEST

Suite *suite_gguf_tokenizer(void) {
  Suite *s = suite_create("gguf_tokenizer");
  TCase *c = tcase_create("gguf_tokenizer");
  tcase_add_loop_test(c, test_bytes, 0, 2);
  tcase_add_test(c, test_digits);
  tcase_add_test(c, test_splits);
  tcase_add_loop_test(c, test_pieces, 0, 2);
  tcase_add_test(c, test_user_pieces_with_spaces);
  tcase_add_test(c, test_refusals);
  tcase_add_test(c, test_template);
  suite_add_tcase(s, c);
  return s;
}
