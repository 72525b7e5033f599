/* Products of experts with the rows that were routed to them, on Hopper: weights stream through the copy engine as one
 * factor of wgmma, rows are the other, eight to 128 at a time, so that the same kernel serves one token and prompts.
 *
 * Rows lie in the order of the map (kernels/ops.h): an expert's are neighbours. A tile is some outputs of one expert
 * for COLS of its rows. Blocks are persistent; which tiles there are they find from the map, on the device. In a block
 * one warpgroup fetches and two multiply. */
#ifndef TRI_KERNELS_CUDA_MOE_GROUPED_CUH
#define TRI_KERNELS_CUDA_MOE_GROUPED_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/fast_math.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/moe.h"

/* A product for all rows of a map. outputs: of an expert, units where gates and ups come in pairs. */
struct grouped {
  const int32_t *first;  /* [num_experts + 1] */
  const int32_t *choice; /* [rows]; where rows are gathered */
  int num_experts, top_k;
  const void *x; /* where rows are gathered: [tokens, k], rows ld elements apart */
  int ld, k, outputs;
  const float *bias;                  /* [num_experts * (outputs or, in pairs, 2 * outputs)] or NULL */
  float limit, gate_scale, up_offset; /* of units: min(gate, limit) / (1 + exp(-gate_scale gate)) (up + up_offset) */
  int splits;    /* parts of k; more than one: out has float32 sums of each, [splits, most_rows, outputs] */
  int most_rows; /* rows of the map at most */
  void *out;     /* else [rows, outputs] in the weights' type */
};

enum {
  STEP = 64,     /* elements of k at a time: 128 bytes */
  LINE = 128,    /* bytes of those */
  CONSUMERS = 2, /* warpgroups */
  THREADS = (1 + CONSUMERS) * WARPGROUP,
  PASS = 64, /* rows that are stored at a time */
  STAGING = PASS * LINE,
  MOST_SPLIT = 32, /* rows of the largest tiles whose k is cut into parts */
  MOST_EXPERTS = TRI_CUDA_MOE_EXPERTS,
  ALIGN = 1024,
  ROOM = 227 * 1024 - ALIGN
};

/* Shared memory of a tile of 128 * BLOCKS weights' rows and COLS tokens' rows. */
template <int BLOCKS, int COLS> struct room {
  enum {
    ROWS = CONSUMERS * 64 * BLOCKS,
    WEIGHTS = ROWS * LINE, /* bytes of a stage */
    INPUTS = COLS * LINE,
    LISTS = (2 * (MOST_EXPERTS + 1)) * 4,
    FIT = (ROOM - CONSUMERS * STAGING - LISTS - 256) / (WEIGHTS + INPUTS),
    STAGES = FIT > 8 ? 8 : FIT,
  };
  char weights[STAGES][WEIGHTS];
  char inputs[STAGES][INPUTS];
  char staging[CONSUMERS][STAGING];
  barrier full[STAGES], empty[STAGES];
  int first[MOST_EXPERTS + 1]; /* an expert's first row, */
  int start[MOST_EXPERTS + 1]; /* and the groups of COLS rows in front of it */
};

/* A tile: outputs from `output` on, of rows first_row .. first_row + rows - 1, over `steps` steps of k from `step` on.
 */
struct tile {
  int expert, first_row, rows, output, step, steps, split;
};

/* Lists where each expert's groups of COLS rows begin, from where its rows do. By the first warp. */
template <int COLS> __device__ static void list_groups(int num_experts, const int *first, int *start) {
  int lane = threadIdx.x, sum = 0;
  for (int e0 = 0; e0 <= num_experts; e0 += WARP) {
    int e = e0 + lane, groups = e < num_experts ? (first[e + 1] - first[e] + COLS - 1) / COLS : 0, upto = groups;
#pragma unroll
    for (int o = 1; o < WARP; o *= 2) {
      int other = __shfl_up_sync(0xffffffffu, upto, o);
      if (lane >= o) upto += other;
    }
    if (e <= num_experts) start[e] = sum + upto - groups;
    sum += __shfl_sync(0xffffffffu, upto, WARP - 1);
  }
}

/* Neighbours among tiles have the same weights and other rows: weights come from memory once. */
template <int COLS, int OUTPUTS>
__device__ static inline tile tile_at(const grouped &g, const int *first, const int *start, int number) {
  int slabs = (g.outputs + OUTPUTS - 1) / OUTPUTS * g.splits, low = 0, high = g.num_experts - 1;
  int steps = (g.k + STEP - 1) / STEP;
  while (low < high) { /* the last expert whose tiles begin at or in front of it */
    int middle = (low + high + 1) / 2;
    if (start[middle] * slabs <= number)
      low = middle;
    else
      high = middle - 1;
  }
  int groups = start[low + 1] - start[low], inside = number - start[low] * slabs, slab = inside / groups;
  tile t;
  t.expert = low;
  t.first_row = first[low] + inside % groups * COLS;
  t.rows = min(COLS, first[low + 1] - t.first_row);
  t.split = slab % g.splits;
  t.output = slab / g.splits * OUTPUTS;
  t.step = steps * t.split / g.splits;
  t.steps = steps * (t.split + 1) / g.splits - t.step;
  return t;
}

/* A place in a ring of stages, and the parity of its round. */
template <int STAGES> struct place {
  int stage = 0;
  unsigned parity = 0;
  __device__ void next(void) {
    stage++;
    if (stage < STAGES) return;
    stage = 0;
    parity ^= 1;
  }
};

/* ---- fetching ---- */

template <bool GATED>
__device__ static inline void fetch_weights(const tri_tensor_map *m, char *to, barrier *b, const tile &t, int k) {
  if (GATED) /* groups of eight gates, and behind each the ups of the same units */
    tile_load(to, m, b, KEEP_SHORT, k, 0, 0, t.output / 8, t.expert);
  else
    tile_load(to, m, b, KEEP_SHORT, k, t.output, t.expert);
}

/* Fetches a tile's rows from where their tokens lie. Each thread has one 16-byte piece of every 16th row. */
template <typename T, int COLS> struct gathering {
  enum { LINES = WARPGROUP / 8, EACH = (COLS + LINES - 1) / LINES };
  int from[EACH]; /* the token, or -1 */
  __device__ void begin(const grouped &g, const tile &t) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      int row = (int)threadIdx.x / 8 + i * LINES;
      from[i] = row < t.rows ? g.choice[t.first_row + row] / g.top_k : -1;
    }
  }
  __device__ void copy(const grouped &g, char *to, int k) const {
    int piece = threadIdx.x % 8, line = threadIdx.x / 8, at = k + piece * 8;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      int row = line + i * LINES;
      bool there = from[i] >= 0 && at < g.k;
      const T *x = (const T *)g.x + (there ? (size_t)from[i] * (size_t)g.ld + (size_t)at : 0);
      if (row < COLS) copy_async(to + row * LINE + ((piece ^ (row & 7)) << 4), x, there);
    }
  }
};

template <typename T, int BLOCKS, int COLS, bool GATED, bool GATHERS>
__device__ static void fetch(const grouped &g, const tri_tensor_map *weights, const tri_tensor_map *inputs,
                             room<BLOCKS, COLS> &s, int tiles) {
  typedef room<BLOCKS, COLS> R;
  enum { OUTPUTS = GATED ? R::ROWS / 2 : R::ROWS };
  bool leads = threadIdx.x == 0;
  gathering<T, COLS> rows;
  place<R::STAGES> at;
  if (!GATHERS && !leads) return;
  for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
    tile t = tile_at<COLS, OUTPUTS>(g, s.first, s.start, number);
    if (GATHERS) rows.begin(g, t);
    for (int i = 0; i < t.steps; i++, at.next()) {
      int k = (t.step + i) * STEP;
      barrier_wait(&s.empty[at.stage], at.parity ^ 1);
      if (leads) {
        barrier_expect(&s.full[at.stage], R::WEIGHTS + (GATHERS ? 0 : R::INPUTS));
        fetch_weights<GATED>(weights, s.weights[at.stage], &s.full[at.stage], t, k);
        if (!GATHERS) tile_load(s.inputs[at.stage], inputs, &s.full[at.stage], KEEP_USUAL, k, t.first_row);
      }
      if (GATHERS) {
        rows.copy(g, s.inputs[at.stage], k);
        barrier_arrive_behind_copies(&s.full[at.stage]);
      }
    }
  }
  if (!GATHERS) return;
  commit_copies(); /* no thread leaves with copies under way */
  wait_copies<0>();
}

/* ---- multiplying ---- */

/* Computes a tile's sums of this warpgroup with COLS columns; the stages have room for MOST. */
template <typename T, int BLOCKS, int COLS, int MOST, bool GATHERS>
__device__ static inline void multiply(const tile &t, room<BLOCKS, MOST> &s, place<room<BLOCKS, MOST>::STAGES> &at,
                                       float (&d)[BLOCKS][COLS / 2]) {
  int group = (int)threadIdx.x / WARPGROUP - 1, last = at.stage;
  bool tells = threadIdx.x % WARP == 0;
  for (int i = 0; i < t.steps; i++) {
    barrier_wait(&s.full[at.stage], at.parity);
    if (GATHERS) show_shared_to_engines();
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) products_hold(d[b]);
    products_begin();
#pragma unroll
    for (int k = 0; k < STEP; k += 16)
#pragma unroll
      for (int b = 0; b < BLOCKS; b++)
        wgmma<T, COLS>::run(d[b], operand(s.weights[at.stage] + (group * BLOCKS + b) * 64 * LINE + 2 * k, 0, 8 * LINE),
                            operand(s.inputs[at.stage] + 2 * k, 0, 8 * LINE), i || k);
    products_commit();
    products_wait<1>();
    if (i && tells) barrier_arrive(&s.empty[last]);
    last = at.stage;
    at.next();
  }
  products_wait<0>();
#pragma unroll
  for (int b = 0; b < BLOCKS; b++) products_hold(d[b]);
  if (tells) barrier_arrive(&s.empty[last]);
}

/* ---- results ---- */

/* A thread's biases for one of its blocks: of the sums d[4 j] and d[4 j + 1], and of the two behind them. */
struct biases {
  float low, high;
};

template <bool GATED, int BLOCKS>
__device__ static inline biases biases_of(const grouped &g, const tile &t, int output) {
  const float *bias = g.bias + (size_t)t.expert * (size_t)(GATED ? 2 * g.outputs : g.outputs);
  int far = GATED ? 0 : 8;
  biases b = {0, 0};
  if (!g.bias || t.split) return b;
  if (output < g.outputs) b.low = bias[output];
  if (output + far < g.outputs) b.high = bias[output + (GATED ? g.outputs : far)];
  return b;
}

/* Returns where the outputs of block b of this warpgroup begin; those of a thread's first sums are lane / 4 behind. */
template <bool GATED, int BLOCKS> __device__ static inline int output_of(const tile &t, int b) {
  int warp = threadIdx.x % WARPGROUP / WARP, group = (int)threadIdx.x / WARPGROUP - 1;
  return t.output + ((group * BLOCKS + b) * 4 + warp) * (GATED ? 8 : 16);
}

/* Both activations in one formula: SILU has no limit, a scale of 1, and adds nothing to ups. */
__device__ static inline float gated(const grouped &g, float gate, float up) {
  gate = min_or_nan(gate, g.limit);
  up = -min_or_nan(-min_or_nan(up, g.limit), g.limit) + g.up_offset;
  return fast_swish(gate, g.gate_scale) * up;
}

/* Turns four sums, which begin at d, into results: two with GATED, of both columns. */
template <bool GATED> __device__ static inline void finish(const grouped &g, const biases &b, float *d) {
  d[0] += b.low;
  d[1] += b.low;
  d[2] += b.high;
  d[3] += b.high;
  if (!GATED) return;
  d[0] = gated(g, d[0], d[2]);
  d[1] = gated(g, d[1], d[3]);
}

/* Stores results as they lie in registers: parts of sums, and few rows. */
template <typename O, bool GATED, int BLOCKS, int COLS>
__device__ static inline void store_apart(const grouped &g, const tile &t, float (&d)[BLOCKS][COLS / 2]) {
  int lane = threadIdx.x % WARP;
  O *out = (O *)g.out + ((size_t)t.split * (size_t)g.most_rows + (size_t)t.first_row) * (size_t)g.outputs;
#pragma unroll
  for (int b = 0; b < BLOCKS; b++) {
    int low = output_of<GATED, BLOCKS>(t, b) + lane / 4;
    biases add = biases_of<GATED, BLOCKS>(g, t, low);
#pragma unroll
    for (int i = 0; i < COLS / 2; i++) {
      int row = i / 4 * 8 + lane % 4 * 2 + i % 2, output = low + i % 4 / 2 * 8;
      if (i % 4 == 0) finish<GATED>(g, add, &d[b][i]);
      if ((GATED && i % 4 >= 2) || row >= t.rows || output >= g.outputs) continue;
      out[(size_t)row * (size_t)g.outputs + (size_t)output] = (O)d[b][i];
    }
  }
}

/* Returns where a piece of eight results of a row waits for its store, in lines of PIECES of them. */
template <int PIECES> __device__ static inline int staged(int row, int piece) {
  return row * PIECES * 16 + ((piece ^ (row * PIECES / 8 % PIECES)) << 4);
}

/* Copies lines of PIECES * 8 results from shared memory to their rows, `output` first. By a warpgroup. */
template <typename T, int PIECES>
__device__ static inline void store_lines(const grouped &g, const tile &t, const char *staging, int row0, int rows,
                                          int output) {
#pragma unroll 1
  for (int i = threadIdx.x % WARPGROUP; i < rows * PIECES; i += WARPGROUP) {
    int row = i / PIECES, piece = i % PIECES, column = output + piece * 8;
    if (row0 + row >= t.rows || column >= g.outputs) continue;
    T *to = (T *)g.out + (size_t)(t.first_row + row0 + row) * (size_t)g.outputs + (size_t)column;
    *(uint4 *)to = *(const uint4 *)(staging + staged<PIECES>(row, piece));
  }
}

/* Puts results of rows row0 .. row0 + LINES - 1 of one block into shared memory, where piece0 is the block's first. A
 * store takes four matrices: of four groups of eight rows, or, as they have twice as many outputs, of two. */
template <typename T, bool GATED, int PIECES, int LINES, int COUNT>
__device__ static inline void stage(const grouped &g, const biases &add, float (&d)[COUNT], int row0, int piece0,
                                    char *staging) {
  enum { SHARE = GATED ? 1 : 2 }; /* matrices of eight rows */
  int lane = threadIdx.x % WARP, warp = threadIdx.x % WARPGROUP / WARP, matrix = lane / 8;
#pragma unroll
  for (int m = 0; m < LINES / 8; m += 4 / SHARE) {
    uint32_t r[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int sums = 4 * (row0 / 8 + m + i / SHARE), at = sums + i % SHARE * 2;
      if (i % SHARE == 0) finish<GATED>(g, add, &d[sums]);
      r[i] = mma<T>::pack(d[at], d[at + 1]);
    }
    int row = (m + matrix / SHARE) * 8 + lane % 8, piece = piece0 + SHARE * warp + matrix % SHARE;
    store_transposed(staging + staged<PIECES>(row, piece), r);
  }
}

/* Stores results through shared memory, in whole lines: those of all blocks at once with GATED, else of one. */
template <typename T, bool GATED, int BLOCKS, int COLS>
__device__ static inline void store_together(const grouped &g, const tile &t, float (&d)[BLOCKS][COLS / 2],
                                             char *staging) {
  enum { PIECES = GATED ? BLOCKS * 4 : 8, LINES = COLS < PASS ? COLS : PASS, AT_ONCE = GATED ? BLOCKS : 1 };
  int lane = threadIdx.x % WARP, group = (int)threadIdx.x / WARPGROUP - 1;
#pragma unroll
  for (int b0 = 0; b0 < BLOCKS; b0 += AT_ONCE)
#pragma unroll
    for (int row0 = 0; row0 < COLS; row0 += LINES) {
#pragma unroll
      for (int b = b0; b < b0 + AT_ONCE; b++) {
        biases add = biases_of<GATED, BLOCKS>(g, t, output_of<GATED, BLOCKS>(t, b) + lane / 4);
        stage<T, GATED, PIECES, LINES>(g, add, d[b], row0, (b - b0) * 4, staging);
      }
      named_sync(1 + group, WARPGROUP);
      store_lines<T, PIECES>(g, t, staging, row0, LINES, t.output + (group * BLOCKS + b0) * 4 * (GATED ? 8 : 16));
      named_sync(1 + group, WARPGROUP);
    }
}

template <typename T, int BLOCKS, int COLS, int MOST, bool GATED, bool GATHERS>
__device__ static inline void do_tile(const grouped &g, const tile &t, room<BLOCKS, MOST> &s,
                                      place<room<BLOCKS, MOST>::STAGES> &at) {
  int group = (int)threadIdx.x / WARPGROUP - 1;
  float d[BLOCKS][COLS / 2];
  multiply<T, BLOCKS, COLS, MOST, GATHERS>(t, s, at, d);
  if constexpr (COLS >= 32) {
    if (MOST > MOST_SPLIT || g.splits == 1) {
      store_together<T, GATED, BLOCKS, COLS>(g, t, d, s.staging[group]);
      return;
    }
  }
  if constexpr (MOST <= MOST_SPLIT) {
    if (g.splits > 1)
      store_apart<float, GATED, BLOCKS, COLS>(g, t, d);
    else
      store_apart<T, GATED, BLOCKS, COLS>(g, t, d);
  }
}

/* Computes out[row] = w[expert of row] x[row], finished, for all rows of the map. weights: tensor map of them; inputs:
 * of the rows, where they are not gathered. As many blocks as multiprocessors, 384 threads. */
template <typename T, int BLOCKS, int COLS, bool GATED, bool GATHERS>
__global__ static void __launch_bounds__(THREADS, 1)
    grouped_kernel(const __grid_constant__ grouped g, const __grid_constant__ tri_tensor_map weights,
                   const __grid_constant__ tri_tensor_map inputs) {
  typedef room<BLOCKS, COLS> R;
  enum { OUTPUTS = GATED ? R::ROWS / 2 : R::ROWS, SMALL = COLS == 128 ? 64 : COLS };
  extern __shared__ char shared[];
  R &s = *(R *)(((uintptr_t)shared + ALIGN - 1) / ALIGN * ALIGN);
  if (!HAS_HOPPER) return;
  let_next_begin();
  if (threadIdx.x == 0) {
    prefetch_map(&weights);
    for (int i = 0; i < R::STAGES; i++) {
      barrier_init(&s.full[i], GATHERS ? 1 + WARPGROUP : 1);
      barrier_init(&s.empty[i], CONSUMERS * WARPGROUP / WARP);
    }
    barriers_are_made();
  }
  wait_for_previous();
  for (int e = threadIdx.x; e <= g.num_experts; e += THREADS) s.first[e] = g.first[e];
  __syncthreads();
  if (threadIdx.x < WARP) list_groups<COLS>(g.num_experts, s.first, s.start);
  __syncthreads();
  int tiles = s.start[g.num_experts] * ((g.outputs + OUTPUTS - 1) / OUTPUTS) * g.splits;
  /* Registers that one warpgroup gives up are those that two take: 168 each at the launch. */
  if (threadIdx.x < WARPGROUP) {
    give_registers<GATHERS ? 56 : 40>();
    fetch<T, BLOCKS, COLS, GATED, GATHERS>(g, &weights, &inputs, s, tiles);
    return;
  }
  take_registers<GATHERS ? 224 : 232>();
  place<R::STAGES> at;
  for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
    tile t = tile_at<COLS, OUTPUTS>(g, s.first, s.start, number);
    if (SMALL < COLS && t.rows <= SMALL)
      do_tile<T, BLOCKS, SMALL, COLS, GATED, GATHERS>(g, t, s, at);
    else
      do_tile<T, BLOCKS, COLS, COLS, GATED, GATHERS>(g, t, s, at);
  }
}

#endif
