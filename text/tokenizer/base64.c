/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/base64.h"

#include <stdint.h>

static int digit_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

tri_status tok_base64(const char *s, size_t len, tri_buf *out, size_t *bad) {
  size_t padding = 0;
  while (padding < 2 && padding < len && s[len - 1 - padding] == '=') padding++;
  TRI_CHECK(tri_buf_reserve(out, len / 4 * 3));
  *bad = len;
  if (len % 4) return TRI_CORRUPT;
  for (size_t i = 0; i < len; i += 4) {
    size_t last = i + 4 == len ? padding : 0;
    uint32_t bits = 0;
    for (size_t k = 0; k < 4; k++) {
      int digit = k < 4 - last ? digit_of(s[i + k]) : 0;
      *bad = i + k;
      if (digit < 0) return TRI_CORRUPT;
      bits = bits << 6 | (uint32_t)digit;
    }
    for (size_t k = 0; k < 3 - last; k++) out->data[out->len++] = (char)(bits >> (16 - 8 * k) & 255);
  }
  return TRI_OK;
}
