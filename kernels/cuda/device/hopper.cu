/* SPDX-License-Identifier: Apache-2.0 */
/* Returns whether Hopper's instructions are there. */
#include "kernels/cuda/device/hopper.cuh"

#include "kernels/cuda/cuda.h"

/* Takes shared memory where this file's code is that for Hopper, which the host sees without a launch. */
__global__ static void probe_kernel(int *out) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ int room[WARPGROUP];
  room[threadIdx.x] = *out;
  __syncthreads();
  *out = room[WARPGROUP - 1 - threadIdx.x];
#endif
}

bool tri_cuda_is_hopper(void) {
  cudaFuncAttributes a;
  return cudaFuncGetAttributes(&a, probe_kernel) == cudaSuccess && a.sharedSizeBytes > 0;
}
