/* SPDX-License-Identifier: Apache-2.0 */
/* Pre-tokenizers: a chain of steps that cuts text into the words which the model encodes one by one.
 *
 * Each step hands its pieces straight to the next, so that no list of pieces is ever built and a caller's token limit
 * stops the whole chain at once. */
#ifndef TRI_TEXT_TOKENIZER_PRETOKENIZE_H
#define TRI_TEXT_TOKENIZER_PRETOKENIZE_H

#include "text/tokenizer/config.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/regex/regex.h"

typedef enum tok_split_behavior {
  TOK_SPLIT_ISOLATED,
  TOK_SPLIT_REMOVED,
  TOK_SPLIT_MERGED_WITH_PREVIOUS,
  TOK_SPLIT_MERGED_WITH_NEXT,
  TOK_SPLIT_CONTIGUOUS
} tok_split_behavior;

struct tok_pretok_run;

typedef struct tok_pretok_step {
  /* at_start: text begins where the whole text did. */
  tri_status (*apply)(struct tok_pretok_run *run, size_t step, const char *text, size_t len, bool at_start);
  tok_regex *regex;       /* owned; NULL: the step does not split by a pattern */
  bool (*is)(uint32_t c); /* instead of a pattern: each character that is so is a match; NULL: none */
  uint64_t length;        /* FixedLength */
  tok_split_behavior behavior;
  bool invert;       /* the pattern describes the words, not what lies between them */
  bool prefix_space; /* ByteLevel */
  tok_metaspace metaspace;
} tok_pretok_step;

typedef struct tok_pretokenizer {
  tok_pretok_step steps[TOK_MAX_STEPS];
  size_t count; /* 0: null, the text is one word */
} tok_pretokenizer;

/* Per thread: each step has buffers of its own, since the following steps run while it waits. */
typedef struct tok_pretok_scratch {
  tok_regex_scratch *regex;
  struct {
    tri_buf prefixed, mapped;
  } steps[TOK_MAX_STEPS];
} tok_pretok_scratch;

typedef tri_status (*tok_word_fn)(void *ctx, const char *word, size_t len);

/* p is zeroed; tok_pretokenizer_free is due also after a failure. */
tri_status tok_pretokenizer_load(tok_pretokenizer *p, const tok_field *f, tri_error *err);
/* The same without a file: words are a pattern's matches and what lies between them, in the byte-level alphabet. where
 * names the pattern in errors. */
tri_status tok_pretokenizer_of_bytes(tok_pretokenizer *p, const char *pattern, size_t len, const tok_field *where,
                                     tri_error *err);
void tok_pretokenizer_free(tok_pretokenizer *p);

/* effort is borrowed. */
tri_status tok_pretok_scratch_init(tok_pretok_scratch *s, tok_effort *effort);
void tok_pretok_scratch_free(tok_pretok_scratch *s);

/* Calls fn for each word (never empty) of text in order, until it fails. at_start: nothing stood before text. */
tri_status tok_pretokenize(const tok_pretokenizer *p, tok_pretok_scratch *s, const char *text, size_t len,
                           bool at_start, tok_word_fn fn, void *ctx);

#endif
