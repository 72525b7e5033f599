/* SPDX-License-Identifier: Apache-2.0 */
/* Byte pair merging: which neighbours become one token, and in which order.
 *
 * The order decides the result: always the pair with the lowest rank, of equal ones the leftmost, as in Sennrich et
 * al., "Neural Machine Translation of Rare Words with Subword Units" (ACL 2016). */
#ifndef TRI_TEXT_TOKENIZER_MODELS_BPE_MERGE_H
#define TRI_TEXT_TOKENIZER_MODELS_BPE_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct tok_merge {
  uint32_t left, right;
  uint32_t rank; /* lower merges first; UINT32_MAX in an empty slot */
  uint32_t id;   /* of the two together */
} tok_merge;

/* (left, right) -> merge: open addressing, at most half full, fixed after loading. */
typedef struct tok_merges {
  tok_merge *slots;
  size_t mask;
} tok_merges;

/* Room for count merges. */
tri_status tok_merges_init(tok_merges *m, size_t count);
void tok_merges_free(tok_merges *m);
/* A pair that is already there is replaced: the last of a list wins. */
void tok_merges_put(tok_merges *m, tok_merge merge);
/* NULL when the pair never merges. */
const tok_merge *tok_merges_find(const tok_merges *m, uint32_t left, uint32_t right);

enum { TOK_SHORT_WORD = 40 }; /* symbols; up to here merging needs no working memory */

/* Working memory for long words. */
typedef struct tok_merge_work {
  struct tok_symbol *symbols;
  struct tok_candidate *heap;
  size_t symbol_cap, heap_cap;
} tok_merge_work;
void tok_merge_work_free(tok_merge_work *w);

/* Merges ids[0..*n) in place until no pair of neighbours merges, always the lowest rank and of equal ones the leftmost.
 */
tri_status tok_merge_word(const tok_merges *m, tok_merge_work *w, uint32_t *ids, size_t *n);

#endif
