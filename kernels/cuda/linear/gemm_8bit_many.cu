/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of many rows of 8 bits with weights of 8 bits, gated or not (linear/tiles_8bit.cuh). */
#include "kernels/cuda/linear/tiles_8bit.cuh"

enum { FROM_ROWS = 65, BUSY_PERCENT = 80 };

/* True where tiles keep the device busy in all of their rounds, without parts of k. */
static bool is_busy(int rows, int outputs, int num_sms) {
  int64_t tiles = (int64_t)((rows + MANY - 1) / MANY) * outputs, rounds = (tiles + num_sms - 1) / num_sms;
  return tiles * 100 >= rounds * num_sms * BUSY_PERCENT;
}

static bool fits(const tri_linear_args *a, int outputs) {
  return a->rounds_rows && a->x.rows >= FROM_ROWS && has_wide_blocks(a->w, outputs) && outputs % 16 == 0;
}

bool tri_cuda_8bit_many_fits(const tri_linear_args *a, int num_sms) {
  bool lines = a->out.dtype != TRI_F32 && a->out.dtype == a->x.dtype && !a->accumulate && a->out.ld % 8 == 0 &&
               (uintptr_t)a->out.data % 16 == 0;
  return lines && fits(a, a->w.n) && is_busy(a->x.rows, (a->w.n + WIDE - 1) / WIDE, num_sms);
}

bool tri_cuda_8bit_many_gated_fits(const tri_gated_linear_args *a, int num_sms) {
  int units = a->glu.out.cols;
  return fits(&a->up, units) && is_busy(a->up.x.rows, (units + UNITS - 1) / UNITS, num_sms);
}

static grouped gemm_of(const tri_linear_args *a, const tri_mat &out, const tri_cuda_rounded &x, unsigned *queue) {
  grouped g = {};
  g.num_experts = g.splits = 1;
  g.most_rows = a->x.rows;
  g.x = x.q;
  g.x_scale = x.scales;
  g.ld_scale = x.ld;
  g.k = a->w.k;
  set_form(g, a->w);
  g.bias = a->bias;
  g.outputs = out.cols;
  g.out = out.data;
  g.ld_out = out.ld;
  g.queue = queue;
  return g;
}

template <typename Q, bool GATED>
static cudaError_t launch_types(cudaStream_t stream, const tri_linear_args *a, const grouped &g, int num_sms) {
  typedef factors<Q, Q, __half> half;
  typedef factors<Q, Q, __nv_bfloat16> bfloat;
  if (a->x.dtype == TRI_F16) return launch_many<half, GATED, false>(stream, g, {}, a->w.data, num_sms);
  return launch_many<bfloat, GATED, false>(stream, g, {}, a->w.data, num_sms);
}

template <bool GATED>
static cudaError_t launch_forms(cudaStream_t stream, const tri_linear_args *a, const grouped &g, int num_sms) {
  if (a->w.dtype == TRI_I8) return launch_types<int8_t, GATED>(stream, a, g, num_sms);
  return launch_types<e4m3, GATED>(stream, a, g, num_sms);
}

cudaError_t tri_cuda_8bit_many(cudaStream_t stream, const tri_linear_args *a, const tri_cuda_rounded *x,
                               unsigned *queue, int num_sms) {
  return launch_forms<false>(stream, a, gemm_of(a, a->out, *x, queue), num_sms);
}

cudaError_t tri_cuda_8bit_many_gated(cudaStream_t stream, const tri_gated_linear_args *a, const tri_cuda_rounded *x,
                                     unsigned *queue, int num_sms) {
  grouped g = gemm_of(&a->up, a->glu.out, *x, queue);
  set_glu(g, a->glu.act, a->glu.limit);
  return launch_forms<true>(stream, &a->up, g, num_sms);
}
