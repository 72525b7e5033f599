/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of experts with the rows that were routed to them, on Hopper: weights stream through the copy engine as one
 * factor of wgmma, rows are the other, eight to 128 at a time, so that the same kernel serves one token and prompts.
 *
 * Rows lie in the order of the map (kernels/ops.h): an expert's are neighbours. A tile is some outputs of one expert
 * for COLS of its rows. Blocks are persistent; which tiles there are they find from the map, on the device. In a block
 * one warpgroup fetches and two multiply.
 *
 * A ring of stages connects them, each with the weights and rows of one step of k. Two barriers guard a stage: `full`
 * counts bytes of the copy engine and, where rows are gathered, the copies of the 128 threads that fetch; `empty`
 * counts the warps that multiply. The first stage of a tile carries its description (begun), so that consumers never
 * read the queue; a description without steps ends them. */
#ifndef TRI_KERNELS_CUDA_MOE_GROUPED_CUH
#define TRI_KERNELS_CUDA_MOE_GROUPED_CUH

#include "kernels/cuda/linear/rounded_rows.cuh"
#include "kernels/cuda/moe/combine.cuh"
#include "kernels/cuda/moe/fragments.cuh"
#include "kernels/cuda/moe/results.cuh"

/* ---- fetching ---- */

/* keep: in the second-level cache, as tiles of other rows read the same weights. */
template <bool GATED>
__device__ static inline void fetch_weights(const tri_tensor_map *m, char *to, barrier *b, uint64_t keep, const tile &t,
                                            int k) {
  if (GATED) /* groups of eight gates, and after each the ups of the same units */
    tile_load(to, m, b, keep, k, 0, 0, t.output / 8, t.expert);
  else
    tile_load(to, m, b, keep, k, t.output, t.expert);
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
      if (row >= t.rows)
        from[i] = -1;
      else
        from[i] = g.choice ? g.choice[t.first_row + row] / g.top_k : t.first_row + row;
    }
  }
  __device__ void copy(const grouped &g, char *to, int k) const {
    int piece = threadIdx.x % 8, line = threadIdx.x / 8;
    int at = k + piece * (16 / (int)sizeof(X));
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      int row = line + i * LINES;
      bool there = from[i] >= 0 && at >= 0 && at < g.k;
      const X *x = (const X *)g.x + (there ? (size_t)from[i] * (size_t)g.ld + (size_t)at : 0);
      if (row >= COLS) continue;
#pragma unroll
      for (int term = 0; term < F::TERMS; term++)
        copy_async(to + (term * COLS + row) * LINE + ((piece ^ (row & 7)) << 4),
                   x + (there ? (size_t)term * (size_t)g.term_rows * (size_t)g.ld : 0), there);
    }
  }
  /* The same of a step's scales: a thread has those of the rows whose first piece it has. */
  __device__ void copy_scales(const grouped &g, scale_line<COLS, true> &to, int first, int k) const {
    const float *of_group = g.x_scale + (size_t)(k / TRI_INT8_GROUP) * (size_t)g.ld_scale;
    if (threadIdx.x % 8) return;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
      int row = (int)threadIdx.x / 8 + i * LINES;
      if (row < COLS) copy_async4(&to.of_row[first % 4 + row], of_group + max(from[i], 0), from[i] >= 0);
    }
  }
};

/* Tensor maps of a GEMM's factors; scales: of rows of integers. */
struct maps_of_gemm {
  tri_tensor_map weights, inputs, scales;
};

/* Begins the copies of a step's lines of rows of the map, and of their scales. */
template <typename F, int BLOCKS, int COLS>
__device__ static inline void fetch_rows(const grouped &g, const maps_of_gemm &m, room<F, BLOCKS, COLS> &s, int stage,
                                         const tile &t, int k) {
  enum { BOX = room<F, BLOCKS, COLS>::BOX };
#pragma unroll
  for (int row = 0; row < COLS; row += BOX)
#pragma unroll
    for (int term = 0; term < F::TERMS; term++)
      if (row < t.rows)
        tile_load(s.inputs[stage] + (term * COLS + row) * LINE, &m.inputs, &s.full[stage], KEEP_USUAL, k,
                  t.first_row + row + term * g.term_rows);
  if constexpr (F::GROUPED)
    tile_load(&s.scales[stage], &m.scales, &s.full[stage], KEEP_USUAL, t.first_row / 4 * 4, k / TRI_INT8_GROUP);
}

/* Begins the stage of step i of a tile: says how much of it comes by the copy engine, and has its weights come. */
template <typename F, int BLOCKS, int COLS, bool GATED, bool GATHERS>
__device__ static inline void begin_step(const tri_tensor_map *weights, room<F, BLOCKS, COLS> &s, int stage,
                                         const tile &t, int i) {
  typedef room<F, BLOCKS, COLS> R;
  int boxes = (t.rows + R::BOX - 1) / R::BOX;
  if (i == 0) s.begun[stage] = t;
  barrier_expect(&s.full[stage], R::WEIGHTS + (GATHERS ? 0 : F::TERMS * boxes * R::BOX * LINE + R::SCALES));
  fetch_weights<GATED>(weights, s.weights[stage], &s.full[stage], COLS > 64 ? KEEP_USUAL : KEEP_SHORT, t,
                       t.k + i * F::STEP);
}

/* Takes the next tile from the queue, for the threads that fetch it: so tiles that read the same weights are begun one
 * after the other, and read them at the same time, however long other tiles took. Each block that has had one takes one
 * that is not there; the last to do so clears the queue. */
template <bool GATHERS> __device__ static inline int take_number(const grouped &g, int tiles, int *room) {
  if (threadIdx.x == 0) {
    unsigned before = atomicAdd(g.queue, 1);
    if ((int)before == tiles - 1) *(volatile unsigned *)g.queue = 0;
    *room = (int)(gridDim.x + before);
  }
  if (!GATHERS) return *room;
  named_sync(FETCHING, WARPGROUP);
  int number = *room;
  named_sync(FETCHING, WARPGROUP);
  return number;
}

/* The producer: takes tile after tile from the queue and fills the ring with its steps. Where rows come by the copy
 * engine one thread does all of it, and begins the first tile's weights, which no kernel writes, before it waits for
 * the kernel that makes the rows. */
template <typename F, int BLOCKS, int COLS, bool GATED, bool GATHERS>
__device__ static void fetch(const grouped &g, const maps_of_gemm &m, room<F, BLOCKS, COLS> &s, int tiles) {
  typedef room<F, BLOCKS, COLS> R;
  enum { OUTPUTS = GATED ? R::ROWS / 2 : R::ROWS };
  bool leads = threadIdx.x == 0;
  gathering<F, COLS> rows;
  ring_place<R::STAGES> at;
  if (!GATHERS && !leads) return;
  for (int number = blockIdx.x; number < tiles; number = take_number<GATHERS>(g, tiles, &s.taken)) {
    tile t = tile_at<F::STEP, COLS, OUTPUTS>(g, s.first, s.start, number);
    int begun = 0;
    if (GATHERS) rows.begin(g, t);
    if (!GATHERS && number == blockIdx.x) { /* weights, while the previous kernel makes the rows */
      for (begun = 0; begun < t.steps && begun < R::STAGES; begun++)
        begin_step<F, BLOCKS, COLS, GATED, GATHERS>(&m.weights, s, begun, t, begun);
      wait_for_previous();
    }
    for (int i = 0; i < t.steps; i++, at.next()) {
      int k = t.k + i * F::STEP;
      barrier_wait(&s.empty[at.stage], at.parity ^ 1);
      if (leads && i >= begun) begin_step<F, BLOCKS, COLS, GATED, GATHERS>(&m.weights, s, at.stage, t, i);
      if (!GATHERS) fetch_rows<F, BLOCKS, COLS>(g, m, s, at.stage, t, k);
      if (GATHERS) {
        rows.copy(g, s.inputs[at.stage], k);
        if constexpr (F::GROUPED) rows.copy_scales(g, s.scales[at.stage], t.first_row, k);
        barrier_arrive_behind_copies(&s.full[at.stage]);
      }
    }
  }
  barrier_wait(&s.empty[at.stage], at.parity ^ 1);
  if (leads) s.begun[at.stage] = {};
  if (leads) barrier_arrive(&s.full[at.stage]);
  if (GATHERS) barrier_arrive(&s.full[at.stage]);
  if (!GATHERS) return;
  commit_copies(); /* no thread leaves with copies under way */
  wait_copies<0>();
}

/* ---- multiplying ---- */

/* Begins a step's MMAs of operands in shared memory. adds: to what d has. */
template <typename F, int BLOCKS, int COLS, typename S>
__device__ static inline void begin_gemms(const char *weights, const char *inputs, bool adds,
                                          S (&d)[BLOCKS][F::TERMS * COLS / 2]) {
  mma_begin();
#pragma unroll
  for (int at = 0; at < LINE; at += 32)
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
      wgmma<typename F::weight, F::TERMS * COLS>::run(d[b], operand(weights + b * 64 * LINE + at, 0, 8 * LINE),
                                                      operand(inputs + at, 0, 8 * LINE), adds || at);
}

/* Begins those of 32 of k with weights that become floats, of one block: lines of weights are 64 bytes. A lane loads
 * four neighbours of each 16 of k, and an MMA takes two of each eight from it: lanes of four exchange them. adds: to
 * what d has. */
template <typename W, typename T, int COLS>
__device__ static inline void begin_widened(const char *weights, int half, const char *inputs, bool adds,
                                            uint32_t (&a)[2][4], float (&d)[COLS / 2]) {
  int row = threadIdx.x % WARPGROUP / WARP * 16 + threadIdx.x % 16, piece = half * 2 + (int)threadIdx.x % WARP / 16;
  int from = threadIdx.x % WARP / 4 * 4 + threadIdx.x % 4 / 2;
  unsigned pair = threadIdx.x % 2 ? HIGH_PAIR : LOW_PAIR;
  uint32_t raw[4];
  load_matrices(raw, weights + row * (LINE / 2) + ((piece ^ (row / 2 % 4)) << 4));
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint32_t low = __shfl_sync(ALL_LANES, raw[i], from), high = __shfl_sync(ALL_LANES, raw[i], from + 2);
    a[i / 2][i % 2] = widen_pair<W, T>(__byte_perm(low, 0, pair));
    a[i / 2][i % 2 + 2] = widen_pair<W, T>(__byte_perm(high, 0, pair));
  }
  mma_begin();
#pragma unroll
  for (int i = 0; i < 2; i++)
    wgmma<T, COLS>::run(d, a[i], operand(inputs + (half * 2 + i) * 32, 0, 8 * LINE), adds || i);
}

/* A group's scales of a thread's rows of weights: 1 where results have theirs. */
template <int BLOCKS> struct group_scales { float low[BLOCKS], high[BLOCKS]; };
template <typename F, int BLOCKS>
__device__ static inline group_scales<BLOCKS> scales_of_group(const block_scales<BLOCKS> &s, int group) {
  group_scales<BLOCKS> v;
  int at = s.changes ? group : 0;
#pragma unroll
  for (int b = 0; b < BLOCKS; b++) {
    v.low[b] = v.high[b] = 1;
    if constexpr (F::BLOCKED) v.low[b] = __ldg(s.base + s.low[b] + at);
    if constexpr (F::BLOCKED) v.high[b] = __ldg(s.base + s.high[b] + at);
  }
  return v;
}

/* Sums of a step or a group, which are not yet scaled. */
template <typename W> struct part_of { typedef float type; };
template <> struct part_of<int8_t> { typedef int type; };

/* Adds a step's sums of 8 bits to d, by the scales of the rows of x and of weights; EVEN: those of x begin at an even
 * place. The sums of second terms lie after all first ones. */
template <typename F, int BLOCKS, int COLS, bool EVEN, typename S>
__device__ static inline void add_scaled(const float *scales, const group_scales<BLOCKS> &w,
                                         const S (&part)[BLOCKS][F::TERMS * COLS / 2], float (&d)[BLOCKS][COLS / 2]) {
  int row0 = threadIdx.x % 4 * 2;
#pragma unroll
  for (int j = 0; j < COLS / 8; j++) {
    const float *of_rows = scales + 8 * j + row0;
    float2 scale = EVEN ? load2(of_rows) : make_float2(of_rows[0], of_rows[1]);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        float sum = (float)part[b][4 * j + i];
        if constexpr (F::TERMS > 1) sum += rounding<typename F::input>::SECOND * (float)part[b][COLS / 2 + 4 * j + i];
        float of_row = i % 2 ? scale.y : scale.x, of_weight = i / 2 ? w.high[b] : w.low[b];
        d[b][4 * j + i] += of_row * of_weight * sum;
      }
  }
}

/* The same as multiply, of rows of 8 bits. */
template <typename F, int BLOCKS, int COLS, int MOST, bool GATHERS, bool EVEN>
__device__ static inline void multiply_8bit(const tile &t, const block_scales<BLOCKS> &of, room<F, BLOCKS, MOST> &s,
                                            ring_place<room<F, BLOCKS, MOST>::STAGES> &at,
                                            float (&d)[BLOCKS][COLS / 2]) {
  enum { BLOCK = room<F, BLOCKS, MOST>::WEIGHTS / CONSUMERS / BLOCKS };
  int group = (int)threadIdx.x / WARPGROUP - 1;
  typename part_of<typename F::input>::type part[BLOCKS][F::TERMS * COLS / 2];
  for (int i = 0; i < t.steps; i++) {
    group_scales<BLOCKS> w = scales_of_group<F, BLOCKS>(of, t.step + i);
    barrier_wait(&s.full[at.stage], at.parity);
    if (GATHERS) show_shared_to_engines();
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) mma_hold(part[b]);
    begin_gemms<F, BLOCKS, COLS>(s.weights[at.stage] + group * BLOCKS * BLOCK, s.inputs[at.stage], false, part);
    mma_commit();
    mma_wait<0>();
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) mma_hold(part[b]);
    add_scaled<F, BLOCKS, COLS, EVEN>(s.scales[at.stage].of_row + (EVEN ? 0 : t.first_row % 4), w, part, d);
    __syncwarp(); /* all lanes have read their scales */
    if (threadIdx.x % WARP == 0) barrier_arrive(&s.empty[at.stage]);
    at.next();
  }
}

/* ---- few rows ---- */

/* MMAs of warps, which wait for none to end: of few rows, tiles of wgmma would pass one after the other. The sums lie
 * as wgmma leaves them. */

/* Returns where a lane's elements of row lane / 4 of eight begin, `bytes` from the line's start, 16 of which are one
 * piece. */
__device__ static inline const char *input_at(const char *inputs, int eight, int bytes) {
  int row = eight * 8 + (int)threadIdx.x % WARP / 4;
  return inputs + row * LINE + (((bytes / 16) ^ (row & 7)) << 4) + bytes % 16;
}

/* A step of 64 of k with weights that become floats. Both factors are taken four neighbours at a time. */
template <typename W, typename T, int COLS>
__device__ static inline void few_floats(const char *weights, const char *inputs, float (&d)[COLS / 2]) {
  int row = threadIdx.x % WARPGROUP / WARP * 16 + threadIdx.x % 16, piece = (int)threadIdx.x % WARP / 16;
  uint32_t raw[2][4];
#pragma unroll
  for (int half = 0; half < 2; half++)
    load_matrices(raw[half], weights + row * (LINE / 2) + (((half * 2 + piece) ^ (row / 2 % 4)) << 4));
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint32_t low = raw[i / 2][i % 2 * 2], high = raw[i / 2][i % 2 * 2 + 1];
    const uint32_t a[4] = {
        widen_pair<W, T>(__byte_perm(low, 0, LOW_PAIR)), widen_pair<W, T>(__byte_perm(high, 0, LOW_PAIR)),
        widen_pair<W, T>(__byte_perm(low, 0, HIGH_PAIR)), widen_pair<W, T>(__byte_perm(high, 0, HIGH_PAIR))};
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
      uint2 b = *(const uint2 *)input_at(inputs, j, 32 * i + (int)threadIdx.x % 4 * 8);
      mma<T>::run(*(float(*)[4]) & d[4 * j], a, b.x, b.y);
    }
  }
}

/* A step of a group of k with integers. */
template <int COLS>
__device__ static inline void few_integers(const char *weights, const char *inputs, const float *scales,
                                           float (&d)[COLS / 2]) {
  int row = threadIdx.x % WARPGROUP / WARP * 16 + threadIdx.x % 16, piece = (int)threadIdx.x % WARP / 16;
  int part[COLS / 8][4] = {};
#pragma unroll
  for (int i = 0; i < LINE / 32; i++) {
    uint32_t a[4];
    load_matrices(a, weights + row * LINE + (((i * 2 + piece) ^ (row & 7)) << 4));
#pragma unroll
    for (int j = 0; j < COLS / 8; j++) {
      int at = 32 * i + (int)threadIdx.x % 4 * 4;
      mma_int8(part[j], a, *(const uint32_t *)input_at(inputs, j, at), *(const uint32_t *)input_at(inputs, j, at + 16));
    }
  }
#pragma unroll
  for (int j = 0; j < COLS / 8; j++) {
    const float *scale = scales + 8 * j + threadIdx.x % 4 * 2;
    float low = scale[0], high = scale[1];
#pragma unroll
    for (int i = 0; i < 4; i++) d[4 * j + i] += (i % 2 ? high : low) * (float)part[j][i];
  }
}

/* The same with scales that change with k. */
template <typename F, int BLOCKS, int COLS>
__device__ static inline void few_blocked(const char *weights, const char *inputs, const group_scales<BLOCKS> &w, int b,
                                          float (&d)[COLS / 2]) {
  float part[COLS / 2] = {};
  few_floats<typename F::weight, typename F::input, COLS>(weights, inputs, part);
#pragma unroll
  for (int i = 0; i < COLS / 2; i++) d[i] += (i % 4 / 2 ? w.high[b] : w.low[b]) * part[i];
}

template <typename F, int BLOCKS, int COLS, int MOST>
__device__ static inline void multiply_few(const tile &t, const block_scales<BLOCKS> &of, room<F, BLOCKS, MOST> &s,
                                           ring_place<room<F, BLOCKS, MOST>::STAGES> &at,
                                           float (&d)[BLOCKS][COLS / 2]) {
  enum { BLOCK = room<F, BLOCKS, MOST>::WEIGHTS / CONSUMERS / BLOCKS };
  for (int i = 0; i < t.steps; i++) {
    const char *weights = s.weights[at.stage] + ((int)threadIdx.x / WARPGROUP - 1) * BLOCKS * BLOCK;
    group_scales<BLOCKS> w = scales_of_group<F, BLOCKS>(of, (t.step + i) / F::STEPS_OF_GROUP);
    barrier_wait(&s.full[at.stage], at.parity);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      if constexpr (F::BLOCKED)
        few_blocked<F, BLOCKS, COLS>(weights + b * BLOCK, s.inputs[at.stage], w, b, d[b]);
      else if constexpr (F::GROUPED)
        few_integers<COLS>(weights + b * BLOCK, s.inputs[at.stage], s.scales[at.stage].of_row + t.first_row % 4, d[b]);
      else
        few_floats<typename F::weight, typename F::input, COLS>(weights + b * BLOCK, s.inputs[at.stage], d[b]);
    }
    __syncwarp();
    if (threadIdx.x % WARP == 0) barrier_arrive(&s.empty[at.stage]);
    at.next();
  }
}

/* ---- any rows ---- */

/* Computes a tile's sums of this warpgroup with COLS columns; the stages have room for MOST. Integers become floats
 * while the previous MMAs are under way, and so come in groups. */
template <typename F, int BLOCKS, int COLS, int MOST, bool GATHERS>
__device__ static inline void multiply_floats(const tile &t, room<F, BLOCKS, MOST> &s,
                                              ring_place<room<F, BLOCKS, MOST>::STAGES> &at,
                                              float (&d)[BLOCKS][COLS / 2]) {
  enum { BLOCK = room<F, BLOCKS, MOST>::WEIGHTS / CONSUMERS / BLOCKS, GROUPS = F::WIDENS ? 2 * BLOCKS : 1 };
  int group = (int)threadIdx.x / WARPGROUP - 1, last = at.stage;
  bool tells = threadIdx.x % WARP == 0;
  [[maybe_unused]] uint32_t a[2][2][4];
  for (int i = 0; i < t.steps; i++) {
    const char *weights = s.weights[at.stage] + group * BLOCKS * BLOCK, *inputs = s.inputs[at.stage];
    barrier_wait(&s.full[at.stage], at.parity);
    if (GATHERS) show_shared_to_engines();
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) mma_hold(d[b]);
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
      int half = j / BLOCKS, b = j % BLOCKS;
      if constexpr (F::WIDENS)
        begin_widened<typename F::weight, typename F::input, COLS>(weights + b * BLOCK, half, inputs, true, a[j % 2],
                                                                   d[b]);
      else
        begin_gemms<F, BLOCKS, COLS>(weights, inputs, true, d);
      mma_commit();
      mma_wait<1>();
      if (!j && i && tells) barrier_arrive(&s.empty[last]);
    }
    last = at.stage;
    at.next();
  }
  mma_wait<0>();
#pragma unroll
  for (int b = 0; b < BLOCKS; b++) mma_hold(d[b]);
  if (tells) barrier_arrive(&s.empty[last]);
}

/* The same of one block with weights whose scales change with k: the sums of a group are made apart, and added when
 * its MMAs have ended. */
template <typename F, int COLS, int MOST, bool GATHERS>
__device__ static inline void multiply_blocked(const tile &t, const block_scales<1> &of, room<F, 1, MOST> &s,
                                               ring_place<room<F, 1, MOST>::STAGES> &at, float (&d)[COLS / 2]) {
  enum { BLOCK = room<F, 1, MOST>::WEIGHTS / CONSUMERS };
  int group = (int)threadIdx.x / WARPGROUP - 1, last = at.stage;
  bool tells = threadIdx.x % WARP == 0;
  uint32_t a[2][2][4];
  float part[COLS / 2];
  for (int i = 0; i < t.steps;) {
    int number = (t.step + i) / F::STEPS_OF_GROUP, end = min(t.steps, (number + 1) * F::STEPS_OF_GROUP - t.step);
    group_scales<1> w = scales_of_group<F, 1>(of, number);
    for (bool adds = false; i < end; i++, adds = true) {
      const char *weights = s.weights[at.stage] + group * BLOCK, *inputs = s.inputs[at.stage];
      barrier_wait(&s.full[at.stage], at.parity);
      if (GATHERS) show_shared_to_engines();
      mma_hold(part);
#pragma unroll
      for (int half = 0; half < 2; half++) {
        begin_widened<typename F::weight, typename F::input, COLS>(weights, half, inputs, adds || half, a[half], part);
        mma_commit();
        mma_wait<1>();
        if (!half && adds && tells) barrier_arrive(&s.empty[last]);
      }
      last = at.stage;
      at.next();
    }
    mma_wait<0>();
    mma_hold(part);
    if (tells) barrier_arrive(&s.empty[last]);
#pragma unroll
    for (int j = 0; j < COLS / 2; j++) d[j] += (j % 4 / 2 ? w.high[0] : w.low[0]) * part[j];
  }
}

/* ALONE: tiles begin with whole groups of COLS rows, not where an expert's do. of: with BLOCKED. */
template <typename F, int BLOCKS, int COLS, int MOST, bool GATHERS, bool ALONE>
__device__ static inline void multiply(const tile &t, const block_scales<BLOCKS> &of, room<F, BLOCKS, MOST> &s,
                                       ring_place<room<F, BLOCKS, MOST>::STAGES> &at, float (&d)[BLOCKS][COLS / 2]) {
  if constexpr (F::FEW_BY_WARPS && COLS <= FEW_COLUMNS)
    multiply_few<F, BLOCKS, COLS, MOST>(t, of, s, at, d);
  else if constexpr (F::GROUPED)
    multiply_8bit<F, BLOCKS, COLS, MOST, GATHERS, ALONE>(t, of, s, at, d);
  else if constexpr (F::BLOCKED)
    multiply_blocked<F, COLS, MOST, GATHERS>(t, of, s, at, d[0]);
  else
    multiply_floats<F, BLOCKS, COLS, MOST, GATHERS>(t, s, at, d);
}

/* ---- tiles ---- */

enum { NONE = -1, END = -2 }; /* in the place of a slab */

/* Stores a tile's results. */
template <typename F, int BLOCKS, int COLS, int MOST, bool GATED>
__device__ static inline void store_tile(const grouped &g, const tile &t, room<F, BLOCKS, MOST> &s,
                                         float (&d)[BLOCKS][COLS / 2]) {
  if constexpr (COLS >= 32)
    if (MOST > MOST_SPLIT || g.splits == 1) {
      store_together<F, GATED, BLOCKS, COLS>(g, t, d, s.staging[(int)threadIdx.x / WARPGROUP - 1]);
      return;
    }
  if constexpr (MOST <= MOST_SPLIT) {
    if (g.splits > 1)
      store_apart<F, float, GATED, BLOCKS, COLS>(g, t, d);
    else
      store_apart<F, typename F::output, GATED, BLOCKS, COLS>(g, t, d);
  }
}

template <typename F, int BLOCKS, int COLS, int MOST, bool GATED, bool GATHERS>
__device__ static inline void do_tile(const grouped &g, const tile &t, room<F, BLOCKS, MOST> &s,
                                      ring_place<room<F, BLOCKS, MOST>::STAGES> &at) {
  float d[BLOCKS][COLS / 2] = {}; /* else they would have registers while tiles of another size are done */
  block_scales<BLOCKS> of;
  if constexpr (F::BLOCKED) find_scales<GATED, BLOCKS>(g, t, of);
  multiply<F, BLOCKS, COLS, MOST, GATHERS, false>(t, of, s, at, d);
  store_tile<F, BLOCKS, COLS, MOST, GATED>(g, t, s, d);
}

/* Returns the block's slab number `turn` of so many, or END. */
__device__ static inline int next_slab(int slabs, int turn) {
  int slab = (int)blockIdx.x + turn * (int)gridDim.x;
  return slab < slabs ? slab : END;
}

/* Does the next tile. Returns the slab of outputs whose last tile it was, of in_slab, where blocks add choices up; else
 * NONE; or END where there is no tile left. */
template <typename F, int BLOCKS, int COLS, bool GATED, bool GATHERS>
__device__ static inline int do_next(const grouped &g, int in_slab, room<F, BLOCKS, COLS> &s,
                                     ring_place<room<F, BLOCKS, COLS>::STAGES> &at) {
  typedef room<F, BLOCKS, COLS> R;
  enum { SMALL = F::HAS_SMALL && COLS > F::CHEAP ? COLS / 2 : COLS };
  barrier_wait(&s.full[at.stage], at.parity);
  tile t = s.begun[at.stage];
  if (!t.steps) return END;
  if (SMALL < COLS && t.rows <= SMALL)
    do_tile<F, BLOCKS, SMALL, COLS, GATED, GATHERS>(g, t, s, at);
  else
    do_tile<F, BLOCKS, COLS, COLS, GATED, GATHERS>(g, t, s, at);
  if constexpr (R::ADDS && !GATHERS) {
    int slab = t.output / R::ROWS;
    if (g.sums.done && is_last_tile(g, slab, in_slab, s.parts)) return slab;
  }
  return NONE;
}

/* Computes out[row] = w[expert of row] x[row], finished, for all rows of the map, and of a second GEMM, where it is
 * to add choices up, their sums. maps: of rows and scales where they are not gathered. As many blocks as
 * multiprocessors, 384 threads.
 *
 * The first GEMM, which gathers, lets the second one begin when it has the map, so that the second one may read the
 * map, and fetch weights by it, before it waits (dependent_launch.cuh). */
template <typename F, int BLOCKS, int COLS, bool GATED, bool GATHERS>
__global__ static void __launch_bounds__(THREADS, 1)
    grouped_kernel(const __grid_constant__ grouped g, const __grid_constant__ maps_of_gemm maps) {
  typedef room<F, BLOCKS, COLS> R;
  enum { OUTPUTS = GATED ? R::ROWS / 2 : R::ROWS };
  constexpr bool ADDS = R::ADDS && !GATHERS;
  extern __shared__ char shared[];
  R &s = *(R *)(((uintptr_t)shared + ALIGN - 1) / ALIGN * ALIGN);
  if (!HAS_HOPPER) return;
  if (GATHERS)
    stamp_begun();
  else
    let_next_begin();
  if (threadIdx.x == 0) {
    prefetch_map(&maps.weights);
    for (int i = 0; i < R::STAGES; i++) {
      barrier_init(&s.full[i], GATHERS ? 1 + WARPGROUP : 1);
      barrier_init(&s.empty[i], CONSUMERS * WARPGROUP / WARP);
    }
    barriers_are_made();
  }
  if (GATHERS) {
    wait_for_previous();
    let_next_begin_now();
  }
  for (int e = threadIdx.x; e <= g.num_experts; e += THREADS) s.first[e] = __ldcg(g.first + e);
  __syncthreads();
  if (threadIdx.x < WARP) list_groups<COLS>(g.num_experts, s.first, s.start);
  __syncthreads();
  int slabs = (g.outputs + OUTPUTS - 1) / OUTPUTS, in_slab = s.start[g.num_experts] * g.splits, tiles = in_slab * slabs;
  /* Registers that one warpgroup gives up are those that two take: 168 each at the launch. */
  if (threadIdx.x < WARPGROUP) {
    give_registers<GATHERS ? 88 : 40>();
    fetch<F, BLOCKS, COLS, GATED, GATHERS>(g, maps, s, tiles);
    return;
  }
  take_registers<GATHERS ? 208 : 232>();
  bool adds = ADDS && g.sums.done;
  ring_place<R::STAGES> at;
  if constexpr (ADDS)
    if (adds) list_parts(g, s.parts);
  if (!adds) wait_for_previous();
  for (int pass = adds ? 0 : 1;; pass++) {
    int slab = slabs; /* the first pass does nothing */
    if (pass && tiles)
      slab = do_next<F, BLOCKS, COLS, GATED, GATHERS>(g, in_slab, s, at);
    else if (pass) /* no slab has a last tile */
      slab = next_slab(adds ? slabs : 0, pass - 1);
    if (slab == END) return;
    if constexpr (ADDS)
      if (slab >= 0) add_slab_of<typename F::output, OUTPUTS>(g, s.parts, slab);
    if (!pass) wait_for_previous();
  }
}

#endif
