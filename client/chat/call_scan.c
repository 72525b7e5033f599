/* SPDX-License-Identifier: Apache-2.0 */
/* An automaton whose input is one byte at a time, for three forms of a call.
 *
 *   an object:  BEFORE -{-> BEFORE_KEY -"-> IN_KEY -"-> BEFORE_COLON -:-> BEFORE_VALUE -> IN_VALUE -> BEHIND_VALUE
 *               and from there with a comma to BEFORE_KEY, with } to the end
 *   a name:     BEFORE or IN_NAME, NAME up to { or > -> BEFORE_ARGUMENTS -> IN_VALUE, whose end ends the call
 *
 * Three kinds of values: the name, which is collected and parsed when it is whole; arguments, which call_arguments.c
 * takes and passes on as they come; all others, of which only brackets and strings are followed to find their end.
 * `pending` counts the bytes since something was last gained, by which chat_answer.c tells what of a call that turns
 * out to be none must be shown as text. */
#include "client/chat/call_scan.h"

#include <string.h>

#include "base/json/json.h"

enum { LONGEST_WORD = 256 };

enum state {
  BEFORE,
  BEFORE_KEY,
  IN_KEY,
  BEFORE_COLON,
  BEFORE_VALUE,
  IN_VALUE,
  BEHIND_VALUE,
  IN_NAME,          /* one that stands before the arguments */
  BEFORE_ARGUMENTS, /* after such a name */
};
enum value { OTHER, NAME, ARGUMENTS };

void call_scan_begin(call_scan *s, call_form form) {
  s->form = form;
  s->state = form == CALL_NAME ? IN_NAME : BEFORE;
  s->in_string = s->escaped = s->alone = s->has_name = s->has_arguments = s->open = false;
  s->depth = 0;
  s->pending = 0;
  s->word.len = s->name.len = s->arguments.len = s->keys.len = s->value.len = s->rest.len = 0;
  call_arguments_begin(&s->json);
}

void call_scan_free(call_scan *s) {
  tri_buf_free(&s->word);
  tri_buf_free(&s->name);
  tri_buf_free(&s->arguments);
  tri_buf_free(&s->keys);
  tri_buf_free(&s->value);
  tri_buf_free(&s->rest);
  call_arguments_free(&s->json);
}

/* A name or key of LONGEST_WORD bytes is none: a model that never ends one takes no more memory. */
static tri_status add_to_word(call_scan *s, char c, call_step *step) {
  if (s->word.len == LONGEST_WORD) *step = CALL_IS_NONE;
  return tri_buf_append(&s->word, &c, 1);
}

static tri_status set_name(call_scan *s, const char *name, size_t len, call_step *step) {
  s->has_name = len > 0;
  if (!s->has_name) *step = CALL_IS_NONE;
  s->name.len = 0;
  s->pending = 0;
  return tri_buf_append(&s->name, name, len);
}

/* The name is the string of JSON that `word` holds. */
static tri_status read_name(call_scan *s, call_step *step) {
  tri_json_doc *doc = NULL;
  size_t len = 0;
  const char *name = NULL;
  TRI_CHECK(tri_buf_append(&s->word, "]", 1));
  tri_status st = tri_json_parse(s->word.data, s->word.len, &doc, NULL);
  if (st == TRI_NO_MEMORY) return st;
  if (st == TRI_OK) name = tri_json_as_str(tri_json_at(tri_json_root(doc), 0), &len);
  st = set_name(s, name ? name : "", name ? len : 0, step);
  tri_json_free(doc);
  return st;
}

/* ---- values ---- */

static tri_status put(call_scan *s, char c, call_step *step) {
  return s->kind == NAME ? add_to_word(s, c, step) : TRI_OK;
}

static tri_status end_value(call_scan *s, call_step *step) {
  s->state = BEHIND_VALUE;
  if (s->alone) *step = CALL_ENDS;
  return s->kind == NAME ? read_name(s, step) : TRI_OK;
}

static tri_status in_arguments(call_scan *s, char c, call_step *step) {
  size_t len = s->arguments.len;
  call_step of_value;
  TRI_CHECK(call_arguments_byte(&s->json, c, &s->arguments, &of_value));
  if (s->arguments.len > len) {
    s->has_arguments = true;
    s->pending = 0;
  }
  s->open = s->has_arguments && of_value != CALL_ENDS;
  if (of_value == CALL_IS_NONE) *step = CALL_IS_NONE;
  return of_value == CALL_ENDS ? end_value(s, step) : TRI_OK;
}

static tri_status behind_value(call_scan *s, char c, call_step *step) {
  if (c == ',')
    s->state = BEFORE_KEY;
  else if (c == '}')
    *step = CALL_ENDS;
  else if (!call_is_blank(c))
    *step = CALL_IS_NONE;
  return TRI_OK;
}

static tri_status in_value(call_scan *s, char c, call_step *step) {
  bool opens = c == '{' || c == '[', closes = c == '}' || c == ']';
  if (s->kind == ARGUMENTS) return in_arguments(s, c, step);
  if (s->in_string) {
    TRI_CHECK(put(s, c, step));
    bool ends = c == '"' && !s->escaped;
    s->escaped = c == '\\' && !s->escaped;
    if (ends) s->in_string = false;
    return ends && !s->depth ? end_value(s, step) : TRI_OK;
  }
  if (!s->depth && (closes || c == ',' || call_is_blank(c))) { /* a number or a word has ended before it */
    TRI_CHECK(end_value(s, step));
    return behind_value(s, c, step);
  }
  s->in_string = c == '"';
  s->depth += opens;
  s->depth -= closes;
  TRI_CHECK(put(s, c, step));
  return closes && !s->depth ? end_value(s, step) : TRI_OK;
}

static tri_status begin_arguments(call_scan *s, char c, call_step *step) {
  s->kind = ARGUMENTS;
  s->state = IN_VALUE;
  return in_value(s, c, step);
}

static bool is_key(const call_scan *s, const char *key) {
  return s->word.len == strlen(key) && !memcmp(s->word.data, key, s->word.len);
}

/* `word` holds the key until here. A second name or second arguments are passed over as any other value. */
static tri_status before_value(call_scan *s, char c, call_step *step) {
  if (call_is_blank(c)) return TRI_OK;
  bool arguments = is_key(s, "arguments") || is_key(s, "parameters"), name = is_key(s, "name");
  if (strchr("}],:", c) || (name && c != '"')) *step = CALL_IS_NONE;
  if (arguments && !s->has_arguments) return begin_arguments(s, c, step);
  s->kind = name && !s->has_name ? NAME : OTHER;
  s->state = IN_VALUE;
  s->word.len = 0;
  if (s->kind == NAME) TRI_CHECK(tri_buf_append(&s->word, "[", 1));
  return in_value(s, c, step);
}

/* ---- keys, and names before arguments ---- */

static tri_status before(call_scan *s, char c, call_step *step) {
  bool list = c == '[' && s->form == CALL_OBJECT_OR_NAME && !s->in_list;
  bool name = s->form == CALL_OBJECT_OR_NAME && !s->in_list && !strchr("[]{},\"", c);
  if (call_is_blank(c)) return TRI_OK;
  if (c == '{') {
    s->state = BEFORE_KEY;
  } else if (list) {
    s->in_list = true;
  } else if (name) {
    s->state = IN_NAME;
    return add_to_word(s, c, step);
  } else {
    *step = CALL_IS_NONE;
  }
  return TRI_OK;
}

static tri_status before_key(call_scan *s, char c, call_step *step) {
  s->word.len = 0;
  if (c == '"')
    s->state = IN_KEY;
  else if (c == '}')
    *step = CALL_ENDS;
  else if (!call_is_blank(c))
    *step = CALL_IS_NONE;
  return TRI_OK;
}

static tri_status in_key(call_scan *s, char c, call_step *step) {
  if (c != '"' || s->escaped) {
    s->escaped = c == '\\' && !s->escaped;
    return add_to_word(s, c, step);
  }
  s->state = BEFORE_COLON;
  return TRI_OK;
}

/* Mistral's newer models write NAME[ARGS]{...}: the mark is no part of the name. */
static tri_status in_name(call_scan *s, char c, call_step *step) {
  static const char behind[] = "[ARGS]";
  const size_t size = sizeof behind - 1;
  char end = s->form == CALL_NAME ? '>' : '{';
  if (c == '\n' || c == '<' || c == '"') *step = CALL_IS_NONE;
  if (c != end) return add_to_word(s, c, step);
  size_t len = s->word.len;
  if (len >= size && !memcmp(s->word.data + len - size, behind, size)) len -= size;
  while (len && call_is_blank(s->word.data[len - 1])) len--;
  s->alone = true;
  s->state = BEFORE_ARGUMENTS;
  TRI_CHECK(set_name(s, s->word.data ? s->word.data : "", len, step));
  return end == '{' ? begin_arguments(s, c, step) : TRI_OK;
}

tri_status call_scan_byte(call_scan *s, char c, call_step *step) {
  *step = CALL_GOES_ON;
  s->pending++;
  if (s->form == CALL_TAGS) return call_tags_byte(s, c, step);
  switch (s->state) {
  case BEFORE: return before(s, c, step);
  case BEFORE_KEY: return before_key(s, c, step);
  case IN_KEY: return in_key(s, c, step);
  case BEFORE_COLON:
    if (c == ':')
      s->state = BEFORE_VALUE;
    else if (!call_is_blank(c))
      *step = CALL_IS_NONE;
    return TRI_OK;
  case BEFORE_VALUE: return before_value(s, c, step);
  case IN_VALUE: return in_value(s, c, step);
  case BEHIND_VALUE: return behind_value(s, c, step);
  case IN_NAME: return in_name(s, c, step);
  default:
    if (call_is_blank(c)) return TRI_OK;
    if (c == '{') return begin_arguments(s, c, step);
    *step = CALL_IS_NONE;
    return TRI_OK;
  }
}

tri_status call_scan_close(call_scan *s) {
  if (s->form == CALL_TAGS) return call_tags_close(s);
  if (!s->open) return TRI_OK;
  s->open = false;
  return call_arguments_close(&s->json, &s->arguments);
}
