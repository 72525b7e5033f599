/* SPDX-License-Identifier: Apache-2.0 */
/* The batch scheduler of TurboTransformers (Fang et al. 2021, section 5, Algorithm 3): waiting sequences, sorted by
 * length, are cut into batches whose padded costs have the least sum, by dynamic programming:
 *
 *   best[i] = min over b of best[i - b] + cost(length[i], b)
 *
 * The cost never falls with the length or the number of sequences, so that no other division into batches is cheaper:
 * exchanging sequences until batches are neighbours in the sorted order only shortens the longest of each. */
#ifndef TRI_WORKER_SCHEDULE_BATCH_PLANNER_H
#define TRI_WORKER_SCHEDULE_BATCH_PLANNER_H

#include "base/status.h"
#include "worker/schedule/batch_cost.h"

/* Sequences that are planned at a time; those after them wait for their turn. */
enum { TRI_BATCH_QUEUE = 1024 };

typedef struct tri_batch_planner tri_batch_planner;

/* max_batch: sequences of one batch. TRI_NO_MEMORY. */
tri_status tri_batch_planner_create(int max_batch, int max_tokens, tri_batch_planner **out);
void tri_batch_planner_destroy(tri_batch_planner *p); /* NULL is fine */
/* Takes over what batches cost; of another table than before, all of it anew. */
void tri_batch_planner_set_cost(tri_batch_planner *p, const tri_batch_cost *c);

/* Cuts n <= TRI_BATCH_QUEUE lengths, which ascend, into batches. ends[k] is the index after batch k. Returns their
 * number, and their sum of seconds in *seconds. A sequence longer than a step is a batch of its own. */
int tri_batch_planner_cut(tri_batch_planner *p, const int *lengths, int n, int *ends, double *seconds);

#endif
