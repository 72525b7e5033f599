/* SPDX-License-Identifier: Apache-2.0 */
/* The prediction by which the leader's scheduler swaps preempted sequences or computes them again. */
#ifndef TRI_WORKER_COST_SWAP_COST_H
#define TRI_WORKER_COST_SWAP_COST_H

#include "base/options/serve_options.h"
#include "runtime/engine/engine.h"
#include "worker/schedule/scheduler.h"

/* Blocks move as the slowest rank has shown at the start. Tokens are computed as the cost model has it for a whole step
 * of them on this stage, while the other stages have others; those that overlap with the streaming of weights cost
 * nothing. Sequences of idle micro-batches leave by what a stage's step of decodes takes for each that is in flight.
 * Zeros without blocks of the host, or where no prediction can be made: the log says why. */
tri_swap_cost tri_swap_cost_find(const tri_serve_options *o, const tri_engine *e, int local_ranks);

#endif
