/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* Makes room for `more` bytes and the zero after them. */
static bool reserve(tri_buf *b, size_t more) {
  size_t room;
  b->failed = b->failed || !tri_size_add(more, 1, &room) || tri_buf_reserve(b, room) != TRI_OK;
  return !b->failed;
}

void tri_text_add(tri_buf *b, const char *s, size_t len) {
  if (!reserve(b, len)) return;
  if (len) memcpy(b->data + b->len, s, len);
  b->len += len;
  b->data[b->len] = '\0';
}

void tri_text_printf(tri_buf *b, const char *fmt, ...) {
  char small[256];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(small, sizeof small, fmt, ap);
  va_end(ap);
  if (n < 0) return;
  if ((size_t)n < sizeof small) return tri_text_add(b, small, (size_t)n);
  if (!reserve(b, (size_t)n)) return;
  va_start(ap, fmt);
  vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
  va_end(ap);
  b->len += (size_t)n;
}

size_t tri_utf8_length(const char *text, size_t left) {
  const unsigned char *s = (const unsigned char *)text;
  static const struct {
    unsigned char lo, hi, second_lo, second_hi, length;
  } rows[] = {{0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
              {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
              {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (*s < rows[i].lo || *s > rows[i].hi) continue;
    size_t n = rows[i].length;
    if (n > left || (n > 1 && (s[1] < rows[i].second_lo || s[1] > rows[i].second_hi))) return 0;
    for (size_t k = 2; k < n; k++)
      if ((s[k] & 0xc0) != 0x80) return 0;
    return n;
  }
  return 0;
}

size_t tri_utf8_prefix(const char *s, size_t len) {
  size_t i = 0;
  for (size_t n; i < len && (n = tri_utf8_length(s + i, len - i)); i += n) continue;
  return i;
}

static bool is_token_char(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
  return c && strchr("!#$%&'*+-.^_`|~", c);
}

bool tri_text_is_token(const char *s, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (!is_token_char(s[i])) return false;
  return len > 0;
}

bool tri_text_ends_with(const char *s, const char *end) {
  size_t n = strlen(s), m = strlen(end);
  return n >= m && !strcmp(s + n - m, end);
}

bool tri_has_word(const char *words, const char *word) {
  size_t len = strlen(word);
  for (size_t n; *words; words += n + strspn(words + n, " ")) {
    n = strcspn(words, " ");
    if (n == len && !memcmp(words, word, n)) return true;
  }
  return false;
}
