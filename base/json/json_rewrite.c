/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json/json_rewrite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t tri_json_string_end(const char *s, size_t n, size_t i) {
  for (i++; i < n && s[i] != '"'; i++)
    if (s[i] == '\\') i++;
  return i < n ? i + 1 : n;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t tri_json_number_end(const char *s, size_t n, size_t i) {
  while (i < n && (is_digit(s[i]) || s[i] == '-' || s[i] == '+' || s[i] == '.' || s[i] == 'e' || s[i] == 'E')) i++;
  return i;
}

/* ---- numbers ---- */

/* A number of JSON in its parts; the texts lie in the document. */
typedef struct number {
  bool negative, real;
  const char *whole, *fraction; /* digits before and after the point */
  size_t num_whole, num_fraction;
  long exponent; /* of ten; at most MOST_EXPONENT either way */
} number;

enum { MOST_EXPONENT = 1 << 20 };

static size_t count_digits(const char *s, size_t n) {
  size_t i = 0;
  while (i < n && is_digit(s[i])) i++;
  return i;
}

static bool read_exponent(const char *s, size_t n, long *out) {
  size_t at = s[0] == '-' || s[0] == '+';
  if (at == n || count_digits(s + at, n - at) != n - at) return false;
  *out = 0;
  for (size_t i = at; i < n && *out < MOST_EXPONENT; i++) *out = 10 * *out + (s[i] - '0');
  if (*out > MOST_EXPONENT) *out = MOST_EXPONENT;
  if (s[0] == '-') *out = -*out;
  return true;
}

/* Returns false for what is no number of JSON, which jansson is to refuse. */
static bool read_number(const char *s, size_t n, number *out) {
  *out = (number){.negative = s[0] == '-'};
  size_t at = out->negative;
  out->whole = s + at;
  out->num_whole = count_digits(s + at, n - at);
  if (!out->num_whole || (out->num_whole > 1 && s[at] == '0')) return false;
  at += out->num_whole;
  out->real = at < n;
  if (at < n && s[at] == '.') {
    out->fraction = s + at + 1;
    out->num_fraction = count_digits(s + at + 1, n - at - 1);
    if (!out->num_fraction) return false;
    at += 1 + out->num_fraction;
  }
  if (at == n) return true;
  return (s[at] == 'e' || s[at] == 'E') && at + 1 < n && read_exponent(s + at + 1, n - at - 1, &out->exponent);
}

static bool is_large_integer(const number *v) {
  const char *most = v->negative ? "9223372036854775808" : "9223372036854775807";
  const size_t digits = strlen(most);
  if (v->num_whole != digits) return v->num_whole > digits;
  return memcmp(v->whole, most, digits) > 0;
}

/* Returns the digit at a place of all digits, as if there were no point. */
static char digit_at(const number *v, size_t i) {
  return i < v->num_whole ? v->whole[i] : v->fraction[i - v->num_whole];
}

/* A real is beyond a double if its first digit stands for more than 1e308; one of that very order of magnitude is read.
 */
static bool is_large_real(const number *v) {
  enum { MOST_DIGITS = 40, LARGEST = 308 };
  size_t first = 0, count = v->num_whole + v->num_fraction;
  while (first < count && digit_at(v, first) == '0') first++;
  if (first == count) return false;
  long order = v->exponent + (long)v->num_whole - (long)first - 1;
  if (order != LARGEST) return order > LARGEST;
  char text[MOST_DIGITS + 8];
  size_t n = 0;
  for (size_t i = first; i < count && n < MOST_DIGITS; i++) {
    text[n++] = digit_at(v, i);
    if (n == 1) text[n++] = '.';
  }
  snprintf(text + n, sizeof text - n, "0e%d", LARGEST);
  return isinf(strtod(text, NULL));
}

static bool is_large(const char *s, size_t n) {
  number v;
  if (!read_number(s, n, &v)) return false;
  return v.real ? is_large_real(&v) : is_large_integer(&v);
}

/* Returns how long the word for a number is that s begins with; 0: it begins with none. */
static size_t word_length(const char *s, size_t n) {
  static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    size_t len = strlen(words[i]);
    if (n >= len && !memcmp(s, words[i], len)) return len;
  }
  return 0;
}

/* ---- the copy ---- */

typedef struct copying {
  const char *s;
  size_t n, done; /* what lies before `done` is in the copy */
  const tri_json_rewriting *how;
  tri_buf *out;
} copying;

/* Copies lazily: nothing is written until something must change, so that nearly all texts are parsed where they lie. */
static tri_status copy_to(copying *c, size_t to) {
  TRI_CHECK(tri_buf_append(c->out, c->s + c->done, to - c->done));
  c->done = to;
  return TRI_OK;
}

static bool is_key(const copying *c, size_t end) {
  while (end < c->n && strchr(" \t\r\n", c->s[end]) && c->s[end]) end++;
  return end < c->n && c->s[end] == ':';
}

/* Replaces each escape of U+0000 and U+0001 in the key from i on. */
static tri_status escape_key(copying *c, size_t i, size_t end) {
  for (; i < end; i++) {
    if (c->s[i] != '\\') continue;
    bool nul = end - i > 6 && !memcmp(c->s + i, "\\u0000", 6), one = end - i > 6 && !memcmp(c->s + i, "\\u0001", 6);
    if (nul || one) {
      TRI_CHECK(copy_to(c, i));
      TRI_CHECK(tri_buf_append(c->out, nul ? "\\u00010" : "\\u00011", 7));
      c->done = i + 6;
    }
    i += nul || one ? 5 : 1;
  }
  return TRI_OK;
}

static tri_status take_string(copying *c, size_t i, size_t end) {
  bool marked = end - i > 7 && !memcmp(c->s + i + 1, "\\u0001", 6);
  if (!marked && !c->how->nul_keys) return TRI_OK;
  if (is_key(c, end)) return c->how->nul_keys ? escape_key(c, i, end) : TRI_OK;
  if (!marked) return TRI_OK;
  TRI_CHECK(copy_to(c, i + 1));
  return tri_buf_append(c->out, "\\u0001", 6);
}

/* A number in the place of a key stays what it is: as a string it would be one. */
static tri_status take_number(copying *c, size_t i, size_t end) {
  if (is_key(c, end)) return TRI_OK;
  TRI_CHECK(copy_to(c, i));
  TRI_CHECK(tri_buf_append(c->out, "\"\\u0001", 7));
  TRI_CHECK(copy_to(c, end));
  return tri_buf_append(c->out, "\"", 1);
}

tri_status tri_json_rewrite(const char *s, size_t n, const tri_json_rewriting *how, tri_buf *out) {
  copying c = {.s = s, .n = n, .how = how, .out = out};
  out->len = 0;
  for (size_t i = 0, end; i < n; i = end) {
    end = i + 1;
    size_t word = how->words && strchr("NI-", s[i]) && s[i] ? word_length(s + i, n - i) : 0;
    if (s[i] == '"') {
      end = tri_json_string_end(s, n, i);
      TRI_CHECK(take_string(&c, i, end));
    } else if (word) {
      end = i + word;
      TRI_CHECK(take_number(&c, i, end));
    } else if (s[i] == '-' || is_digit(s[i])) {
      end = tri_json_number_end(s, n, i);
      if (is_large(s + i, end - i)) TRI_CHECK(take_number(&c, i, end));
    }
  }
  return c.done ? copy_to(&c, n) : TRI_OK;
}
