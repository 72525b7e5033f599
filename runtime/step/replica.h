/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a replica as one of them sees it: its position, and the communicators it uses. */
#ifndef TRI_RUNTIME_STEP_REPLICA_H
#define TRI_RUNTIME_STEP_REPLICA_H

#include "comm/comm.h"
#include "runtime/model/layout.h"

/* Message tags within the replica's communicator. */
enum {
  TRI_TAG_PLAN = 1,
  TRI_TAG_RESULT = 2,
  TRI_TAG_LOGITS = 3,
  TRI_TAG_TRACE = 4,
  TRI_TAG_EXPERT = 5,
  TRI_TAG_LOADED = 6,
  TRI_TAG_HIDDEN = 16 /* + micro-batch */
};

typedef struct tri_replica {
  tri_parallel p;
  tri_comm *world;  /* pp x dp x tp ranks, tensor rank fastest; rank 0 leads */
  tri_comm *tensor; /* the tp ranks of this stage and data-parallel rank */
  /* of several data-parallel ranks, else NULL */
  tri_comm *column; /* the dp ranks of this stage and tensor rank */
  tri_comm *stage;  /* all dp x tp ranks of this stage */
} tri_replica;

/* Ranks of the world, from places and back: tensor ranks are neighbours, then data-parallel ranks, then stages. */
static inline int tri_replica_num_dp_ranks(const tri_replica *g) { return tri_parallel_dp(g->p); }
static inline int tri_replica_rank(const tri_replica *g, int pp_rank, int dp_rank, int tp_rank) {
  return (pp_rank * tri_replica_num_dp_ranks(g) + dp_rank) * g->p.tp + tp_rank;
}
static inline int tri_replica_dp_rank_of(const tri_replica *g, int rank) {
  return rank / g->p.tp % tri_replica_num_dp_ranks(g);
}
/* The rank that samples for a data-parallel rank: tensor rank 0 of the last stage. */
static inline int tri_replica_sampler(const tri_replica *g, int dp_rank) {
  return tri_replica_rank(g, g->p.pp - 1, dp_rank, 0);
}
static inline bool tri_replica_is_sampler(const tri_replica *g) {
  return g->world->rank == tri_replica_sampler(g, g->p.dp_rank);
}
static inline bool tri_replica_is_leader(const tri_replica *g) { return g->world->rank == 0; }

/* Returns how many operations this rank has begun in its communicators. */
uint64_t tri_replica_sequence(const tri_replica *g);

/* Takes over world, whose size must be that of the layout: tp, pp, dp and ep are read of it. A collective: all ranks
 * of world call it at the same time, and wait for each other. On failure world stays the caller's. */
tri_status tri_replica_create(tri_comm *world, tri_parallel layout, tri_replica *out, tri_error *err);
/* Destroys the communicators, world among them. */
void tri_replica_destroy(tri_replica *g);

#endif
