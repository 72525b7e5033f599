/* SPDX-License-Identifier: Apache-2.0 */
/* Residual and norm in one pass: a row's elements stay in the registers of its threads between the sum and the result,
 * so that each is read and written once. Everything that a thread reads is under way before it waits for any of it. */
#include "kernels/cuda/rows/row_parts.cuh"

/* Adds delta_scale * delta to x, which goes back to memory: this is normed. */
template <int FOURS>
__device__ static inline void add_part(part<FOURS> &x, const part<FOURS> &delta, float scale, float *row, int first,
                                       int threads, int n) {
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    int j = 4 * (first + i * threads);
    float4 &v = x.v[i], d = delta.v[i];
    v.x += scale * d.x;
    v.y += scale * d.y;
    v.z += scale * d.z;
    v.w += scale * d.w;
    if (j < n) store4(row + j, v);
  }
}

/* square_sums are of whole rows, for a rank that has only some of their columns. */
__device__ static inline float factor_of(const tri_norm_args &a, int t, float square) {
  return 1 / sqrtf((a.square_sums ? a.square_sums[t] / a.whole_cols : square / a.x.cols) + a.eps);
}

/* Weights and bias, which no kernel writes. */
__device__ static inline float4 gains_of(const tri_norm_args &a, int j) {
  if (!a.weight) return make_float4(1, 1, 1, 1);
  float4 w = __ldg((const float4 *)(a.weight + j));
  return make_float4(w.x + a.weight_offset, w.y + a.weight_offset, w.z + a.weight_offset, w.w + a.weight_offset);
}
__device__ static inline float4 bias_of(const tri_norm_args &a, int j) {
  return a.bias ? __ldg((const float4 *)(a.bias + j)) : make_float4(0, 0, 0, 0);
}

template <typename T>
__device__ static inline void put(const tri_norm_args &a, int t, int j, float4 v, float factor, float4 w, float4 b) {
  float4 y = make_float4(v.x * factor * w.x + b.x, v.y * factor * w.y + b.y, v.z * factor * w.z + b.z,
                         v.w * factor * w.w + b.w);
  store4(row_of<T>(a.out, t) + j, y);
  if (a.copy.data) store4_at(a.copy, t, j, y);
}

/* ---- a block has a row ---- */

/* Has a row of x and delta come to the second-level cache: since the previous layer wrote x, gigabytes of weights may
 * have gone through it. */
template <int THREADS, int FOURS> __device__ static inline void fetch_row_ahead(const tri_norm_args &a, int t) {
  enum { OF_LINE = 32, LINES = 4 * FOURS * THREADS / OF_LINE };
  int line = (int)threadIdx.x % LINES, at = line * OF_LINE;
  if (at >= a.x.cols) return;
  if ((int)threadIdx.x < LINES)
    prefetch_line(row_at(a.x, t) + at);
  else if ((int)threadIdx.x < 2 * LINES && a.delta.data)
    prefetch_line(row_at(a.delta, t) + at);
}

/* Norms one row with one block. x, delta, out and copy [T, n] with n up to 4 * FOURS * THREADS, out of type T and delta
 * of type D. EARLY: weights and bias come before the wait, and need registers until the end. Grid T, THREADS threads.
 * Shared memory: 64 floats. */
template <typename T, typename D, int THREADS, int FOURS, bool EARLY>
__global__ __launch_bounds__(THREADS) static void norm_kernel(tri_norm_args a) {
  __shared__ __align__(16) float sums[WARP], squares[WARP];
  int t = blockIdx.x, n = a.x.cols, first = (int)threadIdx.x;
  float4 gains[FOURS], bias[FOURS];
  let_next_begin();
#pragma unroll
  for (int i = 0; EARLY && i < FOURS; i++) {
    int j = min(4 * (first + i * THREADS), n - 4);
    gains[i] = gains_of(a, j);
    bias[i] = bias_of(a, j);
  }
  if (EARLY) fetch_row_ahead<THREADS, FOURS>(a, t);
  wait_for_previous();
  part<FOURS> x, delta;
  load_part(x, row_at(a.x, t), first, THREADS, n);
  if (a.delta.data) {
    load_part(delta, row_of<D>(a.delta, t), first, THREADS, n);
    add_part(x, delta, a.delta_scale, row_at(a.x, t), first, THREADS, n);
  }
  float mean = a.kind == TRI_NORM_LAYER ? sum_over_block<THREADS>(sum_of(x), sums) / n : 0;
  float factor = factor_of(a, t, sum_over_block<THREADS>(squares_of(x, mean, first, THREADS, n), squares));
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    int j = 4 * (first + i * THREADS);
    if (j < n) put<T>(a, t, j, x.v[i], factor, EARLY ? gains[i] : gains_of(a, j), EARLY ? bias[i] : bias_of(a, j));
  }
}

/* ---- a warp has ROWS short rows, whose sums it makes together (TurboTransformers, Fang et al. 2021): their shuffles
 * do not wait for one another, and no thread waits for another warp ---- */

enum { ROWS_THREADS = 128 };

template <int ROWS> __device__ static inline void warp_sums(float (&x)[ROWS]) {
#pragma unroll
  for (int o = WARP / 2; o; o /= 2)
#pragma unroll
    for (int r = 0; r < ROWS; r++) x[r] += __shfl_xor_sync(0xffffffffu, x[r], o);
}

/* Norms ROWS rows with each warp. x, delta, out and copy [T, n] with n up to 128 * FOURS, out of type T and delta of
 * type D. Grid T / (4 * ROWS), 128 threads, at least five blocks on a multiprocessor. */
template <typename T, typename D, int FOURS, int ROWS>
__global__ __launch_bounds__(ROWS_THREADS, 5) static void norm_rows_kernel(tri_norm_args a) {
  int lane = threadIdx.x % WARP, n = a.x.cols;
  int row0 = (int)(blockIdx.x * (ROWS_THREADS / WARP) + threadIdx.x / WARP) * ROWS;
  part<FOURS> x[ROWS], delta[ROWS];
  float mean[ROWS], square[ROWS];
  let_next_begin();
  wait_for_previous();
#pragma unroll
  for (int r = 0; r < ROWS; r++) load_part(x[r], row_at(a.x, row0 + r), lane, WARP, row0 + r < a.x.rows ? n : 0);
#pragma unroll
  for (int r = 0; r < ROWS && a.delta.data; r++)
    load_part(delta[r], row_of<D>(a.delta, row0 + r), lane, WARP, row0 + r < a.x.rows ? n : 0);
#pragma unroll
  for (int r = 0; r < ROWS && a.delta.data; r++)
    add_part(x[r], delta[r], a.delta_scale, row_at(a.x, row0 + r), lane, WARP, row0 + r < a.x.rows ? n : 0);
#pragma unroll
  for (int r = 0; r < ROWS; r++) mean[r] = a.kind == TRI_NORM_LAYER ? sum_of(x[r]) : 0;
  if (a.kind == TRI_NORM_LAYER) warp_sums(mean);
#pragma unroll
  for (int r = 0; r < ROWS; r++) square[r] = squares_of(x[r], mean[r] /= n, lane, WARP, n);
  warp_sums(square);
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    if (row0 + r < a.x.rows) square[r] = factor_of(a, row0 + r, square[r]);
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    int j = 4 * (lane + i * WARP);
    if (j >= n) continue;
    float4 gains = gains_of(a, j), bias = bias_of(a, j);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (row0 + r < a.x.rows) put<T>(a, row0 + r, j, x[r].v[i], square[r], gains, bias);
  }
}

/* ---- additions without a norm ---- */

enum { ADD_THREADS = 256 };
/* Adds delta, of type D, to x. x and delta [T, n]. Grid (T, n / 1024), 256 threads. */
template <typename D> __global__ __launch_bounds__(ADD_THREADS) static void add_kernel(tri_norm_args a) {
  int t = blockIdx.x, first = (int)(blockIdx.y * ADD_THREADS + threadIdx.x), n = a.x.cols;
  part<1> x, delta;
  let_next_begin();
  wait_for_previous();
  load_part(x, row_at(a.x, t), first, 0, n);
  load_part(delta, row_of<D>(a.delta, t), first, 0, n);
  add_part(x, delta, a.delta_scale, row_at(a.x, t), first, 0, n);
}

/* ---- rows of any kind ---- */

enum { ANY_THREADS = 512 };
/* Norms a row of any length and alignment, read again where it is needed again; without out only the sum. x, delta, out
 * and copy [T, n]. Grid T, 512 threads. Shared memory: 32 floats. */
__global__ static void any_norm_kernel(tri_norm_args a) {
  __shared__ float room[WARP];
  int t = blockIdx.x, n = a.x.cols;
  float *x = row_at(a.x, t), sum = 0, square = 0, mean = 0;
  let_next_begin();
  wait_for_previous();
  for (int j = threadIdx.x; j < n; j += ANY_THREADS) {
    float v = x[j];
    if (a.delta.data) x[j] = v += a.delta_scale * load_at(a.delta, t, (size_t)j);
    sum += v;
  }
  if (!a.out.data) return;
  if (a.kind == TRI_NORM_LAYER) mean = block_sum(sum, room) / n;
  for (int j = threadIdx.x; j < n; j += ANY_THREADS) square += (x[j] - mean) * (x[j] - mean);
  square = block_sum(square, room);
  float factor = 1 / sqrtf((a.square_sums ? a.square_sums[t] / a.whole_cols : square / n) + a.eps);
  for (int j = threadIdx.x; j < n; j += ANY_THREADS) {
    float gain = a.weight ? a.weight[j] + a.weight_offset : 1, y = (x[j] - mean) * factor * gain;
    if (a.bias) y += a.bias[j];
    store_at(a.out, t, (size_t)j, y);
    if (a.copy.data) store_at(a.copy, t, (size_t)j, y);
  }
}

/* ---- which one ---- */

template <typename T, typename D, int THREADS, int FOURS, bool EARLY>
static void by_block(cudaStream_t stream, const tri_norm_args &a) {
  launch_overlapped(norm_kernel<T, D, THREADS, FOURS, EARLY>, dim3(a.x.rows), THREADS, 0, stream, a);
}
template <typename T, typename D, int FOURS> static void by_warp(cudaStream_t stream, const tri_norm_args &a) {
  constexpr int ROWS = 8 / FOURS;
  dim3 grid(blocks_for((size_t)a.x.rows, ROWS_THREADS / WARP * ROWS));
  launch_overlapped(norm_rows_kernel<T, D, FOURS, ROWS>, grid, ROWS_THREADS, 0, stream, a);
}

template <typename T> static void norm_few_rows(cudaStream_t stream, const tri_norm_args &a) {
  if (a.x.cols <= 1024)
    by_block<T, float, 256, 1, true>(stream, a);
  else if (a.x.cols <= 4096)
    by_block<T, float, 512, 2, true>(stream, a);
  else if (a.x.cols <= 8192)
    by_block<T, float, 512, 4, true>(stream, a);
  else
    by_block<T, float, 1024, 4, false>(stream, a);
}

template <typename T, typename D> static void norm_short_rows(cudaStream_t stream, const tri_norm_args &a) {
  if (a.x.cols <= 128)
    by_warp<T, D, 1>(stream, a);
  else if (a.x.cols <= 256)
    by_warp<T, D, 2>(stream, a);
  else if (a.x.cols <= 512)
    by_warp<T, D, 4>(stream, a);
  else
    by_warp<T, D, 8>(stream, a);
}

template <typename T, typename D> static void norm_long_rows(cudaStream_t stream, const tri_norm_args &a) {
  if (a.x.cols <= 2048)
    by_block<T, D, 256, 2, false>(stream, a);
  else if (a.x.cols <= 4096)
    by_block<T, D, 256, 4, false>(stream, a);
  else if (a.x.cols <= 8192)
    by_block<T, D, 512, 4, false>(stream, a);
  else
    by_block<T, D, 1024, 4, false>(stream, a);
}

template <typename T, typename D> static void norm_many_rows(cudaStream_t stream, const tri_norm_args &a) {
  if (a.x.cols <= 1024)
    norm_short_rows<T, D>(stream, a);
  else
    norm_long_rows<T, D>(stream, a);
}

/* A few rows want many threads, for their latency; many rows want many elements in each, for their number. Steps of few
 * rows have no delta of 16 bits. */
template <typename T> static bool norm_of_type(cudaStream_t stream, const tri_norm_args &a) {
  enum { FEW_ROWS = 128 };
  if (a.x.cols > 16384) return false;
  if (a.delta.data && a.delta.dtype == TRI_BF16)
    norm_many_rows<T, __nv_bfloat16>(stream, a);
  else if (a.x.rows <= FEW_ROWS)
    norm_few_rows<T>(stream, a);
  else
    norm_many_rows<T, float>(stream, a);
  return true;
}

/* Takes what has an `out`. */
static bool norm_by_four(cudaStream_t stream, const tri_norm_args &a) {
  bool fours = in_fours(a.x) && in_fours(a.out) && (!a.delta.data || in_fours(a.delta)) &&
               (!a.copy.data || in_fours(a.copy)) && is_aligned(a.weight) && is_aligned(a.bias);
  if (!fours || (a.delta.data && a.delta.dtype == TRI_F16)) return false;
  switch (a.out.dtype) {
  case TRI_BF16: return norm_of_type<__nv_bfloat16>(stream, a);
  case TRI_F16: return norm_of_type<__half>(stream, a);
  default: return norm_of_type<float>(stream, a);
  }
}

static bool add_by_four(cudaStream_t stream, const tri_norm_args &a) {
  dim3 grid(a.x.rows, blocks_for((size_t)a.x.cols, 4 * ADD_THREADS));
  if (!in_fours(a.x) || !in_fours(a.delta) || a.delta.dtype == TRI_F16) return false;
  if (a.delta.dtype == TRI_BF16)
    launch_overlapped(add_kernel<__nv_bfloat16>, grid, ADD_THREADS, 0, stream, a);
  else
    launch_overlapped(add_kernel<float>, grid, ADD_THREADS, 0, stream, a);
  return true;
}

void tri_cuda_norm(cudaStream_t stream, const tri_norm_args *a, void *) {
  if (!a->x.rows || !a->x.cols || (!a->out.data && !a->delta.data)) return;
  bool done = a->out.data ? norm_by_four(stream, *a) : add_by_four(stream, *a);
  if (!done) launch_overlapped(any_norm_kernel, dim3(a->x.rows), ANY_THREADS, 0, stream, *a);
}
