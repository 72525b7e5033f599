/* SPDX-License-Identifier: Apache-2.0 */
/* Methods of strings, dicts, lists and loops. Those that would change their object are errors, as in the sandbox.
 *
 * A method is found by its object's kind and its name and becomes a function value that holds the object: `x.strip` is
 * a value, `x.strip()` a call of it. */
#include <string.h>

#include "text/jinja/exec.h"
#include "text/unicode/unicode.h"

/* ---- strings ---- */

static jv strip(jx *x, jv v, const jargs *a, jside side) {
  const jstr *chars = j_argument_str(x, a, 0, NULL, NULL);
  return j_ok(x) ? j_strip(x, v.str, chars, side) : v;
}
static jv s_strip(jx *x, jv v, const jargs *a) { return strip(x, v, a, J_BOTH); }
static jv s_lstrip(jx *x, jv v, const jargs *a) { return strip(x, v, a, J_LEFT); }
static jv s_rstrip(jx *x, jv v, const jargs *a) { return strip(x, v, a, J_RIGHT); }

static jv s_split(jx *x, jv v, const jargs *a) {
  const jstr *by = j_argument_str(x, a, 0, "sep", NULL);
  int64_t most = j_argument_int(x, a, 1, "maxsplit", -1);
  return j_ok(x) ? j_split(x, v.str, by, most) : v;
}

static jv s_rsplit(jx *x, jv v, const jargs *a) {
  const jstr *by = j_argument_str(x, a, 0, "sep", NULL);
  int64_t most = j_argument_int(x, a, 1, "maxsplit", -1);
  return j_ok(x) ? j_rsplit(x, v.str, by, most) : v;
}

/* Returns three texts: before the first or the last separator, it, and after it. */
static jv partition(jx *x, jv v, const jargs *a, bool last) {
  const jstr *s = v.str, *by = j_argument_str(x, a, 0, NULL, NULL);
  jv *three = j_alloc(x, 3, sizeof *three);
  if (!three) return v;
  if (!by || !by->n) return j_fail(x, TRI_JINJA_TYPE, "a separator must be a text that is not empty");
  size_t at = last ? j_find_last(x, s, by, s->n) : j_find(x, s, by, 0), from = at, to = at + by->n;
  if (at == SIZE_MAX) from = to = last ? 0 : s->n;
  three[0] = j_slice(x, s, 0, from);
  three[1] = j_slice(x, s, from, to);
  three[2] = j_slice(x, s, to, s->n);
  return j_list(x, J_TUPLE, three, 3);
}
static jv s_partition(jx *x, jv v, const jargs *a) { return partition(x, v, a, false); }
static jv s_rpartition(jx *x, jv v, const jargs *a) { return partition(x, v, a, true); }

/* Fills a text up to a width: before it, after it, or on both sides. A width beyond all reason ends at the render's
 * limit of memory, where j_put fails. */
static jv justify(jx *x, jv v, const jargs *a, jside side) {
  static const jstr space = {.s = " ", .n = 1};
  const jv *given = j_argument(a, 0, NULL);
  const jstr *fill = j_argument_str(x, a, 1, NULL, &space);
  int64_t width = j_argument_int(x, a, 0, NULL, 0), room = width - j_count_characters(v.str), before = 0;
  if (j_ok(x) && (!given || j_is(*given, J_NONE) || j_count_characters(fill) != 1))
    return j_fail(x, TRI_JINJA_TYPE, "a text is filled to a width, with one character");
  if (!j_ok(x) || room <= 0) return v;
  if (side == J_LEFT) before = room;
  if (side == J_BOTH) before = room / 2 + (room & width & 1); /* as Python shares an odd number of them */
  jbuf b = j_begin(x);
  for (int64_t i = 0; i < before && j_ok(x); i++) j_put_str(&b, fill);
  j_put_str(&b, v.str);
  for (int64_t i = before; i < room && j_ok(x); i++) j_put_str(&b, fill);
  return j_end(&b);
}
static jv s_center(jx *x, jv v, const jargs *a) { return justify(x, v, a, J_BOTH); }
static jv s_ljust(jx *x, jv v, const jargs *a) { return justify(x, v, a, J_RIGHT); }
static jv s_rjust(jx *x, jv v, const jargs *a) { return justify(x, v, a, J_LEFT); }

/* Zeros stand after the sign. */
static jv s_zfill(jx *x, jv v, const jargs *a) {
  const jv *width = j_argument(a, 0, NULL);
  if (!width || !(j_is(*width, J_INT) || j_is(*width, J_BOOL)))
    return j_fail(x, TRI_JINJA_TYPE, "zfill() needs an integer");
  int64_t room = j_integer(*width) - j_count_characters(v.str);
  size_t sign = v.str->n && (*v.str->s == '-' || *v.str->s == '+');
  jbuf b = j_begin(x);
  j_put_part(&b, v.str, 0, sign);
  for (int64_t i = 0; i < room && j_ok(x); i++) j_put_char(&b, '0');
  j_put_part(&b, v.str, sign, v.str->n);
  return j_end(&b);
}

/* Returns the length of the end of a line at a place; 0: there is none. */
static size_t line_end(const jstr *s, size_t at) {
  size_t len;
  uint32_t c = tok_utf8_decode(s->s + at, &len);
  if (c == '\r' && at + 1 < s->n && s->s[at + 1] == '\n') return 2;
  bool ends_line = (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
  return ends_line ? len : 0;
}

/* Goes through the text twice, to count the lines and to cut them: the list is made in its final size. */
static jv s_splitlines(jx *x, jv v, const jargs *a) {
  bool keep = j_argument_bool(a, 0, "keepends", false);
  const jstr *s = v.str;
  size_t n = 0, from = 0, num = 0;
  if (!j_spend(x, s->n / J_STEP_ITEMS)) return v;
  for (size_t at = 0, len; at < s->n; at += len) {
    len = line_end(s, at);
    n += len > 0;
    if (!len) tok_utf8_decode(s->s + at, &len);
  }
  jv *items = j_alloc(x, n + 1, sizeof *items);
  for (size_t at = 0, len; items && at < s->n && j_ok(x); at += len) {
    size_t end = line_end(s, at);
    tok_utf8_decode(s->s + at, &len);
    if (end) len = end;
    if (!end && at + len < s->n) continue;
    items[num++] = j_slice(x, s, from, keep || !end ? at + len : at);
    from = at + len;
  }
  return j_list(x, J_LIST, items, num);
}

static bool begins(const jstr *s, const jstr *with) { return s->n >= with->n && !memcmp(s->s, with->s, with->n); }
static bool ends(const jstr *s, const jstr *with) {
  return s->n >= with->n && !memcmp(s->s + s->n - with->n, with->s, with->n);
}

/* Returns where character i lies, in bytes; at the most s->n. */
static size_t byte_of(const jstr *s, int64_t i) {
  size_t at = 0;
  for (size_t len; i > 0 && at < s->n; i--, at += len) tok_utf8_decode(s->s + at, &len);
  return at;
}

/* A text from and up to the characters that arguments 1 and 2 say. */
typedef struct part {
  jstr text;
  int64_t skipped; /* characters before it; -1: Python finds nothing there, not even an empty text */
} part;

static part part_of(jx *x, const jstr *s, const jargs *a) {
  part p = {.text = *s};
  if (a->n < 2 || !j_spend(x, s->n / J_STEP_ITEMS)) return p;
  int64_t n = j_count_characters(s), from = j_argument_int(x, a, 1, NULL, 0), to = j_argument_int(x, a, 2, NULL, n);
  if (from < 0) from = from + n < 0 ? 0 : from + n;
  if (to < 0) to = to + n < 0 ? 0 : to + n;
  if (to > n) to = n;
  if (from > to) return (part){.skipped = -1};
  size_t begin = byte_of(s, from), end = byte_of(s, to);
  return (part){.text = {.s = s->s + begin, .n = end - begin}, .skipped = from};
}

/* One text, or a tuple of which any will do. */
static jv any_of(jx *x, jv v, const jargs *a, bool (*fits)(const jstr *, const jstr *)) {
  const jv *with = j_argument(a, 0, NULL);
  part in = part_of(x, v.str, a);
  if (!with || (!j_is(*with, J_STR) && !j_is(*with, J_TUPLE)))
    return j_fail(x, TRI_JINJA_TYPE, "the argument must be str or a tuple of str");
  if (in.skipped < 0) return j_bool(false);
  if (j_is(*with, J_STR)) return j_bool(fits(&in.text, with->str));
  for (size_t i = 0; i < with->list->n; i++) {
    if (!j_is(with->list->items[i], J_STR)) return j_fail(x, TRI_JINJA_TYPE, "a tuple must be one of str");
    if (fits(&in.text, with->list->items[i].str)) return j_bool(true);
  }
  return j_bool(false);
}
static jv s_startswith(jx *x, jv v, const jargs *a) { return any_of(x, v, a, begins); }
static jv s_endswith(jx *x, jv v, const jargs *a) { return any_of(x, v, a, ends); }

static jv remove_end(jx *x, jv v, const jargs *a, bool front) {
  const jstr *what = j_argument_str(x, a, 0, NULL, NULL);
  if (!what) return j_fail(x, TRI_JINJA_TYPE, "the argument must be str");
  if (!(front ? begins : ends)(v.str, what)) return v;
  return front ? j_slice(x, v.str, what->n, v.str->n) : j_slice(x, v.str, 0, v.str->n - what->n);
}
static jv s_removeprefix(jx *x, jv v, const jargs *a) { return remove_end(x, v, a, true); }
static jv s_removesuffix(jx *x, jv v, const jargs *a) { return remove_end(x, v, a, false); }

/* In markup the replacement is escaped before it goes in, as markupsafe does; the rest of the text is markup already.
 */
static jv s_replace(jx *x, jv v, const jargs *a) {
  const jstr *from = j_argument_str(x, a, 0, NULL, NULL), *to = j_argument_str(x, a, 1, NULL, NULL);
  int64_t most = j_argument_int(x, a, 2, "count", -1);
  if (j_ok(x) && (!from || !to)) return j_fail(x, TRI_JINJA_TYPE, "replace expected at least 2 arguments");
  if (!j_ok(x) || !v.str->is_markup) return j_ok(x) ? j_replace(x, v.str, from, to, most) : v;
  jv by = j_escape(x, *j_argument(a, 1, NULL));
  return j_ok(x) ? j_markup(x, j_replace(x, v.str, from, by.str, most)) : v;
}

J_OF_VALUE(s_lower, j_change_case(x, v.str, J_LOWER, false))
J_OF_VALUE(s_upper, j_change_case(x, v.str, J_UPPER, false))
J_OF_VALUE(s_title, j_change_case(x, v.str, J_TITLE, false))
J_OF_VALUE(s_capitalize, j_change_case(x, v.str, J_CAPITALIZE, false))

static jv s_join(jx *x, jv v, const jargs *a) {
  const jv *of = j_argument(a, 0, NULL);
  size_t n = 0;
  const jv *items = of ? j_items(x, *of, &n) : NULL;
  jbuf b = j_begin(x);
  if (!of) return j_fail(x, TRI_JINJA_TYPE, "join() takes exactly one argument");
  for (size_t i = 0; i < n && j_ok(x); i++) {
    if (!j_is(items[i], J_STR))
      return j_fail(x, TRI_JINJA_TYPE, "sequence item %zu: expected str instance, %s found", i, j_type_name(items[i]));
    jv item = v.str->is_markup ? j_escape(x, items[i]) : items[i];
    if (i) j_put_str(&b, v.str);
    if (j_ok(x)) j_put_str(&b, item.str);
  }
  return j_end_like(&b, v.str);
}

static jv s_format(jx *x, jv v, const jargs *a) { return j_format(x, v.str, a); }

/* Returns where a text begins in another, by characters; -1: it is not there. last: the last such place. */
static int64_t find(jx *x, const jstr *s, const jstr *what, bool last) {
  size_t at = last ? j_find_last(x, s, what, s->n) : j_find(x, s, what, 0);
  return at == SIZE_MAX || !j_spend(x, at / J_STEP_BYTES) ? -1 : (int64_t)tok_utf8_count(s->s, at);
}

static jv find_text(jx *x, jv v, const jargs *a, bool last) {
  const jstr *what = j_argument_str(x, a, 0, NULL, NULL);
  if (!what) return j_fail(x, TRI_JINJA_TYPE, "the argument must be str");
  part in = part_of(x, v.str, a);
  int64_t at = in.skipped < 0 ? -1 : find(x, &in.text, what, last);
  return j_int(at < 0 ? at : in.skipped + at);
}
static jv s_find(jx *x, jv v, const jargs *a) { return find_text(x, v, a, false); }
static jv s_rfind(jx *x, jv v, const jargs *a) { return find_text(x, v, a, true); }
static jv s_index(jx *x, jv v, const jargs *a) {
  jv at = find_text(x, v, a, false);
  return j_ok(x) && at.i < 0 ? j_fail(x, TRI_JINJA_TYPE, "substring not found") : at;
}

static jv s_count(jx *x, jv v, const jargs *a) {
  const jstr *what = j_argument_str(x, a, 0, NULL, NULL);
  int64_t n = 0;
  if (!what) return j_fail(x, TRI_JINJA_TYPE, "the argument must be str");
  part in = part_of(x, v.str, a);
  if (in.skipped < 0) return j_int(0);
  if (!j_spend(x, in.text.n / J_STEP_ITEMS)) return v;
  if (!what->n) return j_int(j_count_characters(&in.text) + 1);
  for (size_t at = 0; (at = j_find(x, &in.text, what, at)) != SIZE_MAX; at += what->n) n++;
  return j_int(n);
}

/* All characters are of a kind, and there is one. */
static jv all_are(jx *x, jv v, bool (*kind)(uint32_t c)) {
  const jstr *s = v.str;
  if (!j_spend(x, s->n / J_STEP_ITEMS)) return j_bool(false);
  for (size_t at = 0, len; at < s->n; at += len)
    if (!kind(tok_utf8_decode(s->s + at, &len))) return j_bool(false);
  return j_bool(s->n > 0);
}
static bool is_alphabetic(uint32_t c) { return tok_is_word(c) && !tok_is_number(c) && c != '_' && !tok_is_mark(c); }
static bool is_alphanumeric(uint32_t c) { return is_alphabetic(c) || tok_is_number(c); }
J_OF_VALUE(s_isdigit, all_are(x, v, j_is_digit))
J_OF_VALUE(s_isdecimal, all_are(x, v, j_is_decimal))
J_OF_VALUE(s_isnumeric, all_are(x, v, tok_is_number))
J_OF_VALUE(s_isspace, all_are(x, v, j_is_space))
J_OF_VALUE(s_isalpha, all_are(x, v, is_alphabetic))
J_OF_VALUE(s_isalnum, all_are(x, v, is_alphanumeric))

static const jtable_entry string_methods[] = {{"capitalize", s_capitalize, 0, ""},
                                              {"center", s_center, 2, ""},
                                              {"count", s_count, 3, ""},
                                              {"endswith", s_endswith, 3, ""},
                                              {"find", s_find, 3, ""},
                                              {"format", s_format, 0, NULL},
                                              {"index", s_index, 3, ""},
                                              {"isalnum", s_isalnum, 0, ""},
                                              {"isalpha", s_isalpha, 0, ""},
                                              {"isdecimal", s_isdecimal, 0, ""},
                                              {"isdigit", s_isdigit, 0, ""},
                                              {"isnumeric", s_isnumeric, 0, ""},
                                              {"isspace", s_isspace, 0, ""},
                                              {"join", s_join, 1, ""},
                                              {"ljust", s_ljust, 2, ""},
                                              {"lower", s_lower, 0, ""},
                                              {"lstrip", s_lstrip, 1, ""},
                                              {"partition", s_partition, 1, ""},
                                              {"removeprefix", s_removeprefix, 1, ""},
                                              {"removesuffix", s_removesuffix, 1, ""},
                                              {"replace", s_replace, 3, "count"},
                                              {"rfind", s_rfind, 3, ""},
                                              {"rjust", s_rjust, 2, ""},
                                              {"rpartition", s_rpartition, 1, ""},
                                              {"rsplit", s_rsplit, 2, "sep maxsplit"},
                                              {"rstrip", s_rstrip, 1, ""},
                                              {"split", s_split, 2, "sep maxsplit"},
                                              {"splitlines", s_splitlines, 1, "keepends"},
                                              {"startswith", s_startswith, 3, ""},
                                              {"strip", s_strip, 1, ""},
                                              {"title", s_title, 0, ""},
                                              {"upper", s_upper, 0, ""},
                                              {"zfill", s_zfill, 1, ""}};

/* ---- dicts, lists, loops ---- */

static jv d_get(jx *x, jv v, const jargs *a) {
  const jv *key = j_argument(a, 0, NULL), *fallback = j_argument(a, 1, NULL);
  if (!key) return j_fail(x, TRI_JINJA_TYPE, "get expected at least 1 argument");
  const jv *value = j_map_find(x, v.map, *key);
  if (value) return *value;
  return fallback ? *fallback : j_none();
}

typedef enum kept { KEYS, VALUES, PAIRS } kept;
static jv view(jx *x, jv v, kept of) {
  static const char *const shown[] = {"dict_keys", "dict_values", "dict_items"};
  jv *items = j_alloc(x, v.map->n, sizeof *items);
  for (size_t i = 0; items && i < v.map->n && j_ok(x); i++) {
    const jpair *p = &v.map->pairs[i];
    items[i] = of == KEYS ? p->key : p->value;
    if (of == PAIRS) items[i] = j_pair(x, p->key, p->value);
  }
  jv all = j_list(x, J_VIEW, items, v.map->n);
  if (j_ok(x)) all.list->shown = shown[of];
  return all;
}
J_OF_VALUE(d_keys, view(x, v, KEYS))
J_OF_VALUE(d_values, view(x, v, VALUES))
J_OF_VALUE(d_items, view(x, v, PAIRS))
/* Lists and dicts never change (value.h), so that a copy may be the value itself, and a view above a plain list. */
J_OF_VALUE(d_copy, v)

/* Stands for methods that would change their object, which the sandbox hides. */
J_OF_VALUE(changes, v)
static const char hidden[] = "a method that changes its object";

static const jtable_entry map_methods[] = {{"clear", changes, 0, NULL},   {"copy", d_copy, 0, ""},
                                           {"get", d_get, 2, ""},         {"items", d_items, 0, ""},
                                           {"keys", d_keys, 0, ""},       {"pop", changes, 0, NULL},
                                           {"popitem", changes, 0, NULL}, {"setdefault", changes, 0, NULL},
                                           {"update", changes, 0, NULL},  {"values", d_values, 0, ""}};

static jv l_index(jx *x, jv v, const jargs *a) {
  const jv *what = j_argument(a, 0, NULL);
  j_spend(x, v.list->n / J_STEP_ITEMS);
  for (size_t i = 0; what && i < v.list->n && j_ok(x); i++)
    if (j_equal(x, v.list->items[i], *what)) return j_int((int64_t)i);
  return j_fail(x, TRI_JINJA_TYPE, "the value is not in the list");
}

static jv l_count(jx *x, jv v, const jargs *a) {
  const jv *what = j_argument(a, 0, NULL);
  int64_t n = 0;
  j_spend(x, v.list->n / J_STEP_ITEMS);
  for (size_t i = 0; what && i < v.list->n && j_ok(x); i++) n += j_equal(x, v.list->items[i], *what);
  return j_int(n);
}

static const jtable_entry list_methods[] = {
    {"append", changes, 0, NULL},  {"clear", changes, 0, NULL},  {"copy", d_copy, 0, ""},
    {"count", l_count, 1, ""},     {"extend", changes, 0, NULL}, {"index", l_index, 1, ""},
    {"insert", changes, 0, NULL},  {"pop", changes, 0, NULL},    {"remove", changes, 0, NULL},
    {"reverse", changes, 0, NULL}, {"sort", changes, 0, NULL}};

static jv o_cycle(jx *x, jv v, const jargs *a) {
  if (!a->n) return j_fail(x, TRI_JINJA_TYPE, "no items for cycling given");
  return a->list[v.loop->at % a->n];
}

static jv o_changed(jx *x, jv v, const jargs *a) {
  jv now = j_list(x, J_TUPLE, a->list, a->n);
  jloop *l = v.loop;
  bool changed = !l->has_changed || !j_equal(x, l->changed, now);
  l->changed = now;
  l->has_changed = true;
  return j_bool(changed);
}

static const jtable_entry loop_methods[] = {{"changed", o_changed, SIZE_MAX, ""}, {"cycle", o_cycle, SIZE_MAX, ""}};

/* ---- by kind ---- */

static const jtable_entry *find_entry(const jtable_entry *table, size_t n, const char *name) {
  for (size_t i = 0; i < n; i++)
    if (!strcmp(table[i].name, name)) return &table[i];
  return NULL;
}
#define FIND(table, name) find_entry(table, sizeof(table) / sizeof *(table), name)

jv j_method(jx *x, jv of, const char *name) {
  const jtable_entry *e = NULL;
  if (j_is(of, J_STR)) e = FIND(string_methods, name);
  if (j_is(of, J_MAP)) e = FIND(map_methods, name);
  if (j_is(of, J_LIST) || j_is(of, J_TUPLE)) e = FIND(list_methods, name);
  if (j_is(of, J_TUPLE) && e && e->call != l_index && e->call != l_count) e = NULL;
  if (j_is(of, J_LOOP)) e = FIND(loop_methods, name);
  if (!e) return j_undefined(name);
  if (e->call == changes) return j_undefined(hidden);
  jfunction *f = j_alloc(x, 1, sizeof *f);
  if (!f) return j_undefined(name);
  *f = (jfunction){.name = e->name, .call = e->call, .self = of, .keywords = e->keywords, .most = e->most};
  return (jv){.kind = J_FUNCTION, .function = f};
}
