/* SPDX-License-Identifier: Apache-2.0 */
/* From Oniguruma's (Ruby) dialect to PCRE2's.
 *
 * What both spell alike passes through. Rewritten are: sets of characters (dialect_class.c), \b, \uHHHH, \v and {,n}.
 * Everything that is read differently and cannot be rewritten in place is refused, so that a pattern never splits in
 * silence elsewhere than its author saw. */
#include "text/tokenizer/regex/dialect.h"

#include <string.h>

#include "text/tokenizer/regex/regex.h"

typedef tok_dialect dialect;

static tri_status refuse(const dialect *d, const char *what) { return tok_dialect_refuse(d, what); }
static tri_status put(dialect *d, const char *s) { return tri_buf_append(d->out, s, strlen(s)); }
static bool at(const dialect *d, size_t i, char c) { return tok_dialect_at(d, i, c); }

/* Copies n bytes of the pattern. */
static tri_status copy(dialect *d, size_t n) {
  tri_status st = tri_buf_append(d->out, d->p, n);
  d->p += n;
  return st;
}

static tri_status escape(dialect *d) {
  if (tok_dialect_is_set(d)) return tok_dialect_set(d);
  if (at(d, 1, 'b') || at(d, 1, 'B')) return tok_dialect_boundary(d);
  if (at(d, 1, 'A') || at(d, 1, 'z') || at(d, 1, 'Z')) return copy(d, 2);
  return tok_dialect_character(d, d->out);
}

/* Groups that both dialects read alike: plain, (?: (?= (?! (?> (?<= (?<! and (?i: ; (?i) only where it opens the
 * pattern, since its reach differs after an alternation. */
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

/* {n}, {n,}, {n,m} and {,m}. Ruby reads a + after one as a second quantifier, a ? after {n} as "optional". */
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

/* Copies a repeat of any length, lazy or possessive too. The callout after it is how regex.c counts how far it went.
 */
static tri_status repeat(dialect *d) {
  TRI_CHECK(copy(d, at(d, 1, '?') || at(d, 1, '+') ? 2 : 1));
  return put(d, "(?C)");
}

/* One pass, byte by byte: UTF-8's later bytes are none of the characters that mean something. */
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
