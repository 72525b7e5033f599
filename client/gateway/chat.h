/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of /v1/chat/completions and /tokenize. */
#ifndef TRI_CLIENT_GATEWAY_CHAT_H
#define TRI_CLIENT_GATEWAY_CHAT_H

#include "client/gateway/completion.h"
#include "client/gateway/model.h"

/* Fields that make a prompt of messages; their values lie in the document that they were read from. */
typedef struct gw_chat_fields {
  const tri_json *messages, *tools, *documents, *kwargs, *reasoning_effort;
  bool add_generation_prompt, continue_final;
} gw_chat_fields;

/* A request of /v1/chat/completions. */
typedef struct gw_chat_request {
  gw_completion_request c; /* its prompt is made later */
  gw_chat_fields chat;
  const tri_json *tool_choice;
  bool logprobs, parallel_tool_calls;
  int64_t top_logprobs, truncate_prompt_tokens;
  bool calls; /* the answer may call tools */
} gw_chat_request;

/* Members of these names, of a structure that has gw_chat_fields at this offset. */
#define GW_CHAT_FIELDS(type, member)                                                                                   \
  {"messages", gw_take_json, offsetof(type, member.messages)}, {"tools", gw_take_json, offsetof(type, member.tools)},  \
      {"documents", gw_take_json, offsetof(type, member.documents)},                                                   \
      {"chat_template_kwargs", gw_take_json, offsetof(type, member.kwargs)},                                           \
      {"reasoning_effort", gw_take_json, offsetof(type, member.reasoning_effort)},                                     \
      {"add_generation_prompt", gw_take_bool, offsetof(type, member.add_generation_prompt)}, {                         \
    "continue_final_message", gw_take_bool, offsetof(type, member.continue_final)                                      \
  }
/* Checks them together; what a template has to say of messages comes later. */
tri_status gw_chat_fields_check(const gw_chat_fields *f, tri_error *err);
/* Returns the prompt that they ask for, of at most most_ids. */
gw_prompt_options gw_chat_prompt(const gw_chat_fields *f, uint64_t most_ids);

/* Reads a request to a model, whose answers show what can be asked for. defaults: what it has where it says nothing,
 * but for logprobs; NULL: libtrireme's. Free *out in any case. */
tri_status gw_chat_parse(const tri_json *object, const gw_model *model, const trireme_request *defaults,
                         gw_chat_request *out, gw_ignored *ignored, tri_error *err);
void gw_chat_request_free(gw_chat_request *q);
/* Returns how many tokens a prompt may have, or has after it was cut: -1 leaves room for the answer, as the coordinator
 * does. */
uint64_t gw_chat_most_ids(const gw_chat_request *q, uint64_t max_model_len);

/* Answers a request that the gateway cannot serve as it was started: without a model's folder, or a template. */
bool gw_chat_refuse(gateway *g, http_conn *c, bool needs_template);

#endif
