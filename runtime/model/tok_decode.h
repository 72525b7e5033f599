/* Decoders: ids back to text.
 *
 * What a decoder makes of a token does not depend on its neighbours, so it is worked out once per token while loading:
 * decoding is joining these pieces and repairing their UTF-8. Whole texts and streams run the same code. */
#ifndef TRI_MODEL_TOK_DECODE_H
#define TRI_MODEL_TOK_DECODE_H

#include "runtime/model/tok_buffer.h"
#include "runtime/model/tok_config.h"
#include "runtime/model/tok_vocab.h"

/* Rewrites one token's text; appends to out. */
typedef tri_status (*tok_piece_fn)(const char *text, size_t len, tok_buf *out);

typedef struct tok_decoder {
  tok_buf pieces;    /* of all ids, back to back */
  uint32_t *offsets; /* [vocabulary size + 1] into pieces */
  bool spaced;       /* no decoder: tokens with a space between them */
} tok_decoder;

/* d is zeroed; tok_decoder_free is due also after a failure. Runs when the vocabulary is complete. */
tri_status tok_decoder_load(tok_decoder *d, const tok_field *f, const tok_vocab *vocab, tri_error *err);
void tok_decoder_free(tok_decoder *d);

typedef struct tok_decode_stream {
  char tail[4]; /* the beginning of a character whose end has not come yet */
  size_t tail_len;
  bool begun; /* a token has been put in */
} tok_decode_stream;

/* Append to out what became certain; never part of a character. On failure the stream is as before. */
tri_status tok_decode_push(const tok_decoder *d, tok_decode_stream *s, uint32_t id, tok_buf *out);
tri_status tok_decode_finish(tok_decode_stream *s, tok_buf *out);

#endif
