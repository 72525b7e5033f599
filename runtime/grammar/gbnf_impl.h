/* SPDX-License-Identifier: Apache-2.0 */
/* GBNF between its reader (gbnf_read.c) and what is made of it (gbnf.c). */
#ifndef TRI_RUNTIME_GRAMMAR_GBNF_IMPL_H
#define TRI_RUNTIME_GRAMMAR_GBNF_IMPL_H

#include "runtime/grammar/expression.h"
#include "runtime/grammar/gbnf.h"

typedef struct gbnf_rule {
  const char *name;
  const expr *body; /* NULL: it is named, but not there */
  size_t line;      /* where it is named first */
  bool is_empty;    /* it may be nothing */
} gbnf_rule;

typedef struct gbnf {
  gbnf_rule *list; /* in the order in which they are named */
  size_t num, room;
  uint32_t *slots; /* [room_slots]: numbers plus 1 by hash */
  size_t room_slots;
} gbnf;

tri_status gbnf_read(expr_context *x, const char *text, size_t len, gbnf *out);
/* Returns the number of a rule, which is made where there is none; UINT32_MAX with *st otherwise. */
uint32_t gbnf_rule_named(expr_context *x, gbnf *g, const char *name, size_t line, tri_status *st);

#endif
