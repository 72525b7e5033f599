/* SPDX-License-Identifier: Apache-2.0 */
/* Logprobs, ends and token ids of a choice, in the forms of /v1/completions and of chat. */
#ifndef TRI_CLIENT_OPENAI_LOGPROBS_H
#define TRI_CLIENT_OPENAI_LOGPROBS_H

#include "client/trireme.h"
#include "base/buf.h"

/* Those of a choice that are not yet written. The legacy form has four arrays, the chat's one of objects. */
typedef struct oai_logprobs {
  tri_buf tokens, values, tops, offsets; /* elements, with commas; the chat's are in `tokens` */
  uint64_t characters;                   /* of the text before the next token */
} oai_logprobs;
void oai_logprobs_add(oai_logprobs *l, const trireme_choice *c);
/* Writes the object and forgets the tokens, but not how far the text has come. */
void oai_logprobs_write(oai_logprobs *l, tri_buf *out);
void oai_chat_logprobs_add(oai_logprobs *l, const trireme_choice *c);
void oai_chat_logprobs_write(oai_logprobs *l, tri_buf *out);
void oai_logprobs_free(oai_logprobs *l);

/* The end of a choice. */
typedef struct oai_tail {
  const char *finish_reason;         /* empty: not known yet */
  const trireme_string *stop_string; /* what has stopped it, or NULL, and -1 */
  int64_t stop_token_id;
  tri_buf *token_ids; /* elements, with commas, which are forgotten then; NULL: they were not asked for */
} oai_tail;
/* Writes the members: `finish_reason`, null until it is known, then also `stop_reason`; `token_ids`. */
void oai_write_tail(tri_buf *b, const oai_tail *t);
/* Adds token ids to elements of an array. */
void oai_add_ids(tri_buf *b, const uint32_t *ids, size_t num);
/* Elements of a choice's `prompt_logprobs`: null, then objects by token id. */
void oai_prompt_logprobs_add(tri_buf *b, const trireme_choice *c);

#endif
