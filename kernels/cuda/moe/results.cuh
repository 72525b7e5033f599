/* SPDX-License-Identifier: Apache-2.0 */
/* Results of grouped GEMMs: what becomes of a tile's sums, and how they are stored (moe/grouped.cuh). */
#ifndef TRI_KERNELS_CUDA_MOE_RESULTS_CUH
#define TRI_KERNELS_CUDA_MOE_RESULTS_CUH

#include "kernels/cuda/device/fast_math.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/moe/tiles.cuh"

/* A thread's values of one of its blocks' rows: of the sums d[4 j] and d[4 j + 1], and of the two after them. */
struct of_rows {
  float low, high;
};

/* values: as the biases. */
template <bool GATED>
__device__ static inline of_rows values_of(const grouped &g, const float *values, const tile &t, int output) {
  const float *of_expert = values + (size_t)t.expert * (size_t)(GATED ? 2 * g.outputs : g.outputs);
  int far = GATED ? 0 : 8;
  of_rows v = {0, 0};
  if (output < g.outputs) v.low = of_expert[output];
  if (output + far < g.outputs) v.high = of_expert[output + (GATED ? g.outputs : far)];
  return v;
}

template <bool GATED> __device__ static inline of_rows biases_of(const grouped &g, const tile &t, int output) {
  if (!g.bias || t.split) return {0, 0};
  return values_of<GATED>(g, g.bias, t, output);
}

/* Returns where the outputs of block b of this warpgroup begin; of a thread's first sums lane / 4 further on. */
template <bool GATED, int BLOCKS> __device__ static inline int output_of(const tile &t, int b) {
  int warp = threadIdx.x % WARPGROUP / WARP, group = (int)threadIdx.x / WARPGROUP - 1;
  return t.output + ((group * BLOCKS + b) * 4 + warp) * (GATED ? 8 : 16);
}

/* The scales of a thread's rows of weights in each of its blocks. */
template <int BLOCKS> struct block_scales {
  const float *base;
  int low[BLOCKS], high[BLOCKS]; /* of the first group of k */
  bool changes;                  /* with k */
};
__device__ static inline int scales_at(const grouped &g, int row) {
  return (row + g.skip_row) / g.block_rows * g.across;
}
template <bool GATED, int BLOCKS>
__device__ static inline void find_scales(const grouped &g, const tile &t, block_scales<BLOCKS> &s) {
  int first = t.expert * (GATED ? 2 * g.outputs : g.outputs), last = g.outputs - 1;
  s.base = g.w_scale;
  s.changes = g.across > 1;
#pragma unroll
  for (int b = 0; b < BLOCKS; b++) {
    int output = output_of<GATED, BLOCKS>(t, b) + (int)threadIdx.x % WARP / 4;
    s.low[b] = scales_at(g, first + min(output, last));
    s.high[b] = scales_at(g, first + (GATED ? g.outputs + min(output, last) : min(output + 8, last)));
  }
}

/* All activations in one formula: SILU has no limits, a scale of 1, and adds nothing to ups. A NaN stays one through
 * the limits, as in the reference. */
__device__ static inline float gated(const grouped &g, float gate, float up) {
  float scale = g.gate_scale;
  gate = min_or_nan(gate, g.gate_limit);
  up = -min_or_nan(-min_or_nan(up, g.up_limit), g.up_limit) + g.up_offset;
  if (g.gate_cube > 0) scale *= 1 + g.gate_cube * gate * gate;
  return min_or_nan(fast_swish(gate, scale), g.swish_limit) * up;
}

/* Turns four sums, which begin at d, into results: two with GATED, of both columns. scale: of the weights' rows, with
 * SCALES. */
template <bool GATED, bool SCALES>
__device__ static inline void finish(const grouped &g, const of_rows &scale, const of_rows &b, float *d) {
  if (SCALES) {
    d[0] *= scale.low;
    d[1] *= scale.low;
    d[2] *= scale.high;
    d[3] *= scale.high;
  }
  d[0] += b.low;
  d[1] += b.low;
  d[2] += b.high;
  d[3] += b.high;
  if (!GATED) return;
  d[0] = gated(g, d[0], d[2]);
  d[1] = gated(g, d[1], d[3]);
}

template <typename F, bool GATED>
__device__ static inline of_rows scales_of(const grouped &g, const tile &t, int output) {
  if constexpr (F::SCALES) return values_of<GATED>(g, g.w_scale, t, output);
  return {1, 1};
}

/* Stores results as they lie in registers: parts of sums, which are float32 and side by side, and few rows. */
template <typename F, typename O, bool GATED, int BLOCKS, int COLS>
__device__ static inline void store_apart(const grouped &g, const tile &t, float (&d)[BLOCKS][COLS / 2]) {
  int lane = threadIdx.x % WARP, row0 = lane % 4 * 2, ld = sizeof(O) == sizeof(float) ? g.outputs : g.ld_out;
  O *out = (O *)g.out + ((size_t)t.split * (size_t)g.most_rows + (size_t)(t.first_row + row0)) * (size_t)ld;
#pragma unroll
  for (int b = 0; b < BLOCKS; b++) {
    int low = output_of<GATED, BLOCKS>(t, b) + lane / 4;
    of_rows add = biases_of<GATED>(g, t, low), scale = scales_of<F, GATED>(g, t, low);
    O *to = out + low;
#pragma unroll
    for (int j = 0; j < COLS / 8; j++, to += 8 * (size_t)ld) {
      float *y = &d[b][4 * j];
      if (8 * j >= t.rows) break;
      finish<GATED, F::SCALES>(g, scale, add, y);
#pragma unroll
      for (int i = 0; i < (GATED ? 2 : 4); i++)
        if (8 * j + row0 + i % 2 < t.rows && low + i / 2 * 8 < g.outputs) to[i % 2 * ld + i / 2 * 8] = (O)y[i];
    }
  }
}

/* Returns where a piece of eight results of a row waits for its store, in lines of PIECES of them. */
template <int PIECES> __device__ static inline int staged(int row, int piece) {
  return row * PIECES * 16 + ((piece ^ (row * PIECES / 8 % PIECES)) << 4);
}

/* Copies lines of PIECES * 8 results from shared memory to their rows, `output` first. By a warpgroup. */
template <typename T, int PIECES>
__device__ static inline void store_lines(const grouped &g, const tile &t, const char *staging, int row0, int rows,
                                          int output) {
#pragma unroll 1
  for (int i = threadIdx.x % WARPGROUP; i < rows * PIECES; i += WARPGROUP) {
    int row = i / PIECES, piece = i % PIECES, column = output + piece * 8;
    if (row0 + row >= t.rows || column >= g.outputs) continue;
    T *to = (T *)g.out + (size_t)(t.first_row + row0 + row) * (size_t)g.ld_out + (size_t)column;
    *(uint4 *)to = *(const uint4 *)(staging + staged<PIECES>(row, piece));
  }
}

/* Puts results of rows row0 .. row0 + LINES - 1 of one block into shared memory, where piece0 is the block's first. A
 * store takes four matrices: of four groups of eight rows, or, as they have twice as many outputs, of two. */
template <typename F, bool GATED, int PIECES, int LINES, int COUNT>
__device__ static inline void stage(const grouped &g, const of_rows &scale, const of_rows &add, float (&d)[COUNT],
                                    int row0, int piece0, char *staging) {
  enum { SHARE = GATED ? 1 : 2 }; /* matrices of eight rows */
  int lane = threadIdx.x % WARP, warp = threadIdx.x % WARPGROUP / WARP, matrix = lane / 8;
#pragma unroll
  for (int m = 0; m < LINES / 8; m += 4 / SHARE) {
    uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int sums = 4 * (row0 / 8 + m + i / SHARE), at = sums + i % SHARE * 2;
      if (i % SHARE == 0) finish<GATED, F::SCALES>(g, scale, add, &d[sums]);
      r[i] = mma<typename F::output>::pack(d[at], d[at + 1]);
    }
    int row = (m + matrix / SHARE) * 8 + lane % 8, piece = piece0 + SHARE * warp + matrix % SHARE;
    store_transposed(staging + staged<PIECES>(row, piece), r);
  }
}

/* Stores results through shared memory, in whole lines: those of all blocks at once with GATED, else of one. */
template <typename F, bool GATED, int BLOCKS, int COLS>
__device__ static inline void store_together(const grouped &g, const tile &t, float (&d)[BLOCKS][COLS / 2],
                                             char *staging) {
  enum { PIECES = GATED ? BLOCKS * 4 : 8, LINES = COLS < PASS ? COLS : PASS, AT_ONCE = GATED ? BLOCKS : 1 };
  int lane = threadIdx.x % WARP, group = (int)threadIdx.x / WARPGROUP - 1;
#pragma unroll
  for (int b0 = 0; b0 < BLOCKS; b0 += AT_ONCE)
#pragma unroll
    for (int row0 = 0; row0 < COLS; row0 += LINES) {
#pragma unroll
      for (int b = b0; b < b0 + AT_ONCE; b++) {
        int output = output_of<GATED, BLOCKS>(t, b) + lane / 4;
        of_rows scale = scales_of<F, GATED>(g, t, output), add = biases_of<GATED>(g, t, output);
        stage<F, GATED, PIECES, LINES>(g, scale, add, d[b], row0, (b - b0) * 4, staging);
      }
      named_sync(1 + group, WARPGROUP);
      store_lines<typename F::output, PIECES>(g, t, staging, row0, LINES,
                                              t.output + (group * BLOCKS + b0) * 4 * (GATED ? 8 : 16));
      named_sync(1 + group, WARPGROUP);
    }
}

#endif
