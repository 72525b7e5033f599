/* SPDX-License-Identifier: Apache-2.0 */
/* A parser: its place among the tokens, and the nodes that it makes. parse_expr.c has expressions, parse.c statements.
 * It goes by jinja2's grammar, and by its precedence of operators.
 *
 * As in a render the first failure sticks, so that callers check jp_ok only where they follow a node or repeat
 * something. Nodes live in the template's arena. */
#ifndef TRI_TEXT_JINJA_PARSER_H
#define TRI_TEXT_JINJA_PARSER_H

#include "text/jinja/lexer.h"

typedef struct jparser {
  const jtoken *at;
  tri_arena *arena;
  tri_status st; /* the first failure sticks */
  tri_error *err;
  int depth, loops;
} jparser;

/* ---- parser.c ---- */

__attribute__((format(printf, 2, 3))) void jp_fail(jparser *p, const char *fmt, ...);
static inline bool jp_ok(const jparser *p) { return p->st == TRI_OK; }
jnode *jp_node(jparser *p, jop op);                                         /* NULL after a failure */
void *jp_grow(jparser *p, void *items, size_t n, size_t *cap, size_t size); /* as j_grow in a render */
void jp_add(jparser *p, jnodes *to, const jnode *n);
const char *jp_name(jparser *p); /* takes a name; NULL: it is another token */
/* Bounds nesting. False: too deep. */
bool jp_enter(jparser *p);
void jp_leave(jparser *p);

/* The token at hand, compared or taken if it is the one; an operator or a name. jp_want fails where it is another. */
bool jp_is(const jparser *p, const char *op);
bool jp_is_name(const jparser *p, const char *name);
bool jp_take(jparser *p, const char *op);
bool jp_take_name(jparser *p, const char *name);
void jp_want(jparser *p, const char *op);

/* ---- parse_expr.c ---- */

/* A whole expression with all operators, `a if b else c` included; no tuple. */
const jnode *jp_expression(jparser *p);
/* One or several expressions; several are a tuple. conditionals: they may be `a if b else c`. */
const jnode *jp_tuple(jparser *p, bool conditionals);
/* Names and attributes that are set, one or a tuple of them. */
const jnode *jp_target(jparser *p, bool attributes);
/* `|filter` and what else may follow; `to` NULL: of a block. begun: the first one's bar is left out. */
const jnode *jp_filters(jparser *p, const jnode *to, bool begun);
const jnode *jp_call(jparser *p); /* the call of a call block */
void jp_parameters(jparser *p, jnode *n);

#endif
