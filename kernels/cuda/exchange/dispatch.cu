/* SPDX-License-Identifier: Apache-2.0 */
/* Rows on their way to the ranks that have their experts; see exchange/all2all.h. */
#include "kernels/cuda/exchange/all2all.cuh"
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
 * all: where this rank gets the rows, slots and weights of all ranks, stride rows for each. */
struct dispatch_args {
  const char *x;
  const int32_t *experts;
  const float *weights;
  tri_all2all_rows all;
  row_shape row;
  int rows[TRI_ROWS_RANKS], stride, parts, length;
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

/* A row's choices where all threads of the block see them. */
struct choices {
  int32_t *slots;
  float *weights;
};

__device__ static inline void take_choices(const tri_cuda_all2all &e, const dispatch_args &a, int row, bool is_there,
                                           choices to) {
  size_t first = (size_t)row * (size_t)e.cfg.top_k;
  for (int c = threadIdx.x; c < e.cfg.top_k; c += WARP) {
    to.slots[c] = is_there ? a.experts[first + c] : -1;
    to.weights[c] = is_there ? a.weights[first + c] : 0;
  }
}

__device__ static inline uint2 choice_to_send(const tri_cuda_all2all &e, choices from, int c) {
  if (c >= e.cfg.top_k || from.slots[c] < 0) return make_uint2(NOBODY, 0);
  return make_uint2((uint32_t)from.slots[c], sendable(__float_as_uint(from.weights[c])));
}

/* Puts a row's table where this rank has those of all rows, and sends it to the others where it is one of a round. */
__device__ static inline void push_table(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int row,
                                         bool is_sent, choices from) {
  for (int c = threadIdx.x; c < e.cfg.top_k; c += BLOCK_THREADS)
    store_choice(e, a, e.rank, row, c, from.slots[c], from.weights[c]);
  for (int i = threadIdx.x; is_sent && i < (e.cfg.ranks - 1) * e.table_vectors; i += BLOCK_THREADS) {
    int to = (e.rank + 1 + i / e.table_vectors) % e.cfg.ranks, k = i % e.table_vectors;
    uint2 low = choice_to_send(e, from, 2 * k), high = choice_to_send(e, from, 2 * k + 1);
    put(table_box(e, to, round, e.rank, row) + k, make_uint4(low.x, low.y, high.x, high.y));
  }
}

__device__ static inline void load_vectors(const dispatch_args &a, const char *x, int at, int count,
                                           uint4 (&v)[AHEAD]) {
#pragma unroll
  for (int j = 0; j < AHEAD; j++)
    if (j < count) v[j] = vector_of(x, a.row, at + j * BLOCK_THREADS);
}

/* Sends a thread's vectors from `at` on to the ranks of a set, the own one last. */
__device__ static inline void push_vectors(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int row,
                                           unsigned ranks, int at, int count, const uint4 (&v)[AHEAD]) {
  for (int d = 1; d < e.cfg.ranks; d++) {
    int to = (e.rank + d) % e.cfg.ranks;
    if (!(ranks >> to & 1)) continue;
    uint4 *box = row_box(e, to, round, e.rank, row) + at;
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
      if (j < count) put(box + j * BLOCK_THREADS, sendable(v[j]));
  }
  if (!(ranks >> e.rank & 1)) return;
#pragma unroll
  for (int j = 0; j < AHEAD; j++)
    if (j < count) store_vector(row_in_all(a, e.rank, row), a.row, at + j * BLOCK_THREADS, v[j]);
}

/* Sends a part of a row with block number `block` of stride * parts, once a warp has the row's choices; with ROUTES it
 * makes them. Rows that this rank does not have but others do come to its tables without an expert. Shared memory: the
 * choices, then what routing needs. */
template <bool ROUTES>
__device__ static inline void push_part(const tri_cuda_all2all &e, const dispatch_args &a,
                                        const tri_moe_route_args &route, uint32_t round, int block) {
  extern __shared__ double shared[];
  const choices own = {(int32_t *)shared, (float *)shared + e.cfg.top_k};
  const int row = block / a.parts, part = block % a.parts;
  const bool is_there = row < a.rows[e.rank];
  const char *x = a.x + (size_t)row * (size_t)a.row.bytes;
  const int end = is_there ? min((part + 1) * a.length, a.row.vectors) : 0;
  int at = part * a.length + threadIdx.x, count = count_ahead(at, end, BLOCK_THREADS);
  uint4 v[AHEAD];
  load_vectors(a, x, at, count, v); /* while the choices are made */
  if (threadIdx.x < WARP && ROUTES && is_there)
    route_token(route, row, shared + e.cfg.top_k, own.slots, own.weights);
  else if (threadIdx.x < WARP)
    take_choices(e, a, row, is_there, own);
  __syncthreads();
  const unsigned ranks = ranks_with(e, own.slots);
  if (!part) push_table(e, a, round, row, is_there || !row, own);
  while (count) {
    push_vectors(e, a, round, row, ranks, at, count, v);
    at += AHEAD * BLOCK_THREADS;
    count = count_ahead(at, end, BLOCK_THREADS);
    load_vectors(a, x, at, count, v);
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
    bool came = comes && receive(e, box + i, 0, 1, v, &p);
    int32_t low = came && v[0].x != NOBODY ? (int32_t)v[0].x : -1,
            high = came && v[0].z != NOBODY ? (int32_t)v[0].z : -1;
    store_choice(e, a, source, row, 2 * i, low, __uint_as_float(v[0].y));
    store_choice(e, a, source, row, 2 * i + 1, high, __uint_as_float(v[0].w));
    has_own |= has_slot(e, e.rank, low) | has_slot(e, e.rank, high);
  }
  return __any_sync(ALL_LANES, has_own);
}

/* Takes the row to its place among all rows, by the whole block. A wait that fails leaves the place as it is: the step
 * is lost, and the error says so. */
__device__ static inline void await_row(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int source,
                                        int row) {
  uint4 *box = row_box(e, e.rank, round, source, row);
  patience p = {};
  for (int at = threadIdx.x, count; (count = count_ahead(at, a.row.vectors, BLOCK_THREADS)) > 0;
       at += AHEAD * BLOCK_THREADS) {
    uint4 v[AHEAD];
    if (!receive(e, box + at, BLOCK_THREADS, count, v, &p)) return;
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
      if (j < count) store_vector(row_in_all(a, source, row), a.row, at + j * BLOCK_THREADS, v[j]);
  }
}

/* Brings a row of another rank to its place with block number `block` of stride * (ranks - 1): its table, and it where
 * it is wanted here. */
__device__ static inline void await_rows(const tri_cuda_all2all &e, const dispatch_args &a, uint32_t round, int block) {
  __shared__ bool is_wanted;
  const int peers = e.cfg.ranks - 1, row = block / peers, source = (e.rank + 1 + block % peers) % e.cfg.ranks;
  if (threadIdx.x < WARP) {
    bool has_own = await_table(e, a, round, source, row);
    if (!threadIdx.x) is_wanted = has_own;
  }
  __syncthreads();
  if (is_wanted) await_row(e, a, round, source, row);
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
  await_rows(e, a, round, block - pushes);
}

/* ---- launches ---- */

bool tri_cuda_all2all_routes(const tri_moe_route_args *route) {
  return room_doubles(*route) * sizeof(double) + (size_t)route->top_k * 8 <= 48u << 10;
}

/* A block of another kernel may still have a multiprocessor, and this one's take no more than half of it each. */
template <bool ROUTES>
static void launch_dispatch(cudaStream_t stream, const tri_cuda_all2all *e, const dispatch_args &a,
                            const tri_moe_route_args &route, size_t shared, int pushes, int awaits, int num_sms) {
  dim3 first((unsigned)pushes), second((unsigned)awaits), both((unsigned)(pushes + awaits));
  if (pushes + awaits <= num_sms) {
    launch_overlapped(dispatch_kernel<ROUTES>, both, BLOCK_THREADS, shared, stream, *e, a, route, pushes);
    return;
  }
  launch_overlapped(dispatch_kernel<ROUTES>, first, BLOCK_THREADS, shared, stream, *e, a, route, pushes);
  launch_overlapped(dispatch_kernel<false>, second, BLOCK_THREADS, 0, stream, *e, a, tri_moe_route_args{}, 0);
}

void tri_cuda_all2all_dispatch(cudaStream_t stream, const tri_cuda_all2all *e, const tri_rows_dispatch *d,
                               int num_sms) {
  size_t bytes = (size_t)e->cfg.hidden * element_bytes(e->cfg.type), shared = (size_t)e->cfg.top_k * 8;
  dispatch_args a = {};
  a.x = (const char *)d->x;
  a.experts = d->experts;
  a.weights = d->weights;
  a.all = d->all;
  a.row.bytes = (int)bytes;
  a.row.vectors = e->row_vectors;
  a.row.whole = are_whole(d->x, bytes) && are_whole(d->all.x, bytes);
  a.stride = d->stride;
  for (int r = 0; r < e->cfg.ranks; r++) a.rows[r] = d->rows[r];
  cut_rows(e->row_vectors, d->stride, 2 * num_sms, BLOCK_THREADS, &a.parts, &a.length);
  int pushes = d->stride * a.parts, awaits = d->stride * (e->cfg.ranks - 1);
  if (d->route)
    launch_dispatch<true>(stream, e, a, *d->route, shared + room_doubles(*d->route) * sizeof(double), pushes, awaits,
                          num_sms);
  else
    launch_dispatch<false>(stream, e, a, tri_moe_route_args{}, shared, pushes, awaits, num_sms);
}

cudaError_t tri_cuda_dispatch_load(void) {
  cudaError_t e = load_kernel(dispatch_kernel<true>);
  return e == cudaSuccess ? load_kernel(dispatch_kernel<false>) : e;
}
