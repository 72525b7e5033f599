/* SPDX-License-Identifier: Apache-2.0 */
/* Post-processors: the special tokens around a text. For one text every supported type comes to ids before it and ids
 * after it; for a pair, ids between the texts as well. */
#ifndef TRI_TEXT_TOKENIZER_POSTPROCESS_H
#define TRI_TEXT_TOKENIZER_POSTPROCESS_H

#include "text/tokenizer/ids.h"
#include "text/tokenizer/config.h"

/* A pair's frame: ids before, between and after the texts. Tokens are of the first type up to those of `between` that
 * count as first, and of the second from there on, if any is. */
typedef struct tok_pair {
  bool known; /* the file has a template for pairs that can be put so */
  tok_ids before, between, behind;
  size_t first_between; /* ids of between that are of the first type */
  bool has_second_type;
} tok_pair;

typedef struct tok_postprocessor {
  tok_ids prefix, suffix;
  tok_pair pair;
  uint32_t vocab_size;
  int num_templates; /* that add ids to a text: more than one and pairs are not known */
} tok_postprocessor;

/* p is zeroed; tok_postprocessor_free is due also after a failure. Ids must be below vocab_size. */
tri_status tok_postprocessor_load(tok_postprocessor *p, const tok_field *f, uint32_t vocab_size, tri_error *err);
void tok_postprocessor_free(tok_postprocessor *p);

#endif
