/* SPDX-License-Identifier: Apache-2.0 */
#include "client/openai/answer_format.h"

#include <stdio.h>
#include <string.h>

#include "base/json/json_writer.h"
#include "client/openai/tool_choice.h"

static tri_status refuse_second(const oai_completion_request *q, const char *field, tri_error *err) {
  if (!q->schema_field) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s and %s both say what the answer must be; one of them can",
                  q->schema_field, field);
}

/* field: a constant. */
static tri_status set_object(oai_completion_request *q, const char *field, tri_error *err) {
  TRI_CHECK(refuse_second(q, field, err));
  q->schema_field = field;
  q->r.json_object = true;
  return TRI_OK;
}

/* Takes a schema, or, as vLLM does, a text of one. The coordinator says what is wrong with it. */
static tri_status set_schema(oai_completion_request *q, const char *field, const tri_json *v, tri_error *err) {
  size_t len;
  tri_json_kind kind = tri_json_kind_of(v);
  const char *text = tri_json_as_str(v, &len);
  if (kind != TRI_JSON_OBJECT && kind != TRI_JSON_BOOL && !text)
    return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s must be a JSON Schema: an object", field);
  TRI_CHECK(refuse_second(q, field, err));
  if (text)
    tri_text_add(&q->schema, text, len);
  else
    tri_json_add_value(&q->schema, v, false);
  if (q->schema.failed) return tri_fail(err, TRI_NO_MEMORY, field, "out of memory");
  if (q->schema.len > OAI_MAX_SCHEMA)
    return tri_fail(err, TRI_OUT_OF_RANGE, field, "%s has %zu bytes; allowed are %d", field, q->schema.len,
                    OAI_MAX_SCHEMA);
  q->schema_field = field;
  q->r.json_schema = q->schema.len ? q->schema.data : "";
  q->r.json_schema_len = q->schema.len;
  return TRI_OK;
}

/* Names a member of an object that is not known: an answer that keeps no such wish would be taken for one that does.
 * null, false, and what is empty ask for nothing. */
typedef struct known {
  const char *field;        /* of the object */
  const char *const *names; /* of members, NULL after the last */
  tri_error *err;
} known;

static tri_status check_member(void *ctx, const char *key, const tri_json *v) {
  const known *k = ctx;
  char name[OAI_FIELD_BYTES + 64];
  for (const char *const *n = k->names; *n; n++)
    if (!strcmp(key, *n)) return TRI_OK;
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  snprintf(name, sizeof name, "%.40s.%.64s", k->field, key);
  const oai_field f = {.name = name};
  return oai_take_unsupported(NULL, &f, v, k->err);
}

static tri_status check_members(const tri_json *object, const char *field, const char *const *names, tri_error *err) {
  known k = {field, names, err};
  return tri_json_each(object, check_member, &k);
}

/* ---- response_format ---- */

static tri_status take_json_schema(oai_completion_request *q, const tri_json *format, tri_error *err) {
  static const char *const names[] = {"name", "description", "schema", "strict", NULL};
  static const char field[] = "response_format.json_schema";
  const tri_json *outer = tri_json_get(format, "json_schema");
  if (tri_json_kind_of(outer) != TRI_JSON_OBJECT)
    return tri_fail(err, TRI_INVALID_ARGUMENT, field, "%s must be an object with name and schema", field);
  TRI_CHECK(check_members(outer, field, names, err));
  return set_schema(q, "response_format.json_schema.schema", tri_json_get(outer, "schema"), err);
}

/* llama.cpp has the schema of a json_object next to its type. */
tri_status oai_take_response_format(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  static const char *const names[] = {"type", "json_schema", "schema", NULL};
  oai_completion_request *q = request;
  const char *type = tri_json_get_str(v, "type");
  if (!type) return oai_wrong(err, f, "an object with a type");
  TRI_CHECK(check_members(v, f->name, names, err));
  const tri_json *schema = tri_json_get(v, "schema");
  if (!strcmp(type, "text")) return TRI_OK;
  if (!strcmp(type, "json_schema")) return take_json_schema(q, v, err);
  if (!strcmp(type, "json_object") && tri_json_kind_of(schema) != TRI_JSON_NULL)
    return set_schema(q, "response_format.schema", schema, err);
  if (!strcmp(type, "json_object")) return set_object(q, "response_format", err);
  return tri_fail(err, TRI_UNSUPPORTED, f->name,
                  "response_format: type \"%.40s\" is not supported; \"text\", \"json_object\" and \"json_schema\" are",
                  type);
}

/* ---- vLLM's and llama.cpp's ---- */

tri_status oai_take_structured_outputs(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  static const char *const names[] = {"json", "json_object", NULL};
  oai_completion_request *q = request;
  bool object = false;
  if (tri_json_kind_of(v) != TRI_JSON_OBJECT) return oai_wrong(err, f, "an object");
  TRI_CHECK(check_members(v, f->name, names, err));
  const tri_json *json = tri_json_get(v, "json"), *any = tri_json_get(v, "json_object");
  if (any && tri_json_kind_of(any) != TRI_JSON_NULL && !tri_json_as_bool(any, &object))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "structured_outputs.json_object",
                    "structured_outputs.json_object must be true or false");
  if (object) TRI_CHECK(set_object(q, "structured_outputs.json_object", err));
  return json && tri_json_kind_of(json) != TRI_JSON_NULL ? set_schema(q, "structured_outputs.json", json, err) : TRI_OK;
}

tri_status oai_take_schema(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  bool on;
  if (tri_json_as_bool(v, &on) && !on) return TRI_OK; /* a library's word for none */
  return set_schema(request, f->name, v, err);
}

/* ---- errors ---- */

const char *oai_answer_format_param(const oai_completion_request *q, const char *field, char out[OAI_PARAM_BYTES]) {
  static const char own[] = "constraint";
  if (!q->schema_field || strncmp(field, own, sizeof own - 1) != 0) return field;
  if (!strcmp(q->schema_field, "tool_choice"))
    return oai_tool_choice_param(q, field + sizeof own - 1, out, OAI_PARAM_BYTES);
  snprintf(out, OAI_PARAM_BYTES, "%s%s", q->schema_field, field + sizeof own - 1);
  return out;
}
