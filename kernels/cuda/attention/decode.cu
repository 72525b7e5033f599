/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of single tokens over long contexts, which are cut into splits for several blocks (attention/split_kv.cuh).
 *
 * A block has a token, a KV head with up to MAX_GROUP of its query heads, and a split. A key's row is read by as many
 * neighbouring lanes as it has 16-byte pieces, so that a warp reads whole lines; each such set of lanes has a running
 * maximum, sum and weighted values of its own for every query head, merged once at the end.
 *
 * Registers decide the sizes: for each query head a lane has 8 elements of the query, 8 weighted values, a maximum and
 * a sum, which makes four heads (MAX_GROUP) with four blocks on a multiprocessor. Products run on the ordinary units:
 * float32 caches come this way, which tensor cores would round. Heads of 16 bits mostly have
 * attention/decode_mma.cu or attention/wide_mma.cu. */
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/split_kv.cuh"

enum { THREADS = 128, MAX_GROUP = TRI_CUDA_DECODE_HEADS };

/* Lanes of a key: a power of two. */
static int lanes_for(int head_dim) {
  int lanes = 1;
  while (lanes * PIECE < head_dim) lanes *= 2;
  return lanes;
}

bool tri_cuda_decode_fits(const tri_attention_args *a) {
  return a->kv.head_dim % PIECE == 0 && a->kv.head_dim <= WARP * PIECE && !a->kv.v_dim;
}

static int chunks_of(const tri_attention_args *a) { return (tri_most_heads(a) + MAX_GROUP - 1) / MAX_GROUP; }

size_t tri_cuda_split_workspace(const tri_attention_args *a, int parts) {
  size_t pitch = (size_t)value_dim(*a) + SPLIT_EXTRA;
  return (size_t)parts * (size_t)a->num_heads * pitch * sizeof(float);
}

/* Running results of some query heads: of a set of lanes, or of more. */
template <int GROUP> struct running { float max[GROUP], sum[GROUP], acc[GROUP][PIECE]; };

/* Adds a part with its own maximum. Where neither has seen a key there is nothing to add: the difference of two
 * -infinities is not a number. */
template <int GROUP>
__device__ static inline void merge(running<GROUP> &r, int g, float max, float sum, const float *acc) {
  float top = fmaxf(r.max[g], max);
  if (top == -INFINITY) return;
  float old = expf(r.max[g] - top), fresh = expf(max - top);
  r.max[g] = top;
  r.sum[g] = r.sum[g] * old + sum * fresh;
#pragma unroll
  for (int i = 0; i < PIECE; i++) r.acc[g][i] = r.acc[g][i] * old + acc[i] * fresh;
}

/* The warps' results for the query heads from head0 on, in the warps' order: to the output where there is one split,
 * else to where the splits meet. The sink counts once: here for a context that is whole, in merge_splits for one that
 * is cut. */
template <int GROUP>
__device__ static inline void put_heads(const tri_attention_args &a, const meeting &m,
                                        const float (&room)[THREADS / WARP][GROUP][WARP * PIECE + 2], int t, int split,
                                        int head0, int heads) {
  int d = a.kv.head_dim;
  for (int g = 0; g < heads; g++) {
    float *out = m.splits > 1 ? split_at(a, m, head0 + g, split) : NULL;
    float sink = a.sinks && !out ? a.sinks[head0 + g] : -INFINITY, top = sink, sum = 0;
    for (int w = 0; w < THREADS / WARP; w++) top = fmaxf(top, room[w][g][0]);
    if (sink > -INFINITY) sum = expf(sink - top);
    for (int w = 0; w < THREADS / WARP && top > -INFINITY; w++) sum += room[w][g][1] * expf(room[w][g][0] - top);
    if (out && !threadIdx.x) {
      out[d] = top;
      out[d + 1] = sum;
    }
    for (int e = threadIdx.x; e < d; e += THREADS) {
      float x = 0;
      for (int w = 0; w < THREADS / WARP && top > -INFINITY; w++) x += room[w][g][2 + e] * expf(room[w][g][0] - top);
      if (out)
        out[e] = x;
      else
        store_at(a.out, t, (size_t)(head0 + g) * (size_t)d + (size_t)e, x / sum);
    }
  }
}

/* Starts the running results. */
template <int GROUP> static __device__ __forceinline__ void begin_heads(running<GROUP> &r) {
#pragma unroll
  for (int g = 0; g < GROUP; g++) {
    r.max[g] = -INFINITY;
    r.sum[g] = 0;
#pragma unroll
    for (int i = 0; i < PIECE; i++) r.acc[g][i] = 0;
  }
}

/* Reads a lane's piece of the queries of `heads` heads; `row` has the first one's. */
template <int GROUP, typename Q>
static __device__ __forceinline__ void read_heads(float (&q)[GROUP][PIECE], const Q *row, int heads, int d) {
#pragma unroll
  for (int g = 0; g < GROUP; g++)
#pragma unroll
    for (int i = 0; i < PIECE; i++) q[g][i] = g < heads ? (float)row[g * d + i] : 0;
}

template <int GROUP>
static __device__ __forceinline__ void load_heads(float (&q)[GROUP][PIECE], const tri_mat &m, int t, int at, int heads,
                                                  int d) {
  switch (m.dtype) {
  case TRI_F16: read_heads(q, row_of<__half>(m, t) + at, heads, d); break;
  case TRI_BF16: read_heads(q, row_of<__nv_bfloat16>(m, t) + at, heads, d); break;
  default: read_heads(q, row_of<float>(m, t) + at, heads, d); break;
  }
}

/* Merges what the sets of a warp, `lanes` lanes each, have seen: every lane has the warp's afterwards. */
template <int GROUP> static __device__ __forceinline__ void merge_sets(running<GROUP> &r, int lanes) {
  for (int o = lanes; o < WARP; o *= 2)
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
      float max = __shfl_xor_sync(0xffffffffu, r.max[g], o), sum = __shfl_xor_sync(0xffffffffu, r.sum[g], o),
            acc[PIECE];
#pragma unroll
      for (int i = 0; i < PIECE; i++) acc[i] = __shfl_xor_sync(0xffffffffu, r.acc[g][i], o);
      merge(r, g, max, sum, acc);
    }
}

/* Stores a warp's heads: of each the largest score, the sum, and piece `part` of the weighted values. */
template <int GROUP>
static __device__ __forceinline__ void store_warp(float (*room)[WARP * PIECE + 2], const running<GROUP> &r, int part) {
#pragma unroll
  for (int g = 0; g < GROUP; g++) {
    room[g][0] = r.max[g];
    room[g][1] = r.sum[g];
#pragma unroll
    for (int i = 0; i < PIECE; i++) room[g][2 + part * PIECE + i] = r.acc[g][i];
  }
}

/* Attention with up to GROUP query heads of one KV head. q and out [T, heads * d], partial results [parts, heads, d +
 * 4]. Grid (parts, KV heads * chunks of GROUP heads), 128 threads, at least four blocks on a multiprocessor. Shared
 * memory: the warps' results, 4 * GROUP rows of 258 floats. Also: dependent_launch.cuh.
 *
 * The last argument: the kernel of the batch's prompts was launched just before and may still run. It has waited for
 * what wrote the queries and keys, which both read, so this one waits at its end instead of its beginning. */
template <typename T, int GROUP>
__global__ __launch_bounds__(THREADS, 4) static void decode_kernel(tri_attention_args a, tri_batch b, meeting m,
                                                                   const tri_attention_part *parts, int lanes,
                                                                   int chunks, bool beside) {
  __shared__ float room[THREADS / WARP][GROUP][WARP * PIECE + 2];
  static_assert(sizeof room >= (3 * TRI_CUDA_DECODE_SPLITS + 1) * GROUP * sizeof(float), "the parts' factors fit, too");
  let_next_begin();
  tri_attention_part p = part_of(parts, m);
  if (p.row < 0) return;
  int t = p.row, kv_head = blockIdx.y / chunks, chunk = blockIdx.y % chunks, d = a.kv.head_dim;
  tri_heads of_kv = tri_heads_of(&a, kv_head);
  int head0 = of_kv.first + chunk * GROUP, heads = min(GROUP, of_kv.count - chunk * GROUP);
  if (heads <= 0) return; /* a KV head with fewer chunks than others */
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, part = lane % lanes, sets = THREADS / lanes,
      set = threadIdx.x / lanes;
  bool reads = part * PIECE < d;
  const int32_t *kv_blocks = b.block_table + p.blocks;
  if (!beside) wait_for_previous();
  running<GROUP> r;
  float q[GROUP][PIECE];
  begin_heads(r);
  load_heads(q, a.q, t, head0 * d + part * PIECE, reads ? heads : 0, d);
  for (int j0 = p.first; j0 < p.end; j0 += sets) { /* the same number of rounds for every lane of a warp */
    int j = j0 + set;
    bool there = j < p.end;
    float k[PIECE] = {0}, value[PIECE] = {0};
    if (there && reads) {
      size_t at = kv_offset(a.kv, kv_blocks, j, kv_head) + (size_t)(part * PIECE);
      piece<T> raw_k, raw_v;
      raw_k.load((const T *)a.kv.k + at);
      raw_v.load((const T *)a.kv.v + at);
      raw_k.widen(k);
      raw_v.widen(value);
    }
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
      float s = 0;
#pragma unroll
      for (int i = 0; i < PIECE; i++) s += q[g][i] * k[i];
      for (int o = lanes / 2; o; o /= 2) s += __shfl_xor_sync(0xffffffffu, s, o);
      if (!there || g >= heads) continue;
      s = adjust(a, s, head0 + g, j, p.position);
      float top = fmaxf(r.max[g], s), old = expf(r.max[g] - top), weight = expf(s - top);
      r.max[g] = top;
      r.sum[g] = r.sum[g] * old + weight;
#pragma unroll
      for (int i = 0; i < PIECE; i++) r.acc[g][i] = r.acc[g][i] * old + weight * value[i];
    }
  }
  merge_sets(r, lanes);
  if (lane < lanes) store_warp(room[warp], r, part);
  __syncthreads();
  put_heads<GROUP>(a, m, room, t, p.split, head0, heads);
  if (m.splits > 1 && is_last_split(m)) merge_splits<THREADS>(a, m, t, head0, heads, &room[0][0][0]);
  if (beside) wait_for_previous();
}

template <typename T>
static void decode(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split,
                   const meeting &m) {
  int lanes = lanes_for(a.kv.head_dim), chunks = chunks_of(&a);
  dim3 grid(split.num_parts, a.kv.num_kv_heads * chunks);
  bool beside = split.num_tiles > 0;
  if (tri_most_heads(&a) == 1)
    launch_overlapped(decode_kernel<T, 1>, grid, THREADS, 0, stream, a, *a.batch, m, split.parts, lanes, 1, beside);
  else
    launch_overlapped(decode_kernel<T, MAX_GROUP>, grid, THREADS, 0, stream, a, *a.batch, m, split.parts, lanes, chunks,
                      beside);
}

void tri_cuda_decode(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *split, float *partial,
                     unsigned *counters) {
  meeting m = {partial, counters, 1, 0};
  switch (a->kv.dtype) {
  case TRI_BF16: decode<__nv_bfloat16>(stream, *a, *split, m); break;
  case TRI_F16: decode<__half>(stream, *a, *split, m); break;
  default: decode<float>(stream, *a, *split, m); break;
  }
}
