/* SPDX-License-Identifier: Apache-2.0 */
/* The order of a row's logits. An element's rank is its place among the ordered values and its id after that: a number
 * of its own for each element, so that the least of several is the same in whatever order threads come. */
#ifndef TRI_KERNELS_CUDA_SAMPLING_RANK_CUH
#define TRI_KERNELS_CUDA_SAMPLING_RANK_CUH

#include "kernels/cuda/device/device.cuh"

/* Larger values first, zeros of both signs alike, what is not a number like infinity. */
__device__ static inline uint32_t place_of(float x) {
  uint32_t bits = __float_as_uint(x == x ? x + 0.0f : INFINITY);
  return bits >> 31 ? bits : bits ^ 0x7fffffffu;
}
__device__ static inline float value_at(uint32_t place) {
  return __uint_as_float(place >> 31 ? place : place ^ 0x7fffffffu);
}
__device__ static inline uint64_t rank_of(float x, int id) { return (uint64_t)place_of(x) << 32 | (uint32_t)id; }
/* The rank that all of a value are up to. */
__device__ static inline uint64_t last_of(uint32_t place) { return (uint64_t)place << 32 | UINT32_MAX; }
__device__ static inline float value_of(uint64_t rank) { return value_at((uint32_t)(rank >> 32)); }

/* Every lane gets the least rank. */
__device__ static inline uint64_t warp_min(uint64_t x) {
  uint32_t high = __reduce_min_sync(ALL_LANES, (uint32_t)(x >> 32));
  uint32_t low = __reduce_min_sync(ALL_LANES, (uint32_t)(x >> 32) == high ? (uint32_t)x : UINT32_MAX);
  return (uint64_t)high << 32 | low;
}

/* The first id, where every logit is minus infinity: lists need not have it, and may be empty. */
__device__ static inline int token_of(uint64_t best) { return value_of(best) > -INFINITY ? (int)(uint32_t)best : 0; }

/* Reports the token of the block's row. */
__device__ static inline void report_token(const tri_cuda_sample_args &a, int token, bool broken) {
  tri_sample_result *r = &a.results[blockIdx.x];
  r->token = (uint32_t)token;
  r->logprob = 0;
  r->broken = broken;
  r->num_top = 0;
  if (a.sampled) a.sampled[blockIdx.x] = (uint32_t)token;
}

#endif
