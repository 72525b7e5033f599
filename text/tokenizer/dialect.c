/* SPDX-License-Identifier: Apache-2.0 */
/* From Oniguruma's (Ruby) dialect to PCRE2's.
 *
 * What both spell alike passes through. Rewritten are: sets of characters (dialect_class.c), \b, \uHHHH, \v and {,n}.
 * Everything that is read differently and cannot be rewritten in place is refused, so that a pattern never splits in
 * silence elsewhere than its author saw. */
#include "text/tokenizer/dialect.h"

#include <string.h>

#include "text/tokenizer/regex.h"
#include "text/tokenizer/unicode.h"

typedef tok_dialect dialect;

tri_status tok_dialect_refuse(const dialect *d, const char *what) {
  return tok_field_fail(d->where, TRI_UNSUPPORTED, d->err, "the pattern's %s at byte %zu is not supported", what,
                        (size_t)(d->p - d->begin));
}

static tri_status refuse(const dialect *d, const char *what) { return tok_dialect_refuse(d, what); }
static tri_status put(dialect *d, const char *s) { return tri_buf_append(d->out, s, strlen(s)); }
static bool at(const dialect *d, size_t i, char c) { return tok_dialect_at(d, i, c); }

/* Copies n bytes of the pattern. */
static tri_status copy_to(dialect *d, tri_buf *out, size_t n) {
  tri_status st = tri_buf_append(out, d->p, n);
  d->p += n;
  return st;
}
static tri_status copy(dialect *d, size_t n) { return copy_to(d, d->out, n); }

static bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
static bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static bool hex_digits(const dialect *d, size_t from, size_t n) {
  if ((size_t)(d->end - d->p) < from + n) return false;
  for (size_t i = 0; i < n; i++)
    if (!is_hex(d->p[from + i])) return false;
  return true;
}

/* \xHH and \x{H...}. */
static tri_status hex_escape(dialect *d, tri_buf *out) {
  const char *close = at(d, 2, '{') ? memchr(d->p, '}', (size_t)(d->end - d->p)) : NULL;
  if (close) return copy_to(d, out, (size_t)(close + 1 - d->p));
  /* Two digits are a byte to Oniguruma and a character to PCRE2: the same only for ASCII. */
  return hex_digits(d, 2, 2) && d->p[2] < '8' ? copy_to(d, out, 4) : refuse(d, "\\x");
}

static tri_status unicode_escape(dialect *d, tri_buf *out) {
  if (!hex_digits(d, 2, 4)) return refuse(d, "\\u");
  TRI_CHECK(tri_buf_append(out, "\\x{", 3));
  d->p += 2;
  TRI_CHECK(copy_to(d, out, 4));
  return tri_buf_append(out, "}", 1);
}

tri_status tok_dialect_character(dialect *d, tri_buf *out) {
  if (d->end - d->p < 2) return refuse(d, "final backslash");
  char c = d->p[1];
  switch (c) {
  case 'u': return unicode_escape(d, out);
  case 'x': return hex_escape(d, out);
  case 'v': d->p += 2; return tri_buf_append(out, "\\x0b", 4);
  case 'b': d->p += 2; return tri_buf_append(out, "\\x08", 4); /* within a class */
  case 'n':
  case 'r':
  case 't':
  case 'f':
  case 'a':
  case 'e': return copy_to(d, out, 2);
  default: break;
  }
  if (is_alnum(c)) {
    const char what[] = {'\\', c, '\0'};
    return refuse(d, what);
  }
  size_t n;
  tok_utf8_decode(d->p + 1, &n);
  return copy_to(d, out, n + 1);
}

static tri_status escape(dialect *d) {
  if (tok_dialect_is_set(d)) return tok_dialect_set(d);
  if (at(d, 1, 'b') || at(d, 1, 'B')) return tok_dialect_boundary(d);
  if (at(d, 1, 'A') || at(d, 1, 'z') || at(d, 1, 'Z')) return copy(d, 2);
  return tok_dialect_character(d, d->out);
}

/* Groups that both dialects read alike: plain, (?: (?= (?! (?> (?<= (?<! and (?i: ; (?i) only where it opens the
 * pattern, since its reach differs behind an alternation. */
static tri_status group(dialect *d) {
  if (at(d, 1, '*')) return refuse(d, "(*");
  if (!at(d, 1, '?')) return copy(d, 1);
  if (at(d, 2, ':') || at(d, 2, '=') || at(d, 2, '!') || at(d, 2, '>')) return copy(d, 3);
  if (at(d, 2, '<') && (at(d, 3, '=') || at(d, 3, '!'))) return copy(d, 4);
  size_t i = 2;
  if (at(d, i, '-')) i++;
  if (at(d, i, 'i') && (at(d, i + 1, ':') || (at(d, i + 1, ')') && d->p == d->begin))) return copy(d, i + 2);
  return refuse(d, "group");
}

static size_t count_digits(const dialect *d, const char *from) {
  const char *q = from;
  while (q < d->end && *q >= '0' && *q <= '9') q++;
  return (size_t)(q - from);
}

/* {n}, {n,}, {n,m} and {,m}. Ruby reads a + behind one as a second quantifier, a ? behind {n} as "optional". */
static tri_status braces(dialect *d) {
  const char *q = d->p + 1;
  size_t digits = count_digits(d, q), most = digits;
  bool low = digits > 0, high = false;
  q += digits;
  bool comma = q < d->end && *q == ',';
  if (comma) {
    digits = count_digits(d, ++q);
    high = digits > 0;
    if (digits > most) most = digits;
    q += digits;
  }
  if (q == d->end || *q != '}' || (!low && !high)) { /* no quantifier: a brace that stands for itself */
    d->p++;
    return put(d, "\\{");
  }
  if (q + 1 < d->end && (q[1] == '+' || (q[1] == '?' && !comma))) return refuse(d, "doubled quantifier");
  q += q + 1 < d->end && q[1] == '?' ? 2 : 1;
  if (!low) {
    TRI_CHECK(put(d, "{0"));
    d->p++;
  }
  TRI_CHECK(copy(d, (size_t)(q - d->p)));
  return (comma && !high) || most > 2 ? put(d, "(?C)") : TRI_OK;
}

/* Copies a repeat of any length, lazy or possessive too. The callout behind it is how regex.c counts how far it went.
 */
static tri_status repeat(dialect *d) {
  TRI_CHECK(copy(d, at(d, 1, '?') || at(d, 1, '+') ? 2 : 1));
  return put(d, "(?C)");
}

tri_status tok_dialect_translate(const char *pattern, size_t len, const tok_field *where, tri_buf *out,
                                 tri_error *err) {
  dialect d = {.p = pattern, .end = pattern + len, .begin = pattern, .out = out, .where = where, .err = err};
  while (d.p < d.end) {
    tri_status st;
    if (*d.p == '\\')
      st = escape(&d);
    else if (*d.p == '[')
      st = tok_dialect_class(&d);
    else if (*d.p == '(')
      st = group(&d);
    else if (*d.p == '{')
      st = braces(&d);
    else if (*d.p == '*' || *d.p == '+')
      st = repeat(&d);
    else
      st = copy(&d, 1);
    if (st != TRI_OK) return st;
  }
  return TRI_OK;
}
