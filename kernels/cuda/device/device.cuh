/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels share this: stored elements, rows of integers, and sums over a warp and a block. */
#ifndef TRI_KERNELS_CUDA_DEVICE_DEVICE_CUH
#define TRI_KERNELS_CUDA_DEVICE_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device/dependent_launch.cuh"

/* A quick build (TRIREME_CUDA_QUICK) is to see that everything compiles, and has the longest files' kernels for
 * bfloat16 alone. */
#ifdef TRI_CUDA_QUICK
constexpr bool HAS_BOTH_16 = false;
#else
constexpr bool HAS_BOTH_16 = true;
#endif

enum { WARP = 32 };
#define ALL_LANES 0xffffffffu

/* Eight bits of a weight: "FP8 Formats for Deep Learning" (Micikevicius et al., 2022), table 1. No code is a NaN. */
struct e4m3 {
  uint8_t bits;
};

__host__ __device__ static inline bool is_8bit(tri_dtype t) { return t == TRI_I8 || t == TRI_F8_E4M3; }

__host__ __device__ static inline size_t element_bytes(tri_dtype t) {
  if (is_8bit(t)) return 1;
  return t == TRI_F32 ? 4 : 2;
}

/* The code's bits as those of a half, whose exponent has a bias of 15 and not 7. */
__device__ static inline float load_e4m3(e4m3 x) {
  uint32_t half = (uint32_t)(x.bits & 0x7f) << 7 | (uint32_t)(x.bits & 0x80) << 8;
  return 256 * __half2float(__ushort_as_half((unsigned short)half));
}

__device__ static inline float load_as(const void *base, tri_dtype t, size_t i) {
  switch (t) {
  case TRI_F16: return __half2float(((const __half *)base)[i]);
  case TRI_BF16: return __bfloat162float(((const __nv_bfloat16 *)base)[i]);
  case TRI_I8: return (float)((const int8_t *)base)[i];
  case TRI_F8_E4M3: return load_e4m3(((const e4m3 *)base)[i]);
  default: return ((const float *)base)[i];
  }
}

__device__ static inline void store_as(void *base, tri_dtype t, size_t i, float x) {
  switch (t) {
  case TRI_F16: ((__half *)base)[i] = __float2half_rn(x); break;
  case TRI_BF16: ((__nv_bfloat16 *)base)[i] = __float2bfloat16_rn(x); break;
  default: ((float *)base)[i] = x; break;
  }
}

/* The scales of a row of a weight: one, or one for each block of columns. */
__device__ static inline const float *scales_of_row(const tri_weight &w, int row) {
  const tri_groups &g = w.groups;
  int across = g.cols ? (g.skip_col + w.k + g.cols - 1) / g.cols : 1;
  int down = g.rows > 1 ? (row + g.skip_row) / g.rows : row;
  return w.scale + (size_t)down * (size_t)across;
}
/* The factor of a row's sum: 1 where its elements have their scales already. */
__device__ static inline float scale_of_sum(const tri_weight &w, int row) {
  return w.scale && !w.groups.cols ? *scales_of_row(w, row) : 1;
}
/* The factor of an element on its way to such a sum. */
__device__ static inline float scale_of_element(const tri_weight &w, int row, int col) {
  return w.scale && w.groups.cols ? scales_of_row(w, row)[(col + w.groups.skip_col) / w.groups.cols] : 1;
}

/* One element of a weight of any form, widened, but for scale_of_sum: for kernels that are written for every shape. */
__device__ static inline float element_at(const tri_weight &w, int row, int col) {
  return load_as(w.data, w.dtype, (size_t)row * (size_t)w.k + (size_t)col) * scale_of_element(w, row, col);
}
/* The same with it. */
__device__ static inline float weight_at(const tri_weight *w, size_t row, size_t col) {
  return element_at(*w, (int)row, (int)col) * scale_of_sum(*w, (int)row);
}

/* Every lane gets the result, by exchanges over distances that halve; all 32 lanes must take part. */
__device__ static inline float warp_sum(float x) {
  for (int o = WARP / 2; o; o /= 2) x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}
__device__ static inline int warp_sum(int x) {
  for (int o = WARP / 2; o; o /= 2) x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}
__device__ static inline float warp_max(float x) {
  for (int o = WARP / 2; o; o /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, o));
  return x;
}

/* A lane's part of the dot product of elements j .. j + n - 1, of one group, of a row of x in w's type and a row of w,
 * by a warp. */
__device__ static inline float rounded_dot(const void *x, const tri_weight &w, size_t x_row, size_t w_row, int j,
                                           int n) {
  size_t k = (size_t)w.k, from = x_row * k + (size_t)j, with = w_row * k + (size_t)j;
  float numbers = 0;
  int integers = 0; /* their sum is exact in any order */
  for (int i = threadIdx.x % WARP; i < n; i += WARP) {
    size_t at = (size_t)i;
    if (w.dtype == TRI_I8)
      integers += (int)((const int8_t *)x)[from + at] * (int)((const int8_t *)w.data)[with + at];
    else
      numbers += load_as(x, w.dtype, from + at) * load_as(w.data, w.dtype, with + at);
  }
  return w.dtype == TRI_I8 ? (float)integers : numbers * scale_of_element(w, (int)w_row, j);
}

/* Over a block of whole warps, 1024 threads at most; every thread gets the result. room: [32], free for the next call
 * once all threads have gone through a barrier. */
__device__ static inline float block_sum(float x, float *room) {
  int warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
  x = warp_sum(x);
  if (!lane) room[threadIdx.x / WARP] = x;
  __syncthreads();
  float all = warp_sum(lane < warps ? room[lane] : 0.0f);
  __syncthreads();
  return all;
}
__device__ static inline float block_max(float x, float *room) {
  int warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
  x = warp_max(x);
  if (!lane) room[threadIdx.x / WARP] = x;
  __syncthreads();
  float all = warp_max(lane < warps ? room[lane] : -INFINITY);
  __syncthreads();
  return all;
}

/* The activations in float32; the formulas are those of kernels/ref/formulas.h. */
__device__ static inline float act_of(tri_act act, float x) {
  switch (act) {
  case TRI_ACT_RELU: return x > 0 ? x : 0;
  case TRI_ACT_GELU_ERF: return 0.5f * x * erfcf(-x * 0.70710678f);
  case TRI_ACT_GELU_TANH: return 0.5f * x * (1 + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
  case TRI_ACT_SILU: return x / (1 + expf(-x));
  case TRI_ACT_QUICK_GELU: return x / (1 + expf(-1.702f * x));
  case TRI_ACT_TANH: return tanhf(x);
  default: return x;
  }
}
__device__ static inline float glu_of(tri_act act, float limit, float gate, float up) {
  bool clamped = act == TRI_ACT_SWIGLU_CLAMPED;
  if (!clamped && act != TRI_ACT_SWIGLU_OAI) return act_of(act, gate) * up;
  if (clamped) gate = act_of(TRI_ACT_SILU, gate);
  gate = gate > limit ? limit : gate; /* NaN stays NaN */
  if (up > limit)
    up = limit;
  else if (up < -limit)
    up = -limit;
  return clamped ? gate * up : gate / (1 + expf(-1.702f * gate)) * (up + 1);
}

__device__ static inline float *row_at(const tri_mat &m, int i) { return m.data + (size_t)i * (size_t)m.ld; }
/* Row i of a matrix whose type is known. */
template <typename T> __device__ static inline T *row_of(const tri_mat &m, int i) {
  return (T *)m.data + (size_t)i * (size_t)m.ld;
}
__device__ static inline void store_at(const tri_mat &m, int i, size_t j, float x) {
  store_as(m.data, m.dtype, (size_t)i * (size_t)m.ld + j, x);
}
__device__ static inline float load_at(const tri_mat &m, int i, size_t j) {
  return load_as(m.data, m.dtype, (size_t)i * (size_t)m.ld + j);
}

/* Two or four elements at once, from and to places aligned to their size. */
__device__ static inline float2 load2(const float *p) { return *(const float2 *)p; }
__device__ static inline float2 load2(const __half *p) { return __half22float2(*(const __half2 *)p); }
__device__ static inline float2 load2(const __nv_bfloat16 *p) {
  uint32_t raw = *(const uint32_t *)p;
  return make_float2(__uint_as_float(raw << 16), __uint_as_float(raw & 0xffff0000u));
}
__device__ static inline float4 load4(const float *p) { return *(const float4 *)p; }
__device__ static inline float4 load4(const __half *p) {
  uint2 raw = *(const uint2 *)p;
  float2 low = __half22float2(*(const __half2 *)&raw.x), high = __half22float2(*(const __half2 *)&raw.y);
  return make_float4(low.x, low.y, high.x, high.y);
}
__device__ static inline float4 load4(const __nv_bfloat16 *p) {
  uint2 raw = *(const uint2 *)p;
  return make_float4(__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xffff0000u), __uint_as_float(raw.y << 16),
                     __uint_as_float(raw.y & 0xffff0000u));
}
__device__ static inline void store4(float *p, float4 x) { *(float4 *)p = x; }
__device__ static inline void store4(__half *p, float4 x) {
  __half2 low = __floats2half2_rn(x.x, x.y), high = __floats2half2_rn(x.z, x.w);
  *(uint2 *)p = make_uint2(*(uint32_t *)&low, *(uint32_t *)&high);
}
__device__ static inline void store4(__nv_bfloat16 *p, float4 x) {
  __nv_bfloat162 low = __floats2bfloat162_rn(x.x, x.y), high = __floats2bfloat162_rn(x.z, x.w);
  *(uint2 *)p = make_uint2(*(uint32_t *)&low, *(uint32_t *)&high);
}
/* The same to element i of any type, and into a matrix. */
__device__ static inline void store4_as(void *base, tri_dtype t, size_t i, float4 x) {
  switch (t) {
  case TRI_F16: store4((__half *)base + i, x); break;
  case TRI_BF16: store4((__nv_bfloat16 *)base + i, x); break;
  default: store4((float *)base + i, x); break;
  }
}
__device__ static inline void store4_at(const tri_mat &m, int i, int j, float4 x) {
  store4_as(m.data, m.dtype, (size_t)i * (size_t)m.ld + (size_t)j, x);
}
__device__ static inline float4 load4_at(const tri_mat &m, int i, int j) {
  size_t at = (size_t)i * (size_t)m.ld + (size_t)j;
  switch (m.dtype) {
  case TRI_F16: return load4((const __half *)(const void *)m.data + at);
  case TRI_BF16: return load4((const __nv_bfloat16 *)(const void *)m.data + at);
  default: return load4(m.data + at);
  }
}
/* True where rows of m can be read and written so. */
static inline bool in_fours(const tri_mat &m) {
  return m.cols % 4 == 0 && m.ld % 4 == 0 && (uintptr_t)m.data % 16 == 0;
}

/* Returns the offset, in elements, of a KV head's key or value at a position of a sequence, whose KV blocks are
 * kv_blocks: the layout is tri_kv_layer's, [block][KV head][place in block][head_dim]. */
__device__ static inline size_t kv_offset(const tri_kv_layer &kv, const int32_t *kv_blocks, int pos, int kv_head) {
  size_t kv_block = (size_t)kv_blocks[pos / kv.block_size], in_block = (size_t)(pos % kv.block_size);
  return ((kv_block * (size_t)kv.num_kv_heads + (size_t)kv_head) * (size_t)kv.block_size + in_block) *
         (size_t)kv.head_dim;
}

/* Asks for a line to come to the second-level cache. A hint, and so allowed before wait_for_previous() whichever kernel
 * writes there: a line that is written again is not an old one. */
__device__ static inline void prefetch_line(const void *at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

/* Lets a kernel have more shared memory than 48 KiB: always as much, so that one call will do. A process has one
 * device.
 */
template <auto kernel> static inline cudaError_t allow_shared(size_t bytes) {
  static const cudaError_t allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  return allowed;
}

/* Returns whether a block of the kernel can have that much shared memory in addition to what it declares: always as
 * much, as above. A device before Hopper, or for desktops, has less than half of what Hopper has. */
template <auto kernel> static inline bool has_room_for(size_t bytes) {
  static const bool has_room = [bytes] {
    int device = 0, most = 0;
    cudaFuncAttributes a;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
           cudaFuncGetAttributes(&a, kernel) == cudaSuccess && a.sharedSizeBytes + bytes <= (size_t)most;
  }();
  return has_room;
}

/* Returns the blocks of the kernel that a multiprocessor has room for, at least 1: with always the same arguments. */
template <auto kernel> static inline int blocks_at_once(unsigned threads, size_t bytes) {
  static const int blocks = [threads, bytes] {
    int n = 0;
    cudaError_t e = allow_shared<kernel>(bytes);
    if (e == cudaSuccess) e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, kernel, (int)threads, bytes);
    if (e != cudaSuccess) (void)cudaGetLastError(); /* the kernel will not be chosen */
    return n > 1 ? n : 1;
  }();
  return blocks;
}

static inline unsigned blocks_for(size_t n, unsigned threads) { return (unsigned)((n + threads - 1) / threads); }

#endif
