/* SPDX-License-Identifier: Apache-2.0 */
/* Movement of experts between slots while a replica serves: which moves bring a layer nearer to balance.
 *
 * The leader counts the rows of all experts over a window of steps and looks at one layer after another. It begins with
 * the placement in force, and takes one move at a time, so that experts stay where they are unless moving them pays:
 * two experts of two shares change places, or a slot whose expert has others gets a copy of a busy one. Every move
 * leaves a placement in which each expert has a slot and no share has one twice, so that steps may run between any two.
 *
 * A move counts by the most rows that a share which it touches has afterwards; it must be fewer than the busiest share
 * has, and by enough to pay for the transfer. Where the router chooses by groups of experts and shares lie on several
 * hosts, a move to another host must leave TRI_EXPERT_HOST_COST percent fewer than the best within one. */
#ifndef TRI_RUNTIME_MODEL_EXPERT_MOVES_H
#define TRI_RUNTIME_MODEL_EXPERT_MOVES_H

#include "runtime/model/expert_placement.h"

typedef struct tri_expert_move {
  int32_t layer;    /* of the model */
  int32_t to, from; /* slots of different shares: `to` gets the expert of `from`, */
  bool swaps;       /* and `from` that of `to`, which else must have another slot */
} tri_expert_move;

/* False where a slot, an expert or a share would not be as every placement must have it. */
bool tri_expert_move_is_sound(const tri_expert_placement *p, int ep, const tri_expert_move *m);
void tri_expert_placement_move(tri_expert_placement *p, const tri_expert_move *m);

typedef struct tri_expert_search_config {
  int num_experts, num_slots, ep;
} tri_expert_search_config;
typedef struct tri_expert_search tri_expert_search;

/* Takes all of its memory here. */
tri_status tri_expert_search_create(const tri_expert_search_config *config, tri_expert_search **out);
void tri_expert_search_destroy(tri_expert_search *s); /* NULL is fine */

/* Returns the number of moves, of `most` at most, that a layer's placement is worth where its experts have had so many
 * rows; 0: the balance would rise by less than a margin, or by less than chance moves it. host_of: [ep] the host of
 * each share, where the router's groups shall stay on theirs; or NULL. *before and *after: what
 * tri_expert_balancedness is predicted to be without the moves and with them. */
int tri_expert_search_moves(tri_expert_search *s, const float *rows, const int32_t *expert_of, const int32_t *host_of,
                            int layer, tri_expert_move *out, int most, double *before, double *after);

#endif
