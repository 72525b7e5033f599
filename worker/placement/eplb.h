/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's decisions about the placement of experts while the replica serves (vLLM's --enable-eplb).
 *
 * Every --eplb-step-interval steps all ranks count the rows of their experts. Those of the window, and half of what
 * counted before, are the load of each expert: what was asked for long ago fades. The leader then looks at one layer
 * after another, while steps run, for moves that are worth their transfer (runtime/model/expert_moves.h). It hands out
 * each as a plan of its own, with no step under way: all ranks make it between the same two steps
 * (runtime/engine/expert_transfer.h), and a step follows before the next one. So serving stands still for one or two
 * experts of one layer at a time, requests continue where they are, and a layer's row finds its experts in every step.
 *
 * No ranks, clocks or messages here, and nothing allocates but tri_eplb_create. */
#ifndef TRI_WORKER_PLACEMENT_EPLB_H
#define TRI_WORKER_PLACEMENT_EPLB_H

#include "runtime/model/expert_moves.h"
#include "runtime/step/step_plan.h"

typedef struct tri_eplb_config {
  uint64_t interval; /* steps */
  int ep, pp;
  const tri_expert_placement *placement; /* in force; borrowed */
  const int32_t *host_of;                /* [pp, ep] see tri_expert_search_moves; copied; NULL: hosts do not matter */
  const int32_t *stage_of;               /* [layers] likewise, with host_of */
} tri_eplb_config;

/* Since the start. */
typedef struct tri_eplb_stats {
  uint64_t rearrangements; /* windows after which any expert was moved */
  uint64_t moved;          /* slots that got another expert */
  uint64_t ns;             /* that steps waited for it, counting included */
} tri_eplb_stats;

/* The last window's, of its layers with experts. */
typedef struct tri_eplb_report {
  int layers; /* that have changed */
  uint64_t moved, ns, most_ns;
  double before, after; /* balancedness: of the window, and predicted */
} tri_eplb_report;

typedef struct tri_eplb tri_eplb;

tri_status tri_eplb_create(const tri_eplb_config *config, tri_eplb **out);
void tri_eplb_destroy(tri_eplb *b); /* NULL is fine */

/* Returns what all ranks are to do before another step begins: TRI_PLAN_STEP: nothing; TRI_PLAN_COUNT_ROWS; or
 * TRI_PLAN_MOVE_EXPERT, the move being in *m. steps: begun so far; idle: none is wanted now. Looks at one layer at
 * most. */
tri_plan_kind tri_eplb_next(tri_eplb *b, uint64_t steps, bool idle, tri_expert_move *m);
/* All ranks have done that, for which steps waited so long. rows: what was counted, or NULL. */
void tri_eplb_done(tri_eplb *b, uint64_t steps, const float *rows, uint64_t ns);
/* Returns whether experts move: from a count to the end of what it has led to. */
bool tri_eplb_is_busy(const tri_eplb *b);
/* Returns true once after the end of a window in which experts were moved. */
bool tri_eplb_ended(tri_eplb *b, tri_eplb_report *out);
tri_eplb_stats tri_eplb_get_stats(const tri_eplb *b);

#endif
