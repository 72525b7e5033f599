/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the special units: to two units in the last place of float32, for results that are rounded to 16 bits.
 */
#ifndef TRI_KERNELS_CUDA_DEVICE_FAST_MATH_CUH
#define TRI_KERNELS_CUDA_DEVICE_FAST_MATH_CUH

/* 2^x. */
__device__ static inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ static inline float reciprocal_of(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/* Returns the smaller one; NaN where either is. */
__device__ static inline float min_or_nan(float x, float y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
/* Returns x / (1 + exp(-scale * x)). */
__device__ static inline float fast_swish(float x, float scale) {
  return x * reciprocal_of(1 + power_of_two(-1.44269504f * scale * x));
}

#endif
