/* SPDX-License-Identifier: Apache-2.0 */
/* The host's side of timeline.cuh: which kernels a recorded step has, and the file that their stamps go to. Only a
 * build with TRIREME_CUDA_TIMELINE has it. */
#ifndef TRI_KERNELS_CUDA_DEVICE_TIMELINE_H
#define TRI_KERNELS_CUDA_DEVICE_TIMELINE_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef TRI_CUDA_TIMELINE
enum { TRI_CUDA_STAMPS = 1 << 16 }; /* the last ones are kept */
/* The ring of stamps on the device; NULL: there is no memory for it, and no stamp. */
void *tri_cuda_timeline_ring(void);
/* A kernel that stamps was launched on the stream, or recorded there: its host function. */
void tri_cuda_timeline_launched(const void *kernel, cudaStream_t stream);
/* A step was recorded: its kernels are those of the replays to come. */
void tri_cuda_timeline_recorded(cudaGraph_t graph);
void tri_cuda_timeline_replayed(void);
/* Writes the last stamps to the file that TRIREME_TIMELINE names: a line for each kernel of each of the last steps:
 * step, name, begun and waited in ns, both 0 of a kernel that does not stamp. Kernels that are launched between two
 * replays, as those that pick tokens, belong to the step before them. */
void tri_cuda_timeline_write(void);
#else
static inline void tri_cuda_timeline_launched(const void *kernel, cudaStream_t stream) {
  (void)kernel;
  (void)stream;
}
static inline void tri_cuda_timeline_recorded(cudaGraph_t graph) { (void)graph; }
static inline void tri_cuda_timeline_replayed(void) {}
static inline void tri_cuda_timeline_write(void) {}
#endif

#ifdef __cplusplus
}
#endif

#endif
