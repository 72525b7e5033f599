/* The results of a benchmark, as a table or as JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/cmd/bench.h"
#include "runtime/base/mem.h"

typedef struct summary {
  const char *title, *key;
  double mean, median, p99;
} summary;

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Linear interpolation between the two nearest of n sorted values. */
static double percentile(const double *v, size_t n, double p) {
  if (!n) return 0;
  double at = p * (double)(n - 1);
  size_t i = (size_t)at;
  return i + 1 < n ? v[i] + (at - (double)i) * (v[i + 1] - v[i]) : v[n - 1];
}

static summary summarize(const char *title, const char *key, double *v, size_t n) {
  double sum = 0;
  qsort(v, n, sizeof *v, compare);
  for (size_t i = 0; i < n; i++) sum += v[i];
  return (summary){title, key, n ? sum / (double)n : 0, percentile(v, n, 0.5), percentile(v, n, 0.99)};
}

enum { TTFT, TPOT, ITL, E2E, NUM_SUMMARIES };

static bool summarize_all(const bench_run *b, summary out[NUM_SUMMARIES]) {
  double *v = tri_malloc(b->num, sizeof *v);
  if (!v) return false;
  size_t n = 0;
  for (size_t i = 0; i < b->num; i++)
    if (b->requests[i].ok && b->requests[i].first_ns)
      v[n++] = (double)(b->requests[i].first_ns - b->requests[i].sent_ns) * 1e-6;
  out[TTFT] = summarize("Time to first token", "ttft", v, n);
  n = 0;
  for (size_t i = 0; i < b->num; i++) {
    const bench_request *r = &b->requests[i];
    if (r->ok && r->output_tokens > 1)
      v[n++] = (double)(r->last_ns - r->first_ns) * 1e-6 / (double)(r->output_tokens - 1);
  }
  out[TPOT] = summarize("Time per output token", "tpot", v, n);
  out[ITL] = summarize("Inter-token latency", "itl", b->itl_ms, b->num_itl);
  n = 0;
  for (size_t i = 0; i < b->num; i++)
    if (b->requests[i].ok) v[n++] = (double)(b->requests[i].end_ns - b->requests[i].sent_ns) * 1e-6;
  out[E2E] = summarize("End-to-end latency", "e2el", v, n);
  tri_free(v);
  return true;
}

/* Not a number where it is not known. */
static double us_per_token(double seconds, uint64_t tokens) {
  return tokens && seconds > 0 ? seconds * 1e6 / (double)tokens : NAN;
}

typedef struct totals {
  uint64_t ok, input, output;
  double seconds;
} totals;

/* Tokens a second, in and out, if this load's matrix products ran at the workers' best rate and nothing else took time.
 * A request's last token is drawn and not computed with. 0: not known. */
static double limit_throughput(const bench_run *b, const totals *t) {
  const bench_floors *f = &b->floors;
  double head = f->output_token_flops - f->prompt_token_flops;
  double flops = (double)(t->input + t->output - t->ok) * f->prompt_token_flops + (double)t->output * head;
  return flops > 0 ? (double)(t->input + t->output) * f->flops_per_s / flops : 0;
}

/* Milliseconds for one token of one sequence, in which every weight is read once. 0: not known. */
static double floor_tpot_ms(const bench_floors *f) {
  return f->read_bytes_per_s > 0 ? f->weight_bytes / f->read_bytes_per_s * 1e3 : 0;
}

static void print_limits(const bench_run *b, const summary *s, const totals *t) {
  double all = (double)(t->input + t->output) / t->seconds, most = limit_throughput(b, t);
  if (most > 0)
    printf("Limit             %10.2f /s of all tokens, at %.1f GFLOP/s, the workers' best rate of matrix products "
           "(on CPUs in float32); ratio %.2f\n",
           most, b->floors.flops_per_s * 1e-9, all / most);
  double least = floor_tpot_ms(&b->floors);
  if (least > 0 && b->most_in_flight == 1 && s[TPOT].median > 0)
    printf("Floor             %10.3f ms per output token, the weights read at %.1f GB/s; ratio %.2f\n", least,
           b->floors.read_bytes_per_s * 1e-9, least / s[TPOT].median);
}

static void print_json(const bench_run *b, const char *kind, const summary *s, const totals *t, const char *model) {
  cmd_buf j = {0};
  cmd_json_open(&j, NULL, '{');
  cmd_json_word(&j, "benchmark", kind);
  cmd_json_word(&j, "model", model);
  const struct {
    const char *key;
    double value;
  } numbers[] = {{"num_prompts", (double)b->num},
                 {"completed", (double)t->ok},
                 {"failed", (double)b->failed},
                 {"duration", t->seconds},
                 {"request_rate", b->o->request_rate},
                 {"max_concurrency", (double)b->o->max_concurrency},
                 {"max_concurrent_requests", (double)b->most_in_flight},
                 {"total_input_tokens", (double)t->input},
                 {"total_output_tokens", (double)t->output},
                 {"request_throughput", (double)t->ok / t->seconds},
                 {"output_throughput", (double)t->output / t->seconds},
                 {"total_token_throughput", (double)(t->input + t->output) / t->seconds}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    cmd_json_num(&j, numbers[i].key, numbers[i].value); /* an infinite rate becomes null */
  }
  for (int i = 0; i < NUM_SUMMARIES; i++) {
    cmd_buf_printf(&j, ",\"mean_%s_ms\":", s[i].key);
    cmd_buf_num(&j, s[i].mean);
    cmd_buf_printf(&j, ",\"median_%s_ms\":", s[i].key);
    cmd_buf_num(&j, s[i].median);
    cmd_buf_printf(&j, ",\"p99_%s_ms\":", s[i].key);
    cmd_buf_num(&j, s[i].p99);
  }
  if (limit_throughput(b, t) > 0) {
    cmd_json_num(&j, "floor_total_token_throughput", limit_throughput(b, t));
    cmd_json_num(&j, "floor_ratio", (double)(t->input + t->output) / t->seconds / limit_throughput(b, t));
    cmd_json_num(&j, "floor_tpot_ms", floor_tpot_ms(&b->floors));
    cmd_json_num(&j, "flops_per_s", b->floors.flops_per_s);
    cmd_json_num(&j, "read_bytes_per_s", b->floors.read_bytes_per_s);
  }
  if (b->interrupted) cmd_buf_printf(&j, ",\"partial\":true");
  cmd_json_num(&j, "coordinator_us_per_token", us_per_token(b->cost.coordinator_s, b->cost.generated));
  cmd_json_num(&j, "scheduler_us_per_token", us_per_token(b->cost.scheduler_s, b->cost.drawn));
  printf("%s}\n", j.data);
  cmd_buf_free(&j);
}

static void print_cost(const bench_cost *c) {
  double coordinator = us_per_token(c->coordinator_s, c->generated), scheduler = us_per_token(c->scheduler_s, c->drawn);
  if (isnan(coordinator)) return;
  printf("\nCPU per token     %10.2f us in the coordinator", coordinator);
  if (!isnan(scheduler)) printf(", %.2f us in the scheduler", scheduler);
  putchar('\n');
}

static void print_table(const bench_run *b, const summary *s, const totals *t, bool latencies) {
  if (b->interrupted) printf("Partial results: interrupted.\n");
  printf("Requests          %10llu done, %zu failed, at most %lld at a time\n", (unsigned long long)t->ok, b->failed,
         (long long)b->most_in_flight);
  printf("Duration          %10.2f s\n", t->seconds);
  printf("Tokens            %10llu in, %llu out\n", (unsigned long long)t->input, (unsigned long long)t->output);
  printf("Requests          %10.2f /s\n", (double)t->ok / t->seconds);
  printf("Output tokens     %10.2f /s\n", (double)t->output / t->seconds);
  printf("All tokens        %10.2f /s\n", (double)(t->input + t->output) / t->seconds);
  print_limits(b, s, t);
  if (latencies) {
    printf("\n%-24s %10s %10s %10s\n", "ms", "mean", "median", "p99");
    for (int i = 0; i < NUM_SUMMARIES; i++)
      printf("%-24s %10.2f %10.2f %10.2f\n", s[i].title, s[i].mean, s[i].median, s[i].p99);
  }
  print_cost(&b->cost);
}

void bench_report(const bench_run *b, const char *kind, const char *model) {
  summary s[NUM_SUMMARIES];
  totals t = {.seconds = (double)b->end_ns * 1e-9 + 1e-12};
  if (!summarize_all(b, s)) return;
  for (size_t i = 0; i < b->num; i++) {
    if (!b->requests[i].ok) continue;
    t.ok++;
    t.input += b->requests[i].prompt_tokens;
    t.output += b->requests[i].output_tokens;
  }
  if (b->o->json)
    print_json(b, kind, s, &t, model);
  else
    print_table(b, s, &t, !strcmp(kind, "serve"));
}
