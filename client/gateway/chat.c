/* SPDX-License-Identifier: Apache-2.0 */
/* POST /v1/chat/completions: a thread makes the prompt of the messages, and the rest is a completion.
 *
 * The order of one request: gw_chat refuses what this gateway can never serve; run, in a thread, parses the body,
 * renders and tokenizes the prompt, and keeps what the answer needs; ready, in the loop, submits the jobs. The tree of
 * the body ends with run, so all that lasts longer is copied: names by oai_completion_keep, tools into oai_tools.
 *
 * The text of an answer is taken apart (into reasoning, content and calls) where the request or the model asks for it.
 * A stream then has one oai_chat_message for each choice, which holds text back until its part is certain; an answer at
 * once is taken apart when it is whole. */
#include "client/gateway/completion.h"
#include "client/openai/chat_request.h"

#include <stdio.h>
#include <string.h>

#include "client/openai/chat_message.h"
#include "client/gateway/tasks.h"
#include "base/mem.h"

typedef struct chat {
  gw_completion base; /* the exchange's state */
  oai_chat_request q;
  gw_task task;
  const oai_model *model;
  oai_tools tools;
  bool in_reasoning, in_text;  /* the prompt ends there */
  oai_chat_message **messages; /* [num_choices] of a stream whose text is taken apart, else NULL */
} chat;

/* ---- the answer ---- */

/* Returns the logprobs that an event has; an answer at once has an object of them in any case. */
static oai_logprobs *logprobs_of(gw_completion *s, size_t index) {
  oai_logprobs *l = &s->choices[index].logprobs;
  return s->q->r.logprobs >= 0 && (l->tokens.len || !s->q->stream) ? l : NULL;
}

static bool is_taken_apart(const chat *c) { return c->q.calls || c->model->reasoning || c->model->channels; }

static oai_chat_message_config message_config(chat *c, size_t index) {
  return (oai_chat_message_config){.model = c->model,
                                   .tools = c->q.calls ? &c->tools : NULL,
                                   .in_reasoning = c->in_reasoning,
                                   .in_text = c->in_text,
                                   .choice = index,
                                   .id = c->base.id,
                                   .ctx = &c->base};
}

/* Writes the event of a delta with these members. */
static void add_delta(void *ctx, size_t index, const tri_buf *members) {
  gw_completion *s = ctx;
  gw_event_begin(s);
  oai_chat_choice_open(&s->out, index, "delta");
  tri_text_add(&s->out, members->data ? members->data : "", members->len);
  s->out.failed = s->out.failed || members->failed;
  oai_tail tail = gw_tail_of(s, index);
  oai_chat_choice_end(&s->out, logprobs_of(s, index), &tail);
  gw_event_end(s);
}

static void begin_stream(gw_completion *s) {
  chat *c = (chat *)s;
  tri_buf role = {0};
  tri_json_put_word(&role, "role", "assistant");
  tri_json_put_word(&role, "content", "");
  for (size_t i = 0; i < s->num_choices; i++) {
    add_delta(s, i, &role);
    if (!c->messages) continue;
    oai_chat_message_config config = message_config(c, i);
    config.event = add_delta;
    if (oai_chat_message_create(&config, &c->messages[i]) != TRI_OK) s->out.failed = true;
  }
  tri_buf_free(&role);
}

/* Text that is taken apart comes as one event for each part that is certain, and logprobs with the next of them. */
static void add_text(gw_completion *s, size_t index, const char *text, size_t len) {
  chat *c = (chat *)s;
  tri_buf b = {0};
  if (c->messages) {
    if (oai_chat_message_push(c->messages[index], text, len) != TRI_OK) s->out.failed = true;
    return;
  }
  tri_json_put_text(&b, "content", text, len);
  add_delta(s, index, &b);
  tri_buf_free(&b);
}

/* The end of a choice. Text that was held back comes first, in events without a reason; the event that has the reason
 * is the last one, and only then is it known whether the choice made calls. */
static void finish(gw_completion *s, size_t index) {
  chat *c = (chat *)s;
  gw_choice *choice = &s->choices[index], ended = *choice;
  oai_tail end = gw_tail_of(s, index);
  bool calls = false;
  end.finish_reason = ended.finish_reason;
  choice->finish_reason[0] = '\0'; /* not yet, of what was held back */
  if (c->messages && oai_chat_message_finish(c->messages[index], &end, &calls) != TRI_OK) s->out.failed = true;
  snprintf(choice->finish_reason, sizeof choice->finish_reason, "%s", oai_chat_reason(ended.finish_reason, calls));
  add_delta(s, index, &(tri_buf){0});
}

static void whole(gw_completion *s, size_t index, tri_buf *out) {
  const gw_choice *choice = &s->choices[index];
  oai_chat_message_config config = message_config((chat *)s, index);
  oai_chat_choice c = {.index = index,
                       .text = choice->text.data,
                       .len = choice->text.len,
                       .logprobs = logprobs_of(s, index),
                       .tail = gw_tail_of(s, index)};
  oai_chat_choice_write(out, &c, is_taken_apart((chat *)s) ? &config : NULL);
}

static const gw_completion_form form = {.id_prefix = "chatcmpl-",
                                        .object = "chat.completion",
                                        .chunk_object = "chat.completion.chunk",
                                        .prompt_field = "messages",
                                        .prompt_beside = true,
                                        .add_logprobs = oai_chat_logprobs_add,
                                        .begin = begin_stream,
                                        .text = add_text,
                                        .finish = finish,
                                        .whole = whole};

/* ---- the prompt ---- */

static chat *of_task(gw_task *t) { return (chat *)((char *)t - offsetof(chat, task)); }

static void free_chat(gw_task *t) {
  chat *s = of_task(t);
  for (size_t i = 0; s->messages && i < s->base.num_choices; i++) oai_chat_message_free(s->messages[i]);
  tri_free(s->messages);
  gw_completion_close(&s->base);
  oai_chat_request_free(&s->q);
  oai_tools_free(&s->tools);
  tri_buf_free(&t->body);
  tri_free(s);
}

static void leave(gw_exchange *x) {
  chat *s = x->state;
  gw_task_leave(&s->task);
}

/* Makes the one prompt of a chat, as ids. in_reasoning and in_text say where the answer begins: a template may end
 * inside a part that the model then continues. */
static tri_status make_prompt(chat *s, tri_tokenizer_scratch *scratch, tri_error *err) {
  oai_completion_request *q = &s->q.c;
  oai_prompt prompt = {0};
  oai_prompt_options o = oai_chat_prompt(&s->q.chat, oai_chat_most_ids(&s->q, s->task.max_model_len));
  o.add_special = q->add_special_tokens;
  o.cut = s->q.truncate_prompt_tokens != TRIREME_UNSET;
  q->prompt.items = tri_calloc(1, sizeof *q->prompt.items);
  if (!q->prompt.items) return tri_fail(err, TRI_NO_MEMORY, "", "out of memory");
  q->prompt.num = 1;
  TRI_CHECK(oai_model_prompt(s->model, scratch, &o, &prompt, err));
  q->prompt.items[0] = (oai_input){.ids = prompt.ids, .num_ids = prompt.num};
  s->in_reasoning = prompt.opens_reasoning;
  s->in_text = prompt.in_text;
  oai_chat_begin_answer(&s->q, s->model, prompt.opens_reasoning);
  return TRI_OK;
}

static tri_status run(gw_task *t, tri_tokenizer_scratch *scratch, tri_error *err) {
  chat *s = of_task(t);
  tri_json_doc *doc = NULL;
  tri_status st;
  TRI_TRY(gw_parse_body(&t->body, &doc, err));
  TRI_TRY(oai_chat_parse(tri_json_root(doc), s->model, NULL, &s->q, &s->base.ignored, err));
  TRI_TRY(make_prompt(s, scratch, err));
  if (s->q.calls && oai_tools_read(s->q.chat.tools, &s->tools) != TRI_OK)
    TRI_TRY(tri_fail(err, TRI_NO_MEMORY, "", "out of memory"));
  TRI_TRY(gw_completion_open(&s->base, t, sizeof *s + s->tools.names.cap, err));
cleanup:
  tri_json_free(doc);
  s->q.chat = (oai_chat_fields){0}; /* which lay in it */
  s->q.tool_choice = NULL;
  if (st != TRI_OK || !s->q.c.stream || !is_taken_apart(s)) return st;
  s->messages = tri_calloc(s->base.num_choices, sizeof *s->messages);
  return s->messages ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, "", "out of memory");
}

static void ready(gw_task *t) {
  gw_exchange *x = t->x;
  bool fits = x->g->client && x->g->model_fits; /* it may have changed meanwhile */
  if (fits) return gw_completion_submit(x);
  gw_exchange_fail(x, &(oai_error){503, "closed", "", "there is no connection to the coordinator"});
}

bool gw_chat_refuse(gateway *g, http_conn *c, bool needs_template) {
  static const oai_error no_folder =
                             {501, "unsupported", "",
                              "the gateway has no tokenizer: start it with --model and the model's folder, which "
                              "has tokenizer.json"},
                         other = {503, "unsupported", "",
                                  "the coordinator now serves a model with another tokenizer.json: start the gateway "
                                  "again with its folder"};
  char why[sizeof g->model.no_template + 128], missing[sizeof g->model_folder + 160];
  oai_error no_template = {501, "unsupported", "", why}, no_tokenizer = {501, "unsupported", "", missing};
  const oai_error *e = NULL;
  snprintf(why, sizeof why, "chat is not served: %s; --chat-template FILE gives a template, /v1/completions needs none",
           g->model.no_template);
  snprintf(missing, sizeof missing,
           "%s has no tokenizer.json, which this needs; /v1/completions takes ids of tokens as its prompt",
           g->model_folder);
  if (!g->model.tokenizer)
    e = g->o.model ? &no_tokenizer : &no_folder;
  else if (!g->model_fits)
    e = &other;
  else if (needs_template && !g->model.template)
    e = &no_template;
  if (e) gw_respond_error(c, e);
  return e != NULL;
}

void gw_chat(gateway *g, http_conn *c) {
  static const gw_kind kind = {gw_completion_event, leave, gw_completion_drained, gw_completion_send};
  if (gw_chat_refuse(g, c, true)) return;
  chat *s = tri_calloc(1, sizeof *s);
  if (!s) return gw_respond_error(c, &(oai_error){503, "no_memory", "", "out of memory"});
  s->base.form = &form;
  s->base.q = &s->q.c;
  s->base.ignored.allowed = !g->o.http.reject_unknown_fields;
  s->model = &g->model;
  s->task.run = run;
  s->task.ready = ready;
  s->task.free = free_chat;
  gw_task_start(g, c, &kind, s, &s->task);
}
