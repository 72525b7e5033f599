/* SPDX-License-Identifier: Apache-2.0 */
/* The word cache: text repeats its words, and a repeated word costs a hash and a comparison. One slot per hash value,
 * the newest word wins. */
#ifndef TRI_TEXT_TOKENIZER_MODELS_WORD_CACHE_H
#define TRI_TEXT_TOKENIZER_MODELS_WORD_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/xxh3.h"

enum { TOK_CACHE_SLOTS = 4096, TOK_CACHE_TEXT = 22, TOK_CACHE_IDS = 8 };

typedef struct tok_cached_word {
  uint8_t len, count; /* len 0: empty */
  char text[TOK_CACHE_TEXT];
  uint32_t ids[TOK_CACHE_IDS];
} tok_cached_word;

typedef struct tok_word_cache {
  tok_cached_word slots[TOK_CACHE_SLOTS];
} tok_word_cache;

/* Returns the slot that a word has or would have; NULL for one that is too long. */
static inline tok_cached_word *tok_cache_slot(tok_word_cache *c, const char *word, size_t len) {
  return len <= TOK_CACHE_TEXT ? &c->slots[tri_xxh3(word, len) % TOK_CACHE_SLOTS] : NULL;
}

static inline bool tok_cache_has(const tok_cached_word *slot, const char *word, size_t len) {
  return slot && slot->len == len && !memcmp(slot->text, word, len);
}

/* Takes a word and its ids, unless they are too many; slot may be NULL. */
static inline void tok_cache_put(tok_cached_word *slot, const char *word, size_t len, const uint32_t *ids,
                                 size_t count) {
  if (!slot || count > TOK_CACHE_IDS) return;
  *slot = (tok_cached_word){.len = (uint8_t)len, .count = (uint8_t)count};
  memcpy(slot->text, word, len);
  if (count) memcpy(slot->ids, ids, count * sizeof *ids);
}

#endif
