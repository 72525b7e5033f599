/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of each token's choices, of what an experts' second GEMM has stored for the map's rows: where its own blocks
 * do not add it up (moe/combine.cuh). A choice is one row, or, of few tokens, the sum of several parts. Each token is
 * read by blocks of its own, which have the loads of BATCH choices under way at a time and add them in their order. */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/moe/moe.h"

enum { THREADS = 128, WIDTH = 4, BATCH = 8, LISTED = 64, WARPS = 8, OF_WARP = WARP * WIDTH };

/* Some of a token's choices: their rows, or -1, and their weights. */
struct choices {
  int row[LISTED];
  float weight[LISTED];
};

/* Lists a token's choices from `first` on. By all threads. Returns how many there are. */
__device__ static inline int list_choices(const tri_moe_experts_args &a, int token, int first, choices &list) {
  int n = min(a.top_k - first, (int)LISTED);
  size_t at = (size_t)token * (size_t)a.top_k + (size_t)first;
  if ((int)threadIdx.x < n) {
    list.row[threadIdx.x] = __ldcg(a.map.row + at + threadIdx.x);
    list.weight[threadIdx.x] = __ldcg(a.weights + at + threadIdx.x);
  }
  __syncthreads();
  return n;
}

__device__ static inline float4 add(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ static inline float4 add_times(float4 a, float w, float4 b) {
  return make_float4(a.x + w * b.x, a.y + w * b.y, a.z + w * b.z, a.w + w * b.w);
}

/* Adds the n listed choices, each times its weight, in their order. from: row 0; line: elements of a row. */
template <typename P>
__device__ static inline float4 add_choices(const choices &list, int n, const P *from, size_t line, float4 sum) {
  for (int c0 = 0; c0 < n; c0 += BATCH) {
    float4 x[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      if (c0 + i < n && list.row[c0 + i] >= 0) x[i] = load4(from + (size_t)list.row[c0 + i] * line);
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      if (c0 + i < n && list.row[c0 + i] >= 0) sum = add_times(sum, list.weight[c0 + i], x[i]);
  }
  return sum;
}

/* rows [T * top_k, H], those of the map; out [T, H]. Grid (T, H / 512), 128 threads of four elements each. The choices
 * are read before the previous kernel has ended, as that read the map before the first GEMM had. */
template <typename P>
__global__ __launch_bounds__(THREADS) static void sum_kernel(const __grid_constant__ tri_moe_experts_args a,
                                                             const P *rows) {
  __shared__ choices list;
  int t = blockIdx.x, h = a.x.cols, at = (int)(blockIdx.y * THREADS + threadIdx.x) * WIDTH;
  float4 sum = make_float4(0, 0, 0, 0);
  let_next_begin();
  for (int first = 0; first < a.top_k; first += LISTED) {
    int n = list_choices(a, t, first, list);
    if (!first) wait_for_previous();
    if (!first && a.accumulate && at < h) sum = load4_at(a.out, t, at);
    if (at < h) sum = add_choices(list, n, rows + at, (size_t)h, sum);
    __syncthreads();
  }
  if (at < h) store4_at(a.out, t, at, sum);
}

/* ---- parts ---- */

/* Adds the parts of a choice in their order. They are loaded together: few tokens wait for nothing else. */
__device__ static inline float4 add_parts(const float *from, int splits, size_t stride) {
  float4 sum = make_float4(0, 0, 0, 0);
  for (int s0 = 0; s0 < splits; s0 += BATCH) {
    float4 x[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      if (s0 + i < splits) x[i] = load4(from + (size_t)(s0 + i) * stride);
#pragma unroll
    for (int i = 0; i < BATCH; i++)
      if (s0 + i < splits) sum = s0 + i ? add(sum, x[i]) : x[i];
  }
  return sum;
}

/* The same with parts [splits, T * top_k, H] of sums, a warp for each choice. Grid (T, H / 128), 256 threads. Shared
 * memory: eight choices. */
__global__ __launch_bounds__(WARPS *WARP) static void sum_parts_kernel(const __grid_constant__ tri_moe_experts_args a,
                                                                       const float *parts, int splits) {
  __shared__ choices list;
  __shared__ float4 x[WARPS][WARP];
  int t = blockIdx.x, h = a.x.cols, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
  int at = (int)blockIdx.y * OF_WARP + lane * WIDTH;
  size_t stride = (size_t)a.x.rows * (size_t)a.top_k * (size_t)h;
  bool adds = !warp && at < h;
  float4 sum = make_float4(0, 0, 0, 0);
  let_next_begin();
  for (int first = 0; first < a.top_k; first += LISTED) {
    int n = list_choices(a, t, first, list);
    if (!first) wait_for_previous();
    if (!first && a.accumulate && adds) sum = load4_at(a.out, t, at);
    for (int c0 = 0; c0 < n; c0 += WARPS) {
      int c = c0 + warp, row = c < n ? list.row[c] : -1;
      if (row >= 0 && at < h) x[warp][lane] = add_parts(parts + (size_t)row * (size_t)h + at, splits, stride);
      __syncthreads();
      for (int i = c0; adds && i < min(n, c0 + (int)WARPS); i++)
        if (list.row[i] >= 0) sum = add_times(sum, list.weight[i], x[i - c0][lane]);
      __syncthreads();
    }
  }
  if (adds) store4_at(a.out, t, at, sum);
}

/* ---- launches ---- */

template <typename P> static void launch(cudaStream_t stream, const tri_moe_experts_args *a, const void *rows) {
  dim3 grid((unsigned)a->x.rows, blocks_for((size_t)a->x.cols, THREADS * WIDTH));
  launch_overlapped(sum_kernel<P>, grid, THREADS, 0, stream, *a, (const P *)rows);
}

void tri_cuda_moe_sum(cudaStream_t stream, const tri_moe_experts_args *a, const void *parts, tri_dtype type,
                      int splits) {
  dim3 grid((unsigned)a->x.rows, blocks_for((size_t)a->x.cols, OF_WARP));
  if (splits > 1)
    launch_overlapped(sum_parts_kernel, grid, WARPS * WARP, 0, stream, *a, (const float *)parts, splits);
  else if (type == TRI_BF16)
    launch<__nv_bfloat16>(stream, a, parts);
  else if (type == TRI_F16)
    launch<__half>(stream, a, parts);
  else
    launch<float>(stream, a, parts);
}
