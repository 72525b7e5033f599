/* SPDX-License-Identifier: Apache-2.0 */
/* When kernels begin inside a recorded step: a build with TRIREME_CUDA_TIMELINE has each kernel that is launched with
 * launch_overlapped stamp the time at which its first block comes onto the device and the time at which that block has
 * waited for the kernel before it. The second stamp of the next kernel is the end of this one, so the differences add
 * up to the step. In other builds nothing here leaves an instruction.
 *
 * A profiler cannot show this: it serializes kernels that overlap, or adds more to each node of a graph than the small
 * ones take. */
#ifndef TRI_KERNELS_CUDA_DEVICE_TIMELINE_CUH
#define TRI_KERNELS_CUDA_DEVICE_TIMELINE_CUH

#ifdef TRI_CUDA_TIMELINE
#include "kernels/cuda/device/timeline.h"

struct timeline_ring {
  unsigned long long count; /* of kernels that have begun */
  struct {
    unsigned long long begun, waited; /* ns of %globaltimer */
  } stamp[TRI_CUDA_STAMPS];
};
/* Each source has its own pointer to the one ring: to link sources on the device would cost kernels their registers. */
static __device__ timeline_ring *kernel_stamps;

/* By the host, before a kernel of this source is launched. */
static inline void timeline_open(void) {
  static const void *const ring = tri_cuda_timeline_ring();
  static const bool done = cudaMemcpyToSymbol(kernel_stamps, &ring, sizeof ring) == cudaSuccess;
  (void)done;
}

__device__ static inline unsigned long long timeline_now(void) {
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  return t;
}
__device__ static inline bool timeline_is_first_block(void) { return !(blockIdx.x | blockIdx.y | blockIdx.z); }
/* The stamp's number, for all threads of a block. */
__device__ static inline unsigned long long &timeline_number(void) {
  static __shared__ unsigned long long number;
  return number;
}

__device__ static inline void stamp_begun(void) {
  if (!kernel_stamps || !timeline_is_first_block() || threadIdx.x) return;
  unsigned long long number = atomicAdd(&kernel_stamps->count, 1ull);
  kernel_stamps->stamp[number % TRI_CUDA_STAMPS] = {timeline_now(), ~0ull};
  timeline_number() = number;
}
/* Any thread may be the first one to have waited. Where there was nothing to wait for, it may come before the block's
 * first thread has its number: then the time goes to some other stamp, which keeps its own, as that is earlier. */
__device__ static inline void stamp_waited(void) {
  if (!kernel_stamps || !timeline_is_first_block()) return;
  atomicMin(&kernel_stamps->stamp[timeline_number() % TRI_CUDA_STAMPS].waited, timeline_now());
}
#else
static inline void timeline_open(void) {}
__device__ static inline void stamp_begun(void) {}
__device__ static inline void stamp_waited(void) {}
#endif

#endif
