/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the pattern translator: dialect.c does patterns, dialect_class.c sets of
 * characters, dialect_character.c single ones. */
#ifndef TRI_TEXT_TOKENIZER_REGEX_DIALECT_H
#define TRI_TEXT_TOKENIZER_REGEX_DIALECT_H

#include "base/buf.h"
#include "text/tokenizer/config.h"

typedef struct tok_dialect {
  const char *p, *end, *begin; /* the pattern; p is where it is read */
  tri_buf *out;
  const tok_field *where;
  tri_error *err;
} tok_dialect;

/* Returns TRI_UNSUPPORTED, with what was refused and where in the pattern. */
tri_status tok_dialect_refuse(const tok_dialect *d, const char *what);

static inline bool tok_dialect_at(const tok_dialect *d, size_t i, char c) {
  return (size_t)(d->end - d->p) > i && d->p[i] == c;
}

/* An escape that stands for one character, appended to out. */
tri_status tok_dialect_character(tok_dialect *d, tri_buf *out);

/* dialect_class.c. A class in brackets at p, or an escape of a set (\s, \w, \p{...}), appended to d->out. */
tri_status tok_dialect_class(tok_dialect *d);
bool tok_dialect_is_set(const tok_dialect *d);
tri_status tok_dialect_set(tok_dialect *d);
/* \b or \B. */
tri_status tok_dialect_boundary(tok_dialect *d);

#endif
