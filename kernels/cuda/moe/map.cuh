/* SPDX-License-Identifier: Apache-2.0 */
/* Making the map of choices inside of a block; see tri_expert_map. */
#ifndef TRI_KERNELS_CUDA_MOE_MAP_CUH
#define TRI_KERNELS_CUDA_MOE_MAP_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/moe/moe.h"

enum {
  MAP_WARPS = 16,                /* of a block, at most */
  FUSED_CHOICES = 4096,          /* of which one block makes the map */
  SMALL_CHOICES = 128,           /* of which it does so by comparing all with all */
  PART_TOKENS = 32,              /* of a block where there are more */
  MOST_SHARED = (48 << 10) - 128 /* the kernels have some of their own */
};

/* Returns the own expert of an expert of all, or -1. */
__device__ static inline int own_expert(const tri_moe_map_args &a, int32_t expert) {
  long long e = (long long)expert - a.first_expert;
  return e >= 0 && e < a.num_experts ? (int)e : -1;
}

/* A map in the making, in shared memory. */
typedef struct map_room {
  int *choice; /* [choices] the own expert, and in the upper half the number among its warp's of that expert; or -1 */
  int *first;  /* [num_experts] */
  int *counts; /* [warps, num_experts] */
} map_room;

__host__ __device__ static inline size_t map_room_ints(int choices, int warps, int num_experts) {
  return (size_t)choices + (size_t)(warps + 1) * (size_t)num_experts;
}

__device__ static inline map_room map_room_at(int *at, int choices, int num_experts) {
  return {at, at + choices, at + choices + num_experts};
}

/* Brings the choices from `begin` on to the room. Other blocks may have made them. */
__device__ static inline void bring_choices(const tri_moe_map_args &a, int begin, int num, const map_room &r) {
  for (int i = threadIdx.x; i < num; i += blockDim.x) r.choice[i] = __ldcg(a.experts + begin + i);
}

/* Turns the choices in the room into own ones. */
__device__ static inline void keep_own(const tri_moe_map_args &a, int num, const map_room &r) {
  __syncthreads();
  for (int i = threadIdx.x; i < num; i += blockDim.x) r.choice[i] = own_expert(a, r.choice[i]);
  __syncthreads();
}

/* The part of `num` choices that a warp has; the order of warps is that of choices. */
typedef struct choices_of_warp {
  int begin, end;
} choices_of_warp;

__device__ static inline choices_of_warp cut_choices(int num) {
  int warps = blockDim.x / WARP, each = ((num + warps - 1) / warps + WARP - 1) / WARP * WARP;
  int from = min((int)(threadIdx.x / WARP) * each, num);
  return {from, min(from + each, num)};
}

/* Gives each own choice its number; then counts becomes how many the previous warps have, and first how many all have.
 * All threads may use them after it. Within a warp, choices of one expert find each other by __match_any: the number
 * among them is the count of lower lanes, and one lane adds all of them to the warp's count. No atomics: the numbers
 * would depend on their order. */
__device__ static inline void count_choices(const tri_moe_map_args &a, int num, const map_room &r) {
  int own = a.num_experts, warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
  int *mine = r.counts + (size_t)(threadIdx.x / WARP) * (size_t)own;
  choices_of_warp part = cut_choices(num);
  for (int e = lane; e < own; e += WARP) mine[e] = 0;
  __syncwarp();
  for (int i0 = part.begin; i0 < part.end; i0 += WARP) {
    int i = i0 + lane, e = i < part.end ? r.choice[i] : -1;
    unsigned alike = __match_any_sync(ALL_LANES, e);
    int before = __popc(alike & ((1u << lane) - 1)), base = e >= 0 ? mine[e] : 0;
    __syncwarp();
    if (e >= 0 && !before) mine[e] = base + __popc(alike);
    __syncwarp();
    if (e >= 0) r.choice[i] = e | (base + before) << 16;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < own; e += blockDim.x) {
    int sum = 0;
    for (int w = 0; w < warps; w++) {
      int *at = r.counts + (size_t)w * (size_t)own + e, n = *at;
      *at = sum;
      sum += n;
    }
    r.first[e] = sum;
  }
  __syncthreads();
}

/* Returns how many choices of the expert there are before this one, by a thread of the warp that has it. */
__device__ static inline int number_of(const tri_moe_map_args &a, const map_room &r, int choice) {
  return r.counts[(size_t)(threadIdx.x / WARP) * (size_t)a.num_experts + (choice & 0xffff)] + (choice >> 16);
}

/* Turns counts by expert into where each expert begins, by one warp; returns their sum. */
__device__ static inline int scan_experts(int *counts, int n) {
  int lane = threadIdx.x % WARP, each = (n + WARP - 1) / WARP, begin = min(lane * each, n), own = 0;
  int end = min(begin + each, n);
  for (int e = begin; e < end; e++) own += counts[e];
  int upto = own;
  for (int o = 1; o < WARP; o *= 2) {
    int other = __shfl_up_sync(ALL_LANES, upto, o);
    if (lane >= o) upto += other;
  }
  for (int e = begin, at = upto - own; e < end; e++) {
    int count = counts[e];
    counts[e] = at;
    at += count;
  }
  return __shfl_sync(ALL_LANES, upto, WARP - 1);
}

/* No other thread adds, but one that does not wait for the old value ends sooner. */
__device__ static inline void add_to_tally(const tri_moe_map_args &a, int expert, int rows) {
  if (!a.tally || !rows) return;
  atomicAdd((unsigned long long *)&a.tally[expert].rows, (unsigned long long)rows);
  atomicAdd((unsigned long long *)&a.tally[expert].steps, 1ull);
}

/* Puts where experts begin into the map, and adds their rows to the tally. By all threads of a block; rows is their
 * number. */
__device__ static inline void end_map(const tri_moe_map_args &a, const int *first, int rows) {
  for (int e = threadIdx.x; e < a.num_experts; e += blockDim.x) {
    add_to_tally(a, e, (e + 1 < a.num_experts ? first[e + 1] : rows) - first[e]);
    a.map.first[e] = first[e];
  }
}

/* The whole map of own choices that are in the room, by one block. */
__device__ static inline void make_map(const tri_moe_map_args &a, const map_room &r) {
  int num = a.num_tokens * a.top_k, lane = threadIdx.x % WARP;
  __shared__ int rows;
  count_choices(a, num, r);
  if (threadIdx.x < WARP) {
    int sum = scan_experts(r.first, a.num_experts);
    if (!lane) a.map.first[a.num_experts] = rows = sum;
  }
  __syncthreads();
  choices_of_warp part = cut_choices(num);
  for (int i = part.begin + lane; i < part.end; i += WARP) {
    int choice = r.choice[i], row = choice >= 0 ? r.first[choice & 0xffff] + number_of(a, r, choice) : -1;
    a.map.row[i] = row;
    if (row >= 0) a.map.choice[row] = i;
  }
  end_map(a, r.first, rows);
}

/* The same of few choices, in less code, which is what takes the time then: each thread counts the choices before its
 * own in the map, and before its expert. room: [num], with the choices. An own choice's place is expert * num + i,
 * which orders by expert and then by choice; choices of other ranks' experts come after all. */
__device__ static inline void make_small_map(const tri_moe_map_args &a, int *room) {
  unsigned num = (unsigned)(a.num_tokens * a.top_k), own = (unsigned)a.num_experts, *place = (unsigned *)room;
  for (unsigned i = threadIdx.x; i < num; i += blockDim.x) { /* in the order of the map */
    int e = own_expert(a, room[i]);
    place[i] = e >= 0 ? (unsigned)e * num + i : ~0u;
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < num || i <= own; i += blockDim.x) {
    unsigned mine = i < num ? place[i] : ~0u, row = 0, first = 0, end = 0;
#pragma unroll 4
    for (unsigned j = 0; j < num; j++) {
      unsigned other = place[j];
      row += other < mine;
      first += other < i * num;
      end += other < (i + 1) * num;
    }
    if (i < num) a.map.row[i] = mine == ~0u ? -1 : (int)row;
    if (mine != ~0u) a.map.choice[row] = (int)i;
    if (i <= own) a.map.first[i] = (int)first;
    if (i < own) add_to_tally(a, (int)i, (int)(end - first));
  }
}

/* Counts the choices of a part of the tokens, which are in the room, by expert: parts[block][expert] is how many there
 * are, and map.row has a choice's number among its part's of that expert. */
__device__ static inline void count_part(const tri_moe_map_args &a, int begin, int num, const map_room &r, int *parts) {
  int own = a.num_experts, lane = threadIdx.x % WARP;
  count_choices(a, num, r);
  for (int e = threadIdx.x; e < own; e += blockDim.x) parts[(size_t)blockIdx.x * (size_t)own + e] = r.first[e];
  choices_of_warp part = cut_choices(num);
  for (int i = part.begin + lane; i < part.end; i += WARP)
    a.map.row[begin + i] = r.choice[i] >= 0 ? number_of(a, r, r.choice[i]) : -1;
}

/* ---- launches ---- */

/* Returns how many choices a block has in its room. */
static inline int choices_of_block(const tri_moe_map_args &a) {
  int64_t all = (int64_t)a.num_tokens * a.top_k;
  return all <= FUSED_CHOICES ? (int)all : PART_TOKENS * a.top_k;
}

static inline size_t map_bytes(const tri_moe_map_args &a, int warps) {
  return map_room_ints(choices_of_block(a), warps, a.num_experts) * sizeof(int);
}

#endif
