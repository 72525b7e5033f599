/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens of a vocabulary as a trie of their bytes, in which a mask is found by one walk in depth-first order.
 *
 * Node i has a byte, and its subtree ends before node end[i]: where the byte may not come, the walk continues there.
 * The tokens that end at a node are tokens[first_token[i]] to tokens[first_token[i + 1] - 1]. Node 0 is the root, and
 * has the tokens without bytes, which no mask has.
 *
 * For the inside of a string of JSON (tri_net_add_text), which most tokens are, the walk is done once here: of each
 * token that may stand inside, how many characters it has, and of each that brings a closing quote, what follows it. */
#ifndef TRI_RUNTIME_GRAMMAR_VOCABULARY_H
#define TRI_RUNTIME_GRAMMAR_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct tri_trie {
  uint32_t num_nodes, num_tokens, depth; /* depth: of the deepest node */
  uint8_t *byte;                         /* [num_nodes] */
  uint32_t *end;                         /* [num_nodes] */
  uint32_t *first_token;                 /* [num_nodes + 1] */
  uint32_t *tokens;                      /* [num_tokens]: ids */
} tri_trie;

/* A token's bytes. */
typedef struct tri_token_bytes {
  uint32_t id;
  uint32_t len;
  const uint8_t *bytes;
} tri_token_bytes;

/* The tokens in any order, which is changed; *out is filled, and freed with tri_trie_free. Tokens may be equal. */
tri_status tri_trie_make(tri_token_bytes *tokens, size_t num, tri_trie *out);
void tri_trie_free(tri_trie *t); /* one of zeros is fine */

typedef struct tri_vocabulary tri_vocabulary;

/* size: ids are below it, and masks have so many bits. Tokens that are not named (special ones) are in no mask. Bytes
 * are copied. TRI_TOO_LARGE: a token of more than TRI_VOCABULARY_TOKEN bytes; TRI_INVALID_ARGUMENT: an id beyond
 * `size`. */
enum { TRI_VOCABULARY_TOKEN = 1024 };
tri_status tri_vocabulary_create(const tri_token_bytes *tokens, size_t num, uint32_t size, tri_vocabulary **out,
                                 tri_error *err);
void tri_vocabulary_destroy(tri_vocabulary *v); /* NULL is fine */

uint32_t tri_vocabulary_size(const tri_vocabulary *v);
size_t tri_vocabulary_words(const tri_vocabulary *v); /* of 64 bits, of a mask */
const tri_trie *tri_vocabulary_trie(const tri_vocabulary *v);
/* Returns the bytes of a token; NULL: it was not named. */
const uint8_t *tri_vocabulary_token(const tri_vocabulary *v, uint32_t id, uint32_t *len);
size_t tri_vocabulary_bytes(const tri_vocabulary *v); /* of memory */

/* Inside a string of JSON. */
typedef struct tri_text_tokens {
  const uint64_t *inside; /* [words]: tokens that stay inside */
  const uint32_t *by_len; /* [num]: those, longest first */
  const uint16_t *chars;  /* [num]: their characters */
  uint32_t num;
  /* What follows the first closing quote of tokens that have one: its node 0 has the tokens that end with the quote. */
  const tri_trie *rests;
  const uint16_t *chars_before; /* [rests->num_tokens]: characters before the quote of rests->tokens */
} tri_text_tokens;

const tri_text_tokens *tri_vocabulary_text(const tri_vocabulary *v);

#endif
