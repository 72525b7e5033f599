/* SPDX-License-Identifier: Apache-2.0 */
/* JSON documents, read-only. json.c is the only user of jansson.
 *
 * A tri_json is a borrowed node of a document; it lives as long as the document. Duplicate keys, bad UTF-8, text after
 * the document and nesting beyond 64 are refused. Numbers may be of any size: see tri_json_spelling. Getters return
 * false and leave *out alone when the key is absent, null or of another type; where the difference matters, look at the
 * node.
 *
 * A document may be read by several threads at a time, as reading changes nothing, and any thread may free it. */
#ifndef TRI_BASE_JSON_JSON_H
#define TRI_BASE_JSON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/status.h"

typedef struct tri_json_doc tri_json_doc;
typedef struct tri_json tri_json;

typedef enum tri_json_kind {
  TRI_JSON_NULL,
  TRI_JSON_BOOL,
  TRI_JSON_INT,
  TRI_JSON_REAL,
  TRI_JSON_STRING,
  TRI_JSON_ARRAY,
  TRI_JSON_OBJECT
} tri_json_kind;

/* TRI_CORRUPT: it is no JSON. */
tri_status tri_json_parse(const char *text, size_t len, tri_json_doc **out, tri_error *err);
/* The same of a file that another program has written: NaN, Infinity and -Infinity are numbers, as Python writes them.
 */
tri_status tri_json_parse_file(const char *text, size_t len, tri_json_doc **out, tri_error *err);
/* Reads what json.loads of Python does: these numbers, and of a key that comes twice the last value. */
tri_status tri_json_parse_python(const char *text, size_t len, tri_json_doc **out, tri_error *err);
/* Reads a whole file of at most max_bytes. *out is the caller's, for tri_free. */
tri_status tri_json_read_text(const char *path, size_t max_bytes, char **out, size_t *len, tri_error *err);
/* The same, parsed by tri_json_parse_file. */
tri_status tri_json_read_file(const char *path, size_t max_bytes, tri_json_doc **out, tri_error *err);
/* A file of at most max_bytes, or standard input (path NULL or "-"), parsed by tri_json_parse; what cannot be read is
 * of the field "file". */
tri_status tri_json_read_input(const char *path, size_t max_bytes, tri_json_doc **out, tri_error *err);
/* Parses as another library does: a number that is no integer has the value that read_real makes of its spelling, and
 * keys may have NULs in them (see tri_json_key). */
tri_status tri_json_parse_with(const char *text, size_t len, double (*read_real)(const char *s, size_t n),
                               tri_json_doc **out, tri_error *err);
/* Finds the value of a member of a text's outermost object without reading the rest, which may be no JSON; the key is
 * as the text spells it. NULL: there is none. */
const char *tri_json_find_member(const char *text, size_t len, const char *key, size_t *value_len);
void tri_json_free(tri_json_doc *doc); /* NULL is fine */
/* Limits what all documents of this process take together, those that are being read included: beyond it reading one
 * is TRI_NO_MEMORY. 0: no limit, as at the start. For texts from the network: objects of few bytes take many times
 * those. */
void tri_json_limit_memory(size_t bytes);
size_t tri_json_memory(void); /* the bytes that they take now, as the allocator has given them */
const tri_json *tri_json_root(const tri_json_doc *doc);
void tri_json_drop(tri_json_doc *doc,
                   const char *key); /* takes a member of the outermost object away, if it is there */
/* Replaces the outermost object's members by those of its member `key`, an object; of its own those named in `kept`
 * (words) stay where the other has none, or null, and those in `first` unless they are null. TRI_NO_MEMORY: the
 * document is of no use any more. */
tri_status tri_json_narrow(tri_json_doc *doc, const char *key, const char *kept, const char *first);

tri_json_kind tri_json_kind_of(const tri_json *j); /* NULL counts as TRI_JSON_NULL */
size_t tri_json_size(const tri_json *j);           /* members or elements; 0 otherwise */
const tri_json *tri_json_at(const tri_json *array, size_t i);
const tri_json *tri_json_get(const tri_json *object, const char *key); /* NULL when absent (or no object) */

/* Sets *out of an integer; false, with *out as it was, where j is NULL or anything else. */
bool tri_json_as_int(const tri_json *j, int64_t *out);
bool tri_json_as_num(const tri_json *j, double *out); /* integers too; false for what no finite double is near to */
bool tri_json_as_bool(const tri_json *j, bool *out);
/* Borrowed; *len is the byte length, which may include NULs. With len NULL a string that holds a NUL counts as none. */
const char *tri_json_as_str(const tri_json *j, size_t *len);

/* Returns how a number is spelled that is no int64_t, if an integer, or no finite double, which tri_json_as_int and
 * tri_json_as_num do not give; NULL: it is no such number. */
const char *tri_json_spelling(const tri_json *j, size_t *len);

/* Read a member's value into *out, and say in *err which member is none: TRI_INVALID_ARGUMENT, or TRI_OUT_OF_RANGE for
 * a number that is too large. */
tri_status tri_json_read_int(const tri_json *v, const char *key, int64_t *out, tri_error *err);
tri_status tri_json_read_num(const tri_json *v, const char *key, double *out, tri_error *err);

/* Members by name, as tri_json_as_int and tri_json_as_str give them. */
bool tri_json_get_int(const tri_json *o, const char *key, int64_t *out);
const char *tri_json_get_str(const tri_json *o, const char *key); /* NULL when absent, no string, or with a NUL */

/* Calls fn for each member, in the file's order, until it returns other than TRI_OK. */
tri_status tri_json_each(const tri_json *object, tri_status (*fn)(void *ctx, const char *key, const tri_json *value),
                         void *ctx);
/* Writes to out the key that the text has, where tri_json_parse_with has read it: one with a NUL or a U+0001 in it
 * comes as another one. */
tri_status tri_json_key(const char *key, tri_buf *out);

#endif
