/* SPDX-License-Identifier: Apache-2.0 */
/* `trireme bench latency`: one batch through one rank's engine, without a server, against the machine's rooflines. Of
 * an encoder the batch is one step.
 *
 * Decode reads every weight and the KV cache once per step: its floor is those bytes over what a plain read gets. A
 * prompt's floor is its multiplications over the BLAS's best rate, or one reading of the weights if that takes longer.
 * Both are of the backend: of the device's memory and library, where it has one. Floors are measured between the
 * rounds, and medians compared.
 *
 * Decode steps come in runs between which rooflines are measured. Within a run they follow one another as in a server:
 * on a device the next one is launched while the last one is under way, and a step takes from one end to the next. */
#include <stdio.h>
#include <string.h>

#include "kernels/roofline.h"
#include "base/standard_output.h"
#include "base/version.h"
#include "base/wait.h"
#include "tools/bench/steps.h"
#include "worker/cost/machine_rates.h"

/* RUN: short enough that the machine's rate hardly changes between the rooflines around a run, long enough that steps
 * overlap. */
enum { MAX_ROUNDS = 1024, RUN = 8 };

struct bench_options {
  tri_serve_options serve;
  int input_len, output_len, batch_size, rounds;
  bool json;
};

static const tri_option own_options[] = {
    {TRI_OPT(struct bench_options, input_len), .name = "input-len", .min = 0, .max = 1 << 20, .fallback = "0",
     .metavar = "N", .group = "Benchmark",
     .help = "prompt tokens of each sequence, in one step; 0: 512, or the model's limit"},
    {TRI_OPT(struct bench_options, output_len), .name = "output-len", .min = 2, .max = MAX_ROUNDS, .fallback = "64",
     .metavar = "N", .group = "Benchmark", .help = "decode steps"},
    {TRI_OPT(struct bench_options, batch_size), .name = "batch-size", .min = 1, .max = 1024, .fallback = "1",
     .metavar = "N", .group = "Benchmark", .help = "sequences that decode together"},
    {TRI_OPT(struct bench_options, rounds), .name = "num-iters", .min = 1, .max = MAX_ROUNDS, .fallback = "7",
     .metavar = "N", .group = "Benchmark", .help = "timed prompts"},
    {TRI_OPT(struct bench_options, json), .name = "json", .fallback = "false", .group = "Benchmark",
     .help = "print one JSON object instead of a table"},
};
enum { NUM_OWN = sizeof own_options / sizeof *own_options };

static tri_options_spec spec = {
    .program = "trireme bench latency",
    .usage = "MODEL [OPTION]...",
    .arg_option = "model",
    .summary =
        "Times prefill and decode steps of one rank, or an encoder's batches, without a server, and compares them "
        "with the machine's floors.",
    .epilog =
        "A floor is the shortest time that the machine allows. For a decode step it is one read of the weights and\n"
        "the KV cache at the measured bandwidth. For a prompt it is the arithmetic at the best rate of the BLAS's "
        "sgemm\n"
        "(on a GPU, of cuBLAS in the weights' type), or one read of the weights if that takes longer. Kernels in 16 "
        "or\n"
        "8 bits can beat sgemm: the ratio of a prompt is then above 1.\n\n"
        "With --autotune, --max-num-seqs and --max-num-batched-tokens extend the tuning to larger steps. Other "
        "options\n"
        "of trireme-worker are accepted and ignored. The layout must be one rank.\n",
    .version = "trireme bench latency " TRIREME_VERSION,
    .config_file = true,
};

struct bench {
  struct bench_options o;
  int tuned_seqs, tuned_tokens; /* of the largest steps that were asked to be measured; 0: the benchmark's own */
  tri_bench_rank rank;
  tri_engine *engine; /* the rank's */
  tri_roofline *floor;
  tri_bench_steps steps;
  double op[MAX_ROUNDS], rooflines[MAX_ROUNDS];
  double launch[MAX_ROUNDS]; /* seconds of the host's for a decode step */
  int num_hidden;            /* of them: the device was still busy with the step before when the host was done */
  double bytes;              /* that the middle one of the decode steps reads */
  bool reads;                /* reading the weights is what bounds the last prompt */
  tri_expert_tally *tally;   /* [layers, experts of the shard]; NULL: the model has no experts */
  double experts;            /* of a layer that a step reads, in the mean; all of them until some steps have run */
};

static size_t num_tallies(const struct bench *b) {
  return (size_t)b->engine->shard.layers.count * (size_t)b->engine->shard.slots.count;
}

/* Counts what the steps since the last call have read: the mean of the layers that have experts. */
static tri_status count_experts(struct bench *b, int steps) {
  uint64_t before = 0, now = 0, layers = 0, experts = (uint64_t)b->engine->shard.slots.count;
  if (!b->tally) return TRI_OK;
  for (size_t i = 0; i < num_tallies(b); i++) before += b->tally[i].steps;
  TRI_CHECK(tri_forward_tally(b->engine->forward, b->tally));
  for (size_t l = 0; l < num_tallies(b); l += experts) {
    uint64_t read = 0;
    for (size_t e = 0; e < experts; e++) read += b->tally[l + e].steps;
    layers += read > 0;
    now += read;
  }
  if (steps && layers) b->experts = (double)(now - before) / (double)steps / (double)layers;
  return TRI_OK;
}

static tri_status time_feed(struct bench *b, int count, double *seconds) {
  int64_t t = tri_now_ns();
  tri_status st = tri_bench_steps_feed_some(&b->steps, 0, count);
  *seconds = (double)(tri_now_ns() - t) * 1e-9;
  return st;
}

/* Elements of all layers' heads of queries, or of keys. */
static double head_elements(const tri_model_config *c, bool keys) {
  double sum = 0;
  for (int l = 0; l < c->num_layers; l++) {
    tri_head_sizes h = tri_layer_heads(c, l);
    sum += (double)((keys ? h.num_kv : h.num) * h.dim);
  }
  return sum;
}

/* Multiply-adds of one prompt, or of a whole batch of an encoder. */
static double prompt_work(const struct bench *b) {
  const tri_model_config *c = &b->engine->model;
  double t = b->o.input_len, each = tri_measure_gemms(b->engine, false);
  double pairs = head_elements(c, false); /* of tokens, in one of the two products */
  if (c->encoder) return b->o.batch_size * (t * each + 2 * t * t * pairs);
  /* Causal attention: each token sees half of the prompt on average. */
  return t * each + tri_measure_gemms(b->engine, true) - each + t * (t + 1) * pairs;
}

/* The floor is the longer of the two, arithmetic and one reading of the weights: a kernel can overlap them at best. */
static double measure_prompt(struct bench *b, double work) {
  double gemms = work * tri_roofline_gemm(b->floor);
  double reading = tri_roofline_read(b->floor, tri_measure_step_bytes(b->engine, b->experts));
  b->reads = reading > gemms;
  return b->reads ? reading : gemms;
}

/* The first prompt is not timed: it warms up caches and whatever a backend does once. It also counts how many experts
 * a prompt of this length reads, which the floor needs. */
static tri_status time_prompts(struct bench *b, double *op, double *floor) {
  double work = prompt_work(b), ignored;
  int count = b->engine->model.encoder ? b->o.batch_size : 1;
  tri_status st = count_experts(b, 0);
  if (st == TRI_OK) st = time_feed(b, count, &ignored);
  if (st == TRI_OK) st = count_experts(b, 1); /* every round's prompt is this one */
  for (int i = 0; st == TRI_OK && i < b->o.rounds; i++) {
    b->rooflines[i] = measure_prompt(b, work);
    st = time_feed(b, count, &b->op[i]);
  }
  *op = tri_median(b->op, b->o.rounds);
  *floor = tri_median(b->rooflines, b->o.rounds);
  return st;
}

static tri_status begin_decode(struct bench *b, int i) {
  int64_t t = tri_now_ns();
  tri_status st = tri_bench_steps_begin_decode(&b->steps);
  b->launch[i] = (double)(tri_now_ns() - t) * 1e-9;
  return st;
}

/* A step that has not ended when the host asks for it has hidden the host's part of the next one: num_hidden counts
 * these. */
static tri_status end_decode(struct bench *b) {
  const tri_step_result *r;
  tri_status st = tri_engine_poll(b->engine, &r);
  tri_wait wait = tri_wait_begin(&b->engine->wait_policy, TRI_NEVER);
  b->num_hidden += st == TRI_AGAIN;
  for (; st == TRI_AGAIN; st = tri_engine_poll(b->engine, &r)) TRI_CHECK(tri_wait_pause(&wait));
  return st;
}

/* Steps first .. end - 1. */
static tri_status run_decodes(struct bench *b, int first, int end) {
  tri_status st = TRI_OK;
  int64_t last = tri_now_ns();
  for (int begun = first, ended = first; st == TRI_OK && ended < end; ended++) {
    for (; st == TRI_OK && begun < end && begun - ended < b->engine->depth; begun++) st = begin_decode(b, begun);
    if (st == TRI_OK) st = end_decode(b);
    int64_t now = tri_now_ns();
    b->op[ended] = (double)(now - last) * 1e-9;
    last = now;
  }
  return st;
}

static tri_status time_decode(struct bench *b, double *op, double *floor) {
  const tri_model_config *c = &b->engine->model;
  int n = b->o.output_len;
  double kv_token = 2 * head_elements(c, true) * (double)tri_dtype_size(b->engine->kv->layers[0].dtype);
  tri_status st = TRI_OK;
  for (int s = 0; st == TRI_OK && s < b->o.batch_size; s++) st = tri_bench_steps_feed_some(&b->steps, s, 1);
  if (st == TRI_OK) st = count_experts(b, 0);
  for (int first = 0, run = 0; st == TRI_OK && first < n; first += RUN, run++) {
    int end = first + RUN < n ? first + RUN : n;
    st = run_decodes(b, first, end);
    if (st == TRI_OK) st = count_experts(b, end - first);
    double bytes = tri_measure_step_bytes(b->engine, b->experts) +
                   kv_token * (b->o.input_len + (first + end) / 2) * b->o.batch_size;
    if (first <= n / 2) b->bytes = bytes;
    b->rooflines[run] = tri_roofline_read(b->floor, bytes);
    *floor = tri_median(b->rooflines, run + 1);
  }
  *op = tri_median(b->op, n);
  return st;
}

/* Prompt, steps and the token that the last one draws: what a request for so many tokens would take. */
static int length(const struct bench_options *o, const tri_model_config *c) {
  return c->encoder ? o->input_len : o->input_len + o->output_len + 1;
}

static tri_status check(struct bench_options *o, const tri_model_config *c, tri_error *err) {
  int64_t most = o->serve.max_model_len ? o->serve.max_model_len : c->max_position_embeddings;
  if (!o->input_len) { /* what was not asked for becomes what fits */
    int64_t left = most - length(o, c);
    o->input_len = left < 512 ? (int)left : 512;
    if (left < 1) o->input_len = 1;
  }
  if (c->seq2seq.on)
    return tri_fail(err, TRI_UNSUPPORTED, "model",
                    "model_type %s is an encoder-decoder: only decoders and encoders are timed here",
                    c->arch->model_type);
  if (length(o, c) <= most) return TRI_OK;
  const char *whose = o->serve.max_model_len ? "--max-model-len" : "the model's";
  if (c->encoder)
    return tri_fail(err, TRI_OUT_OF_RANGE, "input-len", "--input-len is %d, the limit is %s %lld", o->input_len, whose,
                    (long long)most);
  return tri_fail(err, TRI_OUT_OF_RANGE, "input-len",
                  "--input-len %d and --output-len %d are %d tokens with the one that is drawn last, the limit is %s "
                  "%lld",
                  o->input_len, o->output_len, length(o, c), whose, (long long)most);
}

static tri_status set_up(struct bench *b, tri_error *err) {
  tri_model_config model;
  tri_status st;
  TRI_TRY(tri_model_config_load(b->o.serve.model, TRI_CONFIG_RULES(&b->o.serve), &model, err));
  TRI_TRY(check(&b->o, &model, err));
  int len = length(&b->o, &model);
  int tokens = model.encoder ? b->o.input_len * b->o.batch_size : b->o.input_len;
  tri_engine_config ec = {.max_num_seqs = b->o.batch_size,
                          .max_num_batched_tokens = tokens > b->o.batch_size ? tokens : b->o.batch_size,
                          .max_model_len = len,
                          .encoders = true};
  if (ec.max_num_seqs < b->tuned_seqs) ec.max_num_seqs = b->tuned_seqs;
  if (ec.max_num_batched_tokens < b->tuned_tokens) ec.max_num_batched_tokens = b->tuned_tokens;
  TRI_TRY(tri_bench_rank_open(&b->o.serve, &ec, b->o.batch_size, len, &b->rank, err));
  b->engine = b->rank.engine;
  TRI_TRY(tri_bench_steps_create(b->engine, b->o.batch_size, b->o.input_len, len - b->o.input_len, &b->steps));
  b->tally = num_tallies(b) ? tri_calloc(num_tallies(b), sizeof *b->tally) : NULL;
  if (num_tallies(b) && !b->tally) st = TRI_NO_MEMORY;
  b->experts = (double)b->engine->model.moe.num_experts;
  if (st == TRI_OK)
    st = b->rank.backend->ops.roofline_create(b->rank.backend, (size_t)512 << 20, tri_measure_type(b->engine),
                                              &b->floor);
cleanup:
  return st == TRI_OK || err->status ? st : tri_fail(err, st, "", "%s", tri_status_text(st));
}

static void print_encoder(const struct bench *b, double op, double floor) {
  const tri_engine *e = b->engine;
  int in = b->o.input_len, batch = b->o.batch_size;
  const char *what = b->reads ? b->floor->read_name : b->floor->gemm_name;
  if (b->o.json)
    printf("{\"model\":\"%s\",\"backend\":\"%s\",\"isa\":\"%s\",\"weight_bytes\":%.0f,\"input_len\":%d,"
           "\"batch_size\":%d,\"embed_ms\":%.3f,\"embed_floor_ms\":%.3f,\"embed_ratio\":%.3f}\n",
           e->model.arch->model_type, b->rank.backend->name, b->rank.backend->isa, tri_measure_weight_bytes(e), in,
           batch, op * 1e3, floor * 1e3, floor / op);
  else
    printf("%s, backend %s %s\nembed %d x %d tokens: %9.3f ms   floor %9.3f ms (%s)   ratio %.2f   %.0f tokens/s\n",
           e->model.arch->model_type, b->rank.backend->name, b->rank.backend->isa, batch, in, op * 1e3, floor * 1e3,
           what, floor / op, (double)in * batch / op);
}

/* The host's part of one step: its plan, its batch and its launch. */
static double host_time(struct bench *b) { return tri_median(b->launch, b->o.output_len); }

static void print(struct bench *b, double prompt, double prompt_floor, double decode, double decode_floor) {
  const tri_engine *e = b->engine;
  int in = b->o.input_len, batch = b->o.batch_size, threads = b->rank.threads;
  if (b->o.json) {
    printf("{\"model\":\"%s\",\"backend\":\"%s\",\"isa\":\"%s\",\"threads\":%d,\"weight_bytes\":%.0f,\"input_len\":%d,"
           "\"batch_size\":%d,\"prefill_ms\":%.3f,\"prefill_floor_ms\":%.3f,"
           "\"prefill_ratio\":%.3f,\"decode_ms\":%.3f,\"decode_floor_ms\":%.3f,\"decode_ratio\":%.3f,"
           "\"host_ms\":%.3f,\"hidden_steps\":%d,\"experts_per_layer\":%.1f}\n",
           e->model.arch->model_type, b->rank.backend->name, b->rank.backend->isa, threads,
           tri_measure_weight_bytes(b->engine), in, batch, prompt * 1e3, prompt_floor * 1e3, prompt_floor / prompt,
           decode * 1e3, decode_floor * 1e3, decode_floor / decode, host_time(b) * 1e3, b->num_hidden, b->experts);
    return;
  }
  printf("%s, %.1f M weights in matrices (%.1f MB), backend %s %s, %d threads\n", e->model.arch->model_type,
         tri_measure_gemms(b->engine, true) / 1e6, tri_measure_weight_bytes(b->engine) / 1e6, b->rank.backend->name,
         b->rank.backend->isa, threads);
  printf("prefill %d tokens:        %9.3f ms   floor %9.3f ms (%s)   ratio %.2f   %.0f "
         "tokens/s\n",
         in, prompt * 1e3, prompt_floor * 1e3, b->reads ? b->floor->read_name : b->floor->gemm_name,
         prompt_floor / prompt, in / prompt);
  printf("decode %d sequence%s, a step: %9.3f ms   floor %9.3f ms (%s, %.1f GB/s)       ratio %.2f   %.1f "
         "tokens/s\n",
         batch, batch > 1 ? "s" : "", decode * 1e3, decode_floor * 1e3, b->floor->read_name,
         b->bytes / decode_floor / 1e9, decode_floor / decode, batch / decode);
  if (b->tally)
    printf("experts, a step:          %9.1f    of %lld in each layer, in the mean of the last steps\n", b->experts,
           (long long)e->model.moe.num_experts);
  if (e->depth > 1)
    printf("host, a step:             %9.3f ms   hidden behind the GPU in %d of %d steps\n", host_time(b) * 1e3,
           b->num_hidden, b->o.output_len);
}

static void tear_down(struct bench *b) {
  tri_free(b->tally);
  tri_roofline_destroy(b->floor);
  tri_bench_steps_destroy(&b->steps);
  tri_bench_rank_close(&b->rank);
}

int main(int argc, char **argv) {
  static tri_option table[128];
  static struct bench b;
  tri_options *opts = NULL;
  tri_error err = {0};
  size_t n = tri_serve_options_copy(table, TRI_FOR_STEPS, own_options, NUM_OWN);
  double prompt = 0, prompt_floor = 0, decode = 0, decode_floor = 0;
  spec.options = table;
  spec.count = n;
  int code = tri_options_main(&spec, &b.o, argc, argv, &opts);
  if (code >= 0) return code;
  if (b.o.serve.autotune && tri_options_given(opts, "max-num-seqs")) b.tuned_seqs = b.o.serve.max_num_seqs;
  if (b.o.serve.autotune && tri_options_given(opts, "max-num-batched-tokens"))
    b.tuned_tokens = b.o.serve.max_num_batched_tokens;
  tri_status st = tri_bench_rank_check(&b.o.serve, &err);
  if (st == TRI_OK) st = set_up(&b, &err);
  if (st == TRI_OK) st = time_prompts(&b, &prompt, &prompt_floor);
  bool encoder = st == TRI_OK && b.engine->model.encoder;
  if (st == TRI_OK && !encoder) st = time_decode(&b, &decode, &decode_floor);
  if (encoder)
    print_encoder(&b, prompt, prompt_floor);
  else if (st == TRI_OK)
    print(&b, prompt, prompt_floor, decode, decode_floor);
  else
    fprintf(stderr, "trireme bench latency: %s\n", err.status ? err.message : tri_status_text(st));
  tear_down(&b);
  tri_options_free(opts);
  return tri_stdout_end(spec.program, tri_exit_code(st));
}
