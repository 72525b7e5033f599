/* Post-processors: the special tokens around a text. For one text every supported type comes to ids before it and ids
 * behind it. */
#ifndef TRI_MODEL_TOK_POSTPROCESS_H
#define TRI_MODEL_TOK_POSTPROCESS_H

#include "runtime/model/tok_buffer.h"
#include "runtime/model/tok_config.h"

typedef struct tok_postprocessor {
  tok_ids prefix, suffix;
} tok_postprocessor;

/* p is zeroed; tok_postprocessor_free is due also after a failure. Ids must be below vocab_size. */
tri_status tok_postprocessor_load(tok_postprocessor *p, const tok_field *f, uint32_t vocab_size, tri_error *err);
void tok_postprocessor_free(tok_postprocessor *p);

#endif
