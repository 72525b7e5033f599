/* SPDX-License-Identifier: Apache-2.0 */
/* Made-up weights where they are used: the same bits as kernels/random.c makes. */
#include "kernels/cuda/linear/rounded_rows.cuh"
#include "kernels/random.h"

enum { THREADS = 256, MAX_BLOCKS = 8192 };

/* A product and a sum with a rounding each: no fused multiply-add, which the host does not have either. */
__device__ static float element(const tri_random_fill &f, int64_t row, int64_t col) {
  float unit = tri_random_unit(f.key, f.first_row + row * f.row_step, f.first_col + col);
  return __fadd_rn(f.mean, __fmul_rn(f.width, unit));
}

/* Fills a matrix [rows, cols] of stride ld, and the scales [rows] of int8 ones. Up to 8192 blocks of 256 threads, which
 * continue in steps of the grid. */
__global__ static void fill_kernel(tri_random_fill f, float factor, float scale) {
  int64_t step = (int64_t)gridDim.x * blockDim.x, all = f.rows * f.cols;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += step) {
    int64_t row = i / f.cols, col = i % f.cols;
    size_t at = (size_t)(row * f.ld + col);
    float x = element(f, row, col);
    if (f.dtype == TRI_I8)
      ((int8_t *)f.to)[at] = (int8_t)__float2int_rn(__fmul_rn(x, factor));
    else if (f.dtype == TRI_F8_E4M3)
      ((uint8_t *)f.to)[at] = (uint8_t)e4m3_of_two(x, 0, factor);
    else
      store_as(f.to, f.dtype, at, x);
    if (f.dtype == TRI_I8 && !col) f.scales[row] = scale;
  }
}

void tri_cuda_fill_random(cudaStream_t stream, const tri_random_fill *f) {
  if (!f->rows || !f->cols) return;
  float factor = tri_rounding_factor(f->dtype, f->width), scale = tri_rounding_scale(f->dtype, f->width);
  int64_t blocks = (f->rows * f->cols + THREADS - 1) / THREADS;
  fill_kernel<<<(unsigned)(blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS), THREADS, 0, stream>>>(*f, factor, scale);
}
