/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <string.h>

#include "text/jinja/exec.h"

/* Arguments of functions, found by place or by name as Python finds them, and their types checked with Python's words.
 */
const jv *j_argument(const jargs *a, size_t i, const char *name) {
  if (i < a->n) return &a->list[i];
  for (size_t k = 0; name && k < a->num_named; k++)
    if (j_equals_text(a->named[k].key, name)) return &a->named[k].value;
  return NULL;
}

bool j_has_text(const jv *v) { return v && j_is(*v, J_STR); }

int64_t j_argument_int(jx *x, const jargs *a, size_t i, const char *name, int64_t fallback) {
  const jv *v = j_argument(a, i, name);
  if (!v || j_is(*v, J_NONE)) return fallback;
  if (j_is(*v, J_INT) || j_is(*v, J_BOOL)) return j_integer(*v);
  j_fail(x, TRI_JINJA_TYPE, "argument %zu must be an integer, not %s", i + 1, j_type_name(*v));
  return fallback;
}

bool j_argument_bool(const jargs *a, size_t i, const char *name, bool fallback) {
  const jv *v = j_argument(a, i, name);
  return v ? j_truth(*v) : fallback;
}

const jstr *j_argument_str(jx *x, const jargs *a, size_t i, const char *name, const jstr *fallback) {
  const jv *v = j_argument(a, i, name);
  if (!v || j_is(*v, J_NONE)) return fallback;
  if (j_is(*v, J_STR)) return v->str;
  j_fail(x, TRI_JINJA_TYPE, "argument %zu must be str, not %s", i + 1, j_type_name(*v));
  return NULL;
}

static bool is_word_of(const char *words, const jstr *name) {
  for (; words && *words; words += strspn(words, " ")) {
    size_t n = strcspn(words, " ");
    if (n == name->n && !memcmp(words, name->s, n)) return true;
    words += n;
  }
  return false;
}

static bool takes(jx *x, const jfunction *f, const jargs *a) {
  if (!f->keywords) return true;
  if (a->n + a->num_named > f->most) {
    j_fail(x, TRI_JINJA_TYPE, "%s() takes at most %zu arguments, %zu are given", f->name, f->most, a->n + a->num_named);
    return false;
  }
  for (size_t i = 0; i < a->num_named; i++) {
    const jstr *name = a->named[i].key.str;
    if (is_word_of(f->keywords, name)) continue;
    j_fail(x, TRI_JINJA_TYPE, "%s() takes no keyword argument '%.*s'", f->name, (int)(name->n < 80 ? name->n : 80),
           name->s);
    return false;
  }
  return true;
}

jv j_invoke(jx *x, const jfunction *f, jv on, const jargs *a) {
  return j_ok(x) && takes(x, f, a) ? f->call(x, on, a) : j_undefined(NULL);
}
