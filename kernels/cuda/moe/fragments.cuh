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

/* Two elements of W, the low bytes of a word's halves, as two of T, which is exact. */
template <typename W, typename T> __device__ static inline uint32_t widen_pair(uint32_t bytes);
/* 128 + the seven low bits has no other bits in bf16; of it go 128, or 256 where the sign is set: 0x4300 and 0x4380. */
template <> __device__ inline uint32_t widen_pair<int8_t, __nv_bfloat16>(uint32_t bytes) {
  uint32_t low = (bytes & 0x007f007fu) | 0x43004300u, base = (bytes & 0x00800080u) | 0x43004300u;
  __nv_bfloat162 d = __hsub2(*(__nv_bfloat162 *)&low, *(__nv_bfloat162 *)&base);
  return *(uint32_t *)&d;
}
/* 1024 + 128 + q has q + 128 as its low byte. */
template <> __device__ inline uint32_t widen_pair<int8_t, __half>(uint32_t bytes) {
  uint32_t biased = bytes ^ 0x64806480u, base = 0x64806480u;
  __half2 d = __hsub2(*(__half2 *)&biased, *(__half2 *)&base);
  return *(uint32_t *)&d;
}
/* A code's exponent and fraction in the place of T's are the number times a power of two, subnormals too: T's bias is
 * 127 or 15, the code's 7. */
template <> __device__ inline uint32_t widen_pair<e4m3, __nv_bfloat16>(uint32_t bytes) {
  uint32_t small = (bytes << 4 & 0x07f007f0u) | (bytes << 8 & 0x80008000u), power = 0x7b807b80u; /* 2^120 */
  __nv_bfloat162 d = __hmul2(*(__nv_bfloat162 *)&small, *(__nv_bfloat162 *)&power);
  return *(uint32_t *)&d;
}
template <> __device__ inline uint32_t widen_pair<e4m3, __half>(uint32_t bytes) {
  uint32_t small = (bytes << 7 & 0x3f803f80u) | (bytes << 8 & 0x80008000u), power = 0x5c005c00u; /* 2^8 */
  __half2 d = __hmul2(*(__half2 *)&small, *(__half2 *)&power);
  return *(uint32_t *)&d;
}
enum { LOW_PAIR = 0x4140, HIGH_PAIR = 0x4342 }; /* of a word's bytes, with zeros from another one */

/* Integers that are multiplied with floats of T. */
template <typename T> struct widened_int8;
template <typename T> struct weight_fragments<widened_int8<T>> {
  enum { COUNT = 4 };
  uint32_t a[COUNT][4];
  __device__ explicit weight_fragments(const raw_weights &w) {
    const uint32_t low[4] = {w.low.x, w.low.y, w.low.z, w.low.w}, high[4] = {w.high.x, w.high.y, w.high.z, w.high.w};
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
      a[i][0] = widen_pair<int8_t, T>(__byte_perm(low[i], 0, LOW_PAIR));
      a[i][1] = widen_pair<int8_t, T>(__byte_perm(high[i], 0, LOW_PAIR));
      a[i][2] = widen_pair<int8_t, T>(__byte_perm(low[i], 0, HIGH_PAIR));
      a[i][3] = widen_pair<int8_t, T>(__byte_perm(high[i], 0, HIGH_PAIR));
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

/* Floats of 16 bits with integers. */
template <typename X> struct activations<int8_t, X> {
  typedef float sum;
  typedef weight_fragments<widened_int8<X>> weights;
  enum { ELEMENTS = 16 };
  uint4 low, high;
  __device__ void load(const X *x) {
    low = *(const uint4 *)x;
    high = *((const uint4 *)x + 1);
  }
  __device__ void multiply(float (&c)[4], const weights &w) const {
    mma<X>::run(c, w.a[0], low.x, low.y);
    mma<X>::run(c, w.a[1], low.z, low.w);
    mma<X>::run(c, w.a[2], high.x, high.y);
    mma<X>::run(c, w.a[3], high.z, high.w);
  }
};

#endif
