/* SPDX-License-Identifier: Apache-2.0 */
/* Members are read in the order of the document. Two names may go to one field (max_tokens and max_completion_tokens):
 * the one that wins is left out of a first pass and read in a second, so that the order in which a client writes them
 * does not matter. */
#include "client/openai/fields.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

enum { MAX_IDS = 1 << 20 };

tri_status oai_wrong(tri_error *err, const oai_field *f, const char *wanted) {
  return tri_fail(err, TRI_INVALID_ARGUMENT, f->name, "%s must be %s", f->name, wanted);
}

static void *member(void *request, const oai_field *f) { return (char *)request + f->offset; }

/* TRIREME_UNSET is itself an integer, and must not be had by saying it. */
tri_status oai_take_int(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  int64_t n;
  TRI_CHECK(tri_json_read_int(v, f->name, &n, err));
  if (n == TRIREME_UNSET) return oai_wrong(err, f, "an integer above -2^63");
  memcpy(member(request, f), &n, sizeof n);
  return TRI_OK;
}

tri_status oai_take_num(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  return tri_json_read_num(v, f->name, member(request, f), err);
}

tri_status oai_take_bool(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  return tri_json_as_bool(v, member(request, f)) ? TRI_OK : oai_wrong(err, f, "true or false");
}

/* libtrireme takes names that end with NUL: one within would cut the name short. */
tri_status oai_take_name(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  size_t len = 0;
  const char *s = tri_json_as_str(v, &len);
  if (!s || strlen(s) != len) return oai_wrong(err, f, "a text without NUL characters");
  memcpy(member(request, f), &s, sizeof s);
  return TRI_OK;
}

tri_status oai_take_json(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  (void)err;
  memcpy(member(request, f), &v, sizeof v);
  return TRI_OK;
}

tri_status oai_take_nothing(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  (void)request;
  (void)f;
  (void)v;
  (void)err;
  return TRI_OK;
}

/* A client library may send every field with the value that asks for nothing: false, 0, [] and {} are let pass. */
tri_status oai_take_unsupported(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  bool on = true;
  int64_t n = 1;
  (void)request;
  tri_json_kind kind = tri_json_kind_of(v);
  bool none = (kind == TRI_JSON_BOOL && tri_json_as_bool(v, &on) && !on) ||
              (kind == TRI_JSON_INT && tri_json_as_int(v, &n) && !n) ||
              ((kind == TRI_JSON_ARRAY || kind == TRI_JSON_OBJECT) && !tri_json_size(v));
  if (none) return TRI_OK;
  return tri_fail(err, TRI_UNSUPPORTED, f->name, "%s is not supported", f->name);
}

/* ---- unknown ones ---- */

tri_status oai_ignore(oai_ignored *ignored, const char *key, tri_error *err) {
  size_t len = strlen(key), used = strlen(ignored->names);
  const char *name = len < OAI_FIELD_BYTES && tri_text_is_token(key, len) ? key : "(unprintable)";
  if (!ignored->allowed) return tri_fail(err, TRI_UNKNOWN_FIELD, name, "there is no field %s", name);
  if (used + strlen(name) + 3 <= sizeof ignored->names)
    snprintf(ignored->names + used, sizeof ignored->names - used, "%s%s", used ? ", " : "", name);
  return TRI_OK;
}

typedef struct reading {
  const oai_field_table *tables;
  void *request;
  oai_ignored *ignored;
  tri_error *err;
  bool last;    /* those that win are read now, and the others have been */
  bool waiting; /* there are such */
} reading;

/* Returns whether a name wins over another one of the same number, in whatever order they come. */
static bool wins(const char *key) {
  return !strcmp(key, "max_completion_tokens") || !strcmp(key, "truncate_prompt_tokens");
}

/* The first table that has the name wins. */
static const oai_field *find_field(const reading *r, const char *key) {
  for (const oai_field_table *t = r->tables; t->fields; t++)
    for (size_t i = 0; i < t->num; i++)
      if (!strcmp(t->fields[i].name, key)) return &t->fields[i];
  return NULL;
}

static tri_status read_member(void *ctx, const char *key, const tri_json *v) {
  /* Fields of OpenAI's that tell the service something which has no meaning here. */
  static const char quiet[] = "user metadata store service_tier prompt_cache_key safety_identifier session_id";
  reading *r = ctx;
  if (tri_json_kind_of(v) == TRI_JSON_NULL) return TRI_OK;
  const oai_field *f = find_field(r, key);
  r->waiting = r->waiting || wins(key);
  if (wins(key) != r->last) return TRI_OK;
  if (f) return f->take(r->request, f, v, r->err);
  return tri_has_word(quiet, key) ? TRI_OK : oai_ignore(r->ignored, key, r->err);
}

tri_status oai_fields_read(const oai_field_table *tables, const tri_json *object, void *request, oai_ignored *ignored,
                           tri_error *err) {
  reading r = {.tables = tables, .request = request, .ignored = ignored, .err = err};
  TRI_CHECK(tri_json_each(object, read_member, &r));
  r.last = true;
  return r.waiting ? tri_json_each(object, read_member, &r) : TRI_OK;
}

/* ---- prompts ---- */

tri_status oai_read_ids(const oai_field *f, const tri_json *v, uint32_t **out, size_t *num, tri_error *err) {
  size_t n = tri_json_size(v);
  if (tri_json_kind_of(v) != TRI_JSON_ARRAY) return oai_wrong(err, f, "an array of token ids");
  if (n > MAX_IDS)
    return tri_fail(err, TRI_OUT_OF_RANGE, f->name, "%s has %zu token ids; allowed are %d", f->name, n, MAX_IDS);
  uint32_t *ids = tri_malloc(n ? n : 1, sizeof *ids);
  if (!ids) return tri_fail(err, TRI_NO_MEMORY, f->name, "no memory");
  for (size_t i = 0; i < n; i++) {
    int64_t id = -1;
    if (!tri_json_as_int(tri_json_at(v, i), &id) || id < 0 || id > UINT32_MAX) {
      tri_free(ids);
      return oai_wrong(err, f, "an array of token ids");
    }
    ids[i] = (uint32_t)id;
  }
  *out = ids;
  *num = n;
  return TRI_OK;
}

static tri_status read_input(const oai_field *f, const tri_json *v, oai_input *out, tri_error *err) {
  if (tri_json_kind_of(v) != TRI_JSON_STRING) return oai_read_ids(f, v, &out->ids, &out->num_ids, err);
  out->text = tri_json_as_str(v, &out->len);
  return TRI_OK;
}

/* An array whose first element is an integer is one prompt of token ids; any other array is one of prompts. */
tri_status oai_take_inputs(void *request, const oai_field *f, const tri_json *v, tri_error *err) {
  oai_inputs *in = member(request, f);
  const tri_json *first = tri_json_at(v, 0);
  bool one = tri_json_kind_of(v) == TRI_JSON_STRING || tri_json_kind_of(first) == TRI_JSON_INT;
  size_t n = one ? 1 : tri_json_size(v);
  if (!one && (tri_json_kind_of(v) != TRI_JSON_ARRAY || !n))
    return oai_wrong(err, f, "a text, an array of texts, token ids, or an array of them, and not empty");
  if (n > OAI_MAX_PROMPTS)
    return tri_fail(err, TRI_OUT_OF_RANGE, f->name, "%s has %zu elements; allowed are 1 to %d", f->name, n,
                    OAI_MAX_PROMPTS);
  in->items = tri_calloc(n, sizeof *in->items);
  if (!in->items) return tri_fail(err, TRI_NO_MEMORY, f->name, "no memory");
  in->num = n;
  for (size_t i = 0; i < n; i++) TRI_CHECK(read_input(f, one ? v : tri_json_at(v, i), &in->items[i], err));
  return TRI_OK;
}

size_t oai_kept_text(const char *s, size_t len) { return s ? len + 1 : 0; }

/* The room was reserved from the same texts (oai_kept_text), so that it does not move and earlier pointers stay. */
void oai_keep_text(tri_buf *room, const char **s, size_t len) {
  char *to = room->data + room->len;
  if (!*s) return;
  memcpy(to, *s, len);
  to[len] = '\0';
  room->len += len + 1;
  *s = to;
}

size_t oai_kept_inputs(const oai_inputs *in) {
  size_t n = 0;
  for (size_t i = 0; i < in->num; i++) n += oai_kept_text(in->items[i].text, in->items[i].len);
  return n;
}

void oai_keep_inputs(tri_buf *room, oai_inputs *in) {
  for (size_t i = 0; i < in->num; i++) oai_keep_text(room, &in->items[i].text, in->items[i].len);
}

size_t oai_inputs_bytes(const oai_inputs *in) {
  enum { OF_ONE = sizeof *in->items + 2 * 64 }; /* an allocation may lose so much */
  size_t n = 0;
  for (size_t i = 0; i < in->num; i++) n += OF_ONE + in->items[i].num_ids * sizeof *in->items->ids;
  return n;
}

void oai_inputs_free(oai_inputs *in) {
  for (size_t i = 0; i < in->num; i++) tri_free(in->items[i].ids);
  tri_free(in->items);
  *in = (oai_inputs){0};
}
