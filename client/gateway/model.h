/* The gateway's part of a model: the tokenizer and the chat template of its folder. */
#ifndef TRI_CLIENT_GATEWAY_MODEL_H
#define TRI_CLIENT_GATEWAY_MODEL_H

#include "client/chat/chat_template.h"
#include "runtime/tokenizer/tokenizer.h"

typedef struct gw_model {
  tri_tokenizer *tokenizer;
  chat_template *template; /* NULL: the model has none */
  bool parse_special;      /* special tokens in messages are tokens */
} gw_model;

/* TRI_NOT_FOUND: the folder has no tokenizer.json. */
tri_status gw_model_open(const char *dir, gw_model *out, tri_error *err);
void gw_model_close(gw_model *m); /* all zeros is fine */

/* Renders a request and writes the prompt's ids, for tri_free: at most most_ids, or the last so many with `cut`. */
typedef struct gw_prompt_options {
  chat_request chat;
  bool continue_final; /* the prompt ends with the last message's content */
  bool add_special;    /* those of the tokenizer's template */
  size_t most_ids;
  bool cut;
} gw_prompt_options;
tri_status gw_model_prompt(const gw_model *m, tri_tokenizer_scratch *scratch, const gw_prompt_options *o,
                           uint32_t **ids, size_t *num, tri_error *err);
/* The same of a text. */
tri_status gw_model_encode(const gw_model *m, tri_tokenizer_scratch *scratch, const char *text, size_t len,
                           const gw_prompt_options *o, uint32_t **ids, size_t *num, tri_error *err);

#endif
