/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that generate text, of /v1/completions and /v1/chat/completions: their jobs, and their answers at once
 * or as streams.
 *
 * Shape: a request has `prompts` jobs with `n` choices each. Choice c of job j has the number j * n + c, and that is
 * its `index` in the answer. An endpoint fills in a gw_completion_form and embeds a gw_completion as the first member
 * of its state; completion_jobs.c owns the order of events.
 *
 * All functions run in the loop's thread but gw_completion_open, which belongs to a task's run. */
#ifndef TRI_CLIENT_GATEWAY_COMPLETION_H
#define TRI_CLIENT_GATEWAY_COMPLETION_H

#include "client/gateway/gateway.h"
#include "client/openai/completion_request.h"
#include "client/openai/logprobs.h"

enum { GW_MAX_KEPT_STREAM = 1 << 20 }; /* bytes of a slow reader's answer */

/* ---- completion_jobs.c: the jobs of a request, and its answer at once or as a stream ---- */

typedef struct gw_completion gw_completion;

typedef struct gw_choice {
  tri_buf text; /* of an answer that is not streamed; of a stream, what waits until its reader has caught up */
  oai_logprobs logprobs;
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
  bool prompt_beside;       /* the prompt's token ids are next to the choices, and not in each */
  void (*add_logprobs)(oai_logprobs *l, const trireme_choice *c);
  void (*begin)(gw_completion *s); /* a stream's first events; NULL: none */
  void (*text)(gw_completion *s, size_t choice, const char *text, size_t len);
  void (*finish)(gw_completion *s, size_t choice);
  void (*whole)(gw_completion *s, size_t choice, tri_buf *out); /* an element of an answer at once */
} gw_completion_form;

/* The state of such an exchange; what is around it is the endpoint's. */
struct gw_completion {
  const gw_completion_form *form;
  oai_completion_request *q;
  oai_ignored ignored;
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
 * endpoint keeps in addition. TRI_OUT_OF_RANGE: more choices than an answer may have. TRI_NO_MEMORY: also where the
 * requests of all clients keep too much. In a thread. */
tri_status gw_completion_open(gw_completion *s, struct gw_task *t, size_t more, tri_error *err);
void gw_completion_close(gw_completion *s); /* also after a failure */
/* Sends a job for each prompt. The exchange may be over then. */
void gw_completion_submit(gw_exchange *x);
void gw_completion_ready(struct gw_task *t); /* the same, for a task that needs no model */
/* For a gw_kind. */
void gw_completion_event(gw_exchange *x, gw_job *j, const trireme_event *e);
void gw_completion_drained(gw_exchange *x);
trireme_result gw_completion_send(gw_exchange *x, unsigned index, uint64_t *id, trireme_error *error);

/* Returns the end of a choice as far as it is known. Its texts lie in the choice and in the request. */
oai_tail gw_tail_of(gw_completion *s, size_t choice);
/* Begin and end one event of a stream in s->out; nothing is sent. A failed allocation shows in s->out.failed. */
void gw_event_begin(gw_completion *s);
void gw_event_end(gw_completion *s);
/* Writes `prompt_token_ids`, where they were asked for. */
void gw_write_prompt_ids(gw_completion *s, size_t prompt, tri_buf *b);

#endif
