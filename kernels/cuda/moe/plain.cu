/* SPDX-License-Identifier: Apache-2.0 */
/* Experts with weights of any type and shape, without tensor cores, whose inputs would be rounded: a warp for each row
 * of an expert's weights, which it reads once for up to eight of the expert's rows.
 *
 * Results of choices go to memory and are added up by a kernel of their own, in the order of a token's choices: atomics
 * would be shorter, and give other bits in each run. */
#include "kernels/cuda/moe/moe.h"
#include "kernels/cuda/moe/work.cuh"
#include "kernels/quantize.h"
#include "kernels/ref/formulas.h"

enum { WARPS = 8, THREADS = WARPS * WARP, ROWS = 8, BLOCKS = 4 /* for each multiprocessor */, COMBINE_THREADS = 256 };

/* One of the two GEMMs, as its kernel sees it. */
typedef struct plain_gemm {
  tri_moe_experts_args a;
  tri_weight w;
  const float *bias;
  int units;                /* rows of out for an expert */
  tri_mat x;                /* of tokens, or of the map's rows */
  tri_cuda_rounded rounded; /* the same as integers, or NULL */
  tri_mat out;              /* hidden rows, or the results of choices */
} plain_gemm;

/* Adds a lane's products of a group of integers, with the rows' scales. */
__device__ static inline void add_group(const plain_gemm &p, size_t w_row, const int (&rows)[ROWS], int count, size_t j,
                                        int n, float (&out)[ROWS]) {
  const float *scales = p.rounded.scales + j / TRI_INT8_GROUP * (size_t)p.rounded.ld;
#pragma unroll
  for (int r = 0; r < ROWS; r++)
    if (r < count) out[r] += scales[rows[r]] * rounded_dot(p.rounded.q, p.w, (size_t)rows[r], w_row, (int)j, n);
}

/* The sums of a row of weights with `count` rows of x; every lane gets all of them. */
__device__ static void dots(const plain_gemm &p, size_t w_row, const int (&rows)[ROWS], int count, float (&out)[ROWS]) {
  int lane = threadIdx.x % WARP;
  size_t k = (size_t)p.w.k;
#pragma unroll
  for (int r = 0; r < ROWS; r++) out[r] = 0;
  for (size_t j = 0; p.rounded.q && j < k; j += TRI_INT8_GROUP)
    add_group(p, w_row, rows, count, j, (int)min(k - j, (size_t)TRI_INT8_GROUP), out);
  for (size_t j = lane; !p.rounded.q && j < k; j += WARP) {
    float w = element_at(p.w, (int)w_row, (int)j);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
      if (r < count) out[r] += w * load_at(p.x, rows[r], j);
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    out[r] = warp_sum(out[r]);
    out[r] *= scale_of_sum(p.w, (int)w_row);
    if (p.bias) out[r] += p.bias[w_row];
  }
}

/* A warp's unit of an expert, and up to eight rows of the map. UP: the hidden units of those rows; else what their
 * choices come to. */
template <bool UP> __device__ static void run_unit(const plain_gemm &p, work_rows part, int unit) {
  const tri_moe_experts_args &a = p.a;
  int lane = threadIdx.x % WARP, rows[ROWS];
  bool paired = UP && a.gated;
  size_t row = (size_t)part.expert * (size_t)(paired ? 2 : 1) * (size_t)p.units + (size_t)unit;
  float y[ROWS], up[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    rows[r] = part.first + min(r, part.count - 1);
    if (UP) rows[r] = a.map.choice[rows[r]] / a.top_k;
  }
  dots(p, row, rows, part.count, y);
  if (paired) dots(p, row + (size_t)p.units, rows, part.count, up);
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    if (r != lane || r >= part.count) continue;
    float v = y[r];
    if (paired) v = (float)tri_formula_glu(a.act, a.glu_limit, v, up[r]);
    if (UP && !paired) v = (float)tri_formula_act(a.act, v);
    store_at(p.out, UP ? part.first + r : a.map.choice[part.first + r], (size_t)unit, v);
  }
}

/* One of the two GEMMs. x [T, k] or [N, k], w [experts, rows, k], out [N, units] or [T * top_k, units]. Any grid,
 * 256 threads. Shared memory: the list of work. */
template <bool UP> __global__ __launch_bounds__(THREADS) static void plain_kernel(plain_gemm p) {
  extern __shared__ __align__(16) int list_room[];
  let_next_begin();
  wait_for_previous();
  work_list list = list_work(p.a.map.first, p.a.num_experts, ROWS, list_room);
  int tiles = (p.units + WARPS - 1) / WARPS;
  work_range range = range_of_block(list, tiles);
  if (range.begin >= range.end) return;
  work_place place = find_work(list, range.begin, tiles);
  for (int item = range.begin; item < range.end; item++) {
    int unit = place.tile * WARPS + threadIdx.x / WARP;
    if (unit < p.units) run_unit<UP>(p, rows_of_work(list, place, ROWS), unit);
    place = next_work(list, place, tiles);
  }
}

/* Adds a token's choices in their order. partial [T * top_k, H], out [T, H]. Grid (T, H / 256), 256 threads. */
__global__ __launch_bounds__(COMBINE_THREADS) static void combine_kernel(tri_moe_experts_args a, const float *partial) {
  size_t t = blockIdx.x, first = t * (size_t)a.top_k, h = (size_t)a.out.cols;
  size_t i = (size_t)blockIdx.y * COMBINE_THREADS + threadIdx.x;
  let_next_begin();
  wait_for_previous();
  if (i >= h) return;
  float sum = a.accumulate ? load_at(a.out, (int)t, i) : 0;
  for (size_t c = first; c < first + (size_t)a.top_k; c++)
    if (a.map.row[c] >= 0) sum += a.weights[c] * partial[c * h + i];
  store_at(a.out, (int)t, i, sum);
}

void tri_cuda_moe_combine(cudaStream_t stream, const tri_moe_experts_args *a, const float *partial) {
  dim3 grid((unsigned)a->out.rows, blocks_for((size_t)a->out.cols, COMBINE_THREADS));
  launch_overlapped(combine_kernel, grid, COMBINE_THREADS, 0, stream, *a, partial);
}

static size_t aligned(size_t bytes) { return (bytes + 255) & ~(size_t)255; }
static size_t choices_of(const tri_moe_experts_args *a) { return (size_t)a->x.rows * (size_t)a->top_k; }
static size_t hidden_bytes(const tri_moe_experts_args *a) {
  return aligned(choices_of(a) * (size_t)a->down.k * sizeof(float));
}
static size_t partial_bytes(const tri_moe_experts_args *a) {
  return aligned(choices_of(a) * (size_t)a->x.cols * sizeof(float));
}

size_t tri_cuda_moe_plain_workspace(const tri_moe_experts_args *a) {
  size_t bytes = hidden_bytes(a) + partial_bytes(a);
  if (a->rounds_rows)
    bytes += tri_cuda_rounded_bytes(a->x.rows, a->x.cols) + tri_cuda_rounded_bytes((int)choices_of(a), a->down.k);
  return bytes;
}

template <bool UP> static void run(cudaStream_t stream, const plain_gemm &p, int num_sms) {
  size_t shared = work_list_ints(p.a.num_experts) * sizeof(int);
  if (p.units) launch_overlapped(plain_kernel<UP>, dim3(BLOCKS * num_sms), THREADS, shared, stream, p);
}

void tri_cuda_moe_plain(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace, int num_sms) {
  int f = a->down.k, h = a->x.cols, choices = (int)choices_of(a);
  char *at = (char *)workspace, *rounded = at + hidden_bytes(a) + partial_bytes(a);
  tri_mat hidden = {(float *)at, choices, f, f, TRI_F32},
          one = {(float *)(at + hidden_bytes(a)), choices, h, h, TRI_F32};
  plain_gemm up = {*a, a->up, a->up_bias, f, a->x, {}, hidden}, down = {*a, a->down, a->down_bias, h, hidden, {}, one};
  if (!a->x.rows || !h) return;
  if (a->rounds_rows) up.rounded = tri_cuda_round(stream, a->x, &a->up, rounded);
  run<true>(stream, up, num_sms);
  /* Rows that no choice has hold anything and are not read. */
  if (a->rounds_rows)
    down.rounded = tri_cuda_round(stream, hidden, &a->down, rounded + tri_cuda_rounded_bytes(a->x.rows, h));
  run<false>(stream, down, num_sms);
  tri_cuda_moe_combine(stream, a, one.data);
}
