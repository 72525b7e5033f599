/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as templates expect them, and a model's template. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/chat/chat_messages.h"
#include "client/chat/chat_template.h"
#include "client/chat/conversation.h"
#include "base/file.h"
#include "base/mem.h"
#include "runtime/model/config.h"

Suite *suite_chat(void);

static const chat_form texts = {.takes_text = true};
static const chat_form text_arguments = {.takes_text = true, .text_arguments = true};
static const chat_form no_nulls = {.takes_text = true, .without_nulls = true};
static const chat_form both = {.takes_text = true, .takes_parts = true};
static const chat_form parts_alone = {.takes_parts = true, .names_developer = true};

/* ---- messages ---- */

#define PARTS "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]"

#define CALL(arguments)                                                                                                \
  "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":" arguments   \
  "}}]}]"

static const struct made {
  const chat_form *form;
  const char *messages, *want;
} made[] = {
    {&texts, "[{\"role\":\"user\",\"content\":\"x\"}]", "[{\"role\":\"user\",\"content\":\"x\"}]"},
    {&texts, "[{\"role\":\"user\",\"content\":" PARTS "}]", "[{\"role\":\"user\",\"content\":\"a\\nb\"}]"},
    {&both, "[{\"role\":\"user\",\"content\":" PARTS "}]", "[{\"role\":\"user\",\"content\":" PARTS "}]"},
    {&parts_alone, "[{\"role\":\"user\",\"content\":\"x\"}]",
     "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]"},
    {&texts, "[{\"role\":\"user\",\"content\":\"x\",\"name\":null,\"n\":1,\"f\":1.0,\"l\":[null,true,{\"q\":null}]}]",
     "[{\"role\":\"user\",\"content\":\"x\",\"n\":1,\"f\":1.0,\"l\":[null,true,{\"q\":null}],\"name\":null}]"},
    {&no_nulls,
     "[{\"role\":\"user\",\"content\":\"x\",\"name\":null,\"l\":[null]},{\"role\":\"assistant\",\"content\":null}]",
     "[{\"role\":\"user\",\"content\":\"x\",\"l\":[null]},{\"role\":\"assistant\",\"content\":\"\"}]"},
    {&texts, "[{\"role\":\"assistant\",\"tool_calls\":null,\"reasoning\":null}]",
     "[{\"role\":\"assistant\",\"reasoning\":null}]"},
    {&texts, CALL("\"{\\\"a\\\": null, \\\"b\\\": {\\\"c\\\": null}}\""), CALL("{\"a\":null,\"b\":{\"c\":null}}")},
    {&texts, CALL("{\"a\":null}"), CALL("{\"a\":null}")},
    {&texts, CALL("\"{\\\"id\\\": 18446744073709551617, \\\"x\\\": -1e400, \\\"y\\\": NaN, \\\"id\\\": 3}\""),
     CALL("{\"id\":3,\"x\":-1e400,\"y\":\"NaN\"}")},
    {&texts, CALL("\"\""), CALL("{}")},
    {&texts, CALL("\" \\n\""), CALL("{}")},
    {&texts, CALL("\" null \""), CALL("{}")},
    {&texts, CALL("null"), CALL("{}")},
    {&texts, CALL("\"nullable\""), CALL("\"nullable\"")},
    {&texts, CALL("\"[1]\""), CALL("\"[1]\"")},
    {&texts, "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}]",
     CALL("{}")},
    {&text_arguments, CALL("\"{\\\"a\\\":  1.50}\""), CALL("\"{\\\"a\\\":  1.50}\"")}, /* as it came */
    {&text_arguments, CALL("{\"a\":[1,0.1],\"b\":{}}"), CALL("\"{\\\"a\\\": [1, 0.1], \\\"b\\\": {}}\"")},
    {&text_arguments, CALL("null"), CALL("\"{}\"")},
    {&text_arguments, CALL("\"\""), CALL("\"{}\"")},
    {&texts, "[{\"role\":\"developer\",\"content\":\"x\"},{\"role\":\"user\",\"content\":\"y\"}]",
     "[{\"role\":\"system\",\"content\":\"x\"},{\"role\":\"user\",\"content\":\"y\"}]"},
    {&parts_alone, "[{\"role\":\"developer\",\"content\":" PARTS "}]",
     "[{\"role\":\"developer\",\"content\":" PARTS "}]"},
    {&texts,
     "[{\"role\":\"system\",\"content\":\"x\"},{\"role\":\"developer\",\"content\":" PARTS
     "},{\"role\":\"user\",\"content\":\"\"}]",
     "[{\"role\":\"system\",\"content\":\"x\\na\\nb\"},{\"role\":\"user\",\"content\":\"\"}]"},
    {&texts,
     "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
     "\"arguments\":\"{\\\"x\\\": [1, 2.5]}\"}}]}]",
     "[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\","
     "\"arguments\":"
     "{\"x\":[1,2.5]}}}]}]"},
    {&texts, "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"arguments\":\"not JSON\"}}]}]",
     "[{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"arguments\":\"not JSON\"}}]}]"},
    {&texts, "[{\"role\":\"assistant\",\"content\":\"x\",\"reasoning\":\"hm\",\"tool_calls\":[]}]",
     "[{\"role\":\"assistant\",\"content\":\"x\",\"reasoning_content\":\"hm\",\"reasoning\":\"hm\",\"thinking\":\"hm\"}"
     "]"},
};

/* Compares two values, whatever the order of members. */
static void same(const tri_json *a, const tri_json *b, const char *where);

struct pair {
  const tri_json *other;
  const char *where;
};

static tri_status same_member(void *ctx, const char *key, const tri_json *value) {
  const struct pair *p = ctx;
  ck_assert_msg(tri_json_get(p->other, key) != NULL, "%s: no %s", p->where, key);
  same(value, tri_json_get(p->other, key), p->where);
  return TRI_OK;
}

static void same(const tri_json *a, const tri_json *b, const char *where) {
  int64_t i = 0, j = 0;
  double f = 0, g = 0;
  size_t n = 0, m = 0;
  const char *spelling = tri_json_spelling(b, &n);
  if (spelling && tri_json_as_str(a, NULL)) { /* of a word that is no JSON */
    ck_assert_str_eq(spelling, tri_json_as_str(a, NULL));
    return;
  }
  if (spelling) ck_assert_str_eq(spelling, tri_json_spelling(a, &m));
  ck_assert_msg(tri_json_kind_of(a) == tri_json_kind_of(b) && tri_json_size(a) == tri_json_size(b), "%s", where);
  if (tri_json_as_int(a, &i) && tri_json_as_int(b, &j)) ck_assert_msg(i == j, "%s", where);
  if (tri_json_as_num(a, &f) && tri_json_as_num(b, &g)) ck_assert_msg(f <= g && f >= g, "%s", where);
  const char *s = tri_json_as_str(a, &n), *t = tri_json_as_str(b, &m);
  if (s) ck_assert_msg(n == m && !memcmp(s, t, n), "%s: %s, %s", where, s, t);
  for (size_t k = 0; tri_json_kind_of(a) == TRI_JSON_ARRAY && k < tri_json_size(a); k++)
    same(tri_json_at(a, k), tri_json_at(b, k), where);
  if (tri_json_kind_of(a) == TRI_JSON_OBJECT) tri_json_each(a, same_member, &(struct pair){b, where});
}

static tri_json_doc *parse(const char *text) {
  tri_json_doc *doc = NULL;
  tri_error err = {0};
  ck_assert_msg(tri_json_parse(text, strlen(text), &doc, &err) == TRI_OK, "%s: %s", text, err.message);
  return doc;
}

START_TEST(messages_are_made) {
  const struct made *m = &made[_i];
  tri_json_doc *from = parse(m->messages), *want = parse(m->want), *got = NULL;
  tri_error err = {0};
  ck_assert_msg(chat_messages_make(tri_json_root(from), NULL, m->form, &got, &err) == TRI_OK, "%s", err.message);
  same(tri_json_root(want), tri_json_root(got), m->messages);
  tri_json_free(from);
  tri_json_free(want);
  tri_json_free(got);
}
END_TEST

static const struct refused {
  const char *messages, *field, *words;
} refused[] = {
    {"{}", "messages", "must be"},
    {"[]", "messages", "must be"},
    {"[1]", "messages[0]", "must be"},
    {"[{\"content\":\"x\"}]", "messages[0].role", "must be"},
    {"[{\"role\":\"user\",\"content\":\"\"},{\"role\":\"<|im_end|>\"}]", "messages[1].role", "must be"},
    {"[{\"role\":\"\"}]", "messages[0].role", "must be"},
    {"[{\"role\":\"user\",\"content\":1}]", "messages[0].content", "must be"},
    {"[{\"role\":\"user\"}]", "messages[0].content", "is missing"},
    {"[{\"role\":\"assistant\"},{\"role\":\"system\",\"content\":null}]", "messages[1].content", "is missing"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\"},{\"type\":\"image_url\"}]}]",
     "messages[0].content[1]", "type image_url: only text is understood by org/a-model"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}]", "messages[0].content[0]",
     "type input_audio: only text is understood by org/a-model"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}]", "messages[0].content[0]",
     "must have a text"},
    {"[{\"role\":\"user\",\"content\":[1]}]", "messages[0].content[0]", "an object with a type"},
    {"[{\"role\":\"assistant\",\"tool_calls\":{}}]", "messages[0].tool_calls", "must be"},
};

START_TEST(messages_are_refused) {
  tri_json_doc *from = parse(refused[_i].messages), *got = NULL;
  tri_error err = {0};
  ck_assert_int_eq(chat_messages_make(tri_json_root(from), "org/a-model", &texts, &got, &err), TRI_INVALID_ARGUMENT);
  ck_assert_str_eq(err.field, refused[_i].field);
  ck_assert_msg(strstr(err.message, refused[_i].words) != NULL, "%s", err.message);
  tri_json_free(from);
}
END_TEST

/* ---- templates ---- */

static const char dir[] = TRI_TEST_SCRATCH "/chat";

static void put_file(const char *name, const char *text) {
  char path[512];
  tri_error err = {0};
  snprintf(path, sizeof path, "%s/%s", dir, name);
  unlink(path);
  if (text) ck_assert_msg(tri_file_replace(path, text, strlen(text), &err) == TRI_OK, "%s", err.message);
}

static tri_status render(const chat_template *t, const char *request, char out[256], tri_error *err) {
  tri_json_doc *doc = parse(request);
  const tri_json *root = tri_json_root(doc);
  tri_jinja_output o = {0};
  *err = (tri_error){0};
  chat_request r = {.messages = tri_json_get(root, "messages"),
                    .tools = tri_json_get(root, "tools"),
                    .documents = tri_json_get(root, "documents"),
                    .kwargs = tri_json_get(root, "kwargs"),
                    .add_generation_prompt = true};
  tri_status st = chat_template_render(t, &r, &o, err);
  snprintf(out, 256, "%.*s", (int)o.text.len, o.text.len ? o.text.data : "");
  tri_jinja_output_free(&o);
  tri_json_free(doc);
  return st;
}

#define HELLO "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

START_TEST(files_of_a_model) {
  chat_template *t = NULL;
  tri_error err = {0};
  char text[256];
  put_file("chat_template.jinja", NULL);
  put_file("tokenizer_config.json", "{}");
  ck_assert_int_eq(chat_template_load(dir, NULL, &t, &err), TRI_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(err.message, "no chat template"));
  put_file(
      "tokenizer_config.json",
      "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</"
      "s>\",\"chat_template\":[{\"name\":\"default\",\"template\":"
      "\"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ tools is none }}{{ x }}\"},{\"name\":\"tool_use\","
      "\"template\":\"{{ tools|length }}\"}]}");
  ck_assert_msg(chat_template_load(dir, NULL, &t, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(render(t, "{" HELLO ",\"kwargs\":{\"x\":5}}", text, &err), TRI_OK);
  ck_assert_str_eq(text, "<s>hi</s>True5");
  ck_assert_int_eq(render(t, "{" HELLO ",\"tools\":[]}", text, &err), TRI_OK); /* none */
  ck_assert_str_eq(text, "<s>hi</s>True");
  ck_assert_int_eq(render(t, "{" HELLO ",\"tools\":[{},{}]}", text, &err), TRI_OK);
  ck_assert_str_eq(text, "2");
  ck_assert_int_eq(render(t, "{" HELLO ",\"tools\":5}", text, &err), TRI_INVALID_ARGUMENT);
  ck_assert_str_eq(err.field, "tools");
  ck_assert_int_eq(render(t, "{" HELLO ",\"kwargs\":{\"messages\":[]}}", text, &err), TRI_INVALID_ARGUMENT);
  ck_assert_str_eq(err.field, "chat_template_kwargs");
  chat_template_free(t);
  put_file("chat_template.jinja", "{{ messages[0].role }}{{ eos_token }}"); /* comes first */
  ck_assert_int_eq(chat_template_load(dir, NULL, &t, &err), TRI_OK);
  ck_assert_int_eq(render(t, "{" HELLO "}", text, &err), TRI_OK);
  ck_assert_str_eq(text, "user</s>");
  chat_template_free(t);
  put_file("chat_template.jinja", "{% if %}");
  ck_assert_int_eq(chat_template_load(dir, NULL, &t, &err), TRI_CORRUPT);
}
END_TEST

static const struct probe {
  const char *source, *text, *parts; /* what becomes of each kind of content */
} probes[] = {
    {"{{ messages[0].content }}", "hi", "a\nb"},
    {"{% for p in messages[0].content %}[{{ p.text }}]{% endfor %}", "[hi]", "[a][b]"},
    {"{% if messages[0].content is string %}{{ messages[0].content }}{% else %}{% for p in messages[0].content %}{{ "
     "p.text }}"
     "{% endfor %}{% endif %}",
     "hi", "ab"},
    {"{{ messages[0].content|trim }}", "hi", "a\nb"},
};

START_TEST(forms_of_content) {
  const struct probe *p = &probes[_i];
  chat_template *t = NULL;
  tri_error err = {0};
  char text[256];
  ck_assert_int_eq(chat_template_make(p->source, strlen(p->source), &t, &err), TRI_OK);
  ck_assert_int_eq(render(t, "{" HELLO "}", text, &err), TRI_OK);
  ck_assert_str_eq(text, p->text);
  ck_assert_int_eq(render(t, "{\"messages\":[{\"role\":\"user\",\"content\":" PARTS "}]}", text, &err), TRI_OK);
  ck_assert_str_eq(text, p->parts);
  chat_template_free(t);
}
END_TEST

/* ---- what templates do with nulls and with arguments ---- */

#define ASSISTANT "{% for m in messages %}{% if m.role == 'assistant' %}"
#define END "{% endif %}{% endfor %}"
#define TURNS(members) "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\"," members "}]}"
#define WITH_CALL(arguments)                                                                                           \
  "\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":" arguments "}}]"

static const struct turn {
  const char *source, *request, *want;
} turns[] = {
    /* a null is none where a template asks for none, and an empty text where it takes a text */
    {ASSISTANT "{{ m.content is none }}{{ m.content is defined }}{{ m.content == none }}" END,
     TURNS("\"content\":null"), "TrueTrueTrue"},
    {ASSISTANT "{{ m.content }}|{{ m.content|trim }}|{{ '[' ~ m.content ~ ']' }}" END, TURNS("\"content\":null"),
     "||[]"},
    {ASSISTANT "{{ '[' + m.content + ']' }}{{ m.content.split('x')|length }}{{ m['content'].strip() }}" END,
     TURNS("\"content\":null"), "[]1"},
    {ASSISTANT "{{ m.content[:5] }}{{ '</think>' in m.content }}{{ m.content|length }}{{ m.content|upper }}" END,
     TURNS("\"content\":null"), "False0"},
    {ASSISTANT "{% for part in m.content %}{{ part.text }}{% endfor %}-" END, TURNS("\"content\":null"), "-"},
    {ASSISTANT "{{ m.content|tojson }}{{ m.name is none }}{{ m.weight is none }}" END,
     TURNS("\"content\":null,\"name\":null,\"weight\":null"), "nullTrueTrue"},
    {ASSISTANT "{% if m.content is string %}[{{ m.content }}]{% else %}{{ raise_exception('no text') }}{% endif %}" END,
     TURNS("\"content\":null"), "[]"},
    {ASSISTANT "{{ '<' + m.reasoning_content + '>' + m.content }}" END,
     TURNS("\"content\":null,\"reasoning_content\":\"r\""), "<r>"},
    {ASSISTANT "{% if 'tool_calls' in m %}calls{% else %}{{ m.content }}{% endif %}" END,
     TURNS("\"content\":\"x\",\"tool_calls\":null"), "x"},
    {ASSISTANT
     "{% if m.content is none %}{{ m.tool_calls[0].function.name }}{% else %}{{ m.content + '!' }}{% endif %}" END,
     TURNS("\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]"), "f"},
    {ASSISTANT "{{ m.content }}{{ m.tool_calls is none }}" END, TURNS("\"content\":\"x\",\"tool_calls\":null"),
     "xTrue"},
    {ASSISTANT "{% if 'tool_calls' in m and m.tool_calls|length != 1 %}{{ raise_exception('one') }}{% endif %}{{ "
               "m.content }}" END,
     TURNS("\"content\":\"x\",\"tool_calls\":null"), "x"},
    /* a null in arguments is data */
    {ASSISTANT "{% for k, v in m.tool_calls[0].function.arguments|items %}{{ k }}={{ v }};{% endfor %}" END,
     TURNS(WITH_CALL("\"{\\\"a\\\": null}\"")), "a=None;"},
    /* arguments are an object, or a text where a template takes that alone */
    {ASSISTANT "{{ m.tool_calls[0].function.arguments|tojson }}" END, TURNS(WITH_CALL("\"{\\\"a\\\": 1}\"")),
     "{\"a\": 1}"},
    {ASSISTANT "{{ m.tool_calls[0].function.arguments.a }}" END, TURNS(WITH_CALL("\"{\\\"a\\\": 1}\"")), "1"},
    {ASSISTANT "{% if m.tool_calls %}{{ 'f' + m.tool_calls[0]['function']['arguments'] }}{% endif %}" END,
     TURNS(WITH_CALL("\"{\\\"a\\\": 1}\"")), "f{\"a\": 1}"},
    {ASSISTANT "{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments }}{% endif %}" END,
     TURNS(WITH_CALL("{\"a\":1}")), "{\"a\": 1}"},
    {ASSISTANT "{% if m.content is none %}{% for c in m.tool_calls %}{{ c.function.name + '(' + c.function.arguments + "
               "')' }}{% endfor "
               "%}{% endif %}" END,
     TURNS(WITH_CALL("\"\"")), "f({})"},
    {ASSISTANT "{% set a = m.tool_calls[0].function.arguments %}{{ a if a is string else a|tojson }}" END,
     TURNS(WITH_CALL("\"{\\\"a\\\": 1}\"")), "{\"a\": 1}"},
    /* numbers of any size */
    {ASSISTANT "{{ m.tool_calls[0].function.arguments|tojson }}" END,
     TURNS(WITH_CALL("\"{\\\"a\\\": [18446744073709551617, -1e999, NaN, -Infinity]}\"")),
     "{\"a\": [18446744073709551617, -1e999, NaN, -Infinity]}"},
    {"{{ tools|tojson }}{{ x + 1 }}",
     "{" HELLO ",\"tools\":[{\"maximum\":18446744073709551615}],\"kwargs\":{\"x\":1.5}}",
     "[{\"maximum\": 18446744073709551615}]2.5"},
    {"{{ x }}", "{" HELLO ",\"kwargs\":{\"x\":[123456789012345678901234567890]}}", "[123456789012345678901234567890]"},
};

START_TEST(turns_of_assistants) {
  const struct turn *turn = &turns[_i];
  chat_template *t = NULL;
  tri_error err = {0};
  char text[256];
  ck_assert_int_eq(chat_template_make(turn->source, strlen(turn->source), &t, &err), TRI_OK);
  ck_assert_msg(render(t, turn->request, text, &err) == TRI_OK, "%s: %s", turn->source, err.message);
  ck_assert_msg(!strcmp(text, turn->want), "%s: %s", turn->source, text);
  chat_template_free(t);
}
END_TEST

/* A template that refuses what it is given says why, by the messages that were sent. */
START_TEST(a_refusal_stays) {
  static const char source[] =
      "{% for m in messages %}{% if m.content is none %}{{ raise_exception('a null') }}{% else %}{{ "
      "raise_exception('a text') }}{% endif %}{% endfor %}";
  chat_template *t = NULL;
  tri_error err = {0};
  char text[256];
  ck_assert_int_eq(chat_template_make(source, sizeof source - 1, &t, &err), TRI_OK);
  ck_assert_int_eq(render(t, "{\"messages\":[{\"role\":\"assistant\",\"content\":null}]}", text, &err),
                   TRI_INVALID_ARGUMENT);
  ck_assert_msg(strstr(err.message, "a null") != NULL, "%s", err.message);
  chat_template_free(t);
}
END_TEST

/* ---- folders as they are published ---- */

START_TEST(published_folders) {
  static const struct {
    const char *folder, *file, *want; /* of a template of one's own: NULL is the folder's */
  } cases[] = {{"v4-llama", NULL, "<s>[user]hi</s>"},
               {"v4-qwen", NULL, "<|im_start|>user\nhi<|im_end|>\n"},
               {"v5-llama", NULL, "<s>hi</s>"},
               {"v4-llama", "own", "<s>hi</s>,<unk>,,"},
               {"v4-qwen", "own", "hi<|im_end|>,,,<|endoftext|>"},
               {"v4-mamba", "own", "hi</s>,,,"}};
  static const char own[] =
      "{{ bos_token }}{{ messages[0].content + eos_token }},{{ unk_token }},{{ sep_token }},{{ pad_token }}"
      "{{ cls_token }}{{ mask_token }}";
  put_file("own.jinja", own);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char path[512], text[256];
    chat_template *t = NULL;
    tri_model_config config;
    tri_error err = {0};
    snprintf(path, sizeof path, "%s/tests/data/published/%s", TRI_SOURCE, cases[i].folder);
    const char *file = cases[i].file ? TRI_TEST_SCRATCH "/chat/own.jinja" : NULL;
    ck_assert_msg(chat_template_load(path, file, &t, &err) == TRI_OK, "%s", err.message);
    ck_assert_int_eq(render(t, "{" HELLO "}", text, &err), TRI_OK);
    ck_assert_msg(!strcmp(text, cases[i].want), "%s: %s", path, text);
    chat_template_free(t);
    if (strcmp(cases[i].folder, "v4-mamba") != 0)
      ck_assert_msg(tri_model_config_load(path, (tri_config_rules){0}, &config, &err) == TRI_OK, "%s", err.message);
  }
}
END_TEST

/* The reason why a folder has no template names the file, and what is wrong with it. */
START_TEST(unreadable_folders) {
  chat_template *t = NULL;
  tri_error err = {0};
  put_file("chat_template.jinja", NULL);
  put_file("tokenizer_config.json", "{\"chat_template\": \"{{ messages }}\", \"model_max_length\": 1e}");
  ck_assert_int_eq(chat_template_load(dir, NULL, &t, &err), TRI_CORRUPT);
  ck_assert_msg(strstr(err.message, "tokenizer_config.json: JSON line 1") != NULL, "%s", err.message);
  tri_error_clear(&err);
  ck_assert_int_eq(chat_template_load(dir, "/nowhere/x.jinja", &t, &err), TRI_NOT_FOUND);
  ck_assert_msg(strstr(err.message, "/nowhere/x.jinja") != NULL, "%s", err.message);
  put_file("tokenizer_config.json", "{}");
}
END_TEST

/* The prompt has all that was said, as the tokenizer reads it without special tokens of its own. */
static void expect_prompt(conversation *c, const char *text) {
  tri_tokenizer_scratch *s = NULL;
  const uint32_t *ids, *want;
  size_t n, num_want;
  tri_error err = {0};
  ck_assert_msg(conversation_prompt(c, &ids, &n, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(tri_tokenizer_scratch_create(c->tokenizer, &s), TRI_OK);
  ck_assert_int_eq(tri_tokenizer_encode(c->tokenizer, s, text, strlen(text), false, 0, &want, &num_want), TRI_OK);
  ck_assert_uint_eq(n, num_want);
  ck_assert_mem_eq(ids, want, n * sizeof *ids);
  tri_tokenizer_scratch_destroy(s);
}

START_TEST(conversations) {
  static const char model[] = TRI_TEST_DATA "/tokenizers/bytelevel_bpe_llama3";
  conversation c;
  tri_error err = {0};
  put_file("talk.jinja", "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}");
  ck_assert_int_eq(conversation_open("/nowhere", NULL, &c, &err), TRI_NOT_FOUND);
  conversation_close(&c);
  ck_assert_msg(conversation_open(model, TRI_TEST_SCRATCH "/chat/talk.jinja", &c, &err) == TRI_OK, "%s", err.message);
  conversation_begin(&c, "be short");
  conversation_add(&c, "user", "a \"b\"\n", 6);
  expect_prompt(&c, "[system:be short][user:a \"b\"\n]");
  size_t mark = conversation_mark(&c);
  conversation_add(&c, "assistant", "\xff", 1); /* half a character, of an answer that was stopped */
  expect_prompt(&c, "[system:be short][user:a \"b\"\n][assistant:\xef\xbf\xbd]");
  conversation_back_to(&c, mark);
  conversation_add(&c, "assistant", "c", 1);
  expect_prompt(&c, "[system:be short][user:a \"b\"\n][assistant:c]");
  conversation_forget(&c);
  conversation_add(&c, "user", "d", 1);
  expect_prompt(&c, "[system:be short][user:d]");
  conversation_begin(&c, NULL);
  conversation_add(&c, "user", "d", 1);
  expect_prompt(&c, "[user:d]");
  /* Nobody ends a turn by writing so. */
  const uint32_t *ids;
  size_t n;
  conversation_add(&c, "user", "<|eot_id|>", 10);
  ck_assert_int_eq(conversation_prompt(&c, &ids, &n, &err), TRI_OK);
  for (size_t i = 0; i < n; i++) ck_assert(!tri_tokenizer_is_special(c.tokenizer, ids[i]));
  conversation_close(&c);
}
END_TEST

Suite *suite_chat(void) {
  Suite *suite = suite_create("chat");
  TCase *t = tcase_create("chat");
  tcase_add_loop_test(t, messages_are_made, 0, sizeof made / sizeof *made);
  tcase_add_loop_test(t, messages_are_refused, 0, sizeof refused / sizeof *refused);
  tcase_add_test(t, files_of_a_model);
  tcase_add_test(t, conversations);
  tcase_add_loop_test(t, turns_of_assistants, 0, sizeof turns / sizeof *turns);
  tcase_add_test(t, a_refusal_stays);
  tcase_add_test(t, published_folders);
  tcase_add_test(t, unreadable_folders);
  tcase_add_loop_test(t, forms_of_content, 0, sizeof probes / sizeof *probes);
  suite_add_tcase(suite, t);
  return suite;
}
