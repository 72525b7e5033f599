/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a replica group as one of them sees it: its position, and the communicators it uses. */
#ifndef TRI_RUNTIME_STEP_GROUP_H
#define TRI_RUNTIME_STEP_GROUP_H

#include "comm/comm.h"
#include "runtime/model/layout.h"

/* Message tags within the group's communicator. */
enum {
  TRI_TAG_PLAN = 1,
  TRI_TAG_RESULT = 2,
  TRI_TAG_LOGITS = 3,
  TRI_TAG_TRACE = 4,
  TRI_TAG_EXPERT = 5,
  TRI_TAG_LOADED = 6,
  TRI_TAG_HIDDEN = 16 /* + lane */
};

typedef struct tri_group {
  tri_parallel p;
  tri_comm *world;  /* pp x dp x tp ranks, tensor rank fastest; rank 0 leads */
  tri_comm *tensor; /* the tp ranks of this stage and shard */
  /* of several shards, else NULL */
  tri_comm *column; /* the dp ranks of this stage and tensor rank */
  tri_comm *stage;  /* all dp x tp ranks of this stage */
} tri_group;

static inline int tri_group_num_shards(const tri_group *g) { return tri_parallel_dp(g->p); }
static inline int tri_group_rank(const tri_group *g, int pp_rank, int dp_rank, int tp_rank) {
  return (pp_rank * tri_group_num_shards(g) + dp_rank) * g->p.tp + tp_rank;
}
static inline int tri_group_shard_of(const tri_group *g, int rank) { return rank / g->p.tp % tri_group_num_shards(g); }
/* The rank that samples for a shard: tensor rank 0 of the last stage. */
static inline int tri_group_sampler(const tri_group *g, int dp_rank) {
  return tri_group_rank(g, g->p.pp - 1, dp_rank, 0);
}
static inline bool tri_group_is_sampler(const tri_group *g) {
  return g->world->rank == tri_group_sampler(g, g->p.dp_rank);
}
static inline bool tri_group_is_leader(const tri_group *g) { return g->world->rank == 0; }

/* Returns how many operations this rank has begun in its communicators. */
uint64_t tri_group_sequence(const tri_group *g);

/* Takes over world, whose size must be that of the layout: tp, pp, dp and ep are read of it. */
tri_status tri_group_create(tri_comm *world, tri_parallel layout, tri_group *out, tri_error *err);
void tri_group_destroy(tri_group *g);

#endif
