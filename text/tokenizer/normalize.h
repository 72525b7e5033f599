/* SPDX-License-Identifier: Apache-2.0 */
/* Normalizers: what changes the text between the added tokens before it is split into words.
 *
 * Steps may also carry ranges of the text along (spans.h): which parts of a prompt are foreign must be known after the
 * text has changed its length. */
#ifndef TRI_TEXT_TOKENIZER_NORMALIZE_H
#define TRI_TEXT_TOKENIZER_NORMALIZE_H

#include "text/tokenizer/ids.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/config.h"
#include "text/tokenizer/replace.h"
#include "text/tokenizer/spacing.h"
#include "text/unicode/spans.h"
#include "text/unicode/unicode.h"

enum { TOK_MAX_STEPS = 32 }; /* of one chain: normalizers, pre-tokenizers, decoders */

typedef struct tok_normalize_scratch {
  tok_codepoints points;
  tri_buf buffers[2];       /* a step reads the one and writes the other */
  tok_regex_scratch *regex; /* NULL until a step needs it */
  tok_spans_walk *walk;     /* of the step; NULL: the places of ranges are not asked for */
  tok_spans spare;          /* that the step writes */
} tok_normalize_scratch;

/* Writes what one character becomes, up to three, and returns how many. */
typedef size_t (*tok_char_map)(uint32_t c, uint32_t out[3]);

/* Reads text, appends to out. *from_start says whether nothing stood before the text, and becomes false when the first
 * character of out does not come from the text's first. */
typedef struct tok_normalize_step {
  tri_status (*apply)(const struct tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                      bool *from_start, tri_buf *out);
  tok_normal_form form;
  tok_char_map map;
  bool left, right;       /* Strip */
  tri_buf prefix;         /* Prepend; owned, as are the following */
  tok_replace *replace;   /* Replace */
  tok_charsmap *charsmap; /* Precompiled */
  tok_spacing spacing;    /* of a SentencePiece file */
} tok_normalize_step;

typedef struct tok_normalizer {
  tok_normalize_step steps[TOK_MAX_STEPS];
  size_t count; /* 0: null, the text stays */
} tok_normalizer;

/* n is zeroed; tok_normalizer_free is due also after a failure. */
tri_status tok_normalizer_load(tok_normalizer *n, const tok_field *f, tri_error *err);
/* Adds SentencePiece's own to an empty chain, which owns it from here on. */
void tok_normalizer_add_spacing(tok_normalizer *n, tok_spacing spacing);
void tok_normalizer_free(tok_normalizer *n);
/* How far the steps of a chain may blow up a text of len bytes: beyond all that real normalizers do. */
static inline size_t tok_growth_limit(size_t len) { return len < SIZE_MAX / 128 ? len * 64 + (1 << 20) : SIZE_MAX; }
/* *out is text itself or lies in the scratch, until its next use. *from_start (which may be NULL) becomes false when
 * the first character of *out does not come from the text's first: some had been dropped before it. spans (which may be
 * NULL) are ranges of the text, and become those of *out that come from them. */
tri_status tok_normalize(const tok_normalizer *n, tok_normalize_scratch *s, const char *text, size_t len,
                         bool *from_start, tok_spans *spans, const char **out, size_t *out_len);
void tok_normalize_scratch_free(tok_normalize_scratch *s);

/* normalize_chars.c: the maps of single characters. */
size_t tok_map_lowercase(uint32_t c, uint32_t out[3]);
size_t tok_map_without_marks(uint32_t c, uint32_t out[3]);
size_t tok_map_without_nonspacing_marks(uint32_t c, uint32_t out[3]);
size_t tok_map_nmt(uint32_t c, uint32_t out[3]);
size_t tok_map_bert_clean(uint32_t c, uint32_t out[3]);
size_t tok_map_bert_chinese(uint32_t c, uint32_t out[3]);

#endif
