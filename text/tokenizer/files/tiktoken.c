/* SPDX-License-Identifier: Apache-2.0 */
/* tiktoken's files: a line has a token's bytes in base64 and its rank. The pattern that cuts text into words and the
 * special tokens after the ranks are in a program of the release, which is not run: they are here by family. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/base64.h"
#include "text/tokenizer/files/files.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define NO_LETTER "[^\\r\\n\\p{L}\\p{N}]?"

enum { NUM_SPECIAL = 256 };

/* Special tokens that tokenizer_config.json does not name are the first of `names`, then numbered ones. */
typedef struct family {
  const char *types; /* words */
  const char *pattern;
  const char *names; /* words */
  const char *numbered;
  bool by_id; /* the number is the token's id; else it counts on from the names that are such */
  int64_t first_number;
  const char *first; /* the token before each text; NULL: none */
} family;

static const family families[] = {
    {.types = "kimi_k2 kimi_k25 deepseek_v3",
     .pattern = "[\\p{Han}]+|" NO_LETTER UPPER "*" LOWER "+" CONTRACTIONS "?|" NO_LETTER UPPER "+" LOWER
                "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
     .names = "",
     .numbered = "<|reserved_token_%lld|>",
     .by_id = true},
    {.types = "llama",
     .pattern = CONTRACTIONS "|" NO_LETTER "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
     .names = "<|begin_of_text|> <|end_of_text|> <|reserved_special_token_0|> <|reserved_special_token_1|> "
              "<|reserved_special_token_2|> <|reserved_special_token_3|> <|start_header_id|> <|end_header_id|> "
              "<|reserved_special_token_4|> <|eot_id|>",
     .numbered = "<|reserved_special_token_%lld|>",
     .first_number = 5,
     .first = "<|begin_of_text|>"},
};

static tri_status find_family(const tok_release *release, const family **out, tri_error *err) {
  for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
    *out = &families[i];
    if (tok_release_is(release, (*out)->types)) return TRI_OK;
  }
  return tri_fail(err, TRI_NOT_FOUND, "model_type",
                  "%s is of the family %.60s: the pattern and the special tokens that belong to it are not known",
                  release->file, release->types[0] ? release->types[0] : "(none)");
}

/* ---- lines ---- */

typedef struct line {
  const char *bytes; /* base64 */
  size_t len;
  size_t rank;
} line;

static const char *end_of_line(const char *p, const char *end) {
  const char *newline = memchr(p, '\n', (size_t)(end - p));
  return newline ? newline : end;
}

/* False: it is no token and a rank with one space between. */
static bool read_line(const char *p, const char *end, line *out) {
  if (end > p && end[-1] == '\r') end--;
  const char *space = memchr(p, ' ', (size_t)(end - p));
  if (!space || space == p || space + 1 == end) return false;
  *out = (line){.bytes = p, .len = (size_t)(space - p)};
  for (p = space + 1; p < end; p++) {
    if (*p < '0' || *p > '9' || out->rank >= TOK_MAX_IDS) return false;
    out->rank = out->rank * 10 + (size_t)(*p - '0');
  }
  return true;
}

static bool is_blank(const char *p, const char *end) { return p == end || (end - p == 1 && *p == '\r'); }

static tri_status refuse(size_t number, tri_status st, const char *what, tri_error *err) {
  char field[32];
  snprintf(field, sizeof field, "line %zu", number);
  return tri_fail(err, st, field, "%s: %s", field, what);
}

static tri_status take_line(tok_byte_pieces *pieces, const line *l, size_t number, tri_buf *bytes, tri_error *err) {
  size_t bad;
  bytes->len = 0;
  tri_status st = tok_base64(l->bytes, l->len, bytes, &bad);
  if (st == TRI_CORRUPT || (st == TRI_OK && !bytes->len)) return refuse(number, TRI_CORRUPT, "is no base64", err);
  if (st == TRI_OK) st = tok_byte_pieces_set(pieces, l->rank, bytes->data, bytes->len);
  if (st == TRI_NO_MEMORY) return refuse(number, st, "no memory for the tokenizer", err);
  if (st == TRI_INVALID_ARGUMENT) return refuse(number, TRI_CORRUPT, "has a rank that came before", err);
  if (st != TRI_OK)
    return refuse(number, st, "has a token that is too long, or a rank above the number of tokens", err);
  return TRI_OK;
}

static size_t count_lines(const char *data, size_t len) {
  size_t count = 0;
  for (const char *p = data, *end = data + len; p < end;) {
    const char *stop = end_of_line(p, end);
    count += !is_blank(p, stop);
    p = stop < end ? stop + 1 : end;
  }
  return count;
}

/* Ranks are 0, 1, .. in any order: the special tokens' ids follow them. */
static tri_status read_lines(tok_byte_pieces *pieces, const char *data, size_t len, tri_error *err) {
  tri_buf bytes = {0};
  tri_status st = TRI_OK;
  size_t number = 0, count = count_lines(data, len);
  if (!count || count > TOK_MAX_IDS - NUM_SPECIAL)
    return tri_fail(err, TRI_OUT_OF_RANGE, "", "%zu tokens, must be 1..%d", count, TOK_MAX_IDS - NUM_SPECIAL);
  if (tok_byte_pieces_init(pieces, count) != TRI_OK)
    return tri_fail(err, TRI_NO_MEMORY, "", "no memory for the tokenizer");
  for (const char *p = data, *end = data + len; p < end;) {
    const char *stop = end_of_line(p, end);
    line l = {0};
    number++;
    if (!is_blank(p, stop)) {
      if (!read_line(p, stop, &l)) TRI_TRY(refuse(number, TRI_CORRUPT, "must be a token in base64 and its rank", err));
      TRI_TRY(take_line(pieces, &l, number, &bytes, err));
    }
    p = stop < end ? stop + 1 : end;
  }
cleanup:
  tri_buf_free(&bytes);
  return st;
}

/* ---- special tokens ---- */

static tri_status put_default(tok_added_list *l, const char *text, size_t len, uint32_t id) {
  return tok_added_list_at(l, id) ? TRI_OK : tok_added_list_put(l, text, len, id, true);
}

static tri_status put_defaults(const family *f, tok_added_list *l, size_t base) {
  size_t i = 0;
  for (const char *p = f->names; *p; i++) {
    size_t n = strcspn(p, " ");
    TRI_CHECK(put_default(l, p, n, (uint32_t)(base + i)));
    p += n + (p[n] == ' ');
  }
  for (int64_t number = f->by_id ? (int64_t)(base + i) : f->first_number; i < NUM_SPECIAL; i++, number++) {
    char text[64];
    int n = snprintf(text, sizeof text, f->numbered, (long long)number);
    TRI_CHECK(put_default(l, text, (size_t)n, (uint32_t)(base + i)));
  }
  return TRI_OK;
}

tri_status tok_tiktoken_read(tri_tokenizer *t, const char *data, size_t len, const tok_release *release,
                             tri_error *err) {
  tok_byte_pieces pieces = {0};
  tok_added_list special = {0};
  tok_field root = {.path = "tokens"}, pattern = {.path = "pattern"};
  const family *f;
  uint32_t first = TOK_NO_ID;
  tri_status st;
  TRI_TRY(find_family(release, &f, err));
  TRI_TRY(read_lines(&pieces, data, len, err));
  TRI_TRY(tok_added_list_init(&special));
  TRI_TRY(tok_added_list_read(&special, release, err));
  TRI_TRY(put_defaults(f, &special, pieces.count));
  TRI_TRY(tok_byte_pieces_take(t, &pieces, 0, &root, f->pattern, strlen(f->pattern), &pattern, &special, err));
  t->stretches = (tok_stretches){.block = 400000, .run = 25000}; /* as the programs of all families have it */
  if (f->first) tri_tokenizer_id(t, f->first, strlen(f->first), &first);
  st = tok_rules_around(t, "bA", "bAbB", first, TOK_NO_ID, err);
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(&root, err);
  tok_byte_pieces_free(&pieces);
  tok_added_list_free(&special);
  return st;
}
