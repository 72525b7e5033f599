/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of rows on their way back from the ranks that had their experts; see exchange/all2all.h. */
#include "kernels/cuda/exchange/all2all.cuh"

/* With the registers that it takes such a block leaves room for another kernel's on its multiprocessor: one that waits
 * for a transfer must not keep it from coming onto the device. */
enum { COMBINE_THREADS = 256 };

/* A combine as its kernel sees it. Rows are cut into parts, fewer where there are more of them. all_experts [ranks *
 * stride, top_k]: the slots of all rows, as dispatch brought them; y [ranks * stride, hidden]: what this rank's experts
 * give for each row; out [rows[rank], hidden]; stride: rows that every rank has room for. */
struct combine_args {
  const int32_t *all_experts;
  const float *y;
  float *out;
  int rows[TRI_ROWS_RANKS], stride, vectors;
  int sent_parts, sent_length; /* of a row of another rank */
  int own_parts, own_length;   /* of a row of this one */
  bool whole;                  /* rows are whole vectors, and begin at one */
};

/* A vector's elements as floats. Rows travel in the model's type and are added in float32. */
template <typename T> struct elements {
  static constexpr int COUNT = 16 / (int)sizeof(T);
  float x[COUNT];
};

template <typename T> __device__ static inline void put4(elements<T> &to, int k, float4 x) {
  to.x[k] = x.x;
  to.x[k + 1] = x.y;
  to.x[k + 2] = x.z;
  to.x[k + 3] = x.w;
}

__device__ static inline uint32_t pair_of(__half, float low, float high) {
  __half2 pair = __floats2half2_rn(low, high);
  return *(const uint32_t *)&pair;
}
__device__ static inline uint32_t pair_of(__nv_bfloat16, float low, float high) {
  __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *(const uint32_t *)&pair;
}
__device__ static inline float2 floats_of(__half, uint32_t pair) { return __half22float2(*(const __half2 *)&pair); }
__device__ static inline float2 floats_of(__nv_bfloat16, uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

template <typename T> __device__ static inline uint4 packed(const elements<T> &v) {
  uint32_t words[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    if constexpr (elements<T>::COUNT == 4)
      words[k] = __float_as_uint(v.x[k]);
    else
      words[k] = pair_of(T(), v.x[2 * k], v.x[2 * k + 1]);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

template <typename T> __device__ static inline elements<T> unpacked(uint4 v) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
  elements<T> to;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    if constexpr (elements<T>::COUNT == 4) {
      to.x[k] = __uint_as_float(words[k]);
    } else {
      float2 x = floats_of(T(), words[k]);
      to.x[2 * k] = x.x;
      to.x[2 * k + 1] = x.y;
    }
  }
  return to;
}

/* The i-th vector of a row of y; zeros after its end. */
template <typename T>
__device__ static inline uint4 sums_of(const tri_cuda_all2all &e, const combine_args &a, int rank, int row, int i) {
  const float *y = a.y + ((size_t)rank * (size_t)a.stride + (size_t)row) * (size_t)e.cfg.hidden;
  const int first = i * elements<T>::COUNT;
  elements<T> v;
#pragma unroll
  for (int k = 0; k < elements<T>::COUNT; k += 4) put4(v, k, a.whole ? load4(y + first + k) : make_float4(0, 0, 0, 0));
#pragma unroll
  for (int k = 0; k < elements<T>::COUNT; k++)
    if (!a.whole && first + k < e.cfg.hidden) v.x[k] = y[first + k];
  return packed(v);
}

template <typename T>
__device__ static inline void store_sums(const tri_cuda_all2all &e, const combine_args &a, int row, int i,
                                         const elements<T> &sum) {
  float *out = a.out + (size_t)row * (size_t)e.cfg.hidden;
  const int first = i * elements<T>::COUNT;
#pragma unroll
  for (int k = 0; k < elements<T>::COUNT; k += 4)
    if (a.whole) store4(out + first + k, make_float4(sum.x[k], sum.x[k + 1], sum.x[k + 2], sum.x[k + 3]));
#pragma unroll
  for (int k = 0; k < elements<T>::COUNT; k++)
    if (!a.whole && first + k < e.cfg.hidden) out[first + k] = sum.x[k];
}

__device__ static inline unsigned ranks_with(const tri_cuda_all2all &e, const combine_args &a, int rank, int row) {
  size_t number = (size_t)rank * (size_t)a.stride + (size_t)row;
  return ranks_with(e, a.all_experts + number * (size_t)e.cfg.top_k);
}

template <typename T>
__device__ static inline void load_sums(const tri_cuda_all2all &e, const combine_args &a, int rank, int row, int at,
                                        int end, uint4 (&v)[AHEAD]) {
#pragma unroll
  for (int j = 0; j < AHEAD; j++)
    if (at + j * WARP < end) v[j] = sums_of<T>(e, a, rank, row, at + j * WARP);
}

/* A part of what this rank has for a row of another one, by a warp. It is read while the row's ranks are looked up. */
template <typename T>
__device__ static inline void give_back(const tri_cuda_all2all &e, const combine_args &a, int to, int row, int part) {
  const int end = min((part + 1) * a.sent_length, a.vectors);
  int at = part * a.sent_length + (int)threadIdx.x % WARP;
  uint4 *box = result_box(e, to, e.rank, row), v[AHEAD];
  load_sums<T>(e, a, to, row, at, end, v);
  if (!(ranks_with(e, a, to, row) >> e.rank & 1)) return;
  while (at < end) {
#pragma unroll
    for (int j = 0; j < AHEAD; j++)
      if (at + j * WARP < end) put(box + at + j * WARP, sendable(v[j]));
    at += AHEAD * WARP;
    load_sums<T>(e, a, to, row, at, end, v);
  }
}

/* ---- few rows ---- */

/* Fills v with what the ranks of a set give back of a vector of an own row; the places are empty afterwards. */
__device__ static inline bool receive_results(const tri_cuda_all2all &e, int row, int i, unsigned ranks,
                                              uint4 (&v)[TRI_ROWS_RANKS], patience *p) {
  bool all;
  do {
    all = true;
#pragma unroll
    for (int r = 0; r < TRI_ROWS_RANKS; r++)
      if (ranks >> r & 1) v[r] = look(result_box(e, e.rank, r, row) + i);
#pragma unroll
    for (int r = 0; r < TRI_ROWS_RANKS; r++) all &= !(ranks >> r & 1) | has_come(v[r]);
  } while (!all && may_go_on(e.error, e.limit_ns, p));
  if (!all) e.rounds->over = 1;
#pragma unroll
  for (int r = 0; r < TRI_ROWS_RANKS; r++)
    if (all && ranks >> r & 1) make_empty(result_box(e, e.rank, r, row) + i);
  return all;
}

/* The sums of a part of an own row, by a warp, which reads its own while the row's ranks are looked up: in the order of
 * the ranks, the own one's rounded like the others', so that it does not matter which rank has a sequence. */
template <typename T>
__device__ static inline void add_up(const tri_cuda_all2all &e, const combine_args &a, int row, int part) {
  const int end = min((part + 1) * a.own_length, a.vectors);
  int at = part * a.own_length + (int)threadIdx.x % WARP;
  uint4 own = at < end ? sums_of<T>(e, a, e.rank, row, at) : make_uint4(0, 0, 0, 0);
  const unsigned ranks = ranks_with(e, a, e.rank, row), others = ranks & ~(1u << e.rank);
  patience p = {};
  while (at < end) {
    uint4 v[TRI_ROWS_RANKS];
    elements<T> sum = {};
    if (!receive_results(e, row, at, others, v, &p)) return;
#pragma unroll
    for (int r = 0; r < TRI_ROWS_RANKS; r++) {
      if (!(ranks >> r & 1)) continue;
      elements<T> x = unpacked<T>(r == e.rank ? own : v[r]);
#pragma unroll
      for (int k = 0; k < elements<T>::COUNT; k++) sum.x[k] += x.x[k];
    }
    store_sums<T>(e, a, row, at, sum);
    at += WARP;
    if (at < end) own = sums_of<T>(e, a, e.rank, row, at);
  }
}

/* Each warp takes a part of a row after another: first of what it gives back, then of what it gets, since a peer may be
 * waiting for the former. All blocks are on the device at once: a block per multiprocessor at most, up to 256 threads.
 * A block that is not there yet would have results to send that a peer's waiting blocks need. */
template <typename T>
__global__ __launch_bounds__(COMBINE_THREADS) static void combine_kernel(const __grid_constant__ tri_cuda_all2all e,
                                                                         const __grid_constant__ combine_args a) {
  const int first = threadIdx.x / WARP * gridDim.x + blockIdx.x, warps = gridDim.x * (blockDim.x / WARP);
  const int peers = e.cfg.ranks - 1, sent = a.stride * peers * a.sent_parts, own = a.rows[e.rank] * a.own_parts;
  let_next_begin();
  wait_for_previous();
  if (e.rounds->over) return;
  if (!blockIdx.x && !threadIdx.x) e.rounds->combined = e.rounds->dispatched;
  for (int i = first; i < sent; i += warps) {
    int pair = i / a.sent_parts, row = pair / peers, to = (e.rank + 1 + pair % peers) % e.cfg.ranks;
    if (row < a.rows[to]) give_back<T>(e, a, to, row, i % a.sent_parts);
  }
  for (int i = first; i < own; i += warps) add_up<T>(e, a, i / a.own_parts, i % a.own_parts);
}

/* ---- many rows ---- */

/* The vectors that a thread adds up at a time: of `depth` vectors of an own row, WARP apart from `at` on, each rank's.
 * Number k is that of rank k % ranks, so that they are in registers. */
enum { ADDENDS = TRI_ROWS_RANKS };

struct addends {
  uint4 v[ADDENDS];
  unsigned awaited; /* a bit for each that comes from another rank */
};

/* Calls each(k, rank, i) for those of a set of ranks that lie before `end`; i: the vector's number in its row. */
template <typename F> __device__ static inline void for_addends(int ranks, unsigned set, int at, int end, F each) {
  int rank = 0, i = at, depth = ADDENDS / ranks;
#pragma unroll
  for (int k = 0; k < ADDENDS; k++) {
    if (depth && i < end && set >> rank & 1) each(k, rank, i);
    if (++rank < ranks) continue;
    rank = 0;
    i += WARP;
    depth--;
  }
}

/* Fills them, once the others' have come, whose places are empty afterwards. False: they do not come. */
template <typename T>
__device__ static inline bool receive_addends(const tri_cuda_all2all &e, const combine_args &a, int row, unsigned ranks,
                                              int at, int end, addends *to, patience *p) {
  const uint4 *box = result_box(e, e.rank, 0, row);
  const size_t from_rank_to_rank = (size_t)e.cfg.max_rows * (size_t)e.row_vectors;
  auto place = [&](int rank, int i) { return (uint4 *)box + (size_t)rank * from_rank_to_rank + i; };
  to->awaited = 0;
  for_addends(e.cfg.ranks, ranks, at, end, [&](int k, int rank, int i) {
    if (rank == e.rank)
      to->v[k] = sums_of<T>(e, a, e.rank, row, i);
    else
      to->awaited |= 1u << k;
  });
  unsigned missing = to->awaited;
  do {
    for_addends(e.cfg.ranks, ranks, at, end, [&](int k, int rank, int i) {
      if (missing >> k & 1) to->v[k] = look(place(rank, i));
    });
    for_addends(e.cfg.ranks, ranks, at, end, [&](int k, int, int) {
      if (missing >> k & 1 && has_come(to->v[k])) missing &= ~(1u << k);
    });
  } while (missing && may_go_on(e.error, e.limit_ns, p));
  if (missing) e.rounds->over = 1;
  for_addends(e.cfg.ranks, missing ? 0 : ranks, at, end, [&](int k, int rank, int i) {
    if (to->awaited >> k & 1) make_empty(place(rank, i));
  });
  return !missing;
}

/* The sums of a part of an own row, by a warp: as add_up does it, with as many vectors of a row on their way
 * as there are registers for. False: what it needs does not come. */
template <typename T>
__device__ static inline bool add_up_many(const tri_cuda_all2all &e, const combine_args &a, int row, int part,
                                          patience p) {
  const int end = min((part + 1) * a.own_length, a.vectors), ranks = e.cfg.ranks;
  const unsigned all = (1u << ranks) - 1, with = ranks_with(e, a, e.rank, row);
  bool came = true;
  for (int at = part * a.own_length + (int)threadIdx.x % WARP; at < end && came; at += ADDENDS / ranks * WARP) {
    addends x;
    elements<T> sum = {};
    if (!(came = receive_addends<T>(e, a, row, with, at, end, &x, &p))) break;
    for_addends(ranks, all, at, end, [&](int k, int rank, int i) {
      elements<T> one = {};
      if (with >> rank & 1) one = unpacked<T>(x.v[k]);
#pragma unroll
      for (int c = 0; c < elements<T>::COUNT; c++) sum.x[c] = (rank ? sum.x[c] : 0) + one.x[c];
      if (rank == ranks - 1) store_sums<T>(e, a, row, i, sum);
    });
  }
  return __all_sync(ALL_LANES, came);
}

/* Half of the blocks send and the others add up; see all2all.cuh. Grid: many_blocks, MANY_THREADS. Launch bounds that
 * are larger than its blocks leave a fourth of a multiprocessor's registers to others, where all vectors on their way
 * still have one. */
template <typename T>
__global__ __launch_bounds__(MANY_THREADS + 2 * WARP,
                             2) static void combine_many_kernel(const __grid_constant__ tri_cuda_all2all e,
                                                                const __grid_constant__ combine_args a) {
  const int half = gridDim.x / 2, block = blockIdx.x % half, warps = half * (MANY_THREADS / WARP);
  const int first = threadIdx.x / WARP * half + block;
  const int peers = e.cfg.ranks - 1, sent = a.stride * peers * a.sent_parts, own = a.rows[e.rank] * a.own_parts;
  let_next_begin();
  wait_for_previous();
  if (e.rounds->over) return;
  if (!blockIdx.x && !threadIdx.x) e.rounds->combined = e.rounds->dispatched;
  if ((int)blockIdx.x < half) {
    for (int i = first; i < sent; i += warps) {
      int pair = i / a.sent_parts, row = pair / peers, to = (e.rank + 1 + pair % peers) % e.cfg.ranks;
      if (row < a.rows[to]) give_back<T>(e, a, to, row, i % a.sent_parts);
    }
    return;
  }
  for (int i = first; i < own; i += warps)
    if (!add_up_many<T>(e, a, i / a.own_parts, i % a.own_parts, patience{0, 0, PAUSE_NS})) return;
}

/* ---- launches ---- */

/* A warp for each part, up to a block of COMBINE_THREADS on each multiprocessor. */
template <typename T>
static void launch_few(cudaStream_t stream, const tri_cuda_all2all *e, const combine_args &a, int num_sms) {
  int sent = a.stride * (e->cfg.ranks - 1) * a.sent_parts, own = a.rows[e->rank] * a.own_parts;
  int most = sent > own ? sent : own, threads = 128, blocks = most < num_sms ? most : num_sms;
  while (threads < COMBINE_THREADS && blocks * (threads / WARP) < most) threads *= 2;
  launch_overlapped(combine_kernel<T>, dim3((unsigned)blocks), (unsigned)threads, 0, stream, *e, a);
}

template <typename T>
static void launch_combine(cudaStream_t stream, const tri_cuda_all2all *e, const combine_args &a, int num_sms) {
  if (is_large(e, a.stride))
    launch_overlapped(combine_many_kernel<T>, dim3((unsigned)many_blocks(num_sms)), MANY_THREADS, 0, stream, *e, a);
  else
    launch_few<T>(stream, e, a, num_sms);
}

void tri_cuda_all2all_combine(cudaStream_t stream, const tri_cuda_all2all *e, const tri_rows_combine *c, int num_sms) {
  enum { LEAST = 2 * WARP };
  size_t elements_of_vector = 16 / element_bytes(e->cfg.type);
  int warps = num_sms * (COMBINE_THREADS / WARP), own = c->rows[e->rank];
  combine_args a = {};
  a.all_experts = c->all_experts;
  a.y = c->y;
  a.out = c->out;
  a.stride = c->stride;
  a.vectors = e->row_vectors;
  a.whole = (size_t)e->cfg.hidden % elements_of_vector == 0 && are_whole(c->y, 0) && are_whole(c->out, 0);
  for (int r = 0; r < e->cfg.ranks; r++) a.rows[r] = c->rows[r];
  cut_rows(a.vectors, c->stride * (e->cfg.ranks - 1), warps, LEAST, &a.sent_parts, &a.sent_length);
  cut_rows(a.vectors, own ? own : 1, warps, LEAST, &a.own_parts, &a.own_length);
  if (is_large(e, c->stride)) {
    a.sent_length = PIECE;
    a.own_length = PIECE;
    a.sent_parts = pieces_of(a.vectors);
    a.own_parts = a.sent_parts;
  }
  switch (e->cfg.type) {
  case TRI_F16: launch_combine<__half>(stream, e, a, num_sms); break;
  case TRI_BF16: launch_combine<__nv_bfloat16>(stream, e, a, num_sms); break;
  default: launch_combine<float>(stream, e, a, num_sms); break;
  }
}

template <typename T> static cudaError_t load_both(void) {
  cudaError_t e = load_kernel(combine_kernel<T>);
  return e == cudaSuccess ? load_kernel(combine_many_kernel<T>) : e;
}

cudaError_t tri_cuda_combine_load(void) {
  cudaError_t e = load_both<float>();
  if (e == cudaSuccess) e = load_both<__half>();
  return e == cudaSuccess ? load_both<__nv_bfloat16>() : e;
}
