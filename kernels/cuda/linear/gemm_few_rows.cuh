/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of up to eight rows of x: bound by reading the weights, so each warp streams whole columns of them (rows of
 * w) in 16-byte pieces, several columns at a time, and multiplies every piece with all rows of x. */
#ifndef TRI_KERNELS_CUDA_LINEAR_GEMM_FEW_ROWS_CUH
#define TRI_KERNELS_CUDA_LINEAR_GEMM_FEW_ROWS_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/linear/rounded_rows.cuh"

enum { PIECE = 8, FEW_ROWS_WARPS = 4 };

/* COUNT stored elements, which are 16 bytes (of float32 32). Weights are read once, so their loads ask to be evicted
 * first (ldcs), and leave the caches to x. */
template <typename T> struct piece;
template <typename T> constexpr bool is_fp8 = false;
template <> constexpr bool is_fp8<e4m3> = true;
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

/* Four codes as halves, the first in the low byte. What is made for older devices is right, and slow: they take no
 * FP8. */
__device__ static inline void halves_of_e4m3(uint32_t codes, __half2 *out) {
#if __CUDA_ARCH__ >= 890
  uint32_t low, high;
  asm("{\n\t.reg .b16 l, h;\n\tmov.b32 {l, h}, %2;\n\t"
      "cvt.rn.f16x2.e4m3x2 %0, l;\n\tcvt.rn.f16x2.e4m3x2 %1, h;\n\t}"
      : "=r"(low), "=r"(high)
      : "r"(codes));
  out[0] = *(const __half2 *)&low;
  out[1] = *(const __half2 *)&high;
#else
  for (int i = 0; i < 4; i++) ((__half *)out)[i] = __float2half_rn(load_e4m3({(uint8_t)(codes >> 8 * i)}));
#endif
}

enum { SCALED_COLUMNS = 128 }; /* of a block of FP8's that shares a scale; a piece lies in one block */
template <> struct piece<e4m3> {
  enum { COUNT = 2 * PIECE };
  uint4 raw;
  float scale; /* that of its block; 1 where a row has one, which multiplies the sum */
  __device__ void load(const void *p) { raw = __ldcs((const uint4 *)p); }
};

/* A piece on its way out of the ring. FP8 is converted as it leaves, which is what a copy of it would cost. */
template <typename T> struct taken_piece {
  piece<T> of;
  __device__ void take(const piece<T> &from) { of = from; }
  /* Eight of them. */
  __device__ void widen(int half, float *out) const {
    if constexpr (piece<T>::COUNT == PIECE)
      of.widen(out);
    else
      of.widen(half, out);
  }
};
template <> struct taken_piece<e4m3> {
  __half2 pair[PIECE];
  float scale;
  __device__ void take(const piece<e4m3> &from) {
    const uint32_t u[4] = {from.raw.x, from.raw.y, from.raw.z, from.raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) halves_of_e4m3(u[i], pair + 2 * i);
    scale = from.scale;
  }
  __device__ void widen(int half, float *out) const {
#pragma unroll
    for (int i = 0; i < PIECE; i += 2) {
      float2 f = __half22float2(pair[(half * PIECE + i) / 2]);
      out[i] = f.x;
      out[i + 1] = f.y;
    }
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

/* Adds the products of one piece of each column, of 16 bytes or more, which begins at k. */
template <typename T, typename X, int ROWS, int COLS>
__device__ static inline void add_products(const tri_linear_args &a, int first, int k, const taken_piece<T> (&w)[COLS],
                                           float (&sum)[ROWS][COLS]) {
#pragma unroll
  for (int half = 0; half < piece<T>::COUNT / PIECE; half++) {
    float x[ROWS][PIECE];
#pragma unroll
    for (int r = 0; r < ROWS; r++) load_inputs(row_of<X>(a.x, first + r) + k + half * PIECE, x[r]);
#pragma unroll
    for (int c = 0; c < COLS; c++) {
      float wide[PIECE];
      w[c].widen(half, wide);
#pragma unroll
      for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < PIECE; i++) sum[r][c] += x[r][i] * wide[i];
    }
  }
}

/* Adds the products of one piece of each column, where there is one. ROUNDS: of x as integers. */
template <typename T, typename X, bool ROUNDS, int ROWS, int COLS>
__device__ static inline void add_pieces(const tri_linear_args &a, int first, int k, const taken_piece<T> (&w)[COLS],
                                         float (&sum)[ROWS][COLS]) {
  if constexpr (ROUNDS) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
      rounded_piece x;
      x.load(row_of<X>(a.x, first + r) + k, k < a.w.k);
#pragma unroll
      for (int c = 0; c < COLS; c++) {
        const uint4 raw = w[c].of.raw;
        const uint32_t q[4] = {raw.x, raw.y, raw.z, raw.w};
        int dot = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) dot = __dp4a((int)x.q[i], (int)q[i], dot);
        sum[r][c] += x.scale * (float)dot;
      }
    }
  } else if (k < a.w.k) {
    if constexpr (is_fp8<T>) {
      float part[ROWS][COLS] = {};
      add_products<T, X, ROWS, COLS>(a, first, k, w, part);
#pragma unroll
      for (int i = 0; i < ROWS * COLS; i++) sum[i / COLS][i % COLS] += w[i % COLS].scale * part[i / COLS][i % COLS];
    } else {
      add_products<T, X, ROWS, COLS>(a, first, k, w, sum);
    }
  }
}

/* Places of a lane's pieces of COLS columns: they begin at whole numbers of WARP * COUNT elements from there. */
template <typename T, int COLS> struct lane_columns {
  const T *w[COLS];
  const float *scale[COLS]; /* of FP8 in blocks: that of the first piece */
  bool blocks;
  /* A lane's elements begin at `lane`; the columns are those of few_rows_sums. */
  __device__ lane_columns(const tri_weight &weight, int col, int far, int lane) {
    blocks = is_fp8<T> && weight.scale && weight.groups.cols;
#pragma unroll
    for (int c = 0; c < COLS; c++)
      w[c] = (const T *)weight.data + (size_t)(col + c + (2 * c >= COLS ? far : 0)) * (size_t)weight.k + lane;
    if (blocks) find_scales(weight, col, far, lane);
  }
  /* The same as scales_of_row, with one division for neighbours. */
  __device__ void find_scales(const tri_weight &weight, int col, int far, int lane) {
    const tri_groups &g = weight.groups;
    unsigned rows = max(g.rows, 1), row = 0, place = 0; /* of the table, and inside a block */
    unsigned across = (unsigned)(g.skip_col + weight.k + SCALED_COLUMNS - 1) / SCALED_COLUMNS;
    const float *first = weight.scale + (unsigned)(lane + g.skip_col) / SCALED_COLUMNS;
#pragma unroll
    for (int c = 0; c < COLS; c++) {
      if (c == 0 || (far && 2 * c == COLS)) {
        unsigned at = (unsigned)(col + c + (c ? far : 0) + g.skip_row);
        row = at / rows;
        place = at - row * rows;
      } else if (++place == rows) {
        row++;
        place = 0;
      }
      scale[c] = first + (size_t)row * across;
    }
  }
  __device__ void load(int c, int at, piece<T> &to) const {
    to.load(w[c] + at);
    if constexpr (is_fp8<T>) {
      static_assert(WARP * piece<T>::COUNT % SCALED_COLUMNS == 0, "pieces of a lane are as far into their blocks");
      to.scale = blocks ? __ldg(scale[c] + (unsigned)at / SCALED_COLUMNS) : 1;
    }
  }
};

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
  lane_columns<T, COLS> columns(a.w, col, far, lane);
  piece<T> raw[AHEAD][COLS];
#pragma unroll
  for (int u = 0; u < AHEAD; u++)
#pragma unroll
    for (int c = 0; c < COLS; c++)
      if (begin + lane + u * stride < a.w.k) columns.load(c, begin + u * stride, raw[u][c]);
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < COLS; c++) sum[r][c] = 0;
  wait_for_previous();
  for (; begin < a.w.k; begin += AHEAD * stride)
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      int now = begin + u * stride, next = now + AHEAD * stride;
      taken_piece<T> here[COLS];
#pragma unroll
      for (int c = 0; c < COLS; c++) here[c].take(raw[u][c]);
#pragma unroll
      for (int c = 0; c < COLS; c++)
        if (next + lane < a.w.k) columns.load(c, next, raw[u][c]);
      if (now < a.w.k) add_pieces<T, X, ROUNDS, ROWS, COLS>(a, first, now + lane, here, sum);
    }
#pragma unroll
  for (int r = 0; r < ROWS; r++)
#pragma unroll
    for (int c = 0; c < COLS; c++) sum[r][c] = warp_sum(sum[r][c]);
}

#endif
