/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers: at most 19 digits before the point, 17 after it and 3 of an exponent; with bounds no exponent. A bound is a
 * decimal, and a number is compared with it digit by digit: while all digits are those of the bound it is tight, and
 * the next digit may not pass the bound's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_writer.h"
#include "base/text.h"
#include "runtime/grammar/schema_impl.h"

enum { WHOLE = 19, FRACTION = 17, EXPONENT = 3 };
static const uint64_t MOST_WHOLE = 9999999999999999999u;

/* A magnitude. */
typedef struct decimal {
  uint64_t whole;
  char fraction[FRACTION + 1]; /* digits, the last of which is no 0 */
} decimal;

typedef struct bound {
  bool is_there, is_negative, is_exclusive;
  decimal size;
} bound;

/* ---- bounds ---- */

static int compare_sizes(const decimal *a, const decimal *b) {
  if (a->whole != b->whole) return a->whole < b->whole ? -1 : 1;
  return strcmp(a->fraction, b->fraction); /* as many digits as there are: a longer one is larger */
}

static bool is_zero(const bound *b) { return !b->size.whole && !b->size.fraction[0]; }

static int compare_bounds(const bound *a, const bound *b) {
  bool na = a->is_negative && !is_zero(a), nb = b->is_negative && !is_zero(b);
  if (na != nb) return na ? -1 : 1;
  return na ? compare_sizes(&b->size, &a->size) : compare_sizes(&a->size, &b->size);
}

/* Reads a number's shortest decimal text. False: it has an exponent, or more digits than are kept. */
static bool read_decimal(const char *text, bound *out) {
  char *end;
  out->is_there = true;
  out->is_negative = *text == '-';
  text += out->is_negative;
  if (strpbrk(text, "eE") || strcspn(text, ".") > 18) return false;
  out->size.whole = strtoull(text, &end, 10);
  size_t n = *end == '.' ? strlen(end + 1) : 0;
  while (n && end[n] == '0') n--;
  if (n > FRACTION || (*end && *end != '.')) return false;
  if (n) memcpy(out->size.fraction, end + 1, n);
  out->size.fraction[n] = 0;
  return true;
}

/* Takes a keyword of a schema where it is narrower than what is known. is_least: a lower bound. */
static tri_status take_bound(const schema_maker *m, const tri_json *node, const char *keyword, bool is_least,
                             bool is_exclusive, bound *b) {
  const tri_json *v = tri_json_get(node, keyword);
  bound own = {.is_exclusive = is_exclusive};
  tri_buf text = {0};
  double x;
  if (!v || tri_json_kind_of(v) == TRI_JSON_BOOL) return TRI_OK; /* draft 4's exclusiveMinimum is one: see below */
  if (!tri_json_as_num(v, &x))
    return schema_fail(m, TRI_INVALID_ARGUMENT, node, keyword, "%s must be a number", keyword);
  tri_json_add_value(&text, v, false);
  tri_text_add(&text, "", 1);
  bool read = text.data && read_decimal(text.data, &own);
  tri_buf_free(&text);
  if (!read)
    return schema_fail(m, TRI_UNSUPPORTED, node, keyword,
                       "%s is kept with up to 18 digits before the point and %d behind it, without an exponent",
                       keyword, FRACTION);
  int order = b->is_there ? compare_bounds(&own, b) : is_least ? 1 : -1;
  if (is_least ? order > 0 : order < 0) *b = own;
  if (!order) b->is_exclusive = b->is_exclusive || is_exclusive;
  return TRI_OK;
}

static tri_status take_bounds(const schema_maker *m, const tri_json *node, bound *least, bound *most) {
  bool low = false, high = false;
  tri_json_as_bool(tri_json_get(node, "exclusiveMinimum"), &low);
  tri_json_as_bool(tri_json_get(node, "exclusiveMaximum"), &high);
  TRI_CHECK(take_bound(m, node, "minimum", true, low, least));
  TRI_CHECK(take_bound(m, node, "exclusiveMinimum", true, true, least));
  TRI_CHECK(take_bound(m, node, "maximum", false, high, most));
  return take_bound(m, node, "exclusiveMaximum", false, true, most);
}

/* ---- digits ---- */

typedef struct digits {
  tri_net *net;
  uint32_t owner, to;
  char lo[WHOLE + 1], hi[WHOLE + 1]; /* of as many digits as the number has */
  int num;
} digits;

/* Any digits from `from` on: as many as are left. */
static void add_free(const digits *d, uint32_t from, int left) {
  for (; left > 0; left--) {
    uint32_t next = tri_net_add_state(d->net, d->owner);
    tri_net_add_edge(d->net, from, '0', '9', next, TRI_NET_ANY);
    from = next;
  }
  tri_net_add_step(d->net, from, d->to, TRI_NET_ANY);
}

static void add_digits(const digits *d, uint32_t from, int at, bool tight_lo, bool tight_hi) {
  if (at == d->num || (!tight_lo && !tight_hi)) {
    add_free(d, from, d->num - at);
    return;
  }
  char lo = tight_lo ? d->lo[at] : '0', hi = tight_hi ? d->hi[at] : '9';
  uint32_t next = tri_net_add_state(d->net, d->owner);
  if (tight_lo && tight_hi && lo == hi) {
    tri_net_add_edge(d->net, from, (uint8_t)lo, (uint8_t)lo, next, TRI_NET_ANY);
    add_digits(d, next, at + 1, true, true);
    return;
  }
  if (tight_lo) {
    tri_net_add_edge(d->net, from, (uint8_t)lo, (uint8_t)lo, next, TRI_NET_ANY);
    add_digits(d, next, at + 1, true, false);
    next = tri_net_add_state(d->net, d->owner);
    lo++;
  }
  if (tight_hi) {
    tri_net_add_edge(d->net, from, (uint8_t)hi, (uint8_t)hi, next, TRI_NET_ANY);
    add_digits(d, next, at + 1, false, true);
    next = tri_net_add_state(d->net, d->owner);
    hi--;
  }
  if (lo > hi) return;
  tri_net_add_edge(d->net, from, (uint8_t)lo, (uint8_t)hi, next, TRI_NET_ANY);
  add_digits(d, next, at + 1, false, false);
}

/* Integers from lo to hi, without leading zeros. */
static void add_whole(tri_net *n, uint32_t from, uint64_t lo, uint64_t hi, uint32_t to) {
  char first[24], last[24];
  if (lo > hi) return;
  int shortest = snprintf(first, sizeof first, "%llu", (unsigned long long)lo);
  int longest = snprintf(last, sizeof last, "%llu", (unsigned long long)hi);
  for (int len = shortest; len <= longest; len++) {
    digits d = {.net = n, .owner = tri_net_state_at(n, from)->rule, .to = to, .num = len};
    memset(d.lo, '0', (size_t)len);
    memset(d.hi, '9', (size_t)len);
    if (len > 1 || lo) d.lo[0] = '1';
    if (len == 1 && !lo) d.lo[0] = '0';
    if (len == shortest) memcpy(d.lo, first, (size_t)len);
    if (len == longest) memcpy(d.hi, last, (size_t)len);
    add_digits(&d, from, 0, true, true);
  }
}

/* ---- fractions ---- */

typedef struct fraction {
  tri_net *net;
  uint32_t owner, to;
  const char *lo, *hi; /* digits; NULL: no bound */
  bool over, under;    /* it must be more than lo, less than hi */
} fraction;

/* Whether a fraction may end after `at` digits, with zeros for the rest. */
static bool may_end(const fraction *f, int at, bool tight_lo, bool tight_hi) {
  bool rest_lo = tight_lo && at < (int)strlen(f->lo), rest_hi = tight_hi && at < (int)strlen(f->hi);
  if (tight_lo && (rest_lo || f->over)) return false;
  return !tight_hi || rest_hi || !f->under;
}

static char digit_at(const char *digits, int at) { return at < (int)strlen(digits) ? digits[at] : '0'; }

/* The digits after so many, of which one has to come where `must`. */
static void add_fraction(const fraction *f, uint32_t from, int at, bool tight_lo, bool tight_hi, bool must) {
  if (!must && may_end(f, at, tight_lo, tight_hi)) tri_net_add_step(f->net, from, f->to, TRI_NET_ANY);
  if (at == FRACTION) return;
  char lo = tight_lo ? digit_at(f->lo, at) : '0', hi = tight_hi ? digit_at(f->hi, at) : '9';
  for (char c = lo; c <= hi;) {
    bool low = tight_lo && c == lo, high = tight_hi && c == hi;
    char last = c;
    while (!low && !high && last < hi && !(tight_hi && last + 1 == hi)) last++;
    uint32_t next = tri_net_add_state(f->net, f->owner);
    tri_net_add_edge(f->net, from, (uint8_t)c, (uint8_t)last, next, TRI_NET_ANY);
    add_fraction(f, next, at + 1, low, high, false);
    c = (char)(last + 1);
  }
}

/* What may follow the whole part: nothing, or a point and digits. */
static void add_rest(tri_net *n, uint32_t from, const decimal *lo, bool over, const decimal *hi, bool under,
                     uint32_t to) {
  fraction f = {n,    tri_net_state_at(n, from)->rule, to, lo ? lo->fraction : NULL, hi ? hi->fraction : NULL, over,
                under};
  if (may_end(&f, 0, lo != NULL, hi != NULL)) tri_net_add_step(n, from, to, TRI_NET_ANY);
  uint32_t point = tri_net_add_state(n, f.owner);
  tri_net_add_edge(n, from, '.', '.', point, TRI_NET_ANY);
  add_fraction(&f, point, 0, lo != NULL, hi != NULL, true);
}

/* ---- magnitudes ---- */

/* Magnitudes between two, hi NULL: no bound. */
static void add_sizes(tri_net *n, uint32_t from, const bound *lo, const bound *hi, bool is_integer, uint32_t to) {
  uint32_t owner = tri_net_state_at(n, from)->rule, whole = tri_net_add_state(n, owner);
  uint64_t first = lo->size.whole, last = hi ? hi->size.whole : MOST_WHOLE;
  if (is_integer) {
    first += lo->size.fraction[0] || lo->is_exclusive;
    if (hi && !hi->size.fraction[0] && hi->is_exclusive) {
      if (!last) return;
      last--;
    }
    add_whole(n, from, first, last, to);
    return;
  }
  if (hi && (compare_sizes(&lo->size, &hi->size) > 0 ||
             (!compare_sizes(&lo->size, &hi->size) && (lo->is_exclusive || hi->is_exclusive))))
    return;
  if (hi && first == last) {
    add_whole(n, from, first, first, whole);
    add_rest(n, whole, &lo->size, lo->is_exclusive, &hi->size, hi->is_exclusive, to);
    return;
  }
  add_whole(n, from, first, first, whole);
  add_rest(n, whole, &lo->size, lo->is_exclusive, NULL, false, to);
  whole = tri_net_add_state(n, owner);
  if (first < last) add_whole(n, from, first + 1, hi ? last - 1 : last, whole);
  add_rest(n, whole, NULL, false, NULL, false, to);
  if (!hi) return;
  whole = tri_net_add_state(n, owner);
  add_whole(n, from, last, last, whole);
  add_rest(n, whole, NULL, false, &hi->size, hi->is_exclusive, to);
}

static void add_bounded(tri_net *n, uint32_t from, const bound *least, const bound *most, bool is_integer,
                        uint32_t to) {
  static const bound zero = {.is_there = true}, above_zero = {.is_there = true, .is_exclusive = true};
  bool negative_least = !least->is_there || (least->is_negative && !is_zero(least));
  bool negative_most = most->is_there && most->is_negative && !is_zero(most);
  if (negative_least) {
    uint32_t sign = tri_net_add_bytes(n, from, "-", 1, TRI_NET_ANY);
    add_sizes(n, sign, negative_most ? most : &above_zero, least->is_there ? least : NULL, is_integer, to);
  }
  if (!negative_most) add_sizes(n, from, negative_least ? &zero : least, most->is_there ? most : NULL, is_integer, to);
}

/* ---- numbers without bounds ---- */

static void add_unbounded(tri_net *n, uint32_t from, bool is_integer, uint32_t to) {
  uint32_t owner = tri_net_state_at(n, from)->rule, sign = tri_net_add_state(n, owner),
           whole = tri_net_add_state(n, owner);
  tri_net_add_step(n, from, sign, TRI_NET_ANY);
  tri_net_add_edge(n, from, '-', '-', sign, TRI_NET_ANY);
  add_whole(n, sign, 0, MOST_WHOLE, is_integer ? to : whole);
  if (is_integer) return;
  uint32_t behind = tri_net_add_state(n, owner), marked = tri_net_add_state(n, owner),
           signed_ = tri_net_add_state(n, owner);
  add_rest(n, whole, NULL, false, NULL, false, behind);
  tri_net_add_step(n, behind, to, TRI_NET_ANY);
  tri_net_add_edge(n, behind, 'e', 'e', marked, TRI_NET_ANY);
  tri_net_add_edge(n, behind, 'E', 'E', marked, TRI_NET_ANY);
  tri_net_add_step(n, marked, signed_, TRI_NET_ANY);
  tri_net_add_edge(n, marked, '+', '+', signed_, TRI_NET_ANY);
  tri_net_add_edge(n, marked, '-', '-', signed_, TRI_NET_ANY);
  for (int i = 0; i < EXPONENT; i++) {
    uint32_t next = tri_net_add_state(n, owner);
    tri_net_add_edge(n, signed_, '0', '9', next, TRI_NET_ANY);
    tri_net_add_step(n, next, to, TRI_NET_ANY);
    signed_ = next;
  }
}

/* A rule of its own, so that what is without bounds is made once. */
static uint32_t unbounded_rule(schema_maker *m, bool is_integer) {
  uint32_t *rule = is_integer ? &m->any_integer : &m->any_number;
  if (*rule) return *rule;
  *rule = tri_net_add_rule(m->net, 0);
  uint32_t to = tri_net_add_state(m->net, *rule);
  if (!to) return 0;
  add_unbounded(m->net, tri_net_first_state(m->net, *rule), is_integer, to);
  tri_net_set_final(m->net, to, 0);
  return *rule;
}

/* The formats of integers are bounds. Returns whether a schema has one. */
static bool take_format(const tri_json *node, bound *least, bound *most) {
  const char *format = tri_json_get_str(node, "format");
  bool is_32 = format && !strcmp(format, "int32"), is_64 = format && !strcmp(format, "int64");
  uint64_t last = is_32 ? INT32_MAX : INT64_MAX;
  bound lo = {.is_there = true, .is_negative = true, .size.whole = last + 1};
  bound hi = {.is_there = true, .size.whole = last};
  if (!is_32 && !is_64) return false;
  if (!least->is_there || compare_bounds(&lo, least) > 0) *least = lo;
  if (!most->is_there || compare_bounds(&hi, most) < 0) *most = hi;
  return true;
}

tri_status schema_numbers(schema_maker *m, const schema_set *set, bool is_integer, uint32_t from, uint32_t to) {
  bound least = {.is_there = false}, most = {.is_there = false};
  for (size_t i = 0; i < set->num; i++) {
    TRI_CHECK(take_bounds(m, set->nodes[i], &least, &most));
    is_integer = take_format(set->nodes[i], &least, &most) || is_integer;
  }
  if (!from || !tri_net_is_whole(m->net)) return TRI_OK; /* which tri_net_finish says */
  if (least.is_there || most.is_there)
    add_bounded(m->net, from, &least, &most, is_integer, to);
  else
    tri_net_add_call(m->net, from, unbounded_rule(m, is_integer), to, TRI_NET_ANY);
  return TRI_OK;
}
