/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation: who has said what, and the prompt that asks for more. */
#ifndef TRI_CLIENT_CHAT_CONVERSATION_H
#define TRI_CLIENT_CHAT_CONVERSATION_H

#include "client/chat/chat_prompt.h"
#include "base/text.h"

typedef struct conversation {
  chat_template *template;
  tri_tokenizer *tokenizer;
  tri_tokenizer_scratch *scratch;
  tri_buf messages;  /* as JSON, without the array's end */
  size_t system_len; /* of messages: what stays when all is forgotten */
  tri_jinja_output prompt;
} conversation;

/* Reads what a model's folder has; template_file NULL: its own template. Close *c in any case. */
tri_status conversation_open(const char *model_dir, const char *template_file, conversation *c, tri_error *err);
void conversation_close(conversation *c); /* all zeros is fine */
/* Says what the model is to be told before everything. */
void conversation_begin(conversation *c, const char *system);
void conversation_add(conversation *c, const char *role, const char *text, size_t len);
void conversation_forget(conversation *c); /* all but the beginning */
/* A mark for what is said so far, and back to it. */
size_t conversation_mark(const conversation *c);
void conversation_back_to(conversation *c, size_t mark);
/* Makes the prompt for an answer. *ids lies in *c until the next call. */
tri_status conversation_prompt(conversation *c, const uint32_t **ids, size_t *count, tri_error *err);

#endif
