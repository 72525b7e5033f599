/* SPDX-License-Identifier: Apache-2.0 */
/* Programmatic dependent launch (sm_90 and later): a kernel's blocks come onto the device while the one before it still
 * runs, and wait there, so that the gap between two kernels shrinks to what the wait costs.
 *
 * A kernel that is launched with launch_overlapped begins with let_next_begin() and must go through wait_for_previous()
 * before it touches anything that an earlier kernel writes or reads; only what none of them writes may be read before
 * it: weights, the batch's arrays, and keys of earlier steps. Blocks without work may leave without waiting, but one of
 * each grid waits, or the grid would end before the one before it. Copies keep steps apart: one begins when all before
 * it has ended, and so does what follows it. Since every kernel of the chain waits for the one before it, it has then
 * waited for all. The side stream (kernels/backend.h) begins and ends with events, which come after kernels that have
 * ended: whatever stands after one has waited for both lanes.
 *
 * Two kernels that read the same and write apart can run concurrently: the first one goes through
 * wait_for_previous() before let_next_begin(), so that what both read is there when the second begins, and the second
 * waits before it ends, so that who waits for it has waited for both. Kernels after the second one may read that, too,
 * as no block of theirs begins before all of its blocks have (experts' maps: moe/grouped.cuh). That the second one
 * sees, without a wait of its own, what was complete when the first one let it begin, is no promise of PTX: it follows
 * from a grid that has ended being in the second-level cache, and from first-level caches that are empty when a grid
 * begins (sm_90: checkpoints of all families with prompts and single tokens in one step). */
#ifndef TRI_KERNELS_CUDA_DEVICE_DEPENDENT_LAUNCH_CUH
#define TRI_KERNELS_CUDA_DEVICE_DEPENDENT_LAUNCH_CUH

#include <cuda_runtime.h>

#include "kernels/cuda/device/timeline.cuh"
#include "kernels/cuda/device/timeline.h"

/* A kernel that waits first has stamp_begun() as its first line, and this after the wait. */
__device__ static inline void let_next_begin_now(void) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ static inline void let_next_begin(void) {
  stamp_begun();
  let_next_begin_now();
}

__device__ static inline void wait_for_previous(void) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  stamp_waited();
}

/* True where the code that runs on this device has the wait: what is made for older ones has not. */
template <typename... Args> static inline bool can_overlap(void (*kernel)(Args...)) {
  cudaFuncAttributes a;
  return cudaFuncGetAttributes(&a, kernel) == cudaSuccess && a.ptxVersion >= 90;
}

/* Launches a kernel that may begin before the one before it ends, in clusters of `together` blocks of a column of
 * the grid: 1 to 8, and more than 1 only where the code can overlap. */
template <typename... Args>
static inline void launch_together(void (*kernel)(Args...), dim3 grid, unsigned together, unsigned threads,
                                   size_t shared, cudaStream_t stream, Args... args) {
  static const bool overlaps = can_overlap(kernel); /* a process has one device, and a module one set of code */
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = 1;
  attributes[1].val.clusterDim.y = together;
  attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = overlaps ? 1 + (together > 1) : 0;
  timeline_open();
  tri_cuda_timeline_launched((const void *)kernel, stream);
  cudaLaunchKernelEx(&config, kernel, args...); /* its error is returned by cudaGetLastError */
}

/* Returns the most blocks of the kernel that a cluster can have here: `most`, or a power of two below it; 1 where there
 * are no clusters. Shared memory is what the kernel has been allowed. A process has one device: what it says is good
 * for all launches. */
template <typename... Args>
static inline int most_together(void (*kernel)(Args...), int most, unsigned threads, size_t shared) {
  int n = can_overlap(kernel) ? most : 1;
  for (; n > 1; n /= 2) {
    cudaLaunchAttribute size = {};
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim.x = size.val.clusterDim.z = 1;
    size.val.clusterDim.y = (unsigned)n;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1, (unsigned)n);
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared;
    config.attrs = &size;
    config.numAttrs = 1;
    int at_once = 0;
    if (cudaOccupancyMaxActiveClusters(&at_once, kernel, &config) == cudaSuccess && at_once > 0) break;
    (void)cudaGetLastError(); /* a device without room for such clusters has not failed */
  }
  return n;
}

template <typename... Args>
static inline void launch_overlapped(void (*kernel)(Args...), dim3 grid, unsigned threads, size_t shared,
                                     cudaStream_t stream, Args... args) {
  launch_together(kernel, grid, 1, threads, shared, stream, args...);
}

#endif
