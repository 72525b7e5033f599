/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes and items: `a.name`, `a[key]`. */
#include <string.h>

#include "text/jinja/exec.h"

jv j_fail_undefined(jx *x, jv v) {
  if (v.name) return j_fail(x, TRI_JINJA_UNDEFINED, "'%.80s' is undefined", v.name);
  return j_fail(x, TRI_JINJA_UNDEFINED, "a value is undefined");
}

static jv neighbour(const jloop *l, int64_t at) {
  return at >= 0 && (size_t)at < l->n ? l->items[at] : j_undefined("there is no such item of the loop");
}

static jv loop_attribute(const jloop *l, const char *text) {
  int64_t at = (int64_t)l->at, n = (int64_t)l->n;
  if (!strcmp(text, "index")) return j_int(at + 1);
  if (!strcmp(text, "index0")) return j_int(at);
  if (!strcmp(text, "revindex")) return j_int(n - at);
  if (!strcmp(text, "revindex0")) return j_int(n - at - 1);
  if (!strcmp(text, "first")) return j_bool(at == 0);
  if (!strcmp(text, "last")) return j_bool(at + 1 == n);
  if (!strcmp(text, "length")) return j_int(n);
  if (!strcmp(text, "previtem")) return neighbour(l, at - 1);
  if (!strcmp(text, "nextitem")) return neighbour(l, at + 1);
  if (!strcmp(text, "depth")) return j_int(1); /* of recursive loops, which there are none of */
  if (!strcmp(text, "depth0")) return j_int(0);
  return j_undefined(text);
}

/* Spends steps by the size of a map: a search through it takes no memory, which would bound it. */
static jv key_of(jx *x, const jmap *m, const char *text) {
  if (!j_spend(x, m->n / J_STEP_ITEMS)) return j_undefined(text);
  for (size_t i = 0; i < m->n; i++)
    if (j_equals_text(m->pairs[i].key, text)) return m->pairs[i].value;
  return j_undefined(text);
}

/* Looks in the order of jinja2's getattr: methods first, then keys. A method of a value that has none of that name is
 * undefined. */
jv j_attribute(jx *x, jv of, const char *text) {
  of = j_harden(x, of);
  if (j_is(of, J_UNDEFINED)) return j_fail_undefined(x, of);
  if (j_is(of, J_NAMESPACE)) return key_of(x, of.map, text);
  if (j_is(of, J_LOOP)) {
    jv v = loop_attribute(of.loop, text);
    return j_is(v, J_UNDEFINED) && v.name == text ? j_method(x, of, text) : v;
  }
  jv method = j_method(x, of, text);
  bool is_key = j_is(of, J_MAP) && j_is(method, J_UNDEFINED) && method.name == text;
  return is_key ? key_of(x, of.map, text) : method;
}

/* An index from the front; -1: there is none. */
static int64_t index_of(int64_t i, int64_t n) {
  if (i < 0) i += n;
  return i >= 0 && i < n ? i : -1;
}

/* Looks in the order of jinja2's getitem: keys first, then attributes. */
jv j_item(jx *x, jv of, jv key) {
  bool integer = j_is(key, J_INT) || j_is(key, J_BOOL);
  size_t n;
  of = j_harden(x, of);
  if (j_is(of, J_UNDEFINED)) return j_fail_undefined(x, of);
  if (j_is(of, J_MAP)) {
    const jv *v = j_map_find(x, of.map, key);
    if (v) return *v;
  } else if ((j_is(of, J_LIST) || j_is(of, J_TUPLE) || j_is_range(of)) && integer) {
    int64_t i = index_of(j_integer(key), (int64_t)of.list->n);
    return i >= 0 ? of.list->items[i] : j_undefined("an item beyond the end of a list");
  } else if (j_is(of, J_STR) && integer) {
    const jv *characters = j_characters(x, of.str, &n).list->items;
    int64_t i = index_of(j_integer(key), (int64_t)n);
    return i >= 0 ? characters[i] : j_undefined("a character beyond the end of a string");
  }
  if (!j_is(key, J_STR)) return j_undefined("an item");
  char *text = j_alloc(x, key.str->n + 1, 1);
  if (!text) return j_undefined(NULL);
  memcpy(text, key.str->s, key.str->n);
  return j_is(of, J_MAP) ? j_method(x, of, text) : j_attribute(x, of, text);
}
