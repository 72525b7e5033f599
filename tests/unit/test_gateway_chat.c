/* SPDX-License-Identifier: Apache-2.0 */
/* Chat in the gateway, without a coordinator: fields of requests, prompts, logprobs. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/openai/chat_message.h"
#include "client/openai/chat_request.h"
#include "client/openai/error.h"
#include "base/json/json_writer.h"
#include "base/mem.h"
#include "base/wait.h"

Suite *suite_gateway_chat(void);

/* ---- fields ---- */

typedef struct parsed {
  tri_json_doc *doc;
  oai_ignored ignored;
  oai_chat_request q;
  tri_error err;
  tri_status st;
} parsed;

static void parse(parsed *p, const char *text, bool has_parser) {
  *p = (parsed){0};
  ck_assert_msg(tri_json_parse(text, strlen(text), &p->doc, &p->err) == TRI_OK, "%s", text);
  oai_model model = {.calls = has_parser ? CHAT_CALLS_HERMES : CHAT_CALLS_NONE};
  p->st = oai_chat_parse(tri_json_root(p->doc), &model, NULL, &p->q, &p->ignored, &p->err);
}

static void done(parsed *p) {
  oai_chat_request_free(&p->q);
  tri_json_free(p->doc);
}

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

START_TEST(accepted) {
  parsed p;
  parse(&p, "{" HELLO "}", false);
  ck_assert_msg(p.st == TRI_OK, "%s", p.err.message);
  ck_assert(p.q.c.r.max_tokens == -1 && p.q.c.r.logprobs == -1 && p.q.c.r.no_stream && p.q.c.r.no_special_tokens);
  ck_assert(p.q.chat.add_generation_prompt && !p.q.chat.continue_final && !p.q.calls && !p.q.c.stream);
  done(&p);
  parse(&p,
        "{" HELLO ",\"max_completion_tokens\":5,\"n\":3,\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":"
        "true},\"logprobs\":true,\"top_logprobs\":4,\"temperature\":0,\"stop\":\"a\"," TOOLS
        ",\"chat_template_kwargs\":{\"a\":1},\"reasoning_effort\":\"low\",\"documents\":[],\"add_generation_prompt\":"
        "false,\"continue_final_message\":true,\"add_special_tokens\":true,\"truncate_prompt_tokens\":-1,"
        "\"response_format\":{\"type\":\"text\"},\"modalities\":[\"text\"],\"user\":\"u\",\"chat_template\":null}",
        true);
  ck_assert_msg(p.st == TRI_OK, "%s: %s", p.err.field, p.err.message);
  ck_assert(p.q.c.r.max_tokens == 5 && p.q.c.r.n == 3 && p.q.c.stream && p.q.c.continuous_usage && p.q.calls);
  ck_assert(p.q.c.r.logprobs == 4 && p.q.c.r.num_stop == 1 && !p.q.c.r.no_special_tokens);
  ck_assert(p.q.chat.continue_final && p.q.chat.kwargs && p.q.chat.reasoning_effort);
  done(&p);
  parse(&p, "{" HELLO "," TOOLS ",\"tool_choice\":\"none\",\"logprobs\":true,\"top_logprobs\":null}", false);
  ck_assert(p.st == TRI_OK && !p.q.calls && p.q.c.r.logprobs == 0);
  done(&p);
  parse(&p, "{" HELLO ",\"tools\":[],\"tool_choice\":\"auto\",\"parallel_tool_calls\":false}", false);
  ck_assert(p.st == TRI_OK && !p.q.calls);
  done(&p);
}
END_TEST

static const struct refused {
  const char *text, *field;
  tri_status st;
  bool has_parser;
} refused[] = {
    {"{}", "messages", TRI_INVALID_ARGUMENT, false},
    {"{" HELLO ",\"top_logprobs\":2}", "top_logprobs", TRI_INVALID_ARGUMENT, false},
    {"{" HELLO ",\"logprobs\":true,\"top_logprobs\":21}", "top_logprobs", TRI_OUT_OF_RANGE, false},
    {"{" HELLO ",\"logprobs\":3}", "logprobs", TRI_INVALID_ARGUMENT, false},
    {"{" HELLO "," TOOLS "}", "tool_choice", TRI_UNSUPPORTED, false},
    {"{" HELLO "," TOOLS ",\"tool_choice\":\"auto\"}", "tool_choice", TRI_UNSUPPORTED, false},
    {"{" HELLO "," TOOLS ",\"tool_choice\":\"required\"}", "tool_choice", TRI_UNSUPPORTED, false},
    {"{" HELLO "," TOOLS ",\"tool_choice\":\"any\"}", "tool_choice", TRI_INVALID_ARGUMENT, true},
    {"{" HELLO "," TOOLS ",\"parallel_tool_calls\":false}", "parallel_tool_calls", TRI_UNSUPPORTED, true},
    {"{" HELLO ",\"tools\":{}}", "tools", TRI_INVALID_ARGUMENT, true},
    {"{" HELLO ",\"chat_template\":\"{{ 1 }}\"}", "chat_template", TRI_UNSUPPORTED, false},
    {"{" HELLO ",\"chat_template_kwargs\":[]}", "chat_template_kwargs", TRI_INVALID_ARGUMENT, false},
    {"{" HELLO ",\"continue_final_message\":true}", "continue_final_message", TRI_INVALID_ARGUMENT, false},
    {"{" HELLO ",\"response_format\":{\"type\":\"grammar\"}}", "response_format", TRI_UNSUPPORTED, false},
    {"{" HELLO ",\"truncate_prompt_tokens\":0}", "truncate_prompt_tokens", TRI_OUT_OF_RANGE, false},
    {"{" HELLO ",\"modalities\":[\"text\",\"audio\"]}", "modalities", TRI_UNSUPPORTED, false},
    {"{" HELLO ",\"functions\":[{}]}", "functions", TRI_UNSUPPORTED, false},
    {"{" HELLO ",\"n\":0}", "n", TRI_OUT_OF_RANGE, false},
    {"{" HELLO ",\"zip\":1}", "zip", TRI_UNKNOWN_FIELD, false},
};

START_TEST(is_refused) {
  const struct refused *r = &refused[_i];
  parsed p;
  parse(&p, r->text, r->has_parser);
  ck_assert_msg(p.st == r->st && !strcmp(p.err.field, r->field), "%s: %s, %s: %s", r->text, tri_status_code(p.st),
                p.err.field, p.err.message);
  done(&p);
}
END_TEST

/* What -1 leaves of a prompt has room behind it. */
START_TEST(cut_prompts_leave_room) {
  static const struct {
    const char *fields;
    uint64_t most;
  } cases[] = {{"", 100},
               {",\"max_tokens\":30", 100},
               {",\"truncate_prompt_tokens\":40", 40},
               {",\"truncate_prompt_tokens\":-1", 99},
               {",\"truncate_prompt_tokens\":-1,\"max_tokens\":30", 70},
               {",\"truncate_prompt_tokens\":-1,\"max_tokens\":100", 100}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char text[256];
    parsed p;
    snprintf(text, sizeof text, "{" HELLO "%s}", cases[i].fields);
    parse(&p, text, false);
    ck_assert_msg(p.st == TRI_OK && oai_chat_most_ids(&p.q, 100) == cases[i].most, "%s", text);
    done(&p);
  }
}
END_TEST

/* ---- prompts ---- */

typedef struct prompts {
  oai_model model;
  tri_tokenizer_scratch *scratch;
} prompts;

static void open_prompts(prompts *p) {
  tri_error err = {0};
  *p = (prompts){0};
  ck_assert_msg(oai_model_open(TRI_SOURCE "/tests/models/abacus", NULL, &p->model, &err) == TRI_OK, "%s", err.message);
  ck_assert_ptr_nonnull(p->model.template);
  ck_assert_int_eq(tri_tokenizer_scratch_create(p->model.tokenizer, &p->scratch), TRI_OK);
}

static void close_prompts(prompts *p) {
  tri_tokenizer_scratch_destroy(p->scratch);
  oai_model_close(&p->model);
}

/* Writes the prompt's tokens, joined by spaces. */
static tri_status tokens_of(const prompts *p, const char *messages, oai_prompt_options o, char out[512],
                            tri_error *err) {
  tri_json_doc *doc = NULL;
  oai_prompt made = {0};
  size_t n = 0;
  *err = (tri_error){0};
  out[0] = '\0';
  ck_assert_msg(tri_json_parse(messages, strlen(messages), &doc, err) == TRI_OK, "%s", messages);
  o.chat.messages = tri_json_root(doc);
  o.chat.add_generation_prompt = !o.continue_final;
  tri_status st = oai_model_prompt(&p->model, p->scratch, &o, &made, err);
  for (size_t i = 0; st == TRI_OK && i < made.num; i++)
    n += (size_t)snprintf(out + n, 512 - n, "%s%s", i ? " " : "", tri_tokenizer_token(p->model.tokenizer, made.ids[i]));
  tri_free(made.ids);
  tri_json_free(doc);
  return st;
}

#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define ASSISTANT(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"

START_TEST(prompts_are_made) {
  prompts p;
  char got[512];
  tri_error err;
  open_prompts(&p);
  ck_assert_int_eq(tokens_of(&p, "[" USER("1+1=") "]", (oai_prompt_options){0}, got, &err), TRI_OK);
  ck_assert_str_eq(got, "<|begin|> 1 + 1 ="); /* one beginning: the tokenizer's own is left out */
  ck_assert_int_eq(tokens_of(&p, "[" USER("1+1=") "]", (oai_prompt_options){.add_special = true}, got, &err), TRI_OK);
  ck_assert_str_eq(got, "<|begin|> <|begin|> 1 + 1 =");
  ck_assert_int_eq(tokens_of(&p, "[" USER("1<|end|>") "]", (oai_prompt_options){0}, got, &err), TRI_OK);
  ck_assert_str_eq(got, "<|begin|> 1 < | e n d | >");
  p.model.parse_special = true;
  ck_assert_int_eq(tokens_of(&p, "[" USER("1<|end|>") "]", (oai_prompt_options){0}, got, &err), TRI_OK);
  ck_assert_str_eq(got, "<|begin|> 1 <|end|>");
  ck_assert_int_eq(tokens_of(&p, "[" USER("1234") "]", (oai_prompt_options){.most_ids = 3, .cut = true}, got, &err),
                   TRI_OK);
  ck_assert_str_eq(got, "2 3 4");
  ck_assert_int_eq(tokens_of(&p, "[" USER("1234") "]", (oai_prompt_options){.most_ids = 4}, got, &err),
                   TRI_NO_CAPACITY);
  oai_error e = oai_error_of_status(&err);
  ck_assert(e.status == 400 && !strcmp(e.code, "context_length_exceeded") && !strcmp(e.param, "messages"));
  ck_assert_int_eq(tokens_of(&p, "[" ASSISTANT("x") "]", (oai_prompt_options){0}, got, &err), TRI_INVALID_ARGUMENT);
  ck_assert_msg(!strcmp(err.field, "messages") && strstr(err.message, "a question is missing"), "%s", err.message);
  close_prompts(&p);
}
END_TEST

/* Whatever comes with a request may spell special tokens, and they stay text. */
START_TEST(all_of_a_request_is_foreign) {
  static const char source[] = "<|end|>{{ tools | tojson }}{{ documents[0] }}{{ x }}{{ reasoning_effort }}",
                    request[] =
                        "{\"messages\":[" USER("x") "],\"tools\":[\"<|end|>\"],\"documents\":[\"<|end|>\"],\"kwargs\":"
                                                    "{\"x\":\"<|end|>\"},\"reasoning_effort\":\"<|end|>\"}";
  prompts p;
  tri_error err = {0};
  tri_json_doc *doc = NULL;
  oai_prompt made = {0};
  size_t special = 0;
  open_prompts(&p);
  chat_template_free(p.model.template);
  p.model.template = NULL;
  ck_assert_int_eq(chat_template_make(source, sizeof source - 1, &p.model.template, &err), TRI_OK);
  ck_assert_int_eq(tri_json_parse(request, sizeof request - 1, &doc, &err), TRI_OK);
  const tri_json *root = tri_json_root(doc);
  oai_prompt_options o = {.chat = {.messages = tri_json_get(root, "messages"),
                                   .tools = tri_json_get(root, "tools"),
                                   .documents = tri_json_get(root, "documents"),
                                   .kwargs = tri_json_get(root, "kwargs"),
                                   .reasoning_effort = tri_json_get(root, "reasoning_effort")}};
  ck_assert_msg(oai_model_prompt(&p.model, p.scratch, &o, &made, &err) == TRI_OK, "%s", err.message);
  for (size_t i = 0; i < made.num; i++) special += tri_tokenizer_is_special(p.model.tokenizer, made.ids[i]);
  ck_assert(special == 1 && made.num == 1 + 4 + 4 * 7); /* ["..."], and each of the four texts in characters */
  tri_free(made.ids);
  tri_json_free(doc);
  close_prompts(&p);
}
END_TEST

START_TEST(final_messages_go_on) {
  static const oai_prompt_options on = {.continue_final = true};
  prompts p;
  char got[512];
  tri_error err;
  open_prompts(&p);
  ck_assert_int_eq(tokens_of(&p, "[" USER("1+1=") "," ASSISTANT("2 3 ") "]", on, got, &err), TRI_OK);
  ck_assert_str_eq(got, "<|begin|> 1 + 1 = 2 Ġ 3 Ġ"); /* the space of the content stays */
  chat_template_free(p.model.template);
  const char *source = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %} end";
  ck_assert_int_eq(chat_template_make(source, strlen(source), &p.model.template, &err), TRI_OK);
  ck_assert_int_eq(tokens_of(&p, "[" USER("1") "," ASSISTANT(" 2 ") "]", on, got, &err), TRI_OK);
  ck_assert_str_eq(got, "[ 1 ] [ 2"); /* the template's brackets split, and what is behind the content goes */
  ck_assert_int_eq(tokens_of(&p, "[" USER("1") "," ASSISTANT(" ") "]", on, got, &err), TRI_INVALID_ARGUMENT);
  ck_assert_str_eq(err.field, "continue_final_message");
  close_prompts(&p);
}
END_TEST

/* What is nowhere in the prompt, and nearly everywhere, is looked for in linear time: with the product of the lengths
 * it takes minutes. */
START_TEST(final_messages_are_found_in_linear_time) {
  enum { A = 2400000, B = 1200000 };
  static const char head[] = "[{\"role\":\"user\",\"content\":\"", middle[] = "\"},{\"role\":\"system\",\"content\":\"",
                    tail[] = "b\"}]";
  prompts p;
  char got[512];
  tri_error err;
  char *text = tri_malloc(A + B + 256, 1);
  ck_assert_ptr_nonnull(text);
  size_t n = (size_t)sprintf(text, "%s", head);
  memset(text + n, 'a', A);
  n += A + (size_t)sprintf(text + n + A, "%s", middle);
  memset(text + n, 'a', B);
  snprintf(text + n + B, 256 - sizeof head - sizeof middle, "%s", tail);
  open_prompts(&p);
  int64_t begin = tri_thread_cpu_ns();
  ck_assert_int_eq(tokens_of(&p, text, (oai_prompt_options){.continue_final = true}, got, &err), TRI_INVALID_ARGUMENT);
  ck_assert_str_eq(err.field, "continue_final_message");
  ck_assert_int_lt(tri_thread_cpu_ns() - begin, 20 * INT64_C(1000000000)); /* without the limit it takes minutes */
  tri_free(text);
  close_prompts(&p);
}
END_TEST

/* ---- logprobs ---- */

/* A part of a character, an alternative that cannot be drawn, and a token without a text. */
START_TEST(logprobs) {
  uint32_t ids[2] = {5, 6}, tops[2] = {5, 7};
  float values[2] = {-0.5f, -INFINITY};
  trireme_string texts[2] = {{"\xc3", 1}, {"x", 1}};
  trireme_logprobs first = {-0.5f, 2, tops, values, "\xc3", 1, texts}, second = {-2.0f, 0, NULL, NULL, NULL, 0, NULL};
  const trireme_logprobs *both[2] = {&first, &second};
  trireme_choice c = {.ids = ids, .num_ids = 2, .logprobs = both};
  oai_logprobs l = {0};
  tri_buf b = {0};
  oai_chat_logprobs_add(&l, &c);
  oai_chat_logprobs_write(&l, &b);
  ck_assert_str_eq(
      b.data,
      "{\"content\":[{\"token\":\"bytes:\\\\xc3\",\"logprob\":-0.5,\"bytes\":[195],\"top_logprobs\":[{\"token\":"
      "\"bytes:\\\\xc3\",\"logprob\":-0.5,\"bytes\":[195]},{\"token\":\"x\",\"logprob\":-9999.0,\"bytes\":[120]}]"
      "},{\"token\":\"token_id:6\",\"logprob\":-2,\"bytes\":null,\"top_logprobs\":[]}]}");
  b.len = 0;
  oai_chat_logprobs_write(&l, &b);
  ck_assert_str_eq(b.data, "{\"content\":[]}");
  oai_logprobs_free(&l);
  tri_buf_free(&b);
}
END_TEST

/* ---- messages ---- */

static void add_event(void *ctx, size_t choice, const tri_buf *members) {
  tri_buf *all = ctx;
  tri_text_printf(all, "%zu %s\n", choice, members->data);
}

/* Makes a message of an answer, whole or as the events of two pieces. */
static void make_message(const oai_model *model, bool in_reasoning, const char *text, bool stream, bool calls,
                         tri_buf *out) {
  tri_json_doc *doc = NULL;
  static const char tools[] =
      "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{"
      "\"type\":\"string\"},\"n\":{\"type\":\"integer\"}}}}}]";
  oai_chat_message_config config = {.model = model, .in_reasoning = in_reasoning, .choice = 3, .id = "chatcmpl-1"};
  oai_chat_message *m = NULL;
  bool got;
  oai_tail end = {.finish_reason = "stop", .stop_token_id = -1};
  size_t len = strlen(text);
  ck_assert_int_eq(tri_json_parse(tools, sizeof tools - 1, &doc, NULL), TRI_OK);
  oai_tools of_request;
  ck_assert_int_eq(oai_tools_read(tri_json_root(doc), &of_request), TRI_OK);
  tri_json_free(doc);
  config.tools = &of_request;
  config.event = stream ? add_event : NULL;
  config.ctx = out;
  out->len = 0;
  ck_assert_int_eq(oai_chat_message_create(&config, &m), TRI_OK);
  ck_assert_int_eq(oai_chat_message_push(m, text, len / 2), TRI_OK);
  ck_assert_int_eq(oai_chat_message_push(m, text + len / 2, len - len / 2), TRI_OK);
  ck_assert_int_eq(oai_chat_message_finish(m, &end, &got), TRI_OK);
  ck_assert(got == calls);
  if (!stream) oai_chat_message_write(m, out);
  oai_chat_message_free(m);
  oai_tools_free(&of_request);
}

/* Cuts the ids out of a text, whose digits are those of a hash; they must differ. */
static void without_ids(tri_buf *b, size_t digits) {
  static const char key[] = "\"id\":\"";
  char last[32] = "";
  for (char *at = b->data; (at = strstr(at, key));) {
    char *from = at + sizeof key - 1, *end = strchr(from, '"');
    ck_assert_uint_eq((size_t)(end - from), digits);
    ck_assert(strncmp(last, from, digits) != 0);
    snprintf(last, sizeof last, "%.*s", (int)digits, from);
    memmove(from, end, strlen(end) + 1);
    at = from;
  }
}

START_TEST(message) {
  static const char answer[] = "hm</think>So:<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": 1}}</tool_call>"
                               "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>";
  oai_model model = {.calls = CHAT_CALLS_HERMES, .reasoning = true};
  tri_buf b = {0};
  make_message(&model, true, answer, false, true, &b);
  without_ids(&b, 21);
  ck_assert_str_eq(b.data, "\"reasoning_content\":\"hm\",\"content\":\"So:\",\"tool_calls\":[{\"id\":\"\",\"type\":"
                           "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}},{\"id\":\"\","
                           "\"type\":\"function\",\"function\":{\"name\":\"g\",\"arguments\":\"{}\"}}]");
  make_message(&model, true, answer, true, true, &b);
  without_ids(&b, 21);
  ck_assert_str_eq(b.data, "3 \"reasoning_content\":\"hm\"\n3 \"content\":\"So:\"\n"
                           "3 \"tool_calls\":[{\"index\":0,\"id\":\"\",\"type\":\"function\",\"function\":{\"name\":"
                           "\"f\",\"arguments\":\"\"}}]\n"
                           "3 \"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\": 1}\"}}]\n"
                           "3 \"tool_calls\":[{\"index\":1,\"id\":\"\",\"type\":\"function\",\"function\":{\"name\":"
                           "\"g\",\"arguments\":\"\"}}]\n"
                           "3 \"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"{}\"}}]\n");
  model = (oai_model){.calls = CHAT_CALLS_MISTRAL};
  make_message(&model, false, "[{\"name\":\"f\",\"arguments\":{}}]", false, true, &b);
  without_ids(&b, 9);
  ck_assert_str_eq(b.data, "\"content\":null,\"tool_calls\":[{\"id\":\"\",\"type\":\"function\",\"function\":{\"name\":"
                           "\"f\",\"arguments\":\"{}\"}}]");
  model.calls = CHAT_CALLS_TAGS;
  make_message(&model, false,
               "<tool_call><function=f><parameter=s>1</parameter><parameter=n>1</parameter></function></tool_call>",
               false, true, &b);
  ck_assert_msg(strstr(b.data, "\"arguments\":\"{\\\"s\\\": \\\"1\\\", \\\"n\\\": 1}\""), "%s", b.data);
  model = (oai_model){.calls = CHAT_CALLS_CHANNELS, .channels = true};
  make_message(&model, false,
               "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.f "
               "json<|message|>{\"n\":1}<|call|>",
               false, true, &b);
  without_ids(&b, 21);
  ck_assert_str_eq(b.data, "\"reasoning_content\":\"hm\",\"content\":null,\"tool_calls\":[{\"id\":\"\",\"type\":"
                           "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"n\\\":1}\"}}]");
  make_message(&model, false, "<|channel|>commentary to=functions.f<|message|>{\"n\":", false, false, &b); /* cut */
  model = (oai_model){.calls = CHAT_CALLS_TAGS};
  make_message(&model, false, "<tool_call>\n<function=f>\n<parameter=s>\na\n<parameter=x>\n</parameter>\n</function>\n",
               false, true, &b);
  ck_assert_msg(strstr(b.data, "{\\\"s\\\": \\\"a\\\\n<parameter=x>\\\"}"), "%s", b.data);
  make_message(&model, false, "", false, false, &b);
  ck_assert_str_eq(b.data, "\"content\":\"\"");
  tri_buf_free(&b);
}
END_TEST

/* A call of channels whose message has nothing is one where the model has ended it, and none that was cut there. */
START_TEST(call_without_arguments) {
  static const char text[] = "<|channel|>commentary to=functions.f<|message|>";
  static const trireme_string stop = {"{", 1};
  static const oai_tail ends[] = {{.finish_reason = "stop", .stop_token_id = -1},
                                  {.finish_reason = "length", .stop_token_id = -1},
                                  {.finish_reason = "stop", .stop_token_id = 5},
                                  {.finish_reason = "stop", .stop_token_id = -1, .stop_string = &stop}};
  oai_model model = {.calls = CHAT_CALLS_CHANNELS, .channels = true};
  const oai_tools tools = {{0}};
  oai_chat_message_config config = {.model = &model, .tools = &tools, .id = "chatcmpl-1"};
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    oai_chat_choice c = {.text = text, .len = sizeof text - 1, .tail = ends[i]};
    tri_buf b = {0};
    oai_chat_choice_write(&b, &c, &config);
    ck_assert_msg((strstr(b.data, "\"arguments\":\"{}\"") != NULL) == (i == 0), "%s", b.data);
    ck_assert_msg((strstr(b.data, "\"finish_reason\":\"tool_calls\"") != NULL) == (i == 0), "%s", b.data);
    tri_buf_free(&b);
  }
}
END_TEST

/* The parts of an answer of channels are told apart by special tokens, which the request asks for. */
START_TEST(channels_are_asked_for) {
  static const char text[] = "{" HELLO ",\"skip_special_tokens\":true," TOOLS "}";
  for (int channels = 0; channels < 2; channels++) {
    oai_model model = {.calls = channels ? CHAT_CALLS_CHANNELS : CHAT_CALLS_HERMES, .channels = channels};
    oai_chat_request q;
    oai_ignored ignored = {0};
    tri_error err = {0};
    tri_json_doc *doc = NULL;
    ck_assert_int_eq(tri_json_parse(text, sizeof text - 1, &doc, &err), TRI_OK);
    ck_assert_int_eq(oai_chat_parse(tri_json_root(doc), &model, NULL, &q, &ignored, &err), TRI_OK);
    ck_assert_int_eq(q.c.r.keep_special_tokens, channels);
    ck_assert(q.calls);
    oai_chat_request_free(&q);
    tri_json_free(doc);
  }
}
END_TEST

/* A parser of calls does not bring the tools into a template's prompt. */
START_TEST(tools_that_no_prompt_shows) {
  static const char text[] = "{" HELLO "," TOOLS "}";
  static const struct {
    chat_calls calls;
    bool allowed;
    tri_status st;
    const char *said;
  } cases[] = {
      {CHAT_CALLS_HERMES, true, TRI_OK, ""},
      {CHAT_CALLS_HERMES, false, TRI_UNSUPPORTED, "chat template ignores them"},
      {CHAT_CALLS_NONE, true, TRI_UNSUPPORTED,
       "--tool-parser NAME (hermes, mistral, llama, function, qwen3_coder, harmony)"},
      {CHAT_CALLS_NONE, true, TRI_UNSUPPORTED, "the model's chat template ignores tools"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    oai_model model = {.calls = cases[i].calls, .ignores_tools = true};
    oai_chat_request q;
    oai_ignored ignored = {.allowed = cases[i].allowed};
    tri_error err = {0};
    tri_json_doc *doc = NULL;
    ck_assert_int_eq(tri_json_parse(text, sizeof text - 1, &doc, &err), TRI_OK);
    ck_assert_int_eq(oai_chat_parse(tri_json_root(doc), &model, NULL, &q, &ignored, &err), cases[i].st);
    ck_assert_msg(strstr(err.message, cases[i].said) != NULL, "%s", err.message);
    ck_assert_str_eq(ignored.names, cases[i].st == TRI_OK ? "tools" : "");
    oai_chat_request_free(&q);
    tri_json_free(doc);
  }
}
END_TEST

/* One that fails at tools is not known to ignore them. */
START_TEST(templates_that_ignore_tools) {
  static const struct {
    const char *source;
    bool ignores;
  } cases[] = {
      {"{% for m in messages %}{{ m.content }}{% endfor %}", true},
      {"{% if tools %}{{ tools | length }}{% endif %}{{ messages[0].content }}", false},
      {"{% if tools %}{{ raise_exception('no tools') }}{% endif %}{{ messages[0].content }}", false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char path[] = "/tmp/trireme-template-XXXXXX";
    int fd = mkstemp(path);
    size_t len = strlen(cases[i].source);
    ck_assert(fd >= 0 && write(fd, cases[i].source, len) == (ssize_t)len && !close(fd));
    oai_model m = {0};
    tri_error err = {0};
    tri_status st = oai_model_open(TRI_SOURCE "/tests/models/abacus", path, &m, &err);
    unlink(path);
    ck_assert_msg(st == TRI_OK, "%s", err.message);
    ck_assert_msg(m.ignores_tools == cases[i].ignores, "%s", cases[i].source);
    oai_model_close(&m);
  }
}
END_TEST

/* The form of calls is seen in the template; what opens reasoning, at the end of its own text. */
START_TEST(probes) {
  static const struct {
    const char *source;
    chat_calls calls;
    bool reasoning;
  } cases[] = {{"<tool_call>{{ messages[0].content }}<think>\n", CHAT_CALLS_HERMES, true},
               {"<tool_call><arg_key>{{ messages[0].content }}", CHAT_CALLS_NONE, false},
               {"<tool_call><function=f><parameter=x><think>{{ messages[0].content }}", CHAT_CALLS_TAGS, false},
               {"[TOOL_CALLS]{{ messages[0].content }}think>", CHAT_CALLS_MISTRAL, false},
               {"<|start|>assistant<|channel|>final<|message|>{{ messages[0].content }}", CHAT_CALLS_CHANNELS, false},
               {"{{ messages[0].content }}<think></think>", CHAT_CALLS_NONE, false}};
  prompts p;
  open_prompts(&p);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    static const char request[] = "[" USER("<think>") "]";
    tri_error err = {0};
    tri_json_doc *doc = NULL;
    oai_prompt made = {0};
    chat_template_free(p.model.template);
    p.model.template = NULL;
    ck_assert_int_eq(chat_template_make(cases[i].source, strlen(cases[i].source), &p.model.template, &err), TRI_OK);
    ck_assert_int_eq(chat_template_calls(p.model.template), cases[i].calls);
    ck_assert_int_eq(tri_json_parse(request, sizeof request - 1, &doc, &err), TRI_OK);
    oai_prompt_options o = {.chat.messages = tri_json_root(doc)};
    ck_assert_int_eq(oai_model_prompt(&p.model, p.scratch, &o, &made, &err), TRI_OK);
    ck_assert_msg(made.opens_reasoning == cases[i].reasoning, "%s", cases[i].source);
    tri_free(made.ids);
    tri_json_free(doc);
  }
  close_prompts(&p);
}
END_TEST

Suite *suite_gateway_chat(void) {
  Suite *s = suite_create("gateway_chat");
  TCase *c = tcase_create("chat");
  tcase_add_test(c, accepted);
  tcase_add_loop_test(c, is_refused, 0, sizeof refused / sizeof *refused);
  tcase_add_test(c, prompts_are_made);
  tcase_add_test(c, all_of_a_request_is_foreign);
  tcase_add_test(c, final_messages_go_on);
  tcase_add_test(c, final_messages_are_found_in_linear_time);
  tcase_add_test(c, cut_prompts_leave_room);
  tcase_add_test(c, logprobs);
  tcase_add_test(c, message);
  tcase_add_test(c, call_without_arguments);
  tcase_add_test(c, channels_are_asked_for);
  tcase_add_test(c, tools_that_no_prompt_shows);
  tcase_add_test(c, templates_that_ignore_tools);
  tcase_add_test(c, probes);
  suite_add_tcase(s, c);
  return s;
}
