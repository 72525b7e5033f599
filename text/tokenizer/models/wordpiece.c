/* SPDX-License-Identifier: Apache-2.0 */
/* The WordPiece model: a word is cut from the left into the longest tokens that fit, those after the first being
 * spelled with a prefix ("##"); a word that cannot be cut is unknown as a whole. */
#include <string.h>

#include "base/mem.h"
#include "text/tokenizer/models/model.h"
#include "text/tokenizer/trie.h"
#include "text/unicode/unicode.h"

typedef struct wordpiece {
  tok_trie trie;
  uint32_t inside; /* where the walk begins after the first token: the prefix's node, or none */
  uint32_t unk;
  uint64_t max_chars;
} wordpiece;

static tri_status load_unk(wordpiece *w, const tok_field *model, const tok_vocab *vocab, tri_error *err) {
  const char *text;
  size_t len;
  tok_field f = tok_field_get(model, "unk_token");
  TRI_CHECK(tok_field_string(&f, &text, &len, err));
  w->unk = tok_vocab_find(vocab, text, len);
  if (w->unk == TOK_NO_ID) return tok_field_fail(&f, TRI_CORRUPT, err, "%.64s is not in the vocabulary", text);
  return TRI_OK;
}

/* Walks the prefix once while loading: a walk for a token inside a word begins at the node after it. If no token has
 * the prefix, a word is one token or unknown. */
static tri_status load_prefix(wordpiece *w, const tok_field *model, tri_error *err) {
  const char *text;
  size_t len;
  tok_field f = tok_field_get(model, "continuing_subword_prefix");
  TRI_CHECK(tok_field_string(&f, &text, &len, err));
  w->inside = TOK_TRIE_ROOT;
  for (size_t i = 0; i < len && w->inside != TOK_TRIE_NONE; i++)
    w->inside = tok_trie_step(&w->trie, w->inside, (unsigned char)text[i]);
  return TRI_OK;
}

static void wordpiece_destroy(void *model) {
  wordpiece *w = model;
  if (!w) return;
  tok_trie_free(&w->trie);
  tri_free(w);
}

static tri_status wordpiece_load(const tok_field *f, tok_vocab *vocab, void **model, tri_error *err) {
  static const char keys[] = "type unk_token continuing_subword_prefix max_input_chars_per_word vocab";
  tri_status st;
  wordpiece *w = tri_calloc(1, sizeof *w);
  if (!w) return tok_field_no_memory(f, err);
  TRI_TRY(tok_field_object(f, keys, err));
  tok_field tokens = tok_field_get(f, "vocab");
  TRI_TRY(tok_vocab_load(vocab, &tokens, err));
  st = tok_trie_build(&w->trie, vocab);
  if (st == TRI_TOO_LARGE)
    tok_field_fail(&tokens, st, err, "a token exceeds %d bytes or all are too many", TOK_TRIE_LONGEST);
  if (st != TRI_OK) goto cleanup;
  TRI_TRY(load_unk(w, f, vocab, err));
  TRI_TRY(load_prefix(w, f, err));
  tok_field max = tok_field_get(f, "max_input_chars_per_word");
  TRI_TRY(tok_field_count(&max, &w->max_chars, err));
  *model = w;
  w = NULL;
cleanup:
  if (st == TRI_NO_MEMORY) tok_field_no_memory(f, err);
  wordpiece_destroy(w);
  return st;
}

/* The working memory is the word's tokens: they are handed out only when the whole word could be cut. */
static tri_status wordpiece_work_create(const void *model, void **work) {
  (void)model;
  tok_ids *ids = tri_calloc(1, sizeof *ids);
  if (!ids) return TRI_NO_MEMORY;
  ids->max = SIZE_MAX;
  *work = ids;
  return TRI_OK;
}

static void wordpiece_work_destroy(void *work) {
  if (work) tok_ids_free(work);
  tri_free(work);
}

/* The longest token at s; *used is 0 when there is none. The walk continues after a token that ends: a longer one may
 * end further on. */
static uint32_t longest_token(const wordpiece *w, uint32_t node, const char *s, size_t len, size_t *used) {
  uint32_t id = TOK_NO_ID;
  *used = 0;
  for (size_t i = 0; i < len && node != TOK_TRIE_NONE; i++) {
    node = tok_trie_step(&w->trie, node, (unsigned char)s[i]);
    if (node == TOK_TRIE_NONE || w->trie.nodes[node].id == TOK_NO_ID) continue;
    id = w->trie.nodes[node].id;
    *used = i + 1;
  }
  return id;
}

/* A word has at least as many bytes as characters, so that characters are counted of long words only. */
static tri_status wordpiece_encode(const void *model, void *work, const char *word, size_t len, tok_ids *out) {
  const wordpiece *w = model;
  tok_ids *ids = work;
  if (len > w->max_chars && tok_utf8_count(word, len) > w->max_chars) return tok_ids_push(out, w->unk);
  ids->len = 0;
  for (size_t at = 0, used; at < len; at += used) {
    uint32_t id = longest_token(w, at ? w->inside : TOK_TRIE_ROOT, word + at, len - at, &used);
    if (!used) return tok_ids_push(out, w->unk);
    TRI_CHECK(tok_ids_push(ids, id));
  }
  return tok_ids_append(out, ids->data, ids->len);
}

const tok_model_type tok_model_wordpiece = {
    .name = "WordPiece",
    .telltale = "max_input_chars_per_word",
    .load = wordpiece_load,
    .destroy = wordpiece_destroy,
    .work_create = wordpiece_work_create,
    .work_destroy = wordpiece_work_destroy,
    .encode = wordpiece_encode,
};
