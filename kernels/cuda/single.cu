/* Attention of single tokens over 16-bit keys and values on tensor cores: the query heads of one KV head are the 16
 * rows of a warp, and the four warps of a block take a quarter of each tile of keys; their results are merged at the
 * end, and those of the splits of a long context by decode.cu's second kernel. */
#include "kernels/cuda/tiles.cuh"

enum { HEADS = 16, OWN_KEYS = 16, MAX_HEAD_DIM = 128, MAX_SPLITS = 64, ENOUGH_BLOCKS = 264 };

bool tri_cuda_single_fits(const tri_attention_args *a) {
  return tri_cuda_prompt_fits(a) && a->heads_per_kv > 0 && a->kv.head_dim <= MAX_HEAD_DIM;
}

static int chunks_of(const tri_attention_args *a) { return (a->heads_per_kv + HEADS - 1) / HEADS; }

/* A power of two: recorded steps serve a range of lengths. */
int tri_cuda_single_splits(const tri_attention_args *a) {
  int units = (a->batch->num_single + 1) * a->kv.num_kv_heads * chunks_of(a), splits = 1;
  int tiles = (a->batch->max_context + shape<8>::KEYS - 1) / shape<8>::KEYS;
  while (2 * splits * units <= ENOUGH_BLOCKS + a->kv.num_kv_heads * splits && splits < tiles && splits < MAX_SPLITS)
    splits *= 2;
  return splits;
}

/* Rows are heads. */
template <typename T, int DEPTH>
__device__ static inline void load_heads(const tri_attention_args &a, int t, int head0, int heads,
                                         uint32_t (&q)[DEPTH][4]) {
  int lane = threadIdx.x % WARP;
#pragma unroll
  for (int d = 0; d < DEPTH; d++)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      int row = lane / 4 + i % 2 * 8, column = d * 16 + i / 2 * 8 + lane % 4 * 2;
      bool there = row < heads && column < a.kv.head_dim;
      const float *from = row_at(a.q, t) + (size_t)(head0 + (there ? row : 0)) * (size_t)a.kv.head_dim;
      float2 x = there ? *(const float2 *)(from + column) : make_float2(0, 0);
      q[d][i] = mma<T>::pack(x.x, x.y);
    }
}

/* A warp's rows in shared memory: maximum, sum, weighted values. */
template <int DEPTH> __device__ static inline float *row_in(float *room, int warp, int row) {
  return room + (warp * HEADS + row) * (DEPTH * 16 + 2);
}

template <int DEPTH> __device__ static inline void put_rows(rows_state<DEPTH> &r, float *room) {
  int lane = threadIdx.x % WARP;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float *to = row_in<DEPTH>(room, threadIdx.x / WARP, lane / 4 + h * 8), sum = r.sum[h];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (lane % 4 == 0) to[0] = r.max[h], to[1] = sum;
#pragma unroll
    for (int d = 0; d < DEPTH * 2; d++) {
      to[2 + d * 8 + lane % 4 * 2] = r.out[d][2 * h];
      to[3 + d * 8 + lane % 4 * 2] = r.out[d][2 * h + 1];
    }
  }
}

/* The warps' rows in their order: to the output where there is one split, else to the splits' partial results, whose
 * maxima are natural logarithms. */
template <int DEPTH>
__device__ static inline void merge_warps(const tri_attention_args &a, float *room, float *partial, int t, int head0,
                                          int heads, int split, int splits) {
  int d = a.kv.head_dim;
  for (int i = threadIdx.x; i < heads * d; i += TILE_THREADS) {
    int row = i / d, e = i % d, head = head0 + row;
    float top = -INFINITY, sum = 0, x = 0;
    if (a.sinks && splits == 1) top = a.sinks[head] * LOG2E;
    for (int w = 0; w < TILE_WARPS; w++) top = fmaxf(top, row_in<DEPTH>(room, w, row)[0]);
    if (a.sinks && splits == 1) sum = exp2f(a.sinks[head] * LOG2E - top);
    for (int w = 0; w < TILE_WARPS && top > -INFINITY; w++) {
      const float *from = row_in<DEPTH>(room, w, row);
      float factor = exp2f(from[0] - top);
      sum += from[1] * factor, x += from[2 + e] * factor;
    }
    if (splits == 1) {
      store_at(a.out, t, (size_t)head * (size_t)d + (size_t)e, x / sum);
      continue;
    }
    float *out =
        partial + (((size_t)t * (size_t)a.num_heads + (size_t)head) * (size_t)splits + (size_t)split) * ((size_t)d + 2);
    if (!e) out[0] = top / LOG2E, out[1] = sum;
    out[2 + e] = x;
  }
}

template <typename T, int DEPTH, bool PLAIN>
__global__ __launch_bounds__(TILE_THREADS) static void single_kernel(tri_attention_args a, tri_batch b, float *partial,
                                                                     int splits, int chunks, bool single) {
  constexpr int KEYS = shape<DEPTH>::KEYS, TILE = shape<DEPTH>::TILE;
  extern __shared__ __align__(128) char room[];
  __shared__ int64_t offsets[STAGES][KEYS];
  let_next_begin();
  wait_for_previous();
  T *keys = (T *)room, *values = keys + STAGES * TILE;
  int t = blockIdx.x, kv_head = blockIdx.y / chunks, chunk = blockIdx.y % chunks, warp = threadIdx.x / WARP;
  int head0 = kv_head * a.heads_per_kv + chunk * HEADS, heads = min((int)HEADS, a.heads_per_kv - chunk * HEADS);
  view v = view_of(a, b, t);
  if (single && v.tokens > 1) return;
  int tiles = (v.last - v.first + KEYS) / KEYS, each = (tiles + splits - 1) / splits * KEYS;
  int begin = v.first + (int)blockIdx.z * each, end = min(v.last + 1, begin + each), lane = threadIdx.x % WARP;
  sight sees[2];
  for (int h = 0; h < 2; h++) sees[h] = {v.position, begin, end - 1, head0 + min(heads - 1, lane / 4 + h * 8)};
  uint32_t q[DEPTH][4];
  rows_state<DEPTH> r;
  clear(r);
  load_heads<T, DEPTH>(a, t, head0, heads, q);
  locate<KEYS>(a, v.pages, kv_head, begin, end, offsets[0]);
  locate<KEYS>(a, v.pages, kv_head, begin + KEYS, end, offsets[1]);
  __syncthreads();
  fetch<T, DEPTH>(a, offsets[0], keys, values);
  const int own = warp * OWN_KEYS * shape<DEPTH>::CHUNKS * PIECE; /* where the warp's keys begin in a tile */
  for (int key0 = begin, stage = 0; key0 < end; key0 += KEYS, stage ^= 1) {
    __syncthreads(); /* the other stage has been read, and where its next keys are is known */
    fetch<T, DEPTH>(a, offsets[stage ^ 1], keys + (stage ^ 1) * TILE, values + (stage ^ 1) * TILE);
    locate<KEYS>(a, v.pages, kv_head, key0 + 2 * KEYS, end, offsets[stage]);
    wait_copies<1>();
    __syncthreads();
    float s[OWN_KEYS / 8][4];
    scores<T, DEPTH, OWN_KEYS>(s, q, keys + stage * TILE + own);
    finish_scores<OWN_KEYS, PLAIN>(a, s, key0 + warp * OWN_KEYS, sees, key0 + KEYS <= end);
    soften<DEPTH, OWN_KEYS>(r, s);
    add_values<T, DEPTH, OWN_KEYS>(r, s, values + stage * TILE + own);
  }
  wait_copies<0>();
  __syncthreads();
  put_rows<DEPTH>(r, (float *)room);
  __syncthreads();
  merge_warps<DEPTH>(a, (float *)room, partial, t, head0, heads, (int)blockIdx.z, splits);
}

template <typename T, int DEPTH, bool PLAIN>
static cudaError_t start(cudaStream_t stream, const tri_attention_args &a, float *partial, int splits, bool single) {
  constexpr size_t bytes = shape<DEPTH>::BYTES;
  static_assert(shape<DEPTH>::KEYS == TILE_WARPS * OWN_KEYS, "a tile has a quarter for each warp");
  static_assert(TILE_WARPS * HEADS * (DEPTH * 16 + 2) * sizeof(float) <= bytes, "the warps' rows fit where tiles were");
  int chunks = chunks_of(&a);
  cudaError_t e =
      cudaFuncSetAttribute(single_kernel<T, DEPTH, PLAIN>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (e == cudaSuccess)
    launch_overlapped(single_kernel<T, DEPTH, PLAIN>, dim3(a.q.rows, a.kv.num_kv_heads * chunks, splits), TILE_THREADS,
                      bytes, stream, a, *a.batch, partial, splits, chunks, single);
  return e;
}

template <typename T, int DEPTH>
static cudaError_t start_plain(cudaStream_t stream, const tri_attention_args &a, float *partial, int splits,
                               bool single) {
  bool plain = a.softcap <= 0 && !a.alibi_slopes && !a.position_bias;
  return plain ? start<T, DEPTH, true>(stream, a, partial, splits, single)
               : start<T, DEPTH, false>(stream, a, partial, splits, single);
}

template <typename T>
static cudaError_t start_depth(cudaStream_t stream, const tri_attention_args &a, float *partial, int splits,
                               bool single) {
  return a.kv.head_dim <= 64 ? start_plain<T, 4>(stream, a, partial, splits, single)
                             : start_plain<T, 8>(stream, a, partial, splits, single);
}

cudaError_t tri_cuda_single(cudaStream_t stream, const tri_attention_args *a, float *partial, int splits, bool single) {
  cudaError_t e = a->kv.dtype == TRI_BF16 ? start_depth<__nv_bfloat16>(stream, *a, partial, splits, single)
                                          : start_depth<__half>(stream, *a, partial, splits, single);
  if (e == cudaSuccess && splits > 1) tri_cuda_merge(stream, a, partial, splits, single);
  return e;
}
