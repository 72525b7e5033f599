/* SPDX-License-Identifier: Apache-2.0 */
/* Output lines of `submit --file`. Tokens are collected in the slot until the job has ended, and then the line is
 * written in the form of the input: our own (line, choices, error), or OpenAI's batch form (id, custom_id, response,
 * error), whose bodies are those of the gateway. */
#include <string.h>
#include <time.h>

#include "client/cmd/submit_file.h"
#include "client/openai/error.h"
#include "base/mem.h"

void submit_slot_free(submit_slot *s) {
  for (uint32_t i = 0; i < s->num_choices; i++) {
    tri_buf_free(&s->choices[i].text);
    tri_buf_free(&s->choices[i].ids);
    tri_buf_free(&s->choices[i].logprobs);
    oai_logprobs_free(&s->choices[i].openai);
  }
  tri_free(s->choices);
  tri_free(s->stops);
  tri_buf_free(&s->input);
  tri_buf_free(&s->kept);
  tri_buf_free(&s->custom_id);
  tri_buf_free(&s->model);
  tri_buf_free(&s->result);
  tri_buf_free(&s->prompt_logprobs);
  tri_free(s);
}

/* Logprobs of our own form are kept as the elements of an array whose end plain_choice writes; those of OpenAI's forms
 * in its arrays, or chat's. */
void submit_answer_tokens(submit_slot *s, const trireme_event *e) {
  for (size_t i = 0; i < e->tokens.num; i++) {
    const trireme_choice *c = e->tokens.choices[i];
    if (c->of_prompt) cmd_json_logprobs(&s->prompt_logprobs, c);
    if (c->of_prompt || c->index >= s->num_choices) continue;
    submit_piece *p = &s->choices[c->index];
    tri_text_add(&p->text, c->text, c->text_len);
    for (size_t k = 0; k < c->num_ids; k++) tri_text_printf(&p->ids, p->ids.len ? ",%u" : "%u", c->ids[k]);
    if (!c->logprobs) continue;
    if (s->form != SUBMIT_PLAIN) {
      (s->form == SUBMIT_CHAT ? oai_chat_logprobs_add : oai_logprobs_add)(&p->openai, c);
      continue;
    }
    if (!p->logprobs.len) tri_text_add(&p->logprobs, "[", 1);
    cmd_json_logprobs(&p->logprobs, c);
  }
}

static void put_prompt_logprobs(submit_slot *s) {
  if (!s->prompt_logprobs.len) return;
  tri_json_open(&s->result, "prompt_logprobs", '[');
  tri_text_add(&s->result, s->prompt_logprobs.data, s->prompt_logprobs.len);
  tri_text_add(&s->result, "]", 1);
  s->result.failed = s->result.failed || s->prompt_logprobs.failed;
}

/* ---- our own form ---- */

static void begin_plain(submit_slot *s) {
  tri_buf *r = &s->result;
  tri_json_open(r, NULL, '{');
  tri_json_put_uint(r, "line", s->line);
  if (s->request_id[0]) tri_json_put_word(r, "request_id", s->request_id);
  tri_text_add(r, s->kept.data ? s->kept.data : "", s->kept.len);
}

/* A job that did not stream has its text in `done`; of one that did, the tokens' events have brought it. */
static void plain_choice(submit_slot *s, size_t index, const trireme_finished *f) {
  submit_piece none = {0}, *p = index < s->num_choices ? &s->choices[index] : &none;
  tri_buf *r = &s->result;
  tri_json_open(r, NULL, '{');
  tri_json_put_uint(r, "index", index);
  tri_json_put_text(r, "text", f->text_len ? f->text : p->text.data, f->text_len ? f->text_len : p->text.len);
  tri_json_put_word(r, "finish_reason", f->finish_reason);
  tri_json_put_uint(r, "completion_tokens", f->completion_tokens);
  if (p->ids.len) tri_text_printf(r, ",\"token_ids\":[%s]", p->ids.data);
  if (p->logprobs.len) tri_text_printf(r, ",\"logprobs\":%s]", p->logprobs.data);
  tri_text_add(r, "}", 1);
}

static void plain_done(submit_slot *s, const trireme_event *e) {
  tri_buf *r = &s->result;
  begin_plain(s);
  tri_json_open(r, "choices", '[');
  for (size_t i = 0; i < e->done.num; i++) plain_choice(s, i, e->done.choices[i]);
  tri_text_add(r, "]", 1);
  put_prompt_logprobs(s);
  tri_json_put_uint(r, "prompt_tokens", e->done.prompt_tokens);
  tri_json_put_uint(r, "completion_tokens", e->done.completion_tokens);
  tri_text_printf(r, ",\"queue_ms\":%.3f,\"first_token_ms\":%.3f,\"total_ms\":%.3f", e->done.queue_ms,
                  e->done.first_token_ms, e->done.total_ms);
  tri_json_put_uint(r, "seed", e->done.seed);
  if (e->done.timed_out) tri_text_printf(r, ",\"timed_out\":true");
  if (s->cached) tri_text_printf(r, ",\"cached\":true");
  tri_text_add(r, "}\n", 2);
}

static void plain_error(submit_slot *s, const trireme_error *e) {
  begin_plain(s);
  tri_json_open(&s->result, "error", '{');
  cmd_json_error(&s->result, e->code, e->field, e->message);
  tri_text_add(&s->result, "}}\n", 3);
}

/* ---- OpenAI's ---- */

static void begin_openai(submit_slot *s) {
  tri_buf *r = &s->result;
  tri_json_open(r, NULL, '{');
  tri_json_add_key(r, "id");
  if (s->request_id[0])
    tri_text_printf(r, "\"batch_req_%s\"", s->request_id);
  else
    tri_text_printf(r, "\"batch_req_line_%llu\"", (unsigned long long)s->line);
  tri_json_add_key(r, "custom_id");
  tri_text_add(r, s->custom_id.data, s->custom_id.len);
}

/* Opens the response up to its body's value. */
static void open_response(submit_slot *s, int status) {
  tri_buf *r = &s->result;
  tri_json_open(r, "response", '{');
  tri_json_put_uint(r, "status_code", (uint64_t)status);
  tri_json_put_word(r, "request_id", s->request_id);
  tri_json_add_key(r, "body");
}

static void close_response(submit_slot *s) {
  tri_text_add(&s->result, "}", 1);
  tri_json_put_value(&s->result, "error", NULL);
  tri_text_add(&s->result, "}\n", 2);
}

static void put_model(submit_slot *s) {
  tri_json_add_key(&s->result, "model");
  if (s->model.len)
    tri_text_add(&s->result, s->model.data, s->model.len);
  else
    tri_text_add(&s->result, "null", 4);
}

static void openai_choice(submit_slot *s, size_t index, const trireme_finished *f) {
  submit_piece none = {0}, *p = index < s->num_choices ? &s->choices[index] : &none;
  const char *text = f->text_len ? f->text : p->text.data;
  size_t len = f->text_len ? f->text_len : p->text.len;
  tri_buf *r = &s->result;
  bool named = f->stop_string >= 0 && (size_t)f->stop_string < s->num_stops;
  oai_tail tail = {.finish_reason = f->finish_reason,
                   .stop_string = named ? &s->stops[f->stop_string] : NULL,
                   .stop_token_id = f->stop_token_id};
  if (s->form == SUBMIT_CHAT) {
    submit_chat_choice(s, index, text, len, p, &tail);
    return;
  }
  tri_json_open(r, NULL, '{');
  tri_json_put_uint(r, "index", index);
  tri_json_put_text(r, "text", text, len);
  tri_json_add_key(r, "logprobs");
  if (s->logprobs)
    oai_logprobs_write(&p->openai, r);
  else
    tri_text_add(r, "null", 4);
  oai_write_tail(r, &tail);
  tri_text_add(r, "}", 1);
}

static void openai_done(submit_slot *s, const trireme_event *e) {
  tri_buf *r = &s->result;
  begin_openai(s);
  open_response(s, 200);
  tri_text_add(r, "{", 1);
  tri_text_printf(r, "\"id\":\"%s-%s\"", s->form == SUBMIT_CHAT ? "chatcmpl" : "cmpl", s->request_id);
  tri_json_put_word(r, "object", s->form == SUBMIT_CHAT ? "chat.completion" : "text_completion");
  tri_json_put_uint(r, "created", (uint64_t)time(NULL));
  put_model(s);
  tri_json_open(r, "choices", '[');
  for (size_t i = 0; i < e->done.num; i++) openai_choice(s, i, e->done.choices[i]);
  tri_text_add(r, "]", 1);
  put_prompt_logprobs(s);
  tri_json_open(r, "usage", '{');
  tri_json_put_uint(r, "prompt_tokens", e->done.prompt_tokens);
  tri_json_put_uint(r, "completion_tokens", e->done.completion_tokens);
  tri_json_put_uint(r, "total_tokens", e->done.prompt_tokens + e->done.completion_tokens);
  tri_json_open(r, "prompt_tokens_details", '{');
  tri_json_put_uint(r, "cached_tokens", e->done.cached_tokens);
  tri_text_add(r, "}}}", 3);
  close_response(s);
}

void submit_answer_embedding(submit_slot *s, const trireme_event *e) {
  tri_buf *r = &s->result;
  begin_openai(s);
  open_response(s, 200);
  tri_text_printf(r, "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[");
  for (size_t i = 0; i < e->embedding.num; i++) {
    if (i) tri_text_add(r, ",", 1);
    tri_json_add_float(r, e->embedding.values[i], "null");
  }
  tri_text_add(r, "]}]", 3);
  put_model(s);
  tri_json_open(r, "usage", '{');
  tri_json_put_uint(r, "prompt_tokens", e->embedding.prompt_tokens);
  tri_json_put_uint(r, "total_tokens", e->embedding.prompt_tokens);
  tri_text_add(r, "}}", 2);
  close_response(s);
  s->done = true;
}

/* A refusal is a response with its status; what was not answered has none. */
static void openai_error(submit_slot *s, const trireme_error *e, bool answered) {
  oai_error shown = oai_error_of(e);
  if (s->form == SUBMIT_CHAT && !strcmp(shown.param, "prompt")) shown.param = "messages";
  begin_openai(s);
  if (answered) {
    open_response(s, shown.status);
    oai_error_json(&s->result, &shown);
    close_response(s);
    return;
  }
  tri_json_put_value(&s->result, "response", NULL);
  tri_json_open(&s->result, "error", '{');
  tri_json_put_word(&s->result, "code", shown.code);
  tri_json_put_word(&s->result, "message", shown.message);
  tri_text_add(&s->result, "}}\n", 3);
}

/* ---- either ---- */

/* Our own form has such a choice as an answer with that finish_reason, and the line counts as failed; OpenAI's form has
 * an error instead. */
static bool ended_well(const trireme_event *e) {
  bool ok = true;
  for (size_t i = 0; i < e->done.num; i++)
    ok &= strcmp(e->done.choices[i]->finish_reason, "abort") && strcmp(e->done.choices[i]->finish_reason, "error");
  return ok;
}

bool submit_answer_done(submit_slot *s, const trireme_event *e) {
  trireme_error aborted = {.code = "aborted", .message = "the job was cancelled elsewhere"};
  trireme_error late = {.code = "timeout", .message = "deadline_ms has passed"};
  bool ok = ended_well(e);
  s->done = true;
  if (s->form == SUBMIT_PLAIN)
    plain_done(s, e);
  else if (ok)
    openai_done(s, e);
  else
    openai_error(s, e->done.timed_out ? &late : &aborted, false);
  return ok;
}

void submit_answer_error(submit_slot *s, const trireme_error *e, bool answered) {
  if (s->form == SUBMIT_PLAIN)
    plain_error(s, e);
  else
    openai_error(s, e, answered);
  s->done = true;
}
