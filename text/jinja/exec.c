/* SPDX-License-Identifier: Apache-2.0 */
#include "text/jinja/exec.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/wait.h"

jv j_fail(jx *x, const char *kind, const char *fmt, ...) {
  char what[240];
  va_list ap;
  if (!j_ok(x)) return j_undefined(NULL);
  va_start(ap, fmt);
  vsnprintf(what, sizeof what, fmt, ap);
  va_end(ap);
  tri_status st = strcmp(kind, TRI_JINJA_LIMIT) ? TRI_INVALID_ARGUMENT : TRI_TOO_LARGE;
  if (!strcmp(kind, TRI_JINJA_RAISED))
    x->st = tri_fail(x->err, st, kind, "%s", what);
  else
    x->st = tri_fail(x->err, st, kind, "line %d of the chat template: %s", x->line, what);
  return j_undefined(NULL);
}

bool j_spend(jx *x, size_t steps) {
  enum { LOOK_EVERY = 4096 };
  if (!j_ok(x)) return false;
  int64_t looked = x->nodes / LOOK_EVERY;
  x->nodes += (int64_t)steps;
  if (x->nodes > TRI_JINJA_MOST_NODES)
    j_fail(x, TRI_JINJA_LIMIT, "it takes more than %d steps", TRI_JINJA_MOST_NODES);
  else if (x->nodes / LOOK_EVERY != looked && tri_thread_cpu_ns() > x->deadline_ns)
    j_fail(x, TRI_JINJA_LIMIT, "it takes longer than %d ms of a processor", TRI_JINJA_MOST_MS);
  return j_ok(x);
}

bool j_visit(jx *x, const jnode *n) {
  if (n && j_ok(x)) x->line = n->line;
  return j_spend(x, 1);
}

/* ---- names ---- */

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

void j_set(jx *x, const char *name, jv value) {
  jscope *s = x->scope;
  jbinding *b = find(s, name);
  if (!j_ok(x)) return;
  if (b) {
    b->value = value;
    return;
  }
  if (s->n == s->cap) {
    size_t cap = s->cap ? 2 * s->cap : 4;
    jbinding *more = j_alloc(x, cap, sizeof *more);
    if (!more) return;
    if (s->n) memcpy(more, s->bindings, s->n * sizeof *more);
    s->bindings = more;
    s->cap = cap;
  }
  s->bindings[s->n++] = (jbinding){name, value};
}

void j_push(jx *x, jscope *s) {
  *s = (jscope){.outer = x->scope};
  x->scope = s;
}
void j_pop(jx *x) { x->scope = x->scope->outer; }

/* A scope that macros may keep: it is the render's, not the C stack's. */
static jscope *new_scope(jx *x) {
  jscope *s = j_alloc(x, 1, sizeof *s);
  if (s) j_push(x, s);
  return s;
}

/* The scope of a loop's next turn: that of the last one, empty, unless somebody keeps it. */
static jscope *next_scope(jx *x, jscope *last) {
  if (!last || last->is_kept) return new_scope(x);
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

/* ---- statements ---- */

jv j_capture(jx *x, const jnodes *body) {
  jbuf own = j_begin(x), *outer = x->out;
  x->out = &own;
  j_run(x, body);
  x->out = outer;
  return j_end(&own);
}

/* Those that pass the loop's own filter. */
static const jv *filtered(jx *x, const jnode *n, const jv *items, size_t *count) {
  jv *kept = j_alloc(x, *count, sizeof *kept);
  size_t num = 0;
  jscope *own = NULL;
  for (size_t i = 0; i < *count && j_ok(x); i++) {
    if (!(own = next_scope(x, own))) break;
    j_assign(x, n->b, items[i]);
    if (j_ok(x) && j_truth(j_eval(x, n->c)) && j_ok(x)) kept[num++] = items[i];
    j_pop(x);
  }
  *count = num;
  return kept;
}

static void run_for(jx *x, const jnode *n) {
  size_t count;
  jv over = j_eval(x, n->a);
  const jv *items = j_ok(x) ? j_items(x, over, &count) : NULL;
  if (!j_ok(x)) return;
  if (n->c) items = filtered(x, n, items, &count);
  if (!count) {
    j_run(x, &n->other);
    return;
  }
  jloop *loop = j_alloc(x, 1, sizeof *loop);
  if (!loop) return;
  *loop = (jloop){.items = items, .n = count};
  jscope *own = NULL;
  for (; loop->at < count && j_ok(x); loop->at++) {
    if (!j_visit(x, n) || !(own = next_scope(x, own))) break;
    j_set(x, "loop", (jv){.kind = J_LOOP, .loop = loop});
    j_assign(x, n->b, items[loop->at]);
    jflow flow = j_run(x, &n->body);
    j_pop(x);
    if (flow == JF_BREAK) break;
  }
}

static jv new_macro(jx *x, const jnode *n, bool is_caller) {
  jmacro *m = j_alloc(x, 1, sizeof *m);
  if (!m) return j_undefined(NULL);
  *m = (jmacro){.node = n, .scope = x->scope, .is_caller = is_caller};
  for (jscope *s = x->scope; s; s = s->outer) s->is_kept = true;
  return (jv){.kind = J_MACRO, .macro = m};
}

static void run_call_block(jx *x, const jnode *n) {
  jv caller = new_macro(x, n, true), callee = j_eval(x, n->a->a);
  jargs args = j_arguments(x, n->a);
  if (!j_ok(x)) return;
  j_put_value(x->out, j_call(x, callee, &args, caller));
}

static void run_set_block(jx *x, const jnode *n) {
  jscope *own = new_scope(x);
  jv text = own ? j_capture(x, &n->body) : j_undefined(NULL);
  if (own) j_pop(x);
  if (n->a && j_ok(x)) text = j_apply_filter(x, n->a, text);
  j_assign(x, n->b, text);
}

static void run_filter_block(jx *x, const jnode *n) {
  if (!new_scope(x)) return;
  jv text = j_capture(x, &n->body);
  j_pop(x);
  if (!j_ok(x)) return;
  jv filtered_text = j_apply_filter(x, n->a, text);
  if (j_ok(x)) j_put_value(x->out, filtered_text);
}

/* A block whose names are its own. */
static void run_block(jx *x, const jnode *n) {
  if (!new_scope(x)) return;
  j_run(x, &n->body);
  j_pop(x);
}

static jflow run(jx *x, const jnode *n) {
  jv v;
  switch (n->op) {
  case JN_DATA: j_put_str(x->out, &n->data); break;
  case JN_OUTPUT:
    v = j_eval(x, n->a);
    if (j_ok(x)) j_put_value(x->out, v);
    break;
  case JN_IF:
    v = j_eval(x, n->a);
    if (!j_ok(x)) return JF_NEXT;
    return j_run(x, j_truth(v) ? &n->body : &n->other);
  case JN_FOR: run_for(x, n); break;
  case JN_SET: j_assign(x, n->b, j_eval(x, n->a)); break;
  case JN_SET_BLOCK: run_set_block(x, n); break;
  case JN_MACRO: j_set(x, n->text, new_macro(x, n, false)); break;
  case JN_CALL_BLOCK: run_call_block(x, n); break;
  case JN_FILTER_BLOCK: run_filter_block(x, n); break;
  case JN_BREAK: return JF_BREAK;
  case JN_CONTINUE: return JF_CONTINUE;
  default: run_block(x, n); break;
  }
  return JF_NEXT;
}

jflow j_run(jx *x, const jnodes *body) {
  jflow flow = JF_NEXT;
  if (x->depth >= TRI_JINJA_MOST_DEPTH * 4) {
    j_fail(x, TRI_JINJA_LIMIT, "blocks are nested too deeply");
    return flow;
  }
  x->depth++;
  for (size_t i = 0; i < body->n && flow == JF_NEXT; i++) {
    if (!j_visit(x, body->items[i])) break;
    flow = run(x, body->items[i]);
  }
  x->depth--;
  return flow;
}

/* ---- a render ---- */

/* Notes the spans that foreign bytes make. */
static tri_status take_spans(const jbuf *b, tri_jinja_output *out) {
  out->num_spans = 0;
  for (size_t at = 0; at < b->n;) {
    size_t from = at;
    uint8_t mark = b->marks[at];
    while (at < b->n && b->marks[at] == mark) at++;
    if (!mark) continue;
    TRI_CHECK(tri_array_reserve(&out->spans, out->num_spans, &out->cap_spans, 1, sizeof *out->spans));
    out->spans[out->num_spans++] = (tri_span){from, at};
  }
  return TRI_OK;
}

/* Makes the nulls of a list's objects soft. */
static void soften(jv list) {
  for (size_t i = 0; j_is(list, J_LIST) && i < list.list->n; i++) {
    jv item = list.list->items[i];
    for (size_t k = 0; j_is(item, J_MAP) && k < item.map->n; k++)
      if (j_is(item.map->pairs[k].value, J_NONE)) item.map->pairs[k].value = j_soft_none();
  }
}

static void set_variables(jx *x, const tri_jinja_input *in) {
  for (size_t i = 0; i < in->num_variables && j_ok(x); i++) {
    const tri_jinja_variable *v = &in->variables[i];
    x->own = v->own;
    if (v->json) {
      jv made = j_of_json(x, v->json, v->foreign);
      if (v->soft_nulls && j_ok(x)) soften(made);
      j_set(x, v->name, made);
    } else if (v->text) {
      j_set(x, v->name, j_text(x, v->text));
    } else {
      j_set(x, v->name, j_none());
    }
  }
}

static tri_status no_memory(tri_error *err) {
  return tri_fail(err, TRI_NO_MEMORY, TRI_JINJA_LIMIT, "no memory for a chat template's text");
}

tri_status tri_jinja_render(const tri_jinja *t, const tri_jinja_input *in, tri_jinja_output *out, tri_error *err) {
  jx x = {.err = err, .now_s = in->now_s};
  jscope top;
  jbuf text;
  x.deadline_ns = tri_thread_cpu_ns() + TRI_JINJA_MOST_MS * INT64_C(1000000);
  if (tri_arena_create(1 << 16, &x.arena) != TRI_OK) return no_memory(err);
  text = j_begin(&x);
  x.out = &text;
  j_push(&x, &top);
  set_variables(&x, in);
  jscope body; /* what the template sets lies over its variables */
  j_push(&x, &body);
  j_run(&x, &t->body);
  out->text.len = 0;
  if (j_ok(&x)) x.st = tri_buf_append(&out->text, text.n ? text.s : "", text.n);
  if (j_ok(&x)) x.st = take_spans(&text, out);
  tri_arena_destroy(x.arena);
  return x.st == TRI_NO_MEMORY ? no_memory(err) : x.st;
}

void tri_jinja_output_free(tri_jinja_output *o) {
  tri_buf_free(&o->text);
  tri_free(o->spans);
  *o = (tri_jinja_output){0};
}
