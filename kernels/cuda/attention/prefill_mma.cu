/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of prompts over 16-bit keys and values: a block has ROWS tokens of one sequence and one query head, a warp
 * 16 of them.
 *
 * Used where attention/prefill_wgmma.cu has no code: on devices before Hopper, and for shapes that it does not take.
 * Each query head reads its KV head's tiles for itself: heads come first in the grid, so that those of one KV head run
 * at about the same time and find the tiles in the second-level cache.
 *
 * Tiles are double-buffered with cp.async: while one is multiplied, the next is on its way, and the offsets of the one
 * after it are looked up. A tile after the end has no keys and is filled with zeros, so that each round commits exactly
 * one group and the wait for all but one is right in the last round, too. */
#include "kernels/cuda/attention/tiles.cuh"

enum { THREADS = TILE_THREADS, ROWS = TILE_WARPS * 16 };
static_assert((int)ROWS == (int)TRI_CUDA_PREFILL_ROWS, "prompts are cut into tiles of as many rows");

bool tri_cuda_16bit_tiles_fit(const tri_attention_args *a) {
  return (a->kv.dtype == TRI_BF16 || a->kv.dtype == TRI_F16) && a->kv.head_dim % PIECE == 0 &&
         a->kv.head_dim <= MAX_DEPTH * 16 && !a->kv.v_dim && a->q.ld % 2 == 0 && a->out.ld % 2 == 0 &&
         (uintptr_t)a->q.data % 8 == 0 && (uintptr_t)a->out.data % 8 == 0 &&
         (a->out.dtype == TRI_F32 || a->out.dtype == a->kv.dtype);
}

/* Loads a warp's 16 rows as A operands (mma.cuh): register i of step d has row lane / 4 + 8 (i % 2) and the two columns
 * 16 d + 8 (i / 2) + 2 (lane % 4). Rows and columns that are not there are zeros. */
template <typename T, int DEPTH, typename Q>
__device__ static inline void read_queries(const tri_attention_args &a, const tri_attention_tile &t, int head,
                                           uint32_t (&q)[DEPTH][4]) {
  int lane = threadIdx.x % WARP, row0 = threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
  for (int d = 0; d < DEPTH; d++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int row = row0 + i % 2 * 8, column = d * 16 + i / 2 * 8 + lane % 4 * 2;
      bool there = row < t.rows && column < a.kv.head_dim;
      const Q *from = row_of<Q>(a.q, t.row + (there ? row : 0)) + (size_t)head * (size_t)a.kv.head_dim;
      float2 x = there ? load2(from + column) : make_float2(0, 0);
      q[d][i] = mma<T>::pack(x.x, x.y);
    }
}

template <typename T, int DEPTH>
__device__ static inline void load_queries(const tri_attention_args &a, const tri_attention_tile &t, int head,
                                           uint32_t (&q)[DEPTH][4]) {
  switch (a.q.dtype) {
  case TRI_F16: read_queries<T, DEPTH, __half>(a, t, head, q); break;
  case TRI_BF16: read_queries<T, DEPTH, __nv_bfloat16>(a, t, head, q); break;
  default: read_queries<T, DEPTH, float>(a, t, head, q); break;
  }
}

/* Divides by the sums, which are spread over the four lanes of a row until now. */
template <typename T, int DEPTH>
__device__ static inline void store_rows(const tri_attention_args &a, const tri_attention_tile &t, int head,
                                         rows_state<DEPTH> &r) {
  int lane = threadIdx.x % WARP, row0 = threadIdx.x / WARP * 16 + lane / 4;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float sum = r.sum[h];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (row0 + h * 8 >= t.rows) continue;
    size_t at = (size_t)(t.row + row0 + h * 8) * (size_t)a.out.ld + (size_t)head * (size_t)a.kv.head_dim;
#pragma unroll
    for (int d = 0; d < DEPTH * 2; d++) {
      int column = d * 8 + lane % 4 * 2;
      float low = r.out[d][2 * h] / sum, high = r.out[d][2 * h + 1] / sum;
      if (column >= a.kv.head_dim) continue;
      if (a.out.dtype == TRI_F32)
        *(float2 *)(a.out.data + at + (size_t)column) = make_float2(low, high);
      else
        *(uint32_t *)((T *)a.out.data + at + (size_t)column) = mma<T>::pack(low, high);
    }
  }
}

/* Attention of sequences of more than one token. q and out [T, heads * d]. Grid (heads, tiles of 64 tokens), 128
 * threads. Shared memory: two stages of a tile of keys and one of values, 32 KiB of heads up to 64 elements and 64 KiB
 * above. The kernel of the batch's single tokens may run concurrently. */
template <typename T, int DEPTH, bool PLAIN>
__global__ __launch_bounds__(THREADS) static void prefill_mma_kernel(tri_attention_args a, tri_batch b,
                                                                     const tri_attention_tile *tiles) {
  constexpr int KEYS = shape<DEPTH>::KEYS, TILE = shape<DEPTH>::TILE;
  extern __shared__ __align__(128) char room[];
  __shared__ int64_t offsets[STAGES][KEYS];
  T *keys = (T *)room, *values = keys + STAGES * TILE;
  stamp_begun();
  wait_for_previous();
  let_next_begin_now();
  int head = blockIdx.x, kv_head = tri_kv_head_of(&a, head), lane = threadIdx.x % WARP;
  const tri_attention_tile t = tiles[blockIdx.y];
  const int32_t *kv_blocks = b.block_table + t.blocks;
  const int end = t.end, begin = t.first / KEYS * KEYS;
  const int first_last = tri_last_key(a.causal, a.window, t.position, t.context); /* the last key of the first row */
  sight sees[2];
  for (int h = 0; h < 2; h++) {
    int position = t.position + (int)threadIdx.x / WARP * 16 + lane / 4 + h * 8,
        last = tri_last_key(a.causal, a.window, position, t.context);
    sees[h] = {position, tri_first_key(a.window, a.chunked, position), min(last, t.context - 1), head};
  }
  uint32_t q[DEPTH][4];
  rows_state<DEPTH> r;
  load_queries<T, DEPTH>(a, t, head, q);
  clear(r);
  for (int h = 0; a.sinks && h < 2; h++) {
    r.max[h] = a.sinks[head] * LOG2E;
    r.sum[h] = lane % 4 == 0 ? 1 : 0;
  }
  locate<KEYS>(a, kv_blocks, kv_head, begin, end, offsets[0]);
  __syncthreads();
  fetch<T, DEPTH>(a, offsets[0], keys, values);
  commit_copies();
  locate<KEYS>(a, kv_blocks, kv_head, begin + KEYS, end, offsets[1]);
  for (int key0 = begin, stage = 0; key0 < end; key0 += KEYS, stage ^= 1) {
    __syncthreads(); /* the other stage has been read, and where its next keys are is known */
    fetch<T, DEPTH>(a, offsets[stage ^ 1], keys + (stage ^ 1) * TILE, values + (stage ^ 1) * TILE);
    commit_copies();
    locate<KEYS>(a, kv_blocks, kv_head, key0 + 2 * KEYS, end, offsets[stage]);
    wait_copies<1>();
    __syncthreads();
    float s[KEYS / 8][4];
    scores<T, DEPTH, KEYS>(s, q, keys + stage * TILE);
    /* Every row sees all keys of most tiles: only those at the diagonal, at the end and of windows are masked. */
    bool whole = key0 + KEYS - 1 <= min(first_last, t.context - 1) && a.window <= 0;
    finish_scores<KEYS, PLAIN>(a, s, key0, sees, whole);
    soften<DEPTH, KEYS>(r, s);
    add_values<T, DEPTH, KEYS>(r, s, values + stage * TILE);
  }
  wait_copies<0>();
  store_rows<T, DEPTH>(a, t, head, r);
}

/* Heads of the largest size take as much room as any, of both types. */
bool tri_cuda_prefill_mma_fits(const tri_attention_args *a) {
  constexpr size_t bytes = shape<MAX_DEPTH>::BYTES;
  static_assert(bytes >= shape<8>::BYTES && bytes >= shape<6>::BYTES && bytes >= shape<4>::BYTES, "it is the largest");
  return tri_cuda_16bit_tiles_fit(a) && has_room_for<prefill_mma_kernel<__half, MAX_DEPTH, false>>(bytes);
}

template <typename T, int DEPTH, bool PLAIN>
static cudaError_t start(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split) {
  constexpr size_t bytes = shape<DEPTH>::BYTES;
  dim3 grid(a.num_heads, split.num_tiles);
  cudaError_t e = allow_shared<prefill_mma_kernel<T, DEPTH, PLAIN>>(bytes);
  if (e == cudaSuccess)
    launch_overlapped(prefill_mma_kernel<T, DEPTH, PLAIN>, grid, THREADS, bytes, stream, a, *a.batch, split.tiles);
  return e;
}

template <typename T, int DEPTH>
static cudaError_t start_plain(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split) {
  bool plain = a.softcap <= 0 && !a.alibi_slopes && !a.position_bias;
  constexpr int LARGE = DEPTH <= 8 ? 8 : 16, ANY = DEPTH <= 4 ? 4 : LARGE; /* rarer ones share code */
  return plain ? start<T, DEPTH, true>(stream, a, split) : start<T, ANY, false>(stream, a, split);
}

template <typename T>
static cudaError_t start_depth(cudaStream_t stream, const tri_attention_args &a, const tri_attention_split &split) {
  int depth = (a.kv.head_dim + 15) / 16;
  if (depth <= 4) return start_plain<T, 4>(stream, a, split);
  if (depth <= 6) return start_plain<T, 6>(stream, a, split);
  if (depth <= 8) return start_plain<T, 8>(stream, a, split);
  return start_plain<T, 16>(stream, a, split);
}

cudaError_t tri_cuda_prefill_mma(cudaStream_t stream, const tri_attention_args *a, const tri_attention_split *split) {
  return a->kv.dtype == TRI_BF16 ? start_depth<__nv_bfloat16>(stream, *a, *split)
                                 : start_depth<__half>(stream, *a, *split);
}
