/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over 16-bit keys and values of wide heads on tensor cores: single tokens with heads of 129 to 512 elements,
 * and prompts with heads of more than 256 (Gemma 4's global layers have 512). A warp's registers do not hold a row of
 * queries and one of results that are so long, so that a block of eight warps shares rows: queries lie in shared
 * memory, scores pass through it, and each warp adds up some of the values' columns.
 *
 * The rows of a block are pairs of a token and a query head of one KV head, so that a tile of keys and values serves
 * all of its heads: 64 rows of a prompt, or the heads of one token, at most 16. Single tokens' contexts are cut and
 * merged as in attention/decode_mma.cu. */
#include "kernels/cuda/attention/split_kv.cuh"
#include "kernels/cuda/attention/tiles.cuh"

enum { WARPS = 8, THREADS = WARPS * WARP, ROWS = 16, MAX_HEAD_DIM = 512, PROMPT_GROUPS = 4 };
static_assert((int)ROWS == (int)TRI_CUDA_DECODE_MMA_HEADS, "heads of a block");

/* Heads of DEPTH * 16 elements, GROUPS * 16 rows. The warps of a group of rows share its work: of the scores each has
 * 16 keys and a part of the heads' elements, of the results OWN * 16 columns. */
template <int DEPTH, int GROUPS> struct wide {
  static constexpr int CHUNKS = DEPTH * 2, KEYS = 1024 / DEPTH, TILE = KEYS * CHUNKS * PIECE;
  static constexpr int OF_GROUP = WARPS / GROUPS, SPANS = KEYS / 16, PARTS = OF_GROUP / SPANS;
  static constexpr int STEPS = DEPTH / PARTS, OWN = DEPTH / OF_GROUP, PITCH = KEYS + 8;
  static_assert(PARTS * SPANS == OF_GROUP && STEPS * PARTS == DEPTH && OWN * OF_GROUP == DEPTH, "all warps have work");
};

/* scores: parts of sums, of the heads' elements, that are added when they are read. */
template <typename T, int DEPTH, int GROUPS> struct alignas(128) wide_room {
  typedef wide<DEPTH, GROUPS> W;
  T keys[STAGES][W::TILE], values[STAGES][W::TILE];
  T queries[GROUPS * ROWS * W::CHUNKS * PIECE];
  float scores[W::PARTS][GROUPS * ROWS][W::PITCH];
  int64_t offsets[STAGES][W::KEYS]; /* of a tile's keys, or NO_KEY or LATER */
  int64_t later[STAGES * W::KEYS];  /* those that `offsets` has as LATER */
};

/* Places of a row's pieces are exchanged as in tiles.cuh. */
template <int DEPTH> __device__ static inline int wide_place(int row, int chunk) {
  return (row * DEPTH * 2 + (chunk ^ (row & 7))) * PIECE;
}

/* Rows of a block: row r is query head head0 + r % heads of the batch's row `token` + r / heads. */
struct pairs {
  int token, heads, head0, count;
};

/* ---- copies ---- */

/* The block's queries, rounded to T. Rows and elements that are not there are zeros. */
template <typename T, int DEPTH, int GROUPS>
__device__ static inline void take_queries(const tri_attention_args &a, const pairs &p, T *to) {
  enum { CHUNKS = wide<DEPTH, GROUPS>::CHUNKS };
#pragma unroll 2
  for (int i = threadIdx.x; i < GROUPS * ROWS * CHUNKS; i += THREADS) {
    int row = i / CHUNKS, chunk = i % CHUNKS;
    uint4 piece = make_uint4(0, 0, 0, 0);
    if (row < p.count && chunk * PIECE < a.kv.head_dim) {
      int t = p.token + row / p.heads, at = (p.head0 + row % p.heads) * a.kv.head_dim + chunk * PIECE;
      float4 low = load4_at(a.q, t, at), high = load4_at(a.q, t, at + 4);
      piece = make_uint4(mma<T>::pack(low.x, low.y), mma<T>::pack(low.z, low.w), mma<T>::pack(high.x, high.y),
                         mma<T>::pack(high.z, high.w));
    }
    *(uint4 *)(to + wide_place<DEPTH>(row, chunk)) = piece;
  }
}

/* Begins the copies of a tile of keys and one of values; the caller commits them. Keys that are not there, and elements
 * after a head's end, are zeros; those for later stay as they are. */
template <typename T, int DEPTH, int GROUPS>
__device__ static inline void fetch_wide(const tri_attention_args &a, wide_room<T, DEPTH, GROUPS> &room, int stage) {
  enum { CHUNKS = wide<DEPTH, GROUPS>::CHUNKS, KEYS = wide<DEPTH, GROUPS>::KEYS };
  int pieces = a.kv.head_dim / PIECE;
#pragma unroll
  for (int i = 0; i < KEYS * CHUNKS / THREADS; i++) {
    int at = i * THREADS + (int)threadIdx.x, row = at / CHUNKS, chunk = at % CHUNKS;
    int64_t offset = room.offsets[stage][row];
    if (offset == LATER) continue;
    bool there = offset >= 0 && chunk < pieces;
    size_t from = there ? (size_t)offset + (size_t)(chunk * PIECE) : 0;
    copy_async(room.keys[stage] + wide_place<DEPTH>(row, chunk), (const T *)a.kv.k + from, there);
    copy_async(room.values[stage] + wide_place<DEPTH>(row, chunk), (const T *)a.kv.v + from, there);
  }
}

/* The rows of the first tiles that were left out, a warp each. */
template <typename T, int DEPTH, int GROUPS>
__device__ static inline void fetch_wide_later(const tri_attention_args &a, wide_room<T, DEPTH, GROUPS> &room) {
  enum { CHUNKS = wide<DEPTH, GROUPS>::CHUNKS, KEYS = wide<DEPTH, GROUPS>::KEYS };
  for (int i = threadIdx.x / WARP; i < STAGES * KEYS; i += WARPS) {
    int stage = i / KEYS, row = i % KEYS;
    if (room.offsets[stage][row] != LATER) continue;
    for (int chunk = threadIdx.x % WARP; chunk < CHUNKS; chunk += WARP) {
      bool there = chunk * PIECE < a.kv.head_dim;
      size_t from = there ? (size_t)room.later[i] + (size_t)(chunk * PIECE) : 0;
      copy_async(room.keys[stage] + wide_place<DEPTH>(row, chunk), (const T *)a.kv.k + from, there);
      copy_async(room.values[stage] + wide_place<DEPTH>(row, chunk), (const T *)a.kv.v + from, there);
    }
  }
}

/* ---- a tile ---- */

/* A warp's scores: 16 rows, 16 keys, some of the elements, in four chains of sums. */
template <typename T, int DEPTH, int GROUPS>
__device__ static inline void put_scores(wide_room<T, DEPTH, GROUPS> &room, int stage) {
  typedef wide<DEPTH, GROUPS> W;
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, group = warp / W::OF_GROUP, of_group = warp % W::OF_GROUP;
  int span = of_group % W::SPANS, part = of_group / W::SPANS;
  const T *q = room.queries + group * ROWS * W::CHUNKS * PIECE, *k = room.keys[stage] + span * 16 * W::CHUNKS * PIECE;
  float sums[2][2][4] = {};
#pragma unroll
  for (int d = 0; d < W::STEPS; d++) {
    int chunk = 2 * (part * W::STEPS + d);
    uint32_t x[4], y[4];
    load_matrices(x, q + wide_place<DEPTH>(lane % 16, chunk + lane / 16));
    load_matrices(y, k + wide_place<DEPTH>(lane / 16 * 8 + lane % 8, chunk + lane / 8 % 2));
    mma<T>::run(sums[d % 2][0], x, y[0], y[1]);
    mma<T>::run(sums[d % 2][1], x, y[2], y[3]);
  }
#pragma unroll
  for (int n = 0; n < 2; n++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float *to = &room.scores[part][group * ROWS + lane / 4 + 8 * h][span * 16 + n * 8 + lane % 4 * 2];
      *(float2 *)to = make_float2(sums[0][n][2 * h] + sums[1][n][2 * h], sums[0][n][2 * h + 1] + sums[1][n][2 * h + 1]);
    }
}

/* All scores of the warp's rows, as MMAs leave them. */
template <typename T, int DEPTH, int GROUPS>
__device__ static inline void take_scores(const wide_room<T, DEPTH, GROUPS> &room,
                                          float (&s)[wide<DEPTH, GROUPS>::KEYS / 8][4]) {
  typedef wide<DEPTH, GROUPS> W;
  int lane = threadIdx.x % WARP, row = (int)threadIdx.x / WARP / W::OF_GROUP * ROWS + lane / 4;
#pragma unroll
  for (int n = 0; n < W::KEYS / 8; n++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float2 sum = make_float2(0, 0);
#pragma unroll
      for (int part = 0; part < W::PARTS; part++) {
        float2 x = *(const float2 *)&room.scores[part][row + 8 * h][n * 8 + lane % 4 * 2];
        sum.x += x.x;
        sum.y += x.y;
      }
      s[n][2 * h] = sum.x;
      s[n][2 * h + 1] = sum.y;
    }
}

/* Adds weights times the warp's columns of the values. */
template <typename T, int DEPTH, int GROUPS>
__device__ static inline void add_wide_values(const wide_room<T, DEPTH, GROUPS> &room, int stage,
                                              const float (&s)[wide<DEPTH, GROUPS>::KEYS / 8][4],
                                              rows_state<wide<DEPTH, GROUPS>::OWN> &r) {
  typedef wide<DEPTH, GROUPS> W;
  int lane = threadIdx.x % WARP, first = (int)threadIdx.x / WARP % W::OF_GROUP * W::OWN;
#pragma unroll
  for (int n = 0; n < W::KEYS / 16; n++) {
    const float *low = s[2 * n], *high = s[2 * n + 1];
    const uint32_t p[4] = {mma<T>::pack(low[0], low[1]), mma<T>::pack(low[2], low[3]), mma<T>::pack(high[0], high[1]),
                           mma<T>::pack(high[2], high[3])};
#pragma unroll
    for (int d = 0; d < W::OWN; d++) {
      uint32_t m[4];
      load_transposed(m, room.values[stage] + wide_place<DEPTH>(n * 16 + lane % 16, 2 * (first + d) + lane / 16));
      mma<T>::run(r.out[2 * d], p, m[0], m[1]);
      mma<T>::run(r.out[2 * d + 1], p, m[2], m[3]);
    }
  }
}

/* Keys begin .. end - 1 of a block. */
struct span_of_keys {
  const int32_t *kv_blocks;
  int kv_head, begin, end;
};

__device__ static inline int64_t offset_of(const tri_attention_args &a, const span_of_keys &k, int key) {
  return key < k.end ? (int64_t)kv_offset(a.kv, k.kv_blocks, key, k.kv_head) : NO_KEY;
}

/* Goes through the keys, the first two tiles of which are on their way, in a group of copies each. joins: rows of the
 * first one may have come with the second. seen: every row sees the keys up to this one; -1: none of them all. */
template <typename T, int DEPTH, int GROUPS, bool PLAIN>
__device__ static inline void attend_wide(const tri_attention_args &a, const span_of_keys &k, const sight (&sees)[2],
                                          bool joins, int seen, wide_room<T, DEPTH, GROUPS> &room,
                                          rows_state<wide<DEPTH, GROUPS>::OWN> &r) {
  constexpr int KEYS = wide<DEPTH, GROUPS>::KEYS, OWN = wide<DEPTH, GROUPS>::OWN;
  for (int key0 = k.begin, stage = 0; key0 < k.end; key0 += KEYS, stage ^= 1) {
    if (key0 + KEYS < k.end && !(joins && key0 == k.begin))
      wait_copies<1>();
    else
      wait_copies<0>();
    __syncthreads();
    int64_t next = NO_KEY; /* looked up now, for its latency */
    int next_key = key0 + STAGES * KEYS + (int)threadIdx.x;
    if (threadIdx.x < KEYS) next = offset_of(a, k, next_key);
    put_scores(room, stage);
    __syncthreads();
    float s[KEYS / 8][4];
    take_scores(room, s);
    finish_scores<KEYS, PLAIN>(a, s, key0, sees, key0 + KEYS - 1 <= seen);
    soften<OWN, KEYS>(r, s);
    add_wide_values(room, stage, s, r);
    if (key0 + STAGES * KEYS < k.end) {
      if (threadIdx.x < KEYS) room.offsets[stage][threadIdx.x] = next;
      __syncthreads(); /* the stage has been read, and where its next keys are is known */
      fetch_wide(a, room, stage);
    }
    commit_copies();
  }
  wait_copies<0>();
}

/* ---- results ---- */

/* The sums of the rows' four lanes. */
template <int OWN> __device__ static inline void add_sums(rows_state<OWN> &r) {
#pragma unroll
  for (int h = 0; h < 2; h++) {
    r.sum[h] += __shfl_xor_sync(ALL_LANES, r.sum[h], 1);
    r.sum[h] += __shfl_xor_sync(ALL_LANES, r.sum[h], 2);
  }
}

/* The sink counts as a score, once. */
template <int OWN>
__device__ static inline void begin_rows(const tri_attention_args &a, const sight (&sees)[2], bool has_sinks,
                                         rows_state<OWN> &r) {
  clear(r);
  for (int h = 0; has_sinks && a.sinks && h < 2; h++) {
    r.max[h] = a.sinks[sees[h].head] * LOG2E;
    r.sum[h] = threadIdx.x % 4 == 0 ? 1 : 0;
  }
}

template <typename T, int DEPTH, int GROUPS>
__device__ static inline void store_wide(const tri_attention_args &a, const pairs &p,
                                         const rows_state<wide<DEPTH, GROUPS>::OWN> &r) {
  typedef wide<DEPTH, GROUPS> W;
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = warp % W::OF_GROUP * W::OWN * 16;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int row = warp / W::OF_GROUP * ROWS + lane / 4 + 8 * h;
    if (row >= p.count) continue;
    size_t at = (size_t)(p.token + row / p.heads) * (size_t)a.out.ld +
                (size_t)(p.head0 + row % p.heads) * (size_t)a.kv.head_dim;
#pragma unroll
    for (int d = 0; d < W::OWN * 2; d++) {
      int column = first + d * 8 + lane % 4 * 2;
      float low = r.out[d][2 * h] / r.sum[h], high = r.out[d][2 * h + 1] / r.sum[h];
      if (column >= a.kv.head_dim) continue;
      if (a.out.dtype == TRI_F32)
        *(float2 *)(a.out.data + at + (size_t)column) = make_float2(low, high);
      else
        *(uint32_t *)((T *)a.out.data + at + (size_t)column) = mma<T>::pack(low, high);
    }
  }
}

/* A part of a token's context: to where the parts meet, with maxima that are natural logarithms. */
template <int DEPTH>
__device__ static inline void leave_part(const tri_attention_args &a, const meeting &m, const pairs &p, int split,
                                         const rows_state<wide<DEPTH, 1>::OWN> &r) {
  typedef wide<DEPTH, 1> W;
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, first = warp * W::OWN * 16;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int row = lane / 4 + 8 * h;
    if (row >= p.count) continue;
    float *out = split_at(a, m, p.head0 + row, split);
    if (!warp && lane % 4 == 0) *(float2 *)(out + a.kv.head_dim) = make_float2(r.max[h] / LOG2E, r.sum[h]);
#pragma unroll
    for (int d = 0; d < W::OWN * 2; d++) {
      int column = first + d * 8 + lane % 4 * 2;
      if (column < a.kv.head_dim) *(float2 *)(out + column) = make_float2(r.out[d][2 * h], r.out[d][2 * h + 1]);
    }
  }
}

/* ---- the kernels ---- */

/* Attention of sequences of more than one token. q and out [T, heads * d]. Grid (KV heads, tiles), 256 threads. Shared
 * memory: wide_room. The kernel of the batch's single tokens may run concurrently. */
template <typename T, int DEPTH, bool PLAIN>
__global__ __launch_bounds__(THREADS, 1) static void prefill_wide_kernel(tri_attention_args a, tri_batch b,
                                                                         const tri_attention_tile *tiles) {
  enum { GROUPS = PROMPT_GROUPS, KEYS = wide<DEPTH, GROUPS>::KEYS };
  extern __shared__ __align__(128) char bytes[];
  wide_room<T, DEPTH, GROUPS> &room = *(wide_room<T, DEPTH, GROUPS> *)bytes;
  stamp_begun();
  wait_for_previous();
  let_next_begin_now();
  int kv_head = blockIdx.x, lane = threadIdx.x % WARP;
  const tri_attention_tile t = tiles[blockIdx.y];
  tri_heads of_kv = tri_heads_of(&a, kv_head);
  const pairs p = {t.row, of_kv.count, of_kv.first, t.rows * of_kv.count};
  const span_of_keys k = {b.block_table + t.blocks, kv_head, t.first / KEYS * KEYS, t.end};
  const int first_last = tri_last_key(a.causal, a.window, t.position, t.context); /* the last key of the first row */
  sight sees[2];
  for (int h = 0; h < 2; h++) {
    int row = min((int)threadIdx.x / WARP / wide<DEPTH, GROUPS>::OF_GROUP * ROWS + lane / 4 + 8 * h, p.count - 1);
    int position = t.position + row / p.heads, last = tri_last_key(a.causal, a.window, position, t.context);
    sees[h] = {position, tri_first_key(a.window, a.chunked, position), min(last, t.context - 1),
               p.head0 + row % p.heads};
  }
  rows_state<wide<DEPTH, GROUPS>::OWN> r;
  begin_rows(a, sees, true, r);
  if (threadIdx.x < STAGES * KEYS)
    room.offsets[threadIdx.x / KEYS][threadIdx.x % KEYS] = offset_of(a, k, k.begin + (int)threadIdx.x);
  __syncthreads();
  for (int stage = 0; stage < STAGES; stage++) {
    fetch_wide(a, room, stage);
    commit_copies();
  }
  take_queries<T, DEPTH, GROUPS>(a, p, room.queries);
  attend_wide<T, DEPTH, GROUPS, PLAIN>(a, k, sees, false, a.window > 0 ? -1 : min(first_last, t.context - 1), room, r);
  add_sums(r);
  store_wide<T, DEPTH, GROUPS>(a, p, r);
}

/* Attention of single tokens. q and out [T, heads * d], partial results [parts, heads, d + 4]. Grid (parts, 1, KV heads
 * * chunks of 16 heads), 256 threads. Shared memory: wide_room, where the parts' factors lie at the end. The last
 * arguments are as in attention/decode_mma.cu. */
template <typename T, int DEPTH, bool PLAIN>
__global__ __launch_bounds__(THREADS, 1) static void decode_wide_kernel(tri_attention_args a, tri_batch b, meeting m,
                                                                        const tri_attention_part *parts, int chunks,
                                                                        bool early, bool beside) {
  enum { KEYS = wide<DEPTH, 1>::KEYS };
  extern __shared__ __align__(128) char bytes[];
  wide_room<T, DEPTH, 1> &room = *(wide_room<T, DEPTH, 1> *)bytes;
  let_next_begin();
  const tri_attention_part part = part_of(parts, m);
  if (part.row < 0) return; /* blocks without work: there are some that wait */
  int kv_head = blockIdx.z / chunks, chunk = blockIdx.z % chunks, lane = threadIdx.x % WARP;
  tri_heads of_kv = tri_heads_of(&a, kv_head);
  int heads = min((int)ROWS, of_kv.count - chunk * ROWS);
  if (heads <= 0) return; /* a KV head with fewer chunks than others */
  const pairs p = {part.row, heads, of_kv.first + chunk * ROWS, heads};
  const span_of_keys k = {b.block_table + part.blocks, kv_head, part.first, part.end};
  if (!early && !beside) wait_for_previous();
  if (threadIdx.x < STAGES * KEYS) {
    int key = k.begin + (int)threadIdx.x;
    int64_t offset = offset_of(a, k, key);
    bool is_new = early && key < k.end && may_be_new(a, key, part.position);
    room.offsets[threadIdx.x / KEYS][threadIdx.x % KEYS] = is_new ? (int64_t)LATER : offset;
    room.later[threadIdx.x] = offset;
  }
  __syncthreads();
  fetch_wide(a, room, 0);
  commit_copies();
  fetch_wide(a, room, 1);
  if (early) wait_for_previous();
  if (early) fetch_wide_later(a, room);
  commit_copies();
  take_queries<T, DEPTH, 1>(a, p, room.queries);
  sight sees[2];
  for (int h = 0; h < 2; h++) sees[h] = {part.position, k.begin, k.end - 1, p.head0 + min(heads - 1, lane / 4 + 8 * h)};
  rows_state<wide<DEPTH, 1>::OWN> r;
  begin_rows(a, sees, m.splits == 1, r);
  attend_wide<T, DEPTH, 1, PLAIN>(a, k, sees, early, k.end - 1, room, r);
  add_sums(r);
  if (m.splits == 1) {
    store_wide<T, DEPTH, 1>(a, p, r);
  } else {
    leave_part<DEPTH>(a, m, p, part.split, r);
    if (is_last_split(m)) merge_splits<THREADS>(a, m, part.row, p.head0, heads, (float *)bytes);
  }
  if (beside) wait_for_previous();
}

/* ---- launches ---- */

static bool is_plain(const tri_attention_args &a) { return a.softcap <= 0 && !a.alibi_slopes && !a.position_bias; }

template <typename T, int DEPTH, bool PLAIN>
static cudaError_t start_decode(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split,
                                const meeting &m) {
  constexpr size_t bytes = sizeof(wide_room<T, DEPTH, 1>);
  static_assert((3 * TRI_CUDA_WIDE_SPLITS + 1) * ROWS * sizeof(float) <= bytes, "the parts' factors fit");
  int chunks = (tri_most_heads(&a) + ROWS - 1) / ROWS;
  bool beside = split.num_tiles > 0, early = has_early_keys(a) && !beside;
  cudaError_t e = allow_shared<decode_wide_kernel<T, DEPTH, PLAIN>>(bytes);
  if (e == cudaSuccess)
    launch_overlapped(decode_wide_kernel<T, DEPTH, PLAIN>, dim3(split.num_parts, 1, a.kv.num_kv_heads * chunks),
                      THREADS, bytes, stream, a, *a.batch, m, split.parts, chunks, early, beside);
  return e;
}

template <typename T>
static cudaError_t start_decode_depth(cudaStream_t stream, const tri_attention_args &a,
                                      const tri_attention_split &split, const meeting &m) {
  if (a.kv.head_dim <= 256)
    return is_plain(a) ? start_decode<T, 16, true>(stream, a, split, m)
                       : start_decode<T, 16, false>(stream, a, split, m);
  return is_plain(a) ? start_decode<T, 32, true>(stream, a, split, m) : start_decode<T, 32, false>(stream, a, split, m);
}

template <typename T, bool PLAIN>
static cudaError_t start_prefill(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split) {
  constexpr size_t bytes = sizeof(wide_room<T, 32, PROMPT_GROUPS>);
  cudaError_t e = allow_shared<prefill_wide_kernel<T, 32, PLAIN>>(bytes);
  if (e == cudaSuccess)
    launch_overlapped(prefill_wide_kernel<T, 32, PLAIN>, dim3(a.kv.num_kv_heads, split.num_tiles), THREADS, bytes,
                      stream, a, *a.batch, split.tiles);
  return e;
}

/* Rows of queries and of results can be read and written in pieces. */
static bool has_pieces(const tri_attention_args *a) {
  uintptr_t aligned_to = a->q.dtype == TRI_F32 ? 16 : 8;
  return a->q.ld % 4 == 0 && (uintptr_t)a->q.data % aligned_to == 0 && a->out.ld % 2 == 0 &&
         (uintptr_t)a->out.data % 8 == 0 && (a->out.dtype == TRI_F32 || a->out.dtype == a->kv.dtype);
}

bool tri_cuda_decode_wide_fits(const tri_attention_args *a) {
  bool types = a->kv.dtype == TRI_BF16 || a->kv.dtype == TRI_F16;
  return types && !a->kv.v_dim && a->kv.head_dim % 16 == 0 && a->kv.head_dim > 128 && a->kv.head_dim <= MAX_HEAD_DIM &&
         has_pieces(a) && has_room_for<decode_wide_kernel<__half, 32, false>>(sizeof(wide_room<__half, 32, 1>)) &&
         has_room_for<decode_wide_kernel<__half, 16, false>>(sizeof(wide_room<__half, 16, 1>));
}

bool tri_cuda_prefill_wide_fits(const tri_attention_args *a) {
  return tri_cuda_decode_wide_fits(a) && a->kv.head_dim > 256 && tri_most_heads(a) <= PROMPT_GROUPS * ROWS &&
         has_room_for<prefill_wide_kernel<__half, 32, false>>(sizeof(wide_room<__half, 32, PROMPT_GROUPS>));
}

int tri_cuda_decode_wide_keys(const tri_attention_args *a) {
  return a->kv.head_dim <= 256 ? wide<16, 1>::KEYS : wide<32, 1>::KEYS;
}

int tri_cuda_prefill_wide_tokens(const tri_attention_args *a) { return PROMPT_GROUPS * ROWS / tri_most_heads(a); }

cudaError_t tri_cuda_decode_wide(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *split,
                                 float *partial, unsigned *counters) {
  meeting m = {partial, counters, 1, 0};
  return a->kv.dtype == TRI_BF16 ? start_decode_depth<__nv_bfloat16>(stream, *a, *split, m)
                                 : start_decode_depth<__half>(stream, *a, *split, m);
}

template <typename T>
static cudaError_t start_prefill_type(cudaStream_t stream, const tri_attention_args &a,
                                      const tri_attention_split &split) {
  return is_plain(a) ? start_prefill<T, true>(stream, a, split) : start_prefill<T, false>(stream, a, split);
}

cudaError_t tri_cuda_prefill_wide(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *split) {
  return a->kv.dtype == TRI_BF16 ? start_prefill_type<__nv_bfloat16>(stream, *a, *split)
                                 : start_prefill_type<__half>(stream, *a, *split);
}
