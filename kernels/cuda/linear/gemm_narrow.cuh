/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of few columns, as routers have them, with up to 64 rows of x: both factors are small, so what counts is how
 * many loads are under way. A block has 16 columns; its warps cut k among themselves and meet in shared memory, where
 * their sums are added in the order of warps. Weights are the left factor of tensor-core MMAs. A warp has all loads
 * of a round under way before its first MMA, of weights before it waits for x: up to eight rows have 4096 elements
 * of k in a round, more have 2048. */
#ifndef TRI_KERNELS_CUDA_LINEAR_GEMM_NARROW_CUH
#define TRI_KERNELS_CUDA_LINEAR_GEMM_NARROW_CUH

#include "kernels/cuda/moe/fragments.cuh"

enum { NARROW_WARPS = 16, NARROW_THREADS = NARROW_WARPS * WARP, NARROW_COLUMNS = 16 };

template <int NT> struct narrow_room { float sum[NARROW_WARPS][NT][WARP * 4]; };

/* Brings the warps' sums of 8 NT rows from `first` on with 16 columns from `col` on; those beyond the ends stand for
 * the last ones. x and w of type W, k in pieces of 32, of which each warp takes every 16th. */
template <typename W, int NT>
__device__ static inline void narrow_sums(const tri_linear_args &a, int first, int col, narrow_room<NT> &room) {
  enum { AHEAD = NT == 1 ? 8 : 4, STRIDE = NARROW_WARPS * 32, ROUND = AHEAD * STRIDE };
  int lane = threadIdx.x % WARP, begin = (int)threadIdx.x / WARP * 32, piece = begin + lane % 4 * 8;
  int low = min(col + lane / 4, a.w.n - 1), high = min(col + lane / 4 + 8, a.w.n - 1);
  const W *w_low = (const W *)a.w.data + (size_t)low * (size_t)a.w.k + piece;
  const W *w_high = (const W *)a.w.data + (size_t)high * (size_t)a.w.k + piece;
  const W *x[NT];
  float c[NT][4] = {};
  raw_weights w[AHEAD];
#pragma unroll
  for (int t = 0; t < NT; t++) x[t] = row_of<W>(a.x, min(first + 8 * t + lane / 4, a.x.rows - 1)) + piece;
#pragma unroll
  for (int u = 0; u < AHEAD; u++)
    if (begin + u * STRIDE < a.w.k) w[u].load((const char *)(w_low + u * STRIDE), (const char *)(w_high + u * STRIDE));
  wait_for_previous();
#pragma unroll 1
  for (int k = begin; k < a.w.k; k += ROUND) {
    activations<W, W> f[AHEAD][NT];
    w_low += ROUND;
    w_high += ROUND;
#pragma unroll
    for (int u = 0; u < AHEAD; u++)
#pragma unroll
      for (int t = 0; t < NT; t++)
        if (k + u * STRIDE < a.w.k) f[u][t].load(x[t] + u * STRIDE);
    __syncwarp(); /* else the compiler moves loads to their MMAs, and one waits for the other */
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      if (k + u * STRIDE >= a.w.k) break;
      weight_fragments<W> now(w[u]);
#pragma unroll
      for (int t = 0; t < NT; t++) f[u][t].multiply(c[t], now);
      if (k + ROUND + u * STRIDE < a.w.k)
        w[u].load((const char *)(w_low + u * STRIDE), (const char *)(w_high + u * STRIDE));
    }
#pragma unroll
    for (int t = 0; t < NT; t++) x[t] += ROUND;
  }
#pragma unroll
  for (int t = 0; t < NT; t++)
#pragma unroll
    for (int i = 0; i < 4; i++) room.sum[threadIdx.x / WARP][t][lane * 4 + i] = c[t][i];
  __syncthreads();
}

/* Returns the sum of row `row` of those and column `column`. */
template <int NT> __device__ static inline float narrow_sum(const narrow_room<NT> &room, int row, int column) {
  int at = (column % 8 * 4 + row % 8 / 2) * 4 + row % 2 + column / 8 * 2;
  float sum = 0;
#pragma unroll
  for (int w = 0; w < NARROW_WARPS; w++) sum += room.sum[w][row / 8][at];
  return sum;
}

#endif
