/* SPDX-License-Identifier: Apache-2.0 */
/* Both GEMMs of a gated MLP of few rows in one kernel, with weights of 16 bits on Hopper: tiles and sums are those of
 * experts (moe/grouped.cuh), of one expert that has all rows.
 *
 * What bounds it is reading the weights, so memory must never pause. Blocks stay on their multiprocessors and take
 * tiles from a queue, those of the first GEMM before those of the second, and fetch the weights of their next tile
 * while they multiply the last one; the first ones come before the previous kernel has made the rows. The second GEMM's
 * k is cut into parts, each as many units as some tiles of the first GEMM have. Tiles of the first part come first: by
 * then the hidden rows that they read have been stored, as a rule, and where they have not, the ring of stages has
 * weights to fetch until then.
 *
 * Each tile of the second GEMM leaves its sums in the workspace. When a block finds no tile it adds up, in the order of
 * the parts, a share of some outputs' sums, once all parts of these are there, and finishes them.
 *
 * Blocks wait for each other's tiles. A tile of the first GEMM waits for none, and all blocks run at the same time:
 * there is a multiprocessor for each, and no block of the next kernel begins before all of these have. Two such kernels
 * must not run at the same time. */
#include "kernels/cuda/moe/pair.cuh"

enum {
  MOST_ROWS = 64,   /* where it pays at all (`opcheck --bench --op gated_mlp` prints both ways) */
  FEW_ROWS = 2,     /* Kernels that stream weights through registers begin sooner, which decides for so many rows */
  FEW_MIB = 128,    /* with fewer MiB of weights for one row, and half as many for two (H200: 1B and 8B) */
  SMALL_MIB = 8,    /* what is over sooner than a kernel begins */
  WHOLE = 8,        /* elements in 16 bytes */
  AHEAD = 4,        /* steps before its end at which a tile's next one is taken from the queue */
  FEWEST_STEPS = 4, /* of a part of k */
  MOST_PARTS_OF_K = 16,
  MOST_BYTES_OF_PARTS = 16 << 20, /* the ledger (runtime/engine) counts on these three */
  THREADS_OF_SUMS = CONSUMERS * WARPGROUP
};

/* A launch. */
struct mlp_work {
  grouped up;           /* the first GEMM; blocks take tiles of both from its queue */
  tri_linear_args down; /* the second one's results */
  int up_tiles;
  int slabs, splits; /* the second GEMM's outputs in tiles, and the parts of its k */
  int helpers;       /* shares of a slab's sums */
  float4 *parts;     /* [slabs, splits, pieces of a tile, THREADS_OF_SUMS], as sums lie in registers */
  unsigned *told;    /* [splits] warpgroups that have stored hidden rows of that part of k, */
  unsigned *done;    /* [slabs] and that have left sums. 0 before and after the kernel, as the queue */
};

/* Sums of a thread in fours, of a tile. */
template <int COLS> struct pieces {
  enum { ALL = COLS / 8 };
};

/* ---- tiles ---- */

/* Returns the first tile of the first GEMM whose units a part of k has; and the part of a tile. */
__device__ static inline int first_of_part(const mlp_work &m, int split) { return m.up_tiles * split / m.splits; }
__device__ static inline int part_of_tile(const mlp_work &m, int number) {
  return ((number + 1) * m.splits - 1) / m.up_tiles;
}

template <typename F, typename R> __device__ static inline tile tile_of_mlp(const mlp_work &m, int number) {
  enum { STEPS_OF_TILE = R::ROWS / 2 / F::STEP }; /* its units as the second GEMM's k */
  static_assert(R::ROWS / 2 % F::STEP == 0, "parts of k are whole steps");
  tile t = {};
  t.rows = m.up.most_rows;
  if (number < m.up_tiles) {
    t.output = number * (R::ROWS / 2);
    t.steps = (m.up.k + F::STEP - 1) / F::STEP;
    return t;
  }
  int steps = (m.up.outputs + F::STEP - 1) / F::STEP;
  t.second = true;
  t.split = (number - m.up_tiles) / m.slabs;
  t.output = (number - m.up_tiles) % m.slabs * R::ROWS;
  t.step = first_of_part(m, t.split) * STEPS_OF_TILE;
  t.steps = min(first_of_part(m, t.split + 1) * STEPS_OF_TILE, steps) - t.step;
  t.k = t.step * F::STEP;
  return t;
}

/* ---- fetching, by one thread ---- */

struct maps_of_mlp {
  maps_of_gemm up, down;
};

template <typename F, int COLS>
__device__ static inline void begin_mlp_step(const maps_of_mlp &maps, room<F, 1, COLS> &s, int stage, const tile &t,
                                             int i) {
  if (t.second)
    begin_step<F, 1, COLS, false, false>(&maps.down.weights, s, stage, t, i);
  else
    begin_step<F, 1, COLS, true, false>(&maps.up.weights, s, stage, t, i);
}

/* Waits for the hidden rows of a tile's part of k. Meanwhile it begins weights, as far as the ring has room; of `begun`
 * steps they are on their way before. Returns of how many they are then. */
template <typename F, int COLS>
__device__ static inline int begin_until_stored(const mlp_work &m, const maps_of_mlp &maps, room<F, 1, COLS> &s,
                                                ring_place<room<F, 1, COLS>::STAGES> to, const tile &t, int begun) {
  typedef room<F, 1, COLS> R;
  const unsigned *told = m.told + t.split;
  int tellers = (first_of_part(m, t.split + 1) - first_of_part(m, t.split)) * CONSUMERS;
  bool there = false; /* the first answer comes while a step's weights do */
  for (int i = 0; i < begun; i++) to.next();
  for (; !there && begun < t.steps && begun < R::STAGES; begun++, to.next()) {
    barrier_wait(&s.empty[to.stage], to.parity ^ 1);
    begin_mlp_step<F, COLS>(maps, s, to.stage, t, begun);
    there = have_told(told, tellers);
  }
  while (!there) there = have_told(told, tellers);
  show_memory_to_engines();
  return begun;
}

/* Each block that has had a tile takes one that is not there; the last to do so clears the counters, as all waits for
 * hidden rows are over. before: takes. */
__device__ static inline void clear_if_last(const mlp_work &m, int tiles, unsigned before) {
  if ((int)before != tiles - 1) return;
  *(volatile unsigned *)m.up.queue = 0;
  for (int i = 0; i < m.splits; i++) m.told[i] = 0;
}

template <typename F, int COLS>
__device__ static void fetch_mlp(const mlp_work &m, const maps_of_mlp &maps, room<F, 1, COLS> &s) {
  typedef room<F, 1, COLS> R;
  int tiles = m.up_tiles + m.slabs * m.splits;
  ring_place<R::STAGES> at;
  for (int number = blockIdx.x; number < tiles;) {
    tile t = tile_of_mlp<F, R>(m, number);
    unsigned before = 0;
    int begun = 0, takes_at = max(t.steps - AHEAD, 0);
    if (number == blockIdx.x) { /* weights, while the previous kernel makes the rows */
      for (; begun < t.steps && begun < R::STAGES; begun++) begin_mlp_step<F, COLS>(maps, s, begun, t, begun);
      wait_for_previous();
    }
    if (t.second) begun = begin_until_stored<F, COLS>(m, maps, s, at, t, begun);
    const maps_of_gemm &of_rows = t.second ? maps.down : maps.up;
    for (int i = 0; i < t.steps; i++, at.next()) {
      if (i == takes_at) before = atomicAdd(m.up.queue, 1);
      barrier_wait(&s.empty[at.stage], at.parity ^ 1);
      if (i >= begun) begin_mlp_step<F, COLS>(maps, s, at.stage, t, i);
      fetch_rows<F, 1, COLS>(m.up, of_rows, s, at.stage, t, t.k + i * F::STEP);
    }
    clear_if_last(m, tiles, before);
    number = (int)(gridDim.x + before);
  }
  barrier_wait(&s.empty[at.stage], at.parity ^ 1);
  s.begun[at.stage] = {};
  barrier_arrive(&s.full[at.stage]);
}

/* ---- multiplying ---- */

/* A slab's counter counts warpgroups that have left sums, and then those who have seen all of these, one for each
 * share: the last one's count wraps to zero. */
__device__ static inline unsigned most_counted(const mlp_work &m) {
  return (unsigned)(m.splits * CONSUMERS + m.helpers - 1);
}
__device__ static inline void count_left(const mlp_work &m, int slab) {
  asm volatile("red.release.gpu.global.inc.u32 [%0], %1;" ::"l"(m.done + slab), "r"(most_counted(m)) : "memory");
}
__device__ static inline void count_seen(const mlp_work &m, int slab) {
  asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(m.done + slab), "r"(most_counted(m)) : "memory");
}

/* Leaves a tile's sums for those who add them up. */
template <int COLS>
__device__ static inline void leave_part(const mlp_work &m, const tile &t, int slab, const float (&d)[COLS / 2]) {
  typedef pieces<COLS> P;
  float4 *to = m.parts + (size_t)(slab * m.splits + t.split) * P::ALL * THREADS_OF_SUMS + (threadIdx.x - WARPGROUP);
#pragma unroll
  for (int j = 0; j < P::ALL; j++)
    if (8 * j < t.rows) to[j * THREADS_OF_SUMS] = make_float4(d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]);
  named_sync(threadIdx.x / WARPGROUP, WARPGROUP); /* makes all stores the first thread's to publish */
  if (threadIdx.x % WARPGROUP == 0) count_left(m, slab);
}

/* Does tiles until there is none left. */
template <typename F, int COLS> __device__ static inline void do_tiles(const mlp_work &m, room<F, 1, COLS> &s) {
  typedef room<F, 1, COLS> R;
  ring_place<R::STAGES> at;
  for (;;) {
    barrier_wait(&s.full[at.stage], at.parity);
    tile t = s.begun[at.stage];
    if (!t.steps) return;
    float d[1][COLS / 2] = {};
    multiply<F, 1, COLS, COLS, false, true>(t, {}, s, at, d);
    if (t.second) {
      leave_part<COLS>(m, t, t.output / R::ROWS, d[0]);
    } else {
      store_tile<F, 1, COLS, COLS, true>(m.up, t, s, d);
      tell_stored(m.told + part_of_tile(m, t.output / (R::ROWS / 2)));
    }
  }
}

/* ---- adding up ---- */

/* Waits until all parts of a slab are there. By the consumers. */
__device__ static inline void await_parts(const mlp_work &m, int slab) {
  if (threadIdx.x == WARPGROUP) {
    while (!have_told(m.done + slab, m.splits * CONSUMERS)) {
    }
    count_seen(m, slab);
  }
  named_sync(MEETING, THREADS_OF_SUMS);
}

/* The place of a thread's value number i of four, among a slab's results. */
struct result_place {
  int row, col;
  __device__ result_place(int row0, int col0, int i) : row(row0 + i % 2), col(col0 + i / 2 * 8) {}
  __device__ bool is_in(const tri_mat &out) const { return row < out.rows && col < out.cols; }
};

/* Adds the parts of some sums up and stores results; where `there` is false it goes the same way without memory. from:
 * the thread's first part; each is `stride` after the one before. */
__device__ static inline void add_piece(const mlp_work &m, const float4 *from, size_t stride, int row0, int col0,
                                        bool there) {
  enum { AT_ONCE = 8 };
  const tri_linear_args &a = m.down;
  float y[4] = {0, 0, 0, 0}, sum[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    result_place p(row0, col0, i);
    bool is_in = there && p.is_in(a.out);
    if (is_in && a.bias) y[i] = a.bias[p.col];
    if (is_in && a.accumulate) y[i] += load_at(a.out, p.row, (size_t)p.col);
  }
#pragma unroll 1
  for (int split = 0; split < m.splits; split += AT_ONCE) {
    float4 part[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
      part[i] = there && split + i < m.splits ? __ldcg(from + (size_t)(split + i) * stride) : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      sum[0] += part[i].x;
      sum[1] += part[i].y;
      sum[2] += part[i].z;
      sum[3] += part[i].w;
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {
    result_place p(row0, col0, i);
    if (there && p.is_in(a.out)) store_at(a.out, p.row, (size_t)p.col, sum[i] + y[i]);
  }
}

/* Adds up share number `share` of all slabs' shares. By the consumers. Of one beyond the last nothing is read or
 * stored: it brings the instructions, which are needed once, at the end. */
template <int COLS> __device__ static inline void add_share(const mlp_work &m, int share) {
  typedef pieces<COLS> P;
  int slab = share / m.helpers, lane = threadIdx.x % WARP, warp = (int)threadIdx.x % WARPGROUP / WARP;
  int group = (int)threadIdx.x / WARPGROUP - 1;
  bool there = slab < m.slabs;
  size_t stride = (size_t)P::ALL * THREADS_OF_SUMS;
  const float4 *from = m.parts + (size_t)slab * m.splits * stride + (threadIdx.x - WARPGROUP);
  if (there) await_parts(m, slab);
#pragma unroll 1
  for (int i = share % m.helpers; i < P::ALL; i += m.helpers) {
    int row = i * 8, col = (slab * CONSUMERS + group) * 64 + warp * 16 + lane / 4;
    add_piece(m, from + (size_t)i * THREADS_OF_SUMS, stride, row + lane % 4 * 2, col, there && row < m.up.most_rows);
  }
}

/* Computes down.out = finished glu(x up^T) down^T for at most COLS rows. As many blocks as multiprocessors, 384
 * threads. */
template <typename F, int COLS>
__global__ static void __launch_bounds__(THREADS, 1)
    gated_mlp_kernel(const __grid_constant__ mlp_work m, const __grid_constant__ maps_of_mlp maps) {
  typedef room<F, 1, COLS> R;
  extern __shared__ char shared[];
  R &s = *(R *)(((uintptr_t)shared + ALIGN - 1) / ALIGN * ALIGN);
  if (!HAS_HOPPER) return;
  let_next_begin();
  if (threadIdx.x == 0) {
    prefetch_map(&maps.up.weights);
    prefetch_map(&maps.up.inputs);
    prefetch_map(&maps.down.weights);
    prefetch_map(&maps.down.inputs);
    for (int i = 0; i < R::STAGES; i++) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], CONSUMERS * WARPGROUP / WARP);
    }
    barriers_are_made();
  }
  __syncthreads();
  if (threadIdx.x < WARPGROUP) {
    give_registers<40>();
    if (threadIdx.x == 0) fetch_mlp<F, COLS>(m, maps, s);
    return;
  }
  take_registers<232>();
  int shares = m.slabs * m.helpers;
#pragma unroll 1
  for (int turn = -1;; turn++) {
    int share = turn < 0 ? shares : (int)blockIdx.x + turn * (int)gridDim.x;
    if (turn == 0) {
      wait_for_previous();
      do_tiles<F, COLS>(m, s);
    }
    if (turn >= 0 && share >= shares) return;
    add_share<COLS>(m, share);
  }
}

/* ---- shapes ---- */

/* Tiles of 128 rows of weights and cols rows of x; splits: parts of the second GEMM's k. */
struct mlp_cut {
  int cols, splits;
};

static int up_tiles_of(const tri_gated_mlp_args *a) { return (a->down.w.k + 63) / 64; }
static int slabs_of(const tri_gated_mlp_args *a) { return (a->down.w.n + 127) / 128; }

/* Returns the steps of k that a block passes through until all is done, where each takes its tiles from the queue. */
static int steps_until_done(int up_tiles, int up_steps, int down_tiles, int down_steps, int num_sms) {
  int rounds = up_tiles / num_sms, late = up_tiles % num_sms; /* so many blocks have one tile more */
  int early_from = (rounds ? rounds : 1) * up_steps, late_from = late ? (rounds + 1) * up_steps : early_from;
  int low = late_from, high = late_from + (down_tiles / num_sms + 1) * down_steps;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    int64_t early_done = (middle - early_from) / down_steps, late_done = (middle - late_from) / down_steps;
    if (early_done * (num_sms - late) + late_done * late >= down_tiles)
      high = (int)middle;
    else
      low = (int)middle + 1;
  }
  return low;
}

/* Sums of the second GEMM, of one part of k. */
static size_t bytes_of_part(const tri_gated_mlp_args *a, const mlp_cut &c) {
  return (size_t)slabs_of(a) * (size_t)(128 * c.cols) * sizeof(float);
}

static int min_of(int x, int y) { return x < y ? x : y; }

/* Parts of k: those with which blocks end soonest. Each part's sums are written and read once more, which takes as long
 * as some steps. */
static int splits_for(const tri_gated_mlp_args *a, const mlp_cut &c, int num_sms) {
  int up_tiles = up_tiles_of(a), slabs = slabs_of(a), steps = (a->down.w.k + 63) / 64, best = 1;
  int up_steps = (a->gated.up.w.k + 63) / 64 + 1; /* and what a tile's end takes */
  int most = min_of(MOST_PARTS_OF_K, min_of(up_tiles, steps / FEWEST_STEPS));
  double sums = 8.0 * a->down.x.rows * a->down.w.n / (num_sms * (128.0 * LINE)), least = 0;
  most = min_of(most, (int)(MOST_BYTES_OF_PARTS / bytes_of_part(a, c)));
  for (int s = 1; s == 1 || s <= most; s++) {
    double t = steps_until_done(up_tiles, up_steps, slabs * s, (steps + s - 1) / s + 1, num_sms) + s * sums;
    if (s > 1 && t >= least) continue;
    least = t;
    best = s;
  }
  return best;
}

static mlp_cut cut_of(const tri_gated_mlp_args *a, int num_sms) {
  int rows = a->down.x.rows;
  mlp_cut c = {64, 1};
  if (rows <= 32) c.cols = rows <= 8 ? 8 : 32;
  c.splits = splits_for(a, c, num_sms);
  return c;
}

/* Two kernels are faster where blocks without a tile of the first GEMM would wait for the second one's hidden rows. */
bool tri_cuda_gated_mlp_pays(const tri_gated_mlp_args *a, int num_sms) {
  int64_t rows = a->down.x.rows, bytes = (int64_t)3 * a->down.w.k * a->gated.up.w.k * 2;
  bool few = rows <= FEW_ROWS && bytes * rows < (int64_t)FEW_MIB << 20;
  return !few && (up_tiles_of(a) * 16 >= num_sms * 15 || bytes < (int64_t)SMALL_MIB << 20);
}

bool tri_cuda_gated_mlp_fits(const tri_gated_mlp_args *a) {
  const tri_linear_args *up = &a->gated.up, *down = &a->down;
  const tri_mat *hidden = &a->gated.glu.out;
  tri_dtype t = up->w.dtype;
  int rows = up->x.rows;
  uintptr_t places = (uintptr_t)up->x.data | (uintptr_t)up->w.data | (uintptr_t)hidden->data | (uintptr_t)down->w.data;
  bool types = (t == TRI_F16 || t == TRI_BF16) && up->x.dtype == t && hidden->dtype == t && down->w.dtype == t;
  bool whole = up->w.k % WHOLE == 0 && up->w.k && hidden->cols % WHOLE == 0 && hidden->cols && down->w.n &&
               up->x.ld % WHOLE == 0 && hidden->ld % WHOLE == 0 && places % 16 == 0;
  return types && whole && rows > 0 && rows <= MOST_ROWS && is_glu(a->gated.glu.act) && down->act == TRI_ACT_NONE &&
         slabs_of(a) <= TRI_CUDA_SLABS;
}

size_t tri_cuda_gated_mlp_workspace(const tri_gated_mlp_args *a, int num_sms) {
  mlp_cut c = cut_of(a, num_sms);
  return (size_t)c.splits * bytes_of_part(a, c);
}

/* ---- launches ---- */

static tri_dtype stored_as(const __nv_bfloat16 *) { return TRI_BF16; }
static tri_dtype stored_as(const __half *) { return TRI_F16; }

/* Describes both GEMMs' factors. */
template <typename F, typename R> static bool map_mlp(const tri_gated_mlp_args *a, maps_of_mlp *maps) {
  typedef typename F::weight W;
  typedef typename F::input X;
  const tri_mat *x = &a->gated.up.x, *hidden = &a->gated.glu.out;
  uint64_t k = (uint64_t)x->cols, units = (uint64_t)hidden->cols, n = (uint64_t)a->down.w.n, rows = (uint64_t)x->rows;
  uint64_t line = k * sizeof(W), hidden_line = units * sizeof(W);
  tri_tiling pairs = {5,
                      {k, 8, 2, units / 8, 1},
                      {0, line, units * line, 8 * line, 2 * units * line},
                      {F::STEP, 8, 2, R::ROWS / 16, 1}};
  tri_tiling plain = {3, {units, n, 1}, {0, hidden_line, n * hidden_line}, {F::STEP, R::ROWS, 1}};
  tri_tiling of_x = {2, {k, rows}, {0, (uint64_t)x->ld * sizeof(X)}, {F::STEP, R::BOX}};
  tri_tiling of_hidden = {2, {units, rows}, {0, (uint64_t)hidden->ld * sizeof(X)}, {F::STEP, R::BOX}};
  tri_dtype w = stored_as((const W *)NULL), t = stored_as((const X *)NULL);
  return tri_cuda_map_tensor(&maps->up.weights, w, a->gated.up.w.data, &pairs) == TRI_OK &&
         tri_cuda_map_tensor(&maps->up.inputs, t, x->data, &of_x) == TRI_OK &&
         tri_cuda_map_tensor(&maps->down.weights, w, a->down.w.data, &plain) == TRI_OK &&
         tri_cuda_map_tensor(&maps->down.inputs, t, hidden->data, &of_hidden) == TRI_OK;
}

static grouped first_gemm(const tri_gated_mlp_args *a, unsigned *queue) {
  const tri_linear_args *up = &a->gated.up;
  grouped g = {};
  g.num_experts = 1;
  g.k = up->w.k;
  g.outputs = a->gated.glu.out.cols;
  g.bias = up->bias;
  set_glu(g, a->gated.glu.act, a->gated.glu.limit);
  g.splits = 1;
  g.most_rows = up->x.rows;
  g.out = a->gated.glu.out.data;
  g.ld_out = a->gated.glu.out.ld;
  g.queue = queue;
  return g;
}

template <typename F, int COLS>
static cudaError_t launch(cudaStream_t stream, const tri_gated_mlp_args *a, mlp_work &m, int num_sms) {
  typedef room<F, 1, COLS> R;
  constexpr size_t bytes = sizeof(R) + ALIGN;
  static_assert(sizeof(R) <= ROOM, "of a block");
  int pieces_of_tile = pieces<COLS>::ALL, each = num_sms / m.slabs;
  maps_of_mlp maps = {};
  m.helpers = each < pieces_of_tile ? each : pieces_of_tile;
  if (!m.helpers) m.helpers = 1;
  cudaError_t e = allow_shared<gated_mlp_kernel<F, COLS>>(bytes);
  if (e != cudaSuccess) return e;
  if (!map_mlp<F, R>(a, &maps)) return cudaErrorInvalidValue;
  launch_overlapped(gated_mlp_kernel<F, COLS>, dim3(num_sms), THREADS, bytes, stream, m, maps);
  return cudaGetLastError();
}

template <typename T>
static cudaError_t launch_cut(cudaStream_t stream, const tri_gated_mlp_args *a, mlp_work &m, const mlp_cut &c,
                              int num_sms) {
  typedef factors<T, T, T> F;
  if (c.cols == 8) return launch<F, 8>(stream, a, m, num_sms);
  if (c.cols == 32) return launch<F, 32>(stream, a, m, num_sms);
  return launch<F, 64>(stream, a, m, num_sms);
}

cudaError_t tri_cuda_gated_mlp(cudaStream_t stream, const tri_gated_mlp_args *a, void *workspace, unsigned *slabs,
                               int num_sms) {
  mlp_cut c = cut_of(a, num_sms);
  unsigned *queue = slabs + TRI_CUDA_SLABS;
  mlp_work m = {};
  m.up = first_gemm(a, queue);
  m.down = a->down;
  m.up_tiles = up_tiles_of(a);
  m.slabs = slabs_of(a);
  m.splits = c.splits;
  m.parts = (float4 *)workspace;
  m.told = queue + TRI_CUDA_QUEUES;
  m.done = slabs;
  if (a->gated.up.w.dtype == TRI_F16) return launch_cut<__half>(stream, a, m, c, num_sms);
  return launch_cut<__nv_bfloat16>(stream, a, m, c, num_sms);
}
