/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over latent caches of 16 bits on tensor cores (DeepSeek-V2, section 2.1, in the absorbed form): a row of
 * the cache is the key of every head, and its front the value. So a tile of rows comes once and is both (FlashMLA's
 * idea), and the heads of one token are the rows of the MMAs. Decodes go this way, and the tokens of prompts where
 * attention/latent_wgmma.cu has nothing for them.
 *
 * A block has a token, TILES * 16 of its heads and a split of its context. Of a tile of keys each warp computes the
 * scores of one half with a part of the row's elements; all threads add the parts up and soften them; then each warp
 * has columns of the values. The splits of long contexts (Flash-Decoding) are merged by a kernel of their own: 128
 * heads of 512 values are more than the last block should have to read alone. Where few blocks would run, a cluster of
 * them has the splits of a context, and merges them out of its shared memory: that pays for short contexts, too. */
#include "kernels/cuda/attention/cluster_merge.cuh"
#include "kernels/cuda/attention/tiles.cuh"

/* The size of a row, which shorter ones are padded to; then the threads that fetch or soften one row, and merge one. */
enum { STEPS = 36, WIDTH = STEPS * 16, CHUNKS = WIDTH / PIECE, MAX_VALUES = 512 };
enum { ROW_LANES = 8, MERGE_THREADS = 128 };
/* The cost by which splits are chosen: a block's beginning and end, the merging by a kernel or in a cluster, are worth
 * so many times 32 keys. In batches of decodes and prompts none is to have LONG tiles, or prompts would be done long
 * before it. */
enum { ENDS = 6, MERGING = 4, JOINING = 1, LONG = 64 };
/* Blocks of all clusters: those must find room at the same time. */
enum { JOINED_BLOCKS = 128 };

/* Sizes of a block with TILES * 16 heads. With two of these tiles a block has a multiprocessor for itself, else two
 * share it. */
template <int TILES> struct extent {
  static constexpr int WARPS = 4 * TILES, THREADS = WARPS * WARP, ROWS = 16 * TILES, KEYS = 32 * TILES;
  static constexpr int PARTS = WARPS / 2, OWN_KEYS = KEYS / 2, OWN_STEPS = STEPS / PARTS; /* of a warp's scores */
  static constexpr int GROUPS = MAX_VALUES / 16 / WARPS;                                  /* of 16 columns of values */
  static constexpr int PITCH = KEYS + 8;   /* eight rows of weights, or four of scores, lie in different banks */
  static constexpr int CHAINS = 2 / TILES; /* sums of scores that do not wait for each other */
};

template <typename T, int TILES> struct rooms {
  using x = extent<TILES>;
  /* A block's shared memory. scores: a plane for each part of the elements, which soften_tile adds up; weights: the
   * same as A operands of the values; factors [row]: what the values so far are multiplied with. */
  T tiles[STAGES][x::KEYS * WIDTH];
  int64_t offsets[STAGES][x::KEYS];
  float scores[x::PARTS][x::ROWS][x::PITCH];
  T weights[x::ROWS][x::PITCH];
  float factors[x::ROWS];
};

template <int TILES> static bool has_room(void); /* for the kernel below */

static int tiles_of(const tri_attention_args *a) { return a->num_heads > 16 && has_room<2>() ? 2 : 1; }

bool tri_cuda_latent_mma_fits(const tri_attention_args *a) {
  const tri_kv_layer *kv = &a->kv;
  bool plain = a->softcap <= 0 && a->window <= 0 && !a->alibi_slopes && !a->sinks && !a->position_bias;
  bool cache = (kv->dtype == TRI_BF16 || kv->dtype == TRI_F16) && kv->num_kv_heads == 1 && kv->v_dim > 0 &&
               kv->v_dim <= MAX_VALUES && kv->v_dim % PIECE == 0 && kv->head_dim <= WIDTH && kv->head_dim % PIECE == 0;
  bool pairs =
      a->q.ld % 2 == 0 && a->out.ld % 2 == 0 && (uintptr_t)a->q.data % 8 == 0 && (uintptr_t)a->out.data % 8 == 0;
  return plain && cache && pairs && has_room<1>();
}

static int chunks_of(const tri_attention_args *a, int tiles) { return (a->num_heads + 16 * tiles - 1) / (16 * tiles); }

/* The place of a piece in a tile: exchanged so that eight rows of one column lie in different banks. */
__device__ static inline int place(int row, int chunk) { return (row * CHUNKS + (chunk ^ (row & 7))) * PIECE; }

/* Returns the offset of a key; LATER and below stand for one that the previous kernel has yet to write. */
__device__ static inline int64_t locate_key(const tri_attention_args &a, const view &v, int key, int end, bool early) {
  if (key >= end) return NO_KEY;
  int64_t slot = (int64_t)v.kv_blocks[key / a.kv.block_size] * a.kv.block_size + key % a.kv.block_size;
  return early && may_be_new(a, key, v.last) ? LATER - slot * a.kv.head_dim : slot * a.kv.head_dim;
}

/* The rows of a tile that were there before the step, or those that come later. What lies after a row, and rows
 * without a key, are zeros: they are multiplied, too. */
template <typename T, int TILES>
__device__ static inline void fetch_rows(const tri_attention_args &a, const int64_t *offsets, bool later, T *tile) {
  using x = extent<TILES>;
  int lane = threadIdx.x % ROW_LANES, left = a.kv.head_dim / PIECE - lane;
#pragma unroll
  for (int i = 0; i < x::KEYS * ROW_LANES / x::THREADS; i++) {
    int row = i * (x::THREADS / ROW_LANES) + (int)threadIdx.x / ROW_LANES;
    int64_t at = offsets[row];
    if ((at <= LATER) != later) continue;
    if (later) at = LATER - at;
    const T *from = (const T *)a.kv.k + (at >= 0 ? at : 0) + lane * PIECE;
    T *to = tile + place(row, lane);
#pragma unroll
    for (int j = 0; j < CHUNKS / ROW_LANES; j++) {
      bool there = at >= 0 && j * ROW_LANES < left;
      copy_async(to + j * ROW_LANES * PIECE, there ? from + j * ROW_LANES * PIECE : (const T *)a.kv.k, there);
    }
  }
}

/* The warp's steps of the heads' queries, which are of type Q: every PARTS-th one. */
template <typename T, typename Q, int TILES>
__device__ static inline void read_heads(const tri_attention_args &a, int t, int head0, int heads,
                                         uint32_t (&q)[TILES][extent<TILES>::OWN_STEPS][4]) {
  using x = extent<TILES>;
  int lane = threadIdx.x % WARP, part = threadIdx.x / WARP / 2, d = a.kv.head_dim;
#pragma unroll
  for (int m = 0; m < 2 * TILES; m++) {
    int row = m * 8 + lane / 4;
    const Q *from = row_of<Q>(a.q, t) + (size_t)(head0 + min(row, heads - 1)) * (size_t)d;
    float2 two[2 * x::OWN_STEPS];
#pragma unroll
    for (int i = 0; i < 2 * x::OWN_STEPS; i++) {
      int column = (i / 2 * x::PARTS + part) * 16 + i % 2 * 8 + lane % 4 * 2;
      two[i] = load2(from + min(column, d - 2));
      if (row >= heads || column >= d) two[i] = make_float2(0, 0);
    }
#pragma unroll
    for (int i = 0; i < 2 * x::OWN_STEPS; i++) q[m / 2][i / 2][m % 2 + i % 2 * 2] = mma<T>::pack(two[i].x, two[i].y);
  }
}

template <typename T, int TILES>
__device__ static inline void load_heads(const tri_attention_args &a, int t, int head0, int heads,
                                         uint32_t (&q)[TILES][extent<TILES>::OWN_STEPS][4]) {
  switch (a.q.dtype) {
  case TRI_F16: read_heads<T, __half, TILES>(a, t, head0, heads, q); break;
  case TRI_BF16: read_heads<T, __nv_bfloat16, TILES>(a, t, head0, heads, q); break;
  default: read_heads<T, float, TILES>(a, t, head0, heads, q); break;
  }
}

/* The warp's half of the keys with its part of their elements.
 *
 * Each part has its own plane of scores: sums of warps meet in soften_tile, in a fixed order, instead of by atomics. */
template <typename T, int TILES>
__device__ static inline void score_part(const uint32_t (&q)[TILES][extent<TILES>::OWN_STEPS][4], const T *tile,
                                         float (*out)[extent<TILES>::PITCH]) {
  using x = extent<TILES>;
  int lane = threadIdx.x % WARP, part = threadIdx.x / WARP / 2, first = threadIdx.x / WARP % 2 * x::OWN_KEYS;
  int row = first + lane / 16 * 8 + lane % 8, piece = 2 * part + lane / 8 % 2;
  float s[x::CHAINS][TILES][2 * TILES][4] = {};
#pragma unroll
  for (int i = 0; i < x::OWN_STEPS; i++) {
    int before = 2 * x::PARTS * i; /* chunks, whose multiples of eight do not take part in the exchange */
    const T *from = tile + place(row, before % 8 + piece) + before / 8 * 8 * PIECE;
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      uint32_t r[4];
      load_matrices(r, from + n * 16 * WIDTH);
#pragma unroll
      for (int m = 0; m < TILES; m++) {
        mma<T>::run(s[i % x::CHAINS][m][2 * n], q[m][i], r[0], r[1]);
        mma<T>::run(s[i % x::CHAINS][m][2 * n + 1], q[m][i], r[2], r[3]);
      }
    }
  }
#pragma unroll
  for (int m = 0; m < 2 * TILES; m++)
#pragma unroll
    for (int n = 0; n < 2 * TILES; n++) {
      const float *own = s[0][m / 2][n] + m % 2 * 2, *more = s[x::CHAINS - 1][m / 2][n] + m % 2 * 2;
      float2 two = x::CHAINS > 1 ? make_float2(own[0] + more[0], own[1] + more[1]) : make_float2(own[0], own[1]);
      *(float2 *)(out[m * 8 + lane / 4] + first + n * 8 + lane % 4 * 2) = two;
    }
}

/* A thread's part of its row: the maximum, in units of log 2, and the sum over its own keys. */
struct softness {
  float max, sum;
};

/* Scores become weights of the values; factors: what the values so far are to be multiplied with. */
template <typename T, int TILES>
__device__ static inline void soften_tile(rooms<T, TILES> &room, softness &r, float factor, int left) {
  using x = extent<TILES>;
  int row = threadIdx.x / ROW_LANES, column = threadIdx.x % ROW_LANES * 4;
  float s[TILES][4], top = r.max, sum = 0;
#pragma unroll
  for (int i = 0; i < TILES; i++) {
    float4 all = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int p = 0; p < x::PARTS; p++) {
      float4 v = *(const float4 *)(room.scores[p][row] + i * 32 + column);
      all.x += v.x;
      all.y += v.y;
      all.z += v.z;
      all.w += v.w;
    }
    s[i][0] = all.x;
    s[i][1] = all.y;
    s[i][2] = all.z;
    s[i][3] = all.w;
#pragma unroll
    for (int j = 0; j < 4; j++) {
      s[i][j] = i * 32 + column + j < left ? s[i][j] * factor : -INFINITY;
      top = fmaxf(top, s[i][j]);
    }
  }
  for (int o = ROW_LANES / 2; o; o /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
  float base = top == -INFINITY ? 0 : top, old = power_of_two(r.max - base);
#pragma unroll
  for (int i = 0; i < TILES; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      s[i][j] = power_of_two(s[i][j] - base);
      sum += s[i][j];
    }
    *(uint2 *)(room.weights[row] + i * 32 + column) =
        make_uint2(mma<T>::pack(s[i][0], s[i][1]), mma<T>::pack(s[i][2], s[i][3]));
  }
  r.max = top;
  r.sum = r.sum * old + sum;
  if (!column) room.factors[row] = old;
}

/* The warp's columns of the values: every WARPS-th group of 16. */
template <typename T, int TILES>
__device__ static inline void add_tile(const rooms<T, TILES> &room, const T *tile,
                                       float (&out)[TILES][2 * extent<TILES>::GROUPS][4]) {
  using x = extent<TILES>;
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
  for (int m = 0; m < TILES; m++) {
    float low = room.factors[m * 16 + lane / 4], high = room.factors[m * 16 + 8 + lane / 4];
#pragma unroll
    for (int n = 0; n < 2 * x::GROUPS; n++) {
      out[m][n][0] *= low;
      out[m][n][1] *= low;
      out[m][n][2] *= high;
      out[m][n][3] *= high;
    }
  }
  const T *from = tile + place(lane % 16, 2 * warp + lane / 16);
#pragma unroll
  for (int k = 0; k < x::KEYS / 16; k++) {
    uint32_t p[TILES][4];
#pragma unroll
    for (int m = 0; m < TILES; m++) load_matrices(p[m], room.weights[m * 16 + lane % 16] + k * 16 + lane / 16 * 8);
#pragma unroll
    for (int g = 0; g < x::GROUPS; g++) {
      uint32_t r[4];
      load_transposed(r, from + k * 16 * WIDTH + g * x::WARPS * 16);
#pragma unroll
      for (int m = 0; m < TILES; m++) {
        mma<T>::run(out[m][2 * g], p[m], r[0], r[1]);
        mma<T>::run(out[m][2 * g + 1], p[m], r[2], r[3]);
      }
    }
  }
}

/* Stores two elements of a matrix of any type, which begin with number `at` of all. */
__device__ static inline void store_pair(const tri_mat &m, size_t at, float2 x) {
  switch (m.dtype) {
  case TRI_F16: *(uint32_t *)((__half *)m.data + at) = mma<__half>::pack(x.x, x.y); break;
  case TRI_BF16: *(uint32_t *)((__nv_bfloat16 *)m.data + at) = mma<__nv_bfloat16>::pack(x.x, x.y); break;
  default: *(float2 *)(m.data + at) = x; break;
  }
}

/* To the output where there is one split, else to where the splits meet, with maxima that are natural logarithms. */
template <typename T, int TILES>
__device__ static inline void put_heads(const tri_attention_args &a, const meeting &s, rooms<T, TILES> &room,
                                        const softness &r, int t, int head0, int heads,
                                        const float (&out)[TILES][2 * extent<TILES>::GROUPS][4]) {
  using x = extent<TILES>;
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, d = a.kv.v_dim, own = threadIdx.x / ROW_LANES;
  float sum = r.sum;
  for (int o = ROW_LANES / 2; o; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (threadIdx.x % ROW_LANES == 0) {
    room.factors[own] = s.splits == 1 ? 1 / sum : 1;
    if (s.splits > 1 && own < heads)
      *(float2 *)(split_at(a, s, head0 + own, (int)blockIdx.y) + d) = make_float2(r.max / LOG2E, sum);
  }
  __syncthreads();
#pragma unroll
  for (int m = 0; m < 2 * TILES; m++) {
    int row = m * 8 + lane / 4, head = head0 + row;
    if (row >= heads) continue;
    float factor = room.factors[row];
    float *part = s.splits > 1 ? split_at(a, s, head, (int)blockIdx.y) : NULL;
    size_t at = (size_t)t * (size_t)a.out.ld + (size_t)head * (size_t)d;
#pragma unroll
    for (int n = 0; n < 2 * x::GROUPS; n++) {
      int column = (n / 2 * x::WARPS + warp) * 16 + n % 2 * 8 + lane % 4 * 2;
      if (column >= d) continue;
      float2 two = make_float2(out[m / 2][n][m % 2 * 2] * factor, out[m / 2][n][m % 2 * 2 + 1] * factor);
      if (part)
        *(float2 *)(part + column) = two;
      else
        store_pair(a.out, at + (size_t)column, two);
    }
  }
}

/* Merges the splits of a context's heads, which are the blocks of a cluster: each one leaves its results in its shared
 * memory, where the tiles were. */
template <typename T, int TILES>
__device__ static inline void join_heads(const tri_attention_args &a, rooms<T, TILES> &room, const softness &r, int t,
                                         int head0, int heads,
                                         const float (&out)[TILES][2 * extent<TILES>::GROUPS][4]) {
  using x = extent<TILES>;
  static_assert(row_bytes<MAX_VALUES>(x::ROWS) <= sizeof room.tiles, "results take the place of tiles");
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  float *rows = (float *)room.tiles, sum = r.sum;
  for (int o = ROW_LANES / 2; o; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (threadIdx.x % ROW_LANES == 0)
    *(float2 *)(row_at_width<MAX_VALUES>(rows, threadIdx.x / ROW_LANES) + MAX_VALUES) = make_float2(r.max, sum);
#pragma unroll
  for (int m = 0; m < 2 * TILES; m++)
#pragma unroll
    for (int n = 0; n < 2 * x::GROUPS; n++) {
      int column = (n / 2 * x::WARPS + warp) * 16 + n % 2 * 8 + lane % 4 * 2;
      *(float2 *)(row_at_width<MAX_VALUES>(rows, m * 8 + lane / 4) + column) =
          make_float2(out[m / 2][n][m % 2 * 2], out[m / 2][n][m % 2 * 2 + 1]);
    }
  join_rows<x::THREADS, MAX_VALUES>(a, rows, t, head0, heads);
}

/* Attention over a latent cache. q [T, heads * head_dim], out [T, heads * v_dim], partial results [N, heads, splits,
 * v_dim + 4]. Grid (N * chunks of 16 * TILES heads, splits), 128 * TILES threads, in clusters of all splits where
 * joined, which leave no partial results. parts [N]: the batch's single tokens, while the kernel of the others may
 * still run; NULL: N is T, all tokens. Shared memory: rooms, 79 KiB with one tile (two blocks on a multiprocessor) and
 * 186 KiB with two.
 *
 * Three barriers to a tile: it is there, and no warp reads the other stage any more, into which the next one is
 * fetched; the scores are complete; the weights are. */
template <typename T, int TILES>
__global__ __launch_bounds__(128 * TILES,
                             2 / TILES) static void latent_mma_kernel(tri_attention_args a, tri_batch b, meeting s,
                                                                      const tri_attention_part *parts, int chunks,
                                                                      bool early, bool joined) {
  using x = extent<TILES>;
  constexpr int KEYS = x::KEYS;
  extern __shared__ __align__(128) char space[];
  rooms<T, TILES> &room = *(rooms<T, TILES> *)space;
  let_next_begin();
  int number = blockIdx.x / chunks, t = parts ? parts[number].row : number, head0 = blockIdx.x % chunks * x::ROWS,
      heads = min(x::ROWS, a.num_heads - head0), thread = threadIdx.x;
  view v = view_of(a, b, t);
  s.base = number * s.splits;
  int each = ((v.last + KEYS) / KEYS + s.splits - 1) / s.splits * KEYS;
  int begin = (int)blockIdx.y * each, end = min(v.last + 1, begin + each);
  if (!early && !parts) wait_for_previous();
  if (thread < STAGES * KEYS) room.offsets[thread / KEYS][thread % KEYS] = locate_key(a, v, begin + thread, end, early);
  __syncthreads();
  for (int i = 0; i < STAGES; i++) fetch_rows<T, TILES>(a, room.offsets[i], false, room.tiles[i]);
  if (early) {
    wait_for_previous();
    for (int i = 0; i < STAGES; i++) fetch_rows<T, TILES>(a, room.offsets[i], true, room.tiles[i]);
  }
  commit_copies();
  uint32_t q[TILES][x::OWN_STEPS][4];
  float out[TILES][2 * x::GROUPS][4] = {};
  softness r = {-INFINITY, 0};
  load_heads<T, TILES>(a, t, head0, heads, q);
  for (int key0 = begin, stage = 0; key0 < end; key0 += KEYS, stage ^= 1) {
    wait_copies<0>();
    __syncthreads(); /* the tile is there, and the one before it has been read */
    if (key0 > begin && key0 + KEYS < end)
      fetch_rows<T, TILES>(a, room.offsets[stage ^ 1], false, room.tiles[stage ^ 1]);
    commit_copies();
    int64_t next = NO_KEY; /* looked up now, for its latency */
    if (thread < KEYS) next = locate_key(a, v, key0 + STAGES * KEYS + thread, end, false);
    score_part<T, TILES>(q, room.tiles[stage], room.scores[thread / WARP / 2]);
    if (thread < KEYS) room.offsets[stage][thread] = next;
    __syncthreads();
    soften_tile<T, TILES>(room, r, a.scale * LOG2E, end - key0);
    __syncthreads();
    add_tile<T, TILES>(room, room.tiles[stage], out);
  }
  wait_copies<0>();
  __syncthreads();
  if (joined)
    join_heads<T, TILES>(a, room, r, t, head0, heads, out);
  else
    put_heads<T, TILES>(a, s, room, r, t, head0, heads, out);
  if (parts) wait_for_previous();
}

/* Merges the splits, a block for each head of each token. partial [N, heads, splits, v_dim + 4] to out [T, heads *
 * v_dim]. Grid N * heads, 128 threads. Shared memory: three floats for each split. */
__global__ __launch_bounds__(MERGE_THREADS) static void merge_kernel(tri_attention_args a, meeting s,
                                                                     const tri_attention_part *parts) {
  __shared__ float room[3 * MAX_SPLITS + 1];
  int number = blockIdx.x / a.num_heads, t = parts ? parts[number].row : number, head = blockIdx.x % a.num_heads;
  let_next_begin();
  s.base = number * s.splits;
  wait_for_previous();
  merge_splits<MERGE_THREADS>(a, s, t, head, 1, room);
}

/* ---- what this device has room for, which both types take as much of ---- */

template <int TILES> static bool has_room(void) {
  return has_room_for<latent_mma_kernel<__half, TILES>>(sizeof(rooms<__half, TILES>));
}

template <int TILES> static int blocks_of(void) {
  return blocks_at_once<latent_mma_kernel<__half, TILES>>(extent<TILES>::THREADS, sizeof(rooms<__half, TILES>));
}

template <int TILES> static int most_joined(void) {
  static const int most = [] {
    constexpr size_t bytes = sizeof(rooms<__half, TILES>);
    cudaError_t e = allow_shared<latent_mma_kernel<__half, TILES>>(bytes);
    if (e != cudaSuccess) return 1;
    return most_together(latent_mma_kernel<__half, TILES>, MAX_JOINED, extent<TILES>::THREADS, bytes);
  }();
  return most;
}

/* Returns true where that many splits of each unit, a token's chunk of heads, are the blocks of a cluster. Only in
 * batches of single tokens: while a prompt's kernel runs, a cluster would wait long for its room. */
static bool joins(const tri_attention_args *a, int tiles, int64_t units, int splits) {
  int most = tiles == 2 ? most_joined<2>() : most_joined<1>();
  return a->batch->max_query <= 1 && splits > 1 && splits <= most && units * splits * tiles <= JOINED_BLOCKS;
}

/* With which the last block would be done first if all contexts were the longest: blocks come in waves. A power of two,
 * and costs are lines over the length, so that a recorded step serves a range of lengths. */
int tri_cuda_latent_mma_splits(const tri_attention_args *a, int rows, int num_sms) {
  int tiles = tiles_of(a), keys = 32 * tiles, best = 1;
  int64_t length = (a->batch->max_context + keys - 1) / keys, units = (int64_t)rows * chunks_of(a, tiles);
  int64_t slots = (int64_t)num_sms * (tiles == 2 ? blocks_of<2>() : blocks_of<1>()), least = INT64_MAX;
  bool mixed = a->batch->num_single && a->batch->max_query > 1 && rows > a->batch->num_single;
  for (int splits = 1; splits <= MAX_SPLITS; splits *= 2) {
    bool joined = joins(a, tiles, units, splits); /* then some may be empty, so that none has two tiles */
    if (splits > 1 && (splits > (joined ? 2 * length - 1 : length) || (int64_t)rows * splits > TRI_CUDA_SPLIT_ROWS))
      break;
    int64_t waves = (units * splits + slots - 1) / slots,
            cost = waves * (length * tiles * MAX_SPLITS / splits + ENDS * MAX_SPLITS);
    if (joined)
      cost += JOINING * MAX_SPLITS;
    else if (splits > 1)
      cost += (MERGING + splits / 16) * MAX_SPLITS;
    if (cost < least || (mixed && length * 2 > LONG * splits)) {
      least = cost;
      best = splits;
    }
  }
  return best;
}

template <typename T, int TILES>
static cudaError_t start(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split *singles,
                         const meeting &s) {
  using x = extent<TILES>;
  static_assert(x::PARTS * x::OWN_STEPS == STEPS && x::THREADS == x::ROWS * ROW_LANES, "all is covered");
  constexpr size_t bytes = sizeof(rooms<T, TILES>);
  int chunks = chunks_of(&a, TILES), rows = singles ? singles->num_parts : a.q.rows;
  const tri_attention_part *parts = singles ? singles->parts : NULL;
  bool early = has_early_keys(a) && !singles;
  bool joined = joins(&a, TILES, (int64_t)rows * chunks, s.splits);
  cudaError_t e = allow_shared<latent_mma_kernel<T, TILES>>(bytes);
  if (e != cudaSuccess) return e;
  launch_together(latent_mma_kernel<T, TILES>, dim3(rows * chunks, s.splits), joined ? s.splits : 1, x::THREADS, bytes,
                  stream, a, *a.batch, s, parts, chunks, early, joined);
  if (s.splits > 1 && !joined)
    launch_overlapped(merge_kernel, dim3(rows * a.num_heads), MERGE_THREADS, 0, stream, a, s, parts);
  return cudaSuccess;
}

cudaError_t tri_cuda_latent_mma(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *singles,
                                float *partial, int splits) {
  meeting s = {partial, NULL, splits, 0};
  bool wide = tiles_of(a) == 2;
  if (a->kv.dtype == TRI_BF16)
    return wide ? start<__nv_bfloat16, 2>(stream, *a, singles, s) : start<__nv_bfloat16, 1>(stream, *a, singles, s);
  return wide ? start<__half, 2>(stream, *a, singles, s) : start<__half, 1>(stream, *a, singles, s);
}
