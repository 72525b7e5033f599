/* Clusters of blocks (sm_90 and later): blocks of one cluster run at the same time and read each other's shared memory.
 * The PTX ISA has them in sections 9.7.13 (barrier.cluster) and 9.7.9 (mapa, ld.shared::cluster). Code for older
 * devices compiles, too, but does nothing: launch clusters only where can_overlap (dependent_launch.cuh) is true. */
#ifndef TRI_KERNELS_CUDA_CLUSTER_CUH
#define TRI_KERNELS_CUDA_CLUSTER_CUH

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

#endif
