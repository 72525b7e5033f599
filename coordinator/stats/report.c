/* SPDX-License-Identifier: Apache-2.0 */
/* Status replies. Metrics are in prometheus.c. */

#include "coordinator/core_impl.h"
#include "coordinator/jobs/jobs.h"
#include "coordinator/replicas/replicas.h"
#include "coordinator/stats/stats.h"
#include "base/version.h"

static tri_wire_str task_name(const tri_model_config *m) {
  if (!m->encoder) return wire_str("generate");
  return wire_str(m->head.has_classifier ? "classify" : "embed");
}

static void fill_cache(const tri_core *c, tri_cluster_status *s) {
  tri_response_cache_figures f;
  if (!jobs_cache_figures(c, &f)) return;
  s->response_cache_hits = f.hits;
  s->response_cache_misses = f.misses;
  s->response_cache_evictions = f.evictions;
  s->response_cache_entries = f.entries;
  s->response_cache_bytes = f.bytes;
  s->response_cache_limit = f.max_bytes;
}

static void fill_refusals(const tri_core *c, tri_cluster_status *s) {
  s->refused_max_queue = c->totals.refused[REFUSED_QUEUE];
  s->refused_max_queue_bytes = c->totals.refused[REFUSED_QUEUE_BYTES];
  s->refused_client_jobs = c->totals.refused[REFUSED_CLIENT];
  s->refused_client_bytes = c->totals.refused[REFUSED_CLIENT_BYTES];
  s->expired_max_queue_time = c->totals.refused[REFUSED_QUEUE_TIME];
  s->refused_connections = c->facts.refused_connections;
  s->cut_connections = c->facts.cut_connections;
}

void report_status(tri_core *c, int64_t now, const tri_peer *to, uint64_t id) {
  tri_server_msg m = {.op = TRI_REPLY_STATUS, .id = id};
  tri_cluster_status *s = &m.status;
  jobs_report(c, s);
  bool serving = replicas_report(c, now, s);
  s->version = wire_str(TRIREME_VERSION);
  s->model = wire_str(c->cfg.model_name);
  s->state = wire_str(serving ? "serving" : "starting");
  if (c->draining) s->state = wire_str("draining");
  s->task = task_name(c->cfg.model);
  s->uptime_s = (double)(now - c->started_ns) / 1e9;
  s->requests_done = c->totals.done_stop + c->totals.done_length;
  s->requests_failed = c->totals.failed;
  s->requests_invalid = admission_invalid(c);
  s->requests_refused = c->totals.turned_away;
  s->journal_full = wire_str(jobs_full(c));
  s->requests_aborted = c->totals.done_abort;
  s->requests_replayed = c->totals.replayed;
  s->prompt_tokens = c->totals.prompt_tokens;
  s->generation_tokens = c->totals.generation_tokens;
  s->vocab_size = (uint64_t)c->cfg.model->vocab_size;
  fill_cache(c, s);
  fill_refusals(c, s);
  s->tokens_per_second = c->facts.tokens_per_second;
  s->coordinator_us_per_token = c->facts.cpu_us_per_token;
  s->coordinator_cpu_s = c->facts.cpu_s;
  s->resident_mb = c->facts.resident_mb;
  c->cfg.io.answer(c->cfg.io.ctx, to, &m);
}
