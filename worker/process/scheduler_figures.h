/* SPDX-License-Identifier: Apache-2.0 */
/* The counters of the leader's step thread on their way to the control thread, which reports them. */
#ifndef TRI_WORKER_PROCESS_SCHEDULER_FIGURES_H
#define TRI_WORKER_PROCESS_SCHEDULER_FIGURES_H

#include "worker/schedule/dp_ranks.h"
#include "worker/placement/eplb.h"
#include "worker/process/worker.h"

/* Publishes the scheduler's counters. */
void tri_worker_publish(tri_worker *w, const tri_dp_ranks *dp_ranks);
/* Publishes the counters of experts that move. */
void tri_worker_publish_moves(tri_worker *w, const tri_eplb *b);

#endif
