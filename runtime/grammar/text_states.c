/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/grammar/text_states.h"

#include <stdio.h>
#include <string.h>

static bool between(uint8_t b, uint8_t lo, uint8_t hi) { return lo <= b && b <= hi; }

static tri_text_state before_character(uint8_t b) {
  if (b == '\\') return TRI_TEXT_ESCAPE;
  if (b < ' ' || b == '"') return TRI_TEXT_OUT;
  if (b < 0x80) return TRI_TEXT_BEFORE;
  if (between(b, 0xc2, 0xdf)) return TRI_TEXT_REST_1;
  if (b == 0xe0) return TRI_TEXT_AFTER_E0;
  if (b == 0xed) return TRI_TEXT_AFTER_ED;
  if (between(b, 0xe1, 0xef)) return TRI_TEXT_REST_2;
  if (b == 0xf0) return TRI_TEXT_AFTER_F0;
  if (b == 0xf4) return TRI_TEXT_AFTER_F4;
  return between(b, 0xf1, 0xf3) ? TRI_TEXT_REST_3 : TRI_TEXT_OUT;
}

static bool ends_control(tri_text_state at, uint8_t b) {
  if (at == TRI_TEXT_HIGH) return between(b, '0', '9') || between(b, 'a', 'f');
  return between(b, '0', '7') || b == 'b' || between(b, 'e', 'f'); /* 8, 9, a, c and d have short escapes */
}

tri_text_state tri_text_next(tri_text_state at, uint8_t b) {
  switch (at) {
  case TRI_TEXT_BEFORE: return before_character(b);
  case TRI_TEXT_REST_1: return between(b, 0x80, 0xbf) ? TRI_TEXT_BEFORE : TRI_TEXT_OUT;
  case TRI_TEXT_REST_2: return between(b, 0x80, 0xbf) ? TRI_TEXT_REST_1 : TRI_TEXT_OUT;
  case TRI_TEXT_REST_3: return between(b, 0x80, 0xbf) ? TRI_TEXT_REST_2 : TRI_TEXT_OUT;
  case TRI_TEXT_AFTER_E0: return between(b, 0xa0, 0xbf) ? TRI_TEXT_REST_1 : TRI_TEXT_OUT;
  case TRI_TEXT_AFTER_ED: return between(b, 0x80, 0x9f) ? TRI_TEXT_REST_1 : TRI_TEXT_OUT;
  case TRI_TEXT_AFTER_F0: return between(b, 0x90, 0xbf) ? TRI_TEXT_REST_2 : TRI_TEXT_OUT;
  case TRI_TEXT_AFTER_F4: return between(b, 0x80, 0x8f) ? TRI_TEXT_REST_2 : TRI_TEXT_OUT;
  case TRI_TEXT_ESCAPE:
    if (b == 'u') return TRI_TEXT_U;
    return b && strchr("\"\\bfnrt", b) ? TRI_TEXT_BEFORE : TRI_TEXT_OUT;
  case TRI_TEXT_U: return b == '0' ? TRI_TEXT_U0 : TRI_TEXT_OUT;
  case TRI_TEXT_U0: return b == '0' ? TRI_TEXT_U00 : TRI_TEXT_OUT;
  case TRI_TEXT_U00: return b == '0' ? TRI_TEXT_LOW : b == '1' ? TRI_TEXT_HIGH : TRI_TEXT_OUT;
  case TRI_TEXT_LOW:
  case TRI_TEXT_HIGH: return ends_control(at, b) ? TRI_TEXT_BEFORE : TRI_TEXT_OUT;
  case TRI_TEXT_OUT: break;
  }
  return TRI_TEXT_OUT;
}

int tri_text_spell(uint32_t c, char out[6]) {
  static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
  const char *found = c && c < 0x80 ? strchr(escaped, (int)c) : NULL;
  if (found) {
    out[0] = '\\';
    out[1] = letters[found - escaped];
    return 2;
  }
  if (c < ' ') {
    char text[8];
    snprintf(text, sizeof text, "\\u%04x", c);
    memcpy(out, text, 6);
    return 6;
  }
  if (c < 0x80) {
    out[0] = (char)c;
    return 1;
  }
  int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 63));
  out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
  return n;
}
