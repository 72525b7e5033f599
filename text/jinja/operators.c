/* SPDX-License-Identifier: Apache-2.0 */
/* Operators, as Python has them for numbers, strings and lists.
 *
 * Integers stay integers except by `/` and by a negative power; bools count as 0 and 1. A result beyond 64 bits fails.
 */
#include <math.h>
#include <string.h>

#include "text/jinja/exec.h"

static jv no_operator(jx *x, jop op, jv a, jv b) {
  static const char *const signs[] = {[JN_ADD] = "+",        [JN_SUB] = "-", [JN_MUL] = "*", [JN_DIV] = "/",
                                      [JN_FLOOR_DIV] = "//", [JN_MOD] = "%", [JN_POW] = "**"};
  if (j_is(a, J_UNDEFINED) || j_is(b, J_UNDEFINED)) {
    const char *name = j_is(a, J_UNDEFINED) ? a.name : b.name;
    return j_fail(x, TRI_JINJA_UNDEFINED, "'%.80s' is undefined", name ? name : "a value");
  }
  return j_fail(x, TRI_JINJA_TYPE, "unsupported operand type(s) for %s: '%s' and '%s'", signs[op], j_type_name(a),
                j_type_name(b));
}

static jv divide_integers(jx *x, jop op, int64_t a, int64_t b) {
  if (!b) return j_fail(x, TRI_JINJA_TYPE, "integer division or modulo by zero");
  if (b == -1) { /* the least number has no opposite */
    int64_t opposite;
    if (op == JN_MOD) return j_int(0);
    return __builtin_sub_overflow((int64_t)0, a, &opposite) ? j_too_large(x) : j_int(opposite);
  }
  int64_t quotient = a / b, rest = a % b;
  bool rounds = rest && (rest < 0) != (b < 0); /* Python rounds down */
  if (op == JN_MOD) return j_int(rounds ? rest + b : rest);
  return j_int(rounds ? quotient - 1 : quotient);
}

/* Fails where Python does, and where it makes a complex number. */
static jv power_of_floats(jx *x, double a, double b) {
  double result = pow(a, b);
  if (isfinite(a) && isfinite(b) && !isfinite(result))
    return j_fail(x, TRI_JINJA_TYPE, "a power is no finite real number");
  return j_float(result);
}

/* One factor at a time: a base beyond 1 in size exceeds 64 bits within 63 of them, and those of -1, 0 and 1 stop
 * early, so that the exponent's size does not matter. */
static jv power_of_integers(jx *x, int64_t a, int64_t b) {
  int64_t result = 1;
  if (b < 0) return power_of_floats(x, (double)a, (double)b);
  for (; b > 0; b--) {
    if (__builtin_mul_overflow(result, a, &result)) return j_too_large(x);
    if (result == 0 || result == 1) break;
    if (result == -1) return j_int(b % 2 ? -1 : 1);
  }
  return j_int(result);
}

static jv integers(jx *x, jop op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
  case JN_ADD: overflows = __builtin_add_overflow(a, b, &result); break;
  case JN_SUB: overflows = __builtin_sub_overflow(a, b, &result); break;
  case JN_MUL: overflows = __builtin_mul_overflow(a, b, &result); break;
  case JN_DIV: return b ? j_float((double)a / (double)b) : j_fail(x, TRI_JINJA_TYPE, "division by zero");
  case JN_POW: return power_of_integers(x, a, b);
  default: return divide_integers(x, op, a, b);
  }
  return overflows ? j_too_large(x) : j_int(result);
}

/* Floor division and remainder follow Python: the remainder has the divisor's sign. */
static jv floats(jx *x, jop op, double a, double b) {
  bool by_zero = !(b < 0) && !(b > 0) && !isnan(b);
  double rest;
  switch (op) {
  case JN_ADD: return j_float(a + b);
  case JN_SUB: return j_float(a - b);
  case JN_MUL: return j_float(a * b);
  case JN_POW: return power_of_floats(x, a, b);
  default: break;
  }
  if (by_zero) return j_fail(x, TRI_JINJA_TYPE, "float division by zero");
  if (op == JN_DIV) return j_float(a / b);
  if (op == JN_FLOOR_DIV) return j_float(floor(a / b));
  rest = fmod(a, b);
  if ((rest < 0 || rest > 0) && (rest < 0) != (b < 0)) rest += b;
  return j_float(rest);
}

static double as_double(jv v) { return j_is(v, J_FLOAT) ? v.f : (double)j_integer(v); }

/* ---- sequences ---- */

static jv concatenate(jx *x, jv a, jv b) {
  size_t n = a.list->n + b.list->n;
  jv *items = j_alloc(x, n, sizeof *items);
  if (!items) return j_undefined(NULL);
  if (a.list->n) memcpy(items, a.list->items, a.list->n * sizeof *items);
  if (b.list->n) memcpy(items + a.list->n, b.list->items, b.list->n * sizeof *items);
  return j_list(x, a.kind, items, n);
}

/* Escapes the other where either is markup. */
static jv add_strings(jx *x, jv a, jv b) {
  bool is_markup = a.str->is_markup || b.str->is_markup;
  jbuf made = j_begin(x);
  if (is_markup) {
    a = j_escape(x, a);
    b = j_escape(x, b);
  }
  if (!j_ok(x)) return a;
  j_put_str(&made, a.str);
  j_put_str(&made, b.str);
  return is_markup ? j_markup(x, j_end(&made)) : j_end(&made);
}

static jv repeat(jx *x, jv what, int64_t times) {
  if (times < 0) times = 0;
  if (j_is(what, J_STR)) {
    jbuf b = j_begin(x);
    for (int64_t i = 0; i < times && j_ok(x) && what.str->n; i++) j_put_str(&b, what.str);
    return j_end_like(&b, what.str);
  }
  size_t n;
  if (!tri_size_mul(what.list->n, (size_t)times, &n)) return j_fail(x, TRI_JINJA_LIMIT, "a list is too long");
  jv *items = j_alloc(x, n, sizeof *items);
  for (size_t i = 0; items && i < n; i++) items[i] = what.list->items[i % what.list->n];
  return j_list(x, what.kind, items, n);
}

static bool is_repeatable(jv v) { return j_is(v, J_STR) || j_is(v, J_LIST) || j_is(v, J_TUPLE); }
static bool is_integer(jv v) { return j_is(v, J_INT) || j_is(v, J_BOOL); }

static jv percent(jx *x, jv format, jv with) {
  jargs args = {.list = &with, .n = 1};
  /* Python takes them for what names are looked up in. */
  bool may_be_unused = j_is(with, J_LIST) || j_is(with, J_MAP) || j_is(with, J_UNDEFINED);
  if (j_is(with, J_TUPLE)) args = (jargs){.list = with.list->items, .n = with.list->n};
  return j_percent(x, format.str, &args, may_be_unused);
}

jv j_binary(jx *x, jop op, jv a, jv b) {
  if (op == JN_ADD && (j_is(a, J_STR) || j_is_soft(a)) && (j_is(b, J_STR) || j_is_soft(b))) {
    a = j_harden(x, a);
    b = j_harden(x, b);
    return j_ok(x) ? add_strings(x, a, b) : a;
  }
  if (is_integer(a) && is_integer(b)) return integers(x, op, j_integer(a), j_integer(b));
  if (j_is_number(a) && j_is_number(b)) return floats(x, op, as_double(a), as_double(b));
  if (op == JN_ADD && a.kind == b.kind && (j_is(a, J_LIST) || j_is(a, J_TUPLE))) return concatenate(x, a, b);
  if (op == JN_MUL && is_repeatable(a) && is_integer(b)) return repeat(x, a, j_integer(b));
  if (op == JN_MUL && is_integer(a) && is_repeatable(b)) return repeat(x, b, j_integer(a));
  if (op == JN_MOD && j_is(a, J_STR)) return percent(x, a, b);
  bool large = (j_is(a, J_LARGE) && (j_is_number(b) || j_is(b, J_LARGE))) || (j_is_number(a) && j_is(b, J_LARGE));
  if (large) return j_too_large(x);
  return no_operator(x, op, a, b);
}

bool j_compare_values(jx *x, jcompare_op op, jv a, jv b) {
  switch (op) {
  case JC_EQ: return j_equal(x, a, b);
  case JC_NE: return !j_equal(x, a, b) && j_ok(x);
  case JC_LT: return j_compare(x, a, b) < 0;
  case JC_LE: return j_compare(x, a, b) <= 0;
  case JC_GT: return j_compare(x, a, b) > 0;
  case JC_GE: return j_compare(x, a, b) >= 0;
  case JC_IN: return j_contains(x, b, a);
  case JC_NOT_IN: return !j_contains(x, b, a) && j_ok(x);
  }
  return false;
}
