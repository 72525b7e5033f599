/* SPDX-License-Identifier: Apache-2.0 */
/* Rounds of blocks that exchange vectors with the blocks of their number on other devices: exchange/all_reduce.h has
 * the protocol, and its kernels and those of all_gather.cu share this. */
#ifndef TRI_KERNELS_CUDA_EXCHANGE_ROUNDS_CUH
#define TRI_KERNELS_CUDA_EXCHANGE_ROUNDS_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/exchange/all_reduce.h"
#include "kernels/cuda/exchange/peers.cuh"

/* Returns the memory in which this block receives in this round. */
__device__ static inline uint4 *half_of(char *memory, uint32_t round) {
  return (uint4 *)(memory + ((size_t)blockIdx.x * 2 + round % 2) * TRI_CUDA_REDUCE_HALF_BYTES);
}

static constexpr uint32_t ENDED = 0xffffffffu; /* in the place of a round: nothing comes any more */

/* All threads have read the round; what was read stays good, since no other thread counts for this block. The highest
 * bit is left out, so that no count is ENDED; halves still alternate when it wraps. */
__device__ static inline void count_round(const tri_cuda_reduce &r, uint32_t round) {
  __syncthreads();
  if (!threadIdx.x) r.rounds[blockIdx.x] = (round + 1) & ~(1u << 31);
}

/* A peer has not come, or the host has put an end to it: launches to come are not to wait once more. */
__device__ static inline void end_rounds(const tri_cuda_reduce &r) { r.rounds[blockIdx.x] = ENDED; }

__device__ static inline void send(const tri_cuda_reduce &r, uint32_t round, int to, int slot, uint4 v) {
  put(half_of(r.memory[to], round) + slot, v);
}

/* v[k] = what rank k leaves at from + k * room, for the ranks below `until` but this one; the places are empty
 * afterwards. v[rank] is set already. */
template <int RANKS>
__device__ static inline bool receive(const tri_cuda_reduce &r, uint4 *from, int room, int until, uint4 (&v)[RANKS],
                                      patience *p) {
  bool all;
  do {
    all = true;
#pragma unroll
    for (int k = 0; k < RANKS; k++)
      if (k != r.rank && k < until) v[k] = look(from + k * room);
#pragma unroll
    for (int k = 0; k < RANKS; k++) all &= has_come(v[k]) | (k >= until);
  } while (!all && may_go_on(r.error, r.limit_ns, p));
  if (!all) end_rounds(r);
#pragma unroll
  for (int k = 0; k < RANKS; k++)
    if (all && k != r.rank && k < until) make_empty(from + k * room);
  return all;
}

/* ---- launches ---- */

struct cut {
  int vectors, part; /* all, and what a grid goes over */
  int blocks, room;
};

/* Cuts `count` floats for a shape. room: vectors of one sender in a block's half, as many for each thread as the
 * busiest one has. Every rank comes to the same numbers: they follow from the shape and the count alone. */
static inline cut cut_of(int size, tri_cuda_reduce_shape shape, size_t count) {
  cut c = {};
  c.vectors = (int)((count + 3) / 4);
  c.part = shape.two_shots ? (c.vectors + size - 1) / size : c.vectors;
  c.blocks = (c.part + shape.threads - 1) / shape.threads;
  if (c.blocks > shape.blocks) c.blocks = shape.blocks;
  int all = c.blocks * shape.threads;
  c.room = (c.part + all - 1) / all * shape.threads;
  return c;
}

/* Calls X for each number of ranks that kernels are made for. */
#define RANK_COUNTS(X) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

#endif
