/* Normalizers: what changes the text between the added tokens before it is split into words. */
#ifndef TRI_MODEL_TOK_NORMALIZE_H
#define TRI_MODEL_TOK_NORMALIZE_H

#include "runtime/model/tok_buffer.h"
#include "runtime/model/tok_config.h"
#include "runtime/model/tok_unicode.h"

enum { TOK_MAX_STEPS = 32 }; /* of one chain: normalizers, pre-tokenizers, decoders */

typedef struct tok_normalize_scratch {
  tok_codepoints points;
  tok_buf buffers[2]; /* a step reads the one and writes the other */
} tok_normalize_scratch;

typedef struct tok_normalize_step {
  tri_status (*apply)(const struct tok_normalize_step *step, tok_normalize_scratch *s, const char *text, size_t len,
                      tok_buf *out);
} tok_normalize_step;

typedef struct tok_normalizer {
  tok_normalize_step steps[TOK_MAX_STEPS];
  size_t count; /* 0: null, the text stays */
} tok_normalizer;

/* n is zeroed; tok_normalizer_free is due also after a failure. */
tri_status tok_normalizer_load(tok_normalizer *n, const tok_field *f, tri_error *err);
void tok_normalizer_free(tok_normalizer *n);
/* *out is text itself or lies in the scratch, until its next use. */
tri_status tok_normalize(const tok_normalizer *n, tok_normalize_scratch *s, const char *text, size_t len,
                         const char **out, size_t *out_len);
void tok_normalize_scratch_free(tok_normalize_scratch *s);

#endif
