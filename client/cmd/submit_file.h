/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of `submit --file`. */
#ifndef TRI_CLIENT_CMD_SUBMIT_FILE_H
#define TRI_CLIENT_CMD_SUBMIT_FILE_H

#include "client/cmd/cmd.h"
#include "client/openai/chat_request.h"
#include "client/openai/logprobs.h"

/* The forms of a line: an object with a prompt and fields of a request; or one of OpenAI's batches, whose body goes to
 * /v1/completions, /v1/chat/completions or /v1/embeddings. */
typedef enum submit_form { SUBMIT_PLAIN, SUBMIT_COMPLETION, SUBMIT_CHAT, SUBMIT_EMBEDDING } submit_form;

typedef struct submit_chat submit_chat; /* a model's tokenizer and chat template */

/* One of a request's texts, as far as it has streamed in. */
typedef struct submit_piece {
  tri_buf text, ids, logprobs;
  oai_logprobs openai; /* instead of logprobs, for OpenAI's form */
} submit_piece;

/* An input line from its reading to its writing. */
typedef struct submit_slot {
  struct submit_slot *next; /* the line after it */
  uint64_t line, id;
  bool done, cached, logprobs;
  tri_buf prompt_logprobs; /* elements, with commas */
  submit_form form;
  const submit_chat *chat;           /* of SUBMIT_CHAT */
  bool calls, in_reasoning, in_text; /* its answer may call tools; its prompt ends in reasoning, or in a message */
  tri_buf input;                     /* the line, for another try */
  tri_buf kept;                      /* members of the line that its answer repeats, with a comma before each */
  tri_buf custom_id, model;          /* as JSON; model may be empty */
  unsigned tries;
  int64_t retry_ns; /* when it is sent again; 0: it is on its way */
  char request_id[33];
  trireme_string *stops; /* the line's, for stop_reason */
  size_t num_stops;
  uint32_t num_choices;
  submit_piece *choices;
  tri_buf result; /* the output line */
} submit_slot;

/* ---- submit_line.c ---- */

/* The request that a line is. */
typedef struct submit_request {
  cli_request q;
  trireme_embed_request embed; /* for SUBMIT_EMBEDDING; its strings lie in doc */
  uint32_t *embed_ids;
  oai_chat_request chat; /* for SUBMIT_CHAT, with is_chat; likewise */
  uint32_t *chat_ids;
  bool is_chat;
  tri_json_doc *doc;
} submit_request;
/* The part that the lines of a file have in common. */
typedef struct submit_context {
  const cli_request *defaults;
  submit_chat *chat; /* NULL: messages cannot be rendered, */
  tri_error no_chat; /* and this is why, where --model was given */
} submit_context;
/* Reads s->input, and sets what s has of it (form, kept, custom_id, model, choices). Free *out in any case. */
tri_status submit_line_parse(const submit_context *x, submit_slot *s, submit_request *out, tri_error *err);
void submit_request_free(submit_request *r);

/* ---- submit_chat.c, or submit_no_chat.c in a build without tokenizers ---- */

/* Reads the served model's folder, and asks the coordinator whether it is that. Returns the exit code. A folder that
 * makes no chats is no failure, as lines with a prompt need none: *out then stays NULL, and *why says it. */
int submit_chat_open(const char *dir, trireme *c, int timeout_ms, submit_chat **out, tri_error *why);
void submit_chat_close(submit_chat *chat); /* NULL is fine */
tri_status submit_chat_parse(submit_chat *chat, const cli_request *defaults, const tri_json *body, submit_slot *s,
                             submit_request *out, tri_error *err);
void submit_chat_free(submit_request *r);
/* Writes an element of the answer's `choices`. */
void submit_chat_choice(submit_slot *s, size_t index, const char *text, size_t len, submit_piece *piece,
                        const oai_tail *tail);

/* ---- submit_answer.c: what a slot's output line is made of ---- */

void submit_answer_tokens(submit_slot *s, const trireme_event *e);
/* Returns false where the job did not end by itself. */
bool submit_answer_done(submit_slot *s, const trireme_event *e);
void submit_answer_embedding(submit_slot *s, const trireme_event *e);
/* answered: the coordinator, or this program, has refused it; otherwise that is not known. */
void submit_answer_error(submit_slot *s, const trireme_error *e, bool answered);
void submit_slot_free(submit_slot *s);

/* ---- submit_resume.c ---- */

typedef struct submit_done submit_done; /* what an output has answers to */
/* Reads an output and takes out of the file what are no answers: errors, and a last line that is cut off. A file that
 * is not there has none. Returns the exit code. */
int submit_done_read(const char *program, const char *path, submit_done **out);
void submit_done_free(submit_done *d); /* NULL is fine */
/* Returns whether there is an answer to a line, which is then no other line's: a custom_id may be there twice. */
bool submit_done_take(submit_done *d, const submit_slot *s);
bool submit_done_take_line(submit_done *d, uint64_t line); /* the same of a line without a custom_id */

#endif
