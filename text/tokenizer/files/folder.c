/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a model's folder: which file has it, and the other files that count. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/gguf_files.h"
#include "base/mem.h"
#include "base/xxh3.h"
#include "text/tokenizer/files/files.h"
#include "text/tokenizer/files/gguf.h"

enum { MOST_OTHER = 64 << 20, PATH = 4200 };

/* In order of preference. tokenizer.json says what ids are by itself, hence comes first. A tokenizer.model is
 * SentencePiece's or tiktoken's. */
static const struct {
  const char *name;
  tok_file_reader read; /* NULL: tokenizer.json */
} files[] = {
    {"tokenizer.json", NULL},
    {"tekken.json", tok_tekken_read},
    {"tiktoken.model", tok_tiktoken_read},
    {"tokenizer.model", tok_sentencepiece_read},
    {"spiece.model", tok_sentencepiece_read},
    {"sentencepiece.bpe.model", tok_sentencepiece_read},
};

const char *tri_tokenizer_file(const char *dir) {
  char path[PATH];
  bool found;
  if (tri_gguf_files_find(dir, path, &found, NULL) == TRI_OK && found) return "tokenizer.ggml";
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    snprintf(path, sizeof path, "%.4095s/%s", dir, files[i].name);
    if (!access(path, F_OK)) return files[i].name;
  }
  return NULL;
}

/* ---- texts ---- */

/* A tag of protobuf's first field is a control character, and base64 has none. */
static bool is_lines(const char *data, size_t len) { return len && (unsigned char)data[0] > ' '; }

static tok_file_reader reader_of(const tri_tokenizer_texts *x) {
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (!strcmp(files[i].name, x->file))
      return files[i].read == tok_sentencepiece_read && is_lines(x->data, x->len) ? tok_tiktoken_read : files[i].read;
  return NULL;
}

typedef struct documents {
  tri_json_doc *config, *tokenizer_config, *added_tokens;
} documents;

static tri_status parse(const char *text, size_t len, const char *name, tri_json_doc **out, tri_error *err) {
  if (!text) return TRI_OK;
  tri_status st = tri_json_parse_python(text, len, out, err);
  if (st != TRI_OK) tri_error_in_file(err, name);
  return st;
}

static tri_status read_parts(tri_tokenizer *t, const tri_tokenizer_texts *x, tok_file_reader read, tri_error *err) {
  documents d = {0};
  tri_status st;
  TRI_TRY(parse(x->config, x->config_len, "config.json", &d.config, err));
  TRI_TRY(parse(x->tokenizer_config, x->tokenizer_config_len, "tokenizer_config.json", &d.tokenizer_config, err));
  TRI_TRY(parse(x->added_tokens, x->added_tokens_len, "added_tokens.json", &d.added_tokens, err));
  const tri_json *config = tri_json_root(d.config);
  tok_release release = {.config = tri_json_root(d.tokenizer_config), .added = tri_json_root(d.added_tokens)};
  release.file = x->file;
  release.types[0] = tri_json_get_str(config, "model_type");
  release.types[1] = tri_json_get_str(tri_json_get(config, "text_config"), "model_type");
  st = read(t, x->data, x->len, &release, err);
cleanup:
  tri_json_free(d.config);
  tri_json_free(d.tokenizer_config);
  tri_json_free(d.added_tokens);
  return st;
}

/* The family, which is all that counts of config.json, changes no text that is hashed: a release has one. */
static uint64_t hash_of(const tri_tokenizer_texts *x) {
  uint64_t h = tri_xxh3(x->data, x->len);
  if (x->tokenizer_config) h = h * 31 + tri_xxh3(x->tokenizer_config, x->tokenizer_config_len);
  if (x->added_tokens) h = h * 31 + tri_xxh3(x->added_tokens, x->added_tokens_len);
  return h;
}

tri_status tri_tokenizer_parse_texts(const tri_tokenizer_texts *x, tri_tokenizer **out, tri_error *err) {
  tok_file_reader read = reader_of(x);
  if (!read) return tri_tokenizer_parse(x->data, x->len, out, err);
  if (x->len > TOK_MAX_FILE)
    return tri_fail(err, TRI_TOO_LARGE, NULL, "%zu bytes, the limit is %d", x->len, TOK_MAX_FILE);
  tri_tokenizer *t = tri_calloc(1, sizeof *t);
  tri_status st = t ? tok_vocab_init(&t->vocab) : TRI_NO_MEMORY;
  if (st == TRI_OK)
    st = read_parts(t, x, read, err);
  else
    tri_fail(err, st, "", "no memory for the tokenizer");
  if (st == TRI_OK) {
    t->hash = hash_of(x);
    *out = t;
  } else {
    tri_tokenizer_destroy(t);
  }
  return st;
}

/* ---- the folder ---- */

/* A file that need not be there. */
static tri_status read_other(const char *dir, const char *name, char **text, size_t *len, tri_error *err) {
  char path[PATH];
  snprintf(path, sizeof path, "%.4095s/%s", dir, name);
  tri_status st = tri_file_read(path, MOST_OTHER, text, len, err);
  return st == TRI_NOT_FOUND ? TRI_OK : st;
}

static tri_status load_gguf(const tri_gguf *g, const char *path, tri_tokenizer **out, tri_error *err) {
  tri_error why = {0};
  tri_status st = tok_gguf_read(g, out, &why);
  if (st == TRI_OK) return st;
  tri_error_in_file(&why, path);
  return tri_fail(err, st, why.field, "%s", why.message);
}

tri_status tri_tokenizer_load_folder(const char *dir, tri_tokenizer **out, tri_error *err) {
  tri_gguf *g;
  char path[PATH], *data = NULL, *config = NULL, *tokenizer_config = NULL, *added_tokens = NULL;
  tri_tokenizer_texts x = {.file = tri_tokenizer_file(dir)};
  TRI_CHECK(tri_gguf_files_open(dir, path, &g, err));
  if (g) {
    tri_status st = load_gguf(g, path, out, err);
    tri_gguf_close(g);
    return st;
  }
  tri_status st;
  if (!x.file) x.file = files[0].name; /* that it is missing is then said of this one */
  snprintf(path, sizeof path, "%.4095s/%s", dir, x.file);
  if (!strcmp(x.file, files[0].name)) return tri_tokenizer_load(path, out, err);
  TRI_TRY(tri_file_read(path, TOK_MAX_FILE, &data, &x.len, err));
  TRI_TRY(read_other(dir, "config.json", &config, &x.config_len, err));
  TRI_TRY(read_other(dir, "tokenizer_config.json", &tokenizer_config, &x.tokenizer_config_len, err));
  TRI_TRY(read_other(dir, "added_tokens.json", &added_tokens, &x.added_tokens_len, err));
  x.data = data;
  x.config = config;
  x.tokenizer_config = tokenizer_config;
  x.added_tokens = added_tokens;
  if (tri_file_is_lfs_pointer(x.data, x.len))
    TRI_TRY(tri_fail(err, TRI_CORRUPT, "", "%s is a Git LFS pointer: the file itself was not fetched", path));
  st = tri_tokenizer_parse_texts(&x, out, err);
  if (st != TRI_OK) tri_error_in_file(err, path);
cleanup:
  tri_free(data);
  tri_free(config);
  tri_free(tokenizer_config);
  tri_free(added_tokens);
  return st;
}
