/* SPDX-License-Identifier: Apache-2.0 */
/* Launches the grouped GEMMs of experts. The host knows how many choices there are, and not which experts have them. So
 * it chooses sizes of tiles from averages, starts as many blocks as there are multiprocessors, and lets them find their
 * tiles from the map. Gated experts of 16 bits with few rows run as one kernel (moe/pair.cuh), others as two.
 *
 * The workspace holds, in this order: rows of x in another form where the weights want one, hidden rows, those rounded
 * to integers, and the second GEMM's results. */
#include "kernels/cuda/moe/pair.cuh"

enum {
  FEW = 8,
  MOST_PAIRED = 64,
  MOST_SPLITS = 8,
  ENOUGH_STEPS = 4,
  ENOUGH_ROUNDS = 6,

  EIGHT = 8
};

bool tri_cuda_moe_grouped_fits(const tri_moe_experts_args *a) {
  tri_dtype t = a->up.dtype;
  int whole_k = is_8bit(t) ? 2 * EIGHT : EIGHT; /* 16 bytes */
  bool types = t != TRI_F32 && a->down.dtype == t && (a->x.dtype == TRI_F32 || a->x.dtype == t || is_8bit(t));
  bool units = a->gated && is_glu(a->act);
  bool whole = a->up.k % whole_k == 0 && a->down.k % whole_k == 0 && a->x.ld % EIGHT == 0 && a->up.k && a->down.k;
  uintptr_t places = (uintptr_t)a->x.data | (uintptr_t)a->up.data | (uintptr_t)a->down.data | (uintptr_t)a->out.data;
  return types && units && whole && places % 16 == 0 && a->out.ld % 4 == 0;
}

/* ---- shapes ---- */

/* True where blocks of k begin before a weight's first column, as they do not in rows. */
static bool begins_inside(const tri_moe_experts_args *a) { return a->up.groups.skip_col || a->down.groups.skip_col; }

/* Tiles of a pair are small enough for the ends of rounds to count. Rounded rows become others between the GEMMs. */
static bool is_pair(const tri_moe_experts_args *a, int cols) {
  return !a->rounds_rows && cols <= MOST_PAIRED && (!is_8bit(a->up.dtype) || begins_inside(a));
}

/* How a GEMM is cut: tiles of 128 * blocks rows of weights and cols rows, and k into parts. */
struct cut {
  int blocks, cols, splits;
};

/* The share of the device that is busy while `tiles` equal tiles run. */
static double busy_share(int64_t tiles, int num_sms) {
  int64_t rounds = (tiles + num_sms - 1) / num_sms;
  return (double)tiles / (double)(rounds * num_sms);
}

/* Columns for the rows that an expert has on average: tiles of few, because tokens choose unevenly. */
static int columns_for(const tri_moe_experts_args *a) {
  int most_of_64 = is_8bit(a->up.dtype) ? 96 : 48;
  int64_t average = ((int64_t)a->x.rows * a->top_k + a->num_experts - 1) / a->num_experts;
  bool rounds = a->rounds_rows && a->up.dtype == TRI_F8_E4M3, few = a->x.rows <= FEW;
  if (rounds && (few || average <= FEW / 4)) return 32;
  if (few || (is_8bit(a->up.dtype) && average <= FEW / 4)) return FEW;
  if (a->x.rows <= 32 || average <= 16) return 32;
  return average <= most_of_64 ? 64 : 128;
}

/* True where rows of 16 bits become two terms of 8, as in linear/gemm_8bit.cu. */
static bool has_two_terms(const tri_moe_experts_args *a) {
  return is_8bit(a->up.dtype) && !a->rounds_rows && columns_for(a) <= 64 && !begins_inside(a);
}
static bool is_rounded(const tri_moe_experts_args *a) { return a->rounds_rows || has_two_terms(a); }

/* True where sums are made in parts that are added to others: with few rows those are few, else they leave no registers
 * for tiles of twice as many outputs. */
static bool has_parts(const tri_moe_experts_args *a) { return is_rounded(a) || a->up.dtype == TRI_F8_E4M3; }

/* Parts of k: where one round has all tiles, as few as fill the device. Else as many as make rounds short, because how
 * many experts have rows is known on the device alone, and the last round is full only by chance. */
static int splits_for(int64_t tiles, int steps, int num_sms) {
  int best = 1;
  for (int s = 2; s <= MOST_SPLITS && s * ENOUGH_STEPS <= steps; s++) {
    bool fills = tiles <= num_sms && busy_share(tiles * s, num_sms) > busy_share(tiles * best, num_sms) + 0.05;
    if (fills || (tiles > num_sms && tiles * best < ENOUGH_ROUNDS * num_sms)) best = s;
  }
  return best;
}

/* lines: rows of weights of an expert. */
static cut cut_for(const tri_moe_experts_args *a, int lines, int k, bool may_split, int num_sms) {
  int64_t choices = (int64_t)a->x.rows * a->top_k, experts = choices < a->num_experts ? choices : a->num_experts;
  int step = is_rounded(a) ? LINE : LINE / 2, steps = (k + step - 1) / step;
  cut c = {2, columns_for(a), 1};
  if (has_parts(a) && c.cols > MOST_SPLIT) c.blocks = 1;
  if (c.cols > MOST_SPLIT) return c;
  int64_t tiles = experts * ((lines + 255) / 256);
  bool apart = a->up.dtype == TRI_F8_E4M3 && c.cols > FEW; /* sums of a group of k */
  if (apart || is_pair(a, c.cols) || tiles < ENOUGH_ROUNDS * num_sms) c.blocks = 1;
  tiles = experts * ((lines + c.blocks * 128 - 1) / (c.blocks * 128));
  if (may_split) c.splits = splits_for(tiles, steps, num_sms);
  return c;
}

/* True where the second GEMM's blocks add choices up: they have a tile each at most. To count several costs them
 * more than a kernel does (7 us of 127 at 8 tokens of 128 experts; 1 token gains 2.2 of 29). */
static bool adds_choices(const tri_moe_experts_args *a, const cut &c, int num_sms) {
  int64_t outputs = CONSUMERS * 64 * c.blocks, slabs = (a->up.k + outputs - 1) / outputs;
  int64_t parts = (int64_t)a->x.rows * a->top_k * c.splits;
  return c.cols <= MOST_SPLIT && parts * slabs <= num_sms && parts <= MOST_PARTS && slabs <= TRI_CUDA_SLABS;
}

static cut up_cut(const tri_moe_experts_args *a, int num_sms) {
  return cut_for(a, 2 * a->down.k, a->up.k, false, num_sms);
}
static cut down_cut(const tri_moe_experts_args *a, int num_sms) {
  return cut_for(a, a->up.k, a->down.k, true, num_sms);
}

/* ---- workspace ---- */

static size_t aligned(size_t bytes) { return (bytes + 255) & ~(size_t)255; }

/* The parts of the workspace, each a multiple of 256 bytes. */
struct areas {
  size_t x, hidden, rounded, parts; /* bytes; rounded: of hidden rows */
};

static areas areas_of(const tri_moe_experts_args *a, int num_sms) {
  size_t rows = (size_t)a->x.rows * (size_t)a->top_k, h = (size_t)a->x.cols, f = (size_t)a->down.k;
  size_t splits = (size_t)down_cut(a, num_sms).splits, part = splits > 1 ? splits * sizeof(float) : 2;
  areas s = {0, aligned(rows * f * 2), 0, aligned(rows * h * part)};
  if (has_two_terms(a)) {
    s.x = tri_cuda_two_terms_bytes(a->x.rows, a->x.cols);
    s.rounded = tri_cuda_two_terms_bytes((int)rows, a->down.k);
  } else if (a->rounds_rows) {
    s.x = tri_cuda_rounded_bytes(a->x.rows, a->x.cols);
    s.rounded = tri_cuda_rounded_bytes((int)rows, a->down.k);
  } else if (a->x.dtype == TRI_F32) {
    s.x = aligned((size_t)a->x.rows * h * 2);
  }
  return s;
}

size_t tri_cuda_moe_grouped_workspace(const tri_moe_experts_args *a, int num_sms) {
  areas s = areas_of(a, num_sms);
  return s.x + s.hidden + s.rounded + s.parts;
}

/* ---- launches ---- */

[[maybe_unused]] static tri_dtype stored_as(const __half *) { return TRI_F16; }
static tri_dtype stored_as(const __nv_bfloat16 *) { return TRI_BF16; }
static tri_dtype stored_as(const int8_t *) { return TRI_I8; }
static tri_dtype stored_as(const e4m3 *) { return TRI_F8_E4M3; }

/* rows: of a tile. PAIRS: of gates and ups. */
template <typename F, int ROWS, bool PAIRS>
static bool map_weights(const grouped &g, const void *w, tri_tensor_map *map) {
  typedef typename F::weight W;
  uint64_t k = (uint64_t)g.k, n = (uint64_t)g.outputs, e = (uint64_t)g.num_experts, line = k * sizeof(W);
  tri_tiling pairs = {
      5, {k, 8, 2, n / 8, e}, {0, line, n * line, 8 * line, 2 * n * line}, {F::STEP, 8, 2, ROWS / 16, 1}};
  tri_tiling plain = {3, {k, n, e}, {0, line, n * line}, {F::STEP, ROWS, 1}};
  return tri_cuda_map_tensor(map, stored_as((const W *)NULL), w, PAIRS ? &pairs : &plain) == TRI_OK;
}

template <typename F, int BLOCKS, int COLS>
static cudaError_t launch_pair(cudaStream_t stream, const pair_of_mmas &p, const void *up, const void *down,
                               int num_sms) {
  typedef room<F, BLOCKS, COLS> R;
  constexpr size_t bytes = sizeof(R) + ALIGN;
  static_assert(sizeof(R) <= ROOM, "of a block");
  cudaError_t error = allow_shared<pair_kernel<F, BLOCKS, COLS>>(bytes);
  tri_tensor_map ups, downs;
  if (error != cudaSuccess) return error;
  if (!map_weights<F, R::ROWS, true>(p.up, up, &ups) || !map_weights<F, R::ROWS, false>(p.down, down, &downs))
    return cudaErrorInvalidValue;
  launch_overlapped(pair_kernel<F, BLOCKS, COLS>, dim3(num_sms), THREADS, bytes, stream, p, ups, downs);
  return cudaGetLastError();
}

template <typename F, int BLOCKS, int COLS, bool PAIRS>
static cudaError_t launch(cudaStream_t stream, const grouped &g, const void *w, int num_sms) {
  typedef room<F, BLOCKS, COLS> R;
  typedef typename F::input X;
  constexpr size_t bytes = sizeof(R) + ALIGN;
  static_assert(sizeof(R) <= ROOM, "of a block");
  cudaError_t error = allow_shared<grouped_kernel<F, BLOCKS, COLS, PAIRS, PAIRS>>(bytes);
  uint64_t k = (uint64_t)g.k;
  tri_tiling rows = {2, {k, (uint64_t)(F::TERMS * g.most_rows)}, {0, k * sizeof(X)}, {LINE / sizeof(X), R::BOX}};
  tri_tiling scales = {
      2, {(uint64_t)g.most_rows, (uint64_t)tri_int8_groups(g.k)}, {0, (uint64_t)g.ld_scale * 4}, {COLS + 4, 1}};
  maps_of_gemm maps = {};
  if (error != cudaSuccess) return error;
  if (!map_weights<F, R::ROWS, PAIRS>(g, w, &maps.weights) ||
      (!PAIRS && tri_cuda_map_tensor(&maps.inputs, stored_as((const X *)NULL), g.x, &rows) != TRI_OK) ||
      (!PAIRS && F::GROUPED && tri_cuda_map_tensor(&maps.scales, TRI_F32, g.x_scale, &scales) != TRI_OK))
    return cudaErrorInvalidValue;
  launch_overlapped(grouped_kernel<F, BLOCKS, COLS, PAIRS, PAIRS>, dim3(num_sms), THREADS, bytes, stream, g, maps);
  return cudaGetLastError();
}

template <typename F, bool PAIRS>
static cudaError_t launch_cut(cudaStream_t stream, const grouped &g, const void *w, const cut &c, int num_sms) {
  enum { MOST_BLOCKS = F::GROUPED || F::BLOCKED ? 1 : 2, WIDE = F::BLOCKED ? 1 : 2 };
  if constexpr (F::HAS_FEW) {
    if (c.cols == FEW && c.blocks == 1) return launch<F, 1, FEW, PAIRS>(stream, g, w, num_sms);
    if (c.cols == FEW) return launch<F, 2, FEW, PAIRS>(stream, g, w, num_sms);
  }
  if constexpr (F::EIGHT_BITS) {
    if (c.cols == 32 && c.blocks == 1) return launch<F, 1, 32, PAIRS>(stream, g, w, num_sms);
    if (c.cols == 32) return launch<F, WIDE, 32, PAIRS>(stream, g, w, num_sms);
    if (c.cols == 64) return launch<F, MOST_BLOCKS, 64, PAIRS>(stream, g, w, num_sms);
  }
  if constexpr (F::TERMS > 1) {
    return cudaErrorInvalidValue; /* never of so many columns */
  } else {
    return launch<F, MOST_BLOCKS, 128, PAIRS>(stream, g, w, num_sms);
  }
}

template <typename F>
static cudaError_t launch_pair_cut(cudaStream_t stream, const pair_of_mmas &p, const tri_moe_experts_args *a, int cols,
                                   int num_sms) {
  if constexpr (F::GROUPED) {
    return cudaErrorInvalidValue; /* never a pair */
  } else {
    if (cols == FEW) return launch_pair<F, 1, FEW>(stream, p, a->up.data, a->down.data, num_sms);
    if (cols == 32) return launch_pair<F, 1, 32>(stream, p, a->up.data, a->down.data, num_sms);
    constexpr int blocks = F::BLOCKED ? 1 : 2;
    return launch_pair<F, blocks, 64>(stream, p, a->up.data, a->down.data, num_sms);
  }
}

/* ---- both GEMMs ---- */

static grouped first_gemm(const tri_moe_experts_args *a) {
  grouped g = {};
  g.first = a->map.first;
  g.choice = a->map.choice;
  g.num_experts = a->num_experts;
  g.top_k = a->top_k;
  g.most_rows = a->x.rows * a->top_k;
  g.x = a->x.data;
  g.ld = a->x.ld;
  g.k = a->up.k;
  g.outputs = g.ld_out = a->down.k;
  set_form(g, a->up);
  g.bias = a->up_bias;
  set_glu(g, a->act, a->glu_limit);
  g.splits = 1;
  return g;
}

/* The second one takes what the first one gave. */
static void turn_to_second(const tri_moe_experts_args *a, const cut &c, grouped &g, void *out, unsigned *slabs,
                           int num_sms) {
  g.x = g.out;
  g.choice = NULL;
  g.k = g.ld = a->down.k;
  g.outputs = g.ld_out = a->up.k;
  set_form(g, a->down);
  g.bias = a->down_bias;
  g.splits = c.splits;
  g.out = out;
  g.queue++; /* the first GEMM's blocks may still take tiles */
  g.sums = {a->map.row, a->weights, a->out, a->accumulate, adds_choices(a, c, num_sms) ? slabs : NULL};
}

/* Adds choices up where the second GEMM has not. */
static cudaError_t add_choices_up(cudaStream_t stream, const tri_moe_experts_args *a, const grouped &g,
                                  tri_dtype type) {
  if (g.sums.done) return cudaSuccess;
  tri_cuda_moe_sum(stream, a, g.out, g.splits > 1 ? TRI_F32 : type, g.splits);
  return cudaGetLastError();
}

/* The type of hidden rows and of results. */
static tri_dtype narrow_type(const tri_moe_experts_args *a) {
  if (!is_8bit(a->up.dtype)) return a->up.dtype;
  return a->x.dtype == TRI_F16 ? TRI_F16 : TRI_BF16;
}

/* Makes x the rows of g, as integers or in their 16-bit type. */
static void take_rows(cudaStream_t stream, const tri_moe_experts_args *a, const tri_weight &w, const tri_mat &x,
                      void *to, grouped &g) {
  g.x = x.data;
  g.ld = x.ld;
  if (is_rounded(a)) {
    bool twice = has_two_terms(a);
    tri_cuda_rounded r = twice ? tri_cuda_two_terms(stream, x, &w, to) : tri_cuda_round(stream, x, &w, to);
    g.term_rows = x.rows;
    g.x = r.q;
    g.x_scale = r.scales;
    g.ld_scale = r.ld;
    g.ld = x.cols;
  } else if (x.dtype == TRI_F32) {
    tri_cuda_narrow(stream, &x, narrow_type(a), to);
    g.x = to;
    g.ld = x.cols;
  }
}

/* Hidden rows become integers between the GEMMs where activations are. */
template <typename F>
static cudaError_t run(cudaStream_t stream, const tri_moe_experts_args *a, char *workspace, unsigned *slabs,
                       int num_sms) {
  areas s = areas_of(a, num_sms);
  cut up = up_cut(a, num_sms), down = down_cut(a, num_sms);
  char *at = workspace + s.x;
  tri_mat hidden = {(float *)at, a->x.rows * a->top_k, a->down.k, a->down.k, narrow_type(a)};
  grouped g = first_gemm(a);
  take_rows(stream, a, a->up, a->x, workspace, g);
  g.out = at;
  g.queue = slabs + TRI_CUDA_SLABS;
  grouped second = g;
  turn_to_second(a, down, second, at + s.hidden + s.rounded, slabs, num_sms);
  cudaError_t e = cudaSuccess;
  if (is_pair(a, up.cols)) {
    e = launch_pair_cut<F>(stream, {g, second, slabs + TRI_CUDA_SLABS + TRI_CUDA_QUEUES}, a, up.cols, num_sms);
  } else {
    e = launch_cut<F, true>(stream, g, a->up.data, up, num_sms);
    if (e == cudaSuccess) take_rows(stream, a, a->down, hidden, at + s.hidden, second);
    if (e == cudaSuccess) e = launch_cut<F, false>(stream, second, a->down.data, down, num_sms);
  }
  return e == cudaSuccess ? add_choices_up(stream, a, second, narrow_type(a)) : e;
}

template <typename T>
static cudaError_t run_types(cudaStream_t stream, const tri_moe_experts_args *a, char *workspace, unsigned *slabs,
                             int num_sms) {
  bool fp8 = a->up.dtype == TRI_F8_E4M3, twice = has_two_terms(a);
  if (fp8 && twice) return run<factors<e4m3, e4m3, T, 2>>(stream, a, workspace, slabs, num_sms);
  if (twice) return run<factors<int8_t, int8_t, T, 2>>(stream, a, workspace, slabs, num_sms);
  if (fp8 && a->rounds_rows) return run<factors<e4m3, e4m3, T>>(stream, a, workspace, slabs, num_sms);
  if (fp8) return run<factors<e4m3, T, T>>(stream, a, workspace, slabs, num_sms);
  if (a->up.dtype != TRI_I8) return run<factors<T, T, T>>(stream, a, workspace, slabs, num_sms);
  if (a->rounds_rows) return run<factors<int8_t, int8_t, T>>(stream, a, workspace, slabs, num_sms);
  return run<factors<int8_t, T, T>>(stream, a, workspace, slabs, num_sms);
}

cudaError_t tri_cuda_moe_grouped(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace, unsigned *slabs,
                                 int num_sms) {
  char *at = (char *)workspace;
  if (!a->x.rows) return cudaSuccess;
  if (narrow_type(a) == TRI_BF16) return run_types<__nv_bfloat16>(stream, a, at, slabs, num_sms);
  if constexpr (HAS_BOTH_16) return run_types<__half>(stream, a, at, slabs, num_sms);
  return cudaErrorNotSupported;
}
