/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that every template knows. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "text/jinja/exec.h"

/* A range is a list that remembers how it was made: it is printed as range(...), and slices of it are ranges. All items
 * are made at once; TRI_JINJA_MOST_RANGE bounds them. Ends and steps within a quarter of int64's range keep the
 * differences and sums below from overflowing. */
jv j_range(jx *x, int64_t from, int64_t to, int64_t step) {
  int64_t least = INT64_MIN / 4, most = INT64_MAX / 4, n = 0;
  if (from < least || from > most || to < least || to > most || step < least || step > most)
    return j_fail(x, TRI_JINJA_LIMIT, "a range is too long");
  if (step > 0 && to > from) n = (to - from + step - 1) / step;
  if (step < 0 && to < from) n = (from - to - step - 1) / -step;
  if (n > TRI_JINJA_MOST_RANGE)
    return j_fail(x, TRI_JINJA_LIMIT, "Range too big. The sandbox blocks ranges larger than %d.", TRI_JINJA_MOST_RANGE);
  jv *items = j_alloc(x, (size_t)n, sizeof *items);
  for (int64_t i = 0; items && i < n; i++) items[i] = j_int(from + i * step);
  jv all = j_list(x, J_VIEW, items, (size_t)n);
  char *shown = j_alloc(x, 96, 1);
  if (!shown) return j_undefined(NULL);
  int len = snprintf(shown, 96, "range(%lld, %lld", (long long)from, (long long)to);
  if (step != 1) len += snprintf(shown + len, 96 - (size_t)len, ", %lld", (long long)step);
  snprintf(shown + len, 96 - (size_t)len, ")");
  *all.list = (jlist){.items = items, .n = (size_t)n, .shown = shown, .is_range = true, .from = from, .step = step};
  return all;
}

static jv g_range(jx *x, jv v, const jargs *a) {
  int64_t from = 0, to = j_argument_int(x, a, 0, NULL, 0), step = j_argument_int(x, a, 2, NULL, 1);
  (void)v;
  if (a->n > 1) {
    from = to;
    to = j_argument_int(x, a, 1, NULL, 0);
  }
  if (!a->n || a->n > 3 || a->num_named || !step)
    return j_fail(x, TRI_JINJA_TYPE, "range needs 1 to 3 integers, the last not 0");
  return j_range(x, from, to, step);
}

/* Takes pairs or a mapping, and arguments by name. Of a key that is given twice the later value stays, in the place of
 * the first, as in Python's dict(); those by name are the last. */
static jv make_map(jx *x, const jargs *a, jkind kind) {
  jv m = j_map(x, kind, a->num_named);
  const jv *from = j_argument(a, 0, NULL);
  size_t n = 0;
  if (!j_ok(x)) return m;
  if (from && j_is(*from, J_MAP)) {
    for (size_t i = 0; i < from->map->n; i++) j_map_put(x, m.map, from->map->pairs[i].key, from->map->pairs[i].value);
  } else if (from) {
    const jv *pairs = j_items(x, *from, &n);
    for (size_t i = 0; i < n && j_ok(x); i++) {
      size_t two;
      const jv *pair = j_items(x, pairs[i], &two);
      if (j_ok(x) && two != 2) return j_fail(x, TRI_JINJA_TYPE, "dict() needs pairs");
      if (j_ok(x)) j_map_put(x, m.map, pair[0], pair[1]);
    }
  }
  for (size_t i = 0; i < a->num_named; i++) j_map_put(x, m.map, a->named[i].key, a->named[i].value);
  return m;
}
static jv g_dict(jx *x, jv v, const jargs *a) {
  (void)v;
  return make_map(x, a, J_MAP);
}
static jv g_namespace(jx *x, jv v, const jargs *a) {
  (void)v;
  return make_map(x, a, J_NAMESPACE);
}

static jv g_raise(jx *x, jv v, const jargs *a) {
  const jv *message = j_argument(a, 0, "message");
  (void)v;
  jv text = message ? j_to_str(x, *message) : j_text(x, "");
  if (!j_ok(x)) return text;
  return j_fail(x, TRI_JINJA_RAISED, "%.*s", (int)(text.str->n < 200 ? text.str->n : 200), text.str->s);
}

/* now_s is local time already (jinja.h), hence gmtime_r. */
static jv g_strftime(jx *x, jv v, const jargs *a) {
  enum { MOST = 128 };
  const jstr *format = j_argument_str(x, a, 0, "format", NULL);
  char form[MOST], text[2 * MOST];
  time_t now = (time_t)x->now_s;
  struct tm parts;
  (void)v;
  if (!format || format->n >= sizeof form || !format->n)
    return j_fail(x, TRI_JINJA_TYPE, "strftime_now needs a format of 1 to %d bytes", MOST - 1);
  memcpy(form, format->s, format->n);
  form[format->n] = 0;
  if (!gmtime_r(&now, &parts)) return j_fail(x, TRI_JINJA_TYPE, "there is no such time");
  size_t n = strftime(text, sizeof text, form, &parts);
  char *own = j_alloc(x, n + 1, 1);
  if (!own) return j_undefined(NULL);
  memcpy(own, text, n);
  return j_str(x, own, n);
}

static const jfunction table[] = {{"dict", g_dict, {0}, NULL, 0},
                                  {"namespace", g_namespace, {0}, NULL, 0},
                                  {"raise_exception", g_raise, {0}, NULL, 0},
                                  {"range", g_range, {0}, NULL, 0},
                                  {"strftime_now", g_strftime, {0}, NULL, 0}};

const jfunction *j_global(const char *name) {
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (!strcmp(table[i].name, name)) return &table[i];
  return NULL;
}
