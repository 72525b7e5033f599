/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt in three steps: the template renders a text and says which spans of it come from the client; with
 * continue_final_message what stands after the last content is cut; the tokenizer encodes it, special tokens only
 * outside of the spans, unless parse_special. */
#include "client/openai/model.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

/* Returns whether a prompt of one message is the same with a tool as without; false where the template fails at one of
 * them, as then nothing is known. */
static bool ignores_tools(const chat_template *t) {
  static const char text[] =
      "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
      "\"probe\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\","
      "\"description\":\"d\"}},\"required\":[\"a\"]}}}]}";
  tri_json_doc *doc = NULL;
  tri_jinja_output with = {0}, without = {0};
  bool same = false;
  if (tri_json_parse(text, sizeof text - 1, &doc, NULL) != TRI_OK) return false;
  const tri_json *root = tri_json_root(doc);
  chat_request r = {.messages = tri_json_get(root, "messages"), .add_generation_prompt = true};
  if (chat_template_render(t, &r, &without, NULL) == TRI_OK) {
    r.tools = tri_json_get(root, "tools");
    same = chat_template_render(t, &r, &with, NULL) == TRI_OK && with.text.len == without.text.len &&
           (!with.text.len || !memcmp(with.text.data, without.text.data, with.text.len));
  }
  tri_jinja_output_free(&with);
  tri_jinja_output_free(&without);
  tri_json_free(doc);
  return same;
}

tri_status oai_model_open(const char *dir, const char *template_file, oai_model *out, tri_error *err) {
  TRI_CHECK(tri_tokenizer_load_folder(dir, &out->tokenizer, err));
  tri_model_folder_name(dir, out->name);
  tri_error why = {0};
  tri_status st = chat_template_load(dir, template_file, &out->template, &why);
  if (st == TRI_OK) {
    out->calls = chat_template_calls(out->template);
    out->channels = out->calls == CHAT_CALLS_CHANNELS;
    out->ignores_tools = ignores_tools(out->template);
    return TRI_OK;
  }
  if (st == TRI_NO_MEMORY) return st;
  const char *reason = why.message[0] ? why.message : tri_status_text(st);
  if (template_file) return tri_fail(err, TRI_USAGE, "chat-template", "--chat-template: %s", reason);
  snprintf(out->no_template, sizeof out->no_template, "%s", reason); /* everything but chat can be served without */
  return TRI_OK;
}

void oai_model_close(oai_model *m) {
  tri_tokenizer_destroy(m->tokenizer);
  chat_template_free(m->template);
  *m = (oai_model){0};
}

/* ---- prompts ---- */

/* The text of the last message's content, or of its last part. */
static const char *final_text(const tri_json *messages, size_t *len) {
  const tri_json *last = tri_json_at(messages, tri_json_size(messages) - 1), *content = tri_json_get(last, "content");
  if (tri_json_kind_of(content) == TRI_JSON_ARRAY && tri_json_size(content))
    content = tri_json_get(tri_json_at(content, tri_json_size(content) - 1), "text");
  return tri_json_as_str(content, len);
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void copy_backwards(char *to, const char *from, size_t len) {
  for (size_t i = 0; i < len; i++) to[i] = from[len - 1 - i];
}

/* Sets *at to where a text begins for the last time in another one; SIZE_MAX: it is not there. memmem finds the first
 * place in a time that grows with both lengths and not with their product: it reads both backwards. */
static tri_status find_last(const tri_buf *in, const char *s, size_t len, size_t *at, tri_error *err) {
  *at = SIZE_MAX;
  if (!len || len > in->len) return TRI_OK;
  char *backwards = tri_malloc(in->len + len, 1);
  if (!backwards) return tri_fail(err, TRI_NO_MEMORY, "", "out of memory");
  copy_backwards(backwards, (const char *)in->data, in->len);
  copy_backwards(backwards + in->len, s, len);
  const char *found = memmem(backwards, in->len, backwards + in->len, len);
  if (found) *at = in->len - (size_t)(found - backwards) - len;
  tri_free(backwards);
  return TRI_OK;
}

/* Cuts what the template has put after the last message. Templates may trim a content: the part of it without white
 * space around it is what is looked for, and as much of the rest as is there stays. */
static tri_status cut_behind_final(const tri_json *messages, tri_jinja_output *out, tri_error *err) {
  size_t len = 0, from;
  const char *s = final_text(messages, &len);
  while (len && is_blank(*s)) {
    s++;
    len--;
  }
  size_t whole = len;
  while (len && is_blank(s[len - 1])) len--;
  TRI_CHECK(find_last(&out->text, s, len, &from, err));
  if (from == SIZE_MAX)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "continue_final_message",
                    "the last message cannot be continued: its content is not a part of the prompt");
  bool kept = out->text.len - from >= whole && !memcmp(out->text.data + from, s, whole);
  size_t end = from + (kept ? whole : len);
  out->text.len = end;
  while (out->num_spans && out->spans[out->num_spans - 1].from >= end) out->num_spans--;
  if (out->num_spans && out->spans[out->num_spans - 1].to > end) out->spans[out->num_spans - 1].to = end;
  return TRI_OK;
}

/* Returns whether the template's own text ends with <think>, but for white space. */
static bool opens_reasoning(const tri_jinja_output *out) {
  static const char think[] = "<think>";
  const size_t size = sizeof think - 1;
  size_t end = out->text.len, foreign = out->num_spans ? out->spans[out->num_spans - 1].to : 0;
  while (end && is_blank(out->text.data[end - 1])) end--;
  return end >= foreign + size && !memcmp(out->text.data + end - size, think, size);
}

static tri_status too_long(const oai_prompt_options *o, tri_error *err) {
  return tri_fail(err, TRI_NO_CAPACITY, "messages", "the prompt has more than the %zu tokens of the model's context",
                  o->most_ids);
}

static tri_status encode(const oai_model *m, tri_tokenizer_scratch *scratch, const char *text, size_t len,
                         const tri_span *spans, size_t num_spans, const oai_prompt_options *o, oai_prompt *out,
                         tri_error *err) {
  const uint32_t *ids = NULL;
  size_t n, most = o->cut ? 0 : o->most_ids;
  tri_status st =
      tri_tokenizer_encode_spans(m->tokenizer, scratch, text, len, spans, num_spans, o->add_special, most, &ids, &n);
  if (st == TRI_TOO_LARGE) return too_long(o, err);
  if (st == TRI_NO_CAPACITY)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "messages",
                    "the prompt is too much work for a pattern of tokenizer.json: it looks far ahead from every place");
  if (st != TRI_OK) return tri_fail(err, st, "messages", "the prompt cannot be encoded: %s", tri_status_text(st));
  size_t skipped = o->cut && n > o->most_ids ? n - o->most_ids : 0;
  out->num = n - skipped;
  out->ids = tri_malloc(out->num ? out->num : 1, sizeof *ids);
  if (!out->ids) return tri_fail(err, TRI_NO_MEMORY, "", "out of memory");
  if (out->num) memcpy(out->ids, ids + skipped, out->num * sizeof *ids);
  return TRI_OK;
}

/* Says what the error of a template is an error of: it may refuse messages, or fail at them. */
static tri_status of_template(tri_status st, tri_error *err) {
  static const char *const kinds[] = {TRI_JINJA_RAISED, TRI_JINJA_UNDEFINED, TRI_JINJA_TYPE, TRI_JINJA_LIMIT,
                                      TRI_JINJA_SYNTAX};
  bool of_it = false;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) of_it = of_it || !strcmp(err->field, kinds[i]);
  if (st == TRI_OK || st == TRI_NO_MEMORY || !of_it) return st;
  tri_error inner = *err;
  bool raised = !strcmp(inner.field, TRI_JINJA_RAISED);
  *err = (tri_error){0};
  return tri_fail(err, TRI_INVALID_ARGUMENT, "messages", "%s: %s",
                  raised ? "the chat template refuses the messages" : "the chat template fails at the messages",
                  inner.message);
}

tri_status oai_model_prompt(const oai_model *m, tri_tokenizer_scratch *scratch, const oai_prompt_options *o,
                            oai_prompt *prompt, tri_error *err) {
  tri_jinja_output out = {0};
  time_t now = time(NULL);
  struct tm local;
  tri_status st;
  chat_request r = o->chat;
  r.model = m->name[0] ? m->name : NULL;
  r.now_s = localtime_r(&now, &local) ? now + local.tm_gmtoff : now;
  TRI_TRY(of_template(chat_template_render(m->template, &r, &out, err), err));
  if (o->continue_final) TRI_TRY(cut_behind_final(r.messages, &out, err));
  TRI_TRY(encode(m, scratch, out.text.data, out.text.len, m->parse_special ? NULL : out.spans,
                 m->parse_special ? 0 : out.num_spans, o, prompt, err));
  prompt->opens_reasoning = opens_reasoning(&out);
  prompt->in_text = o->continue_final;
cleanup:
  tri_jinja_output_free(&out);
  return st;
}

tri_status oai_model_encode(const oai_model *m, tri_tokenizer_scratch *scratch, const char *text, size_t len,
                            const oai_prompt_options *o, oai_prompt *prompt, tri_error *err) {
  return encode(m, scratch, text, len, NULL, 0, o, prompt, err);
}
