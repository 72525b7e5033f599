/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's precompiled character map: which short strings are replaced by which, as a double-array trie. */
#ifndef TRI_TEXT_TOKENIZER_CHARSMAP_H
#define TRI_TEXT_TOKENIZER_CHARSMAP_H

#include "text/tokenizer/ids.h"
#include "text/tokenizer/config.h"
#include "text/unicode/spans.h"

typedef struct tok_charsmap tok_charsmap;

/* f is the map in base64: the trie's size in bytes, the trie, and the replacements with a NUL after each. */
tri_status tok_charsmap_load(const tok_field *f, tok_charsmap **out, tri_error *err);
/* The same of the map's bytes; f names them in errors. */
tri_status tok_charsmap_copy(const char *map, size_t len, const tok_field *f, tok_charsmap **out, tri_error *err);
void tok_charsmap_destroy(tok_charsmap *m); /* NULL is fine */

/* Appends s with its user-perceived characters, or else the code points that they are made of, replaced. The walk may
 * be NULL. */
tri_status tok_charsmap_apply(const tok_charsmap *m, const char *s, size_t n, tok_spans_walk *walk, tri_buf *out);

/* Finds the longest entry that s, n bytes of valid UTF-8, begins with, and its replacement. Returns the entry's length,
 * 0 without one. */
size_t tok_charsmap_longest(const tok_charsmap *m, const char *s, size_t n, const char **text, size_t *len);

#endif
