/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of characters (code points without surrogates), of the expressions of this folder alone. */
#ifndef TRI_RUNTIME_GRAMMAR_CHARSET_H
#define TRI_RUNTIME_GRAMMAR_CHARSET_H

#include "base/mem.h"

enum { CHARSET_LAST = 0x10ffff };

typedef struct charset_range {
  uint32_t lo, hi;
} charset_range;

/* Ranges in order and apart once charset_sort has seen them. All zeros is the empty set. Memory is an arena's. */
typedef struct charset {
  charset_range *list;
  size_t num, room;
} charset;

/* Adds a range at the end. False: memory is out. */
bool charset_add(tri_arena *a, charset *s, uint32_t lo, uint32_t hi);
/* Puts ranges in order, joins those that touch, and takes surrogates away. */
bool charset_sort(tri_arena *a, charset *s);
/* Makes a sorted set the one of all other characters. */
bool charset_invert(tri_arena *a, charset *s);
bool charset_equal(const charset *a, const charset *b); /* both sorted */

#endif
