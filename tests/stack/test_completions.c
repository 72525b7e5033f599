/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/completions: the forms of its answers and of its streams, and what of a request changes them. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/stack/stack.h"

#define PATH "/v1/completions"
#define HEAD "{'id':'/cmpl-[0-9a-f]{32}/','object':'text_completion','created':'#','model':'abacus','usage':{'...':0},"
#define CHOICE "'index':0,'logprobs':null,"
#define STOP "'finish_reason':'stop','stop_reason':"

static stack *s;

static void open_all(void) {
  s = stack_open(NULL, "--max-model-len 8192 --log-requests --served-model-name abacus org/abacus gpt-4",
                 "--model " TRI_SOURCE "/tests/models/abacus");
}

static void close_all(void) { stack_close(s); }

START_TEST(answers) {
  static const exchange list[] = {
      {.path = PATH,
       .body = "{'prompt':'37+48=','temperature':0,'model':'abacus'}",
       .status = 200,
       .json = "{'id':'/cmpl-[0-9a-f]{32}/','object':'text_completion','created':'#','model':'abacus',"
               "'choices':[{'index':0,'text':'85','logprobs':null,'finish_reason':'stop','stop_reason':null}],"
               "'usage':{'prompt_tokens':7,'completion_tokens':3,'total_tokens':10,"
               "'prompt_tokens_details':{'cached_tokens':0}}}"},
      {.path = PATH,
       .body = "{'prompt':['37+48=','1+1='],'temperature':0,'n':2,'seed':-1,'stop':['x'],'top_k':-1}",
       .status = 200,
       .json = "{'...':0,'choices':[{'...':0,'index':0,'text':'85'},{'...':0,'index':1,'text':'85'},"
               "{'...':0,'index':2,'text':'2'},{'...':0,'index':3,'text':'2'}],"
               "'usage':{'prompt_tokens':12,'completion_tokens':10,'total_tokens':22,"
               "'prompt_tokens_details':{'cached_tokens':0}}}"},
      {.path = PATH,
       .body = "{'prompt':'37+48=','temperature':0,'echo':true}",
       .status = 200,
       .json = HEAD "'choices':[{" CHOICE "'text':'37+48=85'," STOP "null}]}"},
      {.path = PATH,
       .body = "{'prompt':'1+1=37+48=','temperature':0,'truncate_prompt_tokens':7}",
       .status = 200,
       .json = "{'...':0,'choices':[{'...':0,'text':'85'}],'usage':{'...':0,'prompt_tokens':7}}"},
      {.path = PATH,
       .body = "{'prompt':'<|begin|>37+48=','temperature':0,'add_special_tokens':false,'truncate':-1}",
       .status = 200,
       .json = "{'...':0,'choices':[{'...':0,'text':'85'}],'usage':{'...':0,'prompt_tokens':7}}"},
      {.path = PATH,
       .body = "{'prompt':'37+48=','allowed_token_ids':[65],'n':2,'max_tokens':2}",
       .status = 200,
       .json = HEAD "'choices':[{" CHOICE "'text':'AA','finish_reason':'length','stop_reason':null},"
                    "{'index':1,'logprobs':null,'text':'AA','finish_reason':'length','stop_reason':null}]}"},
  };
  expect_list(s, list);
}
END_TEST

/* An answer names the stop string that ended it, and contains it if the request asks for that. */
START_TEST(ends) {
  static const exchange list[] = {
      {.path = PATH,
       .body = "{'prompt':'37+48=','temperature':0,'stop':['x','5']}",
       .status = 200,
       .json = HEAD "'choices':[{" CHOICE "'text':'8'," STOP "'5'}]}"},
      {.path = PATH,
       .body = "{'prompt':'37+48=','temperature':0,'stop':'5','include_stop_str_in_output':true}",
       .status = 200,
       .json = HEAD "'choices':[{" CHOICE "'text':'85'," STOP "'5'}]}"},
      {.path = PATH,
       .body = "{'prompt':'37+48=','temperature':0,'stop_token_ids':[53]}",
       .status = 200,
       .json = HEAD "'choices':[{" CHOICE "'text':'8'," STOP "53}]}"},
      {.path = PATH,
       .body = "{'prompt':'37+48=','temperature':0,'stop_token_ids':[53],'include_stop_str_in_output':true}",
       .status = 200,
       .json = HEAD "'choices':[{" CHOICE "'text':'85'," STOP "53}]}"},
      {.path = PATH,
       .body = "{'prompt':'37+48=','temperature':0,'skip_special_tokens':false,'include_stop_str_in_output':true}",
       .status = 200,
       .json = HEAD "'choices':[{" CHOICE "'text':'85<|end|>'," STOP "null}]}"},
      {.path = PATH,
       .body = "{'prompt':'37+48=','temperature':0,'skip_special_tokens':false}",
       .status = 200,
       .json = HEAD "'choices':[{" CHOICE "'text':'85'," STOP "null}]}"},
      {.path = PATH,
       .body = "{'prompt':'37+48=','temperature':0,'return_token_ids':true}",
       .status = 200,
       .json = HEAD "'choices':[{" CHOICE "'text':'85'," STOP "null,'token_ids':[56,53,507],"
                    "'prompt_token_ids':[506,51,55,43,52,56,61]}]}"},
  };
  expect_list(s, list);
}
END_TEST

START_TEST(logprobs) {
  static const exchange list[] = {
      {.path = PATH,
       .body = "{'prompt':'37+48=','temperature':0,'logprobs':2}",
       .status = 200,
       .json = "{'...':0,'choices':[{'index':0,'text':'85'," STOP "null,'logprobs':{"
               "'tokens':['8','5','<|end|>'],'token_logprobs':[-0.25,-0.25,-0.25],"
               "'top_logprobs':[{'8':-0.25,'9':-1.25},{'5':-0.25,'6':-1.25},{'<|end|>':-0.25,'<|pad|>':-1.25}],"
               "'text_offset':[0,1,2]}}]}"},
      {.path = PATH,
       .body = "{'prompt':'37+48=','temperature':0,'echo':true,'logprobs':1,'max_tokens':0}",
       .status = 200,
       .json = "{'...':0,'choices':[{'index':0,'text':'37+48=','finish_reason':'length','stop_reason':null,"
               "'logprobs':{'tokens':['<|begin|>','3','7','+','4','8','='],"
               "'token_logprobs':[null,-0.25,-0.25,-0.25,-0.25,-0.25,-0.25],"
               "'top_logprobs':[null,{'3':-0.25},{'7':-0.25},{'+':-0.25},{'4':-0.25},{'8':-0.25},{'=':-0.25}],"
               "'text_offset':[0,9,10,11,12,13,14]}}],"
               "'usage':{'...':0,'prompt_tokens':7,'completion_tokens':0}}"},
      {.path = PATH,
       .body = "{'prompt':'7=','temperature':0,'prompt_logprobs':1,'max_tokens':1,'n':2}",
       .status = 200,
       .json = "{'...':0,'choices':['*',{'index':1,'text':'7','logprobs':null,'finish_reason':'length',"
               "'stop_reason':null,'prompt_logprobs':[null,"
               "{'55':{'logprob':-0.25,'rank':1,'decoded_token':'7'}},"
               "{'61':{'logprob':-0.25,'rank':1,'decoded_token':'='}}]}]}"},
  };
  expect_list(s, list);
}
END_TEST

/* More prompts than are sent at a time. */
START_TEST(many_prompts) {
  tri_buf body = {0};
  for (int stream = 0; stream < 2; stream++) {
    body.len = 0;
    tri_text_printf(&body, "{'prompt':['1+1='");
    for (int i = 1; i < 300; i++) tri_text_printf(&body, ",'37+48='");
    tri_text_printf(&body, "],'temperature':0,'stop':['5'],'max_tokens':2%s}", stream ? ",'stream':true" : "");
    call *c = ask(s, "POST", PATH, NULL, body.data);
    stack_until(s, c->whole);
    json_t *all = stream ? stream_events(c) : answer_json(c);
    for (int i = 0; i < 300; i++) {
      const char *want = i ? "8" : "2";
      char *text = NULL;
      if (stream) {
        text = stream_text(all, i, "text");
        ck_assert_msg(!strcmp(text, want), "choice %d: %s", i, text);
        tri_free(text);
        continue;
      }
      json_t *one = json_array_get(json_object_get(all, "choices"), (size_t)i);
      ck_assert_int_eq(json_integer_value(json_object_get(one, "index")), i);
      ck_assert_str_eq(json_string_value(json_object_get(one, "text")), want);
    }
    json_decref(all);
    leave(s, c);
  }
  tri_buf_free(&body);
}
END_TEST

/* ---- streams ---- */

/* Returns the events of a request's stream. */
static json_t *stream(const char *body) {
  call *c = ask(s, "POST", PATH, NULL, body);
  stack_until(s, c->whole);
  json_t *events = stream_events(c);
  leave(s, c);
  return events;
}

static void expect_event(json_t *events, size_t i, const char *want) {
  char why[1024];
  ck_assert_msg(!json_differs(json_array_get(events, i), want, why, sizeof why), "event %zu: %s", i, why);
}

START_TEST(streams) {
  static const char one[] = "{'id':'/cmpl-[0-9a-f]{32}/','object':'text_completion','created':'#','model':'abacus',"
                            "'choices':[{'index':0,'text':'*','logprobs':null,'finish_reason':%s}]}";
  char want[512];
  json_t *e = stream("{'prompt':'37+48=','temperature':0,'stream':true,'stream_options':{'include_usage':true}}");
  size_t n = json_array_size(e);
  char *text = stream_text(e, 0, "text");
  ck_assert_str_eq(text, "85");
  ck_assert_uint_ge(n, 2);
  snprintf(want, sizeof want, one, "null");
  for (size_t i = 0; i + 2 < n; i++) expect_event(e, i, want);
  snprintf(want, sizeof want, one, "'stop','stop_reason':null");
  expect_event(e, n - 2, want);
  expect_event(e, n - 1,
               "{'id':'/cmpl-[0-9a-f]{32}/','object':'text_completion','created':'#','model':'abacus','choices':[],"
               "'usage':{'prompt_tokens':7,'completion_tokens':3,'total_tokens':10,"
               "'prompt_tokens_details':{'cached_tokens':0}}}");
  json_decref(e);
  tri_free(text);
}
END_TEST

/* The ids of the answer come piece by piece, those of the prompt once. */
START_TEST(ids_of_a_stream) {
  static const int want[] = {56, 53, 507};
  json_t *e = stream("{'prompt':'37+48=','temperature':0,'return_token_ids':true,'stream':true}"), *one, *id;
  size_t i, k, num = 0, prompts = 0;
  json_array_foreach(e, i, one) {
    json_t *choice = json_array_get(json_object_get(one, "choices"), 0);
    prompts += json_array_size(json_object_get(choice, "prompt_token_ids")) == 7;
    json_array_foreach(json_object_get(choice, "token_ids"), k, id) {
      ck_assert_uint_lt(num, 3);
      ck_assert_int_eq(json_integer_value(id), want[num++]);
    }
  }
  ck_assert_uint_eq(num, 3);
  ck_assert_uint_eq(prompts, 1);
  json_decref(e);
}
END_TEST

/* ---- names, ids and fields ---- */

/* All names of a model are taken, and who gives none is told the first. */
START_TEST(names_of_the_model) {
  static const exchange list[] = {
      {.path = PATH,
       .body = "{'prompt':'1+1=','max_tokens':1,'model':'gpt-4'}",
       .status = 200,
       .json = "{'...':0,'model':'gpt-4'}"},
      {.path = PATH, .body = "{'prompt':'1+1=','max_tokens':1}", .status = 200, .json = "{'...':0,'model':'abacus'}"},
      {.path = PATH,
       .body = "{'prompt':'1+1=','max_tokens':1,'model':'abacsu'}",
       .status = 404,
       .json = "{'error':{'message':'/.*no model .*abacsu.* here, only .*abacus.*/','type':'*','param':'model',"
               "'code':'not_found'}}"},
      {.path = "/v1/models",
       .status = 200,
       .json = "{'object':'list','data':[{'...':0,'id':'abacus','object':'model'},{'...':0,'id':'org/abacus'},"
               "{'...':0,'id':'gpt-4'}]}"},
      {.path = "/v1/models/%61bacus", .status = 200, .json = "{'...':0,'id':'abacus'}"},
      {.path = "/v1/models/org%2Fabacus", .status = 200, .json = "{'...':0,'id':'org/abacus'}"},
      {.path = "/v1/models/other",
       .status = 404,
       .json = "{'error':{'message':'/.*not served here, only .*abacus.*/','type':'*','param':'*',"
               "'code':'not_found'}}"},
      {.method = "HEAD", .path = "/v1/models", .status = 200, .field = "Content-Length: [1-9][0-9]*"},
  };
  expect_list(s, list);
}
END_TEST

#define ID "X-Request-Id: of-mine"
static const char one_token[] = "{'prompt':'1+1=','max_tokens':1}";
static const char too_many[] = "{'prompt':'1+1=','max_tokens':9000}";

/* Answers and errors have the client's id, or else that of the request, or one that is made for them. */
START_TEST(ids_of_requests) {
  char long_id[256] = "X-Request-Id: ";
  memset(long_id + strlen(long_id), 'x', 129);
  strcat(long_id, "\r\n");
  const exchange list[] = {
      {.path = PATH, .body = one_token, .status = 200, .field = "X-Request-Id: cmpl-[0-9a-f]{32}"},
      {.path = PATH, .body = one_token, .status = 200, .field = ID, .fields = ID "\r\n"},
      {.path = PATH,
       .body = "{'prompt':'1+1=','max_tokens':1,'stream':true}",
       .status = 200,
       .field = ID,
       .fields = ID "\r\n"},
      {.path = PATH, .body = one_token, .status = 200, .field = "X-Request-Id: cmpl-[0-9a-f]{32}", .fields = long_id},
      {.path = PATH, .body = too_many, .status = 400, .field = ID, .fields = ID "\r\n"},
      {.path = PATH,
       .body = "{'prompt':'1+1=','model':'abacsu'}",
       .status = 404,
       .field = "X-Request-Id: cmpl-[0-9a-f]{32}"},
      {.path = PATH, .body = "{'prompt':", .status = 400, .field = "X-Request-Id: req-[0-9a-f]{32}"},
      {.path = "/v2", .status = 404, .field = "X-Request-Id: req-[0-9a-f]{32}"},
      {.path = "/v2", .status = 404, .field = ID, .fields = ID "\r\n"},
      {.path = PATH, .body = "{}", .status = 417, .field = ID, .fields = ID "\r\nExpect: x\r\n"},
  };
  expect_list(s, list);
}
END_TEST

/* The log has the ids that answers have. */
START_TEST(ids_in_the_log) {
  char id[64], line[256];
  log_clear();
  call *c = ask(s, "POST", PATH, NULL, too_many);
  stack_until(s, c->whole);
  call_field(c, "X-Request-Id", id, sizeof id);
  leave(s, c);
  snprintf(line, sizeof line, " request: id=%s .* refused=context_length_exceeded field=max_tokens$", id + 5);
  ck_assert_msg(log_has(line), "%s in %s", line, log_text());
  expect(s, .path = PATH, .body = too_many, .status = 400, .fields = ID "\r\n");
  ck_assert(log_has(" request: id=[0-9a-f]{32} external_id=of-mine client=.* refused=context_length_exceeded"));
  expect(s, .path = PATH, .body = one_token, .status = 200, .fields = ID "\r\n");
  ck_assert(log_has(" request: id=[0-9a-f]{32} external_id=of-mine client=.* finish="));
  ck_assert_msg(!log_has("external_id=x"), "%s", log_text());
}
END_TEST

/* Fields that change nothing are named, and those that are nobody's are, too. */
START_TEST(ignored_fields) {
  expect(s, .path = PATH, .body = "{'prompt':'1+1=','max_tokens':1,'zip':1,'user':'me','suffix':null}", .status = 200,
         .field = "X-Trireme-Ignored: zip");
}
END_TEST

/* A body in chunks. */
START_TEST(chunks) {
  static const char request[] = "POST " PATH " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                "Transfer-Encoding: chunked\r\n\r\n"
                                "10\r\n{\"prompt\":\"37+48\r\n17\r\n=\",\"temperature\":0.0}  \r\n0\r\n\r\n";
  call *c = ask_raw(s, request, sizeof request - 1);
  stack_until(s, c->whole);
  ck_assert_int_eq(c->status, 200);
  expect_json(c, "{'...':0,'choices':[{'...':0,'text':'85'}]}");
  leave(s, c);
}
END_TEST

/* ---- refusals ---- */

#define ERROR(code, param)                                                                                             \
  "{'error':{'message':'*','type':'invalid_request_error','param':" param ",'code':'" code "'}}"

/* A refusal has the status that its reason has, streamed or not. */
START_TEST(refusals) {
  static const exchange list[] = {
      {.path = PATH,
       .body = "{'prompt':'x','temperature':'hot'}",
       .status = 400,
       .json = ERROR("invalid_argument", "'temperature'")},
      {.path = PATH,
       .body = "{'prompt':'x','temperature':-1,'stream':true}",
       .status = 400,
       .json = ERROR("out_of_range", "'temperature'")},
      {.path = PATH,
       .body = "{'prompt':'x','max_tokens':100000,'stream':true}",
       .status = 400,
       .json = ERROR("context_length_exceeded", "'max_tokens'")},
      {.path = PATH,
       .body = "{'prompt':'x','model':'gpt'}",
       .status = 404,
       .json = "{'error':{'...':0,'param':'model'}}"},
      {.path = PATH, .body = "{'prompt':'x','suffix':'y'}", .status = 400, .json = ERROR("unsupported", "'suffix'")},
      {.path = PATH,
       .body = "{'prompt':'x','seed':99999999999999999999}",
       .status = 400,
       .json = ERROR("out_of_range", "'seed'")},
      {.path = PATH, .body = "{'prompt':", .status = 400, .json = "{'error':{'...':0,'code':'corrupt'}}"},
      {.path = PATH,
       .body = "[]",
       .status = 400,
       .json = "{'error':{'...':0,'message':'/.*must be a JSON object.*/'}}"},
      {.path = PATH,
       .body = "{'prompt':'37+48=','allowed_token_ids':[]}",
       .status = 400,
       .json = "{'error':{'message':'allowed_token_ids has 0 ids; allowed are 1 to 131072','type':'/[a-z_]*/',"
               "'param':'allowed_token_ids','code':'out_of_range'}}"},
      {.path = PATH,
       .body = "{'prompt':'37+48=','allowed_token_ids':[9999]}",
       .status = 400,
       .json = ERROR("out_of_range", "'allowed_token_ids'")},
      {.path = PATH,
       .body = "{'prompt':'1+1=','prompt_logprobs':1,'num_beams':2}",
       .status = 400,
       .json = ERROR("unsupported", "'prompt_logprobs'")},
      {.path = "/v1/embeddings",
       .body = "{'input':'x'}",
       .status = 400,
       .json = "{'error':{'...':0,'message':'/.*neither embeds nor classifies.*/'}}"},
  };
  expect_list(s, list);
}
END_TEST

/* A replica's refusals and errors reach the client in its own words. */
START_TEST(replica_refuses) {
  replica_refuse(s->r, "no_capacity", "max_tokens", "there are 3 KV blocks");
  expect(s, .path = PATH, .body = one_token, .status = 400,
         .json = "{'error':{'message':'/.*there are 3 KV blocks.*/','type':'invalid_request_error',"
                 "'param':'max_tokens','code':'context_length_exceeded'}}");
}
END_TEST

Suite *suite_completions(void) {
  Suite *suite = suite_create("completions");
  TCase *t = tcase_create("completions");
  tcase_add_unchecked_fixture(t, open_all, close_all);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, answers);
  tcase_add_test(t, ends);
  tcase_add_test(t, logprobs);
  tcase_add_test(t, many_prompts);
  tcase_add_test(t, streams);
  tcase_add_test(t, ids_of_a_stream);
  tcase_add_test(t, names_of_the_model);
  tcase_add_test(t, ids_of_requests);
  tcase_add_test(t, ids_in_the_log);
  tcase_add_test(t, ignored_fields);
  tcase_add_test(t, chunks);
  tcase_add_test(t, refusals);
  tcase_add_test(t, replica_refuses);
  suite_add_tcase(suite, t);
  return suite;
}
