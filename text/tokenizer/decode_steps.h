/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a decoder, as transducers: a token enters a step in one or more parts of whole characters, then ends,
 * and at last the text ends. A step's output enters the next one likewise.
 *
 * text() may come any number of times for one token, also not at all; end() comes once. Whole characters are what a
 * step may rely on and what it must give. */
#ifndef TRI_TEXT_TOKENIZER_DECODE_STEPS_H
#define TRI_TEXT_TOKENIZER_DECODE_STEPS_H

#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/replace.h"

struct tok_decode_run;
struct tok_decode_step;

typedef struct tok_decode_kind {
  tri_status (*text)(struct tok_decode_run *r, size_t step, const char *text, size_t len);
  tri_status (*end)(struct tok_decode_run *r, size_t step);    /* of the token */
  tri_status (*finish)(struct tok_decode_run *r, size_t step); /* NULL: nothing is kept beyond a token's end */
  bool per_token;                                              /* a token's result does not depend on the others */
  /* Makes of a token what it is in the middle of a text, in place: s holds len bytes and has room for cap. Returns how
   * many there are then. NULL: as it was. */
  size_t (*inner)(const struct tok_decode_step *step, char *s, size_t len, size_t cap);
} tok_decode_kind;

extern const tok_decode_kind tok_decode_byte_level, tok_decode_repair, tok_decode_byte_fallback, tok_decode_fuse,
    tok_decode_replace, tok_decode_strip, tok_decode_metaspace, tok_decode_wordpiece, tok_decode_bpe;

enum { TOK_CLEANUPS = 11 };

typedef struct tok_decode_step {
  const tok_decode_kind *kind;
  tok_replace *replace;               /* Replace; owned */
  tok_replace *cleanup[TOK_CLEANUPS]; /* WordPiece with cleanup; owned */
  tri_buf affix;                      /* WordPiece's prefix, BPEDecoder's suffix; owned */
  uint64_t start, stop;               /* Strip: how many at either end of a token */
  char character[5];                  /* Strip */
  tok_metaspace metaspace;
} tok_decode_step;

void tok_decode_step_free(tok_decode_step *step);
/* Fills in what WordPiece's cleanup replaces, in its order. */
tri_status tok_decode_load_cleanup(tok_decode_step *step);

/* A step's memory. Each kind has its own use for the fields and says which. */
typedef struct tok_decode_state {
  tri_buf kept, out;
  size_t a;
  uint64_t b;
  bool flag, flag2;
} tok_decode_state;

typedef struct tok_decode_run {
  const tok_decode_step *steps;
  size_t count;
  tok_decode_state *states; /* [count] */
  tok_regex_scratch *regex; /* NULL until a step needs it */
  tri_buf *out;             /* of the last step */
} tok_decode_run;

/* r is zeroed; tok_decode_run_free is due also after a failure. limit: of a step's memory, in bytes. */
tri_status tok_decode_run_init(tok_decode_run *r, const tok_decode_step *steps, size_t count, size_t limit);
void tok_decode_run_free(tok_decode_run *r);

/* A token, or the end of the text, enters the step; r->out is set. */
tri_status tok_decode_text(tok_decode_run *r, size_t step, const char *text, size_t len);
tri_status tok_decode_end(tok_decode_run *r, size_t step);
tri_status tok_decode_end_all(tok_decode_run *r);

#endif
