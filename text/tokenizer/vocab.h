/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary: text <-> id.
 *
 * Entries are a dense table by id, slots a hash table from text to id. Texts are copied into the vocabulary's arena;
 * they may have NULs inside and one follows them. */
#ifndef TRI_TEXT_TOKENIZER_VOCAB_H
#define TRI_TEXT_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "text/tokenizer/config.h"

/* Ids index dense tables, so a single huge id must not make them huge: real vocabularies stay below a million. */
enum { TOK_MAX_IDS = 1 << 22 };
#define TOK_NO_ID UINT32_MAX

typedef struct tok_entry {
  const char *text; /* NULL: no token has this id */
  uint32_t len;
  bool special;
  bool skipped; /* left out of decoded text where special tokens are */
} tok_entry;

typedef struct tok_vocab {
  tri_arena *texts;
  tok_entry *entries; /* [cap], by id */
  size_t size, cap;   /* size: one more than the largest id */
  size_t count;       /* tokens of the model */
  struct tok_vocab_slot *slots;
  size_t slot_mask;
} tok_vocab;

tri_status tok_vocab_init(tok_vocab *v);
void tok_vocab_free(tok_vocab *v);

/* A token of the model. TRI_INVALID_ARGUMENT when the id or the text is taken. */
tri_status tok_vocab_add(tok_vocab *v, const char *text, size_t len, uint32_t id);
/* Gives an id its text without making it findable: an added token that the model must not produce by itself. */
tri_status tok_vocab_add_unlisted(tok_vocab *v, const char *text, size_t len, uint32_t id);
/* A token of the model that gives way to one of the same text which is there already: it keeps its id and is not found.
 */
tri_status tok_vocab_add_or_shadow(tok_vocab *v, const char *text, size_t len, uint32_t id);
/* {"token": id, ...} */
tri_status tok_vocab_load(tok_vocab *v, const tok_field *f, tri_error *err);
/* The ids of "<0x00>".."<0xFF>", TOK_NO_ID for those that are missing. */
void tok_vocab_find_bytes(const tok_vocab *v, uint32_t out[256]);
/* TOK_NO_ID when the model has no such token. */
uint32_t tok_vocab_find(const tok_vocab *v, const char *text, size_t len);

static inline const tok_entry *tok_vocab_at(const tok_vocab *v, uint32_t id) {
  return id < v->size && v->entries[id].text ? &v->entries[id] : NULL;
}

#endif
