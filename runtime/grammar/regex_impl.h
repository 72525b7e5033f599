/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions within this folder: inside strings of JSON, too. */
#ifndef TRI_RUNTIME_GRAMMAR_REGEX_IMPL_H
#define TRI_RUNTIME_GRAMMAR_REGEX_IMPL_H

#include "runtime/grammar/expression.h"
#include "runtime/grammar/regex.h"

/* Reads an expression, with BEGIN and END where ^ and $ are. */
tri_status regex_read(expr_context *x, const char *text, size_t len, const expr **out);

/* An alternative of an expression, without ^ and $. */
typedef struct regex_way {
  const expr *body;
  bool begins, ends; /* it has ^, $ */
} regex_way;

typedef struct regex_ways {
  regex_way *list;
  size_t num, room;
} regex_ways;

/* Takes ^ and $ out. */
tri_status regex_split(expr_context *x, const expr *e, regex_ways *out);

/* Makes the rule of a string of JSON, quotes included, in which the expression is found, of `least` to `most`
 * characters (INT64_MAX: any number). *is_never: nothing fits. TRI_UNSUPPORTED: the lengths cannot be kept. */
tri_status regex_string_rule(expr_context *x, tri_net *net, const regex_ways *ways, int64_t least, int64_t most,
                             uint32_t *rule, bool *is_never);

#endif
