/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/chat/completions, /tokenize and /detokenize: the template's prompt, and the parts of an answer. */
#include <stdio.h>

#include "tests/stack/stack.h"

#define PATH "/v1/chat/completions"
#define MODEL TRI_SOURCE "/tests/models/abacus"
#define SUM "'messages':[{'role':'user','content':'37+48='}],'temperature':0"
#define SAID(text) "'message':{'role':'assistant','content':'" text "'}"
#define ERROR(code, param)                                                                                             \
  "{'error':{'message':'*','type':'invalid_request_error','param':" param ",'code':'" code "'}}"

static stack *s;

static void open_all(void) { s = stack_open(NULL, "--max-model-len 8192", "--model " MODEL); }
static void close_all(void) { stack_close(s); }

START_TEST(answers) {
  static const exchange list[] = {
      {.path = PATH,
       .body = "{" SUM "}",
       .status = 200,
       .json = "{'id':'/chatcmpl-[0-9a-f]{32}/','object':'chat.completion','created':'#','model':'abacus','choices':[{"
               "'index':0," SAID("85") ",'logprobs':null,'finish_reason':'stop','stop_reason':null}],"
                                       "'usage':{'prompt_tokens':7,'completion_tokens':3,'total_tokens':10,"
                                       "'prompt_tokens_details':{'cached_tokens':0}}}"},
      {.path = PATH,
       .body = "{" SUM ",'n':2,'max_completion_tokens':5,'tools':[]}",
       .status = 200,
       .json = "{'...':0,'choices':[{'...':0,'index':0," SAID("85") "},{'...':0,'index':1," SAID("85") "}]}"},
      {.path = PATH,
       .body = "{" SUM ",'logprobs':true,'top_logprobs':1}",
       .status = 200,
       .json = "{'...':0,'choices':[{'...':0,'logprobs':{'...':0,'content':["
               "{'token':'8','logprob':-0.25,'bytes':[56],'top_logprobs':"
               "[{'token':'8','logprob':-0.25,'bytes':[56]}]},{'...':0,'token':'5'},'...']}}]}"},
      {.path = PATH,
       .body = "{'messages':[{'role':'user','content':'37+48='},{'role':'assistant','content':'8'}],'temperature':0,"
               "'add_generation_prompt':false,'continue_final_message':true}",
       .status = 200,
       .json = "{'...':0,'choices':[{'...':0," SAID("5") "}]}"},
      {.path = PATH,
       .body = "{'messages':[{'role':'user','content':'<|end|>'}],'max_tokens':1}",
       .status = 200,
       .json = "{'...':0,'usage':{'...':0,'prompt_tokens':8}}"},
      {.path = PATH,
       .body = "{" SUM ",'max_tokens':1,'truncate_prompt_tokens':3}",
       .status = 200,
       .json = "{'...':0,'usage':{'...':0,'prompt_tokens':3}}"},
      {.path = PATH, .body = "{" SUM ",'zip':1}", .status = 200, .field = "X-Trireme-Ignored: zip"},
      {.path = PATH,
       .body = "{" SUM ",'stop':'5','include_stop_str_in_output':true,'return_token_ids':true}",
       .status = 200,
       .json = "{'...':0,'choices':[{'index':0," SAID(
           "85") ",'logprobs':null,'finish_reason':'stop',"
                 "'stop_reason':'5','token_ids':[56,53]}],'prompt_token_ids':[506,51,55,43,52,56,61]}"},
  };
  expect_list(s, list);
}
END_TEST

START_TEST(refusals) {
  tri_buf body = {0};
  static const exchange list[] = {
      {.path = PATH,
       .body = "{'messages':[{'role':'system','content':'x'}]}",
       .status = 400,
       .json = "{'error':{'message':'/.*a question is missing.*/','type':'invalid_request_error','param':'messages',"
               "'code':'invalid_argument'}}"},
      {.path = PATH,
       .body = "{'messages':[{'role':'<|end|>'}],'stream':true}",
       .status = 400,
       .json = "{'error':{'...':0,'param':'messages[0].role'}}"},
      {.path = PATH,
       .body = "{" SUM ",'tools':[{'type':'function'}]}",
       .status = 400,
       .json = ERROR("unsupported", "'tool_choice'")},
      {.path = PATH,
       .body = "{'messages':[{'role':'user','content':'x'}],'temperature':-1,'stream':true}",
       .status = 400,
       .json = ERROR("out_of_range", "'temperature'")},
      {.path = PATH, .body = "{'messages':", .status = 400, .json = "{'error':{'...':0,'code':'corrupt'}}"},
  };
  expect_list(s, list);
  tri_text_printf(&body, "{'messages':[{'role':'user','content':'");
  for (int i = 0; i < 9000; i++) tri_text_add(&body, "1", 1);
  tri_text_printf(&body, "'}]}");
  expect(s, .path = PATH, .body = body.data, .status = 400, .json = ERROR("context_length_exceeded", "'messages'"));
  tri_buf_free(&body);
}
END_TEST

START_TEST(tokens) {
  static const exchange list[] = {
      {.path = "/tokenize",
       .body = "{'prompt':'<|begin|>37'}",
       .status = 200,
       .json = "{'count':4,'max_model_len':8192,'tokens':[506,506,51,55],'token_strs':null}"},
      {.path = "/tokenize",
       .body = "{'messages':[{'role':'user','content':'<|end|>1'}],'return_token_strs':true}",
       .status = 200,
       .json = "{'count':9,'max_model_len':8192,'tokens':[506,60,'...'],'token_strs':['<|begin|>','<','...']}"},
      {.path = "/detokenize", .body = "{'tokens':[506,51,55]}", .status = 200, .json = "{'prompt':'<|begin|>37'}"},
      {.path = "/detokenize",
       .body = "{'tokens':[509]}",
       .status = 400,
       .json = "{'error':{'...':0,'param':'tokens','code':'out_of_range'}}"},
  };
  expect_list(s, list);
}
END_TEST

/* ---- streams ---- */

static json_t *stream(const char *body) {
  call *c = ask(s, "POST", PATH, NULL, body);
  stack_until(s, c->whole);
  json_t *events = stream_events(c);
  leave(s, c);
  return events;
}

/* Counts the events that match. */
static int count(json_t *events, const char *want) {
  char why[1024];
  size_t i;
  int n = 0;
  json_t *e;
  json_array_foreach(events, i, e) n += !json_differs(e, want, why, sizeof why);
  return n;
}

START_TEST(streams) {
  json_t *e = stream("{" SUM ",'stream':true,'n':2,'stream_options':{'include_usage':true}}");
  for (int i = 0; i < 2; i++) {
    char want[300], *text = stream_text(e, i, "delta.content");
    ck_assert_str_eq(text, "85");
    snprintf(want, sizeof want, "{'...':0,'choices':[{'...':0,'index':%d,'delta':{'role':'assistant','content':''}}]}",
             i);
    ck_assert_int_eq(count(e, want), 1);
    snprintf(want, sizeof want,
             "{'...':0,'object':'chat.completion.chunk','choices':[{'...':0,'index':%d,'delta':{},'logprobs':null,"
             "'finish_reason':'stop'}]}",
             i);
    ck_assert_int_eq(count(e, want), 1);
    tri_free(text);
  }
  ck_assert_int_eq(count(e, "{'...':0,'choices':[],'usage':{'...':0,'prompt_tokens':7,'completion_tokens':6}}"), 1);
  ck_assert_int_eq(count(e, "{'...':0,'id':'/chatcmpl-[0-9a-f]{32}/'}"), (int)json_array_size(e));
  json_decref(e);
}
END_TEST

/* ---- calls and reasoning ---- */

#define TOOLS                                                                                                          \
  "'messages':[{'role':'user','content':'1'}],'max_tokens':200,"                                                       \
  "'tools':[{'type':'function','function':{'name':'f','parameters':{}}}]"

static void open_hermes(void) {
  s = stack_open(NULL, "--max-model-len 8192", "--tool-parser hermes --reasoning-parser think --model " MODEL);
  replica_say(s->r,
              "<think>hm</think>Look: <tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":  \"<x>\"}}\n</tool_call>");
}

START_TEST(calls) {
  static const exchange list[] = {
      {.path = PATH,
       .body = "{" TOOLS "}",
       .status = 200,
       .json = "{'...':0,'choices':[{'index':0,'message':{'role':'assistant','reasoning_content':'hm',"
               "'content':'Look: ','tool_calls':[{'id':'/call_[0-9a-f]{16}/','type':'function',"
               "'function':{'name':'f','arguments':'{\\'a\\':  \\'<x>\\'}'}}]},'logprobs':null,"
               "'finish_reason':'tool_calls','stop_reason':null}]}"},
      {.path = PATH,
       .body = "{" TOOLS ",'tool_choice':'none'}",
       .status = 200,
       .json = "{'...':0,'choices':[{'...':0,'message':{'...':0,'content':'/Look: <tool_call>.*/'},"
               "'finish_reason':'stop'}]}"},
      {.path = PATH,
       .body = "{" TOOLS ",'tool_choice':'required','response_format':{'type':'json_object'}}",
       .status = 400,
       .json = ERROR("invalid_argument", "'tool_choice'")},
  };
  expect_list(s, list);
}
END_TEST

/* Joins the arguments of a stream's calls, and counts their pieces. */
static int join_arguments(json_t *events, char *out, size_t cap) {
  size_t i;
  int pieces = 0;
  json_t *e;
  out[0] = '\0';
  json_array_foreach(events, i, e) {
    json_t *delta = json_object_get(json_array_get(json_object_get(e, "choices"), 0), "delta");
    json_t *one = json_array_get(json_object_get(delta, "tool_calls"), 0);
    json_t *f = json_object_get(one, "function");
    if (!f || json_object_get(f, "name")) continue;
    size_t n = strlen(out);
    snprintf(out + n, cap - n, "%s", json_string_value(json_object_get(f, "arguments")));
    pieces++;
  }
  return pieces;
}

START_TEST(calls_of_a_stream) {
  json_t *e = stream("{" TOOLS ",'stream':true,'logprobs':true}"), *one;
  char *thought = stream_text(e, 0, "delta.reasoning_content"), *text = stream_text(e, 0, "delta.content");
  char arguments[256];
  size_t i, tokens = 0;
  ck_assert_str_eq(thought, "hm");
  ck_assert_str_eq(text, "Look: ");
  ck_assert_int_ge(join_arguments(e, arguments, sizeof arguments), 2);
  ck_assert_str_eq(arguments, "{\"a\":  \"<x>\"}");
  ck_assert_int_eq(count(e, "{'...':0,'choices':[{'...':0,'delta':{'tool_calls':[{'index':0,'id':'/call_[0-9a-f]{16}/',"
                            "'type':'function','function':{'name':'f','arguments':''}}]}}]}"),
                   1);
  ck_assert_int_eq(count(e, "{'...':0,'choices':[{'...':0,'delta':{},'finish_reason':'tool_calls'}]}"), 1);
  json_array_foreach(e, i, one) {
    json_t *choice = json_array_get(json_object_get(one, "choices"), 0);
    tokens += json_array_size(json_object_get(json_object_get(choice, "logprobs"), "content"));
  }
  ck_assert_uint_eq(tokens, replica_last_tokens(s->r));
  json_decref(e);
  tri_free(thought);
  tri_free(text);
}
END_TEST

static void open_llama(void) {
  s = stack_open(NULL, "--max-model-len 8192", "--tool-parser llama --model " MODEL);
  replica_say(s->r, "{\"name\": \"f\", \"parameters\": {}}");
}

START_TEST(calls_without_tags) {
  static const exchange list[] = {
      {.path = PATH,
       .body = "{" TOOLS "}",
       .status = 200,
       .json = "{'...':0,'choices':[{'...':0,'message':{'role':'assistant','content':null,'tool_calls':[{"
               "'id':'/call_[0-9a-f]{16}/','type':'function','function':{'name':'f','arguments':'{}'}}]}}]}"},
      {.path = PATH,
       .body = "{'messages':[{'role':'user','content':'1'}],'max_tokens':200}",
       .status = 200,
       .json = "{'...':0,'choices':[{'...':0,'message':{'role':'assistant','content':'/[{].*/'},"
               "'finish_reason':'stop'}]}"},
  };
  expect_list(s, list);
}
END_TEST

static TCase *add_case(Suite *suite, const char *name, void (*open)(void)) {
  TCase *t = tcase_create(name);
  tcase_add_unchecked_fixture(t, open, close_all);
  tcase_set_timeout(t, 120);
  suite_add_tcase(suite, t);
  return t;
}

Suite *suite_chat(void) {
  Suite *suite = suite_create("chat");
  TCase *t = add_case(suite, "chat", open_all);
  tcase_add_test(t, answers);
  tcase_add_test(t, refusals);
  tcase_add_test(t, tokens);
  tcase_add_test(t, streams);
  t = add_case(suite, "calls", open_hermes);
  tcase_add_test(t, calls);
  tcase_add_test(t, calls_of_a_stream);
  tcase_add_test(add_case(suite, "calls_without_tags", open_llama), calls_without_tags);
  return suite;
}
