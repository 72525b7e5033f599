/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json/json_writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

void tri_json_add_string(tri_buf *b, const char *s, size_t len) {
  tri_text_add(b, "\"", 1);
  for (size_t i = 0, n; i < len; i += n) {
    unsigned char c = (unsigned char)s[i];
    n = tri_utf8_length(s + i, len - i);
    if (!n) {
      tri_text_add(b, "\xef\xbf\xbd", 3);
      n = 1;
    } else if (c == '"' || c == '\\') {
      tri_text_printf(b, "\\%c", c);
    } else if (c == '\n') {
      tri_text_add(b, "\\n", 2);
    } else if (c < 0x20 || c == 0x7f) {
      tri_text_printf(b, "\\u%04x", c);
    } else {
      tri_text_add(b, s + i, n);
    }
  }
  tri_text_add(b, "\"", 1);
}

/* Adds a comma unless an object, an array or the text itself has just begun. */
static void separate(tri_buf *b) {
  char last = b->len ? b->data[b->len - 1] : '{';
  if (last != '{' && last != '[') tri_text_add(b, ",", 1);
}

void tri_json_add_key(tri_buf *b, const char *key) {
  separate(b);
  tri_text_printf(b, "\"%s\":", key);
}

/* Tries 6 digits, as most figures have few, and then 15 to 17: 17 always read back as the same double. */
void tri_json_add_number(tri_buf *b, double x) {
  char text[40];
  if (!isfinite(x)) return tri_text_add(b, "null", 4);
  for (int digits = 6; digits <= 17; digits += digits < 15 ? 9 : 1) {
    snprintf(text, sizeof text, "%.*g", digits, x);
    if (strtod(text, NULL) == x) break;
  }
  tri_text_add(b, text, strlen(text));
}

void tri_json_add_float(tri_buf *b, float x, const char *otherwise) {
  char text[40];
  if (!isfinite(x)) {
    tri_text_add(b, otherwise, strlen(otherwise));
    return;
  }
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, (double)x);
    if (strtof(text, NULL) == x) break;
  }
  tri_text_add(b, text, strlen(text));
}

void tri_json_open(tri_buf *b, const char *key, char bracket) {
  if (key)
    tri_json_add_key(b, key);
  else
    separate(b);
  tri_text_add(b, &bracket, 1);
}

void tri_json_put_text(tri_buf *b, const char *key, const char *s, size_t len) {
  tri_json_add_key(b, key);
  tri_json_add_string(b, s, len);
}

void tri_json_put_word(tri_buf *b, const char *key, const char *s) { tri_json_put_text(b, key, s, strlen(s)); }

void tri_json_put_num(tri_buf *b, const char *key, double x) {
  tri_json_add_key(b, key);
  tri_json_add_number(b, x);
}

void tri_json_put_uint(tri_buf *b, const char *key, uint64_t x) {
  tri_json_add_key(b, key);
  tri_text_printf(b, "%llu", (unsigned long long)x);
}

/* ---- values of documents ---- */

typedef struct writer {
  tri_buf *b;
  bool spaced, begun;
} writer;

static void put_comma(tri_buf *b, bool spaced) { tri_text_add(b, ", ", spaced ? 2 : 1); }

static tri_status put_member(void *ctx, const char *key, const tri_json *value) {
  writer *w = ctx;
  if (w->begun) put_comma(w->b, w->spaced);
  w->begun = true;
  tri_json_add_string(w->b, key, strlen(key));
  tri_text_add(w->b, ": ", w->spaced ? 2 : 1);
  tri_json_add_value(w->b, value, w->spaced);
  return w->b->failed ? TRI_NO_MEMORY : TRI_OK;
}

/* Writes a number that neither an int64_t nor a double holds as it was spelled. */
static bool put_spelling(tri_buf *b, const tri_json *v) {
  size_t len;
  const char *s = tri_json_spelling(v, &len);
  if (s) tri_text_add(b, s, len);
  return s != NULL;
}

static void put_integer(tri_buf *b, const tri_json *v) {
  int64_t i = 0;
  if (put_spelling(b, v)) return;
  tri_json_as_int(v, &i);
  tri_text_printf(b, "%" PRId64, i);
}

static void put_real(tri_buf *b, const tri_json *v) {
  double x = 0;
  size_t from = b->len;
  if (put_spelling(b, v)) return;
  tri_json_as_num(v, &x);
  tri_json_add_number(b, x);
  if (!b->failed && !strpbrk(b->data + from, ".e")) tri_text_add(b, ".0", 2);
}

static void put_array(tri_buf *b, const tri_json *v, bool spaced) {
  tri_text_add(b, "[", 1);
  for (size_t k = 0; k < tri_json_size(v); k++) {
    if (k) put_comma(b, spaced);
    tri_json_add_value(b, tri_json_at(v, k), spaced);
  }
  tri_text_add(b, "]", 1);
}

void tri_json_add_value(tri_buf *b, const tri_json *v, bool spaced) {
  bool flag = false;
  size_t len = 0;
  const char *s;
  switch (tri_json_kind_of(v)) {
  case TRI_JSON_NULL: tri_text_add(b, "null", 4); return;
  case TRI_JSON_BOOL:
    tri_json_as_bool(v, &flag);
    tri_text_add(b, flag ? "true" : "false", flag ? 4 : 5);
    return;
  case TRI_JSON_INT: put_integer(b, v); return;
  case TRI_JSON_REAL: put_real(b, v); return;
  case TRI_JSON_STRING:
    s = tri_json_as_str(v, &len);
    tri_json_add_string(b, s, len);
    return;
  case TRI_JSON_ARRAY: put_array(b, v, spaced); return;
  case TRI_JSON_OBJECT:
    tri_text_add(b, "{", 1);
    if (!b->failed) tri_json_each(v, put_member, &(writer){.b = b, .spaced = spaced});
    tri_text_add(b, "}", 1);
  }
}

void tri_json_put_value(tri_buf *b, const char *key, const tri_json *v) {
  char last = b->len ? b->data[b->len - 1] : '{';
  if (last != '{') put_comma(b, false);
  tri_json_add_string(b, key, strlen(key)); /* any text is a key */
  tri_text_add(b, ":", 1);
  tri_json_add_value(b, v, false);
}
