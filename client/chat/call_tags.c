/* SPDX-License-Identifier: Apache-2.0 */
/* A call that is written as tags. Its arguments are made JSON, one parameter at a time. */
#include <string.h>

#include "client/chat/call_scan.h"
#include "client/cmd/buf.h"
#include "runtime/base/json.h"

enum { LONGEST_TAG = 256 };
enum state { BEFORE_TAG, IN_TAG, IN_PARAMETER };

static const char function[] = "<function=", parameter[] = "<parameter=", end_of_parameter[] = "</parameter>";

static bool tag_begins(const call_scan *s, const char *word) {
  size_t len = strlen(word);
  return s->word.len > len && !memcmp(s->word.data, word, len);
}

/* Returns the JSON that a value is, or NULL; Python's words are those of JSON. */
static const char *as_json(const char *value, size_t len) {
  static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (len == strlen(words[i][0]) && !memcmp(value, words[i][0], len)) return words[i][1];
  cmd_buf list = {0};
  tri_json_doc *doc = NULL;
  cmd_buf_add(&list, "[", 1);
  cmd_buf_add(&list, value, len);
  cmd_buf_add(&list, "]", 1);
  bool one = !list.failed && tri_json_parse(list.data, list.len, &doc, NULL) == TRI_OK &&
             tri_json_size(tri_json_root(doc)) == 1;
  tri_json_free(doc);
  cmd_buf_free(&list);
  return one ? value : NULL;
}

/* Appends `"KEY": VALUE`. A value stands between line ends of its own. */
static tri_status take_parameter(call_scan *s) {
  const char *key = s->word.data + sizeof parameter - 1, *value = s->value.data;
  size_t key_len = s->word.len - (sizeof parameter - 1), len = s->value.len;
  cmd_buf b = {0};
  if (len && value[0] == '\n') {
    value++;
    len--;
  }
  if (len && value[len - 1] == '\n') len--;
  bool text = s->is_text && s->is_text(s->ctx, s->name.data, s->name.len, key, key_len);
  const char *json = text ? NULL : as_json(value, len);
  cmd_buf_add(&b, s->has_arguments ? ", " : "{", s->has_arguments ? 2 : 1);
  cmd_buf_json(&b, key, key_len);
  cmd_buf_add(&b, ": ", 2);
  if (json)
    cmd_buf_add(&b, json, json == value ? len : strlen(json));
  else
    cmd_buf_json(&b, value, len);
  tri_status st = b.failed ? TRI_NO_MEMORY : tri_buf_append(&s->arguments, b.data, b.len);
  cmd_buf_free(&b);
  s->has_arguments = true;
  s->value.len = s->word.len = 0;
  return st;
}

static tri_status end_tag(call_scan *s, call_step *step) {
  static const char end[] = "</function";
  const size_t size = sizeof function - 1;
  s->state = BEFORE_TAG;
  if (!s->has_name && tag_begins(s, function)) {
    s->has_name = true;
    TRI_CHECK(tri_buf_append(&s->name, s->word.data + size, s->word.len - size));
    s->word.len = 0;
    return TRI_OK;
  }
  if (s->has_name && tag_begins(s, parameter)) {
    s->state = IN_PARAMETER;
    return TRI_OK;
  }
  bool ends = s->has_name && s->word.len == sizeof end - 1 && !memcmp(s->word.data, end, sizeof end - 1);
  *step = ends ? CALL_ENDS : CALL_IS_NONE;
  return ends && s->has_arguments ? tri_buf_append(&s->arguments, "}", 1) : TRI_OK;
}

tri_status call_tags_byte(call_scan *s, char c, call_step *step) {
  const size_t size = sizeof end_of_parameter - 1;
  switch (s->state) {
  case BEFORE_TAG:
    if (call_is_blank(c)) return TRI_OK;
    s->word.len = 0;
    s->state = IN_TAG;
    if (c != '<') *step = CALL_IS_NONE;
    return tri_buf_append(&s->word, &c, 1);
  case IN_TAG:
    if (c == '>') return end_tag(s, step);
    if (s->word.len == LONGEST_TAG || c == '\n' || c == '<') *step = CALL_IS_NONE;
    return tri_buf_append(&s->word, &c, 1);
  default:
    TRI_CHECK(tri_buf_append(&s->value, &c, 1));
    if (s->value.len < size || memcmp(s->value.data + s->value.len - size, end_of_parameter, size) != 0) return TRI_OK;
    s->value.len -= size;
    s->state = BEFORE_TAG;
    return take_parameter(s);
  }
}
