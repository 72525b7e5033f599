/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of the versions of Unicode that the Hugging Face library has and PCRE2 and utf8proc have not.
 *
 * Looked up by binary search (FIND in unicode.c). */
#ifndef TRI_TEXT_UNICODE_UNICODE_TABLES_H
#define TRI_TEXT_UNICODE_UNICODE_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Ranges lie in order, their ends included. */
typedef struct tok_range {
  uint32_t first, last;
} tok_range;

extern const tok_range tok_unicode8_nonspacing[], tok_unicode8_other[], tok_unicode8_punctuation[];
extern const size_t tok_unicode8_nonspacing_count, tok_unicode8_other_count, tok_unicode8_punctuation_count;
extern const tok_range tok_unicode9_marks[];
extern const size_t tok_unicode9_marks_count;
/* Characters with a normal form that came later: to Unicode 9 they are none. */
extern const tok_range tok_unicode9_unknown[];
extern const size_t tok_unicode9_unknown_count;

/* Characters whose category is another one than in Unicode 13, mostly as they came later, or that are Alphabetic now.
 */
typedef struct tok_addition {
  uint32_t first, last;
  char category[3];
  const char *script;
  bool alphabetic;
} tok_addition;

extern const tok_addition tok_unicode16_additions[];
extern const size_t tok_unicode16_additions_count;

/* Numbers (N) that came after Unicode 13. */
extern const tok_range tok_unicode17_numbers[];
extern const size_t tok_unicode17_numbers_count;

/* Capital letters that came after Unicode 13. */
typedef struct tok_lower_addition {
  uint32_t first, last;
  int32_t step; /* to the small letter */
} tok_lower_addition;

extern const tok_lower_addition tok_unicode17_lower[];
extern const size_t tok_unicode17_lower_count;

typedef struct tok_script_range {
  uint32_t first, last;
  uint32_t script; /* a number without meaning */
} tok_script_range;

extern const tok_script_range tok_unicode9_scripts[];
extern const size_t tok_unicode9_scripts_count;

#endif
