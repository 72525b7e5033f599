/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that must call a tool: their schema, what stands around it, and the places that errors name. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "client/openai/answer_format.h"
#include "client/openai/tool_choice.h"
#include "base/text.h"

Suite *suite_tool_choice(void);

typedef struct parsed {
  tri_json_doc *doc;
  oai_ignored ignored;
  oai_chat_request q;
  tri_error err;
  tri_status st;
} parsed;

static void parse(parsed *p, const char *members, chat_calls calls) {
  char text[4096];
  const oai_model model = {.calls = calls};
  *p = (parsed){.ignored.allowed = false};
  snprintf(text, sizeof text, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],%s}", members);
  ck_assert_msg(tri_json_parse(text, strlen(text), &p->doc, &p->err) == TRI_OK, "%s", text);
  p->st = oai_chat_parse(tri_json_root(p->doc), &model, NULL, &p->q, &p->ignored, &p->err);
}

static void done(parsed *p) {
  oai_chat_request_free(&p->q);
  tri_json_free(p->doc);
}

#define TOOL(more) "{\"type\":\"function\",\"function\":{" more "}}"
#define ADD                                                                                                            \
  TOOL("\"name\":\"add\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"           \
       "\"required\":[\"a\"]}")
#define NOW TOOL("\"name\":\"now\"")
#define BAD_PARAMETERS "\"parameters\":{\"properties\":{\"a\":{\"not\":{}}}}"
#define TOOLS(list) "\"tools\":[" list "]"
#define REQUIRED ",\"tool_choice\":\"required\""
#define NAMED(name) ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"

#define CALL(name, key, schema)                                                                                        \
  "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"" name "\"},\"" key "\":" schema                         \
  "},\"required\":[\"name\",\"" key "\"],\"additionalProperties\":false}"
#define ADD_CALL(key)                                                                                                  \
  CALL("add", key, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}")
#define NOW_CALL(key) CALL("now", key, "{\"type\":\"object\",\"additionalProperties\":false}")

static const struct taken {
  const char *members, *schema;
  chat_calls calls;
  int64_t most;
} taken[] = {
    {TOOLS(ADD "," NOW) REQUIRED, ADD_CALL("arguments") "," NOW_CALL("arguments"), CHAT_CALLS_HERMES,
     OAI_MAX_FORCED_CALLS},
    {TOOLS(ADD "," NOW) REQUIRED ",\"parallel_tool_calls\":false", ADD_CALL("arguments") "," NOW_CALL("arguments"),
     CHAT_CALLS_HERMES, 1},
    {TOOLS(ADD "," NOW) NAMED("now"), NOW_CALL("arguments"), CHAT_CALLS_HERMES, 1},
    {TOOLS(ADD "," NOW) REQUIRED, ADD_CALL("parameters") "," NOW_CALL("parameters"), CHAT_CALLS_LLAMA,
     OAI_MAX_FORCED_CALLS},
    /* what cannot be kept, of a tool that is not strict */
    {TOOLS(TOOL("\"name\":\"now\",\"strict\":false," BAD_PARAMETERS)) REQUIRED,
     CALL("now", "arguments", "{\"type\":\"object\"}"), CHAT_CALLS_HERMES, OAI_MAX_FORCED_CALLS},
    /* and of one that is not called */
    {TOOLS(ADD "," TOOL("\"name\":\"now\",\"strict\":true," BAD_PARAMETERS)) NAMED("add"), ADD_CALL("arguments"),
     CHAT_CALLS_HERMES, 1},
    /* references keep their meaning; texts that only look like some stay; arguments are an object */
    {TOOLS(NOW "," TOOL(
         "\"name\":\"r\",\"strict\":true,\"parameters\":{\"type\":[\"object\",\"null\"],\"properties\":{\"a\":{\"$"
         "ref\":\"#/$defs/n\"},"
         "\"b\":{\"$ref\":\"#\"},\"$ref\":{\"const\":{\"$ref\":\"#\"}}},\"$defs\":{\"n\":{\"type\":\"null\"}}}"))
         REQUIRED,
     NOW_CALL("arguments") "," CALL(
         "r", "arguments",
         "{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#/anyOf/1/properties/arguments/$defs/n\"},"
         "\"b\":{\"$ref\":\"#/anyOf/1/properties/"
         "arguments\"},\"$ref\":{\"const\":{\"$ref\":\"#\"}}},\"$defs\":{\"n\":{\"type\":\"null\"}}}"),
     CHAT_CALLS_HERMES, OAI_MAX_FORCED_CALLS},
};

START_TEST(test_taken) {
  const struct taken *t = &taken[_i];
  const chat_call_frame *frame = chat_calls_frame(t->calls);
  char schema[2048];
  parsed p;
  parse(&p, t->members, t->calls);
  ck_assert_msg(p.st == TRI_OK, "%s: %s: %s", t->members, p.err.field, p.err.message);
  const trireme_request *r = &p.q.c.r;
  snprintf(schema, sizeof schema, "{\"anyOf\":[%s]}", t->schema);
  ck_assert_str_eq(r->json_schema, schema);
  ck_assert_uint_eq(r->json_schema_len, strlen(schema));
  ck_assert_int_eq(r->json_most, t->most);
  ck_assert(p.q.calls && !strcmp(r->json_begin, frame->begin) && !strcmp(r->json_separator, frame->separator) &&
            !strcmp(r->json_end, frame->end));
  oai_chat_begin_answer(&p.q, &(oai_model){.calls = t->calls}, true);
  ck_assert(!strncmp(r->json_begin, "</think>", 8) && tri_text_ends_with(r->json_begin, frame->begin));
  done(&p);
}
END_TEST

START_TEST(test_not_forced) {
  static const char *const members[] = {TOOLS(ADD), TOOLS(ADD) ",\"tool_choice\":\"none\"",
                                        TOOLS(ADD) ",\"tool_choice\":\"auto\"", TOOLS("")};
  for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
    parsed p;
    parse(&p, members[i], CHAT_CALLS_HERMES);
    ck_assert_int_eq(p.st, TRI_OK);
    oai_chat_begin_answer(&p.q, &(oai_model){.calls = CHAT_CALLS_HERMES}, true);
    ck_assert(!p.q.c.r.json_schema && !p.q.c.r.json_begin && !p.q.c.schema_field);
    done(&p);
  }
}
END_TEST

static const struct refused {
  const char *members, *field, *words;
  chat_calls calls;
  tri_status st;
} refused[] = {
    {TOOLS("") REQUIRED, "tool_choice", "tools", CHAT_CALLS_HERMES, TRI_INVALID_ARGUMENT},
    {"\"user\":\"x\"" NAMED("f"), "tool_choice", "tools", CHAT_CALLS_HERMES, TRI_INVALID_ARGUMENT},
    {TOOLS(ADD "," NOW) NAMED("mul"), "tool_choice", "\"mul\", which tools does not have: add, now", CHAT_CALLS_HERMES,
     TRI_INVALID_ARGUMENT},
    {TOOLS(ADD) REQUIRED, "tool_choice", "needs a parser", CHAT_CALLS_NONE, TRI_UNSUPPORTED},
    {TOOLS(ADD) REQUIRED, "tool_choice", "parser mistral", CHAT_CALLS_MISTRAL, TRI_UNSUPPORTED},
    {TOOLS(ADD) REQUIRED, "tool_choice", "parser qwen3_coder", CHAT_CALLS_TAGS, TRI_UNSUPPORTED},
    {TOOLS(ADD) NAMED("add"), "tool_choice", "parser harmony", CHAT_CALLS_CHANNELS, TRI_UNSUPPORTED},
    {TOOLS(ADD) ",\"tool_choice\":\"any\"", "tool_choice", "must be", CHAT_CALLS_HERMES, TRI_INVALID_ARGUMENT},
    {TOOLS(ADD) ",\"tool_choice\":{\"type\":\"function\"}", "tool_choice", "must be", CHAT_CALLS_HERMES,
     TRI_INVALID_ARGUMENT},
    {TOOLS(ADD) ",\"tool_choice\":{\"type\":\"allowed_tools\"}", "tool_choice", "allowed_tools", CHAT_CALLS_HERMES,
     TRI_UNSUPPORTED},
    {TOOLS(ADD) REQUIRED ",\"response_format\":{\"type\":\"json_object\"}", "tool_choice", "response_format",
     CHAT_CALLS_HERMES, TRI_INVALID_ARGUMENT},
    {TOOLS(ADD "," NOW "," TOOL("\"name\":\"f\",\"strict\":true," BAD_PARAMETERS)) REQUIRED,
     "tools[2].function.parameters/properties/a/not", "not", CHAT_CALLS_HERMES, TRI_UNSUPPORTED},
    {TOOLS(ADD "," TOOL("\"name\":\"f\",\"strict\":true," BAD_PARAMETERS)) NAMED("f"),
     "tools[1].function.parameters/properties/a/not", "not", CHAT_CALLS_HERMES, TRI_UNSUPPORTED},
    {TOOLS(TOOL("\"name\":\"f\",\"strict\":true,\"parameters\":{\"properties\":{\"a\":{\"$ref\":\"#n\"}},\"$defs\":{"
                "\"n\":{\"$anchor\":\"n\"}}}")) REQUIRED,
     "tools[0].function.parameters", "$anchor", CHAT_CALLS_HERMES, TRI_UNSUPPORTED},
    {TOOLS(TOOL("\"name\":\"f\",\"parameters\":{\"type\":\"string\"}")) REQUIRED, "tools[0].function.parameters/type",
     "object", CHAT_CALLS_HERMES, TRI_INVALID_ARGUMENT},
    {TOOLS(TOOL("\"name\":\"f\",\"parameters\":[]")) REQUIRED, "tools[0].function.parameters", "object",
     CHAT_CALLS_HERMES, TRI_INVALID_ARGUMENT},
    {TOOLS(NOW "," TOOL("\"description\":\"x\"")) REQUIRED, "tools[1].function.name", "name", CHAT_CALLS_HERMES,
     TRI_INVALID_ARGUMENT},
    {TOOLS(ADD) ",\"parallel_tool_calls\":false", "parallel_tool_calls", "required", CHAT_CALLS_HERMES,
     TRI_UNSUPPORTED},
};

START_TEST(test_refused) {
  const struct refused *r = &refused[_i];
  parsed p;
  parse(&p, r->members, r->calls);
  ck_assert_msg(p.st == r->st && !strcmp(p.err.field, r->field) && strstr(p.err.message, r->words), "%s: %s, %s: %s",
                r->members, tri_status_code(p.st), p.err.field, p.err.message);
  done(&p);
}
END_TEST

/* A long pointer loses its beginning, and a long name is refused. */
START_TEST(test_long) {
  char members[1024], key[81], name[300];
  parsed p;
  memset(key, 'k', 80), key[80] = '\0';
  snprintf(members, sizeof members,
           TOOLS(TOOL("\"name\":\"f\",\"strict\":true,\"parameters\":{\"properties\":{\"%s\":{\"not\":{}}}}")) REQUIRED,
           key);
  parse(&p, members, CHAT_CALLS_HERMES);
  ck_assert_int_eq(p.st, TRI_UNSUPPORTED);
  ck_assert_msg(!strncmp(p.err.field, "tools[0].function.parameters...", 31) &&
                    tri_text_ends_with(p.err.field, "kkk/not"),
                "%s", p.err.field);
  done(&p);
  for (size_t len = OAI_MAX_FORCED_NAME - 2; len < OAI_MAX_FORCED_NAME; len++) {
    memset(name, 'n', len), name[len] = '\0';
    snprintf(members, sizeof members, TOOLS(TOOL("\"name\":\"%s\"")) REQUIRED, name);
    parse(&p, members, CHAT_CALLS_HERMES);
    ck_assert_int_eq(p.st, len == OAI_MAX_FORCED_NAME - 2 ? TRI_OK : TRI_OUT_OF_RANGE);
    done(&p);
  }
}
END_TEST

/* What a coordinator says of the whole schema. */
START_TEST(test_param) {
  static const struct {
    const char *field, *param;
  } cases[] = {
      {"constraint", "tool_choice"},
      {"constraint/anyOf", "tools"},
      {"constraint/anyOf/1/properties/arguments/properties/a/not", "tools[1].function.parameters/properties/a/not"},
      {"constraint/anyOf/0", "tools[0].function.parameters"},
      {"num_beams", "num_beams"}};
  char out[OAI_PARAM_BYTES];
  parsed p;
  parse(&p, TOOLS(ADD "," NOW) REQUIRED, CHAT_CALLS_HERMES);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    ck_assert_str_eq(oai_answer_format_param(&p.q.c, cases[i].field, out), cases[i].param);
  done(&p);
  parse(&p, TOOLS(ADD "," NOW) NAMED("now"), CHAT_CALLS_HERMES);
  ck_assert_str_eq(oai_answer_format_param(&p.q.c, "constraint/anyOf/0/properties/arguments/x", out),
                   "tools[1].function.parameters/x");
  done(&p);
}
END_TEST

Suite *suite_tool_choice(void) {
  Suite *s = suite_create("tool_choice");
  TCase *t = tcase_create("all");
  tcase_add_loop_test(t, test_taken, 0, sizeof taken / sizeof *taken);
  tcase_add_test(t, test_not_forced);
  tcase_add_loop_test(t, test_refused, 0, sizeof refused / sizeof *refused);
  tcase_add_test(t, test_long);
  tcase_add_test(t, test_param);
  suite_add_tcase(s, t);
  return s;
}
