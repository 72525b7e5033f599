/* SPDX-License-Identifier: Apache-2.0 */
/* A placement says which expert each slot of each layer has.
 *
 * A layer has a slot for each expert, and `num_redundant` more for copies of some. Share e of ep has the slots
 * tri_range_part(num_slots, ep, e). Without a placement (NULL) slot s has expert s, and there are no copies. Every rank
 * of a replica has the same placement. */
#ifndef TRI_RUNTIME_MODEL_EXPERT_PLACEMENT_H
#define TRI_RUNTIME_MODEL_EXPERT_PLACEMENT_H

#include <stdint.h>

#include "base/status.h"
#include "runtime/model/config.h"

typedef enum tri_expert_strategy { TRI_EXPERTS_LINEAR, TRI_EXPERTS_ROUND_ROBIN } tri_expert_strategy;

/* Rows are those of the layers with experts, in their order. */
typedef struct tri_expert_placement {
  int num_layers, num_rows; /* of the model; of them, those with experts */
  int num_experts, num_slots;
  int room;           /* slots of one expert that tables have room for; 0: as many as it has */
  int32_t *row_of;    /* [num_layers]; -1: no experts */
  int32_t *expert_of; /* [num_rows, num_slots] */
} tri_expert_placement;

typedef struct tri_expert_placement_config {
  int ep;
  tri_expert_strategy strategy;
  int num_redundant; /* with a file 0 means: as many as it has */
  const char *file;  /* see tri_expert_placement_read; NULL: as the strategy says */
  bool moves;        /* experts change their slots while the replica serves (expert_moves.h) */
} tri_expert_placement_config;

/* LINEAR: shares have runs of experts; ROUND_ROBIN: experts e, e + ep, e + 2 ep ... Copies without a file are those of
 * the first experts, and no share has an expert twice. *out is NULL where nothing differs from linear, nor ever will.
 */
tri_status tri_expert_placement_make(const tri_model_config *c, const tri_expert_placement_config *config,
                                     tri_expert_placement **out, tri_error *err);
/* {"num_experts": E, "num_slots": S, "layers": [[expert of slot 0, ...], ...]} with a row for each layer with experts,
 * or one for all of them; other members are not looked at. Refuses unknown experts, and experts without a slot. */
tri_status tri_expert_placement_read(const tri_model_config *c, const char *path, tri_expert_placement **out,
                                     tri_error *err);
/* All slots of all layers are expert 0's at first. */
tri_expert_placement *tri_expert_placement_alloc(const tri_model_config *c, int num_slots); /* NULL: no memory */
void tri_expert_placement_free(tri_expert_placement *p);                                    /* NULL is fine */

/* Those that follow take NULL as linear. */
static inline int tri_expert_slots(const tri_expert_placement *p, const tri_model_config *c) {
  return p ? p->num_slots : (int)c->moe.num_experts;
}
/* The expert of a slot of a layer with experts. */
static inline int tri_expert_of_slot(const tri_expert_placement *p, int layer, int slot) {
  return p ? p->expert_of[p->row_of[layer] * p->num_slots + slot] : slot;
}
/* Equal for equal placements; 0 for NULL. */
uint64_t tri_expert_placement_hash(const tri_expert_placement *p);

/* The most slots that an expert has in a layer, or will have. */
int tri_expert_most_copies(const tri_expert_placement *p);
/* The table of a layer for tri_moe_route_args.slots: out is [num_experts, 1 + most_copies]. */
void tri_expert_slot_table(const tri_expert_placement *p, int layer, int most_copies, int32_t *out);

#endif
