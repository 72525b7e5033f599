/* Status replies and Prometheus metrics. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "coordinator/state.h"
#include "runtime/base/version.h"

enum { STATS_BYTES = 64 << 10 };

static tri_wire_str group_state_name(group_state s) {
  static const char *const names[] = {"absent", "starting", "ready", "draining", "lost"};
  return wire_str(names[s]);
}

static double scheduler_us_per_token(const cost_window *w) {
  uint64_t tokens = 0, ns = 0;
  for (unsigned i = 0; i < COST_REPORTS && i < w->count; i++) tokens += w->tokens[i], ns += w->ns[i];
  return tokens ? (double)ns / 1e3 / (double)tokens : 0;
}

static void fill_group(const group *g, uint32_t index, tri_group_status *out) {
  uint64_t steps = g->world ? g->ranks[0].step : 0;
  *out = (tri_group_status){.group = index,
                            .epoch = g->epoch,
                            .state = group_state_name(g->state),
                            .tp = g->tp,
                            .pp = g->pp,
                            .running = g->running,
                            .waiting = g->waiting,
                            .kv_pages = g->kv_pages,
                            .kv_pages_used = g->kv_pages_used,
                            .steps = steps,
                            .tokens = g->tokens,
                            .scheduler_us_per_token = scheduler_us_per_token(&g->cost),
                            .scheduler_cpu_s = (double)g->scheduler_ns * 1e-9};
}

static tri_wire_str task_name(const tri_model_config *m) {
  return wire_str(!m->encoder ? "generate" : m->head.has_classifier ? "classify" : "embed");
}

static void fill_jobs(const tri_core *c, tri_cluster_status *s) {
  const job *clients[256];
  for (const job *j = c->active.head; j; j = j->next) {
    bool runs = j->first_token_ns || (j->encode && j->state == JOB_ASSIGNED);
    *(runs ? &s->running : &s->waiting) += 1;
    uint64_t i = 0;
    while (i < s->clients && memcmp(&clients[i]->peer, &j->peer, sizeof j->peer)) i++;
    if (i == s->clients && i < 256) clients[s->clients++] = j;
  }
}

void report_status(tri_core *c, int64_t now, const tri_zpeer *to, uint64_t id) {
  tri_server_msg m = {.op = TRI_REPLY_STATUS, .id = id};
  tri_cluster_status *s = &m.status;
  bool serving = false;
  fill_jobs(c, s);
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    const group *g = &c->groups[i];
    serving |= g->state == GROUP_READY;
    if (s->num_groups < TRI_STATUS_MAX_GROUPS) fill_group(g, i, &s->groups[s->num_groups++]);
    if (!s->max_model_len) s->max_model_len = g->max_model_len;
    for (uint32_t r = 0; r < g->world && s->num_ranks < TRI_STATUS_MAX_RANKS; r++) {
      const rank_info *k = &g->ranks[r];
      if (!k->known) continue;
      s->ranks[s->num_ranks++] = (tri_rank_status){.group = i,
                                                   .rank = r,
                                                   .host = wire_str(k->host),
                                                   .pid = k->pid,
                                                   .step = k->step,
                                                   .block = k->block,
                                                   .collective = k->collective,
                                                   .seconds_since_report = (double)(now - k->last_report) / 1e9};
    }
  }
  s->version = wire_str(TRIREME_VERSION);
  s->model = wire_str(c->cfg.model_name);
  s->state = wire_str(c->draining ? "draining" : serving ? "serving" : "starting");
  s->task = task_name(c->cfg.model);
  s->uptime_s = (double)(now - c->started_ns) / 1e9;
  s->requests_done = c->done_stop + c->done_length;
  s->requests_failed = c->failed;
  s->requests_aborted = c->done_abort;
  s->prompt_tokens = c->prompt_tokens;
  s->generation_tokens = c->generation_tokens;
  s->vocab_size = (uint64_t)c->cfg.model->vocab_size;
  s->tokens_per_second = c->facts.tokens_per_second;
  s->coordinator_us_per_token = c->facts.cpu_us_per_token;
  s->coordinator_cpu_s = c->facts.cpu_s;
  s->resident_mb = c->facts.resident_mb;
  c->cfg.io.to_client(c->cfg.io.ctx, to, &m);
}

static void add(char *buf, size_t *n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void add(char *buf, size_t *n, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  int w = *n < STATS_BYTES ? vsnprintf(buf + *n, STATS_BYTES - *n, fmt, ap) : 0;
  va_end(ap);
  if (w > 0) *n += (size_t)w;
}

static void add_histogram(char *buf, size_t *n, const char *name, const char *help, const tri_histogram *h) {
  uint64_t cumulative = 0;
  add(buf, n, "# HELP trireme:%s %s\n# TYPE trireme:%s histogram\n", name, help, name);
  for (int i = 0; i < h->num_bounds; i++) {
    cumulative += h->counts[i];
    add(buf, n, "trireme:%s_bucket{le=\"%g\"} %llu\n", name, h->bounds[i], (unsigned long long)cumulative);
  }
  add(buf, n, "trireme:%s_bucket{le=\"+Inf\"} %llu\ntrireme:%s_sum %.9g\ntrireme:%s_count %llu\n", name,
      (unsigned long long)h->total, name, h->sum, name, (unsigned long long)h->total);
}

static void add_value(char *buf, size_t *n, const char *name, const char *type, const char *help, double v) {
  add(buf, n, "# HELP trireme:%s %s\n# TYPE trireme:%s %s\ntrireme:%s %.15g\n", name, help, name, type, name, v);
}

void report_stats(tri_core *c, const tri_zpeer *to, uint64_t id) {
  tri_cluster_status s = {0};
  size_t n = 0;
  uint64_t pages = 0, used = 0, running = 0, waiting = 0, preemptions = 0;
  char *buf = c->stats ? c->stats : (c->stats = tri_malloc(STATS_BYTES, 1));
  if (!buf) return;
  fill_jobs(c, &s);
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    const group *g = &c->groups[i];
    pages += g->kv_pages, used += g->kv_pages_used, running += g->running, waiting += g->waiting,
        preemptions += g->preemptions;
  }
  add_value(buf, &n, "num_requests_running", "gauge", "Sequences that run in the groups.", (double)running);
  add_value(buf, &n, "num_requests_waiting", "gauge", "Sequences that wait in the groups, and jobs that wait for one.",
            (double)(waiting + (s.waiting > waiting + running ? s.waiting - waiting - running : 0)));
  add_value(buf, &n, "kv_cache_usage_perc", "gauge", "Share of the KV pages in use; 1 is all.",
            pages ? (double)used / (double)pages : 0);
  add_value(buf, &n, "num_preemptions_total", "counter",
            "Sequences that gave their KV pages back and were computed again.", (double)preemptions);
  add_value(buf, &n, "prompt_tokens_total", "counter", "Prompt tokens accepted.", (double)c->prompt_tokens);
  add_value(buf, &n, "generation_tokens_total", "counter", "Tokens generated.", (double)c->generation_tokens);
  add(buf, &n,
      "# HELP trireme:request_success_total Requests that ended, by reason.\n# TYPE trireme:request_success_total "
      "counter\n");
  add(buf, &n,
      "trireme:request_success_total{finished_reason=\"stop\"} "
      "%llu\ntrireme:request_success_total{finished_reason=\"length\"} "
      "%llu\ntrireme:request_success_total{finished_reason=\"abort\"} %llu\n",
      (unsigned long long)c->done_stop, (unsigned long long)c->done_length, (unsigned long long)c->done_abort);
  add_value(buf, &n, "request_failure_total", "counter", "Requests that ended with an error.", (double)c->failed);
  add_histogram(buf, &n, "time_to_first_token_seconds", "From submission to the first token.", &c->ttft);
  add_histogram(buf, &n, "inter_token_latency_seconds", "Between one token of a request and the next.", &c->itl);
  add_histogram(buf, &n, "e2e_request_latency_seconds", "From submission to the end.", &c->e2e);
  add_histogram(buf, &n, "request_queue_time_seconds", "From submission to assignment.", &c->queue_time);
  add_histogram(buf, &n, "iteration_tokens_total", "Tokens drawn in one step.", &c->step_tokens);
  if (n > STATS_BYTES) n = STATS_BYTES;
  tri_server_msg m = {.op = TRI_REPLY_STATS, .id = id, .stats = {buf, n}};
  c->cfg.io.to_client(c->cfg.io.ctx, to, &m);
}
