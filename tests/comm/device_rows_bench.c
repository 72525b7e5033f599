/* SPDX-License-Identifier: Apache-2.0 */
/* The time of a dispatch and a combine where one follows the other in a recorded graph: over peers' memory, with rows
 * as they are and with rows that travel rounded, by NCCL's all-gathers and reduce-scatter, and ncclAlltoAll of as many
 * bytes there and back. Then that of a dispatch alone, whole and rounded: a combine of one row without experts follows,
 * as every round has one; `none` is a round of such a row. The median of some replays, of the slowest rank each. Rows
 * of bf16, eight random ones of 64 experts each. */
#include <dlfcn.h>
#include <math.h>
#include <nccl.h>
#include <string.h>

#include "tests/comm/device_rows.h"

enum { CALLS = 24, REPEATS = 9, EXPERTS = 64, TOP_K = 8, MOST_ROWS = 1024 };
enum way { PEERS, PEERS_ROUNDED, ALL_GATHER, ALL_TO_ALL, DISPATCH, DISPATCH_ROUNDED, NO_ROWS, WAYS };

/* The library's own all-to-all, which the project has no other use for; without it, NULL. */
struct library {
  void *handle;
  ncclComm_t comm;
  __typeof__(&ncclAlltoAll) all_to_all;
  __typeof__(&ncclCommAbort) abort;
};

struct bench {
  tri_rows_config cfg;
  int rows[TRI_ROWS_RANKS], stride;
  enum way way;
  struct library library;
  char *x, *all_x;
  int32_t *experts, *all_experts;
  float *weights, *all_weights, *y, *out;
  int32_t *no_experts; /* of a row of each rank */
};

static void open_library(dc_rank *d, struct library *l) {
  ncclUniqueId id = {{0}};
  *l = (struct library){.handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL)};
  DC_MUST(l->handle != NULL);
  __typeof__(&ncclGetUniqueId) make_id = (__typeof__(&ncclGetUniqueId))dlsym(l->handle, "ncclGetUniqueId");
  __typeof__(&ncclCommInitRank) init = (__typeof__(&ncclCommInitRank))dlsym(l->handle, "ncclCommInitRank");
  l->abort = (__typeof__(&ncclCommAbort))dlsym(l->handle, "ncclCommAbort");
  l->all_to_all = (__typeof__(&ncclAlltoAll))dlsym(l->handle, "ncclAlltoAll");
  if (!l->all_to_all) return;
  if (!d->host->rank) DC_MUST(make_id(&id) == ncclSuccess);
  DC_MUST(tri_comm_broadcast(d->host, &id, sizeof id, 0) == TRI_OK);
  DC_MUST(init(&l->comm, d->host->size, id, d->host->rank) == ncclSuccess);
}

static void close_library(struct library *l) {
  if (l->comm) l->abort(l->comm);
  dlclose(l->handle);
}

/* ---- the ways ---- */

static void dispatch(dc_rank *d, const struct bench *b, bool rounded) {
  const tri_rows_dispatch there = {.rows = b->rows,
                                   .stride = b->stride,
                                   .x = b->x,
                                   .experts = b->experts,
                                   .weights = b->weights,
                                   .rounded = rounded,
                                   .all = {b->all_x, b->all_experts, b->all_weights}};
  DC_MUST(tri_comm_dispatch(d->comm, &there) == TRI_OK);
}

static void combine(dc_rank *d, const struct bench *b) {
  const tri_rows_combine back = {
      .rows = b->rows, .all_experts = b->all_experts, .stride = b->stride, .y = b->y, .out = b->out};
  DC_MUST(tri_comm_combine(d->comm, &back) == TRI_OK);
}

static const int32_t one_each[TRI_ROWS_RANKS] = {1, 1, 1, 1, 1, 1, 1, 1};

static void combine_nothing(dc_rank *d, const struct bench *b) {
  const tri_rows_combine back = {.rows = one_each, .all_experts = b->no_experts, .stride = 1, .y = b->y, .out = b->out};
  DC_MUST(tri_comm_combine(d->comm, &back) == TRI_OK);
}

static void run_peers(dc_rank *d, const struct bench *b) {
  dispatch(d, b, b->way == PEERS_ROUNDED);
  combine(d, b);
}

static void run_dispatch(dc_rank *d, const struct bench *b) {
  dispatch(d, b, b->way == DISPATCH_ROUNDED);
  combine_nothing(d, b);
}

static void run_nothing(dc_rank *d, const struct bench *b) {
  struct bench one = *b;
  for (int r = 0; r < d->host->size; r++) one.rows[r] = 1;
  one.stride = 1;
  one.experts = b->no_experts;
  dispatch(d, &one, false);
  combine_nothing(d, b);
}

static void run_all_gather(dc_rank *d, const struct bench *b) {
  size_t rows = (size_t)b->stride, ids = rows * TOP_K * sizeof(int32_t), hidden = (size_t)b->cfg.hidden;
  DC_MUST(tri_comm_all_gather(d->comm, b->experts, b->all_experts, ids) == TRI_OK);
  DC_MUST(tri_comm_all_gather(d->comm, b->weights, b->all_weights, ids) == TRI_OK);
  DC_MUST(tri_comm_all_gather(d->comm, b->x, b->all_x, rows * hidden * 2) == TRI_OK);
  DC_MUST(tri_comm_reduce_scatter(d->comm, b->y, b->out, rows * hidden) == TRI_OK);
}

/* The rows that a rank has for another one, in the mean. */
static void run_all_to_all(dc_rank *d, const struct bench *b) {
  double wanted = 1 - pow(1 - 1.0 / d->host->size, TOP_K);
  size_t bytes = (size_t)ceil(b->stride * wanted) * (size_t)b->cfg.hidden * 2;
  cudaStream_t s = tri_cuda_stream(&d->be);
  DC_MUST(b->library.all_to_all(b->y, b->all_x, bytes, ncclInt8, b->library.comm, s) == ncclSuccess);
  DC_MUST(b->library.all_to_all(b->all_x, b->y, bytes, ncclInt8, b->library.comm, s) == ncclSuccess);
}

static void run_once(dc_rank *d, const struct bench *b) {
  static void (*const ways[])(dc_rank *, const struct bench *) = {
      [PEERS] = run_peers,           [PEERS_ROUNDED] = run_peers, [ALL_GATHER] = run_all_gather,
      [ALL_TO_ALL] = run_all_to_all, [DISPATCH] = run_dispatch,   [DISPATCH_ROUNDED] = run_dispatch,
      [NO_ROWS] = run_nothing};
  ways[b->way](d, b);
}

static void launch_calls(dc_rank *d, void *arg) {
  for (int i = 0; i < CALLS; i++) run_once(d, arg);
}

/* ---- times ---- */

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double slowest(dc_rank *d, double mine) {
  double all[TRI_ROWS_RANKS], most = 0;
  DC_MUST(tri_comm_all_gather(d->host, &mine, all, sizeof mine) == TRI_OK);
  for (int r = 0; r < d->host->size; r++) most = all[r] > most ? all[r] : most;
  return most;
}

static double time_calls(dc_rank *d, struct bench *b) {
  cudaStream_t s = tri_cuda_stream(&d->be);
  cudaEvent_t start, stop;
  double us[REPEATS];
  run_once(d, b); /* NCCL connects at the first call of a kind */
  dc_sync(d);
  cudaGraphExec_t graph = dc_record(d, launch_calls, b);
  DC_MUST(cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&stop) == cudaSuccess);
  for (int i = -1; i < REPEATS; i++) { /* the first warms up */
    float ms;
    run_once(d, b); /* all devices begin together */
    DC_MUST(cudaEventRecord(start, s) == cudaSuccess && cudaGraphLaunch(graph, s) == cudaSuccess);
    DC_MUST(cudaEventRecord(stop, s) == cudaSuccess);
    dc_sync(d);
    DC_MUST(cudaEventElapsedTime(&ms, start, stop) == cudaSuccess);
    double all = slowest(d, (double)ms * 1000 / CALLS);
    if (i >= 0) us[i] = all;
  }
  DC_MUST(cudaGraphExecDestroy(graph) == cudaSuccess);
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  qsort(us, REPEATS, sizeof *us, by_size);
  return us[REPEATS / 2];
}

/* ---- a size of rows ---- */

static void make_bench(dc_rank *d, struct bench *b, int hidden) {
  int ranks = d->host->size, each = EXPERTS / ranks;
  *b = (struct bench){
      .cfg = {.ranks = ranks, .max_rows = MOST_ROWS, .hidden = hidden, .top_k = TOP_K, .type = TRI_BF16}};
  for (int r = 0; r < ranks; r++) b->cfg.first_slot[r] = r * each;
  for (int r = 0; r < ranks; r++) b->cfg.end_slot[r] = r + 1 < ranks ? (r + 1) * each : EXPERTS;
  size_t rows = (size_t)ranks * MOST_ROWS, ids = rows * TOP_K * 4, floats = rows * (size_t)hidden * 4;
  void *at[] = {&b->x,           &b->all_x, &b->experts, &b->all_experts, &b->weights,
                &b->all_weights, &b->y,     &b->out,     &b->no_experts};
  size_t sizes[] = {floats / 2, floats / 2, ids, ids, ids, ids, floats, floats, (size_t)ranks * TOP_K * 4};
  for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
    DC_MUST(cudaMalloc((void **)at[i], sizes[i]) == cudaSuccess);
    DC_MUST(cudaMemset(*(void **)at[i], 0, sizes[i]) == cudaSuccess);
  }
  enum { SOME = 0x3c /* as each byte of a BF16, a number */ };
  DC_MUST(cudaMemset(b->x, SOME, floats / 2) == cudaSuccess);
  DC_MUST(cudaMemset(b->no_experts, 0xff, (size_t)ranks * TOP_K * 4) == cudaSuccess);
  int32_t *slots = (int32_t *)d->mine;
  for (int i = 0; i < MOST_ROWS * TOP_K; i++)
    slots[i] = (int32_t)(dc_mix((uint32_t)(i + 100000 * d->host->rank)) % EXPERTS);
  DC_MUST(cudaMemcpy(b->experts, slots, (size_t)MOST_ROWS * TOP_K * 4, cudaMemcpyHostToDevice) == cudaSuccess);
}

static void free_bench(const struct bench *b) {
  void *all[] = {b->x, b->all_x, b->experts, b->all_experts, b->weights, b->all_weights, b->y, b->out, b->no_experts};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) cudaFree(all[i]);
}

static void bench_rows(dc_rank *d, struct bench *b, int rows) {
  if (!d->host->rank) printf("%7d %6d", b->cfg.hidden, rows);
  b->stride = rows;
  for (int r = 0; r < d->host->size; r++) b->rows[r] = rows;
  for (b->way = PEERS; b->way < WAYS; b->way++) {
    double us = b->way != ALL_TO_ALL || b->library.comm ? time_calls(d, b) : 0;
    if (!d->host->rank) us > 0 ? printf(" %12.2f", us) : printf(" %12s", "-");
  }
  if (!d->host->rank) puts("");
  fflush(stdout);
}

void dc_bench_rows(dc_rank *d, dc_rows_connect connect, dc_rows_disconnect disconnect) {
  static const int hidden[] = {2048, 7168}, rows[] = {1, 4, 16, 64, 256, 1024};
  if (!d->host->rank)
    printf("us for dispatch and combine of a shard's rows, and for dispatch alone, %d in a graph, median of %d\n"
           "%7s %6s %12s %12s %12s %12s %12s %12s %12s\n",
           CALLS, REPEATS, "hidden", "rows", "coordinated", "rounded", "allgather", "ncclAlltoAll", "dispatch",
           "rounded", "none");
  for (size_t h = 0; h < sizeof hidden / sizeof *hidden; h++) {
    struct bench b;
    make_bench(d, &b, hidden[h]);
    connect(d, &b.cfg);
    open_library(d, &b.library);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) bench_rows(d, &b, rows[i]);
    close_library(&b.library);
    disconnect(d);
    free_bench(&b);
  }
}
