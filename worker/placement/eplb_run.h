/* SPDX-License-Identifier: Apache-2.0 */
/* Movement of experts in a worker: how the leader's decisions (eplb.h) come about, and what all ranks do about them. */
#ifndef TRI_WORKER_PLACEMENT_EPLB_RUN_H
#define TRI_WORKER_PLACEMENT_EPLB_RUN_H

#include "worker/placement/eplb.h"
#include "worker/process/worker.h"

/* Collective over the group's ranks, once the engine is there: finds which of them share a host, where that matters. */
tri_status tri_eplb_find_hosts(tri_worker *w, tri_error *err);
/* Makes the leader's part; *out NULL without --enable-eplb. */
tri_status tri_eplb_start(const tri_worker *w, tri_eplb **out);
/* Every rank, with no step under way on it: what a plan of kind COUNT_ROWS or MOVE_EXPERT asks for. rows: what was
 * counted; NULL is fine. */
tri_status tri_eplb_take_part(tri_worker *w, const tri_plan_header *h, const float **rows);
/* The leader: leaves the figures for the control thread, and says in the log what a window has come to. */
void tri_eplb_tell(tri_worker *w, tri_eplb *b);

#endif
