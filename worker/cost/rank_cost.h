/* SPDX-License-Identifier: Apache-2.0 */
/* The cost model of a rank's own stage, as `trireme plan` has it: by the figures that workers have left of this device,
 * else those of its kind; of a CPU by what a moment of measuring gives. */
#ifndef TRI_WORKER_COST_RANK_COST_H
#define TRI_WORKER_COST_RANK_COST_H

#include "base/options/serve_options.h"
#include "runtime/engine/engine.h"
#include "runtime/cost/cost.h"

typedef struct tri_rank_cost {
  tri_cost_model model; /* of one stage; points to the share: not to be copied */
  tri_cost_share share;
} tri_rank_cost;

/* Needs no weights. With products on the host (a CPU, or a device's experts) it measures them with the rank's threads,
 * for a moment in which nothing else is to run. */
tri_status tri_rank_cost_find(const tri_serve_options *o, const tri_engine *e, tri_rank_cost *out, tri_error *err);

#endif
