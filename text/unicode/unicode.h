/* SPDX-License-Identifier: Apache-2.0 */
/* Unicode as tokenizers need it: UTF-8 checking, character classes, normal forms. unicode.c and unicode_cases.c
 * are the only users of utf8proc.
 *
 * The Hugging Face library takes each property from whichever crate it uses, in that crate's version of Unicode. Ids
 * are equal only if the versions are: hence the tables in unicode_tables.c, which say where those versions and the
 * libraries here differ. */
#ifndef TRI_TEXT_UNICODE_UNICODE_H
#define TRI_TEXT_UNICODE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "text/unicode/spans.h"

typedef enum tok_utf8 {
  TOK_UTF8_CHAR,     /* a whole character */
  TOK_UTF8_INVALID,  /* bytes that no continuation can repair: one U+FFFD */
  TOK_UTF8_TRUNCATED /* a good beginning, cut off by the end of the text */
} tok_utf8;

/* Looks at the character at s (n >= 1 bytes). *len is the character's length, or that of the maximal subpart of an
 * ill-formed sequence (Unicode 3.9, table 3-8), which Rust's from_utf8_lossy and Python's errors="replace" replace as
 * one. */
tok_utf8 tok_utf8_step(const char *s, size_t n, size_t *len);

/* Length of the longest prefix that is valid UTF-8. */
size_t tok_utf8_valid_prefix(const char *s, size_t n);
/* Appends s with U+FFFD for what is ill-formed, a cut-off end included. */
tri_status tok_utf8_append_lossy(tri_buf *out, const char *s, size_t n);
/* The same to an empty buffer, with a walk. */
tri_status tok_utf8_repair(tri_buf *out, const char *s, size_t n, tok_spans_walk *walk);

/* The functions below want valid UTF-8. */

/* The character at s and its length. */
uint32_t tok_utf8_decode(const char *s, size_t *len);
/* Returns how many characters n bytes are. */
size_t tok_utf8_count(const char *s, size_t n);
/* Writes 1..4 bytes. */
size_t tok_utf8_encode(uint32_t c, char *out);
/* Returns where the character that ends before s[end] begins (end >= 1). */
size_t tok_utf8_before(const char *s, size_t end);

/* Returns where the user-perceived character (extended grapheme cluster) that begins at s[from] ends. */
size_t tok_grapheme_end(const char *s, size_t n, size_t from);

/* White_Space, and \w as the Rust regex crate defines them; added tokens (lstrip, single_word) go by these. */
bool tok_is_space(uint32_t c);
bool tok_is_word(uint32_t c);
/* Categories of the versions that the reference has of them: 17 of N, 9 of M, 8 of the others. */
bool tok_is_number(uint32_t c);          /* N */
bool tok_is_mark(uint32_t c);            /* M */
bool tok_is_nonspacing_mark(uint32_t c); /* Mn */
bool tok_is_other(uint32_t c);           /* Cc, Cf, Co */
bool tok_is_punctuation(uint32_t c);     /* P, and ASCII's symbols */
/* Returns the general category as its two letters, "Lu", in the version of utf8proc; "Cn" of what is no character. */
const char *tok_category(uint32_t c);
/* Returns a number for each script (of Unicode 9; Hiragana and Katakana are Han), 0 for none and for a space. */
uint32_t tok_script(uint32_t c);
/* Full lower case, without regard to the neighbours: one or two characters. */
size_t tok_lower(uint32_t c, uint32_t out[2]);
/* Write the full upper and title case: one to three characters. */
enum { TOK_CASE_BYTES = 12 };
size_t tok_upper(uint32_t c, char out[TOK_CASE_BYTES]);
size_t tok_title(uint32_t c, char out[TOK_CASE_BYTES]);
/* Tell what is next to a capital sigma, which in lower case differs at the end of a word: letters that have cases, and
 * what counts as inside a word. */
bool tok_is_cased(uint32_t c);
bool tok_is_case_ignorable(uint32_t c);

/* Code points between the steps of normalization; one per thread. */
typedef struct tok_codepoints {
  int32_t *data, *sorted;
  size_t cap, sorted_cap;
} tok_codepoints;
void tok_codepoints_free(tok_codepoints *w);

typedef enum tok_normal_form { TOK_NFC, TOK_NFD, TOK_NFKC, TOK_NFKD } tok_normal_form;

/* Appends the normal form of s as Unicode 9 has it. Linear also for long runs of combining marks. */
tri_status tok_normal(tok_codepoints *w, tok_normal_form form, const char *s, size_t n, tri_buf *out);
/* The same of a text that is walked along, which takes longer. */
tri_status tok_normal_pieces(tok_codepoints *w, tok_normal_form form, const char *s, size_t n, tok_spans_walk *walk,
                             tri_buf *out);

#endif
