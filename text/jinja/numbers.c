/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that are read from texts, and rounded, as Python does.
 *
 * Integers have 64 bits here and no limit in Python: where a result would need more, the render fails (j_too_large)
 * instead of giving another number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "text/jinja/exec.h"
#include "text/unicode/unicode.h"

jv j_too_large(jx *x) { return j_fail(x, TRI_JINJA_LIMIT, "a number has more than 64 bits"); }

bool j_fits_int(double f) { return f >= -9223372036854775808.0 && f < 9223372036854775808.0; }

/* ---- digits ---- */

int j_digit(uint32_t c) {
  /* Unicode's decimal digits lie in runs of ten: their zeros. */
  static const uint32_t zeros[] = {
      0x30,    0x660,   0x6f0,   0x7c0,   0x966,   0x9e6,   0xa66,   0xae6,   0xb66,   0xbe6,   0xc66,
      0xce6,   0xd66,   0xde6,   0xe50,   0xed0,   0xf20,   0x1040,  0x1090,  0x17e0,  0x1810,  0x1946,
      0x19d0,  0x1a80,  0x1a90,  0x1b50,  0x1bb0,  0x1c40,  0x1c50,  0xa620,  0xa8d0,  0xa900,  0xa9d0,
      0xa9f0,  0xaa50,  0xabf0,  0xff10,  0x104a0, 0x10d30, 0x11066, 0x110f0, 0x11136, 0x111d0, 0x112f0,
      0x11450, 0x114d0, 0x11650, 0x116c0, 0x11730, 0x118e0, 0x11950, 0x11c50, 0x11d50, 0x11da0, 0x16a60,
      0x16ac0, 0x16b50, 0x1d7ce, 0x1d7d8, 0x1d7e2, 0x1d7ec, 0x1d7f6, 0x1e140, 0x1e2f0, 0x1e950, 0x1fbf0};
  for (size_t i = 0; i < sizeof zeros / sizeof *zeros && zeros[i] <= c; i++)
    if (c - zeros[i] < 10) return (int)(c - zeros[i]);
  return -1;
}

bool j_is_decimal(uint32_t c) { return j_digit(c) >= 0; }

bool j_is_digit(uint32_t c) {
  /* Digits that do not make decimal numbers: superscripts, subscripts, those in circles, ... */
  static const uint32_t ranges[][2] = {{0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
                                       {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
                                       {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
                                       {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
                                       {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
    if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
  return j_digit(c) >= 0;
}

/* ---- reading ---- */

/* Returns a text without the white space around it, zero-terminated, with ASCII's digits for others. NULL: it is not
 * a number's, or a failure. */
static char *plain_text(jx *x, const jstr *s, size_t *n) {
  jv stripped = j_strip(x, s, NULL, J_BOTH);
  char *text = j_ok(x) ? j_alloc(x, stripped.str->n + 1, 1) : NULL;
  *n = 0;
  for (size_t at = 0, len; text && at < stripped.str->n; at += len) {
    uint32_t c = tok_utf8_decode(stripped.str->s + at, &len);
    int digit = j_digit(c);
    if (digit >= 0)
      text[(*n)++] = (char)('0' + digit);
    else if (c && c < 128)
      text[(*n)++] = (char)c;
    else
      return NULL;
  }
  return text;
}

/* The value of a digit of any base; 99: it is none. */
static int64_t digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  return c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

/* The base that 0x, 0o or 0b says; 0: none. */
static int64_t prefix_of(const char *s) {
  if (s[0] != '0') return 0;
  if (s[1] == 'x' || s[1] == 'X') return 16;
  if (s[1] == 'o' || s[1] == 'O') return 8;
  return s[1] == 'b' || s[1] == 'B' ? 2 : 0;
}

/* Finds the base and steps over its prefix. False: Python takes none such. */
static bool find_base(const char **s, int64_t *base) {
  int64_t prefix = prefix_of(*s);
  if (*base < 0 || *base == 1 || *base > 36) return false;
  if (prefix && (*base == 0 || *base == prefix)) {
    *base = prefix;
    *s += 2;
    if (**s == '_') ++*s;
  } else if (*base == 0) {
    *base = 10;
    if (**s == '0' && strspn(*s, "0_") != strlen(*s)) return false; /* 010, which was octal */
  }
  return true;
}

jreading j_read_int(jx *x, const jstr *text, int64_t base, int64_t *out) {
  size_t n;
  const char *s = plain_text(x, text, &n);
  bool fits = true;
  if (!s || !n) return J_NOT_READ;
  bool negative = *s == '-';
  s += *s == '-' || *s == '+';
  if (!find_base(&s, &base) || !*s) return J_NOT_READ;
  *out = 0;
  for (char before = '_'; *s; before = *s++) {
    if (*s == '_' && before != '_' && s[1]) continue;
    int64_t digit = digit_of(*s);
    if (digit >= base) return J_NOT_READ;
    fits = fits && !__builtin_mul_overflow(*out, base, out) && !__builtin_sub_overflow(*out, digit, out);
  }
  if (!negative)
    fits = fits && !__builtin_sub_overflow((int64_t)0, *out, out); /* it has gone down: there is one more */
  return fits ? J_READ : J_TOO_LARGE;
}

/* Takes out underscores, which stand between digits. False: one does not. */
static bool drop_underscores(char *s) {
  char *to = s;
  for (char before = 0; *s; before = *s++) {
    if (*s != '_')
      *to++ = *s;
    else if (before < '0' || before > '9' || s[1] < '0' || s[1] > '9')
      return false;
  }
  *to = 0;
  return true;
}

bool j_read_float(jx *x, const jstr *text, double *out) {
  size_t n;
  char *s = plain_text(x, text, &n), *end;
  if (!s || !n || !drop_underscores(s)) return false;
  const char *word = s + (*s == '-' || *s == '+');
  bool is_word = !strcasecmp(word, "inf") || !strcasecmp(word, "infinity") || !strcasecmp(word, "nan");
  if (!is_word && s[strspn(s, "0123456789+-.eE")]) return false;
  *out = strtod(s, &end);
  return !*end;
}

/* ---- rounding ---- */

/* To a multiple of a power of ten; what is half goes to the even one. */
static jv round_int(jx *x, int64_t i, int64_t zeros) {
  int64_t unit = 1, result;
  if (zeros <= 0) return j_int(i);
  if (zeros > 19) return j_int(0);
  /* 10^19 has more than 64 bits: what rounds up to it is too large, the rest is 0. */
  if (zeros == 19)
    return i > 5 * INT64_C(1000000000000000000) || i < -5 * INT64_C(1000000000000000000) ? j_too_large(x) : j_int(0);
  for (int64_t k = 0; k < zeros; k++) unit *= 10;
  int64_t quotient = i / unit, rest = llabs(i % unit), missing = unit - rest;
  if (rest > missing || (rest == missing && quotient % 2)) quotient += i < 0 ? -1 : 1;
  return __builtin_mul_overflow(quotient, unit, &result) ? j_too_large(x) : j_int(result);
}

static double round_float(double f, int64_t precision) {
  enum { MOST = 323 }; /* digits after the point of a double that is not 0 */
  char text[MOST + 320];
  if (!isfinite(f) || precision > MOST) return f;
  if (precision < -308) return 0 * f;
  if (precision < 0) {
    double unit = pow(10, (double)-precision);
    return rint(f / unit) * unit;
  }
  snprintf(text, sizeof text, "%.*f", (int)precision, f); /* rounds what is half as Python does */
  return strtod(text, NULL);
}

jv j_round(jx *x, jv v, int64_t precision) {
  if (j_is(v, J_FLOAT)) return j_float(round_float(v.f, precision));
  if (precision < -1000) precision = -1000;
  return round_int(x, j_integer(v), -precision);
}
