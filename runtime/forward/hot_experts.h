/* SPDX-License-Identifier: Apache-2.0 */
/* The most used experts of layers whose experts the host computes, on the device, which computes these at the same
 * time.
 *
 * Each such layer has so many slots in the device's memory, and the host keeps all experts, so that an expert leaves a
 * slot by a change of a table alone. The slots are numbered after those of the stage: routing writes such a number, by
 * the table, for a choice whose expert has one (tri_moe_route_args.slots). The device's map is that of these numbers,
 * the host's that of the others, as if two ranks had them, and what both add is summed. Tables and slots stay where
 * they are, so that recorded steps stay as they are.
 *
 * Which experts have slots follows the rows that they have had (runtime/model/hot_choice.h). One exchange is made at a
 * time, while steps run: the old expert becomes the host's for the steps to come; when the steps before have ended, the
 * new one's bytes come through pinned memory on the copy stream, so many of them for each step; when they are there,
 * the new one becomes the device's. No step waits for any of it. Each rank does so for itself, as no other one reads
 * its tables; those that have slices of the same experts count the same rows. */
#ifndef TRI_RUNTIME_FORWARD_HOT_EXPERTS_H
#define TRI_RUNTIME_FORWARD_HOT_EXPERTS_H

#include "runtime/load/hot_weights.h"
#include "runtime/model/hot_choice.h"

typedef struct tri_hot_experts_config {
  tri_backend *backend;
  const tri_model_config *model;
  const tri_shard *shard;     /* its p.hot_experts are the slots of a layer */
  const tri_weights *weights; /* those of the host's experts are there */
  const tri_expert_tally
      *host_tally;   /* [layers, slots of the shard] rows of the host's experts, the backend's memory */
  int window;        /* steps in which rows are counted; 0: TRI_HOT_WINDOW */
  size_t step_bytes; /* that come for each step at most; 0: TRI_HOT_STEP_BYTES */
} tri_hot_experts_config;

enum { TRI_HOT_WINDOW = 128, TRI_HOT_STEP_BYTES = 32 << 20 };

/* A layer's part of it, in the backend's memory. */
typedef struct tri_hot_layer {
  const tri_layer_weights *weights; /* the experts' alone, of all slots */
  const int32_t *slots;             /* see tri_moe_route_args, and most_copies */
  int most_copies;
  int first_slot, num_slots; /* of the device's */
  tri_expert_tally *tally;   /* [num_slots] */
} tri_hot_layer;

/* Since the start. */
typedef struct tri_hot_stats {
  uint64_t windows, exchanges, bytes;
  uint64_t rows, hot_rows; /* of these layers' experts when they were last counted or told; those computed here */
  double share;            /* of the loads then that the experts with slots had */
} tri_hot_stats;

typedef struct tri_hot_experts tri_hot_experts;

/* Takes all memory, and fills the slots with the first experts. backend, shard and weights outlive it. */
tri_status tri_hot_experts_create(const tri_hot_experts_config *config, tri_hot_experts **out);
/* No step may be under way. NULL is fine. */
void tri_hot_experts_destroy(tri_hot_experts *h);

/* A layer of the shard, counted from its first, whose experts are the host's. */
tri_hot_layer tri_hot_experts_layer(const tri_hot_experts *h, int layer);

/* For the thread that launches steps. Continues with counting and with the exchange at hand: before a step, which
 * gives it so many bytes more, and while nothing else is to be done. Allocates nothing and waits for nothing. */
void tri_hot_experts_step(tri_hot_experts *h);
void tri_hot_experts_go_on(tri_hot_experts *h);
/* Begins an exchange. TRI_AGAIN: one is at hand, or rows are counted. TRI_INVALID_ARGUMENT: there is no such layer,
 * slot or expert, or it has a slot. */
tri_status tri_hot_experts_exchange(tri_hot_experts *h, const tri_hot_exchange *x);

/* Adds the rows and steps of what has been computed here to those of the host, [layers, slots of the shard]. Waits for
 * the steps that have begun. */
tri_status tri_hot_experts_tally(tri_hot_experts *h, tri_expert_tally *add_to);
tri_hot_stats tri_hot_experts_stats(const tri_hot_experts *h);

#endif
