/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of one value. Those of lists are in filters_list.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/filters.h"
#include "text/unicode/unicode.h"

static const jstr space = {.s = " ", .n = 1};

/* The string of a value, as jinja2's soft_str has it. NULL after a failure. */
static const jstr *text_of(jx *x, jv v) {
  jv s = j_to_str(x, v);
  return j_ok(x) ? s.str : NULL;
}

static jv fail_undefined(jx *x, jv v, const char *filter) {
  return j_fail(x, TRI_JINJA_UNDEFINED, "'%.80s' is undefined, for the filter %s", v.name ? v.name : "a value", filter);
}

/* ---- strings ---- */

static jv f_trim(jx *x, jv v, const jargs *a) {
  const jstr *s = text_of(x, v), *chars = j_argument_str(x, a, 0, "chars", NULL);
  return j_ok(x) ? j_strip(x, s, chars, J_BOTH) : v;
}

J_OF_VALUE(f_string, j_to_str(x, v))

static jv change_case(jx *x, jv v, jcase to) {
  const jstr *s = text_of(x, v);
  return s ? j_change_case(x, s, to, true) : v;
}
J_OF_VALUE(f_lower, change_case(x, v, J_LOWER))
J_OF_VALUE(f_upper, change_case(x, v, J_UPPER))
J_OF_VALUE(f_title, change_case(x, v, J_TITLE))
J_OF_VALUE(f_capitalize, change_case(x, v, J_CAPITALIZE))

static jv f_replace(jx *x, jv v, const jargs *a) {
  const jstr *s = text_of(x, v), *from = j_argument_str(x, a, 0, "old", NULL),
             *to = j_argument_str(x, a, 1, "new", NULL);
  int64_t most = j_argument_int(x, a, 2, "count", -1);
  if (j_ok(x) && (!from || !to)) return j_fail(x, TRI_JINJA_TYPE, "replace needs what is replaced, and by what");
  return j_ok(x) ? j_replace(x, s, from, to, most) : v;
}

static jv f_format(jx *x, jv v, const jargs *a) {
  const jstr *s = text_of(x, v);
  return s ? j_percent(x, s, a, false) : v;
}

/* Puts spaces before every line but the first, which may be asked for, and of empty ones, likewise. */
static jv f_indent(jx *x, jv v, const jargs *a) {
  v = j_harden(x, v);
  if (!j_is(v, J_STR)) return j_fail(x, TRI_JINJA_TYPE, "indent is for str, not %s", j_type_name(v));
  const jstr *s = v.str;
  const jv *width = j_argument(a, 0, "width");
  bool first = j_argument_bool(a, 1, "first", false), blank = j_argument_bool(a, 2, "blank", false);
  jbuf b = j_begin(x);
  bool by_text = j_has_text(width);
  int64_t n = by_text ? 1 : j_argument_int(x, a, 0, "width", 4);
  const jstr *by = by_text ? width->str : &space;
  for (size_t at = 0, line = 0; j_ok(x); line++) {
    const char *end = memchr(s->s + at, '\n', s->n - at);
    size_t to = end ? (size_t)(end - s->s) : s->n;
    bool indents = line ? blank || to > at : first;
    for (int64_t i = 0; indents && i < n && j_ok(x); i++) j_put_str(&b, by);
    j_put_part(&b, s, at, end ? to + 1 : to);
    if (!end) break;
    at = to + 1;
  }
  return j_end_like(&b, s);
}

/* Runs of \w. */
static jv f_wordcount(jx *x, jv v, const jargs *a) {
  const jstr *s = text_of(x, v);
  int64_t n = 0;
  bool inside = false;
  (void)a;
  if (s && !j_spend(x, s->n / J_STEP_ITEMS)) return v;
  for (size_t at = 0, len; s && at < s->n; at += len) {
    bool is_word = tok_is_word(tok_utf8_decode(s->s + at, &len));
    n += is_word && !inside;
    inside = is_word;
  }
  return j_int(n);
}

static jv f_escape(jx *x, jv v, const jargs *a) {
  jv s = j_to_str(x, v);
  (void)a;
  return j_ok(x) ? j_escape(x, s) : v;
}

J_OF_VALUE(f_safe, j_markup(x, j_to_str(x, v)))

/* ---- numbers ---- */

/* A text may be a float's: what is after the point goes. */
static jv f_int(jx *x, jv v, const jargs *a) {
  const jv *fallback = j_argument(a, 0, "default");
  int64_t base = j_argument_int(x, a, 1, "base", 10), i = 0;
  double f = NAN;
  if (!j_ok(x)) return v;
  if (j_is(v, J_UNDEFINED)) return fail_undefined(x, v, "int");
  if (j_is(v, J_INT) || j_is(v, J_BOOL)) return j_int(j_integer(v));
  if (j_is_large_integer(v)) return v;
  if (j_is(v, J_LARGE)) return j_too_large(x);
  if (j_is(v, J_FLOAT) && isinf(v.f)) return j_fail(x, TRI_JINJA_TYPE, "cannot convert float infinity to integer");
  if (j_is(v, J_FLOAT)) f = v.f;
  if (j_is(v, J_STR)) {
    jreading read = j_read_int(x, v.str, base, &i);
    if (read == J_READ) return j_int(i);
    if (read == J_TOO_LARGE) return j_too_large(x);
    if (!j_read_float(x, v.str, &f)) f = NAN;
  }
  if (isfinite(f)) return j_fits_int(f) ? j_int((int64_t)f) : j_too_large(x);
  return fallback ? *fallback : j_int(0);
}

static jv f_float(jx *x, jv v, const jargs *a) {
  const jv *fallback = j_argument(a, 0, "default");
  double f;
  if (j_is(v, J_UNDEFINED)) return fail_undefined(x, v, "float");
  if (j_is(v, J_FLOAT)) return v;
  if (j_is(v, J_LARGE)) return j_float(j_large_number(x, v));
  if (j_is(v, J_INT) || j_is(v, J_BOOL)) return j_float((double)j_integer(v));
  if (j_is(v, J_STR) && j_read_float(x, v.str, &f)) return j_float(f);
  return fallback ? *fallback : j_float(0);
}

static jv f_abs(jx *x, jv v, const jargs *a) {
  (void)a;
  if (j_is(v, J_FLOAT)) return j_float(fabs(v.f));
  if (j_is(v, J_LARGE)) {
    jv digits = j_slice(x, v.str, v.str->s[0] == '-', v.str->n);
    if (j_ok(x)) digits.kind = J_LARGE;
    return digits;
  }
  if (!j_is_number(v)) return j_fail(x, TRI_JINJA_TYPE, "bad operand type for abs(): '%s'", j_type_name(v));
  return j_integer(v) < 0 ? j_binary(x, JN_SUB, j_int(0), v) : j_int(j_integer(v));
}

/* Python's round() for "common"; ceil and floor scale by a power of ten, as jinja2 does, with its rounding errors. */
static jv f_round(jx *x, jv v, const jargs *a) {
  int64_t precision = j_argument_int(x, a, 0, "precision", 0);
  const jstr *method = j_argument_str(x, a, 1, "method", NULL);
  if (j_is(v, J_LARGE)) return j_too_large(x);
  if (!j_is_number(v)) return j_fail(x, TRI_JINJA_TYPE, "round is for numbers, not %s", j_type_name(v));
  jv name = {.kind = J_STR, .str = method};
  bool up = method && j_equals_text(name, "ceil"), down = method && j_equals_text(name, "floor");
  if (!j_ok(x)) return v;
  if (method && !up && !down && !j_equals_text(name, "common"))
    return j_fail(x, TRI_JINJA_TYPE, "method must be common, ceil or floor");
  if (!up && !down) return j_round(x, v, precision);
  double f = j_is(v, J_FLOAT) ? v.f : (double)j_integer(v), power = pow(10, (double)precision);
  if (!isfinite(f * power) || !(power > 0)) return j_fail(x, TRI_JINJA_TYPE, "a number cannot be rounded");
  return j_float((up ? ceil(f * power) : floor(f * power)) / power);
}

/* ---- others ---- */

static jv f_default(jx *x, jv v, const jargs *a) {
  const jv *fallback = j_argument(a, 0, "default_value");
  bool also_false = j_argument_bool(a, 1, "boolean", false);
  (void)x;
  bool missing = j_is(v, J_UNDEFINED) || (also_false && !j_truth(v));
  if (!missing) return v;
  return fallback ? *fallback : j_str(x, "", 0);
}

/* transformers' tojson, which is json.dumps with ensure_ascii off by default, and not jinja2's, which escapes for
 * HTML. */
static jv f_tojson(jx *x, jv v, const jargs *a) {
  const jv *indent = j_argument(a, 1, "indent"), *separators = j_argument(a, 2, "separators");
  jjson how = {.ensure_ascii = j_argument_bool(a, 0, "ensure_ascii", false),
               .sort_keys = j_argument_bool(a, 3, "sort_keys", false)};
  if (indent && !j_is(*indent, J_NONE)) {
    jv text = j_is(*indent, J_STR) ? *indent : j_binary(x, JN_MUL, j_text(x, " "), *indent);
    if (!j_ok(x)) return v;
    how.indent = text.str;
  }
  if (separators && !j_is(*separators, J_NONE)) {
    size_t n;
    const jv *pair = j_items(x, *separators, &n);
    if (!j_ok(x) || n != 2 || !j_is(pair[0], J_STR) || !j_is(pair[1], J_STR))
      return j_fail(x, TRI_JINJA_TYPE, "separators must be two strings");
    how.item_separator = pair[0].str;
    how.key_separator = pair[1].str;
  }
  jbuf b = j_begin(x);
  j_put_json(&b, v, &how, 0);
  return j_end(&b);
}

J_OF_VALUE(f_length, j_int(j_length(x, v)))

/* Looks for attributes alone, where a dot also finds the keys of a dict; as jinja2's attr does. */
static jv f_attr(jx *x, jv v, const jargs *a) {
  const jstr *of = j_argument_str(x, a, 0, "name", NULL);
  char *text = of ? j_alloc(x, of->n + 1, 1) : NULL;
  if (!text) return j_fail(x, TRI_JINJA_TYPE, "attr needs a name");
  memcpy(text, of->s, of->n);
  return j_method(x, v, text);
}

static const jfunction table[] = {{"abs", f_abs, {0}, "", 0},
                                  {"attr", f_attr, {0}, "name", 1},
                                  {"capitalize", f_capitalize, {0}, "", 0},
                                  {"count", f_length, {0}, "", 0},
                                  {"d", f_default, {0}, "default_value boolean", 2},
                                  {"default", f_default, {0}, "default_value boolean", 2},
                                  {"e", f_escape, {0}, "", 0},
                                  {"escape", f_escape, {0}, "", 0},
                                  {"float", f_float, {0}, "default", 1},
                                  {"format", f_format, {0}, NULL, 0},
                                  {"indent", f_indent, {0}, "width first blank", 3},
                                  {"int", f_int, {0}, "default base", 2},
                                  {"length", f_length, {0}, "", 0},
                                  {"lower", f_lower, {0}, "", 0},
                                  {"replace", f_replace, {0}, "old new count", 3},
                                  {"round", f_round, {0}, "precision method", 2},
                                  {"safe", f_safe, {0}, "", 0},
                                  {"string", f_string, {0}, "", 0},
                                  {"title", f_title, {0}, "", 0},
                                  {"tojson", f_tojson, {0}, "ensure_ascii indent separators sort_keys", 4},
                                  {"trim", f_trim, {0}, "chars", 1},
                                  {"upper", f_upper, {0}, "", 0},
                                  {"wordcount", f_wordcount, {0}, "", 0}};

const jfunction *j_value_filter(const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i].name, name)) return &table[i];
  return NULL;
}
