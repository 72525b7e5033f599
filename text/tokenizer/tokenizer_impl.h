/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a tokenizer, for the files that encode and decode. */
#ifndef TRI_TEXT_TOKENIZER_TOKENIZER_IMPL_H
#define TRI_TEXT_TOKENIZER_TOKENIZER_IMPL_H

#include "text/tokenizer/added.h"
#include "text/tokenizer/decode.h"
#include "text/tokenizer/models/model.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/postprocess.h"
#include "text/tokenizer/pretokenize.h"
#include "text/tokenizer/stretches.h"
#include "text/tokenizer/tokenizer.h"

enum { TOK_MAX_FILE = 256 << 20 }; /* bytes of a file of a tokenizer */

struct tri_tokenizer {
  tok_vocab vocab;
  const tok_model_type *model_type; /* NULL until the model is loaded */
  void *model;
  tok_stretches stretches;
  tok_added_vocab added;
  tok_normalizer normalizer;
  tok_pretokenizer pretokenizer;
  tok_postprocessor postprocessor;
  tok_decoder decoder;
  uint64_t hash; /* of the texts that it was read from */
};

#endif
