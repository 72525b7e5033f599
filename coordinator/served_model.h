/* SPDX-License-Identifier: Apache-2.0 */
/* The model that a coordinator speaks for: everything of it but its weights. */
#ifndef TRI_COORDINATOR_SERVED_MODEL_H
#define TRI_COORDINATOR_SERVED_MODEL_H

#include "base/model_folder.h"
#include "base/options/serve_options.h"
#include "runtime/model/config.h"
#include "runtime/model/labels.h"
#include "runtime/model/prompts.h"
#include "text/tokenizer/tokenizer.h"

typedef struct tri_served_model {
  char name[TRI_MODEL_NAME]; /* that clients use */
  tri_opt_list other_names;  /* that they may use, too; belong to the options */
  tri_model_config config;
  tri_tokenizer *tokenizer;    /* NULL: the folder has none that is read */
  const char *other_tokenizer; /* its file of another format, which is not read; NULL: none */
  tri_labels labels;           /* of a classifier */
  tri_prompts prompts;         /* of an encoder that embeds */
  int64_t max_prompt;          /* tokens at which the tokenizer gives up: no replica would take more */
} tri_served_model;

/* out is zeroed; tri_served_model_close is due also after a failure. */
tri_status tri_served_model_open(const tri_serve_options *o, tri_served_model *out, tri_error *err);
void tri_served_model_close(tri_served_model *m);

#endif
