/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a rank's experts, on request: the step thread takes them between two steps, the control thread
 * sends them to the coordinator. */
#ifndef TRI_WORKER_PLACEMENT_EXPERT_ROWS_H
#define TRI_WORKER_PLACEMENT_EXPERT_ROWS_H

#include <stdatomic.h>

#include "comm/wire/replica.h"
#include "runtime/engine/engine.h"

/* Zeros: nothing was ever asked for. The two flags hand the arrays over: the step thread writes what lies below
 * `counted` while that is false, the control thread reads it while it is true. */
typedef struct tri_expert_rows {
  atomic_bool asked;       /* by the control thread */
  atomic_bool counted;     /* by the step thread: for the control thread to send, which then makes it false */
  tri_expert_tally *tally; /* [layers, slots]; NULL until they are asked for, as the next two */
  int32_t *expert_of;      /* [layers, slots] */
  uint64_t *earlier;       /* [layers, experts] see tri_engine_earlier_rows; zeros where experts do not move */
  uint64_t placement;      /* number of the one in force */
  tri_hot_stats hot;       /* of those on the device in addition to the host; zeros without any */
} tri_expert_rows;

/* The control thread: asks the step thread for them. One that is asked already is not asked again. */
void tri_expert_rows_ask(tri_expert_rows *c, const tri_engine *e);
/* The step thread, between two steps: takes them if it has been asked, and waits for steps that have begun. Returns
 * whether the control thread has something to send. */
bool tri_expert_rows_take(tri_expert_rows *c, const tri_engine *e);
/* The control thread, once c->counted is true: fills in what it sends, but for who sends it. Arrays are the arena's. */
tri_status tri_expert_rows_message(const tri_expert_rows *c, const tri_engine *e, tri_arena *arena,
                                   tri_replica_experts *out);
void tri_expert_rows_free(tri_expert_rows *c);

#endif
