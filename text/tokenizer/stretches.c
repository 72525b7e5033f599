/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/stretches.h"

#include "text/unicode/unicode.h"

/* Python's str.isspace(). */
static bool is_space(uint32_t c) { return tok_is_space(c) || (c >= 0x1c && c <= 0x1f); }

size_t tok_stretch_end(const tok_stretches *s, tok_stretches_at *at, const char *text, size_t len, size_t from) {
  if (!s->block) return len;
  for (size_t n; from < len; from += n) {
    bool space = is_space(tok_utf8_decode(text + from, &n));
    if (at->in_block == s->block) {
      *at = (tok_stretches_at){0};
      return from;
    }
    if (!at->in_block++ || space != at->space) at->in_run = 0;
    at->space = space;
    if (at->in_run++ < s->run) continue;
    at->in_block--; /* the character is the next stretch's first */
    at->in_run = 0;
    return from;
  }
  return len;
}
