/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of characters, from Oniguruma's dialect to PCRE2's.
 *
 * A set is the inside of a PCRE2 class, and one-character alternatives for what no class of PCRE2 can hold:
 * complements inside a class, and intersections. Properties get those characters that Unicode 14 to 16 added, since
 * PCRE2 may be older: [\p{L}\x{870}-\x{887}...].
 *
 * \P{L} inside a class would still match the letters that were added later: such a complement becomes (?!set) and any
 * character, an alternative to the class. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "text/tokenizer/regex/dialect.h"
#include "text/tokenizer/regex/regex.h"
#include "text/unicode/unicode.h"
#include "text/unicode/unicode_tables.h"

enum { MAX_DEPTH = 16, LONGEST_NAME = 40 };

/* White_Space, its complement, and word characters, as the inside of a class. */
#define SPACE "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                                                      \
  "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"          \
  "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define ANY "[\\x{0}-\\x{10ffff}]"

typedef struct set {
  tri_buf plain;  /* the inside of a class */
  tri_buf others; /* "|" and an atom, again and again */
  size_t num_others;
} set;

static void set_free(set *s) {
  tri_buf_free(&s->plain);
  tri_buf_free(&s->others);
  *s = (set){0};
}

static tri_status put(tri_buf *b, const char *s) { return tri_buf_append(b, s, strlen(s)); }
static tri_status put_buf(tri_buf *b, const tri_buf *from) { return tri_buf_append(b, from->data, from->len); }

static tri_status put_three(tri_buf *b, const char *before, const tri_buf *middle, const char *behind) {
  TRI_CHECK(put(b, before));
  TRI_CHECK(put_buf(b, middle));
  return put(b, behind);
}

/* Appends the set as one atom. */
static tri_status write_set(const set *s, tri_buf *out) {
  if (!s->plain.len && !s->num_others) return put(out, "(?!)");
  if (!s->num_others) return put_three(out, "[", &s->plain, "]");
  if (s->plain.len) {
    TRI_CHECK(put_three(out, "(?:[", &s->plain, "]"));
    return put_three(out, "", &s->others, ")");
  }
  const tri_buf rest = {.data = s->others.data + 1, .len = s->others.len - 1};
  return s->num_others == 1 ? put_buf(out, &rest) : put_three(out, "(?:", &rest, ")");
}

static tri_status write_complement(const set *s, tri_buf *out) {
  if (s->plain.len && !s->num_others) return put_three(out, "[^", &s->plain, "]");
  TRI_CHECK(put(out, "(?:(?!"));
  TRI_CHECK(write_set(s, out));
  return put(out, ")" ANY ")");
}

/* Adds what `members` has, or has not. */
static tri_status add(set *to, const set *members, bool negated) {
  if (negated) {
    TRI_CHECK(put(&to->others, "|"));
    to->num_others++;
    return write_complement(members, &to->others);
  }
  TRI_CHECK(put_buf(&to->plain, &members->plain));
  to->num_others += members->num_others;
  return put_buf(&to->others, &members->others);
}

/* ---- what later versions of Unicode added ---- */

typedef bool (*addition_test)(const tok_addition *a, const char *name);

static bool in_category(const tok_addition *a, const char *name) {
  return a->category[0] == name[0] && (!name[1] || a->category[1] == name[1]);
}
static bool out_of_category(const tok_addition *a, const char *name) { return !in_category(a, name); }
static bool in_script(const tok_addition *a, const char *name) { return !strcasecmp(a->script, name); }
static bool is_alphabetic(const tok_addition *a, const char *name) {
  (void)name;
  return a->alphabetic;
}
static bool is_word(const tok_addition *a, const char *name) {
  (void)name;
  return a->alphabetic || a->category[0] == 'M' || !strcmp(a->category, "Nd") || !strcmp(a->category, "Pc");
}

static tri_status put_range(tri_buf *b, uint32_t first, uint32_t last) {
  char text[32];
  snprintf(text, sizeof text, first == last ? "\\x{%x}" : "\\x{%x}-\\x{%x}", first, last);
  return put(b, text);
}

static tri_status add_additions(set *s, addition_test test, const char *name) {
  uint32_t first = 1, last = 0; /* neighbours become one range */
  for (size_t i = 0; i < tok_unicode16_additions_count; i++) {
    const tok_addition *a = &tok_unicode16_additions[i];
    if (!test(a, name)) continue;
    if (first <= last && a->first == last + 1) {
      last = a->last;
      continue;
    }
    if (first <= last) TRI_CHECK(put_range(&s->plain, first, last));
    first = a->first;
    last = a->last;
  }
  return first <= last ? put_range(&s->plain, first, last) : TRI_OK;
}

/* ---- names ---- */

static tri_status add_category(set *s, const char *name) {
  char text[16];
  bool unassigned = !strcmp(name, "C") || !strcmp(name, "Cn");
  snprintf(text, sizeof text, unassigned ? "\\P{%s}" : "\\p{%s}", name);
  if (!unassigned) {
    TRI_CHECK(put(&s->plain, text));
    return add_additions(s, in_category, name);
  }
  set assigned = {0}; /* what later versions take from it can only be added to its complement */
  tri_status st;
  TRI_TRY(put(&assigned.plain, text));
  TRI_TRY(add_additions(&assigned, out_of_category, name));
  TRI_TRY(add(s, &assigned, true));
cleanup:
  set_free(&assigned);
  return st;
}

static tri_status add_word(set *s) {
  TRI_CHECK(put(&s->plain, "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"));
  return add_additions(s, is_word, "");
}

static tri_status add_alphabetic(set *s) {
  TRI_CHECK(put(&s->plain, "\\p{Alphabetic}"));
  return add_additions(s, is_alphabetic, "");
}

static tri_status add_punctuation(set *s) {
  TRI_CHECK(add_category(s, "P"));
  return add_category(s, "S");
}

static tri_status add_upper(set *s) {
  TRI_CHECK(put(&s->plain, "\\p{Uppercase}"));
  return add_additions(s, in_category, "Lu");
}

static tri_status add_letters_and_digits(set *s) {
  TRI_CHECK(add_alphabetic(s));
  return add_category(s, "Nd");
}

static tri_status add_blank(set *s) {
  TRI_CHECK(put(&s->plain, "\\t"));
  return add_category(s, "Zs");
}

/* Names of sets in [:name:] and \p{name}. */
static const struct {
  const char *name;
  tri_status (*add)(set *s);
  const char *category, *plain;
  bool posix_only; /* as a property it is another set, or differs by itself and in a class */
} named[] = {
    {.name = "alnum", .add = add_letters_and_digits},
    {.name = "alpha", .add = add_alphabetic},
    {.name = "alphabetic", .add = add_alphabetic},
    {.name = "blank", .add = add_blank},
    {.name = "cntrl", .category = "Cc"},
    {.name = "digit", .category = "Nd"},
    {.name = "punct", .add = add_punctuation, .posix_only = true},
    {.name = "punct", .category = "P"},
    {.name = "space", .plain = SPACE},
    {.name = "upper", .add = add_upper},
    {.name = "word", .add = add_word, .posix_only = true},
    {.name = "xdigit", .plain = "0-9A-Fa-f"},
    {.name = "ascii", .plain = "\\x00-\\x7f"},
    {.name = "any", .plain = "\\x00-\\x{10ffff}"},
    {.name = "letter", .category = "L"},
    {.name = "uppercase_letter", .category = "Lu"},
    {.name = "lowercase_letter", .category = "Ll"},
    {.name = "titlecase_letter", .category = "Lt"},
    {.name = "modifier_letter", .category = "Lm"},
    {.name = "other_letter", .category = "Lo"},
    {.name = "mark", .category = "M"},
    {.name = "number", .category = "N"},
    {.name = "decimal_number", .category = "Nd"},
    {.name = "punctuation", .category = "P"},
    {.name = "symbol", .category = "S"},
    {.name = "separator", .category = "Z"},
    {.name = "other", .category = "C"},
};

static tri_status add_named(const tok_dialect *d, set *s, const char *name, bool posix) {
  for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
    if (strcasecmp(named[i].name, name) != 0 || (named[i].posix_only && !posix)) continue;
    if (named[i].add) return named[i].add(s);
    return named[i].category ? add_category(s, named[i].category) : put(&s->plain, named[i].plain);
  }
  if (posix) return tok_dialect_refuse(d, "POSIX class");
  if (strlen(name) <= 2) {
    const char category[] = {(char)toupper(name[0]), (char)tolower(name[1]), '\0'};
    return add_category(s, category);
  }
  bool script = tok_regex_knows_script(name); /* by itself the name would mean PCRE2's script extensions */
  char text[LONGEST_NAME + 16];
  snprintf(text, sizeof text, script ? "\\p{sc:%s}" : "\\p{%s}", name);
  TRI_CHECK(put(&s->plain, text));
  return script ? add_additions(s, in_script, name) : TRI_OK;
}

/* Reads a name of n bytes, with a ^ before it perhaps. */
static tri_status read_name(const tok_dialect *d, set *to, const char *text, size_t n, bool negated, bool posix) {
  char name[LONGEST_NAME + 1];
  set members = {0};
  tri_status st;
  if (n && text[0] == '^') {
    negated = !negated;
    text++;
    n--;
  }
  if (!n || n > LONGEST_NAME) return tok_dialect_refuse(d, "property");
  memcpy(name, text, n);
  name[n] = '\0';
  TRI_TRY(add_named(d, &members, name, posix));
  TRI_TRY(add(to, &members, negated));
cleanup:
  set_free(&members);
  return st;
}

/* ---- escapes of sets ---- */

bool tok_dialect_is_set(const tok_dialect *d) {
  return tok_dialect_at(d, 0, '\\') && d->end - d->p > 1 && d->p[1] && strchr("sSwWdDhHpP", d->p[1]);
}

static tri_status read_set(tok_dialect *d, set *to) {
  char c = d->p[1];
  tri_status st;
  if (c == 'p' || c == 'P') {
    const char *close = tok_dialect_at(d, 2, '{') ? memchr(d->p, '}', (size_t)(d->end - d->p)) : NULL;
    if (!close) return tok_dialect_refuse(d, "property without braces");
    TRI_CHECK(read_name(d, to, d->p + 3, (size_t)(close - d->p - 3), c == 'P', false));
    d->p = close + 1;
    return TRI_OK;
  }
  d->p += 2;
  set members = {0};
  switch (c) {
  case 'S': st = put(&members.plain, NOT_SPACE); break;
  case 'w':
  case 'W': st = add_word(&members); break;
  case 'd':
  case 'D': st = add_category(&members, "Nd"); break;
  case 'h':
  case 'H': st = put(&members.plain, "0-9A-Fa-f"); break;
  default: st = put(&members.plain, SPACE); break;
  }
  if (st == TRI_OK) st = add(to, &members, c == 'W' || c == 'D' || c == 'H');
  set_free(&members);
  return st;
}

/* Outside brackets Oniguruma's \w has the superscript digits and the fractions of Latin-1, too. */
#define LATIN_NUMBERS "\\xb2\\xb3\\xb9\\xbc-\\xbe"

tri_status tok_dialect_set(tok_dialect *d) {
  char c = d->p[1];
  set s = {0};
  tri_status st;
  if (c == 'w' || c == 'W') {
    set word = {0};
    d->p += 2;
    st = add_word(&word);
    if (st == TRI_OK) st = put(&word.plain, LATIN_NUMBERS);
    if (st == TRI_OK) st = add(&s, &word, c == 'W');
    set_free(&word);
  } else {
    st = read_set(d, &s);
  }
  if (st == TRI_OK) st = write_set(&s, d->out);
  set_free(&s);
  return st;
}

/* PCRE2's own \b knows fewer word characters. */
tri_status tok_dialect_boundary(tok_dialect *d) {
  bool inside = d->p[1] == 'B';
  set word = {0};
  tri_status st;
  TRI_TRY(add_word(&word));
  TRI_TRY(put(&word.plain, LATIN_NUMBERS));
  TRI_TRY(put_three(d->out, "(?(?<=[", &word.plain, "])"));
  TRI_TRY(put_three(d->out, inside ? "(?=[" : "(?![", &word.plain, "])|"));
  TRI_TRY(put_three(d->out, inside ? "(?![" : "(?=[", &word.plain, "]))"));
  d->p += 2;
cleanup:
  set_free(&word);
  return st;
}

/* ---- classes in brackets ---- */

static tri_status read_character(tok_dialect *d, tri_buf *out) {
  if (*d->p == '\\') return tok_dialect_character(d, out);
  size_t n;
  uint32_t c = tok_utf8_decode(d->p, &n);
  if (c < 0x80 && c > ' ' && !tok_is_word(c)) TRI_CHECK(put(out, "\\"));
  TRI_CHECK(tri_buf_append(out, d->p, n));
  d->p += n;
  return TRI_OK;
}

/* A hyphen makes a range only between two characters; elsewhere it stands for itself. */
static bool is_range(const tok_dialect *d) {
  if (!tok_dialect_at(d, 0, '-') || d->end - d->p < 2 || d->p[1] == ']' || d->p[1] == '[') return false;
  if (d->p[1] == '&' && tok_dialect_at(d, 2, '&')) return false;
  tok_dialect behind = *d;
  behind.p++;
  return !tok_dialect_is_set(&behind);
}

static tri_status read_range(tok_dialect *d, set *part) {
  TRI_CHECK(read_character(d, &part->plain));
  if (!is_range(d)) return TRI_OK;
  TRI_CHECK(put(&part->plain, "-"));
  d->p++;
  return read_character(d, &part->plain);
}

static tri_status read_posix(tok_dialect *d, set *part) {
  const char *name = d->p + 2, *close = memchr(name, ':', (size_t)(d->end - name));
  if (!close || close + 1 == d->end || close[1] != ']') return tok_dialect_refuse(d, "POSIX class");
  TRI_CHECK(read_name(d, part, name, (size_t)(close - name), false, true));
  d->p = close + 2;
  return TRI_OK;
}

static tri_status read_class(tok_dialect *d, set *into, int depth);

static tri_status read_item(tok_dialect *d, set *part, int depth) {
  if (tok_dialect_at(d, 0, '[') && tok_dialect_at(d, 1, ':')) return read_posix(d, part);
  if (*d->p == '[') return read_class(d, part, depth + 1);
  return tok_dialect_is_set(d) ? read_set(d, part) : read_range(d, part);
}

/* Adds the class: the last part where all those before it (as lookaheads) agree. */
static tri_status close_class(const set *last, const tri_buf *before, bool negated, set *into) {
  if (!before->len) return add(into, last, negated);
  set whole = {.num_others = 1};
  tri_status st;
  TRI_TRY(put_three(&whole.others, "|(?:", before, ""));
  TRI_TRY(write_set(last, &whole.others));
  TRI_TRY(put(&whole.others, ")"));
  TRI_TRY(add(into, &whole, negated));
cleanup:
  set_free(&whole);
  return st;
}

/* `before` collects the parts up to each && as lookaheads, `part` the one at hand: a character is in the class if all
 * lookaheads match at its place and the last part matches it. */
static tri_status read_class(tok_dialect *d, set *into, int depth) {
  set part = {0};
  tri_buf before = {0};
  bool negated = tok_dialect_at(d, 1, '^');
  tri_status st;
  if (depth > MAX_DEPTH) return tok_dialect_refuse(d, "depth of classes");
  d->p += negated ? 2 : 1;
  for (bool first = true; first || !tok_dialect_at(d, 0, ']');
       first = false) { /* a bracket that comes first is a member */
    if (d->p == d->end) TRI_TRY(tok_dialect_refuse(d, "unclosed class"));
    if (tok_dialect_at(d, 0, '&') && tok_dialect_at(d, 1, '&')) {
      TRI_TRY(put(&before, "(?="));
      TRI_TRY(write_set(&part, &before));
      TRI_TRY(put(&before, ")"));
      set_free(&part);
      d->p += 2;
    } else {
      TRI_TRY(read_item(d, &part, depth));
    }
  }
  d->p++;
  st = close_class(&part, &before, negated, into);
cleanup:
  set_free(&part);
  tri_buf_free(&before);
  return st;
}

tri_status tok_dialect_class(tok_dialect *d) {
  set s = {0};
  tri_status st = read_class(d, &s, 0);
  if (st == TRI_OK) st = write_set(&s, d->out);
  set_free(&s);
  return st;
}
