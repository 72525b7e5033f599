/* SPDX-License-Identifier: Apache-2.0 */
/* The byte-level alphabet: each byte as one printable character, so that any text is made of known symbols. Printable
 * Latin-1 bytes stand for themselves, the other 68 for U+0100..U+0143 in order. */
#ifndef TRI_TEXT_TOKENIZER_BYTELEVEL_H
#define TRI_TEXT_TOKENIZER_BYTELEVEL_H

#include <stdint.h>

/* GPT-2's table, worked out instead of stored: bytes 0 to 32, 127 to 160 and 173 are the 68. */
static inline uint32_t tok_bytelevel_char(unsigned char b) {
  if (b <= 0x20) return 0x100u + b;
  if (b >= 0x7f && b <= 0xa0) return 0x121u + (b - 0x7fu);
  return b == 0xad ? 0x143u : b;
}

/* -1 for a character outside the alphabet. */
static inline int tok_bytelevel_byte(uint32_t c) {
  if (c >= 0x100 && c <= 0x120) return (int)(c - 0x100);
  if (c >= 0x121 && c <= 0x142) return (int)(c - 0x121 + 0x7f);
  if (c == 0x143) return 0xad;
  return c < 0x100 && tok_bytelevel_char((unsigned char)c) == c ? (int)c : -1;
}

#endif
