/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of activations in 8 bits, for GEMMs of more rows than round them on the way (gemm_few_rows.cuh). */
#include "kernels/cuda/linear/group_scale.cuh"

enum { ROUND_WARPS = 8, ROUND_THREADS = ROUND_WARPS * WARP, FOUR = 4 };

/* The largest of four magnitudes and top, as magnitude_bits has them. */
__device__ static inline uint32_t top_of_four(const float (&v)[FOUR], uint32_t top) {
#pragma unroll
  for (int i = 0; i < FOUR; i++) top = max(top, magnitude_bits(v[i]));
  return top;
}

/* Elements j .. j + 3 of a row, those beyond its end as zeros. fours: rows may be read so. */
__device__ static inline void load_four(const tri_mat &x, int row, int j, bool fours, float (&v)[FOUR]) {
  int left = x.cols - j;
  float4 f = fours && left > 0 ? load4_at(x, row, j) : make_float4(0, 0, 0, 0);
  v[0] = f.x;
  v[1] = f.y;
  v[2] = f.z;
  v[3] = f.w;
#pragma unroll
  for (int i = 0; i < FOUR; i++)
    if (!fours && i < left) v[i] = load_at(x, row, (size_t)(j + i));
}
__device__ static inline void store_four(const tri_mat &x, int row, int j, bool fours, uint32_t four, uint8_t *q) {
  uint8_t *to = q + (size_t)row * (size_t)x.cols + (size_t)j;
  int left = x.cols - j;
  if (fours && left > 0) *(uint32_t *)to = four;
#pragma unroll
  for (int i = 0; i < FOUR; i++)
    if (!fours && i < left) to[i] = (uint8_t)(four >> 8 * i);
}

/* A warp rounds a group of a row; a lane has four elements of it. x [rows, k] to q [TERMS, rows, k] and scales [groups,
 * ld]. fours: rows of x may be read and those of q written so. Grid: groups of all rows / 8; 256 threads. */
template <typename Q, int TERMS>
__global__ __launch_bounds__(ROUND_THREADS) static void round_groups_kernel(tri_mat x, uint8_t *q, float *scales,
                                                                            int ld, int groups, bool fours) {
  int lane = threadIdx.x % WARP;
  int item = (int)blockIdx.x * ROUND_WARPS + (int)threadIdx.x / WARP, row = item / groups, group = item % groups;
  int j = group * TRI_INT8_GROUP + lane * FOUR;
  let_next_begin();
  wait_for_previous();
  if (row >= x.rows) return;
  float v[FOUR];
  load_four(x, row, j, fours, v);
  uint32_t top = __reduce_max_sync(ALL_LANES, top_of_four(v, 0));
  float factor = factor_of_group<Q>(top);
  uint32_t four = rounding<Q>::four(v, factor);
  if (!lane) scales[(size_t)group * (size_t)ld + (size_t)row] = scale_of_group<Q>(top);
  store_four(x, row, j, fours, four, q);
  if (TERMS > 1) store_four(x, x.rows + row, j, fours, second_of_four<Q>(v, factor, four), q);
}

/* A block rounds a row, with one scale that all its groups get. Grid rows; 256 threads. */
template <typename Q>
__global__ __launch_bounds__(ROUND_THREADS) static void round_rows_kernel(tri_mat x, uint8_t *q, float *scales, int ld,
                                                                          int groups, bool fours) {
  __shared__ uint32_t tops[ROUND_WARPS];
  int row = blockIdx.x, lane = threadIdx.x % WARP;
  uint32_t top = 0;
  float v[FOUR];
  let_next_begin();
  wait_for_previous();
  for (int j = threadIdx.x * FOUR; j < x.cols; j += ROUND_THREADS * FOUR) {
    load_four(x, row, j, fours, v);
    top = top_of_four(v, top);
  }
  top = __reduce_max_sync(ALL_LANES, top);
  if (!lane) tops[threadIdx.x / WARP] = top;
  __syncthreads();
  top = __reduce_max_sync(ALL_LANES, tops[lane % ROUND_WARPS]);
  float factor = factor_of_group<Q>(top);
  for (int j = threadIdx.x * FOUR; j < x.cols; j += ROUND_THREADS * FOUR) {
    load_four(x, row, j, fours, v);
    store_four(x, row, j, fours, rounding<Q>::four(v, factor), q);
  }
  for (int group = threadIdx.x; group < groups; group += ROUND_THREADS)
    scales[(size_t)group * (size_t)ld + (size_t)row] = scale_of_group<Q>(top);
}

/* ---- rows of experts ---- */

/* Pieces of a token's row go to all rows of the map that it has: read and rounded once. */
enum { EIGHT = 8, ROUND_AT_ONCE = ROUND_THREADS * EIGHT, LANES_OF_GROUP = (int)TRI_INT8_GROUP / EIGHT };

__device__ static inline void load_eight(const tri_mat &x, int row, int j, float (&v)[EIGHT]) {
  bool there = j < x.cols;
  float4 low = there ? load4_at(x, row, j) : make_float4(0, 0, 0, 0);
  float4 high = there ? load4_at(x, row, j + FOUR) : make_float4(0, 0, 0, 0);
  const float all[EIGHT] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < EIGHT; i++) v[i] = all[i];
}
__device__ static inline uint32_t top_of_eight(const float (&v)[EIGHT], uint32_t top) {
#pragma unroll
  for (int i = 0; i < EIGHT; i++) top = max(top, magnitude_bits(v[i]));
  return top;
}

/* The largest magnitude of a row, for all threads of the block. */
__device__ static inline uint32_t top_of_row(const tri_mat &x, int row) {
  __shared__ uint32_t tops[ROUND_WARPS];
  uint32_t top = 0;
  float v[EIGHT];
  for (int j = threadIdx.x * EIGHT; j < x.cols; j += ROUND_AT_ONCE) {
    load_eight(x, row, j, v);
    top = top_of_eight(v, top);
  }
  top = __reduce_max_sync(ALL_LANES, top);
  if (threadIdx.x % WARP == 0) tops[threadIdx.x / WARP] = top;
  __syncthreads();
  return __reduce_max_sync(ALL_LANES, tops[threadIdx.x % ROUND_WARPS]);
}

/* A block rounds a token's row, whose length is a multiple of 16, for the rows of the map. GROUPED: with a scale for
 * each group, else with one. of_token: [tokens, top_k] of the map. Grid: tokens; 256 threads. */
template <typename Q, bool GROUPED>
__global__ __launch_bounds__(ROUND_THREADS) static void round_choices_kernel(tri_mat x, const int32_t *of_token,
                                                                             int top_k, uint8_t *q, float *scales,
                                                                             int ld) {
  int token = blockIdx.x;
  let_next_begin();
  wait_for_previous();
  uint32_t top = GROUPED ? 0 : top_of_row(x, token);
  for (int j0 = 0; j0 < x.cols; j0 += ROUND_AT_ONCE) {
    int j = j0 + (int)threadIdx.x * EIGHT;
    float v[EIGHT];
    load_eight(x, token, j, v);
    if (GROUPED) {
      top = top_of_eight(v, 0);
#pragma unroll
      for (int o = LANES_OF_GROUP / 2; o > 0; o /= 2) top = max(top, __shfl_xor_sync(ALL_LANES, top, o));
    }
    float factor = factor_of_group<Q>(top), scale = scale_of_group<Q>(top);
    uint2 codes = make_uint2(rounding<Q>::four(v, factor), rounding<Q>::four(v + FOUR, factor));
    if (j >= x.cols) continue;
    for (int c = 0; c < top_k; c++) {
      int row = __ldg(of_token + (size_t)token * (size_t)top_k + (size_t)c);
      if (row < 0) continue;
      *(uint2 *)(q + (size_t)row * (size_t)x.cols + (size_t)j) = codes;
      if (j % TRI_INT8_GROUP == 0) scales[(size_t)(j / TRI_INT8_GROUP) * (size_t)ld + (size_t)row] = scale;
    }
  }
}

/* ---- launches ---- */

/* After the elements, in bytes that keep what follows them aligned. */
static size_t scales_at(int rows, int k) { return ((size_t)rows * (size_t)k + 255) & ~(size_t)255; }
static int scale_line(int rows) { return (rows + FOUR - 1) / FOUR * FOUR; }

static size_t bytes_of(int rows, int k, int terms) {
  size_t scales = (size_t)tri_int8_groups(k) * (size_t)scale_line(rows) * sizeof(float);
  return (scales_at(terms * rows, k) + scales + 255) & ~(size_t)255;
}
size_t tri_cuda_rounded_bytes(int rows, int k) { return bytes_of(rows, k, 1); }
size_t tri_cuda_two_terms_bytes(int rows, int k) { return bytes_of(rows, k, 2); }

tri_cuda_rounded tri_cuda_rounded_at(int rows, int k, void *workspace) {
  uint8_t *q = (uint8_t *)workspace;
  return {q, (const float *)(q + scales_at(rows, k)), scale_line(rows)};
}

tri_cuda_rounded tri_cuda_two_terms(cudaStream_t stream, tri_mat x, const tri_weight *w, void *workspace) {
  uint8_t *q = (uint8_t *)workspace;
  float *scales = (float *)(q + scales_at(2 * x.rows, x.cols));
  int groups = tri_int8_groups(x.cols), ld = scale_line(x.rows);
  dim3 items(blocks_for((size_t)x.rows * (size_t)groups, ROUND_WARPS));
  bool fours = in_fours(x);
  if (x.rows && groups && w->dtype == TRI_I8)
    launch_overlapped(round_groups_kernel<int8_t, 2>, items, ROUND_THREADS, 0, stream, x, q, scales, ld, groups, fours);
  else if (x.rows && groups)
    launch_overlapped(round_groups_kernel<e4m3, 2>, items, ROUND_THREADS, 0, stream, x, q, scales, ld, groups, fours);
  return {q, scales, ld};
}

tri_cuda_rounded tri_cuda_round(cudaStream_t stream, tri_mat x, const tri_weight *w, void *workspace) {
  uint8_t *q = (uint8_t *)workspace;
  float *scales = (float *)(q + scales_at(x.rows, x.cols));
  int groups = tri_int8_groups(x.cols), ld = scale_line(x.rows);
  bool fours = in_fours(x);
  dim3 items(blocks_for((size_t)x.rows * (size_t)groups, ROUND_WARPS)), rows((unsigned)x.rows);
  if (!x.rows || !groups) return {q, scales, ld};
  if (w->dtype == TRI_I8)
    launch_overlapped(round_groups_kernel<int8_t, 1>, items, ROUND_THREADS, 0, stream, x, q, scales, ld, groups, fours);
  else if (tri_weight_is_blocked(w))
    launch_overlapped(round_groups_kernel<e4m3, 1>, items, ROUND_THREADS, 0, stream, x, q, scales, ld, groups, fours);
  else
    launch_overlapped(round_rows_kernel<e4m3>, rows, ROUND_THREADS, 0, stream, x, q, scales, ld, groups, fours);
  return {q, scales, ld};
}

tri_cuda_rounded tri_cuda_round_choices(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace) {
  tri_cuda_rounded r = tri_cuda_rounded_at(a->x.rows * a->top_k, a->x.cols, workspace);
  uint8_t *q = (uint8_t *)workspace;
  float *scales = (float *)r.scales;
  const int32_t *of_token = a->map.row;
  dim3 tokens((unsigned)a->x.rows);
  if (a->up.dtype == TRI_I8)
    launch_overlapped(round_choices_kernel<int8_t, true>, tokens, ROUND_THREADS, 0, stream, a->x, of_token, a->top_k, q,
                      scales, r.ld);
  else if (tri_weight_is_blocked(&a->up))
    launch_overlapped(round_choices_kernel<e4m3, true>, tokens, ROUND_THREADS, 0, stream, a->x, of_token, a->top_k, q,
                      scales, r.ld);
  else
    launch_overlapped(round_choices_kernel<e4m3, false>, tokens, ROUND_THREADS, 0, stream, a->x, of_token, a->top_k, q,
                      scales, r.ld);
  return r;
}
