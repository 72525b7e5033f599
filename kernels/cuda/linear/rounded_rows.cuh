/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding activations to int8 or e4m3, as kernels/quantize.h has it: the same bits as the reference's. */
#ifndef TRI_KERNELS_CUDA_LINEAR_ROUNDED_ROWS_CUH
#define TRI_KERNELS_CUDA_LINEAR_ROUNDED_ROWS_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/device/device.cuh"
#include "kernels/quantize.h"

__device__ static inline float rounding_factor(float limit, float max) { return max > 1e-30f ? limit / max : 0; }
__device__ static inline float rounding_scale(float limit, float max) { return max > 1e-30f ? max / limit : 0; }
__device__ static inline float int8_factor(float max) { return rounding_factor(127, max); }
__device__ static inline float int8_scale(float max) { return rounding_scale(127, max); }

/* The nearest integer in the low byte: 1.5 2^23 + q has it as its last bits. The product is rounded first. */
__device__ static inline uint32_t int8_bits(float x, float factor) {
  return __float_as_uint(__fadd_rn(__fmul_rn(x, factor), 12582912.0f));
}
__device__ static inline uint32_t int8_of_two(float low, float high, float factor) {
  return __byte_perm(int8_bits(low, factor), int8_bits(high, factor), 0x0040);
}
__device__ static inline uint32_t int8_of_four(const float *x, float factor) {
  return __byte_perm(int8_of_two(x[0], x[1], factor), int8_of_two(x[2], x[3], factor), 0x5410);
}

__device__ static inline uint32_t e4m3_of_two(float low, float high, float factor) {
  return __nv_cvt_float2_to_fp8x2(make_float2(__fmul_rn(low, factor), __fmul_rn(high, factor)), __NV_SATFINITE,
                                  __NV_E4M3);
}
__device__ static inline uint32_t e4m3_of_four(const float *x, float factor) {
  return e4m3_of_two(x[0], x[1], factor) | e4m3_of_two(x[2], x[3], factor) << 16;
}

/* Two and four elements of Q, whose largest magnitude is LIMIT, as codes, and the number of a code.
 *
 * What rounding leaves of an element is at most half a step of the largest magnitudes, and so a second code times
 * SECOND: both together have 15 bits of a group's largest magnitude (int8), or 8 bits of each element (e4m3), as bf16
 * has. So GEMMs of 8 bits multiply rows of 16 bits, by twice as many MMAs. */
template <typename Q> struct rounding;
template <> struct rounding<int8_t> {
  static constexpr float LIMIT = 127, SECOND = 1 / 254.0f;
  __device__ static inline uint32_t two(float low, float high, float factor) { return int8_of_two(low, high, factor); }
  __device__ static inline uint32_t four(const float *x, float factor) { return int8_of_four(x, factor); }
  __device__ static inline float number(uint32_t codes, int i) { return (float)(int8_t)(codes >> 8 * i); }
};
template <> struct rounding<e4m3> {
  static constexpr float LIMIT = TRI_F8_E4M3_MAX, SECOND = 1 / 16.0f;
  __device__ static inline uint32_t two(float low, float high, float factor) { return e4m3_of_two(low, high, factor); }
  __device__ static inline uint32_t four(const float *x, float factor) { return e4m3_of_four(x, factor); }
  __device__ static inline float number(uint32_t codes, int i) { return load_e4m3({(uint8_t)(codes >> 8 * i)}); }
};
template <typename Q> __device__ static inline uint32_t second_of_four(const float *x, float factor, uint32_t first) {
  float left[4];
#pragma unroll
  for (int i = 0; i < 4; i++) left[i] = __fmul_rn(x[i], factor) - rounding<Q>::number(first, i);
  return rounding<Q>::four(left, 1 / rounding<Q>::SECOND);
}

#endif
