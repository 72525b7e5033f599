/* SPDX-License-Identifier: Apache-2.0 */
/* Tests: `a is b`. */
#include <string.h>

#include "text/jinja/exec.h"

static bool is_iterable(jv v) {
  return j_is_sequence(v) || j_is(v, J_STR) || j_is(v, J_MAP) || j_is(v, J_ITER) || j_is(v, J_UNDEFINED) ||
         j_is(v, J_LOOP);
}

/* The argument of a test that needs one. */
static jv other(jx *x, const jargs *a) {
  const jv *v = j_argument(a, 0, NULL);
  return v ? *v : j_fail(x, TRI_JINJA_TYPE, "a test needs an argument");
}

#define KIND_TEST(name, condition) J_OF_VALUE(t_##name, j_bool(condition))
KIND_TEST(defined, !j_is(v, J_UNDEFINED))
KIND_TEST(undefined, j_is(v, J_UNDEFINED))
KIND_TEST(none, j_is(v, J_NONE))
KIND_TEST(string, j_is(v, J_STR))
KIND_TEST(mapping, j_is(v, J_MAP))
KIND_TEST(iterable, is_iterable(v))
KIND_TEST(sequence, j_is_sequence(v) || j_is(v, J_STR) || j_is(v, J_MAP) || j_is(v, J_UNDEFINED))
KIND_TEST(boolean, j_is(v, J_BOOL))
KIND_TEST(integer, j_is(v, J_INT) || j_is_large_integer(v))
KIND_TEST(float, j_is(v, J_FLOAT) || (j_is(v, J_LARGE) && !j_is_large_integer(v)))
KIND_TEST(number, j_is_number(v) || j_is(v, J_LARGE))
KIND_TEST(true, j_is(v, J_BOOL) && v.b)
KIND_TEST(false, j_is(v, J_BOOL) && !v.b)
KIND_TEST(callable, j_is(v, J_FUNCTION) || j_is(v, J_MACRO))
#undef KIND_TEST

#define COMPARE_TEST(name, op)                                                                                         \
  static jv t_##name(jx *x, jv v, const jargs *a) {                                                                    \
    jv b = other(x, a);                                                                                                \
    return j_bool(j_ok(x) && j_compare_values(x, op, v, b));                                                           \
  }
COMPARE_TEST(eq, JC_EQ)
COMPARE_TEST(ne, JC_NE)
COMPARE_TEST(lt, JC_LT)
COMPARE_TEST(le, JC_LE)
COMPARE_TEST(gt, JC_GT)
COMPARE_TEST(ge, JC_GE)
COMPARE_TEST(in, JC_IN)
#undef COMPARE_TEST

/* The same object: what has no identity of its own here is the same where it is equal and of one kind. */
static jv t_sameas(jx *x, jv v, const jargs *a) {
  jv b = other(x, a);
  return j_bool(j_ok(x) && v.kind == b.kind && j_equal(x, v, b));
}

static bool has_remainder(jx *x, jv v, jv by, int64_t remainder) {
  jv r = j_binary(x, JN_MOD, v, by);
  return j_ok(x) && j_equal(x, r, j_int(remainder));
}
J_OF_VALUE(t_odd, j_bool(has_remainder(x, v, j_int(2), 1)))
J_OF_VALUE(t_even, j_bool(has_remainder(x, v, j_int(2), 0)))
static jv t_divisibleby(jx *x, jv v, const jargs *a) { return j_bool(has_remainder(x, v, other(x, a), 0)); }

/* At least one letter with a case, and all of them of that case. */
static bool has_case(jx *x, jv v, jcase wanted) {
  jv s = j_to_str(x, v);
  if (!j_ok(x)) return false;
  jv same = j_change_case(x, s.str, wanted, true),
     opposite = j_change_case(x, s.str, wanted == J_LOWER ? J_UPPER : J_LOWER, true);
  return j_ok(x) && j_equal(x, s, same) && !j_equal(x, s, opposite);
}
J_OF_VALUE(t_lower, j_bool(has_case(x, v, J_LOWER)))
J_OF_VALUE(t_upper, j_bool(has_case(x, v, J_UPPER)))

/* A name that does not fit is none: the longest has far fewer bytes. */
static bool names_one(jv v, const jfunction *(*find)(const char *)) {
  char name[64];
  if (!j_is(v, J_STR) || v.str->n >= sizeof name) return false;
  memcpy(name, v.str->s, v.str->n);
  name[v.str->n] = 0;
  return find(name) != NULL;
}
J_OF_VALUE(t_filter, j_bool(names_one(v, x->tables->filter)))
J_OF_VALUE(t_test, j_bool(names_one(v, x->tables->test)))

static const jfunction table[] = {
    {"!=", t_ne, {0}, "", 1},
    {"<", t_lt, {0}, "", 1},
    {"<=", t_le, {0}, "", 1},
    {"==", t_eq, {0}, "", 1},
    {">", t_gt, {0}, "", 1},
    {">=", t_ge, {0}, "", 1},
    {"boolean", t_boolean, {0}, "", 0},
    {"callable", t_callable, {0}, "", 0},
    {"defined", t_defined, {0}, "", 0},
    {"divisibleby", t_divisibleby, {0}, "", 1},
    {"eq", t_eq, {0}, "", 1},
    {"equalto", t_eq, {0}, "", 1},
    {"even", t_even, {0}, "", 0},
    {"false", t_false, {0}, "", 0},
    {"filter", t_filter, {0}, "", 0},
    {"float", t_float, {0}, "", 0},
    {"ge", t_ge, {0}, "", 1},
    {"greaterthan", t_gt, {0}, "", 1},
    {"gt", t_gt, {0}, "", 1},
    {"in", t_in, {0}, "", 1},
    {"integer", t_integer, {0}, "", 0},
    {"iterable", t_iterable, {0}, "", 0},
    {"le", t_le, {0}, "", 1},
    {"lessthan", t_lt, {0}, "", 1},
    {"lower", t_lower, {0}, "", 0},
    {"lt", t_lt, {0}, "", 1},
    {"mapping", t_mapping, {0}, "", 0},
    {"ne", t_ne, {0}, "", 1},
    {"none", t_none, {0}, "", 0},
    {"number", t_number, {0}, "", 0},
    {"odd", t_odd, {0}, "", 0},
    {"sameas", t_sameas, {0}, "", 1},
    {"sequence", t_sequence, {0}, "", 0},
    {"string", t_string, {0}, "", 0},
    {"test", t_test, {0}, "", 0},
    {"true", t_true, {0}, "", 0},
    {"undefined", t_undefined, {0}, "", 0},
    {"upper", t_upper, {0}, "", 0},
};

const jfunction *j_test(const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i].name, name)) return &table[i];
  return NULL;
}
