/* SPDX-License-Identifier: Apache-2.0 */
/* What an all-reduce takes where one follows another in a recorded graph: the median of some replays, of the slowest
 * rank each, for every algorithm and several shapes of its kernels. */
#include <string.h>

#include "tests/comm/device_comm.h"

enum { CALLS = 64, REPEATS = 9 };

struct variant {
  tri_p2p_algorithm algorithm;
  int threads, blocks; /* 0: as chosen */
};

static const struct variant variants[] = {
    {TRI_P2P_LIBRARY, 0, 0},     {TRI_P2P_ONE_SHOT, 0, 0},    {TRI_P2P_ONE_SHOT, 64, 0},   {TRI_P2P_ONE_SHOT, 256, 0},
    {TRI_P2P_ONE_SHOT, 512, 0},  {TRI_P2P_ONE_SHOT, 512, 64}, {TRI_P2P_ONE_SHOT, 512, 32}, {TRI_P2P_TWO_SHOTS, 0, 0},
    {TRI_P2P_TWO_SHOTS, 64, 0},  {TRI_P2P_TWO_SHOTS, 256, 0}, {TRI_P2P_TWO_SHOTS, 512, 0}, {TRI_P2P_TWO_SHOTS, 512, 64},
    {TRI_P2P_TWO_SHOTS, 512, 32}};
enum { VARIANTS = sizeof variants / sizeof *variants };

struct calls {
  tri_p2p_algorithm algorithm;
  size_t count;
};

static void launch_calls(dc_rank *d, void *arg) {
  const struct calls *c = arg;
  for (int i = 0; i < CALLS; i++) DC_MUST(tri_p2p_sum(d->comm, c->algorithm, d->device, c->count) == TRI_OK);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The slowest rank's. */
static double slowest(dc_rank *d, double mine) {
  double all[8], most = 0;
  DC_MUST(tri_comm_all_gather(d->host, &mine, all, sizeof mine) == TRI_OK);
  for (int r = 0; r < d->host->size; r++) most = all[r] > most ? all[r] : most;
  return most;
}

/* Numbers that stay numbers through all the sums: each makes them up to 8 times as large. */
static void reload(dc_rank *d, size_t count) {
  DC_MUST(cudaMemcpyAsync(d->device, d->mine, count * sizeof *d->mine, cudaMemcpyHostToDevice,
                          tri_cuda_stream(&d->be)) == cudaSuccess);
}

static double time_calls(dc_rank *d, struct calls c) {
  cudaStream_t s = tri_cuda_stream(&d->be);
  cudaEvent_t start, stop;
  double us[REPEATS];
  reload(d, c.count);
  DC_MUST(tri_p2p_sum(d->comm, c.algorithm, d->device, c.count) == TRI_OK);
  dc_sync(d);
  cudaGraphExec_t graph = dc_record(d, launch_calls, &c);
  DC_MUST(cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&stop) == cudaSuccess);
  for (int i = -1; i < REPEATS; i++) { /* the first warms up */
    float ms;
    reload(d, c.count);
    DC_MUST(tri_p2p_sum(d->comm, TRI_P2P_ONE_SHOT, d->device, 1) == TRI_OK); /* all devices begin together */
    DC_MUST(cudaEventRecord(start, s) == cudaSuccess && cudaGraphLaunch(graph, s) == cudaSuccess);
    DC_MUST(cudaEventRecord(stop, s) == cudaSuccess);
    dc_sync(d);
    DC_MUST(cudaEventElapsedTime(&ms, start, stop) == cudaSuccess);
    double all = slowest(d, (double)ms * 1000 / CALLS);
    if (i >= 0) us[i] = all;
  }
  DC_MUST(cudaGraphExecDestroy(graph) == cudaSuccess);
  cudaEventDestroy(start), cudaEventDestroy(stop);
  qsort(us, REPEATS, sizeof *us, by_size);
  return us[REPEATS / 2];
}

static void head(void) {
  static const char *const names[] = {"1shot", "2shot", "NCCL"};
  printf("us per all-reduce, %d in a graph, median of %d; threads x blocks below (0: as it is set)\n%8s", CALLS,
         REPEATS, "KiB");
  for (int v = 0; v < VARIANTS; v++) printf(" %7s", names[variants[v].algorithm]);
  printf("  chosen\n%8s", "");
  for (int v = 0; v < VARIANTS; v++) printf(" %3dx%-3d", variants[v].threads, variants[v].blocks);
  puts("");
}

void dc_bench(dc_rank *d) {
  static const char *const names[] = {"one shot", "two shots", "NCCL"};
  int blocks = tri_p2p_blocks(d->comm), threads = tri_p2p_threads(d->comm);
  for (size_t i = 0; i < DC_MOST; i++) d->mine[i] = (float)(dc_mix((uint32_t)i) % 1000 + 1) * 0x1p-120f;
  if (!d->host->rank) head();
  for (size_t bytes = 4 << 10; bytes <= DC_MOST * sizeof(float); bytes *= 2) {
    if (!d->host->rank) printf("%8zu", bytes >> 10);
    for (int v = 0; v < VARIANTS; v++) {
      const struct variant *x = &variants[v];
      struct calls c = {x->algorithm, bytes / sizeof(float)};
      tri_p2p_tune(d->comm, x->threads ? x->threads : threads, x->blocks && x->blocks < blocks ? x->blocks : blocks);
      double us = tri_p2p_fits(d->comm, x->algorithm, c.count) ? time_calls(d, c) : 0;
      if (!d->host->rank) us > 0 ? printf(" %7.2f", us) : printf(" %7s", "-");
    }
    tri_p2p_tune(d->comm, threads, blocks);
    if (!d->host->rank) printf("  %s\n", names[tri_p2p_algorithm_of(d->comm, bytes / sizeof(float))]);
    fflush(stdout);
  }
}
