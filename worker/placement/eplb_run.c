/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/placement/eplb_run.h"

#include <string.h>
#include <sys/utsname.h>

#include "base/hash.h"
#include "base/log.h"
#include "runtime/engine/expert_transfer.h"

/* A host is its first rank of all. */
tri_status tri_eplb_find_hosts(const tri_engine *e, int32_t **host_of, tri_error *err) {
  struct utsname host;
  tri_comm *world = e->replica->world;
  int n = world->size;
  if (!e->transfer || e->model.moe.num_groups < 2) return TRI_OK;
  uint64_t *all = tri_calloc((size_t)n, sizeof *all);
  int32_t *of = *host_of = tri_calloc((size_t)n, sizeof *of);
  uname(&host);
  uint64_t own = tri_hash_bytes(TRI_HASH_SEED, host.nodename, strlen(host.nodename));
  tri_status st = tri_comm_agree(world, all && of ? TRI_OK : TRI_NO_MEMORY);
  if (st == TRI_OK) st = tri_comm_all_gather(world, &own, all, sizeof own);
  for (int r = 0; st == TRI_OK && r < n; r++)
    while (all[of[r]] != all[r]) of[r]++;
  tri_free(all);
  if (st == TRI_OK) return st;
  return tri_fail(err, st, "enable_eplb", "the replica's ranks cannot find their hosts: %s", tri_status_text(st));
}

/* The hosts of a stage's shares: each lies on one, that of its first slice. */
static void hosts_of_shares(tri_parallel p, const int32_t *host_of_rank, int32_t *host_of) {
  int shares = p.pp * tri_parallel_ep(p), etp = tri_parallel_etp(p);
  for (int i = 0; i < shares; i++) host_of[i] = host_of_rank[i * etp];
}

static void stages_of_layers(const tri_engine *e, int32_t *stage_of) {
  for (int stage = 0; stage < e->replica->p.pp; stage++) {
    tri_range r = tri_stage_layers(&e->model, e->shard.p, stage);
    for (int l = r.first; l < r.first + r.count; l++) stage_of[l] = stage;
  }
}

tri_status tri_eplb_start(const tri_engine *e, uint64_t interval, const int32_t *host_of_rank, tri_eplb **out) {
  tri_eplb_config c = {
      .interval = interval, .ep = tri_parallel_ep(e->replica->p), .pp = e->replica->p.pp, .placement = e->placement};
  int32_t *host_of = NULL, *stage_of = NULL;
  tri_status st = TRI_OK;
  *out = NULL;
  if (!e->transfer) return TRI_OK;
  if (host_of_rank) {
    host_of = tri_calloc((size_t)(c.pp * c.ep), sizeof *host_of);
    stage_of = tri_calloc((size_t)e->model.num_layers, sizeof *stage_of);
    TRI_TRY(host_of && stage_of ? TRI_OK : TRI_NO_MEMORY);
    hosts_of_shares(e->replica->p, host_of_rank, host_of);
    stages_of_layers(e, stage_of);
    c.host_of = host_of;
    c.stage_of = stage_of;
  }
  TRI_TRY(tri_eplb_create(&c, out));
cleanup:
  tri_free(host_of);
  tri_free(stage_of);
  return st;
}

tri_status tri_eplb_take_part(tri_engine *e, const tri_plan_header *h, const float **rows) {
  const float *counted;
  if (h->kind == TRI_PLAN_MOVE_EXPERT) return tri_engine_move_expert(e, &h->move);
  TRI_CHECK(tri_engine_count_rows(e, &counted));
  if (rows) *rows = counted;
  return TRI_OK;
}

void tri_eplb_log(tri_eplb *b) {
  tri_eplb_report r;
  if (!tri_eplb_ended(b, &r)) return;
  tri_log(TRI_LOG_INFO, "eplb",
          "%llu experts of %d layers have moved in %.1f ms, with at most %.2f ms between two steps: balancedness %.3f, "
          "now %.3f for the same rows",
          (unsigned long long)r.moved, r.layers, (double)r.ns / 1e6, (double)r.most_ns / 1e6, r.before, r.after);
}
