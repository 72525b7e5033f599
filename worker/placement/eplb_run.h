/* SPDX-License-Identifier: Apache-2.0 */
/* Movement of experts in a worker: how the leader's decisions (eplb.h) come about, and what all ranks do about them. */
#ifndef TRI_WORKER_PLACEMENT_EPLB_RUN_H
#define TRI_WORKER_PLACEMENT_EPLB_RUN_H

#include "runtime/engine/engine.h"
#include "worker/placement/eplb.h"

/* Collective over the replica's ranks: finds which of them share a host, where that matters. *host_of, else unchanged,
 * is the caller's to free, also after a failure: [ranks] the first rank of each one's host. */
tri_status tri_eplb_find_hosts(const tri_engine *e, int32_t **host_of, tri_error *err);
/* Makes the leader's part, which looks at the rows every `interval` steps; *out NULL without --enable-eplb.
 * host_of_rank: as found, NULL where it does not matter. */
tri_status tri_eplb_start(const tri_engine *e, uint64_t interval, const int32_t *host_of_rank, tri_eplb **out);
/* Every rank, with no step under way on it: does what a plan of kind COUNT_ROWS or MOVE_EXPERT asks for. rows: what was
 * counted; NULL is fine. */
tri_status tri_eplb_take_part(tri_engine *e, const tri_plan_header *h, const float **rows);
/* The leader: says in the log what a window has come to, once it has ended. */
void tri_eplb_log(tri_eplb *b);

#endif
