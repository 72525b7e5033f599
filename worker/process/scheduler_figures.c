/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/process/scheduler_figures.h"

void tri_worker_publish(tri_worker *w, const tri_dp_ranks *dp_ranks) {
  tri_sched_stats s = tri_dp_ranks_get_stats(dp_ranks);
  atomic_store_explicit(&w->running, s.running, memory_order_relaxed);
  atomic_store_explicit(&w->waiting, s.waiting, memory_order_relaxed);
  for (int d = 0; w->dp_ranks && d < w->layout.dp; d++) {
    tri_sched_stats one = tri_sched_get_stats(tri_dp_ranks_at(dp_ranks, d));
    atomic_store_explicit(&w->dp_ranks[2 * d], one.running, memory_order_relaxed);
    atomic_store_explicit(&w->dp_ranks[2 * d + 1], one.waiting, memory_order_relaxed);
  }
  atomic_store_explicit(&w->blocks_used, s.blocks_used, memory_order_relaxed);
  atomic_store_explicit(&w->tokens, s.tokens, memory_order_relaxed);
  atomic_store_explicit(&w->preemptions, s.preemptions, memory_order_relaxed);
  atomic_store_explicit(&w->host_blocks_used, s.host_blocks_used, memory_order_relaxed);
  atomic_store_explicit(&w->swaps_out, s.swaps_out, memory_order_relaxed);
  atomic_store_explicit(&w->swaps_in, s.swaps_in, memory_order_relaxed);
  atomic_store_explicit(&w->blocks_out, s.blocks_out, memory_order_relaxed);
  atomic_store_explicit(&w->blocks_in, s.blocks_in, memory_order_relaxed);
  atomic_store_explicit(&w->prefix_queries, s.prefix_queries, memory_order_relaxed);
  atomic_store_explicit(&w->prefix_hits, s.prefix_hits, memory_order_relaxed);
  atomic_store_explicit(&w->prefix_evictions, s.prefix_evictions, memory_order_relaxed);
  atomic_store_explicit(&w->busy, tri_dp_ranks_is_busy(dp_ranks), memory_order_relaxed);
}

void tri_worker_publish_moves(tri_worker *w, const tri_eplb *b) {
  tri_eplb_stats s = tri_eplb_get_stats(b);
  atomic_store_explicit(&w->rearrangements, s.rearrangements, memory_order_relaxed);
  atomic_store_explicit(&w->experts_moved, s.moved, memory_order_relaxed);
  atomic_store_explicit(&w->moving_ns, s.ns, memory_order_relaxed);
}
