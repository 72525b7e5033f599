/* SPDX-License-Identifier: Apache-2.0 */
/* Metaspace: spaces made visible. Its settings serve the pre-tokenizer and the decoder.
 *
 * The visible space of SentencePiece is U+2581; the format allows any one character. */
#ifndef TRI_TEXT_TOKENIZER_METASPACE_H
#define TRI_TEXT_TOKENIZER_METASPACE_H

#include "text/tokenizer/config.h"

typedef enum tok_prepend {
  TOK_PREPEND_ALWAYS, /* one before every piece that lacks it */
  TOK_PREPEND_FIRST,  /* only before what stands at the start of the text */
  TOK_PREPEND_NEVER
} tok_prepend;

typedef struct tok_metaspace {
  char replacement[5]; /* the visible space, one character */
  size_t len;
  tok_prepend scheme;
  bool split; /* words begin at visible spaces */
} tok_metaspace;

/* The keys of a "Metaspace", and what they say. */
#define TOK_METASPACE_KEYS "replacement prepend_scheme add_prefix_space split str_rep" /* repeats replacement */
tri_status tok_metaspace_load(const tok_field *f, tok_metaspace *m, tri_error *err);

#endif
