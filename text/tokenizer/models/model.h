/* SPDX-License-Identifier: Apache-2.0 */
/* Models: what turns a word into ids. A model is a row in model.c's table.
 *
 * A model is immutable after load and shared by all threads; what encoding writes is in the work of each thread. */
#ifndef TRI_TEXT_TOKENIZER_MODELS_MODEL_H
#define TRI_TEXT_TOKENIZER_MODELS_MODEL_H

#include "text/tokenizer/ids.h"
#include "text/tokenizer/config.h"
#include "text/tokenizer/vocab.h"

typedef struct tok_model_type {
  const char *name;
  /* A key that tells the model where the file has no model.type, as early files have not; NULL: none. */
  const char *telltale;
  /* Fills the vocabulary and makes the model, which may refer to the vocabulary for as long as it lives. */
  tri_status (*load)(const tok_field *f, tok_vocab *vocab, void **model, tri_error *err);
  void (*destroy)(void *model); /* NULL is fine */
  /* The model's working memory, one per thread. */
  tri_status (*work_create)(const void *model, void **work);
  void (*work_destroy)(void *work); /* NULL is fine */
  /* Appends the ids of a word: valid UTF-8, not empty. */
  tri_status (*encode)(const void *model, void *work, const char *word, size_t len, tok_ids *out);
} tok_model_type;

/* bpe.c, wordpiece.c, unigram.c, wordlevel.c */
extern const tok_model_type tok_model_bpe, tok_model_wordpiece, tok_model_unigram, tok_model_wordlevel;

/* The model by its "type", else by a telltale key. */
tri_status tok_model_find(const tok_field *f, const tok_model_type **out, tri_error *err);

#endif
