/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/swap_turns.h"

#include <math.h>

#include "base/log.h"
#include "runtime/engine/engine_impl.h"
#include "runtime/engine/offload_ranks.h"

/* One rank alone may use the link's whole rate; together they share it. The quotient of both sums says how many of
 * them the host serves at a time at full rate. */
tri_swap_turns tri_swap_find_turns(const tri_swap_rank *all, int count, int own) {
  static const double noise = 0.1; /* of what two measurements of one rate differ by */
  tri_swap_turns t = {.turns = 1};
  double alone = 0, together = 0;
  bool measured = true;
  for (int r = 0; r < count; r++) {
    if (all[r].host != all[own].host) continue;
    if (r == own) t.number = t.ranks;
    t.ranks++;
    measured &= all[r].alone > 0 && all[r].together > 0;
    if (!measured) continue;
    alone += (double)all[r].block_bytes / all[r].alone;
    together += (double)all[r].block_bytes / all[r].together;
  }
  if (!measured || !(together > 0)) return t;
  double turns = ceil(alone / together - noise);
  if (turns > 1) t.turns = turns < t.ranks ? (int)turns : t.ranks;
  return t;
}

/* Each rank of a host measures while the others of it wait. All ranks take part in as many rounds as the host with the
 * most ranks needs: tri_engine_agree is a collective. */
static tri_status measure_alone(tri_engine *e, tri_swap_rank *own, const tri_swap_rank *all, tri_error *err) {
  int count = e->replica->world->size, most = 0, number = 0;
  for (int r = 0; r < count; r++) {
    tri_swap_turns t = tri_swap_find_turns(all, count, r);
    if (t.ranks > most) most = t.ranks;
    if (r == e->replica->world->rank) number = t.number;
  }
  for (int i = 0; i < most; i++) {
    tri_status st = i == number ? tri_kv_cache_measure(e->kv, &own->alone) : TRI_OK;
    TRI_CHECK(tri_engine_agree(e->replica, st, err));
  }
  return TRI_OK;
}

static void take_turns(tri_engine *e, const tri_swap_rank *all) {
  tri_swap_turns t = tri_swap_find_turns(all, e->replica->world->size, e->replica->world->rank);
  const tri_swap_rank *own = &all[e->replica->world->rank];
  double bytes = 2e-9 * (double)own->block_bytes; /* out and in */
  e->kv->num_turns = t.turns;
  e->kv->turn = t.number % t.turns;
  tri_log(TRI_LOG_INFO, "engine",
          "rank %d swaps KV blocks at %.1f GB/s alone and %.1f GB/s together with the others of the %d on its host: in "
          "%d turns, beginning with turn %d",
          e->replica->world->rank, bytes / own->alone, bytes / own->together, t.ranks, t.turns, e->kv->turn);
}

tri_status tri_engine_measure_swaps(tri_engine *e, tri_error *err) {
  tri_swap_rank own = {.host = tri_offload_host()}, *all = NULL;
  int count = e->replica->world->size;
  tri_status st = TRI_OK;
  if (!e->limits.num_host_blocks) return TRI_OK;
  own.block_bytes = e->kv->bytes / (size_t)e->kv->num_blocks;
  TRI_TRY(tri_engine_agree(e->replica, tri_kv_cache_measure(e->kv, &own.together), err));
  TRI_TRY(tri_engine_gather(e->replica, &own, sizeof own, (void **)&all, err));
  for (int r = 0; r < count; r++)
    if (all[r].together > e->swap_block_seconds) e->swap_block_seconds = all[r].together;
  if (e->backend->host_memory || count == 1) goto cleanup; /* every rank, or none */
  TRI_TRY(measure_alone(e, &own, all, err));
  tri_free(all);
  all = NULL;
  TRI_TRY(tri_engine_gather(e->replica, &own, sizeof own, (void **)&all, err));
  take_turns(e, all);
cleanup:
  tri_free(all);
  return st;
}
