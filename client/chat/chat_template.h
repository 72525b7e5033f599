/* SPDX-License-Identifier: Apache-2.0 */
/* A model's chat template, and the prompt that it makes of messages: what transformers' apply_chat_template does. */
#ifndef TRI_CLIENT_CHAT_CHAT_TEMPLATE_H
#define TRI_CLIENT_CHAT_CHAT_TEMPLATE_H

#include "client/chat/chat_answer.h"
#include "text/jinja/jinja.h"

typedef struct chat_template chat_template;

/* Reads `file`, or, where it is NULL, chat_template.jinja of a model's folder, else chat_template of
 * tokenizer_config.json, which may be several by name: `default`, and `tool_use` for requests with tools; and the
 * folder's special tokens, which templates name. Of a GGUF file its keys have both. TRI_NOT_FOUND: the model has none,
 * or there is no such file. TRI_CORRUPT: it is malformed; the message names the file and the line. */
tri_status chat_template_load(const char *model_dir, const char *file, chat_template **out, tri_error *err);
/* Makes one of a text, without special tokens. */
tri_status chat_template_make(const char *source, size_t len, chat_template **out, tri_error *err);
void chat_template_free(chat_template *t); /* NULL is fine */
/* Returns how the model writes calls, as far as the template shows it. */
chat_calls chat_template_calls(const chat_template *t);

/* Fields of a request; NULL: not given. */
typedef struct chat_request {
  const tri_json *messages, *tools, *documents;
  const tri_json *kwargs; /* an object: further variables of the template */
  const tri_json *reasoning_effort;
  bool add_generation_prompt;
  const char *model; /* its name, for refusals; may be NULL */
  int64_t now_s;     /* see tri_jinja_input */
} chat_request;

/* Writes the prompt. Bytes of *out that its spans name come from the request. TRI_INVALID_ARGUMENT: the messages are
 * malformed (err->field names which), or the template refuses them. */
tri_status chat_template_render(const chat_template *t, const chat_request *r, tri_jinja_output *out, tri_error *err);

#endif
