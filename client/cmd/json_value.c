/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cmd/json_value.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct writer {
  cmd_buf *b;
  bool without_nulls;
} writer;

static tri_status put_member(void *ctx, const char *key, const tri_json *value) {
  writer *w = ctx;
  if (w->without_nulls && tri_json_kind_of(value) == TRI_JSON_NULL) return TRI_OK;
  cmd_json_member(w->b, key, value, w->without_nulls);
  return w->b->failed ? TRI_NO_MEMORY : TRI_OK;
}

static void put_real(cmd_buf *b, const tri_json *v) {
  double x = 0;
  char number[40];
  tri_json_as_num(v, &x);
  snprintf(number, sizeof number, "%.17g", x);
  cmd_buf_add(b, number, strlen(number));
  if (!strpbrk(number, ".e")) cmd_buf_add(b, ".0", 2);
}

static void put_array(cmd_buf *b, const tri_json *v, bool without_nulls) {
  cmd_buf_add(b, "[", 1);
  for (size_t k = 0; k < tri_json_size(v); k++) {
    if (k) cmd_buf_add(b, ",", 1);
    cmd_json_value(b, tri_json_at(v, k), without_nulls);
  }
  cmd_buf_add(b, "]", 1);
}

void cmd_json_value(cmd_buf *b, const tri_json *v, bool without_nulls) {
  bool flag = false;
  int64_t i = 0;
  size_t len = 0;
  const char *s;
  switch (tri_json_kind_of(v)) {
  case TRI_JSON_NULL: cmd_buf_add(b, "null", 4); return;
  case TRI_JSON_BOOL:
    tri_json_as_bool(v, &flag);
    cmd_buf_add(b, flag ? "true" : "false", flag ? 4 : 5);
    return;
  case TRI_JSON_INT:
    tri_json_as_int(v, &i);
    cmd_buf_printf(b, "%" PRId64, i);
    return;
  case TRI_JSON_REAL: put_real(b, v); return;
  case TRI_JSON_STRING:
    s = tri_json_as_str(v, &len);
    cmd_buf_json(b, s, len);
    return;
  case TRI_JSON_ARRAY: put_array(b, v, without_nulls); return;
  case TRI_JSON_OBJECT:
    cmd_buf_add(b, "{", 1);
    if (!b->failed) tri_json_each(v, put_member, &(writer){b, without_nulls});
    cmd_buf_add(b, "}", 1);
  }
}

void cmd_json_member(cmd_buf *b, const char *key, const tri_json *v, bool without_nulls) {
  char last = b->len ? b->data[b->len - 1] : '{';
  if (last != '{') cmd_buf_add(b, ",", 1);
  cmd_buf_json(b, key, strlen(key));
  cmd_buf_add(b, ":", 1);
  cmd_json_value(b, v, without_nulls);
}
