/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of this device that other processes of the host copy from. */
#include <string.h>

#include "kernels/cuda/cuda.h"

_Static_assert(sizeof(cudaIpcMemHandle_t) <= sizeof(tri_peer_handle), "a handle has no room");

/* Devices without a path between them, and containers that share no IPC namespace, refuse: no error of the backend. */
static tri_status supported(cudaError_t e) {
  if (e == cudaSuccess) return TRI_OK;
  cudaGetLastError(); /* the refusal does not stick */
  return TRI_UNSUPPORTED;
}

/* A handle is of a whole allocation, so p is the beginning of one, as mem_alloc returned it. */
tri_status tri_cuda_peer_show(tri_backend *be, void *p, tri_peer_handle *out) {
  cudaIpcMemHandle_t handle;
  if (be->no_peer_memory) return TRI_UNSUPPORTED;
  TRI_CHECK(supported(cudaIpcGetMemHandle(&handle, p)));
  memcpy(out->words, &handle, sizeof handle);
  return TRI_OK;
}

tri_status tri_cuda_peer_open(tri_backend *be, const tri_peer_handle *handle, void **out) {
  cudaIpcMemHandle_t of;
  (void)be;
  memcpy(&of, handle->words, sizeof of);
  return supported(cudaIpcOpenMemHandle(out, of, cudaIpcMemLazyEnablePeerAccess));
}

void tri_cuda_peer_close(tri_backend *be, void *p) { tri_cuda_note(be, cudaIpcCloseMemHandle(p)); }

void tri_cuda_peer_copy(tri_backend *be, void *to, const void *from, size_t bytes) {
  tri_cuda_note(be,
                cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, tri_cuda_of(be)->streams[TRI_STREAM_PEER]));
}
