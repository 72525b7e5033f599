/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a rank's weights stay in memory, and which come from files in every step.
 *
 * Experts that the host computes for a device (TRI_PART_ON_HOST) are in none of this: they never leave its memory.
 *
 * What can come and go is cut into parts: the matrices of a layer's attention, and those of its MLP or experts.
 * Vectors, routers, embeddings and the head always stay. A step walks over all parts in the same order, so that of a
 * cache by recent use nothing would be left when it is wanted again: the parts that stay are fixed instead, as many as
 * there is room for, spread evenly over the layers, so that what streams comes in even portions, too. */
#ifndef TRI_RUNTIME_LOAD_TIERS_H
#define TRI_RUNTIME_LOAD_TIERS_H

#include "offload/ring.h"
#include "base/status.h"

enum { TRI_PART_ATTENTION, TRI_PART_MLP, TRI_LAYER_PARTS, TRI_PART_STAYS = -1, TRI_PART_ON_HOST = -2 };

/* Number of a part of the shard's layer l. */
static inline int tri_part_of(int l, int half) { return l * TRI_LAYER_PARTS + half; }

typedef struct tri_tiers_config {
  const size_t *part_bytes; /* [num_parts] 0: the layer has nothing of that kind */
  int num_parts;
  size_t room;         /* bytes for the parts that stay and for the ring */
  const char *bound;   /* the error's field where there is too little; NULL: "memory" */
  size_t max_resident; /* of those that stay; SIZE_MAX: no limit but room */
  int keep_layers;     /* exactly so many layers stay; -1: as many parts as fit */
  int ring_parts;      /* that the ring has room for; fewer where there is no room, 2 at least */
} tri_tiers_config;

typedef struct tri_tiers {
  int num_parts, num_streamed, ring_parts;
  int *number;            /* [num_parts] among the streamed parts, or TRI_PART_STAYS */
  int *parts;             /* [num_streamed] */
  size_t *bytes;          /* [num_streamed] */
  tri_ring_place *places; /* [num_streamed] */
  size_t ring_bytes;
  size_t resident, streamed; /* bytes of parts */
} tri_tiers;

/* TRI_NO_CAPACITY, with the numbers: not even two parts fit, or not the layers that are to stay. Where everything fits,
 * nothing is streamed. The plan is the caller's (tri_tiers_free), and does not point into the config. Equal configs
 * give equal plans. */
tri_status tri_tiers_plan(const tri_tiers_config *config, tri_tiers **out, tri_error *err);
void tri_tiers_free(tri_tiers *t); /* NULL is fine */

/* Sets *least to the room with which a plan succeeds: the layers that are to stay, and *ring bytes of a ring of two
 * parts; *usual to that with a ring of as many parts as are wanted; *most to the room beyond which hardly more stays.
 * The config's room is not read. TRI_NO_MEMORY. */
tri_status tri_tiers_room(const tri_tiers_config *config, size_t *least, size_t *ring, size_t *usual, size_t *most);

#endif
