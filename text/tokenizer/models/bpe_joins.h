/* SPDX-License-Identifier: Apache-2.0 */
/* Which symbols can grow together: where a long word can be cut without changing its tokens. */
#ifndef TRI_TEXT_TOKENIZER_MODELS_BPE_JOINS_H
#define TRI_TEXT_TOKENIZER_MODELS_BPE_JOINS_H

#include "text/tokenizer/models/bpe_merge.h"

/* Pairs of first symbols (those that a word is split into before any merge) that a merge can join. */
typedef struct tok_joins {
  uint64_t *slots; /* left << 32 | right; open addressing, at most half full; NULL: any two can join */
  size_t mask;
} tok_joins;

/* Fills j, which is zeroed. first[id], of num_ids: the id can be a first symbol. */
tri_status tok_joins_build(tok_joins *j, const tok_merges *m, const bool *first, size_t num_ids);
/* Makes room for up to `pairs` pairs of other symbols than ids; j is zeroed. */
tri_status tok_joins_init(tok_joins *j, size_t pairs);
/* Adds one, which may be there. */
void tok_joins_add(tok_joins *j, uint32_t left, uint32_t right);
void tok_joins_free(tok_joins *j);
bool tok_joins_can(const tok_joins *j, uint32_t left, uint32_t right);

#endif
