/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cmd/buf.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

void cmd_buf_free(cmd_buf *b) {
  tri_free(b->data);
  *b = (cmd_buf){0};
}

/* Makes room for `more` bytes and the zero behind them. */
static bool reserve(cmd_buf *b, size_t more) {
  size_t room;
  b->failed =
      b->failed || !tri_size_add(more, 1, &room) || tri_array_reserve(&b->data, b->len, &b->cap, room, 1) != TRI_OK;
  return !b->failed;
}

void cmd_buf_add(cmd_buf *b, const char *s, size_t len) {
  if (!reserve(b, len)) return;
  if (len) memcpy(b->data + b->len, s, len);
  b->len += len;
  b->data[b->len] = '\0';
}

void cmd_buf_printf(cmd_buf *b, const char *fmt, ...) {
  char small[256];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(small, sizeof small, fmt, ap);
  va_end(ap);
  if (n < 0) return;
  if ((size_t)n < sizeof small) return cmd_buf_add(b, small, (size_t)n);
  if (!reserve(b, (size_t)n)) return;
  va_start(ap, fmt);
  vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
  va_end(ap);
  b->len += (size_t)n;
}

/* Bytes of the UTF-8 sequence at s (RFC 3629: no surrogates, no overlong forms, up to U+10FFFF); 0: not one. */
static size_t utf8_length(const unsigned char *s, size_t left) {
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

size_t cmd_utf8_prefix(const char *s, size_t len) {
  size_t i = 0;
  for (size_t n; i < len && (n = utf8_length((const unsigned char *)s + i, len - i)); i += n) continue;
  return i;
}

void cmd_buf_json(cmd_buf *b, const char *s, size_t len) {
  cmd_buf_add(b, "\"", 1);
  for (size_t i = 0, n; i < len; i += n) {
    unsigned char c = (unsigned char)s[i];
    n = utf8_length((const unsigned char *)s + i, len - i);
    if (!n) {
      cmd_buf_add(b, "\xef\xbf\xbd", 3);
      n = 1;
    } else if (c == '"' || c == '\\') {
      cmd_buf_printf(b, "\\%c", c);
    } else if (c == '\n') {
      cmd_buf_add(b, "\\n", 2);
    } else if (c < 0x20 || c == 0x7f) {
      cmd_buf_printf(b, "\\u%04x", c);
    } else {
      cmd_buf_add(b, s + i, n);
    }
  }
  cmd_buf_add(b, "\"", 1);
}

/* Adds a comma unless an object, an array or the text itself has just begun. */
static void separate(cmd_buf *b) {
  char last = b->len ? b->data[b->len - 1] : '{';
  if (last != '{' && last != '[') cmd_buf_add(b, ",", 1);
}

void cmd_buf_key(cmd_buf *b, const char *key) {
  separate(b);
  cmd_buf_printf(b, "\"%s\":", key);
}

void cmd_buf_num(cmd_buf *b, double x) {
  char text[40];
  if (!isfinite(x)) return cmd_buf_add(b, "null", 4);
  for (int digits = 6; digits <= 17; digits += digits < 15 ? 9 : 1) {
    snprintf(text, sizeof text, "%.*g", digits, x);
    if (strtod(text, NULL) == x) break;
  }
  cmd_buf_add(b, text, strlen(text));
}

void cmd_buf_float(cmd_buf *b, float x, const char *otherwise) {
  char text[40];
  if (!isfinite(x)) {
    cmd_buf_add(b, otherwise, strlen(otherwise));
    return;
  }
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, (double)x);
    if (strtof(text, NULL) == x) break;
  }
  cmd_buf_add(b, text, strlen(text));
}

void cmd_json_open(cmd_buf *b, const char *key, char bracket) {
  if (key)
    cmd_buf_key(b, key);
  else
    separate(b);
  cmd_buf_add(b, &bracket, 1);
}

void cmd_json_text(cmd_buf *b, const char *key, const char *s, size_t len) {
  cmd_buf_key(b, key);
  cmd_buf_json(b, s, len);
}

void cmd_json_word(cmd_buf *b, const char *key, const char *s) { cmd_json_text(b, key, s, strlen(s)); }

void cmd_json_num(cmd_buf *b, const char *key, double x) {
  cmd_buf_key(b, key);
  cmd_buf_num(b, x);
}

void cmd_json_uint(cmd_buf *b, const char *key, uint64_t x) {
  cmd_buf_key(b, key);
  cmd_buf_printf(b, "%llu", (unsigned long long)x);
}

void cmd_json_error(cmd_buf *b, const char *code, const char *field, const char *message) {
  cmd_json_word(b, "code", code);
  cmd_json_word(b, "field", field);
  cmd_json_word(b, "message", message);
}
