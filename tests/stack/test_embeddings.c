/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/embeddings, of an encoder whose queue has room for few jobs of a client. */
#include <stdio.h>
#include <string.h>

#include "tests/stack/stack.h"

#define PATH "/v1/embeddings"

static stack *s;

static void open_all(void) { s = stack_open(TRI_TEST_DATA "/checkpoints/bert", "--max-queued-per-client 5", ""); }
static void close_all(void) { stack_close(s); }

START_TEST(answers) {
  static const exchange list[] = {
      {.path = PATH, .body = "{'input':[5]}", .status = 200, .field = "X-Request-Id: embd-[0-9a-f]{32}"},
      {.path = PATH,
       .body = "{'input':[5]}",
       .fields = "X-Request-Id: of-mine\r\n",
       .status = 200,
       .field = "X-Request-Id: of-mine"},
      {.path = PATH,
       .body = "{'input':[[5],[6,7]]}",
       .status = 200,
       .json = "{'object':'list','model':'bert','data':["
               "{'object':'embedding','index':0,'embedding':['#','#','...']},"
               "{'object':'embedding','index':1,'embedding':['#','#',0,'...']}],"
               "'usage':{'prompt_tokens':3,'total_tokens':3}}"},
      {.path = PATH,
       .body = "{'input':[5],'dimensions':12345}",
       .status = 400,
       .json = "{'error':{'...':0,'param':'dimensions'}}"},
      {.path = "/v1/completions",
       .body = "{'prompt':'x'}",
       .status = 400,
       .json = "{'error':{'...':0,'param':null,'code':'unsupported'}}"},
  };
  expect_list(s, list);
}
END_TEST

/* The most inputs that OpenAI's API takes go to the queue in portions that it accepts from one client; one input more
 * is refused at once. */
START_TEST(many_inputs) {
  for (size_t num = 2048; num <= 2049; num++) {
    tri_buf body = {0};
    char why[512];
    tri_text_printf(&body, "{'input':[[5]");
    for (size_t i = 1; i < num; i++) tri_text_printf(&body, ",[6,7]");
    tri_text_printf(&body, "]}");
    call *c = ask(s, "POST", PATH, NULL, body.data);
    stack_until(s, c->whole);
    ck_assert_int_eq(c->status, num == 2048 ? 200 : 400);
    json_t *j = answer_json(c);
    const char *differs =
        num == 2048
            ? json_differs(j, "{'...':0,'usage':{'prompt_tokens':4095,'total_tokens':4095}}", why, sizeof why)
            : json_differs(j, "{'error':{'...':0,'message':'/.*input has 2049 elements; allowed are 1 to 2048.*/'}}",
                           why, sizeof why);
    ck_assert_msg(!differs, "%s", why);
    json_t *data = json_object_get(j, "data"), *one;
    size_t i;
    ck_assert_uint_eq(json_array_size(data), num == 2048 ? 2048 : 0);
    json_array_foreach(data, i, one)
        ck_assert_msg(json_integer_value(json_object_get(one, "index")) == (json_int_t)i, "input %zu", i);
    json_decref(j);
    leave(s, c);
    tri_buf_free(&body);
  }
}
END_TEST

Suite *suite_embeddings(void) {
  Suite *suite = suite_create("embeddings");
  TCase *t = tcase_create("embeddings");
  tcase_add_unchecked_fixture(t, open_all, close_all);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, answers);
  tcase_add_test(t, many_inputs);
  suite_add_tcase(suite, t);
  return suite;
}
