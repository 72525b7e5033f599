/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler's figures on their way to the control thread, which reports them. */
#ifndef TRI_WORKER_PROCESS_SCHEDULER_FIGURES_H
#define TRI_WORKER_PROCESS_SCHEDULER_FIGURES_H

#include "worker/schedule/shards.h"
#include "worker/process/worker.h"

/* Leaves what the scheduler counts where the control thread reads it. */
void tri_worker_publish(tri_worker *w, const tri_shards *shards);

#endif
