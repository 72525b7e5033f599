/* SPDX-License-Identifier: Apache-2.0 */
/* The side stream of a step: ops that go to a second lane, between two events. Kernels whose launches overlap
 * (dependent_launch.cuh) wait for all before them on either lane: an event is reached when that has ended. */
#include "kernels/cuda/cuda.h"

cudaError_t tri_cuda_side_open(tri_cuda_impl *impl) {
  cudaError_t e = cudaStreamCreateWithFlags(&impl->lanes[TRI_CUDA_SIDE].stream, cudaStreamNonBlocking);
  if (e == cudaSuccess) e = cudaEventCreateWithFlags(&impl->side_forks, cudaEventDisableTiming);
  if (e == cudaSuccess) e = cudaEventCreateWithFlags(&impl->side_ends, cudaEventDisableTiming);
  return e;
}

void tri_cuda_side_close(tri_cuda_impl *impl) {
  if (impl->side_forks) cudaEventDestroy(impl->side_forks);
  if (impl->side_ends) cudaEventDestroy(impl->side_ends);
  if (impl->lanes[TRI_CUDA_SIDE].stream) cudaStreamDestroy(impl->lanes[TRI_CUDA_SIDE].stream);
}

/* Ops find their stream and workspace by the lane, and cuBLAS by its handle, which must be pointed to them. */
static void go_to(tri_backend *be, int lane) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  impl->lane = lane;
  be->workspace = impl->lanes[lane].workspace;
  be->workspace_bytes = impl->lanes[lane].workspace_bytes;
  tri_cuda_blas_follow(be);
}

void tri_cuda_side_begin(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_note(be, cudaEventRecord(impl->side_forks, impl->lanes[TRI_CUDA_MAIN].stream));
  tri_cuda_note(be, cudaStreamWaitEvent(impl->lanes[TRI_CUDA_SIDE].stream, impl->side_forks, 0));
  go_to(be, TRI_CUDA_SIDE);
}

void tri_cuda_side_end(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_note(be, cudaEventRecord(impl->side_ends, impl->lanes[TRI_CUDA_SIDE].stream));
  go_to(be, TRI_CUDA_MAIN);
}

void tri_cuda_side_join(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_note(be, cudaStreamWaitEvent(impl->lanes[TRI_CUDA_MAIN].stream, impl->side_ends, 0));
}
