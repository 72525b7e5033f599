/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts of a sentence-transformers folder: texts that come before a text that is embedded, by name, such as an
 * instruction for queries (config_sentence_transformers.json). */
#ifndef TRI_RUNTIME_MODEL_PROMPTS_H
#define TRI_RUNTIME_MODEL_PROMPTS_H

#include <stddef.h>

#include "base/status.h"

enum { TRI_MOST_PROMPTS = 256, TRI_PROMPT_NAME_BYTES = 128, TRI_PROMPT_BYTES = 1 << 16 };

typedef struct tri_prompts {
  size_t count;
  char **names, **texts; /* [count] */
  const char *usual;     /* the text of default_prompt_name, one of them; NULL: none */
} tri_prompts;

/* Reads DIR/config_sentence_transformers.json; a folder without it has none. The caller frees what is in *out.
 * TRI_CORRUPT, TRI_INVALID_ARGUMENT, TRI_TOO_LARGE: the file is wrong, err names the member. */
tri_status tri_prompts_load(const char *dir, tri_prompts *out, tri_error *err);
void tri_prompts_free(tri_prompts *p);
/* Returns the text of that name, of `len` bytes; NULL without. */
const char *tri_prompts_find(const tri_prompts *p, const char *name, size_t len);

#endif
