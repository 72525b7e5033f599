/* SPDX-License-Identifier: Apache-2.0 */
/* Fills in an encoder's cost table at the start: steps of equally long sequences that mean nothing, from the smallest
 * batch on, each as the fastest of a few runs. What the time does not suffice for follows from smaller ones. */
#ifndef TRI_WORKER_SCHEDULE_BATCH_MEASURE_H
#define TRI_WORKER_SCHEDULE_BATCH_MEASURE_H

#include "runtime/step/limits.h"
#include "runtime/step/step_plan.h"
#include "worker/schedule/batch_cost.h"

typedef struct tri_batch_measure {
  tri_limits limits;
  tri_plan_writer *plan;
  tri_status (*run)(void *ctx); /* runs the plan in the writer on every rank of the replica, to its end */
  void *ctx;
  int64_t until_ns; /* no step begins later, nor one that is expected to end later */
} tri_batch_measure;

/* The table has been made by tri_batch_cost_init; *num_cells of it are measured. TRI_NO_MEMORY, or what run returns. */
tri_status tri_batch_measure_run(const tri_batch_measure *m, tri_batch_cost *c, int *num_cells);

#endif
