/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/completions: the forms of its answers. */
#include "tests/stack/stack.h"

static stack *s;

static void open_all(void) {
  s = stack_open(NULL, "--max-model-len 8192", "--model " TRI_SOURCE "/tests/models/abacus");
}
static void close_all(void) { stack_close(s); }

START_TEST(answers) {
  expect(s, .path = "/v1/completions", .body = "{'prompt':'37+48=','temperature':0,'model':'abacus'}", .status = 200,
         .json = "{'id':'/cmpl-[0-9a-f]{32}/','object':'text_completion','created':'#','model':'abacus',"
                 "'choices':[{'index':0,'text':'85','logprobs':null,'finish_reason':'stop','stop_reason':null}],"
                 "'usage':{'prompt_tokens':7,'completion_tokens':3,'total_tokens':10,"
                 "'prompt_tokens_details':{'cached_tokens':0}}}");
}
END_TEST

Suite *suite_completions(void) {
  Suite *suite = suite_create("completions");
  TCase *t = tcase_create("answers");
  tcase_add_unchecked_fixture(t, open_all, close_all);
  tcase_set_timeout(t, 120);
  tcase_add_test(t, answers);
  suite_add_tcase(suite, t);
  return suite;
}
