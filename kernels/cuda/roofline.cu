/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of the roofline: random numbers, since zeros take less power and so run faster, and reads of memory. */
#include "kernels/cuda/device/device.cuh"
#include "base/hash.h"

enum { THREADS = 256 };

/* A random number for an element, by its number. */
__device__ static inline uint64_t mix(uint64_t z) { return tri_mix64((z + 1) * TRI_SPLITMIX_STEP); }

/* Fills p [n] with random numbers. 4096 blocks of 256 threads, which continue in steps of the grid. */
__global__ static void fill_kernel(void *p, tri_dtype type, size_t n) {
  size_t step = (size_t)gridDim.x * THREADS;
  for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step)
    store_as(p, type, i, (float)(mix(i) >> 40) * 0x1p-23f - 1);
}

void tri_cuda_roofline_fill(cudaStream_t stream, void *p, tri_dtype type, size_t n) {
  fill_kernel<<<4096, THREADS, 0, stream>>>(p, type, n);
}

/* Reads p [n] in tiles of DEEP pieces for each thread, so that many reads are in flight; n is a multiple of a tile. A
 * grid of any size, 256 threads. */
template <int DEEP> __global__ static void read_kernel(const uint4 *p, size_t n, uint32_t *sink) {
  size_t tile = (size_t)THREADS * DEEP, step = gridDim.x * tile;
  uint32_t sum = 0;
  for (size_t at = blockIdx.x * tile + threadIdx.x; at < n; at += step) {
    uint4 v[DEEP];
#pragma unroll
    for (int i = 0; i < DEEP; i++) v[i] = __ldcs(p + at + i * THREADS);
#pragma unroll
    for (int i = 0; i < DEEP; i++) sum ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  }
  if (sum == 0x5eed1e55u) *sink = sum; /* hardly ever, but the compiler cannot know */
}

template <int DEEP>
static void read_with(cudaStream_t stream, const void *p, size_t bytes, unsigned most_blocks, uint32_t *sink) {
  size_t n = bytes / sizeof(uint4), tiles = n / (THREADS * DEEP);
  unsigned blocks = tiles < most_blocks ? (unsigned)tiles : most_blocks;
  read_kernel<DEEP><<<blocks, THREADS, 0, stream>>>((const uint4 *)p, n, sink);
}

void tri_cuda_roofline_read(cudaStream_t stream, const void *p, size_t bytes, int variant, int num_sms,
                            uint32_t *sink) {
  static const unsigned per_sm[] = {8, 32, 1u << 16}; /* the last: hardly a tile for each block */
  unsigned blocks = (unsigned)num_sms * per_sm[variant / 2];
  if (variant % 2)
    read_with<8>(stream, p, bytes, blocks, sink);
  else
    read_with<4>(stream, p, bytes, blocks, sink);
}
