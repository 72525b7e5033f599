/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a layer's weights that make up one slot's expert: what moves when it does. */
#ifndef TRI_RUNTIME_LOAD_EXPERT_PARTS_H
#define TRI_RUNTIME_LOAD_EXPERT_PARTS_H

#include "runtime/load/weights.h"

enum { TRI_EXPERT_PARTS = 6 };

/* A run of bytes that a slot has in its memory. */
typedef struct tri_expert_part {
  char *at;
  size_t bytes;
} tri_expert_part;

/* The weights of experts, which all have a row, or rows, for each slot. */
enum { TRI_EXPERT_WEIGHTS = 4 };
extern const tri_weight_id tri_expert_weights[TRI_EXPERT_WEIGHTS];

/* Lists the parts of one of a layer's `slots`, counted from its first: matrices, their scales, biases. Returns how many
 * they are. Those of all ranks with the same slice of an expert are of equal sizes, and come in the same order.
 * Nothing is copied: the parts point into the layer's weights. */
int tri_expert_parts(const tri_layer_weights *y, int slots, int slot, tri_expert_part out[TRI_EXPERT_PARTS]);

#endif
