/* SPDX-License-Identifier: Apache-2.0 */
/* A pushdown automaton: the state says what may come next, and the stack is one bit for each open bracket (object or
 * array), in 64 bits. It decides with each byte and keeps no text, so that its memory is bounded and a prefix of a
 * value is known to be one. A number ends with the byte after it, which then counts as the byte after a value. */
#include "client/chat/json_scan.h"

#include <stddef.h>
#include <string.h>

enum state {
  BEFORE_VALUE,
  BEFORE_ELEMENT, /* the first one, or the end of the array */
  BEFORE_MEMBER,  /* the first one, or the end of the object */
  BEFORE_KEY,
  BEFORE_COLON,
  BEHIND_VALUE,
  IN_WORD,
  IN_STRING,
  IN_ESCAPE,
  IN_CODE,
  BEFORE_PAIR, /* the first half of a character has come as an escape */
  IN_PAIR,
  BEHIND_MINUS,
  BEHIND_ZERO,
  IN_INTEGER,
  BEHIND_POINT,
  IN_FRACTION,
  BEHIND_E,
  BEHIND_SIGN,
  IN_EXPONENT,
};

static bool go(json_scan *s, enum state state) {
  s->state = (int)state;
  return true;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* ---- brackets ---- */

static bool in_object(const json_scan *s, unsigned depth) { return s->objects >> (depth - 1) & 1; }

/* The bit is written either way: an earlier bracket of this depth has left its own. */
static bool open_bracket(json_scan *s, bool object) {
  if (s->depth == JSON_SCAN_DEPTH) return false;
  uint64_t bit = (uint64_t)1 << s->depth++;
  s->objects = object ? s->objects | bit : s->objects & ~bit;
  return go(s, object ? BEFORE_MEMBER : BEFORE_ELEMENT);
}

/* After the outermost value only blanks may follow. */
static bool behind_value(json_scan *s, char c) {
  if (json_is_blank(c)) return go(s, BEHIND_VALUE);
  if (!s->depth) return false;
  bool object = in_object(s, s->depth);
  if (c == ',') return go(s, object ? BEFORE_KEY : BEFORE_VALUE);
  if (c != (object ? '}' : ']')) return false;
  s->depth--;
  return go(s, BEHIND_VALUE);
}

/* ---- strings ---- */

static bool begin_string(json_scan *s, bool key) {
  s->in_key = key;
  s->more = 0;
  return go(s, IN_STRING);
}

/* Begins a character of several bytes: as Unicode's table 3-7 has them. */
static bool begin_character(json_scan *s, unsigned char b) {
  if (b < 0xC2 || b > 0xF4) return false;
  s->more = 1 + (b >= 0xE0) + (b >= 0xF0);
  s->low = b == 0xE0 ? 0xA0 : 0x80;
  if (b == 0xF0) s->low = 0x90;
  s->high = b == 0xED ? 0x9F : 0xBF;
  if (b == 0xF4) s->high = 0x8F;
  return true;
}

/* low and high bound the next byte of a character. Only its second byte is bounded by the first one, so that overlong
 * forms, surrogates and what is above U+10FFFF are refused; later ones may be any of 80 to BF. */
static bool in_string(json_scan *s, char c) {
  unsigned char b = (unsigned char)c;
  if (s->more) {
    bool fits = b >= s->low && b <= s->high;
    s->low = 0x80;
    s->high = 0xBF;
    s->more--;
    return fits;
  }
  if (c == '"') return go(s, s->in_key ? BEFORE_COLON : BEHIND_VALUE);
  if (c == '\\') return go(s, IN_ESCAPE);
  return b < 0x80 ? b >= ' ' : begin_character(s, b);
}

static bool begin_code(json_scan *s, bool pair) {
  s->pair = pair;
  s->more = 4;
  s->code = 0;
  return go(s, IN_CODE);
}

static bool in_escape(json_scan *s, char c) {
  if (c == 'u') return begin_code(s, false);
  return c && strchr("\"\\/bfnrt", c) && go(s, IN_STRING);
}

/* Halves of a surrogate pair are taken in their order alone: a first half needs an escape with the second one right
 * after it. */
static bool in_code(json_scan *s, char c) {
  unsigned digit = 16;
  if (is_digit(c)) digit = (unsigned)(c - '0');
  if (c >= 'a' && c <= 'f') digit = (unsigned)(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') digit = (unsigned)(c - 'A') + 10;
  if (digit == 16) return false;
  s->code = s->code << 4 | digit;
  if (--s->more) return true;
  bool first = s->code >= 0xD800 && s->code < 0xDC00, second = s->code >= 0xDC00 && s->code < 0xE000;
  if (second != s->pair) return false;
  return go(s, first ? BEFORE_PAIR : IN_STRING);
}

/* ---- words and numbers ---- */

static bool begin_value(json_scan *s, char c) {
  static const char *const words[] = {"true", "false", "null"};
  if (json_is_blank(c)) return true;
  if (c == '{' || c == '[') return open_bracket(s, c == '{');
  if (c == '"') return begin_string(s, false);
  if (c == '-') return go(s, BEHIND_MINUS);
  if (is_digit(c)) return go(s, c == '0' ? BEHIND_ZERO : IN_INTEGER);
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (c == *words[i]) {
      s->word = words[i] + 1;
      return go(s, IN_WORD);
    }
  return false;
}

static bool in_word(json_scan *s, char c) {
  if (c != *s->word++) return false;
  return *s->word || go(s, BEHIND_VALUE);
}

/* The default is an integer part or a fraction: a digit continues it, unless it is a leading zero. */
static bool in_number(json_scan *s, char c) {
  bool digit = is_digit(c), e = c == 'e' || c == 'E';
  switch (s->state) {
  case BEHIND_MINUS: return digit && go(s, c == '0' ? BEHIND_ZERO : IN_INTEGER);
  case BEHIND_POINT: return digit && go(s, IN_FRACTION);
  case BEHIND_E: return digit ? go(s, IN_EXPONENT) : (c == '+' || c == '-') && go(s, BEHIND_SIGN);
  case BEHIND_SIGN: return digit && go(s, IN_EXPONENT);
  case IN_EXPONENT: return digit || behind_value(s, c);
  default: break;
  }
  if (digit) return s->state != BEHIND_ZERO;
  if (e) return go(s, BEHIND_E);
  if (c == '.' && s->state != IN_FRACTION) return go(s, BEHIND_POINT);
  return behind_value(s, c);
}

bool json_scan_byte(json_scan *s, char c) {
  switch ((enum state)s->state) {
  case BEFORE_VALUE: return begin_value(s, c);
  case BEFORE_ELEMENT: return c == ']' ? behind_value(s, c) : begin_value(s, c);
  case BEFORE_MEMBER:
    if (c == '}') return behind_value(s, c);
    return json_is_blank(c) || (c == '"' && begin_string(s, true));
  case BEFORE_KEY: return json_is_blank(c) || (c == '"' && begin_string(s, true));
  case BEFORE_COLON: return json_is_blank(c) || (c == ':' && go(s, BEFORE_VALUE));
  case BEHIND_VALUE: return behind_value(s, c);
  case IN_WORD: return in_word(s, c);
  case IN_STRING: return in_string(s, c);
  case IN_ESCAPE: return in_escape(s, c);
  case IN_CODE: return in_code(s, c);
  case BEFORE_PAIR: return c == '\\' && go(s, IN_PAIR);
  case IN_PAIR: return c == 'u' && begin_code(s, true);
  default: return in_number(s, c);
  }
}

/* ---- the end ---- */

static bool may_end(const json_scan *s) {
  switch ((enum state)s->state) {
  case BEFORE_MEMBER: return s->depth > 1;
  case IN_STRING: return !s->in_key && !s->more;
  case BEFORE_ELEMENT:
  case BEHIND_VALUE:
  case BEHIND_ZERO:
  case IN_INTEGER:
  case IN_FRACTION:
  case IN_EXPONENT: return true;
  default: return false;
  }
}

int json_scan_missing(const json_scan *s, char *out) {
  int n = 0;
  if (!may_end(s)) return -1;
  if (s->state == IN_STRING) out[n++] = '"';
  for (unsigned d = s->depth; d; d--) out[n++] = in_object(s, d) ? '}' : ']';
  return n;
}
