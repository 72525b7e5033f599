/* SPDX-License-Identifier: Apache-2.0 */
/* `batching_bench [OPTION]...`: what iteration-level batches bring over request-level ones (Orca, Yu et al. 2022), on
 * one rank's engine, without a server.
 *
 * The same requests, all of them waiting at the start, go through the same scheduler, slots, engine and kernels three
 * times: with a new batch at every step; with batches that keep their members until the last one has ended; and with
 * such batches as the paper describes them (sections 2 and 3.1) and engines of rectangular batches run them: prompts
 * are padded to the batch's longest, and sequences that have ended are computed on until all have. The second kind is
 * kinder than any such engine: its prompts are packed, and sequences that have ended cost nothing but their places.
 * A batch has as many requests as there are slots, and fewer where the KV blocks do not hold all of their prompts; the
 * scheduler knows nothing of it, as it gets the next batch once it has nothing left to do.
 * Texts do not end by themselves, so that all answer the same; padding is not counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/wire/sampling.h"
#include "kernels/roofline.h"
#include "base/hash.h"
#include "base/standard_output.h"
#include "base/version.h"
#include "base/wait.h"
#include "tools/bench/rank.h"
#include "worker/cost/swap_cost.h"
#include "worker/schedule/scheduler.h"

enum { MAX_REQUESTS = 1 << 16, MAX_LEN = 1 << 20, MAX_ROUNDS = 64 };

struct bench_options {
  tri_serve_options serve;
  int requests, min_in, max_in, min_out, max_out, rounds, warmups;
  bool json;
};

#define B struct bench_options
static const tri_option own_options[] = {
    {TRI_OPT(B, requests), .name = "num-prompts", .min = 1, .max = MAX_REQUESTS, .fallback = "256", .metavar = "N",
     .group = "Benchmark", .help = "requests, all of them waiting at the start"},
    {TRI_OPT(B, min_in), .name = "min-input-len", .min = 1, .max = MAX_LEN, .fallback = "32", .metavar = "N",
     .group = "Benchmark", .help = "tokens of the shortest prompt"},
    {TRI_OPT(B, max_in), .name = "max-input-len", .min = 0, .max = MAX_LEN, .fallback = "0", .metavar = "N",
     .group = "Benchmark",
     .help = "tokens of the longest prompt (lengths are uniform); 0: 1024, or two thirds of the model's limit"},
    {TRI_OPT(B, min_out), .name = "min-output-len", .min = 1, .max = MAX_LEN, .fallback = "16", .metavar = "N",
     .group = "Benchmark", .help = "tokens of the shortest answer"},
    {TRI_OPT(B, max_out), .name = "max-output-len", .min = 0, .max = MAX_LEN, .fallback = "0", .metavar = "N",
     .group = "Benchmark",
     .help = "tokens of the longest answer (lengths are uniform); 0: 512, or a third of the model's limit"},
    {TRI_OPT(B, rounds), .name = "num-iters", .min = 1, .max = MAX_ROUNDS, .fallback = "3", .metavar = "N",
     .group = "Benchmark", .help = "timed runs of each kind of batching, in turn; their median is reported"},
    {TRI_OPT(B, warmups), .name = "num-iters-warmup", .min = 0, .max = MAX_ROUNDS, .fallback = "1", .metavar = "N",
     .group = "Benchmark", .help = "runs of each before that"},
    {TRI_OPT(B, json), .name = "json", .fallback = "false", .group = "Benchmark",
     .help = "print one JSON object instead of a table"},
};
#undef B
enum { NUM_OWN = sizeof own_options / sizeof *own_options };

static tri_options_spec spec = {
    .program = "batching_bench",
    .usage = "MODEL [OPTION]...",
    .arg_option = "model",
    .summary = "Compares continuous batching with request-level batches on one rank, without a server.",
    .epilog = "--max-num-seqs is the largest batch; by default the KV cache has room for all its sequences. --seed\n"
              "also sets the lengths. Other options of trireme-worker are accepted and ignored. The layout must be\n"
              "one rank.\n"
              "\n"
              "On a CPU, the time of a step grows with its tokens, so that the gain over packed batches is about 1:\n"
              "use a GPU for this benchmark.\n"
              "\nExample:\n"
              "  batching_bench --model DIR --load-format dummy --max-num-seqs 64 --json\n",
    .version = "batching_bench " TRIREME_VERSION,
    .config_file = true,
};

struct request {
  int in, out;
};

enum { SLOTS = 128 }; /* unless --max-num-seqs says otherwise */
enum { ITERATION, REQUEST, PADDED, NUM_LEVELS };
static const char *const names[] = {"iteration", "request", "padded_request"};
static const char *const titles[] = {"iteration-level", "request-level", "request-level, padded"};

struct level {
  double seconds[MAX_ROUNDS], waited[MAX_ROUNDS]; /* of a run; of a request in the mean, until its last token */
  uint64_t steps, preemptions;                    /* the same in every run */
};

struct bench {
  struct bench_options o;
  tri_bench_rank rank;
  tri_swap_cost swap_cost;
  tri_plan_writer *writer;
  tri_outbox out;
  struct request *requests, *padded; /* as asked for, and as long as the longest of their batch */
  uint32_t *ids;                     /* request i's prompt begins at i */
  uint64_t tokens_in, tokens_out, padded_out, random;
  struct level levels[NUM_LEVELS];
};

static uint64_t draw(struct bench *b) { return tri_splitmix64(&b->random); }

static int between(struct bench *b, int low, int high) { return low + (int)(draw(b) % (uint64_t)(high - low + 1)); }

/* ---- one run ---- */

struct run {
  tri_sched *sched;
  const struct request *requests;
  bool whole;             /* batches */
  int next;               /* the first request that the scheduler does not have */
  uint64_t tokens, steps; /* so far */
  double seconds, waited; /* since the start; of the requests that have ended, together */
};

static tri_status add_job(struct bench *b, struct run *r, tri_error *err) {
  const tri_engine *e = b->rank.engine;
  const tri_job_model model = tri_job_model_of(&e->model);
  const struct request *request = &r->requests[r->next];
  tri_replica_assign a = {.job = (uint64_t)r->next, .remaining_ms = -1, .token_ids = b->ids + r->next};
  tri_job *job;
  a.num_token_ids = (size_t)request->in;
  tri_sampling_init(&a.sampling);
  a.sampling.max_tokens = request->out;
  a.sampling.temperature = 0;
  a.sampling.ignore_eos = true;
  TRI_CHECK(tri_job_create(&a, &e->limits, &model, 0, &job, err));
  tri_sched_add(r->sched, job);
  r->next++;
  return TRI_OK;
}

/* The next batch; where batches are not whole, all requests. */
static tri_status add_jobs(struct bench *b, struct run *r, tri_error *err) {
  const tri_limits *l = &b->rank.engine->limits;
  int blocks = 0; /* of the batch's prompts */
  for (int first = r->next; r->next < b->o.requests;) {
    blocks += (r->requests[r->next].in + l->block_size - 1) / l->block_size;
    bool fits = r->next - first < l->max_num_seqs && blocks <= l->num_blocks;
    if (r->whole && r->next > first && !fits) return TRI_OK;
    TRI_CHECK(add_job(b, r, err));
  }
  return TRI_OK;
}

/* Takes what the step under way drew. */
static void take_news(struct bench *b, struct run *r) {
  for (uint32_t i = 0; i < b->out.num; i++)
    if (b->out.tokens[i].flags & TRI_TOKEN_LAST) r->waited += r->seconds;
  r->tokens += b->out.num;
  b->out.num = 0;
  for (tri_job *j; (j = tri_sched_retired(r->sched));) tri_job_destroy(j);
}

/* The next step, if there is one to be composed. */
static tri_status begin_step(struct bench *b, tri_sched *sched, bool *begun) {
  size_t len;
  *begun = !tri_sched_micro_batch_busy(sched, 0) && tri_sched_compose(sched, 0, b->writer);
  if (!*begun) return TRI_OK;
  const void *plan = tri_plan_finish(b->writer, &len);
  return tri_engine_begin(b->rank.engine, plan, len);
}

static tri_status end_step(struct bench *b, tri_sched *sched) {
  const tri_engine *e = b->rank.engine;
  const tri_step_result *result;
  tri_wait wait = tri_wait_begin(&e->wait_policy, TRI_NEVER);
  tri_status st;
  while ((st = tri_engine_poll(b->rank.engine, &result)) == TRI_AGAIN) TRI_CHECK(tri_wait_pause(&wait));
  if (st == TRI_OK) tri_sched_absorb(sched, 0, result, &b->out);
  return st;
}

static tri_status run_steps(struct bench *b, struct run *r, uint64_t wanted, tri_error *err) {
  int64_t start = tri_now_ns();
  while (r->next < b->o.requests || tri_sched_has_work(r->sched)) {
    bool begun;
    if (!tri_sched_has_work(r->sched)) TRI_CHECK(add_jobs(b, r, err));
    TRI_CHECK(begin_step(b, r->sched, &begun));
    if (!begun && !b->rank.engine->num_steps)
      return tri_fail(err, TRI_NO_CAPACITY, "kv-cache-memory-bytes", "requests wait that never get KV blocks");
    r->steps += begun;
    if (begun && b->rank.engine->num_steps < b->rank.engine->depth) continue; /* the device need not wait */
    TRI_CHECK(end_step(b, r->sched));
    r->seconds = (double)(tri_now_ns() - start) * 1e-9;
    take_news(b, r);
  }
  while (b->rank.engine->num_steps) TRI_CHECK(end_step(b, r->sched)); /* of sequences that have ended */
  if (r->tokens != wanted)
    return tri_fail(err, TRI_INTERNAL, "", "%llu tokens came, of %llu", (unsigned long long)r->tokens,
                    (unsigned long long)wanted);
  return TRI_OK;
}

static tri_status run_level(struct bench *b, int which, int round, double *seconds, tri_error *err) {
  struct level *l = &b->levels[which];
  tri_sched_config sc = {.limits = b->rank.engine->limits,
                         .num_micro_batches = 1,
                         .depth = b->rank.engine->micro_batch_depth,
                         .swap_cost = b->swap_cost};
  struct run r = {.requests = which == PADDED ? b->padded : b->requests, .whole = which != ITERATION};
  tri_status st;
  TRI_TRY(tri_sched_create(&sc, &r.sched));
  TRI_TRY(run_steps(b, &r, which == PADDED ? b->padded_out : b->tokens_out, err));
  *seconds = r.seconds;
  l->steps = r.steps;
  l->preemptions = tri_sched_get_stats(r.sched).preemptions;
  if (round >= 0) {
    l->seconds[round] = r.seconds;
    l->waited[round] = r.waited / b->o.requests;
  }
cleanup:
  tri_sched_destroy(r.sched);
  return st;
}

/* In turn, and who is first changes: a machine that grows busier or warmer spares neither. */
static tri_status run(struct bench *b, tri_error *err) {
  for (int round = -b->o.warmups; round < b->o.rounds; round++)
    for (int i = 0; i < NUM_LEVELS; i++) {
      int which = (i + round + b->o.warmups) % NUM_LEVELS, all = round < 0 ? b->o.warmups : b->o.rounds;
      fprintf(stderr, "batching_bench: %s %d of %d, %s ...", round < 0 ? "warm-up" : "round",
              round < 0 ? round + b->o.warmups + 1 : round + 1, all, titles[which]);
      double seconds = 0;
      tri_status st = run_level(b, which, round, &seconds, err);
      fprintf(stderr, st == TRI_OK ? " %.1f s\n" : "\n", seconds);
      if (st != TRI_OK) return st;
    }
  return TRI_OK;
}

/* ---- set-up ---- */

/* Gives what was not asked for the size that fits. */
static void choose_lengths(struct bench_options *o, int64_t most) {
  if (!o->max_in) o->max_in = most < 1536 ? (int)(most / 3 * 2) : 1024;
  if (!o->max_out) o->max_out = most < 1536 ? (int)(most / 3) : 512;
}

static tri_status check(struct bench_options *o, const tri_model_config *c, tri_error *err) {
  int64_t most = o->serve.max_model_len ? o->serve.max_model_len : c->max_position_embeddings;
  choose_lengths(o, most);
  if (c->encoder || c->seq2seq.on)
    return tri_fail(err, TRI_UNSUPPORTED, "model", "model_type %s is no decoder: only those are compared here",
                    c->arch->model_type);
  if (o->min_in > o->max_in)
    return tri_fail(err, TRI_USAGE, "min-input-len", "--min-input-len %d is above --max-input-len %d", o->min_in,
                    o->max_in);
  if (o->min_out > o->max_out)
    return tri_fail(err, TRI_USAGE, "min-output-len", "--min-output-len %d is above --max-output-len %d", o->min_out,
                    o->max_out);
  if (o->max_in + o->max_out <= most) return TRI_OK;
  return tri_fail(err, TRI_OUT_OF_RANGE, "max-input-len",
                  "--max-input-len %d and --max-output-len %d are %d tokens, the limit is %s %lld", o->max_in,
                  o->max_out, o->max_in + o->max_out, o->serve.max_model_len ? "--max-model-len" : "the model's",
                  (long long)most);
}

/* Batches are filled in the order of arrival, so that who shares one is known beforehand. */
static void pad_requests(struct bench *b) {
  int slots = b->rank.engine->limits.max_num_seqs, n = b->o.requests;
  for (int first = 0; first < n; first += slots) {
    struct request longest = {0};
    int end = first + slots < n ? first + slots : n;
    for (int i = first; i < end; i++) {
      if (b->requests[i].in > longest.in) longest.in = b->requests[i].in;
      if (b->requests[i].out > longest.out) longest.out = b->requests[i].out;
    }
    for (int i = first; i < end; i++) b->padded[i] = longest;
    b->padded_out += (uint64_t)(end - first) * (uint64_t)longest.out;
  }
}

static tri_status make_requests(struct bench *b) {
  size_t n = (size_t)b->o.requests, num_ids = n + (size_t)b->o.max_in;
  b->requests = tri_calloc(n, sizeof *b->requests);
  b->padded = tri_calloc(n, sizeof *b->padded);
  b->ids = tri_malloc(num_ids, sizeof *b->ids);
  if (!b->requests || !b->padded || !b->ids) return TRI_NO_MEMORY;
  b->random = b->o.serve.seed;
  for (size_t i = 0; i < n; i++) {
    b->requests[i].in = between(b, b->o.min_in, b->o.max_in);
    b->requests[i].out = between(b, b->o.min_out, b->o.max_out);
    b->tokens_in += (uint64_t)b->requests[i].in;
    b->tokens_out += (uint64_t)b->requests[i].out;
  }
  for (size_t i = 0; i < num_ids; i++) b->ids[i] = (uint32_t)(draw(b) % (uint64_t)b->rank.engine->model.vocab_size);
  pad_requests(b);
  return TRI_OK;
}

static tri_status set_up(struct bench *b, tri_error *err) {
  const tri_serve_options *o = &b->o.serve;
  tri_model_config model;
  TRI_CHECK(tri_model_config_load(o->model, TRI_CONFIG_RULES(o), &model, err));
  TRI_CHECK(check(&b->o, &model, err));
  int most = o->max_num_seqs ? o->max_num_seqs : SLOTS, slots = most < b->o.requests ? most : b->o.requests;
  int len = b->o.max_in + b->o.max_out;
  tri_engine_config ec = {.max_num_seqs = slots,
                          .max_num_batched_tokens = o->max_num_batched_tokens,
                          .max_model_len = len,
                          .kv_bytes = (int64_t)o->kv_cache_memory,
                          .num_kv_blocks = o->num_kv_blocks};
  TRI_CHECK(tri_bench_rank_open(o, &ec, slots, len, &b->rank, err));
  b->swap_cost = tri_swap_cost_find(o, b->rank.engine, 1);
  const tri_limits *l = &b->rank.engine->limits;
  tri_plan_sizes sizes = tri_limits_plan_sizes(l);
  TRI_CHECK(tri_plan_writer_create(&sizes, &b->writer));
  TRI_CHECK(tri_outbox_init(&b->out, l->max_num_seqs));
  TRI_CHECK(make_requests(b));
  return TRI_OK;
}

static void tear_down(struct bench *b) {
  tri_free(b->requests);
  tri_free(b->padded);
  tri_free(b->ids);
  tri_outbox_free(&b->out);
  tri_plan_writer_destroy(b->writer);
  tri_bench_rank_close(&b->rank);
}

/* ---- the report ---- */

/* The numbers that are compared: medians over the rounds. */
struct figures {
  double seconds, least, most;   /* the median, and the smallest and largest */
  double waited, rate, together; /* rate: of drawn tokens; together: those of a step in the mean */
};

static struct figures figures_of(struct bench *b, int which) {
  struct level *l = &b->levels[which];
  double out = (double)b->tokens_out, seconds = tri_median(l->seconds, b->o.rounds);
  return (struct figures){.seconds = seconds,
                          .least = l->seconds[0], /* the median has sorted them */
                          .most = l->seconds[b->o.rounds - 1],
                          .waited = tri_median(l->waited, b->o.rounds),
                          .rate = out / seconds,
                          .together = out / (double)l->steps};
}

static void print_json(const struct bench *b, const struct figures f[NUM_LEVELS]) {
  const tri_engine *e = b->rank.engine;
  const struct bench_options *o = &b->o;
  printf("{\"model\":\"%s\",\"backend\":\"%s\",\"isa\":\"%s\",\"threads\":%d,\"clients\":0,\"num_prompts\":%d,"
         "\"seed\":%llu,"
         "\"min_input_len\":%d,\"max_input_len\":%d,\"min_output_len\":%d,\"max_output_len\":%d,\"max_num_seqs\":%d,"
         "\"max_num_batched_tokens\":%d,\"input_tokens\":%llu,\"output_tokens\":%llu",
         e->model.arch->model_type, b->rank.backend->name, b->rank.backend->isa, b->rank.threads, o->requests,
         (unsigned long long)o->serve.seed, o->min_in, o->max_in, o->min_out, o->max_out, e->limits.max_num_seqs,
         e->limits.max_num_batched_tokens, (unsigned long long)b->tokens_in, (unsigned long long)b->tokens_out);
  for (int i = 0; i < NUM_LEVELS; i++)
    printf(",\"%s\":{\"seconds\":%.4f,\"seconds_min\":%.4f,\"seconds_max\":%.4f,\"output_throughput\":%.2f,\"total_"
           "throughput\":%.2f,\"steps\":%llu,"
           "\"tokens_per_step\":%.2f,\"mean_latency_s\":%.4f,\"preemptions\":%llu}",
           names[i], f[i].seconds, f[i].least, f[i].most, f[i].rate,
           (double)(b->tokens_in + b->tokens_out) / f[i].seconds, (unsigned long long)b->levels[i].steps, f[i].together,
           f[i].waited, (unsigned long long)b->levels[i].preemptions);
  printf(",\"ratio\":%.3f,\"padded_ratio\":%.3f}\n", f[ITERATION].rate / f[REQUEST].rate,
         f[ITERATION].rate / f[PADDED].rate);
}

static void print_table(const struct bench *b, const struct figures f[NUM_LEVELS]) {
  const tri_engine *e = b->rank.engine;
  const struct bench_options *o = &b->o;
  printf("%s, backend %s %s, %d threads\n"
         "%d requests that all wait at the start, of no clients; %d to %d tokens in (%llu together), %d to %d out "
         "(%llu), seed %llu\n"
         "%d sequences and %d tokens a step at most; times are medians of %d\n\n"
         "%-22s%10s%22s%16s%10s%17s%20s%13s\n",
         e->model.arch->model_type, b->rank.backend->name, b->rank.backend->isa, b->rank.threads, o->requests,
         o->min_in, o->max_in, (unsigned long long)b->tokens_in, o->min_out, o->max_out,
         (unsigned long long)b->tokens_out, (unsigned long long)o->serve.seed, e->limits.max_num_seqs,
         e->limits.max_num_batched_tokens, o->rounds, "", "s", "smallest, largest", "tokens out/s", "steps",
         "tokens a step", "a request, mean s", "preemptions");
  for (int i = 0; i < NUM_LEVELS; i++)
    printf("%-22s%10.3f%12.3f%10.3f%16.1f%10llu%17.1f%20.3f%13llu\n", titles[i], f[i].seconds, f[i].least, f[i].most,
           f[i].rate, (unsigned long long)b->levels[i].steps, f[i].together, f[i].waited,
           (unsigned long long)b->levels[i].preemptions);
  printf(
      "ratio %.2f, to padded ones %.2f: iteration-level tokens out/s over request-level ones. Above 1 iteration-level\n"
      "batches are faster; the first is the least that they gain (no engine of request-level batches reaches packed\n"
      "ones), the second what they gain over engines that pad.\n",
      f[ITERATION].rate / f[REQUEST].rate, f[ITERATION].rate / f[PADDED].rate);
}

static void report(struct bench *b) {
  struct figures f[NUM_LEVELS];
  for (int i = 0; i < NUM_LEVELS; i++) f[i] = figures_of(b, i);
  (b->o.json ? print_json : print_table)(b, f);
}

int main(int argc, char **argv) {
  static tri_option table[128];
  static struct bench b;
  tri_options *opts = NULL;
  tri_error err = {0};
  size_t n = tri_serve_options_copy(table, TRI_FOR_STEPS | TRI_FOR_PLAN, own_options, NUM_OWN);
  spec.options = table;
  spec.count = n;
  int code = tri_options_main(&spec, &b.o, argc, argv, &opts);
  if (code >= 0) return code;
  tri_status st = tri_bench_rank_check(&b.o.serve, &err);
  if (st == TRI_OK) st = set_up(&b, &err);
  if (st == TRI_OK) st = run(&b, &err);
  if (st == TRI_OK)
    report(&b);
  else
    fprintf(stderr, "batching_bench: %s\n", err.status ? err.message : tri_status_text(st));
  tear_down(&b);
  tri_options_free(opts);
  return tri_stdout_end(spec.program, tri_exit_code(st));
}
