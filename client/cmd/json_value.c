/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cmd/json_value.h"

#include <inttypes.h>
#include <string.h>

typedef struct writer {
  cmd_buf *b;
  bool spaced, begun;
} writer;

static void put_comma(cmd_buf *b, bool spaced) { cmd_buf_add(b, ", ", spaced ? 2 : 1); }

static tri_status put_member(void *ctx, const char *key, const tri_json *value) {
  writer *w = ctx;
  if (w->begun) put_comma(w->b, w->spaced);
  w->begun = true;
  cmd_buf_json(w->b, key, strlen(key));
  cmd_buf_add(w->b, ": ", w->spaced ? 2 : 1);
  cmd_json_value(w->b, value, w->spaced);
  return w->b->failed ? TRI_NO_MEMORY : TRI_OK;
}

/* Writes a number that neither an int64_t nor a double holds as it was spelled. */
static bool put_spelling(cmd_buf *b, const tri_json *v) {
  size_t len;
  const char *s = tri_json_spelling(v, &len);
  if (s) cmd_buf_add(b, s, len);
  return s != NULL;
}

static void put_integer(cmd_buf *b, const tri_json *v) {
  int64_t i = 0;
  if (put_spelling(b, v)) return;
  tri_json_as_int(v, &i);
  cmd_buf_printf(b, "%" PRId64, i);
}

static void put_real(cmd_buf *b, const tri_json *v) {
  double x = 0;
  size_t from = b->len;
  if (put_spelling(b, v)) return;
  tri_json_as_num(v, &x);
  cmd_buf_num(b, x);
  if (!b->failed && !strpbrk(b->data + from, ".e")) cmd_buf_add(b, ".0", 2);
}

static void put_array(cmd_buf *b, const tri_json *v, bool spaced) {
  cmd_buf_add(b, "[", 1);
  for (size_t k = 0; k < tri_json_size(v); k++) {
    if (k) put_comma(b, spaced);
    cmd_json_value(b, tri_json_at(v, k), spaced);
  }
  cmd_buf_add(b, "]", 1);
}

void cmd_json_value(cmd_buf *b, const tri_json *v, bool spaced) {
  bool flag = false;
  size_t len = 0;
  const char *s;
  switch (tri_json_kind_of(v)) {
  case TRI_JSON_NULL: cmd_buf_add(b, "null", 4); return;
  case TRI_JSON_BOOL:
    tri_json_as_bool(v, &flag);
    cmd_buf_add(b, flag ? "true" : "false", flag ? 4 : 5);
    return;
  case TRI_JSON_INT: put_integer(b, v); return;
  case TRI_JSON_REAL: put_real(b, v); return;
  case TRI_JSON_STRING:
    s = tri_json_as_str(v, &len);
    cmd_buf_json(b, s, len);
    return;
  case TRI_JSON_ARRAY: put_array(b, v, spaced); return;
  case TRI_JSON_OBJECT:
    cmd_buf_add(b, "{", 1);
    if (!b->failed) tri_json_each(v, put_member, &(writer){.b = b, .spaced = spaced});
    cmd_buf_add(b, "}", 1);
  }
}

void cmd_json_member(cmd_buf *b, const char *key, const tri_json *v) {
  char last = b->len ? b->data[b->len - 1] : '{';
  if (last != '{') put_comma(b, false);
  cmd_buf_json(b, key, strlen(key)); /* any text is a key */
  cmd_buf_add(b, ":", 1);
  cmd_json_value(b, v, false);
}
