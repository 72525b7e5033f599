/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of up to eight rows of x: bound by reading the weights, so each warp streams whole columns of them (rows of
 * w) in 16-byte pieces, several columns at a time, and multiplies every piece with all rows of x. */
#ifndef TRI_KERNELS_CUDA_LINEAR_GEMM_FEW_ROWS_CUH
#define TRI_KERNELS_CUDA_LINEAR_GEMM_FEW_ROWS_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/linear/int8_rows.cuh"

enum { PIECE = 8, FEW_ROWS_WARPS = 4 };

/* COUNT stored elements, which are 16 bytes (of float32 32). Weights are read once, so their loads ask to be evicted
 * first (ldcs), and leave the caches to x. */
template <typename T> struct piece;
template <> struct piece<__nv_bfloat16> {
  enum { COUNT = PIECE };
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
  enum { COUNT = PIECE };
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
  enum { COUNT = PIECE };
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
  enum { COUNT = 2 * PIECE };
  uint4 raw;
  __device__ void load(const void *p) { raw = __ldcs((const uint4 *)p); }
  /* Eight of them. */
  __device__ void widen(int half, float *out) const {
    const uint32_t u[2] = {half ? raw.z : raw.x, half ? raw.w : raw.y};
#pragma unroll
    for (int i = 0; i < PIECE; i++) out[i] = (float)(int8_t)(u[i / 4] >> i % 4 * 8);
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

/* Sixteen elements of a row as integers, four in a word. The eight lanes that have a group's agree on its scale. */
struct rounded_piece {
  uint32_t q[4];
  float scale;
  /* there: the row has these elements; all lanes of the warp come here. */
  template <typename X> __device__ void load(const X *p, bool there) {
    static_assert(TRI_INT8_GROUP == 8 * 2 * PIECE, "a group is eight lanes'");
    float x[2 * PIECE] = {};
    uint32_t top =
        0; /* bits of magnitudes are in the order of magnitudes, and those of what is not finite after them */
    if (there) load_inputs(p, x);
    if (there) load_inputs(p + PIECE, x + PIECE);
#pragma unroll
    for (int i = 0; i < 2 * PIECE; i++) top = max(top, __float_as_uint(x[i]) & 0x7fffffffu);
#pragma unroll
    for (int o = 1; o < 8; o *= 2) top = max(top, __shfl_xor_sync(ALL_LANES, top, o));
    bool finite = top < 0x7f800000u;
    float most = __uint_as_float(top), factor = finite ? int8_factor(most) : 0;
    scale = finite ? int8_scale(most) : NAN;
#pragma unroll
    for (int i = 0; i < 4; i++) q[i] = int8_of_four(&x[4 * i], factor);
  }
};

/* Adds the products of one piece of each column. ROUNDS: of x as integers. */
template <typename T, typename X, bool ROUNDS, int ROWS, int COLS>
__device__ static inline void add_pieces(const tri_linear_args &a, int first, int k, const piece<T> (&raw)[COLS],
                                         float (&sum)[ROWS][COLS]) {
  if constexpr (ROUNDS) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      rounded_piece x;
      x.load(row_of<X>(a.x, first + r) + k, k < a.w.k);
#pragma unroll
      for (int c = 0; c < COLS; c++) {
        const uint32_t w[4] = {raw[c].raw.x, raw[c].raw.y, raw[c].raw.z, raw[c].raw.w};
        int dot = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) dot = __dp4a((int)x.q[i], (int)w[i], dot);
        sum[r][c] += x.scale * (float)dot;
      }
    }
  } else if (k < a.w.k) {
#pragma unroll
    for (int half = 0; half < piece<T>::COUNT / PIECE; half++) {
      float x[ROWS][PIECE];
#pragma unroll
      for (int r = 0; r < ROWS; r++) load_inputs(row_of<X>(a.x, first + r) + k + half * PIECE, x[r]);
#pragma unroll
      for (int c = 0; c < COLS; c++) {
        float wide[PIECE];
        if constexpr (piece<T>::COUNT == PIECE)
          raw[c].widen(wide);
        else
          raw[c].widen(half, wide);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
          for (int i = 0; i < PIECE; i++) sum[r][c] += x[r][i] * wide[i];
      }
    }
  }
}

/* Sums of ROWS rows of x from `first` on with COLS columns, over every step-th of the warps' pieces from `from` on;
 * every lane gets all of them. The columns are col and the next ones, the second half of them `far` further on. k is a
 * multiple of a piece's COUNT. The first weights are on their way before the previous kernel has made x. A warp's lanes
 * stay together, also where k ends among them. raw is a ring in registers: two pieces of each column are on their way
 * while one is multiplied. */
template <typename T, typename X, bool ROUNDS, int ROWS, int COLS>
__device__ static void few_rows_sums(const tri_linear_args &a, int first, int col, int far, int from, int step,
                                     float (&sum)[ROWS][COLS]) {
  enum { AHEAD = 2, COUNT = piece<T>::COUNT };
  int stride = step * WARP * COUNT, begin = from * WARP * COUNT, lane = threadIdx.x % WARP * COUNT;
  const T *w[COLS];
#pragma unroll
  for (int c = 0; c < COLS; c++)
    w[c] = (const T *)a.w.data + (size_t)(col + c + (2 * c >= COLS ? far : 0)) * (size_t)a.w.k + lane;
  piece<T> raw[AHEAD][COLS];
#pragma unroll
  for (int u = 0; u < AHEAD; u++)
#pragma unroll
    for (int c = 0; c < COLS; c++)
      if (begin + lane + u * stride < a.w.k) raw[u][c].load(w[c] + (begin + u * stride));
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < COLS; c++) sum[r][c] = 0;
  wait_for_previous();
  for (; begin < a.w.k; begin += AHEAD * stride)
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      int now = begin + u * stride, next = now + AHEAD * stride;
      piece<T> here[COLS];
#pragma unroll
      for (int c = 0; c < COLS; c++) here[c] = raw[u][c];
#pragma unroll
      for (int c = 0; c < COLS; c++)
        if (next + lane < a.w.k) raw[u][c].load(w[c] + next);
      if (now < a.w.k) add_pieces<T, X, ROUNDS, ROWS, COLS>(a, first, now + lane, here, sum);
    }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < COLS; c++) sum[r][c] = warp_sum(sum[r][c]);
}

#endif
