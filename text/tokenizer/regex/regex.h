/* SPDX-License-Identifier: Apache-2.0 */
/* Regular expressions of the tokenizer's parts. regex.c is the only user of PCRE2.
 *
 * tokenizer.json holds patterns in Oniguruma's dialect; dialect.c rewrites them for PCRE2 and refuses by name what
 * means something else there. */
#ifndef TRI_TEXT_TOKENIZER_REGEX_REGEX_H
#define TRI_TEXT_TOKENIZER_REGEX_REGEX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/tokenizer/ids.h"
#include "text/tokenizer/config.h"

/* An effort is what all patterns together may spend on one text, in bytes that they move over, and in steps of
 * backtracking. A pattern that looks far ahead costs a run's length at each of its places, which PCRE2's own limits
 * count too late or not at all, and they are for one match. */
typedef struct tok_effort {
  uint64_t left;
  const atomic_bool *stop; /* when true, the text is given up: TRI_ABORTED; NULL: never */
} tok_effort;

/* Sets what a text of so many bytes may cost: a fixed share and one for each byte. */
void tok_effort_begin(tok_effort *e, size_t text_len);
static inline bool tok_effort_stopped(const tok_effort *e) {
  return e->stop && atomic_load_explicit(e->stop, memory_order_relaxed);
}

typedef struct tok_regex tok_regex;                 /* immutable, shared by threads */
typedef struct tok_regex_scratch tok_regex_scratch; /* per thread: match data, JIT stack, limits */

/* where names the pattern in errors. literal: the pattern is a plain string. */
tri_status tok_regex_compile(const char *pattern, size_t len, bool literal, const tok_field *where, tok_regex **out,
                             tri_error *err);
void tok_regex_destroy(tok_regex *re); /* NULL is fine */
bool tok_regex_knows_script(const char *name);

/* effort is borrowed; NULL: no limit. */
tri_status tok_regex_scratch_create(tok_effort *effort, tok_regex_scratch **out);
void tok_regex_scratch_destroy(tok_regex_scratch *s); /* NULL is fine */

/* The leftmost match at or after from in text, which is valid UTF-8. TRI_NOT_FOUND without one; TRI_NO_CAPACITY when
 * the effort is spent, or backtracking exceeds a bound proportional to len. */
tri_status tok_regex_find(const tok_regex *re, tok_regex_scratch *s, const char *text, size_t len, size_t from,
                          size_t *start, size_t *end);

/* All matches of a text from left to right. An empty match right after the previous one is skipped, as Oniguruma's
 * iterator does. */
typedef struct tok_regex_walk {
  const tok_regex *regex;
  tok_regex_scratch *scratch;
  const char *text;
  size_t len;
  size_t at;  /* where the search continues */
  bool begun; /* there is a previous match, and it ended at `last_end` */
  size_t last_end;
} tok_regex_walk;

/* TRI_NOT_FOUND when there are no more. */
tri_status tok_regex_next(tok_regex_walk *w, size_t *start, size_t *end);

/* Appends to out the PCRE2 spelling of an Oniguruma pattern, with a callout after each long repeat. */
tri_status tok_dialect_translate(const char *pattern, size_t len, const tok_field *where, tri_buf *out, tri_error *err);

#endif
