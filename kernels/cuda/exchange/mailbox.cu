/* SPDX-License-Identifier: Apache-2.0 */
/* Transfers between two devices by numbered messages in a mailbox; exchange/mailbox.h has the protocol.
 *
 * The content is stored and loaded with relaxed accesses of system scope, which keep out of first-level caches, and
 * only the numbers order it: a release when all blocks have written or read, an acquire before any block reads or
 * writes. Numbers are compared by their difference, so that they may wrap. */
#include "kernels/cuda/exchange/mailbox.h"

#include "kernels/cuda/exchange/peers.cuh"

/* Few blocks to send with: others work concurrently. Those of a receiver must all be there at once. */
static constexpr int MAILBOX_THREADS = 512, SEND_BLOCKS = 16, RECEIVE_BLOCKS = 64;

/* ---- the numbers ---- */

__device__ static inline uint32_t read_number(const uint32_t *p) {
  uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

__device__ static inline void write_number(uint32_t *p, uint32_t v) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

/* The whole block waits until *word is the number or a later one. False: the wait was given up. */
__device__ static bool wait_for(const tri_cuda_message &m, const uint32_t *word, uint32_t number) {
  __shared__ bool come;
  if (!threadIdx.x) {
    patience p = {};
    do come = (int32_t)(read_number(word) - number) >= 0;
    while (!come && may_go_on(m.error, m.limit_ns, &p));
  }
  __syncthreads();
  return come;
}

/* Publishes the number once all blocks are done. Each thread fences what it has stored, the block meets, and its first
 * thread counts it; so the last block's release stands after the stores of all blocks, and not only its own. */
__device__ static void tell(const tri_cuda_message &m, uint32_t *word) {
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x) return;
  if (atomicAdd(m.blocks, 1) != gridDim.x - 1) return;
  *m.blocks = 0;
  __threadfence_system();
  write_number(word, m.number);
}

/* ---- the content: vectors where both sides are aligned, else words ---- */

template <typename T> __device__ static void copy(void *to, const void *from, size_t n) {
  size_t stride = (size_t)gridDim.x * MAILBOX_THREADS;
  for (size_t i = (size_t)blockIdx.x * MAILBOX_THREADS + threadIdx.x; i < n; i += stride)
    put((T *)to + i, look((const T *)from + i));
}

/* A slot is free when the message that had it before has been taken: SLOTS numbers earlier, which for the first ones is
 * no later than the 0 that `taken` begins with. */
__device__ static bool wait_for_slot(const tri_cuda_message &m) {
  return wait_for(m, m.taken, m.number - TRI_CUDA_MAILBOX_SLOTS);
}

/* Waits until the message's slot is empty. One block of a warp. */
__global__ static void await_kernel(tri_cuda_message m) { wait_for_slot(m); }

/* Sends n words or vectors of `from` [n] to the slot. At most 16 blocks of 512 threads. */
template <typename T>
__global__ static void __launch_bounds__(MAILBOX_THREADS) send_kernel(tri_cuda_message m, const void *from, size_t n) {
  if (!wait_for_slot(m)) return;
  copy<T>(m.slot, from, n);
  tell(m, m.arrived);
}

/* Takes n words or vectors of the slot to `to` [n]. At most 64 blocks of 512 threads. */
template <typename T>
__global__ static void __launch_bounds__(MAILBOX_THREADS) receive_kernel(tri_cuda_message m, void *to, size_t n) {
  if (!wait_for(m, m.arrived, m.number)) return;
  copy<T>(to, m.slot, n);
  tell(m, m.taken);
}

/* ---- host ---- */

static unsigned some_blocks(size_t n, unsigned most) {
  unsigned blocks = blocks_for(n, MAILBOX_THREADS);
  return blocks < most ? blocks : most;
}

static bool in_vectors(const void *p, size_t bytes) { return ((uintptr_t)p | bytes) % sizeof(uint4) == 0; }

void tri_cuda_mailbox_await(cudaStream_t stream, const tri_cuda_message *message) {
  await_kernel<<<1, 32, 0, stream>>>(*message);
}

void tri_cuda_mailbox_send(cudaStream_t stream, const tri_cuda_message *message, const void *from, size_t bytes) {
  size_t n = bytes / (in_vectors(from, bytes) ? sizeof(uint4) : sizeof(uint32_t));
  if (in_vectors(from, bytes))
    send_kernel<uint4><<<some_blocks(n, SEND_BLOCKS), MAILBOX_THREADS, 0, stream>>>(*message, from, n);
  else
    send_kernel<uint32_t><<<some_blocks(n, SEND_BLOCKS), MAILBOX_THREADS, 0, stream>>>(*message, from, n);
}

void tri_cuda_mailbox_receive(cudaStream_t stream, const tri_cuda_message *message, void *to, size_t bytes) {
  size_t n = bytes / (in_vectors(to, bytes) ? sizeof(uint4) : sizeof(uint32_t));
  if (in_vectors(to, bytes))
    receive_kernel<uint4><<<some_blocks(n, RECEIVE_BLOCKS), MAILBOX_THREADS, 0, stream>>>(*message, to, n);
  else
    receive_kernel<uint32_t><<<some_blocks(n, RECEIVE_BLOCKS), MAILBOX_THREADS, 0, stream>>>(*message, to, n);
}

cudaError_t tri_cuda_mailbox_load(void) {
  cudaFuncAttributes a;
  cudaError_t e = cudaFuncGetAttributes(&a, await_kernel);
  if (e == cudaSuccess) e = cudaFuncGetAttributes(&a, send_kernel<uint4>);
  if (e == cudaSuccess) e = cudaFuncGetAttributes(&a, send_kernel<uint32_t>);
  if (e == cudaSuccess) e = cudaFuncGetAttributes(&a, receive_kernel<uint4>);
  return e == cudaSuccess ? cudaFuncGetAttributes(&a, receive_kernel<uint32_t>) : e;
}
