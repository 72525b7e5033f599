/* SPDX-License-Identifier: Apache-2.0 */
/* POST /tokenize and /detokenize, as vLLM has them: the gateway's own tokenizer answers. Both are tasks without jobs: a
 * thread reads the request, does the work and writes the answer's body, and the loop only sends it. */
#include <string.h>

#include "client/openai/chat_request.h"
#include "client/gateway/tasks.h"
#include "base/mem.h"

typedef struct tokenize {
  gw_task task; /* the exchange's state begins with it */
  const oai_model *model;
  oai_ignored ignored;
  /* The request, until the answer is written. */
  tri_json_doc *doc;
  oai_chat_fields chat;
  const tri_json *prompt, *add_special; /* its default depends on what is tokenized */
  bool return_strings;
  const tri_json *tokens; /* of /detokenize */
  /* The answer. */
  oai_prompt ids;
  char *text;
  size_t len;
  tri_buf out;
} tokenize;

#define T(m) .offset = offsetof(tokenize, m)
static const oai_field tokenize_fields[] = {
    OAI_CHAT_FIELDS(tokenize, chat),
    {"prompt", oai_take_json, T(prompt)},
    {"add_special_tokens", oai_take_json, T(add_special)},
    {"return_token_strs", oai_take_bool, T(return_strings)},
    {"model", oai_take_nothing, 0},
    {"chat_template", oai_take_unsupported, 0},
};
static const oai_field detokenize_fields[] = {
    {"tokens", oai_take_json, T(tokens)},
    {"model", oai_take_nothing, 0},
};
#undef T
static const oai_field_table tokenize_tables[] = {OAI_TABLE(tokenize_fields), {0}};
static const oai_field_table detokenize_tables[] = {OAI_TABLE(detokenize_fields), {0}};

/* Frees all but the answer, for the time until it is sent. */
static tri_status end_request(tokenize *t, tri_status st, tri_error *err) {
  tri_json_free(t->doc);
  tri_free(t->ids.ids);
  tri_free(t->text);
  t->doc = NULL;
  t->ids.ids = NULL;
  t->text = NULL;
  return st == TRI_OK ? gw_task_keep(&t->task, sizeof *t + t->out.cap, err) : st;
}

static void free_tokenize(gw_task *task) {
  tokenize *t = (tokenize *)task;
  tri_buf_free(&t->task.body);
  tri_buf_free(&t->out);
  tri_free(t);
}

static void leave(gw_exchange *x) { gw_task_leave(x->state); }

/* ---- ids of a text, or of messages ---- */

static void write_ids(tri_buf *b, const tokenize *t) {
  tri_json_open(b, "tokens", '[');
  for (size_t i = 0; i < t->ids.num; i++) tri_text_printf(b, "%s%u", i ? "," : "", t->ids.ids[i]);
  tri_text_add(b, "]", 1);
}

/* How the vocabulary writes them. */
static void write_strings(tri_buf *b, const tokenize *t) {
  tri_json_add_key(b, "token_strs");
  if (!t->return_strings) {
    tri_text_add(b, "null", 4);
    return;
  }
  tri_text_add(b, "[", 1);
  for (size_t i = 0; i < t->ids.num; i++) {
    const char *s = tri_tokenizer_token(t->model->tokenizer, t->ids.ids[i]);
    if (i) tri_text_add(b, ",", 1);
    tri_json_add_string(b, s, strlen(s));
  }
  tri_text_add(b, "]", 1);
}

static void write_tokenized(tokenize *t) {
  tri_json_open(&t->out, NULL, '{');
  tri_json_put_uint(&t->out, "count", t->ids.num);
  tri_json_put_uint(&t->out, "max_model_len", t->task.max_model_len);
  write_ids(&t->out, t);
  write_strings(&t->out, t);
  tri_text_add(&t->out, "}", 1);
}

/* Special tokens are added to a prompt by default, as vLLM does, and not to messages, whose template has them. */
static tri_status answer_tokens(tokenize *t, tri_tokenizer_scratch *scratch, tri_error *err) {
  size_t len = 0;
  t->chat.add_generation_prompt = true;
  TRI_CHECK(gw_parse_body(&t->task.body, &t->doc, err));
  TRI_CHECK(oai_fields_read(tokenize_tables, tri_json_root(t->doc), t, &t->ignored, err));
  const char *text = tri_json_as_str(t->prompt, &len);
  bool special = t->prompt != NULL;
  if (t->add_special && !tri_json_as_bool(t->add_special, &special))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "add_special_tokens", "add_special_tokens must be true or false");
  if (t->prompt && t->chat.messages)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "messages",
                    "there are a prompt and messages: only one can be tokenized");
  if (t->prompt && !text) return tri_fail(err, TRI_INVALID_ARGUMENT, "prompt", "prompt must be a text");
  if (!t->prompt) TRI_CHECK(oai_chat_fields_check(&t->chat, err));
  if (!t->prompt && !t->model->template)
    return tri_fail(err, TRI_UNSUPPORTED, "messages", "the model has no chat template");
  oai_prompt_options o = oai_chat_prompt(&t->chat, 0);
  o.add_special = special;
  TRI_CHECK(text ? oai_model_encode(t->model, scratch, text, len, &o, &t->ids, err)
                 : oai_model_prompt(t->model, scratch, &o, &t->ids, err));
  write_tokenized(t);
  return TRI_OK;
}

static tri_status run_tokenize(gw_task *task, tri_tokenizer_scratch *scratch, tri_error *err) {
  tokenize *t = (tokenize *)task;
  return end_request(t, answer_tokens(t, scratch, err), err);
}

/* The thread has written it, as it may be long. */
static void ready(gw_task *task) {
  tokenize *t = (tokenize *)task;
  char ignored[256];
  gw_exchange *x = task->x;
  gw_ignored_fields(x->g, &t->ignored, ignored);
  gw_respond_json(x->conn, &t->out, ignored);
  gw_exchange_close(x);
}

/* ---- the text of ids ---- */

static tri_status answer_text(tokenize *t, tri_error *err) {
  static const oai_field field = {.name = "tokens"};
  TRI_CHECK(gw_parse_body(&t->task.body, &t->doc, err));
  TRI_CHECK(oai_fields_read(detokenize_tables, tri_json_root(t->doc), t, &t->ignored, err));
  if (!t->tokens) return tri_fail(err, TRI_INVALID_ARGUMENT, "tokens", "tokens is missing");
  TRI_CHECK(oai_read_ids(&field, t->tokens, &t->ids.ids, &t->ids.num, err));
  tri_status st = tri_tokenizer_decode(t->model->tokenizer, t->ids.ids, t->ids.num, false, &t->text, &t->len);
  if (st == TRI_OUT_OF_RANGE) return tri_fail(err, st, "tokens", "tokens has an id that no token has");
  if (st != TRI_OK) return tri_fail(err, st, "", "out of memory");
  tri_json_open(&t->out, NULL, '{');
  tri_json_put_text(&t->out, "prompt", t->text, t->len);
  tri_text_add(&t->out, "}", 1);
  return TRI_OK;
}

static tri_status run_detokenize(gw_task *task, tri_tokenizer_scratch *scratch, tri_error *err) {
  tokenize *t = (tokenize *)task;
  (void)scratch;
  return end_request(t, answer_text(t, err), err);
}

static void start(gateway *g, http_conn *c, tri_status (*run)(gw_task *, tri_tokenizer_scratch *, tri_error *)) {
  static const gw_kind kind = {.free = leave}; /* without jobs there are no events */
  if (gw_chat_refuse(g, c, false)) return;
  tokenize *t = tri_calloc(1, sizeof *t);
  if (!t) return gw_respond_error(c, &(oai_error){503, "no_memory", "", "out of memory"});
  t->model = &g->model;
  t->ignored.allowed = !g->o.http.reject_unknown_fields;
  t->task.run = run;
  t->task.ready = ready;
  t->task.free = free_tokenize;
  gw_task_start(g, c, &kind, t, &t->task);
}

void gw_tokenize(gateway *g, http_conn *c) { start(g, c, run_tokenize); }

void gw_detokenize(gateway *g, http_conn *c) { start(g, c, run_detokenize); }
