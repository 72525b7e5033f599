#include "kernels/cuda/mail.h"

#include "kernels/cuda/peers.cuh"

/* Few blocks to send with: others work beside them. Those of a receiver must all be there at once. */
static constexpr int MAIL_THREADS = 512, SEND_BLOCKS = 16, RECEIVE_BLOCKS = 64;

/* ---- the numbers ---- */

__device__ static inline uint32_t read_number(const uint32_t *p) {
  uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

__device__ static inline void write_number(uint32_t *p, uint32_t v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

/* The whole block, until *word is the number or a later one. */
__device__ static bool wait_for(const tri_cuda_letter &l, const uint32_t *word, uint32_t number) {
  __shared__ bool come;
  if (!threadIdx.x) {
    patience p = {};
    do come = (int32_t)(read_number(word) - number) >= 0;
    while (!come && may_go_on(l.error, l.limit_ns, &p));
  }
  __syncthreads();
  return come;
}

/* The last block to end tells what all have done. */
__device__ static void tell(const tri_cuda_letter &l, uint32_t *word) {
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x) return;
  if (atomicAdd(l.blocks, 1) != gridDim.x - 1) return;
  *l.blocks = 0;
  __threadfence_system();
  write_number(word, l.number);
}

/* ---- the content: vectors where both sides are aligned, else words ---- */

__device__ static inline uint32_t look(const uint32_t *p) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}

__device__ static inline void put(uint32_t *p, uint32_t v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v));
}

template <typename T> __device__ static void copy(void *to, const void *from, size_t n) {
  size_t stride = (size_t)gridDim.x * MAIL_THREADS;
  for (size_t i = (size_t)blockIdx.x * MAIL_THREADS + threadIdx.x; i < n; i += stride)
    put((T *)to + i, look((const T *)from + i));
}

__device__ static bool wait_for_place(const tri_cuda_letter &l) {
  return wait_for(l, l.taken, l.number - TRI_CUDA_MAIL_PLACES);
}

__global__ static void await_kernel(tri_cuda_letter l) { wait_for_place(l); }

template <typename T>
__global__ static void __launch_bounds__(MAIL_THREADS) send_kernel(tri_cuda_letter l, const void *from, size_t n) {
  if (!wait_for_place(l)) return;
  copy<T>(l.box, from, n);
  tell(l, l.arrived);
}

template <typename T>
__global__ static void __launch_bounds__(MAIL_THREADS) receive_kernel(tri_cuda_letter l, void *to, size_t n) {
  if (!wait_for(l, l.arrived, l.number)) return;
  copy<T>(to, l.box, n);
  tell(l, l.taken);
}

/* ---- host ---- */

static unsigned some_blocks(size_t n, unsigned most) {
  unsigned blocks = blocks_for(n, MAIL_THREADS);
  return blocks < most ? blocks : most;
}

static bool in_vectors(const void *p, size_t bytes) { return ((uintptr_t)p | bytes) % sizeof(uint4) == 0; }

void tri_cuda_mail_await(cudaStream_t stream, const tri_cuda_letter *letter) {
  await_kernel<<<1, 32, 0, stream>>>(*letter);
}

void tri_cuda_mail_send(cudaStream_t stream, const tri_cuda_letter *letter, const void *from, size_t bytes) {
  size_t n = bytes / (in_vectors(from, bytes) ? sizeof(uint4) : sizeof(uint32_t));
  if (in_vectors(from, bytes))
    send_kernel<uint4><<<some_blocks(n, SEND_BLOCKS), MAIL_THREADS, 0, stream>>>(*letter, from, n);
  else
    send_kernel<uint32_t><<<some_blocks(n, SEND_BLOCKS), MAIL_THREADS, 0, stream>>>(*letter, from, n);
}

void tri_cuda_mail_receive(cudaStream_t stream, const tri_cuda_letter *letter, void *to, size_t bytes) {
  size_t n = bytes / (in_vectors(to, bytes) ? sizeof(uint4) : sizeof(uint32_t));
  if (in_vectors(to, bytes))
    receive_kernel<uint4><<<some_blocks(n, RECEIVE_BLOCKS), MAIL_THREADS, 0, stream>>>(*letter, to, n);
  else
    receive_kernel<uint32_t><<<some_blocks(n, RECEIVE_BLOCKS), MAIL_THREADS, 0, stream>>>(*letter, to, n);
}

cudaError_t tri_cuda_mail_load(void) {
  cudaFuncAttributes a;
  cudaError_t e = cudaFuncGetAttributes(&a, await_kernel);
  if (e == cudaSuccess) e = cudaFuncGetAttributes(&a, send_kernel<uint4>);
  if (e == cudaSuccess) e = cudaFuncGetAttributes(&a, send_kernel<uint32_t>);
  if (e == cudaSuccess) e = cudaFuncGetAttributes(&a, receive_kernel<uint4>);
  return e == cudaSuccess ? cudaFuncGetAttributes(&a, receive_kernel<uint32_t>) : e;
}
