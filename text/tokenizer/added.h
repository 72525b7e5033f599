/* SPDX-License-Identifier: Apache-2.0 */
/* Added tokens: pieces of text (<|endoftext|> and the like) that are recognised before anything else looks at it. */
#ifndef TRI_TEXT_TOKENIZER_ADDED_H
#define TRI_TEXT_TOKENIZER_ADDED_H

#include "text/tokenizer/config.h"
#include "text/tokenizer/normalize.h"
#include "text/unicode/spans.h"
#include "text/tokenizer/vocab.h"

enum { TOK_LONGEST_ADDED = 1024 }; /* bytes; bounds what one place of a text can cost */

typedef struct tok_added {
  const char *text; /* borrowed from the vocabulary */
  size_t len;
  const char *normal; /* its spelling after the normalizer; of a token that is not normalized the text itself */
  size_t normal_len;
  size_t place; /* in the file's list */
  uint32_t id;
  bool special, normalized;
  bool shown_normal;   /* decoders see the normalized spelling */
  bool lstrip, rstrip; /* the match takes the white space before, after it along */
  bool single_word;    /* no match next to a word character */
} tok_added;

/* Patterns in order of their bytes; those with a first byte b are patterns[first[b] .. first[b + 1]). */
typedef struct tok_added_set {
  struct tok_added_pattern {
    const char *text;
    size_t len;
    const tok_added *token;
  } * patterns;
  size_t count;
  uint32_t first[257];
  bool has_special;
} tok_added_set;

typedef struct tok_added_vocab {
  tok_added *tokens;
  size_t count;
  tri_arena *texts;         /* normalized spellings */
  tok_added_set raw;        /* looked for in the text as it came */
  tok_added_set normalized; /* looked for after the normalizer, in their normalized spelling */
} tok_added_vocab;

/* a is zeroed; tok_added_vocab_free is due also after a failure. Runs after the model's load: tokens that the model
 * lacks get their ids here. */
tri_status tok_added_vocab_load(tok_added_vocab *a, const tok_field *f, tok_vocab *vocab, const tok_normalizer *n,
                                tri_error *err);
/* The same of tokens whose ids are theirs and are not to be found out: TRI_CORRUPT where the vocabulary has another
 * text for one. All are matched in the text as it came. Their texts need not outlive the call; f names the list in
 * errors.
 */
tri_status tok_added_vocab_take(tok_added_vocab *a, const tok_added *tokens, size_t count, tok_vocab *vocab,
                                const tok_field *f, tri_error *err);
void tok_added_vocab_free(tok_added_vocab *a);
/* NULL when no added token is spelled so. */
const tok_added *tok_added_vocab_find(const tok_added_vocab *a, const char *text, size_t len);

/* Returns the token as decoders see it. */
const char *tok_added_shown(const tok_added *t, size_t *len);

/* Matches in a text from left to right, of several at one place the longest. */
typedef struct tok_added_scan {
  const tok_added_set *set;
  const char *text;
  size_t len;
  size_t at;                /* where the search continues */
  size_t done;              /* text before this is used up: [done, *start) is what stands between the matches */
  const tok_spans *foreign; /* NULL: none; no special token matches that has a part of one. White space that a token
                               takes along does not count: it is not what the token is recognised by. */
  size_t next_foreign;
} tok_added_scan;

/* False at the end; the caller sets done to *end after each match. */
bool tok_added_next(tok_added_scan *s, size_t *start, size_t *end, uint32_t *id);

#endif
