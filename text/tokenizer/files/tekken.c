/* SPDX-License-Identifier: Apache-2.0 */
/* tekken.json of Mistral's releases: tokens of bytes by rank, after the special tokens. The file says everything, but
 * for the special tokens of its first versions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/base64.h"
#include "text/tokenizer/files/files.h"

enum { LAST_WITHOUT_LIST = 7 }; /* the version from which on the file has its special tokens */

typedef struct tekken {
  tok_byte_pieces pieces;
  tok_added_list special;
  uint64_t num_special, num_tokens; /* the latter without the special ones */
} tekken;

static tri_status add_special(tekken *k, const char *text, size_t len, uint64_t rank, const tok_field *f,
                              tri_error *err) {
  tri_status st = tok_added_list_put(&k->special, text, len, (uint32_t)rank, true);
  return st == TRI_OK ? st : tok_field_no_memory(f, err);
}

/* Versions are "v3", "v7m1" and the like. */
static tri_status add_first_versions(tekken *k, const tok_field *config, const tok_field *f, tri_error *err) {
  static const char *const texts[] = {"<unk>",
                                      "<s>",
                                      "</s>",
                                      "[INST]",
                                      "[/INST]",
                                      "[AVAILABLE_TOOLS]",
                                      "[/AVAILABLE_TOOLS]",
                                      "[TOOL_RESULTS]",
                                      "[/TOOL_RESULTS]",
                                      "[TOOL_CALLS]",
                                      "[IMG]",
                                      "<pad>",
                                      "[IMG_BREAK]",
                                      "[IMG_END]",
                                      "[PREFIX]",
                                      "[MIDDLE]",
                                      "[SUFFIX]",
                                      "[SYSTEM_PROMPT]",
                                      "[/SYSTEM_PROMPT]",
                                      "[TOOL_CONTENT]"};
  const char *version;
  tok_field v = tok_field_get(config, "version");
  TRI_CHECK(tok_field_string(&v, &version, NULL, err));
  if (*version != 'v' || atoi(version + 1) < 1)
    return tok_field_fail(&v, TRI_UNSUPPORTED, err, "%.40s is no version of a tekken.json", version);
  if (atoi(version + 1) > LAST_WITHOUT_LIST)
    return tok_field_fail(f, TRI_CORRUPT, err, "must be there, as of version v%d", LAST_WITHOUT_LIST + 1);
  for (size_t i = 0; i < sizeof texts / sizeof *texts && i < k->num_special; i++)
    TRI_CHECK(add_special(k, texts[i], strlen(texts[i]), i, f, err));
  return TRI_OK;
}

static tri_status add_listed(tekken *k, const tok_field *f, tri_error *err) {
  size_t count = tri_json_size(f->node);
  TRI_CHECK(tok_field_array(f, err));
  if (count > k->num_special)
    return tok_field_fail(f, TRI_CORRUPT, err, "%zu tokens, default_num_special_tokens is %llu", count,
                          (unsigned long long)k->num_special);
  for (size_t i = 0; i < count; i++) {
    const char *text;
    size_t len;
    uint64_t rank;
    tok_field token = tok_field_at(f, i), r = tok_field_get(&token, "rank"), s = tok_field_get(&token, "token_str");
    TRI_CHECK(tok_field_count(&r, &rank, err));
    TRI_CHECK(tok_field_string(&s, &text, &len, err));
    if (rank != i) return tok_field_fail(&r, TRI_CORRUPT, err, "must be %zu, its place in the list", i);
    if (!len || len > TOK_LONGEST_ADDED)
      return tok_field_fail(&s, TRI_OUT_OF_RANGE, err, "%zu bytes, must be 1..%d", len, TOK_LONGEST_ADDED);
    TRI_CHECK(add_special(k, text, len, rank, &s, err));
  }
  return TRI_OK;
}

static tri_status read_special(tekken *k, const tok_field *root, const tok_field *config, tri_error *err) {
  tok_field f = tok_field_get(root, "special_tokens");
  TRI_CHECK(tok_field_is_null(&f) ? add_first_versions(k, config, &f, err) : add_listed(k, &f, err));
  for (size_t i = k->special.len; i < k->num_special; i++) {
    char text[32];
    int n = snprintf(text, sizeof text, "<SPECIAL_%zu>", i);
    TRI_CHECK(add_special(k, text, (size_t)n, i, &f, err));
  }
  return TRI_OK;
}

static tri_status read_token(tekken *k, const tok_field *token, size_t i, tri_buf *bytes, tri_error *err) {
  const char *text;
  size_t len, bad;
  uint64_t rank;
  tok_field r = tok_field_get(token, "rank"), f = tok_field_get(token, "token_bytes");
  TRI_CHECK(tok_field_count(&r, &rank, err));
  if (rank != i) return tok_field_fail(&r, TRI_CORRUPT, err, "must be %zu, its place in the list", i);
  TRI_CHECK(tok_field_string(&f, &text, &len, err));
  bytes->len = 0;
  tri_status st = tok_base64(text, len, bytes, &bad);
  if (st == TRI_CORRUPT || (st == TRI_OK && !bytes->len))
    return tok_field_fail(&f, TRI_CORRUPT, err, "is no base64 of a token");
  if (st == TRI_OK) st = tok_byte_pieces_set(&k->pieces, rank, bytes->data, bytes->len);
  if (st == TRI_NO_MEMORY) return tok_field_no_memory(&f, err);
  return st == TRI_OK ? st : tok_field_fail(&f, st, err, "%zu bytes are too long for a token", bytes->len);
}

static tri_status read_tokens(tekken *k, const tok_field *f, tri_error *err) {
  tri_buf bytes = {0};
  tri_status st;
  TRI_TRY(tok_field_array(f, err));
  if (tri_json_size(f->node) < k->num_tokens)
    return tok_field_fail(f, TRI_CORRUPT, err, "%zu tokens, default_vocab_size wants %llu without the special ones",
                          tri_json_size(f->node), (unsigned long long)k->num_tokens);
  if ((st = tok_byte_pieces_init(&k->pieces, (size_t)k->num_tokens)) != TRI_OK) return tok_field_no_memory(f, err);
  for (size_t i = 0; i < k->num_tokens; i++) {
    tok_field token = tok_field_at(f, i);
    TRI_TRY(read_token(k, &token, i, &bytes, err));
  }
cleanup:
  tri_buf_free(&bytes);
  return st;
}

static tri_status read_sizes(tekken *k, const tok_field *config, tri_error *err) {
  uint64_t size;
  tok_field all = tok_field_get(config, "default_vocab_size"),
            special = tok_field_get(config, "default_num_special_tokens");
  TRI_CHECK(tok_field_count(&all, &size, err));
  TRI_CHECK(tok_field_count(&special, &k->num_special, err));
  if (size > TOK_MAX_IDS)
    return tok_field_fail(&all, TRI_TOO_LARGE, err, "%llu tokens, the limit is %d", (unsigned long long)size,
                          TOK_MAX_IDS);
  if (k->num_special > size)
    return tok_field_fail(&special, TRI_CORRUPT, err, "%llu of %llu tokens", (unsigned long long)k->num_special,
                          (unsigned long long)size);
  k->num_tokens = size - k->num_special;
  return TRI_OK;
}

/* A text begins with <s> and has no end, as Mistral's own chat requests have it. */
static tri_status around(tri_tokenizer *t, const tok_release *release, tri_error *err) {
  uint32_t bos = TOK_NO_ID, eos = TOK_NO_ID;
  if (tok_release_flag(release, "add_bos_token", true)) tri_tokenizer_id(t, "<s>", 3, &bos);
  if (tok_release_flag(release, "add_eos_token", false)) tri_tokenizer_id(t, "</s>", 4, &eos);
  return tok_rules_around(t, "bAe", "bAebBe", bos, eos, err);
}

static tri_status read_all(tri_tokenizer *t, const tok_field *root, const tok_release *release, tri_error *err) {
  tekken k = {0};
  const char *text;
  size_t len;
  tri_status st;
  tok_field config = tok_field_get(root, "config"), vocab = tok_field_get(root, "vocab"),
            pattern = tok_field_get(&config, "pattern");
  TRI_TRY(tok_field_string(&pattern, &text, &len, err));
  TRI_TRY(read_sizes(&k, &config, err));
  if ((st = tok_added_list_init(&k.special)) != TRI_OK) TRI_TRY(tok_field_no_memory(root, err));
  TRI_TRY(read_special(&k, root, &config, err));
  TRI_TRY(read_tokens(&k, &vocab, err));
  TRI_TRY(tok_byte_pieces_take(t, &k.pieces, (uint32_t)k.num_special, &vocab, text, len, &pattern, &k.special, err));
  st = around(t, release, err);
cleanup:
  tok_byte_pieces_free(&k.pieces);
  tok_added_list_free(&k.special);
  return st;
}

tri_status tok_tekken_read(tri_tokenizer *t, const char *data, size_t len, const tok_release *release, tri_error *err) {
  tri_json_doc *doc = NULL;
  TRI_CHECK(tri_json_parse_file(data, len, &doc, err));
  tok_field root = tok_field_root(tri_json_root(doc));
  tri_status st = read_all(t, &root, release, err);
  tri_json_free(doc);
  return st;
}
