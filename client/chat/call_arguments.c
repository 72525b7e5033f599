/* SPDX-License-Identifier: Apache-2.0 */
#include "client/chat/call_arguments.h"

#include <string.h>

#include "base/json/json.h"

void call_arguments_begin(call_arguments *a) {
  a->scan = (json_scan){0};
  a->first = '\0';
  a->num_missing = a->held.len = 0;
}

void call_arguments_free(call_arguments *a) { tri_buf_free(&a->held); }

static void trim(const char **s, size_t *n) {
  while (*n && json_is_blank((*s)[*n - 1])) --*n;
  while (*n && json_is_blank(**s)) {
    ++*s;
    --*n;
  }
}

static bool is_object(const char *s, size_t n) {
  char missing[JSON_SCAN_MISSING];
  json_scan scan = {0};
  for (size_t i = 0; i < n; i++)
    if (!json_scan_byte(&scan, s[i])) return false;
  return *s == '{' && !json_scan_missing(&scan, missing);
}

/* Takes null, or a text that is whole. CALL_IS_NONE: it says no object; its last byte is not taken, so that the caller
 * has all but that in `held`. */
static tri_status take_text(call_arguments *a, tri_buf *out, call_step *step) {
  tri_json_doc *doc = NULL;
  size_t n = a->held.len, inner_len = 0;
  const char *text = a->held.data;
  tri_status st = tri_json_parse(text, n, &doc, NULL);
  if (st == TRI_NO_MEMORY) return st;
  const char *inner = st == TRI_OK ? tri_json_as_str(tri_json_root(doc), &inner_len) : NULL;
  if (inner) {
    text = inner;
    n = inner_len;
  }
  trim(&text, &n);
  st = TRI_OK;
  *step = CALL_ENDS;
  if (!n || (n == 4 && !memcmp(text, "null", 4))) {
    st = tri_buf_append(out, "{}", 2);
  } else if (is_object(text, n)) {
    st = tri_buf_append(out, text, n);
  } else {
    *step = CALL_IS_NONE;
    a->held.len--;
  }
  tri_json_free(doc);
  return st;
}

tri_status call_arguments_byte(call_arguments *a, char c, tri_buf *out, call_step *step) {
  *step = CALL_IS_NONE;
  if (!a->first && c != '{' && c != '"' && c != 'n') return TRI_OK;
  if (!json_scan_byte(&a->scan, c)) return TRI_OK;
  if (!a->first) a->first = c;
  TRI_CHECK(tri_buf_append(&a->held, &c, 1));
  int missing = json_scan_missing(&a->scan, a->missing);
  *step = missing ? CALL_GOES_ON : CALL_ENDS;
  if (a->first != '{') return missing ? TRI_OK : take_text(a, out, step);
  if (missing < 0) return TRI_OK;
  a->num_missing = (size_t)missing;
  TRI_CHECK(tri_buf_append(out, a->held.data, a->held.len));
  a->held.len = 0;
  return TRI_OK;
}

tri_status call_arguments_close(const call_arguments *a, tri_buf *out) {
  return a->num_missing ? tri_buf_append(out, a->missing, a->num_missing) : TRI_OK;
}
