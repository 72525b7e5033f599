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
#include "kernels/cuda/moe_fragments.cuh"

/* A product for all rows of a map. outputs: of an expert, units where gates and ups come in pairs. */
struct grouped {
  const int32_t *first;  /* [num_experts + 1] */
  const int32_t *choice; /* [rows]; where rows are gathered */
  int num_experts, top_k;
  const void *x; /* where rows are gathered: [tokens, k], rows ld elements apart */
  int ld, k, outputs;
  const float *w_scale;               /* of integers: one for each row of weights, as of biases, */
  const float *x_scale;               /* and one for each row of x where those are integers, else NULL */
  const float *bias;                  /* [num_experts * (outputs or, in pairs, 2 * outputs)] or NULL */
  float limit, gate_scale, up_offset; /* of units: min(gate, limit) / (1 + exp(-gate_scale gate)) (up + up_offset) */
  int splits;    /* parts of k; more than one: out has float32 sums of each, [splits, most_rows, outputs] */
  int most_rows; /* rows of the map at most */
  void *out;     /* else [rows, outputs] in the weights' type, float32 with integers */
};

enum {
  LINE = 128,    /* bytes of a row in shared memory */
  CONSUMERS = 2, /* warpgroups */
  THREADS = (1 + CONSUMERS) * WARPGROUP,
  PASS = 64,       /* rows that are stored at a time */
  MOST_SPLIT = 32, /* rows of the largest tiles whose k is cut into parts */
  MOST_EXPERTS = TRI_CUDA_MOE_EXPERTS,
  ALIGN = 1024,
  ROOM = 227 * 1024 - ALIGN
};

/* The type of sums of products with rows of X. */
template <typename X> struct sum_of { typedef float type; };
template <> struct sum_of<int8_t> { typedef int type; };

/* The types of weights and rows. Integers are multiplied with integers, or with the parts of floats: of each 16
 * elements of a row first 16 of bf16 that are nearest to them and then 16 for what those leave over (moe_grouped.cu,
 * parts). */
template <typename W, typename X> struct factors {
  typedef W weight;
  typedef X input;
  typedef typename sum_of<X>::type sum;
  enum {
    SCALES = sizeof(W) == 1,
    WIDENS = sizeof(W) < sizeof(X),
    EACH = WIDENS ? 2 : 1,                  /* elements of x for one of k */
    STEP = LINE / EACH / (int)sizeof(W),    /* elements of k at a time */
    LINES = STEP * EACH * sizeof(X) / LINE, /* of a row of x in a step */
    CHEAP = WIDENS ? 32 : 64                /* columns whose products are done sooner than weights come */
  };
};

/* Shared memory of a tile of 128 * BLOCKS weights' rows and COLS tokens' rows. */
template <typename F, int BLOCKS, int COLS> struct room {
  enum {
    ROWS = CONSUMERS * 64 * BLOCKS,
    WEIGHTS = ROWS * F::STEP * sizeof(typename F::weight), /* bytes of a stage */
    INPUTS = COLS * LINE * F::LINES,
    LISTS = (2 * (MOST_EXPERTS + 1)) * 4,
    STAGING = (COLS < PASS ? COLS : PASS) * LINE,
    FIT = (ROOM - CONSUMERS * STAGING - LISTS - 256) / (WEIGHTS + INPUTS),
    STAGES = FIT > 8 ? 8 : FIT,
  };
  char weights[STAGES][WEIGHTS];
  char inputs[STAGES][INPUTS];
  char staging[CONSUMERS][STAGING]; /* of results, or of a tile's scales */
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
template <int STEP, int COLS, int OUTPUTS>
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

/* Fetches a tile's rows from where their tokens lie. Each thread has one 16-byte piece of every 16th row's lines. */
template <typename F, int COLS> struct gathering {
  typedef typename F::input X;
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
    int piece = threadIdx.x % 8, line = threadIdx.x / 8;
#pragma unroll
    for (int l = 0; l < F::LINES; l++) {
      int at = k * F::EACH + (l * 8 + piece) * (16 / (int)sizeof(X));
#pragma unroll
      for (int i = 0; i < EACH; i++) {
        int row = line + i * LINES;
        bool there = from[i] >= 0 && at < g.k * F::EACH;
        const X *x = (const X *)g.x + (there ? (size_t)from[i] * (size_t)g.ld + (size_t)at : 0);
        if (row < COLS) copy_async(to + (l * COLS + row) * LINE + ((piece ^ (row & 7)) << 4), x, there);
      }
    }
  }
};

/* Begins the copies of a step's lines of rows of the map. */
template <typename F, int COLS>
__device__ static inline void fetch_rows(const tri_tensor_map *m, char *to, barrier *b, const tile &t, int k) {
#pragma unroll
  for (int l = 0; l < F::LINES; l++)
    tile_load(to + l * COLS * LINE, m, b, KEEP_USUAL, k * F::EACH + l * (LINE / (int)sizeof(typename F::input)),
              t.first_row);
}

/* Begins a stage: says how much of it comes by the copy engine, and has its weights come. */
template <typename F, int BLOCKS, int COLS, bool GATED, bool GATHERS>
__device__ static inline void begin_step(const tri_tensor_map *weights, room<F, BLOCKS, COLS> &s, int stage,
                                         const tile &t, int k) {
  typedef room<F, BLOCKS, COLS> R;
  barrier_expect(&s.full[stage], R::WEIGHTS + (GATHERS ? 0 : R::INPUTS));
  fetch_weights<GATED>(weights, s.weights[stage], &s.full[stage], t, k);
}

template <typename F, int BLOCKS, int COLS, bool GATED, bool GATHERS>
__device__ static void fetch(const grouped &g, const tri_tensor_map *weights, const tri_tensor_map *inputs,
                             room<F, BLOCKS, COLS> &s, int tiles) {
  typedef room<F, BLOCKS, COLS> R;
  enum { OUTPUTS = GATED ? R::ROWS / 2 : R::ROWS };
  bool leads = threadIdx.x == 0;
  gathering<F, COLS> rows;
  place<R::STAGES> at;
  if (!GATHERS && !leads) return;
  for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
    tile t = tile_at<F::STEP, COLS, OUTPUTS>(g, s.first, s.start, number);
    int begun = 0;
    if (GATHERS) rows.begin(g, t);
    if (!GATHERS && number == blockIdx.x) { /* weights, while the kernel in front makes the rows */
      for (begun = 0; begun < t.steps && begun < R::STAGES; begun++)
        begin_step<F, BLOCKS, COLS, GATED, GATHERS>(weights, s, begun, t, (t.step + begun) * F::STEP);
      wait_for_previous();
    }
    for (int i = 0; i < t.steps; i++, at.next()) {
      int k = (t.step + i) * F::STEP;
      barrier_wait(&s.empty[at.stage], at.parity ^ 1);
      if (leads && i >= begun) begin_step<F, BLOCKS, COLS, GATED, GATHERS>(weights, s, at.stage, t, k);
      if (!GATHERS) fetch_rows<F, COLS>(inputs, s.inputs[at.stage], &s.full[at.stage], t, k);
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

/* Begins a step's products of operands in shared memory. */
template <typename F, int BLOCKS, int COLS>
__device__ static inline void begin_products(const char *weights, const char *inputs,
                                             typename F::sum (&d)[BLOCKS][COLS / 2]) {
  products_begin();
#pragma unroll
  for (int at = 0; at < LINE; at += 32)
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
      wgmma<typename F::weight, COLS>::run(d[b], operand(weights + b * 64 * LINE + at, 0, 8 * LINE),
                                           operand(inputs + at, 0, 8 * LINE), true);
}

/* Begins those of 32 of k with integers that become floats, of one block: lines of weights are 64 bytes, and of inputs
 * one for each 32 of k. A lane takes four neighbours of each 16 of k, and so do the inputs (moe_grouped.cu, parts). */
template <int COLS>
__device__ static inline void begin_widened(const char *weights, int half, const char *inputs, uint32_t (&a)[2][4],
                                            float (&d)[COLS / 2]) {
  int row = threadIdx.x % WARPGROUP / WARP * 16 + threadIdx.x % 16, piece = half * 2 + (int)threadIdx.x % WARP / 16;
  uint32_t raw[4];
  load_matrices(raw, weights + row * (LINE / 2) + ((piece ^ (row / 2 % 4)) << 4));
#pragma unroll
  for (int i = 0; i < 4; i++) widen_int8(raw[i], &a[i / 2][i % 2], &a[i / 2][i % 2 + 2]);
  products_begin();
#pragma unroll
  for (int i = 0; i < 4; i++) wgmma<__nv_bfloat16, COLS>::run(d, a[i / 2], operand(inputs + i * 32, 0, 8 * LINE), true);
}

/* Computes a tile's sums of this warpgroup with COLS columns; the stages have room for MOST. Integers become floats
 * while the products in front are under way, and so come in groups. */
template <typename F, int BLOCKS, int COLS, int MOST, bool GATHERS>
__device__ static inline void multiply(const tile &t, room<F, BLOCKS, MOST> &s,
                                       place<room<F, BLOCKS, MOST>::STAGES> &at,
                                       typename F::sum (&d)[BLOCKS][COLS / 2]) {
  enum { BLOCK = room<F, BLOCKS, MOST>::WEIGHTS / CONSUMERS / BLOCKS, GROUPS = F::WIDENS ? 2 * BLOCKS : 1 };
  int group = (int)threadIdx.x / WARPGROUP - 1, last = at.stage;
  bool tells = threadIdx.x % WARP == 0;
  uint32_t a[2][2][4];
  for (int i = 0; i < t.steps; i++) {
    const char *weights = s.weights[at.stage] + group * BLOCKS * BLOCK, *inputs = s.inputs[at.stage];
    barrier_wait(&s.full[at.stage], at.parity);
    if (GATHERS) show_shared_to_engines();
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) products_hold(d[b]);
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
      int half = j / BLOCKS, b = j % BLOCKS;
      if constexpr (F::WIDENS)
        begin_widened<COLS>(weights + b * BLOCK, half, inputs + half * MOST * LINE, a[j % 2], d[b]);
      else
        begin_products<F, BLOCKS, COLS>(weights, inputs, d);
      products_commit();
      products_wait<1>();
      if (!j && i && tells) barrier_arrive(&s.empty[last]);
    }
    last = at.stage;
    at.next();
  }
  products_wait<0>();
#pragma unroll
  for (int b = 0; b < BLOCKS; b++) products_hold(d[b]);
  if (tells) barrier_arrive(&s.empty[last]);
}

/* ---- results ---- */

/* A thread's values of one of its blocks' rows: of the sums d[4 j] and d[4 j + 1], and of the two behind them. */
struct of_rows {
  float low, high;
};

/* values: as the biases. */
template <bool GATED>
__device__ static inline of_rows values_of(const grouped &g, const float *values, const tile &t, int output) {
  const float *of_expert = values + (size_t)t.expert * (size_t)(GATED ? 2 * g.outputs : g.outputs);
  int far = GATED ? 0 : 8;
  of_rows v = {0, 0};
  if (output < g.outputs) v.low = of_expert[output];
  if (output + far < g.outputs) v.high = of_expert[output + (GATED ? g.outputs : far)];
  return v;
}

template <bool GATED> __device__ static inline of_rows biases_of(const grouped &g, const tile &t, int output) {
  if (!g.bias || t.split) return {0, 0};
  return values_of<GATED>(g, g.bias, t, output);
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
template <bool GATED> __device__ static inline void finish(const grouped &g, const of_rows &b, float *d) {
  d[0] += b.low;
  d[1] += b.low;
  d[2] += b.high;
  d[3] += b.high;
  if (!GATED) return;
  d[0] = gated(g, d[0], d[2]);
  d[1] = gated(g, d[1], d[3]);
}

/* Brings the scales of a tile's rows, where rows have them, to shared memory. By a warpgroup. */
template <bool GATHERS> __device__ static inline void bring_scales(const grouped &g, const tile &t, float *scales) {
  int row = threadIdx.x % WARPGROUP, at = t.first_row + row, group = (int)threadIdx.x / WARPGROUP - 1;
  named_sync(1 + group, WARPGROUP); /* those of the last tile have been read */
  if (row < t.rows) scales[row] = g.x_scale[GATHERS ? g.choice[at] / g.top_k : at];
  named_sync(1 + group, WARPGROUP);
}

/* Stores results as they lie in registers: float32, and few rows. scales: of the rows, where those are integers. */
template <typename F, typename O, bool GATED, int BLOCKS, int COLS>
__device__ static inline void store_apart(const grouped &g, const tile &t, typename F::sum (&d)[BLOCKS][COLS / 2],
                                          const float *scales) {
  int lane = threadIdx.x % WARP, row0 = lane % 4 * 2;
  O *out = (O *)g.out + ((size_t)t.split * (size_t)g.most_rows + (size_t)(t.first_row + row0)) * (size_t)g.outputs;
#pragma unroll
  for (int b = 0; b < BLOCKS; b++) {
    int low = output_of<GATED, BLOCKS>(t, b) + lane / 4;
    of_rows add = biases_of<GATED>(g, t, low), scale = {1, 1};
    O *to = out + low;
    if (F::SCALES) scale = values_of<GATED>(g, g.w_scale, t, low);
#pragma unroll
    for (int j = 0; j < COLS / 8; j++, to += 8 * (size_t)g.outputs) {
      float y[4] = {(float)d[b][4 * j], (float)d[b][4 * j + 1], (float)d[b][4 * j + 2], (float)d[b][4 * j + 3]};
      if (8 * j >= t.rows) break;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (F::SCALES && !F::WIDENS) y[i] *= scales[8 * j + row0 + i % 2];
        if (F::SCALES) y[i] *= i < 2 ? scale.low : scale.high;
      }
      finish<GATED>(g, add, y);
#pragma unroll
      for (int i = 0; i < (GATED ? 2 : 4); i++)
        if (8 * j + row0 + i % 2 < t.rows && low + i / 2 * 8 < g.outputs) to[i % 2 * g.outputs + i / 2 * 8] = (O)y[i];
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
__device__ static inline void stage(const grouped &g, const of_rows &add, float (&d)[COUNT], int row0, int piece0,
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
        of_rows add = biases_of<GATED>(g, t, output_of<GATED, BLOCKS>(t, b) + lane / 4);
        stage<T, GATED, PIECES, LINES>(g, add, d[b], row0, (b - b0) * 4, staging);
      }
      named_sync(1 + group, WARPGROUP);
      store_lines<T, PIECES>(g, t, staging, row0, LINES, t.output + (group * BLOCKS + b0) * 4 * (GATED ? 8 : 16));
      named_sync(1 + group, WARPGROUP);
    }
}

template <typename F, int BLOCKS, int COLS, int MOST, bool GATED, bool GATHERS>
__device__ static inline void do_tile(const grouped &g, const tile &t, room<F, BLOCKS, MOST> &s,
                                      place<room<F, BLOCKS, MOST>::STAGES> &at) {
  typedef typename F::weight T;
  typename F::sum d[BLOCKS][COLS / 2] = {}; /* else they would have registers while tiles of another size are done */
  multiply<F, BLOCKS, COLS, MOST, GATHERS>(t, s, at, d);
  char *staging = s.staging[(int)threadIdx.x / WARPGROUP - 1];
  if constexpr (F::SCALES) {
    if (!F::WIDENS) bring_scales<GATHERS>(g, t, (float *)staging);
    store_apart<F, float, GATED, BLOCKS, COLS>(g, t, d, (const float *)staging);
    return;
  } else if constexpr (COLS >= 32) {
    if (MOST > MOST_SPLIT || g.splits == 1) {
      store_together<T, GATED, BLOCKS, COLS>(g, t, d, staging);
      return;
    }
  }
  if constexpr (!F::SCALES && MOST <= MOST_SPLIT) {
    if (g.splits > 1)
      store_apart<F, float, GATED, BLOCKS, COLS>(g, t, d, NULL);
    else
      store_apart<F, T, GATED, BLOCKS, COLS>(g, t, d, NULL);
  }
}

/* Computes out[row] = w[expert of row] x[row], finished, for all rows of the map. weights: tensor map of them; inputs:
 * of the rows, where they are not gathered. As many blocks as multiprocessors, 384 threads.
 *
 * The first product, which gathers, lets the second one begin when it has the map, so that the second one may read the
 * map, and fetch weights by it, before it waits (dependent_launch.cuh). */
template <typename F, int BLOCKS, int COLS, bool GATED, bool GATHERS>
__global__ static void __launch_bounds__(THREADS, 1)
    grouped_kernel(const __grid_constant__ grouped g, const __grid_constant__ tri_tensor_map weights,
                   const __grid_constant__ tri_tensor_map inputs) {
  typedef room<F, BLOCKS, COLS> R;
  enum { OUTPUTS = GATED ? R::ROWS / 2 : R::ROWS, SMALL = COLS > F::CHEAP ? COLS / 2 : COLS };
  extern __shared__ char shared[];
  R &s = *(R *)(((uintptr_t)shared + ALIGN - 1) / ALIGN * ALIGN);
  if (!HAS_HOPPER) return;
  if (!GATHERS) let_next_begin();
  if (threadIdx.x == 0) {
    prefetch_map(&weights);
    for (int i = 0; i < R::STAGES; i++) {
      barrier_init(&s.full[i], GATHERS ? 1 + WARPGROUP : 1);
      barrier_init(&s.empty[i], CONSUMERS * WARPGROUP / WARP);
    }
    barriers_are_made();
  }
  if (GATHERS) {
    wait_for_previous();
    let_next_begin();
  }
  for (int e = threadIdx.x; e <= g.num_experts; e += THREADS) s.first[e] = __ldcg(g.first + e);
  __syncthreads();
  if (threadIdx.x < WARP) list_groups<COLS>(g.num_experts, s.first, s.start);
  __syncthreads();
  int tiles = s.start[g.num_experts] * ((g.outputs + OUTPUTS - 1) / OUTPUTS) * g.splits;
  /* Registers that one warpgroup gives up are those that two take: 168 each at the launch. */
  if (threadIdx.x < WARPGROUP) {
    give_registers<GATHERS ? 88 : 40>();
    fetch<F, BLOCKS, COLS, GATED, GATHERS>(g, &weights, &inputs, s, tiles);
    return;
  }
  take_registers<GATHERS ? 208 : 232>();
  wait_for_previous();
  place<R::STAGES> at;
  for (int number = blockIdx.x; number < tiles; number += gridDim.x) {
    tile t = tile_at<F::STEP, COLS, OUTPUTS>(g, s.first, s.start, number);
    if (SMALL < COLS && t.rows <= SMALL)
      do_tile<F, BLOCKS, SMALL, COLS, GATED, GATHERS>(g, t, s, at);
    else
      do_tile<F, BLOCKS, COLS, COLS, GATED, GATHERS>(g, t, s, at);
  }
}

#endif
