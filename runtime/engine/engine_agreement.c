/* SPDX-License-Identifier: Apache-2.0 */
/* How the ranks of a replica agree while their engines are made. */
#include "runtime/engine/engine_impl.h"

tri_status tri_engine_agree(tri_replica *g, tri_status mine, tri_error *err) {
  tri_status st = tri_comm_agree(g->world, mine);
  if (st == TRI_OK || mine != TRI_OK) return st;
  if (tri_comm_query(g->world) == TRI_OK)
    return tri_fail(err, st, "group", "another rank of the replica failed to start");
  return tri_fail(err, st, "comm", "the replica's ranks cannot reach each other: %s", tri_status_text(st));
}

tri_status tri_engine_gather(tri_replica *g, const void *own, size_t bytes, void **all, tri_error *err) {
  tri_comm *c = g->world;
  void *mem = tri_calloc((size_t)c->size, bytes);
  tri_status st = mem ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, "group", "no memory for a replica of %d ranks", c->size);
  st = tri_engine_agree(g, st, err);
  if (st == TRI_OK && (st = tri_comm_all_gather(c, own, mem, bytes)) != TRI_OK)
    tri_fail(err, st, "comm", "the replica's ranks cannot reach each other: %s", tri_status_text(st));
  *all = mem;
  if (st == TRI_OK) return TRI_OK;
  tri_free(mem);
  *all = NULL;
  return st;
}
