/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary as a trie of bytes: all tokens that a text begins with, in one walk.
 *
 * Nodes lie in one array, siblings next to each other in order of their bytes: a step is a binary search among a
 * node's children, and a node takes 12 bytes instead of a table of 256. */
#ifndef TRI_TEXT_TOKENIZER_TRIE_H
#define TRI_TEXT_TOKENIZER_TRIE_H

#include "text/tokenizer/vocab.h"

/* Bytes of the longest token that a trie takes; bounds what one place of a text can cost. */
enum { TOK_TRIE_LONGEST = 1024 };

#define TOK_TRIE_ROOT 0u
#define TOK_TRIE_NONE UINT32_MAX

typedef struct tok_trie_node {
  uint32_t first,
      id; /* children are nodes[first .. first + count), by their bytes; id: TOK_NO_ID when no token ends here */
  uint16_t count;
  unsigned char byte;
} tok_trie_node;

typedef struct tok_trie {
  tok_trie_node *nodes;
  size_t count;
  size_t longest; /* bytes of the longest token */
} tok_trie;

/* t is zeroed; tok_trie_free is due also after a failure. Takes the tokens that tok_vocab_find finds. TRI_TOO_LARGE
 * when one is longer than TOK_TRIE_LONGEST or all together are unreasonably many. */
tri_status tok_trie_build(tok_trie *t, const tok_vocab *v);
void tok_trie_free(tok_trie *t);

/* TOK_TRIE_NONE when no token continues like this. */
static inline uint32_t tok_trie_step(const tok_trie *t, uint32_t node, unsigned char byte) {
  const tok_trie_node *n = &t->nodes[node];
  uint32_t low = n->first, high = low + n->count;
  while (low < high) {
    uint32_t mid = low + (high - low) / 2;
    if (t->nodes[mid].byte < byte)
      low = mid + 1;
    else
      high = mid;
  }
  return low < n->first + n->count && t->nodes[low].byte == byte ? low : TOK_TRIE_NONE;
}

#endif
