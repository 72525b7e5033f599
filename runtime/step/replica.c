/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/step/replica.h"

static tri_status refuse_size(const tri_comm *world, tri_parallel p, int64_t needed, tri_error *err) {
  if (tri_parallel_dp(p) == 1)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "tensor_parallel_size",
                    "%d workers, but tensor-parallel %d x pipeline-parallel %d needs %lld", world->size, p.tp, p.pp,
                    (long long)needed);
  return tri_fail(err, TRI_INVALID_ARGUMENT, "tensor_parallel_size",
                  "%d workers, but tensor-parallel %d x data-parallel %d x pipeline-parallel %d needs %lld",
                  world->size, p.tp, p.dp, p.pp, (long long)needed);
}

/* Everybody splits, in the same order. The second argument is what the ranks of one communicator have in common, the
 * third their order in it. */
static tri_status connect(tri_replica *g) {
  tri_parallel p = g->p;
  int dp = tri_parallel_dp(p);
  TRI_CHECK(tri_comm_split(g->world, p.pp_rank * dp + p.dp_rank, p.tp_rank, NULL, &g->tensor));
  if (dp == 1) return TRI_OK;
  TRI_CHECK(tri_comm_split(g->world, p.pp_rank * p.tp + p.tp_rank, p.dp_rank, NULL, &g->column));
  return tri_comm_split(g->world, p.pp_rank, tri_parallel_stage_rank(p), NULL, &g->stage);
}

tri_status tri_replica_create(tri_comm *world, tri_parallel layout, tri_replica *out, tri_error *err) {
  tri_parallel p = layout;
  int dp = tri_parallel_dp(p);
  if (p.tp < 1 || p.pp < 1 || dp < 1 || (int64_t)p.tp * p.pp * dp != world->size)
    return refuse_size(world, p, (int64_t)p.tp * p.pp * dp, err);
  p.tp_rank = world->rank % p.tp;
  p.dp_rank = world->rank / p.tp % dp;
  p.pp_rank = world->rank / p.tp / dp;
  tri_replica g = {.p = p, .world = world};
  tri_status st = connect(&g);
  if (st != TRI_OK) {
    g.world = NULL; /* stays the caller's */
    tri_replica_destroy(&g);
    return tri_fail(err, st, "comm", "cannot form the replica's communicators: %s", tri_status_text(st));
  }
  *out = g;
  return TRI_OK;
}

/* World is the last: the others were split from it. */
void tri_replica_destroy(tri_replica *g) {
  tri_comm_destroy(g->stage);
  tri_comm_destroy(g->column);
  tri_comm_destroy(g->tensor);
  tri_comm_destroy(g->world);
  *g = (tri_replica){0};
}

uint64_t tri_replica_sequence(const tri_replica *g) {
  const tri_comm *all[] = {g->world, g->tensor, g->column, g->stage};
  uint64_t n = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) n += all[i] ? atomic_load(&all[i]->sequence) : 0;
  return n;
}
