/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/config.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "text/unicode/unicode.h"

tok_field tok_field_root(const tri_json *node) { return (tok_field){.node = node}; }

/* Paths longer than an error's field lose their tail; the copy is bounded first, which also tells the compiler so. */
static tok_field child(const tok_field *parent, const tri_json *node, const char *suffix) {
  tok_field f = {.node = node};
  size_t n = strnlen(parent->path, sizeof f.path - 1), room = sizeof f.path - 1 - n, m = strnlen(suffix, room);
  memcpy(f.path, parent->path, n);
  memcpy(f.path + n, suffix, m);
  f.path[n + m] = '\0';
  return f;
}

tok_field tok_field_get(const tok_field *object, const char *key) {
  char suffix[TRI_ERROR_FIELD];
  snprintf(suffix, sizeof suffix, "%s%s", object->path[0] ? "." : "", key);
  return child(object, tri_json_get(object->node, key), suffix);
}

tok_field tok_field_at(const tok_field *array, size_t i) {
  char suffix[32];
  snprintf(suffix, sizeof suffix, "[%zu]", i);
  return child(array, tri_json_at(array->node, i), suffix);
}

tri_status tok_field_fail(const tok_field *f, tri_status st, tri_error *err, const char *fmt, ...) {
  char what[TRI_ERROR_MESSAGE];
  va_list args;
  va_start(args, fmt);
  vsnprintf(what, sizeof what, fmt, args);
  va_end(args);
  return tri_fail(err, st, f->path, "%s%s%s", f->path, f->path[0] ? ": " : "", what);
}

tri_status tok_field_wrong(const tok_field *f, const char *expected, tri_error *err) {
  static const char *const kinds[] = {
      [TRI_JSON_NULL] = "null",       [TRI_JSON_BOOL] = "a boolean",  [TRI_JSON_INT] = "an integer",
      [TRI_JSON_REAL] = "a fraction", [TRI_JSON_STRING] = "a string", [TRI_JSON_ARRAY] = "an array",
      [TRI_JSON_OBJECT] = "an object"};
  const char *is = f->node ? kinds[tri_json_kind_of(f->node)] : "missing";
  return tok_field_fail(f, TRI_CORRUPT, err, "must be %s, and is %s", expected, is);
}

tri_status tok_field_no_memory(const tok_field *f, tri_error *err) {
  return tok_field_fail(f, TRI_NO_MEMORY, err, "no memory for the tokenizer");
}

struct allowed_keys {
  const tok_field *object;
  const char *also, *allowed;
  tri_error *err;
};

static tri_status check_key(void *ctx, const char *key, const tri_json *value) {
  (void)value;
  const struct allowed_keys *c = ctx;
  if (c->also && !strcmp(c->also, key)) return TRI_OK;
  if (tri_has_word(c->allowed, key)) return TRI_OK;
  tok_field f = tok_field_get(c->object, key);
  return tok_field_fail(&f, TRI_UNKNOWN_FIELD, c->err, "%.64s is not a known field and might change token ids", key);
}

tri_status tok_field_object(const tok_field *f, const char *allowed, tri_error *err) {
  if (tri_json_kind_of(f->node) != TRI_JSON_OBJECT) return tok_field_wrong(f, "an object", err);
  struct allowed_keys c = {f, NULL, allowed, err};
  return tri_json_each(f->node, check_key, &c);
}

tri_status tok_field_array(const tok_field *f, tri_error *err) {
  if (tri_json_kind_of(f->node) != TRI_JSON_ARRAY) return tok_field_wrong(f, "an array", err);
  return TRI_OK;
}

tri_status tok_field_string(const tok_field *f, const char **out, size_t *len, tri_error *err) {
  size_t n;
  const char *s = tri_json_as_str(f->node, &n);
  if (!s) return tok_field_wrong(f, "a string", err);
  if (!len && strlen(s) != n) return tok_field_fail(f, TRI_CORRUPT, err, "must not hold a NUL character");
  *out = s;
  if (len) *len = n;
  return TRI_OK;
}

tri_status tok_field_bool(const tok_field *object, const char *key, bool *out, tri_error *err) {
  tok_field f = tok_field_get(object, key);
  if (tok_field_is_null(&f) || tri_json_as_bool(f.node, out)) return TRI_OK;
  return tok_field_wrong(&f, "true or false", err);
}

tri_status tok_field_char(const tok_field *f, const char **out, size_t *len, tri_error *err) {
  TRI_CHECK(tok_field_string(f, out, len, err));
  if (tok_utf8_count(*out, *len) == 1 && *len <= 4) return TRI_OK;
  return tok_field_fail(f, TRI_CORRUPT, err, "must be one character");
}

tri_status tok_field_count(const tok_field *f, uint64_t *out, tri_error *err) {
  int64_t n;
  if (!tri_json_as_int(f->node, &n) || n < 0)
    return tok_field_fail(f, TRI_CORRUPT, err, "must be an integer that is not negative");
  *out = (uint64_t)n;
  return TRI_OK;
}

tri_status tok_field_id(const tok_field *f, uint32_t limit, uint32_t *out, tri_error *err) {
  int64_t id;
  if (!tri_json_as_int(f->node, &id)) return tok_field_wrong(f, "a token id", err);
  if (id < 0 || id >= (int64_t)limit)
    return tok_field_fail(f, TRI_OUT_OF_RANGE, err, "token id %lld is not within 0..%lu", (long long)id,
                          (unsigned long)limit - 1);
  *out = (uint32_t)id;
  return TRI_OK;
}

/* A type's own keys are checked here, "type" aside, so that each reader sees known keys only. */
tri_status tok_field_type(const tok_field *object, const void *table, size_t count, size_t size, const char *what,
                          size_t *row, tri_error *err) {
  const char *name;
  if (tri_json_kind_of(object->node) != TRI_JSON_OBJECT) return tok_field_wrong(object, "an object or null", err);
  tok_field type = tok_field_get(object, "type");
  TRI_CHECK(tok_field_string(&type, &name, NULL, err));
  for (*row = 0; *row < count; ++*row) {
    const tok_type *t = (const void *)((const char *)table + *row * size);
    struct allowed_keys c = {object, "type", t->keys, err};
    if (!strcmp(t->name, name)) return tri_json_each(object->node, check_key, &c);
  }
  return tok_field_unsupported_type(object, name, what, err);
}

tri_status tok_field_each(const tok_field *object, const char *key,
                          tri_status (*fn)(void *ctx, const tok_field *element, tri_error *err), void *ctx,
                          tri_error *err) {
  tok_field array = tok_field_get(object, key);
  TRI_CHECK(tok_field_array(&array, err));
  for (size_t i = 0; i < tri_json_size(array.node); i++) {
    tok_field element = tok_field_at(&array, i);
    TRI_CHECK(fn(ctx, &element, err));
  }
  return TRI_OK;
}

tri_status tok_field_unsupported_type(const tok_field *object, const char *type, const char *what, tri_error *err) {
  tok_field f = tok_field_get(object, "type");
  return tok_field_fail(&f, TRI_UNSUPPORTED, err, "%s %.64s is not supported", what, type);
}

/* ---- reals ---- */

/* The digits as an integer, of which those that would exceed 64 bits are dropped, and the power of ten. */
typedef struct decimal {
  uint64_t digits;
  int64_t exponent;
} decimal;

/* Once 64 bits are full, every further digit of the integer part multiplies by ten (exponent + 1), and one of the
 * fraction changes nothing (+ 1 - 1). */
static size_t read_digits(decimal *d, const char *s, size_t n, bool fraction) {
  bool full = false;
  size_t i = 0;
  for (; i < n && s[i] >= '0' && s[i] <= '9'; i++) {
    uint64_t next;
    full = full || __builtin_mul_overflow(d->digits, 10, &next) ||
           __builtin_add_overflow(next, (uint64_t)(s[i] - '0'), &next);
    if (!full) d->digits = next;
    d->exponent += full - fraction;
  }
  return i;
}

static int64_t read_exponent(const char *s, size_t n) {
  int64_t e = 0;
  size_t i = n && (s[0] == '-' || s[0] == '+');
  for (; i < n && e < INT32_MAX; i++) e = e * 10 + (s[i] - '0');
  return s[0] == '-' ? -e : e;
}

/* Powers are literals, since a product of tens is not always the nearest double: pow() and loops would differ from the
 * reference in the last bit. */
static double scale(decimal d) {
#define TEN_POWERS(p) 1e##p##0, 1e##p##1, 1e##p##2, 1e##p##3, 1e##p##4, 1e##p##5, 1e##p##6, 1e##p##7, 1e##p##8, 1e##p##9
  static const double powers[] = {
      TEN_POWERS(),   TEN_POWERS(1),  TEN_POWERS(2),  TEN_POWERS(3),  TEN_POWERS(4),  TEN_POWERS(5),  TEN_POWERS(6),
      TEN_POWERS(7),  TEN_POWERS(8),  TEN_POWERS(9),  TEN_POWERS(10), TEN_POWERS(11), TEN_POWERS(12), TEN_POWERS(13),
      TEN_POWERS(14), TEN_POWERS(15), TEN_POWERS(16), TEN_POWERS(17), TEN_POWERS(18), TEN_POWERS(19), TEN_POWERS(20),
      TEN_POWERS(21), TEN_POWERS(22), TEN_POWERS(23), TEN_POWERS(24), TEN_POWERS(25), TEN_POWERS(26), TEN_POWERS(27),
      TEN_POWERS(28), TEN_POWERS(29), 1e300,          1e301,          1e302,          1e303,          1e304,
      1e305,          1e306,          1e307,          1e308};
  double v = (double)d.digits;
  for (; v != 0 && d.exponent < -308; d.exponent += 308) v /= 1e308;
  if (v == 0) return v;
  if (d.exponent > 308) return HUGE_VAL;
  return d.exponent < 0 ? v / powers[-d.exponent] : v * powers[d.exponent];
}

/* The reference's reader (serde_json, as it comes) rounds twice: the digits to a double, and that times or over a power
 * of ten. A quarter of a vocabulary's scores are thereby off by one bit, and ties between paths are decided so. */
double tok_real_read(const char *s, size_t n) {
  decimal d = {0};
  bool negative = n && s[0] == '-';
  size_t i = negative;
  i += read_digits(&d, s + i, n - i, false);
  if (i < n && s[i] == '.') {
    i++;
    i += read_digits(&d, s + i, n - i, true);
  }
  if (i < n && (s[i] == 'e' || s[i] == 'E')) d.exponent += read_exponent(s + i + 1, n - i - 1);
  double v = scale(d);
  return negative ? -v : v;
}
