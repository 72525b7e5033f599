/* SPDX-License-Identifier: Apache-2.0 */
/* The work of experts on a device: which experts have rows is known there alone. Each block lists them for itself, and
 * takes its share of what their rows and their weights' rows are cut into. */
#ifndef TRI_KERNELS_CUDA_MOE_WORK_CUH
#define TRI_KERNELS_CUDA_MOE_WORK_CUH

#include "kernels/cuda/device/device.cuh"

/* The experts that have rows, in shared memory. A unit is up to so many of an expert's rows. */
typedef struct work_list {
  int num;             /* of experts */
  const int *expert;   /* [num] */
  const int *start;    /* [num + 1] number of the expert's first unit */
  const int *row;      /* [num] first row of the map */
  const int *num_rows; /* [num] */
} work_list;

__host__ __device__ static inline size_t work_list_ints(int num_experts) { return 4 * (size_t)num_experts + 4; }

/* By all threads of a block, maybe before the previous kernel has ended: the map is read past the first-level cache.
 * room: work_list_ints, aligned to 16 bytes. */
__device__ static inline work_list list_work(const int32_t *first, int num_experts, int unit_rows, int *room) {
  int *start = room + 1, *expert = start + num_experts + 1, *row = expert + num_experts, *num_rows = row + num_experts;
  if (threadIdx.x < WARP) {
    int lane = threadIdx.x, each = (num_experts + WARP - 1) / WARP;
    int begin = min(lane * each, num_experts), end = min(begin + each, num_experts), units = 0, busy = 0;
    for (int e = begin; e < end; e++) {
      int n = __ldcg(first + e + 1) - __ldcg(first + e);
      units += (n + unit_rows - 1) / unit_rows;
      busy += n > 0;
    }
    /* Inclusive sums over the lanes, of units and of experts with rows. */
    int unit = units, at = busy;
    for (int o = 1; o < WARP; o *= 2) {
      int more_units = __shfl_up_sync(0xffffffffu, unit, o), more_busy = __shfl_up_sync(0xffffffffu, at, o);
      if (lane >= o) {
        unit += more_units;
        at += more_busy;
      }
    }
    if (lane == WARP - 1) {
      room[0] = at;
      start[at] = unit;
    }
    unit -= units;
    at -= busy;
    for (int e = begin; e < end; e++) {
      int n = __ldcg(first + e + 1) - __ldcg(first + e);
      if (n <= 0) continue;
      expert[at] = e;
      row[at] = __ldcg(first + e);
      num_rows[at] = n;
      start[at++] = unit;
      unit += (n + unit_rows - 1) / unit_rows;
    }
  }
  __syncthreads();
  return {room[0], expert, start, row, num_rows};
}

/* A tile of a unit: `tile` of the tiles that the weights' rows are cut into. */
typedef struct work_place {
  int at, unit, tile; /* at: of the list */
} work_place;

/* Items are numbered by unit and then by tile. There is one. */
__device__ static inline work_place find_work(const work_list &l, int item, int tiles) {
  int unit = item / tiles, low = 0, high = l.num - 1;
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (l.start[middle] <= unit)
      low = middle;
    else
      high = middle - 1;
  }
  return {low, unit, item % tiles};
}

/* The item after it; of the last one a value that must not be used. */
__device__ static inline work_place next_work(const work_list &l, work_place p, int tiles) {
  if (++p.tile < tiles) return p;
  p.tile = 0;
  p.unit++;
  if (p.at + 1 < l.num && p.unit >= l.start[p.at + 1]) p.at++;
  return p;
}

/* A unit's rows of the map. */
typedef struct work_rows {
  int expert, first, count;
} work_rows;

__device__ static inline work_rows rows_of_work(const work_list &l, work_place p, int unit_rows) {
  int skipped = (p.unit - l.start[p.at]) * unit_rows;
  return {l.expert[p.at], l.row[p.at] + skipped, min(l.num_rows[p.at] - skipped, unit_rows)};
}

/* Items begin .. end - 1 of a block: the first blocks may have one more. All items are fewer than 2^31. */
typedef struct work_range {
  int begin, end;
} work_range;

__device__ static inline work_range range_of_block(const work_list &l, int tiles) {
  int items = l.start[l.num] * tiles, blocks = (int)gridDim.x, b = (int)blockIdx.x;
  int each = items / blocks, rest = items % blocks, begin = b * each + min(b, rest);
  return {begin, begin + each + (b < rest)};
}

#endif
