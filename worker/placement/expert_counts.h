/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a rank's experts, from the step thread to the coordinator. */
#ifndef TRI_WORKER_PLACEMENT_EXPERT_COUNTS_H
#define TRI_WORKER_PLACEMENT_EXPERT_COUNTS_H

#include "worker/process/worker.h"

/* The control thread: asks the step thread for them. One that is asked already is not asked again. */
void tri_expert_counts_ask(tri_worker *w);
/* The step thread, between two steps: takes them if it has been asked. Waits for steps that have begun. */
void tri_expert_counts_take(tri_worker *w);
/* The control thread, once w->experts_counted is true: what it sends. Arrays are the arena's. */
tri_status tri_expert_counts_message(const tri_worker *w, tri_arena *arena, tri_group_experts *out);
void tri_expert_counts_forget(tri_worker *w);

#endif
