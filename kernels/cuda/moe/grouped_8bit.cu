/* SPDX-License-Identifier: Apache-2.0 */
/* Experts with many rows of 8 bits, as prompts have them, on Hopper (linear/tiles_8bit.cuh): rows of x are rounded in
 * the order of the map, so that the copy engine brings them; the first GEMM rounds the hidden rows itself where a
 * scale is for 128 of k.
 *
 * The workspace holds the hidden rows of 8 bits, those of 16 where they are rounded later, and one after the other the
 * rows of x and the second GEMM's results. */
#include "kernels/cuda/linear/tiles_8bit.cuh"

enum { FROM_ROWS = 33 }; /* of an expert on average */

bool tri_cuda_moe_8bit_fits(const tri_moe_experts_args *a) {
  int64_t average = ((int64_t)a->x.rows * a->top_k + a->num_experts - 1) / a->num_experts;
  bool blocks = has_wide_blocks(a->up, a->down.k) && has_wide_blocks(a->down, a->up.k);
  return a->rounds_rows && average >= FROM_ROWS && is_8bit(a->up.dtype) && tri_cuda_moe_grouped_fits(a) && blocks;
}

/* ---- workspace ---- */

static size_t aligned(size_t bytes) { return (bytes + 255) & ~(size_t)255; }

/* True where the scales of hidden rows are known within a tile. */
static bool rounds_within(const tri_moe_experts_args *a) {
  return a->down.dtype == TRI_I8 || tri_weight_is_blocked(&a->down);
}

struct areas {
  size_t hidden, rounded, rows; /* bytes; rows: of x, or of results */
};

static areas areas_of(const tri_moe_experts_args *a) {
  int rows = a->x.rows * a->top_k;
  size_t results = aligned((size_t)rows * (size_t)a->x.cols * 2), x = tri_cuda_rounded_bytes(rows, a->x.cols);
  areas s = {0, tri_cuda_rounded_bytes(rows, a->down.k), results > x ? results : x};
  if (!rounds_within(a)) s.hidden = aligned((size_t)rows * (size_t)a->down.k * 2);
  return s;
}

size_t tri_cuda_moe_8bit_workspace(const tri_moe_experts_args *a) {
  areas s = areas_of(a);
  return s.hidden + s.rounded + s.rows;
}

/* ---- launches ---- */

static tri_dtype stored_as(const __half *) { return TRI_F16; }
static tri_dtype stored_as(const __nv_bfloat16 *) { return TRI_BF16; }

static grouped gemm_of(const tri_moe_experts_args *a, const tri_weight &w, const float *bias, unsigned *queue) {
  grouped g = {};
  g.first = a->map.first;
  g.num_experts = a->num_experts;
  g.most_rows = a->x.rows * a->top_k;
  g.k = w.k;
  set_form(g, w);
  g.bias = bias;
  g.splits = 1;
  g.queue = queue;
  return g;
}

static void take_rows(const tri_cuda_rounded &r, grouped &g) {
  g.x = r.q;
  g.x_scale = r.scales;
  g.ld_scale = r.ld;
}

template <typename F>
static cudaError_t run(cudaStream_t stream, const tri_moe_experts_args *a, char *hidden, unsigned *slabs, int num_sms) {
  areas s = areas_of(a);
  char *rounded = hidden + s.hidden, *rows = rounded + s.rounded;
  unsigned *queue = slabs + TRI_CUDA_SLABS;
  tri_mat narrow = {(float *)hidden, a->x.rows * a->top_k, a->down.k, a->down.k,
                    stored_as((const typename F::output *)NULL)};
  tri_cuda_rounded h = tri_cuda_rounded_at(narrow.rows, narrow.cols, rounded);
  grouped up = gemm_of(a, a->up, a->up_bias, queue), down = gemm_of(a, a->down, a->down_bias, queue + 1);
  take_rows(tri_cuda_round_choices(stream, a, rows), up);
  take_rows(h, down);
  set_glu(up, a->act, a->glu_limit);
  up.outputs = up.ld_out = a->down.k;
  up.out = hidden;
  down.outputs = down.ld_out = a->up.k;
  down.out = rows;
  rounded_out out = {};
  if (rounds_within(a)) out = {(uint8_t *)rounded, (float *)h.scales, h.ld};
  cudaError_t e = launch_many<F, true, true>(stream, up, out, a->up.data, num_sms);
  if (e == cudaSuccess && !out.q) tri_cuda_round(stream, narrow, &a->down, rounded);
  if (e == cudaSuccess) e = launch_many<F, false, false>(stream, down, {}, a->down.data, num_sms);
  if (e == cudaSuccess) tri_cuda_moe_sum(stream, a, rows, narrow.dtype, 1);
  return e == cudaSuccess ? cudaGetLastError() : e;
}

template <typename T>
static cudaError_t run_types(cudaStream_t stream, const tri_moe_experts_args *a, char *workspace, unsigned *slabs,
                             int num_sms) {
  if (a->up.dtype == TRI_I8) return run<factors<int8_t, int8_t, T>>(stream, a, workspace, slabs, num_sms);
  return run<factors<e4m3, e4m3, T>>(stream, a, workspace, slabs, num_sms);
}

cudaError_t tri_cuda_moe_8bit(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace, unsigned *slabs,
                              int num_sms) {
  if (!a->x.rows) return cudaSuccess;
  if (a->x.dtype == TRI_F16) return run_types<__half>(stream, a, (char *)workspace, slabs, num_sms);
  return run_types<__nv_bfloat16>(stream, a, (char *)workspace, slabs, num_sms);
}
