/* SPDX-License-Identifier: Apache-2.0 */
/* Reading tokenizer.json so that every refusal names the field at fault.
 *
 * A tok_field is a JSON node with its path from the root ("pre_tokenizer.pretokenizers[1].behavior"). A key that no
 * reader knows is refused, since it might change ids.
 *
 * Fields are views: they borrow the document's nodes and are copied freely. TRI_CORRUPT is for what the format does not
 * allow, TRI_UNSUPPORTED for what it allows and is not implemented here. */
#ifndef TRI_TEXT_TOKENIZER_CONFIG_H
#define TRI_TEXT_TOKENIZER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json/json.h"
#include "base/status.h"

typedef struct tok_field {
  const tri_json *node; /* NULL when absent */
  char path[TRI_ERROR_FIELD];
} tok_field;

/* A member or an element, which need not be there: node is NULL then, and the path says where it would be. */
tok_field tok_field_root(const tri_json *node);
tok_field tok_field_get(const tok_field *object, const char *key);
tok_field tok_field_at(const tok_field *array, size_t i);

static inline bool tok_field_is_null(const tok_field *f) { return tri_json_kind_of(f->node) == TRI_JSON_NULL; }

/* Fills err (first one wins) with the field's path, which the message begins with; for readers that found something
 * wrong with the value itself. Returns the status. */
tri_status tok_field_fail(const tok_field *f, tri_status st, tri_error *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Says what the value must be ("an object"), and what it is. Returns TRI_CORRUPT. */
tri_status tok_field_wrong(const tok_field *f, const char *expected, tri_error *err);
tri_status tok_field_no_memory(const tok_field *f, tri_error *err);

/* f is an object whose keys are all words of `allowed`. */
tri_status tok_field_object(const tok_field *f, const char *allowed, tri_error *err);
tri_status tok_field_array(const tok_field *f, tri_error *err);
/* A string; *len may be NULL, then strings with NULs are refused. The text is borrowed. */
tri_status tok_field_string(const tok_field *f, const char **out, size_t *len, tri_error *err);
/* A boolean member; absent or null leaves *out as it is. */
tri_status tok_field_bool(const tok_field *object, const char *key, bool *out, tri_error *err);
/* A string of exactly one character. */
tri_status tok_field_char(const tok_field *f, const char **out, size_t *len, tri_error *err);
/* An integer that is not negative. */
tri_status tok_field_count(const tok_field *f, uint64_t *out, tri_error *err);
/* A token id: an integer of 0 <= id < limit. */
tri_status tok_field_id(const tok_field *f, uint32_t limit, uint32_t *out, tri_error *err);
/* The beginning of a row in a table of types: what an object's "type" says, and which other keys it then may have. */
typedef struct tok_type {
  const char *name;
  const char *keys; /* words */
} tok_type;
/* Finds the object's row among `count` of `size` bytes, each of which begins with a tok_type, and checks its keys. */
tri_status tok_field_type(const tok_field *object, const void *table, size_t count, size_t size, const char *what,
                          size_t *row, tri_error *err);
/* Calls fn for each element of the object's array `key`, until it fails. */
tri_status tok_field_each(const tok_field *object, const char *key,
                          tri_status (*fn)(void *ctx, const tok_field *element, tri_error *err), void *ctx,
                          tri_error *err);
/* Reads a real of JSON as the reference does, which is not always the nearest one. */
double tok_real_read(const char *s, size_t n);
/* "Foo is not supported", on the object's "type". */
tri_status tok_field_unsupported_type(const tok_field *object, const char *type, const char *what, tri_error *err);

#endif
