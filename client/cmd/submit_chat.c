/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of `submit --file` for /v1/chat/completions: the prompt is rendered here, in the gateway's forms, with the chat
 * template and the tokenizer of the served model's folder. */
#include <string.h>

#include "client/cmd/submit_file.h"
#include "client/openai/chat_message.h"
#include "base/mem.h"
#include "base/model_folder.h"

struct submit_chat {
  oai_model model;
  tri_tokenizer_scratch *scratch;
  uint64_t max_model_len;
};

static const char program[] = "trireme submit";

/* Asks the coordinator about its model; no other events can come yet. */
static int ask_model(submit_chat *chat, const char *dir, trireme *c, int timeout_ms) {
  trireme_event e = {0};
  trireme_error error = {0};
  trireme_result r = trireme_ask_models(c, NULL, &error);
  if (!r) r = trireme_next(c, timeout_ms, &e, &error);
  if (r) return cli_fail(&error);
  if (e.kind == TRIREME_EVENT_ERROR) return cli_refused(&e.error);
  if (e.kind != TRIREME_EVENT_MODELS) return cli_failed(program, "the coordinator does not say what its model is");
  if (tri_tokenizer_hash(chat->model.tokenizer) != e.models.tokenizer)
    return cli_failed(program, "the tokenizer.json in %s is not the one of the served model", dir);
  chat->max_model_len = e.models.max_model_len;
  return TRI_EXIT_OK;
}

int submit_chat_open(const char *dir, trireme *c, int timeout_ms, submit_chat **out, tri_error *why) {
  submit_chat *chat = tri_calloc(1, sizeof *chat);
  char folder[TRI_MODEL_FOLDER];
  tri_status st = chat ? tri_model_folder_find(dir, folder, why) : TRI_NO_MEMORY;
  if (st == TRI_OK) st = oai_model_open(folder, NULL, &chat->model, why);
  if (st == TRI_OK && !chat->model.template) st = tri_fail(why, TRI_NOT_FOUND, "model", "%s", chat->model.no_template);
  if (st == TRI_OK) st = tri_tokenizer_scratch_create(chat->model.tokenizer, &chat->scratch);
  if (st != TRI_OK && !why->message[0]) tri_fail(why, st, "model", "%s", tri_status_text(st));
  int code = st == TRI_OK ? ask_model(chat, dir, c, timeout_ms) : TRI_EXIT_OK;
  if (code || st != TRI_OK)
    submit_chat_close(chat);
  else
    *out = chat;
  return code;
}

void submit_chat_close(submit_chat *chat) {
  if (!chat) return;
  tri_tokenizer_scratch_destroy(chat->scratch);
  oai_model_close(&chat->model);
  tri_free(chat);
}

/* ---- a line ---- */

tri_status submit_chat_parse(submit_chat *chat, const cli_request *defaults, const tri_json *body, submit_slot *s,
                             submit_request *out, tri_error *err) {
  oai_ignored none = {0}; /* fields that mean nothing here are refused */
  oai_chat_request *q = &out->chat;
  oai_prompt prompt = {0};
  out->is_chat = true;
  TRI_CHECK(oai_chat_parse(body, &chat->model, &defaults->r, q, &none, err));
  if (q->c.return_token_ids)
    return tri_fail(err, TRI_UNSUPPORTED, "return_token_ids", "return_token_ids is supported over HTTP alone");
  oai_prompt_options o = oai_chat_prompt(&q->chat, oai_chat_most_ids(q, chat->max_model_len));
  o.add_special = q->c.add_special_tokens;
  o.cut = q->truncate_prompt_tokens != TRIREME_UNSET;
  TRI_CHECK(oai_model_prompt(&chat->model, chat->scratch, &o, &prompt, err));
  tri_free(out->chat_ids);
  out->chat_ids = prompt.ids;
  q->c.r.token_ids = prompt.ids;
  q->c.r.num_token_ids = prompt.num;
  s->chat = chat;
  s->calls = q->calls;
  s->in_reasoning = prompt.opens_reasoning;
  s->in_text = prompt.in_text;
  oai_chat_begin_answer(q, &chat->model, prompt.opens_reasoning);
  return TRI_OK;
}

void submit_chat_free(submit_request *r) {
  if (r->is_chat) oai_chat_request_free(&r->chat);
  tri_free(r->chat_ids);
}

/* ---- its answer ---- */

void submit_chat_choice(submit_slot *s, size_t index, const char *text, size_t len, submit_piece *piece,
                        const oai_tail *tail) {
  char id[48];
  tri_json_doc *doc = NULL;
  oai_tools tools = {{0}}; /* they say which calls are calls */
  oai_chat_message_config config = {
      .model = &s->chat->model, .choice = index, .in_reasoning = s->in_reasoning, .in_text = s->in_text, .id = id};
  snprintf(id, sizeof id, "chatcmpl-%s", s->request_id);
  if (s->calls && tri_json_parse(s->input.data, s->input.len, &doc, NULL) == TRI_OK) config.tools = &tools;
  if (oai_tools_read(tri_json_get(tri_json_get(tri_json_root(doc), "body"), "tools"), &tools) != TRI_OK)
    s->result.failed = true;
  bool taken_apart = s->calls || s->chat->model.reasoning || s->chat->model.channels;
  oai_chat_choice choice = {
      .index = index, .text = text, .len = len, .logprobs = s->logprobs ? &piece->openai : NULL, .tail = *tail};
  oai_chat_choice_write(&s->result, &choice, taken_apart ? &config : NULL);
  oai_tools_free(&tools);
  tri_json_free(doc);
}
