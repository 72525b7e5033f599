/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers of small messages over peers' memory: every bit, of every rank, in rounds that sums take turns with, and in
 * graphs; and their times beside NCCL's. */
#include <string.h>

#include "tests/comm/device_comm.h"

enum { GATHERS = 24, PLACE = 1 << 16 /* words of a gather's memory, for all ranks */, REPLAYS = 30, GUARD = 4 };

struct gathers {
  uint32_t seed; /* of sizes and ways */
};

/* ---- messages ---- */

/* A third are words with all bits set, or none, or others that floats would lose. */
static uint32_t word_of(int rank, uint32_t salt, size_t i) {
  static const uint32_t odd[] = {UINT32_MAX, 0, 0x7fffffff, 0x80000000, UINT32_MAX, 0xfffffffe};
  uint32_t x = dc_mix((uint32_t)i * 13 + (uint32_t)rank * 4099 + salt * 77777);
  return x % 3 ? x : odd[x / 3 % (sizeof odd / sizeof *odd)];
}

/* Words of gather number i, small and large; and whether it is in place. */
static size_t words_of(const dc_rank *d, uint32_t seed, uint32_t i) {
  size_t most = (PLACE - 2 * GUARD) / (size_t)(d->host->size + 1), words;
  uint32_t x = dc_mix(seed * 100 + i);
  words = 1 + dc_mix(x) % (1u << (1 + x % 15));
  return words < most ? words : most;
}
static bool is_in_place(uint32_t seed, uint32_t i) { return dc_mix(seed * 100 + i + 50000) % 2; }

/* The memory of gather number i: GUARD words, what comes, the own message if it is not in place, GUARD words. */
static uint32_t *place_of(uint32_t *base, uint32_t i) { return base + (size_t)i * PLACE + GUARD; }

static uint32_t *own_of(const dc_rank *d, uint32_t *place, size_t words, bool in_place) {
  return place + (size_t)(in_place ? d->host->rank : d->host->size) * words;
}

static void load(dc_rank *d, uint32_t seed, uint32_t salt) {
  uint32_t *host = (uint32_t *)d->mine;
  memset(host, 0x55, (size_t)GATHERS * PLACE * sizeof *host);
  for (uint32_t i = 0; i < GATHERS; i++) {
    size_t words = words_of(d, seed, i);
    uint32_t *own = own_of(d, place_of(host, i), words, is_in_place(seed, i));
    for (size_t k = 0; k < words; k++) own[k] = word_of(d->host->rank, salt + i, k);
  }
  DC_MUST(cudaMemcpyAsync(d->device, host, (size_t)GATHERS * PLACE * sizeof *host, cudaMemcpyHostToDevice,
                          tri_cuda_stream(&d->be)) == cudaSuccess);
}

static void check(dc_rank *d, uint32_t seed, uint32_t salt) {
  uint32_t *host = (uint32_t *)d->got;
  DC_MUST(cudaMemcpyAsync(host, d->device, (size_t)GATHERS * PLACE * sizeof *host, cudaMemcpyDeviceToHost,
                          tri_cuda_stream(&d->be)) == cudaSuccess);
  dc_sync(d);
  for (uint32_t i = 0; i < GATHERS; i++) {
    const uint32_t *place = place_of(host, i);
    const size_t words = words_of(d, seed, i), all = (size_t)d->host->size * words;
    const size_t end = all + (is_in_place(seed, i) ? 0 : words);
    for (size_t k = 0; k < all; k++) {
      uint32_t want = word_of((int)(k / words), salt + i, k % words);
      if (place[k] == want) continue;
      fprintf(stderr, "rank %d: gather %u (seed %u, %zu words%s), word %zu of rank %zu: %08x, not %08x\n",
              d->host->rank, i, seed, words, is_in_place(seed, i) ? ", in place" : "", k % words, k / words, place[k],
              want);
      DC_MUST(!"a message is wrong");
    }
    for (int k = 1; k <= GUARD; k++) DC_MUST(place[-k] == 0x55555555 && place[end + (size_t)k - 1] == 0x55555555);
  }
}

/* ---- rounds ---- */

/* Every other one is followed by a sum, whose rounds these are, too. */
static void launch(dc_rank *d, void *arg) {
  const struct gathers *g = arg;
  float *sums = d->device + (size_t)GATHERS * PLACE;
  for (uint32_t i = 0; i < GATHERS; i++) {
    uint32_t *place = place_of((uint32_t *)d->device, i);
    size_t words = words_of(d, g->seed, i), bytes = words * sizeof *place;
    uint32_t *own = own_of(d, place, words, is_in_place(g->seed, i));
    if (tri_p2p_gather_fits(d->comm, own, place, bytes))
      DC_MUST(tri_p2p_gather(d->comm, TRI_P2P_ONE_SHOT, own, place, bytes) == TRI_OK);
    else
      DC_MUST(tri_comm_all_gather(d->comm, own, place, bytes) == TRI_OK);
    if (i % 2) DC_MUST(tri_p2p_sum(d->comm, (tri_p2p_algorithm)(i / 2 % 2), sums, 100 + 999 * i) == TRI_OK);
  }
}

/* Through the table, also what is not of whole words, by what was chosen. */
static void test_chosen(dc_rank *d) {
  unsigned char *host = (unsigned char *)d->mine, *got = (unsigned char *)d->got, *at = (unsigned char *)d->device;
  for (size_t bytes = 1; bytes <= 1 << 20; bytes = bytes * 3 + 1) {
    size_t all = bytes * (size_t)d->host->size;
    for (size_t i = 0; i < bytes; i++) host[i] = (unsigned char)word_of(d->host->rank, 9, i);
    DC_MUST(cudaMemcpyAsync(at, host, bytes, cudaMemcpyHostToDevice, tri_cuda_stream(&d->be)) == cudaSuccess);
    DC_MUST(tri_comm_all_gather(d->comm, at, at + (1 << 20), bytes) == TRI_OK);
    DC_MUST(cudaMemcpyAsync(got, at + (1 << 20), all, cudaMemcpyDeviceToHost, tri_cuda_stream(&d->be)) == cudaSuccess);
    dc_sync(d);
    size_t wrong = 0;
    for (size_t i = 0; i < all; i++) wrong += got[i] != (unsigned char)word_of((int)(i / bytes), 9, i % bytes);
    if (wrong) fprintf(stderr, "rank %d: %zu bytes: %zu of %zu are wrong\n", d->host->rank, bytes, wrong, all);
    DC_MUST(!wrong);
  }
}

void dc_test_gathers(dc_rank *d) {
  struct gathers g[] = {{1}, {2}};
  cudaGraphExec_t graphs[] = {dc_record(d, launch, &g[0]), dc_record(d, launch, &g[1])};
  memset(d->mine, 0, DC_MOST * sizeof *d->mine);
  for (uint32_t i = 0; i < REPLAYS; i++) {
    struct gathers others = {i + 10}, *which = i % 3 ? &g[i % 2] : &others;
    load(d, which->seed, i * 100);
    if (i % 3)
      DC_MUST(cudaGraphLaunch(graphs[i % 2], tri_cuda_stream(&d->be)) == cudaSuccess);
    else
      launch(d, &others);
    check(d, which->seed, i * 100);
  }
  test_chosen(d);
  cudaGraphExecDestroy(graphs[0]);
  cudaGraphExecDestroy(graphs[1]);
}

/* ---- times ---- */

enum { CALLS = 64, REPEATS = 9, MOST_KIB = 256 };

struct calls {
  tri_p2p_algorithm algorithm;
  size_t bytes;
};

static void launch_calls(dc_rank *d, void *arg) {
  const struct calls *c = arg;
  for (int i = 0; i < CALLS; i++)
    DC_MUST(tri_p2p_gather(d->comm, c->algorithm, d->device, (char *)d->device + (MOST_KIB << 10), c->bytes) == TRI_OK);
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double time_calls(dc_rank *d, struct calls c) {
  cudaStream_t s = tri_cuda_stream(&d->be);
  cudaEvent_t start, stop;
  double us[REPEATS], all[8];
  DC_MUST(tri_p2p_gather(d->comm, c.algorithm, d->device, (char *)d->device + (MOST_KIB << 10), c.bytes) == TRI_OK);
  dc_sync(d);
  cudaGraphExec_t graph = dc_record(d, launch_calls, &c);
  DC_MUST(cudaEventCreate(&start) == cudaSuccess && cudaEventCreate(&stop) == cudaSuccess);
  for (int i = -1; i < REPEATS; i++) { /* the first warms up */
    float ms;
    DC_MUST(tri_p2p_sum(d->comm, TRI_P2P_ONE_SHOT, d->device, 1) == TRI_OK); /* all devices begin together */
    DC_MUST(cudaEventRecord(start, s) == cudaSuccess && cudaGraphLaunch(graph, s) == cudaSuccess);
    DC_MUST(cudaEventRecord(stop, s) == cudaSuccess);
    dc_sync(d);
    DC_MUST(cudaEventElapsedTime(&ms, start, stop) == cudaSuccess);
    double mine = (double)ms * 1000 / CALLS, slowest = 0;
    DC_MUST(tri_comm_all_gather(d->host, &mine, all, sizeof mine) == TRI_OK);
    for (int r = 0; r < d->host->size; r++) slowest = all[r] > slowest ? all[r] : slowest;
    if (i >= 0) us[i] = slowest;
  }
  DC_MUST(cudaGraphExecDestroy(graph) == cudaSuccess);
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  qsort(us, REPEATS, sizeof *us, by_size);
  return us[REPEATS / 2];
}

void dc_bench_gathers(dc_rank *d) {
  if (!d->host->rank)
    printf("us per all-gather, %d in a graph, median of %d\n%12s %8s %8s  chosen\n", CALLS, REPEATS, "KiB of each",
           "p2p", "NCCL");
  memset(d->mine, 0, DC_MOST * sizeof *d->mine);
  DC_MUST(cudaMemcpy(d->device, d->mine, DC_MOST * sizeof *d->mine, cudaMemcpyHostToDevice) == cudaSuccess);
  for (size_t bytes = 512; bytes <= MOST_KIB << 10; bytes *= 2) {
    const void *recv = (char *)d->device + (MOST_KIB << 10);
    bool fits = tri_p2p_gather_fits(d->comm, d->device, recv, bytes);
    double own = fits ? time_calls(d, (struct calls){TRI_P2P_ONE_SHOT, bytes}) : 0;
    double library = time_calls(d, (struct calls){TRI_P2P_LIBRARY, bytes});
    bool chosen = tri_p2p_gather_algorithm_of(d->comm, d->device, recv, bytes) == TRI_P2P_ONE_SHOT;
    if (!d->host->rank) printf("%12.1f %8.2f %8.2f  %s\n", (double)bytes / 1024, own, library, chosen ? "p2p" : "NCCL");
    fflush(stdout);
  }
}
