/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of floats as GEMMs with integers take them on tensor cores. */
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/moe/fragments.cuh"

enum { PARTS_THREADS = 256 };

/* Each float becomes two of bf16: what is nearest to it, and what is nearest to the rest. 16 floats become 16 of the
 * former and then 16 of the latter, both in the order 0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15: lane t of
 * four holds an MMA's elements 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, and of weights the bytes from 4 t on. x [rows, k],
 * out [rows, 2 k] without gaps, which may be x in the same place. A thread for 16 floats, 256 in a block. */
__global__ static void parts_kernel(tri_mat x, uint4 *out) {
  typedef activations<int8_t, float> floats;
  int i = blockIdx.x * PARTS_THREADS + threadIdx.x, of_row = x.cols / 16, row = i / of_row;
  uint32_t near[2][4], rest[2][4];
  floats f;
  let_next_begin();
  wait_for_previous();
  if (row >= x.rows) return;
  f.load(row_at(x, row) + i % of_row * 16);
#pragma unroll
  for (int t = 0; t < 4; t++) {
    float4 v = f.v[t];
    near[0][t] = floats::gemm::pack(v.x, v.y);
    near[1][t] = floats::gemm::pack(v.z, v.w);
    rest[0][t] = floats::rest(v.x, v.y, near[0][t]);
    rest[1][t] = floats::rest(v.z, v.w, near[1][t]);
  }
  out += (size_t)i * 4;
#pragma unroll
  for (int j = 0; j < 2; j++) {
    out[j] = make_uint4(near[j][0], near[j][1], near[j][2], near[j][3]);
    out[j + 2] = make_uint4(rest[j][0], rest[j][1], rest[j][2], rest[j][3]);
  }
}

void tri_cuda_int8_parts(cudaStream_t stream, tri_mat x, void *out) {
  unsigned blocks = blocks_for((size_t)x.rows * (size_t)(x.cols / 16), PARTS_THREADS);
  launch_overlapped(parts_kernel, dim3(blocks), PARTS_THREADS, 0, stream, x, (uint4 *)out);
}
