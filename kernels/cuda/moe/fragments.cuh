/* SPDX-License-Identifier: Apache-2.0 */
/* Weights as the left operand of tensor-core MMAs, and rows of activations as the right one, both straight from
 * memory in 16-byte pieces. The elements of k come to the MMAs in another order than they lie in memory, and in the
 * same one on both sides, so that a lane's piece is a part of its fragment and nothing is shuffled.
 *
 * A stage is 64 bytes of each of 16 rows of weights: of rows lane / 4 and lane / 4 + 8 a lane has the bytes from
 * 16 (lane % 4) on, and of column lane / 4 of the activations the elements of the same k. */
#ifndef TRI_KERNELS_CUDA_MOE_FRAGMENTS_CUH
#define TRI_KERNELS_CUDA_MOE_FRAGMENTS_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/mma.cuh"

enum { STAGE_BYTES = 64, LANE_BYTES = 16 };

/* A lane's weights of a stage. */
typedef struct raw_weights {
  uint4 low, high;
  __device__ void load(const char *at_low, const char *at_high) {
    low = __ldcs((const uint4 *)at_low);
    high = __ldcs((const uint4 *)at_high);
  }
} raw_weights;

/* The same as operands of MMAs, of which a stage has COUNT. */
template <typename W> struct weight_fragments {
  enum { COUNT = 2 };
  uint32_t a[COUNT][4];
  __device__ explicit weight_fragments(const raw_weights &w)
      : a{{w.low.x, w.high.x, w.low.y, w.high.y}, {w.low.z, w.high.z, w.low.w, w.high.w}} {}
};

/* Four integers as bf16, which is exact: two words of two. The number 2^23 + q + 128 has q + 128 as its lowest byte. */
__device__ static inline void widen_int8(uint32_t word, uint32_t *first, uint32_t *second) {
  uint32_t bits[4], shifted = word ^ 0x80808080u;
#pragma unroll
  for (int i = 0; i < 4; i++)
    bits[i] = __float_as_uint(__uint_as_float(__byte_perm(shifted, 0x4b000000u, 0x7440u + i)) - 8388736.0f);
  *first = __byte_perm(bits[0], bits[1], 0x7632);
  *second = __byte_perm(bits[2], bits[3], 0x7632);
}

/* Integers that are multiplied with floats. */
typedef struct widened_int8 widened_int8;
template <> struct weight_fragments<widened_int8> {
  enum { COUNT = 4 };
  uint32_t a[COUNT][4];
  __device__ explicit weight_fragments(const raw_weights &w) {
    const uint32_t low[4] = {w.low.x, w.low.y, w.low.z, w.low.w}, high[4] = {w.high.x, w.high.y, w.high.z, w.high.w};
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      widen_int8(low[i], &a[i][0], &a[i][2]);
      widen_int8(high[i], &a[i][1], &a[i][3]);
    }
  }
};

/* A lane's activations of a stage. W: the weights' type, X: their own; sum: of an MMA. */
template <typename W, typename X> struct activations;

/* Both of one 16-bit type. */
template <typename W> struct activations<W, W> {
  typedef float sum;
  typedef weight_fragments<W> weights;
  enum { ELEMENTS = 8 };
  uint4 raw;
  __device__ void load(const W *x) { raw = *(const uint4 *)x; }
  __device__ void multiply(float (&c)[4], const weights &w) const {
    mma<W>::run(c, w.a[0], raw.x, raw.y);
    mma<W>::run(c, w.a[1], raw.z, raw.w);
  }
};

/* Floats are rounded to the weights' 16-bit type. */
template <typename W> struct activations<W, float> {
  typedef float sum;
  typedef weight_fragments<W> weights;
  enum { ELEMENTS = 8 };
  float4 low, high;
  __device__ void load(const float *x) {
    low = load4(x);
    high = load4(x + 4);
  }
  __device__ void multiply(float (&c)[4], const weights &w) const {
    mma<W>::run(c, w.a[0], mma<W>::pack(low.x, low.y), mma<W>::pack(low.z, low.w));
    mma<W>::run(c, w.a[1], mma<W>::pack(high.x, high.y), mma<W>::pack(high.z, high.w));
  }
};

/* With integers, each float is the sum of two of bf16, which have 16 bits of it. */
template <> struct activations<int8_t, float> {
  typedef float sum;
  typedef weight_fragments<widened_int8> weights;
  typedef mma<__nv_bfloat16> gemm;
  enum { ELEMENTS = 16 };
  float4 v[4];
  __device__ void load(const float *x) {
#pragma unroll
    for (int i = 0; i < 4; i++) v[i] = load4(x + 4 * i);
  }
  __device__ static uint32_t rest(float x, float y, uint32_t rounded) {
    return gemm::pack(x - __uint_as_float(rounded << 16), y - __uint_as_float(rounded & 0xffff0000u));
  }
  __device__ void multiply(float (&c)[4], const weights &w) const {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint32_t b0 = gemm::pack(v[i].x, v[i].y), b1 = gemm::pack(v[i].z, v[i].w);
      gemm::run(c, w.a[i], b0, b1);
      gemm::run(c, w.a[i], rest(v[i].x, v[i].y, b0), rest(v[i].z, v[i].w, b1));
    }
  }
};

/* Both integers. */
template <> struct activations<int8_t, int8_t> {
  typedef int sum;
  typedef weight_fragments<int8_t> weights;
  enum { ELEMENTS = 16 };
  uint4 raw;
  __device__ void load(const int8_t *x) { raw = *(const uint4 *)x; }
  __device__ void multiply(int (&c)[4], const weights &w) const {
    mma_int8(c, w.a[0], raw.x, raw.y);
    mma_int8(c, w.a[1], raw.z, raw.w);
  }
};

#endif
