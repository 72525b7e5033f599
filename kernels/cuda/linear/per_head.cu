/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of their own for each head. Weights of 16 bits are the left operand of tensor-core MMAs: a warp has 16
 * of their rows, which are a head's, and up to 32 tokens for which it reads them once. The first of them are on their
 * way before the previous kernel has made x, which has the weights' type or is rounded to it. Others get a warp for
 * each output.
 *
 * Where the rows of w fill no device, k is cut into sections, whose sums are added up in their order: as many as the
 * weights ask for, so that a token's result is the same in any batch. Few tokens have a warp for each section, and what
 * the warps have meets in shared memory; with many a warp has all of them, one after the other. */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/moe/fragments.cuh"

enum { WARPS = 8, THREADS = WARPS * WARP, TILE = 16, AHEAD = 4 };
enum { ENOUGH = 128 }; /* blocks with which a device is busy */

/* A GEMM for each head, a warp for each output. x [T, heads * x_stride], w [heads * n, k], out [T, heads *
 * out_stride]. Grid (T, heads * n / 8), 256 threads. */
__global__ static void any_kernel(tri_head_linear_args a) {
  int n = a.w.n / a.num_heads, t = blockIdx.x, lane = threadIdx.x % WARP;
  int row = blockIdx.y * WARPS + threadIdx.x / WARP;
  if (row >= a.w.n) return;
  size_t from = (size_t)(row / n) * (size_t)a.x_stride;
  float sum = 0;
  for (int i = lane; i < a.w.k; i += WARP)
    sum += load_at(a.x, t, from + (size_t)i) * weight_at(&a.w, (size_t)row, (size_t)i);
  sum = warp_sum(sum);
  if (!lane) store_at(a.out, t, (size_t)(row / n) * (size_t)a.out_stride + (size_t)(row % n), sum);
}

/* A warp's rows of weights and its section of k, in stages (moe/fragments.cuh). */
struct section {
  int row, first, last; /* row: the first of 16; stages first .. last - 1 */
};

/* The weights of the first stages, which no kernel writes. */
template <typename W>
__device__ static inline void begin_weights(raw_weights (&ring)[AHEAD], const char *low, const char *high,
                                            const section &s) {
#pragma unroll
  for (int u = 0; u < AHEAD; u++)
    if (s.first + u < s.last) ring[u].load(low + (s.first + u) * STAGE_BYTES, high + (s.first + u) * STAGE_BYTES);
}

/* Adds what the warp has to the sum of the sections so far, and begins the next one with zeros. */
template <int NT> __device__ static inline void close_section(float (&sum)[NT][4], float (&c)[NT][4]) {
#pragma unroll
  for (int i = 0; i < 4 * NT; i++) {
    sum[i / 4][i % 4] += c[i / 4][i % 4];
    c[i / 4][i % 4] = 0;
  }
}

/* The GEMMs of a warp's stages, in one section (APART) or in sections that end after every `each` of them. x: the
 * lane's place in each of NT rows. Few tokens leave registers for more than one stage of them at a time. */
template <typename W, typename X, int NT, bool APART>
__device__ static inline void multiply_stages(float (&sum)[NT][4], raw_weights (&ring)[AHEAD], const X *(&x)[NT],
                                              const char *low, const char *high, const section &s, int each) {
  constexpr int TOGETHER = AHEAD / NT;
  float c[NT][4] = {};
  int end = s.first + each;
  for (int stage = s.first; stage < s.last; stage += AHEAD)
#pragma unroll
    for (int u = 0; u < AHEAD; u += TOGETHER) {
      activations<W, X> f[TOGETHER][NT];
#pragma unroll
      for (int i = 0; i < TOGETHER * NT; i++)
        if (stage + u + i / NT < s.last) f[i / NT][i % NT].load(x[i % NT] + (stage + u + i / NT) * 32);
#pragma unroll
      for (int v = 0; v < TOGETHER; v++) {
        int now = stage + u + v, next = now + AHEAD;
        if (now >= s.last) break;
        weight_fragments<W> w(ring[u + v]);
#pragma unroll
        for (int t = 0; t < NT; t++) f[v][t].multiply(APART ? sum[t] : c[t], w);
        if (next < s.last) ring[u + v].load(low + next * STAGE_BYTES, high + next * STAGE_BYTES);
        if (!APART && now + 1 == end) {
          close_section(sum, c);
          end += each;
        }
      }
    }
}

/* Stores element `lane` of the i-th of a lane's sums. */
__device__ static inline void put(const tri_head_linear_args &a, int row, int first, int i, int lane, float x) {
  int n = a.w.n / a.num_heads, t = first + i / 4 * 8 + lane % 4 * 2 + i % 2, j = row % n + lane / 4 + i % 4 / 2 * 8;
  if (t < a.x.rows) store_at(a.out, t, (size_t)(row / n) * (size_t)a.out_stride + (size_t)j, x);
}

template <int NT>
__device__ static inline void put_all(const tri_head_linear_args &a, int row, int first, int lane,
                                      const float (&sum)[NT][4]) {
#pragma unroll
  for (int i = 0; i < 4 * NT; i++) put(a, row, first, i, lane, sum[i / 4][i % 4]);
}

/* The sums of a tile's sections, by the warps that have them. room: of each warp, [4 NT][32]. */
template <int NT>
__device__ static inline void meet(const tri_head_linear_args &a, const float (&sum)[NT][4],
                                   float (*room)[4 * NT][WARP], int row, int first, int sections) {
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, part = warp % sections;
#pragma unroll
  for (int i = 0; i < 4 * NT; i++) room[warp][i][lane] = sum[i / 4][i % 4];
  __syncthreads();
  if (row >= a.w.n) return;
  for (int i = part; i < 4 * NT; i += sections) {
    float all = 0;
    for (int s = 0; s < sections; s++) all += room[warp - part + s][i][lane];
    put(a, row, first, i, lane, all);
  }
}

/* 16 rows of w for each warp, or for as many as k has sections (APART), 8 NT tokens for each block. x [T, heads *
 * x_stride] of type X, w [heads * n, k], out [T, heads * out_stride]. Grid (heads * n / 128, or as many times more, T /
 * (8 NT)), 256 threads. Shared memory: 4 NT KiB where APART. */
template <typename W, typename X, int NT, bool APART>
__global__ __launch_bounds__(THREADS, 2) static void tile_kernel(tri_head_linear_args a, int sections) {
  __shared__ float room[APART ? WARPS : 1][4 * NT][WARP];
  int lane = threadIdx.x % WARP, share = APART ? sections : 1, warp = blockIdx.x * WARPS + (int)threadIdx.x / WARP;
  int k = a.w.k, stages = k * (int)sizeof(W) / STAGE_BYTES, each = stages / sections, first = blockIdx.y * 8 * NT;
  section s = {warp / share * TILE, APART ? warp % share * each : 0};
  s.last = APART ? s.first + each : stages;
  let_next_begin();
  if (!APART && s.row >= a.w.n) return;
  int row = min(s.row, a.w.n - TILE), head = row / (a.w.n / a.num_heads); /* all warps come to the barrier */
  const char *low = (const char *)((const W *)a.w.data + (size_t)(row + lane / 4) * (size_t)k) + lane % 4 * LANE_BYTES;
  const char *high = low + 8 * (size_t)k * sizeof(W);
  raw_weights ring[AHEAD];
  float sum[NT][4] = {};
  const X *x[NT];
  begin_weights<W>(ring, low, high, s);
#pragma unroll
  for (int t = 0; t < NT; t++)
    x[t] =
        row_of<X>(a.x, min(first + 8 * t + lane / 4, a.x.rows - 1)) + (size_t)head * (size_t)a.x_stride + lane % 4 * 8;
  wait_for_previous();
  multiply_stages<W, X, NT, APART>(sum, ring, x, low, high, s, each);
  if (APART)
    meet<NT>(a, sum, room, s.row, first, sections);
  else
    put_all<NT>(a, row, first, lane, sum);
}

/* Returns a power of two, which depends on the weights alone. All sections are equally long. */
static int sections_of(const tri_weight &w) {
  int sections = 1, stages = w.k * 2 / STAGE_BYTES, blocks = (int)blocks_for((size_t)w.n, WARPS * TILE);
  while (sections < WARPS && blocks * sections < ENOUGH && stages % (2 * sections) == 0 && stages > 2 * sections)
    sections *= 2;
  return sections;
}

template <typename W, typename X, int NT> static void tiles(cudaStream_t stream, const tri_head_linear_args &a) {
  int sections = sections_of(a.w);
  dim3 grid(blocks_for((size_t)a.w.n, WARPS * TILE), blocks_for((size_t)a.x.rows, 8 * NT));
  if (sections > 1 && grid.x * grid.y < ENOUGH) {
    grid.x = blocks_for((size_t)a.w.n * (size_t)sections, WARPS * TILE);
    launch_overlapped(tile_kernel<W, X, NT, true>, grid, THREADS, 0, stream, a, sections);
  } else {
    launch_overlapped(tile_kernel<W, X, NT, false>, grid, THREADS, 0, stream, a, sections);
  }
}

template <typename W, typename X> static void tiles_of_tokens(cudaStream_t stream, const tri_head_linear_args &a) {
  if (a.x.rows <= 8)
    tiles<W, X, 1>(stream, a);
  else if (a.x.rows <= 16)
    tiles<W, X, 2>(stream, a);
  else
    tiles<W, X, 4>(stream, a);
}

template <typename W> static void tiles_of_type(cudaStream_t stream, const tri_head_linear_args &a) {
  if (a.x.dtype == TRI_F32)
    tiles_of_tokens<W, float>(stream, a);
  else
    tiles_of_tokens<W, W>(stream, a);
}

static bool fits_tiles(const tri_head_linear_args &a) {
  int piece = a.x.dtype == TRI_F32 ? 4 : 8; /* elements of LANE_BYTES */
  bool types = (a.w.dtype == TRI_F16 || a.w.dtype == TRI_BF16) && (a.x.dtype == TRI_F32 || a.x.dtype == a.w.dtype);
  return types && a.w.n / a.num_heads % TILE == 0 && a.w.k % 32 == 0 && a.w.k && a.x_stride % piece == 0 &&
         a.x.ld % piece == 0 && ((uintptr_t)a.x.data | (uintptr_t)a.w.data) % LANE_BYTES == 0;
}

void tri_cuda_head_linear(cudaStream_t stream, const tri_head_linear_args *a, void *) {
  dim3 grid(a->x.rows, blocks_for((size_t)a->w.n, WARPS));
  if (!a->x.rows || !a->w.n) return;
  if (!fits_tiles(*a))
    any_kernel<<<grid, THREADS, 0, stream>>>(*a);
  else if (a->w.dtype == TRI_BF16)
    tiles_of_type<__nv_bfloat16>(stream, *a);
  else
    tiles_of_type<__half>(stream, *a);
}
