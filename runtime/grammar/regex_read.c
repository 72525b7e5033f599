/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "runtime/grammar/categories.h"
#include "runtime/grammar/regex_impl.h"

typedef struct reader {
  expr_context *x;
  const uint32_t *text; /* [num], a zero after it */
  size_t num, at;
  int depth;
} reader;

static tri_status refuse(const reader *r, tri_status st, size_t place, const char *what) {
  return tri_fail(r->x->err, st, "", "character %zu: %s", place + 1, what);
}

static bool is_at(const reader *r, uint32_t c) { return r->at < r->num && r->text[r->at] == c; }

static bool take(reader *r, uint32_t c) {
  if (!is_at(r, c)) return false;
  r->at++;
  return true;
}

static bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
static bool is_letter(uint32_t c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; }

/* ---- sets with names ---- */

typedef struct named_set {
  char letter;
  int num;
  charset_range list[11];
} named_set;

static const named_set sets[] = {
    {'d', 1, {{'0', '9'}}},
    {'w', 4, {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
    {'s',
     10,
     {{9, 13},
      {' ', ' '},
      {0xa0, 0xa0},
      {0x1680, 0x1680},
      {0x2000, 0x200a},
      {0x2028, 0x2029},
      {0x202f, 0x202f},
      {0x205f, 0x205f},
      {0x3000, 0x3000},
      {0xfeff, 0xfeff}}},
    {'.', 3, {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}}, /* all but these */
};

static tri_status add_all(expr_context *x, charset *out, const charset_range *list, size_t num) {
  for (size_t i = 0; i < num; i++)
    if (!charset_add(x->arena, out, list[i].lo, list[i].hi)) return TRI_NO_MEMORY;
  return expr_work(x, num);
}

static tri_status add_set(expr_context *x, charset *out, char letter, bool invert) {
  charset own = {0};
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
    if (sets[i].letter == letter) TRI_CHECK(add_all(x, &own, sets[i].list, (size_t)sets[i].num));
  if (invert && (!charset_sort(x->arena, &own) || !charset_invert(x->arena, &own))) return TRI_NO_MEMORY;
  return add_all(x, out, own.list, own.num);
}

/* \p{...} and \P{...}, of which the letter is read. */
static tri_status add_property(reader *r, size_t place, bool invert, charset *out) {
  char name[64];
  size_t len = 0;
  bool is_known;
  charset own = {0};
  if (!take(r, '{')) return refuse(r, TRI_INVALID_ARGUMENT, place, "\\p needs a name in braces");
  while (r->at < r->num && !is_at(r, '}') && len + 1 < sizeof name && r->text[r->at] < 0x80)
    name[len++] = (char)r->text[r->at++];
  name[len] = 0;
  if (!take(r, '}') || strlen(name) != len)
    return refuse(r, TRI_INVALID_ARGUMENT, place, "\\p needs a name in braces, of ASCII and less than 64 characters");
  TRI_CHECK(categories_add(r->x, name, &own, &is_known));
  if (!is_known)
    return tri_fail(r->x->err, TRI_UNSUPPORTED, "",
                    "character %zu: \\p{%s}: only general categories are known, Any, ASCII and Assigned", place + 1,
                    name);
  if (!charset_sort(r->x->arena, &own) || (invert && !charset_invert(r->x->arena, &own))) return TRI_NO_MEMORY;
  return add_all(r->x, out, own.list, own.num);
}

/* ---- escapes ---- */

static int hex_value(uint32_t c) {
  if (is_digit(c)) return (int)(c - '0');
  return (c | 32) >= 'a' && (c | 32) <= 'f' ? (int)((c | 32) - 'a' + 10) : -1;
}

/* Reads so many hexadecimal digits. */
static bool take_hex(reader *r, int digits, uint32_t *out) {
  size_t at = r->at;
  *out = 0;
  for (int i = 0; i < digits; i++, at++) {
    int value = at < r->num ? hex_value(r->text[at]) : -1;
    if (value < 0) return false;
    *out = *out << 4 | (uint32_t)value;
  }
  r->at = at;
  return true;
}

static bool is_surrogate(uint32_t c, uint32_t first) { return c >= first && c < first + 0x400; }

/* A code point as \u{...}, of which the brace is read. */
static bool take_braced(reader *r, uint32_t *out) {
  size_t first = r->at;
  *out = 0;
  while (r->at < r->num && hex_value(r->text[r->at]) >= 0 && *out <= CHARSET_LAST)
    *out = *out << 4 | (uint32_t)hex_value(r->text[r->at++]);
  return r->at > first && *out <= CHARSET_LAST && take(r, '}');
}

static tri_status read_unicode(reader *r, size_t place, uint32_t *out) {
  uint32_t low;
  if (take(r, '{')) {
    if (!take_braced(r, out)) return refuse(r, TRI_INVALID_ARGUMENT, place, "\\u{...} needs a code point up to 10FFFF");
  } else if (!take_hex(r, 4, out)) {
    return refuse(r, TRI_INVALID_ARGUMENT, place, "\\u needs four hexadecimal digits, or a code point in braces");
  } else if (is_surrogate(*out, 0xd800) && is_at(r, '\\') && r->at + 1 < r->num && r->text[r->at + 1] == 'u') {
    r->at += 2;
    if (take_hex(r, 4, &low) && is_surrogate(low, 0xdc00)) *out = 0x10000 + ((*out - 0xd800) << 10 | (low - 0xdc00));
  }
  if (*out >= 0xd800 && *out < 0xe000) return refuse(r, TRI_INVALID_ARGUMENT, place, "a surrogate is no character");
  return TRI_OK;
}

static tri_status read_control(reader *r, size_t place, uint32_t *out) {
  if (r->at == r->num || !is_letter(r->text[r->at]))
    return refuse(r, TRI_INVALID_ARGUMENT, place, "\\c needs a letter");
  *out = r->text[r->at++] & 31;
  return TRI_OK;
}

/* Reads what follows a backslash: one character, or a set. */
static tri_status read_escape(reader *r, bool in_class, charset *set, bool *is_set, uint32_t *out) {
  static const char letters[] = "tnvfr", controls[] = "\t\n\v\f\r";
  size_t place = r->at - 1;
  *is_set = false;
  if (r->at == r->num) return refuse(r, TRI_INVALID_ARGUMENT, place, "nothing follows the backslash");
  uint32_t c = *out = r->text[r->at++];
  const char *found = c && c < 0x80 ? strchr(letters, (int)c) : NULL;
  if (found) {
    *out = (uint8_t)controls[found - letters];
    return TRI_OK;
  }
  if (c == 'b' && in_class) {
    *out = '\b';
    return TRI_OK;
  }
  *is_set = c && c < 0x80 && strchr("dDwWsSpP", (int)c);
  if (c == 'p' || c == 'P') return add_property(r, place, c == 'P', set);
  if (*is_set) return add_set(r->x, set, (char)(c | 32), !(c & 32));
  if (c == 'u') return read_unicode(r, place, out);
  if (c == 'c') return read_control(r, place, out);
  if (c == 'x')
    return take_hex(r, 2, out) ? TRI_OK : refuse(r, TRI_INVALID_ARGUMENT, place, "\\x needs two hexadecimal digits");
  if (c == '0' && !(r->at < r->num && is_digit(r->text[r->at]))) {
    *out = 0;
    return TRI_OK;
  }
  if (c == 'b' || c == 'B') return refuse(r, TRI_UNSUPPORTED, place, "\\b and \\B cannot be kept");
  if (is_digit(c) || c == 'k') return refuse(r, TRI_UNSUPPORTED, place, "references to groups cannot be kept");
  if (is_letter(c) || c >= 0x80 || c < ' ')
    return refuse(r, TRI_INVALID_ARGUMENT, place, "an escape that is not known");
  return TRI_OK;
}

/* ---- classes ---- */

static tri_status read_member(reader *r, charset *set, bool *is_set, uint32_t *c) {
  *is_set = false;
  *c = r->text[r->at++];
  return *c == '\\' ? read_escape(r, true, set, is_set, c) : TRI_OK;
}

/* A character, a range or a set with a name. */
static tri_status read_range(reader *r, charset *set) {
  bool is_set, ends_in_set = false;
  uint32_t lo, hi;
  size_t place = r->at;
  TRI_CHECK(read_member(r, set, &is_set, &lo));
  hi = lo;
  bool is_range = is_at(r, '-') && r->at + 1 < r->num && r->text[r->at + 1] != ']';
  if (is_range && !is_set) {
    r->at++;
    TRI_CHECK(read_member(r, set, &ends_in_set, &hi));
    if (ends_in_set) { /* [a-\d]: the three of them */
      if (!charset_add(r->x->arena, set, '-', '-')) return TRI_NO_MEMORY;
      hi = lo;
    }
    if (lo > hi) return refuse(r, TRI_INVALID_ARGUMENT, place, "the range ends before it begins");
  }
  if (!is_set && !charset_add(r->x->arena, set, lo, hi)) return TRI_NO_MEMORY;
  return expr_work(r->x, 10);
}

static tri_status read_class(reader *r, const expr **out) {
  size_t place = r->at - 1;
  charset set = {0};
  bool invert = take(r, '^');
  while (r->at < r->num && !is_at(r, ']')) TRI_CHECK(read_range(r, &set));
  if (!take(r, ']')) return refuse(r, TRI_INVALID_ARGUMENT, place, "the class has no end");
  if (!charset_sort(r->x->arena, &set) || (invert && !charset_invert(r->x->arena, &set))) return TRI_NO_MEMORY;
  TRI_CHECK(expr_work(r->x, 4 * set.num));
  return expr_class(r->x, &set, place + 1, out);
}

static tri_status one_class(reader *r, uint32_t c, const expr **out) {
  charset set = {0};
  if (!charset_add(r->x->arena, &set, c, c)) return TRI_NO_MEMORY;
  return expr_class(r->x, &set, r->at, out);
}

static tri_status named_class(reader *r, charset *set, const expr **out) {
  if (!charset_sort(r->x->arena, set)) return TRI_NO_MEMORY;
  return expr_class(r->x, set, r->at, out);
}

/* ---- repetitions ---- */

/* Reads a number, EXPR_NO_LIMIT of one that is too large. */
static bool take_number(reader *r, uint32_t *out) {
  uint64_t n = 0;
  size_t first = r->at;
  for (; r->at < r->num && is_digit(r->text[r->at]); r->at++)
    if (n < EXPR_NO_LIMIT) n = 10 * n + (r->text[r->at] - '0');
  *out = n < EXPR_NO_LIMIT ? (uint32_t)n : EXPR_NO_LIMIT;
  return r->at > first;
}

/* {m}, {m,} or {m,n}; otherwise the brace stands for itself, and nothing is read. */
static bool take_braces(reader *r, uint32_t *least, uint32_t *most, bool *is_large) {
  size_t begin = r->at;
  bool is_number = take(r, '{') && take_number(r, least);
  *is_large = is_number && *least == EXPR_NO_LIMIT;
  *most = *least;
  if (is_number && take(r, ',')) {
    if (take_number(r, most))
      *is_large = *is_large || *most == EXPR_NO_LIMIT;
    else
      *most = EXPR_NO_LIMIT;
  }
  if (is_number && take(r, '}')) return true;
  r->at = begin;
  return false;
}

/* Returns whether {,n} comes, which means one thing to some and another to others. */
static bool is_half_braced(const reader *r) {
  size_t at = r->at + 2;
  if (!is_at(r, '{') || r->at + 1 >= r->num || r->text[r->at + 1] != ',') return false;
  while (at < r->num && is_digit(r->text[at])) at++;
  return at > r->at + 2 && at < r->num && r->text[at] == '}';
}

static tri_status read_times(reader *r, const expr *atom, const expr **out) {
  uint32_t least = 1, most = 1;
  bool is_large = false;
  size_t place = r->at;
  *out = atom;
  if (is_half_braced(r)) return refuse(r, TRI_UNSUPPORTED, place, "{,n} must be written as {0,n}");
  if (take(r, '*')) {
    least = 0;
    most = EXPR_NO_LIMIT;
  } else if (take(r, '+')) {
    most = EXPR_NO_LIMIT;
  } else if (take(r, '?')) {
    least = 0;
  } else if (!take_braces(r, &least, &most, &is_large)) {
    return TRI_OK;
  }
  if (is_large) return refuse(r, TRI_TOO_LARGE, place, "the number of repetitions is too large");
  if (least > most) return refuse(r, TRI_INVALID_ARGUMENT, place, "the larger number comes first");
  if (atom->kind == EXPR_BEGIN || atom->kind == EXPR_END)
    return refuse(r, TRI_INVALID_ARGUMENT, place, "^ and $ cannot be repeated");
  take(r, '?'); /* lazy */
  return expr_repeat(r->x, atom, least, most, place + 1, out);
}

/* ---- the rest ---- */

static tri_status read_alternatives(reader *r, const expr **out);

/* Reads what follows a group's parenthesis up to where its expression begins. */
static tri_status read_group_kind(reader *r, size_t place) {
  if (!take(r, '?') || take(r, ':')) return TRI_OK;
  bool behind = take(r, '<');
  if (is_at(r, '=') || is_at(r, '!')) return refuse(r, TRI_UNSUPPORTED, place, "lookaround cannot be kept");
  if (!behind) return refuse(r, TRI_UNSUPPORTED, place, "only (...), (?:...) and (?<name>...) are kept");
  while (r->at < r->num && !is_at(r, '>') && !is_at(r, ')') && !is_at(r, '(')) r->at++;
  return take(r, '>') ? TRI_OK : refuse(r, TRI_INVALID_ARGUMENT, place, "the name of the group has no end");
}

static tri_status read_group(reader *r, const expr **out) {
  size_t place = r->at - 1;
  if (r->depth == EXPR_MAX_DEPTH) return refuse(r, TRI_TOO_LARGE, place, "more than 100 groups within each other");
  r->depth++;
  TRI_CHECK(read_group_kind(r, place));
  TRI_CHECK(read_alternatives(r, out));
  r->depth--;
  return take(r, ')') ? TRI_OK : refuse(r, TRI_INVALID_ARGUMENT, place, "the group has no end");
}

static tri_status read_anchor(reader *r, expr_kind kind, const expr **out) {
  *out = expr_make(r->x, kind, r->at);
  return *out ? TRI_OK : TRI_NO_MEMORY;
}

static tri_status read_atom(reader *r, const expr **out) {
  charset set = {0};
  uint32_t least, most, c = r->text[r->at];
  size_t place = r->at;
  bool is_set = false, is_large;
  if (c == '{' && take_braces(r, &least, &most, &is_large))
    return refuse(r, TRI_INVALID_ARGUMENT, place, "there is nothing to repeat");
  r->at++;
  switch (c) {
  case '^': return read_anchor(r, EXPR_BEGIN, out);
  case '$': return read_anchor(r, EXPR_END, out);
  case '(': return read_group(r, out);
  case '[': return read_class(r, out);
  case '*':
  case '+':
  case '?': return refuse(r, TRI_INVALID_ARGUMENT, place, "there is nothing to repeat");
  case '.': TRI_CHECK(add_set(r->x, &set, '.', true)); return named_class(r, &set, out);
  case '\\': TRI_CHECK(read_escape(r, false, &set, &is_set, &c)); break;
  default: break;
  }
  return is_set ? named_class(r, &set, out) : one_class(r, c, out);
}

static tri_status read_sequence(reader *r, const expr **out) {
  expr *sequence = expr_make(r->x, EXPR_SEQUENCE, r->at + 1);
  if (!sequence) return TRI_NO_MEMORY;
  while (r->at < r->num && !is_at(r, '|') && !is_at(r, ')')) {
    const expr *part = NULL;
    TRI_CHECK(read_atom(r, &part));
    TRI_CHECK(read_times(r, part, &part));
    TRI_CHECK(expr_append(r->x, sequence, part));
  }
  *out = sequence->num == 1 ? sequence->parts[0] : sequence;
  return TRI_OK;
}

static tri_status read_alternatives(reader *r, const expr **out) {
  expr *all = expr_make(r->x, EXPR_ALTERNATIVES, r->at + 1);
  if (!all) return TRI_NO_MEMORY;
  do {
    const expr *part = NULL;
    TRI_CHECK(read_sequence(r, &part));
    TRI_CHECK(expr_append(r->x, all, part));
  } while (take(r, '|'));
  *out = all->num == 1 ? all->parts[0] : all;
  return TRI_OK;
}

tri_status regex_read(expr_context *x, const char *text, size_t len, const expr **out) {
  uint32_t *points;
  reader r = {.x = x};
  if (len > TRI_REGEX_MAX_BYTES)
    return tri_fail(x->err, TRI_TOO_LARGE, "", "the expression has %zu bytes, more than %d", len, TRI_REGEX_MAX_BYTES);
  TRI_CHECK(expr_decode(x, text, len, &points, &r.num));
  r.text = points;
  TRI_CHECK(read_alternatives(&r, out));
  return r.at == r.num ? TRI_OK : refuse(&r, TRI_INVALID_ARGUMENT, r.at, "a parenthesis that closes no group");
}
