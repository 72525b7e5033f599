/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "text/jinja/parser.h"

/* Expressions by recursive descent, a function for each level of precedence, from the operands at the beginning of the
 * file to the loosest operator at its end.
 *
 * After a failure functions return NULL or a half-made node. The parser's status says so, all loops stop at it, and a
 * tree that failed never runs. */
static const jnode *binary(jparser *p, jop op, const jnode *a, const jnode *b) {
  jnode *n = jp_node(p, op);
  if (!n) return NULL;
  n->a = a;
  n->b = b;
  return n;
}

static const jnode *unary(jparser *p, jop op, const jnode *a) { return binary(p, op, a, NULL); }

static const jnode *constant(jparser *p, jv v) {
  jnode *n = jp_node(p, JN_CONST);
  if (n) n->value = v;
  return n;
}

/* ---- literals ---- */

/* Neighbouring strings are one. */
static const jnode *string(jparser *p) {
  size_t n = 0, at = 0;
  for (const jtoken *t = p->at; t->kind == JT_STRING; t++) n += t->n;
  char *text = tri_arena_alloc(p->arena, n + 1, 1);
  jstr *s = tri_arena_alloc(p->arena, 1, sizeof *s);
  if (!text || !s) {
    p->st = TRI_NO_MEMORY;
    return NULL;
  }
  for (; p->at->kind == JT_STRING; p->at++) {
    memcpy(text + at, p->at->s, p->at->n);
    at += p->at->n;
  }
  *s = (jstr){.s = text, .n = n};
  return constant(p, (jv){.kind = J_STR, .str = s});
}

static const jnode *list(jparser *p) {
  jnode *n = jp_node(p, JN_LIST);
  while (n && jp_ok(p) && !jp_is(p, "]")) {
    jp_add(p, &n->items, jp_expression(p));
    if (!jp_take(p, ",")) break;
  }
  jp_want(p, "]");
  return n;
}

static const jnode *dict(jparser *p) {
  jnode *n = jp_node(p, JN_DICT);
  while (n && jp_ok(p) && !jp_is(p, "}")) {
    jp_add(p, &n->items, jp_expression(p));
    jp_want(p, ":");
    jp_add(p, &n->items, jp_expression(p));
    if (!jp_take(p, ",")) break;
  }
  jp_want(p, "}");
  return n;
}

static const jnode *parenthesis(jparser *p) {
  if (jp_take(p, ")")) return jp_node(p, JN_TUPLE);
  const jnode *n = jp_tuple(p, true);
  jp_want(p, ")");
  return n;
}

static const jnode *name(jparser *p) {
  static const struct {
    const char *name;
    jv value;
  } words[] = {{"true", {.kind = J_BOOL, .b = true}},
               {"True", {.kind = J_BOOL, .b = true}},
               {"false", {.kind = J_BOOL}},
               {"False", {.kind = J_BOOL}},
               {"none", {.kind = J_NONE}},
               {"None", {.kind = J_NONE}}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (jp_take_name(p, words[i].name)) return constant(p, words[i].value);
  jnode *n = jp_node(p, JN_NAME);
  const char *text = jp_name(p);
  if (n) n->text = text;
  return n;
}

static const jnode *primary(jparser *p) {
  const jtoken *t = p->at;
  switch (t->kind) {
  case JT_NAME: return name(p);
  case JT_STRING: return string(p);
  case JT_INT: p->at++; return constant(p, j_int(t->i));
  case JT_FLOAT: p->at++; return constant(p, j_float(t->f));
  default: break;
  }
  if (jp_take(p, "(")) return parenthesis(p);
  if (jp_take(p, "[")) return list(p);
  if (jp_take(p, "{")) return dict(p);
  jp_fail(p, "an expression is missing");
  return NULL;
}

/* ---- calls, attributes, filters, tests ---- */

static void add_named(jparser *p, jnode *n, const char *text) {
  jnamed *items = jp_grow(p, n->named.items, n->named.n, &n->named.cap, sizeof *items);
  if (!items) return;
  n->named.items = items;
  n->named.items[n->named.n++] = (jnamed){text, NULL};
}

static bool is_keyword(const jparser *p) {
  return p->at->kind == JT_NAME && p->at[1].kind == JT_OPERATOR && p->at[1].n == 1 && p->at[1].s[0] == '=';
}

static void argument(jparser *p, jnode *n) {
  if (jp_take(p, "**")) {
    n->double_star = jp_expression(p);
  } else if (jp_take(p, "*")) {
    n->star = jp_expression(p);
  } else if (is_keyword(p)) {
    const char *text = jp_name(p);
    p->at++;
    add_named(p, n, text);
    if (jp_ok(p)) n->named.items[n->named.n - 1].value = jp_expression(p);
  } else {
    if (n->named.n) jp_fail(p, "an argument by position stands after one by name");
    jp_add(p, &n->items, jp_expression(p));
  }
}

/* After the opening parenthesis. */
static void arguments(jparser *p, jnode *n) {
  while (jp_ok(p) && !jp_is(p, ")")) {
    argument(p, n);
    if (!jp_take(p, ",")) break;
  }
  jp_want(p, ")");
}

static const jnode *call(jparser *p, const jnode *of) {
  jnode *n = jp_node(p, JN_CALL);
  if (!n) return NULL;
  n->a = of;
  arguments(p, n);
  return n;
}

/* [a], [a:b:c]. */
static const jnode *subscript(jparser *p) {
  jnode *slice = jp_node(p, JN_SLICE);
  const jnode *part = NULL;
  if (!slice) return NULL;
  if (!jp_is(p, ":")) {
    part = jp_expression(p);
    if (!jp_is(p, ":")) return part;
  }
  jp_add(p, &slice->items, part);
  for (int i = 1; i < 3; i++) {
    part = NULL;
    if (jp_take(p, ":") && !jp_is(p, "]") && !jp_is(p, ":")) part = jp_expression(p);
    jp_add(p, &slice->items, part);
  }
  return slice;
}

static const jnode *attribute(jparser *p, const jnode *of) {
  if (p->at->kind == JT_INT) {
    const jnode *index = constant(p, j_int(p->at->i));
    p->at++;
    return binary(p, JN_ITEM, of, index);
  }
  jnode *n = jp_node(p, JN_ATTRIBUTE);
  const char *text = jp_name(p);
  if (!n) return NULL;
  n->a = of;
  n->text = text;
  return n;
}

static const jnode *postfix(jparser *p, const jnode *n) {
  while (jp_ok(p)) {
    if (jp_take(p, ".")) {
      n = attribute(p, n);
    } else if (jp_take(p, "[")) {
      n = binary(p, JN_ITEM, n, subscript(p));
      jp_want(p, "]");
    } else if (jp_take(p, "(")) {
      n = call(p, n);
    } else {
      break;
    }
  }
  return n;
}

static const jnode *filter(jparser *p, const jnode *to) {
  jnode *n = jp_node(p, JN_FILTER);
  const char *text = jp_name(p);
  if (!n || !jp_ok(p)) return NULL;
  n->a = to;
  n->text = text;
  if (jp_take(p, "(")) arguments(p, n);
  return n;
}

/* A test's argument may stand without parentheses: as jinja2 has it, any name but these three begins one. */
static bool begins_argument(const jparser *p) {
  if (p->at->kind == JT_STRING || p->at->kind == JT_INT || p->at->kind == JT_FLOAT) return true;
  if (jp_is(p, "[") || jp_is(p, "{")) return true;
  return p->at->kind == JT_NAME && !jp_is_name(p, "else") && !jp_is_name(p, "or") && !jp_is_name(p, "and");
}

static const jnode *test(jparser *p, const jnode *of) {
  bool negated = jp_take_name(p, "not");
  jnode *n = jp_node(p, JN_TEST);
  const char *text = jp_name(p);
  if (!n || !jp_ok(p)) return NULL;
  n->a = of;
  n->text = text;
  if (jp_is_name(p, "is")) jp_fail(p, "a test cannot follow a test");
  if (jp_take(p, "("))
    arguments(p, n);
  else if (begins_argument(p))
    jp_add(p, &n->items, postfix(p, primary(p)));
  return negated ? unary(p, JN_NOT, n) : n;
}

const jnode *jp_filters(jparser *p, const jnode *n, bool begun) {
  if (begun) n = filter(p, n);
  while (jp_ok(p)) {
    if (jp_take(p, "|"))
      n = filter(p, n);
    else if (n && jp_take_name(p, "is"))
      n = test(p, n);
    else if (n && jp_take(p, "("))
      n = call(p, n);
    else
      break;
  }
  return n;
}

const jnode *jp_call(jparser *p) {
  const jnode *n = jp_expression(p);
  if (jp_ok(p) && n->op != JN_CALL) jp_fail(p, "a call block needs a call");
  return n;
}

/* ---- operators, the loosest last ---- */

/* Only the outermost sign takes filters, so that `-x|abs` is the filter of -x, as in jinja2. */
static const jnode *sign(jparser *p, bool filters) {
  if (!jp_enter(p)) return NULL;
  const jnode *n;
  if (jp_take(p, "-"))
    n = unary(p, JN_NEGATIVE, sign(p, false));
  else if (jp_take(p, "+"))
    n = unary(p, JN_POSITIVE, sign(p, false));
  else
    n = primary(p);
  if (jp_ok(p)) n = postfix(p, n);
  if (jp_ok(p) && filters) n = jp_filters(p, n, false);
  jp_leave(p);
  return n;
}

/* Joins from the left, as jinja2 does: 2**3**2 is (2**3)**2, which Python reads the other way. */
static const jnode *power(jparser *p) {
  const jnode *n = sign(p, true);
  while (jp_ok(p) && jp_take(p, "**")) n = binary(p, JN_POW, n, sign(p, true));
  return n;
}

static const jnode *product(jparser *p) {
  static const struct {
    const char *sign;
    jop op;
  } signs[] = {{"*", JN_MUL}, {"/", JN_DIV}, {"//", JN_FLOOR_DIV}, {"%", JN_MOD}};
  const jnode *n = power(p);
  for (size_t i = 0; jp_ok(p) && i < sizeof signs / sizeof *signs; i++) {
    if (!jp_take(p, signs[i].sign)) continue;
    n = binary(p, signs[i].op, n, power(p));
    i = (size_t)-1;
  }
  return n;
}

static const jnode *concatenation(jparser *p) {
  const jnode *first = product(p);
  if (!jp_ok(p) || !jp_is(p, "~")) return first;
  jnode *n = jp_node(p, JN_CONCAT);
  if (!n) return NULL;
  jp_add(p, &n->items, first);
  while (jp_ok(p) && jp_take(p, "~")) jp_add(p, &n->items, product(p));
  return n;
}

static const jnode *sum(jparser *p) {
  const jnode *n = concatenation(p);
  while (jp_ok(p) && (jp_is(p, "+") || jp_is(p, "-"))) {
    jop op = jp_take(p, "+") ? JN_ADD : JN_SUB;
    if (op == JN_SUB) p->at++;
    n = binary(p, op, n, concatenation(p));
  }
  return n;
}

/* -1: no comparison follows. */
static int comparison_sign(jparser *p) {
  static const char *const signs[] = {"==", "!=", "<", "<=", ">", ">="};
  for (int i = 0; i < 6; i++)
    if (jp_take(p, signs[i])) return i;
  if (jp_take_name(p, "in")) return JC_IN;
  bool not_in = jp_is_name(p, "not") && p->at[1].kind == JT_NAME && p->at[1].n == 2 && !memcmp(p->at[1].s, "in", 2);
  if (!not_in) return -1;
  p->at += 2;
  return JC_NOT_IN;
}

static const jnode *comparison(jparser *p) {
  enum { MOST = 16 };
  const jnode *first = sum(p);
  jnode *n = NULL;
  for (int op; jp_ok(p) && (op = comparison_sign(p)) >= 0;) {
    if (!n) {
      n = jp_node(p, JN_COMPARE);
      if (!n || !(n->ops = tri_arena_alloc(p->arena, MOST, 1))) {
        p->st = TRI_NO_MEMORY;
        return NULL;
      }
      n->a = first;
    }
    if (n->items.n == MOST) jp_fail(p, "a comparison has more than %d signs", MOST);
    if (!jp_ok(p)) return NULL;
    n->ops[n->items.n] = (uint8_t)op;
    jp_add(p, &n->items, sum(p));
  }
  return n ? n : first;
}

static const jnode *negation(jparser *p) {
  if (!jp_enter(p)) return NULL;
  const jnode *n = jp_take_name(p, "not") ? unary(p, JN_NOT, negation(p)) : comparison(p);
  jp_leave(p);
  return n;
}

static const jnode *conjunction(jparser *p) {
  const jnode *n = negation(p);
  while (jp_ok(p) && jp_take_name(p, "and")) n = binary(p, JN_AND, n, negation(p));
  return n;
}

static const jnode *disjunction(jparser *p) {
  const jnode *n = conjunction(p);
  while (jp_ok(p) && jp_take_name(p, "or")) n = binary(p, JN_OR, n, conjunction(p));
  return n;
}

const jnode *jp_expression(jparser *p) {
  if (!jp_enter(p)) return NULL;
  const jnode *n = disjunction(p);
  while (jp_ok(p) && jp_take_name(p, "if")) {
    jnode *choice = jp_node(p, JN_IF_ELSE);
    if (!choice) break;
    choice->a = n;
    choice->b = disjunction(p);
    if (jp_take_name(p, "else")) choice->c = jp_expression(p);
    n = choice;
  }
  jp_leave(p);
  return n;
}

/* Returns whether a tuple without parentheses ends here. */
static bool ends_tuple(const jparser *p) {
  return p->at->kind == JT_BLOCK_END || p->at->kind == JT_VARIABLE_END || jp_is(p, ")") || jp_is(p, "=") ||
         jp_is_name(p, "in") || jp_is_name(p, "recursive");
}

const jnode *jp_tuple(jparser *p, bool conditionals) {
  const jnode *first = conditionals ? jp_expression(p) : disjunction(p);
  if (!jp_ok(p) || !jp_is(p, ",")) return first;
  jnode *n = jp_node(p, JN_TUPLE);
  if (!n) return NULL;
  jp_add(p, &n->items, first);
  while (jp_ok(p) && jp_take(p, ",")) {
    if (ends_tuple(p)) break;
    jp_add(p, &n->items, conditionals ? jp_expression(p) : disjunction(p));
  }
  return n;
}

static bool is_reserved(const char *name) {
  static const char *const words[] = {"true", "True", "false", "False", "none", "None"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(words[i], name)) return true;
  return false;
}

static const jnode *one_target(jparser *p, bool attributes) {
  if (jp_take(p, "(")) {
    const jnode *inside = jp_enter(p) ? jp_target(p, attributes) : NULL;
    jp_want(p, ")");
    jp_leave(p);
    return inside;
  }
  jnode *n = jp_node(p, JN_NAME);
  const char *text = jp_name(p);
  if (!n || !jp_ok(p)) return NULL;
  if (is_reserved(text)) jp_fail(p, "'%s' cannot be set", text);
  n->text = text;
  if (!attributes || !jp_take(p, ".")) return n;
  jnode *of = jp_node(p, JN_ATTRIBUTE);
  text = jp_name(p);
  if (!of) return NULL;
  of->a = n;
  of->text = text;
  return of;
}

const jnode *jp_target(jparser *p, bool attributes) {
  const jnode *first = one_target(p, attributes);
  jnode *n = NULL;
  while (jp_ok(p) && jp_take(p, ",")) {
    if (!n) {
      n = jp_node(p, JN_TUPLE);
      if (!n) return NULL;
      jp_add(p, &n->items, first);
    }
    if (ends_tuple(p)) break;
    jp_add(p, &n->items, one_target(p, attributes));
  }
  return n ? n : first;
}

void jp_parameters(jparser *p, jnode *n) {
  if (!jp_take(p, "(")) return;
  while (jp_ok(p) && !jp_is(p, ")")) {
    const char *text = jp_name(p);
    if (!jp_ok(p)) return;
    add_named(p, n, text);
    if (jp_ok(p) && jp_take(p, "=")) n->named.items[n->named.n - 1].value = jp_expression(p);
    if (!jp_take(p, ",")) break;
  }
  jp_want(p, ")");
}
