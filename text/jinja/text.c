/* SPDX-License-Identifier: Apache-2.0 */
/* Strings that are being made, and what str() and repr() make of values.
 *
 * A buffer has a mark for each byte, 1 for one that is foreign. It doubles when it is full; what it leaves stays in
 * the render's arena until the end. A finished string keeps the marks only if they differ from byte to byte. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/exec.h"
#include "text/unicode/unicode.h"

/* ---- building ---- */

/* False: there is no room. */
static bool reserve(jbuf *b, size_t n) {
  if (!j_ok(b->x)) return false;
  if (n > TRI_JINJA_MOST_TEXT - b->n) {
    j_fail(b->x, TRI_JINJA_LIMIT, "a text has more than %d MiB", TRI_JINJA_MOST_TEXT >> 20);
    return false;
  }
  if (b->n + n <= b->cap) return true;
  size_t cap = 2 * b->cap > b->n + n ? 2 * b->cap : b->n + n + 32;
  char *s = j_alloc(b->x, cap, 1);
  uint8_t *marks = j_alloc(b->x, cap, 1);
  if (!s || !marks) return false;
  if (b->n) {
    memcpy(s, b->s, b->n);
    memcpy(marks, b->marks, b->n);
  }
  b->s = s;
  b->marks = marks;
  b->cap = cap;
  return true;
}

static void append(jbuf *b, const char *s, size_t n, const uint8_t *marks, bool foreign) {
  if (!n || !reserve(b, n)) return;
  memcpy(b->s + b->n, s, n);
  for (size_t i = 0; i < n; i++) {
    uint8_t mark = marks ? marks[i] : foreign;
    b->marks[b->n + i] = mark;
    b->num_foreign += mark;
  }
  b->n += n;
}

void j_put(jbuf *b, const char *s, size_t n) { append(b, s, n, NULL, false); }
void j_puts(jbuf *b, const char *s) { j_put(b, s, strlen(s)); }
void j_put_char(jbuf *b, char c) { j_put(b, &c, 1); }
void j_put_str(jbuf *b, const jstr *s) { append(b, s->s, s->n, s->marks, s->foreign); }

void j_put_part(jbuf *b, const jstr *s, size_t from, size_t to) {
  append(b, s->s + from, to - from, s->marks ? s->marks + from : NULL, s->foreign);
}

static bool any_foreign(jx *x, const jstr *s) {
  if (!s->marks) return s->foreign;
  const uint8_t *first = memchr(s->marks, 1, s->n);
  j_spend(x, (first ? (size_t)(first - s->marks) : s->n) / J_STEP_BYTES);
  return first != NULL;
}

void j_put_as(jbuf *b, const char *s, size_t n, const jstr *from) { append(b, s, n, NULL, any_foreign(b->x, from)); }

jv j_end(jbuf *b) {
  jstr *s = j_alloc(b->x, 1, sizeof *s);
  if (!s) return j_undefined(NULL);
  *s = (jstr){.s = b->n ? b->s : "", .n = b->n, .foreign = b->n && b->num_foreign == b->n};
  if (b->num_foreign && !s->foreign) s->marks = b->marks;
  return (jv){.kind = J_STR, .str = s};
}

jv j_end_like(jbuf *b, const jstr *s) { return s->is_markup ? j_markup(b->x, j_end(b)) : j_end(b); }

/* ---- numbers ---- */

/* The shortest digits that read back as the same double, in Python's form: an exponent below 1e-4 and from 1e16 on,
 * and at least one digit after the point. */
size_t j_float_text(double f, char out[J_FLOAT_TEXT]) {
  char digits[J_FLOAT_TEXT];
  if (isnan(f)) return (size_t)snprintf(out, J_FLOAT_TEXT, "nan");
  if (isinf(f)) return (size_t)snprintf(out, J_FLOAT_TEXT, f < 0 ? "-inf" : "inf");
  int precision = 0;
  do snprintf(digits, sizeof digits, "%.*e", precision, f);
  while (strtod(digits, NULL) != f && ++precision < 17);
  int exponent = atoi(strchr(digits, 'e') + 1);
  if (exponent < -4 || exponent >= 16) return (size_t)snprintf(out, J_FLOAT_TEXT, "%.*e", precision, f);
  int behind = precision - exponent;
  return (size_t)snprintf(out, J_FLOAT_TEXT, "%.*f", behind > 1 ? behind : 1, f);
}

static void put_float(jbuf *b, double f) {
  char text[J_FLOAT_TEXT];
  j_put(b, text, j_float_text(f, text));
}

static void put_int(jbuf *b, int64_t i) {
  char text[24];
  j_put(b, text, (size_t)snprintf(text, sizeof text, "%" PRId64, i));
}

/* ---- str and repr ---- */

/* Python writes what cannot be seen as an escape. */
static bool is_printable(uint32_t c) { return c == ' ' || !(tok_is_other(c) || tok_is_space(c)); }

static void put_char_repr(jbuf *b, const jstr *s, size_t at, size_t len, char quote) {
  char text[12];
  size_t n = 0;
  uint32_t c = tok_utf8_decode(s->s + at, &n);
  static const char from[] = "\n\r\t\\", to[] = "nrt\\";
  const char *named = c < 128 && c ? strchr(from, (int)c) : NULL;
  if (named || c == (uint32_t)(unsigned char)quote) {
    text[0] = '\\';
    text[1] = named ? to[named - from] : quote;
    j_put_as(b, text, 2, s);
  } else if (is_printable(c)) {
    j_put_part(b, s, at, at + len);
  } else {
    const char *form = "\\U%08x";
    if (c < 0x10000) form = "\\u%04x";
    if (c < 0x100) form = "\\x%02x";
    char made[16];
    n = (size_t)snprintf(made, sizeof made, form, c);
    j_put_as(b, made, n, s);
  }
}

/* Single quotes, unless the text has single ones and no double ones. */
static void put_str_repr(jbuf *b, const jstr *s) {
  bool single = memchr(s->s, '\'', s->n) != NULL, twice = memchr(s->s, '"', s->n) != NULL;
  char quote = single && !twice ? '"' : '\'';
  j_put_char(b, quote);
  for (size_t at = 0, len; at < s->n; at += len) {
    tok_utf8_decode(s->s + at, &len);
    put_char_repr(b, s, at, len, quote);
  }
  j_put_char(b, quote);
}

static void put_items(jbuf *b, const jlist *l) {
  for (size_t i = 0; i < l->n && j_ok(b->x); i++) {
    if (i) j_puts(b, ", ");
    j_put_repr(b, l->items[i]);
  }
}

static void put_view(jbuf *b, const jlist *l) {
  j_puts(b, l->shown);
  if (l->is_range) return;
  j_puts(b, "([");
  put_items(b, l);
  j_puts(b, "])");
}

static void put_map(jbuf *b, const jmap *m) {
  j_put_char(b, '{');
  for (size_t i = 0; i < m->n && j_ok(b->x); i++) {
    if (i) j_puts(b, ", ");
    j_put_repr(b, m->pairs[i].key);
    j_puts(b, ": ");
    j_put_repr(b, m->pairs[i].value);
  }
  j_put_char(b, '}');
}

/* Those that Python shows with an address have none here. */
static void put_object(jbuf *b, jv v) {
  j_put_char(b, '<');
  if (j_is(v, J_MACRO)) {
    j_puts(b, "Macro '");
    j_puts(b, v.macro->node->text);
    j_put_char(b, '\'');
  } else {
    j_puts(b, j_type_name(v));
  }
  j_put_char(b, '>');
}

void j_put_repr(jbuf *b, jv v) {
  jx *x = b->x;
  if (!j_visit(x, NULL) || x->depth >= TRI_JINJA_MOST_DEPTH) {
    j_fail(x, TRI_JINJA_LIMIT, "a value is nested more than %d deep", TRI_JINJA_MOST_DEPTH);
    return;
  }
  x->depth++;
  switch (v.kind) {
  case J_UNDEFINED: j_puts(b, "Undefined"); break;
  case J_NONE: j_puts(b, "None"); break;
  case J_BOOL: j_puts(b, v.b ? "True" : "False"); break;
  case J_INT: put_int(b, v.i); break;
  case J_FLOAT: put_float(b, v.f); break;
  case J_LARGE: j_put_str(b, v.str); break;
  case J_STR:
    if (v.str->is_markup) j_puts(b, "Markup(");
    put_str_repr(b, v.str);
    if (v.str->is_markup) j_put_char(b, ')');
    break;
  case J_VIEW: put_view(b, v.list); break;
  case J_LIST:
    j_put_char(b, '[');
    put_items(b, v.list);
    j_put_char(b, ']');
    break;
  case J_TUPLE:
    j_put_char(b, '(');
    put_items(b, v.list);
    j_puts(b, v.list->n == 1 ? ",)" : ")");
    break;
  case J_MAP: put_map(b, v.map); break;
  default: put_object(b, v);
  }
  x->depth--;
}

void j_put_value(jbuf *b, jv v) {
  if (j_is(v, J_STR))
    j_put_str(b, v.str);
  else if (!j_is(v, J_UNDEFINED) && !j_is_soft(v))
    j_put_repr(b, v);
}

jv j_to_str(jx *x, jv v) {
  if (j_is(v, J_STR)) return v;
  jbuf b = j_begin(x);
  j_put_value(&b, v);
  return j_end(&b);
}
