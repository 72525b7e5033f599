/* SPDX-License-Identifier: Apache-2.0 */
/* Metrics as Prometheus reads them: the text of a stats reply. Where vLLM has such a metric it has the name of that
 * one, with another prefix, so that a dashboard needs little to be changed. */
#include <stdio.h>
#include <stdlib.h>

#include "coordinator/core_impl.h"
#include "coordinator/jobs/jobs.h"
#include "coordinator/replicas/replicas.h"
#include "coordinator/stats/stats.h"

static void add_histogram(FILE *f, const char *name, const char *help, const tri_histogram *h) {
  uint64_t cumulative = 0;
  fprintf(f, "# HELP trireme:%s %s\n# TYPE trireme:%s histogram\n", name, help, name);
  for (int i = 0; i < h->num_bounds; i++) {
    cumulative += h->counts[i];
    fprintf(f, "trireme:%s_bucket{le=\"%g\"} %llu\n", name, h->bounds[i], (unsigned long long)cumulative);
  }
  fprintf(f, "trireme:%s_bucket{le=\"+Inf\"} %llu\ntrireme:%s_sum %.9g\ntrireme:%s_count %llu\n", name,
          (unsigned long long)h->total, name, h->sum, name, (unsigned long long)h->total);
}

static void add_value(FILE *f, const char *name, const char *type, const char *help, double v) {
  fprintf(f, "# HELP trireme:%s %s\n# TYPE trireme:%s %s\ntrireme:%s %.15g\n", name, help, name, type, name, v);
}

static void add_directions(FILE *f, const char *name, const char *help, uint64_t out, uint64_t in) {
  fprintf(f, "# HELP trireme:%s %s\n# TYPE trireme:%s counter\n", name, help, name);
  fprintf(f, "trireme:%s{direction=\"out\"} %llu\ntrireme:%s{direction=\"in\"} %llu\n", name, (unsigned long long)out,
          name, (unsigned long long)in);
}

/* Adds what preempted sequences leave in the host's memory, where any replica has blocks there. */
static void add_swaps(const tri_replica_swaps *all, FILE *f) {
  if (!all->host_kv_blocks) return;
  add_value(f, "host_kv_blocks", "gauge", "KV blocks in the hosts' memory.", (double)all->host_kv_blocks);
  add_value(f, "host_kv_blocks_used", "gauge", "Those that preempted sequences have.",
            (double)all->host_kv_blocks_used);
  add_directions(f, "swaps_total", "Sequences swapped out to host memory and in again.", all->out, all->in);
  add_directions(f, "swapped_bytes_total", "Bytes of their KV blocks, of all ranks.", all->out_bytes, all->in_bytes);
}

/* Adds figures of the replicas' prefix caches, once they have been asked. */
static void add_prefixes(const tri_replica_prefixes *all, FILE *f) {
  if (!all->queries) return;
  add_value(f, "prefix_cache_queries_total", "counter", "Prompt tokens that were looked for in the prefix caches.",
            (double)all->queries);
  add_value(f, "prefix_cache_hits_total", "counter", "Those whose KV blocks were there.", (double)all->hits);
  add_value(f, "prefix_cache_evictions_total", "counter", "KV blocks that have left them for others.",
            (double)all->evictions);
}

/* Adds figures of the response cache, where there is one. */
static void add_cache(const tri_core *c, FILE *f) {
  tri_response_cache_figures r;
  if (!jobs_cache_figures(c, &r)) return;
  add_value(f, "response_cache_hits_total", "counter", "Requests that the response cache has answered.",
            (double)r.hits);
  add_value(f, "response_cache_misses_total", "counter", "Requests that it could have answered, and had no answer to.",
            (double)r.misses);
  add_value(f, "response_cache_evictions_total", "counter", "Answers that have left it for others.",
            (double)r.evictions);
  add_value(f, "response_cache_entries", "gauge", "Answers that it holds.", (double)r.entries);
  add_value(f, "response_cache_bytes", "gauge", "Its memory.", (double)r.bytes);
}

/* Adds requests that were wrong themselves, which are no failures. */
static void add_invalid(const tri_core *c, FILE *f) {
  fprintf(f, "# HELP trireme:request_invalid_total Requests that were refused for what they asked, by reason.\n"
             "# TYPE trireme:request_invalid_total counter\n");
  for (int i = 1; i < TRI_STATUS_COUNT; i++) {
    tri_error of = {.status = (tri_status)i, .field = "any"};
    if (admission_is_invalid(&of))
      fprintf(f, "trireme:request_invalid_total{reason=\"%s\"} %llu\n", admission_reason(of.status),
              (unsigned long long)c->totals.invalid[i]);
  }
}

static void add_refusals(const tri_core *c, FILE *f) {
  static const char *const reasons[NUM_REFUSALS] = {"max_queue",      "max_queue_bytes", "client_jobs", "client_bytes",
                                                    "max_queue_time", "journal",         "tokenizer"};
  fprintf(f,
          "# HELP trireme:requests_refused_total Requests that were refused, or ended in the queue, for want of room.\n"
          "# TYPE trireme:requests_refused_total counter\n");
  for (int i = 0; i < NUM_REFUSALS; i++)
    fprintf(f, "trireme:requests_refused_total{reason=\"%s\"} %llu\n", reasons[i],
            (unsigned long long)c->totals.refused[i]);
  add_value(f, "connections_refused_total", "counter",
            "Connections that were refused for want of files, or since too many came.",
            (double)c->facts.refused_connections);
  add_value(f, "connections_cut_total", "counter", "Connections that were cut for a message without end.",
            (double)c->facts.cut_connections);
}

void prometheus_reply(tri_core *c, const tri_peer *to, uint64_t id) {
  tri_cluster_status s = {0};
  size_t n = 0;
  char *text = NULL;
  FILE *f = open_memstream(&text, &n);
  if (!f) return;
  jobs_report(c, &s);
  const replicas_sums g = replicas_sum(c);
  uint64_t in_replicas = g.waiting + g.running;
  add_value(f, "num_requests_running", "gauge", "Sequences that run on the replicas.", (double)g.running);
  add_value(f, "num_requests_waiting", "gauge",
            "Sequences that wait on the replicas, and jobs that wait for a replica.",
            (double)(g.waiting + (s.waiting > in_replicas ? s.waiting - in_replicas : 0)));
  add_value(f, "max_num_seqs", "gauge", "Sequences that can run at a time on the replicas that are ready.",
            (double)g.slots);
  add_value(f, "max_queue", "gauge", "Requests that may wait or run at a time; further ones are refused.",
            (double)c->cfg.max_queue);
  add_value(f, "kv_cache_usage_perc", "gauge", "Share of the KV blocks in use; 1 is all.",
            g.kv_blocks ? (double)g.kv_blocks_used / (double)g.kv_blocks : 0);
  add_value(f, "num_preemptions_total", "counter", "Sequences that gave their KV blocks back before their end.",
            (double)g.preemptions);
  add_value(f, "max_prompt_tokens_with_decodes", "gauge",
            "Prompt tokens that the last step could have with decodes, on the replica where they were fewest; 0: no "
            "such limit.",
            (double)g.prompt_bound);
  add_value(f, "prompt_tokens_total", "counter", "Prompt tokens accepted.", (double)c->totals.prompt_tokens);
  add_value(f, "generation_tokens_total", "counter", "Tokens generated.", (double)c->totals.generation_tokens);
  fprintf(f,
          "# HELP trireme:request_success_total Requests that ended, by reason.\n# TYPE trireme:request_success_total "
          "counter\n");
  fprintf(f,
          "trireme:request_success_total{finished_reason=\"stop\"} "
          "%llu\ntrireme:request_success_total{finished_reason=\"length\"} "
          "%llu\ntrireme:request_success_total{finished_reason=\"abort\"} %llu\n",
          (unsigned long long)c->totals.done_stop, (unsigned long long)c->totals.done_length,
          (unsigned long long)c->totals.done_abort);
  add_value(f, "request_failure_total", "counter", "Requests that ended with an error of the cluster.",
            (double)c->totals.failed);
  add_value(f, "request_not_finite_total", "counter",
            "Those of them that ended since the logits of a token, or an encoder's numbers, were not finite.",
            (double)c->totals.not_finite);
  add_invalid(c, f);
  add_value(f, "request_replays_total", "counter", "Requests given to another replica because theirs was lost.",
            (double)c->totals.replayed);
  add_refusals(c, f);
  experts_metrics(c, f);
  weight_stream_metrics(c, f);
  add_swaps(&g.swaps, f);
  add_prefixes(&g.prefixes, f);
  add_cache(c, f);
  add_histogram(f, "time_to_first_token_seconds", "From submission to the first token.", &c->totals.ttft);
  add_histogram(f, "inter_token_latency_seconds", "Between one token of a request and the next.", &c->totals.itl);
  add_histogram(f, "e2e_request_latency_seconds", "From submission to the end.", &c->totals.e2e);
  add_histogram(f, "request_queue_time_seconds", "From submission to the first step with a part of it.",
                &c->totals.queue_time);
  add_histogram(f, "iteration_tokens_total", "Tokens drawn in one step.", &c->totals.step_tokens);
  if (!fclose(f)) {
    tri_server_msg m = {.op = TRI_REPLY_STATS, .id = id, .stats = {text, n}};
    c->cfg.io.answer(c->cfg.io.ctx, to, &m);
  }
  free(text); /* open_memstream's */
}
