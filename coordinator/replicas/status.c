/* SPDX-License-Identifier: Apache-2.0 */
/* The replicas and their ranks in a status, and their sums. */
#include "coordinator/replicas/replicas_impl.h"

/* A hold says more than the state, which is that of a replica that has ended. */
static tri_wire_str replica_state_name(const replica *g) {
  static const char *const names[] = {"absent", "starting", "ready", "draining", "lost"};
  static const char *const held[] = {"", "given_up", "quarantined"};
  return wire_str(g->hold ? held[g->hold] : names[g->state]);
}

/* Returns why a replica does not serve. */
static tri_wire_str replica_reason(const replica *g) {
  bool is_down = g->hold || g->died_ns || g->state == REPLICA_LOST || g->state == REPLICA_ABSENT;
  return wire_str(is_down ? g->reason : "");
}

static double retry_seconds(const replica *g, int64_t now) {
  return g->hold && g->hold_until_ns > now ? (double)(g->hold_until_ns - now) / 1e9 : 0;
}

/* A mean by tokens over the last COST_REPORTS reports: long reports count for more than short ones. */
static double scheduler_us_per_token(const cost_window *w) {
  uint64_t tokens = 0, ns = 0;
  for (unsigned i = 0; i < COST_REPORTS && i < w->count; i++) {
    tokens += w->tokens[i];
    ns += w->ns[i];
  }
  return tokens ? (double)ns / 1e3 / (double)tokens : 0;
}

#define STREAM_FIGURES(s)                                                                                              \
  .streamed_bytes = (s)->bytes, .stream_pass_bytes = (s)->pass_bytes, .stream_pass_s = (double)(s)->pass_ns * 1e-9,    \
  .stream_stall_s = (double)(s)->stall_ns * 1e-9, .stream_bytes_per_s = (double)(s)->bytes_per_s,                      \
  .stream_peer_bytes = (s)->peer_bytes

static void fill_replica(const replica *g, uint32_t index, int64_t now, tri_replica_status *out) {
  uint64_t steps = g->world ? g->ranks[0].step : 0;
  const tri_replica_stream stream = weight_streams_of(g);
  *out = (tri_replica_status){.group = index,
                              .epoch = g->facts.epoch,
                              .state = replica_state_name(g),
                              .reason = replica_reason(g),
                              .retry_s = retry_seconds(g, now),
                              .tp = g->tp,
                              .pp = g->pp,
                              .dp = g->dp,
                              .ep = g->ep,
                              .running = g->running,
                              .waiting = g->waiting,
                              .kv_pages = g->facts.kv_blocks,
                              .kv_pages_used = g->kv_blocks_used,
                              .steps = steps,
                              .tokens = g->tokens,
                              .scheduler_us_per_token = scheduler_us_per_token(&g->cost),
                              .scheduler_cpu_s = (double)g->scheduler_ns * 1e-9,
                              STREAM_FIGURES(&stream),
                              .host_kv_pages = g->swaps.host_kv_blocks,
                              .host_kv_pages_used = g->swaps.host_kv_blocks_used,
                              .swaps_out = g->swaps.out,
                              .swaps_in = g->swaps.in,
                              .swapped_out_bytes = g->swaps.out_bytes,
                              .swapped_in_bytes = g->swaps.in_bytes,
                              .prefix_cache_queries = g->prefixes.queries,
                              .prefix_cache_hits = g->prefixes.hits,
                              .prefix_cache_evictions = g->prefixes.evictions};
}

bool replicas_report(const tri_core *c, int64_t now, tri_cluster_status *s) {
  bool serving = false;
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    const replica *g = replica_at(c, i);
    serving |= g->state == REPLICA_READY;
    if (s->num_replicas < TRI_STATUS_MAX_REPLICAS) fill_replica(g, i, now, &s->replicas[s->num_replicas++]);
    if (!s->max_model_len) s->max_model_len = g->facts.max_model_len;
    for (uint32_t r = 0; r < g->world && s->num_ranks < TRI_STATUS_MAX_RANKS; r++) {
      const rank_info *k = &g->ranks[r];
      if (!k->known) continue;
      s->ranks[s->num_ranks++] = (tri_rank_status){.group = i,
                                                   .rank = r,
                                                   .host = wire_str(k->host),
                                                   .pid = k->pid,
                                                   .step = k->step,
                                                   .block = k->layer,
                                                   .collective = k->collective,
                                                   .exchange = wire_str(tri_all2all_part_names[k->exchange]),
                                                   .seconds_since_report = (double)(now - k->last_report) / 1e9,
                                                   .dp_rank = replica_dp_rank_of(g, r),
                                                   .shard_running = g->dp > 1 ? k->running : g->running,
                                                   .shard_waiting = g->dp > 1 ? k->waiting : g->waiting,
                                                   STREAM_FIGURES(&k->stream)};
    }
  }
  return serving;
}

/* Slots are counted of ready replicas alone; all other figures are those of the last reports, whatever the state. */
replicas_sums replicas_sum(const tri_core *c) {
  replicas_sums all = {0};
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    const replica *g = replica_at(c, i);
    all.kv_blocks += g->facts.kv_blocks;
    all.kv_blocks_used += g->kv_blocks_used;
    all.running += g->running;
    all.waiting += g->waiting;
    all.preemptions += g->preemptions;
    bool less = !all.prompt_bound || g->prompt_bound < all.prompt_bound;
    if (g->prompt_bound && less) all.prompt_bound = g->prompt_bound;
    if (g->state == REPLICA_READY) all.slots += replica_slots(c, i);
    all.swaps.host_kv_blocks += g->swaps.host_kv_blocks;
    all.swaps.host_kv_blocks_used += g->swaps.host_kv_blocks_used;
    all.swaps.out += g->swaps.out;
    all.swaps.in += g->swaps.in;
    all.swaps.out_bytes += g->swaps.out_bytes;
    all.swaps.in_bytes += g->swaps.in_bytes;
    all.prefixes.queries += g->prefixes.queries;
    all.prefixes.hits += g->prefixes.hits;
    all.prefixes.evictions += g->prefixes.evictions;
  }
  return all;
}
