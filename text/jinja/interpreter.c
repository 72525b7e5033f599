/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter: expressions, and the statements that they stand in. A macro is called by an expression, and its body
 * is statements.
 *
 * It walks over the tree by recursion. Depth is counted in enter and run_body, so that no template overflows the
 * stack, and every node counts as a step. Names are looked up at run time, scope by scope, as templates are short and
 * rendered once for each request. */
#include <string.h>

#include "text/jinja/exec.h"

static jv evaluate(jx *x, const jnode *n);
static jv apply_filter(jx *x, const jnode *n, jv to);
static jv capture(jx *x, const jnodes *body);

/* ---- expressions ---- */

/* Bounds nesting. False: a limit is reached. */
static bool enter(jx *x, const jnode *n) {
  if (!j_visit(x, n)) return false;
  if (x->depth >= TRI_JINJA_MOST_DEPTH * 4) j_fail(x, TRI_JINJA_LIMIT, "expressions are nested too deeply");
  x->depth += j_ok(x);
  return j_ok(x);
}

static jv name(jx *x, const jnode *n) {
  const jv *v = j_lookup(x, n->text);
  if (v) return *v;
  if (!strcmp(n->text, "self")) return j_map(x, J_NAMESPACE, 0); /* the blocks of a template, which has none */
  const jfunction *f = j_global(n->text);
  return f ? (jv){.kind = J_FUNCTION, .function = f} : j_undefined(n->text);
}

/* ---- slices ---- */

/* A bound of a slice, as Python clips it. */
static int64_t bound(jx *x, const jnode *n, int64_t fallback, int64_t length, int64_t step) {
  if (!n) return fallback;
  jv v = evaluate(x, n);
  if (!j_ok(x) || j_is(v, J_NONE)) return fallback;
  if (!j_is(v, J_INT) && !j_is(v, J_BOOL)) {
    j_fail(x, TRI_JINJA_TYPE, "slice indices must be integers or None");
    return fallback;
  }
  int64_t i = j_integer(v), least = step < 0 ? -1 : 0, most = step < 0 ? length - 1 : length;
  if (i < 0) i += length;
  if (i < least) return least;
  return i > most ? most : i;
}

typedef struct span {
  int64_t from, to, step;
} span;

static span span_of(jx *x, const jnode *n, int64_t length) {
  span s = {.step = 1};
  if (n->items.items[2]) {
    jv v = evaluate(x, n->items.items[2]);
    if (j_ok(x) && !j_is(v, J_NONE)) s.step = j_is(v, J_INT) ? v.i : 0;
    if (!s.step) j_fail(x, TRI_JINJA_TYPE, "slice step must be an integer other than zero");
  }
  s.from = bound(x, n->items.items[0], s.step < 0 ? length - 1 : 0, length, s.step);
  s.to = bound(x, n->items.items[1], s.step < 0 ? -1 : length, length, s.step);
  return s;
}

/* Stops by itself where the step is longer than the sequence: i + step could overflow. */
static jv slice_items(jx *x, span s, const jv *items, size_t count, size_t *taken) {
  int64_t length = (int64_t)count;
  jv *out = j_alloc(x, count, sizeof *out);
  size_t num = 0;
  for (int64_t i = s.from; out && (s.step < 0 ? i > s.to : i < s.to); i += s.step) {
    out[num++] = items[i];
    if (s.step > length || s.step < -length) break;
  }
  *taken = num;
  return j_list(x, J_LIST, out, num);
}

/* A slice of a range is one. */
static jv slice_range(jx *x, const jlist *l, span s) {
  int64_t step;
  if (!j_ok(x)) return j_undefined(NULL);
  if (__builtin_mul_overflow(l->step, s.step, &step)) return j_too_large(x);
  return j_range(x, l->from + s.from * l->step, l->from + s.to * l->step, step);
}

static jv slice(jx *x, jv of, const jnode *n) {
  size_t count, taken = 0;
  of = j_harden(x, of);
  if (j_is(of, J_UNDEFINED)) return j_fail_undefined(x, of);
  if (j_is_range(of)) return slice_range(x, of.list, span_of(x, n, (int64_t)of.list->n));
  if (!j_is(of, J_STR) && !j_is(of, J_LIST) && !j_is(of, J_TUPLE))
    return j_fail(x, TRI_JINJA_TYPE, "'%s' object is not subscriptable", j_type_name(of));
  bool text = j_is(of, J_STR);
  const jv *items = text ? j_characters(x, of.str, &count).list->items : of.list->items;
  if (!text) count = of.list->n;
  jv part = slice_items(x, span_of(x, n, (int64_t)count), items, count, &taken);
  if (!j_ok(x)) return part;
  if (!text) {
    part.kind = of.kind;
    return part;
  }
  jbuf b = j_begin(x);
  for (size_t i = 0; i < taken; i++) j_put_str(&b, part.list->items[i].str);
  return j_end_like(&b, of.str);
}

/* ---- calls ---- */

/* Adds what *args and **kwargs bring. */
static void add_stars(jx *x, const jnode *n, jargs *a) {
  size_t count = 0;
  if (n->star) {
    const jv *items = j_items(x, evaluate(x, n->star), &count);
    jv *all = j_alloc(x, a->n + count, sizeof *all);
    if (!all) return;
    if (a->n) memcpy(all, a->list, a->n * sizeof *all);
    if (count) memcpy(all + a->n, items, count * sizeof *all);
    a->list = all;
    a->n += count;
  }
  if (!n->double_star) return;
  jv named = evaluate(x, n->double_star);
  if (j_ok(x) && !j_is(named, J_MAP)) j_fail(x, TRI_JINJA_TYPE, "argument after ** must be a mapping");
  if (!j_ok(x)) return;
  jpair *all = j_alloc(x, a->num_named + named.map->n, sizeof *all);
  if (!all) return;
  if (a->num_named) memcpy(all, a->named, a->num_named * sizeof *all);
  for (size_t i = 0; i < named.map->n; i++) {
    if (!j_is(named.map->pairs[i].key, J_STR)) j_fail(x, TRI_JINJA_TYPE, "keywords must be strings");
    all[a->num_named++] = named.map->pairs[i];
  }
  a->named = all;
}

static jargs arguments(jx *x, const jnode *n) {
  jargs a = {.n = n->items.n, .num_named = n->named.n};
  jv *list = j_alloc(x, a.n, sizeof *list);
  jpair *named = j_alloc(x, a.num_named, sizeof *named);
  for (size_t i = 0; i < a.n && j_ok(x); i++) list[i] = evaluate(x, n->items.items[i]);
  for (size_t i = 0; i < a.num_named && j_ok(x); i++)
    named[i] = (jpair){j_text(x, n->named.items[i].name), evaluate(x, n->named.items[i].value)};
  a.list = list;
  a.named = named;
  if (j_ok(x)) add_stars(x, n, &a);
  return a;
}

/* Sets a macro's parameters in the scope that has just begun.
 *
 * Defaults are evaluated there, too, so that they see the parameters before them. */
static void bind(jx *x, const jnode *n, const jargs *a) {
  for (size_t i = 0; i < n->named.n && j_ok(x); i++) {
    const char *parameter = n->named.items[i].name;
    const jv *given = j_argument(a, i, parameter);
    jv v = j_undefined(parameter);
    if (given)
      v = *given;
    else if (n->named.items[i].value)
      v = evaluate(x, n->named.items[i].value);
    j_set(x, parameter, v);
  }
  if (a->n > n->named.n)
    j_fail(x, TRI_JINJA_TYPE, "macro '%.80s' takes not more than %zu argument(s)", n->text, n->named.n);
  for (size_t k = 0; k < a->num_named && j_ok(x); k++) {
    bool known = j_equals_text(a->named[k].key, "caller");
    for (size_t i = 0; i < n->named.n; i++) known |= j_equals_text(a->named[k].key, n->named.items[i].name);
    if (!known)
      j_fail(x, TRI_JINJA_TYPE, "macro '%.80s' takes no keyword argument '%.*s'", n->text,
             (int)(a->named[k].key.str->n < 80 ? a->named[k].key.str->n : 80), a->named[k].key.str->s);
  }
}

/* A macro's body sees the scope where the macro was defined, not the caller's. */
static jv call_macro(jx *x, const jmacro *m, const jargs *a, jv caller) {
  jscope *outer = x->scope;
  if (x->calls >= TRI_JINJA_MOST_CALLS)
    return j_fail(x, TRI_JINJA_LIMIT, "macros call each other more than %d deep", TRI_JINJA_MOST_CALLS);
  jscope *own = j_alloc(x, 1, sizeof *own);
  if (!own) return j_undefined(NULL);
  x->scope = m->scope;
  j_push(x, own);
  x->calls++;
  if (!m->is_caller) j_set(x, "caller", caller);
  bind(x, m->node, a);
  jv text = j_ok(x) ? capture(x, &m->node->body) : j_undefined(NULL);
  x->calls--;
  x->scope = outer;
  return text;
}

static jv call_value(jx *x, jv callee, const jargs *args, jv caller) {
  if (!j_ok(x)) return j_undefined(NULL);
  if (j_is(callee, J_MACRO)) return call_macro(x, callee.macro, args, caller);
  if (j_is(callee, J_FUNCTION)) return j_invoke(x, callee.function, callee.function->self, args);
  if (j_is(callee, J_UNDEFINED)) return j_fail_undefined(x, callee);
  return j_fail(x, TRI_JINJA_TYPE, "'%s' object is not callable", j_type_name(callee));
}

static jv call(jx *x, const jnode *n) {
  jv callee = evaluate(x, n->a);
  jargs args = arguments(x, n);
  x->line = n->line;
  return call_value(x, callee, &args, j_undefined("caller"));
}

static jv filter(jx *x, const jnode *n, jv to) {
  if (n->a) to = n->a->op == JN_FILTER ? apply_filter(x, n->a, to) : evaluate(x, n->a);
  const jfunction *f = x->tables->filter(n->text);
  jargs args = arguments(x, n);
  x->line = n->line;
  if (!f) return j_fail(x, TRI_JINJA_SYNTAX, "there is no filter '%.80s'", n->text);
  return j_invoke(x, f, to, &args);
}

/* A chain of filters nests as other expressions do. */
static jv apply_filter(jx *x, const jnode *n, jv to) {
  if (!enter(x, n)) return j_undefined(NULL);
  jv v = filter(x, n, to);
  x->depth--;
  return v;
}

/* ---- the rest ---- */

static jv list(jx *x, const jnode *n, jkind kind) {
  jv *items = j_alloc(x, n->items.n, sizeof *items);
  for (size_t i = 0; items && i < n->items.n && j_ok(x); i++) items[i] = evaluate(x, n->items.items[i]);
  return j_list(x, kind, items, n->items.n);
}

static jv dict(jx *x, const jnode *n) {
  jv m = j_map(x, J_MAP, n->items.n / 2);
  for (size_t i = 0; i + 1 < n->items.n && j_ok(x); i += 2) {
    jv key = evaluate(x, n->items.items[i]);
    j_map_put(x, m.map, key, evaluate(x, n->items.items[i + 1]));
  }
  return m;
}

static jv concatenation(jx *x, const jnode *n) {
  jbuf b = j_begin(x);
  for (size_t i = 0; i < n->items.n && j_ok(x); i++) {
    jv v = evaluate(x, n->items.items[i]);
    if (j_ok(x)) j_put_value(&b, v);
  }
  return j_end(&b);
}

/* A chain a < b < c evaluates each operand once and ends with the first pair that does not compare so, as in Python. */
static jv comparison(jx *x, const jnode *n) {
  jv left = evaluate(x, n->a);
  for (size_t i = 0; i < n->items.n && j_ok(x); i++) {
    jv right = evaluate(x, n->items.items[i]);
    if (!j_ok(x) || !j_compare_values(x, (jcompare_op)n->ops[i], left, right)) return j_bool(false);
    left = right;
  }
  return j_bool(true);
}

/* A minus is a subtraction from 0, which finds the one integer that has no negative of 64 bits. */
static jv signed_number(jx *x, const jnode *n) {
  jv v = evaluate(x, n->a);
  bool negative = n->op == JN_NEGATIVE;
  if (!j_ok(x)) return v;
  if (j_is(v, J_UNDEFINED)) return j_fail_undefined(x, v);
  if (j_is(v, J_LARGE)) return j_too_large(x);
  if (!j_is_number(v)) return j_fail(x, TRI_JINJA_TYPE, "bad operand type for a sign: '%s'", j_type_name(v));
  if (j_is(v, J_FLOAT)) return j_float(negative ? -v.f : v.f);
  return negative ? j_binary(x, JN_SUB, j_int(0), v) : j_int(j_integer(v));
}

static jv test(jx *x, const jnode *n) {
  jv of = evaluate(x, n->a);
  const jfunction *f = x->tables->test(n->text);
  jargs args = arguments(x, n);
  if (!f) return j_fail(x, TRI_JINJA_SYNTAX, "there is no test '%.80s'", n->text);
  return j_invoke(x, f, of, &args);
}

static jv item(jx *x, const jnode *n) {
  jv of = evaluate(x, n->a);
  if (!j_ok(x)) return of;
  if (n->b->op == JN_SLICE) return slice(x, of, n->b);
  jv key = evaluate(x, n->b);
  return j_ok(x) ? j_item(x, of, key) : key;
}

/* and, or, a if b else c. */
static jv choice(jx *x, const jnode *n) {
  jv first = evaluate(x, n->op == JN_IF_ELSE ? n->b : n->a);
  if (!j_ok(x)) return first;
  bool truth = j_truth(first);
  if (n->op == JN_AND) return truth ? evaluate(x, n->b) : first;
  if (n->op == JN_OR) return truth ? first : evaluate(x, n->b);
  if (truth) return evaluate(x, n->a);
  return n->c ? evaluate(x, n->c) : j_undefined("an inline if without else");
}

static jv eval(jx *x, const jnode *n) {
  jv a;
  switch (n->op) {
  case JN_CONST: return n->value;
  case JN_NAME: return name(x, n);
  case JN_LIST: return list(x, n, J_LIST);
  case JN_TUPLE: return list(x, n, J_TUPLE);
  case JN_DICT: return dict(x, n);
  case JN_ATTRIBUTE: a = evaluate(x, n->a); return j_ok(x) ? j_attribute(x, a, n->text) : a;
  case JN_ITEM: return item(x, n);
  case JN_CALL: return call(x, n);
  case JN_FILTER: return apply_filter(x, n, j_undefined(NULL));
  case JN_TEST: return test(x, n);
  case JN_NOT: a = evaluate(x, n->a); return j_bool(!j_truth(a));
  case JN_NEGATIVE:
  case JN_POSITIVE: return signed_number(x, n);
  case JN_AND:
  case JN_OR:
  case JN_IF_ELSE: return choice(x, n);
  case JN_CONCAT: return concatenation(x, n);
  case JN_COMPARE: return comparison(x, n);
  default: break;
  }
  a = evaluate(x, n->a);
  jv b = j_ok(x) ? evaluate(x, n->b) : a;
  return j_ok(x) ? j_binary(x, n->op, a, b) : b;
}

static jv evaluate(jx *x, const jnode *n) {
  if (!enter(x, n)) return j_undefined(NULL);
  jv v = eval(x, n);
  x->depth--;
  return v;
}

/* ---- statements ---- */

/* How a block ended. */
typedef enum jflow { JF_NEXT, JF_BREAK, JF_CONTINUE } jflow;

static jflow run_body(jx *x, const jnodes *body);

static jv capture(jx *x, const jnodes *body) {
  jbuf own = j_begin(x), *outer = x->out;
  x->out = &own;
  run_body(x, body);
  x->out = outer;
  return j_end(&own);
}

/* Those that pass the loop's own filter, which runs over all items first: loop.length counts them. */
static const jv *filtered(jx *x, const jnode *n, const jv *items, size_t *count) {
  jv *kept = j_alloc(x, *count, sizeof *kept);
  size_t num = 0;
  jscope *own = NULL;
  for (size_t i = 0; i < *count && j_ok(x); i++) {
    if (!(own = j_next_scope(x, own))) break;
    j_assign(x, n->b, items[i]);
    if (j_ok(x) && j_truth(evaluate(x, n->c)) && j_ok(x)) kept[num++] = items[i];
    j_pop(x);
  }
  *count = num;
  return kept;
}

static void run_for(jx *x, const jnode *n) {
  size_t count;
  jv over = evaluate(x, n->a);
  const jv *items = j_ok(x) ? j_items(x, over, &count) : NULL;
  if (!j_ok(x)) return;
  if (n->c) items = filtered(x, n, items, &count);
  if (!count) {
    run_body(x, &n->other);
    return;
  }
  jloop *loop = j_alloc(x, 1, sizeof *loop);
  if (!loop) return;
  *loop = (jloop){.items = items, .n = count};
  jscope *own = NULL;
  for (; loop->at < count && j_ok(x); loop->at++) {
    if (!j_visit(x, n) || !(own = j_next_scope(x, own))) break;
    j_set(x, "loop", (jv){.kind = J_LOOP, .loop = loop});
    j_assign(x, n->b, items[loop->at]);
    jflow flow = run_body(x, &n->body);
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

/* The block's body becomes a macro that the called one finds under the name `caller`. */
static void run_call_block(jx *x, const jnode *n) {
  jv caller = new_macro(x, n, true), callee = evaluate(x, n->a->a);
  jargs args = arguments(x, n->a);
  if (!j_ok(x)) return;
  j_put_value(x->out, call_value(x, callee, &args, caller));
}

static void run_set_block(jx *x, const jnode *n) {
  jscope *own = j_new_scope(x);
  jv text = own ? capture(x, &n->body) : j_undefined(NULL);
  if (own) j_pop(x);
  if (n->a && j_ok(x)) text = apply_filter(x, n->a, text);
  j_assign(x, n->b, text);
}

static void run_filter_block(jx *x, const jnode *n) {
  if (!j_new_scope(x)) return;
  jv text = capture(x, &n->body);
  j_pop(x);
  if (!j_ok(x)) return;
  jv filtered_text = apply_filter(x, n->a, text);
  if (j_ok(x)) j_put_value(x->out, filtered_text);
}

/* A block whose names are its own. */
static void run_block(jx *x, const jnode *n) {
  if (!j_new_scope(x)) return;
  run_body(x, &n->body);
  j_pop(x);
}

static jflow run(jx *x, const jnode *n) {
  jv v;
  switch (n->op) {
  case JN_DATA: j_put_str(x->out, &n->data); break;
  case JN_OUTPUT:
    v = evaluate(x, n->a);
    if (j_ok(x)) j_put_value(x->out, v);
    break;
  case JN_IF:
    v = evaluate(x, n->a);
    if (!j_ok(x)) return JF_NEXT;
    return run_body(x, j_truth(v) ? &n->body : &n->other);
  case JN_FOR: run_for(x, n); break;
  case JN_SET: j_assign(x, n->b, evaluate(x, n->a)); break;
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

/* A flow other than JF_NEXT goes up through ifs to the loop that it is for; the parser has seen to it that there is
 * one. */
static jflow run_body(jx *x, const jnodes *body) {
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

void j_run(jx *x, const jnodes *body) { run_body(x, body); }
