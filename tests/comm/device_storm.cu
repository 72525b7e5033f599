/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/comm/device_storm.h"

enum { THREADS = 256, BLOCKS = 8, LATE_ONE_IN = 16, LATE_NS = 20000 };

__device__ static uint32_t mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

/* A small whole number: sums are exact, and what is left of another round or rank shows. */
__device__ static float number(int rank, uint32_t round, int i) {
  return (float)(mix(mix(round * 8 + (uint32_t)rank) + (uint32_t)i) % 4096);
}

__device__ static void be_late(uint32_t x) {
  uint64_t start, now;
  if (x % LATE_ONE_IN) return;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < x / LATE_ONE_IN % LATE_NS);
}

/* Grid: 8 blocks of 256 threads, which take an element after another. */
__global__ static void make_kernel(dc_storm s, uint32_t round, int n) {
  round += *s.base;
  be_late(mix(round * 97 + (uint32_t)s.rank));
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += BLOCKS * THREADS)
    s.numbers[i] = number(s.rank, round, i);
}

__global__ static void check_kernel(dc_storm s, uint32_t round, int n) {
  round += *s.base;
  for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += BLOCKS * THREADS) {
    float sum = 0;
    for (int r = 0; r < s.size; r++) sum += number(r, round, i);
    if (s.numbers[i] != sum) atomicAdd(s.errors, 1u);
  }
}

__global__ static void advance_kernel(dc_storm s, uint32_t rounds) { *s.base += rounds; }

void dc_storm_make(cudaStream_t stream, const dc_storm *s, uint32_t round, int n) {
  make_kernel<<<BLOCKS, THREADS, 0, stream>>>(*s, round, n);
}
void dc_storm_check(cudaStream_t stream, const dc_storm *s, uint32_t round, int n) {
  check_kernel<<<BLOCKS, THREADS, 0, stream>>>(*s, round, n);
}
void dc_storm_advance(cudaStream_t stream, const dc_storm *s, uint32_t rounds) {
  advance_kernel<<<1, 1, 0, stream>>>(*s, rounds);
}
