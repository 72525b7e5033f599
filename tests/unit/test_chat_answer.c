/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of models taken apart: whole, byte by byte, and in random pieces. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "client/chat/chat_answer.h"
#include "base/buf.h"
#include "base/json/json.h"
#include "base/wait.h"

Suite *suite_chat_answer(void);

/* The parts that have been given: text as it is, {R ...} reasoning, {NAME: ...} a call; ~ after all of them:
 * a call is not whole. */
typedef struct given {
  char text[2048], arguments[2048]; /* those of the last call */
  size_t len;
  chat_part part;
  int num_calls;
} given;

static void put(given *g, const char *s, size_t n) {
  if (g->len + n >= sizeof g->text) ck_abort_msg("too much: %.*s", (int)g->len, g->text);
  memcpy(g->text + g->len, s, n);
  g->len += n;
  g->text[g->len] = '\0';
}

static void check_json(const given *g) {
  tri_json_doc *doc = NULL;
  if (tri_json_parse(g->arguments, strlen(g->arguments), &doc, NULL) != TRI_OK)
    ck_abort_msg("%s: arguments that are no JSON: %s", g->text, g->arguments);
  tri_json_free(doc);
}

static void give(void *ctx, chat_part part, const char *s, size_t len) {
  given *g = ctx;
  if (part == CHAT_PART_CALL) {
    g->num_calls++;
    g->arguments[0] = '\0';
  }
  if (part == CHAT_PART_ARGUMENTS) strncat(g->arguments, s, len);
  bool was_call = g->part == CHAT_PART_CALL || g->part == CHAT_PART_ARGUMENTS;
  if (part == CHAT_PART_ARGUMENTS && !was_call) ck_abort_msg("arguments without a call");
  if (part == CHAT_PART_CALL || (part != CHAT_PART_ARGUMENTS && part != g->part)) {
    if (was_call || g->part == CHAT_PART_REASONING) put(g, "}", 1);
    if (part == CHAT_PART_REASONING) put(g, "{R ", 3);
    if (part == CHAT_PART_CALL) put(g, "{", 1);
  }
  put(g, s, len);
  if (part == CHAT_PART_CALL) put(g, ": ", 2);
  g->part = part;
}

static bool is_tool(void *ctx, const char *name, size_t len) {
  (void)ctx;
  return len == 1 && (*name == 'f' || *name == 'g');
}

static bool is_text(void *ctx, const char *name, size_t len, const char *key, size_t key_len) {
  (void)ctx;
  (void)name;
  (void)len;
  return key_len == 4 && !memcmp(key, "text", 4);
}

static bool is_parameter(void *ctx, const char *name, size_t len, const char *key, size_t key_len) {
  (void)ctx;
  (void)name;
  (void)len;
  return (key_len == 1 && strchr("abn", *key)) || is_text(ctx, name, len, key, key_len);
}

static const struct answer {
  chat_calls calls;
  int reasoning; /* 2: the prompt has begun it, or of channels a text */
  const char *text, *want;
} answers[] = {
    {CHAT_CALLS_NONE, 0, " plain <tool_call> ", " plain <tool_call> "},
    {CHAT_CALLS_NONE, 0, "<think>x</think>y", "<think>x</think>y"},
    /* reasoning */
    {CHAT_CALLS_NONE, 1, "\n<think>a < b</thin</think>\n\ny</think>", "{R a < b</thin}\n\ny</think>"},
    {CHAT_CALLS_NONE, 1, "<think>never ends</thi", "{R never ends</thi}"},
    {CHAT_CALLS_NONE, 1, " <thinks>", " <thinks>"},
    {CHAT_CALLS_NONE, 1, "x<think>y</think>", "x<think>y</think>"},
    {CHAT_CALLS_NONE, 1, "<thin", "<thin"},
    {CHAT_CALLS_NONE, 2, "a</think>b", "{R a}b"},
    {CHAT_CALLS_NONE, 1, "", ""},
    /* Hermes and Qwen */
    {CHAT_CALLS_HERMES, 0,
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\":  [1, \"}</tool_call>\\\"\"], \"y\": {}}}\n</tool_call>",
     "{f: {\"x\":  [1, \"}</tool_call>\\\"\"], \"y\": {}}}"},
    {CHAT_CALLS_HERMES, 0,
     "Let me "
     "see.\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n<tool_call>{\"arguments\":{\"a\":1},\"id\":"
     "[7],\"name\":\"other\\u0041\"}</tool_call>\n",
     "Let me see.\n{f: {}}{otherA: {\"a\":1}}"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"name\":\"f\"}</tool_call> after", "{f: {}} after"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"name\":\"f\",\"arguments\":null }</tool_call>", "{f: {}}"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"name\":\"f\",\"arguments\":\"\"}</tool_call>", "{f: {}}"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"arguments\":\"null\",\"name\":\"f\"}</tool_call>", "{f: {}}"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>",
     "<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}</tool_call>",
     "{f: {\"a\":1}}"}, /* an object, written as a text */
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"name\":\"f\",\"arguments\":\"a text\"}</tool_call>",
     "<tool_call>{\"name\":\"f\",\"arguments\":\"a text\"}</tool_call>"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":\"cut o", "{f: {\"a\":\"cut o\"}}~"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}", "{f: {\"a\":1}}~"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}</tool_call>\nafter",
     "{f: {\"a\":1}}\nafter"},
    {CHAT_CALLS_HERMES, 0,
     "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"g\",\"arguments\":{",
     "{f: {}}<tool_call>{\"name\":\"g\",\"arguments\":{~"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"name\":\"f\"", "<tool_call>{\"name\":\"f\""},
    {CHAT_CALLS_HERMES, 0, "<tool_call>f(1)</tool_call>", "<tool_call>f(1)</tool_call>"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"x\":1}</tool_call>", "<tool_call>{\"x\":1}</tool_call>"},
    {CHAT_CALLS_HERMES, 0, "<tool_call>{\"name\":1}", "<tool_call>{\"name\":1}"},
    {CHAT_CALLS_HERMES, 0, "a <tool_cal b <", "a <tool_cal b <"},
    {CHAT_CALLS_HERMES, 0, "  \n", "  \n"},
    {CHAT_CALLS_HERMES, 0, "{\"name\":\"f\",\"arguments\":{}}", "{\"name\":\"f\",\"arguments\":{}}"},
    {CHAT_CALLS_HERMES, 1, "<think>\nhm\n</think>\n\n<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n</tool_call>",
     "{R \nhm\n}{f: {}}"},
    /* Mistral, with and without its marker */
    {CHAT_CALLS_MISTRAL, 0,
     "[TOOL_CALLS] [{\"name\": \"a\", \"arguments\": {\"x\": 1}}, {\"name\": \"b\", \"arguments\": {}, \"id\": \"1\"}]",
     "{a: {\"x\": 1}}{b: {}}"},
    {CHAT_CALLS_MISTRAL, 0, "text[TOOL_CALLS]a{\"x\": {}}[TOOL_CALLS]b[ARGS]{}", "text{a: {\"x\": {}}}{b: {}}"},
    {CHAT_CALLS_MISTRAL, 0, " [{\"name\": \"f\", \"arguments\": {}}]\n", "{f: {}}"},
    {CHAT_CALLS_MISTRAL, 0, "[{\"name\": \"Ann\", \"arguments\": {}}]", "[{\"name\": \"Ann\", \"arguments\": {}}]"},
    {CHAT_CALLS_MISTRAL, 0, "[{\"name\": \"f\"}]", "[{\"name\": \"f\"}]"},
    {CHAT_CALLS_MISTRAL, 0, "[1, 2]", "[1, 2]"},
    {CHAT_CALLS_MISTRAL, 0, "[TOOL_CALL", "[TOOL_CALL"},
    /* Llama */
    {CHAT_CALLS_LLAMA, 0, "{\"name\": \"f\", \"parameters\": {\"q\": \"x\"}}", "{f: {\"q\": \"x\"}}"},
    {CHAT_CALLS_LLAMA, 0,
     "<|python_tag|>{\"name\": \"other\", \"parameters\": {}}; {\"type\": \"function\", \"name\": \"g\", "
     "\"parameters\": "
     "{}}",
     "{other: {}}{g: {}}"},
    {CHAT_CALLS_LLAMA, 0, "{\"name\": \"h\", \"parameters\": {}} is JSON",
     "{\"name\": \"h\", \"parameters\": {}} is JSON"},
    {CHAT_CALLS_LLAMA, 0, "{\"a\": {\"name\": \"f\"}}", "{\"a\": {\"name\": \"f\"}}"},
    {CHAT_CALLS_LLAMA, 0, "so: {\"name\": \"f\", \"parameters\": {}}", "so: {\"name\": \"f\", \"parameters\": {}}"},
    {CHAT_CALLS_LLAMA, 0, "{}", "{}"},
    /* <function= */
    {CHAT_CALLS_FUNCTION, 0, "<function=f>{\"x\": \"<\"}</function> <function=g> {} </function>",
     "{f: {\"x\": \"<\"}}{g: {}}"},
    {CHAT_CALLS_FUNCTION, 0, "<function=f>\n<parameter=x>1", "<function=f>\n<parameter=x>1"},
    {CHAT_CALLS_FUNCTION, 0, "<function=>{}", "<function=>{}"},
    /* tags */
    {CHAT_CALLS_TAGS, 0,
     "Yes.\n<tool_call>\n<function=f>\n<parameter=a>\nx < \"y\"\n\nz\n</parameter>\n<parameter=n>\n[1, "
     "2]\n</parameter>\n"
     "<parameter=text>\n12\n</parameter>\n</function>\n</tool_call>",
     "Yes.\n{f: {\"a\": \"x < \\\"y\\\"\\n\\nz\", \"n\": [1, 2], \"text\": \"12\"}}"},
    {CHAT_CALLS_TAGS, 0,
     "<tool_call><function=f></function></tool_call><tool_call><function=g><parameter=b>True</parameter>"
     "</function></tool_call>\n",
     "{f: {}}{g: {\"b\": true}}"},
    {CHAT_CALLS_TAGS, 0, "<tool_call><function=f><parameter=a>1, 2</parameter><parameter=b>cut",
     "{f: {\"a\": \"1, 2\"}}<parameter=b>cut~"},
    /* tags as models leave them out, and write them in values */
    {CHAT_CALLS_TAGS, 0, "I look.\n\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>\nDone.",
     "I look.\n\n{f: {\"a\": \"x\"}}\nDone."},
    {CHAT_CALLS_TAGS, 0, "<function=f>\n</function>", "{f: {}}"},
    {CHAT_CALLS_TAGS, 0, "The tag <function=h>\n<parameter=a>\nx\n</parameter>\n</function> is one.",
     "The tag <function=h>\n<parameter=a>\nx\n</parameter>\n</function> is one."},
    {CHAT_CALLS_TAGS, 0, "a <function b <func", "a <function b <func"},
    {CHAT_CALLS_TAGS, 0, "<tool_call>\n<function=f>\n<parameter=a>\nx\n<parameter=n>\n3\n</function>\n</tool_call>",
     "{f: {\"a\": \"x\", \"n\": 3}}"},
    {CHAT_CALLS_TAGS, 0,
     "<tool_call>\n<function=f>\n<parameter=a>\nx\n  <parameter=n>\n3\n  </function>\n</tool_call> y",
     "{f: {\"a\": \"x\", \"n\": 3}} y"},
    {CHAT_CALLS_TAGS, 0,
     "<tool_call>\n<function=f>\n<parameter=a>\nends </parameter> here\n</parameter>\n</function>\n</tool_call>",
     "{f: {\"a\": \"ends </parameter> here\"}}"},
    {CHAT_CALLS_TAGS, 0, "<tool_call><function=f><parameter=a>x </parameter> <y></parameter></function></tool_call>",
     "{f: {\"a\": \"x </parameter> <y>\"}}"},
    {CHAT_CALLS_TAGS, 0,
     "<tool_call>\n<function=f>\n<parameter=a>\nthe tags <parameter=b> and </function> and "
     "</tool_call>\n<parameter=zz>\n</parameter>\n</function>\n</tool_call>",
     "{f: {\"a\": \"the tags <parameter=b> and </function> and </tool_call>\\n<parameter=zz>\"}}"},
    {CHAT_CALLS_TAGS, 0,
     "<tool_call>\n<function=f>\n<parameter=a>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>",
     "{f: {\"a\": \"<parameter=a>\\nx\"}}"},
    {CHAT_CALLS_TAGS, 0,
     "<tool_call>\n<function=f>\n<parameter=a>\nA\n</parameter>\n</function>\n<function=g>\n<parameter=a>\nB\n</"
     "parameter>\n</function>\n</tool_call>\n",
     "{f: {\"a\": \"A\"}}{g: {\"a\": \"B\"}}"},
    {CHAT_CALLS_TAGS, 0,
     "<tool_call>\n<function=f>\n<parameter=a>\nA\n</function>\n<function=g>\n<parameter=a>\nB\n</parameter>\n</"
     "tool_call>\n<tool_call>\n<function=f>\n</tool_call>",
     "{f: {\"a\": \"A\"}}{g: {\"a\": \"B\"}}{f: {}}"},
    {CHAT_CALLS_TAGS, 0,
     "<tool_call>\n<function=f>\n<parameter=a>\nA\n</tool_call>\n<tool_call>\n<function=g>\n<parameter=a>\nB\n</"
     "tool_call>",
     "{f: {\"a\": \"A\"}}{g: {\"a\": \"B\"}}"},
    {CHAT_CALLS_TAGS, 0,
     "<tool_call>\n<function=f>\n<parameter=a>\nA\n</parameter>\n<tool_call>\n<function=g>\n<parameter=a>\nB\n</"
     "parameter>",
     "{f: {\"a\": \"A\"}}{g: {\"a\": \"B\"}}"},
    {CHAT_CALLS_TAGS, 0, "<tool_call>\n<function=f>\n<parameter=a>\nA\n</parameter>\n</function>\n<function=h",
     "{f: {\"a\": \"A\"}}<function=h~"},
    {CHAT_CALLS_TAGS, 0, "<function=f>\n<parameter=a>\nA\n</parameter>\n<parameter=b>\nB</para",
     "{f: {\"a\": \"A\"}}<parameter=b>\nB</para~"},
    {CHAT_CALLS_TAGS, 0, "<tool_call>\n<function=f>\n<parameter=a>\nonly this is said",
     "<tool_call>\n<function=f>\n<parameter=a>\nonly this is said"},
    {CHAT_CALLS_TAGS, 0, "<tool_call><function=f><x>", "<tool_call><function=f><x>"},
    {CHAT_CALLS_TAGS, 0, "<tool_call>{\"name\": \"f\"}", "<tool_call>{\"name\": \"f\"}"},
    {CHAT_CALLS_TAGS, 0, "<tool_call><function=></function>", "<tool_call><function=></function>"},
    /* channels */
    {CHAT_CALLS_CHANNELS, 0,
     "<|channel|>analysis<|message|>Two.<|end|><|start|>assistant<|channel|>final<|message|>four<|return|>",
     "{R Two.}four"},
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>final<|message|> four\n", " four\n"},
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>commentary to=functions.f json<|message|>{\"a\":1}<|call|>", "{f: {\"a\":1}}"},
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\":\"}\\\\\"}",
     "{f: {\"a\":\"}\\\\\"}}"},
    {CHAT_CALLS_CHANNELS, 0, " to=functions.f<|channel|>commentary<|constrain|>json<|message|>\n{}", "{f: {}}"},
    {CHAT_CALLS_CHANNELS, 0,
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f<|channel|>commentary "
     "json<|message|>{}<|call|>",
     "{R hm}{f: {}}"},
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>commentary to=f<|message|>{}<|call|>", "{f: {}}"},
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>commentary to=functions.f<|message|><|call|>", "{f: {}}"},
    {CHAT_CALLS_CHANNELS, 0,
     "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f<|message|>{\"a\":[{}]}<|end|><|start|>assistant<|channel|>commentary to=functions.g<|message|>{}",
     "I look.{f: {\"a\":[{}]}}{g: {}}"},
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>commentary to=functions.f<|message|>{\"a\":\"{}", "{f: {\"a\":\"{}\"}}~"},
    /* a header begins anew, or ends before its message */
    {CHAT_CALLS_CHANNELS, 0,
     "<|channel|>commentary to=functions.f <|start|>assistant<|channel|>final<|message|>Hello<|return|>", "Hello"},
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>commentary to=functions.f<|return|>final<|message|>Hello", "Hello"},
    {CHAT_CALLS_CHANNELS, 0, "<|start|>assistant to=functions.f<|channel|>commentary<|message|>{}<|call|>", "{f: {}}"},
    /* arguments that are no object are a text */
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>commentary to=functions.f<|message|>hello<|call|>", "hello"},
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>analysis to=python<|message|>1 + 1<|call|>", "{R 1 + 1}"},
    {CHAT_CALLS_CHANNELS, 0,
     "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>", "{R a\nb}"},
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>analysis<|message|>a < b <|en", "{R a < b <|en}"},
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>anal", ""},
    {CHAT_CALLS_CHANNELS, 0, " to=functions", ""},
    {CHAT_CALLS_CHANNELS, 0, "<|channel|>final<|message|>a<|end|>junk<|start|>assistant<|channel|>final<|message|>b",
     "a\nb"},
    {CHAT_CALLS_CHANNELS, 0, "No header at all", "No header at all"},
    {CHAT_CALLS_CHANNELS, 0, " t", " t"},
    {CHAT_CALLS_CHANNELS, 2, " and goes on<|return|>", " and goes on"},
    {CHAT_CALLS_CHANNELS, 0, "", ""},
};

/* Takes an answer apart; cut(i) tells whether a piece ends before byte i. */
static void take_apart(const struct answer *a, uint64_t cuts, bool each, given *g) {
  chat_answer_config config = {.calls = a->calls,
                               .reasoning = a->reasoning > 0,
                               .in_reasoning = a->reasoning == 2,
                               .channels = a->calls == CHAT_CALLS_CHANNELS,
                               .in_text = a->reasoning == 2,
                               .is_tool = is_tool,
                               .is_text = is_text,
                               .is_parameter = is_parameter,
                               .give = give,
                               .ctx = g};
  chat_answer *p = NULL;
  size_t n = strlen(a->text), from = 0;
  *g = (given){.part = CHAT_PART_TEXT};
  ck_assert_int_eq(chat_answer_create(&config, &p), TRI_OK);
  for (size_t i = 1; i <= n; i++) {
    bool cut = i == n || each || (cuts >> (i * 7 % 64) & 1);
    if (!cut) continue;
    if (chat_answer_push(p, a->text + from, i - from) != TRI_OK) ck_abort_msg("no memory");
    from = i;
  }
  ck_assert_int_eq(chat_answer_finish(p, false), TRI_OK);
  if (g->part != CHAT_PART_TEXT) put(g, "}", 1);
  if (g->num_calls && !chat_answer_calls(p)) put(g, "~", 1);
  if (!g->num_calls) ck_assert(!chat_answer_calls(p));
  if (g->num_calls) check_json(g);
  chat_answer_free(p);
}

START_TEST(any_pieces) {
  const struct answer *a = &answers[_i];
  given g;
  uint64_t seed = 88172645463325252u;
  take_apart(a, 0, false, &g);
  ck_assert_msg(!strcmp(g.text, a->want), "%s: %s, not %s", a->text, g.text, a->want);
  take_apart(a, 0, true, &g);
  ck_assert_msg(!strcmp(g.text, a->want), "byte by byte, %s: %s, not %s", a->text, g.text, a->want);
  for (int i = 0; i < 300; i++) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    uint64_t fewer = i % 2 ? seed & seed >> 9 : seed;
    take_apart(a, fewer, false, &g);
    if (strcmp(g.text, a->want) != 0) ck_abort_msg("%s: %s, not %s", a->text, g.text, a->want);
  }
}
END_TEST

/* Texts of random words of all forms: the pieces do not matter, whatever comes. */
START_TEST(any_text) {
  static const char *const words[] = {"<tool_call>",
                                      "</tool_call>",
                                      "[TOOL_CALLS]",
                                      "<|python_tag|>",
                                      "<function=",
                                      "</function>",
                                      "<parameter=",
                                      "</parameter>",
                                      "=",
                                      "<think>",
                                      "</think>",
                                      "{",
                                      "}",
                                      "[",
                                      "]",
                                      ",",
                                      ":",
                                      ";",
                                      "\"name\"",
                                      "\"arguments\"",
                                      "\"f\"",
                                      "\"parameters\"",
                                      "f",
                                      "\n",
                                      " ",
                                      "1",
                                      "\\\"",
                                      "\"",
                                      "{\"name\":\"f\",\"arguments\":{",
                                      ">",
                                      "[ARGS]",
                                      "<function=f>",
                                      "<parameter=a>",
                                      "<parameter=n>",
                                      "</function>\n</tool_call>",
                                      "<|channel|>",
                                      "<|message|>",
                                      "<|start|>assistant",
                                      "<|end|>",
                                      "<|call|>",
                                      "analysis",
                                      "final",
                                      " to=functions.f",
                                      "<"};
  uint64_t seed = 2463534242u + (uint64_t)_i;
  for (int round = 0; round < 4000; round++) {
    char text[1024] = "";
    given whole, bytes, pieces;
    for (int k = 0; k < 14; k++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      strcat(text, words[(seed >> 33) % (sizeof words / sizeof *words)]);
    }
    struct answer a = {(chat_calls)_i, (int)(seed >> 40) % 3, text, NULL};
    take_apart(&a, 0, false, &whole);
    take_apart(&a, 0, true, &bytes);
    take_apart(&a, seed, false, &pieces);
    if (strcmp(whole.text, bytes.text) != 0 || strcmp(whole.text, pieces.text) != 0)
      ck_abort_msg("%s: %s and %s and %s", text, whole.text, bytes.text, pieces.text);
  }
}
END_TEST

/* Parts that are certain are given at once: text before anything that may be a marker, and arguments as they come. */
START_TEST(nothing_waits) {
  static const char *const pieces[] = {"Hi <", "to ", "<tool_call>{\"name\":\"f\",\"argum", "ents\":{\"a\"", ":1"};
  static const char *const after[] = {"Hi ", "Hi <to ", "Hi <to ", "Hi <to ", "Hi <to {f: {\"a\":1"};
  given g = {.part = CHAT_PART_TEXT};
  chat_answer_config config = {.calls = CHAT_CALLS_HERMES, .is_tool = is_tool, .give = give, .ctx = &g};
  chat_answer *p = NULL;
  ck_assert_int_eq(chat_answer_create(&config, &p), TRI_OK);
  for (int i = 0; i < 5; i++) {
    ck_assert_int_eq(chat_answer_push(p, pieces[i], strlen(pieces[i])), TRI_OK);
    ck_assert_str_eq(g.text, after[i]);
  }
  ck_assert(chat_answer_calls(p));
  chat_answer_free(p);
}
END_TEST

static void count(void *ctx, chat_part part, const char *s, size_t len) {
  size_t *n = ctx;
  (void)s;
  *n += part == CHAT_PART_TEXT ? len : 0;
}

/* Returns the nanoseconds of this thread that so many blanks take. */
static int64_t cost_of_blanks(int kind, int blanks) {
  static const char *const heads[] = {"", "", "<tool_call>{\"name\":\"f\"}"};
  size_t given = 0;
  chat_answer *p = NULL;
  chat_answer_config config = {.calls = CHAT_CALLS_HERMES,
                               .reasoning = kind == 1,
                               .give = count,
                               .is_tool = is_tool,
                               .is_text = is_text,
                               .ctx = &given};
  int64_t begin = tri_thread_cpu_ns();
  ck_assert_int_eq(chat_answer_create(&config, &p), TRI_OK);
  ck_assert_int_eq(chat_answer_push(p, heads[kind], strlen(heads[kind])), TRI_OK);
  for (int i = 0; i < blanks; i++) ck_assert_int_eq(chat_answer_push(p, "\n", 1), TRI_OK);
  ck_assert_int_eq(chat_answer_finish(p, false), TRI_OK);
  ck_assert_int_eq(given, kind == 2 ? 0 : blanks);
  chat_answer_free(p);
  return tri_thread_cpu_ns() - begin;
}

/* An answer that goes on with white space alone is looked at once, not again with each of its tokens: eight times as
 * many cost eight times as much, and not 64 times. What else the processor does makes both slower. */
START_TEST(endless_blanks) {
  enum { FEW = 25000, MANY = 8 * FEW, TRIES = 5 };
  int64_t few = cost_of_blanks(_i, FEW), many = cost_of_blanks(_i, MANY);
  for (int i = 1; i < TRIES && many > 24 * few; i++) {
    few = cost_of_blanks(_i, FEW);
    many = cost_of_blanks(_i, MANY);
  }
  ck_assert_int_lt(many, 24 * few);
}
END_TEST

START_TEST(names) {
  chat_calls c;
  ck_assert(chat_calls_by_name("hermes", &c) && c == CHAT_CALLS_HERMES);
  ck_assert(chat_calls_by_name("function", &c) && c == CHAT_CALLS_FUNCTION);
  ck_assert(chat_calls_by_name("harmony", &c) && c == CHAT_CALLS_CHANNELS);
  ck_assert(!chat_calls_by_name("auto", &c) && !chat_calls_by_name("", &c));
}
END_TEST

Suite *suite_chat_answer(void) {
  Suite *s = suite_create("chat_answer");
  TCase *c = tcase_create("answers");
  tcase_add_loop_test(c, any_pieces, 0, sizeof answers / sizeof *answers);
  tcase_add_loop_test(c, any_text, CHAT_CALLS_NONE, CHAT_NUM_CALLS);
  tcase_add_test(c, nothing_waits);
  tcase_add_loop_test(c, endless_blanks, 0, 3);
  tcase_add_test(c, names);
  suite_add_tcase(s, c);
  return s;
}
