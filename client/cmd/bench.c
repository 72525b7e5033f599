#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/cmd/bench.h"
#include "runtime/base/wait.h"

/* REPORT_MS: in which every group has reported, which they do once a second. */
enum { FLOORS_MS = 40000, REPORT_MS = 1500, ASK_AGAIN_MS = 20 };

static const tri_option bench_table[] = {
    {TRI_OPT(bench_options, num_prompts), .name = "num-prompts", .min = 1, .max = 10000000, .fallback = "200",
     .group = "Load", .help = "requests in all"},
    {TRI_OPT(bench_options, request_rate), .name = "request-rate", .min = 0.001, .max = INFINITY, .fallback = "inf",
     .metavar = "PER_SECOND", .group = "Load", .help = "arrivals per second, as a Poisson process; inf: all at once"},
    {TRI_OPT(bench_options, max_concurrency), .name = "max-concurrency", .min = 0, .max = 65536, .fallback = "0",
     .group = "Load", .help = "requests under way at most; 0: no limit"},
    {TRI_OPT(bench_options, random_input_len), .name = "random-input-len", .min = 1, .max = 200000, .fallback = "128",
     .group = "Load", .help = "token ids of a random prompt"},
    {TRI_OPT(bench_options, random_output_len), .name = "random-output-len", .min = 1, .max = 1048576,
     .fallback = "128", .group = "Load", .help = "tokens to generate (max_tokens)"},
    {TRI_OPT(bench_options, prompt_file), .name = "prompt-file", .metavar = "FILE", .group = "Load",
     .help = "take the prompts from a file as of trireme submit --file, in turn"},
    {TRI_OPT(bench_options, ignore_eos), .name = "ignore-eos", .fallback = "true", .group = "Load",
     .help = "generate the full length, whatever the model says"},
    {TRI_OPT(bench_options, temperature), .name = "temperature", .min = 0, .max = 100, .fallback = "0", .group = "Load",
     .help = "of the sampling"},
    {TRI_OPT(bench_options, seed), .name = "seed", .no_letters = true, .fallback = "0", .metavar = "N", .group = "Load",
     .help = "of prompts and arrivals"},
    {TRI_OPT(bench_options, floors), .name = "floors", .fallback = "true", .group = "Load",
     .help = "have the workers measure their machines first, if nothing runs, for the limits beside the figures"},
    {TRI_OPT(bench_options, json), .name = "json", .help = "print one JSON object"},
    CMD_CONNECTION_OPTIONS(bench_options, connection),
};

/* Without an answer there are no floors, and the benchmark runs all the same. */
static void ask_floors(bench_run *b) {
  trireme_event e;
  uint64_t id;
  if (trireme_ask_floors(b->c, &id, NULL)) return;
  if (isatty(STDERR_FILENO)) fprintf(stderr, "trireme: measuring the machine (--no-floors skips this)\n");
  do
    if (trireme_next(b->c, FLOORS_MS, &e, NULL)) return;
  while (e.id != id);
  if (e.kind != TRIREME_EVENT_FLOORS) return;
  if (!e.floors.num) fprintf(stderr, "trireme: no group is ready: no floors are shown\n");
  bench_floors f = {0};
  double soonest = 0;
  for (size_t i = 0; i < e.floors.num; i++) {
    const trireme_group_floors *g = e.floors.groups[i];
    if (g->measured < g->ranks || !(g->flops_per_s > 0) || !(g->weight_bytes > 0)) {
      fprintf(stderr, "trireme: group %u has not measured its floors, as where work is under way: none are shown\n",
              g->group);
      return;
    }
    f.flops_per_s += g->flops_per_s;
    f.prompt_token_flops = g->prompt_token_flops;
    f.output_token_flops = g->output_token_flops;
    if (g->read_bytes_per_s / g->weight_bytes <= soonest) continue;
    soonest = g->read_bytes_per_s / g->weight_bytes;
    f.read_bytes_per_s = g->read_bytes_per_s;
    f.weight_bytes = g->weight_bytes;
  }
  b->floors = f;
}

/* Without tokens there is nothing that these benchmarks measure. */
static int check_generates(const trireme_status *s) {
  trireme_error error = {.code = "unsupported", .field = "model"};
  if (!cmd_is_encoder(s)) return TRI_EXIT_OK;
  snprintf(
      error.message, sizeof error.message,
      "the model served here, \"%.100s\", is an encoder: it does not generate text, which is what is measured here",
      s->model);
  return cmd_refused(&error);
}

/* ---- what the run costs the processes that hand out work ---- */

static int ask_cost(const bench_run *b, trireme_event *e, bench_cost *out) {
  int code = cmd_ask_status(b->c, (int)b->o->connection.connect_timeout_ms, e);
  if (code) return code;
  *out = (bench_cost){.coordinator_s = e->status.coordinator_cpu_s, .generated = e->status.generation_tokens};
  for (size_t i = 0; i < e->status.num_groups; i++) {
    out->scheduler_s += e->status.groups[i]->scheduler_cpu_s;
    out->drawn += e->status.groups[i]->tokens;
  }
  return TRI_EXIT_OK;
}

/* The difference to `before`; what has become less was counted by a process that is no more. The coordinator's is of
 * now; the schedulers' reports may not know of all tokens yet. */
static void take_cost(bench_run *b, const bench_cost *before) {
  trireme_event e;
  bench_cost now, later;
  int64_t until = tri_deadline_after_ms(REPORT_MS);
  if (!(before->coordinator_s > 0) || ask_cost(b, &e, &now) || now.generated < before->generated) return;
  b->cost.coordinator_s = now.coordinator_s - before->coordinator_s;
  b->cost.generated = now.generated - before->generated;
  for (later = now; later.drawn < before->drawn + b->cost.generated && tri_now_ns() < until;) {
    struct timespec pause = {.tv_nsec = ASK_AGAIN_MS * 1000000};
    nanosleep(&pause, NULL);
    if (ask_cost(b, &e, &later)) return;
  }
  if (later.drawn < before->drawn) return;
  b->cost.scheduler_s = later.scheduler_s - before->scheduler_s;
  b->cost.drawn = later.drawn - before->drawn;
}

static int run_load(const bench_options *o, const char *kind) {
  bench_run b = {.o = o};
  bench_cost before = {0};
  char model[256] = "";
  trireme_event e;
  int code = bench_prepare(&b);
  if (!code) code = cmd_connect(&o->connection, &b.c);
  if (!code) code = cmd_ask_status(b.c, (int)o->connection.connect_timeout_ms, &e);
  if (!code) code = check_generates(&e.status);
  if (!code) {
    b.vocab_size = e.status.vocab_size;
    snprintf(model, sizeof model, "%s", e.status.model);
    cmd_catch_signals();
    if (o->floors) ask_floors(&b);
    if (!cmd_signal) ask_cost(&b, &e, &before);
    code = cmd_signal ? TRI_EXIT_FAILED : bench_load(&b);
  }
  if (!code) {
    take_cost(&b, &before);
    bench_report(&b, kind, model);
    if (b.interrupted) {
      fprintf(stderr, "trireme: interrupted with %zu of %zu requests done: the results are partial\n", b.finished,
              b.num);
      code = TRI_EXIT_FAILED;
    }
    if (b.failed) {
      fprintf(stderr, "trireme: %zu of %zu requests failed; the first: %s\n", b.failed, b.num, b.first_error.message);
      code = TRI_EXIT_FAILED;
    }
  }
  trireme_close(b.c);
  bench_run_free(&b);
  return code;
}

static int load_command(int argc, char **argv, const char *kind, const tri_options_spec *spec) {
  bench_options o = {0};
  tri_options *parsed = NULL;
  int code = tri_options_main(spec, &o, argc, argv, &parsed);
  if (code >= 0) return code;
  code = run_load(&o, kind);
  tri_options_free(parsed);
  return code;
}

static int serve(int argc, char **argv) {
  static const tri_options_spec spec = {
      .program = "trireme bench serve",
      TRI_OPTIONS(bench_table),
      .summary =
          "Sends requests to a running coordinator as many users would, and reports the latencies that they see.",
      .epilog =
          "TTFT: time to the first token; TPOT: time per token after it; ITL: gap between two events of a stream.\n\n"
          "Examples:\n"
          "  trireme bench serve --num-prompts 500 --request-rate 10\n"
          "  trireme bench serve --max-concurrency 64 --random-input-len 512 --random-output-len 256 --json\n"
          "  trireme bench serve --prompt-file prompts.jsonl --no-ignore-eos\n"};
  return load_command(argc, argv, "serve", &spec);
}

static int throughput(int argc, char **argv) {
  static const tri_options_spec spec = {
      .program = "trireme bench throughput",
      TRI_OPTIONS(bench_table),
      .summary = "Gives a running coordinator all requests at once, and reports how much it gets done.",
      .epilog = "Example:\n  trireme bench throughput --num-prompts 1000 --random-output-len 256\n"};
  return load_command(argc, argv, "throughput", &spec);
}

static const cmd_command kinds[] = {
    {"serve", serve, NULL, "latencies under a load of arriving requests"},
    {"throughput", throughput, NULL, "tokens per second when all requests are there at once"},
    {"latency", NULL, "trireme-bench-latency", "one batch without a coordinator (trireme-bench-latency)"},
    {"batching", NULL, "trireme-bench-batching",
     "a new batch at every step against whole ones, packed and padded (trireme-bench-batching)"},
    {"memory", NULL, "trireme-bench-memory", "allocators for an encoder's activations (trireme-bench-memory)"},
    {"load", NULL, "trireme-bench-load", "loading weights, beside the disk's rate (trireme-bench-load)"},
    {"stream", NULL, "trireme-bench-stream",
     "steps whose weights come from files, beside the disk's rate (trireme-bench-stream)"},
};
enum { NUM_KINDS = sizeof kinds / sizeof *kinds };

int cmd_bench(int argc, char **argv) {
  bool help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
  const cmd_command *kind = argc > 1 ? cmd_find(kinds, NUM_KINDS, argv[1]) : NULL;
  if (kind) return cmd_run(kind, argc - 1, argv + 1);
  FILE *out = help ? stdout : stderr;
  if (argc > 1 && !help) {
    cmd_say_unknown("trireme bench", "benchmark", argv[1], kinds, NUM_KINDS);
    fputc('\n', out);
  }
  fprintf(out, "Usage: trireme bench KIND [OPTION]...\n\nKinds:\n");
  for (size_t i = 0; i < NUM_KINDS; i++) fprintf(out, "  %-12s%s\n", kinds[i].name, kinds[i].help);
  return help ? TRI_EXIT_OK : TRI_EXIT_USAGE;
}
