/* SPDX-License-Identifier: Apache-2.0 */
/* Escapes that stand for one character, in patterns and in classes. */
#include <string.h>

#include "text/tokenizer/regex/dialect.h"
#include "text/unicode/unicode.h"

typedef tok_dialect dialect;

tri_status tok_dialect_refuse(const dialect *d, const char *what) {
  return tok_field_fail(d->where, TRI_UNSUPPORTED, d->err, "the pattern's %s at byte %zu is not supported", what,
                        (size_t)(d->p - d->begin));
}

static tri_status refuse(const dialect *d, const char *what) { return tok_dialect_refuse(d, what); }
static bool at(const dialect *d, size_t i, char c) { return tok_dialect_at(d, i, c); }

/* Copies n bytes of the pattern. */
static tri_status copy_to(dialect *d, tri_buf *out, size_t n) {
  tri_status st = tri_buf_append(out, d->p, n);
  d->p += n;
  return st;
}

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
