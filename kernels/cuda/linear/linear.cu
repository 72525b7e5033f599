/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs with weights of any stored type, in float32 on the stored values. Few rows of x: a warp for each output
 * column, which reads its weights once for all of them. More: tiles through shared memory. All add the same numbers as
 * the reference does in another order; tensor cores have only those of few columns whose factors are both of 16 bits,
 * since they would round others. */
#include "kernels/cuda/linear/gemm_few_rows.cuh"
#include "kernels/cuda/linear/gemm_narrow.cuh"
#include "kernels/cuda/linear/results.cuh"

enum { FEW = 8, COLUMN_WARPS = 8, TILE = 64, DEPTH = 16, TILE_THREADS = 256 };

/* A warp's sums, one for a lane. With CUT they are parts: those of all warps, in the first one. False: not for this
 * warp. Sums are equal in all lanes; spread out, each lane finishes and stores one. */
template <int ROWS, int COLS, bool CUT>
__device__ static inline bool spread(const float (&sum)[ROWS][COLS], float *all) {
  __shared__ float room[FEW_ROWS_WARPS][ROWS * COLS];
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  *all = 0;
#pragma unroll
  for (int i = 0; i < ROWS * COLS; i++)
    if (lane == i) *all = sum[i / COLS][i % COLS];
  if (!CUT) return true;
  if (lane < ROWS * COLS) room[warp][lane] = *all;
  __syncthreads();
  *all = 0;
  for (int w = 0; w < FEW_ROWS_WARPS && lane < ROWS * COLS && !warp; w++) *all += room[w][lane];
  return !warp;
}

/* ROWS rows of a GEMM from row `first` on. x [M, k], w [n, k], out [M, n]. CUT: the warps of a block share one set
 * of COLS columns and cut k among themselves, grid n / COLS; else each has columns of its own, grid n / (COLS * 4). 128
 * threads. Shared memory: the warps' sums. */
template <typename T, typename X, bool ROUNDS, int ROWS, int COLS, bool CUT>
__global__ static void few_rows_kernel(tri_linear_args a, int first) {
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  int col = (CUT ? blockIdx.x : blockIdx.x * FEW_ROWS_WARPS + warp) * COLS;
  float sum[ROWS][COLS], all;
  let_next_begin();
  if (col >= a.w.n) return;
  few_rows_sums<T, X, ROUNDS, ROWS, COLS>(a, first, col, 0, CUT ? warp : 0, CUT ? FEW_ROWS_WARPS : 1, sum);
  if (spread<ROWS, COLS, CUT>(sum, &all) && lane < ROWS * COLS) finish(a, first + lane / COLS, col + lane % COLS, all);
}

/* A gated GEMM of ROWS rows. x [ROWS, k], w [2 width, k] with gates first, out [ROWS, width]. Half of a warp's COLS
 * columns are gates and half their ups. Grid width / (COLS / 2) with CUT, a quarter of that without; 128 threads.
 * Shared memory: the warps' sums. */
template <typename T, typename X, bool ROUNDS, int ROWS, int COLS, bool CUT>
__global__ static void few_rows_gated_kernel(tri_linear_args a, tri_glu_args glu) {
  enum { PAIRS = COLS / 2 };
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, width = a.w.n / 2;
  int col = (CUT ? blockIdx.x : blockIdx.x * FEW_ROWS_WARPS + warp) * PAIRS;
  float sum[ROWS][COLS], gate;
  let_next_begin();
  if (col >= width) return;
  few_rows_sums<T, X, ROUNDS, ROWS, COLS>(a, 0, col, width - PAIRS, CUT ? warp : 0, CUT ? FEW_ROWS_WARPS : 1, sum);
  if (!spread<ROWS, COLS, CUT>(sum, &gate)) return;
  float up = __shfl_down_sync(0xffffffffu, gate, PAIRS);
  int c = col + lane % COLS;
  if (lane >= ROWS * COLS || lane % COLS >= PAIRS) return;
  gate *= scale_of_sum(a.w, c);
  up *= scale_of_sum(a.w, width + c);
  if (a.bias) {
    gate += a.bias[c];
    up += a.bias[width + c];
  }
  store_at(glu.out, lane / COLS, (size_t)c, glu_of(glu.act, glu.limit, gate, up));
}

enum { ENOUGH_WARPS = 4096, FEW_ROWS_THREADS = FEW_ROWS_WARPS * WARP }; /* that many fill a device */

/* Each row of x is read again for every warp, so a warp has as many columns as leave ENOUGH_WARPS; with fewer columns
 * than that, k is cut among the warps of a block. */
template <typename T, typename X, bool ROUNDS, int ROWS>
static void few_rows_rows(cudaStream_t stream, const tri_linear_args &a, int first) {
  unsigned n = (unsigned)a.w.n;
  if (n % 4 == 0 && n / 4 >= ENOUGH_WARPS)
    launch_overlapped(few_rows_kernel<T, X, ROUNDS, ROWS, 4, false>, dim3(blocks_for(n, 4 * FEW_ROWS_WARPS)),
                      FEW_ROWS_THREADS, 0, stream, a, first);
  else if (n % 2 == 0 && n / 2 >= ENOUGH_WARPS)
    launch_overlapped(few_rows_kernel<T, X, ROUNDS, ROWS, 2, false>, dim3(blocks_for(n, 2 * FEW_ROWS_WARPS)),
                      FEW_ROWS_THREADS, 0, stream, a, first);
  else if (n % 2 == 0)
    launch_overlapped(few_rows_kernel<T, X, ROUNDS, ROWS, 2, true>, dim3(n / 2), FEW_ROWS_THREADS, 0, stream, a, first);
  else
    launch_overlapped(few_rows_kernel<T, X, ROUNDS, ROWS, 1, true>, dim3(n), FEW_ROWS_THREADS, 0, stream, a, first);
}

/* More than two rows seldom come but of float32, since other kernels have them; four is enough to be compiled. */
template <typename T, typename X, bool ROUNDS> static void few_rows(cudaStream_t stream, const tri_linear_args &a) {
  constexpr int MOST = sizeof(T) == 4 ? 4 : 2;
  for (int first = 0, rows; first < a.x.rows; first += rows) {
    int left = min(a.x.rows - first, MOST);
    rows = 1;
    if (left >= 2) rows = 2;
    if (left >= 4) rows = 4;
    if (rows == 1) few_rows_rows<T, X, ROUNDS, 1>(stream, a, first);
    if (rows == 2) few_rows_rows<T, X, ROUNDS, 2>(stream, a, first);
    if constexpr (MOST == 4)
      if (rows == 4) few_rows_rows<T, X, ROUNDS, 4>(stream, a, first);
  }
}

template <typename X> static void few_rows_int8(cudaStream_t stream, const tri_linear_args &a) {
  a.rounds_rows ? few_rows<int8_t, X, true>(stream, a) : few_rows<int8_t, X, false>(stream, a);
}

static void few_rows_as_stored(cudaStream_t stream, const tri_linear_args &a) {
  bool narrow = a.x.dtype != TRI_F32; /* and then of the weights' type, unless those have 8 bits */
  switch (a.w.dtype) {
  case TRI_BF16:
    narrow ? few_rows<__nv_bfloat16, __nv_bfloat16, false>(stream, a)
           : few_rows<__nv_bfloat16, float, false>(stream, a);
    break;
  case TRI_F16: narrow ? few_rows<__half, __half, false>(stream, a) : few_rows<__half, float, false>(stream, a); break;
  case TRI_I8:
    if (!narrow)
      few_rows_int8<float>(stream, a);
    else
      a.x.dtype == TRI_BF16 ? few_rows_int8<__nv_bfloat16>(stream, a) : few_rows_int8<__half>(stream, a);
    break;
  case TRI_F8_E4M3:
    if (!narrow)
      few_rows<e4m3, float, false>(stream, a);
    else
      a.x.dtype == TRI_BF16 ? few_rows<e4m3, __nv_bfloat16, false>(stream, a)
                            : few_rows<e4m3, __half, false>(stream, a);
    break;
  default: few_rows<float, float, false>(stream, a); break;
  }
}

/* True where rows can be read in pieces, each of which has one scale at most. */
static bool is_aligned(const tri_linear_args &a) {
  int of_w = is_8bit(a.w.dtype) ? 2 * PIECE : PIECE, of_x = a.x.dtype == TRI_F32 ? 4 : PIECE;
  if (a.w.groups.cols && (a.w.groups.cols != SCALED_COLUMNS || a.w.groups.skip_col % of_w)) return false;
  return a.w.k % of_w == 0 && a.x.ld % of_x == 0 && (uintptr_t)a.x.data % 16 == 0 && (uintptr_t)a.w.data % 16 == 0;
}

/* Rows become integers on the way; they are rounded to e4m3 elsewhere. */
static bool rounds_elsewhere(const tri_linear_args &a) { return a.rounds_rows && a.w.dtype == TRI_F8_E4M3; }

template <typename T, typename X, bool ROUNDS, int ROWS>
static void few_rows_gated(cudaStream_t stream, const tri_gated_linear_args &a) {
  unsigned width = (unsigned)a.up.w.n / 2;
  if (width % 2 == 0 && width / 2 >= ENOUGH_WARPS)
    launch_overlapped(few_rows_gated_kernel<T, X, ROUNDS, ROWS, 4, false>, dim3(blocks_for(width, 2 * FEW_ROWS_WARPS)),
                      FEW_ROWS_THREADS, 0, stream, a.up, a.glu);
  else
    launch_overlapped(few_rows_gated_kernel<T, X, ROUNDS, ROWS, 2, true>, dim3(width), FEW_ROWS_THREADS, 0, stream,
                      a.up, a.glu);
}

template <typename T, typename X, bool ROUNDS>
static void gated_of(cudaStream_t stream, const tri_gated_linear_args &a) {
  a.up.x.rows == 1 ? few_rows_gated<T, X, ROUNDS, 1>(stream, a) : few_rows_gated<T, X, ROUNDS, 2>(stream, a);
}

template <typename X> static void gated_int8(cudaStream_t stream, const tri_gated_linear_args &a) {
  a.up.rounds_rows ? gated_of<int8_t, X, true>(stream, a) : gated_of<int8_t, X, false>(stream, a);
}

bool tri_cuda_gated_fits(const tri_gated_linear_args *a) {
  const tri_linear_args &up = a->up;
  bool types = up.x.dtype != TRI_F32 && (up.x.dtype == up.w.dtype || is_8bit(up.w.dtype));
  return types && up.x.rows <= 2 && !rounds_elsewhere(up) && is_aligned(up);
}

void tri_cuda_gated(cudaStream_t stream, const tri_gated_linear_args *a) {
  bool bf16 = a->up.x.dtype == TRI_BF16;
  if (!a->up.x.rows || !a->up.w.n) return;
  if (a->up.w.dtype == TRI_I8)
    bf16 ? gated_int8<__nv_bfloat16>(stream, *a) : gated_int8<__half>(stream, *a);
  else if (a->up.w.dtype == TRI_F8_E4M3)
    bf16 ? gated_of<e4m3, __nv_bfloat16, false>(stream, *a) : gated_of<e4m3, __half, false>(stream, *a);
  else if (bf16)
    gated_of<__nv_bfloat16, __nv_bfloat16, false>(stream, *a);
  else
    gated_of<__half, __half, false>(stream, *a);
}

/* Up to 8 rows of a GEMM from row `first` on, of any alignment: a warp for each column. x [M, k], w [n, k], out [M,
 * n]. Grid n / 8, 256 threads. */
__global__ static void columns_kernel(tri_linear_args a, int first) {
  int col = blockIdx.x * COLUMN_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  int rows = min(FEW, a.x.rows - first);
  float sum[FEW] = {0};
  if (col >= a.w.n) return;
  for (int j = lane; j < a.w.k; j += WARP) {
    float w = element_at(a.w, col, j);
#pragma unroll
    for (int i = 0; i < FEW; i++)
      if (i < rows) sum[i] += w * load_at(a.x, first + i, (size_t)j);
  }
#pragma unroll
  for (int i = 0; i < FEW; i++) {
    float all = warp_sum(sum[i]);
    if (!lane && i < rows) finish(a, first + i, col, all);
  }
}

/* A GEMM of many rows: 64 x 64 results for a block, 4 x 4 for each thread. x [M, k], w [n, k], out [M, n]. Grid (n /
 * 64, M / 64), 256 threads. Shared memory: 16 columns of both tiles, 8.5 KiB. For what the library cannot do above 16
 * rows: integers before Hopper, and an activation before an addition. */
__global__ static void tiles_kernel(tri_linear_args a) {
  __shared__ float xs[DEPTH][TILE + 4], ws[DEPTH][TILE + 4];
  int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[4][4] = {{0}};
  for (int k0 = 0; k0 < a.w.k; k0 += DEPTH) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += TILE_THREADS) {
      int r = i / DEPTH, k = k0 + i % DEPTH;
      bool in = k < a.w.k;
      xs[i % DEPTH][r] = in && row0 + r < a.x.rows ? load_at(a.x, row0 + r, (size_t)k) : 0;
      ws[i % DEPTH][r] = in && col0 + r < a.w.n ? element_at(a.w, col0 + r, k) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      float x[4], w[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        x[i] = xs[k][ty * 4 + i];
        w[i] = ws[k][tx * 4 + i];
      }
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] += x[i] * w[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      if (row0 + ty * 4 + i < a.x.rows && col0 + tx * 4 + j < a.w.n)
        finish(a, row0 + ty * 4 + i, col0 + tx * 4 + j, sum[i][j]);
}

/* ---- rounded activations, of any shape ---- */

/* A GEMM of rounded rows with weights of 8 bits, a warp for each result. x [M, k], w [n, k], out [M, n]. Grid (M, n /
 * 8), 256 threads. */
__global__ static void rounded_kernel(tri_linear_args a, tri_cuda_rounded x) {
  int col = blockIdx.y * COLUMN_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP, row = blockIdx.x;
  float sum = 0;
  if (col >= a.w.n) return;
  for (int j = 0; j < a.w.k; j += TRI_INT8_GROUP)
    sum += x.scales[(size_t)(j / TRI_INT8_GROUP) * (size_t)x.ld + row] *
           rounded_dot(x.q, a.w, (size_t)row, (size_t)col, j, min(a.w.k - j, TRI_INT8_GROUP));
  sum = warp_sum(sum);
  if (!lane) finish(a, row, col, sum);
}

/* ---- few columns ---- */

enum { NARROW_FROM = 3, NARROW_ROWS = 64, NARROW_MOST = 256 };

/* 8 NT rows with 16 columns. x [M, k], w [n, k], out [M, n]. Grid (n / 16, M / (8 NT)), 512 threads. Shared memory: the
 * warps' sums. */
template <typename W, int NT>
__global__ __launch_bounds__(NARROW_THREADS) static void narrow_kernel(tri_linear_args a) {
  __shared__ narrow_room<NT> room;
  int first = blockIdx.y * 8 * NT, col = blockIdx.x * NARROW_COLUMNS;
  let_next_begin();
  narrow_sums<W, NT>(a, first, col, room);
  for (int i = threadIdx.x; i < 8 * NT * NARROW_COLUMNS; i += NARROW_THREADS) {
    int row = i / NARROW_COLUMNS, column = i % NARROW_COLUMNS;
    if (first + row < a.x.rows && col + column < a.w.n)
      finish(a, first + row, col + column, narrow_sum(room, row, column));
  }
}

bool tri_cuda_is_narrow(const tri_linear_args *a) {
  bool types = (a->w.dtype == TRI_BF16 || a->w.dtype == TRI_F16) && a->x.dtype == a->w.dtype;
  bool sizes = a->x.rows >= NARROW_FROM && a->x.rows <= NARROW_ROWS && a->w.n <= NARROW_MOST && a->w.k % 32 == 0;
  return types && sizes && a->w.n && a->w.k && is_aligned(*a);
}

template <typename W> static void narrow(cudaStream_t stream, const tri_linear_args &a) {
  unsigned columns = blocks_for((size_t)a.w.n, NARROW_COLUMNS), rows = (unsigned)a.x.rows;
  if (rows <= 8)
    launch_overlapped(narrow_kernel<W, 1>, dim3(columns, 1), NARROW_THREADS, 0, stream, a);
  else
    launch_overlapped(narrow_kernel<W, 2>, dim3(columns, blocks_for(rows, 16)), NARROW_THREADS, 0, stream, a);
}

/* ---- our own GEMMs ---- */

static bool is_few(const tri_linear_args *a) { return a->x.rows <= 2 * FEW && !rounds_elsewhere(*a) && is_aligned(*a); }

size_t tri_cuda_own_linear_workspace(const tri_linear_args *a) {
  return a->rounds_rows && !is_few(a) ? tri_cuda_rounded_bytes(a->x.rows, a->w.k) : 0;
}

void tri_cuda_own_linear(cudaStream_t stream, const tri_linear_args *a, void *workspace) {
  int m = a->x.rows, n = a->w.n;
  unsigned columns = blocks_for((size_t)n, COLUMN_WARPS);
  if (!m || !n) return;
  if (tri_cuda_is_narrow(a)) {
    a->w.dtype == TRI_BF16 ? narrow<__nv_bfloat16>(stream, *a) : narrow<__half>(stream, *a);
  } else if (is_few(a)) {
    few_rows_as_stored(stream, *a);
  } else if (a->rounds_rows) {
    tri_cuda_rounded x = tri_cuda_round(stream, a->x, &a->w, workspace);
    rounded_kernel<<<dim3(m, columns), COLUMN_WARPS * WARP, 0, stream>>>(*a, x);
  } else if (m <= 2 * FEW) {
    for (int i = 0; i < m; i += FEW) columns_kernel<<<columns, COLUMN_WARPS * WARP, 0, stream>>>(*a, i);
  } else {
    dim3 grid(blocks_for((size_t)n, TILE), blocks_for((size_t)m, TILE));
    tiles_kernel<<<grid, TILE_THREADS, 0, stream>>>(*a);
  }
}

/* ---- around the library's GEMMs ---- */

/* Rounds a row of x to T. x [M, k] to out [M, k] without gaps. Grid (M, k / (256 EACH)), 256 threads. */
template <typename T, int EACH> __global__ __launch_bounds__(TILE_THREADS) static void round_kernel(tri_mat x, T *out) {
  int j = EACH * (int)(blockIdx.y * TILE_THREADS + threadIdx.x);
  T *to = out + (size_t)blockIdx.x * (size_t)x.cols + (size_t)j;
  let_next_begin();
  wait_for_previous(); /* which may still read what lies at out */
  if (j >= x.cols) return;
  const float *from = row_at(x, blockIdx.x) + j;
  if constexpr (EACH == 1)
    *to = (T)*from;
  else
    store4(to, load4(from));
}

/* The other way. x [M, k] of 16 bits to out [M, k] without gaps. Grid (M, k / (256 EACH)), 256 threads. */
template <int EACH> __global__ __launch_bounds__(TILE_THREADS) static void widen_kernel(tri_mat x, float *out) {
  int j = EACH * (int)(blockIdx.y * TILE_THREADS + threadIdx.x);
  float *to = out + (size_t)blockIdx.x * (size_t)x.cols + (size_t)j;
  let_next_begin();
  wait_for_previous();
  if (j >= x.cols) return;
  if constexpr (EACH == 1)
    *to = load_at(x, blockIdx.x, (size_t)j);
  else
    store4(to, load4_at(x, blockIdx.x, j));
}

/* Launches one of two kernels over x: that for four elements of each thread where they can be had so. */
template <typename T>
static void convert(cudaStream_t stream, const tri_mat &x, T *out, void (*one)(tri_mat, T *),
                    void (*four)(tri_mat, T *)) {
  bool fours = in_fours(x) && (uintptr_t)out % 16 == 0;
  dim3 grid((unsigned)x.rows, blocks_for((size_t)x.cols, (fours ? 4 : 1) * TILE_THREADS));
  if (x.rows && x.cols) launch_overlapped(fours ? four : one, grid, TILE_THREADS, 0, stream, x, out);
}

void tri_cuda_widen(cudaStream_t stream, const tri_mat *x, float *out) {
  convert(stream, *x, out, widen_kernel<1>, widen_kernel<4>);
}

/* Sixteen elements of a weight for each thread. w [n, k] to out [n, k]. Grid n k / 4096, 256 threads. */
template <typename T>
__global__ __launch_bounds__(TILE_THREADS) static void widen_int8_kernel(const int8_t *w, const float *scale, int k,
                                                                         size_t count, T *out) {
  size_t at = ((size_t)blockIdx.x * TILE_THREADS + threadIdx.x) * piece<int8_t>::COUNT;
  let_next_begin();
  wait_for_previous(); /* which may still read what lies at out */
  if (at >= count) return;
  piece<int8_t> raw;
  raw.load(w + at);
  float factor = scale[at / (size_t)k];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float x[PIECE];
    raw.widen(half, x);
#pragma unroll
    for (int i = 0; i < PIECE; i += 4)
      store4(out + at + half * PIECE + i,
             make_float4(x[i] * factor, x[i + 1] * factor, x[i + 2] * factor, x[i + 3] * factor));
  }
}

void tri_cuda_widen_int8(cudaStream_t stream, const tri_weight *w, int first, int n, tri_dtype type, void *out) {
  const int8_t *from = (const int8_t *)w->data + (size_t)first * (size_t)w->k;
  size_t count = (size_t)n * (size_t)w->k;
  dim3 grid(blocks_for(count, TILE_THREADS * piece<int8_t>::COUNT));
  if (type == TRI_BF16)
    launch_overlapped(widen_int8_kernel<__nv_bfloat16>, grid, TILE_THREADS, 0, stream, from, w->scale + first, w->k,
                      count, (__nv_bfloat16 *)out);
  else
    launch_overlapped(widen_int8_kernel<__half>, grid, TILE_THREADS, 0, stream, from, w->scale + first, w->k, count,
                      (__half *)out);
}

void tri_cuda_narrow(cudaStream_t stream, const tri_mat *x, tri_dtype dtype, void *out) {
  if (dtype == TRI_BF16)
    convert(stream, *x, (__nv_bfloat16 *)out, round_kernel<__nv_bfloat16, 1>, round_kernel<__nv_bfloat16, 4>);
  else
    convert(stream, *x, (__half *)out, round_kernel<__half, 1>, round_kernel<__half, 4>);
}

/* Bias and activation of sums that are in their place. out [M, n]. Grid M, 256 threads. */
__global__ static void epilogue_kernel(tri_linear_args a) {
  for (int j = threadIdx.x; j < a.out.cols; j += blockDim.x) {
    float x = load_at(a.out, blockIdx.x, (size_t)j) + (a.bias ? a.bias[j] : 0);
    store_at(a.out, blockIdx.x, (size_t)j, a.act == TRI_ACT_NONE ? x : act_of(a.act, x));
  }
}

/* Does the same as epilogue_kernel, four elements at a time. out [M, n]. Grid (M, n / 1024), 256 threads. */
template <typename T> __global__ __launch_bounds__(TILE_THREADS) static void epilogue_by_four(tri_linear_args a) {
  let_next_begin();
  int j = 4 * (int)(blockIdx.y * TILE_THREADS + threadIdx.x);
  if (j >= a.out.cols) return;
  float4 b = a.bias ? __ldg((const float4 *)(a.bias + j)) : make_float4(0, 0, 0, 0);
  wait_for_previous();
  T *at = row_of<T>(a.out, blockIdx.x) + j;
  float4 x = load4(at);
  x.x += b.x;
  x.y += b.y;
  x.z += b.z;
  x.w += b.w;
  if (a.act != TRI_ACT_NONE)
    x = make_float4(act_of(a.act, x.x), act_of(a.act, x.y), act_of(a.act, x.z), act_of(a.act, x.w));
  store4(at, x);
}

void tri_cuda_epilogue(cudaStream_t stream, const tri_linear_args *a) {
  dim3 grid((unsigned)a->out.rows, blocks_for((size_t)a->out.cols, 4 * TILE_THREADS));
  if (!a->bias && a->act == TRI_ACT_NONE) return;
  if (!in_fours(a->out) || (uintptr_t)a->bias % 16)
    epilogue_kernel<<<a->out.rows, TILE_THREADS, 0, stream>>>(*a);
  else if (a->out.dtype == TRI_BF16)
    launch_overlapped(epilogue_by_four<__nv_bfloat16>, grid, TILE_THREADS, 0, stream, *a);
  else if (a->out.dtype == TRI_F16)
    launch_overlapped(epilogue_by_four<__half>, grid, TILE_THREADS, 0, stream, *a);
  else
    launch_overlapped(epilogue_by_four<float>, grid, TILE_THREADS, 0, stream, *a);
}
