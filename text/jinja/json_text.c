/* SPDX-License-Identifier: Apache-2.0 */
/* json.dumps.
 *
 * It has Python's separators, escapes and order; beyond the BMP escapes are surrogate pairs. What an escape stands for
 * keeps the origin of its text (j_put_as): a client's quote is a client's text after escaping, too. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/exec.h"
#include "text/unicode/unicode.h"

static void put_escape(jbuf *b, uint32_t c, const jstr *from) {
  char text[16];
  int n;
  if (c >= 0x10000)
    n = snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
  else
    n = snprintf(text, sizeof text, "\\u%04x", c);
  j_put_as(b, text, (size_t)n, from);
}

static void put_string(jbuf *b, const jstr *s, bool ensure_ascii) {
  static const char from[] = "\"\\\n\r\t\f\b", to[] = "\"\\nrtfb";
  size_t plain = 0;
  j_put_char(b, '"');
  for (size_t at = 0, len; at < s->n; at += len) {
    uint32_t c = tok_utf8_decode(s->s + at, &len);
    const char *named = c && c < 128 ? strchr(from, (int)c) : NULL;
    if (!named && c >= 0x20 && (c < 0x7f || !ensure_ascii)) continue;
    j_put_part(b, s, plain, at);
    plain = at + len;
    if (named) {
      char text[2] = {'\\', to[named - from]};
      j_put_as(b, text, 2, s);
    } else {
      put_escape(b, c, s);
    }
  }
  j_put_part(b, s, plain, s->n);
  j_put_char(b, '"');
}

static void put_line(jbuf *b, const jjson *how, int depth) {
  if (!how->indent) return;
  j_put_char(b, '\n');
  for (int i = 0; i < depth; i++) j_put_str(b, how->indent);
}

static void put_separator(jbuf *b, const jjson *how) {
  if (how->item_separator)
    j_put_str(b, how->item_separator);
  else
    j_puts(b, how->indent ? "," : ", ");
}

static void put_key(jbuf *b, jv key, const jjson *how) {
  if (j_is(key, J_STR)) {
    put_string(b, key.str, how->ensure_ascii);
    return;
  }
  bool has_text = j_is_number(key) || j_is(key, J_LARGE) || j_is(key, J_NONE);
  if (!has_text) {
    j_fail(b->x, TRI_JINJA_TYPE, "keys must be str, int, float, bool or None, not %s", j_type_name(key));
    return;
  }
  j_put_char(b, '"');
  j_put_json(b, key, how, 0);
  j_put_char(b, '"');
}

static int by_key(const void *a, const void *b) {
  const jpair *x = a, *y = b;
  size_t n = x->key.str->n < y->key.str->n ? x->key.str->n : y->key.str->n;
  int c = memcmp(x->key.str->s, y->key.str->s, n);
  return c ? c : (x->key.str->n > y->key.str->n) - (x->key.str->n < y->key.str->n);
}

static const jpair *sorted(jx *x, const jmap *m) {
  jpair *pairs = j_alloc(x, m->n, sizeof *pairs);
  for (size_t i = 0; pairs && i < m->n; i++) {
    if (!j_is(m->pairs[i].key, J_STR)) {
      j_fail(x, TRI_JINJA_TYPE, "keys that are no strings cannot be sorted");
      return NULL;
    }
    pairs[i] = m->pairs[i];
  }
  if (pairs) qsort(pairs, m->n, sizeof *pairs, by_key);
  return pairs;
}

static void put_map(jbuf *b, const jmap *m, const jjson *how, int depth) {
  const jpair *pairs = how->sort_keys ? sorted(b->x, m) : m->pairs;
  j_put_char(b, '{');
  for (size_t i = 0; pairs && i < m->n && j_ok(b->x); i++) {
    if (i) put_separator(b, how);
    put_line(b, how, depth + 1);
    put_key(b, pairs[i].key, how);
    if (how->key_separator)
      j_put_str(b, how->key_separator);
    else
      j_puts(b, ": ");
    j_put_json(b, pairs[i].value, how, depth + 1);
  }
  if (m->n) put_line(b, how, depth);
  j_put_char(b, '}');
}

static void put_list(jbuf *b, const jlist *l, const jjson *how, int depth) {
  j_put_char(b, '[');
  for (size_t i = 0; i < l->n && j_ok(b->x); i++) {
    if (i) put_separator(b, how);
    put_line(b, how, depth + 1);
    j_put_json(b, l->items[i], how, depth + 1);
  }
  if (l->n) put_line(b, how, depth);
  j_put_char(b, ']');
}

static void put_float(jbuf *b, double f) {
  char text[J_FLOAT_TEXT];
  if (isnan(f))
    j_puts(b, "NaN");
  else if (isinf(f))
    j_puts(b, f < 0 ? "-Infinity" : "Infinity");
  else
    j_put(b, text, j_float_text(f, text));
}

void j_put_json(jbuf *b, jv v, const jjson *how, int depth) {
  char text[24];
  if (!j_visit(b->x, NULL)) return;
  if (depth > TRI_JINJA_MOST_DEPTH) {
    j_fail(b->x, TRI_JINJA_LIMIT, "a value is nested more than %d deep", TRI_JINJA_MOST_DEPTH);
    return;
  }
  switch (v.kind) {
  case J_NONE: j_puts(b, "null"); return;
  case J_BOOL: j_puts(b, v.b ? "true" : "false"); return;
  case J_INT: j_put(b, text, (size_t)snprintf(text, sizeof text, "%" PRId64, v.i)); return;
  case J_FLOAT: put_float(b, v.f); return;
  case J_LARGE: j_put_str(b, v.str); return;
  case J_STR: put_string(b, v.str, how->ensure_ascii); return;
  case J_LIST:
  case J_TUPLE: put_list(b, v.list, how, depth); return;
  case J_MAP: put_map(b, v.map, how, depth); return;
  default: j_fail(b->x, TRI_JINJA_TYPE, "Object of type %s is not JSON serializable", j_type_name(v));
  }
}
