/* SPDX-License-Identifier: Apache-2.0 */
/* JSON written into text that grows (base/text.h), from front to back. What is open is closed by the caller, who adds
 * the bracket as text. */
#ifndef TRI_BASE_JSON_JSON_WRITER_H
#define TRI_BASE_JSON_JSON_WRITER_H

#include <stdint.h>

#include "base/json/json.h"
#include "base/text.h"

/* ---- values ---- */

/* Adds a quoted string; bytes that are not UTF-8 become U+FFFD. */
void tri_json_add_string(tri_buf *b, const char *s, size_t len);
void tri_json_add_number(tri_buf *b, double x); /* shortest text that reads back; null when not finite */
/* Adds the shortest text that reads back as the same float32; `otherwise` when not finite. */
void tri_json_add_float(tri_buf *b, float x, const char *otherwise);
/* Adds a document's value as it is. spaced: with a space after commas and colons, as json.dumps of Python writes it. */
void tri_json_add_value(tri_buf *b, const tri_json *v, bool spaced);

/* ---- objects and arrays: a comma comes first, unless the one that is open has just begun ---- */

/* Adds `"key":`, of a key that needs no escapes. */
void tri_json_add_key(tri_buf *b, const char *key);
/* Opens an object or array, '{' or '[': a member, or an element where key is NULL. */
void tri_json_open(tri_buf *b, const char *key, char bracket);
/* Members of the object that is open. */
void tri_json_put_text(tri_buf *b, const char *key, const char *s, size_t len);
void tri_json_put_word(tri_buf *b, const char *key, const char *s);
void tri_json_put_num(tri_buf *b, const char *key, double x);
void tri_json_put_uint(tri_buf *b, const char *key, uint64_t x);
void tri_json_put_value(tri_buf *b, const char *key, const tri_json *v); /* of any key */

#endif
