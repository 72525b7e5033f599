/* SPDX-License-Identifier: Apache-2.0 */
/* Results of GEMMs: what becomes of a sum. */
#ifndef TRI_KERNELS_CUDA_LINEAR_RESULTS_CUH
#define TRI_KERNELS_CUDA_LINEAR_RESULTS_CUH

#include "kernels/cuda/device/device.cuh"

/* Stores a sum with its bias, activation, and the old value of out. */
__device__ static inline void finish(const tri_linear_args &a, int row, int col, float sum) {
  sum *= scale_of_sum(a.w, col);
  if (a.bias) sum += a.bias[col];
  if (a.act != TRI_ACT_NONE) sum = act_of(a.act, sum);
  store_at(a.out, row, (size_t)col, a.accumulate ? load_at(a.out, row, (size_t)col) + sum : sum);
}

/* The same of four neighbours, with weights of floats, where out is in_fours and the bias aligned to 16 bytes. */
__device__ static inline void finish_four(const tri_linear_args &a, int row, int col, float4 sum) {
  float4 old = a.accumulate ? load4_at(a.out, row, col) : make_float4(0, 0, 0, 0);
  if (a.bias) {
    float4 b = __ldg((const float4 *)(a.bias + col));
    sum = make_float4(sum.x + b.x, sum.y + b.y, sum.z + b.z, sum.w + b.w);
  }
  if (a.act != TRI_ACT_NONE)
    sum = make_float4(act_of(a.act, sum.x), act_of(a.act, sum.y), act_of(a.act, sum.z), act_of(a.act, sum.w));
  if (a.accumulate) sum = make_float4(old.x + sum.x, old.y + sum.y, old.z + sum.z, old.w + sum.w);
  store4_at(a.out, row, col, sum);
}

#endif
