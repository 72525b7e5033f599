/* SPDX-License-Identifier: Apache-2.0 */
/* The first GEMM of a gated MLP and its activation in one kernel, for prompts on Hopper: gates and ups of a unit
 * meet in one thread's sums, so that the GEMM, twice as wide as the result, never goes to memory.
 *
 * Blocks stay on their multiprocessors, two in a cluster. A block has 128 tokens and 128 units: one warpgroup fetches,
 * two multiply 64 tokens each with the units' gates and ups. Both blocks of a cluster have the same units: each fetches
 * half of their weights for both. */
#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/device/fast_math.cuh"
#include "kernels/cuda/device/hopper.cuh"
#include "kernels/cuda/device/mma.cuh"

enum {
  STEP = 64, /* elements of k at a time: 128 bytes */
  TOKENS = 128,
  UNITS = 128,
  STAGES = 4,
  CLUSTER = 2,
  CONSUMERS = 2,
  THREADS = (1 + CONSUMERS) * WARPGROUP,
  EIGHT = 8,
  PAIRS_AT_ONCE = 8, /* of blocks' tokens, which stay in the second-level cache while all units pass by */
  FROM_TOKENS = 1024,
  LINE = STEP * 2,
  SUMS = 2 * UNITS / 2 /* of a thread: 64 tokens of all gates and ups over 128 threads */
};

struct gated_room {
  uint16_t x[STAGES][TOKENS][STEP];
  uint16_t w[STAGES][2 * UNITS][STEP];             /* eight gates, then the same units' ups, and so on */
  uint16_t out[CONSUMERS][UNITS / STEP][64][STEP]; /* results on their way to memory */
  barrier full[STAGES], empty[STAGES];
};

/* A tile of a cluster: its first token and its first unit. */
struct gated_tile {
  int token, unit;
};

struct gated_work {
  int tokens, units, k;
};

__device__ static inline int tiles_of(const gated_work &g) {
  int pairs = (g.tokens + CLUSTER * TOKENS - 1) / (CLUSTER * TOKENS), slabs = (g.units + UNITS - 1) / UNITS;
  return pairs * slabs;
}

/* Neighbours have the same units, and the tokens of a band pass by all units before the next band's do. */
__device__ static inline gated_tile tile_at(const gated_work &g, int number) {
  int pairs = (g.tokens + CLUSTER * TOKENS - 1) / (CLUSTER * TOKENS), slabs = (g.units + UNITS - 1) / UNITS;
  int band = number / (PAIRS_AT_ONCE * slabs), inside = number - band * PAIRS_AT_ONCE * slabs;
  int width = min(PAIRS_AT_ONCE, pairs - band * PAIRS_AT_ONCE);
  int rank = blockIdx.y, pair = band * PAIRS_AT_ONCE + inside % width;
  return {(pair * CLUSTER + rank) * TOKENS, inside / width * UNITS};
}

/* ---- fetching ---- */

/* By one thread: its own tokens, and its half of the weights for both blocks. Ends when both have read all stages: the
 * other one tells this block so, which must not have left. */
__device__ static void fetch(const gated_work &g, const tri_tensor_map *x, const tri_tensor_map *w, gated_room &s) {
  enum { HALF = 2 * UNITS / CLUSTER, BOTH = (1 << CLUSTER) - 1 };
  unsigned rank = blockIdx.y;
  ring_place<STAGES> at;
  for (int number = blockIdx.x, tiles = tiles_of(g); number < tiles; number += gridDim.x) {
    gated_tile t = tile_at(g, number);
    for (int k = 0; k < g.k; k += STEP, at.next()) {
      barrier *full = &s.full[at.stage];
      barrier_wait(&s.empty[at.stage], at.parity ^ 1);
      barrier_expect(full, (TOKENS + 2 * UNITS) * LINE);
      tile_load(s.x[at.stage], x, full, KEEP_USUAL, k, t.token);
      tile_load_to_blocks(s.w[at.stage][rank * HALF], w, full, KEEP_USUAL, BOTH, k, 0, 0,
                          t.unit / EIGHT + (int)rank * HALF / 2 / EIGHT);
    }
  }
  for (int i = 0; i < STAGES; i++, at.next()) barrier_wait(&s.empty[at.stage], at.parity ^ 1);
}

/* ---- multiplying ---- */

/* Tells both blocks that this warp has read a stage. */
__device__ static inline void release(gated_room &s, int stage) {
  unsigned lane = threadIdx.x % WARP;
  if (lane < CLUSTER) barrier_arrive_at_block(&s.empty[stage], lane);
}

/* The sums of a tile, 64 tokens by all gates and ups. A stage is released one round late: only when the next stage's
 * MMAs have been begun has mma_wait<1> seen the end of its own. */
template <typename T>
__device__ static inline void multiply(const gated_work &g, gated_room &s, ring_place<STAGES> &at, int group,
                                       float (&d)[SUMS]) {
  int last = at.stage;
  for (int k = 0; k < g.k; k += STEP, at.next()) {
    barrier_wait(&s.full[at.stage], at.parity);
    mma_hold(d);
    mma_begin();
#pragma unroll
    for (int i = 0; i < LINE; i += 32)
      wgmma<T, 2 * UNITS>::run(d, operand((char *)s.x[at.stage][group * 64] + i, 0, 8 * LINE),
                               operand((char *)s.w[at.stage] + i, 0, 8 * LINE), true);
    mma_commit();
    mma_wait<1>();
    if (k) release(s, last);
    last = at.stage;
  }
  mma_wait<0>();
  mma_hold(d);
  release(s, last);
}

/* ---- results ---- */

struct silu {
  __device__ static float of(float x) { return fast_swish(x, 1); }
};
/* 0.5 x (1 + tanh(y)) is x / (1 + exp(-2 y)). */
struct gelu_tanh {
  __device__ static float of(float x) {
    float y = 0.79788456f * (x + 0.044715f * x * x * x);
    return x * reciprocal_of(1 + power_of_two(-2 * 1.44269504f * y));
  }
};

/* Puts a warpgroup's results into shared memory, swizzled as the copy engine takes them, and begins their copies. A
 * thread's sums 8 j .. 8 j + 3 are gates of units 8 j + 2 (lane % 4) and the next, of rows lane / 4 and + 8, and the
 * four after them the ups. */
template <typename T, typename ACT>
__device__ static inline void store(const gated_tile &t, const tri_tensor_map *out, gated_room &s, int group,
                                    const float (&d)[SUMS]) {
  int lane = threadIdx.x % WARP, warp = threadIdx.x % WARPGROUP / WARP, row = warp * 16 + lane % 16;
  bool leads = threadIdx.x % WARPGROUP == 0;
  if (leads) tile_stores_wait();
  named_sync(1 + group, WARPGROUP);
#pragma unroll
  for (int j = 0; j < UNITS / EIGHT; j += 2) { /* two groups of eight units: four matrices */
    uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float *gate = &d[8 * (j + i / 2) + i % 2 * 2], *up = gate + 4;
      r[i] = mma<T>::pack(ACT::of(gate[0]) * up[0], ACT::of(gate[1]) * up[1]);
    }
    int piece = j % (STEP / EIGHT) + lane / 16;
    store_matrices(&s.out[group][j / (STEP / EIGHT)][row][(piece ^ (row & 7)) * EIGHT], r);
  }
  show_shared_to_engines();
  named_sync(1 + group, WARPGROUP);
  if (!leads) return;
  for (int half = 0; half < UNITS / STEP; half++)
    tile_store(out, s.out[group][half], t.unit + half * STEP, t.token + group * 64);
  tile_stores_commit();
}

template <typename T, typename ACT>
__device__ static inline void consume(const gated_work &g, const tri_tensor_map *out, gated_room &s, int group) {
  ring_place<STAGES> at;
  for (int number = blockIdx.x, tiles = tiles_of(g); number < tiles; number += gridDim.x) {
    float d[SUMS] = {};
    multiply<T>(g, s, at, group, d);
    store<T, ACT>(tile_at(g, number), out, s, group, d);
  }
  if (threadIdx.x % WARPGROUP == 0) tile_stores_wait();
}

/* Computes out [T, units] = act(x gates^T) * (x ups^T). x [T, k]; w [2 units, k], gates first. Grid (clusters, 2), 384
 * threads; shared memory: gated_room. Each block of a cluster writes to the other's memory, and none leaves before all
 * of that has come: copies, for which its consumers wait, and arrivals, for which the thread waits that fetches. */
template <typename T, typename ACT>
__global__ static void __launch_bounds__(THREADS, 1)
    gated_kernel(gated_work g, const __grid_constant__ tri_tensor_map x, const __grid_constant__ tri_tensor_map w,
                 const __grid_constant__ tri_tensor_map out) {
  extern __shared__ __align__(1024) char space[];
  gated_room &s = *(gated_room *)space;
  if (!HAS_HOPPER) return;
  let_next_begin();
  if (threadIdx.x == 0) {
    prefetch_map(&x);
    prefetch_map(&w);
    prefetch_map(&out);
    for (int i = 0; i < STAGES; i++) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], CLUSTER * CONSUMERS * WARPGROUP / WARP);
    }
    barriers_are_made();
  }
  arrive_at_cluster();
  wait_at_cluster();
  wait_for_previous();
  int group = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARPGROUP, 0);
  if (group == 0) {
    give_registers<40>();
    if (threadIdx.x == 0) fetch(g, &x, &w, s);
  } else {
    take_registers<232>();
    consume<T, ACT>(g, &out, s, group - 1);
  }
}

/* ---- launches ---- */

bool tri_cuda_gated_prompt_fits(const tri_gated_linear_args *a) {
  const tri_linear_args &up = a->up;
  uintptr_t places = (uintptr_t)up.x.data | (uintptr_t)up.w.data | (uintptr_t)a->glu.out.data;
  bool types = (up.w.dtype == TRI_F16 || up.w.dtype == TRI_BF16) && up.x.dtype == up.w.dtype;
  bool whole = up.w.k % EIGHT == 0 && up.w.k && up.w.n % (2 * EIGHT) == 0 && up.w.n && up.x.ld % EIGHT == 0 &&
               a->glu.out.ld % EIGHT == 0 && places % 16 == 0;
  return types && whole && !up.bias && up.x.rows >= FROM_TOKENS && a->glu.out.dtype == up.w.dtype &&
         (a->glu.act == TRI_ACT_SILU || a->glu.act == TRI_ACT_GELU_TANH);
}

template <typename T, typename ACT>
static cudaError_t launch(cudaStream_t stream, const tri_gated_linear_args *a, int num_sms) {
  const tri_mat *x = &a->up.x, *out = &a->glu.out;
  uint64_t k = (uint64_t)a->up.w.k, n = (uint64_t)out->cols, rows = (uint64_t)x->rows;
  gated_work g = {x->rows, out->cols, a->up.w.k};
  tri_tiling tokens = {2, {k, rows}, {0, (uint64_t)x->ld * 2}, {STEP, TOKENS}};
  tri_tiling weights = {
      4, {k, EIGHT, 2, n / EIGHT}, {0, k * 2, n * k * 2, EIGHT * k * 2}, {STEP, EIGHT, 2, UNITS / EIGHT / CLUSTER}};
  tri_tiling results = {2, {n, rows}, {0, (uint64_t)out->ld * 2}, {STEP, 64}};
  tri_tensor_map maps[3];
  if (tri_cuda_map_tensor(&maps[0], x->dtype, x->data, &tokens) != TRI_OK ||
      tri_cuda_map_tensor(&maps[1], x->dtype, a->up.w.data, &weights) != TRI_OK ||
      tri_cuda_map_tensor(&maps[2], x->dtype, out->data, &results) != TRI_OK)
    return cudaErrorInvalidValue;
  cudaError_t e = allow_shared<gated_kernel<T, ACT>>(sizeof(gated_room));
  if (e == cudaSuccess)
    launch_together(gated_kernel<T, ACT>, dim3(num_sms / CLUSTER, CLUSTER), CLUSTER, THREADS, sizeof(gated_room),
                    stream, g, maps[0], maps[1], maps[2]);
  return e;
}

template <typename T> static cudaError_t start(cudaStream_t stream, const tri_gated_linear_args *a, int num_sms) {
  return a->glu.act == TRI_ACT_SILU ? launch<T, silu>(stream, a, num_sms) : launch<T, gelu_tanh>(stream, a, num_sms);
}

cudaError_t tri_cuda_gated_prompt(cudaStream_t stream, const tri_gated_linear_args *a, int num_sms) {
  return a->up.w.dtype == TRI_BF16 ? start<__nv_bfloat16>(stream, a, num_sms) : start<__half>(stream, a, num_sms);
}
