/* SPDX-License-Identifier: Apache-2.0 */
/* A text of JSON as jansson takes it. jansson has no integers beyond 64 bits, no reals beyond those of a double and no
 * keys with NULs: a copy of the text holds them in strings that no document has otherwise. */
#ifndef TRI_BASE_JSON_JSON_REWRITE_H
#define TRI_BASE_JSON_JSON_REWRITE_H

#include <stdbool.h>

#include "base/buf.h"

/* A string of the copy that begins with U+0001 is a number, as it was spelled. A string of the document that begins so
 * has a second one in the copy. */
enum { TRI_JSON_MARK = 1 };

/* The strings are those of the original where a NUL follows U+0001 as '0', and U+0001 as '1', in keys: both are
 * control characters, which JSON spells as escapes only. */
typedef struct tri_json_rewriting {
  bool words;    /* NaN, Infinity and -Infinity are numbers */
  bool nul_keys; /* keys may have NULs in them, and are escaped */
} tri_json_rewriting;

/* Writes the copy, and nothing where the text can stay as it is. A text that is no JSON is none afterwards, either. */
tri_status tri_json_rewrite(const char *s, size_t n, const tri_json_rewriting *how, tri_buf *out);

/* Returns where the string that begins at s[i] ends: after its closing quote, or at n without one. */
size_t tri_json_string_end(const char *s, size_t n, size_t i);
/* Returns where the number that begins at s[i] ends. */
size_t tri_json_number_end(const char *s, size_t n, size_t i);

#endif
