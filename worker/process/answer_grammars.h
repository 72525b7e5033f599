/* SPDX-License-Identifier: Apache-2.0 */
/* Constrained answers of a leader: its model's tokens as bytes, the grammars of requests, and the threads
 * that use both. All of it is made when the first such request comes. */
#ifndef TRI_WORKER_PROCESS_ANSWER_GRAMMARS_H
#define TRI_WORKER_PROCESS_ANSWER_GRAMMARS_H

#include "base/wait.h"
#include "worker/schedule/constraint.h"
#include "runtime/model/config.h"

/* Zeros, until tri_answer_grammars_free. */
typedef struct tri_answer_grammars {
  tri_grammar_source source; /* first */
  tri_mask_maker *maker;     /* NULL: not started */
  const char *folder;
  const tri_model_config *model;
  /* of the thread that prepares */
  tri_vocabulary *vocabulary;
  tri_grammar_cache *cache;
  bool tried;
} tri_answer_grammars;

/* Starts the threads unless they run, by the control thread. The tokenizer of the served folder or file is read by one
 * of them when a grammar is asked for; what fails then is in the log, and is not tried again. ready: woken when a mask
 * is. folder, model: borrowed. */
tri_status tri_answer_grammars_start(tri_answer_grammars *g, const char *folder, const tri_model_config *model,
                                     tri_waker *ready);
void tri_answer_grammars_free(tri_answer_grammars *g); /* when no job is left */

#endif
