/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of random rows and tables. Every rank makes all shards' data itself and so knows what must come out. What must
 * not be read, and what must be written, is NaN before. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/comm/all2all_test.h"

enum { MAX_SHARDS = 16 };

/* Shard d's rows begin at row d * max_rows here. In an exact round all sums are of small whole numbers. */
struct data {
  int32_t rows[MAX_SHARDS];
  int stride;
  bool exact;
  float *x, *weights, *base; /* base: what is in out before, of each rank t */
  int32_t *experts;
};

struct buffers {
  tri_all2all_rows all;
  float *x, *weights, *y, *out, *result[WAYS], *again;
  int32_t *experts;
};

struct sizes {
  size_t rows, hidden, top_k, shards; /* rows: max_rows */
};

static struct sizes sizes_of(const struct stage *s) {
  const struct layout *l = &s->layout;
  return (struct sizes){(size_t)l->max_rows, (size_t)l->hidden, (size_t)l->top_k, (size_t)l->dp};
}

static void fill_nan(float *p, size_t n) {
  for (size_t i = 0; i < n; i++) p[i] = NAN;
}

static float random_float(struct random *r, bool exact, int most) {
  int x = (int)random_below(r, (uint32_t)(2 * most + 1)) - most;
  return exact ? (float)x : (float)x / 7.0f + (float)random_below(r, 1000) * 1e-4f;
}

static int32_t random_rows(struct random *r, int most) {
  uint32_t kind = random_below(r, 5);
  if (kind < 2) return (int32_t)kind;
  return kind == 2 ? most : 1 + (int32_t)random_below(r, (uint32_t)most);
}

/* A row has any experts, also one of them twice and fewer than top_k; in some rounds all have the same, or none. */
static void make_data(const struct stage *s, struct random *r, struct data *data) {
  struct sizes n = sizes_of(s);
  uint32_t kind = random_below(r, 8), experts = (uint32_t)s->layout.num_experts;
  data->exact = random_below(r, 2);
  data->stride = 0;
  for (size_t d = 0; d < n.shards; d++) {
    data->rows[d] = kind == 7 ? 0 : random_rows(r, s->layout.max_rows);
    if (data->rows[d] > data->stride) data->stride = data->rows[d];
    for (size_t i = 0; i < (size_t)data->rows[d] * n.hidden; i++)
      data->x[d * n.rows * n.hidden + i] = random_float(r, data->exact, 8);
    for (size_t i = d * n.rows * n.top_k; i < (d * n.rows + (size_t)data->rows[d]) * n.top_k; i++) {
      data->experts[i] = (int32_t)random_below(r, experts);
      if (random_below(r, 5) == 0 || kind == 6) data->experts[i] = -1;
      if (kind == 5) data->experts[i] = (int32_t)experts - 1;
      data->weights[i] = data->experts[i] < 0 ? NAN : random_float(r, data->exact, 2);
    }
  }
  for (size_t i = 0; i < n.rows * n.hidden * (size_t)s->layout.tp; i++) data->base[i] = random_float(r, data->exact, 5);
}

static void data_make(const struct stage *s, struct data *data) {
  struct sizes n = sizes_of(s);
  *data = (struct data){
      .x = test_alloc(n.shards * n.rows * n.hidden, sizeof(float)),
      .weights = test_alloc(n.shards * n.rows * n.top_k, sizeof(float)),
      .base = test_alloc(n.rows * n.hidden * (size_t)s->layout.tp, sizeof(float)),
      .experts = test_alloc(n.shards * n.rows * n.top_k, sizeof(int32_t)),
  };
}

static void data_free(struct data *data) {
  free(data->x);
  free(data->weights);
  free(data->base);
  free(data->experts);
}

static void buffers_make(const struct stage *s, struct buffers *b) {
  struct sizes n = sizes_of(s);
  size_t all = n.shards * n.rows, elements = n.rows * n.hidden;
  *b = (struct buffers){
      .all = {test_alloc(all * n.hidden, sizeof(float)), test_alloc(all * n.top_k, sizeof(int32_t)),
              test_alloc(all * n.top_k, sizeof(float))},
      .x = test_alloc(elements, sizeof(float)),
      .weights = test_alloc(n.rows * n.top_k, sizeof(float)),
      .y = test_alloc(all * n.hidden, sizeof(float)),
      .out = test_alloc(elements, sizeof(float)),
      .again = test_alloc(elements, sizeof(float)),
      .experts = test_alloc(n.rows * n.top_k, sizeof(int32_t)),
  };
  for (int f = 0; f < WAYS; f++) b->result[f] = test_alloc(elements, sizeof(float));
}

static void buffers_free(struct buffers *b) {
  float *floats[] = {b->all.x, b->all.weights, b->x, b->weights, b->y, b->out, b->again};
  for (size_t i = 0; i < sizeof floats / sizeof *floats; i++) free(floats[i]);
  for (int f = 0; f < WAYS; f++) free(b->result[f]);
  free(b->all.experts);
  free(b->experts);
}

/* This shard's data where the exchange takes it, and poison everywhere else. */
static void poison(const struct stage *s, const struct data *data, struct buffers *b) {
  struct sizes n = sizes_of(s);
  size_t d = (size_t)s->cfg.d, rows = (size_t)data->rows[d], all = n.shards * n.rows;
  fill_nan(b->all.x, all * n.hidden);
  fill_nan(b->all.weights, all * n.top_k);
  for (size_t i = 0; i < all * n.top_k; i++) b->all.experts[i] = 1 << 30;
  fill_nan(b->y, all * n.hidden);
  fill_nan(b->out, n.rows * n.hidden);
  fill_nan(b->x, n.rows * n.hidden);
  fill_nan(b->weights, n.rows * n.top_k);
  for (size_t i = 0; i < n.rows * n.top_k; i++) b->experts[i] = 0;
  memcpy(b->x, data->x + d * n.rows * n.hidden, rows * n.hidden * sizeof(float));
  memcpy(b->weights, data->weights + d * n.rows * n.top_k, rows * n.top_k * sizeof(float));
  memcpy(b->experts, data->experts + d * n.rows * n.top_k, rows * n.top_k * sizeof(int32_t));
}

static void check_tables(const struct stage *s, const struct data *data, const struct buffers *b) {
  struct sizes n = sizes_of(s);
  size_t stride = (size_t)data->stride;
  for (size_t d = 0; d < n.shards; d++) {
    size_t filled = (size_t)data->rows[d] * n.top_k, at = d * stride * n.top_k, from = d * n.rows * n.top_k;
    MUST(!memcmp(b->all.experts + at, data->experts + from, filled * sizeof(int32_t)));
    MUST(!memcmp(b->all.weights + at, data->weights + from, filled * sizeof(float)));
    for (size_t i = filled; i < stride * n.top_k; i++) MUST(b->all.experts[at + i] == -1);
  }
}

/* Rows without an expert that this rank, on the paper's way its shard, has are not sent here. */
static void check_no_others(const struct stage *s, const struct data *data, const struct buffers *b, way way) {
  struct sizes n = sizes_of(s);
  const float *x = b->all.x;
  int me = s->cfg.d * s->cfg.tp + s->cfg.t;
  if (way == ALLGATHER || (way == COORDINATED && n.shards == 1)) return;
  for (size_t row = 0; row < n.shards * (size_t)data->stride; row++) {
    bool wanted = false;
    for (size_t k = row * n.top_k; k < (row + 1) * n.top_k; k++) {
      int slice = b->all.experts[k] < 0 ? -1 : me - s->first_rank[b->all.experts[k]];
      bool here = slice >= 0 && slice < s->layout.etp;
      if (way == PAPER) here = b->all.experts[k] >= 0 && s->first_rank[b->all.experts[k]] / s->cfg.tp == s->cfg.d;
      wanted |= here;
    }
    for (size_t j = 0; j < n.hidden; j++) MUST(isnan(x[row * n.hidden + j]) != wanted);
  }
}

/* Slice `slice` of an expert; each gives another part, so that one too many or too few shows. */
static double expert_slice(int expert, int slice, double x, size_t element) {
  return (expert + 1 + slice) * x + slice - (double)(element % 3);
}

static void run_own_experts(const struct stage *s, const struct data *data, struct buffers *b) {
  struct sizes n = sizes_of(s);
  const float *x = b->all.x;
  int me = s->cfg.d * s->cfg.tp + s->cfg.t;
  for (size_t row = 0; row < n.shards * (size_t)data->stride; row++) {
    float *y = b->y + row * n.hidden;
    memset(y, 0, n.hidden * sizeof *y);
    for (size_t k = 0; k < n.top_k; k++) {
      int expert = b->all.experts[row * n.top_k + k], slice = expert < 0 ? -1 : me - s->first_rank[expert];
      float weight = b->all.weights[row * n.top_k + k];
      for (size_t j = 0; slice >= 0 && slice < s->layout.etp && j < n.hidden; j++)
        y[j] += weight * (float)expert_slice(expert, slice, x[row * n.hidden + j], j);
    }
  }
}

/* Exact rounds have no rounding; else each of the terms may add some. */
static void check_result(const struct stage *s, const struct data *data, const float *result, bool accumulate) {
  struct sizes n = sizes_of(s);
  size_t d = (size_t)s->cfg.d, elements = n.rows * n.hidden;
  for (size_t i = 0; i < (size_t)data->rows[d] * n.hidden; i++) {
    size_t row = d * n.rows + i / n.hidden;
    double want = 0, size = 0;
    for (size_t t = 0; accumulate && t < (size_t)s->layout.tp; t++) {
      want += data->base[t * elements + i];
      size += fabs(data->base[t * elements + i]);
    }
    for (size_t k = row * n.top_k; k < (row + 1) * n.top_k; k++)
      for (int slice = 0; data->experts[k] >= 0 && slice < s->layout.etp; slice++) {
        double x = data->x[row * n.hidden + i % n.hidden], weight = data->weights[k];
        want += weight * expert_slice(data->experts[k], slice, x, i % n.hidden);
        size += fabs(weight) * ((data->experts[k] + 1 + slice) * fabs(x) + slice + 2);
      }
    MUST(data->exact ? (double)result[i] == want : fabs(result[i] - want) <= 1e-6 * size);
  }
}

/* Rows of the others' parts are theirs; after this shard's rows nothing is written. */
static void check_untouched(const struct stage *s, const struct data *data, const struct buffers *b, way way,
                            bool accumulate) {
  struct sizes n = sizes_of(s);
  int rows = data->rows[s->cfg.d], tp = s->cfg.tp, t = s->cfg.t;
  size_t first = (size_t)(rows * t / tp) * n.hidden, end = (size_t)(rows * (t + 1) / tp) * n.hidden;
  size_t own = (size_t)rows * n.hidden, elements = n.rows * n.hidden;
  const float *base = data->base + (size_t)t * elements;
  for (size_t i = own; i < elements; i++) MUST(isnan(b->out[i]));
  if (way < PAPER) return;
  for (size_t i = 0; i < own; i++)
    if (i < first || i >= end) MUST(b->out[i] == (accumulate ? base[i] : 0));
}

static void run_way(struct stage *s, const struct data *data, struct buffers *b, way way, bool accumulate,
                    float *result) {
  struct sizes n = sizes_of(s);
  size_t own = (size_t)data->rows[s->cfg.d] * n.hidden;
  poison(s, data, b);
  MUST(stage_dispatch(s, way, data->rows, b->x, b->experts, b->weights, &b->all) == TRI_OK);
  check_tables(s, data, b);
  check_no_others(s, data, b, way);
  run_own_experts(s, data, b);
  if (accumulate) memcpy(b->out, data->base + (size_t)s->cfg.t * n.rows * n.hidden, own * sizeof(float));
  fill_nan(b->all.x, n.shards * n.rows * n.hidden); /* the caller may use it for something else now */
  for (size_t i = 0; i < n.shards * n.rows * n.top_k; i++) b->all.experts[i] = 1 << 30;
  MUST(stage_combine(s, b->y, b->out, accumulate) == TRI_OK);
  check_untouched(s, data, b, way, accumulate);
  memcpy(result, b->out, own * sizeof *result);
  MUST(tri_comm_all_reduce(s->tensor, result, own) == TRI_OK);
  check_result(s, data, result, accumulate);
}

/* The same exchange gives the same bits again; coordinated gives allgather's numbers, and flat nearly so (its bound is
 * that of the check against the computed value). */
static void run_all_ways(struct stage *s, const struct data *data, struct buffers *b, bool accumulate) {
  size_t own = (size_t)data->rows[s->cfg.d] * sizes_of(s).hidden;
  for (way way = 0; way < WAYS; way++) {
    run_way(s, data, b, way, accumulate, b->result[way]);
    run_way(s, data, b, way, accumulate, b->again);
    MUST(!memcmp(b->result[way], b->again, own * sizeof(float)));
  }
  for (size_t i = 0; i < own; i++) {
    float coordinated = b->result[COORDINATED][i];
    MUST(coordinated == b->result[ALLGATHER][i]);
    if (data->exact) MUST(coordinated == b->result[FLAT][i]);
  }
}

void run_rounds(struct stage *s, int rounds, uint64_t seed, bool delays) {
  struct data data;
  struct buffers b;
  struct random random = {seed * 77777 + 5}, late = {(uint64_t)s->world->rank * 31337 + seed};
  MUST(s->layout.dp <= MAX_SHARDS);
  data_make(s, &data);
  buffers_make(s, &b);
  for (int i = 0; i < rounds; i++) {
    bool accumulate = random_below(&random, 2);
    make_data(s, &random, &data);
    if (delays && random_below(&late, 8) == 0) usleep(random_below(&late, 500));
    if (i % 16 == 0)
      run_all_ways(s, &data, &b, accumulate);
    else
      run_way(s, &data, &b, (way)random_below(&random, WAYS), accumulate, b.again);
  }
  buffers_free(&b);
  data_free(&data);
}
