/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor-core MMAs of 16-bit elements with float32 sums, and the loads that feed them (sm_80 and later). */
#ifndef TRI_KERNELS_CUDA_DEVICE_MMA_CUH
#define TRI_KERNELS_CUDA_DEVICE_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* c[16, 8] += a[16, 16] b[16, 8]. A lane has of a: rows lane / 4 and + 8, columns 2 (lane % 4) and + 8, two elements
 * each; of b: rows as a's columns, column lane / 4; of c: rows as a's, columns 2 (lane % 4) and the next. */
template <typename T> struct mma;
template <> struct mma<__nv_bfloat16> {
  __device__ static inline void run(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  __device__ static inline uint32_t pack(float low, float high) {
    __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
    return *(uint32_t *)&v;
  }
};
template <> struct mma<__half> {
  __device__ static inline void run(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
  __device__ static inline uint32_t pack(float low, float high) {
    __half2 v = __floats2half2_rn(low, high);
    return *(uint32_t *)&v;
  }
};

/* c[16, 8] += a[16, 32] b[32, 8] of integers. A lane has of a: rows lane / 4 and + 8, columns 4 (lane % 4) and + 16,
 * four elements each; of b: rows as a's columns, column lane / 4; of c as above. */
__device__ static inline void mma_int8(int (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices of 16-bit elements from shared memory; lane i gives the address of row i % 8 of matrix i / 8. */
__device__ static inline void load_matrices(uint32_t (&r)[4], const void *row) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}
__device__ static inline void load_transposed(uint32_t (&r)[4], const void *row) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at));
}

/* Stores four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8, as it will lie, of matrix i / 8
 * (sm_90 and later; elsewhere nothing). */
__device__ static inline void store_matrices(void *row, const uint32_t (&r)[4]) {
#if __CUDA_ARCH__ >= 900
  uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
#endif
}
/* The same, transposed. */
__device__ static inline void store_transposed(void *row, const uint32_t (&r)[4]) {
#if __CUDA_ARCH__ >= 900
  uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(r[0]), "r"(r[1]),
               "r"(r[2]), "r"(r[3])
               : "memory");
#endif
}

/* 16 bytes to shared memory behind the thread's back; zeros where there is nothing. */
__device__ static inline void copy_async(void *to, const void *from, bool there) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(there ? 16 : 0));
}
/* The same of four bytes. */
__device__ static inline void copy_async4(void *to, const void *from, bool there) {
  uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(there ? 4 : 0));
}
__device__ static inline void commit_copies(void) { asm volatile("cp.async.commit_group;"); }
template <int LEFT> __device__ static inline void wait_copies(void) {
  asm volatile("cp.async.wait_group %0;" ::"n"(LEFT));
}

#endif
