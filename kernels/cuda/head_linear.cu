/* Products of their own for each head. Weights of 16 bits are the left operand of tensor-core products: a warp has 16
 * of their rows, which are a head's, and up to 32 tokens for which it reads them once. The first of them are on their
 * way before the kernel in front has made x. Others get a warp for each output. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/moe_fragments.cuh"

enum { WARPS = 8, THREADS = WARPS * WARP, TILE = 16, AHEAD = 4 };

/* A product for each head, a warp for each output. x [T, heads * x_stride], w [heads * n, k], out [T, heads *
 * out_stride]. Grid (T, heads * n / 8), 256 threads. */
__global__ static void any_kernel(tri_head_linear_args a) {
  int n = a.w.n / a.num_heads, t = blockIdx.x, lane = threadIdx.x % WARP;
  int row = blockIdx.y * WARPS + threadIdx.x / WARP;
  if (row >= a.w.n) return;
  const float *x = row_at(a.x, t) + (size_t)(row / n) * (size_t)a.x_stride;
  float sum = 0;
  for (int i = lane; i < a.w.k; i += WARP) sum += x[i] * weight_at(&a.w, (size_t)row, (size_t)i);
  sum = warp_sum(sum);
  if (!lane) store_at(a.out, t, (size_t)(row / n) * (size_t)a.out_stride + (size_t)(row % n), sum);
}

/* 16 rows of w for each warp, 8 NT tokens for each block. x [T, heads * x_stride], w [heads * n, k], out [T, heads *
 * out_stride]. Grid (heads * n / 128, T / (8 NT)), 256 threads. */
template <typename W, int NT> __global__ __launch_bounds__(THREADS, 2) static void tile_kernel(tri_head_linear_args a) {
  int lane = threadIdx.x % WARP, n = a.w.n / a.num_heads, row = (blockIdx.x * WARPS + (int)threadIdx.x / WARP) * TILE;
  int head = row / n, k = a.w.k, stages = k * (int)sizeof(W) / STAGE_BYTES, first = blockIdx.y * 8 * NT;
  let_next_begin();
  if (row >= a.w.n) return;
  const char *low = (const char *)((const W *)a.w.data + (size_t)(row + lane / 4) * (size_t)k) + lane % 4 * LANE_BYTES;
  const char *high = low + 8 * (size_t)k * sizeof(W);
  raw_weights ring[AHEAD];
  float c[NT][4] = {};
  const float *x[NT];
#pragma unroll
  for (int u = 0; u < AHEAD; u++)
    if (u < stages) ring[u].load(low + u * STAGE_BYTES, high + u * STAGE_BYTES);
#pragma unroll
  for (int t = 0; t < NT; t++)
    x[t] = row_at(a.x, min(first + 8 * t + lane / 4, a.x.rows - 1)) + (size_t)head * (size_t)a.x_stride + lane % 4 * 8;
  wait_for_previous();
  for (int stage = 0; stage < stages; stage += AHEAD)
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      int now = stage + u, next = now + AHEAD;
      activations<W, float> f[NT];
      if (now >= stages) break;
#pragma unroll
      for (int t = 0; t < NT; t++) f[t].load(x[t] + now * 32);
      weight_fragments<W> w(ring[u]);
#pragma unroll
      for (int t = 0; t < NT; t++) f[t].multiply(c[t], w);
      if (next < stages) ring[u].load(low + next * STAGE_BYTES, high + next * STAGE_BYTES);
    }
#pragma unroll
  for (int i = 0; i < 4 * NT; i++) {
    int t = first + i / 4 * 8 + lane % 4 * 2 + i % 2, j = row % n + lane / 4 + i % 4 / 2 * 8;
    if (t < a.x.rows) store_at(a.out, t, (size_t)head * (size_t)a.out_stride + (size_t)j, c[i / 4][i % 4]);
  }
}

template <typename W, int NT> static void tiles(cudaStream_t stream, const tri_head_linear_args &a) {
  dim3 grid(blocks_for((size_t)a.w.n, WARPS * TILE), blocks_for((size_t)a.x.rows, 8 * NT));
  launch_overlapped(tile_kernel<W, NT>, grid, THREADS, 0, stream, a);
}

template <typename W> static void tiles_of_tokens(cudaStream_t stream, const tri_head_linear_args &a) {
  if (a.x.rows <= 8)
    tiles<W, 1>(stream, a);
  else if (a.x.rows <= 16)
    tiles<W, 2>(stream, a);
  else
    tiles<W, 4>(stream, a);
}

static bool fits_tiles(const tri_head_linear_args &a) {
  bool types = a.w.dtype == TRI_F16 || a.w.dtype == TRI_BF16;
  return types && a.w.n / a.num_heads % TILE == 0 && a.w.k % 32 == 0 && a.w.k && a.x_stride % 4 == 0 &&
         a.x.ld % 4 == 0 && ((uintptr_t)a.x.data | (uintptr_t)a.w.data) % LANE_BYTES == 0;
}

void tri_cuda_head_linear(cudaStream_t stream, const tri_head_linear_args *a, void *) {
  dim3 grid(a->x.rows, blocks_for((size_t)a->w.n, WARPS));
  if (!a->x.rows || !a->w.n) return;
  if (!fits_tiles(*a))
    any_kernel<<<grid, THREADS, 0, stream>>>(*a);
  else if (a->w.dtype == TRI_BF16)
    tiles_of_tokens<__nv_bfloat16>(stream, *a);
  else
    tiles_of_tokens<__half>(stream, *a);
}
