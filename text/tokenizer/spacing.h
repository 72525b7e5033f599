/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's own normalizer: its character map, what it does with spaces, and user pieces, which stay as they are.
 */
#ifndef TRI_TEXT_TOKENIZER_SPACING_H
#define TRI_TEXT_TOKENIZER_SPACING_H

#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/models/pieces.h"

typedef struct tok_spacing {
  tok_charsmap *charsmap; /* owned; NULL: none */
  tok_user_pieces user;
  bool add_space;    /* one before the text */
  bool first_only;   /* of several stretches of one text only before the first */
  bool after;        /* it stands after the text instead */
  bool remove_extra; /* spaces at the ends, and of several in a row all but one */
  bool escape;       /* spaces are written as U+2581 */
} tok_spacing;

void tok_spacing_free(tok_spacing *s);
/* Appends the text, which is valid UTF-8. at_start: nothing stood before it. The walk may be NULL. */
tri_status tok_spacing_apply(const tok_spacing *s, const char *text, size_t len, bool at_start, tok_spans_walk *walk,
                             tri_buf *out);

#endif
