/* SPDX-License-Identifier: Apache-2.0 */
#include "text/jinja/lexer.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "text/jinja/jinja.h"
#include "text/unicode/unicode.h"

/* White space around blocks is decided here, as jinja2's lexer decides it with trim_blocks and lstrip_blocks: a
 * newline after a block goes, and so do spaces before a block that begins a line; `-` takes all white space, `+` keeps
 * it. A token is a slice of the normalized source; strings with escapes are copied.
 *
 * Brackets are paired here as well: a `}}` inside them closes no variable. */
enum { MOST_BRACKETS = 256 };

typedef struct lexer {
  const char *s; /* line ends are \n, the last one is gone */
  size_t n, at;
  int line;
  bool line_starting; /* what came last ended with a line's end */
  tri_arena *arena;
  jtokens *out;
  tri_error *err;
} lexer;

static tri_status refuse(lexer *l, const char *what) {
  return tri_fail(l->err, TRI_CORRUPT, TRI_JINJA_SYNTAX, "line %d of the chat template: %s", l->line, what);
}

static bool has(const lexer *l, size_t at, const char *text) {
  size_t n = strlen(text);
  return l->n - at >= n && !memcmp(l->s + at, text, n);
}

/* \s of Python's re, with the characters of Unicode. Returns the length of the space at a place; 0: there is none. */
static size_t space_at(const char *s, size_t at, size_t end) {
  if (at >= end) return 0;
  size_t len;
  uint32_t c = tok_utf8_decode(s + at, &len);
  bool separator = c >= 0x1c && c <= 0x1f;
  return separator || tok_is_space(c) ? len : 0;
}

static size_t skip_space(const lexer *l, size_t at) {
  for (size_t len; (len = space_at(l->s, at, l->n)) > 0;) at += len;
  return at;
}

static void advance(lexer *l, size_t to) {
  for (; l->at < to; l->at++) l->line += l->s[l->at] == '\n';
}

static tri_status add(lexer *l, jtoken t) {
  TRI_CHECK(tri_array_reserve(&l->out->items, l->out->n, &l->out->cap, 1, sizeof *l->out->items));
  t.line = l->line;
  l->out->items[l->out->n++] = t;
  return TRI_OK;
}

/* ---- text between blocks ---- */

/* Returns where the spaces begin that a text ends with. */
static size_t without_space_behind(const char *s, size_t from, size_t to) {
  while (to > from) {
    size_t before = tok_utf8_before(s, to);
    if (before < from || !space_at(s, before, to)) break;
    to = before;
  }
  return to;
}

/* The end of a text before a block: a `-` takes all white space away, and without a `+` what stands between the
 * beginning of the line and a block that is no variable (lstrip_blocks). */
static size_t strip_end(const lexer *l, size_t from, size_t to, char sign, bool is_variable) {
  if (sign == '-') return without_space_behind(l->s, from, to);
  if (sign == '+' || is_variable) return to;
  size_t line = to;
  while (line > from && l->s[line - 1] != '\n') line--;
  if (line == from && !l->line_starting) return to;
  return without_space_behind(l->s, line, to) == line ? line : to;
}

static tri_status add_data(lexer *l, size_t from, size_t to) {
  return from < to ? add(l, (jtoken){.kind = JT_DATA, .s = l->s + from, .n = to - from}) : TRI_OK;
}

/* Returns where what follows a closing bracket begins. */
static size_t behind_end(const lexer *l, size_t at, char sign, bool trims) {
  if (sign == '-') return skip_space(l, at);
  return trims && sign != '+' && at < l->n && l->s[at] == '\n' ? at + 1 : at;
}

/* Finds `end`, with a sign before it that counts. *text_end is where what it closes ends. False: it is missing. */
static bool find_end(const lexer *l, size_t from, const char *end, bool plus, size_t *text_end, size_t *after) {
  for (size_t at = from; at + strlen(end) <= l->n; at++) {
    char sign = 0;
    if (!has(l, at, end)) continue;
    if (at > from && (l->s[at - 1] == '-' || (plus && l->s[at - 1] == '+'))) sign = l->s[at - 1];
    *text_end = sign ? at - 1 : at;
    *after = behind_end(l, at + strlen(end), sign, true);
    return true;
  }
  return false;
}

static void step_to(lexer *l, size_t to) {
  advance(l, to);
  l->line_starting = to > 0 && l->s[to - 1] == '\n';
}

static tri_status lex_comment(lexer *l, size_t from) {
  size_t end, after;
  if (!find_end(l, from, "#}", true, &end, &after)) return refuse(l, "a comment has no end");
  step_to(l, after);
  return TRI_OK;
}

/* ---- raw blocks ---- */

/* Matches `{%`, a sign, spaces, a word, spaces. Returns where what follows begins; 0: it is something else. */
static size_t match_word_block(const lexer *l, size_t at, const char *word, char *sign) {
  if (!has(l, at, "{%")) return 0;
  at += 2;
  *sign = at < l->n && (l->s[at] == '-' || l->s[at] == '+') ? l->s[at] : 0;
  at = skip_space(l, *sign ? at + 1 : at);
  if (!has(l, at, word)) return 0;
  return skip_space(l, at + strlen(word));
}

/* Matches the end of such a block. */
static size_t match_block_end(const lexer *l, size_t at, bool trims) {
  char sign = at < l->n && (l->s[at] == '-' || (trims && l->s[at] == '+')) ? l->s[at] : 0;
  if (sign) at++;
  return has(l, at, "%}") ? behind_end(l, at + 2, sign, trims) : 0;
}

static tri_status lex_raw(lexer *l, size_t from) {
  step_to(l, from);
  for (size_t at = from; at < l->n; at++) {
    char sign;
    size_t inside = match_word_block(l, at, "endraw", &sign), after = inside ? match_block_end(l, inside, true) : 0;
    if (!after) continue;
    size_t end = strip_end(l, from, at, sign, false);
    TRI_CHECK(add_data(l, from, end));
    step_to(l, after);
    return TRI_OK;
  }
  return refuse(l, "a raw block has no end");
}

/* ---- tokens inside blocks ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t word_end(const lexer *l, size_t at) {
  while (at < l->n) {
    size_t len;
    uint32_t c = tok_utf8_decode(l->s + at, &len);
    if (!tok_is_word(c)) break;
    at += len;
  }
  return at;
}

/* Digits with single underscores between them. */
static size_t digits_end(const lexer *l, size_t at) {
  while (at < l->n && (is_digit(l->s[at]) || (l->s[at] == '_' && at + 1 < l->n && is_digit(l->s[at + 1])))) at++;
  return at;
}

/* After a dot only digits count: in `a.0.1` each number is an item of its own. */
static tri_status lex_number(lexer *l, size_t from) {
  char text[64];
  size_t n = 0, end = digits_end(l, from), whole = end;
  bool after_dot = from > 0 && l->s[from - 1] == '.';
  if (!after_dot && end + 1 < l->n && l->s[end] == '.' && is_digit(l->s[end + 1])) end = digits_end(l, end + 1);
  if (!after_dot && end < l->n && (l->s[end] == 'e' || l->s[end] == 'E')) {
    size_t power = end + 1;
    if (power < l->n && (l->s[power] == '+' || l->s[power] == '-')) power++;
    if (power < l->n && is_digit(l->s[power])) end = digits_end(l, power);
  }
  for (size_t i = from; i < end && n + 1 < sizeof text; i++)
    if (l->s[i] != '_') text[n++] = l->s[i];
  if (n + 1 == sizeof text) return refuse(l, "a number has too many digits");
  text[n] = 0;
  advance(l, end);
  errno = 0;
  if (end > whole) return add(l, (jtoken){.kind = JT_FLOAT, .f = strtod(text, NULL)});
  long long i = strtoll(text, NULL, 10);
  if (errno || (n > 1 && text[0] == '0' && i)) return refuse(l, "a number is too large, or begins with 0");
  return add(l, (jtoken){.kind = JT_INT, .i = i});
}

static int hex_of(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Reads so many hexadecimal digits. False: there are fewer. */
static bool read_hex(const char *s, size_t n, size_t digits, uint32_t *out) {
  *out = 0;
  for (size_t i = 0; i < digits; i++) {
    int d = i < n ? hex_of(s[i]) : -1;
    if (d < 0) return false;
    *out = *out * 16 + (uint32_t)d;
  }
  return true;
}

/* The character after a backslash, as in Python: s is what follows that. Returns how many bytes it has taken; 0: it is
 * malformed. *is_plain: the backslash is nothing but one. */
static size_t unescape(const char *s, size_t n, char *out, size_t *written, bool *is_plain) {
  static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
  const char *plain = *s ? strchr(from, *s) : NULL;
  uint32_t c = 0;
  *written = 0;
  *is_plain = false;
  if (*s == '\n') return 1;
  if (plain) {
    out[(*written)++] = to[plain - from];
    return 1;
  }
  size_t digits = 0;
  if (*s == 'x') digits = 2;
  if (*s == 'u') digits = 4;
  if (*s == 'U') digits = 8;
  if (digits) {
    bool surrogate = read_hex(s + 1, n - 1, digits, &c) && c >= 0xd800 && c < 0xe000;
    if (!read_hex(s + 1, n - 1, digits, &c) || c > 0x10ffff || surrogate) return 0;
    *written = tok_utf8_encode(c, out);
    return digits + 1;
  }
  size_t used = 0;
  while (used < 3 && used < n && s[used] >= '0' && s[used] <= '7') c = c * 8 + (uint32_t)(s[used++] - '0');
  if (used) {
    *written = tok_utf8_encode(c, out);
    return used;
  }
  out[(*written)++] = '\\'; /* what Python does not know it leaves as it is */
  *is_plain = true;
  return 1;
}

static tri_status lex_string(lexer *l, size_t from) {
  size_t end = from + 1, n = 0;
  char quote = l->s[from];
  while (end < l->n && l->s[end] != quote) end += l->s[end] == '\\' ? 2 : 1;
  if (end >= l->n) return refuse(l, "a string has no end");
  char *text = tri_arena_alloc(l->arena, end - from + 1, 1); /* no escape is longer than what it is written as */
  if (!text) return TRI_NO_MEMORY;
  for (size_t i = from + 1; i < end;) {
    if (l->s[i] != '\\') {
      text[n++] = l->s[i++];
      continue;
    }
    char made[8];
    bool is_plain;
    size_t written, used = unescape(l->s + i + 1, end - i - 1, made, &written, &is_plain);
    if (!used) return refuse(l, "a string has an escape that means no character");
    memcpy(text + n, made, written);
    n += written;
    i += is_plain ? 1 : used + 1;
  }
  advance(l, end + 1);
  return add(l, (jtoken){.kind = JT_STRING, .s = text, .n = n});
}

static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
enum { NUM_OPERATORS = sizeof operators / sizeof *operators };

static char closing_of(char c) {
  if (c == '(') return ')';
  if (c == '[') return ']';
  return c == '{' ? '}' : 0;
}

static tri_status lex_operator(lexer *l, char *brackets, size_t *depth) {
  for (size_t i = 0; i < NUM_OPERATORS; i++) {
    if (!has(l, l->at, operators[i])) continue;
    char c = operators[i][0], close = closing_of(c);
    if (close) {
      if (*depth == MOST_BRACKETS) return refuse(l, "brackets are nested too deeply");
      brackets[(*depth)++] = close;
    }
    if (c == ')' || c == ']' || c == '}') {
      if (!*depth || brackets[*depth - 1] != c) return refuse(l, "a closing bracket has no opening one");
      --*depth;
    }
    TRI_CHECK(add(l, (jtoken){.kind = JT_OPERATOR, .s = operators[i], .n = strlen(operators[i])}));
    advance(l, l->at + strlen(operators[i]));
    return TRI_OK;
  }
  return refuse(l, "a character that means nothing there");
}

/* The end of a block or a variable at a place. Returns what follows it; 0: there is none. */
static size_t end_at(const lexer *l, bool is_variable) {
  char c = l->at < l->n ? l->s[l->at] : 0, sign = c == '-' || (c == '+' && !is_variable) ? c : 0;
  size_t at = l->at + !!sign;
  const char *end = is_variable ? "}}" : "%}";
  return has(l, at, end) ? behind_end(l, at + 2, sign, !is_variable) : 0;
}

/* A block's or a variable's tokens, up to and with its end. */
static tri_status lex_inside(lexer *l, bool is_variable) {
  char brackets[MOST_BRACKETS];
  size_t depth = 0;
  for (;;) {
    size_t after = depth ? 0 : end_at(l, is_variable);
    if (after) {
      TRI_CHECK(add(l, (jtoken){.kind = is_variable ? JT_VARIABLE_END : JT_BLOCK_END}));
      step_to(l, after);
      return TRI_OK;
    }
    if (l->at >= l->n) return refuse(l, is_variable ? "an expression has no end" : "a block has no end");
    size_t space = skip_space(l, l->at), word = word_end(l, l->at);
    char c = l->s[l->at];
    if (space > l->at) {
      advance(l, space);
    } else if (is_digit(c)) {
      TRI_CHECK(lex_number(l, l->at));
    } else if (word > l->at) {
      TRI_CHECK(add(l, (jtoken){.kind = JT_NAME, .s = l->s + l->at, .n = word - l->at}));
      advance(l, word);
    } else if (c == '"' || c == '\'') {
      TRI_CHECK(lex_string(l, l->at));
    } else {
      TRI_CHECK(lex_operator(l, brackets, &depth));
    }
  }
}

/* ---- a template ---- */

/* Finds the next block of any kind. */
static size_t find_begin(const lexer *l, size_t at) {
  while (at < l->n && !(l->s[at] == '{' && at + 1 < l->n && strchr("{%#", l->s[at + 1]) && l->s[at + 1])) at++;
  return at;
}

static tri_status lex_next(lexer *l) {
  size_t from = l->at, begin = find_begin(l, from);
  if (begin >= l->n) {
    TRI_CHECK(add_data(l, from, l->n));
    advance(l, l->n);
    return TRI_OK;
  }
  char kind = l->s[begin + 1], raw_sign = 0, next = begin + 2 < l->n ? l->s[begin + 2] : 0;
  char sign = next == '-' || next == '+' ? next : 0;
  bool is_variable = kind == '{';
  size_t raw = match_word_block(l, begin, "raw", &raw_sign), raw_text = raw ? match_block_end(l, raw, false) : 0;
  TRI_CHECK(add_data(l, from, strip_end(l, from, begin, sign, is_variable)));
  advance(l, begin + 2 + !!sign);
  l->line_starting = false;
  if (raw_text) return lex_raw(l, raw_text);
  if (kind == '#') return lex_comment(l, l->at);
  TRI_CHECK(add(l, (jtoken){.kind = is_variable ? JT_VARIABLE_BEGIN : JT_BLOCK_BEGIN}));
  return lex_inside(l, is_variable);
}

/* Copies the template with one kind of line end, and without its last. */
static tri_status normalize(lexer *l, const char *source, size_t len) {
  char *s = tri_arena_alloc(l->arena, len + 1, 1);
  if (!s) return TRI_NO_MEMORY;
  for (size_t i = 0; i < len; i++) {
    bool pair = source[i] == '\r' && i + 1 < len && source[i + 1] == '\n';
    if (!pair) s[l->n++] = source[i] == '\r' ? '\n' : source[i];
  }
  if (l->n && s[l->n - 1] == '\n') l->n--;
  l->s = s;
  return TRI_OK;
}

tri_status j_lex(const char *source, size_t len, tri_arena *arena, jtokens *out, tri_error *err) {
  lexer l = {.line = 1, .line_starting = true, .arena = arena, .out = out, .err = err};
  if (len > TRI_JINJA_MOST_SOURCE)
    return tri_fail(err, TRI_TOO_LARGE, TRI_JINJA_SYNTAX, "the chat template has %zu bytes, the limit is %d", len,
                    TRI_JINJA_MOST_SOURCE);
  if (tok_utf8_valid_prefix(source, len) != len || memchr(source, 0, len))
    return tri_fail(err, TRI_CORRUPT, TRI_JINJA_SYNTAX, "the chat template is not valid UTF-8 text");
  TRI_CHECK(normalize(&l, source, len));
  while (l.at < l.n) TRI_CHECK(lex_next(&l));
  return add(&l, (jtoken){.kind = JT_END});
}
