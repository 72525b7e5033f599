/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of libtrireme: what the fields of a line change, which of them are refused, one request id twice, the
 * response cache, and what the status and the log tell of them. */
#include <stdio.h>
#include <unistd.h>

#include "client/cli/status_text.h"
#include "tests/stack/lines.h"

#define ACCEPTED(tokens) "{'...':0,'event':'accepted','prompt_tokens':" tokens ",'existing':false,'cached':false}"
#define DONE(text, reason)                                                                                             \
  "{'...':0,'event':'done','choices':[{'...':0,'text':'" text "','finish_reason':'" reason "'}]}"
#define MADE(num) "{'...':0,'event':'done','completion_tokens':" num "}"
#define REFUSED(code, field, message)                                                                                  \
  "[{'event':'error','code':'" code "','field':'" field "','message':'/.*" message ".*/'}]"
#define WHOLE "'temperature':0,'stream':false"

static stack *s;
static trireme *c;

static void open_all(void) {
  s = stack_open(NULL, "--max-model-len 256 --max-num-seqs 16 --response-cache 1M --log-requests", NULL);
  c = lines_open(s);
}

static void close_all(void) {
  trireme_close(c);
  stack_close(s);
}

/* ---- answers ---- */

START_TEST(answers) {
  static const line_case list[] = {
      {"{'prompt':'37+48='," WHOLE "}",
       "[{'event':'accepted','request_id':'/[0-9a-f]{32}/','prompt_tokens':7,'existing':false,'cached':false},"
       "{'event':'done','choices':[{'index':0,'finish_reason':'stop','text':'85','completion_tokens':3}],"
       "'prompt_tokens':7,'completion_tokens':3,'queue_ms':'#','first_token_ms':'#','total_ms':'#','preemptions':0,"
       "'cached_tokens':0,'seed':'#'}]"},
      {"{'prompt':'1+1='," WHOLE ",'echo':true}", "['*'," DONE("1+1=2", "stop") "]"},
      {"{'token_ids':[506,49,43,49,61]," WHOLE ",'echo':true}", "['*'," DONE("1+1=2", "stop") "]"},
  };
  static const line_case counted[] = {
      {"{'prompt':'count 7 to 19='," WHOLE ",'stop':[' 12'],'max_tokens':60}", "['*'," DONE("7 8 9 10 11", "stop") "]"},
  };
  expect_lines(s, c, LINE_SUBMIT, list);
  replica_say(s->r, "7 8 9 10 11 12 13");
  expect_lines(s, c, LINE_SUBMIT, counted);
  replica_say(s->r, NULL);
}
END_TEST

/* A prompt that has its special tokens gets none on top, and of one that is too long the end counts, behind the begin
 * token. */
START_TEST(prompts) {
  static const line_case list[] = {
      {"{'prompt':'1+1='," WHOLE "}", "[" ACCEPTED("5") "," DONE("2", "stop") "]"},
      {"{'prompt':'<|begin|>1+1='," WHOLE "}", "[" ACCEPTED("6") ",'*']"},
      {"{'prompt':'<|begin|>1+1='," WHOLE ",'add_special_tokens':false,'cache':false}",
       "[" ACCEPTED("5") "," DONE("2", "stop") "]"},
      {"{'prompt':'9+9=1+1='," WHOLE ",'truncate':5,'cache':false}", "[" ACCEPTED("5") "," DONE("2", "stop") "]"},
      {"{'prompt':'9+9=1+1='," WHOLE ",'truncate':4,'add_special_tokens':false}", "[" ACCEPTED("4") ",'*']"},
      {"{'prompt':'1+1='," WHOLE ",'truncate':9,'cache':false}", "[" ACCEPTED("5") ",'*']"},
      {"{'prompt':'','add_special_tokens':false}", REFUSED("invalid_argument", "prompt", "the prompt has no tokens")},
  };
  char line[1024], text[401] = "";
  expect_lines(s, c, LINE_SUBMIT, list);
  for (int i = 0; i < 100; i++) strcat(text, "9+9=");
  snprintf(line, sizeof line, "{'prompt':'%s','max_tokens':8}", text);
  line_expect(s, c, LINE_SUBMIT, &(line_case){line, REFUSED("/.*/", "prompt", "the prompt has more than 256 tokens")},
              1);
  snprintf(line, sizeof line, "{'prompt':'%s','max_tokens':8," WHOLE ",'truncate':-1}", text);
  line_expect(s, c, LINE_SUBMIT, &(line_case){line, "[" ACCEPTED("248") ",'*']"}, 1);
}
END_TEST

/* A request that fits is generated to its last token; a default that does not fit is cut. */
START_TEST(lengths) {
  static const line_case list[] = {
      {"{'token_ids':[506,49],'ignore_eos':true," WHOLE ",'max_tokens':254}", "['*'," MADE("254") "]"},
      {"{'token_ids':[506,49],'ignore_eos':true," WHOLE ",'max_tokens':-1}", "['*'," MADE("254") "]"},
      {"{'token_ids':[506,49],'ignore_eos':true," WHOLE "}", "['*'," MADE("16") "]"},
      {"{'token_ids':[506,49],'max_tokens':255}",
       REFUSED("/.*/", "max_tokens", "max_tokens is 255, and the prompt has 2 tokens; .* max_model_len 256")},
  };
  char line[1400], ids[1200] = "506";
  expect_lines(s, c, LINE_SUBMIT, list);
  for (int i = 0; i < 249; i++) strcat(ids, ",49");
  snprintf(line, sizeof line, "{'token_ids':[%s],'ignore_eos':true," WHOLE "}", ids);
  line_expect(s, c, LINE_SUBMIT, &(line_case){line, "['*'," MADE("6") "]"}, 1);
  snprintf(line, sizeof line, "{'token_ids':[%s],'max_tokens':16}", ids);
  line_expect(s, c, LINE_SUBMIT, &(line_case){line, REFUSED("/.*/", "max_tokens", "max_tokens is 16,")}, 1);
}
END_TEST

START_TEST(refusals) {
  static const line_case list[] = {
      {"{'prompt':'x','n':17}", REFUSED("out_of_range", "n", "n is 17, the limit is max_num_seqs 16")},
      {"{'prompt':'x','model':'other'}", REFUSED("not_found", "model", "other")},
      {"{'token_ids':[5,509]}", REFUSED("out_of_range", "token_ids", "is 509")},
      {"{'prompt':'x','logit_bias':{'600':1}}", REFUSED("out_of_range", "logit_bias", "names token 600")},
      {"{'prompt':'x','stop_token_ids':[5,600]}",
       REFUSED("out_of_range", "stop_token_ids", "stop_token_ids names token 600, the vocabulary has")},
      {"{'prompt':'x','allowed_token_ids':[49,509]}",
       REFUSED("out_of_range", "allowed_token_ids", "allowed_token_ids names token 509, the vocabulary has")},
      {"{'prompt':'x','allowed_token_ids':[507],'min_tokens':1}",
       REFUSED("invalid_argument", "allowed_token_ids", "allowed_token_ids may come.* min_tokens is 1")},
      {"{'prompt':'x','allowed_token_ids':[49],'num_beams':2}", REFUSED("/.*/", "allowed_token_ids", "")},
  };
  char line[200];
  expect_lines(s, c, LINE_SUBMIT, list);
  snprintf(line, sizeof line, "{'prompt':'x','cache_salt':'%0129d'}", 0);
  line_expect(s, c, LINE_SUBMIT,
              &(line_case){line, REFUSED("/.*/", "cache_salt", "cache_salt has 129 bytes; at most 128")}, 1);
}
END_TEST

/* Each token has its text, the bytes of that and its alternatives, and the texts are the answer's. */
START_TEST(logprobs) {
  static const line_case list[] = {
      {"{'prompt':'3+4=','temperature':0,'logprobs':2,'max_tokens':1}",
       "['*',{'event':'tokens','choices':[{'index':0,'offset':0,'text':'7','token_ids':[55],'logprobs':["
       "{'id':55,'logprob':-0.25,'token':'7','bytes':[55],'top':["
       "{'id':55,'logprob':-0.25,'token':'7','bytes':[55]},{'id':56,'logprob':-1.25,'token':'8','bytes':[56]}]}]}]},"
       "'*']"},
  };
  expect_lines(s, c, LINE_SUBMIT, list);
}
END_TEST

/* ---- one request id ---- */

#define ID "'request_id':'100102030405060708090a0b0c0d0e0f'"
START_TEST(same_id) {
  static const line_case list[] = {
      {"{'prompt':'37+48=','temperature':1," ID ",'stream':false}", "[" ACCEPTED("7") "," DONE("85", "stop") "]"},
      {"{'prompt':'37+48=',"
       "'temperature':1," ID ",'stream':false}",
       "[{'event':'accepted','request_id':'100102030405060708090a0b0c0d0e0f','prompt_tokens':7,'existing':true,"
       "'cached':false}," DONE("85", "stop") "]"},
      {"{'prompt':'37+49=','temperature':1," ID ",'stream':false}",
       REFUSED("/.*/", "request_id", "request_id is there already, and its prompt is another")},
      {"{'prompt':'37+48=','temperature':0.5," ID ",'stream':false}",
       REFUSED("/.*/", "request_id",
               "request_id is there already, and its sampling, or another field than the prompt, is another")},
  };
  expect_lines(s, c, LINE_SUBMIT, list);
}
END_TEST

/* ---- ends ---- */

/* A job past its deadline, and one that another connection has cancelled: the first one alone has timed out. */
START_TEST(ends) {
  char why[512];
  trireme *other = lines_open(s);
  replica_hold(s->r, true);
  uint64_t late = line_send(c, LINE_SUBMIT, "{'prompt':'x','deadline_ms':2000," WHOLE "}");
  stack_until(s, replica_jobs(s->r) == 1);
  stack_pass(s, 1500);
  ck_assert_int_eq(replica_jobs(s->r), 1);
  stack_pass(s, 1000);
  stack_until(s, !replica_jobs(s->r));
  json_t *events = line_events(s, c, late);
  ck_assert_msg(!json_differs(events,
                              "['*',{'...':0,'event':'done','choices':[{'...':0,'finish_reason':'abort'}],"
                              "'timed_out':true}]",
                              why, sizeof why),
                "%s", why);
  json_decref(events);
  uint64_t cancelled = line_send(c, LINE_SUBMIT, "{'prompt':'x'," ID ",'n':16," WHOLE "}");
  stack_until(s, replica_jobs(s->r) == 1);
  ck_assert(!trireme_cancel(other, 0, "100102030405060708090a0b0c0d0e0f", NULL, NULL));
  stack_until(s, !replica_jobs(s->r));
  events = line_events(s, c, cancelled);
  ck_assert_uint_eq(json_array_size(events), 2);
  json_t *done = json_array_get(events, 1), *choices = json_object_get(done, "choices"), *one;
  size_t i;
  ck_assert_uint_eq(json_array_size(choices), 16);
  json_array_foreach(choices, i, one)
      ck_assert_str_eq(json_string_value(json_object_get(one, "finish_reason")), "abort");
  ck_assert_ptr_null(json_object_get(done, "timed_out"));
  json_decref(events);
  replica_hold(s->r, false);
  trireme_close(other);
}
END_TEST

/* ---- the response cache ---- */

#define SORT "'prompt':'40+2=','temperature':0,'max_tokens':20,'logprobs':2"

/* The status of now; *e is valid until the next event. */
static const trireme_status *status(trireme_event *e) {
  ck_assert(!trireme_ask_status(c, NULL, NULL));
  line_next(s, c, e);
  ck_assert_int_eq(e->kind, TRIREME_EVENT_STATUS);
  return &e->status;
}

/* The same answer in one piece, unless it is told apart. */
START_TEST(response_cache) {
  static const line_case fresh[] = {
      {"{" SORT ",'cache_salt':'mine'}", "[" ACCEPTED("6") ",'...']"},
      {"{" SORT ",'cache':false}", "[" ACCEPTED("6") ",'...']"},
      {"{" SORT ",'cache_salt':'yours'}", "[" ACCEPTED("6") ",'...']"},
  };
  static const line_case kept[] = {
      {"{" SORT "}", "[{'...':0,'event':'accepted','cached':true},{'...':0,'event':'tokens'},"
                     "{'...':0,'event':'done'}]"},
      {"{" SORT ",'cache_salt':'mine'}", "[{'...':0,'event':'accepted','cached':true},'*','*']"},
  };
  trireme_event e;
  char text[CLI_STREAM_TEXT];
  json_t *first = line_events(s, c, line_send(c, LINE_SUBMIT, "{" SORT "}"));
  json_t *done = json_array_get(first, json_array_size(first) - 1);
  char *want = stream_text(first, 0, "text");
  ck_assert_str_eq(want, "42");
  ck_assert(json_is_false(json_object_get(json_array_get(first, 0), "cached")));
  expect_lines(s, c, LINE_SUBMIT, fresh);
  ck_assert_uint_eq(status(&e)->response_cache_hits, 0);
  json_t *again = line_events(s, c, line_send(c, LINE_SUBMIT, "{" SORT "}"));
  char *have = stream_text(again, 0, "text");
  ck_assert_str_eq(have, want);
  ck_assert(json_equal(json_object_get(json_array_get(again, 2), "choices"), json_object_get(done, "choices")));
  ck_assert(json_equal(json_object_get(json_array_get(again, 2), "seed"), json_object_get(done, "seed")));
  expect_lines(s, c, LINE_SUBMIT, kept);
  const trireme_status *now = status(&e);
  ck_assert_uint_eq(now->response_cache_hits, 3);
  ck_assert_uint_eq(now->response_cache_evictions, 0);
  ck_assert_uint_eq(now->response_cache_limit, 1 << 20);
  ck_assert_ptr_nonnull(strstr(cli_cache_text(now, text), "response cache: 3 hits, "));
  json_decref(first);
  json_decref(again);
  tri_free(want);
  tri_free(have);
}
END_TEST

/* ---- the status and the log ---- */

/* A line for each end: what was asked too much of is not counted as failed, and no line has a text of a request. */
START_TEST(in_the_log) {
  static const line_case list[] = {
      {"{'prompt':'37+48='," WHOLE "}", "['*'," DONE("85", "stop") "]"},
      {"{'prompt':'1+1=','max_tokens':100000}", REFUSED("/.*/", "max_tokens", "")},
      {"{'prompt':'1+1=','model':'abacsu'}", REFUSED("not_found", "model", "")},
  };
  char want[300];
  trireme_event e;
  log_clear();
  expect_lines(s, c, LINE_SUBMIT, list);
  snprintf(want, sizeof want,
           "^INFO request: id=[0-9a-f]{32} client=uid:%d prompt_tokens=7 generation_tokens=3 "
           "cached_tokens=0 queue_ms=[0-9.]+ first_token_ms=[0-9.]+ total_ms=[0-9.]+ finish=stop$",
           (int)getuid());
  ck_assert_msg(log_has(want), "%s", log_text());
  snprintf(
      want, sizeof want,
      "^INFO request: id=[0-9a-f]{32} client=uid:%d prompt_tokens=5 generation_tokens=0 cached_tokens=0 queue_ms=- "
      "first_token_ms=- total_ms=[0-9.]+ refused=context_length_exceeded field=max_tokens$",
      (int)getuid());
  ck_assert_msg(log_has(want), "%s", log_text());
  snprintf(want, sizeof want, "^INFO request: id=[0-9a-f]{32} client=uid:%d refused=not_found field=model$",
           (int)getuid());
  ck_assert_msg(log_has(want), "%s", log_text());
  ck_assert(!log_has("37[+]48") && !log_has("1[+]1"));
  const trireme_status *now = status(&e);
  ck_assert_uint_eq(now->requests_done, 1);
  ck_assert_uint_eq(now->requests_failed, 0);
  ck_assert_uint_eq(now->requests_invalid, 2);
  ck_assert_uint_eq(now->requests_refused, 0);
  ck_assert_uint_eq(now->requests_aborted, 0);
}
END_TEST

/* A rate is of the last ten seconds, which also have a line in the log if there was work. */
START_TEST(rates) {
  static const line_case list[] = {
      {"{'prompt':'1+1='," WHOLE ",'ignore_eos':true,'max_tokens':100}", "['*'," MADE("100") "]"},
  };
  trireme_event e;
  stack_pass(s, 20000);
  ck_assert(status(&e)->tokens_per_second == 0);
  log_clear();
  expect_lines(s, c, LINE_SUBMIT, list);
  stack_pass(s, 3000);
  ck_assert(status(&e)->tokens_per_second > 0);
  stack_pass(s, 9000);
  ck_assert_msg(log_has("^INFO throughput: prompt 0[.]5 tokens/s, generated 10[.]0 tokens/s, 0 running, 0 "
                        "waiting, KV 0[.]0%"),
                "%s", log_text());
  stack_pass(s, 10000);
  ck_assert(status(&e)->tokens_per_second == 0);
  log_clear();
  stack_pass(s, 20000);
  ck_assert_msg(!log_has("throughput: "), "%s", log_text());
}
END_TEST

/* ---- a model without a tokenizer ---- */

static void open_ids(void) {
  s = stack_open(TRI_TEST_DATA "/checkpoints/llama", "", NULL);
  c = lines_open(s);
}

/* Its answers are token ids, and an echo is, too. */
START_TEST(ids_alone) {
  static const line_case list[] = {
      {"{'token_ids':[1,2,3],'allowed_token_ids':[7],'ignore_eos':true,'max_tokens':3,'temperature':0,'stream':false}",
       "[{'...':0,'event':'accepted','prompt_tokens':3},{'event':'tokens','choices':["
       "{'index':0,'offset':0,'text':'','token_ids':[7,7,7]}]}," MADE("3") "]"},
      {"{'prompt':'x'}", REFUSED("unsupported", "prompt", "tokenizer")},
  };
  expect_lines(s, c, LINE_SUBMIT, list);
}
END_TEST

static TCase *add_case(Suite *suite, const char *name, void (*open)(void)) {
  TCase *t = tcase_create(name);
  tcase_add_checked_fixture(t, open, close_all);
  tcase_set_timeout(t, 120);
  suite_add_tcase(suite, t);
  return t;
}

Suite *suite_requests(void) {
  Suite *suite = suite_create("requests");
  TCase *t = add_case(suite, "requests", open_all);
  tcase_add_test(t, answers);
  tcase_add_test(t, prompts);
  tcase_add_test(t, lengths);
  tcase_add_test(t, refusals);
  tcase_add_test(t, logprobs);
  tcase_add_test(t, same_id);
  tcase_add_test(t, ends);
  tcase_add_test(t, response_cache);
  tcase_add_test(t, in_the_log);
  tcase_add_test(t, rates);
  tcase_add_test(add_case(suite, "ids", open_ids), ids_alone);
  return suite;
}
