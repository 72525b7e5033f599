/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts with weights of int8 and rows of 16 bits: from some rows on it is cheaper to widen the weights, a slab at a
 * time, and multiply with the kernels of 16 bits than to widen each tile's weights once for every 128 rows. A slab is
 * small enough to be read from the second-level cache where k allows it, and wide enough to fill the device. */
#include "kernels/cuda/cuda.h"

/* Rows from which it pays (H200, an 8B: 4.6 ms of widening a step, against 21 ms that 2,048 rows lose in the other
 * kernel), and a slab's. */
enum { WIDENED_FROM = 512, GATED_FROM = 1024, SLAB = 4096, SLAB_ELEMENTS = 1 << 24, SIXTEEN = 16 };

static int slab_of(const tri_linear_args *a) {
  int rows = SLAB_ELEMENTS / a->w.k / SLAB * SLAB;
  if (rows < SLAB) rows = SLAB;
  return rows < a->w.n ? rows : a->w.n;
}

static bool fits(const tri_linear_args *a) {
  return a->w.dtype == TRI_I8 && !a->int8_activations && a->x.dtype != TRI_F32 && a->w.k % SIXTEEN == 0 && a->w.k > 0 &&
         a->w.n % SIXTEEN == 0 && (uintptr_t)a->w.data % SIXTEEN == 0;
}

bool tri_cuda_int8_prompt_fits(const tri_linear_args *a) { return fits(a) && a->x.rows >= WIDENED_FROM; }

size_t tri_cuda_int8_prompt_workspace(const tri_linear_args *a) { return (size_t)slab_of(a) * (size_t)a->w.k * 2; }

/* Columns first .. first + n - 1 of a GEMM, with weights that are widened to be->workspace. */
static tri_linear_args slab_at(tri_backend *be, const tri_linear_args *a, int first, int n) {
  tri_linear_args s = *a;
  s.w = (tri_weight){.data = be->workspace, .dtype = a->x.dtype, .n = n, .k = a->w.k};
  s.bias = a->bias ? a->bias + first : NULL;
  s.out.data = (float *)((char *)a->out.data + (size_t)first * tri_dtype_size(a->out.dtype));
  s.out.cols = n;
  return s;
}

void tri_cuda_int8_prompt(tri_backend *be, const tri_linear_args *a) {
  int slab = slab_of(a);
  for (int first = 0; first < a->w.n; first += slab) {
    int n = slab < a->w.n - first ? slab : a->w.n - first;
    tri_linear_args s = slab_at(be, a, first, n);
    tri_cuda_widen_int8(tri_cuda_stream(be), &a->w, first, n, s.w.dtype, be->workspace);
    tri_cuda_linear(be, &s);
  }
}

/* Units first .. first + n - 1 of a gated GEMM: a slab has their gates and then their ups. */
static tri_gated_linear_args gated_slab_at(tri_backend *be, const tri_gated_linear_args *a, int first, int n) {
  tri_gated_linear_args s = *a;
  s.up.w = (tri_weight){.data = be->workspace, .dtype = a->up.x.dtype, .n = 2 * n, .k = a->up.w.k};
  s.glu.out.data = (float *)((char *)a->glu.out.data + (size_t)first * tri_dtype_size(a->glu.out.dtype));
  s.glu.out.cols = n;
  return s;
}

bool tri_cuda_int8_gated_prompt_fits(const tri_gated_linear_args *a) {
  tri_gated_linear_args wide = *a;
  if (!fits(&a->up) || a->up.x.rows < GATED_FROM) return false;
  wide.up.w.dtype = a->up.x.dtype;
  return tri_cuda_gated_prompt_fits(&wide);
}

void tri_cuda_int8_gated_prompt(tri_backend *be, const tri_gated_linear_args *a) {
  cudaStream_t stream = tri_cuda_stream(be);
  int units = a->glu.out.cols, slab = slab_of(&a->up) / 2;
  for (int first = 0; first < units; first += slab) {
    int n = slab < units - first ? slab : units - first;
    tri_gated_linear_args s = gated_slab_at(be, a, first, n);
    char *ups = (char *)be->workspace + (size_t)n * (size_t)a->up.w.k * 2;
    tri_cuda_widen_int8(stream, &a->up.w, first, n, s.up.w.dtype, be->workspace);
    tri_cuda_widen_int8(stream, &a->up.w, units + first, n, s.up.w.dtype, ups);
    tri_cuda_note(be, tri_cuda_gated_prompt(stream, &s, tri_cuda_of(be)->num_sms));
  }
}
