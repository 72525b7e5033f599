/* SPDX-License-Identifier: Apache-2.0 */
/* The schema of calls is {"anyOf": [call, ...]}, a call being an object with `name`, a constant, and arguments, whose
 * schema is the tool's parameters. References within parameters are to their own document, which is now a part of
 * another one: each begins with the way to that part. Each tool's parameters are compiled once by themselves, to know
 * whether they can be kept; together they may ask for as much work as one schema. */
#include "client/openai/tool_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json_writer.h"
#include "runtime/grammar/schema.h"

/* ---- the member ---- */

tri_status oai_tool_choice_read(const tri_json *v, oai_tool_choice *out, tri_error *err) {
  static const char field[] = "tool_choice";
  const char *word = tri_json_as_str(v, NULL);
  *out = (oai_tool_choice){.kind = OAI_CHOICE_AUTO};
  if (!v) return TRI_OK;
  if (word && !strcmp(word, "none")) out->kind = OAI_CHOICE_NONE;
  if (word && !strcmp(word, "required")) out->kind = OAI_CHOICE_REQUIRED;
  if (word && (out->kind != OAI_CHOICE_AUTO || !strcmp(word, "auto"))) return TRI_OK;
  const char *type = tri_json_get_str(v, "type");
  if (type && strcmp(type, "function") != 0)
    return tri_fail(err, TRI_UNSUPPORTED, field, "tool_choice: type \"%.40s\" is not supported; \"function\" is", type);
  out->name = tri_json_as_str(tri_json_get(tri_json_get(v, "function"), "name"), &out->len);
  if (!type || !out->name)
    return tri_fail(err, TRI_INVALID_ARGUMENT, field,
                    "tool_choice must be \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": "
                    "{\"name\": NAME}}");
  out->kind = OAI_CHOICE_NAMED;
  return TRI_OK;
}

const char *oai_tool_choice_word(const oai_tool_choice *c) {
  static const char *const words[] = {[OAI_CHOICE_NONE] = "\"none\"",
                                      [OAI_CHOICE_AUTO] = "\"auto\"",
                                      [OAI_CHOICE_REQUIRED] = "\"required\"",
                                      [OAI_CHOICE_NAMED] = "by name"};
  return words[c->kind];
}

/* ---- parameters, written as a part of a document ---- */

/* The part of a schema that a value is. */
typedef enum part { PARAMETERS, SCHEMA, SCHEMAS /* a member or an element each */, DATA } part;

typedef struct writer {
  tri_buf *b;
  const char *way; /* to the parameters: before those of references */
  bool anchors;    /* there are references by name, which have none */
} writer;

typedef struct members {
  writer *w;
  part of;
  bool begun;
} members;

static void write(writer *w, const tri_json *v, part of);

static part part_of(part of, const char *key) {
  if (of == SCHEMAS || of == DATA) return of == DATA ? DATA : SCHEMA;
  if (tri_has_word("properties patternProperties $defs definitions dependentSchemas", key)) return SCHEMAS;
  return tri_has_word("const enum default examples example", key) ? DATA : SCHEMA;
}

static void write_reference(writer *w, const char *ref) {
  tri_buf whole = {0};
  bool is_own = ref[0] == '#' && (!ref[1] || ref[1] == '/');
  w->anchors = w->anchors || (ref[0] == '#' && !is_own);
  tri_text_printf(&whole, "%s%s", is_own ? w->way : "", is_own ? ref + 1 : ref);
  if (!whole.failed) tri_json_add_string(w->b, whole.data, whole.len);
  w->b->failed = w->b->failed || whole.failed;
  tri_buf_free(&whole);
}

/* Arguments are an object: of PARAMETERS the type is written already. */
static tri_status write_member(void *ctx, const char *key, const tri_json *v) {
  members *m = ctx;
  writer *w = m->w;
  const char *ref = m->of == PARAMETERS || m->of == SCHEMA ? tri_json_as_str(v, NULL) : NULL;
  if (m->of == PARAMETERS && tri_has_word("type nullable", key)) return TRI_OK;
  if (m->begun) tri_text_add(w->b, ",", 1);
  m->begun = true;
  tri_json_add_string(w->b, key, strlen(key));
  tri_text_add(w->b, ":", 1);
  if (ref && !strcmp(key, "$ref"))
    write_reference(w, ref);
  else
    write(w, v, part_of(m->of, key));
  return w->b->failed ? TRI_NO_MEMORY : TRI_OK;
}

static void write(writer *w, const tri_json *v, part of) {
  tri_json_kind kind = tri_json_kind_of(v);
  members m = {w, of, of == PARAMETERS};
  if (of == DATA || (kind != TRI_JSON_OBJECT && kind != TRI_JSON_ARRAY)) {
    tri_json_add_value(w->b, v, false);
  } else if (kind == TRI_JSON_OBJECT) {
    tri_text_printf(w->b, "{%s", of == PARAMETERS ? "\"type\":\"object\"" : "");
    if (!w->b->failed) tri_json_each(v, write_member, &m);
    tri_text_add(w->b, "}", 1);
  } else {
    tri_text_add(w->b, "[", 1);
    for (size_t i = 0; i < tri_json_size(v) && !w->b->failed; i++) {
      if (i) tri_text_add(w->b, ",", 1);
      write(w, tri_json_at(v, i), SCHEMA);
    }
    tri_text_add(w->b, "]", 1);
  }
}

/* ---- one tool ---- */

typedef struct tool {
  size_t number; /* in the list */
  const char *name;
  size_t len;
  const tri_json *parameters; /* NULL: none */
  bool strict, any;           /* any: its arguments are any object */
} tool;

static tri_status fail_at(const tool *t, tri_status st, const char *pointer, const char *why, tri_error *err) {
  char field[TRI_ERROR_FIELD];
  int n = snprintf(field, sizeof field, "tools[%zu].function.parameters", t->number);
  size_t room = sizeof field - (size_t)n - 1, len = strlen(pointer);
  if (len <= room)
    memcpy(field + n, pointer, len + 1);
  else /* its end tells more than its beginning */
    snprintf(field + n, room + 1, "...%s", pointer + len - (room - 3));
  return tri_fail(err, st, field, "%s", why);
}

static tri_status read_tool(const tri_json *list, size_t i, tool *t, tri_error *err) {
  const tri_json *function = tri_json_get(tri_json_at(list, i), "function");
  char field[48];
  *t = (tool){.number = i, .parameters = tri_json_get(function, "parameters")};
  t->name = tri_json_as_str(tri_json_get(function, "name"), &t->len);
  tri_json_as_bool(tri_json_get(function, "strict"), &t->strict);
  snprintf(field, sizeof field, "tools[%zu].function.name", i);
  if (!t->name || !t->len)
    return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s must be a text: a call must be of a function with a name",
                    field);
  if (tri_json_kind_of(t->parameters) == TRI_JSON_NULL) t->parameters = NULL;
  return TRI_OK;
}

/* Returns whether parameters can be those of a call, whose arguments are an object. */
static bool is_of_objects(const tri_json *parameters) {
  const tri_json *type = tri_json_get(parameters, "type");
  const char *word = tri_json_as_str(type, NULL);
  if (!type) return true;
  for (size_t i = 0; tri_json_kind_of(type) == TRI_JSON_ARRAY && i < tri_json_size(type) && !word; i++) {
    word = tri_json_as_str(tri_json_at(type, i), NULL);
    if (word && strcmp(word, "object") != 0) word = NULL;
  }
  return word && !strcmp(word, "object");
}

/* Finds out whether a tool's parameters can be kept. */
static tri_status look_at(tool *t, uint64_t most_work, tri_error *err) {
  const tri_schema_options options = {.most_work = most_work};
  tri_buf text = {0};
  tri_net *net = NULL;
  tri_error why = {0};
  writer w = {.b = &text, .way = "#"};
  if (!t->parameters) return TRI_OK;
  if (tri_json_kind_of(t->parameters) != TRI_JSON_OBJECT)
    return fail_at(t, TRI_INVALID_ARGUMENT, "", "parameters of a function must be a JSON Schema: an object", err);
  if (!is_of_objects(t->parameters))
    return fail_at(t, TRI_INVALID_ARGUMENT, "/type", "parameters of a function must be of the type object", err);
  write(&w, t->parameters, PARAMETERS);
  tri_status st = text.failed ? TRI_NO_MEMORY : tri_schema_compile_text(text.data, text.len, &options, &net, &why);
  if (st == TRI_OK && w.anchors)
    st = tri_fail(&why, TRI_UNSUPPORTED, "", "references by $anchor cannot be kept in parameters of a function");
  tri_net_destroy(net);
  tri_buf_free(&text);
  t->any = st != TRI_OK && !t->strict;
  if (st == TRI_OK || (t->any && st != TRI_NO_MEMORY)) return TRI_OK;
  return fail_at(t, st, why.field, why.message[0] ? why.message : tri_status_text(st), err);
}

/* Adds the schema of a tool's calls, number `branch` of them. */
static tri_status add_call(tri_buf *b, const tool *t, size_t branch, const char *arguments, tri_error *err) {
  char way[64], field[48];
  writer w = {.b = b, .way = way};
  snprintf(way, sizeof way, "#/anyOf/%zu/properties/%s", branch, arguments);
  tri_text_printf(b, "%s{\"type\":\"object\",\"properties\":{\"name\":{\"const\":", branch ? "," : "");
  size_t from = b->len;
  tri_json_add_string(b, t->name, t->len);
  snprintf(field, sizeof field, "tools[%zu].function.name", t->number);
  if (b->len - from > OAI_MAX_FORCED_NAME)
    return tri_fail(err, TRI_OUT_OF_RANGE, field, "%s has %zu bytes as JSON; allowed are %d", field, b->len - from,
                    OAI_MAX_FORCED_NAME);
  tri_text_printf(b, "},\"%s\":", arguments);
  if (t->any)
    tri_text_printf(b, "{\"type\":\"object\"}");
  else if (!t->parameters)
    tri_text_printf(b, "{\"type\":\"object\",\"additionalProperties\":false}");
  else
    write(&w, t->parameters, PARAMETERS);
  tri_text_printf(b, "},\"required\":[\"name\",\"%s\"],\"additionalProperties\":false}", arguments);
  return TRI_OK;
}

/* ---- all of them ---- */

static tri_status unknown_function(const tri_json *list, const oai_tool_choice *c, tri_error *err) {
  tri_buf names = {0};
  for (size_t i = 0; i < tri_json_size(list) && names.len < 600; i++) {
    const char *name = tri_json_get_str(tri_json_get(tri_json_at(list, i), "function"), "name");
    if (name) tri_text_printf(&names, "%s%.64s", names.len ? ", " : "", name);
  }
  tri_status st =
      tri_fail(err, TRI_INVALID_ARGUMENT, "tool_choice", "tool_choice names \"%.64s\", which tools does not have: %s",
               c->name, names.len ? names.data : "it has no functions");
  tri_buf_free(&names);
  return st;
}

static tri_status add_tool(tri_buf *b, tool *t, size_t branch, uint64_t most_work, const char *arguments,
                           tri_error *err) {
  TRI_CHECK(look_at(t, most_work, err));
  return add_call(b, t, branch, arguments, err);
}

static bool is_named(const tri_json *tool, const oai_tool_choice *c) {
  size_t len = 0;
  const char *name = tri_json_as_str(tri_json_get(tri_json_get(tool, "function"), "name"), &len);
  return name && len == c->len && !memcmp(name, c->name, len);
}

static tri_status add_named(oai_completion_request *q, const tri_json *list, const oai_tool_choice *c,
                            const char *arguments, tri_error *err) {
  tool t;
  for (size_t i = 0; i < tri_json_size(list); i++) {
    if (!is_named(tri_json_at(list, i), c)) continue;
    q->first_tool = i;
    TRI_CHECK(read_tool(list, i, &t, err));
    return add_tool(&q->schema, &t, 0, TRI_SCHEMA_MAX_WORK, arguments, err);
  }
  return unknown_function(list, c, err);
}

static tri_status add_all(oai_completion_request *q, const tri_json *list, const char *arguments, tri_error *err) {
  size_t num = tri_json_size(list);
  tool t;
  if (num > OAI_MAX_FORCED_TOOLS)
    return tri_fail(err, TRI_OUT_OF_RANGE, "tools",
                    "tools has %zu functions; with tool_choice \"required\" allowed are %d", num, OAI_MAX_FORCED_TOOLS);
  for (size_t i = 0; i < num; i++) {
    TRI_CHECK(read_tool(list, i, &t, err));
    TRI_CHECK(add_tool(&q->schema, &t, i, TRI_SCHEMA_MAX_WORK / num, arguments, err));
  }
  return TRI_OK;
}

static tri_status refuse_parser(const oai_model *model, const oai_tool_choice *c, tri_error *err) {
  return tri_fail(err, TRI_UNSUPPORTED, "tool_choice",
                  "tool_choice %s is not supported with the tool parser %s: only calls that are JSON between texts, "
                  "those of hermes and llama, can be asked for",
                  oai_tool_choice_word(c), chat_calls_name(model->calls));
}

tri_status oai_tool_choice_force(oai_chat_request *q, const oai_tool_choice *c, const oai_model *model,
                                 tri_error *err) {
  oai_completion_request *r = &q->c;
  const chat_call_frame *frame = chat_calls_frame(model->calls);
  if (!frame) return refuse_parser(model, c, err);
  if (r->schema_field)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "tool_choice",
                    "%s and tool_choice %s both say what the answer must be; one of them can", r->schema_field,
                    oai_tool_choice_word(c));
  tri_text_printf(&r->schema, "{\"anyOf\":[");
  TRI_CHECK(c->kind == OAI_CHOICE_NAMED ? add_named(r, q->chat.tools, c, frame->arguments, err)
                                        : add_all(r, q->chat.tools, frame->arguments, err));
  tri_text_printf(&r->schema, "]}");
  if (r->schema.failed) return tri_fail(err, TRI_NO_MEMORY, "tools", "out of memory");
  if (r->schema.len > OAI_MAX_SCHEMA)
    return tri_fail(err, TRI_OUT_OF_RANGE, "tools", "the schema of all tools has %zu bytes; allowed are %d",
                    r->schema.len, OAI_MAX_SCHEMA);
  r->schema_field = "tool_choice";
  r->r.json_schema = r->schema.data;
  r->r.json_schema_len = r->schema.len;
  r->r.json_begin = frame->begin;
  r->r.json_separator = frame->separator;
  r->r.json_end = frame->end;
  r->r.json_most = c->kind == OAI_CHOICE_REQUIRED && q->parallel_tool_calls ? OAI_MAX_FORCED_CALLS : 1;
  return TRI_OK;
}

/* ---- errors ---- */

/* "/anyOf/2/properties/arguments/items" is in the parameters of the third tool, of a named one in its own. */
const char *oai_tool_choice_param(const oai_completion_request *q, const char *pointer, char *out, size_t size) {
  static const char list[] = "/anyOf/", within[] = "/properties/";
  char *end;
  if (strncmp(pointer, list, sizeof list - 1) != 0) return *pointer ? "tools" : "tool_choice";
  unsigned long branch = strtoul(pointer + sizeof list - 1, &end, 10);
  const char *key = strncmp(end, within, sizeof within - 1) != 0 ? NULL : end + sizeof within - 1;
  const char *rest = key ? key + strcspn(key, "/") : "";
  snprintf(out, size, "tools[%lu].function.parameters%s", branch + (unsigned long)q->first_tool, rest);
  return out;
}
