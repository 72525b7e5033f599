/* SPDX-License-Identifier: Apache-2.0 */
/* Replacing every match of a pattern: the Replace normalizer and decoder. */
#ifndef TRI_TEXT_TOKENIZER_REPLACE_H
#define TRI_TEXT_TOKENIZER_REPLACE_H

#include "text/tokenizer/config.h"
#include "text/tokenizer/regex/regex.h"
#include "text/unicode/spans.h"

typedef struct tok_replace {
  tok_regex *regex; /* NULL: a plain string */
  char *pattern;    /* of a plain string */
  size_t pattern_len;
  uint32_t *border; /* [pattern_len]: longest proper prefix of pattern[0..i) that is also its end */
  char *content;
  size_t content_len;
} tok_replace;

/* object has "pattern" ({"String": ..} or {"Regex": ..}) and "content". *out is set on TRI_OK only. */
tri_status tok_replace_load(const tok_field *object, tok_replace **out, tri_error *err);
/* The same from two strings, the pattern not empty. */
tri_status tok_replace_create(const char *pattern, const char *content, tok_replace **out);
void tok_replace_destroy(tok_replace *r); /* NULL is fine */

/* Appends text with its matches replaced. *scratch is made when first needed. *from_start may be NULL; it becomes false
 * when what stands first in out cannot be traced back to the text's first character. The walk may be NULL, too. */
tri_status tok_replace_apply(const tok_replace *r, tok_regex_scratch **scratch, const char *text, size_t len,
                             bool *from_start, tok_spans_walk *walk, tri_buf *out);

/* Plain strings only: the text comes in parts, of which *matched carries over how much of the pattern stands at the
 * end. What is appended never ends within a character. */
tri_status tok_replace_feed(const tok_replace *r, size_t *matched, const char *text, size_t len, tri_buf *out);
/* The text has ended. */
tri_status tok_replace_flush(const tok_replace *r, size_t *matched, tri_buf *out);

/* {"Regex": "..."} or {"String": "..."}, compiled either way. */
tri_status tok_pattern_load(const tok_field *f, tok_regex **out, tri_error *err);

#endif
