/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of /v1/chat/completions in addition to those of /v1/completions. The table here is looked at before the
 * shared one. Fields whose effect an answer would have to show, and that cannot be had here, are refused by name. */
#include "client/openai/chat_request.h"

#include <inttypes.h>
#include <string.h>

#include "client/openai/tool_choice.h"

enum { MAX_TOP = 20 };

static tri_status take_modalities(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  const char *s = tri_json_as_str(tri_json_at(v, 0), NULL);
  (void)request;
  if (tri_json_size(v) == 1 && s && !strcmp(s, "text")) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, f->name, "modalities are supported as [\"text\"] alone");
}

#define Q(m) .offset = offsetof(oai_chat_request, m)
static const oai_field fields[] = {
    OAI_CHAT_FIELDS(oai_chat_request, chat),
    {"tool_choice", oai_take_json, Q(tool_choice)},
    {"parallel_tool_calls", oai_take_bool, Q(parallel_tool_calls)},
    {"logprobs", oai_take_bool, Q(logprobs)},
    {"top_logprobs", oai_take_int, Q(top_logprobs)},
    {"truncate_prompt_tokens", oai_take_int, Q(truncate_prompt_tokens)},
    {"modalities", take_modalities, 0},
    {"functions", oai_take_unsupported, 0},
    {"function_call", oai_take_unsupported, 0},
    {"audio", oai_take_unsupported, 0},
    {"echo", oai_take_unsupported, 0},
    {"prompt_logprobs", oai_take_unsupported, 0},
    {"web_search_options", oai_take_unsupported, 0},
    {"mm_processor_kwargs", oai_take_unsupported, 0},
};
#undef Q

tri_status oai_chat_fields_check(const oai_chat_fields *f, tri_error *err) {
  tri_json_kind kwargs = tri_json_kind_of(f->kwargs), tools = tri_json_kind_of(f->tools);
  if (!f->messages) return tri_fail(err, TRI_INVALID_ARGUMENT, "messages", "messages is missing");
  if (kwargs != TRI_JSON_NULL && kwargs != TRI_JSON_OBJECT)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "chat_template_kwargs", "chat_template_kwargs must be an object");
  if (tools != TRI_JSON_NULL && tools != TRI_JSON_ARRAY)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "tools", "tools must be a list");
  if (!f->continue_final || !f->add_generation_prompt) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, "continue_final_message",
                  "continue_final_message needs add_generation_prompt false: an answer either continues the last "
                  "message or begins a new one");
}

oai_prompt_options oai_chat_prompt(const oai_chat_fields *f, uint64_t most_ids) {
  return (oai_prompt_options){.chat = {.messages = f->messages,
                                       .tools = f->tools,
                                       .documents = f->documents,
                                       .kwargs = f->kwargs,
                                       .reasoning_effort = f->reasoning_effort,
                                       .add_generation_prompt = f->add_generation_prompt},
                              .continue_final = f->continue_final,
                              .most_ids = most_ids};
}

static tri_status no_parser(const oai_model *model, const oai_tool_choice *choice, tri_error *err) {
  char names[CHAT_CALLS_NAMES];
  chat_calls_names(names);
  return tri_fail(
      err, TRI_UNSUPPORTED, "tool_choice",
      "tool_choice %s needs a parser of calls: start the gateway with --tool-parser NAME (%s), or send "
      "tool_choice \"none\"%s",
      oai_tool_choice_word(choice), names,
      model->ignores_tools ? "; the model's chat template ignores tools: --chat-template FILE gives another one" : "");
}

/* Tools that no prompt shows are like a field without a meaning. */
static tri_status note_ignored_tools(const oai_model *model, oai_ignored *ignored, tri_error *err) {
  if (!model->ignores_tools) return TRI_OK;
  if (ignored->allowed) return oai_ignore(ignored, "tools", err);
  return tri_fail(err, TRI_UNSUPPORTED, "tools",
                  "tools are not supported: the model's chat template ignores them; --chat-template FILE gives another "
                  "one");
}

static tri_status check_tools(oai_chat_request *q, const oai_model *model, oai_ignored *ignored, tri_error *err) {
  bool has_tools = tri_json_size(q->chat.tools) > 0;
  oai_tool_choice choice;
  TRI_CHECK(oai_tool_choice_read(q->tool_choice, &choice, err));
  bool is_forced = choice.kind == OAI_CHOICE_REQUIRED || choice.kind == OAI_CHOICE_NAMED;
  if (choice.kind == OAI_CHOICE_NONE || (!has_tools && !is_forced)) return TRI_OK;
  if (!has_tools)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "tool_choice",
                    "tool_choice %s asks for a call, and tools has no function", oai_tool_choice_word(&choice));
  if (model->calls == CHAT_CALLS_NONE) return no_parser(model, &choice, err);
  if (!q->parallel_tool_calls && !is_forced)
    return tri_fail(err, TRI_UNSUPPORTED, "parallel_tool_calls",
                    "parallel_tool_calls false is supported with tool_choice \"required\" or by name alone: another "
                    "answer cannot be kept from a second call");
  TRI_CHECK(note_ignored_tools(model, ignored, err));
  if (is_forced) TRI_CHECK(oai_tool_choice_force(q, &choice, model, err));
  q->calls = true;
  return TRI_OK;
}

void oai_chat_begin_answer(oai_chat_request *q, const oai_model *model, bool in_reasoning) {
  const chat_call_frame *frame = chat_calls_frame(model->calls);
  if (q->c.r.json_begin && frame && in_reasoning) q->c.r.json_begin = frame->begin_in_reasoning;
}

static tri_status check_logprobs(oai_chat_request *q, tri_error *err) {
  if (!q->logprobs && q->top_logprobs > 0)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "top_logprobs", "top_logprobs needs logprobs true");
  if (q->top_logprobs < 0 || q->top_logprobs > MAX_TOP)
    return tri_fail(err, TRI_OUT_OF_RANGE, "top_logprobs", "top_logprobs is %" PRId64 "; allowed are 0 to %d",
                    q->top_logprobs, MAX_TOP);
  q->c.r.logprobs = q->logprobs ? q->top_logprobs : -1;
  return TRI_OK;
}

/* Texts and members are pointers into the document, which must outlive their use; oai_completion_keep copies the texts
 * that jobs need. */
tri_status oai_chat_parse(const tri_json *object, const oai_model *model, const trireme_request *defaults,
                          oai_chat_request *q, oai_ignored *ignored, tri_error *err) {
  static const oai_field_table own = OAI_TABLE(fields);
  const oai_field_table tables[] = {own, oai_completion_fields, {0}};
  *q = (oai_chat_request){
      .chat.add_generation_prompt = true, .parallel_tool_calls = true, .truncate_prompt_tokens = TRIREME_UNSET};
  oai_completion_request_init(&q->c);
  if (defaults) {
    q->c.r = *defaults;
    q->c.cache = !defaults->no_cache;
  }
  q->c.add_special_tokens = false; /* the template has them */
  TRI_CHECK(oai_fields_read(tables, object, q, ignored, err));
  TRI_CHECK(oai_chat_fields_check(&q->chat, err));
  TRI_CHECK(check_tools(q, model, ignored, err));
  TRI_CHECK(check_logprobs(q, err));
  if (q->truncate_prompt_tokens != TRIREME_UNSET && q->truncate_prompt_tokens != -1 && q->truncate_prompt_tokens < 1)
    return tri_fail(err, TRI_OUT_OF_RANGE, "truncate_prompt_tokens",
                    "truncate_prompt_tokens is %" PRId64 "; it must be 1 or more, or -1", q->truncate_prompt_tokens);
  if (q->c.r.max_tokens == TRIREME_UNSET) q->c.r.max_tokens = -1; /* the rest of the context */
  TRI_CHECK(oai_completion_check(&q->c, err));
  q->c.r.keep_special_tokens |= model->channels; /* they tell the parts of the answer apart */
  return TRI_OK;
}

/* With truncate_prompt_tokens -1 the prompt leaves room for max_tokens, or for one token of an answer; without it, the
 * whole context is the limit. */
uint64_t oai_chat_most_ids(const oai_chat_request *q, uint64_t max_model_len) {
  if (q->truncate_prompt_tokens > 0) return (uint64_t)q->truncate_prompt_tokens;
  uint64_t answer = q->c.r.max_tokens > 0 ? (uint64_t)q->c.r.max_tokens : 1;
  bool cut = q->truncate_prompt_tokens != TRIREME_UNSET;
  return cut && answer < max_model_len ? max_model_len - answer : max_model_len;
}

void oai_chat_request_free(oai_chat_request *q) { oai_completion_request_free(&q->c); }
