/* SPDX-License-Identifier: Apache-2.0 */
/* A template does not say what it takes: content as a text or as parts, arguments as an object or as its text, roles,
 * null calls. It is therefore rendered with small conversations when it is loaded, and a word in them is looked for in
 * what comes out. The form of calls and the developer role are looked for in its source. What cannot be found out so
 * (members that are null) is tried a second time when a request fails.
 *
 * A model may have a second template, for requests with tools; each has its own form. */
#include "client/chat/chat_template.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/gguf_files.h"
#include "client/chat/chat_messages.h"
#include "base/mem.h"

enum { MOST_CONFIG = 16 << 20, NUM_SPECIAL = 7, MOST_VARIABLES = 64 };

static const char *const special_names[NUM_SPECIAL] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                       "pad_token", "cls_token", "mask_token"};

/* One of a model's templates. */
struct form {
  tri_jinja *jinja; /* NULL: there is none */
  chat_form form;
  chat_calls calls;
};

struct chat_template {
  struct form plain, with_tools;
  char *special[NUM_SPECIAL]; /* NULL: the model has none */
};

/* ---- what a template can do ---- */

static bool contains(const tri_buf *text, const char *word) {
  return text->len && memmem(text->data, text->len, word, strlen(word)) != NULL;
}

/* Renders messages, and a tool where `tools` is not NULL. False: the template fails. */
static bool probe(const tri_jinja *t, const char *messages, const char *tools, tri_jinja_output *out) {
  tri_json_doc *doc = NULL, *tools_doc = NULL;
  if (tri_json_parse(messages, strlen(messages), &doc, NULL) != TRI_OK) return false;
  if (tools && tri_json_parse(tools, strlen(tools), &tools_doc, NULL) != TRI_OK) {
    tri_json_free(doc);
    return false;
  }
  tri_jinja_variable v[] = {{.name = "messages", .json = tri_json_root(doc), .soft_nulls = true},
                            {.name = "bos_token", .text = ""},
                            {.name = "eos_token", .text = ""},
                            {.name = "tools", .json = tri_json_root(tools_doc)}};
  tri_jinja_input in = {.variables = v, .num_variables = tools ? 4 : 3};
  bool fine = tri_jinja_render(t, &in, out, NULL) == TRI_OK;
  tri_json_free(doc);
  tri_json_free(tools_doc);
  return fine;
}

/* Returns whether a template shows the arguments of a call, whose JSON is `arguments`, by a word of them, and does not
 * show them as Python writes an object. Some want a content, or an answer of the tool. */
static bool shows_arguments(const tri_jinja *t, const char *arguments, const char *word, tri_jinja_output *o) {
  static const char *const contents[] = {"null", "\"\""};
  static const char *const ends[] = {"", ",{\"role\":\"tool\",\"tool_call_id\":\"abcdef123\",\"name\":\"f\","
                                         "\"content\":\"r\"}"};
  static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"\","
                              "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]";
  for (int i = 0; i < 4; i++) {
    char messages[512];
    snprintf(messages, sizeof messages,
             "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":%s,\"tool_calls\":["
             "{\"id\":\"abcdef123\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":%s}}]}%s]",
             contents[i % 2], arguments, ends[i / 2]);
    if (probe(t, messages, tools, o) && contains(&o->text, word) && !contains(&o->text, "'PROBE'")) return true;
  }
  return false;
}

/* Returns whether a turn is shown whose calls are null: some templates take it for one with calls, and show nothing. */
static bool takes_null_calls(const tri_jinja *t, tri_jinja_output *o) {
  static const char *const contents[] = {"\"PROBE\"", "[{\"type\":\"text\",\"text\":\"PROBE\"}]"};
  for (int i = 0; i < 2; i++) {
    char messages[256];
    snprintf(messages, sizeof messages,
             "[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":%s,\"tool_calls\":null}]",
             contents[i]);
    if (probe(t, messages, NULL, o) && contains(&o->text, "PROBE")) return true;
  }
  return false;
}

/* Finds out by what becomes of a word whether content may be a text, or a list of parts, and arguments of calls an
 * object: a list or an object that is printed as it is has Python's quotes. */
static void find_form(const tri_jinja *t, const char *source, size_t len, chat_form *out) {
  tri_jinja_output o = {0};
  bool text = probe(t, "[{\"role\":\"user\",\"content\":\"PROBE\"}]", NULL, &o) && contains(&o.text, "PROBE");
  bool parts = probe(t, "[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"PROBE\"}]}]", NULL, &o) &&
               contains(&o.text, "PROBE") && !contains(&o.text, "'PROBE'") && !contains(&o.text, "\"PROBE\"");
  bool object = shows_arguments(t, "{\"PROBE\":\"P\"}", "PROBE", &o);
  *out = (chat_form){.takes_parts = parts,
                     .text_arguments =
                         !object && shows_arguments(t, "\"{\\\"PROBE\\\": \\\"P\\\"}\"", "{\"PROBE\": \"P\"}", &o),
                     .null_calls = takes_null_calls(t, &o),
                     .takes_text = text || !parts,
                     .names_developer = memmem(source, len, "developer", 9) != NULL};
  tri_jinja_output_free(&o);
}

/* Finds the form of calls by the markers that a template writes, or tells the model to write. Of those with <tool_call>
 * some do not have JSON after it, and one of them is unknown here. */
static chat_calls find_calls(const char *source, size_t len) {
  static const struct {
    const char *word;
    chat_calls calls;
  } rows[] = {{"<|channel|>", CHAT_CALLS_CHANNELS}, {"<parameter=", CHAT_CALLS_TAGS},
              {"<arg_key>", CHAT_CALLS_NONE},       {"<tool_call>", CHAT_CALLS_HERMES},
              {"[TOOL_CALLS]", CHAT_CALLS_MISTRAL}, {"<function=", CHAT_CALLS_FUNCTION},
              {"<|python_tag|>", CHAT_CALLS_LLAMA}, {"\"parameters\": dictionary", CHAT_CALLS_LLAMA}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (memmem(source, len, rows[i].word, strlen(rows[i].word))) return rows[i].calls;
  return CHAT_CALLS_NONE;
}

static tri_status make_form(const char *source, size_t len, struct form *out, tri_error *err) {
  TRI_CHECK(tri_jinja_parse(source, len, &out->jinja, err));
  find_form(out->jinja, source, len, &out->form);
  out->calls = find_calls(source, len);
  return TRI_OK;
}

/* ---- a model's files ---- */

/* A special token is a text, or an object with its content. */
static tri_status read_special(chat_template *t, const tri_json *config) {
  for (int i = 0; i < NUM_SPECIAL; i++) {
    const char *s = tri_json_get_str(config, special_names[i]);
    if (!s) s = tri_json_get_str(tri_json_get(config, special_names[i]), "content");
    if (s && !t->special[i] && !(t->special[i] = tri_strdup(s))) return TRI_NO_MEMORY;
  }
  return TRI_OK;
}

static tri_status read_named(chat_template *t, const tri_json *named, tri_error *err) {
  const char *name = tri_json_get_str(named, "name");
  size_t len;
  const char *source = tri_json_as_str(tri_json_get(named, "template"), &len);
  if (!name || !source)
    return tri_fail(err, TRI_CORRUPT, "chat_template", "an entry of chat_template has no name or no template");
  if (!strcmp(name, "default")) return make_form(source, len, &t->plain, err);
  return strcmp(name, "tool_use") ? TRI_OK : make_form(source, len, &t->with_tools, err);
}

static tri_status read_templates(chat_template *t, const tri_json *templates, tri_error *err) {
  size_t len;
  const char *source = tri_json_as_str(templates, &len);
  if (source) return make_form(source, len, &t->plain, err);
  for (size_t i = 0; i < tri_json_size(templates); i++) TRI_CHECK(read_named(t, tri_json_at(templates, i), err));
  return t->plain.jinja ? TRI_OK : TRI_NOT_FOUND;
}

/* Reads tokenizer_config.json: the special tokens, and the templates unless there is one. */
static tri_status read_config(chat_template *t, const char *dir, tri_error *err) {
  char path[PATH_MAX];
  tri_json_doc *doc = NULL;
  snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
  tri_status st = tri_json_read_file(path, MOST_CONFIG, &doc, err);
  if (st == TRI_OK) st = read_special(t, tri_json_root(doc));
  if (st == TRI_OK && !t->plain.jinja) st = read_templates(t, tri_json_get(tri_json_root(doc), "chat_template"), err);
  tri_json_free(doc);
  return st;
}

/* Reads special_tokens_map.json, where older folders have what the other file lacks. */
static tri_status read_map(chat_template *t, const char *dir, tri_error *err) {
  char path[PATH_MAX];
  tri_json_doc *doc = NULL;
  snprintf(path, sizeof path, "%s/special_tokens_map.json", dir);
  tri_status st = tri_json_read_file(path, MOST_CONFIG, &doc, err);
  if (st == TRI_OK) st = read_special(t, tri_json_root(doc));
  tri_json_free(doc);
  return st == TRI_NOT_FOUND ? TRI_OK : st;
}

static tri_status read_file(chat_template *t, const char *path, tri_error *err) {
  char *source = NULL;
  size_t len;
  TRI_CHECK(tri_json_read_text(path, TRI_JINJA_MOST_SOURCE, &source, &len, err));
  tri_status st = make_form(source, len, &t->plain, err);
  if (st != TRI_OK) tri_error_in_file(err, path);
  tri_free(source);
  return st;
}

/* ---- a GGUF file ---- */

/* The text of the token whose id a key has. */
static tri_status take_special(chat_template *t, int number, const tri_gguf *g, const char *key) {
  const tri_gguf_value *tokens = tri_gguf_find(g, "tokenizer.ggml.tokens");
  uint64_t id;
  const char *s = NULL;
  size_t len = 0, at = 0;
  if (!tokens || !tokens->is_array || tokens->type != TRI_GGUF_STRING) return TRI_OK;
  if (!tri_gguf_uint(g, key, &id) || id >= tokens->count) return TRI_OK;
  for (uint64_t i = 0; i <= id; i++) tri_gguf_next_text(tokens, &at, &s, &len);
  t->special[number] = tri_strndup(s, len);
  return t->special[number] ? TRI_OK : TRI_NO_MEMORY;
}

/* special_names[i] is "bos_token", and the key of its id "tokenizer.ggml.bos_token_id". */
static tri_status take_all_special(chat_template *t, const tri_gguf *g) {
  char key[64];
  for (int i = 0; i < NUM_SPECIAL; i++) {
    const char *name = special_names[i];
    if (!strcmp(name, "pad_token")) name = "padding_token";
    if (!strcmp(name, "unk_token")) name = "unknown_token";
    snprintf(key, sizeof key, "tokenizer.ggml.%s_id", name);
    TRI_CHECK(take_special(t, i, g, key));
  }
  return TRI_OK;
}

static tri_status take_form(const tri_gguf *g, const char *key, struct form *out, tri_error *err) {
  const char *source;
  size_t len;
  return tri_gguf_text(g, key, &source, &len) ? make_form(source, len, out, err) : TRI_OK;
}

/* file: takes the place of the template; NULL: the keys have it. */
static tri_status load_gguf(chat_template *t, const tri_gguf *g, const char *path, const char *file, tri_error *err) {
  static const char key[] = "tokenizer.chat_template";
  TRI_CHECK(take_all_special(t, g));
  if (file) return read_file(t, file, err);
  tri_error why = {0};
  tri_status st = take_form(g, key, &t->plain, &why);
  if (st == TRI_OK && !t->plain.jinja) st = take_form(g, "tokenizer.chat_template.default", &t->plain, &why);
  if (st == TRI_OK) st = take_form(g, "tokenizer.chat_template.tool_use", &t->with_tools, &why);
  if (st == TRI_OK && t->plain.jinja) return TRI_OK;
  if (st == TRI_OK)
    return tri_fail(err, TRI_NOT_FOUND, "chat_template", "the model in %.200s has no chat template (%s)", path, key);
  tri_error_in_file(&why, path);
  return tri_fail(err, st, why.field, "%s", why.message[0] ? why.message : tri_status_text(st));
}

/* The order of sources: a file that was named, chat_template.jinja, tokenizer_config.json. The special tokens come from
 * the last one and from special_tokens_map.json in any case. */
static tri_status load(chat_template *t, const char *dir, const char *file, tri_error *err) {
  char path[PATH_MAX];
  tri_error why = {0};
  tri_gguf *g;
  TRI_CHECK(tri_gguf_files_open(dir, path, &g, err));
  if (g) {
    tri_status given = load_gguf(t, g, path, file, err);
    tri_gguf_close(g);
    return given;
  }
  snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
  tri_status st = read_file(t, file ? file : path, &why);
  if (st == TRI_OK || (st == TRI_NOT_FOUND && !file)) {
    tri_error_clear(&why);
    st = read_config(t, dir, &why);
    if (st == TRI_OK || (st == TRI_NOT_FOUND && t->plain.jinja)) return read_map(t, dir, err);
    if (st == TRI_NOT_FOUND)
      return tri_fail(err, st, "chat_template",
                      "the model in %.200s has no chat template, neither chat_template.jinja nor one in "
                      "tokenizer_config.json",
                      dir);
  }
  return tri_fail(err, st, why.field, "%s", why.message[0] ? why.message : tri_status_text(st));
}

/* Gives a template that was made, or frees it. */
static tri_status give(chat_template *t, tri_status st, chat_template **out) {
  if (st == TRI_OK)
    *out = t;
  else
    chat_template_free(t);
  return st;
}

tri_status chat_template_load(const char *model_dir, const char *file, chat_template **out, tri_error *err) {
  chat_template *t = tri_calloc(1, sizeof *t);
  return give(t, t ? load(t, model_dir, file, err) : TRI_NO_MEMORY, out);
}

tri_status chat_template_make(const char *source, size_t len, chat_template **out, tri_error *err) {
  chat_template *t = tri_calloc(1, sizeof *t);
  return give(t, t ? make_form(source, len, &t->plain, err) : TRI_NO_MEMORY, out);
}

void chat_template_free(chat_template *t) {
  if (!t) return;
  tri_jinja_free(t->plain.jinja);
  tri_jinja_free(t->with_tools.jinja);
  for (int i = 0; i < NUM_SPECIAL; i++) tri_free(t->special[i]);
  tri_free(t);
}

chat_calls chat_template_calls(const chat_template *t) {
  return t->with_tools.jinja ? t->with_tools.calls : t->plain.calls;
}

/* ---- a prompt ---- */

struct variables {
  tri_jinja_variable list[MOST_VARIABLES];
  size_t n;
};

static void add(struct variables *v, const char *name, const tri_json *json, const char *text) {
  v->list[v->n++] = (tri_jinja_variable){.name = name, .json = json, .text = text};
}

/* One that comes from the client. */
static void add_foreign(struct variables *v, const char *name, const tri_json *json) {
  v->list[v->n++] = (tri_jinja_variable){.name = name, .json = json, .foreign = true};
}

/* A variable of the client's does not replace one of the request's. */
static tri_status add_own(void *ctx, const char *key, const tri_json *value) {
  struct variables *v = ctx;
  if (v->n == MOST_VARIABLES) return TRI_OVERFLOW;
  for (size_t i = 0; i < v->n; i++)
    if (!strcmp(v->list[i].name, key)) return TRI_INVALID_ARGUMENT;
  add_foreign(v, key, value);
  return TRI_OK;
}

/* The variables of transformers' apply_chat_template. Values from the client are marked as foreign: their text is not
 * encoded as special tokens. */
static tri_status set_variables(const chat_template *t, const chat_request *r, const tri_json *messages,
                                const tri_json *flags, struct variables *v, tri_error *err) {
  bool has_tools = tri_json_size(r->tools) > 0;
  add_foreign(v, "messages", messages);
  v->list[0].own = "role"; /* which chat_messages_make has looked at */
  v->list[0].soft_nulls = true;
  add(v, "add_generation_prompt", tri_json_at(flags, r->add_generation_prompt), NULL);
  for (int i = 0; i < NUM_SPECIAL; i++)
    if (t->special[i]) add(v, special_names[i], NULL, t->special[i]);
  add_foreign(v, "tools", has_tools ? r->tools : NULL);
  add_foreign(v, "documents", tri_json_size(r->documents) ? r->documents : NULL);
  if (r->reasoning_effort) add_foreign(v, "reasoning_effort", r->reasoning_effort);
  tri_status st = r->kwargs ? tri_json_each(r->kwargs, add_own, v) : TRI_OK;
  if (st == TRI_OK) return st;
  return tri_fail(err, TRI_INVALID_ARGUMENT, "chat_template_kwargs",
                  "chat_template_kwargs has a name that the request has already, or more than %d", MOST_VARIABLES);
}

static tri_status check_tools(const tri_json *tools, tri_error *err) {
  tri_json_kind kind = tri_json_kind_of(tools);
  if (kind != TRI_JSON_NULL && kind != TRI_JSON_ARRAY)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "tools", "tools must be a list");
  if (tri_json_size(tools) <= CHAT_MOST_TOOLS) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, "tools", "there are %zu tools, the limit is %d", tri_json_size(tools),
                  CHAT_MOST_TOOLS);
}

static tri_status render(const chat_template *t, const chat_request *r, const struct form *form, chat_form how,
                         tri_jinja_output *out, tri_error *err) {
  static const char flags_text[] = "[false,true]";
  struct variables v = {.n = 0};
  tri_json_doc *messages = NULL, *flags = NULL;
  tri_status st;
  TRI_TRY(chat_messages_make(r->messages, r->model, &how, &messages, err));
  TRI_TRY(tri_json_parse(flags_text, sizeof flags_text - 1, &flags, err));
  TRI_TRY(set_variables(t, r, tri_json_root(messages), tri_json_root(flags), &v, err));
  tri_jinja_input in = {.variables = v.list, .num_variables = v.n, .now_s = r->now_s};
  TRI_TRY(tri_jinja_render(form->jinja, &in, out, err));
cleanup:
  tri_json_free(messages);
  tri_json_free(flags);
  return st;
}

static tri_status is_null(void *ctx, const char *key, const tri_json *value) {
  (void)ctx;
  (void)key;
  return tri_json_kind_of(value) == TRI_JSON_NULL ? TRI_ABORTED : TRI_OK;
}

/* Returns whether a message has a member that is null, or no content: some templates fail at that. */
static bool has_nulls(const tri_json *messages) {
  for (size_t i = 0; i < tri_json_size(messages); i++) {
    const tri_json *m = tri_json_at(messages, i);
    if (!tri_json_get(m, "content") || tri_json_each(m, is_null, NULL) != TRI_OK) return true;
  }
  return false;
}

tri_status chat_template_render(const chat_template *t, const chat_request *r, tri_jinja_output *out, tri_error *err) {
  bool has_tools = tri_json_size(r->tools) > 0;
  const struct form *form = has_tools && t->with_tools.jinja ? &t->with_tools : &t->plain;
  TRI_CHECK(check_tools(r->tools, err));
  tri_error first = {0};
  tri_status st = render(t, r, form, form->form, out, &first);
  if (st == TRI_INVALID_ARGUMENT && has_nulls(r->messages)) {
    chat_form how = form->form;
    how.without_nulls = true;
    if (render(t, r, form, how, out, NULL) == TRI_OK) return TRI_OK;
  }
  if (st != TRI_OK && err) *err = first;
  return st;
}
