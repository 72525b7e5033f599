/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of two rows and more with weights of 8 bits, on Hopper: what experts' GEMMs are (moe/grouped.cuh), of one
 * expert that has all rows. Weights stream through the copy engine and are read once for each 128 rows; they become
 * 16-bit floats in registers, tile by tile, or are multiplied as they are with rows of 8 bits. */
#include "kernels/cuda/linear/results.cuh"
#include "kernels/cuda/moe/grouped.cuh"

enum {
  FROM_ROWS = 2,
  WHOLE = 16, /* elements of k in a 16-byte piece */
  TWO_TERMS_ROWS = 64,
  MOST_PARTS_OF_K = 8,
  FEWEST_STEPS = 4, /* of a part */
  SUM_THREADS = 256
};

/* ---- the kernel ---- */

/* Stores a tile's sums with scales and bias where they do not go out in whole lines of 16 bits: an activation comes
 * after the kernel, as of so many sums in registers it would be a hundred times as much code. */
template <typename F, int BLOCKS, int COLS>
__device__ static inline void store_sums(const tri_linear_args &a, const grouped &g, const tile &t,
                                         float (&d)[BLOCKS][COLS / 2]) {
  int lane = threadIdx.x % WARP, row0 = lane % 4 * 2;
#pragma unroll
  for (int b = 0; b < BLOCKS; b++) {
    int low = output_of<false, BLOCKS>(t, b) + lane / 4;
    of_rows scale = scales_of<F, false>(g, t, low), add = biases_of<false>(g, t, low);
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
      if (8 * j >= t.rows) break;
      finish<false, F::SCALES>(g, scale, add, &d[b][4 * j]);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int row = 8 * j + row0 + i % 2, col = low + i / 2 * 8;
        if (row >= t.rows || col >= g.outputs) continue;
        float y = d[b][4 * j + i];
        if (a.accumulate) y += load_at(a.out, t.first_row + row, (size_t)col);
        store_at(a.out, t.first_row + row, (size_t)col, y);
      }
    }
  }
}

template <typename F, int BLOCKS, int COLS, int MOST, bool GATED>
__device__ static inline void multiply_tile(const tri_linear_args &a, const grouped &g, const tile &t,
                                            room<F, BLOCKS, MOST> &s, ring_place<room<F, BLOCKS, MOST>::STAGES> &at) {
  float d[BLOCKS][COLS / 2] = {};
  block_scales<BLOCKS> of;
  if constexpr (F::BLOCKED) find_scales<GATED, BLOCKS>(g, t, of);
  multiply<F, BLOCKS, COLS, MOST, false, true>(t, of, s, at, d);
  if constexpr (!GATED) {
    if (g.splits > 1) {
      store_apart<F, float, false, BLOCKS, COLS>(g, t, d);
      return;
    }
    if (!g.out) {
      store_sums<F, BLOCKS, COLS>(a, g, t, d);
      return;
    }
  }
  if constexpr (COLS <= FEW_COLUMNS)
    store_apart<F, typename F::output, GATED, BLOCKS, COLS>(g, t, d);
  else
    store_together<F, GATED, BLOCKS, COLS>(g, t, d, s.staging[(int)threadIdx.x / WARPGROUP - 1]);
}

/* Computes out [M, n] = finished x [M, k] w[n, k]^T, or parts of the sums [splits, M, n] in float32; GATED: of gates
 * and ups. As many blocks as multiprocessors, 384 threads. */
template <typename F, int BLOCKS, int COLS, bool GATED>
__global__ static void __launch_bounds__(THREADS, 1)
    gemm_8bit_kernel(const __grid_constant__ tri_linear_args a, const __grid_constant__ grouped g,
                     const __grid_constant__ maps_of_gemm maps) {
  typedef room<F, BLOCKS, COLS> R;
  enum { SMALL = F::HAS_SMALL && COLS > F::CHEAP ? COLS / 2 : COLS, OUTPUTS = GATED ? R::ROWS / 2 : R::ROWS };
  extern __shared__ char shared[];
  R &s = *(R *)(((uintptr_t)shared + ALIGN - 1) / ALIGN * ALIGN);
  if (!HAS_HOPPER) return;
  let_next_begin();
  int groups = (g.most_rows + COLS - 1) / COLS, tiles = groups * ((g.outputs + OUTPUTS - 1) / OUTPUTS) * g.splits;
  if (threadIdx.x == 0) {
    prefetch_map(&maps.weights);
    prefetch_map(&maps.inputs);
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
    fetch<F, BLOCKS, COLS, GATED, false>(g, maps, s, tiles);
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
      multiply_tile<F, BLOCKS, SMALL, COLS, GATED>(a, g, t, s, at);
    else
      multiply_tile<F, BLOCKS, COLS, COLS, GATED>(a, g, t, s, at);
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

static bool fits(const tri_linear_args *a) {
  uintptr_t places = (uintptr_t)a->x.data | (uintptr_t)a->w.data;
  bool whole = a->w.k > 0 && a->w.n > 0 && a->w.k % WHOLE == 0 && a->x.ld % 8 == 0 && places % 16 == 0;
  return is_8bit(a->w.dtype) && whole && a->x.rows >= FROM_ROWS;
}

bool tri_cuda_8bit_fits(const tri_linear_args *a) { return fits(a) && (!a->accumulate || a->act == TRI_ACT_NONE); }

bool tri_cuda_8bit_gated_fits(const tri_gated_linear_args *a) {
  const tri_mat *out = &a->glu.out;
  bool lines = out->dtype != TRI_F32 && out->dtype == a->up.x.dtype && out->cols % 8 == 0 && out->ld % 8 == 0 &&
               (uintptr_t)out->data % 16 == 0;
  return fits(&a->up) && lines && is_glu(a->glu.act);
}

/* True where results go out in whole lines of the rows' type. */
static bool in_lines(const tri_linear_args *a) {
  return a->out.dtype != TRI_F32 && a->out.dtype == a->x.dtype && !a->accumulate && a->w.n % 8 == 0 &&
         a->out.ld % 8 == 0 && (uintptr_t)a->out.data % 16 == 0;
}

/* blocks: of 64 outputs for each of the two warpgroups that multiply; cols: rows of x in a tile; splits: parts of k. */
struct cut_8bit {
  int blocks, cols, splits;
};

/* True where sums are made in parts that are added to others, which leaves no registers for tiles of twice as many
 * outputs. */
static bool has_parts(const tri_linear_args *a) { return a->rounds_rows || a->w.dtype == TRI_F8_E4M3; }

/* True where rows of 16 bits become two terms of 8: to widen weights takes longer than to multiply twice. Blocks that
 * begin before the weight's first column are not those of rows. */
static bool has_two_terms(const tri_linear_args *a) {
  return !a->rounds_rows && a->x.rows <= TWO_TERMS_ROWS && !a->w.groups.skip_col;
}
static bool is_rounded(const tri_linear_args *a) { return a->rounds_rows || has_two_terms(a); }

/* Parts of k: as few as keep nearly all multiprocessors busy. Each part is a float32 matrix that is written and read
 * once more, so another part must keep a twentieth more of the device busy. */
static cut_8bit cut_of(const tri_linear_args *a, bool gated, int num_sms) {
  int step = is_rounded(a) ? LINE : LINE / 2, steps = (a->w.k + step - 1) / step, rows = a->x.rows;
  cut_8bit c = {has_parts(a) ? 1 : 2, 128, 1};
  if (rows <= 64) c = {1, 64, 1};
  if (rows <= 32) c.cols = 32;
  if (rows <= FEW_COLUMNS && !(a->rounds_rows && a->w.dtype == TRI_F8_E4M3)) c.cols = FEW_COLUMNS;
  int64_t slabs = (a->w.n + 128 * c.blocks - 1) / (128 * c.blocks), tiles = slabs * ((rows + c.cols - 1) / c.cols);
  double best = 0;
  for (int s = 1; s <= MOST_PARTS_OF_K && (s == 1 || (!gated && tiles < num_sms && s * FEWEST_STEPS <= steps)); s++) {
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

/* The workspace that holds rows as the kernel takes them. */
static size_t rows_bytes(const tri_linear_args *a) {
  if (has_two_terms(a)) return tri_cuda_two_terms_bytes(a->x.rows, a->w.k);
  if (a->rounds_rows) return tri_cuda_rounded_bytes(a->x.rows, a->w.k);
  return a->x.dtype == TRI_F32 ? aligned((size_t)a->x.rows * (size_t)a->w.k * 2) : 0;
}

size_t tri_cuda_8bit_workspace(const tri_linear_args *a, int num_sms) {
  size_t splits = (size_t)cut_of(a, false, num_sms).splits;
  return rows_bytes(a) + (splits > 1 ? splits * (size_t)a->x.rows * (size_t)a->w.n * sizeof(float) : 0);
}

size_t tri_cuda_8bit_gated_workspace(const tri_gated_linear_args *a) { return rows_bytes(&a->up); }

/* ---- launches ---- */

static tri_dtype stored_as(const __nv_bfloat16 *) { return TRI_BF16; }
[[maybe_unused]] static tri_dtype stored_as(const __half *) { return TRI_F16; }
static tri_dtype stored_as(const int8_t *) { return TRI_I8; }
static tri_dtype stored_as(const e4m3 *) { return TRI_F8_E4M3; }

template <typename F, int BLOCKS, int COLS, bool GATED>
static cudaError_t launch(cudaStream_t stream, const tri_linear_args *a, const grouped &g, int num_sms) {
  typedef room<F, BLOCKS, COLS> R;
  typedef typename F::input X;
  constexpr size_t bytes = sizeof(R) + ALIGN;
  static_assert(sizeof(R) <= ROOM, "of a block");
  uint64_t k = (uint64_t)g.k, n = (uint64_t)g.outputs, rows = (uint64_t)g.most_rows, lines = F::TERMS * rows;
  tri_tiling plain = {3, {k, n, 1}, {0, k, n * k}, {F::STEP, R::ROWS, 1}};
  tri_tiling pairs = {5, {k, 8, 2, n / 8, 1}, {0, k, n * k, 8 * k, 2 * n * k}, {F::STEP, 8, 2, R::ROWS / 16, 1}};
  tri_tiling inputs = {2, {k, lines}, {0, (uint64_t)g.ld * sizeof(X)}, {LINE / sizeof(X), R::BOX}};
  tri_tiling scales = {2, {rows, (uint64_t)tri_int8_groups(g.k)}, {0, (uint64_t)g.ld_scale * 4}, {COLS + 4, 1}};
  maps_of_gemm maps = {};
  cudaError_t error = allow_shared<gemm_8bit_kernel<F, BLOCKS, COLS, GATED>>(bytes);
  if (error != cudaSuccess) return error;
  if (tri_cuda_map_tensor(&maps.weights, a->w.dtype, a->w.data, GATED ? &pairs : &plain) != TRI_OK ||
      tri_cuda_map_tensor(&maps.inputs, stored_as((const X *)NULL), g.x, &inputs) != TRI_OK ||
      (F::GROUPED && tri_cuda_map_tensor(&maps.scales, TRI_F32, g.x_scale, &scales) != TRI_OK))
    return cudaErrorInvalidValue;
  launch_overlapped(gemm_8bit_kernel<F, BLOCKS, COLS, GATED>, dim3(num_sms), THREADS, bytes, stream, *a, g, maps);
  return cudaGetLastError();
}

template <typename F, bool GATED>
static cudaError_t launch_cut(cudaStream_t stream, const tri_linear_args *a, const grouped &g, const cut_8bit &c,
                              int num_sms) {
  enum { BLOCKS = F::GROUPED || F::BLOCKED ? 1 : 2 };
  if constexpr (F::HAS_FEW)
    if (c.cols == FEW_COLUMNS) return launch<F, 1, FEW_COLUMNS, GATED>(stream, a, g, num_sms);
  if (c.cols == 32) return launch<F, 1, 32, GATED>(stream, a, g, num_sms);
  if constexpr (F::TERMS > 1) {
    return launch<F, 1, 64, GATED>(stream, a, g, num_sms);
  } else {
    if (c.cols == 64) return launch<F, 1, 64, GATED>(stream, a, g, num_sms);
    return launch<F, BLOCKS, 128, GATED>(stream, a, g, num_sms);
  }
}

template <typename T, bool GATED>
static cudaError_t launch_of(cudaStream_t stream, const tri_linear_args *a, const grouped &g, const cut_8bit &c,
                             int num_sms) {
  typedef factors<e4m3, T, T> fp8;
  typedef factors<e4m3, e4m3, T> rounded_fp8;
  typedef factors<e4m3, e4m3, T, 2> fp8_terms;
  typedef factors<int8_t, T, T> int8;
  typedef factors<int8_t, int8_t, T> rounded_int8;
  typedef factors<int8_t, int8_t, T, 2> int8_terms;
  bool is_fp8 = a->w.dtype == TRI_F8_E4M3, twice = has_two_terms(a);
  if (is_fp8 && twice) return launch_cut<fp8_terms, GATED>(stream, a, g, c, num_sms);
  if (twice) return launch_cut<int8_terms, GATED>(stream, a, g, c, num_sms);
  if (is_fp8 && a->rounds_rows) return launch_cut<rounded_fp8, GATED>(stream, a, g, c, num_sms);
  if (is_fp8) return launch_cut<fp8, GATED>(stream, a, g, c, num_sms);
  if (a->rounds_rows) return launch_cut<rounded_int8, GATED>(stream, a, g, c, num_sms);
  return launch_cut<int8, GATED>(stream, a, g, c, num_sms);
}

template <bool GATED>
static cudaError_t launch_types(cudaStream_t stream, const tri_linear_args *a, const grouped &g, const cut_8bit &c,
                                int num_sms) {
  if (a->x.dtype != TRI_F16) return launch_of<__nv_bfloat16, GATED>(stream, a, g, c, num_sms);
  if constexpr (HAS_BOTH_16) return launch_of<__half, GATED>(stream, a, g, c, num_sms);
  return cudaErrorNotSupported;
}

/* Makes rows as the kernel takes them. room: rows_bytes. */
static void take_rows(cudaStream_t stream, const tri_linear_args *a, void *room, grouped &g) {
  g.x = a->x.data;
  g.ld = a->x.ld;
  if (is_rounded(a)) {
    bool twice = has_two_terms(a);
    tri_cuda_rounded r =
        twice ? tri_cuda_two_terms(stream, a->x, &a->w, room) : tri_cuda_round(stream, a->x, &a->w, room);
    g.term_rows = a->x.rows;
    g.x = r.q;
    g.x_scale = r.scales;
    g.ld_scale = r.ld;
    g.ld = g.k;
  } else if (a->x.dtype == TRI_F32) {
    tri_cuda_narrow(stream, &a->x, TRI_BF16, room);
    g.x = room;
    g.ld = g.k;
  }
}

static grouped gemm_of(const tri_linear_args *a, const cut_8bit &c, unsigned *queue) {
  grouped g = {};
  g.num_experts = 1;
  g.k = a->w.k;
  g.outputs = a->w.n;
  set_form(g, a->w);
  g.bias = c.splits == 1 ? a->bias : NULL;
  g.splits = c.splits;
  g.most_rows = a->x.rows;
  g.queue = queue;
  return g;
}

/* The same by the kernel of many rows. */
static cudaError_t many_rows(cudaStream_t stream, const tri_linear_args *a, void *workspace, unsigned *queue,
                             int num_sms) {
  tri_linear_args sums = *a;
  tri_cuda_rounded x = tri_cuda_round(stream, a->x, &a->w, workspace);
  cudaError_t e = tri_cuda_8bit_many(stream, a, &x, queue, num_sms);
  sums.bias = NULL; /* they have it */
  if (e == cudaSuccess) tri_cuda_epilogue(stream, &sums);
  return e == cudaSuccess ? cudaGetLastError() : e;
}

cudaError_t tri_cuda_8bit_linear(cudaStream_t stream, const tri_linear_args *a, void *workspace, unsigned *queue,
                                 int num_sms) {
  if (tri_cuda_8bit_many_fits(a, num_sms)) return many_rows(stream, a, workspace, queue, num_sms);
  cut_8bit c = cut_of(a, false, num_sms);
  char *parts = (char *)workspace + rows_bytes(a);
  grouped g = gemm_of(a, c, queue);
  if (c.splits > 1) g.out = parts;
  if (c.splits == 1 && in_lines(a)) {
    g.out = a->out.data;
    g.ld_out = a->out.ld;
  }
  take_rows(stream, a, workspace, g);
  cudaError_t e = launch_types<false>(stream, a, g, c, num_sms);
  if (e != cudaSuccess) return e;
  tri_linear_args sums = *a;
  if (c.splits == 1) {
    sums.bias = NULL; /* they have it, */
    tri_cuda_epilogue(stream, &sums);
    return cudaGetLastError();
  }
  sums.w.scale = NULL; /* or they have their scales */
  launch_overlapped(sum_parts_of_k_kernel, dim3((unsigned)a->x.rows, blocks_for((size_t)a->w.n, SUM_THREADS)),
                    SUM_THREADS, 0, stream, sums, (const float *)parts, c.splits);
  return cudaGetLastError();
}

cudaError_t tri_cuda_8bit_gated(cudaStream_t stream, const tri_gated_linear_args *a, void *workspace, unsigned *queue,
                                int num_sms) {
  if (tri_cuda_8bit_many_gated_fits(a, num_sms)) {
    tri_cuda_rounded x = tri_cuda_round(stream, a->up.x, &a->up.w, workspace);
    return tri_cuda_8bit_many_gated(stream, a, &x, queue, num_sms);
  }
  cut_8bit c = cut_of(&a->up, true, num_sms);
  grouped g = gemm_of(&a->up, c, queue);
  set_glu(g, a->glu.act, a->glu.limit);
  g.outputs = a->glu.out.cols;
  g.out = a->glu.out.data;
  g.ld_out = a->glu.out.ld;
  take_rows(stream, &a->up, workspace, g);
  return launch_types<true>(stream, &a->up, g, c, num_sms);
}
