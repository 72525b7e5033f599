/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizers that look at one character at a time. */
#include "text/tokenizer/normalize.h"

static size_t keep(uint32_t c, uint32_t out[3]) {
  out[0] = c;
  return 1;
}

size_t tok_map_lowercase(uint32_t c, uint32_t out[3]) { return tok_lower(c, out); }

size_t tok_map_without_marks(uint32_t c, uint32_t out[3]) { return tok_is_mark(c) ? 0 : keep(c, out); }

size_t tok_map_without_nonspacing_marks(uint32_t c, uint32_t out[3]) {
  return tok_is_nonspacing_mark(c) ? 0 : keep(c, out);
}

/* The rules of SentencePiece's "nmt" normalization, which the type is named after: control characters go, other white
 * space and what looks like it becomes a space. */
size_t tok_map_nmt(uint32_t c, uint32_t out[3]) {
  switch (c) {
  case '\t':
  case '\n':
  case '\f':
  case '\r':
  case 0x1680:
  case 0x2028:
  case 0x2029:
  case 0x2581:
  case 0xfeff:
  case 0xfffd: return keep(' ', out);
  case 0xb:
  case 0x7f:
  case 0x8f:
  case 0x9f: return 0;
  default: break;
  }
  if ((c >= 0x1 && c <= 0x8) || (c >= 0xe && c <= 0x1f)) return 0;
  return keep(c >= 0x200b && c <= 0x200f ? ' ' : c, out);
}

/* BERT's clean_text: controls and U+FFFD go, every white space becomes a plain one. */
size_t tok_map_bert_clean(uint32_t c, uint32_t out[3]) {
  if (c == '\t' || c == '\n' || c == '\r') return keep(' ', out);
  if (c == 0xfffd || tok_is_other(c)) return 0;
  return keep(tok_is_space(c) ? ' ' : c, out);
}

/* The blocks of BERT's own list; that one of them begins at U+2B920 instead of U+2B820 is part of the list. */
static bool is_chinese(uint32_t c) {
  static const struct {
    uint32_t first, last;
  } blocks[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},  {0x20000, 0x2a6df},
                {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    if (c >= blocks[i].first && c <= blocks[i].last) return true;
  return false;
}

size_t tok_map_bert_chinese(uint32_t c, uint32_t out[3]) {
  if (!is_chinese(c)) return keep(c, out);
  out[0] = out[2] = ' ';
  out[1] = c;
  return 3;
}
