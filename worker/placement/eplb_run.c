/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/placement/eplb_run.h"

#include <string.h>
#include <sys/utsname.h>

#include "base/hash.h"
#include "base/log.h"
#include "runtime/engine/expert_transfer.h"

/* A host is its first rank of all. */
tri_status tri_eplb_find_hosts(tri_worker *w, tri_error *err) {
  struct utsname host;
  int n = w->world;
  const tri_model_config *c = &w->engine->model;
  if (!w->engine->transfer || c->moe.num_groups < 2) return TRI_OK;
  uint64_t *all = tri_calloc((size_t)n, sizeof *all);
  w->host_of = tri_calloc((size_t)n, sizeof *w->host_of);
  uname(&host);
  uint64_t own = tri_hash_bytes(TRI_HASH_SEED, host.nodename, strlen(host.nodename));
  tri_status st = tri_comm_agree(w->group.world, all && w->host_of ? TRI_OK : TRI_NO_MEMORY);
  if (st == TRI_OK) st = tri_comm_all_gather(w->group.world, &own, all, sizeof own);
  for (int r = 0; st == TRI_OK && r < n; r++)
    while (all[w->host_of[r]] != all[r]) w->host_of[r]++;
  tri_free(all);
  if (st == TRI_OK) return st;
  return tri_fail(err, st, "enable_eplb", "the group's ranks cannot find their hosts: %s", tri_status_text(st));
}

/* The hosts of a stage's shares: each lies on one, that of its first slice. */
static void hosts_of_shares(const tri_worker *w, int32_t *host_of) {
  int ep = w->layout.ep, etp = tri_parallel_etp(w->group.p);
  for (int stage = 0; stage < w->layout.pp; stage++)
    for (int e = 0; e < ep; e++) host_of[stage * ep + e] = w->host_of[(stage * ep + e) * etp];
}

static void stages_of_layers(const tri_worker *w, int32_t *stage_of) {
  for (int stage = 0; stage < w->layout.pp; stage++) {
    tri_range r = tri_stage_layers(&w->engine->model, w->engine->shard.p, stage);
    for (int l = r.first; l < r.first + r.count; l++) stage_of[l] = stage;
  }
}

tri_status tri_eplb_start(const tri_worker *w, tri_eplb **out) {
  const tri_engine *e = w->engine;
  tri_eplb_config c = {.interval = (uint64_t)w->opts.eplb_step_interval,
                       .ep = w->layout.ep,
                       .pp = w->layout.pp,
                       .placement = e->placement};
  int32_t *host_of = NULL, *stage_of = NULL;
  tri_status st = TRI_OK;
  *out = NULL;
  if (!e->transfer) return TRI_OK;
  if (w->host_of) {
    host_of = tri_calloc((size_t)(c.pp * c.ep), sizeof *host_of);
    stage_of = tri_calloc((size_t)e->model.num_layers, sizeof *stage_of);
    TRI_TRY(host_of && stage_of ? TRI_OK : TRI_NO_MEMORY);
    hosts_of_shares(w, host_of);
    stages_of_layers(w, stage_of);
    c.host_of = host_of;
    c.stage_of = stage_of;
  }
  TRI_TRY(tri_eplb_create(&c, out));
cleanup:
  tri_free(host_of);
  tri_free(stage_of);
  return st;
}

tri_status tri_eplb_take_part(tri_worker *w, const tri_plan_header *h, const float **rows) {
  const float *counted;
  if (h->kind == TRI_PLAN_MOVE_EXPERT) return tri_engine_move_expert(w->engine, &h->move);
  TRI_CHECK(tri_engine_count_rows(w->engine, &counted));
  if (rows) *rows = counted;
  return TRI_OK;
}

void tri_eplb_tell(tri_worker *w, tri_eplb *b) {
  tri_eplb_stats s = tri_eplb_get_stats(b);
  tri_eplb_report r;
  atomic_store_explicit(&w->rearrangements, s.rearrangements, memory_order_relaxed);
  atomic_store_explicit(&w->experts_moved, s.moved, memory_order_relaxed);
  atomic_store_explicit(&w->moving_ns, s.ns, memory_order_relaxed);
  if (!tri_eplb_ended(b, &r)) return;
  tri_log(TRI_LOG_INFO, "eplb",
          "%llu experts of %d layers have moved in %.1f ms, %.2f ms of them between two steps at most: balancedness "
          "%.3f, now %.3f by the same rows",
          (unsigned long long)r.moved, r.layers, (double)r.ns / 1e6, (double)r.most_ns / 1e6, r.before, r.after);
}
