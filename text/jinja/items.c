/* SPDX-License-Identifier: Apache-2.0 */
/* Items of values: what `for`, len() and `in` go through. */
#include "text/jinja/exec.h"

/* Pairs lie key after value and items are an array of values alone, hence the copy. */
static const jv *keys_of(jx *x, const jmap *m, size_t *n) {
  jv *keys = j_alloc(x, m->n, sizeof *keys);
  for (size_t i = 0; keys && i < m->n; i++) keys[i] = m->pairs[i].key;
  *n = keys ? m->n : 0;
  return keys;
}

/* An iterator gives its items once: `at` moves to its end. An undefined value has no items instead of failing, as
 * jinja2's default Undefined. */
const jv *j_items(jx *x, jv v, size_t *n) {
  *n = 0;
  if (j_is(v, J_UNDEFINED) || j_is_soft(v)) return NULL;
  if (j_is_sequence(v)) {
    *n = v.list->n;
    return v.list->items;
  }
  if (j_is(v, J_ITER) && v.list->is_broken) {
    j_fail(x, TRI_JINJA_TYPE, "a filter got what cannot be gone through");
    return NULL;
  }
  if (j_is(v, J_ITER)) {
    size_t at = v.list->at;
    v.list->at = v.list->n;
    *n = v.list->n - at;
    return *n ? v.list->items + at : v.list->items; /* which an empty one has none of */
  }
  if (j_is(v, J_MAP)) return keys_of(x, v.map, n);
  if (j_is(v, J_STR)) {
    jstr plain = *v.str; /* the characters of markup are none */
    plain.is_markup = false;
    return j_characters(x, &plain, n).list->items;
  }
  j_fail(x, TRI_JINJA_TYPE, "'%s' object is not iterable", j_type_name(v));
  return NULL;
}

int64_t j_length(jx *x, jv v) {
  if (j_is(v, J_UNDEFINED) || j_is_soft(v)) return 0;
  if (j_is_sequence(v)) return (int64_t)v.list->n;
  if (j_is(v, J_MAP)) return (int64_t)v.map->n;
  if (j_is(v, J_STR)) return j_spend(x, v.str->n / J_STEP_BYTES) ? j_count_characters(v.str) : 0;
  if (j_is(v, J_LOOP)) return (int64_t)v.loop->n;
  j_fail(x, TRI_JINJA_TYPE, "object of type '%s' has no len()", j_type_name(v));
  return 0;
}

/* Characters of a string are not compared one by one: `in` looks for a substring there, as in Python. */
bool j_contains(jx *x, jv in, jv what) {
  size_t n;
  in = j_harden(x, in);
  if (j_is(in, J_STR) && j_ok(x)) {
    what = j_harden(x, what);
    if (j_is(what, J_STR)) return j_find(x, in.str, what.str, 0) != SIZE_MAX;
    j_fail(x, TRI_JINJA_TYPE, "'in <string>' requires string as left operand, not %s", j_type_name(what));
    return false;
  }
  if (j_is(in, J_MAP)) return j_map_find(x, in.map, what) != NULL;
  const jv *items = j_items(x, in, &n);
  j_spend(x, n / J_STEP_ITEMS);
  for (size_t i = 0; i < n && j_ok(x); i++)
    if (j_equal(x, items[i], what)) return true;
  return false;
}
