/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of single tokens over 16-bit keys and values on tensor cores: the query heads of one KV head are the
 * 16 rows of a warp, and the four warps of a block take a quarter of each tile of keys; their results are merged at the
 * end, and those of the splits of a long context by the last of its blocks (attention/split_kv.cuh), or those of a
 * short one in a cluster (attention/cluster_merge.cuh).
 *
 * A step has few such blocks and waits for each of them, so what counts is the chain of latencies after the previous
 * kernel. All but the newest keys were there before the step, and the first tiles of them are fetched before the wait.
 */
#include "kernels/cuda/attention/cluster_merge.cuh"
#include "kernels/cuda/attention/tiles.cuh"

enum { HEADS = TRI_CUDA_DECODE_MMA_HEADS, OWN_KEYS = 16, MAX_HEAD_DIM = 128 };

static int chunks_of(const tri_attention_args *a) { return (tri_most_heads(a) + HEADS - 1) / HEADS; }

/* ---- keys and queries ---- */

/* Returns the offset of this thread's key of the first tiles, which have one for each thread. *later: the kernel before
 * may still have to write that key (`early`), so that only fetch_later may copy it. */
__device__ static inline int64_t locate_first(const tri_attention_args &a, const tri_attention_part &p,
                                              const int32_t *kv_blocks, int kv_head, int key, int end, bool early,
                                              bool *later) {
  *later = key < end && early && may_be_new(a, key, p.position);
  return key < end ? (int64_t)kv_offset(a.kv, kv_blocks, key, kv_head) : NO_KEY;
}

/* Those of the warp's rows that were left out: a row of keys and one of values at once, or half of each. */
template <typename T, int DEPTH>
__device__ static inline void fetch_later(const tri_attention_args &a, int64_t offset, bool later, T *keys, T *values) {
  constexpr int CHUNKS = DEPTH * 2, TILE = shape<DEPTH>::TILE, KEYS = shape<DEPTH>::KEYS;
  int lane = threadIdx.x % WARP, row0 = threadIdx.x / WARP * WARP;
  for (uint32_t left = __ballot_sync(0xffffffffu, later); left; left &= left - 1) {
    int from_lane = __ffs((int)left) - 1, row = row0 + from_lane;
    int64_t from = __shfl_sync(0xffffffffu, offset, from_lane);
    for (int i = lane; i < 2 * CHUNKS; i += WARP) {
      int chunk = i % CHUNKS;
      bool there = chunk * PIECE < a.kv.head_dim;
      T *to = (i < CHUNKS ? keys : values) + row / KEYS * TILE + place<DEPTH>(row % KEYS, chunk);
      const T *rows = (const T *)(i < CHUNKS ? a.kv.k : a.kv.v);
      copy_async(to, rows + (there ? from + chunk * PIECE : 0), there);
    }
  }
}

/* Reads pairs of a row, none of them beyond `last`. Loads are all on their way before the first one is used. */
template <typename Q, int PAIRS> __device__ static inline void read_row(float2 (&x)[PAIRS], const Q *from, int last) {
#pragma unroll
  for (int i = 0; i < PAIRS; i++) x[i] = load2(from + min(i * 8 + (int)threadIdx.x % 4 * 2, last));
}

/* The A operands of the block's heads: rows are heads, and those that another block has, or no one, are zeros. Elements
 * after a head's end are zeros, too, whatever DEPTH rounds it up to. */
template <typename T, int DEPTH>
__device__ static inline void load_heads(const tri_attention_args &a, int t, int head0, int heads,
                                         uint32_t (&q)[DEPTH][4]) {
  int lane = threadIdx.x % WARP, d = a.kv.head_dim;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int row = lane / 4 + h * 8;
    float2 x[DEPTH * 2];
    size_t from = (size_t)(head0 + min(row, heads - 1)) * (size_t)d;
#pragma unroll
    for (int i = 0; i < DEPTH * 2; i++) x[i] = make_float2(0, 0);
    if (h * 8 < heads) {
      switch (a.q.dtype) {
      case TRI_F16: read_row(x, row_of<__half>(a.q, t) + from, d - 2); break;
      case TRI_BF16: read_row(x, row_of<__nv_bfloat16>(a.q, t) + from, d - 2); break;
      default: read_row(x, row_of<float>(a.q, t) + from, d - 2); break;
      }
    }
#pragma unroll
    for (int i = 0; i < DEPTH * 2; i++) {
      uint32_t two = mma<T>::pack(x[i].x, x[i].y);
      q[i / 2][h + i % 2 * 2] = row < heads && i * 8 + lane % 4 * 2 < d ? two : 0;
    }
  }
}

/* ---- the warps' results ---- */

/* A warp's row in shared memory. The block's, where it is to be joined with others, lie after those of its warps. */
template <int DEPTH> __device__ static inline float *row_in(float *room, int warp, int row) {
  return row_at_width<DEPTH * 16>(room, warp * HEADS + row);
}

/* Leaves a warp's rows in shared memory. Their maxima are known to all four lanes of a row already; each lane's sum has
 * its own columns alone. */
template <int DEPTH> __device__ static inline void put_rows(rows_state<DEPTH> &r, int heads, float *room) {
  int lane = threadIdx.x % WARP;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    int row = lane / 4 + h * 8;
    float *to = row_in<DEPTH>(room, threadIdx.x / WARP, row), sum = r.sum[h];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (row >= heads) continue;
    if (lane % 4 == 0) *(float2 *)(to + DEPTH * 16) = make_float2(r.max[h], sum);
#pragma unroll
    for (int d = 0; d < DEPTH * 2; d++)
      *(float2 *)(to + d * 8 + lane % 4 * 2) = make_float2(r.out[d][2 * h], r.out[d][2 * h + 1]);
  }
}

/* The warps' rows in their order: to the output where there is one split, else to where the splits are joined, or to
 * where they meet, with maxima that are natural logarithms. The first joined split has the sink's share. */
template <int DEPTH>
__device__ static inline void merge_warps(const tri_attention_args &a, const meeting &m, float *room, int t, int split,
                                          int head0, int heads) {
  int d = a.kv.head_dim, fours = d / 4;
  bool joined = gridDim.y > 1;
  for (int i = threadIdx.x; i < heads * fours; i += TILE_THREADS) {
    int row = i / fours, e = i % fours * 4, head = head0 + row;
    float2 stats[TILE_WARPS];
    float4 x = make_float4(0, 0, 0, 0);
    float sink = a.sinks && m.splits == 1 && !blockIdx.y ? a.sinks[head] * LOG2E : -INFINITY, top = sink;
#pragma unroll
    for (int w = 0; w < TILE_WARPS; w++) {
      stats[w] = *(const float2 *)(row_in<DEPTH>(room, w, row) + DEPTH * 16);
      top = fmaxf(top, stats[w].x);
    }
    float base = top == -INFINITY ? 0 : top, sum = exp2f(sink - base);
#pragma unroll
    for (int w = 0; w < TILE_WARPS; w++) {
      float4 v = *(const float4 *)(row_in<DEPTH>(room, w, row) + e);
      float factor = exp2f(stats[w].x - base);
      x.x += v.x * factor;
      x.y += v.y * factor;
      x.z += v.z * factor;
      x.w += v.w * factor;
      sum += stats[w].y * factor;
    }
    if (joined) {
      float *out = row_in<DEPTH>(room, TILE_WARPS, row);
      if (!e) *(float2 *)(out + DEPTH * 16) = make_float2(top, sum);
      *(float4 *)(out + e) = x;
      continue;
    }
    if (m.splits == 1) {
      store_four(a.out, t, (size_t)head * (size_t)d + (size_t)e,
                 make_float4(x.x / sum, x.y / sum, x.z / sum, x.w / sum));
      continue;
    }
    float *out = split_at(a, m, head, split);
    if (!e) *(float2 *)(out + d) = make_float2(top / LOG2E, sum);
    *(float4 *)(out + e) = x;
  }
}

/* Merges the warps' rows in shared memory that no copy goes to any more, and the splits after the last of them, or
 * with those of the cluster. */
template <int DEPTH>
static __device__ __forceinline__ void finish_block(const tri_attention_args &a, const meeting &m, rows_state<DEPTH> &r,
                                                    float *room, int t, int split, int head0, int heads) {
  wait_copies<0>();
  __syncthreads();
  put_rows<DEPTH>(r, heads, room);
  __syncthreads();
  merge_warps<DEPTH>(a, m, room, t, split, head0, heads);
  if (gridDim.y > 1)
    join_rows<TILE_THREADS, DEPTH * 16>(a, row_in<DEPTH>(room, TILE_WARPS, 0), t, head0, heads);
  else if (m.splits > 1 && is_last_split(m))
    merge_splits<TILE_THREADS>(a, m, t, head0, heads, room);
}

/* ---- the kernel ---- */

/* The keys of this block: of a part, or of a split of it that is joined with others. Splits have whole tiles, and there
 * may be none for the last ones. */
__device__ static inline int2 keys_of(const tri_attention_part &p, int tile) {
  int splits = (int)gridDim.y, tiles = (p.end - p.first + tile - 1) / tile; /* splits: a power of two */
  int each = ((tiles + splits - 1) >> (__ffs(splits) - 1)) * tile, first = p.first + (int)blockIdx.y * each;
  return make_int2(first, min(p.end, first + each));
}

/* Attention of single tokens, 16 query heads at a time. q and out [T, heads * d], partial results [parts, heads, d +
 * 4]. Grid (parts, joined splits, KV heads * chunks of 16 heads), 128 threads, in clusters of the joined splits. Shared
 * memory: two stages of a tile of keys and one of values, 32 KiB of heads up to 64 elements and 64 KiB above, where the
 * results lie at the end.
 *
 * early: all sequences have one token, so that most keys cannot be new, and are fetched before the wait. The last
 * argument is as in attention/decode.cu. Neither waits at the usual place.
 *
 * At the top of the loop the tile of `stage` is on its way or there, and so is the next one in the other stage. A tile
 * is fetched two rounds before its use: the addresses of its keys are looked up while another one is multiplied,
 * because a block table's entry is a load of its own. */
template <typename T, int DEPTH, bool PLAIN>
__global__ __launch_bounds__(TILE_THREADS) static void decode_mma_kernel(tri_attention_args a, tri_batch b, meeting m,
                                                                         const tri_attention_part *parts, int chunks,
                                                                         bool early, bool beside) {
  constexpr int KEYS = shape<DEPTH>::KEYS, TILE = shape<DEPTH>::TILE;
  extern __shared__ __align__(128) char room[];
  __shared__ int64_t offsets[STAGES][KEYS];
  static_assert(STAGES * KEYS == TILE_THREADS, "the first tiles have a key for each thread");
  let_next_begin();
  T *keys = (T *)room, *values = keys + STAGES * TILE;
  /* An empty place does not wait for the previous kernel: there are blocks of this one that do. */
  const tri_attention_part p = part_of(parts, m);
  if (p.row < 0) return;
  int t = p.row, kv_head = blockIdx.z / chunks, chunk = blockIdx.z % chunks, warp = threadIdx.x / WARP;
  tri_heads of_kv = tri_heads_of(&a, kv_head);
  int head0 = of_kv.first + chunk * HEADS, heads = min((int)HEADS, of_kv.count - chunk * HEADS);
  if (heads <= 0) return; /* a KV head with fewer chunks than others */
  const int32_t *kv_blocks = b.block_table + p.blocks;
  const int2 own_keys = keys_of(p, KEYS);
  const int begin = own_keys.x, end = own_keys.y, lane = threadIdx.x % WARP;
  if (!early && !beside) wait_for_previous();
  bool later;
  int64_t offset = locate_first(a, p, kv_blocks, kv_head, begin + (int)threadIdx.x, end, early, &later);
  offsets[threadIdx.x / KEYS][threadIdx.x % KEYS] = later ? LATER : offset;
  __syncthreads();
  fetch<T, DEPTH>(a, offsets[0], keys, values);
  commit_copies();
  fetch<T, DEPTH>(a, offsets[1], keys + TILE, values + TILE);
  if (early) wait_for_previous();
  fetch_later<T, DEPTH>(a, offset, later, keys, values);
  commit_copies();
  sight sees[2];
  for (int h = 0; h < 2; h++) sees[h] = {p.position, begin, end - 1, head0 + min(heads - 1, lane / 4 + h * 8)};
  uint32_t q[DEPTH][4];
  rows_state<DEPTH> r;
  clear(r);
  load_heads<T, DEPTH>(a, t, head0, heads, q);
  const int own = warp * OWN_KEYS * shape<DEPTH>::CHUNKS * PIECE; /* where the warp's keys begin in a tile */
  for (int key0 = begin, stage = 0; key0 < end; key0 += KEYS, stage ^= 1) {
    bool next_may_come = key0 + KEYS < end && !(early && key0 == begin); /* it came with the first one's last rows */
    if (next_may_come)
      wait_copies<1>();
    else
      wait_copies<0>();
    __syncthreads();
    int64_t next = NO_KEY; /* looked up now, for its latency */
    int next_key = key0 + STAGES * KEYS + (int)threadIdx.x;
    if (threadIdx.x < KEYS && next_key < end) next = (int64_t)kv_offset(a.kv, kv_blocks, next_key, kv_head);
    float s[OWN_KEYS / 8][4];
    scores<T, DEPTH, OWN_KEYS>(s, q, keys + stage * TILE + own);
    finish_scores<OWN_KEYS, PLAIN>(a, s, key0 + warp * OWN_KEYS, sees, key0 + KEYS <= end);
    soften<DEPTH, OWN_KEYS>(r, s);
    add_values<T, DEPTH, OWN_KEYS>(r, s, values + stage * TILE + own);
    if (key0 + STAGES * KEYS < end) {
      if (threadIdx.x < KEYS) offsets[stage][threadIdx.x] = next;
      __syncthreads(); /* the stage has been read, and where its next keys are is known */
      fetch<T, DEPTH>(a, offsets[stage], keys + stage * TILE, values + stage * TILE);
    }
    commit_copies();
  }
  finish_block<DEPTH>(a, m, r, (float *)room, t, p.split, head0, heads);
  if (beside) wait_for_previous();
}

template <typename T, int DEPTH, bool PLAIN>
static cudaError_t start(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split,
                         const meeting &m) {
  constexpr size_t bytes = shape<DEPTH>::BYTES;
  static_assert(shape<DEPTH>::KEYS == TILE_WARPS * OWN_KEYS, "a tile has a quarter for each warp");
  static_assert((int)shape<DEPTH>::KEYS == (int)TRI_CUDA_DECODE_MMA_KEYS, "contexts are cut between tiles");
  static_assert(row_bytes<DEPTH * 16>((TILE_WARPS + 1) * HEADS) <= bytes, "all rows fit where tiles were");
  static_assert((3 * TRI_CUDA_DECODE_MMA_SPLITS + 1) * HEADS * sizeof(float) <= bytes, "and so do the parts' factors");
  int chunks = chunks_of(&a);
  bool beside = split.num_tiles > 0, early = has_early_keys(a) && !beside;
  cudaError_t e = allow_shared<decode_mma_kernel<T, DEPTH, PLAIN>>(bytes);
  if (e == cudaSuccess)
    launch_together(decode_mma_kernel<T, DEPTH, PLAIN>, dim3(split.num_parts, split.joined, a.kv.num_kv_heads * chunks),
                    split.joined, TILE_THREADS, bytes, stream, a, *a.batch, m, split.parts, chunks, early, beside);
  return e;
}

template <typename T, int DEPTH>
static cudaError_t start_plain(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split,
                               const meeting &m) {
  bool plain = a.softcap <= 0 && !a.alibi_slopes && !a.position_bias;
  return plain ? start<T, DEPTH, true>(stream, a, split, m) : start<T, DEPTH, false>(stream, a, split, m);
}

template <typename T>
static cudaError_t start_depth(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split,
                               const meeting &m) {
  return a.kv.head_dim <= 64 ? start_plain<T, 4>(stream, a, split, m) : start_plain<T, 8>(stream, a, split, m);
}

/* Heads of the largest size take as much room as any, of both types. */
bool tri_cuda_decode_mma_fits(const tri_attention_args *a) {
  return tri_cuda_16bit_tiles_fit(a) && a->kv.head_dim <= MAX_HEAD_DIM &&
         has_room_for<decode_mma_kernel<__half, 8, false>>(shape<8>::BYTES);
}

int tri_cuda_decode_mma_blocks(int head_dim) {
  if (head_dim <= 64) return blocks_at_once<decode_mma_kernel<__nv_bfloat16, 4, true>>(TILE_THREADS, shape<4>::BYTES);
  return blocks_at_once<decode_mma_kernel<__nv_bfloat16, 8, true>>(TILE_THREADS, shape<8>::BYTES);
}

int tri_cuda_decode_mma_joined(void) {
  constexpr size_t bytes = shape<8>::BYTES;
  static const int joined = [] {
    cudaError_t e = allow_shared<decode_mma_kernel<__nv_bfloat16, 8, true>>(bytes);
    return e == cudaSuccess ? most_together(decode_mma_kernel<__nv_bfloat16, 8, true>, MAX_JOINED, TILE_THREADS, bytes)
                            : 1;
  }();
  return joined;
}

cudaError_t tri_cuda_decode_mma(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *split,
                                float *partial, unsigned *counters) {
  meeting m = {partial, counters, 1, 0};
  return a->kv.dtype == TRI_BF16 ? start_depth<__nv_bfloat16>(stream, *a, *split, m)
                                 : start_depth<__half>(stream, *a, *split, m);
}
