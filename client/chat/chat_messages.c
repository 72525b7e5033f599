/* SPDX-License-Identifier: Apache-2.0 */
/* Checks come first, over all messages; then all are written as JSON, by the form of the template, and parsed again:
 * templates work on such documents, and the client's own stays as it was. */
#include "client/chat/chat_messages.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_writer.h"

/* ---- tool calls ---- */

/* Returns whether these are the arguments of a function without parameters: clients send {}, "", "null", null or none.
 */
static bool are_none(const tri_json *arguments) {
  size_t len = 0, from = 0;
  const char *s = tri_json_as_str(arguments, &len);
  while (from < len && strchr(" \t\r\n", s[from])) from++;
  while (len > from && strchr(" \t\r\n", s[len - 1])) len--;
  if (!s) return tri_json_kind_of(arguments) == TRI_JSON_NULL;
  return from == len || (len - from == 4 && !memcmp(s + from, "null", 4));
}

/* Writes arguments as the text of an object. The client's own text stays as it is. */
static void put_text_arguments(tri_buf *b, const tri_json *value) {
  tri_buf made = {0};
  size_t len;
  const char *text = are_none(value) ? NULL : tri_json_as_str(value, &len);
  if (are_none(value))
    tri_text_add(&made, "{}", 2);
  else if (!text)
    tri_json_add_value(&made, value, true);
  tri_json_add_string(b, text ? text : made.data, text ? len : made.len);
  b->failed |= made.failed;
  tri_buf_free(&made);
}

/* Writes arguments as what their text says. A text that is no object stays one. */
static void put_object_arguments(tri_buf *b, const tri_json *value) {
  tri_json_doc *doc = NULL;
  size_t len;
  const char *text = tri_json_as_str(value, &len);
  if (are_none(value)) {
    tri_text_add(b, "{}", 2);
    return;
  }
  tri_status st = text ? tri_json_parse_python(text, len, &doc, NULL) : TRI_OK;
  if (doc && tri_json_kind_of(tri_json_root(doc)) == TRI_JSON_OBJECT) value = tri_json_root(doc);
  tri_json_add_value(b, value, false);
  b->failed |= st == TRI_NO_MEMORY;
  tri_json_free(doc);
}

static void put_arguments(tri_buf *b, const tri_json *value, const chat_form *form) {
  tri_json_add_key(b, "arguments");
  if (form->text_arguments)
    put_text_arguments(b, value);
  else
    put_object_arguments(b, value);
}

struct members {
  tri_buf *b;
  const chat_form *form;
};

/* Writes a member of a call, or of its function. */
static tri_status put_call_member(void *ctx, const char *key, const tri_json *value) {
  struct members *m = ctx;
  tri_buf *b = m->b;
  if (!strcmp(key, "arguments")) {
    put_arguments(b, value, m->form);
  } else if (!strcmp(key, "function") && tri_json_kind_of(value) == TRI_JSON_OBJECT) {
    tri_json_open(b, key, '{');
    if (!b->failed) tri_json_each(value, put_call_member, m);
    if (!tri_json_get(value, "arguments")) put_arguments(b, NULL, m->form);
    tri_text_add(b, "}", 1);
  } else {
    tri_json_put_value(b, key, value);
  }
  return b->failed ? TRI_NO_MEMORY : TRI_OK;
}

static void put_calls(tri_buf *b, const tri_json *calls, const chat_form *form) {
  tri_json_open(b, "tool_calls", '[');
  for (size_t i = 0; i < tri_json_size(calls); i++) {
    const tri_json *call = tri_json_at(calls, i);
    if (i) tri_text_add(b, ",", 1);
    if (tri_json_kind_of(call) != TRI_JSON_OBJECT) {
      tri_json_add_value(b, call, false);
      continue;
    }
    tri_text_add(b, "{", 1);
    if (!b->failed) tri_json_each(call, put_call_member, &(struct members){b, form});
    tri_text_add(b, "}", 1);
  }
  tri_text_add(b, "]", 1);
}

/* ---- content ---- */

static bool is_text_type(const char *type) {
  return type && (!strcmp(type, "text") || !strcmp(type, "input_text") || !strcmp(type, "output_text"));
}

/* The text of a part; NULL: it has none. */
static const char *part_text(const tri_json *part, size_t *len) {
  return is_text_type(tri_json_get_str(part, "type")) ? tri_json_as_str(tri_json_get(part, "text"), len) : NULL;
}

static tri_status check_parts(const tri_json *content, size_t message, const char *model, tri_error *err) {
  for (size_t i = 0; i < tri_json_size(content); i++) {
    char field[64];
    size_t len;
    const char *type = tri_json_get_str(tri_json_at(content, i), "type");
    if (part_text(tri_json_at(content, i), &len)) continue;
    snprintf(field, sizeof field, "messages[%zu].content[%zu]", message, i);
    if (!type) return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s must be an object with a type", field);
    if (is_text_type(type)) return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s must have a text", field);
    return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s is a part of type %.40s: only text is understood%s%.100s",
                    field, type, model ? " by " : "", model ? model : "");
  }
  return TRI_OK;
}

/* The text of a content: a string, or the texts of its parts with line ends between them. */
static void add_text(tri_buf *b, const tri_json *content) {
  size_t len;
  const char *s = tri_json_as_str(content, &len);
  if (s) tri_text_add(b, s, len);
  for (size_t i = 0; tri_json_kind_of(content) == TRI_JSON_ARRAY && i < tri_json_size(content); i++) {
    s = part_text(tri_json_at(content, i), &len);
    if (i) tri_text_add(b, "\n", 1);
    if (s) tri_text_add(b, s, len);
  }
}

static void put_text(tri_buf *b, const tri_buf *text, const chat_form *form) {
  tri_json_add_key(b, "content");
  if (!form->takes_text) tri_text_printf(b, "[{\"type\":\"text\",\"text\":");
  tri_json_add_string(b, text->data ? text->data : "", text->len);
  if (!form->takes_text) tri_text_printf(b, "}]");
}

static void put_content(tri_buf *b, const tri_json *content, const chat_form *form) {
  tri_buf text = {0};
  if (tri_json_kind_of(content) == TRI_JSON_ARRAY && form->takes_parts) {
    tri_json_add_key(b, "content");
    tri_json_add_value(b, content, false);
    return;
  }
  if (tri_json_kind_of(content) == TRI_JSON_NULL && !form->without_nulls) {
    tri_json_put_value(b, "content", NULL);
    return;
  }
  add_text(&text, content);
  put_text(b, &text, form);
  b->failed |= text.failed;
  tri_buf_free(&text);
}

/* ---- messages ---- */

static const char *const reasoning[] = {"reasoning_content", "reasoning", "thinking"};
enum { NUM_REASONING = sizeof reasoning / sizeof *reasoning, MOST_ROLE = 64 };

static bool is_system(const tri_json *message, const chat_form *form) {
  const char *role = tri_json_get_str(message, "role");
  return role && (!strcmp(role, "system") || (!strcmp(role, "developer") && !form->names_developer));
}

/* Members that mean what they say. */
static tri_status put_plain_member(void *ctx, const char *key, const tri_json *value) {
  const struct members *m = ctx;
  bool null = tri_json_kind_of(value) == TRI_JSON_NULL;
  bool other = !strcmp(key, "role") || !strcmp(key, "content") || !strcmp(key, "tool_calls");
  for (int i = 0; i < NUM_REASONING; i++) other |= !strcmp(key, reasoning[i]);
  if (!other && !(null && m->form->without_nulls)) tri_json_put_value(m->b, key, value);
  return m->b->failed ? TRI_NO_MEMORY : TRI_OK;
}

/* Templates read one of three names: each gets what the first of them has that is a text. */
static void put_reasoning(tri_buf *b, const tri_json *message, const chat_form *form) {
  const tri_json *found = NULL;
  for (int i = 0; i < NUM_REASONING && !found; i++)
    if (tri_json_get_str(message, reasoning[i])) found = tri_json_get(message, reasoning[i]);
  for (int i = 0; i < NUM_REASONING; i++) {
    const tri_json *own = tri_json_get(message, reasoning[i]);
    bool null = own && tri_json_kind_of(own) == TRI_JSON_NULL && !form->without_nulls;
    if (found || null) tri_json_put_value(b, reasoning[i], found);
  }
}

/* Templates make special tokens of roles, so that no role may be one itself. */
static bool is_role(const char *role) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  size_t n = role ? strlen(role) : 0;
  return n && n <= MOST_ROLE && strspn(role, letters) == n;
}

/* A message of one of these says nothing without a content; an assistant's may have calls or a reasoning alone. */
static bool needs_content(const char *role) {
  return !strcmp(role, "user") || !strcmp(role, "system") || !strcmp(role, "developer");
}

static tri_status check_message(const tri_json *m, size_t number, const char *model, tri_error *err) {
  char field[64];
  tri_json_kind content = tri_json_kind_of(tri_json_get(m, "content"));
  snprintf(field, sizeof field, "messages[%zu]", number);
  if (tri_json_kind_of(m) != TRI_JSON_OBJECT)
    return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s must be an object", field);
  snprintf(field, sizeof field, "messages[%zu].role", number);
  if (!is_role(tri_json_get_str(m, "role")))
    return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s must be a word of 1 to %d letters, digits, '_' or '-'", field,
                    MOST_ROLE);
  snprintf(field, sizeof field, "messages[%zu].content", number);
  if (content == TRI_JSON_ARRAY) return check_parts(tri_json_get(m, "content"), number, model, err);
  if (content != TRI_JSON_STRING && content != TRI_JSON_NULL)
    return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s must be a text or a list of parts", field);
  if (content == TRI_JSON_NULL && needs_content(tri_json_get_str(m, "role")))
    return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s is missing", field);
  const tri_json *calls = tri_json_get(m, "tool_calls");
  snprintf(field, sizeof field, "messages[%zu].tool_calls", number);
  if (tri_json_kind_of(calls) != TRI_JSON_NULL && tri_json_kind_of(calls) != TRI_JSON_ARRAY)
    return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s must be a list", field);
  return TRI_OK;
}

static void put_message(tri_buf *b, const tri_json *m, const chat_form *form) {
  struct members ctx = {b, form};
  const char *role = tri_json_get_str(m, "role");
  const tri_json *content = tri_json_get(m, "content"), *calls = tri_json_get(m, "tool_calls");
  tri_json_open(b, NULL, '{');
  tri_json_put_word(b, "role", is_system(m, form) ? "system" : role);
  if (content || tri_json_size(calls) || form->without_nulls) put_content(b, content, form);
  put_reasoning(b, m, form);
  if (tri_json_size(calls)) put_calls(b, calls, form);
  if (calls && tri_json_kind_of(calls) == TRI_JSON_NULL && form->null_calls && !form->without_nulls)
    tri_json_put_value(b, "tool_calls", calls);
  if (!b->failed) tri_json_each(m, put_plain_member, &ctx);
  tri_text_add(b, "}", 1);
}

/* Writes the system messages at the beginning as one, where a template may know one alone. Returns how many they are.
 */
static size_t put_systems(tri_buf *b, const tri_json *messages, const chat_form *form) {
  tri_buf text = {0};
  size_t n = 0;
  while (n < tri_json_size(messages) && is_system(tri_json_at(messages, n), form)) n++;
  if (n < 2) return 0;
  for (size_t i = 0; i < n; i++) {
    if (i) tri_text_add(&text, "\n", 1);
    add_text(&text, tri_json_get(tri_json_at(messages, i), "content"));
  }
  tri_json_open(b, NULL, '{');
  tri_json_put_word(b, "role", "system");
  put_text(b, &text, form);
  tri_text_add(b, "}", 1);
  b->failed |= text.failed;
  tri_buf_free(&text);
  return n;
}

tri_status chat_messages_make(const tri_json *messages, const char *model, const chat_form *form, tri_json_doc **out,
                              tri_error *err) {
  size_t n = tri_json_size(messages);
  tri_buf b = {0};
  if (tri_json_kind_of(messages) != TRI_JSON_ARRAY || !n)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "messages", "messages must be a list of one message at least");
  if (n > CHAT_MOST_MESSAGES)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "messages", "there are %zu messages, the limit is %d", n,
                    CHAT_MOST_MESSAGES);
  for (size_t i = 0; i < n; i++) TRI_CHECK(check_message(tri_json_at(messages, i), i, model, err));
  tri_text_add(&b, "[", 1);
  for (size_t i = put_systems(&b, messages, form); i < n && !b.failed; i++)
    put_message(&b, tri_json_at(messages, i), form);
  tri_text_add(&b, "]", 1);
  tri_status st = b.failed ? tri_fail(err, TRI_NO_MEMORY, "messages", "no memory for the messages")
                           : tri_json_parse_file(b.data, b.len, out, err);
  tri_buf_free(&b);
  return st;
}
