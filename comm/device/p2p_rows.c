/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of experts' rows through boxes in the receivers' memory. The check sends rounds of rows whose elements
 * say where they come from and in which round, as a message that is seen too early has the bytes of an earlier round.
 */
#include <string.h>

#include "comm/device/p2p_impl.h"
#include "base/mem.h"

tri_status tri_p2p_make_rows(tri_comm *c, const tri_rows_config *rows, tri_error *err) {
  tri_cuda_all2all *e = &tri_p2p_impl_of(c)->all2all;
  e->rank = c->rank;
  e->error = tri_p2p_impl_of(c)->error;
  e->cfg = *rows;
  e->row_vectors = tri_rows_vectors(rows);
  e->table_vectors = tri_rows_table_vectors(rows);
  TRI_CHECK(tri_p2p_need(cudaMalloc((void **)&e->rounds, sizeof *e->rounds), "no device memory", err));
  TRI_CHECK(tri_p2p_need(cudaMemsetAsync(e->rounds, 0, sizeof *e->rounds, tri_p2p_stream(c)), "the device", err));
  TRI_CHECK(tri_p2p_need(tri_cuda_dispatch_load(), "its kernels", err));
  TRI_CHECK(tri_p2p_need(tri_cuda_combine_load(), "its kernels", err));
  return TRI_OK;
}

tri_status tri_p2p_dispatch(tri_comm *c, const tri_rows_dispatch *a) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  if (a->route && !tri_cuda_all2all_routes(a->route)) return TRI_UNSUPPORTED;
  if (a->rounded && !tri_cuda_all2all_rounds(&p->all2all, a)) return TRI_UNSUPPORTED;
  p->all2all.limit_ns = (uint64_t)c->cfg.timeout_ms * 1000000;
  tri_cuda_all2all_dispatch(tri_p2p_stream(c), &p->all2all, a, p->blocks);
  return cudaGetLastError() == cudaSuccess ? TRI_OK : TRI_DEVICE_LOST;
}

tri_status tri_p2p_combine(tri_comm *c, const tri_rows_combine *a) {
  tri_p2p_impl *p = tri_p2p_impl_of(c);
  tri_cuda_all2all_combine(tri_p2p_stream(c), &p->all2all, a, p->blocks);
  return cudaGetLastError() == cudaSuccess ? TRI_OK : TRI_DEVICE_LOST;
}

/* ---- the check ---- */

/* Two rounds go through both halves: whole rows, rounded ones where there may be such, and whole ones again. */
enum { CHECKED_ROUNDS = 6, CHECKED_ROWS = 3 };
static bool is_rounded(const tri_rows_config *c, int round) { return round / 2 == 1 && tri_rows_can_round(c); }

/* A round of few rows. Each has one choice, of the rank after its own by its number and the round's, if that has
 * slots. */
struct check {
  int rows, ranks;
  size_t hidden, row_bytes, top_k, all; /* all: rows of all ranks */
  char *x, *all_x, *host;               /* host: [all] rows of four bytes an element */
  int32_t *experts, *all_experts;
  float *weights, *all_weights, *y, *out;
};

/* Every rank can work out by it which rows it is to get, without a message. */
static int rank_of_choice(const tri_rows_config *c, int round, int rank, int row) {
  int to = (rank + row + round) % c->ranks;
  return c->first_slot[to] < c->end_slot[to] ? to : -1;
}

/* Elements of rows are powers of two, which every type has, and which rounding leaves as they are. */
static float element(int round, int rank, int row, size_t i) {
  return (float)(1 << ((size_t)round * 5 + (size_t)rank * 7 + (size_t)row * 3 + i) % 11);
}
static float result(int from, size_t i) { return (float)(((size_t)from * 11 + i) % 50 + 1); }

static tri_status allocate(struct check *k) {
  size_t floats = k->all * k->hidden, choices = k->all * k->top_k;
  size_t sizes[] = {k->all * k->row_bytes, k->all * k->row_bytes, choices * 4, choices * 4,
                    choices * 4,           choices * 4,           floats * 4,  floats * 4};
  void *at[] = {&k->x, &k->all_x, &k->experts, &k->all_experts, &k->weights, &k->all_weights, &k->y, &k->out};
  if (!(k->host = tri_malloc(floats, sizeof(float)))) return TRI_NO_MEMORY;
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    if (cudaMalloc((void **)at[i], sizes[i]) != cudaSuccess) return TRI_NO_MEMORY;
  return TRI_OK;
}

static void free_check(struct check *k) {
  void *at[] = {k->x, k->all_x, k->experts, k->all_experts, k->weights, k->all_weights, k->y, k->out};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) cudaFree(at[i]);
  tri_free(k->host);
}

/* Synchronous, as the next one uses the same host memory. */
static void put(const tri_comm *c, void *to, const void *from, size_t bytes) {
  cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, tri_p2p_stream(c));
  cudaStreamSynchronize(tri_p2p_stream(c));
}

static void load(const tri_comm *c, const struct check *k, int round) {
  const tri_rows_config *r = &tri_p2p_impl_of(c)->all2all.cfg;
  int32_t *slots = (int32_t *)k->host;
  float *y = (float *)k->host;
  for (int row = 0; row < k->rows; row++)
    for (size_t i = 0; i < k->hidden; i++)
      tri_store_f32(k->host, r->type, (size_t)row * k->hidden + i, element(round, c->rank, row, i));
  put(c, k->x, k->host, (size_t)k->rows * k->row_bytes);
  for (int row = 0; row < k->rows; row++) {
    int to = rank_of_choice(r, round, c->rank, row);
    for (size_t i = 0; i < k->top_k; i++)
      put(c, k->weights + (size_t)row * k->top_k + i, &(float){0.5f}, sizeof(float));
    for (size_t i = 0; i < k->top_k; i++) slots[(size_t)row * k->top_k + i] = to < 0 || i ? -1 : r->first_slot[to];
  }
  put(c, k->experts, slots, (size_t)k->rows * k->top_k * sizeof *slots);
  for (size_t i = 0; i < k->all * k->hidden; i++) y[i] = result(c->rank, i % k->hidden);
  put(c, k->y, y, k->all * k->hidden * sizeof *y);
}

static tri_status wrong(const char *what, tri_error *err) {
  return tri_fail(err, TRI_UNSUPPORTED, "exchange", "%s over peers' memory came out wrong", what);
}

static tri_status compare(tri_comm *c, const struct check *k, int round, tri_error *err) {
  const tri_rows_config *r = &tri_p2p_impl_of(c)->all2all.cfg;
  tri_status st = TRI_OK;
  TRI_CHECK(
      tri_p2p_need(cudaMemcpyAsync(k->host, k->all_x, k->all * k->row_bytes, cudaMemcpyDeviceToHost, tri_p2p_stream(c)),
                   "the device", err));
  TRI_CHECK(tri_p2p_need(cudaStreamSynchronize(tri_p2p_stream(c)), "the device", err));
  if (tri_comm_query(c) != TRI_OK) return tri_fail(err, TRI_UNSUPPORTED, "p2p", "what a peer sent did not come");
  for (int n = 0; n < (int)k->all; n++)
    for (size_t i = 0; i < k->hidden && rank_of_choice(r, round, n / k->rows, n % k->rows) == c->rank; i++)
      if (tri_load_f32(k->host, r->type, (size_t)n * k->hidden + i) != element(round, n / k->rows, n % k->rows, i))
        return wrong("a row", err);
  size_t bytes = (size_t)k->rows * k->hidden * sizeof(float);
  TRI_CHECK(tri_p2p_need(cudaMemcpy(k->host, k->out, bytes, cudaMemcpyDeviceToHost), "the device", err));
  for (int row = 0; row < k->rows; row++)
    for (size_t i = 0; i < k->hidden; i++) {
      int from = rank_of_choice(r, round, c->rank, row);
      float want = from < 0 ? 0 : result(from, i);
      if (tri_load_f32(k->host, TRI_F32, (size_t)row * k->hidden + i) != want) return wrong("a sum", err);
    }
  return st;
}

static tri_status run_round(tri_comm *c, const struct check *k, int round, tri_error *err) {
  int32_t rows[TRI_ROWS_RANKS];
  for (int r = 0; r < k->ranks; r++) rows[r] = k->rows;
  tri_rows_dispatch there = {.rows = rows,
                             .stride = k->rows,
                             .x = k->x,
                             .experts = k->experts,
                             .weights = k->weights,
                             .rounded = is_rounded(&tri_p2p_impl_of(c)->all2all.cfg, round),
                             .all = {k->all_x, k->all_experts, k->all_weights}};
  tri_rows_combine back = {.rows = rows, .all_experts = k->all_experts, .stride = k->rows, .y = k->y, .out = k->out};
  load(c, k, round);
  tri_status st = tri_p2p_dispatch(c, &there);
  if (st == TRI_OK) st = tri_p2p_combine(c, &back);
  if (st != TRI_OK) return tri_fail(err, TRI_UNSUPPORTED, "exchange", "an exchange: %s", tri_status_text(st));
  return compare(c, k, round, err);
}

tri_status tri_p2p_check_rows(tri_comm *c, tri_error *err) {
  const tri_rows_config *r = &tri_p2p_impl_of(c)->all2all.cfg;
  struct check k = {.rows = r->max_rows < CHECKED_ROWS ? r->max_rows : CHECKED_ROWS, .ranks = r->ranks};
  k.hidden = (size_t)r->hidden;
  k.row_bytes = k.hidden * tri_dtype_size(r->type);
  k.top_k = (size_t)r->top_k;
  k.all = (size_t)k.rows * (size_t)k.ranks;
  tri_error here = {0};
  if (allocate(&k) != TRI_OK) tri_fail(&here, TRI_UNSUPPORTED, "exchange", "no memory");
  tri_status st = tri_p2p_agree(tri_p2p_impl_of(c)->host, &here, err);
  for (int round = 0; st == TRI_OK && round < CHECKED_ROUNDS; round++) st = run_round(c, &k, round, err);
  free_check(&k);
  cudaGetLastError();
  return st;
}
