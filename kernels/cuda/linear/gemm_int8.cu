/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of three rows and more with weights of int8, on Hopper: what experts' GEMMs are (moe/grouped.cuh), of one
 * expert that has all rows. Weights stream through the copy engine and are read once for each 128 rows; they become
 * floats in registers, tile by tile, or are multiplied as they are with rows of integers. */
#include "kernels/cuda/linear/results.cuh"
#include "kernels/cuda/moe/grouped.cuh"

enum {
  FROM_ROWS = 3,
  WHOLE = 16, /* elements of k in a 16-byte piece */
  MOST_PARTS_OF_K = 8,
  FEWEST_STEPS = 4, /* of a part */
  SUM_THREADS = 256
};

typedef factors<int8_t, __nv_bfloat16> of_floats;
typedef factors<int8_t, int8_t> of_integers;

/* ---- the kernel ---- */

/* Stores a tile's sums with scales and bias, or as parts. scales: of the rows, where those are integers. An activation
 * comes after the kernel: of so many sums in registers it would be a hundred times as much code. */
template <typename F, int BLOCKS, int COLS>
__device__ static inline void store_sums(const tri_linear_args &a, const grouped &g, const tile &t,
                                         typename F::sum (&d)[BLOCKS][COLS / 2], const float *scales) {
  int lane = threadIdx.x % WARP, row0 = lane % 4 * 2;
  if (g.splits > 1) {
    store_apart<F, float, false, BLOCKS, COLS>(g, t, d, scales);
    return;
  }
#pragma unroll
  for (int b = 0; b < BLOCKS; b++) {
    int low = output_of<false, BLOCKS>(t, b) + lane / 4;
    of_rows scale = values_of<false>(g, g.w_scale, t, low), add = biases_of<false>(g, t, low);
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
      if (8 * j >= t.rows) break;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int row = 8 * j + row0 + i % 2, col = low + i / 2 * 8;
        if (row >= t.rows || col >= g.outputs) continue;
        float y = (float)d[b][4 * j + i] * (i < 2 ? scale.low : scale.high);
        if (!F::WIDENS) y *= scales[row];
        y += i < 2 ? add.low : add.high;
        if (a.accumulate) y += load_at(a.out, t.first_row + row, (size_t)col);
        store_at(a.out, t.first_row + row, (size_t)col, y);
      }
    }
  }
}

template <typename F, int BLOCKS, int COLS, int MOST>
__device__ static inline void multiply_tile(const tri_linear_args &a, const grouped &g, const tile &t,
                                            room<F, BLOCKS, MOST> &s, ring_place<room<F, BLOCKS, MOST>::STAGES> &at) {
  float *scales = (float *)s.staging[(int)threadIdx.x / WARPGROUP - 1];
  typename F::sum d[BLOCKS][COLS / 2] = {};
  multiply<F, BLOCKS, COLS, MOST, false>(t, s, at, d);
  if (!F::WIDENS) bring_scales<false>(g, t, scales);
  store_sums<F, BLOCKS, COLS>(a, g, t, d, scales);
}

/* Computes out [M, n] = finished x [M, k] w[n, k]^T, or parts of the sums [splits, M, n] in float32. weights, inputs:
 * tensor maps of w and of the rows as F takes them. As many blocks as multiprocessors, 384 threads. */
template <typename F, int BLOCKS, int COLS>
__global__ static void __launch_bounds__(THREADS, 1)
    int8_gemm_kernel(const __grid_constant__ tri_linear_args a, const __grid_constant__ grouped g,
                     const __grid_constant__ tri_tensor_map weights, const __grid_constant__ tri_tensor_map inputs) {
  typedef room<F, BLOCKS, COLS> R;
  enum { SMALL = COLS > F::CHEAP ? COLS / 2 : COLS };
  extern __shared__ char shared[];
  R &s = *(R *)(((uintptr_t)shared + ALIGN - 1) / ALIGN * ALIGN);
  if (!HAS_HOPPER) return;
  let_next_begin();
  int groups = (g.most_rows + COLS - 1) / COLS, tiles = groups * ((g.outputs + R::ROWS - 1) / R::ROWS) * g.splits;
  if (threadIdx.x == 0) {
    prefetch_map(&weights);
    prefetch_map(&inputs);
    for (int i = 0; i < R::STAGES; i++) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], CONSUMERS * WARPGROUP / WARP);
    }
    barriers_are_made();
    s.first[0] = s.start[0] = 0;
    s.first[1] = g.most_rows;
    s.start[1] = groups;
  }
  __syncthreads();
  if (threadIdx.x < WARPGROUP) {
    give_registers<40>();
    fetch<F, BLOCKS, COLS, false, false>(g, &weights, &inputs, s, tiles);
    return;
  }
  take_registers<232>();
  ring_place<R::STAGES> at;
  wait_for_previous();
  for (;;) {
    barrier_wait(&s.full[at.stage], at.parity);
    tile t = s.begun[at.stage];
    if (!t.steps) return;
    if (SMALL < COLS && t.rows <= SMALL)
      multiply_tile<F, BLOCKS, SMALL, COLS>(a, g, t, s, at);
    else
      multiply_tile<F, BLOCKS, COLS, COLS>(a, g, t, s, at);
  }
}

/* Adds parts up in their order and finishes the sums. parts [splits, M, n]. Grid (M, n / 256), 256 threads. */
__global__ static void sum_parts_of_k_kernel(const __grid_constant__ tri_linear_args a, const float *parts,
                                             int splits) {
  int row = blockIdx.x, col = (int)(blockIdx.y * SUM_THREADS + threadIdx.x);
  size_t at = (size_t)row * (size_t)a.w.n + (size_t)col, all = (size_t)a.x.rows * (size_t)a.w.n;
  float sum = 0;
  let_next_begin();
  wait_for_previous();
  if (col >= a.w.n) return;
  for (int s = 0; s < splits; s++) sum += parts[(size_t)s * all + at];
  finish(a, row, col, sum);
}

/* ---- shapes ---- */

bool tri_cuda_int8_fits(const tri_linear_args *a) {
  uintptr_t places = (uintptr_t)a->x.data | (uintptr_t)a->w.data;
  bool whole = a->w.k > 0 && a->w.n > 0 && a->w.k % WHOLE == 0 && a->x.ld % 4 == 0 && places % 16 == 0;
  bool adds_last = !a->accumulate || a->act == TRI_ACT_NONE;
  return a->w.dtype == TRI_I8 && a->x.dtype == TRI_F32 && whole && adds_last && a->x.rows >= FROM_ROWS;
}

/* blocks: of 64 outputs for each of the two warpgroups that multiply; cols: rows of x in a tile; splits: parts of k. */
struct int8_cut {
  int blocks, cols, splits;
};

/* Parts of k: as few as keep nearly all multiprocessors busy. Each part is a float32 matrix that is written and read
 * once more, so another part must keep a twentieth more of the device busy. */
static int8_cut cut_of(const tri_linear_args *a, int num_sms) {
  int step = a->int8_activations ? LINE : LINE / 2, steps = (a->w.k + step - 1) / step, rows = a->x.rows;
  int8_cut c = {2, 128, 1};
  if (rows <= 64) c = {1, rows <= 32 ? 32 : 64, 1};
  int64_t slabs = (a->w.n + 128 * c.blocks - 1) / (128 * c.blocks), tiles = slabs * ((rows + c.cols - 1) / c.cols);
  double best = 0;
  for (int s = 1; s <= MOST_PARTS_OF_K && (s == 1 || (tiles < num_sms && s * FEWEST_STEPS <= steps)); s++) {
    int64_t rounds = (tiles * s + num_sms - 1) / num_sms;
    double busy = (double)(tiles * s) / (double)(rounds * num_sms);
    if (busy > best + 0.05) {
      best = busy;
      c.splits = s;
    }
  }
  return c;
}

static size_t aligned(size_t bytes) { return (bytes + 255) & ~(size_t)255; }

static size_t rows_bytes(const tri_linear_args *a) {
  if (a->int8_activations) return tri_cuda_rounded_bytes(a->x.rows, a->w.k);
  return aligned((size_t)a->x.rows * (size_t)a->w.k * sizeof(float));
}

size_t tri_cuda_int8_workspace(const tri_linear_args *a, int num_sms) {
  size_t splits = (size_t)cut_of(a, num_sms).splits;
  return rows_bytes(a) + (splits > 1 ? splits * (size_t)a->x.rows * (size_t)a->w.n * sizeof(float) : 0);
}

/* ---- launches ---- */

static tri_dtype stored_as(const __nv_bfloat16 *) { return TRI_BF16; }
static tri_dtype stored_as(const int8_t *) { return TRI_I8; }

template <typename F, int BLOCKS, int COLS>
static cudaError_t launch(cudaStream_t stream, const tri_linear_args *a, const grouped &g, int num_sms) {
  typedef room<F, BLOCKS, COLS> R;
  typedef typename F::input X;
  constexpr size_t bytes = sizeof(R) + ALIGN;
  static_assert(sizeof(R) <= ROOM, "of a block");
  uint64_t k = (uint64_t)g.k, n = (uint64_t)g.outputs;
  tri_tiling plain = {3, {k, n, 1}, {0, k, n * k}, {F::STEP, R::ROWS, 1}};
  tri_tiling rows = {2, {k * F::EACH, (uint64_t)g.most_rows}, {0, k * F::EACH * sizeof(X)}, {LINE / sizeof(X), R::BOX}};
  tri_tensor_map weights, inputs;
  cudaError_t error = allow_shared<int8_gemm_kernel<F, BLOCKS, COLS>>(bytes);
  if (error != cudaSuccess) return error;
  if (tri_cuda_map_tensor(&weights, TRI_I8, a->w.data, &plain) != TRI_OK ||
      tri_cuda_map_tensor(&inputs, stored_as((const X *)NULL), g.x, &rows) != TRI_OK)
    return cudaErrorInvalidValue;
  launch_overlapped(int8_gemm_kernel<F, BLOCKS, COLS>, dim3(num_sms), THREADS, bytes, stream, *a, g, weights, inputs);
  return cudaGetLastError();
}

template <typename F>
static cudaError_t launch_cut(cudaStream_t stream, const tri_linear_args *a, const grouped &g, const int8_cut &c,
                              int num_sms) {
  if (c.cols == 32) return launch<F, 1, 32>(stream, a, g, num_sms);
  if (c.cols == 64) return launch<F, 1, 64>(stream, a, g, num_sms);
  return launch<F, 2, 128>(stream, a, g, num_sms);
}

cudaError_t tri_cuda_int8_linear(cudaStream_t stream, const tri_linear_args *a, void *workspace, unsigned *queue,
                                 int num_sms) {
  int8_cut c = cut_of(a, num_sms);
  char *parts = (char *)workspace + rows_bytes(a);
  grouped g = {};
  g.num_experts = 1;
  g.k = a->w.k;
  g.outputs = a->w.n;
  g.w_scale = a->w.scale;
  g.bias = c.splits == 1 ? a->bias : NULL;
  g.splits = c.splits;
  g.most_rows = a->x.rows;
  g.out = parts;
  g.queue = queue;
  g.x = workspace;
  if (a->int8_activations)
    g.x_scale = tri_cuda_round(stream, a->x, workspace).scales;
  else
    tri_cuda_int8_parts(stream, a->x, workspace);
  cudaError_t e = a->int8_activations ? launch_cut<of_integers>(stream, a, g, c, num_sms)
                                      : launch_cut<of_floats>(stream, a, g, c, num_sms);
  if (e != cudaSuccess) return e;
  tri_linear_args sums = *a;
  if (c.splits == 1) {
    sums.bias = NULL; /* they have it, */
    tri_cuda_epilogue(stream, &sums);
    return cudaGetLastError();
  }
  sums.w.dtype = TRI_F32; /* or they have their scales */
  launch_overlapped(sum_parts_of_k_kernel, dim3((unsigned)a->x.rows, blocks_for((size_t)a->w.n, SUM_THREADS)),
                    SUM_THREADS, 0, stream, sums, (const float *)parts, c.splits);
  return cudaGetLastError();
}
