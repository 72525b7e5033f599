/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cost/host_rates.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/wait.h"

/* Timings are of the backend's own ops with the model's sizes, each the best of a few rounds of some milliseconds.
 * Weights are walked through in turn, as many bytes as a step reads: a product of one matrix again and again would
 * find it in a cache. */
enum { MOST_ROWS = 1 << (TRI_CPU_GEMM_ROWS - 1), MOST_BYTES = 64 << 20, ROUNDS = 3 };
/* Each timing is at least so long, and no product is much longer. */
#define LEAST_S 4e-3
#define THREAD_MACS 3e8
/* Columns of a product for each thread, as few as any algorithm takes at its best. */
enum { THREAD_COLUMNS = 384 };

struct bench {
  tri_backend *be;
  const tri_cost_share *share;
  char *weights;
  size_t bytes, at; /* of the weights; where the next matrix begins */
  float *scales, *x, *out;
  size_t x_floats, out_floats;
  int next; /* sample */
};

/* A product of many rows gets fewer columns, down to as many as algorithms need for their full rate: timing all sizes
 * then takes a moment. */
static int columns(const struct bench *b, const tri_gemm_sample *s, int rows) {
  int threads = tri_pool_size(b->be->pool);
  double most = THREAD_MACS * threads / ((double)rows * s->k);
  if (most < THREAD_COLUMNS * threads) most = THREAD_COLUMNS * threads;
  return s->n < most ? s->n : (int)most;
}

/* Runs the product of the next matrix. Returns its operations. */
static tri_status run_next(struct bench *b, int rows, double *flops) {
  const tri_gemm_sample *s = &b->share->sample.gemms[b->next];
  int n = columns(b, s, rows);
  size_t bytes = (size_t)n * (size_t)s->k * tri_dtype_size(s->dtype);
  if (b->at + bytes > b->bytes) b->at = 0;
  tri_linear_args a = {.x = {b->x, rows, s->k, s->k, TRI_F32},
                       .w = {.data = b->weights + b->at, .dtype = s->dtype, .n = n, .k = s->k},
                       .rounds_rows = s->int8_activations,
                       .out = {b->out, rows, n, n, TRI_F32}};
  if (s->dtype > TRI_BF16) a.w.scale = b->scales;
  b->at += (bytes + 63) / 64 * 64;
  b->next = (b->next + 1) % b->share->sample.num_gemms;
  *flops += 2.0 * rows * n * s->k;
  return tri_run_linear(b->be, &a);
}

/* Times whole rounds of the matrices, so that each has its part. The first round is not timed: it brings pages and
 * caches into the state of the others. */
static tri_status time_rows(struct bench *b, int rows, double *flops_per_s) {
  double best = 0, seconds, ignored = 0;
  for (int i = 0; i < b->share->sample.num_gemms; i++) TRI_CHECK(run_next(b, rows, &ignored));
  for (int round = 0; round < ROUNDS; round++) {
    double flops = 0;
    int64_t start = tri_now_ns();
    do {
      for (int i = 0; i < b->share->sample.num_gemms; i++) TRI_CHECK(run_next(b, rows, &flops));
      seconds = (double)(tri_now_ns() - start) * 1e-9;
    } while (seconds < LEAST_S);
    if (flops / seconds > best) best = flops / seconds;
  }
  *flops_per_s = best;
  return TRI_OK;
}

static void grow(size_t *size, size_t wanted) { *size = wanted > *size ? wanted : *size; }

/* Any bits of this pattern are finite numbers, whatever the type. */
static tri_status fill_gemms(struct bench *b) {
  const tri_cost_sample *all = &b->share->sample;
  size_t most_n = 0;
  b->bytes = (size_t)(b->share->dense_bytes < MOST_BYTES ? b->share->dense_bytes : MOST_BYTES);
  for (int i = 0; i < all->num_gemms; i++) {
    const tri_gemm_sample *s = &all->gemms[i];
    size_t k = (size_t)s->k;
    grow(&most_n, (size_t)s->n);
    grow(&b->bytes, (size_t)columns(b, s, 1) * k * tri_dtype_size(s->dtype));
    grow(&b->x_floats, k * MOST_ROWS);
    for (int rows = 1; rows <= MOST_ROWS; rows *= 2) grow(&b->out_floats, (size_t)columns(b, s, rows) * (size_t)rows);
  }
  b->scales = tri_calloc(most_n, sizeof *b->scales);
  b->x = tri_calloc(b->x_floats, sizeof *b->x);
  b->out = tri_calloc(b->out_floats, sizeof *b->out);
  if (!b->scales || !b->x || !b->out || tri_pages_alloc(b->bytes, (void **)&b->weights) != TRI_OK) return TRI_NO_MEMORY;
  for (size_t i = 0; i + 2 <= b->bytes; i += 2) {
    uint16_t bits = (uint16_t)(0x3c00 + (uint32_t)(i * 2654435761u) / (1u << 24));
    memcpy(b->weights + i, &bits, sizeof bits);
  }
  for (size_t i = 0; i < most_n; i++) b->scales[i] = 1e-3f;
  for (size_t i = 0; i < b->x_floats; i++) b->x[i] = (float)(i % 1009) * 1e-3f - 0.5f;
  return TRI_OK;
}

static tri_status time_gemms(tri_backend *be, const tri_cost_share *share, double flops_per_s[TRI_CPU_GEMM_ROWS]) {
  struct bench b = {.be = be, .share = share};
  tri_status st = share->sample.num_gemms ? fill_gemms(&b) : TRI_UNSUPPORTED;
  for (int i = 0; i < TRI_CPU_GEMM_ROWS && st == TRI_OK; i++) st = time_rows(&b, 1 << i, &flops_per_s[i]);
  tri_free(b.scales);
  tri_free(b.x);
  tri_free(b.out);
  tri_pages_free(b.weights, b.bytes);
  return st;
}

/* ---- other ops ---- */

/* The rows of a step: one prompt, or a token of each of so many sequences; one row; the keys of all. */
enum { TOKENS = 256, SEQUENCES = 16, BLOCK = 16 /* a CPU's by default */, BLOCKS = TOKENS / BLOCK };
struct rows {
  const tri_cost_sample *sample;
  tri_batch prompt, decode;
  int32_t starts[SEQUENCES + 1], contexts[SEQUENCES], block_starts[SEQUENCES + 1], blocks[SEQUENCES * BLOCKS];
  int32_t prompt_starts[2];
  float *q, *keys, *values, *out, *weight;
};

static tri_batch batch_of(const struct rows *r, const int32_t *starts, int sequences, int tokens) {
  return (tri_batch){.num_tokens = tokens,
                     .num_seqs = sequences,
                     .max_context = TOKENS,
                     .max_query = tokens / sequences,
                     .num_single = tokens == sequences ? sequences : 0,
                     .seq_start = starts,
                     .context_len = r->contexts,
                     .block_start = r->block_starts,
                     .block_table = r->blocks};
}

static tri_status make_rows(struct rows *r) {
  const tri_cost_sample *s = r->sample;
  size_t q = (size_t)s->q_heads * (size_t)s->head_dim, kv = (size_t)s->kv_heads * (size_t)s->head_dim;
  size_t row = q > (size_t)s->hidden ? q : (size_t)s->hidden, keys = SEQUENCES * TOKENS * kv;
  for (int i = 0; i <= SEQUENCES; i++) {
    r->starts[i] = i;
    r->block_starts[i] = i * BLOCKS;
  }
  for (int i = 0; i < SEQUENCES; i++) r->contexts[i] = TOKENS;
  for (int i = 0; i < SEQUENCES * BLOCKS; i++) r->blocks[i] = i;
  r->prompt_starts[1] = TOKENS;
  r->prompt = batch_of(r, r->prompt_starts, 1, TOKENS);
  r->decode = batch_of(r, r->starts, SEQUENCES, SEQUENCES);
  r->q = tri_calloc(TOKENS * row, sizeof *r->q);
  r->out = tri_calloc(TOKENS * row, sizeof *r->out);
  r->keys = tri_calloc(keys + 1, sizeof *r->keys);
  r->values = tri_calloc(keys + 1, sizeof *r->values);
  r->weight = tri_calloc((size_t)s->hidden, sizeof *r->weight);
  if (!r->q || !r->out || !r->keys || !r->values || !r->weight) return TRI_NO_MEMORY;
  for (size_t i = 0; i < TOKENS * row; i++) r->q[i] = (float)(i % 1009) * 1e-3f - 0.5f;
  for (size_t i = 0; i < keys; i++) r->keys[i] = r->values[i] = (float)(i % 997) * 1e-3f - 0.5f;
  return TRI_OK;
}

static void free_rows(struct rows *r) {
  tri_free(r->q);
  tri_free(r->out);
  tri_free(r->keys);
  tri_free(r->values);
  tri_free(r->weight);
}

static tri_status run_attention(tri_backend *be, const struct rows *r, const tri_batch *batch) {
  const tri_cost_sample *s = r->sample;
  int cols = s->q_heads * s->head_dim, rows = batch->num_tokens;
  tri_attention_args a = {.q = {r->q, rows, cols, cols, TRI_F32},
                          .kv = {r->keys, r->values, TRI_F32, SEQUENCES * BLOCKS, s->kv_heads, BLOCK, s->head_dim, 0},
                          .batch = batch,
                          .num_heads = s->q_heads,
                          .heads_per_kv = (s->q_heads + s->kv_heads - 1) / s->kv_heads,
                          .scale = 1 / sqrtf((float)s->head_dim),
                          .causal = true,
                          .out = {r->out, rows, cols, cols, TRI_F32}};
  return tri_run_attention(be, &a);
}

static tri_status run_prompt(tri_backend *be, const struct rows *r) { return run_attention(be, r, &r->prompt); }
static tri_status run_decode(tri_backend *be, const struct rows *r) { return run_attention(be, r, &r->decode); }

static tri_status run_norm(tri_backend *be, const struct rows *r, int rows) {
  int cols = r->sample->hidden;
  tri_norm_args a = {.x = {r->q, rows, cols, cols, TRI_F32},
                     .weight = r->weight,
                     .eps = 1e-5f,
                     .kind = TRI_NORM_RMS,
                     .out = {r->out, rows, cols, cols, TRI_F32}};
  return tri_run_norm(be, &a);
}

static tri_status run_one_row(tri_backend *be, const struct rows *r) { return run_norm(be, r, 1); }

/* An activation, which takes longer than a norm for each element, and is where most elements are. */
static tri_status run_many_rows(tri_backend *be, const struct rows *r) {
  int cols = r->sample->hidden / 2;
  tri_glu_args a = {.gate_up = {r->q, TOKENS, 2 * cols, 2 * cols, TRI_F32},
                    .act = TRI_ACT_SILU,
                    .out = {r->out, TOKENS, cols, cols, TRI_F32}};
  return tri_run_glu(be, &a);
}

/* Returns through `seconds` what one run takes at best. */
static tri_status time_op(tri_backend *be, const struct rows *r, tri_status (*run)(tri_backend *, const struct rows *),
                          double *seconds) {
  *seconds = INFINITY;
  TRI_CHECK(run(be, r));
  for (int round = 0; round < ROUNDS; round++) {
    int runs = 0;
    double took;
    int64_t start = tri_now_ns();
    do {
      TRI_CHECK(run(be, r));
      runs++;
      took = (double)(tri_now_ns() - start) * 1e-9;
    } while (took < LEAST_S);
    if (took / runs < *seconds) *seconds = took / runs;
  }
  return TRI_OK;
}

/* Leaves out heads whose keys would take more memory than a host under a limit may have left: the rate of the others is
 * theirs, too. */
static tri_cost_sample with_fewer_heads(const tri_cost_sample *all) {
  enum { MOST_ELEMENTS = 2048 }; /* of a key: 32 MiB of keys, and as much of values */
  tri_cost_sample s = *all;
  while (s.kv_heads % 2 == 0 && s.q_heads % 2 == 0 && s.kv_heads * s.head_dim > MOST_ELEMENTS) {
    s.kv_heads /= 2;
    s.q_heads /= 2;
  }
  return s;
}

static tri_status time_others(tri_backend *be, const tri_cost_sample *all, tri_host_rates *out) {
  const tri_cost_sample few = with_fewer_heads(all), *s = &few;
  struct rows r = {.sample = s};
  double seconds, pair = 4.0 * s->q_heads * s->head_dim; /* operations of a query and a key */
  tri_status st;
  TRI_TRY(make_rows(&r));
  TRI_TRY(time_op(be, &r, run_one_row, &out->op_s));
  TRI_TRY(time_op(be, &r, run_many_rows, &seconds));
  out->element_s = seconds / TOKENS / s->hidden;
  out->attention = out->queries = 0;
  if (!s->head_dim) goto cleanup;
  TRI_TRY(time_op(be, &r, run_prompt, &seconds));
  out->attention = pair * TOKENS * (TOKENS / 2.0) / seconds; /* causal: half of the pairs */
  TRI_TRY(time_op(be, &r, run_decode, &seconds));
  out->queries = pair * SEQUENCES * TOKENS / seconds;
cleanup:
  free_rows(&r);
  return st;
}

tri_status tri_host_rates_measure(tri_backend *be, const tri_cost_share *share, tri_host_rates *out) {
  TRI_CHECK(time_gemms(be, share, out->gemms));
  return time_others(be, &share->sample, out);
}
