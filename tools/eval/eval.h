/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme eval`. */
#ifndef TRI_TOOLS_EVAL_EVAL_H
#define TRI_TOOLS_EVAL_EVAL_H

#include "tools/eval/figures.h"
#include "tools/eval/windows.h"
#include "client/cli/cli.h"

enum { EVAL_MOST_IN_FLIGHT = 256 };

typedef struct eval_options {
  cli_connection connection;
  const char *model, *text, *against, *against_server_key;
  int64_t window, stride, prompt_tokens, max_tokens, concurrency; /* stride 0: half of the window */
  bool json;
} eval_options;

/* The requests to each cluster: for the windows' log probabilities and, to two clusters, for greedy continuations of
 * the windows' beginnings. */
typedef struct eval_plan {
  const uint32_t *ids; /* [tokens] of the text */
  size_t tokens, window, stride, num_windows;
  size_t prompt_tokens, max_tokens; /* of a continuation; max_tokens 0: there are none */
  size_t concurrency;
  bool compare; /* two clusters: the most likely tokens are asked for, too */
} eval_plan;

typedef struct eval_slot {
  uint64_t id; /* the request's */
  size_t item; /* its number among all requests to a cluster */
  size_t got;  /* tokens */
  bool in_use;
} eval_slot;

/* One cluster. */
typedef struct eval_side {
  trireme *c;
  const char *endpoint; /* as users know it */
  bool named;           /* there are two: messages say which one it is */
  cli_presence presence;
  char model[256];
  uint64_t vocab_size, max_model_len, tokenizer; /* tokenizer: its hash */
  /* Requests: windows first, then continuations. */
  const eval_plan *plan;
  eval_slot slots[EVAL_MOST_IN_FLIGHT];
  size_t num_items, next, in_flight, done;
  size_t refused[EVAL_MOST_IN_FLIGHT], num_refused; /* items that the queue had no room for */
  int64_t pause_until_ns;
  unsigned tries;
  /* Answers. */
  eval_scores scores;
  eval_continuations continuations;
} eval_side;

/* ---- side.c: one cluster and what it says of itself ---- */

/* Connects, and asks for the model. Returns the exit code. Close *s in any case. */
int eval_side_open(eval_side *s, const cli_connection *connection);
void eval_side_close(eval_side *s); /* all zeros is fine */
/* Print an error of this cluster: of the connection, or one that it answered with. Return the exit code. */
int eval_side_fail(const eval_side *s, const trireme_error *error);
int eval_side_refused(const eval_side *s, const trireme_error *error);
/* Prints what this cluster cannot do for these options, and returns the exit code. */
int eval_side_cannot(const eval_side *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---- tokens.c: the text and its tokens ---- */

/* Reads a file, or the standard input where path is "-". *text is the caller's to tri_free. Returns the exit code. */
int eval_read_text(const char *path, char **text, size_t *len);
/* Makes tokens of a text, with the special ones of the tokenizer's template: with the tokenizer.json of a model's
 * folder, which must be the cluster's, or where there is none (NULL) by asking the cluster, which takes a text that
 * fits into its context alone. *ids is the caller's to tri_free. Returns the exit code. */
int eval_tokens(eval_side *s, const char *folder, const char *text, size_t len, uint32_t **ids, size_t *num);

/* ---- ask.c: requests and answers ---- */

/* Asks all clusters for what the plan says, each at its own pace, and waits for all answers. Returns the exit code. */
int eval_ask(eval_side *sides, size_t num, const eval_plan *plan);

/* ---- report.c ---- */

/* Prints the figures of one cluster, or of two and how they agree. */
void eval_report(const eval_options *o, const eval_plan *plan, const eval_side *sides, size_t num);

#endif
