/* SPDX-License-Identifier: Apache-2.0 */
/* Calls, whatever models write: arguments come as soon as they are certain, and are an object of JSON in any case. */
#include <check.h>
#include <string.h>

#include "client/chat/chat_answer.h"
#include "base/json/json_writer.h"
#include "base/buf.h"
#include "base/json/json.h"

Suite *suite_chat_calls(void);

/* ---- JSON by the grammar of RFC 8259, for comparison: each returns what stands behind, or NULL ---- */

static const char *past_blanks(const char *s, const char *end) {
  while (s < end && strchr(" \t\r\n", *s) && *s) s++;
  return s;
}

static const char *past_digits(const char *s, const char *end) {
  const char *from = s;
  while (s < end && *s >= '0' && *s <= '9') s++;
  return s > from ? s : NULL;
}

static const char *past_number(const char *s, const char *end) {
  if (s < end && *s == '-') s++;
  s = s < end && *s == '0' ? s + 1 : past_digits(s, end);
  if (s && s < end && *s == '.') s = past_digits(s + 1, end);
  if (!s || s == end || (*s != 'e' && *s != 'E')) return s;
  if (++s < end && (*s == '+' || *s == '-')) s++;
  return past_digits(s, end);
}

static const char *past_string(const char *s, const char *end) {
  if (s == end || *s++ != '"') return NULL;
  for (; s < end && *s != '"'; s++) {
    if ((unsigned char)*s < ' ') return NULL;
    if (*s != '\\') continue;
    if (++s == end || !*s || !strchr("\"\\/bfnrtu", *s)) return NULL;
    for (int i = 0; *s == 'u' && i < 4; i++)
      if (s + i + 1 >= end || !s[i + 1] || !strchr("0123456789abcdefABCDEF", s[i + 1])) return NULL;
  }
  return s < end ? s + 1 : NULL;
}

static const char *past_value(const char *s, const char *end) {
  s = past_blanks(s, end);
  if (s == end) return NULL;
  if (*s == '"') return past_string(s, end);
  if (end - s >= 4 && (!memcmp(s, "true", 4) || !memcmp(s, "null", 4))) return s + 4;
  if (end - s >= 5 && !memcmp(s, "false", 5)) return s + 5;
  if (*s != '{' && *s != '[') return past_number(s, end);
  bool object = *s == '{';
  char close = object ? '}' : ']';
  s = past_blanks(s + 1, end);
  if (s < end && *s == close) return s + 1;
  for (;; s++) {
    if (object && !(s = past_string(past_blanks(s, end), end))) return NULL;
    if (object && ((s = past_blanks(s, end)) == end || *s++ != ':')) return NULL;
    s = past_value(s, end);
    if (!s || (s = past_blanks(s, end)) == end) return NULL;
    if (*s == close) return s + 1;
    if (*s != ',') return NULL;
  }
}

/* Returns whether a text is an object, and one that jansson takes as well; a key may come twice. */
static bool is_object(const char *s, size_t n) {
  tri_json_doc *doc = NULL;
  const char *behind = n && *s == '{' ? past_value(s, s + n) : NULL;
  if (!behind || behind != s + n || tri_utf8_prefix(s, n) != n) return false;
  if (tri_json_parse_python(s, n, &doc, NULL) != TRI_OK) return false;
  tri_json_free(doc);
  return true;
}

/* ---- answers taken apart ---- */

/* Parts as they came: text as it is, <NAME ARGUMENTS> a call. */
typedef struct given {
  tri_buf all, text, arguments; /* the text alone; the arguments of the last call */
  bool in_call;                 /* which may go on */
  unsigned num_calls;
  bool calls; /* each of them is whole */
} given;

static void put(tri_buf *b, const char *s, size_t n) {
  if (tri_buf_append(b, s, n) != TRI_OK) ck_abort_msg("no memory");
}

static void end_call(given *g) {
  if (!g->in_call) return;
  if (!is_object(g->arguments.data, g->arguments.len))
    ck_abort_msg("arguments that are no object: %.*s", (int)g->arguments.len, g->arguments.data);
  put(&g->all, ">", 1);
  g->in_call = false;
}

static void give(void *ctx, chat_part part, const char *s, size_t len) {
  given *g = ctx;
  if (part == CHAT_PART_ARGUMENTS) {
    if (!g->in_call) ck_abort_msg("arguments without a call: %.*s", (int)len, s);
    put(&g->arguments, s, len);
  } else {
    end_call(g);
  }
  if (part == CHAT_PART_CALL) put(&g->all, "<", 1);
  put(&g->all, s, len);
  if (part == CHAT_PART_TEXT) put(&g->text, s, len);
  if (part != CHAT_PART_CALL) return;
  put(&g->all, " ", 1);
  g->arguments.len = 0;
  g->in_call = true;
  g->num_calls++;
}

static bool is_tool(void *ctx, const char *name, size_t len) {
  (void)ctx;
  return len == 1 && (*name == 'f' || *name == 'g');
}

static uint64_t draw(uint64_t *seed) {
  *seed ^= *seed << 13;
  *seed ^= *seed >> 7;
  *seed ^= *seed << 17;
  return *seed >> 11;
}

static chat_answer *begin(chat_calls calls, given *g) {
  chat_answer_config config = {
      .calls = calls, .channels = calls == CHAT_CALLS_CHANNELS, .is_tool = is_tool, .give = give, .ctx = g};
  chat_answer *a = NULL;
  g->all.len = g->text.len = g->arguments.len = 0;
  g->in_call = false;
  g->num_calls = 0;
  if (chat_answer_create(&config, &a) != TRI_OK) ck_abort_msg("no memory");
  return a;
}

/* Takes an answer apart: piece 0 in one, else in pieces of at most so many bytes. */
static void take_apart(chat_calls calls, const char *text, size_t n, size_t piece, uint64_t *seed, given *g) {
  chat_answer *a = begin(calls, g);
  for (size_t i = 0, len; i < n; i += len) {
    len = piece ? 1 + draw(seed) % piece : n;
    if (len > n - i) len = n - i;
    if (chat_answer_push(a, text + i, len) != TRI_OK) ck_abort_msg("no memory");
  }
  if (chat_answer_finish(a, false) != TRI_OK) ck_abort_msg("no memory");
  end_call(g);
  g->calls = chat_answer_calls(a);
  if (g->calls && !g->num_calls) ck_abort_msg("calls without a call");
  chat_answer_free(a);
}

static void free_given(given *g) {
  tri_buf_free(&g->all);
  tri_buf_free(&g->text);
  tri_buf_free(&g->arguments);
}

/* ---- arguments ---- */

/* The forms that have arguments as JSON: what stands before them, and behind. */
static const struct form {
  chat_calls calls;
  const char *before, *behind;
} forms[] = {
    {CHAT_CALLS_HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":", "}</tool_call>"},
    {CHAT_CALLS_MISTRAL, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":", "}]"},
    {CHAT_CALLS_MISTRAL, "[TOOL_CALLS]f", ""},
    {CHAT_CALLS_LLAMA, "{\"name\":\"f\",\"parameters\":", "}"},
    {CHAT_CALLS_FUNCTION, "<function=f>", "</function>"},
    {CHAT_CALLS_CHANNELS, "<|channel|>commentary to=functions.f<|message|>", "<|call|>"},
};
enum { NUM_FORMS = sizeof forms / sizeof *forms };

/* Arguments as models write them. want: the call that they come to; NULL: none. */
static const struct arguments {
  const char *text, *want;
  bool whole;
} arguments[] = {
    {"{\"a\": 1,  \"b\": [{}]}", "<f {\"a\": 1,  \"b\": [{}]}>", true},
    {"{\"a\": \"}{\\\"][\"}", "<f {\"a\": \"}{\\\"][\"}>", true},
    {"{\"a\": 123456789012345678901234567890}", "<f {\"a\": 123456789012345678901234567890}>", true},
    {"{ }", "<f { }>", true},
    /* a key that comes twice stays as the model wrote it */
    {"{\"a\":1,\"b\":2,\"a\":{\"c\":3,\"c\":4}}", "<f {\"a\":1,\"b\":2,\"a\":{\"c\":3,\"c\":4}}>", true},
    {"{\"a\":1,\"\\u0061\":1e999}", "<f {\"a\":1,\"\\u0061\":1e999}>", true},
    /* no value has come */
    {"{'a': 1}", NULL, false},
    {"{\"a\": 'it\"s'}", NULL, false},
    {"{a: 1}", NULL, false},
    {"{,}", NULL, false},
    {"{\"a\": NaN}", NULL, false},
    {"{\"a\": -Infinity}", NULL, false},
    {"{\"a\": True}", NULL, false},
    {"{\"a\": nul}", NULL, false},
    {"{\"a\" 1}", NULL, false},
    {"{\"a\\x\": 1}", NULL, false},
    {"{1: 2}", NULL, false},
    /* some have */
    {"{\"a\": 1,}", "<f {\"a\": 1}>,}", false},
    {"{\"a\": 1, 'b': 2}", "<f {\"a\": 1}>, 'b': 2}", false},
    {"{\"a\": 1, \"b\": NaN}", "<f {\"a\": 1}>, \"b\": NaN}", false},
    {"{\"a\": 01}", "<f {\"a\": 0}>1}", false},
    {"{\"a\": 1.}", "<f {\"a\": 1}>.}", false},
    {"{\"a\": 1e+}", "<f {\"a\": 1}>e+}", false},
    {"{\"a\": 1 // one\n}", "<f {\"a\": 1 }>// one\n}", false},
    {"{\"a\": [1}]}", "<f {\"a\": [1]}>}]}", false},
    {"{\"a\": [1,]}", "<f {\"a\": [1]}>,]}", false},
    {"{\"a\": \"\\x\"}", "<f {\"a\": \"\"}>\\x\"}", false},
    {"{\"a\": \"\\u12g\"}", "<f {\"a\": \"\"}>\\u12g\"}", false},
    {"{\"a\": \"\\u\x14\"}", "<f {\"a\": \"\"}>\\u\x14\"}", false},
    {"{\"a\": \"\\ud83d\"}", "<f {\"a\": \"\"}>\\ud83d\"}", false},
    {"{\"a\": \"\\ud83d\\u0061\"}", "<f {\"a\": \"\"}>\\ud83d\\u0061\"}", false},
    {"{\"a\": \"\\ude00\"}", "<f {\"a\": \"\"}>\\ude00\"}", false},
    {"{\"a\": \"two\nlines\"}", "<f {\"a\": \"two\"}>\nlines\"}", false},
    {"{\"a\": \"\xff\"}", "<f {\"a\": \"\"}>\xff\"}", false},
    {"{\"a\": \"\xc3x\"}", "<f {\"a\": \"\"}>\xc3x\"}", false},
    {"{\"a\": \"\xed\xa0\x80\"}", "<f {\"a\": \"\"}>\xed\xa0\x80\"}", false},
    {"{\"a\":1 \"b\":2}", "<f {\"a\":1 }>\"b\":2}", false},
    {"{\"a\":{\"b\" 2}}", "<f {\"a\":{}}>\"b\" 2}}", false},
};

/* The text of a broken call may have lost the white space that it begins with. */
static bool is_given(const given *g, const char *want) {
  const char *mark = strchr(want, '>');
  size_t n = (size_t)(mark + 1 - want);
  if (strstr(g->all.data, want)) return true;
  return mark[1] == '\n' && !memcmp(g->all.data, want, n) && !strncmp(g->all.data + n, mark + 2, strlen(mark + 2));
}

START_TEST(any_arguments) {
  const struct arguments *a = &arguments[_i];
  given g = {0};
  uint64_t seed = 88172645463325252u;
  for (const struct form *f = forms; f < forms + NUM_FORMS; f++)
    for (size_t piece = 0; piece < 4; piece++) {
      char text[256] = "";
      strcat(strcat(strcat(text, f->before), a->text), f->behind);
      take_apart(f->calls, text, strlen(text), piece, &seed, &g);
      put(&g.all, "", 1);
      if (g.num_calls != (a->want != NULL) || g.calls != a->whole) ck_abort_msg("%s: %s", text, g.all.data);
      if (a->want && !is_given(&g, a->want)) ck_abort_msg("%s: %s", text, g.all.data);
      if (!a->want && f->calls != CHAT_CALLS_CHANNELS && strcmp(g.all.data, text) != 0)
        ck_abort_msg("%s as a text: %s", text, g.all.data);
      if (!a->want && f->calls == CHAT_CALLS_CHANNELS && strcmp(g.all.data, a->text) != 0)
        ck_abort_msg("%s as a text: %s", text, g.all.data);
    }
  free_given(&g);
}
END_TEST

/* Nesting goes on as far as tri_json reads it. */
START_TEST(deep) {
  enum { MOST = 63 };
  given g = {0};
  uint64_t seed = 1;
  for (int depth = MOST; depth <= MOST + 1; depth++) {
    char text[512] = "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":";
    for (int i = 1; i < depth; i++) strcat(text, "[");
    for (int i = 1; i < depth; i++) strcat(text, "]");
    strcat(text, "}}</tool_call>");
    take_apart(CHAT_CALLS_HERMES, text, strlen(text), 3, &seed, &g);
    ck_assert_uint_eq(g.num_calls, 1);
    ck_assert(g.calls == (depth == MOST));
  }
  free_given(&g);
}
END_TEST

#define HERMES(arguments) "<tool_call>{\"name\":\"f\",\"arguments\":" arguments "}</tool_call>"
#define CHANNELS(arguments) "<|channel|>commentary to=functions.f<|message|>" arguments "<|call|>"
#define TAG(key, value) "<parameter=" key ">" value "</parameter>"
#define TAGS(parameters) "<tool_call><function=f>" parameters "</function></tool_call>"

/* Arguments that are no object, and calls around arguments that are one. ~: a call is not whole. */
START_TEST(calls) {
  static const struct {
    chat_calls calls;
    const char *text, *want;
  } cases[] = {
      {CHAT_CALLS_HERMES, HERMES("5"), HERMES("5")},
      {CHAT_CALLS_HERMES, HERMES("true"), HERMES("true")},
      {CHAT_CALLS_HERMES, HERMES("nul"), HERMES("nul")},
      {CHAT_CALLS_HERMES, HERMES("\"[1]\""), HERMES("\"[1]\"")},
      {CHAT_CALLS_HERMES, HERMES("\"{\\\"a\\\":NaN}\""), HERMES("\"{\\\"a\\\":NaN}\"")},
      {CHAT_CALLS_HERMES, HERMES("\"{\\\"a\\\":1,\\\"a\\\":2}\""), "<f {\"a\":1,\"a\":2}>"},
      {CHAT_CALLS_HERMES, HERMES("{}") "x" HERMES("{,}"), "<f {}>x" HERMES("{,}")},
      {CHAT_CALLS_HERMES, HERMES("{,}") HERMES("{}"), HERMES("{,}") "<f {}>"},
      {CHAT_CALLS_HERMES, HERMES("{\"a\":1 2}") " x " HERMES("{}"), "<f {\"a\":1 }>2}}</tool_call> x <f {}>~"},
      {CHAT_CALLS_HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1</tool_call>\nx", "<f {\"a\":1}>\nx~"},
      {CHAT_CALLS_HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}, \"x\" y", "<f {}>, \"x\" y"},
      {CHAT_CALLS_HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{}, \"x\": ", "<f {}>, \"x\": ~"},
      {CHAT_CALLS_HERMES, "<tool_call>{\"arguments\":{\"a\":1,},\"name\":\"f\"}",
       "<tool_call>{\"arguments\":{\"a\":1,},\"name\":\"f\"}"},
      {CHAT_CALLS_HERMES, "<tool_call>{\"arguments\":{},\"name\":\"f\",\"x\" y", "<f {}>,\"x\" y"},
      /* an answer that ends in a call */
      {CHAT_CALLS_HERMES, HERMES("{}") "<tool_call>{\"name\":\"f\"", "<f {}><tool_call>{\"name\":\"f\"~"},
      {CHAT_CALLS_HERMES, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[\"x\\", "<f {\"a\":[\"x\"]}>\\~"},
      /* arguments that come twice: the first are taken */
      {CHAT_CALLS_HERMES, HERMES("{\"a\":1},\"parameters\":{\"a\":2},\"arguments\":{}"), "<f {\"a\":1}>"},
      {CHAT_CALLS_HERMES, HERMES("null,\"arguments\":{\"a\":2}"), "<f {}>"},
      {CHAT_CALLS_MISTRAL, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\",\"arguments\":{,}}]",
       "<f {}>, {\"name\":\"g\",\"arguments\":{,}}]"},
      {CHAT_CALLS_MISTRAL, "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"a\":1]", "<f {\"a\":1}>]~"},
      {CHAT_CALLS_CHANNELS, CHANNELS("[1]"), "[1]"},
      {CHAT_CALLS_CHANNELS, CHANNELS("null"), "<f {}>"},
      {CHAT_CALLS_CHANNELS, CHANNELS("\"{}\""), "<f {}>"},
      {CHAT_CALLS_CHANNELS, CHANNELS("\"{\""), "\"{\""},
      {CHAT_CALLS_CHANNELS, CHANNELS("{} and more"), "<f {}>and more"},
      {CHAT_CALLS_CHANNELS, CHANNELS("{\"a\":1, more"), "<f {\"a\":1}>, more~"},
      {CHAT_CALLS_CHANNELS, CHANNELS("{\"a\":\"x"), "<f {\"a\":\"x\"}>~"},
      {CHAT_CALLS_CHANNELS, CHANNELS(" {\"a\":1}\n"), "<f {\"a\":1}>"},
      {CHAT_CALLS_CHANNELS, CHANNELS("{,}") "<|start|>assistant" CHANNELS("{}"), "{,}<f {}>"},
      {CHAT_CALLS_CHANNELS, CHANNELS("{}") "<|start|>assistant<|channel|>commentary to=functions.f<|message|>",
       "<f {}>~"},
      {CHAT_CALLS_CHANNELS, CHANNELS("{}") "<|start|>assistant<|channel|>commentary to=functions.f<|message|>{\"",
       "<f {}>{\"~"},
      /* parameters that come twice: the first stays */
      {CHAT_CALLS_TAGS, TAGS(TAG("a", "1") TAG("a", "2")), "<f {\"a\": 1}>"},
      {CHAT_CALLS_TAGS, TAGS(TAG("a", "1") TAG("b", "x") TAG("a", "\"\"") TAG("aa", "2")),
       "<f {\"a\": 1, \"b\": \"x\", \"aa\": 2}>"},
      {CHAT_CALLS_TAGS, TAGS(TAG("a", "{\"c\":1,\"c\":2}")), "<f {\"a\": {\"c\":1,\"c\":2}}>"},
      {CHAT_CALLS_TAGS, TAGS(TAG("a", "NaN") TAG("b", "{'c': 1}")), "<f {\"a\": \"NaN\", \"b\": \"{'c': 1}\"}>"},
      {CHAT_CALLS_TAGS, "<function=f>" TAG("a", "1") "\n" TAG("b", "x"), "<f {\"a\": 1, \"b\": \"x\"}>"},
      {CHAT_CALLS_TAGS, "<function=f>" TAG("a", "1") "\n<parameter=b>see " TAGS("") " x",
       "<f {\"a\": 1}><parameter=b>see " TAGS("") " x~"},
  };
  given g = {0};
  uint64_t seed = 88172645463325252u;
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
    for (size_t piece = 0; piece < 4; piece++) {
      take_apart(cases[k].calls, cases[k].text, strlen(cases[k].text), piece, &seed, &g);
      put(&g.all, "~", g.num_calls && !g.calls);
      put(&g.all, "", 1);
      if (strcmp(g.all.data, cases[k].want) != 0)
        ck_abort_msg("%s: %s, not %s", cases[k].text, g.all.data, cases[k].want);
    }
  free_given(&g);
}
END_TEST

/* A call of channels that has nothing where its arguments stand has none, if the model has ended it there. */
START_TEST(nothing_as_arguments) {
  static const char text[] = "<|channel|>commentary to=functions.f<|message|>";
  given g = {0};
  for (int by_model = 0; by_model < 2; by_model++) {
    chat_answer *a = begin(CHAT_CALLS_CHANNELS, &g);
    ck_assert_int_eq(chat_answer_push(a, text, sizeof text - 1), TRI_OK);
    ck_assert_int_eq(chat_answer_finish(a, by_model), TRI_OK);
    end_call(&g);
    ck_assert_uint_eq(g.num_calls, by_model);
    ck_assert_uint_eq(g.all.len, by_model ? strlen("<f {}>") : 0);
    ck_assert(chat_answer_calls(a) == by_model);
    chat_answer_free(a);
  }
  free_given(&g);
}
END_TEST

/* ---- streams ---- */

/* Objects whose every byte is the last one for once. */
static const char *const objects[] = {
    "{}",
    "{ \"a\" : { } , \"b\" : [ ] }",
    "{\"path\": \"/tmp/x\", \"content\": \"line\\n\\\"quoted\\\" {[}] \\\\ \\u00e9 \\ud83d\\ude00 \xc3\xa9 "
    "\xf0\x9f\x98\x80 end\"}",
    "{\"a\": [1, -2.50, 0, 1e5, -0.1E-22, 3e+7], \"b\": [true, false, null, \"\"], \"c\": {\"d\": {\"e\": [[]]}}}",
};
enum { NUM_OBJECTS = sizeof objects / sizeof *objects };

/* Returns whether quotes and brackets complete what has come of an object, and something is in it. */
static bool may_be_completed(const char *s, size_t n) {
  char text[512], open[64];
  size_t depth = 0, len = n;
  bool in_string = false, something = false;
  memcpy(text, s, n);
  for (size_t i = 0; i < n; i++) {
    if (in_string) {
      in_string = s[i] != '"';
      i += s[i] == '\\';
    } else if (s[i] == '{' || s[i] == '[') {
      open[depth++] = s[i];
    } else if (s[i] == '}' || s[i] == ']') {
      depth--;
    } else {
      in_string = s[i] == '"';
    }
    something = something || (i && !strchr(" \t\r\n", s[i]));
  }
  if (!something) return false;
  if (in_string) text[len++] = '"';
  while (depth) text[len++] = open[--depth] == '{' ? '}' : ']';
  return is_object(text, len);
}

/* Arguments come as soon as they are certain, with each byte that may be their last one. */
START_TEST(arguments_come) {
  const struct form *f = &forms[_i % NUM_FORMS];
  const char *object = objects[_i / NUM_FORMS];
  given g = {0};
  chat_answer *a = begin(f->calls, &g);
  size_t certain = 0;
  ck_assert_int_eq(chat_answer_push(a, f->before, strlen(f->before)), TRI_OK);
  ck_assert_uint_eq(g.num_calls, 0);
  for (size_t n = 1; n <= strlen(object); n++) {
    ck_assert_int_eq(chat_answer_push(a, object + n - 1, 1), TRI_OK);
    if (may_be_completed(object, n)) certain = n;
    if (g.num_calls != (certain > 0) || g.arguments.len != certain ||
        (certain && memcmp(g.arguments.data, object, certain) != 0))
      ck_abort_msg("of %.*s came %.*s", (int)n, object, (int)g.arguments.len, g.arguments.data);
  }
  ck_assert_uint_eq(certain, strlen(object));
  chat_answer_free(a);
  free_given(&g);
}
END_TEST

/* Parameters in tags come one by one, with the beginning of the next. */
START_TEST(parameters_come) {
  static const char *const pieces[] = {"<tool_call><function=f>" TAG("a", "1"), "<parameter=b>", TAG("c", "2"),
                                       "</parameter><parameter=d>", "x</parameter></function>"};
  static const char *const after[] = {"", "{\"a\": 1", "{\"a\": 1", "{\"a\": 1, \"b\": \"<parameter=c>2</parameter>\"",
                                      "{\"a\": 1, \"b\": \"<parameter=c>2</parameter>\", \"d\": \"x\"}"};
  given g = {0};
  chat_answer *a = begin(CHAT_CALLS_TAGS, &g);
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    ck_assert_int_eq(chat_answer_push(a, pieces[i], strlen(pieces[i])), TRI_OK);
    if (g.arguments.len != strlen(after[i]) || (*after[i] && memcmp(g.arguments.data, after[i], g.arguments.len) != 0))
      ck_abort_msg("piece %zu: %.*s", i, (int)g.arguments.len, g.arguments.data);
  }
  chat_answer_free(a);
  free_given(&g);
}
END_TEST

static size_t without_blanks(char *s, size_t n) {
  size_t len = 0;
  for (size_t i = 0; i < n; i++)
    if (!strchr(" \t\r\n", s[i]) || !s[i]) s[len++] = s[i];
  return len;
}

/* Returns whether a call and the text behind it have all bytes of `s`: arguments, what completes them, then text. */
static bool has_all(const given *g, const char *s, size_t n) {
  size_t same = 0;
  char rest[512], text[512];
  while (same < n && same < g->arguments.len && s[same] == g->arguments.data[same]) same++;
  for (size_t k = same + 1; k--;) {
    memcpy(rest, s + k, n - k);
    memcpy(text, g->text.data ? g->text.data : "", g->text.len);
    size_t len = without_blanks(rest, n - k);
    bool completes = strspn(g->arguments.data + k, "\"]}") >= g->arguments.len - k;
    if (completes && len == without_blanks(text, g->text.len) && !memcmp(rest, text, len)) return true;
  }
  return false;
}

/* A call that ends at any byte, or goes on there as none does, loses nothing. */
START_TEST(nothing_is_lost) {
  static const char *const tails[] = {"", "@ no JSON", "\n\x01"};
  const struct form *f = &forms[_i % NUM_FORMS];
  const char *object = objects[_i / NUM_FORMS];
  given g = {0};
  uint64_t seed = 88172645463325252u;
  for (size_t n = 0; n <= strlen(object); n++)
    for (size_t t = 0; t < sizeof tails / sizeof *tails; t++) {
      char text[512] = "";
      size_t before = strlen(f->before);
      strncat(strcat(text, f->before), object, n);
      strcat(text, tails[t]);
      take_apart(f->calls, text, strlen(text), n % 4, &seed, &g);
      put(&g.arguments, "", 1);
      g.arguments.len--;
      bool all = g.num_calls == 1 && has_all(&g, text + before, strlen(text) - before);
      if (!g.num_calls) {
        const char *want = f->calls == CHAT_CALLS_CHANNELS ? text + before : text;
        while (f->calls == CHAT_CALLS_CHANNELS && *want == '\n') want++;
        all = g.text.len == strlen(want) && !memcmp(g.text.data ? g.text.data : "", want, g.text.len);
      }
      if (!all) ck_abort_msg("%s: %.*s", text, (int)g.all.len, g.all.data);
      if (g.calls && n < strlen(object)) ck_abort_msg("%s: a whole call", text);
    }
  free_given(&g);
}
END_TEST

/* ---- mutations ---- */

static const struct {
  chat_calls calls;
  const char *text;
} seeds[] = {
    {CHAT_CALLS_HERMES, "So:\n" HERMES("{\"a\": [1, \"}\\\"\"], \"b\": {\"a\": null}}") "\n" HERMES("{}")},
    {CHAT_CALLS_HERMES, HERMES("\"{\\\"a\\\": 1, \\\"b\\\": 2}\"") HERMES("null")},
    {CHAT_CALLS_HERMES, HERMES("{\"a\": \"\\ud83d\\ude00 \xc3\xa9\", \"b\": -1.5e3, \"c\": [true]}")},
    {CHAT_CALLS_MISTRAL, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}, {\"name\": \"g\"}]"},
    {CHAT_CALLS_MISTRAL, "[{\"name\": \"f\", \"arguments\": {\"a\": 1, \"b\": \"x\"}}]"},
    {CHAT_CALLS_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"a\": 1.5e3, \"b\": [{}]}[TOOL_CALLS]g{}"},
    {CHAT_CALLS_LLAMA, "{\"name\": \"f\", \"parameters\": {\"a\": \"x\"}}; {\"name\": \"g\", \"parameters\": {}}"},
    {CHAT_CALLS_LLAMA, "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": {\"b\": 1}}}"},
    {CHAT_CALLS_FUNCTION, "<function=f>{\"a\": 1, \"b\": \"<\"}</function> <function=g>{}</function>"},
    {CHAT_CALLS_TAGS, "Yes.\n" TAGS(TAG("a", "\n1\n") TAG("b", "\n{\"a\": 1}\n") TAG("a", "x")) "\n" TAGS("")},
    {CHAT_CALLS_TAGS, "<function=f>\n<parameter=a>\nx\n<parameter=a>\n3\n</function>\n<function=g></function>"},
    {CHAT_CALLS_CHANNELS, CHANNELS("{\"a\": 1, \"b\": \"}\"}") "<|start|>assistant" CHANNELS("{}")},
};

enum { MOST_BYTES = 512 };

/* Changes a text at random: a byte goes, comes, becomes another one, or a part comes twice. */
static size_t mutate(char *text, size_t n, uint64_t *seed) {
  static const char bytes[] = "{}[]\"'\\,:<>/=\n 01aefn-\xc3";
  size_t at = draw(seed) % n, len = 1 + draw(seed) % 12;
  char other = bytes[draw(seed) % (sizeof bytes - 1)];
  if (len > n - at) len = n - at;
  switch (draw(seed) % 4) {
  case 0:
    if (n == len) return n;
    memmove(text + at, text + at + len, n - at - len);
    return n - len;
  case 1: text[at] = other; return n;
  case 2: len = 1; break;
  }
  if (n + len > MOST_BYTES) return n;
  memmove(text + at + len, text + at, n - at);
  if (len == 1) text[at] = other;
  return n + len;
}

START_TEST(mutations) {
  enum { ROUNDS = 5000, LEAST_CALLS = ROUNDS / 20 };
  given whole = {0}, pieces = {0};
  uint64_t seed = 2463534242u + (uint64_t)_i;
  unsigned num_calls = 0;
  for (int round = 0; round < ROUNDS; round++) {
    char text[MOST_BYTES];
    size_t n = strlen(seeds[_i].text);
    memcpy(text, seeds[_i].text, n);
    for (int k = 0; k < round % 4; k++) n = mutate(text, n, &seed);
    take_apart(seeds[_i].calls, text, n, 0, &seed, &whole);
    take_apart(seeds[_i].calls, text, n, 1 + draw(&seed) % 9, &seed, &pieces);
    num_calls += whole.num_calls;
    if (whole.all.len != pieces.all.len ||
        (whole.all.len && memcmp(whole.all.data, pieces.all.data, whole.all.len) != 0))
      ck_abort_msg("%.*s: %.*s and in pieces %.*s", (int)n, text, (int)whole.all.len, whole.all.data,
                   (int)pieces.all.len, pieces.all.data);
    if (whole.calls != pieces.calls) ck_abort_msg("%.*s: whole or not", (int)n, text);
  }
  ck_assert_uint_ge(num_calls, LEAST_CALLS);
  free_given(&whole);
  free_given(&pieces);
}
END_TEST

Suite *suite_chat_calls(void) {
  Suite *s = suite_create("chat_calls");
  TCase *c = tcase_create("arguments");
  tcase_add_loop_test(c, any_arguments, 0, sizeof arguments / sizeof *arguments);
  tcase_add_test(c, deep);
  tcase_add_test(c, calls);
  tcase_add_test(c, nothing_as_arguments);
  tcase_add_loop_test(c, arguments_come, 0, NUM_FORMS * NUM_OBJECTS);
  tcase_add_test(c, parameters_come);
  tcase_add_loop_test(c, nothing_is_lost, 0, NUM_FORMS * NUM_OBJECTS);
  tcase_add_loop_test(c, mutations, 0, sizeof seeds / sizeof *seeds);
  suite_add_tcase(s, c);
  return s;
}
