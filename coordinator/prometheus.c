/* Metrics as Prometheus reads them: the text of a stats reply. */
#include <stdarg.h>
#include <stdio.h>

#include "coordinator/state.h"

enum { STATS_BYTES = 64 << 10 };

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

void prometheus_reply(tri_core *c, const tri_peer *to, uint64_t id) {
  tri_cluster_status s = {0};
  size_t n = 0;
  uint64_t blocks = 0, used = 0, running = 0, waiting = 0, preemptions = 0;
  char *buf = c->stats ? c->stats : (c->stats = tri_malloc(STATS_BYTES, 1));
  if (!buf) return;
  report_jobs(c, &s);
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    const group *g = &c->groups[i];
    blocks += g->kv_blocks;
    used += g->kv_blocks_used;
    running += g->running;
    waiting += g->waiting;
    preemptions += g->preemptions;
  }
  add_value(buf, &n, "num_requests_running", "gauge", "Sequences that run in the groups.", (double)running);
  add_value(buf, &n, "num_requests_waiting", "gauge", "Sequences that wait in the groups, and jobs that wait for one.",
            (double)(waiting + (s.waiting > waiting + running ? s.waiting - waiting - running : 0)));
  add_value(buf, &n, "kv_cache_usage_perc", "gauge", "Share of the KV blocks in use; 1 is all.",
            blocks ? (double)used / (double)blocks : 0);
  add_value(buf, &n, "num_preemptions_total", "counter",
            "Sequences that gave their KV blocks back and were computed again.", (double)preemptions);
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
