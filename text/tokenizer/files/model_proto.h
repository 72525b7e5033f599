/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's file, a ModelProto in protobuf's encoding. What does not matter for ids is passed over. */
#ifndef TRI_TEXT_TOKENIZER_FILES_MODEL_PROTO_H
#define TRI_TEXT_TOKENIZER_FILES_MODEL_PROTO_H

#include "text/tokenizer/models/pieces.h"

typedef struct tok_bytes {
  const char *s; /* borrowed from the file */
  size_t len;
} tok_bytes;

typedef struct tok_model_proto {
  tok_piece *pieces; /* owned; texts are valid UTF-8 without NULs, not empty, and borrowed from the file, */
  size_t count;
  char *texts;         /* or lie here; owned, NULL: none does */
  uint64_t model_type; /* 1: Unigram, 2: BPE */
  bool byte_fallback;
  bool space_after;               /* treat_whitespace_as_suffix */
  tok_bytes bos_piece, eos_piece; /* len 0: the defaults */
  tok_bytes charsmap;             /* len 0: none */
  bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
  bool denormalizes; /* decoded text goes through another map */
} tok_model_proto;

/* m is zeroed; tok_model_proto_free is due also after a failure. Refusals name the field, as in pieces[3].score. */
tri_status tok_model_proto_read(tok_model_proto *m, const char *data, size_t len, tri_error *err);
void tok_model_proto_free(tok_model_proto *m);

#endif
