/* SPDX-License-Identifier: Apache-2.0 */
/* Rows on their way to the ranks that have their experts; see exchange/all2all.h. */
#include "kernels/cuda/exchange/all2all.cuh"
#include "kernels/cuda/exchange/e4m3_rows.cuh"
#include "kernels/cuda/moe/route.cuh"

enum { BLOCK_THREADS = 256 };

/* Stands for no slot on the way, as -1 would be the empty word; to the receivers' tables it comes as -1. */
static constexpr uint32_t NOBODY = OTHER_NAN;

/* ---- rows in the caller's memory, whose addresses and lengths need not be multiples of a vector ---- */

struct row_shape {
  int bytes, vectors;
  bool whole; /* rows are whole vectors, and begin at one */
};

/* Rows of 16-bit elements may begin and end within a vector: then they are read two bytes at a time, and zeros follow
 * them. */
__device__ static inline uint4 vector_of(const char *row, const row_shape &s, int i) {
  if (s.whole) return ((const uint4 *)row)[i];
  uint32_t words[4] = {};
  for (int k = 0; k < 8; k++) {
    int at = 16 * i + 2 * k;
    if (at < s.bytes) words[k / 2] |= (uint32_t) * (const uint16_t *)(row + at) << 16 * (k % 2);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ static inline void store_vector(char *row, const row_shape &s, int i, uint4 v) {
  if (s.whole) {
    ((uint4 *)row)[i] = v;
    return;
  }
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
  for (int k = 0; k < 8; k++) {
    int at = 16 * i + 2 * k;
    if (at < s.bytes) *(uint16_t *)(row + at) = (uint16_t)(words[k / 2] >> 16 * (k % 2));
  }
}

/* How many of AHEAD vectors, `step` apart, lie before `end`. */
__device__ static inline int count_ahead(int at, int end, int step) {
  int left = end - at;
  return left <= 0 ? 0 : min((left + step - 1) / step, (int)AHEAD);
}

/* ---- dispatch ---- */

/* A dispatch as its kernels see it. Rows are cut into `parts` of `length` vectors. x [rows[rank], hidden]: the own
 * rows; experts and weights [rows[rank], top_k]: their choices, which routing makes where it is part of the dispatch;
 * all: where this rank gets the rows, slots and weights of all ranks, stride rows for each; sent: the vectors of a row
 * that are cut, its codes where it travels rounded. */
struct dispatch_args {
  const char *x;
  const int32_t *experts;
  const float *weights;
  tri_all2all_rows all;
  row_shape row;
  int rows[TRI_ROWS_RANKS], stride, parts, length, sent;
};

__device__ static inline size_t number_of(const dispatch_args &a, int rank, int row) {
  return (size_t)rank * (size_t)a.stride + (size_t)row;
}

__device__ static inline char *row_in_all(const dispatch_args &a, int rank, int row) {
  return (char *)a.all.x + number_of(a, rank, row) * (size_t)a.row.bytes;
}

__device__ static inline void store_choice(const tri_cuda_all2all &e, const dispatch_args &a, int rank, int row, int c,
                                           int32_t slot, float weight) {
  size_t at = number_of(a, rank, row) * (size_t)e.cfg.top_k + (size_t)c;
  if (c >= e.cfg.top_k) return;
  a.all.experts[at] = slot;
  a.all.weights[at] = weight;
}

/* A row's choices where all threads that send it see them; is_there: this rank has the row. */
struct choices {
  const int32_t *slots;
  const float *weights;
  bool is_there;
};

__device__ static inline int32_t slot_of(choices from, int c) { return from.is_there ? from.slots[c] : -1; }

__device__ static inline uint2 choice_to_send(const tri_cuda_all2all &e, choices from, int c) {
  if (c >= e.cfg.top_k || slot_of(from, c) < 0) return make_uint2(NOBODY, 0);
  return make_uint2((uint32_t)from.slots[c], sendable(__float_as_uint(from.weights[c])));
}

/* Puts a row's table where this rank has those of all rows, and sends it to the others where it is one of a round. By a
 * block or a warp: `thread` is one of THREADS. */
template <int THREADS>
__device__ static inline void push_table(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int row,
                                         bool is_sent, int thread, choices from) {
  for (int c = thread; c < e.cfg.top_k; c += THREADS)
    store_choice(e, a, e.rank, row, c, slot_of(from, c), from.is_there ? from.weights[c] : 0);
  for (int i = thread; is_sent && i < (e.cfg.ranks - 1) * e.table_vectors; i += THREADS) {
    int to = (e.rank + 1 + i / e.table_vectors) % e.cfg.ranks, k = i % e.table_vectors;
    uint2 low = choice_to_send(e, from, 2 * k), high = choice_to_send(e, from, 2 * k + 1);
    put(table_box(e, to, round, e.rank, row) + k, make_uint4(low.x, low.y, high.x, high.y));
  }
}

/* The vectors of a thread are STEP apart. */
template <int STEP>
__device__ static inline void load_vectors(const dispatch_args &a, const char *x, int at, int count,
                                           uint4 (&v)[AHEAD]) {
#pragma unroll
  for (int j = 0; j < AHEAD; j++)
    if (j < count) v[j] = vector_of(x, a.row, at + j * STEP);
}

/* Sends a thread's vectors from `at` on to the ranks of a set, the own one last. */
template <int STEP>
__device__ static inline void push_vectors(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int row,
                                           unsigned ranks, int at, int count, const uint4 (&v)[AHEAD]) {
  for (int d = 1; d < e.cfg.ranks; d++) {
    int to = (e.rank + d) % e.cfg.ranks;
    if (!(ranks >> to & 1)) continue;
    uint4 *box = row_box(e, to, round, e.rank, row) + at;
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
      if (j < count) put(box + j * STEP, sendable(v[j]));
  }
  if (!(ranks >> e.rank & 1)) return;
#pragma unroll
  for (int j = 0; j < AHEAD; j++)
    if (j < count) store_vector(row_in_all(a, e.rank, row), a.row, at + j * STEP, v[j]);
}

/* Stores vector i of the table of a row of another rank; v: what came of it. Returns whether this rank has one of its
 * slots. */
__device__ static inline bool store_table(const tri_cuda_all2all &e, const dispatch_args &a, int source, int row, int i,
                                          bool came, uint4 v) {
  int32_t low = came && v.x != NOBODY ? (int32_t)v.x : -1, high = came && v.z != NOBODY ? (int32_t)v.z : -1;
  store_choice(e, a, source, row, 2 * i, low, __uint_as_float(v.y));
  store_choice(e, a, source, row, 2 * i + 1, high, __uint_as_float(v.w));
  return has_slot(e, e.rank, low) | has_slot(e, e.rank, high);
}

/* Takes the row to its place among all rows, by THREADS threads. A wait that fails leaves the place as it is: the step
 * is lost, and the error says so. */
template <int THREADS, bool KEEPS>
__device__ static inline void await_row(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int source,
                                        int row, int thread, patience p) {
  uint4 *box = row_box(e, e.rank, round, source, row);
  for (int at = thread, count; (count = count_ahead(at, a.row.vectors, THREADS)) > 0; at += AHEAD * THREADS) {
    uint4 v[AHEAD];
    if (!receive<KEEPS>(e, box + at, THREADS, count, v, &p)) return;
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
      if (j < count) store_vector(row_in_all(a, source, row), a.row, at + j * THREADS, v[j]);
  }
}

/* ---- few rows: a block for each part that is sent, and for each row that comes ---- */

__device__ static inline void take_choices(const tri_cuda_all2all &e, const dispatch_args &a, int row, bool is_there,
                                           int32_t *slots, float *weights) {
  size_t first = (size_t)row * (size_t)e.cfg.top_k;
  for (int c = threadIdx.x; c < e.cfg.top_k; c += WARP) {
    slots[c] = is_there ? a.experts[first + c] : -1;
    weights[c] = is_there ? a.weights[first + c] : 0;
  }
}

/* Sends a part of a row with block number `block` of stride * parts, once a warp has the row's choices; with ROUTES it
 * makes them. Rows that this rank does not have but others do come to its tables without an expert. Shared memory: the
 * choices, then what routing needs. */
template <bool ROUTES>
__device__ static inline void push_part(const tri_cuda_all2all &e, const dispatch_args &a,
                                        const tri_moe_route_args &route, uint32_t round, int block) {
  extern __shared__ double shared[];
  int32_t *slots = (int32_t *)shared;
  float *weights = (float *)shared + e.cfg.top_k;
  const int row = block / a.parts, part = block % a.parts;
  const bool is_there = row < a.rows[e.rank];
  const char *x = a.x + (size_t)row * (size_t)a.row.bytes;
  const int end = is_there ? min((part + 1) * a.length, a.row.vectors) : 0;
  int at = part * a.length + threadIdx.x, count = count_ahead(at, end, BLOCK_THREADS);
  uint4 v[AHEAD];
  load_vectors<BLOCK_THREADS>(a, x, at, count, v); /* while the choices are made */
  if (threadIdx.x < WARP && ROUTES && is_there)
    route_token(route, row, shared + e.cfg.top_k, slots, weights);
  else if (threadIdx.x < WARP)
    take_choices(e, a, row, is_there, slots, weights);
  __syncthreads();
  const unsigned ranks = ranks_with(e, slots);
  if (!part) push_table<BLOCK_THREADS>(e, a, round, row, is_there || !row, threadIdx.x, choices{slots, weights, true});
  while (count) {
    push_vectors<BLOCK_THREADS>(e, a, round, row, ranks, at, count, v);
    at += AHEAD * BLOCK_THREADS;
    count = count_ahead(at, end, BLOCK_THREADS);
    load_vectors<BLOCK_THREADS>(a, x, at, count, v);
  }
}

/* A row's table, by a warp. Returns whether this rank has one of its slots. */
__device__ static inline bool await_table(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int source,
                                          int row) {
  const bool comes = row < max(a.rows[source], 1);
  uint4 *box = table_box(e, e.rank, round, source, row);
  bool has_own = false;
  patience p = {};
  for (int i = threadIdx.x; i < e.table_vectors; i += WARP) {
    uint4 v[AHEAD] = {};
    bool came = comes && receive<false>(e, box + i, 0, 1, v, &p);
    has_own |= store_table(e, a, source, row, i, came, v[0]);
  }
  return __any_sync(ALL_LANES, has_own);
}

/* Brings a row of another rank to its place with block number `block` of stride * (ranks - 1): its table, and it where
 * it is wanted here. */
__device__ static inline void await_block(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round,
                                          int block) {
  __shared__ bool is_wanted;
  const int peers = e.cfg.ranks - 1, row = block / peers, source = (e.rank + 1 + block % peers) % e.cfg.ranks;
  if (threadIdx.x < WARP) {
    bool has_own = await_table(e, a, round, source, row);
    if (!threadIdx.x) is_wanted = has_own;
  }
  __syncthreads();
  if (is_wanted) await_row<BLOCK_THREADS, false>(e, a, round, source, row, threadIdx.x, patience{});
}

/* Sends with `pushes` blocks and receives with those after them: in one kernel where the device has room for all of
 * them at once, so that no end of a kernel lies between the two, else in one of each kind. Blocks begin in their order,
 * and those that send wait for none. A round's number is that of the combines: they have all ended when its rows are
 * sent. Grid up to stride * (parts + ranks - 1), 256 threads. */
template <bool ROUTES>
__global__ __launch_bounds__(BLOCK_THREADS) static void dispatch_kernel(
    const __grid_constant__ tri_cuda_all2all e, const __grid_constant__ dispatch_args a,
    const __grid_constant__ tri_moe_route_args route, int pushes) {
  const int block = blockIdx.x;
  let_next_begin();
  wait_for_previous();
  if (e.rounds->over) return;
  const uint32_t round = e.rounds->combined;
  if (block < pushes) {
    push_part<ROUTES>(e, a, route, round, block);
    return;
  }
  if (block == pushes && !threadIdx.x) e.rounds->dispatched = round + 1;
  await_block(e, a, round, block - pushes);
}

/* ---- rounded rows: two vectors of bf16 become one of codes ---- */

/* The elements of a lane's codes from `at` on, WARP apart; zeros after the row's end. */
__device__ static inline void load_sixteens(const char *x, int at, int count, sixteen (&v)[AHEAD]) {
#pragma unroll
  for (int j = 0; j < AHEAD; j++) {
    const uint4 *from = (const uint4 *)x + 2 * (at + j * WARP);
    v[j] = {};
    if (j < count) v[j] = {from[0], from[1]};
  }
}

/* Sends a warp's part of a row, from vector `first` of its codes on, to the ranks of a set: codes, WARP vectors after
 * WARP, and of each of those one vector of four scales. A row that this rank has an expert of stays as it is. Lane n
 * has a scale of the vectors number n % GROUP_LANES. That of a group after the row's end is 0, and is sent too where
 * its vector is. */
__device__ static inline void push_rounded(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int row,
                                           unsigned ranks, int first, int count, const sixteen (&v)[AHEAD]) {
  const int lane = threadIdx.x % WARP, group = lane / GROUP_LANES, turn = lane % GROUP_LANES;
  const bool has_scale = turn < AHEAD && first + turn * WARP < a.sent, has_own = ranks >> e.rank & 1;
  const unsigned others = ranks & ~(1u << e.rank);
  float scale = 0;
#pragma unroll
  for (int j = 0; j < AHEAD; j++) {
    const int at = first + lane + j * WARP;
    rounded_sixteen r = round_sixteen(v[j]);
    if (turn == j) scale = r.scale;
    for (int d = 1; d < e.cfg.ranks; d++) {
      int to = (e.rank + d) % e.cfg.ranks;
      if (others >> to & 1 && j < count) put(row_box(e, to, round, e.rank, row) + at, sendable(r.codes));
    }
    if (has_own) store_sixteen((uint4 *)row_in_all(a, e.rank, row) + 2 * at, v[j], j < count);
  }
  for (int d = 1; d < e.cfg.ranks; d++) {
    int to = (e.rank + d) % e.cfg.ranks;
    uint32_t *scales = (uint32_t *)(row_box(e, to, round, e.rank, row) + a.sent + first / WARP + turn) + group;
    if (others >> to & 1 && has_scale) put(scales, sendable(__float_as_uint(scale)));
  }
}

/* Fills v with what comes of codes, `step` vectors apart, and s with what comes of scales, as `receive` does with one
 * of them: both are looked at before they are judged, so that they cost one latency. */
__device__ static inline bool receive_rounded(const tri_cuda_all2all &e, uint4 *codes, int step, int count,
                                              uint4 *scales, bool has_scales, uint4 (&v)[AHEAD], uint4 *s,
                                              patience *p) {
  bool all;
  *s = nothing();
#pragma unroll
  for (int j = 0; j < AHEAD; j++) v[j] = nothing();
  do {
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
      if (j < count && !has_come(v[j])) v[j] = look(codes + j * step);
    if (has_scales && !has_come(*s)) *s = look(scales);
    all = !has_scales | has_come(*s);
#pragma unroll
    for (int j = 0; j < AHEAD; j++) all &= (j >= count) | has_come(v[j]);
  } while (!all && may_go_on(e.error, e.limit_ns, p));
  if (!all) e.rounds->over = 1;
#pragma unroll
  for (int j = 0; j < AHEAD; j++)
    if (all && j < count) make_empty(codes + j * step);
  if (all && has_scales) make_empty(scales);
  return all;
}

/* Widens a row that has travelled rounded on the way to its place, as await_row takes one that has not. A warp's codes
 * number j, of WARP vectors, have the scales that its lane j gets. */
template <int THREADS>
__device__ static inline void await_rounded(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round,
                                            int source, int row, int thread, patience p) {
  const int lane = thread % WARP;
  uint4 *box = row_box(e, e.rank, round, source, row), *to = (uint4 *)row_in_all(a, source, row);
  for (int first = thread - lane; first < a.sent; first += AHEAD * THREADS) {
    const int at = first + lane, count = count_ahead(at, a.sent, THREADS), whose = first + lane * THREADS;
    const bool has_scales = lane < AHEAD && whose < a.sent;
    uint4 v[AHEAD], s;
    bool came = receive_rounded(e, box + at, THREADS, count, box + a.sent + whose / WARP, has_scales, v, &s, &p);
    if (!__all_sync(ALL_LANES, came)) return;
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
      const sixteen wide = widen_sixteen(v[j], scale_of_lane(s, j));
      store_sixteen(to + 2 * (at + j * THREADS), wide, j < count);
    }
  }
}

/* ---- many rows; see all2all.cuh ---- */

enum { TEAM = 128, TEAMS = MANY_THREADS / TEAM };

/* Sends part number `piece` of stride * parts, by a warp. The table goes after the row's last part: who waits for the
 * row looks at its table alone until then. */
template <bool ROUNDED>
__device__ static inline void push_piece(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int piece) {
  const int row = piece / a.parts, part = piece % a.parts, lane = threadIdx.x % WARP;
  const size_t first = (size_t)row * (size_t)e.cfg.top_k;
  const choices own = {a.experts + first, a.weights + first, row < a.rows[e.rank]};
  const int at = part * a.length + lane, end = own.is_there ? min((part + 1) * a.length, a.sent) : 0;
  const int count = count_ahead(at, end, WARP);
  const char *x = a.x + (size_t)row * (size_t)a.row.bytes;
  if constexpr (ROUNDED) {
    sixteen v[AHEAD];
    load_sixteens(x, at, count, v);
    const unsigned ranks = own.is_there ? ranks_with(e, own.slots) : 0;
    if (ranks) push_rounded(e, a, round, row, ranks, at - lane, count, v);
  } else {
    uint4 v[AHEAD];
    load_vectors<WARP>(a, x, at, count, v);
    const unsigned ranks = own.is_there ? ranks_with(e, own.slots) : 0;
    push_vectors<WARP>(e, a, round, row, ranks, at, count, v);
  }
  if (part == a.parts - 1) push_table<WARP>(e, a, round, row, own.is_there || !row, lane, own);
}

/* Threads that receive rows together: the first TEAM of a block or the others, each with a barrier of their own. Its
 * number is no variable, with which a block would take all barriers that there are. */
struct team {
  int number, thread;
  __device__ void meet(void) const {
    __syncwarp(); /* lanes may have waited for different vectors */
    if (number)
      asm volatile("bar.sync 1, %0;" ::"n"((int)TEAM) : "memory");
    else
      asm volatile("bar.sync 0, %0;" ::"n"((int)TEAM) : "memory");
  }
};

/* A row's table, by a warp, if it comes; *lost: it has not. Returns whether this rank has one of its slots. */
__device__ static inline bool await_table(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int source,
                                          int row, bool *lost, patience p) {
  const bool comes = row < max(a.rows[source], 1) && !*lost;
  uint4 *box = table_box(e, e.rank, round, source, row);
  bool has_own = false, failed = false;
  for (int i = threadIdx.x % WARP; i < e.table_vectors; i += WARP) {
    uint4 v[AHEAD] = {};
    bool came = comes && receive<true>(e, box + i, 0, 1, v, &p);
    failed |= comes && !came;
    has_own |= store_table(e, a, source, row, i, came, v[0]);
  }
  *lost |= __any_sync(ALL_LANES, failed);
  return __any_sync(ALL_LANES, has_own);
}

/* Brings rows of other ranks to their places, each by a team: its table, and it where it is wanted here. Of stride *
 * (ranks - 1) rows this team takes number `first` and every `step`-th after it. is_wanted: in shared memory, [2] of the
 * team. One of them is written while the other one may still be read, and a team that writes one again has met since
 * all have read it. */
template <bool ROUNDED>
__device__ static inline void await_rows(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int first,
                                         int step, team t, bool *is_wanted) {
  const int peers = e.cfg.ranks - 1, rows = a.stride * peers;
  const patience p = {0, 0, PAUSE_NS};
  bool lost = false;
  for (int i = first, turn = 0; i < rows; i += step, turn ^= 1) {
    const int row = i / peers, source = (e.rank + 1 + i % peers) % e.cfg.ranks;
    if (t.thread < WARP) {
      bool has_own = await_table(e, a, round, source, row, &lost, p);
      if (!t.thread) is_wanted[turn] = has_own;
    }
    t.meet();
    if (!is_wanted[turn]) continue;
    if (ROUNDED)
      await_rounded<TEAM>(e, a, round, source, row, t.thread, p);
    else
      await_row<TEAM, true>(e, a, round, source, row, t.thread, p);
  }
}

/* Grid: many_blocks, MANY_THREADS. Those of the second half receive, with a team of TEAM threads for each row. ROUNDED:
 * rows travel as e4m3, however many they are. */
template <bool ROUNDED>
__global__ __launch_bounds__(MANY_THREADS,
                             4) static void dispatch_many_kernel(const __grid_constant__ tri_cuda_all2all e,
                                                                 const __grid_constant__ dispatch_args a) {
  __shared__ bool is_wanted[TEAMS][2];
  const int half = gridDim.x / 2, block = blockIdx.x % half, warp = threadIdx.x / WARP, in_block = threadIdx.x / TEAM;
  let_next_begin();
  wait_for_previous();
  if (e.rounds->over) return;
  const uint32_t round = e.rounds->combined;
  if ((int)blockIdx.x < half) {
    for (int i = warp * half + block; i < a.stride * a.parts; i += half * (MANY_THREADS / WARP))
      push_piece<ROUNDED>(e, a, round, i);
    return;
  }
  if (!block && !threadIdx.x) e.rounds->dispatched = round + 1;
  await_rows<ROUNDED>(e, a, round, in_block * half + block, half * TEAMS, team{in_block, (int)threadIdx.x % TEAM},
                      is_wanted[in_block]);
}

/* Routes the rows of this rank, a warp each, to their place among all choices. Shared memory: route_bytes for each
 * warp. */
__global__ static void route_rows_kernel(const __grid_constant__ tri_cuda_all2all e,
                                         const __grid_constant__ dispatch_args a,
                                         const __grid_constant__ tri_moe_route_args route) {
  extern __shared__ double shared[];
  const int warp = threadIdx.x / WARP, row = blockIdx.x * (blockDim.x / WARP) + warp;
  double *room = shared + (size_t)warp * ((size_t)e.cfg.top_k + room_doubles(route));
  int32_t *slots = (int32_t *)room;
  float *weights = (float *)room + e.cfg.top_k;
  let_next_begin();
  wait_for_previous();
  if (e.rounds->over || row >= a.rows[e.rank]) return;
  route_token(route, row, room + e.cfg.top_k, slots, weights);
  for (int c = threadIdx.x % WARP; c < e.cfg.top_k; c += WARP) store_choice(e, a, e.rank, row, c, slots[c], weights[c]);
}

/* ---- launches ---- */

enum { SHARED_BYTES = (48 << 10) - 64 /* for what kernels declare */, ROUTE_WARPS = 4 };

/* Shared memory for a row's choices and their routing. */
static size_t route_bytes(const tri_moe_route_args *route) {
  return (room_doubles(*route) + (size_t)route->top_k) * sizeof(double);
}

bool tri_cuda_all2all_routes(const tri_moe_route_args *route) { return route_bytes(route) <= SHARED_BYTES; }

/* A block of another kernel may still have a multiprocessor, and this one's take no more than half of it each. */
template <bool ROUTES>
static void launch_few(cudaStream_t stream, const tri_cuda_all2all *e, const dispatch_args &a,
                       const tri_moe_route_args &route, size_t shared, bool at_once) {
  const int pushes = a.stride * a.parts, awaits = a.stride * (e->cfg.ranks - 1), first = at_once ? awaits : 0;
  launch_overlapped(dispatch_kernel<ROUTES>, dim3((unsigned)(pushes + first)), BLOCK_THREADS, shared, stream, *e, a,
                    route, pushes);
  if (!at_once)
    launch_overlapped(dispatch_kernel<false>, dim3((unsigned)awaits), BLOCK_THREADS, 0, stream, *e, a,
                      tri_moe_route_args{}, 0);
}

/* Routing comes first: all rows' at once take little longer than one's, which every block that sends would wait for. */
template <bool ROUNDED>
static void launch_many(cudaStream_t stream, const tri_cuda_all2all *e, dispatch_args a,
                        const tri_moe_route_args *route, int num_sms) {
  int rows = a.rows[e->rank], warps = ROUTE_WARPS;
  size_t own = (size_t)e->rank * (size_t)a.stride * (size_t)e->cfg.top_k;
  a.length = PIECE;
  a.parts = pieces_of(a.sent);
  if (route) {
    while (warps > 1 && (size_t)warps * route_bytes(route) > SHARED_BYTES) warps /= 2;
    if (rows)
      launch_overlapped(route_rows_kernel, dim3((unsigned)((rows + warps - 1) / warps)), (unsigned)(warps * WARP),
                        (size_t)warps * route_bytes(route), stream, *e, a, *route);
    a.experts = a.all.experts + own;
    a.weights = a.all.weights + own;
  }
  launch_overlapped(dispatch_many_kernel<ROUNDED>, dim3((unsigned)many_blocks(num_sms)), MANY_THREADS, 0, stream, *e,
                    a);
}

bool tri_cuda_all2all_rounds(const tri_cuda_all2all *e, const tri_rows_dispatch *d) {
  return tri_rows_can_round(&e->cfg) && are_whole(d->x, 0) && are_whole(d->all.x, 0);
}

/* Teams receive one row after another, which takes longer than the link where these are more than the teams and short:
 * such rows have a block each, in a kernel of their own. Those that travel rounded are many as a rule. */
void tri_cuda_all2all_dispatch(cudaStream_t stream, const tri_cuda_all2all *e, const tri_rows_dispatch *d,
                               int num_sms) {
  size_t bytes = (size_t)e->cfg.hidden * element_bytes(e->cfg.type), shared = (size_t)e->cfg.top_k * sizeof(double);
  dispatch_args a = {};
  a.x = (const char *)d->x;
  a.experts = d->experts;
  a.weights = d->weights;
  a.all = d->all;
  a.row.bytes = (int)bytes;
  a.row.vectors = e->row_vectors;
  a.row.whole = are_whole(d->x, bytes) && are_whole(d->all.x, bytes);
  a.stride = d->stride;
  a.sent = d->rounded ? tri_rows_code_vectors(&e->cfg) : e->row_vectors;
  for (int r = 0; r < e->cfg.ranks; r++) a.rows[r] = d->rows[r];
  cut_rows(e->row_vectors, d->stride, 2 * num_sms, BLOCK_THREADS, &a.parts, &a.length);
  int awaits = d->stride * (e->cfg.ranks - 1);
  bool at_once = d->stride * a.parts + awaits <= num_sms;
  if (d->rounded)
    launch_many<true>(stream, e, a, d->route, num_sms);
  else if (!at_once && (is_large(e, d->stride) || awaits <= num_sms * TEAMS))
    launch_many<false>(stream, e, a, d->route, num_sms);
  else if (d->route)
    launch_few<true>(stream, e, a, *d->route, route_bytes(d->route), at_once);
  else
    launch_few<false>(stream, e, a, tri_moe_route_args{}, shared, at_once);
}

cudaError_t tri_cuda_dispatch_load(void) {
  cudaError_t e = load_kernel(dispatch_kernel<true>);
  if (e == cudaSuccess) e = load_kernel(dispatch_kernel<false>);
  if (e == cudaSuccess) e = load_kernel(route_rows_kernel);
  if (e == cudaSuccess) e = load_kernel(dispatch_many_kernel<false>);
  return e == cudaSuccess ? load_kernel(dispatch_many_kernel<true>) : e;
}
