/* Making the map of choices inside of a block; see tri_expert_map. */
#ifndef TRI_KERNELS_CUDA_MOE_MAP_CUH
#define TRI_KERNELS_CUDA_MOE_MAP_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/moe.h"

enum {
  MAP_WARPS = 8,                /* of a block, at most */
  FUSED_CHOICES = 4096,         /* of which one block makes the map */
  PART_TOKENS = 32,             /* of a block where there are more */
  MOST_SHARED = (48 << 10) - 64 /* the kernels have some of their own */
};

/* Returns the own expert of a choice, or -1. Other blocks may have chosen. */
__device__ static inline int own_expert(const tri_moe_map_args &a, int choice) {
  long long e = (long long)__ldcg(a.experts + choice) - a.first_expert;
  return e >= 0 && e < a.num_experts ? (int)e : -1;
}

/* The part of the choices begin .. end - 1 that a warp has; the order of warps is that of choices. */
typedef struct choices_of_warp {
  int begin, end;
} choices_of_warp;

__device__ static inline choices_of_warp cut_choices(int begin, int end) {
  int warps = blockDim.x / WARP, each = ((end - begin + warps - 1) / warps + WARP - 1) / WARP * WARP;
  int from = min(begin + (int)(threadIdx.x / WARP) * each, end);
  return {from, min(from + each, end)};
}

/* Gives each own choice its number among its warp's of that expert, in map.row, and counts[warp][expert] how many they
 * are; then counts becomes how many the warps in front have, and totals[expert] how many all have. */
__device__ static inline void count_choices(const tri_moe_map_args &a, int begin, int end, int *counts, int *totals) {
  int own = a.num_experts, warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
  int *mine = counts + (size_t)(threadIdx.x / WARP) * (size_t)own;
  choices_of_warp part = cut_choices(begin, end);
  for (int e = lane; e < own; e += WARP) mine[e] = 0;
  __syncwarp();
  for (int i0 = part.begin; i0 < part.end; i0 += WARP) {
    int i = i0 + lane, e = i < part.end ? own_expert(a, i) : -1;
    unsigned alike = __match_any_sync(ALL_LANES, e);
    int before = __popc(alike & ((1u << lane) - 1)), base = e >= 0 ? mine[e] : 0;
    __syncwarp();
    if (e >= 0 && !before) mine[e] = base + __popc(alike);
    __syncwarp();
    if (i < part.end) a.map.row[i] = e >= 0 ? base + before : -1;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < own; e += blockDim.x) {
    int sum = 0;
    for (int w = 0; w < warps; w++) {
      int *at = counts + (size_t)w * (size_t)own + e, n = *at;
      *at = sum;
      sum += n;
    }
    totals[e] = sum;
  }
  __syncthreads();
}

/* Turns counts by expert into where each expert begins, by one warp; returns their sum. */
__device__ static inline int scan_experts(int *counts, int n) {
  int lane = threadIdx.x % WARP, sum = 0;
  for (int e0 = 0; e0 < n; e0 += WARP) {
    int e = e0 + lane, own = e < n ? counts[e] : 0, x = own;
    for (int o = 1; o < WARP; o *= 2) {
      int y = __shfl_up_sync(ALL_LANES, x, o);
      if (lane >= o) x += y;
    }
    if (e < n) counts[e] = sum + x - own;
    sum += __shfl_sync(ALL_LANES, x, WARP - 1);
  }
  return sum;
}

/* Puts where experts begin into the map, and adds their rows to the tally. By all threads of a block and rows is
 * their number. */
__device__ static inline void end_map(const tri_moe_map_args &a, const int *first, int rows) {
  for (int e = threadIdx.x; e < a.num_experts; e += blockDim.x) {
    int n = (e + 1 < a.num_experts ? first[e + 1] : rows) - first[e];
    a.map.first[e] = first[e];
    if (!a.tally || !n) continue;
    a.tally[e].rows += (uint64_t)n;
    a.tally[e].steps++;
  }
}

/* The whole map, by one block. room: [warps + 1, num_experts]. */
__device__ static inline void make_map(const tri_moe_map_args &a, int *room) {
  int choices = a.num_tokens * a.top_k, own = a.num_experts, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int *first = room, *counts = room + own;
  __shared__ int rows;
  count_choices(a, 0, choices, counts, first);
  if (!warp) {
    int sum = scan_experts(first, own);
    if (!lane) a.map.first[own] = rows = sum;
  }
  __syncthreads();
  end_map(a, first, rows);
  choices_of_warp part = cut_choices(0, choices);
  for (int i = part.begin + lane; i < part.end; i += WARP) {
    int e = own_expert(a, i);
    if (e < 0) continue;
    int row = first[e] + counts[(size_t)warp * (size_t)own + e] + a.map.row[i];
    a.map.row[i] = row;
    a.map.choice[row] = i;
  }
}

/* Counts the choices of a part of the tokens by expert: parts[block][expert] is how many there are, and map.row has a
 * choice's number among its part's of that expert. room: [warps + 1, num_experts]. */
__device__ static inline void count_part(const tri_moe_map_args &a, int begin, int end, int *room, int *parts) {
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, own = a.num_experts;
  int *totals = room, *counts = totals + own;
  count_choices(a, begin * a.top_k, end * a.top_k, counts, totals);
  for (int e = threadIdx.x; e < own; e += blockDim.x) parts[(size_t)blockIdx.x * (size_t)own + e] = totals[e];
  choices_of_warp part = cut_choices(begin * a.top_k, end * a.top_k);
  for (int i = part.begin + lane; i < part.end; i += WARP) {
    int e = own_expert(a, i);
    if (e >= 0) a.map.row[i] += counts[(size_t)warp * (size_t)own + e];
  }
}

#endif
