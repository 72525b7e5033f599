/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of up to eight rows of x: bound by reading the weights, so each warp streams whole columns of them (rows of
 * w) in 16-byte pieces, several columns at a time, and multiplies every piece with all rows of x. */
#ifndef TRI_KERNELS_CUDA_LINEAR_GEMM_FEW_ROWS_CUH
#define TRI_KERNELS_CUDA_LINEAR_GEMM_FEW_ROWS_CUH

#include "kernels/cuda/device/device.cuh"

enum { PIECE = 8, FEW_ROWS_WARPS = 4 };

/* Eight stored elements, widened. Weights are read once, so their loads ask to be evicted first (ldcs), and leave the
 * caches to x. */
template <typename T> struct piece;
template <> struct piece<__nv_bfloat16> {
  uint4 raw;
  __device__ void load(const void *p) { raw = __ldcs((const uint4 *)p); }
  __device__ void widen(float *out) const {
    const uint32_t u[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      out[2 * i] = __uint_as_float(u[i] << 16);
      out[2 * i + 1] = __uint_as_float(u[i] & 0xffff0000u);
    }
  }
};
template <> struct piece<__half> {
  uint4 raw;
  __device__ void load(const void *p) { raw = __ldcs((const uint4 *)p); }
  __device__ void widen(float *out) const {
    const __half2 *h = (const __half2 *)&raw;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float2 f = __half22float2(h[i]);
      out[2 * i] = f.x;
      out[2 * i + 1] = f.y;
    }
  }
};
template <> struct piece<float> {
  float4 raw[2];
  __device__ void load(const void *p) {
    raw[0] = __ldcs((const float4 *)p);
    raw[1] = __ldcs((const float4 *)p + 1);
  }
  __device__ void widen(float *out) const {
    out[0] = raw[0].x;
    out[1] = raw[0].y;
    out[2] = raw[0].z;
    out[3] = raw[0].w;
    out[4] = raw[1].x;
    out[5] = raw[1].y;
    out[6] = raw[1].z;
    out[7] = raw[1].w;
  }
};
template <> struct piece<int8_t> {
  uint2 raw;
  __device__ void load(const void *p) { raw = __ldcs((const uint2 *)p); }
  __device__ void widen(float *out) const {
    const int8_t *q = (const int8_t *)&raw;
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = (float)q[i];
  }
};

/* Eight elements of x. */
__device__ static inline void load_inputs(const float *p, float *out) {
  float4 low = ((const float4 *)p)[0], high = ((const float4 *)p)[1];
  out[0] = low.x;
  out[1] = low.y;
  out[2] = low.z;
  out[3] = low.w;
  out[4] = high.x;
  out[5] = high.y;
  out[6] = high.z;
  out[7] = high.w;
}
template <typename X> __device__ static inline void load_inputs(const X *p, float *out) {
  piece<X> raw;
  raw.raw = *(const uint4 *)p;
  raw.widen(out);
}

/* Adds the products of one piece of each column. */
template <typename T, typename X, int ROWS, int COLS>
__device__ static inline void add_pieces(const tri_linear_args &a, int first, int k, const piece<T> (&raw)[COLS],
                                         float (&sum)[ROWS][COLS]) {
  float x[ROWS][PIECE];
#pragma unroll
  for (int r = 0; r < ROWS; r++) load_inputs(row_of<X>(a.x, first + r) + k, x[r]);
#pragma unroll
  for (int c = 0; c < COLS; c++) {
    float wide[PIECE];
    raw[c].widen(wide);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
      for (int i = 0; i < PIECE; i++) sum[r][c] += x[r][i] * wide[i];
  }
}

/* Sums of ROWS rows of x from `first` on with COLS columns, over every step-th of the warps' pieces from `from` on;
 * every lane gets all of them. The columns are col and the next ones, the second half of them `far` further on. k is a
 * multiple of PIECE. The first weights are on their way before the previous kernel has made x. raw is a ring in
 * registers: two pieces of each column are on their way while one is multiplied. */
template <typename T, typename X, int ROWS, int COLS>
__device__ static void few_rows_sums(const tri_linear_args &a, int first, int col, int far, int from, int step,
                                     float (&sum)[ROWS][COLS]) {
  enum { AHEAD = 2 };
  int stride = step * WARP * PIECE, k = (from * WARP + threadIdx.x % WARP) * PIECE;
  const T *w[COLS];
#pragma unroll
  for (int c = 0; c < COLS; c++)
    w[c] = (const T *)a.w.data + (size_t)(col + c + (2 * c >= COLS ? far : 0)) * (size_t)a.w.k;
  piece<T> raw[AHEAD][COLS];
#pragma unroll
  for (int u = 0; u < AHEAD; u++)
#pragma unroll
    for (int c = 0; c < COLS; c++)
      if (k + u * stride < a.w.k) raw[u][c].load(w[c] + (k + u * stride));
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < COLS; c++) sum[r][c] = 0;
  wait_for_previous();
  for (; k < a.w.k; k += AHEAD * stride)
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      int now = k + u * stride, next = now + AHEAD * stride;
      piece<T> here[COLS];
#pragma unroll
      for (int c = 0; c < COLS; c++) here[c] = raw[u][c];
#pragma unroll
      for (int c = 0; c < COLS; c++)
        if (next < a.w.k) raw[u][c].load(w[c] + next);
      if (now < a.w.k) add_pieces<T, X, ROWS, COLS>(a, first, now, here, sum);
    }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < COLS; c++) sum[r][c] = warp_sum(sum[r][c]);
}

#endif
