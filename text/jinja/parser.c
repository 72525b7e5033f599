/* SPDX-License-Identifier: Apache-2.0 */
#include "text/jinja/parser.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/jinja.h"

/* The first failure is the cause, and later ones only follow from it: they are dropped. The line is that of the token
 * at hand, which is where a reader of the template has to look. */
void jp_fail(jparser *p, const char *fmt, ...) {
  char what[200];
  va_list ap;
  if (!jp_ok(p)) return;
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  p->st = tri_fail(p->err, TRI_CORRUPT, TRI_JINJA_SYNTAX, "line %d of the chat template: %s", p->at->line, what);
}

jnode *jp_node(jparser *p, jop op) {
  if (!jp_ok(p)) return NULL;
  jnode *n = tri_arena_alloc(p->arena, 1, sizeof *n);
  if (!n) {
    p->st = TRI_NO_MEMORY;
    return NULL;
  }
  n->op = op;
  n->line = p->at->line;
  return n;
}

/* The array that is outgrown stays in the arena. As each is twice as large as the one before, all that are lost
 * together are smaller than the last one. */
void *jp_grow(jparser *p, void *items, size_t n, size_t *cap, size_t size) {
  if (n < *cap) return items;
  size_t twice = *cap ? 2 * *cap : 4;
  void *more = tri_arena_alloc(p->arena, twice, size);
  if (!more) {
    p->st = TRI_NO_MEMORY;
    return NULL;
  }
  if (n) memcpy(more, items, n * size);
  *cap = twice;
  return more;
}

void jp_add(jparser *p, jnodes *to, const jnode *n) {
  if (!jp_ok(p)) return;
  const jnode **items = jp_grow(p, to->items, to->n, &to->cap, sizeof *items);
  if (!items) return;
  to->items = items;
  to->items[to->n++] = n;
}

/* The last token is an END, and neither this function nor jp_take takes one: `at` stays inside of the list without a
 * check of its length. */
const char *jp_name(jparser *p) {
  if (p->at->kind != JT_NAME) {
    jp_fail(p, "a name is missing");
    return NULL;
  }
  const char *text = tri_arena_strndup(p->arena, p->at->s, p->at->n);
  if (!text) p->st = TRI_NO_MEMORY;
  p->at++;
  return text;
}

/* A parse by recursive descent nests on this thread's stack as the template does, so that a hostile template must not
 * choose the depth. A refusal needs no jp_leave: it fails the parse. */
bool jp_enter(jparser *p) {
  if (++p->depth <= TRI_JINJA_MOST_DEPTH * 4) return jp_ok(p);
  jp_fail(p, "expressions are nested too deeply");
  return false;
}
void jp_leave(jparser *p) { p->depth--; }

static bool is(const jparser *p, jtoken_kind kind, const char *text) {
  return p->at->kind == kind && p->at->n == strlen(text) && !memcmp(p->at->s, text, p->at->n);
}
bool jp_is(const jparser *p, const char *op) { return is(p, JT_OPERATOR, op); }
bool jp_is_name(const jparser *p, const char *name) { return is(p, JT_NAME, name); }

bool jp_take(jparser *p, const char *op) {
  bool found = jp_ok(p) && jp_is(p, op);
  p->at += found;
  return found;
}

bool jp_take_name(jparser *p, const char *name) {
  bool found = jp_ok(p) && jp_is_name(p, name);
  p->at += found;
  return found;
}

void jp_want(jparser *p, const char *op) {
  if (!jp_take(p, op)) jp_fail(p, "'%s' is missing", op);
}
