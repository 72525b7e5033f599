/* SPDX-License-Identifier: Apache-2.0 */
/* A million rounds, as a month of serving has them: what is wrong once in a while shows here or nowhere. Numbers are
 * made and sums looked at on the device, and each rank is late by itself now and then, so that rounds of all ranks meet
 * in every order. */
#include "tests/comm/device_storm.h"

#include "tests/comm/device_comm.h"

enum { ROUNDS = 1000000, RECORDED = 50, AHEAD = 20 };

static int count_of(uint32_t round) { return 1 + (int)(dc_mix(round) % (1u << (1 + dc_mix(round + 7) % 14))); }

static void launch_rounds(dc_rank *d, void *arg) {
  static const int threads[] = {64, 128, 256, 512};
  const dc_storm *s = arg;
  cudaStream_t stream = tri_cuda_stream(&d->be);
  int usual = tri_p2p_threads(d->comm), blocks = tri_p2p_blocks(d->comm);
  for (uint32_t i = 0; i < RECORDED; i++) {
    int n = count_of(i);
    tri_p2p_algorithm algorithm = dc_mix(i) % 2 ? TRI_P2P_ONE_SHOT : TRI_P2P_TWO_SHOTS;
    tri_p2p_tune(d->comm, threads[dc_mix(i + 3) % 4], blocks);
    if (!tri_p2p_fits(d->comm, algorithm, (size_t)n)) tri_p2p_tune(d->comm, usual, blocks);
    dc_storm_make(stream, s, i, n);
    DC_MUST(tri_p2p_sum(d->comm, algorithm, s->numbers, (size_t)n) == TRI_OK);
    dc_storm_check(stream, s, i, n);
  }
  dc_storm_advance(stream, s, RECORDED);
  tri_p2p_tune(d->comm, usual, blocks);
}

void dc_test_storm(dc_rank *d) {
  uint32_t counters[2] = {0};
  dc_storm s = {.numbers = d->device, .rank = d->host->rank, .size = d->host->size};
  DC_MUST(cudaMalloc((void **)&s.base, sizeof counters) == cudaSuccess);
  DC_MUST(cudaMemset(s.base, 0, sizeof counters) == cudaSuccess);
  s.errors = s.base + 1;
  cudaGraphExec_t graph = dc_record(d, launch_rounds, &s);
  for (int i = 0; i < ROUNDS / RECORDED; i++) {
    DC_MUST(cudaGraphLaunch(graph, tri_cuda_stream(&d->be)) == cudaSuccess);
    if (i % AHEAD == AHEAD - 1) dc_sync(d);
  }
  dc_sync(d);
  DC_MUST(cudaMemcpy(counters, s.base, sizeof counters, cudaMemcpyDeviceToHost) == cudaSuccess);
  DC_MUST(counters[0] == ROUNDS);
  DC_MUST(counters[1] == 0);
  cudaGraphExecDestroy(graph);
  cudaFree(s.base);
}
