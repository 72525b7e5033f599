/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that generate text, of /v1/completions and /v1/chat/completions: what they ask for, and their jobs. */
#ifndef TRI_CLIENT_GATEWAY_COMPLETION_H
#define TRI_CLIENT_GATEWAY_COMPLETION_H

#include "client/gateway/gateway.h"

enum { GW_MAX_STOP = 16, GW_MAX_STOP_IDS = 32, GW_MAX_BIAS = 512, GW_MAX_ALLOWED_IDS = 131072, GW_MAX_CHOICES = 64 };
enum { GW_MAX_KEPT_STREAM = 1 << 20 }; /* bytes of a slow reader's answer */

/* ---- completion_request.c ---- */

/* A request: its texts lie in the document that it was read from, until they are kept. */
typedef struct gw_completion_request {
  trireme_request r;
  gw_inputs prompt;
  bool stream, include_usage, continuous_usage, beam_search, add_special_tokens, cache;
  bool skip_special_tokens, include_stop, return_token_ids;
  int64_t best_of;
  int64_t prompt_logprobs; /* in the form of vLLM; -1: none. Those of an echo are in the request */
  trireme_string stops[GW_MAX_STOP];
  uint32_t *stop_ids, *allowed_ids;
  trireme_logit_bias *bias;
  tri_buf texts; /* of gw_completion_keep */
} gw_completion_request;

/* Fields that both endpoints have, of a structure that begins with a gw_completion_request. */
extern const gw_field_table gw_completion_fields;
void gw_completion_request_init(gw_completion_request *q);
/* Checks them together, and makes of them what a job is told. */
tri_status gw_completion_check(gw_completion_request *q, tri_error *err);
/* Reads a request of /v1/completions. Free *out in any case. */
tri_status gw_completion_parse(const tri_json *object, gw_completion_request *out, gw_ignored *ignored, tri_error *err);
/* Copies its texts, which the document is not needed for any more. */
tri_status gw_completion_keep(gw_completion_request *q, tri_error *err);
void gw_completion_request_free(gw_completion_request *q);

/* ---- logprobs.c ---- */

/* Those of a choice that are not yet written. The legacy form has four arrays, the chat's one of objects. */
typedef struct gw_logprobs {
  tri_buf tokens, values, tops, offsets; /* elements, with commas; the chat's are in `tokens` */
  uint64_t characters;                   /* of the text before the next token */
} gw_logprobs;
void gw_logprobs_add(gw_logprobs *l, const trireme_choice *c);
/* Writes the object and forgets the tokens, but not how far the text has come. */
void gw_logprobs_write(gw_logprobs *l, tri_buf *out);
void gw_chat_logprobs_add(gw_logprobs *l, const trireme_choice *c);
void gw_chat_logprobs_write(gw_logprobs *l, tri_buf *out);
void gw_logprobs_free(gw_logprobs *l);

/* The end of a choice. */
typedef struct gw_tail {
  const char *finish_reason;         /* empty: not known yet */
  const trireme_string *stop_string; /* what has stopped it, or NULL, and -1 */
  int64_t stop_token_id;
  tri_buf *token_ids; /* elements, with commas, which are forgotten then; NULL: they were not asked for */
} gw_tail;
/* Writes the members: `finish_reason`, null until it is known, then also `stop_reason`; `token_ids`. */
void gw_write_tail(tri_buf *b, const gw_tail *t);
/* Adds token ids to elements of an array. */
void gw_add_ids(tri_buf *b, const uint32_t *ids, size_t num);
/* Elements of a choice's `prompt_logprobs`: null, then objects by token id. */
void gw_prompt_logprobs_add(tri_buf *b, const trireme_choice *c);

/* ---- completion_jobs.c: the jobs of a request, and its answer at once or as a stream ---- */

typedef struct gw_completion gw_completion;

typedef struct gw_choice {
  tri_buf text; /* of an answer that is not streamed; of a stream, what waits until its reader has caught up */
  gw_logprobs logprobs;
  tri_buf prompt_logprobs;            /* elements, with commas */
  tri_buf token_ids;                  /* likewise: those that are not written yet */
  int64_t stop_string, stop_token_id; /* of trireme_finished */
  char finish_reason[16];             /* empty: not known yet */
  bool begun;                         /* it has had an event */
} gw_choice;

/* The parts that the two endpoints have in ways of their own. Events are written with gw_event_begin and gw_event_end,
 * and between them one element of `choices`. */
typedef struct gw_completion_form {
  const char *id_prefix, *object, *chunk_object;
  const char *prompt_field; /* what an error of the prompt is an error of */
  bool prompt_beside;       /* the prompt's token ids stand beside the choices, and not in each */
  void (*add_logprobs)(gw_logprobs *l, const trireme_choice *c);
  void (*begin)(gw_completion *s); /* a stream's first events; NULL: none */
  void (*text)(gw_completion *s, size_t choice, const char *text, size_t len);
  void (*finish)(gw_completion *s, size_t choice);
  void (*whole)(gw_completion *s, size_t choice, tri_buf *out); /* an element of an answer at once */
} gw_completion_form;

/* The state of such an exchange; what is around it is the endpoint's. */
struct gw_completion {
  const gw_completion_form *form;
  gw_completion_request *q;
  gw_ignored ignored;
  size_t n, num_choices; /* of each prompt, and of all */
  gw_choice *choices;
  uint64_t *counts;    /* of each prompt: completion tokens so far */
  tri_buf *prompt_ids; /* of each prompt, elements with commas; NULL: they were not asked for */
  unsigned num_accepted;
  uint64_t prompt_tokens, completion_tokens;
  size_t kept;            /* bytes of the answer that wait: of one at once, all of it */
  uint64_t cached_tokens; /* of the prompts: those that were there, as is known at the end */
  tri_buf out, prefix;    /* events that are not sent yet; what each begins with */
  bool begun;             /* the stream's head is sent */
  bool prompt_told;       /* an event has the prompt's token ids */
  char id[GW_ID];         /* as of its exchange */
  int64_t created;
};

struct gw_task;
/* Keeps what the answer to a request needs that has been read, and makes room for its choices. more: bytes that the
 * endpoint keeps beside it. */
tri_status gw_completion_open(gw_completion *s, struct gw_task *t, size_t more, tri_error *err);
void gw_completion_close(gw_completion *s); /* also after a failure */
/* Sends a job for each prompt. The exchange may be over then. */
void gw_completion_submit(gw_exchange *x);
void gw_completion_ready(struct gw_task *t); /* the same, for a task that needs no model */
/* For a gw_kind. */
void gw_completion_event(gw_exchange *x, gw_job *j, const trireme_event *e);
void gw_completion_drained(gw_exchange *x);
trireme_result gw_completion_send(gw_exchange *x, unsigned index, uint64_t *id, trireme_error *error);

/* Returns the end of a choice as far as it is known. */
gw_tail gw_tail_of(gw_completion *s, size_t choice);
void gw_event_begin(gw_completion *s);
void gw_event_end(gw_completion *s);
/* Writes `prompt_token_ids`, where they were asked for. */
void gw_write_prompt_ids(gw_completion *s, size_t prompt, tri_buf *b);

#endif
