/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of a text, and where they come to while the text is rewritten piece by piece.
 *
 * Both lists are in order and so are the pieces, hence one pass over either suffices. */
#ifndef TRI_TEXT_UNICODE_SPANS_H
#define TRI_TEXT_UNICODE_SPANS_H

#include "base/buf.h"
#include "base/span.h"

/* In order, apart from each other. An empty one stands for text that is gone: nothing that reaches over its place comes
 * from one piece of the original. */
typedef struct tok_spans {
  tri_span *data;
  size_t len, cap;
} tok_spans;
void tok_spans_free(tok_spans *s);
/* Appends a range that begins where the last one ends or after it; one that touches the last extends it. */
tri_status tok_spans_add(tok_spans *s, size_t from, size_t to);

/* One rewriting: its pieces come in the text's order, and none is left out. */
typedef struct tok_spans_walk {
  const tok_spans *from;
  size_t at;     /* those before it lie before all further pieces */
  tok_spans *to; /* appended to */
} tok_spans_walk;

/* The n bytes at `at` have become the `size` bytes at `to`, and which of them became which is not known: if a range has
 * a part of the former, it has all of the latter. A walk of NULL is fine, here and below. */
tri_status tok_spans_change(tok_spans_walk *w, size_t at, size_t n, size_t to, size_t size);
/* The n bytes at `at` are those at `to`. */
tri_status tok_spans_copy(tok_spans_walk *w, size_t at, size_t n, size_t to);

#endif
