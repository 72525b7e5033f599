/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling: how an encoder makes one vector of a text, as options, config.json and the files of a sentence-transformers
 * folder (modules.json and what it names) say. */
#ifndef TRI_RUNTIME_MODEL_SENTENCE_H
#define TRI_RUNTIME_MODEL_SENTENCE_H

#include "runtime/model/config.h"
#include "runtime/model/safetensors.h"

/* Begins the names of Dense modules' tensors among those of the model: a number and a dot follow. */
#define TRI_DENSE_PREFIX "dense."

/* Settles how an encoder without a classifier pools, and reads what the folder says of it into c->sentence; other
 * models have no choice. wish: NONE for what the folder says; where it says nothing, the checkpoint's pooler, else the
 * mean, of a causal model the last state. A folder with modules that would change the vectors and are not supported is
 * refused by their names; a wish takes the place of a pooling that is not. On an error c may have been changed in part.
 */
tri_status tri_model_config_pool(const char *dir, tri_pooling wish, tri_model_config *c, tri_error *err);
/* Says what the modules of a folder make of a decoder. */
typedef struct tri_sentence_use {
  bool pools;        /* vectors: it has a Pooling */
  int num_tokens;    /* scores: it has a LogitScore, of 1 or 2 tokens; else 0 */
  int64_t tokens[2]; /* ids below vocab_size: the false one, where there are two, then the true one */
} tri_sentence_use;
/* A folder without modules.json, or with the transformer alone, makes nothing else of it. */
tri_status tri_sentence_use_read(const char *dir, int64_t vocab_size, tri_sentence_use *out, tri_error *err);
/* Adds the tensors of Dense modules to those of the model. TRI_NOT_FOUND: a module has no model.safetensors. */
tri_status tri_sentence_add_weights(const char *dir, const tri_model_config *c, tri_checkpoint *ckpt, tri_error *err);

#endif
