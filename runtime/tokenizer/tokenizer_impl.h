/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a tokenizer, for the files that encode and decode. */
#ifndef TRI_RUNTIME_TOKENIZER_TOKENIZER_IMPL_H
#define TRI_RUNTIME_TOKENIZER_TOKENIZER_IMPL_H

#include "runtime/tokenizer/added.h"
#include "runtime/tokenizer/decode.h"
#include "runtime/tokenizer/model.h"
#include "runtime/tokenizer/normalize.h"
#include "runtime/tokenizer/postprocess.h"
#include "runtime/tokenizer/pretokenize.h"
#include "runtime/tokenizer/tokenizer.h"

struct tri_tokenizer {
  tok_vocab vocab;
  const tok_model_type *model_type; /* NULL until the model is loaded */
  void *model;
  tok_added_vocab added;
  tok_normalizer normalizer;
  tok_pretokenizer pretokenizer;
  tok_postprocessor postprocessor;
  tok_decoder decoder;
  uint64_t hash; /* of the file's text */
};

#endif
