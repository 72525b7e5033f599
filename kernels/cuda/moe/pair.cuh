/* SPDX-License-Identifier: Apache-2.0 */
/* Both GEMMs of experts in one kernel (moe/grouped.cuh has their parts). Blocks take the tiles of the second GEMM
 * after those of the first one from the same queue: who finds none left of the first continues with weights of the
 * second, while others end theirs, and waits for nothing but the hidden rows of its tile's expert. So memory is read
 * without a pause between the two, and one launch's beginning and the end of one's last round are saved.
 *
 * Tiles of the first GEMM wait for none and are taken first, so that blocks do not wait for each other in a circle.
 * A block's first tile is its own by number, and one may wait for another that has yet to begin: there is a
 * multiprocessor for each, and no block of the next kernel begins before all of these have. */
#ifndef TRI_KERNELS_CUDA_MOE_PAIR_CUH
#define TRI_KERNELS_CUDA_MOE_PAIR_CUH

#include "kernels/cuda/moe/grouped.cuh"

struct pair_of_mmas {
  grouped up, down; /* with one queue, up's */
  unsigned *told;   /* [num_experts] warpgroups that have stored a tile's hidden rows: 0 before and after */
};

/* Which tiles there are: the first GEMM's are first. */
struct pair_tiles {
  int up, all;
  int tellers;        /* of a group of an expert's rows: warpgroups that store hidden rows */
  int slabs, in_slab; /* of the second GEMM's outputs, and its tiles in each */
};

template <typename R> __device__ static inline pair_tiles count_tiles(const pair_of_mmas &p, const int *start) {
  enum { UNITS = R::ROWS / 2 };
  int groups = start[p.up.num_experts], units = (p.up.outputs + UNITS - 1) / UNITS;
  pair_tiles n;
  n.up = groups * units;
  n.tellers = units * CONSUMERS;
  n.slabs = (p.down.outputs + R::ROWS - 1) / R::ROWS;
  n.in_slab = groups * p.down.splits;
  n.all = n.up + n.slabs * n.in_slab;
  return n;
}

/* ---- telling of hidden rows ---- */

/* Tells that this warpgroup has stored its part of a tile: the barrier makes all its stores the first thread's to
 * publish. */
__device__ static inline void tell_stored(unsigned *told) {
  named_sync(threadIdx.x / WARPGROUP, WARPGROUP);
  if (threadIdx.x % WARPGROUP == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(told) : "memory");
}

/* True once as many have told: then this thread sees what they have stored. */
__device__ static inline bool have_told(const unsigned *told, int tellers) {
  unsigned v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(told) : "memory");
  return v >= (unsigned)tellers;
}

/* ---- fetching ---- */

/* Begins a tile's weights, as far as the ring has room, until the hidden rows of its expert are there. By one thread.
 * Returns how many steps it has begun. */
template <typename F, int BLOCKS, int COLS>
__device__ static inline int begin_until_told(const tri_tensor_map *weights, room<F, BLOCKS, COLS> &s,
                                              ring_place<room<F, BLOCKS, COLS>::STAGES> to, const tile &t,
                                              const unsigned *told, int tellers) {
  typedef room<F, BLOCKS, COLS> R;
  int begun = 0;
  bool there = false;
  while (!there && begun < t.steps && begun < R::STAGES) {
    barrier_wait(&s.empty[to.stage], to.parity ^ 1);
    begin_step<F, BLOCKS, COLS, false, true>(weights, s, to.stage, t, begun);
    begun++;
    to.next();
    there = have_told(told, tellers);
  }
  while (!there) there = have_told(told, tellers);
  return begun;
}

/* Begins all of a tile's steps; of the first `begun` the weights are on their way. */
template <typename F, int BLOCKS, int COLS, bool GATED>
__device__ static inline void fetch_tile(const grouped &g, const tri_tensor_map *weights, room<F, BLOCKS, COLS> &s,
                                         ring_place<room<F, BLOCKS, COLS>::STAGES> &at, const tile &t, int begun) {
  gathering<F, COLS> rows;
  rows.begin(g, t);
  for (int i = 0; i < t.steps; i++, at.next()) {
    barrier_wait(&s.empty[at.stage], at.parity ^ 1);
    if (threadIdx.x == 0 && i >= begun) begin_step<F, BLOCKS, COLS, GATED, true>(weights, s, at.stage, t, i);
    rows.copy(g, s.inputs[at.stage], t.k + i * F::STEP);
    barrier_arrive_behind_copies(&s.full[at.stage]);
  }
}

enum { LAST_NUMBER = 0x7fffffff };

/* Takes the next tile from the queue, like take_number. Who takes the last one gets LAST_NUMBER: then all waits are
 * over.
 */
__device__ static inline int take_of_pair(const grouped &g, int tiles, int *room) {
  if (threadIdx.x == 0) {
    unsigned before = atomicAdd(g.queue, 1);
    *room = (int)before == tiles - 1 ? LAST_NUMBER : (int)(gridDim.x + before);
  }
  named_sync(FETCHING, WARPGROUP);
  int number = *room;
  named_sync(FETCHING, WARPGROUP);
  return number;
}

template <typename F, int BLOCKS, int COLS>
__device__ static void fetch_pair(const pair_of_mmas &p, const tri_tensor_map *ups, const tri_tensor_map *downs,
                                  room<F, BLOCKS, COLS> &s, const pair_tiles &tiles) {
  typedef room<F, BLOCKS, COLS> R;
  bool leads = threadIdx.x == 0;
  int number = blockIdx.x;
  ring_place<R::STAGES> at;
  while (number < tiles.all) {
    int begun = 0;
    if (number < tiles.up) {
      tile t = tile_at<F::STEP, COLS, R::ROWS / 2>(p.up, s.first, s.start, number);
      for (; leads && number == blockIdx.x && begun < t.steps && begun < R::STAGES; begun++)
        begin_step<F, BLOCKS, COLS, true, true>(ups, s, begun, t, begun);
      fetch_tile<F, BLOCKS, COLS, true>(p.up, ups, s, at, t, begun);
    } else {
      tile t = tile_at<F::STEP, COLS, R::ROWS>(p.down, s.first, s.start, number - tiles.up);
      t.second = true;
      int tellers = (s.start[t.expert + 1] - s.start[t.expert]) * tiles.tellers;
      if (leads) begun = begin_until_told<F, BLOCKS, COLS>(downs, s, at, t, p.told + t.expert, tellers);
      named_sync(FETCHING, WARPGROUP);
      fetch_tile<F, BLOCKS, COLS, false>(p.down, downs, s, at, t, begun);
    }
    number = take_of_pair(p.up, tiles.all, &s.taken);
  }
  if (number == LAST_NUMBER) {
    if (leads) *(volatile unsigned *)p.up.queue = 0;
    for (int e = threadIdx.x; e < p.up.num_experts; e += WARPGROUP) p.told[e] = 0;
  }
  barrier_wait(&s.empty[at.stage], at.parity ^ 1);
  if (leads) s.begun[at.stage] = {};
  if (leads) barrier_arrive(&s.full[at.stage]);
  barrier_arrive(&s.full[at.stage]);
  commit_copies(); /* no thread leaves with copies under way */
  wait_copies<0>();
}

/* ---- multiplying ---- */

template <typename F, int BLOCKS, int COLS, int MOST>
__device__ static inline void do_tile_of_pair(const pair_of_mmas &p, const tile &t, room<F, BLOCKS, MOST> &s,
                                              ring_place<room<F, BLOCKS, MOST>::STAGES> &at) {
  float d[BLOCKS][COLS / 2] = {};
  block_scales<BLOCKS> of;
  if constexpr (F::BLOCKED)
    t.second ? find_scales<false, BLOCKS>(p.down, t, of) : find_scales<true, BLOCKS>(p.up, t, of);
  multiply<F, BLOCKS, COLS, MOST, true, false>(t, of, s, at, d);
  if (t.second) {
    store_tile<F, BLOCKS, COLS, MOST, false>(p.down, t, s, d);
    return;
  }
  store_tile<F, BLOCKS, COLS, MOST, true>(p.up, t, s, d);
  tell_stored(p.told + t.expert);
}

/* Does the next tile of either GEMM. Returns what do_next does. */
template <typename F, int BLOCKS, int COLS>
__device__ static inline int do_next_of_pair(const pair_of_mmas &p, int in_slab, room<F, BLOCKS, COLS> &s,
                                             ring_place<room<F, BLOCKS, COLS>::STAGES> &at) {
  typedef room<F, BLOCKS, COLS> R;
  enum { SMALL = F::HAS_SMALL && COLS > F::CHEAP ? COLS / 2 : COLS };
  barrier_wait(&s.full[at.stage], at.parity);
  tile t = s.begun[at.stage];
  if (!t.steps) return END;
  if (SMALL < COLS && t.rows <= SMALL)
    do_tile_of_pair<F, BLOCKS, SMALL, COLS>(p, t, s, at);
  else
    do_tile_of_pair<F, BLOCKS, COLS, COLS>(p, t, s, at);
  if constexpr (R::ADDS) {
    int slab = t.output / R::ROWS;
    if (t.second && p.down.sums.done && is_last_tile(p.down, slab, in_slab, s.parts)) return slab;
  }
  return NONE;
}

template <typename F, int BLOCKS, int COLS>
__device__ static void multiply_pair(const pair_of_mmas &p, room<F, BLOCKS, COLS> &s, const pair_tiles &tiles) {
  typedef room<F, BLOCKS, COLS> R;
  bool adds = R::ADDS && p.down.sums.done;
  ring_place<R::STAGES> at;
  if constexpr (R::ADDS)
    if (adds) list_parts(p.down, s.parts);
  for (int pass = adds ? 0 : 1;; pass++) {
    int slab = tiles.slabs; /* the first pass does nothing */
    if (pass && tiles.all)
      slab = do_next_of_pair<F, BLOCKS, COLS>(p, tiles.in_slab, s, at);
    else if (pass) /* no slab has a last tile */
      slab = next_slab(adds ? tiles.slabs : 0, pass - 1);
    if (slab == END) return;
    if constexpr (R::ADDS)
      if (slab >= 0) add_slab_of<typename F::output, R::ROWS>(p.down, s.parts, slab);
  }
}

/* Computes both GEMMs, finished, for all rows of the map, and where it is to add choices up, their sums. As many
 * blocks as multiprocessors, 384 threads. Lists are made twice: first of an expert's row each, so that the
 * instructions are there when the map is. */
template <typename F, int BLOCKS, int COLS>
__global__ static void __launch_bounds__(THREADS, 1)
    pair_kernel(const __grid_constant__ pair_of_mmas p, const __grid_constant__ tri_tensor_map ups,
                const __grid_constant__ tri_tensor_map downs) {
  typedef room<F, BLOCKS, COLS> R;
  extern __shared__ char shared[];
  R &s = *(R *)(((uintptr_t)shared + ALIGN - 1) / ALIGN * ALIGN);
  int num_experts = p.up.num_experts;
  if (!HAS_HOPPER) return;
  stamp_begun();
  if (threadIdx.x == 0) {
    prefetch_map(&ups);
    prefetch_map(&downs);
    for (int i = 0; i < R::STAGES; i++) {
      barrier_init(&s.full[i], 1 + WARPGROUP);
      barrier_init(&s.empty[i], CONSUMERS * WARPGROUP / WARP);
    }
    barriers_are_made();
  }
#pragma unroll 1
  for (int pass = 0; pass < 2; pass++) {
    if (pass) wait_for_previous();
    for (int e = threadIdx.x; e <= num_experts; e += THREADS) s.first[e] = pass ? __ldcg(p.up.first + e) : e;
    __syncthreads();
    if (threadIdx.x < WARP) list_groups<COLS>(num_experts, s.first, s.start);
    __syncthreads();
  }
  let_next_begin_now();
  pair_tiles tiles = count_tiles<R>(p, s.start);
  if (threadIdx.x < WARPGROUP) { /* as in grouped_kernel */
    give_registers<88>();
    fetch_pair<F, BLOCKS, COLS>(p, &ups, &downs, s, tiles);
    return;
  }
  take_registers<208>();
  multiply_pair<F, BLOCKS, COLS>(p, s, tiles);
}

#endif
