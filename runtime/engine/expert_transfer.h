/* SPDX-License-Identifier: Apache-2.0 */
/* Movement of experts to other slots on the ranks of a replica, between two of its steps.
 *
 * All ranks make the same moves between the same two plans. The ranks of both shares send each other the weights, slice
 * by slice, through buffers of the host, a piece at a time; no file is read. The other ranks of the replica take note
 * and continue: their next exchange or sum waits for those two. Weights and tables keep their addresses, so that
 * recorded steps stay as they are.
 *
 * A tally counts by slot, and begins anew when its layer changes. What it had counted is added up here by expert. */
#ifndef TRI_RUNTIME_ENGINE_EXPERT_TRANSFER_H
#define TRI_RUNTIME_ENGINE_EXPERT_TRANSFER_H

#include "runtime/engine/engine.h"
#include "runtime/model/expert_moves.h"

/* Makes e->transfer where the placement's experts move, else leaves it NULL. */
tri_status tri_engine_make_transfer(tri_engine *e, tri_error *err);
void tri_expert_transfer_destroy(tri_expert_transfer *t); /* NULL is fine */

/* These are for all ranks of the replica, with no step under way on this one. */
/* TRI_CORRUPT: no placement would be left. */
tri_status tri_engine_move_expert(tri_engine *e, const tri_expert_move *m);
/* *rows: [layers with experts, experts] of the replica since the last call; good until the next one. Exact up to 2^24.
 */
tri_status tri_engine_count_rows(tri_engine *e, const float **rows);

/* How often a move has been made: the number of the placement in force. */
uint64_t tri_engine_placement(const tri_engine *e);
/* [layers of the shard, experts] rows of this rank's slots before their layers' last move; NULL: experts do not move.
 */
const uint64_t *tri_engine_earlier_rows(const tri_engine *e);

#endif
