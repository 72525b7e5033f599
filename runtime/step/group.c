#include "runtime/step/group.h"

tri_status tri_group_create(tri_comm *world, int tp, int pp, tri_group *out, tri_error *err) {
  if (tp < 1 || pp < 1 || (int64_t)tp * pp != world->size)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "tensor_parallel_size",
                    "%d workers, but tensor-parallel %d x pipeline-parallel %d needs %lld", world->size, tp, pp,
                    (long long)tp * pp);
  tri_group g = {.p = {.tp = tp, .pp = pp, .tp_rank = world->rank % tp, .pp_rank = world->rank / tp}, .world = world};
  tri_status st = tri_comm_split(world, g.p.pp_rank, g.p.tp_rank, NULL, &g.tensor);
  if (st != TRI_OK) return tri_fail(err, st, "comm", "cannot form the tensor group: %s", tri_status_text(st));
  *out = g;
  return TRI_OK;
}

void tri_group_destroy(tri_group *g) {
  tri_comm_destroy(g->tensor);
  tri_comm_destroy(g->world);
  g->tensor = g->world = NULL;
}
