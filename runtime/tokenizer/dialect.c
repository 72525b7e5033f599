/* From Oniguruma's (Ruby) dialect to PCRE2's.
 *
 * What both spell alike passes through. Rewritten are: \s \S \w (PCRE2's \s also matches U+180E, its \w lacks marks),
 * nested classes such as [^(\s|[.,])] (PCRE2 takes the inner bracket for a literal), \uHHHH, \v and {,n}. Everything
 * that is read differently and cannot be rewritten in place is refused, so that a pattern never splits in silence
 * elsewhere than its author saw. */
#include <string.h>

#include "runtime/tokenizer/regex.h"

/* White_Space, its complement, and word characters, as the inside of a class. */
#define SPACE "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE                                                                                                      \
  "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}"          \
  "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define WORD "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

typedef struct dialect {
  const char *p, *end, *begin;
  tri_buf *out;
  const tok_field *where;
  tri_error *err;
  size_t class_depth; /* 0 outside brackets */
  bool open_range;    /* inside brackets: what was copied last is an unescaped hyphen */
} dialect;

static tri_status refuse(const dialect *d, const char *what) {
  return tok_field_fail(d->where, TRI_UNSUPPORTED, d->err, "the pattern's %s at byte %zu is not supported", what,
                        (size_t)(d->p - d->begin));
}

static tri_status put(dialect *d, const char *s) { return tri_buf_append(d->out, s, strlen(s)); }

/* Copies n bytes of the pattern. */
static tri_status copy(dialect *d, size_t n) {
  tri_status st = tri_buf_append(d->out, d->p, n);
  d->p += n;
  return st;
}

static bool at(const dialect *d, size_t i, char c) { return (size_t)(d->end - d->p) > i && d->p[i] == c; }

static bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
static bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

static bool hex_digits(const dialect *d, size_t from, size_t n) {
  if ((size_t)(d->end - d->p) < from + n) return false;
  for (size_t i = 0; i < n; i++)
    if (!is_hex(d->p[from + i])) return false;
  return true;
}

/* A shorthand such as \s, spelled out. inside is its content for a class that is already open, NULL if none exists. */
static tri_status shorthand(dialect *d, const char *alone, const char *inside) {
  tri_status st;
  if (!d->class_depth) {
    st = put(d, alone);
  } else if (!inside) {
    return refuse(d, "negated shorthand inside a class");
  } else {
    if (d->open_range) { /* a hyphen before a shorthand stands for itself */
      d->out->len--;
      if ((st = put(d, "\\-")) != TRI_OK) return st;
    }
    st = put(d, inside);
  }
  d->p += 2;
  /* So does one behind it; the bracket that may follow ends the class in any case. */
  if (st == TRI_OK && d->class_depth && at(d, 0, '-')) {
    st = put(d, "\\-");
    d->p++;
  }
  return st;
}

/* \p{...}, \P{...} and \x{...}: up to the closing brace. */
static tri_status braced(dialect *d) {
  const char *close = at(d, 2, '{') ? memchr(d->p, '}', (size_t)(d->end - d->p)) : NULL;
  return close ? copy(d, (size_t)(close + 1 - d->p)) : refuse(d, "escape without braces");
}

static tri_status unicode_escape(dialect *d) {
  if (!hex_digits(d, 2, 4)) return refuse(d, "\\u");
  tri_status st = put(d, "\\x{");
  if (st != TRI_OK) return st;
  d->p += 2;
  st = copy(d, 4);
  return st == TRI_OK ? put(d, "}") : st;
}

static tri_status escape(dialect *d) {
  if (d->end - d->p < 2) return refuse(d, "final backslash");
  char c = d->p[1];
  switch (c) {
  case 's': return shorthand(d, "[" SPACE "]", SPACE);
  case 'S': return shorthand(d, "[^" SPACE "]", NOT_SPACE);
  case 'w': return shorthand(d, "[" WORD "]", WORD);
  case 'W': return shorthand(d, "[^" WORD "]", NULL);
  case 'd': return shorthand(d, "\\p{Nd}", "\\p{Nd}");
  case 'D': return shorthand(d, "\\P{Nd}", "\\P{Nd}");
  case 'p':
  case 'P': return braced(d);
  case 'u': return unicode_escape(d);
  case 'x':
    if (at(d, 2, '{')) return braced(d);
    /* Two digits are a byte to Oniguruma and a character to PCRE2: the same only for ASCII. */
    return hex_digits(d, 2, 2) && d->p[2] < '8' ? copy(d, 4) : refuse(d, "\\x");
  case 'v': d->p += 2; return put(d, "\\x0b");
  case 'n':
  case 'r':
  case 't':
  case 'f':
  case 'a':
  case 'e': return copy(d, 2);
  case 'A':
  case 'z':
  case 'Z': return d->class_depth ? refuse(d, "anchor inside a class") : copy(d, 2);
  default: break;
  }
  if (is_alnum(c)) {
    const char what[] = {'\\', c, '\0'};
    return refuse(d, what);
  }
  return copy(d, 2); /* of a longer character the remaining bytes follow as ordinary ones */
}

static tri_status open_class(dialect *d) {
  if (at(d, 1, ':')) return refuse(d, "POSIX class");
  if (d->class_depth && at(d, 1, '^')) return refuse(d, "negated class inside a class");
  d->class_depth++;
  if (d->class_depth > 1) { /* a union: its members join the class around it */
    d->p++;
    return TRI_OK;
  }
  tri_status st = copy(d, at(d, 1, '^') ? 2 : 1);
  if (st != TRI_OK || !at(d, 0, ']')) return st;
  d->p++; /* a bracket that comes first is a member */
  return put(d, "\\]");
}

static tri_status in_class(dialect *d) {
  bool hyphen = false;
  tri_status st;
  switch (*d->p) {
  case '\\': st = escape(d); break;
  case '[': st = open_class(d); break;
  case ']':
    d->class_depth--;
    if (d->class_depth == 0) {
      d->open_range = false;
      return copy(d, 1);
    }
    d->p++;
    st = TRI_OK;
    break;
  case '&':
    if (at(d, 1, '&')) return refuse(d, "class intersection");
    st = copy(d, 1);
    break;
  default: hyphen = *d->p == '-'; st = copy(d, 1);
  }
  d->open_range = hyphen;
  return st;
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
    if (d.class_depth)
      st = in_class(&d);
    else if (*d.p == '\\')
      st = escape(&d);
    else if (*d.p == '[')
      st = open_class(&d);
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
  return d.class_depth ? refuse(&d, "unclosed class") : TRI_OK;
}
