/* SPDX-License-Identifier: Apache-2.0 */
/* Small messages of all devices of a host to all of them, through the memory and in the rounds of their sums
 * (exchange/all_reduce.h). Everything goes to everybody at once, as in a sum of one shot.
 *
 * Sums may send another NaN in the place of the empty word; a message keeps its bits. So a vector has three words of
 * it, and a fourth that says which of them are the empty word. */
#include "kernels/cuda/exchange/rounds.cuh"

enum { CARRIED = 3 /* words of a vector */ };

/* Returns vector i of a message of `words`; what lies after its end is zero. */
__device__ static inline uint4 wrapped(const uint32_t *message, int words, int i) {
  uint32_t w[CARRIED], empty = 0;
#pragma unroll
  for (int k = 0; k < CARRIED; k++) {
    const int at = CARRIED * i + k;
    w[k] = at < words ? message[at] : 0;
    if (w[k] != EMPTY) continue;
    w[k] = 0;
    empty |= 1u << k;
  }
  return make_uint4(w[0], w[1], w[2], empty);
}

__device__ static inline void unwrap(uint32_t *message, int words, int i, uint4 v) {
  const uint32_t w[CARRIED] = {v.x, v.y, v.z};
#pragma unroll
  for (int k = 0; k < CARRIED; k++) {
    const int at = CARRIED * i + k;
    if (at < words) message[at] = v.w >> k & 1 ? EMPTY : w[k];
  }
}

/* own [words]: this rank's; all [RANKS, words]: everybody's, whose part of this rank may be `own`. Vectors, shapes and
 * grid are as in one_shot of all_reduce.cu. */
template <int RANKS>
__global__ __launch_bounds__(TRI_CUDA_REDUCE_THREADS) static void gather(const __grid_constant__ tri_cuda_reduce r,
                                                                         const uint32_t *own, uint32_t *all, int words,
                                                                         int vectors, int room) {
  let_next_begin();
  wait_for_previous();
  const uint32_t round = r.rounds[blockIdx.x];
  if (round == ENDED) return;
  const int threads = (int)blockDim.x, stride = threads * (int)gridDim.x, me = (int)threadIdx.x;
  const int first = (int)blockIdx.x * threads + me;
  for (int i = first, slot = r.rank * room + me; i < vectors; i += stride, slot += threads) {
    uint4 v = wrapped(own, words, i);
#pragma unroll
    for (int d = 1; d < RANKS; d++) send(r, round, (r.rank + d) % RANKS, slot, v);
    unwrap(all + (size_t)r.rank * (size_t)words, words, i, v);
  }
  count_round(r, round);
  patience p = {};
  uint4 *from = half_of(r.memory[r.rank], round) + me;
  for (int i = first; i < vectors; i += stride, from += threads) {
    uint4 v[RANKS] = {};
    if (!receive<RANKS>(r, from, room, RANKS, v, &p)) return;
#pragma unroll
    for (int k = 0; k < RANKS; k++)
      if (k != r.rank) unwrap(all + (size_t)k * (size_t)words, words, i, v[k]);
  }
}

/* ---- host ---- */

size_t tri_cuda_gather_floats(size_t words) { return (words + CARRIED - 1) / CARRIED * 4; }

void tri_cuda_gather_launch(cudaStream_t stream, const tri_cuda_reduce *r, tri_cuda_reduce_shape shape,
                            const uint32_t *own, uint32_t *all, size_t words) {
  const cut c = cut_of(r->size, shape, tri_cuda_gather_floats(words));
  const dim3 blocks((unsigned)c.blocks);
  switch (r->size) {
#define X(n)                                                                                                           \
  case n:                                                                                                              \
    launch_overlapped(gather<n>, blocks, (unsigned)shape.threads, 0, stream, *r, own, all, (int)words, c.vectors,      \
                      c.room);                                                                                         \
    break;
    RANK_COUNTS(X)
#undef X
  }
}

cudaError_t tri_cuda_gather_load(int size) {
  cudaFuncAttributes a;
  switch (size) {
#define X(n)                                                                                                           \
  case n: return cudaFuncGetAttributes(&a, gather<n>);
    RANK_COUNTS(X)
#undef X
  }
  return cudaErrorInvalidValue;
}
