/* Sampling: the rows of logits come to the host, where the reference's sampler draws. */
#include "kernels/cuda/cuda.h"
#include "kernels/ref/ref.h"

tri_status tri_cuda_sample_plan(tri_backend *be, const tri_sample_args *a, tri_op_plan *plan) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  tri_status st = tri_ref_sample_plan(be, a, plan);
  if (st != TRI_OK) return st;
  size_t floats = (size_t)a->logits.rows * (size_t)a->logits.cols;
  if (floats > impl->host_floats) {
    if (impl->host_logits) cudaFreeHost(impl->host_logits);
    impl->host_logits = NULL, impl->host_floats = 0;
    if (cudaMallocHost((void **)&impl->host_logits, floats * sizeof(float)) != cudaSuccess) return TRI_NO_MEMORY;
    impl->host_floats = floats;
  }
  if (plan->workspace > impl->scratch_bytes) {
    tri_free(impl->host_scratch);
    impl->scratch_bytes = 0;
    if (!(impl->host_scratch = tri_malloc(plan->workspace, 1))) return TRI_NO_MEMORY;
    impl->scratch_bytes = plan->workspace;
  }
  plan->workspace = 0; /* of the device */
  return TRI_OK;
}

void tri_cuda_sample_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_args *a, tri_stream *stream) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  size_t width = (size_t)a->logits.cols * sizeof(float);
  tri_sample_args host = *a;
  if (!a->logits.rows) return;
  tri_cuda_note(be, cudaMemcpy2DAsync(impl->host_logits, width, a->logits.data, (size_t)a->logits.ld * sizeof(float),
                                      width, (size_t)a->logits.rows, cudaMemcpyDeviceToHost, impl->stream));
  tri_cuda_note(be, cudaStreamSynchronize(impl->stream));
  host.logits.data = impl->host_logits, host.logits.ld = a->logits.cols;
  tri_backend on_host = {.workspace = impl->host_scratch};
  tri_ref_sample_launch(&on_host, plan, &host, stream);
}
