/* SPDX-License-Identifier: Apache-2.0 */
/* Unicode's general categories as sets of characters: \p{Lu}, \p{Letter}. */
#ifndef TRI_RUNTIME_GRAMMAR_CATEGORIES_H
#define TRI_RUNTIME_GRAMMAR_CATEGORIES_H

#include "runtime/grammar/expression.h"

/* Adds the characters of a category, or of Any, ASCII or Assigned. name: ASCII, without braces. *is_known: there is
 * one of this name. */
tri_status categories_add(expr_context *x, const char *name, charset *out, bool *is_known);

#endif
