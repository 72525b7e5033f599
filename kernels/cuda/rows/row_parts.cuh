/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that stay in the registers of the threads of a block or a warp while they are summed and normed. */
#ifndef TRI_KERNELS_CUDA_ROWS_ROW_PARTS_CUH
#define TRI_KERNELS_CUDA_ROWS_ROW_PARTS_CUH

#include "kernels/cuda/device/device.cuh"

/* ---- parts of a row: FOURS quadruples of elements for each thread, `threads` of them apart ---- */

/* Returns whether a vector of weights can be read in fours. */
static inline bool is_aligned(const float *p) { return (uintptr_t)p % 16 == 0; }

template <int FOURS> struct part { float4 v[FOURS]; };

template <int FOURS, typename E>
__device__ static inline void load_part(part<FOURS> &p, const E *row, int first, int threads, int n) {
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    int j = 4 * (first + i * threads);
    p.v[i] = j < n ? load4(row + j) : make_float4(0, 0, 0, 0);
  }
}

template <int FOURS> __device__ static inline float sum_of(const part<FOURS> &p) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < FOURS; i++) sum += (p.v[i].x + p.v[i].y) + (p.v[i].z + p.v[i].w);
  return sum;
}

/* Takes the mean away; what lies after the row's end stays out of the squares. */
template <int FOURS>
__device__ static inline float squares_of(part<FOURS> &p, float mean, int first, int threads, int n) {
  float square = 0;
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    float4 &v = p.v[i];
    if (4 * (first + i * threads) >= n) continue;
    v.x -= mean;
    v.y -= mean;
    v.z -= mean;
    v.w -= mean;
    square += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
  }
  return square;
}

/* ---- sums over a block ---- */

/* One barrier; room is not used again. Every thread adds the warps' sums for itself, in the same order: cheaper than a
 * second barrier, which handing out one thread's sum would need. */
template <int THREADS> __device__ static inline float sum_over_block(float x, float (&room)[WARP]) {
  x = warp_sum(x);
  if (threadIdx.x % WARP == 0) room[threadIdx.x / WARP] = x;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int w = 0; w < THREADS / WARP; w += 4) {
    float4 v = load4(room + w);
    sum += (v.x + v.y) + (v.z + v.w);
  }
  return sum;
}

#endif
