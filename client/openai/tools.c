/* SPDX-License-Identifier: Apache-2.0 */
/* One buffer of records, each a head (length, kind) and the bytes of a name: a function, and after it its parameters.
 * Records are not aligned, so heads are copied out. Look-ups walk the buffer, as a request has few tools. */
#include "client/openai/tools.h"

#include <string.h>

typedef enum kind { FUNCTION, TEXT, OTHER /* parameters of the function before them */ } kind;

typedef struct head {
  size_t len;
  kind kind;
} head;

static tri_status add(tri_buf *b, kind kind, const char *name, size_t len) {
  head h = {.len = len, .kind = kind};
  TRI_CHECK(tri_buf_append(b, &h, sizeof h));
  return tri_buf_append(b, name, len);
}

static tri_status add_parameter(void *ctx, const char *key, const tri_json *schema) {
  const char *type = tri_json_get_str(schema, "type");
  return add(ctx, type && !strcmp(type, "string") ? TEXT : OTHER, key, strlen(key));
}

tri_status oai_tools_read(const tri_json *tools, oai_tools *out) {
  *out = (oai_tools){0};
  for (size_t i = 0; i < tri_json_size(tools); i++) {
    const tri_json *function = tri_json_get(tri_json_at(tools, i), "function");
    const tri_json *properties = tri_json_get(tri_json_get(function, "parameters"), "properties");
    size_t len;
    const char *name = tri_json_as_str(tri_json_get(function, "name"), &len);
    if (!name) continue;
    TRI_CHECK(add(&out->names, FUNCTION, name, len));
    if (tri_json_kind_of(properties) == TRI_JSON_OBJECT)
      TRI_CHECK(tri_json_each(properties, add_parameter, &out->names));
  }
  return TRI_OK;
}

void oai_tools_free(oai_tools *t) { tri_buf_free(&t->names); }

/* Moves on to the next name. Returns NULL after the last one. */
static const char *next(const tri_buf *b, size_t *at, head *h) {
  if (*at == b->len) return NULL;
  memcpy(h, b->data + *at, sizeof *h);
  const char *name = b->data + *at + sizeof *h;
  *at += sizeof *h + h->len;
  return name;
}

static bool is(const char *name, const head *h, const char *s, size_t len) {
  return h->len == len && (!len || !memcmp(name, s, len));
}

/* Moves after the name of a function. */
static bool find(const oai_tools *t, const char *s, size_t len, size_t *at) {
  head h;
  *at = 0;
  for (const char *name; t && (name = next(&t->names, at, &h));)
    if (h.kind == FUNCTION && is(name, &h, s, len)) return true;
  return false;
}

bool oai_tools_have(const oai_tools *t, const char *name, size_t len) {
  size_t at;
  return find(t, name, len, &at);
}

/* Returns the kind of a parameter; FUNCTION: there is none of this name. */
static kind find_parameter(const oai_tools *t, const char *function, size_t len, const char *key, size_t key_len,
                           bool *any) {
  size_t at;
  head h;
  *any = false;
  if (!find(t, function, len, &at)) return FUNCTION;
  for (const char *name; (name = next(&t->names, &at, &h)) && h.kind != FUNCTION;) {
    *any = true;
    if (is(name, &h, key, key_len)) return h.kind;
  }
  return FUNCTION;
}

bool oai_tools_take(const oai_tools *t, const char *name, size_t len, const char *key, size_t key_len) {
  bool any;
  return find_parameter(t, name, len, key, key_len, &any) != FUNCTION || !any;
}

bool oai_tools_take_text(const oai_tools *t, const char *name, size_t len, const char *key, size_t key_len) {
  bool any;
  return find_parameter(t, name, len, key, key_len, &any) == TEXT;
}
