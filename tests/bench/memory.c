/* SPDX-License-Identifier: Apache-2.0 */
/* `memory_bench`: how much memory the activations of an encoder take, and how often it is asked for, when
 * sequences of random lengths come one batch after the other: the chunked plan of tests/bench/activation_plan.h
 * compared with other allocators, on the same lengths.
 *
 * Nothing is computed and nothing is really allocated: the memory only counts. Times are those of the allocators' own
 * work; what a device takes for an allocation comes on top, for each that is counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/roofline.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/options/options.h"
#include "base/standard_output.h"
#include "base/version.h"
#include "base/wait.h"
#include "runtime/forward/step_arena.h"
#include "runtime/step/limits.h"
#include "tests/bench/caching_allocator.h"
#include "tests/bench/greedy_arena.h"

enum { ALIGNMENT = 64, MAX_REQUESTS = 1 << 20, MAX_LEN = 1 << 20, MAX_BATCH = 1024 };

struct bench_options {
  const char *model;
  int requests, min_len, max_len, batch, idle_every, release_after;
  uint64_t seed;
  bool json;
};

static const tri_option options[] = {
    {TRI_OPT(struct bench_options, model), .name = "model", .metavar = "DIR",
     .help = "folder of an encoder, or of an encoder-decoder for its encoder; only its config.json is read. Default: "
             "the shape of BERT-base"},
    {TRI_OPT(struct bench_options, requests), .name = "requests", .min = 1, .max = MAX_REQUESTS, .fallback = "1000",
     .metavar = "N", .help = "batches, one after the other"},
    {TRI_OPT(struct bench_options, min_len), .name = "min-len", .min = 1, .max = MAX_LEN, .fallback = "5",
     .metavar = "N", .help = "tokens of the shortest sequence"},
    {TRI_OPT(struct bench_options, max_len), .name = "max-len", .min = 1, .max = MAX_LEN, .fallback = "500",
     .metavar = "N", .help = "tokens of the longest sequence; lengths are uniform"},
    {TRI_OPT(struct bench_options, batch), .name = "batch", .min = 1, .max = MAX_BATCH, .fallback = "1", .metavar = "N",
     .help = "sequences of a batch, each with its own length, without padding"},
    {TRI_OPT(struct bench_options, idle_every), .name = "idle-every", .min = 1, .max = MAX_REQUESTS, .fallback = "1",
     .metavar = "N", .help = "batches between two moments in which memory can be released"},
    {TRI_OPT(struct bench_options, release_after), .name = "release-after", .min = 1, .max = MAX_REQUESTS,
     .fallback = "64", .metavar = "N", .help = "batches after which an unused chunk is released"},
    {TRI_OPT(struct bench_options, seed), .name = "seed", .no_letters = true, .fallback = "0", .metavar = "N",
     .help = "seed of the lengths"},
    {TRI_OPT(struct bench_options, json), .name = "json", .fallback = "false",
     .help = "print one JSON object instead of a table"},
};

static const tri_options_spec spec = {
    .program = "memory_bench",
    .usage = "[OPTION]...",
    .summary = "Compares allocators for an encoder's activations, with sequences of random lengths, without running "
               "the model.",
    .version = "memory_bench " TRIREME_VERSION,
    TRI_OPTIONS(options),
};

static const char bert_base[] =
    "{\"architectures\":[\"BertModel\"],\"model_type\":\"bert\",\"hidden_size\":768,\"num_hidden_layers\":12,"
    "\"num_attention_heads\":12,\"intermediate_size\":3072,\"vocab_size\":30522,\"max_position_embeddings\":512,"
    "\"hidden_act\":\"gelu\"}";

/* ---- memory that only counts ---- */

struct device {
  size_t held, high_water;
  uint64_t allocs, frees, alloc_bytes;
  uintptr_t next;
};

static tri_status device_alloc(void *ctx, size_t bytes, void **out) {
  struct device *d = ctx;
  d->held += bytes;
  if (d->held > d->high_water) d->high_water = d->held;
  d->allocs++;
  d->alloc_bytes += bytes;
  d->next += ((bytes | 0xfff) + 1); /* addresses that are never followed, aligned as pages are */
  *out = (void *)d->next;
  return TRI_OK;
}

static void device_free(void *ctx, void *p, size_t bytes) {
  struct device *d = ctx;
  (void)p;
  d->held -= bytes;
  d->frees++;
}

/* ---- the contenders ---- */

enum { CHUNKS, CHUNKS_PAPER, CACHING, GREEDY_GROW, GREEDY_EXACT, NUM_CONTENDERS };
static const char *const names[] = {"chunks", "chunks_paper", "caching", "greedy_grow", "greedy_exact"};
static const char *const titles[] = {"chunks", "chunks, as in the paper", "caching, as PyTorch",
                                     "greedy by size, grown", "greedy by size, exact"};

/* A value: written by op `first`, read last by op `last`. */
typedef struct step_value {
  tri_buffer_id buffer;
  int first, last;
} step_value;

struct contender {
  struct device device;
  tri_activation_plan *plan;
  tri_caching_allocator *caching;
  tri_greedy_arena *greedy;
  double held_sum; /* bytes, over the batches */
  double *us;      /* [requests] */
};

struct bench {
  struct bench_options o;
  tri_model_config model;
  tri_shard shard;
  tri_limits limits;
  step_value *values;     /* [count] */
  tri_tensor_life *lives; /* [count] of those */
  int count, num_ops;
  int *events; /* [2 count] in the order of operators: i + 1 for the beginning of tensor i, -(i + 1) after its end */
  tri_caching_block **blocks; /* [count] */
  struct contender all[NUM_CONTENDERS];
  size_t floor_most;
  tri_step_arena arena; /* the forward pass's own, for the longest batch */
  double floor_sum;
  uint64_t random;
};

static uint64_t draw(struct bench *b) { return tri_splitmix64(&b->random); }

static void order_events(struct bench *b) {
  int n = 0;
  for (int op = 0; op < b->num_ops; op++) {
    for (int i = 0; i < b->count; i++)
      if (b->lives[i].first_op == op) b->events[n++] = i + 1;
    for (int i = 0; i < b->count; i++)
      if (b->lives[i].last_op == op) b->events[n++] = -(i + 1);
  }
}

static tri_status run_caching(struct bench *b, tri_caching_allocator *a) {
  for (int e = 0; e < 2 * b->count; e++) {
    int i = b->events[e];
    if (i < 0) {
      tri_caching_free(a, b->blocks[-i - 1]);
      continue;
    }
    TRI_CHECK(tri_caching_alloc(a, b->lives[i - 1].bytes, &b->blocks[i - 1]));
  }
  return TRI_OK;
}

static tri_status run_one(struct bench *b, struct contender *c, int request, tri_error *err) {
  int64_t start = tri_now_ns();
  tri_status st;
  if (c->plan)
    st = tri_activation_plan_make(c->plan, b->lives, b->count, err);
  else if (c->caching)
    st = run_caching(b, c->caching);
  else
    st = tri_greedy_make(c->greedy, b->lives, b->count);
  c->us[request] = (double)(tri_now_ns() - start) * 1e-3;
  c->held_sum += (double)c->device.held;
  return st;
}

static tri_step_arena_config config_of(const struct bench *b) {
  return (tri_step_arena_config){.model = &b->model, .shard = &b->shard, .limits = &b->limits, .num_micro_batches = 1};
}

/* The bytes of every value in a step of so many tokens. */
static tri_status resize(struct bench *b, int tokens, tri_error *err) {
  tri_step_arena sizes;
  tri_step_arena_config config = config_of(b);
  b->limits.max_num_batched_tokens = tokens;
  tri_status st = tri_step_arena_size(&config, &sizes, err);
  for (int i = 0; i < b->count && st == TRI_OK; i++) {
    const tri_step_arena_buffer *of = &sizes.buffers[b->values[i].buffer];
    b->lives[i].bytes = (size_t)of->rows * (size_t)of->cols * sizeof(float);
  }
  return st;
}

static tri_status run_batch(struct bench *b, int request, tri_error *err) {
  const struct bench_options *o = &b->o;
  int tokens = 0;
  for (int i = 0; i < o->batch; i++) tokens += o->min_len + (int)(draw(b) % (uint64_t)(o->max_len - o->min_len + 1));
  TRI_CHECK(resize(b, tokens, err));
  size_t live = tri_live_bytes(b->lives, b->count);
  if (live > b->floor_most) b->floor_most = live;
  b->floor_sum += (double)live;
  for (int i = 0; i < NUM_CONTENDERS; i++) {
    tri_status st = run_one(b, &b->all[i], request, err);
    if (st != TRI_OK) return tri_fail(err, st, names[i], "%s: %s", names[i], tri_status_text(st));
  }
  tri_activation_plan_release(b->all[CHUNKS_PAPER].plan, 1);
  if ((request + 1) % o->idle_every == 0) tri_activation_plan_release(b->all[CHUNKS].plan, o->release_after);
  return TRI_OK;
}

/* ---- from the options to the contenders ---- */

/* The values in the order of their ops. out has room for `most`, or is NULL; returns how many there are. */
static int list_values(const tri_step_record *r, step_value *out, int most) {
  int current[TRI_NUM_BUFFERS], n = 0;
  for (int i = 0; i < TRI_NUM_BUFFERS; i++) current[i] = -1;
  for (int e = 0; e <= r->count; e++) {
    tri_step_event at = {.reads = r->results};
    if (e < r->count) at = r->events[e];
    for (int i = 0; i < TRI_NUM_BUFFERS; i++) {
      bool reads = at.reads >> i & 1, begins = !reads && at.writes >> i & 1;
      if (begins) current[i] = n++;
      if ((!begins && !reads) || current[i] < 0 || current[i] >= most || !out) continue;
      step_value *v = &out[current[i]];
      if (begins) *v = (step_value){.buffer = (tri_buffer_id)i, .first = e};
      v->last = e;
    }
  }
  return n;
}

/* Every value of a step, and when it is there: what a walk over the step's ops records. */
static tri_status find_values(struct bench *b, tri_error *err) {
  tri_step_arena apart;
  tri_step_record record = {0};
  tri_step_arena_config config = config_of(b);
  tri_status st;
  TRI_TRY(tri_step_record_make(&config, &apart, &record, err));
  b->count = list_values(&record, NULL, 0);
  b->num_ops = record.count + 1;
  b->values = tri_calloc((size_t)b->count, sizeof *b->values);
  b->lives = tri_calloc((size_t)b->count, sizeof *b->lives);
  if (!b->values || !b->lives) {
    st = TRI_NO_MEMORY;
    goto cleanup;
  }
  list_values(&record, b->values, b->count);
  for (int i = 0; i < b->count; i++)
    b->lives[i] = (tri_tensor_life){.bytes = 1, .first_op = b->values[i].first, .last_op = b->values[i].last};
cleanup:
  tri_step_record_free(&record);
  return st;
}

static tri_status load_model(struct bench *b, tri_error *err) {
  static tri_model_config whole;
  const struct bench_options *o = &b->o;
  tri_limits_config lc = {.max_num_seqs = o->batch,
                          .max_num_batched_tokens = o->batch * o->max_len,
                          .block_size = 16,
                          .max_model_len = o->max_len};
  TRI_CHECK(o->model
                ? tri_model_config_load(o->model, (tri_config_rules){0}, &whole, err)
                : tri_model_config_parse(bert_base, strlen(bert_base), NULL, 0, (tri_config_rules){0}, &whole, err));
  b->model = whole;
  if (whole.seq2seq.on) tri_model_config_source(&whole, &b->model);
  if (tri_limits_make(&b->model, &lc, &b->limits, NULL) != TRI_OK) {
    return tri_fail(err, TRI_OUT_OF_RANGE, "max-len", "--max-len %d exceeds the model's %lld positions", o->max_len,
                    (long long)b->model.max_position_embeddings);
  }
  TRI_CHECK(tri_shard_make(&b->model, (tri_parallel){.tp = 1, .pp = 1}, &b->shard, err));
  if (!b->model.encoder) {
    return tri_fail(err, TRI_UNSUPPORTED, "model", "a model with a decoder: only encoders' activations are planned");
  }
  TRI_CHECK(find_values(b, err));
  tri_step_arena_config config = config_of(b);
  return tri_step_arena_plan(&config, &b->arena, err);
}

static tri_status make_contenders(struct bench *b, tri_error *err) {
  tri_status st = TRI_OK;
  for (int i = 0; i < NUM_CONTENDERS; i++) {
    struct contender *c = &b->all[i];
    tri_activation_memory memory = {&c->device, device_alloc, device_free};
    tri_activation_config config = tri_activation_config_default(memory);
    config.alignment = ALIGNMENT;
    config.keep_small = i == CHUNKS_PAPER;
    if (i == CHUNKS || i == CHUNKS_PAPER) TRI_CHECK(tri_activation_plan_create(&config, &c->plan, err));
    if (i == CACHING) TRI_CHECK(tri_caching_create(memory, &c->caching));
    if (i == GREEDY_GROW || i == GREEDY_EXACT)
      TRI_CHECK(tri_greedy_create(memory, ALIGNMENT, i == GREEDY_EXACT, &c->greedy));
    if (!(c->us = tri_calloc((size_t)b->o.requests, sizeof *c->us))) st = TRI_NO_MEMORY;
    if (st != TRI_OK) return st;
  }
  b->events = tri_calloc(2 * (size_t)b->count, sizeof *b->events);
  b->blocks = tri_calloc((size_t)b->count, sizeof *b->blocks);
  if (!b->events || !b->blocks) st = TRI_NO_MEMORY;
  return st;
}

static void tear_down(struct bench *b) {
  for (int i = 0; i < NUM_CONTENDERS; i++) {
    tri_activation_plan_destroy(b->all[i].plan);
    tri_caching_destroy(b->all[i].caching);
    tri_greedy_destroy(b->all[i].greedy);
    tri_free(b->all[i].us);
  }
  tri_free(b->values);
  tri_free(b->lives);
  tri_free(b->events);
  tri_free(b->blocks);
}

/* ---- the report ---- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The percentile of sorted times, by nearest rank. */
static double percentile(const double *sorted, int n, int percent) {
  return sorted[((int64_t)n * percent + 99) / 100 - 1];
}

static void print_json(const struct bench *b) {
  const struct bench_options *o = &b->o;
  printf("{\"model\":\"%s\",\"tensors\":%d,\"operators\":%d,\"requests\":%d,\"batch\":%d,\"min_len\":%d,\"max_len\":%d,"
         "\"seed\":%llu,\"idle_every\":%d,\"release_after\":%d,\"floor_peak_bytes\":%zu,\"floor_mean_bytes\":%.0f,"
         "\"arena_bytes\":%zu,\"apart_bytes\":%zu,\"allocators\":[",
         b->model.arch->model_type, b->count, b->num_ops, o->requests, o->batch, o->min_len, o->max_len,
         (unsigned long long)o->seed, o->idle_every, o->release_after, b->floor_most, b->floor_sum / o->requests,
         b->arena.bytes, b->arena.apart);
  for (int i = 0; i < NUM_CONTENDERS; i++) {
    const struct contender *c = &b->all[i];
    printf(
        "%s{\"name\":\"%s\",\"peak_bytes\":%zu,\"mean_bytes\":%.0f,\"allocs\":%llu,\"alloc_bytes\":%llu,\"frees\":%llu,"
        "\"plan_us_median\":%.2f,\"plan_us_p99\":%.2f}",
        i ? "," : "", names[i], c->device.high_water, c->held_sum / o->requests, (unsigned long long)c->device.allocs,
        (unsigned long long)c->device.alloc_bytes, (unsigned long long)c->device.frees,
        percentile(c->us, o->requests, 50), percentile(c->us, o->requests, 99));
  }
  printf("]}\n");
}

static double mib(double bytes) { return bytes / 0x1p20; }

/* Allocated once and kept. */
static void print_fixed(const char *title, size_t bytes) {
  double size = mib((double)bytes);
  printf("%-26s%10.2f%10.2f%9d%12.1f%9d\n", title, size, size, 1, size, 0);
}

static void print_table(const struct bench *b) {
  const struct bench_options *o = &b->o;
  printf("%s, %d layers, hidden %lld: %d tensors over %d operators\n"
         "%d batches of %d x %d to %d tokens, seed %llu; idle every %d, chunks are given back after %d\n\n"
         "%-26s%10s%10s%9s%12s%9s%13s%9s\n",
         b->model.arch->model_type, b->shard.layers.count, (long long)b->model.hidden_size, b->count, b->num_ops,
         o->requests, o->batch, o->min_len, o->max_len, (unsigned long long)o->seed, o->idle_every, o->release_after,
         "", "peak MiB", "mean MiB", "allocs", "MiB alloc.", "frees", "us, median", "p99");
  for (int i = 0; i < NUM_CONTENDERS; i++) {
    const struct contender *c = &b->all[i];
    printf("%-26s%10.2f%10.2f%9llu%12.1f%9llu%13.1f%9.1f\n", titles[i], mib((double)c->device.high_water),
           mib(c->held_sum / o->requests), (unsigned long long)c->device.allocs, mib((double)c->device.alloc_bytes),
           (unsigned long long)c->device.frees, percentile(c->us, o->requests, 50), percentile(c->us, o->requests, 99));
  }
  print_fixed("arena, for the longest", b->arena.bytes); /* what the forward pass does */
  print_fixed("side by side", b->arena.apart);
  printf("%-26s%10.2f%10.2f\n", "floor: what lives at once", mib((double)b->floor_most),
         mib(b->floor_sum / o->requests));
}

static tri_status run(struct bench *b, tri_error *err) {
  if (b->o.min_len > b->o.max_len)
    return tri_fail(err, TRI_USAGE, "min-len", "--min-len %d is above --max-len %d", b->o.min_len, b->o.max_len);
  TRI_CHECK(load_model(b, err));
  TRI_CHECK(make_contenders(b, err));
  order_events(b);
  b->random = b->o.seed;
  for (int i = 0; i < b->o.requests; i++) TRI_CHECK(run_batch(b, i, err));
  for (int i = 0; i < NUM_CONTENDERS; i++) qsort(b->all[i].us, (size_t)b->o.requests, sizeof *b->all[i].us, by_value);
  (b->o.json ? print_json : print_table)(b);
  return TRI_OK;
}

int main(int argc, char **argv) {
  static struct bench b;
  tri_options *opts = NULL;
  tri_error err = {0};
  int code = tri_options_main(&spec, &b.o, argc, argv, &opts);
  if (code >= 0) return code;
  tri_status st = run(&b, &err);
  if (st != TRI_OK) fprintf(stderr, "memory_bench: %s\n", err.status ? err.message : tri_status_text(st));
  tear_down(&b);
  tri_options_free(opts);
  return tri_stdout_end(spec.program, tri_exit_code(st));
}
