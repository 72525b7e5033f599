/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/exec.h"

/* Equality and order follow Python: 1 == 1.0 == True, lists compare by their first difference, dicts by their pairs in
 * any order. A dict is an array in order of insertion that is searched linearly; dicts of chat templates have few
 * keys, and the search pays steps. */
static jv make_str(jx *x, jstr s) {
  jstr *made = j_alloc(x, 1, sizeof *made);
  if (!made) return j_undefined(NULL);
  *made = s;
  return (jv){.kind = J_STR, .str = made};
}

jv j_str(jx *x, const char *s, size_t n) { return make_str(x, (jstr){.s = s, .n = n}); }
jv j_text(jx *x, const char *s) { return j_str(x, s, strlen(s)); }

/* The part shares the bytes and marks of the whole: neither changes, and the arena keeps both. */
jv j_slice(jx *x, const jstr *s, size_t from, size_t to) {
  jstr part = {.s = s->s + from, .n = to - from, .foreign = s->foreign, .is_markup = s->is_markup};
  if (s->marks) part.marks = s->marks + from;
  return make_str(x, part);
}

jv j_markup(jx *x, jv s) {
  if (!j_ok(x) || s.str->is_markup) return s;
  jstr made = *s.str;
  made.is_markup = true;
  return make_str(x, made);
}

jv j_list(jx *x, jkind kind, const jv *items, size_t n) {
  jlist *l = j_alloc(x, 1, sizeof *l);
  if (!l) return j_undefined(NULL);
  *l = (jlist){.items = items, .n = n};
  return (jv){.kind = kind, .list = l};
}

void j_reverse(jv *items, size_t n) {
  for (size_t i = 0; i < n / 2; i++) {
    jv other = items[i];
    items[i] = items[n - 1 - i];
    items[n - 1 - i] = other;
  }
}

jv j_pair(jx *x, jv first, jv second) {
  jv *two = j_alloc(x, 2, sizeof *two);
  if (!two) return j_undefined(NULL);
  two[0] = first;
  two[1] = second;
  return j_list(x, J_TUPLE, two, 2);
}

jv j_map(jx *x, jkind kind, size_t cap) {
  jmap *m = j_alloc(x, 1, sizeof *m);
  if (!m) return j_undefined(NULL);
  m->cap = cap;
  m->pairs = j_alloc(x, cap, sizeof *m->pairs);
  return (jv){.kind = kind, .map = m};
}

/* ---- from JSON ---- */

jv j_harden(jx *x, jv v) { return j_is_soft(v) ? j_str(x, "", 0) : v; }

bool j_is_large_integer(jv v) { return j_is(v, J_LARGE) && strspn(v.str->s, "-0123456789") >= v.str->n; }

/* The spelling ends with a NUL, as all strings of a document do. */
double j_large_number(jx *x, jv v) { return j_spend(x, v.str->n / J_STEP_BYTES) ? strtod(v.str->s, NULL) : 0; }

/* Makes a number that no int64_t and no finite double is: NaN and infinity are doubles for Python, too. */
static jv large_of_json(jx *x, const char *s, size_t n) {
  bool is_word = s[n - 1] > '9';
  if (is_word) return j_float(strtod(s, NULL));
  jv v = make_str(x, (jstr){.s = s, .n = n});
  if (j_ok(x)) v.kind = J_LARGE;
  return v;
}

struct filling {
  jx *x;
  jmap *map;
  bool foreign;
};

/* A document has a key once. */
static tri_status fill(void *ctx, const char *key, const tri_json *value) {
  const struct filling *f = ctx;
  jv k = make_str(f->x, (jstr){.s = key, .n = strlen(key), .foreign = f->foreign});
  bool foreign = f->foreign && !(f->x->own && !strcmp(key, f->x->own));
  f->map->pairs[f->map->n++] = (jpair){k, j_of_json(f->x, value, foreign)};
  return f->x->st;
}

static jv list_of_json(jx *x, const tri_json *json, bool foreign) {
  size_t n = tri_json_size(json);
  jv *items = j_alloc(x, n, sizeof *items);
  for (size_t i = 0; i < n && j_ok(x); i++) items[i] = j_of_json(x, tri_json_at(json, i), foreign);
  return j_list(x, J_LIST, items, n);
}

static jv map_of_json(jx *x, const tri_json *json, bool foreign) {
  jv m = j_map(x, J_MAP, tri_json_size(json));
  struct filling f = {x, m.map, foreign};
  if (j_ok(x)) tri_json_each(json, fill, &f);
  return m;
}

jv j_of_json(jx *x, const tri_json *json, bool foreign) {
  jv v = j_none();
  jstr s = {.foreign = foreign};
  size_t n;
  const char *spelling = tri_json_spelling(json, &n);
  if (spelling) return large_of_json(x, spelling, n);
  switch (tri_json_kind_of(json)) {
  case TRI_JSON_NULL: return v;
  case TRI_JSON_BOOL:
    v.kind = J_BOOL;
    tri_json_as_bool(json, &v.b);
    return v;
  case TRI_JSON_INT:
    v.kind = J_INT;
    tri_json_as_int(json, &v.i);
    return v;
  case TRI_JSON_REAL:
    v.kind = J_FLOAT;
    tri_json_as_num(json, &v.f);
    return v;
  case TRI_JSON_STRING: s.s = tri_json_as_str(json, &s.n); return make_str(x, s);
  case TRI_JSON_ARRAY: return list_of_json(x, json, foreign);
  case TRI_JSON_OBJECT: return map_of_json(x, json, foreign);
  }
  return v;
}

/* ---- truth, equality, order ---- */

bool j_equals_text(jv v, const char *s) {
  return v.kind == J_STR && v.str->n == strlen(s) && !memcmp(v.str->s, s, v.str->n);
}

bool j_truth(jv v) {
  switch (v.kind) {
  case J_UNDEFINED:
  case J_NONE: return false;
  case J_BOOL: return v.b;
  case J_INT: return v.i != 0;
  case J_FLOAT: return v.f < 0 || v.f > 0 || isnan(v.f);
  case J_STR: return v.str->n > 0;
  case J_LIST:
  case J_TUPLE:
  case J_VIEW: return v.list->n > 0;
  case J_MAP: return v.map->n > 0;
  default: return true;
  }
}

static bool lists_equal(jx *x, const jlist *a, const jlist *b) {
  if (a->n != b->n) return false;
  for (size_t i = 0; i < a->n; i++)
    if (!j_equal(x, a->items[i], b->items[i])) return false;
  return j_spend(x, a->n / J_STEP_ITEMS);
}

static bool maps_equal(jx *x, const jmap *a, const jmap *b) {
  if (a->n != b->n) return false;
  for (size_t i = 0; i < a->n; i++) {
    const jv *other = j_map_find(x, b, a->pairs[i].key);
    if (!other || !j_equal(x, a->pairs[i].value, *other)) return false;
  }
  return j_ok(x);
}

/* Compares lists or maps. Each pair counts as a step: no node of the template stands for it. */
static bool insides_equal(jx *x, jv a, jv b) {
  if (x->depth >= TRI_JINJA_MOST_DEPTH * 4) {
    j_fail(x, TRI_JINJA_LIMIT, "values that are compared are nested too deeply");
    return false;
  }
  if (!j_visit(x, NULL)) return false;
  x->depth++;
  bool equal = j_is(a, J_MAP) ? maps_equal(x, a.map, b.map) : lists_equal(x, a.list, b.list);
  x->depth--;
  return equal;
}

static bool strings_equal(jx *x, const jstr *a, const jstr *b) {
  return a->n == b->n && j_spend(x, a->n / J_STEP_BYTES) && !memcmp(a->s, b->s, a->n);
}

/* NaN equals nothing, since neither comparison holds. An integer is rounded to a double for a comparison with one,
 * where Python compares exactly: they differ above 2^53 only. */
static bool numbers_equal(jv a, jv b) {
  if (a.kind == J_FLOAT || b.kind == J_FLOAT) {
    double p = j_is(a, J_FLOAT) ? a.f : (double)j_integer(a), q = j_is(b, J_FLOAT) ? b.f : (double)j_integer(b);
    return p >= q && p <= q;
  }
  return j_integer(a) == j_integer(b);
}

/* Compares two numbers of which one at least is LARGE. Integers beyond 64 bits have an order by their digits. Where the
 * doubles are equal, both integers have one sign, and JSON has no leading zeros: the longer spelling is further from
 * zero. */
static int compare_large(jx *x, jv a, jv b) {
  bool digits = j_is_large_integer(a) && j_is_large_integer(b);
  double p = j_is(a, J_LARGE) ? j_large_number(x, a) : 0, q = j_is(b, J_LARGE) ? j_large_number(x, b) : 0;
  if (!j_is(a, J_LARGE)) p = j_is(a, J_FLOAT) ? a.f : (double)j_integer(a);
  if (!j_is(b, J_LARGE)) q = j_is(b, J_FLOAT) ? b.f : (double)j_integer(b);
  if (!digits || p > q || p < q) return (p > q) - (p < q);
  int sign = a.str->s[0] == '-' ? -1 : 1;
  if (a.str->n != b.str->n) return a.str->n > b.str->n ? sign : -sign;
  int c = memcmp(a.str->s, b.str->s, a.str->n);
  return sign * ((c > 0) - (c < 0));
}

static bool is_any_number(jv v) { return j_is_number(v) || j_is(v, J_LARGE); }

bool j_equal(jx *x, jv a, jv b) {
  if (is_any_number(a) && is_any_number(b) && (j_is(a, J_LARGE) || j_is(b, J_LARGE)))
    return compare_large(x, a, b) == 0 && !(j_is(a, J_FLOAT) && isnan(a.f)) && !(j_is(b, J_FLOAT) && isnan(b.f));
  if (j_is_number(a) && j_is_number(b)) return numbers_equal(a, b);
  if (a.kind != b.kind) return false;
  switch (a.kind) {
  case J_UNDEFINED:
  case J_NONE: return true;
  case J_STR: return strings_equal(x, a.str, b.str);
  case J_LIST:
  case J_TUPLE:
  case J_VIEW: return a.list == b.list || insides_equal(x, a, b);
  case J_MAP: return a.map == b.map || insides_equal(x, a, b);
  case J_NAMESPACE: return a.map == b.map;
  case J_ITER: return a.list == b.list;
  case J_LOOP: return a.loop == b.loop;
  case J_MACRO: return a.macro == b.macro;
  default: return a.function == b.function;
  }
}

static int sign_of(double d) { return (d > 0) - (d < 0); }

/* Nesting is bounded by j_equal, which has been through the items that differ. */
static int compare_lists(jx *x, const jlist *a, const jlist *b) {
  for (size_t i = 0; i < a->n && i < b->n && j_ok(x); i++)
    if (!j_equal(x, a->items[i], b->items[i])) return j_ok(x) ? j_compare(x, a->items[i], b->items[i]) : 0;
  j_spend(x, a->n / J_STEP_ITEMS);
  return (a->n > b->n) - (a->n < b->n);
}

int j_compare(jx *x, jv a, jv b) {
  if (is_any_number(a) && is_any_number(b) && (j_is(a, J_LARGE) || j_is(b, J_LARGE))) return compare_large(x, a, b);
  if (j_is_number(a) && j_is_number(b)) {
    if (!j_is(a, J_FLOAT) && !j_is(b, J_FLOAT)) return (j_integer(a) > j_integer(b)) - (j_integer(a) < j_integer(b));
    double p = j_is(a, J_FLOAT) ? a.f : (double)j_integer(a), q = j_is(b, J_FLOAT) ? b.f : (double)j_integer(b);
    return sign_of(p - q);
  }
  if (j_is(a, J_STR) && j_is(b, J_STR)) {
    size_t n = a.str->n < b.str->n ? a.str->n : b.str->n;
    if (!j_spend(x, n / J_STEP_BYTES)) return 0;
    int c = memcmp(a.str->s, b.str->s, n); /* the order of UTF-8 is that of code points */
    return c ? sign_of(c) : (a.str->n > b.str->n) - (a.str->n < b.str->n);
  }
  if (a.kind == b.kind && (j_is(a, J_LIST) || j_is(a, J_TUPLE))) return compare_lists(x, a.list, b.list);
  if (j_is(a, J_UNDEFINED) || j_is(b, J_UNDEFINED))
    j_fail(x, TRI_JINJA_UNDEFINED, "an undefined value is compared");
  else
    j_fail(x, TRI_JINJA_TYPE, "%s and %s have no order", j_type_name(a), j_type_name(b));
  return 0;
}

const char *j_type_name(jv v) {
  static const char *const names[] = {"undefined", "None", "bool",  "int",     "float",     "int",
                                      "str",       "list", "tuple", "view",    "generator", "dict",
                                      "Namespace", "loop", "macro", "function"};
  return names[v.kind];
}

/* ---- maps ---- */

/* A failure of the search is not told apart from an absent key: both give NULL, and j_ok is false after the first. */
const jv *j_map_find(jx *x, const jmap *m, jv key) {
  j_spend(x, m->n / J_STEP_ITEMS);
  for (size_t i = 0; i < m->n && j_ok(x); i++)
    if (j_equal(x, m->pairs[i].key, key)) return &m->pairs[i].value;
  return NULL;
}

void j_map_put(jx *x, jmap *m, jv key, jv value) {
  if (!j_spend(x, m->n / J_STEP_ITEMS)) return;
  for (size_t i = 0; i < m->n; i++)
    if (j_equal(x, m->pairs[i].key, key)) {
      m->pairs[i].value = value;
      return;
    }
  jpair *pairs = j_grow(x, m->pairs, m->n, &m->cap, sizeof *pairs);
  if (!pairs) return;
  m->pairs = pairs;
  m->pairs[m->n++] = (jpair){key, value};
}
