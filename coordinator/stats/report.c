/* SPDX-License-Identifier: Apache-2.0 */
/* Status replies. Metrics are in prometheus.c. */
#include <string.h>

#include "coordinator/state.h"
#include "base/version.h"

static tri_wire_str group_state_name(const group *g) {
  static const char *const names[] = {"absent", "starting", "ready", "draining", "lost"};
  static const char *const held[] = {"", "given_up", "quarantined"};
  return wire_str(g->hold ? held[g->hold] : names[g->state]);
}

/* Returns why a group does not serve. */
static tri_wire_str group_reason(const group *g) {
  bool is_down = g->hold || g->died_ns || g->state == GROUP_LOST || g->state == GROUP_ABSENT;
  return wire_str(is_down ? g->reason : "");
}

static double retry_seconds(const group *g, int64_t now) {
  return g->hold && g->hold_until_ns > now ? (double)(g->hold_until_ns - now) / 1e9 : 0;
}

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

static void fill_group(const group *g, uint32_t index, int64_t now, tri_group_status *out) {
  uint64_t steps = g->world ? g->ranks[0].step : 0;
  const tri_group_stream stream = streams_of_group(g);
  *out = (tri_group_status){.group = index,
                            .epoch = g->epoch,
                            .state = group_state_name(g),
                            .reason = group_reason(g),
                            .retry_s = retry_seconds(g, now),
                            .tp = g->tp,
                            .pp = g->pp,
                            .dp = g->dp,
                            .ep = g->ep,
                            .running = g->running,
                            .waiting = g->waiting,
                            .kv_pages = g->kv_blocks,
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

static tri_wire_str task_name(const tri_model_config *m) {
  if (!m->encoder) return wire_str("generate");
  return wire_str(m->head.has_classifier ? "classify" : "embed");
}

/* Counts a job for whom it was submitted for; names beyond those that a status has are left out. */
static void count_caller(tri_cluster_status *s, const job *j, bool runs) {
  uint32_t i = 0;
  if (!j->caller[0]) return;
  while (i < s->num_callers && strcmp(s->callers[i].name.s, j->caller) != 0) i++;
  if (i == TRI_STATUS_MAX_CALLERS) return;
  if (i == s->num_callers) s->callers[s->num_callers++] = (tri_caller_status){.name = wire_str(j->caller)};
  *(runs ? &s->callers[i].running : &s->callers[i].waiting) += 1;
}

static bool is_running(const job *j) { return j->first_token_ns || (j->embed && j->state == JOB_ASSIGNED); }

void tri_core_load_of(const tri_core *c, tri_core_load *out) {
  *out = (tri_core_load){.prompt_tokens = c->prompt_tokens, .generation_tokens = c->generation_tokens};
  for (const job *j = TAILQ_FIRST(&c->active); j; j = TAILQ_NEXT(j, links))
    *(is_running(j) ? &out->running : &out->waiting) += 1;
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    const group *g = &c->groups[i];
    out->kv_blocks += g->kv_blocks;
    out->kv_blocks_used += g->kv_blocks_used;
    out->prefix_queries += g->prefixes.queries;
    out->prefix_hits += g->prefixes.hits;
  }
}

void report_jobs(const tri_core *c, tri_cluster_status *s) {
  const job *clients[256];
  for (const job *j = TAILQ_FIRST(&c->active); j; j = TAILQ_NEXT(j, links)) {
    bool runs = is_running(j);
    *(runs ? &s->running : &s->waiting) += 1;
    count_caller(s, j, runs);
    uint64_t i = 0;
    while (i < s->clients && !tri_peer_equal(&clients[i]->peer, &j->peer)) i++;
    if (i == s->clients && i < 256) clients[s->clients++] = j;
  }
}

static void fill_cache(const tri_core *c, tri_cluster_status *s) {
  if (!c->cache) return;
  tri_response_cache_figures f = tri_response_cache_figures_of(c->cache);
  s->response_cache_hits = f.hits;
  s->response_cache_misses = f.misses;
  s->response_cache_evictions = f.evictions;
  s->response_cache_entries = f.entries;
  s->response_cache_bytes = f.bytes;
  s->response_cache_limit = f.max_bytes;
}

static void fill_refusals(const tri_core *c, tri_cluster_status *s) {
  s->refused_max_queue = c->refused[REFUSED_QUEUE];
  s->refused_max_queue_bytes = c->refused[REFUSED_QUEUE_BYTES];
  s->refused_client_jobs = c->refused[REFUSED_CLIENT];
  s->refused_client_bytes = c->refused[REFUSED_CLIENT_BYTES];
  s->expired_max_queue_time = c->refused[REFUSED_QUEUE_TIME];
  s->refused_connections = c->facts.refused_connections;
  s->cut_connections = c->facts.cut_connections;
}

void report_status(tri_core *c, int64_t now, const tri_peer *to, uint64_t id) {
  tri_server_msg m = {.op = TRI_REPLY_STATUS, .id = id};
  tri_cluster_status *s = &m.status;
  bool serving = false;
  report_jobs(c, s);
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    const group *g = &c->groups[i];
    serving |= g->state == GROUP_READY;
    if (s->num_groups < TRI_STATUS_MAX_GROUPS) fill_group(g, i, now, &s->groups[s->num_groups++]);
    if (!s->max_model_len) s->max_model_len = g->max_model_len;
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
                                                   .exchange = wire_str(tri_exchange_part_names[k->exchange]),
                                                   .seconds_since_report = (double)(now - k->last_report) / 1e9,
                                                   .dp_rank = group_shard_of(g, r),
                                                   .shard_running = g->dp > 1 ? k->running : g->running,
                                                   .shard_waiting = g->dp > 1 ? k->waiting : g->waiting,
                                                   STREAM_FIGURES(&k->stream)};
    }
  }
  s->version = wire_str(TRIREME_VERSION);
  s->model = wire_str(c->cfg.model_name);
  s->state = wire_str(serving ? "serving" : "starting");
  if (c->draining) s->state = wire_str("draining");
  s->task = task_name(c->cfg.model);
  s->uptime_s = (double)(now - c->started_ns) / 1e9;
  s->requests_done = c->done_stop + c->done_length;
  s->requests_failed = c->failed;
  s->requests_invalid = admission_invalid(c);
  s->requests_refused = c->turned_away;
  s->journal_full = wire_str(c->full ? c->full : "");
  s->requests_aborted = c->done_abort;
  s->requests_replayed = c->replayed;
  s->prompt_tokens = c->prompt_tokens;
  s->generation_tokens = c->generation_tokens;
  s->vocab_size = (uint64_t)c->cfg.model->vocab_size;
  fill_cache(c, s);
  fill_refusals(c, s);
  s->tokens_per_second = c->facts.tokens_per_second;
  s->coordinator_us_per_token = c->facts.cpu_us_per_token;
  s->coordinator_cpu_s = c->facts.cpu_s;
  s->resident_mb = c->facts.resident_mb;
  c->cfg.io.answer(c->cfg.io.ctx, to, &m);
}
