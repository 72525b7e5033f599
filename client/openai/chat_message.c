/* SPDX-License-Identifier: Apache-2.0 */
/* Between chat_answer, which takes a text apart, and the JSON of a message: a stream writes each part as an event when
 * it is certain (tell), a whole message collects them (keep). Ids of calls are a hash of the request's id, the choice
 * and the call's number: they differ for each call, and no random numbers are drawn for them. */
#include "client/openai/chat_message.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json/json_writer.h"
#include "base/mem.h"
#include "base/xxh3.h"

enum { ID_DIGITS = 16, MISTRAL_DIGITS = 9 }; /* its templates take ids of this length alone */

struct oai_chat_message {
  oai_chat_message_config config;
  chat_answer *answer;
  unsigned num_calls;
  tri_buf text, reasoning, calls; /* of a whole message; calls: elements, the last one open in its arguments */
  tri_buf arguments;              /* of that one */
};

/* ---- calls ---- */

static const oai_tools *tools_of(void *ctx) { return ((const oai_chat_message *)ctx)->config.tools; }

static bool is_tool(void *ctx, const char *name, size_t len) { return oai_tools_have(tools_of(ctx), name, len); }

static bool is_text(void *ctx, const char *name, size_t len, const char *key, size_t key_len) {
  return oai_tools_take_text(tools_of(ctx), name, len, key, key_len);
}

static bool is_parameter(void *ctx, const char *name, size_t len, const char *key, size_t key_len) {
  return oai_tools_take(tools_of(ctx), name, len, key, key_len);
}

/* Members of a call that has begun, as far as the arguments. */
static void open_call(const oai_chat_message *m, tri_buf *b, const char *name, size_t len) {
  char seed[96], digits[20];
  int n = snprintf(seed, sizeof seed, "%s/%zu/%u", m->config.id, m->config.choice, m->num_calls);
  snprintf(digits, sizeof digits, "%016" PRIx64, tri_xxh3(seed, (size_t)n));
  bool mistral = m->config.model->calls == CHAT_CALLS_MISTRAL;
  tri_json_add_key(b, "id");
  tri_text_printf(b, "\"%s%.*s\"", mistral ? "" : "call_", mistral ? MISTRAL_DIGITS : ID_DIGITS, digits);
  tri_json_put_word(b, "type", "function");
  tri_json_open(b, "function", '{');
  tri_json_put_text(b, "name", name, len);
}

/* Called before the next call begins and once at the end: the last call's arguments stay open until then. */
static void end_call(oai_chat_message *m) {
  if (!m->num_calls) return;
  tri_json_put_text(&m->calls, "arguments", m->arguments.data ? m->arguments.data : "", m->arguments.len);
  tri_text_add(&m->calls, "}}", 2);
  m->calls.failed = m->calls.failed || m->arguments.failed;
  m->arguments.len = 0;
}

/* ---- whole ---- */

static void keep(void *ctx, chat_part part, const char *s, size_t len) {
  oai_chat_message *m = ctx;
  switch (part) {
  case CHAT_PART_TEXT: tri_text_add(&m->text, s, len); break;
  case CHAT_PART_REASONING: tri_text_add(&m->reasoning, s, len); break;
  case CHAT_PART_ARGUMENTS: tri_text_add(&m->arguments, s, len); break;
  case CHAT_PART_CALL:
    end_call(m);
    tri_json_open(&m->calls, NULL, '{');
    open_call(m, &m->calls, s, len);
    m->num_calls++;
  }
}

void oai_chat_message_write(const oai_chat_message *m, tri_buf *out) {
  if (m->reasoning.len) tri_json_put_text(out, "reasoning_content", m->reasoning.data, m->reasoning.len);
  if (m->text.len || !m->num_calls)
    tri_json_put_text(out, "content", m->text.data ? m->text.data : "", m->text.len);
  else
    tri_json_put_value(out, "content", NULL);
  if (m->num_calls) {
    tri_json_open(out, "tool_calls", '[');
    tri_text_add(out, m->calls.data, m->calls.len);
    tri_text_add(out, "]", 1);
  }
  out->failed = out->failed || m->text.failed || m->reasoning.failed || m->calls.failed;
}

/* ---- a stream ---- */

static void tell(void *ctx, chat_part part, const char *s, size_t len) {
  oai_chat_message *m = ctx;
  tri_buf b = {0};
  if (part == CHAT_PART_TEXT || part == CHAT_PART_REASONING) {
    tri_json_put_text(&b, part == CHAT_PART_TEXT ? "content" : "reasoning_content", s, len);
  } else {
    bool begins = part == CHAT_PART_CALL;
    tri_json_open(&b, "tool_calls", '[');
    tri_json_open(&b, NULL, '{');
    tri_json_put_uint(&b, "index", begins ? m->num_calls : m->num_calls - 1);
    if (begins)
      open_call(m, &b, s, len);
    else
      tri_json_open(&b, "function", '{');
    tri_json_put_text(&b, "arguments", begins ? "" : s, begins ? 0 : len);
    tri_text_add(&b, "}}]", 3);
    m->num_calls += begins;
  }
  m->config.event(m->config.ctx, m->config.choice, &b);
  tri_buf_free(&b);
}

/* ---- both ---- */

tri_status oai_chat_message_create(const oai_chat_message_config *config, oai_chat_message **out) {
  oai_chat_message *m = tri_calloc(1, sizeof *m);
  if (!m) return TRI_NO_MEMORY;
  m->config = *config;
  chat_answer_config answer = {.calls = config->tools ? config->model->calls : CHAT_CALLS_NONE,
                               .reasoning = config->model->reasoning,
                               .in_reasoning = config->in_reasoning,
                               .is_tool = is_tool,
                               .is_text = is_text,
                               .is_parameter = is_parameter,
                               .channels = config->model->channels,
                               .in_text = config->in_text,
                               .give = config->event ? tell : keep,
                               .ctx = m};
  tri_status st = chat_answer_create(&answer, &m->answer);
  if (st == TRI_OK)
    *out = m;
  else
    oai_chat_message_free(m);
  return st;
}

void oai_chat_message_free(oai_chat_message *m) {
  if (!m) return;
  chat_answer_free(m->answer);
  tri_buf_free(&m->text);
  tri_buf_free(&m->reasoning);
  tri_buf_free(&m->calls);
  tri_buf_free(&m->arguments);
  tri_free(m);
}

tri_status oai_chat_message_push(oai_chat_message *m, const char *text, size_t len) {
  return chat_answer_push(m->answer, text, len);
}

/* An answer that was cut off, by its length or a stop text, may end within a call, which is then no whole one: the
 * parser gets to know whether the model itself has ended it. */
tri_status oai_chat_message_finish(oai_chat_message *m, const oai_tail *end, bool *calls) {
  bool by_model = !strcmp(end->finish_reason, "stop") && !end->stop_string && end->stop_token_id < 0;
  TRI_CHECK(chat_answer_finish(m->answer, by_model));
  if (!m->config.event) end_call(m);
  *calls = chat_answer_calls(m->answer);
  return TRI_OK;
}

/* ---- choices ---- */

void oai_chat_choice_open(tri_buf *b, size_t index, const char *member) {
  tri_json_open(b, NULL, '{');
  tri_json_put_uint(b, "index", index);
  tri_json_open(b, member, '{');
}

void oai_chat_choice_end(tri_buf *b, oai_logprobs *logprobs, const oai_tail *tail) {
  tri_text_add(b, "}", 1);
  tri_json_add_key(b, "logprobs");
  if (logprobs)
    oai_chat_logprobs_write(logprobs, b);
  else
    tri_text_add(b, "null", 4);
  oai_write_tail(b, tail);
  tri_text_add(b, "}", 1);
}

const char *oai_chat_reason(const char *reason, bool calls) {
  return calls && !strcmp(reason, "stop") ? "tool_calls" : reason;
}

/* Writes the members of a message that is taken apart. */
static tri_status write_apart(tri_buf *b, const oai_chat_choice *c, const oai_chat_message_config *config,
                              bool *calls) {
  oai_chat_message *m = NULL;
  tri_status st;
  TRI_TRY(oai_chat_message_create(config, &m));
  if (c->len) TRI_TRY(oai_chat_message_push(m, c->text, c->len));
  TRI_TRY(oai_chat_message_finish(m, &c->tail, calls));
  oai_chat_message_write(m, b);
cleanup:
  oai_chat_message_free(m);
  return st;
}

void oai_chat_choice_write(tri_buf *b, const oai_chat_choice *c, const oai_chat_message_config *apart) {
  bool calls = false;
  oai_chat_choice_open(b, c->index, "message");
  tri_json_put_word(b, "role", "assistant");
  if (!apart)
    tri_json_put_text(b, "content", c->text ? c->text : "", c->len);
  else if (write_apart(b, c, apart, &calls) != TRI_OK)
    b->failed = true;
  oai_tail tail = c->tail;
  tail.finish_reason = oai_chat_reason(tail.finish_reason, calls);
  oai_chat_choice_end(b, c->logprobs, &tail);
}
