/* SPDX-License-Identifier: Apache-2.0 */
/* Decoders: ids back to text.
 *
 * A decoder is a chain of steps, each of which turns a sequence of tokens into another one. Steps that look at one
 * token at a time and stand first in the chain are worked out for the whole vocabulary while loading. The others run as
 * a stream: a step hands on what is certain and keeps the rest. Whole texts and streams run the same code. */
#ifndef TRI_TEXT_TOKENIZER_DECODE_H
#define TRI_TEXT_TOKENIZER_DECODE_H

#include "text/tokenizer/added.h"
#include "text/tokenizer/config.h"
#include "text/tokenizer/decode_steps.h"
#include "text/tokenizer/vocab.h"

typedef struct tok_decoder {
  tri_buf pieces;    /* of all ids, back to back */
  uint32_t *offsets; /* [vocabulary size + 1] into pieces */
  tok_decode_step steps[TOK_MAX_STEPS];
  size_t count, leading; /* steps[0 .. leading) are in the pieces */
  bool spaced;           /* no decoder: tokens with a space between them */
} tok_decoder;

/* d is zeroed; tok_decoder_free is due also after a failure. Runs when the vocabulary is complete. */
tri_status tok_decoder_load(tok_decoder *d, const tok_field *f, const tok_vocab *vocab, const tok_added_vocab *added,
                            tri_error *err);
void tok_decoder_free(tok_decoder *d);

/* Puts the bytes of an id of the vocabulary in the middle of a text into out; returns how many there are. Of a token
 * that is longer than cap bytes in the vocabulary the beginning. */
size_t tok_decode_inner(const tok_decoder *d, uint32_t id, char *out, size_t cap);

typedef struct tok_decode_stream {
  tok_decode_run run;
  bool begun; /* a token has been put in */
} tok_decode_stream;

/* s is zeroed; tok_decode_stream_free is due also after a failure. The stream refers to d. */
tri_status tok_decode_stream_init(const tok_decoder *d, tok_decode_stream *s);
void tok_decode_stream_free(tok_decode_stream *s);

/* Append to out what became certain; never part of a character. A stream that failed is good for nothing more. */
tri_status tok_decode_push(const tok_decoder *d, tok_decode_stream *s, uint32_t id, tri_buf *out);
/* The rest; the stream is as new. */
tri_status tok_decode_finish(tok_decode_stream *s, tri_buf *out);

#endif
