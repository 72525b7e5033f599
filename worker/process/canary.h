/* SPDX-License-Identifier: Apache-2.0 */
/* The canary: one token that goes through every rank of a replica before it is ready. Its logits must be numbers, as
 * must all weights that are streamed for it, and what the logits put first is compared with what the replicas say that
 * serve already. Weights that stay have been looked at when they were loaded (runtime/load/finite_weights.h). */
#ifndef TRI_WORKER_PROCESS_CANARY_H
#define TRI_WORKER_PROCESS_CANARY_H

#include "worker/process/worker.h"

typedef struct tri_canary {
  tri_worker *w;
  float *logits; /* [vocab_size] on the sampling rank of a model that generates, else NULL */
  size_t num_wrong, num_seen;
} tri_canary;

/* The leader: writes the plan of the step: token 0 as a prompt in slot 0, and, where the model generates, a greedy
 * sample after it. */
void tri_canary_plan(const tri_worker *w, tri_plan_writer *plan);

/* Every rank, before that step: the sampling ranks are to see its logits. TRI_NO_MEMORY. */
tri_status tri_canary_begin(tri_canary *c, tri_worker *w, tri_error *err);
/* After tri_engine_begin, which has waited for the logits, and before a result leaves this rank. TRI_CORRUPT: some, or
 * some weights, are not finite, and another start would end alike. Releases what begin has taken, also where the step
 * has failed. */
tri_status tri_canary_end(tri_canary *c, tri_status step, tri_error *err);

/* The leader, with the step's result of one data-parallel rank: keeps in w->canary what goes with READY. */
void tri_canary_keep(tri_worker *w, const tri_step_result *result);

#endif
