/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of bf16 that travel as e4m3: how a warp rounds them before they are sent, and widens what has come. The
 * format is that of kernels/expert_rows.h. A lane has sixteen elements, two vectors of bf16 or one of codes, so that
 * eight lanes have a group and a warp four. */
#ifndef TRI_KERNELS_CUDA_EXCHANGE_E4M3_ROWS_CUH
#define TRI_KERNELS_CUDA_EXCHANGE_E4M3_ROWS_CUH

#include "kernels/cuda/linear/group_scale.cuh"

enum { SIXTEEN = 16, GROUP_LANES = TRI_INT8_GROUP / SIXTEEN, WARP_GROUPS = WARP / GROUP_LANES };

struct sixteen {
  uint4 low, high; /* elements of bf16, in their order */
};

struct rounded_sixteen {
  uint4 codes;
  float scale; /* of the lane's group */
};

/* Rounds the elements of a warp. All of its lanes come here; those after a row's end have zeros. */
__device__ static inline rounded_sixteen round_sixteen(sixteen x) {
  const uint32_t words[] = {x.low.x, x.low.y, x.low.z, x.low.w, x.high.x, x.high.y, x.high.z, x.high.w};
  float v[SIXTEEN];
  uint32_t top = 0;
#pragma unroll
  for (int k = 0; k < SIXTEEN / 2; k++) {
    v[2 * k] = __uint_as_float(words[k] << 16);
    v[2 * k + 1] = __uint_as_float(words[k] & 0xffff0000u);
  }
#pragma unroll
  for (int k = 0; k < SIXTEEN; k++) top = max(top, magnitude_bits(v[k]));
#pragma unroll
  for (int o = GROUP_LANES / 2; o > 0; o /= 2) top = max(top, __shfl_xor_sync(ALL_LANES, top, o));
  const float factor = factor_of_group<e4m3>(top);
  uint4 codes = make_uint4(e4m3_of_four(v, factor), e4m3_of_four(v + 4, factor), e4m3_of_four(v + 8, factor),
                           e4m3_of_four(v + 12, factor));
  return {codes, scale_of_group<e4m3>(top)};
}

/* Two codes, the first in the low byte, times their scale as bf16. */
__device__ static inline uint32_t widen_two(uint32_t codes, float scale) {
  const __half2_raw exact = __nv_cvt_fp8x2_to_halfraw2((__nv_fp8x2_storage_t)codes, __NV_E4M3);
  const float2 x = __half22float2(*(const __half2 *)&exact);
  const __nv_bfloat162 wide = __floats2bfloat162_rn(__fmul_rn(x.x, scale), __fmul_rn(x.y, scale));
  return *(const uint32_t *)&wide;
}

__device__ static inline sixteen widen_sixteen(uint4 codes, float scale) {
  return {make_uint4(widen_two(codes.x, scale), widen_two(codes.x >> 16, scale), widen_two(codes.y, scale),
                     widen_two(codes.y >> 16, scale)),
          make_uint4(widen_two(codes.z, scale), widen_two(codes.z >> 16, scale), widen_two(codes.w, scale),
                     widen_two(codes.w >> 16, scale))};
}

/* The scale of this lane's group out of the four of a warp, which lane `from` has. All lanes come here. */
__device__ static inline float scale_of_lane(uint4 scales, int from) {
  const uint32_t a = __shfl_sync(ALL_LANES, scales.x, from), b = __shfl_sync(ALL_LANES, scales.y, from);
  const uint32_t c = __shfl_sync(ALL_LANES, scales.z, from), d = __shfl_sync(ALL_LANES, scales.w, from);
  const int group = threadIdx.x % WARP / GROUP_LANES;
  const uint32_t low = group % 2 ? b : a, high = group % 2 ? d : c;
  return __uint_as_float(group < 2 ? low : high);
}

/* Stores the elements of those lanes that have some, from `to` on. Neighbours exchange a vector first, so that each
 * store of a warp writes whole sectors of 32 bytes. All lanes come here; two neighbours have elements, or neither. */
__device__ static inline void store_sixteen(uint4 *to, sixteen x, bool is_there) {
  const bool is_odd = threadIdx.x % 2;
  const uint4 give = is_odd ? x.low : x.high;
  uint4 got;
  got.x = __shfl_xor_sync(ALL_LANES, give.x, 1);
  got.y = __shfl_xor_sync(ALL_LANES, give.y, 1);
  got.z = __shfl_xor_sync(ALL_LANES, give.z, 1);
  got.w = __shfl_xor_sync(ALL_LANES, give.w, 1);
  if (!is_there) return;
  uint4 *even = is_odd ? to - 2 : to; /* the place of the even lane, of which the odd one has the second vector */
  even[is_odd] = is_odd ? got : x.low;
  even[2 + is_odd] = is_odd ? x.high : got;
}

#endif
