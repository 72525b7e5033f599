/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/grammar/vocabulary.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "runtime/grammar/text_states.h"

/* The place of a token's bytes. */
struct span {
  uint32_t at, len_and_1; /* 0: the token was not named */
};

struct tri_vocabulary {
  uint32_t size;
  size_t words;
  uint8_t *bytes; /* of all tokens */
  size_t num_bytes;
  struct span *by_id; /* [size] */
  tri_trie trie, rests;
  uint64_t *inside;
  uint32_t *by_len;
  uint16_t *chars, *chars_before;
  tri_text_tokens text;
};

/* ---- tries ---- */

static int compare_tokens(const void *a, const void *b) {
  const tri_token_bytes *x = a, *y = b;
  size_t len = x->len < y->len ? x->len : y->len;
  int order = len ? memcmp(x->bytes, y->bytes, len) : 0;
  if (order) return order;
  if (x->len != y->len) return x->len < y->len ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

static size_t common(const tri_token_bytes *a, const tri_token_bytes *b) {
  size_t n = 0;
  while (n < a->len && n < b->len && a->bytes[n] == b->bytes[n]) n++;
  return n;
}

/* Sorted tokens: those with a beginning follow each other, so that nodes come in depth-first order. A node's subtree
 * ends where the path leaves it. */
static void fill(const tri_token_bytes *tokens, size_t num, uint32_t *path, tri_trie *t) {
  uint32_t depth = 0;
  t->num_nodes = 1;
  path[0] = 0;
  t->first_token[0] = 0;
  for (size_t i = 0; i < num; i++) {
    uint32_t keep = i ? (uint32_t)common(&tokens[i - 1], &tokens[i]) : 0;
    for (; depth > keep; depth--) t->end[path[depth]] = t->num_nodes;
    while (depth < tokens[i].len) {
      path[++depth] = t->num_nodes;
      t->byte[t->num_nodes] = tokens[i].bytes[depth - 1];
      t->first_token[t->num_nodes++] = (uint32_t)i;
    }
    if (depth > t->depth) t->depth = depth;
    t->tokens[i] = tokens[i].id;
  }
  for (; depth > 0; depth--) t->end[path[depth]] = t->num_nodes;
  t->end[0] = t->num_nodes;
  t->first_token[t->num_nodes] = (uint32_t)num;
}

tri_status tri_trie_make(tri_token_bytes *tokens, size_t num, tri_trie *out) {
  tri_trie t = {.num_tokens = (uint32_t)num};
  size_t nodes = 1, longest = 0;
  if (num > UINT32_MAX) return TRI_OVERFLOW;
  if (num) qsort(tokens, num, sizeof *tokens, compare_tokens);
  for (size_t i = 0; i < num; i++) {
    nodes += tokens[i].len - (i ? common(&tokens[i - 1], &tokens[i]) : 0);
    if (tokens[i].len > longest) longest = tokens[i].len;
  }
  if (nodes >= UINT32_MAX) return TRI_OVERFLOW;
  uint32_t *path = tri_calloc(longest + 1, sizeof *path);
  t.byte = tri_calloc(nodes, 1);
  t.end = tri_calloc(nodes, sizeof *t.end);
  t.first_token = tri_calloc(nodes + 1, sizeof *t.first_token);
  t.tokens = tri_calloc(num ? num : 1, sizeof *t.tokens);
  bool whole = path && t.byte && t.end && t.first_token && t.tokens;
  if (whole) fill(tokens, num, path, &t);
  tri_free(path);
  if (!whole) {
    tri_trie_free(&t);
    return TRI_NO_MEMORY;
  }
  *out = t;
  return TRI_OK;
}

void tri_trie_free(tri_trie *t) {
  tri_free(t->byte);
  tri_free(t->end);
  tri_free(t->first_token);
  tri_free(t->tokens);
  *t = (tri_trie){0};
}

static size_t trie_bytes(const tri_trie *t) {
  return t->num_nodes * (1 + 2 * sizeof(uint32_t)) + t->num_tokens * sizeof(uint32_t);
}

/* ---- text ---- */

/* Follows a token from before a character. Returns how many bytes are inside: all, or those up to a quote, or 0 of a
 * token that may not come; *chars: characters that begin in those; *quote: one follows. */
static size_t follow(const tri_token_bytes *t, uint32_t *chars, bool *quote) {
  tri_text_state at = TRI_TEXT_BEFORE;
  *chars = 0;
  *quote = false;
  for (size_t i = 0; i < t->len; i++) {
    if (at == TRI_TEXT_BEFORE && t->bytes[i] == '"') {
      *quote = true;
      return i;
    }
    *chars += at == TRI_TEXT_BEFORE;
    at = tri_text_next(at, t->bytes[i]);
    if (at == TRI_TEXT_OUT) return 0;
  }
  return t->len;
}

typedef struct text_token {
  uint32_t id, chars;
} text_token;

static int longest_first(const void *a, const void *b) {
  const text_token *x = a, *y = b;
  if (x->chars != y->chars) return x->chars > y->chars ? -1 : 1;
  return x->id < y->id ? -1 : x->id > y->id;
}

/* Sorts the tokens that stay inside a string from those that leave it, whose rests are put into `rests`, with the
 * characters before the quote by id in `before`. */
static size_t sort_tokens(tri_vocabulary *v, const tri_token_bytes *tokens, size_t num, text_token *inside,
                          tri_token_bytes *rests, uint16_t *before) {
  size_t num_rests = 0;
  for (size_t i = 0; i < num; i++) {
    uint32_t chars;
    bool quote;
    size_t len = follow(&tokens[i], &chars, &quote);
    if (quote) {
      rests[num_rests++] =
          (tri_token_bytes){tokens[i].id, tokens[i].len - (uint32_t)len - 1, tokens[i].bytes + len + 1};
      before[tokens[i].id] = (uint16_t)chars;
    } else if (len) {
      inside[v->text.num++] = (text_token){tokens[i].id, chars};
      v->inside[tokens[i].id / 64] |= 1ull << tokens[i].id % 64;
    }
  }
  return num_rests;
}

static tri_status make_text(tri_vocabulary *v, const tri_token_bytes *tokens, size_t num) {
  tri_status st = TRI_OK;
  text_token *inside = tri_calloc(num ? num : 1, sizeof *inside);
  tri_token_bytes *found = tri_calloc(num ? num : 1, sizeof *found);
  uint16_t *before = tri_calloc(v->size ? v->size : 1, sizeof *before);
  if (!inside || !found || !before) TRI_TRY(TRI_NO_MEMORY);
  size_t num_rests = sort_tokens(v, tokens, num, inside, found, before);
  TRI_TRY(tri_trie_make(found, num_rests, &v->rests));
  if (v->text.num) qsort(inside, v->text.num, sizeof *inside, longest_first);
  v->by_len = tri_calloc(v->text.num + 1, sizeof *v->by_len);
  v->chars = tri_calloc(v->text.num + 1, sizeof *v->chars);
  v->chars_before = tri_calloc(num_rests + 1, sizeof *v->chars_before);
  if (!v->by_len || !v->chars || !v->chars_before) TRI_TRY(TRI_NO_MEMORY);
  for (uint32_t i = 0; i < v->text.num; i++) {
    v->by_len[i] = inside[i].id;
    v->chars[i] = (uint16_t)inside[i].chars;
  }
  for (size_t i = 0; i < num_rests; i++) v->chars_before[i] = before[v->rests.tokens[i]];
  v->text.inside = v->inside;
  v->text.by_len = v->by_len;
  v->text.chars = v->chars;
  v->text.rests = &v->rests;
  v->text.chars_before = v->chars_before;
cleanup:
  tri_free(inside);
  tri_free(found);
  tri_free(before);
  return st;
}

/* ---- all of it ---- */

static tri_status check_tokens(const tri_token_bytes *tokens, size_t num, uint32_t size, size_t *bytes,
                               tri_error *err) {
  *bytes = 0;
  for (size_t i = 0; i < num; i++) {
    if (tokens[i].id >= size)
      return tri_fail(err, TRI_INVALID_ARGUMENT, "", "token %u is beyond the vocabulary's %u", tokens[i].id, size);
    if (tokens[i].len > TRI_VOCABULARY_TOKEN)
      return tri_fail(err, TRI_TOO_LARGE, "", "token %u has %u bytes, more than %d", tokens[i].id, tokens[i].len,
                      TRI_VOCABULARY_TOKEN);
    if (!tri_size_add(*bytes, tokens[i].len, bytes) || *bytes > UINT32_MAX) return TRI_OVERFLOW;
  }
  return TRI_OK;
}

static void copy_bytes(tri_vocabulary *v, const tri_token_bytes *tokens, size_t num, tri_token_bytes *own) {
  uint8_t *at = v->bytes;
  for (size_t i = 0; i < num; i++) {
    own[i] = (tri_token_bytes){tokens[i].id, tokens[i].len, at};
    v->by_id[tokens[i].id] = (struct span){(uint32_t)(at - v->bytes), tokens[i].len + 1};
    if (tokens[i].len) memcpy(at, tokens[i].bytes, tokens[i].len);
    at += tokens[i].len;
  }
}

tri_status tri_vocabulary_create(const tri_token_bytes *tokens, size_t num, uint32_t size, tri_vocabulary **out,
                                 tri_error *err) {
  tri_status st = TRI_OK;
  tri_token_bytes *own = NULL;
  size_t bytes;
  TRI_CHECK(check_tokens(tokens, num, size, &bytes, err));
  tri_vocabulary *v = tri_calloc(1, sizeof *v);
  if (!v) return TRI_NO_MEMORY;
  v->size = size;
  v->words = ((size_t)size + 63) / 64;
  v->num_bytes = bytes;
  v->bytes = tri_malloc(bytes ? bytes : 1, 1);
  v->inside = tri_calloc(v->words ? v->words : 1, sizeof *v->inside);
  v->by_id = tri_calloc(size ? size : 1, sizeof *v->by_id);
  own = tri_calloc(num ? num : 1, sizeof *own);
  if (!v->bytes || !v->inside || !v->by_id || !own) TRI_TRY(TRI_NO_MEMORY);
  copy_bytes(v, tokens, num, own);
  TRI_TRY(tri_trie_make(own, num, &v->trie));
  TRI_TRY(make_text(v, own, num));
  *out = v;
  v = NULL;
cleanup:
  tri_free(own);
  tri_vocabulary_destroy(v);
  return st;
}

void tri_vocabulary_destroy(tri_vocabulary *v) {
  if (!v) return;
  tri_trie_free(&v->trie);
  tri_trie_free(&v->rests);
  tri_free(v->bytes);
  tri_free(v->by_id);
  tri_free(v->inside);
  tri_free(v->by_len);
  tri_free(v->chars);
  tri_free(v->chars_before);
  tri_free(v);
}

const uint8_t *tri_vocabulary_token(const tri_vocabulary *v, uint32_t id, uint32_t *len) {
  if (id >= v->size || !v->by_id[id].len_and_1) return NULL;
  *len = v->by_id[id].len_and_1 - 1;
  return v->bytes + v->by_id[id].at;
}

uint32_t tri_vocabulary_size(const tri_vocabulary *v) { return v->size; }
size_t tri_vocabulary_words(const tri_vocabulary *v) { return v->words; }
const tri_trie *tri_vocabulary_trie(const tri_vocabulary *v) { return &v->trie; }
const tri_text_tokens *tri_vocabulary_text(const tri_vocabulary *v) { return &v->text; }

size_t tri_vocabulary_bytes(const tri_vocabulary *v) {
  return trie_bytes(&v->trie) + trie_bytes(&v->rests) + v->num_bytes + v->size * sizeof *v->by_id +
         v->words * sizeof *v->inside + v->text.num * (sizeof *v->by_len + sizeof *v->chars) +
         v->rests.num_tokens * sizeof *v->chars_before;
}
