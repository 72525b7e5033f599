/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's part of a model: the tokenizer and the chat template of its folder. */
#ifndef TRI_CLIENT_OPENAI_MODEL_H
#define TRI_CLIENT_OPENAI_MODEL_H

#include "base/model_folder.h"
#include "client/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

typedef struct oai_model {
  char name[TRI_MODEL_NAME]; /* as its folder says it */
  tri_tokenizer *tokenizer;
  chat_template *template;             /* NULL: the model has none that can be read, */
  char no_template[TRI_ERROR_MESSAGE]; /* and this is why */
  bool parse_special;                  /* special tokens in messages are tokens */
  bool ignores_tools;                  /* the template makes the same prompt with tools as without */
  chat_calls calls;                    /* how answers call tools */
  bool channels;  /* answers are made of channels, whose markers are special tokens: they are asked for */
  bool reasoning; /* what is between <think> and </think> is separated */
} oai_model;

/* Reads a folder; template_file: the chat template's, instead of the folder's; NULL: none. TRI_NOT_FOUND: the folder
 * has no tokenizer.json. TRI_USAGE: the file cannot be read. */
tri_status oai_model_open(const char *dir, const char *template_file, oai_model *out, tri_error *err);
void oai_model_close(oai_model *m); /* all zeros is fine */

typedef struct oai_prompt_options {
  chat_request chat;
  bool continue_final; /* the prompt ends with the last message's content */
  bool add_special;    /* those of the tokenizer's template */
  size_t most_ids;     /* 0: any number */
  bool cut;            /* of more the last ones stay; else they are refused */
} oai_prompt_options;

typedef struct oai_prompt {
  uint32_t *ids; /* for tri_free */
  size_t num;
  bool opens_reasoning; /* the template ends it with <think> */
  bool in_text;         /* it ends in a message that is to be continued */
} oai_prompt;

/* Renders and encodes a request. */
tri_status oai_model_prompt(const oai_model *m, tri_tokenizer_scratch *scratch, const oai_prompt_options *o,
                            oai_prompt *out, tri_error *err);
/* Encodes a text. */
tri_status oai_model_encode(const oai_model *m, tri_tokenizer_scratch *scratch, const char *text, size_t len,
                            const oai_prompt_options *o, oai_prompt *out, tri_error *err);

#endif
