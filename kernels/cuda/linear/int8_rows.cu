/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of activations as integers, for GEMMs of more rows than round them on the way (gemm_few_rows.cuh). */
#include "kernels/cuda/linear/int8_rows.cuh"

enum { ROUND_WARPS = 8, FOUR = 4 };

/* A warp rounds a group of a row; a lane has four elements of it. x [rows, k] to q [rows, k] and scales [groups, ld].
 * fours: rows of x may be read and those of q written so. Grid: groups of all rows / 8; 256 threads. */
__global__ __launch_bounds__(ROUND_WARPS *WARP) static void round_rows_kernel(tri_mat x, int8_t *q, float *scales,
                                                                              int ld, int groups, bool fours) {
  int lane = threadIdx.x % WARP;
  int item = (int)blockIdx.x * ROUND_WARPS + (int)threadIdx.x / WARP, row = item / groups, group = item % groups;
  int j = group * TRI_INT8_GROUP + lane * FOUR, left = x.cols - j;
  let_next_begin();
  wait_for_previous();
  if (row >= x.rows) return;
  float v[FOUR] = {};
  if (fours && left > 0) {
    float4 f = load4_at(x, row, j);
    v[0] = f.x;
    v[1] = f.y;
    v[2] = f.z;
    v[3] = f.w;
  }
#pragma unroll
  for (int i = 0; i < FOUR; i++)
    if (!fours && i < left) v[i] = load_at(x, row, (size_t)(j + i));
  uint32_t top = 0;
#pragma unroll
  for (int i = 0; i < FOUR; i++) top = max(top, __float_as_uint(v[i]) & 0x7fffffffu);
  top = __reduce_max_sync(ALL_LANES, top);
  bool finite = top < 0x7f800000u;
  float most = __uint_as_float(top);
  uint32_t four = int8_of_four(v, finite ? int8_factor(most) : 0);
  int8_t *to = q + (size_t)row * (size_t)x.cols + (size_t)j;
  if (!lane) scales[(size_t)group * (size_t)ld + (size_t)row] = finite ? int8_scale(most) : NAN;
  if (fours && left > 0) *(uint32_t *)to = four;
#pragma unroll
  for (int i = 0; i < FOUR; i++)
    if (!fours && i < left) to[i] = (int8_t)(four >> 8 * i);
}

/* After the integers, in bytes that keep what follows them aligned. */
static size_t scales_at(int rows, int k) { return ((size_t)rows * (size_t)k + 255) & ~(size_t)255; }
static int scale_line(int rows) { return (rows + FOUR - 1) / FOUR * FOUR; }

size_t tri_cuda_rounded_bytes(int rows, int k) {
  size_t scales = (size_t)tri_int8_groups(k) * (size_t)scale_line(rows) * sizeof(float);
  return (scales_at(rows, k) + scales + 255) & ~(size_t)255;
}

tri_cuda_rounded tri_cuda_round(cudaStream_t stream, tri_mat x, void *workspace) {
  int8_t *q = (int8_t *)workspace;
  float *scales = (float *)(q + scales_at(x.rows, x.cols));
  int groups = tri_int8_groups(x.cols);
  size_t items = (size_t)x.rows * (size_t)groups;
  if (items)
    launch_overlapped(round_rows_kernel, dim3(blocks_for(items, ROUND_WARPS)), ROUND_WARPS * WARP, 0, stream, x, q,
                      scales, scale_line(x.rows), groups, in_fours(x));
  return {q, scales, scale_line(x.rows)};
}
