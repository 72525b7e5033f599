/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of /v1/chat/completions, and what makes prompts of messages, also of /tokenize. */
#ifndef TRI_CLIENT_OPENAI_CHAT_REQUEST_H
#define TRI_CLIENT_OPENAI_CHAT_REQUEST_H

#include "client/openai/completion_request.h"
#include "client/openai/model.h"

/* Fields that make a prompt of messages; their values lie in the document that they were read from. */
typedef struct oai_chat_fields {
  const tri_json *messages, *tools, *documents, *kwargs, *reasoning_effort;
  bool add_generation_prompt, continue_final;
} oai_chat_fields;

/* A request of /v1/chat/completions. */
typedef struct oai_chat_request {
  oai_completion_request c; /* its prompt is made later */
  oai_chat_fields chat;
  const tri_json *tool_choice;
  bool logprobs, parallel_tool_calls;
  int64_t top_logprobs, truncate_prompt_tokens;
  bool calls; /* the answer may call tools */
} oai_chat_request;

/* Members of these names, of a structure that has oai_chat_fields at this offset. */
#define OAI_CHAT_FIELDS(type, member)                                                                                  \
  {"messages", oai_take_json, offsetof(type, member.messages)},                                                        \
      {"tools", oai_take_json, offsetof(type, member.tools)},                                                          \
      {"documents", oai_take_json, offsetof(type, member.documents)},                                                  \
      {"chat_template_kwargs", oai_take_json, offsetof(type, member.kwargs)},                                          \
      {"reasoning_effort", oai_take_json, offsetof(type, member.reasoning_effort)},                                    \
      {"add_generation_prompt", oai_take_bool, offsetof(type, member.add_generation_prompt)}, {                        \
    "continue_final_message", oai_take_bool, offsetof(type, member.continue_final)                                     \
  }
/* Checks them together; what a template has to say of messages comes later. */
tri_status oai_chat_fields_check(const oai_chat_fields *f, tri_error *err);
/* Returns the prompt that they ask for, of at most most_ids. */
oai_prompt_options oai_chat_prompt(const oai_chat_fields *f, uint64_t most_ids);

/* Reads a request to a model, whose answers show what can be asked for. defaults: what it has where it says nothing,
 * but for logprobs; NULL: libtrireme's. Free *out in any case. */
tri_status oai_chat_parse(const tri_json *object, const oai_model *model, const trireme_request *defaults,
                          oai_chat_request *out, oai_ignored *ignored, tri_error *err);
void oai_chat_request_free(oai_chat_request *q);
/* Returns how many tokens a prompt may have, or has after it was cut: -1 leaves room for the answer, as the coordinator
 * does. */
uint64_t oai_chat_most_ids(const oai_chat_request *q, uint64_t max_model_len);

/* The prompt is made: an answer that must call a tool first ends the reasoning in which the prompt leaves it. */
void oai_chat_begin_answer(oai_chat_request *q, const oai_model *model, bool in_reasoning);

#endif
