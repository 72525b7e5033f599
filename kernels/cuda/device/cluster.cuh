/* SPDX-License-Identifier: Apache-2.0 */
/* Clusters of blocks (sm_90 and later): blocks of one cluster run at the same time and read each other's shared memory,
 * or store to it. The PTX ISA has them in sections 9.7.13 (barrier.cluster, mbarrier) and 9.7.9 (mapa,
 * ld.shared::cluster, st.async). Code for older devices compiles, too, but does nothing: launch clusters only where
 * can_overlap (dependent_launch.cuh) is true. */
#ifndef TRI_KERNELS_CUDA_DEVICE_CLUSTER_CUH
#define TRI_KERNELS_CUDA_DEVICE_CLUSTER_CUH

#include <stdint.h>

/* Waits for all threads of all blocks of the cluster, which then see what any of them has written to shared memory. The
 * barrier wants whole warps. */
__device__ static inline void meet_cluster(void) {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\n"
               "barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
#endif
}

/* The same in two steps, between which a thread does other things. What has been written is not seen then, nor waited
 * for; but all blocks have begun, and their barriers are made. Both want whole warps. */
__device__ static inline void arrive_at_cluster(void) {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#endif
}
__device__ static inline void wait_at_cluster(void) {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* Returns where block `rank` of the cluster has what this one has at p, in shared memory. */
__device__ static inline uint32_t address_in_cluster(const void *p, int rank) {
  uint32_t there = 0;
#if __CUDA_ARCH__ >= 900
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(there)
               : "r"((uint32_t)__cvta_generic_to_shared(p)), "r"(rank));
#endif
  return there;
}

__device__ static inline float2 load2_in_cluster(uint32_t at) {
  float2 v = make_float2(0, 0);
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
#endif
  return v;
}
__device__ static inline float4 load4_in_cluster(uint32_t at) {
  float4 v = make_float4(0, 0, 0, 0);
#if __CUDA_ARCH__ >= 900
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(at)
               : "memory");
#endif
  return v;
}

/* Stores to a block of the cluster, which has begun, and sees it after the next meet_cluster. */
__device__ static inline void store_in_cluster(uint32_t at, uint64_t v) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.shared::cluster.u64 [%0], %1;" ::"r"(at), "l"(v) : "memory");
#endif
}

/* Stores 16 bytes to a block of the cluster, and adds them to those that a barrier of that block (hopper.cuh) expects:
 * who has waited there with wait_for_sent sees them. */
__device__ static inline void send4_in_cluster(uint32_t at, uint4 v, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(at),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
               : "memory");
#endif
}
/* Waits for the end of the first phase of a barrier of this block. */
__device__ static inline void wait_for_sent(const uint64_t *barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n"
               ".reg .pred done;\n"
               "again:\n"
               "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
               "@done bra out;\n"
               "bra again;\n"
               "out:\n"
               "}\n" ::"r"((uint32_t)__cvta_generic_to_shared(barrier))
               : "memory");
#endif
}

#endif
