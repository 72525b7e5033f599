/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of GEMMs of many rows of 8 bits with weights of 8 bits, on Hopper: 128 rows of x with 256 of weights.
 *
 * Rows of x are wgmma's rows, so that a lane has two of them, and needs two of their scales for each group of k. (With
 * weights as its rows, as in moe/grouped.cuh, a lane has columns of a quarter of all rows of x: to scale its sums takes
 * more instructions than the MMAs take time.) Each of two warpgroups has 64 rows and goes through the weights in two
 * halves: a group's sums of a half are made apart, and are added by their scales while the other warpgroup multiplies.
 * A tile of at most 64 rows is cut the other way: each warpgroup has all rows and one half of the weights.
 *
 * A half has two scales in each group of k: of its first and its last 64 rows, or of gates and ups, which lie in turns
 * of eight. Scales of single rows of weights, which do not change with k, come at the end. */
#ifndef TRI_KERNELS_CUDA_LINEAR_TILES_8BIT_CUH
#define TRI_KERNELS_CUDA_LINEAR_TILES_8BIT_CUH

#include "kernels/cuda/linear/rounded_rows.cuh"
#include "kernels/cuda/moe/grouped.cuh"

enum {
  MANY = 128,                 /* rows of x in a tile, */
  WIDE = 256,                 /* and of weights */
  HALF = WIDE / 2,            /* of weights: at a time */
  BLOCK = MANY / 2,           /* rows of x at a time */
  UNITS = WIDE / 2,           /* outputs of gates and ups: a group of the next GEMM's k */
  SUMS = HALF / 2,            /* of a lane in a half */
  MANY_STAGES = 4,            /* of the ring */
  STAGED = LINE + 16,         /* bytes from one staged line to the next, so that eight lie in all banks */
  BOTH_GROUPS = FETCHING + 1, /* named barriers: of both warpgroups, */
  TURN = BOTH_GROUPS + 1      /* and of each one's turn to multiply */
};

/* A block's shared memory. */
struct many_room {
  char weights[MANY_STAGES][WIDE * LINE];
  char rows[MANY_STAGES][MANY * LINE];
  scale_line<MANY, true> scales[MANY_STAGES];
  char staging[CONSUMERS][BLOCK * STAGED];
  uint32_t tops[CONSUMERS][BLOCK]; /* of rows, in a warpgroup's half */
  barrier full[MANY_STAGES], empty[MANY_STAGES];
  tile begun[MANY_STAGES];
  int taken;
  int first[MOST_EXPERTS + 1], start[MOST_EXPERTS + 1];
};
static_assert(sizeof(many_room) <= ROOM, "of a block");
typedef ring_place<MANY_STAGES> many_place;

/* Results as rows of 8 bits for the next GEMM, with scales; without q they go to g.out. */
struct rounded_out {
  uint8_t *q;    /* [rows, g.ld_out], or NULL */
  float *scales; /* [groups, ld] */
  int ld;
};

/* ---- fetching ---- */

/* Begins step i of a tile: its weights. */
template <bool GATED>
__device__ static inline void begin_many(const maps_of_gemm &m, many_room &s, int stage, const tile &t, int i) {
  int boxes = (t.rows + BLOCK - 1) / BLOCK;
  if (i == 0) s.begun[stage] = t;
  barrier_expect(&s.full[stage], (unsigned)(WIDE * LINE + boxes * BLOCK * LINE + (MANY + 4) * 4));
  fetch_weights<GATED>(&m.weights, s.weights[stage], &s.full[stage], KEEP_USUAL, t, t.k + i * LINE);
}

/* Fills the ring with tile after tile. By one thread. WAITS: for the kernel that makes the rows, after it has begun the
 * first tile's weights. */
template <bool GATED, bool WAITS>
__device__ static void fetch_many(const grouped &g, const maps_of_gemm &m, many_room &s, int tiles) {
  many_place at;
  for (int number = blockIdx.x; number < tiles; number = take_number<false>(g, tiles, &s.taken)) {
    tile t = tile_at < LINE, MANY, GATED ? UNITS : WIDE > (g, s.first, s.start, number);
    int begun = 0;
    if (WAITS && number == blockIdx.x) {
      for (; begun < t.steps && begun < MANY_STAGES; begun++) begin_many<GATED>(m, s, begun, t, begun);
      wait_for_previous();
    }
    for (int i = 0; i < t.steps; i++, at.next()) {
      int k = t.k + i * LINE;
      barrier_wait(&s.empty[at.stage], at.parity ^ 1);
      if (i >= begun) begin_many<GATED>(m, s, at.stage, t, i);
      for (int row = 0; row < t.rows; row += BLOCK)
        tile_load(s.rows[at.stage] + row * LINE, &m.inputs, &s.full[at.stage], KEEP_USUAL, k, t.first_row + row);
      tile_load(&s.scales[at.stage], &m.scales, &s.full[at.stage], KEEP_USUAL, t.first_row / 4 * 4, k / LINE);
    }
  }
  barrier_wait(&s.empty[at.stage], at.parity ^ 1);
  s.begun[at.stage] = {};
  barrier_arrive(&s.full[at.stage]);
}

/* ---- multiplying ---- */

/* Warpgroups begin their MMAs in turns: else both would multiply at the same time, and then both scale. The second one
 * gives the first turn; the last one is taken by who ends. */
__device__ static inline void take_turn(int group) { named_sync(TURN + group, CONSUMERS * WARPGROUP); }
__device__ static inline void give_turn(int group) { named_arrive(TURN + (group ^ 1), CONSUMERS * WARPGROUP); }

/* The scales of the weights of a tile's HALVES in a group of k. */
template <int HALVES> struct scales_of_halves {
  int at[HALVES][2]; /* of the first group of k */
  float v[HALVES][2];
};

/* True where weights have a scale for each row alone: those come at the end. */
template <typename F> __device__ static inline bool scales_rows(const grouped &g) {
  return !F::BLOCKED || (g.block_rows == 1 && g.across == 1);
}

template <typename F, bool GATED, int HALVES>
__device__ static inline void find_scales_of_halves(const grouped &g, const tile &t, int half0,
                                                    scales_of_halves<HALVES> &s) {
  int first = t.expert * (GATED ? 2 * g.outputs : g.outputs), last = g.outputs - 1;
  bool at_end = scales_rows<F>(g);
#pragma unroll
  for (int h = 0; h < HALVES; h++)
#pragma unroll
    for (int p = 0; p < 2; p++) {
      int from = GATED ? (half0 + h) * BLOCK : (2 * (half0 + h) + p) * BLOCK, output = min(t.output + from, last);
      int up = GATED && p ? g.outputs : 0;
      s.at[h][p] = at_end ? 0 : scales_at(g, first + output + up);
      s.v[h][p] = 1;
    }
}
template <int HALVES>
__device__ static inline void load_scales_of_halves(const grouped &g, int group, scales_of_halves<HALVES> &s) {
#pragma unroll
  for (int h = 0; h < HALVES; h++)
#pragma unroll
    for (int p = 0; p < 2; p++) s.v[h][p] = __ldg(g.w_scale + s.at[h][p] + group);
}

/* Computes a tile's sums of this warpgroup: of 64 rows with both halves of the weights, or with its own. */
template <typename F, bool GATED, int HALVES>
__device__ static inline void multiply_many(const grouped &g, const tile &t, many_room &s, many_place &at,
                                            float (&d)[HALVES][SUMS]) {
  typedef typename F::weight Q;
  int group = (int)threadIdx.x / WARPGROUP - 1, half0 = HALVES == 1 ? group : 0, block = HALVES == 1 ? 0 : group;
  int row = block * BLOCK + (int)threadIdx.x % WARPGROUP / WARP * 16 + (int)threadIdx.x % WARP / 4;
  bool changes = F::BLOCKED && g.across > 1, tells = threadIdx.x % WARP == 0;
  typename part_of<Q>::type part[SUMS];
  scales_of_halves<HALVES> w;
  find_scales_of_halves<F, GATED, HALVES>(g, t, half0, w);
  if (!scales_rows<F>(g)) load_scales_of_halves(g, changes ? t.step : 0, w);
  const uint64_t rows0 = operand(s.rows[0] + block * BLOCK * LINE, 0, 8 * LINE),
                 weights0 = operand(s.weights[0] + half0 * HALF * LINE, 0, 8 * LINE);
  for (int i = 0; i < t.steps; i++) {
    const uint64_t rows = rows0 + (unsigned)(at.stage * MANY * LINE) / 16,
                   weights = weights0 + (unsigned)(at.stage * WIDE * LINE) / 16;
    const float *of_row = s.scales[at.stage].of_row + t.first_row % 4 + row;
    float low, high; /* of this lane's rows */
    barrier_wait(&s.full[at.stage], at.parity);
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
      float factor[2][2]; /* of each row, and of each scale of weights */
      take_turn(group);
      mma_hold(part);
      mma_begin();
#pragma unroll
      for (int k = 0; k < LINE; k += 32)
        wgmma<Q, HALF>::run(part, rows + k / 16, weights + (h * HALF * LINE + k) / 16, k > 0);
      mma_commit();
      give_turn(group);
      if (h == 0) {
        low = of_row[0];
        high = of_row[8];
      }
#pragma unroll
      for (int p = 0; p < 2; p++) {
        factor[0][p] = low * w.v[h][p];
        factor[1][p] = high * w.v[h][p];
      }
      if (h == HALVES - 1 && changes && i + 1 < t.steps) load_scales_of_halves(g, t.step + i + 1, w);
      mma_wait<0>();
      mma_hold(part);
      if (h == HALVES - 1 && tells) barrier_arrive(&s.empty[at.stage]);
#pragma unroll
      for (int j = 0; j < SUMS; j++) d[h][j] += factor[j / 2 % 2][GATED ? j / 4 % 2 : j / (SUMS / 2)] * (float)part[j];
    }
    at.next();
  }
}

/* ---- results ---- */

/* A lane's two values for neighbouring outputs; NULL: `other`. */
__device__ static inline float2 two_of(const float *values, int at, float other) {
  return values ? make_float2(__ldg(values + at), __ldg(values + at + 1)) : make_float2(other, other);
}

/* Scales and biases a half's sums. output: of the half. */
template <bool GATED>
__device__ static inline void scale_half(const grouped &g, const tile &t, const float *scale, int output,
                                         float (&d)[SUMS]) {
  int first = t.expert * (GATED ? 2 * g.outputs : g.outputs);
#pragma unroll
  for (int j = 0; j < SUMS / (GATED ? 8 : 4); j++) {
    int at = first + min(output + 8 * j + (int)threadIdx.x % 4 * 2, g.outputs - 2);
    float *y = &d[GATED ? 8 * j : 4 * j];
#pragma unroll
    for (int part = 0; part < (GATED ? 2 : 1); part++, at += g.outputs) {
      float2 s = two_of(scale, at, 1), b = two_of(g.bias, at, 0);
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        y[4 * part + i] = y[4 * part + i] * s.x + b.x;
        y[4 * part + i + 1] = y[4 * part + i + 1] * s.y + b.y;
      }
    }
  }
}

/* Gates and ups of a half become units, half as many, from the first on: d[4 j ...] of units 8 j + 2 (lane % 4) and the
 * next. PLAIN: SILU. */
template <bool PLAIN> __device__ static inline void gate_half(const grouped &g, int output, float (&d)[SUMS]) {
#pragma unroll
  for (int j = 0; j < SUMS / 8; j++) {
    bool there = output + 8 * j < g.outputs;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float gate = d[8 * j + i], up = d[8 * j + 4 + i], y = PLAIN ? fast_swish(gate, 1) * up : gated(g, gate, up);
      d[4 * j + i] = there ? y : 0;
    }
  }
}

template <typename F, bool GATED>
__device__ static inline void finish_half(const grouped &g, const tile &t, int output, float (&d)[SUMS]) {
  const float *scale = scales_rows<F>(g) ? g.w_scale : NULL;
  if (scale || g.bias) scale_half<GATED>(g, t, scale, output, d);
  if (!GATED) return;
  if (g.up_limit == INFINITY && g.gate_scale == 1 && g.gate_cube == 0)
    gate_half<true>(g, output, d);
  else
    gate_half<false>(g, output, d);
}

/* Copies this warp's 16 staged lines of 128 bytes to rows of `out`, ld bytes apart, from byte `at` on, as far as there
 * are `left` bytes and rows. */
__device__ static inline void copy_lines(const tile &t, int row0, const char *lines, char *out, size_t ld, size_t at,
                                         int left) {
  int lane = threadIdx.x % WARP;
#pragma unroll
  for (int i = lane; i < 16 * LINE / 16; i += WARP) {
    int row = i / 8, piece = i % 8 * 16;
    if (row0 + row < t.rows && piece < left)
      *(uint4 *)(out + (size_t)(t.first_row + row0 + row) * ld + at + piece) =
          *(const uint4 *)(lines + row * STAGED + piece);
  }
}

/* Stores 64 outputs of this warp's rows as 16 bits: results d[FROM ...]. */
template <typename O, int FROM, int COUNT>
__device__ static inline void store_lines_of(const grouped &g, const tile &t, int row0, int output,
                                             const float (&d)[COUNT], char *lines) {
  int lane = threadIdx.x % WARP;
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const float *y = &d[FROM + 4 * j];
    const uint32_t r[4] = {mma<O>::pack(y[0], y[1]), mma<O>::pack(y[2], y[3]), mma<O>::pack(y[4], y[5]),
                           mma<O>::pack(y[6], y[7])};
    store_matrices(lines + (lane / 8 % 2 * 8 + lane % 8) * STAGED + (j + lane / 16) * 16, r);
  }
  __syncwarp();
  copy_lines(t, row0, lines, (char *)g.out, (size_t)g.ld_out * 2, (size_t)output * 2, (g.outputs - output) * 2);
  __syncwarp();
}

/* The largest magnitude, as bits, of a row's results in the lanes of four. */
template <int COUNT> __device__ static inline uint32_t top_of_row(const float (&d)[COUNT], int second) {
  uint32_t top = 0;
#pragma unroll
  for (int j = 0; j < SUMS / 2; j += 4)
#pragma unroll
    for (int i = 0; i < 2; i++) top = max(top, __float_as_uint(d[j + 2 * second + i]) & 0x7fffffffu);
  top = max(top, __shfl_xor_sync(ALL_LANES, top, 1));
  return max(top, __shfl_xor_sync(ALL_LANES, top, 2));
}

/* Makes the largest magnitudes of a lane's two rows those of the whole tile, where each warpgroup has half of it. */
__device__ static inline void share_tops(many_room &s, int row, uint32_t (&top)[2]) {
  int group = (int)threadIdx.x / WARPGROUP - 1;
#pragma unroll
  for (int i = 0; i < 2; i++)
    if (threadIdx.x % 4 == 0) s.tops[group][row + 8 * i] = top[i];
  named_sync(BOTH_GROUPS, CONSUMERS * WARPGROUP);
#pragma unroll
  for (int i = 0; i < 2; i++) top[i] = max(top[i], s.tops[group ^ 1][row + 8 * i]);
  named_sync(BOTH_GROUPS, CONSUMERS * WARPGROUP);
}

/* Rounds the units of a tile, which are one group of the next GEMM's k, and stores them and their scales. */
template <typename Q, int HALVES>
__device__ static inline void store_rounded(const grouped &g, const rounded_out &out, const tile &t, many_room &s,
                                            int row0, const float (&d)[HALVES][SUMS], char *lines) {
  int lane = threadIdx.x % WARP, half0 = HALVES == 1 ? (int)threadIdx.x / WARPGROUP - 1 : 0;
  float limit = rounding<Q>::LIMIT, *scales = out.scales + (size_t)(t.output / UNITS) * (size_t)out.ld;
  uint32_t top[2];
#pragma unroll
  for (int i = 0; i < 2; i++) top[i] = max(top_of_row(d[0], i), top_of_row(d[HALVES - 1], i));
  if (HALVES == 1) share_tops(s, row0 % BLOCK + lane / 4, top);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int row = lane / 4 + 8 * i;
    bool finite = top[i] < 0x7f800000u;
    float most = __uint_as_float(top[i]), factor = finite ? rounding_factor(limit, most) : 0;
    if (lane % 4 == 0 && half0 == 0 && row0 + row < t.rows)
      scales[t.first_row + row0 + row] = finite ? rounding_scale(limit, most) : NAN;
#pragma unroll
    for (int h = 0; h < HALVES; h++)
#pragma unroll
      for (int j = 0; j < SUMS / 8; j++) {
        *(uint16_t *)(lines + row * STAGED + h * BLOCK + 8 * j + lane % 4 * 2) =
            (uint16_t)rounding<Q>::two(d[h][4 * j + 2 * i], d[h][4 * j + 2 * i + 1], factor);
      }
  }
  __syncwarp();
  int from = t.output + half0 * BLOCK, left = min(g.outputs - from, HALVES * BLOCK);
  copy_lines(t, row0, lines, (char *)out.q, (size_t)g.ld_out, (size_t)from, left);
  __syncwarp();
}

template <typename F, bool GATED, int HALVES>
__device__ static inline void do_many(const grouped &g, const rounded_out &out, const tile &t, many_room &s,
                                      many_place &at) {
  enum { SECOND = SUMS / 2 }; /* sums of the second 64 outputs */
  float d[HALVES][SUMS] = {};
  int group = (int)threadIdx.x / WARPGROUP - 1, warp = (int)threadIdx.x % WARPGROUP / WARP;
  int row0 = (HALVES == 1 ? 0 : group * BLOCK) + warp * 16, half0 = HALVES == 1 ? group : 0;
  char *lines = s.staging[group] + warp * 16 * STAGED;
  multiply_many<F, GATED, HALVES>(g, t, s, at, d);
#pragma unroll
  for (int h = 0; h < HALVES; h++) {
    int output = t.output + (half0 + h) * (GATED ? BLOCK : HALF);
    finish_half<F, GATED>(g, t, output, d[h]);
    if (GATED && out.q) continue;
    store_lines_of<typename F::output, 0>(g, t, row0, output, d[h], lines);
    if (GATED) continue;
    store_lines_of<typename F::output, SECOND>(g, t, row0, output + BLOCK, d[h], lines);
  }
  if (GATED && out.q) store_rounded<typename F::input, HALVES>(g, out, t, s, row0, d, lines);
}

/* Does tiles until there is none left. */
template <typename F, bool GATED>
__device__ static inline void do_all_many(const grouped &g, const rounded_out &out, many_room &s) {
  int group = (int)threadIdx.x / WARPGROUP - 1;
  many_place at;
  if (group) give_turn(group);
  for (;;) {
    barrier_wait(&s.full[at.stage], at.parity);
    tile t = s.begun[at.stage];
    if (!t.steps) break;
    if (t.rows <= BLOCK)
      do_many<F, GATED, 1>(g, out, t, s, at);
    else
      do_many<F, GATED, 2>(g, out, t, s, at);
  }
  if (!group) take_turn(group);
}

/* ---- the kernel ---- */

/* Computes out[row] = finished w[expert of row] x[row] for all rows of the map, or, without g.first, of one expert that
 * has all rows. AFTER_MAP: first of the kernels that read the map, after the one that makes it; those that follow may
 * read it when they begin, as this one has let them begin after it had waited (dependent_launch.cuh). As many blocks as
 * multiprocessors, 384 threads. */
template <typename F, bool GATED, bool AFTER_MAP>
__global__ static void __launch_bounds__(THREADS, 1)
    many_rows_kernel(const __grid_constant__ grouped g, const __grid_constant__ rounded_out out,
                     const __grid_constant__ maps_of_gemm maps) {
  enum { OUTPUTS = GATED ? UNITS : WIDE, WAITS = !AFTER_MAP };
  extern __shared__ char shared[];
  many_room &s = *(many_room *)(((uintptr_t)shared + ALIGN - 1) / ALIGN * ALIGN);
  if (!HAS_HOPPER) return;
  if (AFTER_MAP)
    stamp_begun();
  else
    let_next_begin();
  if (threadIdx.x == 0) {
    prefetch_map(&maps.weights);
    prefetch_map(&maps.inputs);
    prefetch_map(&maps.scales);
    for (int i = 0; i < MANY_STAGES; i++) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], CONSUMERS * WARPGROUP / WARP);
    }
    barriers_are_made();
  }
  if (AFTER_MAP) {
    wait_for_previous();
    let_next_begin_now();
  }
  for (int e = threadIdx.x; e <= g.num_experts; e += THREADS)
    s.first[e] = g.first ? __ldcg(g.first + e) : e * g.most_rows;
  __syncthreads();
  if (threadIdx.x < WARP) list_groups<MANY>(g.num_experts, s.first, s.start);
  __syncthreads();
  if (threadIdx.x < WARPGROUP) {
    int slabs = (g.outputs + OUTPUTS - 1) / OUTPUTS;
    give_registers<40>();
    if (threadIdx.x > 0) return;
    fetch_many<GATED, WAITS>(g, maps, s, s.start[g.num_experts] * slabs);
    return;
  }
  take_registers<232>();
  if (!AFTER_MAP) wait_for_previous();
  do_all_many<F, GATED>(g, out, s);
}

/* ---- launches ---- */

template <typename F, bool GATED, bool AFTER_MAP>
static cudaError_t launch_many(cudaStream_t stream, const grouped &g, const rounded_out &out, const void *w,
                               int num_sms) {
  constexpr size_t bytes = sizeof(many_room) + ALIGN;
  tri_dtype type = F::BLOCKED ? TRI_F8_E4M3 : TRI_I8;
  cudaError_t error = allow_shared<many_rows_kernel<F, GATED, AFTER_MAP>>(bytes);
  uint64_t k = (uint64_t)g.k, n = (uint64_t)g.outputs, e = (uint64_t)g.num_experts, rows = (uint64_t)g.most_rows;
  tri_tiling pairs = {5, {k, 8, 2, n / 8, e}, {0, k, n * k, 8 * k, 2 * n * k}, {LINE, 8, 2, WIDE / 16, 1}};
  tri_tiling plain = {3, {k, n, e}, {0, k, n * k}, {LINE, WIDE, 1}};
  tri_tiling inputs = {2, {k, rows}, {0, k}, {LINE, BLOCK}};
  tri_tiling scales = {2, {rows, (uint64_t)tri_int8_groups(g.k)}, {0, (uint64_t)g.ld_scale * 4}, {MANY + 4, 1}};
  maps_of_gemm maps = {};
  if (error != cudaSuccess) return error;
  if (tri_cuda_map_tensor(&maps.weights, type, w, GATED ? &pairs : &plain) != TRI_OK ||
      tri_cuda_map_tensor(&maps.inputs, type, g.x, &inputs) != TRI_OK ||
      tri_cuda_map_tensor(&maps.scales, TRI_F32, g.x_scale, &scales) != TRI_OK)
    return cudaErrorInvalidValue;
  launch_overlapped(many_rows_kernel<F, GATED, AFTER_MAP>, dim3(num_sms), THREADS, bytes, stream, g, out, maps);
  return cudaGetLastError();
}

/* True where no half of a tile has other scales than it can have. outputs: of an expert, or units. */
static inline bool has_wide_blocks(const tri_weight &w, int outputs) {
  const tri_groups &s = w.groups;
  if (w.dtype == TRI_I8) return true;
  if (s.skip_col) return false;
  if (s.rows <= 1) return !s.cols;
  return s.rows % BLOCK == 0 && s.skip_row % BLOCK == 0 && outputs % BLOCK == 0;
}

#endif
