/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's part of a model: the tokenizer and the chat template of its folder. */
#ifndef TRI_CLIENT_GATEWAY_MODEL_H
#define TRI_CLIENT_GATEWAY_MODEL_H

#include "client/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

typedef struct gw_model {
  tri_tokenizer *tokenizer;
  chat_template *template; /* NULL: the model has none that can be read, */
  char no_template[400];   /* and this is why */
  bool parse_special;      /* special tokens in messages are tokens */
  chat_calls calls;        /* how answers call tools */
  bool channels;           /* answers are made of channels, whose markers are special tokens: they are asked for */
  bool reasoning;          /* what is between <think> and </think> is told apart */
} gw_model;

/* Reads a folder; template_file: the chat template's, instead of the folder's; NULL: none. TRI_NOT_FOUND: the folder
 * has no tokenizer.json. TRI_USAGE: the file cannot be read. */
tri_status gw_model_open(const char *dir, const char *template_file, gw_model *out, tri_error *err);
void gw_model_close(gw_model *m); /* all zeros is fine */

typedef struct gw_prompt_options {
  chat_request chat;
  bool continue_final; /* the prompt ends with the last message's content */
  bool add_special;    /* those of the tokenizer's template */
  size_t most_ids;     /* 0: any number */
  bool cut;            /* of more the last ones stay; else they are refused */
} gw_prompt_options;

typedef struct gw_prompt {
  uint32_t *ids; /* for tri_free */
  size_t num;
  bool opens_reasoning; /* the template ends it with <think> */
  bool in_text;         /* it ends in a message that is to be continued */
} gw_prompt;

/* Renders and encodes a request. */
tri_status gw_model_prompt(const gw_model *m, tri_tokenizer_scratch *scratch, const gw_prompt_options *o,
                           gw_prompt *out, tri_error *err);
/* Encodes a text. */
tri_status gw_model_encode(const gw_model *m, tri_tokenizer_scratch *scratch, const char *text, size_t len,
                           const gw_prompt_options *o, gw_prompt *out, tri_error *err);

#endif
