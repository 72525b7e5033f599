/* Sampling. A row of which nothing but the most probable token is wanted stays on the device; others come to the host,
 * where the reference's sampler draws. */
#include <string.h>

#include "kernels/cuda/cuda.h"
#include "kernels/ref/ref.h"

/* Whether the raw logits' maximum is the answer. */
static bool is_plain(const tri_sample_params *p) {
  return p->temperature <= 0 && p->num_logprobs < 0 && !p->num_logit_bias && !p->num_banned &&
         p->repetition_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0;
}

/* A row of logits and the ids of all rows, pinned; scratch for the host's sampler. */
static tri_status make_room(tri_cuda_impl *impl, size_t rows, size_t width, size_t scratch) {
  size_t bytes = width * sizeof(float) + rows * sizeof(int32_t);
  if (bytes > impl->pinned_bytes) {
    if (impl->pinned) cudaFreeHost(impl->pinned);
    impl->pinned = NULL, impl->pinned_bytes = 0;
    if (cudaMallocHost(&impl->pinned, bytes) != cudaSuccess) return TRI_NO_MEMORY;
    impl->pinned_bytes = bytes;
  }
  if (scratch > impl->scratch_bytes) {
    tri_free(impl->host_scratch);
    impl->scratch_bytes = 0;
    if (!(impl->host_scratch = tri_malloc(scratch, 1))) return TRI_NO_MEMORY;
    impl->scratch_bytes = scratch;
  }
  return TRI_OK;
}

tri_status tri_cuda_sample_plan(tri_backend *be, const tri_sample_args *a, tri_op_plan *plan) {
  tri_status st = tri_ref_sample_plan(be, a, plan);
  if (st != TRI_OK) return st;
  st = make_room(tri_cuda_of(be), (size_t)a->logits.rows, (size_t)a->logits.cols, plan->workspace);
  plan->workspace = (size_t)a->logits.rows * sizeof(int32_t); /* on the device */
  return st;
}

static void draw_on_host(tri_backend *be, const tri_sample_args *a, int row) {
  tri_cuda_impl *impl = tri_cuda_of(be);
  size_t width = (size_t)a->logits.cols;
  float *logits = impl->pinned;
  tri_backend on_host = {.workspace = impl->host_scratch};
  tri_op_plan plan = {0};
  tri_sample_args one = {.logits = {logits, 1, a->logits.cols, a->logits.cols},
                         .params = a->params + row,
                         .history = a->history + row,
                         .num_prompt = a->num_prompt + row,
                         .num_history = a->num_history + row,
                         .counter = a->counter + row,
                         .results = a->results + row};
  tri_cuda_note(be, cudaMemcpyAsync(logits, a->logits.data + (size_t)row * (size_t)a->logits.ld, width * sizeof *logits,
                                    cudaMemcpyDeviceToHost, impl->stream));
  tri_cuda_note(be, cudaStreamSynchronize(impl->stream));
  tri_ref_sample_launch(&on_host, &plan, &one, NULL);
}

void tri_cuda_sample_launch(tri_backend *be, const tri_op_plan *plan, const tri_sample_args *a, tri_stream *stream) {
  (void)plan, (void)stream;
  tri_cuda_impl *impl = tri_cuda_of(be);
  int32_t *ids = (int32_t *)((float *)impl->pinned + a->logits.cols);
  if (!a->logits.rows) return;
  tri_cuda_argmax(impl->stream, &a->logits, be->workspace);
  tri_cuda_note(be, cudaMemcpyAsync(ids, be->workspace, (size_t)a->logits.rows * sizeof *ids, cudaMemcpyDeviceToHost,
                                    impl->stream));
  tri_cuda_note(be, cudaStreamSynchronize(impl->stream));
  for (int i = 0; i < a->logits.rows; i++) {
    if (!is_plain(a->params[i])) {
      draw_on_host(be, a, i);
      continue;
    }
    memset(&a->results[i], 0, sizeof a->results[i]);
    a->results[i].token = (uint32_t)ids[i];
  }
}
