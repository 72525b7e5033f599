/* SPDX-License-Identifier: Apache-2.0 */
/* Messages as templates expect them, and a model's template. */
#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/chat/chat_messages.h"
#include "client/chat/chat_template.h"
#include "client/chat/conversation.h"
#include "runtime/base/file.h"
#include "runtime/base/mem.h"

Suite *suite_chat(void);

static const chat_form texts = {.takes_text = true};
static const chat_form both = {.takes_text = true, .takes_parts = true};
static const chat_form parts_alone = {.takes_parts = true, .names_developer = true};

/* ---- messages ---- */

#define PARTS "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]"

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
     "[{\"role\":\"user\",\"content\":\"x\",\"n\":1,\"f\":1.0,\"l\":[null,true,{}]}]"},
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
     "[{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":[1,2.5]}"
     "}}]}]"},
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
  ck_assert_msg(chat_messages_make(tri_json_root(from), m->form, &got, &err) == TRI_OK, "%s", err.message);
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
     "messages[0].content[1]", "only text is understood"},
    {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}]", "messages[0].content[0]",
     "must have a text"},
    {"[{\"role\":\"user\",\"content\":[1]}]", "messages[0].content[0]", "an object with a type"},
    {"[{\"role\":\"assistant\",\"tool_calls\":{}}]", "messages[0].tool_calls", "must be"},
};

START_TEST(messages_are_refused) {
  tri_json_doc *from = parse(refused[_i].messages), *got = NULL;
  tri_error err = {0};
  ck_assert_int_eq(chat_messages_make(tri_json_root(from), &texts, &got, &err), TRI_INVALID_ARGUMENT);
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
  ck_assert_int_eq(chat_template_load(dir, &t, &err), TRI_NOT_FOUND);
  ck_assert_ptr_nonnull(strstr(err.message, "no chat template"));
  put_file(
      "tokenizer_config.json",
      "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</"
      "s>\",\"chat_template\":[{\"name\":\"default\",\"template\":"
      "\"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ tools is none }}{{ x }}\"},{\"name\":\"tool_use\","
      "\"template\":\"{{ tools|length }}\"}]}");
  ck_assert_msg(chat_template_load(dir, &t, &err) == TRI_OK, "%s", err.message);
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
  ck_assert_int_eq(chat_template_load(dir, &t, &err), TRI_OK);
  ck_assert_int_eq(render(t, "{" HELLO "}", text, &err), TRI_OK);
  ck_assert_str_eq(text, "user</s>");
  chat_template_free(t);
  put_file("chat_template.jinja", "{% if %}");
  ck_assert_int_eq(chat_template_load(dir, &t, &err), TRI_CORRUPT);
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
  tcase_add_loop_test(t, forms_of_content, 0, sizeof probes / sizeof *probes);
  suite_add_tcase(suite, t);
  return suite;
}
