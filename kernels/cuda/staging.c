/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned memory of the host in two parts, one of which is filled while the other is copied to the device. Two are
 * enough: an upload has mostly ended when its part is used once more, a step later. Until the first send of a part its
 * event is unmarked, which counts as reached. */
#include "kernels/cuda/cuda.h"

static tri_status grow_pinned(tri_cuda_staging *s, size_t bytes) {
  void *p;
  if (s->host[0]) cudaFreeHost(s->host[0]);
  s->host[0] = s->host[1] = NULL;
  s->host_bytes = 0;
  if (bytes > SIZE_MAX / 2) return TRI_OVERFLOW;
  if (cudaMallocHost(&p, 2 * bytes) != cudaSuccess) {
    cudaGetLastError(); /* it does not stick */
    return TRI_NO_MEMORY;
  }
  s->host[0] = p;
  s->host[1] = s->host[0] + bytes;
  s->host_bytes = bytes;
  return TRI_OK;
}

tri_status tri_cuda_staging_grow(tri_backend *be, tri_cuda_staging *s, size_t host_bytes, size_t device_bytes) {
  if (host_bytes) TRI_CHECK(grow_pinned(s, host_bytes));
  if (!device_bytes) return TRI_OK;
  be->ops.mem_free(be, TRI_MEM_STAGING, s->device, s->device_bytes);
  s->device = NULL;
  s->device_bytes = 0;
  TRI_CHECK(be->ops.mem_alloc(be, TRI_MEM_STAGING, device_bytes, (void **)&s->device));
  s->device_bytes = device_bytes;
  return TRI_OK;
}

char *tri_cuda_staging_turn(tri_backend *be, tri_cuda_staging *s) {
  s->turn ^= 1;
  tri_cuda_note(be, cudaEventSynchronize(s->sent[s->turn]));
  return s->host[s->turn];
}

void tri_cuda_staging_send(tri_backend *be, tri_cuda_staging *s, size_t bytes) {
  be->ops.upload(be, s->device, s->host[s->turn], bytes);
  tri_cuda_note(be, cudaEventRecord(s->sent[s->turn], tri_cuda_stream(be)));
}
