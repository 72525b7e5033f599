#include "runtime/tokenizer/config.h"

#include <stdio.h>
#include <string.h>

#include "runtime/tokenizer/unicode.h"

tok_field tok_field_root(const tri_json *node) { return (tok_field){.node = node}; }

/* Paths longer than an error's field lose their tail; the copy is bounded first, which also tells the compiler so. */
static tok_field child(const tok_field *parent, const tri_json *node, const char *suffix) {
  tok_field f = {.node = node};
  size_t n = strnlen(parent->path, sizeof f.path - 1), room = sizeof f.path - 1 - n, m = strnlen(suffix, room);
  memcpy(f.path, parent->path, n);
  memcpy(f.path + n, suffix, m);
  f.path[n + m] = '\0';
  return f;
}

tok_field tok_field_get(const tok_field *object, const char *key) {
  char suffix[TRI_ERROR_FIELD];
  snprintf(suffix, sizeof suffix, "%s%s", object->path[0] ? "." : "", key);
  return child(object, tri_json_get(object->node, key), suffix);
}

tok_field tok_field_at(const tok_field *array, size_t i) {
  char suffix[32];
  snprintf(suffix, sizeof suffix, "[%zu]", i);
  return child(array, tri_json_at(array->node, i), suffix);
}

tri_status tok_field_no_memory(const tok_field *f, tri_error *err) {
  return tok_field_fail(f, TRI_NO_MEMORY, err, "no memory for the tokenizer");
}

struct allowed_keys {
  const tok_field *object;
  const char *also, *const *allowed;
  tri_error *err;
};

static tri_status check_key(void *ctx, const char *key, const tri_json *value) {
  (void)value;
  const struct allowed_keys *c = ctx;
  if (c->also && !strcmp(c->also, key)) return TRI_OK;
  for (const char *const *k = c->allowed; *k; k++)
    if (!strcmp(*k, key)) return TRI_OK;
  tok_field f = tok_field_get(c->object, key);
  return tok_field_fail(&f, TRI_UNKNOWN_FIELD, c->err, "%.64s is not a known field and might change token ids", key);
}

tri_status tok_field_object(const tok_field *f, const char *const *allowed, tri_error *err) {
  if (tri_json_kind_of(f->node) != TRI_JSON_OBJECT) return tok_field_fail(f, TRI_CORRUPT, err, "must be an object");
  struct allowed_keys c = {f, NULL, allowed, err};
  return tri_json_each(f->node, check_key, &c);
}

tri_status tok_field_array(const tok_field *f, tri_error *err) {
  if (tri_json_kind_of(f->node) != TRI_JSON_ARRAY) return tok_field_fail(f, TRI_CORRUPT, err, "must be an array");
  return TRI_OK;
}

tri_status tok_field_string(const tok_field *f, const char **out, size_t *len, tri_error *err) {
  size_t n;
  const char *s = tri_json_as_str(f->node, &n);
  if (!s) return tok_field_fail(f, TRI_CORRUPT, err, "must be a string");
  if (!len && strlen(s) != n) return tok_field_fail(f, TRI_CORRUPT, err, "must not hold a NUL character");
  *out = s;
  if (len) *len = n;
  return TRI_OK;
}

tri_status tok_field_bool(const tok_field *object, const char *key, bool *out, tri_error *err) {
  tok_field f = tok_field_get(object, key);
  if (tok_field_is_null(&f) || tri_json_as_bool(f.node, out)) return TRI_OK;
  return tok_field_fail(&f, TRI_CORRUPT, err, "must be true or false");
}

tri_status tok_field_char(const tok_field *f, const char **out, size_t *len, tri_error *err) {
  TRI_CHECK(tok_field_string(f, out, len, err));
  if (tok_utf8_count(*out, *len) == 1 && *len <= 4) return TRI_OK;
  return tok_field_fail(f, TRI_CORRUPT, err, "must be one character");
}

tri_status tok_field_count(const tok_field *f, uint64_t *out, tri_error *err) {
  int64_t n;
  if (!tri_json_as_int(f->node, &n) || n < 0)
    return tok_field_fail(f, TRI_CORRUPT, err, "must be an integer that is not negative");
  *out = (uint64_t)n;
  return TRI_OK;
}

tri_status tok_field_id(const tok_field *f, uint32_t limit, uint32_t *out, tri_error *err) {
  int64_t id;
  if (!tri_json_as_int(f->node, &id)) return tok_field_fail(f, TRI_CORRUPT, err, "must be a token id");
  if (id < 0 || id >= (int64_t)limit)
    return tok_field_fail(f, TRI_OUT_OF_RANGE, err, "token id %lld is not within 0..%lu", (long long)id,
                          (unsigned long)limit - 1);
  *out = (uint32_t)id;
  return TRI_OK;
}

tri_status tok_field_type(const tok_field *object, const void *table, size_t count, size_t size, const char *what,
                          size_t *row, tri_error *err) {
  const char *name;
  if (tri_json_kind_of(object->node) != TRI_JSON_OBJECT)
    return tok_field_fail(object, TRI_CORRUPT, err, "must be an object or null");
  tok_field type = tok_field_get(object, "type");
  TRI_CHECK(tok_field_string(&type, &name, NULL, err));
  for (*row = 0; *row < count; ++*row) {
    const tok_type *t = (const void *)((const char *)table + *row * size);
    struct allowed_keys c = {object, "type", t->keys, err};
    if (!strcmp(t->name, name)) return tri_json_each(object->node, check_key, &c);
  }
  return tok_field_unsupported_type(object, name, what, err);
}

tri_status tok_field_each(const tok_field *object, const char *key,
                          tri_status (*fn)(void *ctx, const tok_field *element, tri_error *err), void *ctx,
                          tri_error *err) {
  tok_field array = tok_field_get(object, key);
  TRI_CHECK(tok_field_array(&array, err));
  for (size_t i = 0; i < tri_json_size(array.node); i++) {
    tok_field element = tok_field_at(&array, i);
    TRI_CHECK(fn(ctx, &element, err));
  }
  return TRI_OK;
}

tri_status tok_field_unsupported_type(const tok_field *object, const char *type, const char *what, tri_error *err) {
  tok_field f = tok_field_get(object, "type");
  return tok_field_fail(&f, TRI_UNSUPPORTED, err, "%s %.64s is not supported", what, type);
}
