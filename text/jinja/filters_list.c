/* SPDX-License-Identifier: Apache-2.0 */
/* Filters of lists. Python's are generators: where their result differs from a list's (it is empty when it was gone
 * through, and errors come late) they return J_ITER. */
#include <string.h>

#include "text/jinja/filters.h"

static jv a_list(jx *x, jkind kind, const jv *items, size_t n) {
  return j_ok(x) ? j_list(x, kind, items, n) : j_undefined(NULL);
}

/* Python's generators look at what they go through when an item is wanted. */
static bool is_iterable(jv v) {
  return j_is_sequence(v) || j_is(v, J_STR) || j_is(v, J_MAP) || j_is(v, J_ITER) || j_is(v, J_UNDEFINED);
}

/* Stands for a generator over what is not iterable: it fails when something is taken from it, not before. */
static jv broken(jx *x) {
  jv v = j_list(x, J_ITER, NULL, 0);
  if (j_ok(x)) v.list->is_broken = true;
  return v;
}

/* Items that may be written to. */
static jv *copy(jx *x, jv v, size_t *n) {
  const jv *items = j_items(x, v, n);
  jv *own = j_ok(x) ? j_alloc(x, *n, sizeof *own) : NULL;
  if (own && *n) memcpy(own, items, *n * sizeof *own);
  if (!own) *n = 0;
  return own;
}

/* Follows names and numbers with dots between them, as jinja2's make_attrgetter does. */
static jv attribute_or(jx *x, jv v, const jv *path, const jv *fallback) {
  if (j_is(*path, J_INT)) return j_item(x, v, *path);
  jv dot = j_text(x, ".");
  if (!j_ok(x) || !j_is(*path, J_STR)) return j_fail(x, TRI_JINJA_TYPE, "an attribute must be a name or a number");
  jv parts = j_split(x, path->str, dot.str, -1);
  for (size_t i = 0; j_ok(x) && i < parts.list->n; i++) {
    const jstr *part = parts.list->items[i].str;
    bool number = part->n > 0;
    int64_t index = 0;
    for (size_t k = 0; k < part->n; k++) number = number && part->s[k] >= '0' && part->s[k] <= '9' && k < 9;
    for (size_t k = 0; number && k < part->n; k++) index = index * 10 + (part->s[k] - '0');
    v = j_item(x, v, number ? j_int(index) : parts.list->items[i]);
    if (fallback && j_is(v, J_UNDEFINED)) v = *fallback; /* of each part */
  }
  return v;
}

static jv attribute_of(jx *x, jv v, const jv *path) { return attribute_or(x, v, path, NULL); }

/* Returns what a filter sorts or compares by: text without regard to case, unless that is asked for. */
static jv key_of(jx *x, jv v, const jv *attribute, bool case_sensitive) {
  if (attribute && !j_is(*attribute, J_NONE)) v = attribute_of(x, v, attribute);
  return j_ok(x) && j_is(v, J_STR) && !case_sensitive ? j_change_case(x, v.str, J_LOWER, true) : v;
}

/* ---- one of them, or all ---- */

static jv end_of(jx *x, jv v, bool last) {
  size_t n;
  const jv *items = j_items(x, v, &n);
  if (!n) return j_undefined(last ? "the last item of an empty sequence" : "the first item of an empty sequence");
  return items[last ? n - 1 : 0];
}
J_OF_VALUE(f_first, end_of(x, v, false))
J_OF_VALUE(f_last, end_of(x, v, true))

static jv f_list(jx *x, jv v, const jargs *a) {
  size_t n;
  (void)a;
  const jv *items = j_items(x, v, &n);
  return a_list(x, J_LIST, items, n);
}

static jv f_join(jx *x, jv v, const jargs *a) {
  const jv *by = j_argument(a, 0, "d"), *attribute = j_argument(a, 1, "attribute");
  jv separator = by ? j_to_str(x, *by) : j_text(x, "");
  size_t n;
  const jv *items = j_ok(x) ? j_items(x, v, &n) : NULL;
  jbuf b = j_begin(x);
  if (!j_ok(x) || !j_spend(x, n / J_STEP_ITEMS)) return v;
  for (size_t i = 0; i < n && j_ok(x); i++) {
    jv item = attribute && !j_is(*attribute, J_NONE) ? attribute_of(x, items[i], attribute) : items[i];
    if (i) j_put_str(&b, separator.str);
    if (j_ok(x)) j_put_value(&b, item);
  }
  return j_end(&b);
}

static jv f_reverse(jx *x, jv v, const jargs *a) {
  size_t n;
  jv *items = copy(x, v, &n);
  (void)a;
  j_reverse(items, n);
  if (!j_ok(x) || !j_is(v, J_STR)) return a_list(x, J_ITER, items, n);
  jbuf b = j_begin(x);
  for (size_t i = 0; i < n; i++) j_put_str(&b, items[i].str);
  return j_end(&b);
}

static jv f_sum(jx *x, jv v, const jargs *a) {
  const jv *attribute = j_argument(a, 0, "attribute"), *start = j_argument(a, 1, "start");
  size_t n;
  const jv *items = j_items(x, v, &n);
  jv sum = start ? *start : j_int(0);
  j_spend(x, n / J_STEP_ITEMS);
  for (size_t i = 0; i < n && j_ok(x); i++) {
    jv item = attribute && !j_is(*attribute, J_NONE) ? attribute_of(x, items[i], attribute) : items[i];
    if (j_ok(x)) sum = j_binary(x, JN_ADD, sum, item);
  }
  return sum;
}

static jv extreme(jx *x, jv v, const jargs *a, int sign) {
  bool case_sensitive = j_argument_bool(a, 0, "case_sensitive", false);
  const jv *attribute = j_argument(a, 1, "attribute");
  size_t n, best = 0;
  const jv *items = j_items(x, v, &n);
  if (!n) return j_undefined("an item of an empty sequence");
  j_spend(x, n / J_STEP_ITEMS);
  for (size_t i = 1; i < n && j_ok(x); i++) {
    jv own = key_of(x, items[i], attribute, case_sensitive), other = key_of(x, items[best], attribute, case_sensitive);
    if (j_ok(x) && sign * j_compare(x, own, other) > 0) best = i;
  }
  return items[best];
}
static jv f_max(jx *x, jv v, const jargs *a) { return extreme(x, v, a, 1); }
static jv f_min(jx *x, jv v, const jargs *a) { return extreme(x, v, a, -1); }

/* ---- order ---- */

struct keyed {
  jv key, item;
};

/* A stable sort by merging: a comparison that fails ends the render, not the process. Items with equal keys keep their
 * order also in reverse, as Python's sorted() has it. */
static void merge_sort(jx *x, struct keyed *items, struct keyed *spare, size_t n, bool reverse) {
  if (n < 2 || !j_ok(x)) return;
  size_t half = n / 2, a = 0, b = half;
  merge_sort(x, items, spare, half, reverse);
  merge_sort(x, items + half, spare, n - half, reverse);
  for (size_t i = 0; i < n; i++) {
    bool second = a == half;
    if (a < half && b < n) {
      int order = j_compare(x, items[a].key, items[b].key);
      second = reverse ? order < 0 : order > 0;
    }
    spare[i] = second ? items[b++] : items[a++];
  }
  memcpy(items, spare, n * sizeof *items);
}

static jv sorted(jx *x, struct keyed *items, size_t n, bool reverse) {
  struct keyed *spare = j_alloc(x, n, sizeof *spare);
  jv *out = j_alloc(x, n, sizeof *out);
  if (!out) return j_undefined(NULL);
  merge_sort(x, items, spare, n, reverse);
  for (size_t i = 0; i < n; i++) out[i] = items[i].item;
  return a_list(x, J_LIST, out, n);
}

static jv f_sort(jx *x, jv v, const jargs *a) {
  bool reverse = j_argument_bool(a, 0, "reverse", false),
       case_sensitive = j_argument_bool(a, 1, "case_sensitive", false);
  const jv *attribute = j_argument(a, 2, "attribute");
  size_t n;
  const jv *items = j_items(x, v, &n);
  struct keyed *all = j_ok(x) ? j_alloc(x, n, sizeof *all) : NULL;
  if (!all) return j_undefined(NULL);
  for (size_t i = 0; i < n && j_ok(x); i++)
    all[i] = (struct keyed){key_of(x, items[i], attribute, case_sensitive), items[i]};
  return sorted(x, all, n, reverse);
}

static jv f_dictsort(jx *x, jv v, const jargs *a) {
  bool case_sensitive = j_argument_bool(a, 0, "case_sensitive", false),
       reverse = j_argument_bool(a, 2, "reverse", false);
  const jv *by = j_argument(a, 1, "by");
  if (!j_is(v, J_MAP)) return j_fail(x, TRI_JINJA_TYPE, "dictsort is for dicts, not %s", j_type_name(v));
  bool by_value = by && j_equals_text(*by, "value");
  struct keyed *all = j_alloc(x, v.map->n, sizeof *all);
  if (!all) return j_undefined(NULL);
  for (size_t i = 0; i < v.map->n && j_ok(x); i++) {
    const jpair *p = &v.map->pairs[i];
    all[i] = (struct keyed){key_of(x, by_value ? p->value : p->key, NULL, case_sensitive), j_pair(x, p->key, p->value)};
  }
  return sorted(x, all, v.map->n, reverse);
}

static jv f_items(jx *x, jv v, const jargs *a) {
  (void)a;
  if (j_is(v, J_UNDEFINED)) return a_list(x, J_ITER, NULL, 0);
  if (!j_is(v, J_MAP)) return broken(x);
  jv *items = j_alloc(x, v.map->n, sizeof *items);
  for (size_t i = 0; items && i < v.map->n; i++) items[i] = j_pair(x, v.map->pairs[i].key, v.map->pairs[i].value);
  return a_list(x, J_ITER, items, v.map->n);
}

/* Fails for what Python cannot hash. */
static bool is_hashable(jx *x, jv v) {
  if (j_is(v, J_LIST) || j_is(v, J_MAP)) j_fail(x, TRI_JINJA_TYPE, "unhashable type: '%s'", j_type_name(v));
  if (!j_is(v, J_TUPLE) || !j_visit(x, NULL)) return j_ok(x);
  if (x->depth >= TRI_JINJA_MOST_DEPTH * 4) j_fail(x, TRI_JINJA_LIMIT, "tuples are nested too deeply");
  x->depth++;
  for (size_t i = 0; i < v.list->n && j_ok(x); i++) is_hashable(x, v.list->items[i]);
  x->depth--;
  return j_ok(x);
}

/* The dict of keys that were seen is searched linearly, as all dicts are: long lists cost steps. */
static jv f_unique(jx *x, jv v, const jargs *a) {
  bool case_sensitive = j_argument_bool(a, 0, "case_sensitive", false);
  const jv *attribute = j_argument(a, 1, "attribute");
  size_t n, num = 0;
  if (!is_iterable(v)) return broken(x);
  const jv *items = j_items(x, v, &n);
  jv *out = j_ok(x) ? j_alloc(x, n, sizeof *out) : NULL, seen = j_map(x, J_MAP, 4);
  for (size_t i = 0; out && i < n && j_ok(x); i++) {
    jv key = key_of(x, items[i], attribute, case_sensitive);
    if (!j_ok(x) || !j_visit(x, NULL) || !is_hashable(x, key) || j_map_find(x, seen.map, key)) continue;
    j_map_put(x, seen.map, key, j_none());
    out[num++] = items[i];
  }
  return a_list(x, J_ITER, out, num);
}

/* ---- map, select, reject ---- */

/* Arguments without the first n by place: those that a filter hands to the filter or test that it calls. */
static jargs behind(const jargs *a, size_t n) {
  jargs rest = *a;
  size_t gone = a->n < n ? a->n : n;
  rest.list += gone;
  rest.n -= gone;
  return rest;
}

/* A zero-terminated name. NULL after a failure. */
static const char *name_of(jx *x, const jv *v) {
  char *text = j_has_text(v) ? j_alloc(x, v->str->n + 1, 1) : NULL;
  if (!text) {
    j_fail(x, TRI_JINJA_TYPE, "the name of a filter or a test is missing");
    return NULL;
  }
  memcpy(text, v->str->s, v->str->n);
  return text;
}

/* Both names are looked for at a place that no argument has (SIZE_MAX): they are given by name only, and the first
 * argument by place is the filter's name. */
static jv f_map(jx *x, jv v, const jargs *a) {
  const jv *attribute = j_argument(a, SIZE_MAX, "attribute"), *fallback = j_argument(a, SIZE_MAX, "default");
  size_t n;
  const char *filter = attribute ? NULL : name_of(x, j_argument(a, 0, NULL));
  const jfunction *f = filter ? x->tables->filter(filter) : NULL;
  if (filter && !f) return j_fail(x, TRI_JINJA_TYPE, "No filter named '%.80s'.", filter);
  if (!j_truth(v)) return a_list(x, J_ITER, NULL, 0);
  if (!is_iterable(v)) return broken(x);
  jv *items = j_ok(x) ? copy(x, v, &n) : NULL;
  jargs rest = behind(a, 1);
  for (size_t i = 0; items && i < n && j_ok(x); i++)
    items[i] = f ? j_invoke(x, f, items[i], &rest) : attribute_or(x, items[i], attribute, fallback);
  return a_list(x, J_ITER, items, items ? n : 0);
}

/* by_attribute: the first argument names what is tested; without a test it is the truth. */
static jv choose(jx *x, jv v, const jargs *a, bool wanted, bool by_attribute) {
  const jv *attribute = by_attribute ? j_argument(a, 0, NULL) : NULL, *name = j_argument(a, by_attribute, NULL);
  const char *text = name ? name_of(x, name) : NULL;
  const jfunction *test = text ? x->tables->test(text) : NULL;
  jargs rest = behind(a, by_attribute ? 2 : 1);
  size_t n, num = 0;
  if (by_attribute && !attribute) return j_fail(x, TRI_JINJA_TYPE, "Missing parameter for attribute name");
  if (text && !test) return j_fail(x, TRI_JINJA_TYPE, "No test named '%.80s'.", text);
  if (!j_truth(v)) return a_list(x, J_ITER, NULL, 0);
  if (!is_iterable(v)) return broken(x);
  const jv *items = j_ok(x) ? j_items(x, v, &n) : NULL;
  jv *out = j_ok(x) ? j_alloc(x, n, sizeof *out) : NULL;
  for (size_t i = 0; out && i < n && j_ok(x); i++) {
    jv of = attribute ? attribute_of(x, items[i], attribute) : items[i];
    if (!j_ok(x)) break;
    bool truth = j_truth(test ? j_invoke(x, test, of, &rest) : of);
    if (truth == wanted) out[num++] = items[i];
  }
  return a_list(x, J_ITER, out, num);
}
static jv f_select(jx *x, jv v, const jargs *a) { return choose(x, v, a, true, false); }
static jv f_reject(jx *x, jv v, const jargs *a) { return choose(x, v, a, false, false); }
static jv f_selectattr(jx *x, jv v, const jargs *a) { return choose(x, v, a, true, true); }
static jv f_rejectattr(jx *x, jv v, const jargs *a) { return choose(x, v, a, false, true); }

/* A part of n items at most: `at` cannot overflow however large linecount is. A last part that is filled up has
 * linecount items, which the render's memory bounds. */
static jv f_batch(jx *x, jv v, const jargs *a) {
  int64_t size = j_argument_int(x, a, 0, "linecount", 0);
  const jv *fill = j_argument(a, 1, "fill_with");
  size_t n, num = 0;
  const jv *items = j_items(x, v, &n);
  if (!j_ok(x) || size < 1) return j_fail(x, TRI_JINJA_TYPE, "batch needs a number above 0");
  size_t each = (size_t)size < n ? (size_t)size : n;
  jv *out = j_alloc(x, n, sizeof *out);
  for (size_t at = 0; out && at < n && j_ok(x); at += each) {
    size_t own = n - at < each ? n - at : each, all = fill && !j_is(*fill, J_NONE) ? (size_t)size : own;
    jv *part = j_alloc(x, all, sizeof *part);
    for (size_t i = 0; part && i < all; i++) part[i] = i < own ? items[at + i] : *fill;
    out[num++] = a_list(x, J_LIST, part, all);
  }
  return a_list(x, J_ITER, out, num);
}

static const jfunction table[] = {{"batch", f_batch, {0}, "linecount fill_with", 2},
                                  {"dictsort", f_dictsort, {0}, "case_sensitive by reverse", 3},
                                  {"first", f_first, {0}, "", 0},
                                  {"items", f_items, {0}, "", 0},
                                  {"join", f_join, {0}, "d attribute", 2},
                                  {"last", f_last, {0}, "", 0},
                                  {"list", f_list, {0}, "", 0},
                                  {"map", f_map, {0}, NULL, 0},
                                  {"max", f_max, {0}, "case_sensitive attribute", 2},
                                  {"min", f_min, {0}, "case_sensitive attribute", 2},
                                  {"reject", f_reject, {0}, NULL, 0},
                                  {"rejectattr", f_rejectattr, {0}, NULL, 0},
                                  {"reverse", f_reverse, {0}, "", 0},
                                  {"select", f_select, {0}, NULL, 0},
                                  {"selectattr", f_selectattr, {0}, NULL, 0},
                                  {"sort", f_sort, {0}, "reverse case_sensitive attribute", 3},
                                  {"sum", f_sum, {0}, "attribute start", 2},
                                  {"unique", f_unique, {0}, "case_sensitive attribute", 2}};

const jfunction *j_list_filter(const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i].name, name)) return &table[i];
  return NULL;
}
