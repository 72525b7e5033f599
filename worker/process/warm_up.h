/* SPDX-License-Identifier: Apache-2.0 */
/* A warm-up: what a replica runs before it serves, so that the first request finds what the tenth does: kernels loaded,
 * algorithms of products chosen, and the decode steps recorded that most requests lead to.
 *
 * The steps are ordinary plans. Prompts of growing length come first, then for growing contexts a decode step of each
 * number of rows that steps are padded to, twice: the second time it is recorded. All sequences use the same KV blocks,
 * which hold nothing yet. */
#ifndef TRI_WORKER_PROCESS_WARM_UP_H
#define TRI_WORKER_PROCESS_WARM_UP_H

#include "runtime/step/limits.h"
#include "runtime/step/step_plan.h"

typedef struct tri_warm_up {
  tri_limits limits;
  int num_micro_batches;
  tri_plan_writer *plan;
  tri_status (*run)(void *ctx); /* runs the plan in the writer on every rank of the replica, to its end */
  void *ctx;
  int64_t until_ns; /* no step begins later */
} tri_warm_up;

/* *num_steps is what has been run. TRI_NO_MEMORY, or what run returns. */
tri_status tri_warm_up_run(const tri_warm_up *u, int *num_steps);

#endif
