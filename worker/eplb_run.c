#include "worker/eplb_run.h"

#include "runtime/base/log.h"
#include "runtime/engine/expert_transfer.h"

tri_status tri_eplb_start(const tri_worker *w, tri_eplb **out) {
  const tri_engine *e = w->engine;
  tri_eplb_config c = {.interval = (uint64_t)w->opts.eplb_step_interval,
                       .ep = w->layout.ep,
                       .pp = w->layout.pp,
                       .placement = e->placement};
  *out = NULL;
  return w->opts.enable_eplb ? tri_eplb_create(&c, out) : TRI_OK;
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
