/* SPDX-License-Identifier: Apache-2.0 */
/* Rounding activations to int8, as kernels/quantize.h has it: the same bits as the reference's. */
#ifndef TRI_KERNELS_CUDA_LINEAR_INT8_ROWS_CUH
#define TRI_KERNELS_CUDA_LINEAR_INT8_ROWS_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/quantize.h"

__device__ static inline float int8_factor(float max) { return max > 1e-30f ? 127 / max : 0; }
__device__ static inline float int8_scale(float max) { return max > 1e-30f ? max / 127 : 0; }

/* The nearest integer in the low byte: 1.5 2^23 + q has it as its last bits. The product is rounded first. */
__device__ static inline uint32_t int8_bits(float x, float factor) {
  return __float_as_uint(__fadd_rn(__fmul_rn(x, factor), 12582912.0f));
}
__device__ static inline uint32_t int8_of_four(const float *x, float factor) {
  uint32_t low = __byte_perm(int8_bits(x[0], factor), int8_bits(x[1], factor), 0x0040);
  uint32_t high = __byte_perm(int8_bits(x[2], factor), int8_bits(x[3], factor), 0x0040);
  return __byte_perm(low, high, 0x5410);
}

#endif
