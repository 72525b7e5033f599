/* SPDX-License-Identifier: Apache-2.0 */
/* A call that is written as tags. Its arguments are made JSON, one parameter at a time.
 *
 * Models leave out closing tags, and write tags in values. A value therefore ends where the tags after it continue as a
 * call does; any other tag is a part of it. All of a value is collected, and with each > the text is looked at from its
 * end backwards: which tag is that, and what stands before it? Four things end a value:
 *   </function> after </parameter>                                    the call ends
 *   <parameter=KEY> after </parameter>, or at a line's beginning with another KEY that the tool has
 *                                                                     the next parameter begins
 *   </tool_call> after </function> or </parameter>                    the call ends, and the tag is read again
 *   <tool_call> or <function= after one of these                      likewise: the next call begins
 * BEFORE_TAG is between tags, IN_TAG in one before a value, IN_PARAMETER in a value. */
#include <string.h>

#include "client/chat/call_scan.h"
#include "base/json/json_writer.h"

enum { LONGEST_TAG = 256 };
enum state { BEFORE_TAG, IN_TAG, IN_PARAMETER };

static const char function[] = "<function=", parameter[] = "<parameter=";
static const char end_of_parameter[] = "</parameter>", end_of_function[] = "</function>";
static const char call[] = "<tool_call>", end_of_call[] = "</tool_call>";

/* ---- values ---- */

/* Returns whether a value is JSON. */
static bool is_json(const char *value, size_t len) {
  char missing[JSON_SCAN_MISSING];
  json_scan scan = {0};
  for (size_t i = 0; i < len; i++)
    if (!json_scan_byte(&scan, value[i])) return false;
  return !json_scan_missing(&scan, missing);
}

/* Adds a value as JSON, if it is some, else as a text. Python's words are those of JSON. */
static void add_value(tri_buf *b, const char *value, size_t len, bool text) {
  static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}};
  for (size_t i = 0; !text && i < sizeof words / sizeof *words; i++)
    if (len == strlen(words[i][0]) && !memcmp(value, words[i][0], len)) {
      tri_text_add(b, words[i][1], strlen(words[i][1]));
      return;
    }
  if (!text && is_json(value, len))
    tri_text_add(b, value, len);
  else
    tri_json_add_string(b, value ? value : "", len);
}

/* Returns whether a key has come before, and notes it: no key has a line end. */
static tri_status note_key(call_scan *s, const char *key, size_t len, bool *again) {
  size_t before = s->keys.len;
  TRI_CHECK(tri_buf_append(&s->keys, "\n", 1));
  TRI_CHECK(tri_buf_append(&s->keys, key, len));
  TRI_CHECK(tri_buf_append(&s->keys, "\n", 1));
  *again = memmem(s->keys.data, before, s->keys.data + before, s->keys.len - before) != NULL;
  if (*again) s->keys.len = before;
  return TRI_OK;
}

/* Appends `"KEY": VALUE` of the parameter's first `len` bytes, unless there is one of that name: what clients have had
 * of it cannot be taken back. A value stands between line ends of its own. */
static tri_status take_parameter(call_scan *s, size_t len) {
  const char *key = s->word.data + sizeof parameter - 1, *value = s->value.data;
  size_t key_len = s->word.len - (sizeof parameter - 1);
  bool again = false;
  tri_buf b = {0};
  TRI_CHECK(note_key(s, key, key_len, &again));
  if (again) return TRI_OK;
  if (len && value[0] == '\n') {
    value++;
    len--;
  }
  if (len && value[len - 1] == '\n') len--;
  bool text = s->is_text && s->is_text(s->ctx, s->name.data, s->name.len, key, key_len);
  tri_text_add(&b, s->has_arguments ? ", " : "{", s->has_arguments ? 2 : 1);
  tri_json_add_string(&b, key, key_len);
  tri_text_add(&b, ": ", 2);
  add_value(&b, value, len, text);
  tri_status st = b.failed ? TRI_NO_MEMORY : tri_buf_append(&s->arguments, b.data, b.len);
  tri_buf_free(&b);
  s->has_arguments = s->open = true;
  return st;
}

/* ---- where a value ends ---- */

static size_t without_blanks(const char *s, size_t n) {
  while (n && call_is_blank(s[n - 1])) n--;
  return n;
}

/* Takes a word off the end of a text, if it is there. */
static bool take_off(const char *s, size_t *n, const char *word) {
  size_t len = strlen(word);
  if (*n < len || memcmp(s + *n - len, word, len) != 0) return false;
  *n -= len;
  return true;
}

static bool at_line_start(const char *s, size_t n) {
  while (n && (s[n - 1] == ' ' || s[n - 1] == '\t')) n--;
  return n && s[n - 1] == '\n';
}

/* Returns whether the text ends with </parameter>, of which it sets *end to the beginning; and without one whether a
 * tag at the beginning of a line stands for it. */
static bool closes_value(const char *s, size_t n, size_t *end) {
  *end = without_blanks(s, n);
  if (take_off(s, end, end_of_parameter)) return true;
  *end = n;
  while (*end && (s[*end - 1] == ' ' || s[*end - 1] == '\t')) --*end;
  return at_line_start(s, n);
}

tri_status call_tags_close(call_scan *s) {
  if (!s->open) return TRI_OK;
  s->open = false;
  return tri_buf_append(&s->arguments, "}", 1);
}

/* Takes the value's first `len` bytes; what stands after byte `rest` of it is no part of the call. */
static tri_status end_call(call_scan *s, size_t len, size_t rest, call_step *step) {
  TRI_CHECK(take_parameter(s, len));
  TRI_CHECK(call_tags_close(s));
  *step = CALL_ENDS;
  return tri_buf_append(&s->rest, s->value.data + rest, s->value.len - rest);
}

/* Looks at a tag that the value ends with and that may begin the next parameter. Without </parameter> before it the
 * tool must have such a parameter, other than this one. */
static tri_status at_parameter(call_scan *s, size_t tag) {
  const size_t size = sizeof parameter - 1, len = s->value.len - 1 - tag;
  const char *v = s->value.data, *key = v + tag + size;
  size_t end, closed = without_blanks(v, tag);
  if (len <= size || memchr(key, '\n', len - size) || !closes_value(v, tag, &end)) return TRI_OK;
  if (!take_off(v, &closed, end_of_parameter)) {
    bool same = s->word.len == len && !memcmp(s->word.data, v + tag, len);
    bool known = !s->is_parameter || s->is_parameter(s->ctx, s->name.data, s->name.len, key, len - size);
    if (same || !known) return TRI_OK;
  }
  TRI_CHECK(take_parameter(s, end));
  s->word.len = 0;
  TRI_CHECK(tri_buf_append(&s->word, v + tag, len));
  s->value.len = 0;
  s->pending = len + 1;
  return TRI_OK;
}

/* Looks at a tag that the value ends with and that may stand after the call: the wrapper's end, or what begins another
 * call. Before it are </function> or </parameter>, and before what begins a call perhaps the wrapper's end alone. */
static tri_status at_next(call_scan *s, size_t tag, bool begins, call_step *step) {
  const char *v = s->value.data;
  size_t n = without_blanks(v, tag), end, rest = tag;
  if (begins && take_off(v, &n, end_of_call)) {
    rest = n;
    n = without_blanks(v, n);
    if (!take_off(v, &n, end_of_function)) return closes_value(v, rest, &end) ? end_call(s, end, rest, step) : TRI_OK;
    return closes_value(v, n, &end) ? end_call(s, end, rest, step) : TRI_OK;
  }
  if (take_off(v, &n, end_of_function)) return closes_value(v, n, &end) ? end_call(s, end, rest, step) : TRI_OK;
  end = n;
  return take_off(v, &end, end_of_parameter) ? end_call(s, end, rest, step) : TRI_OK;
}

static tri_status in_parameter(call_scan *s, char c, call_step *step) {
  TRI_CHECK(tri_buf_append(&s->value, &c, 1));
  const char *v = s->value.data;
  size_t n = s->value.len, end;
  if (c == '=' && take_off(v, &n, function)) return at_next(s, n, true, step);
  if (c != '>') return TRI_OK;
  if (take_off(v, &n, end_of_function)) {
    size_t closed = without_blanks(v, n);
    return take_off(v, &closed, end_of_parameter) ? end_call(s, closed, s->value.len, step) : TRI_OK;
  }
  if (take_off(v, &n, end_of_call)) return at_next(s, n, false, step);
  if (take_off(v, &n, call)) return at_next(s, n, true, step);
  size_t most = n < LONGEST_TAG ? n : LONGEST_TAG;
  const char *tag = memrchr(v + n - most, '<', most);
  end = tag ? (size_t)(tag - v) : n;
  bool is_parameter = n - end > sizeof parameter - 1 && !memcmp(v + end, parameter, sizeof parameter - 1);
  return is_parameter ? at_parameter(s, end) : TRI_OK;
}

/* ---- tags before a value ---- */

static bool tag_begins(const call_scan *s, const char *word) {
  size_t len = strlen(word);
  return s->word.len > len && !memcmp(s->word.data, word, len);
}

/* Returns whether the tag is this one; `>` is no part of the word. */
static bool tag_is(const call_scan *s, const char *tag) {
  size_t len = strlen(tag) - 1;
  return s->word.len == len && !memcmp(s->word.data, tag, len);
}

static tri_status end_tag(call_scan *s, call_step *step) {
  const size_t size = sizeof function - 1;
  s->state = BEFORE_TAG;
  if (!s->has_name && tag_begins(s, function)) {
    s->has_name = true;
    s->pending = 0;
    TRI_CHECK(tri_buf_append(&s->name, s->word.data + size, s->word.len - size));
    s->word.len = 0;
    return TRI_OK;
  }
  if (s->has_name && tag_begins(s, parameter)) {
    s->state = IN_PARAMETER;
    return TRI_OK;
  }
  *step = s->has_name && (tag_is(s, end_of_function) || tag_is(s, end_of_call)) ? CALL_ENDS : CALL_IS_NONE;
  return *step == CALL_ENDS && tag_is(s, end_of_call) ? tri_buf_append(&s->rest, end_of_call, sizeof end_of_call - 1)
                                                      : TRI_OK;
}

tri_status call_tags_byte(call_scan *s, char c, call_step *step) {
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
  default: return in_parameter(s, c, step);
  }
}

tri_status call_tags_finish(call_scan *s, call_step *step) {
  const char *v = s->value.data;
  *step = CALL_GOES_ON;
  if (s->state == IN_PARAMETER) {
    size_t n = without_blanks(v, s->value.len), all = n;
    take_off(v, &n, end_of_call);
    n = without_blanks(v, n);
    take_off(v, &n, end_of_function);
    n = without_blanks(v, n);
    if (!take_off(v, &n, end_of_parameter) && n < all) closes_value(v, n, &n);
    if (n < all) return end_call(s, n, s->value.len, step);
  }
  return TRI_OK;
}
