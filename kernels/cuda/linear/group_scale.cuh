/* SPDX-License-Identifier: Apache-2.0 */
/* The scale of a group of elements that are rounded to int8 or e4m3, from the largest magnitude of them: all kernels
 * that round rows by it get the same bits. */
#ifndef TRI_KERNELS_CUDA_LINEAR_GROUP_SCALE_CUH
#define TRI_KERNELS_CUDA_LINEAR_GROUP_SCALE_CUH

#include "kernels/cuda/linear/rounded_rows.cuh"

/* Magnitudes as bits, which are in the order of magnitudes, with those of what is not finite after all others. */
__device__ static inline uint32_t magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }
__device__ static inline bool is_finite(uint32_t top) { return top < 0x7f800000u; }

/* Return the number that elements are multiplied with before they are rounded to Q, and their scale, which is NAN
 * where one of them is not finite. top: the largest magnitude, as bits. */
template <typename Q> __device__ static inline float factor_of_group(uint32_t top) {
  return is_finite(top) ? rounding_factor(rounding<Q>::LIMIT, __uint_as_float(top)) : 0;
}
template <typename Q> __device__ static inline float scale_of_group(uint32_t top) {
  return is_finite(top) ? rounding_scale(rounding<Q>::LIMIT, __uint_as_float(top)) : NAN;
}

#endif
