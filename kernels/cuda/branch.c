/* Branches of a step: ops that go to a second lane, between two events. Kernels whose launches overlap
 * (dependent_launch.cuh) wait for all in front of them on either lane: an event is reached when that has ended. */
#include "kernels/cuda/cuda.h"

cudaError_t tri_cuda_branch_open(tri_cuda_impl *impl) {
  cudaError_t e = cudaStreamCreateWithFlags(&impl->lanes[TRI_CUDA_BRANCH].stream, cudaStreamNonBlocking);
  if (e == cudaSuccess) e = cudaEventCreateWithFlags(&impl->branch_forks, cudaEventDisableTiming);
  if (e == cudaSuccess) e = cudaEventCreateWithFlags(&impl->branch_ends, cudaEventDisableTiming);
  return e;
}

void tri_cuda_branch_close(tri_cuda_impl *impl) {
  if (impl->branch_forks) cudaEventDestroy(impl->branch_forks);
  if (impl->branch_ends) cudaEventDestroy(impl->branch_ends);
  if (impl->lanes[TRI_CUDA_BRANCH].stream) cudaStreamDestroy(impl->lanes[TRI_CUDA_BRANCH].stream);
}

static void go_to(tri_backend *be, int lane) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  impl->lane = lane;
  be->workspace = impl->lanes[lane].workspace;
  be->workspace_bytes = impl->lanes[lane].workspace_bytes;
  tri_cuda_blas_follow(be);
}

void tri_cuda_branch_begin(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_note(be, cudaEventRecord(impl->branch_forks, impl->lanes[TRI_CUDA_MAIN].stream));
  tri_cuda_note(be, cudaStreamWaitEvent(impl->lanes[TRI_CUDA_BRANCH].stream, impl->branch_forks, 0));
  go_to(be, TRI_CUDA_BRANCH);
}

void tri_cuda_branch_end(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_note(be, cudaEventRecord(impl->branch_ends, impl->lanes[TRI_CUDA_BRANCH].stream));
  go_to(be, TRI_CUDA_MAIN);
}

void tri_cuda_branch_join(tri_backend *be) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_cuda_note(be, cudaStreamWaitEvent(impl->lanes[TRI_CUDA_MAIN].stream, impl->branch_ends, 0));
}
