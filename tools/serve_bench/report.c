/* SPDX-License-Identifier: Apache-2.0 */
/* The results of a benchmark, as a table or as JSON. */
#include <math.h>
#include <string.h>

#include "tools/serve_bench/serve_bench.h"
#include "base/json/json_writer.h"

static const struct {
  const char *title, *key;
} latencies[BENCH_NUM_LATENCIES] = {[BENCH_TTFT] = {"Time to first token", "ttft"},
                                    [BENCH_TPOT] = {"Time per output token", "tpot"},
                                    [BENCH_ITL] = {"Inter-token latency", "itl"},
                                    [BENCH_E2E] = {"End-to-end latency", "e2el"}};

/* An encoder's answer comes at once: it has no tokens to wait for. */
static bool has_latency(const bench_run *b, bench_latency which) { return !b->encoder || which == BENCH_E2E; }

/* ---- limits ---- */

/* Not a number where it is not known. */
static double us_per_token(double seconds, uint64_t tokens) {
  return tokens && seconds > 0 ? seconds * 1e6 / (double)tokens : NAN;
}

static double all_tokens(const bench_figures *f) { return (double)(f->input + f->output) / f->seconds; }

/* Tokens a second, in and out, if this load's matrix products ran at the workers' best rate and nothing else took time.
 * The last token of a text is drawn and not computed with. 0: not known. */
static double limit_throughput(const bench_run *b, const bench_figures *f) {
  const bench_floors *w = &b->floors;
  double head = w->output_token_flops - w->prompt_token_flops;
  double computed = (double)(f->input + f->output) - (b->encoder ? 0 : (double)f->ok);
  double flops = computed * w->prompt_token_flops + (double)f->output * head;
  return flops > 0 ? (double)(f->input + f->output) * w->flops_per_s / flops : 0;
}

/* Milliseconds for one token of one sequence, in which every weight is read once. 0: not known. */
static double floor_tpot_ms(const bench_floors *f) {
  return f->read_bytes_per_s > 0 ? f->weight_bytes / f->read_bytes_per_s * 1e3 : 0;
}

static void print_limit(const bench_run *b, const bench_figures *f) {
  double most = limit_throughput(b, f);
  if (most > 0)
    printf("Limit             %10.2f /s of all tokens, at %.1f GFLOP/s, the workers' best rate of matrix products "
           "(on CPUs in float32); ratio %.2f\n",
           most, b->floors.flops_per_s * 1e-9, all_tokens(f) / most);
}

/* Only of requests one at a time: a step of several sequences reads the weights once for all of them, and has another
 * floor. */
static void print_floor(const bench_run *b, const bench_load *l, const bench_figures *f) {
  double least = floor_tpot_ms(&b->floors), tpot = f->latency_ms[BENCH_TPOT].median;
  if (least > 0 && l->most_in_flight == 1 && tpot > 0)
    printf("Floor             %10.3f ms per output token, the weights read at %.1f GB/s; ratio %.2f\n", least,
           b->floors.read_bytes_per_s * 1e-9, least / tpot);
}

/* ---- JSON ---- */

static void json_bool(tri_buf *j, const char *key, bool x) {
  tri_json_add_key(j, key);
  tri_text_add(j, x ? "true" : "false", x ? 4 : 5);
}

/* Writes null where nothing was answered: it is not known then. */
static void json_saturated(tri_buf *j, const bench_figures *f, bool saturated) {
  if (f->ok)
    json_bool(j, "saturated", saturated);
  else
    tri_json_put_num(j, "saturated", NAN);
}

static void json_open(tri_buf *j, const bench_run *b) {
  tri_json_open(j, NULL, '{');
  tri_json_put_word(j, "benchmark", b->kind);
  tri_json_put_word(j, "model", b->model);
  tri_json_put_word(j, "task", b->task);
}

static void json_latency(tri_buf *j, const char *key, const bench_summary *s) {
  const struct {
    const char *name;
    double ms;
  } all[] = {{"mean", s->mean}, {"median", s->median}, {"p90", s->p90}, {"p99", s->p99}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    char name[32];
    snprintf(name, sizeof name, "%s_%s_ms", all[i].name, key);
    tri_json_put_num(j, name, all[i].ms);
  }
}

static void json_counts(tri_buf *j, const bench_run *b, const bench_load *l, const bench_figures *f) {
  tri_json_put_uint(j, "num_prompts", l->num);
  tri_json_put_uint(j, "completed", f->ok);
  tri_json_put_uint(j, "failed", l->failed);
  tri_json_put_uint(j, "refused", l->refused);
  if (l->refused) json_latency(j, "refusal", &f->refusal_ms);
  tri_json_put_num(j, "duration", f->seconds);
  tri_json_put_num(j, "request_rate", l->rate); /* an infinite rate becomes null */
  tri_json_put_num(j, "max_concurrency", (double)b->o->max_concurrency);
  tri_json_put_num(j, "max_concurrent_requests", (double)l->most_in_flight);
  tri_json_put_uint(j, "total_input_tokens", f->input);
  if (!b->encoder) tri_json_put_uint(j, "total_output_tokens", f->output);
  tri_json_put_num(j, "request_throughput", f->achieved);
  if (f->offered > 0) {
    tri_json_put_num(j, "offered_rate", f->offered);
    json_saturated(j, f, f->saturated);
    tri_json_put_num(j, "mean_late_ms", f->late_ms.mean);
    tri_json_put_num(j, "p99_late_ms", f->late_ms.p99);
  }
  if (!b->encoder) tri_json_put_num(j, "output_throughput", (double)f->output / f->seconds);
  tri_json_put_num(j, "total_token_throughput", all_tokens(f));
}

static void json_limits(tri_buf *j, const bench_run *b, const bench_figures *f) {
  double most = limit_throughput(b, f);
  if (!(most > 0)) return;
  tri_json_put_num(j, "floor_total_token_throughput", most);
  tri_json_put_num(j, "floor_ratio", all_tokens(f) / most);
  if (!b->encoder) tri_json_put_num(j, "floor_tpot_ms", floor_tpot_ms(&b->floors));
  tri_json_put_num(j, "flops_per_s", b->floors.flops_per_s);
  tri_json_put_num(j, "read_bytes_per_s", b->floors.read_bytes_per_s);
}

/* Flushed, so that a line can be read, also through a pipe, while the next load runs. */
static void print_line(tri_buf *j) {
  tri_text_add(j, "}\n", 2);
  fwrite(j->data, 1, j->len, stdout);
  fflush(stdout);
  tri_buf_free(j);
}

static void print_json(const bench_run *b, const bench_load *l, const bench_figures *f) {
  tri_buf j = {0};
  json_open(&j, b);
  json_counts(&j, b, l, f);
  for (int i = 0; i < BENCH_NUM_LATENCIES; i++)
    if (has_latency(b, (bench_latency)i)) json_latency(&j, latencies[i].key, &f->latency_ms[i]);
  if (l->chats) {
    tri_json_put_uint(&j, "total_cached_tokens", f->cached);
    json_latency(&j, "first_turn_ttft", &f->first_ttft_ms);
    json_latency(&j, "later_turn_ttft", &f->later_ttft_ms);
  }
  json_limits(&j, b, f);
  if (l->interrupted) json_bool(&j, "partial", true);
  if (!b->encoder) {
    tri_json_put_num(&j, "coordinator_us_per_token", us_per_token(l->cost.coordinator_s, l->cost.generated));
    tri_json_put_num(&j, "scheduler_us_per_token", us_per_token(l->cost.scheduler_s, l->cost.drawn));
  }
  print_line(&j);
}

/* ---- tables ---- */

static void print_cost(const bench_cost *c) {
  double coordinator = us_per_token(c->coordinator_s, c->generated), scheduler = us_per_token(c->scheduler_s, c->drawn);
  if (isnan(coordinator)) return;
  printf("\nCPU per token     %10.2f us in the coordinator", coordinator);
  if (!isnan(scheduler)) printf(", %.2f us in the scheduler", scheduler);
  putchar('\n');
}

static void print_rates(const bench_run *b, const bench_figures *f) {
  printf("Requests          %10.2f /s\n", f->achieved);
  if (f->offered > 0)
    printf("Offered           %10.2f /s%s\n", f->offered, f->saturated ? ", faster than answers came: saturated" : "");
  if (!b->encoder) printf("Output tokens     %10.2f /s\n", (double)f->output / f->seconds);
  printf("All tokens        %10.2f /s\n", all_tokens(f));
}

static void print_summary(const char *title, const bench_summary *s) {
  printf("%-24s %10.2f %10.2f %10.2f %10.2f\n", title, s->mean, s->median, s->p90, s->p99);
}

static void print_latencies(const bench_run *b, const bench_load *l, const bench_figures *f) {
  printf("\n%-24s %10s %10s %10s %10s\n", "ms", "mean", "median", "p90", "p99");
  for (int i = 0; i < BENCH_NUM_LATENCIES; i++)
    if (has_latency(b, (bench_latency)i)) print_summary(latencies[i].title, &f->latency_ms[i]);
  if (l->refused) print_summary("Time to a refusal", &f->refusal_ms);
  if (!l->chats) return;
  print_summary("TTFT of first turns", &f->first_ttft_ms);
  print_summary("TTFT of later turns", &f->later_ttft_ms);
}

static void print_table(const bench_run *b, const bench_load *l, const bench_figures *f) {
  if (l->interrupted) printf("Partial results: interrupted.\n");
  printf("Requests          %10llu done, %zu failed", (unsigned long long)f->ok, l->failed);
  if (l->refused) printf(" (%zu refused for want of room)", l->refused);
  printf(", at most %lld at a time\n", (long long)l->most_in_flight);
  printf("Duration          %10.2f s\n", f->seconds);
  printf("Tokens            %10llu in", (unsigned long long)f->input);
  if (!b->encoder) printf(", %llu out", (unsigned long long)f->output);
  if (l->chats) printf(", of those in %llu cached", (unsigned long long)f->cached);
  putchar('\n');
  print_rates(b, f);
  print_limit(b, f);
  print_floor(b, l, f);
  if (!strcmp(b->kind, "serve")) print_latencies(b, l, f);
  print_cost(&l->cost);
}

void bench_report(const bench_run *b, const bench_load *l, const bench_figures *f) {
  if (b->o->json)
    print_json(b, l, f);
  else
    print_table(b, l, f);
}

void bench_report_row(const bench_run *b, const bench_load *l, const bench_figures *f, bool first) {
  const bench_summary *s = &f->latency_ms[BENCH_E2E];
  if (b->o->json) {
    print_json(b, l, f);
    return;
  }
  if (first)
    printf("%11s %11s %11s %10s %10s %10s %10s\n", "offered /s", "answered /s", "tokens /s", "mean ms", "median ms",
           "p90 ms", "p99 ms");
  printf("%11.2f %11.2f %11.2f %10.2f %10.2f %10.2f %10.2f%s", f->offered, f->achieved, all_tokens(f), s->mean,
         s->median, s->p90, s->p99, f->saturated ? "  saturated" : "");
  if (l->failed) printf("  %zu failed", l->failed);
  printf("%s\n", l->interrupted ? "  partial: interrupted" : "");
  fflush(stdout);
}

void bench_report_saturation(const bench_run *b, const bench_figures *all, size_t n) {
  const bench_figures *most = &all[0];
  bool saturated = false;
  for (size_t i = 0; i < n; i++) {
    saturated = saturated || all[i].saturated;
    if (all[i].achieved > most->achieved) most = &all[i];
  }
  if (!b->o->json && !most->ok) {
    printf("\nNo request was answered, so that nothing is known of saturation\n");
    return;
  }
  if (!b->o->json) {
    printf("\n%s %.2f requests/s, %.2f tokens/s%s\n",
           saturated ? "Throughput at saturation:" : "Not saturated:", most->achieved, all_tokens(most),
           saturated ? "" : " were answered, and more can be");
    print_limit(b, most);
    return;
  }
  tri_buf j = {0};
  json_open(&j, b);
  tri_json_put_uint(&j, "loads", n);
  json_saturated(&j, most, saturated);
  tri_json_put_num(&j, "max_request_throughput", most->achieved);
  tri_json_put_num(&j, "max_total_token_throughput", all_tokens(most));
  json_limits(&j, b, most);
  print_line(&j);
}
