/* SPDX-License-Identifier: Apache-2.0 */
/* Making the map of choices by the blocks of a cluster, whose warps have routed a token each; see tri_expert_map. A
 * block keeps for each expert the set of its tokens that choose it, and sends the sets to all blocks. A token chooses
 * an expert (or a slot) once, so the whole map follows from the sets, and nothing is read back from memory.
 *
 * What is sent adds to the bytes that a barrier expects where it arrives. The cluster's barrier would do, too, but its
 * release waits for all that the block has stored to memory. No block ends before all sets are there, so whatever is
 * sent finds its block running. For Hopper: see hopper.cuh. */
#ifndef TRI_KERNELS_CUDA_MOE_CLUSTER_CUH
#define TRI_KERNELS_CUDA_MOE_CLUSTER_CUH

#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/device/hopper.cuh"
#include "kernels/cuda/moe/map.cuh"

enum { CLUSTER_BLOCKS = 8 }; /* more are not portable; a block has a warp for each at least */

/* A block's room in shared memory, [width] of num_experts each. */
typedef struct cluster_room {
  unsigned *chosen; /* bit w: the token of the block's warp w chooses the expert */
  unsigned *sets;   /* [blocks, width] what all blocks have there */
  int *rows;        /* where the rows of the block's tokens begin */
  barrier *arrived; /* the sets of all blocks */
  int width, each;  /* num_experts in fours; those of a thread */
} cluster_room;

__host__ __device__ static inline int set_width(int num_experts) { return (num_experts + 3) / 4 * 4; }

__host__ __device__ static inline size_t cluster_room_bytes(int blocks, int num_experts) {
  return (size_t)(blocks + 2) * (size_t)set_width(num_experts) * sizeof(unsigned);
}

/* at: aligned to 16 bytes. */
__device__ static inline cluster_room cluster_room_at(void *at, barrier *arrived, int num_experts) {
  int width = set_width(num_experts);
  unsigned *chosen = (unsigned *)at, *sets = chosen + width;
  int *rows = (int *)(sets + (int)gridDim.y * width);
  return {chosen, sets, rows, arrived, width, (num_experts + (int)blockDim.x - 1) / (int)blockDim.x};
}

/* Makes the room ready, and tells the other blocks so. */
__device__ static inline void open_room(const cluster_room &r) {
  for (int e = threadIdx.x; e < r.width; e += blockDim.x) r.chosen[e] = 0;
  if (!threadIdx.x) {
    barrier_init(r.arrived, 1);
    barriers_are_made();
    barrier_expect(r.arrived, gridDim.y * (unsigned)r.width * (unsigned)sizeof(unsigned));
  }
  arrive_at_cluster();
}

/* Sends the block's sets to all blocks, each by a warp, and waits for theirs. */
__device__ static inline void exchange_sets(const cluster_room &r) {
  int to = threadIdx.x / WARP;
  unsigned *place = r.sets + (int)blockIdx.y * r.width;
  wait_at_cluster();
#pragma unroll 1
  for (int e = 4 * (threadIdx.x % WARP); e < r.width && to < (int)gridDim.y; e += 4 * WARP)
    send4_in_cluster(address_in_cluster(place + e, to), *(const uint4 *)(r.chosen + e),
                     address_in_cluster(r.arrived, to));
  wait_for_sent(r.arrived);
}

/* Counts the rows of a thread's experts, all of them and those of the previous blocks. Returns their sum. */
__device__ static inline int count_rows(const cluster_room &r, int from, int to) {
  int rank = (int)blockIdx.y, blocks = (int)gridDim.y, rows = 0;
#pragma unroll 1
  for (int e = from; e < to; e++) {
    unsigned set[CLUSTER_BLOCKS];
    int count = 0, front = 0;
#pragma unroll
    for (int b = 0; b < CLUSTER_BLOCKS; b++) set[b] = b < blocks ? r.sets[b * r.width + e] : 0;
#pragma unroll
    for (int b = 0; b < CLUSTER_BLOCKS; b++) {
      front += b < rank ? __popc(set[b]) : 0;
      count += __popc(set[b]);
    }
    r.rows[e] = count << 16 | front;
    rows += count;
  }
  return rows;
}

/* Finds where experts' rows begin; the first block puts it into the map and adds to the tally. Each thread has
 * neighbouring experts, mostly one. */
__device__ static inline void find_rows(const tri_moe_map_args &a, const cluster_room &r) {
  __shared__ unsigned sums[MAP_WARPS];
  int own = a.num_experts, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int from = min((int)threadIdx.x * r.each, own), to = min(from + r.each, own);
  int rows = count_rows(r, from, to), upto = rows;
#pragma unroll 1
  for (int o = 1; o < WARP; o *= 2) {
    int other = __shfl_up_sync(ALL_LANES, upto, o);
    if (lane >= o) upto += other;
  }
  if (lane == WARP - 1) sums[warp] = (unsigned)upto;
  __syncthreads();
  int at = upto - rows + (int)__reduce_add_sync(ALL_LANES, lane < warp ? sums[lane] : 0u);
#pragma unroll 1
  for (int e = from; e < to; e++) {
    int count = r.rows[e] >> 16;
    r.rows[e] = at + (r.rows[e] & 0xffff);
    if (!blockIdx.y) {
      a.map.first[e] = at;
      add_to_tally(a, e, count);
    }
    at += count;
  }
  if (!blockIdx.y && threadIdx.x == blockDim.x - 1) a.map.first[own] = at;
  __syncthreads();
}

/* Makes the map. ids: the choices of `token`, which the warp has routed, in shared memory; or NULL. */
__device__ static inline void make_cluster_map(const tri_moe_map_args &a, const cluster_room &r, int token,
                                               const int32_t *ids) {
  int lane = threadIdx.x % WARP, num = ids ? a.top_k : 0;
  unsigned mine = 1u << threadIdx.x / WARP;
#pragma unroll 1
  for (int c = lane; c < num; c += WARP) {
    int e = own_expert(a, ids[c]);
    if (e >= 0) atomicOr(r.chosen + e, mine);
  }
  __syncthreads();
  exchange_sets(r);
  find_rows(a, r);
#pragma unroll 1
  for (int c = lane; c < num; c += WARP) {
    int e = own_expert(a, ids[c]), i = token * a.top_k + c;
    int row = e >= 0 ? r.rows[e] + __popc(r.chosen[e] & (mine - 1)) : -1;
    a.map.row[i] = row;
    if (row >= 0) a.map.choice[row] = i;
  }
}

#endif
