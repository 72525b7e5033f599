/* SPDX-License-Identifier: Apache-2.0 */
/* Names that a template sets, block in block.
 *
 * A scope is a short array that is searched linearly: a block sets a handful of names. Each turn of a loop begins with
 * an empty scope. It reuses the last turn's unless a macro was defined in that one, since the macro still reads its
 * names when it is called later. */
#include <string.h>

#include "text/jinja/exec.h"

static jbinding *find(const jscope *s, const char *name) {
  for (size_t i = 0; i < s->n; i++)
    if (!strcmp(s->bindings[i].name, name)) return &s->bindings[i];
  return NULL;
}

const jv *j_lookup(const jx *x, const char *name) {
  for (const jscope *s = x->scope; s; s = s->outer) {
    const jbinding *b = find(s, name);
    if (b) return &b->value;
  }
  return NULL;
}

/* Sets in the innermost scope, also where an outer one has the name: a name that a loop sets is gone after it, as in
 * jinja2. Only attributes of namespaces outlive a block. */
void j_set(jx *x, const char *name, jv value) {
  jscope *s = x->scope;
  jbinding *b = find(s, name);
  if (!j_ok(x)) return;
  if (b) {
    b->value = value;
    return;
  }
  jbinding *bindings = j_grow(x, s->bindings, s->n, &s->cap, sizeof *bindings);
  if (!bindings) return;
  s->bindings = bindings;
  s->bindings[s->n++] = (jbinding){name, value};
}

void j_push(jx *x, jscope *s) {
  *s = (jscope){.outer = x->scope};
  x->scope = s;
}
void j_pop(jx *x) { x->scope = x->scope->outer; }

jscope *j_new_scope(jx *x) {
  jscope *s = j_alloc(x, 1, sizeof *s);
  if (s) j_push(x, s);
  return s;
}

jscope *j_next_scope(jx *x, jscope *last) {
  if (!last || last->is_kept) return j_new_scope(x);
  last->n = 0;
  x->scope = last;
  return last;
}

static void assign_attribute(jx *x, const jnode *target, jv value) {
  const jv *of = j_lookup(x, target->a->text);
  if (!of || !j_is(*of, J_NAMESPACE)) {
    j_fail(x, TRI_JINJA_TYPE, "cannot assign attribute on non-namespace object");
    return;
  }
  j_map_put(x, of->map, j_text(x, target->text), value);
}

void j_assign(jx *x, const jnode *target, jv value) {
  if (!j_ok(x)) return;
  if (target->op == JN_NAME) {
    j_set(x, target->text, value);
    return;
  }
  if (target->op == JN_ATTRIBUTE) {
    assign_attribute(x, target, value);
    return;
  }
  size_t n;
  const jv *items = j_items(x, value, &n);
  if (j_ok(x) && n != target->items.n)
    j_fail(x, TRI_JINJA_TYPE, "%zu values are to be unpacked, %zu are there", target->items.n, n);
  for (size_t i = 0; i < n && j_ok(x); i++) j_assign(x, target->items.items[i], items[i]);
}
