/* SPDX-License-Identifier: Apache-2.0 */
/* Constrained answers of a leader: its model's tokens as bytes, the grammars of requests, and the thread
 * that makes masks. All of it is made when the first such request comes. */
#ifndef TRI_WORKER_PROCESS_ANSWER_GRAMMARS_H
#define TRI_WORKER_PROCESS_ANSWER_GRAMMARS_H

#include "base/wait.h"
#include "worker/schedule/constraint.h"
#include "runtime/model/config.h"

/* Zeros, until tri_answer_grammars_free. */
typedef struct tri_answer_grammars {
  tri_vocabulary *vocabulary;
  tri_grammar_cache *cache;
  tri_mask_maker *maker;
  bool tried;
} tri_answer_grammars;

/* Makes what is not there, by the control thread: of the tokenizer of a served folder or file. ready: woken when a mask
 * is. What fails is in the log, and is not tried again; cache and maker are NULL then. */
void tri_answer_grammars_open(tri_answer_grammars *g, const char *folder, const tri_model_config *model,
                              tri_waker *ready);
void tri_answer_grammars_free(tri_answer_grammars *g); /* when no job is left */

#endif
