/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of OpenAI's API, of vLLM and of llama.cpp that say what an answer must be. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/openai/answer_format.h"
#include "base/text.h"

Suite *suite_answer_format(void);

typedef struct parsed {
  tri_json_doc *doc;
  oai_ignored ignored;
  oai_completion_request q;
  tri_error err;
  tri_status st;
} parsed;

static void parse(parsed *p, const char *members) {
  char text[1024];
  *p = (parsed){.ignored.allowed = false};
  snprintf(text, sizeof text, "{\"prompt\":\"x\",%s}", members);
  ck_assert_msg(tri_json_parse(text, strlen(text), &p->doc, &p->err) == TRI_OK, "%s", text);
  p->st = oai_completion_parse(tri_json_root(p->doc), &p->q, &p->ignored, &p->err);
  if (p->st == TRI_OK) ck_assert_int_eq(oai_completion_keep(&p->q, &p->err), TRI_OK);
  tri_json_free(p->doc); /* a request outlives it */
}

#define SCHEMA "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{\"minimum\":1.5}}}"

static const struct taken {
  const char *members, *field, *schema; /* field NULL: no constraint; schema NULL: any object */
} taken[] = {
    {"\"response_format\":{\"type\":\"text\"}", NULL, NULL},
    {"\"response_format\":null,\"guided_json\":null,\"structured_outputs\":{},\"json_schema\":false", NULL, NULL},
    {"\"response_format\":{\"type\":\"json_object\"}", "response_format", NULL},
    {"\"response_format\":{\"type\":\"json_object\",\"schema\":" SCHEMA "}", "response_format.schema", SCHEMA},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\",\"strict\":true,"
     "\"description\":\"d\",\"schema\":" SCHEMA "}}",
     "response_format.json_schema.schema", SCHEMA},
    {"\"guided_json\":" SCHEMA ",\"guided_decoding_backend\":\"auto\"", "guided_json", SCHEMA},
    {"\"guided_json\":\"{\\\"type\\\": \\\"null\\\"}\"", "guided_json", "{\"type\": \"null\"}"},
    {"\"guided_json\":{}", "guided_json", "{}"},
    {"\"json_schema\":true", "json_schema", "true"},
    {"\"structured_outputs\":{\"json\":" SCHEMA ",\"regex\":null,\"disable_any_whitespace\":false}",
     "structured_outputs.json", SCHEMA},
    {"\"structured_outputs\":{\"json_object\":true}", "structured_outputs.json_object", NULL},
};

START_TEST(test_taken) {
  const struct taken *t = &taken[_i];
  parsed p;
  parse(&p, t->members);
  const trireme_request *r = &p.q.r;
  ck_assert_msg(p.st == TRI_OK, "%s: %s: %s", t->members, p.err.field, p.err.message);
  ck_assert(!t->field == !p.q.schema_field && (!t->field || !strcmp(t->field, p.q.schema_field)));
  ck_assert_int_eq(r->json_object, t->field && !t->schema);
  ck_assert(!t->schema == !r->json_schema);
  if (t->schema)
    ck_assert(r->json_schema_len == strlen(t->schema) && !memcmp(r->json_schema, t->schema, strlen(t->schema)));
  oai_completion_request_free(&p.q);
}
END_TEST

static const struct refused {
  const char *members, *field;
  tri_status st;
} refused[] = {
    {"\"response_format\":5", "response_format", TRI_INVALID_ARGUMENT},
    {"\"response_format\":{}", "response_format", TRI_INVALID_ARGUMENT},
    {"\"response_format\":{\"type\":\"structural_tag\"}", "response_format", TRI_UNSUPPORTED},
    {"\"response_format\":{\"type\":\"text\",\"zip\":1}", "response_format.zip", TRI_UNSUPPORTED},
    {"\"response_format\":{\"type\":\"json_schema\"}", "response_format.json_schema", TRI_INVALID_ARGUMENT},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\"}}",
     "response_format.json_schema.schema", TRI_INVALID_ARGUMENT},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{},\"zip\":1}}",
     "response_format.json_schema.zip", TRI_UNSUPPORTED},
    {"\"guided_json\":5", "guided_json", TRI_INVALID_ARGUMENT},
    {"\"guided_json\":[]", "guided_json", TRI_INVALID_ARGUMENT},
    {"\"guided_json\":{},\"response_format\":{\"type\":\"json_object\"}", "response_format", TRI_INVALID_ARGUMENT},
    {"\"structured_outputs\":{\"json\":{},\"json_object\":true}", "structured_outputs.json", TRI_INVALID_ARGUMENT},
    {"\"structured_outputs\":{\"regex\":\"a+\"}", "structured_outputs.regex", TRI_UNSUPPORTED},
    {"\"structured_outputs\":{\"json_object\":1}", "structured_outputs.json_object", TRI_INVALID_ARGUMENT},
    {"\"structured_outputs\":\"x\"", "structured_outputs", TRI_INVALID_ARGUMENT},
    {"\"guided_regex\":\"a\"", "guided_regex", TRI_UNSUPPORTED},
    {"\"guided_choice\":[\"a\"]", "guided_choice", TRI_UNSUPPORTED},
    {"\"guided_grammar\":\"a\"", "guided_grammar", TRI_UNSUPPORTED},
    {"\"grammar\":\"root ::= x\"", "grammar", TRI_UNSUPPORTED},
};

START_TEST(test_refused) {
  const struct refused *r = &refused[_i];
  parsed p;
  parse(&p, r->members);
  ck_assert_msg(p.st == r->st && !strcmp(p.err.field, r->field), "%s: %s, %s: %s", r->members, tri_status_code(p.st),
                p.err.field, p.err.message);
  oai_completion_request_free(&p.q);
}
END_TEST

START_TEST(test_too_long) {
  parsed p;
  tri_buf text = {0};
  p = (parsed){.ignored.allowed = false};
  tri_text_printf(&text, "{\"prompt\":\"x\",\"guided_json\":{\"title\":\"");
  for (int i = 0; i < OAI_MAX_SCHEMA; i++) tri_text_add(&text, "a", 1);
  tri_text_add(&text, "\"}}", 3);
  ck_assert_int_eq(tri_json_parse(text.data, text.len, &p.doc, &p.err), TRI_OK);
  ck_assert_int_eq(oai_completion_parse(tri_json_root(p.doc), &p.q, &p.ignored, &p.err), TRI_OUT_OF_RANGE);
  ck_assert_str_eq(p.err.field, "guided_json");
  oai_completion_request_free(&p.q);
  tri_json_free(p.doc);
  tri_buf_free(&text);
}
END_TEST

START_TEST(test_param) {
  parsed p;
  char out[OAI_PARAM_BYTES];
  parse(&p, "\"structured_outputs\":{\"json\":{}}");
  ck_assert_str_eq(oai_answer_format_param(&p.q, "constraint/properties/a/not", out),
                   "structured_outputs.json/properties/a/not");
  ck_assert_str_eq(oai_answer_format_param(&p.q, "constraint", out), "structured_outputs.json");
  ck_assert_str_eq(oai_answer_format_param(&p.q, "max_tokens", out), "max_tokens");
  oai_completion_request_free(&p.q);
}
END_TEST

Suite *suite_answer_format(void) {
  Suite *s = suite_create("answer_format");
  TCase *t = tcase_create("all");
  tcase_add_loop_test(t, test_taken, 0, sizeof taken / sizeof *taken);
  tcase_add_loop_test(t, test_refused, 0, sizeof refused / sizeof *refused);
  tcase_add_test(t, test_too_long);
  tcase_add_test(t, test_param);
  suite_add_tcase(s, t);
  return s;
}
