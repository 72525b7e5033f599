/* SPDX-License-Identifier: Apache-2.0 */
/* The message that a choice of a chat becomes: text, reasoning, and calls of tools. */
#ifndef TRI_CLIENT_OPENAI_CHAT_MESSAGE_H
#define TRI_CLIENT_OPENAI_CHAT_MESSAGE_H

#include "client/openai/logprobs.h"
#include "client/openai/model.h"
#include "client/openai/tools.h"

typedef struct oai_chat_message oai_chat_message;

/* Takes answers apart as the model writes calls and reasoning, where there is a tool to be called (tools: those of the
 * request, or NULL). id: of the request; the calls' ids are made of it and of the choice's number. */
typedef struct oai_chat_message_config {
  const oai_model *model;
  const oai_tools *tools;
  bool in_reasoning, in_text; /* the prompt ends there */
  size_t choice;
  const char *id;
  /* A stream's: writes an event with a delta whose members are `members`. NULL: the message is written whole. */
  void (*event)(void *ctx, size_t choice, const tri_buf *members);
  void *ctx;
} oai_chat_message_config;
tri_status oai_chat_message_create(const oai_chat_message_config *config, oai_chat_message **out);
void oai_chat_message_free(oai_chat_message *m); /* NULL is fine */
tri_status oai_chat_message_push(oai_chat_message *m, const char *text, size_t len);
/* Returns in *calls whether it calls tools, and each call is whole. end: of the choice. */
tri_status oai_chat_message_finish(oai_chat_message *m, const oai_tail *end, bool *calls);
/* Members of the whole message after its role. */
void oai_chat_message_write(const oai_chat_message *m, tri_buf *out);

/* ---- elements of `choices`, also for `trireme submit --file` ---- */

/* A choice that is whole. */
typedef struct oai_chat_choice {
  size_t index;
  const char *text; /* may be NULL without bytes */
  size_t len;
  oai_logprobs *logprobs; /* NULL: none were asked for */
  oai_tail tail;
} oai_chat_choice;

/* Opens one, and in it its `member`: a delta or a message. */
void oai_chat_choice_open(tri_buf *b, size_t index, const char *member);
/* Ends both. logprobs NULL: none. */
void oai_chat_choice_end(tri_buf *b, oai_logprobs *logprobs, const oai_tail *tail);
/* Writes one. apart: how its text is taken apart; NULL: it is one text. */
void oai_chat_choice_write(tri_buf *b, const oai_chat_choice *c, const oai_chat_message_config *apart);
/* Returns the reason that ends a choice which may have called tools. */
const char *oai_chat_reason(const char *reason, bool calls);

#endif
