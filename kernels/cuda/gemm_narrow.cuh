/* Products of few columns, as routers have them, with up to 64 rows of x: both factors are small, so what counts is how
 * many loads are under way. A block has 16 columns; its warps cut k among themselves and meet in shared memory, where
 * their sums are added in the order of warps. Weights are the left factor of tensor-core products. */
#ifndef TRI_KERNELS_CUDA_GEMM_NARROW_CUH
#define TRI_KERNELS_CUDA_GEMM_NARROW_CUH

#include "kernels/cuda/moe_fragments.cuh"

enum { NARROW_WARPS = 16, NARROW_THREADS = NARROW_WARPS * WARP, NARROW_COLUMNS = 16, NARROW_AHEAD = 4 };

template <int NT> struct narrow_room { float sum[NARROW_WARPS][NT][WARP * 4]; };

/* Brings the warps' sums of 8 NT rows from `first` on with 16 columns from `col` on; those beyond the ends stand for
 * the last ones. x and w of type W, k in pieces of 32. */
template <typename W, int NT>
__device__ static inline void narrow_sums(const tri_linear_args &a, int first, int col, narrow_room<NT> &room) {
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, stages = a.w.k / 32, piece = lane % 4 * 8;
  int low = min(col + lane / 4, a.w.n - 1), high = min(col + lane / 4 + 8, a.w.n - 1);
  const W *w_low = (const W *)a.w.data + (size_t)low * (size_t)a.w.k + piece;
  const W *w_high = (const W *)a.w.data + (size_t)high * (size_t)a.w.k + piece;
  const W *x[NT];
  float c[NT][4] = {};
  raw_weights w[NARROW_AHEAD];
#pragma unroll
  for (int t = 0; t < NT; t++) x[t] = row_of<W>(a.x, min(first + 8 * t + lane / 4, a.x.rows - 1)) + piece;
#pragma unroll
  for (int u = 0; u < NARROW_AHEAD; u++) {
    int stage = warp + u * NARROW_WARPS;
    if (stage < stages) w[u].load((const char *)(w_low + stage * 32), (const char *)(w_high + stage * 32));
  }
  wait_for_previous();
  for (int at = warp; at < stages; at += NARROW_AHEAD * NARROW_WARPS)
#pragma unroll
    for (int u = 0; u < NARROW_AHEAD; u++) {
      int stage = at + u * NARROW_WARPS, next = stage + NARROW_AHEAD * NARROW_WARPS;
      activations<W, W> f[NT];
      if (stage >= stages) break;
#pragma unroll
      for (int t = 0; t < NT; t++) f[t].load(x[t] + stage * 32);
      weight_fragments<W> now(w[u]);
      if (next < stages) w[u].load((const char *)(w_low + next * 32), (const char *)(w_high + next * 32));
#pragma unroll
      for (int t = 0; t < NT; t++) f[t].multiply(c[t], now);
    }
#pragma unroll
  for (int t = 0; t < NT; t++)
#pragma unroll
    for (int i = 0; i < 4; i++) room.sum[warp][t][lane * 4 + i] = c[t][i];
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
