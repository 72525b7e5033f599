/* Attention of single tokens over long contexts (Flash-Decoding's arrangement: the keys of a token are cut into splits
 * for several blocks, whose partial results are merged in order).
 *
 * A block has a token, a KV head with up to MAX_GROUP of its query heads, and a split. A key's row is read by as many
 * neighbouring lanes as it has 16-byte pieces, so that a warp reads whole lines; each such set of lanes has a running
 * maximum, sum and weighted values of its own for every query head, merged once at the end. */
#include "kernels/cuda/attention.cuh"

enum { THREADS = 128, MAX_GROUP = 4, MIN_SPLIT = 16, MAX_SPLITS = 64, ENOUGH_BLOCKS = 528 };

/* Lanes of a key: a power of two. */
static int lanes_for(int head_dim) {
  int lanes = 1;
  while (lanes * PIECE < head_dim) lanes *= 2;
  return lanes;
}

bool tri_cuda_decode_fits(const tri_attention_args *a) {
  return a->heads_per_kv > 0 && a->kv.head_dim % PIECE == 0 && a->kv.head_dim <= WARP * PIECE && !a->kv.v_dim;
}

static int chunks_of(const tri_attention_args *a) { return (a->heads_per_kv + MAX_GROUP - 1) / MAX_GROUP; }

int tri_cuda_decode_splits(const tri_attention_args *a) {
  int units = a->q.rows * a->kv.num_kv_heads * chunks_of(a) + 1,
      most = (a->batch->max_context + MIN_SPLIT - 1) / MIN_SPLIT;
  int wanted = (ENOUGH_BLOCKS + units - 1) / units, splits = 1;
  /* A power of two: recorded steps serve a range of lengths. */
  while (2 * splits <= wanted && splits < most && splits < MAX_SPLITS) splits *= 2;
  return splits;
}

/* [token][head][split][2 + head_dim]: maximum, sum, weighted values */
size_t tri_cuda_decode_workspace(const tri_attention_args *a, int splits) {
  return (size_t)a->q.rows * (size_t)a->num_heads * (size_t)splits * ((size_t)a->kv.head_dim + 2) * sizeof(float);
}

/* Running results of some query heads: of a set of lanes, or of more. */
template <int GROUP> struct running { float max[GROUP], sum[GROUP], acc[GROUP][PIECE]; };

template <int GROUP>
__device__ static inline void merge(running<GROUP> &r, int g, float max, float sum, const float *acc) {
  float top = fmaxf(r.max[g], max);
  if (top == -INFINITY) return;
  float old = expf(r.max[g] - top), fresh = expf(max - top);
  r.max[g] = top, r.sum[g] = r.sum[g] * old + sum * fresh;
#pragma unroll
  for (int i = 0; i < PIECE; i++) r.acc[g][i] = r.acc[g][i] * old + acc[i] * fresh;
}

template <typename T, int GROUP>
__global__ static void decode_kernel(tri_attention_args a, tri_batch b, float *partial, int lanes, int splits,
                                     int chunks, bool single) {
  __shared__ float room[THREADS / WARP][GROUP][WARP * PIECE + 2];
  let_next_begin();
  wait_for_previous();
  int t = blockIdx.x, kv_head = blockIdx.y / chunks, chunk = blockIdx.y % chunks, split = blockIdx.z, d = a.kv.head_dim;
  int head0 = kv_head * a.heads_per_kv + chunk * GROUP, heads = min(GROUP, a.heads_per_kv - chunk * GROUP);
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, part = lane % lanes, sets = THREADS / lanes;
  int set = threadIdx.x / lanes;
  bool reads = part * PIECE < d;
  view v = view_of(a, b, t);
  if (single && v.tokens > 1) return;
  int all = v.last + 1 - v.first, each = (all + splits - 1) / splits;
  int begin = v.first + split * each, end = min(v.last + 1, begin + each);
  running<GROUP> r;
  float q[GROUP][PIECE];
#pragma unroll
  for (int g = 0; g < GROUP; g++) {
    r.max[g] = -INFINITY, r.sum[g] = 0;
#pragma unroll
    for (int i = 0; i < PIECE; i++) {
      r.acc[g][i] = 0;
      q[g][i] = g < heads && reads ? row_at(a.q, t)[(head0 + g) * d + part * PIECE + i] : 0;
    }
  }
  for (int j0 = begin; j0 < end; j0 += sets) { /* the same number of rounds for every lane of a warp */
    int j = j0 + set;
    bool there = j < end;
    float k[PIECE] = {0}, value[PIECE] = {0};
    if (there && reads) {
      size_t at = kv_offset(a.kv, v.pages, j, kv_head) + (size_t)(part * PIECE);
      piece<T> raw_k, raw_v;
      raw_k.load((const T *)a.kv.k + at);
      raw_v.load((const T *)a.kv.v + at);
      raw_k.widen(k), raw_v.widen(value);
    }
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
      float s = 0;
#pragma unroll
      for (int i = 0; i < PIECE; i++) s += q[g][i] * k[i];
      for (int o = lanes / 2; o; o /= 2) s += __shfl_xor_sync(0xffffffffu, s, o);
      if (!there || g >= heads) continue;
      s = adjust(a, s, head0 + g, j, v.position);
      float top = fmaxf(r.max[g], s), old = expf(r.max[g] - top), p = expf(s - top);
      r.max[g] = top, r.sum[g] = r.sum[g] * old + p;
#pragma unroll
      for (int i = 0; i < PIECE; i++) r.acc[g][i] = r.acc[g][i] * old + p * value[i];
    }
  }
  /* The sets of a warp, then the warps. */
  for (int o = lanes; o < WARP; o *= 2)
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
      float max = __shfl_xor_sync(0xffffffffu, r.max[g], o), sum = __shfl_xor_sync(0xffffffffu, r.sum[g], o),
            acc[PIECE];
#pragma unroll
      for (int i = 0; i < PIECE; i++) acc[i] = __shfl_xor_sync(0xffffffffu, r.acc[g][i], o);
      merge(r, g, max, sum, acc);
    }
  if (lane < lanes) {
#pragma unroll
    for (int g = 0; g < GROUP; g++) {
      room[warp][g][0] = r.max[g], room[warp][g][1] = r.sum[g];
#pragma unroll
      for (int i = 0; i < PIECE; i++) room[warp][g][2 + part * PIECE + i] = r.acc[g][i];
    }
  }
  __syncthreads();
  for (int g = 0; g < heads; g++) {
    float *out = partial + (((size_t)t * (size_t)a.num_heads + (size_t)(head0 + g)) * (size_t)splits + (size_t)split) *
                               ((size_t)d + 2);
    float top = -INFINITY, sum = 0;
    for (int w = 0; w < THREADS / WARP; w++) top = fmaxf(top, room[w][g][0]);
    for (int w = 0; w < THREADS / WARP && top > -INFINITY; w++) sum += room[w][g][1] * expf(room[w][g][0] - top);
    if (!threadIdx.x) out[0] = top, out[1] = sum;
    for (int e = threadIdx.x; e < d; e += THREADS) {
      float x = 0;
      for (int w = 0; w < THREADS / WARP && top > -INFINITY; w++) x += room[w][g][2 + e] * expf(room[w][g][0] - top);
      out[2 + e] = x;
    }
  }
}

/* A block for each head of each token: the splits in their order, and the sink. */
__global__ static void merge_kernel(tri_attention_args a, tri_batch b, const float *partial, int splits, bool single) {
  let_next_begin();
  wait_for_previous();
  int t = blockIdx.x, head = blockIdx.y, d = a.kv.head_dim;
  if (single && view_of(a, b, t).tokens > 1) return;
  const float *p = partial + ((size_t)t * (size_t)a.num_heads + (size_t)head) * (size_t)splits * ((size_t)d + 2);
  float top = a.sinks ? a.sinks[head] : -INFINITY, sum;
  for (int s = 0; s < splits; s++) top = fmaxf(top, p[(size_t)s * (size_t)(d + 2)]);
  sum = a.sinks ? expf(a.sinks[head] - top) : 0;
  for (int s = 0; s < splits; s++)
    sum += p[(size_t)s * (size_t)(d + 2) + 1] * expf(p[(size_t)s * (size_t)(d + 2)] - top);
  for (int e = threadIdx.x; e < d; e += blockDim.x) {
    float x = 0;
    for (int s = 0; s < splits; s++)
      x += p[(size_t)s * (size_t)(d + 2) + 2 + (size_t)e] * expf(p[(size_t)s * (size_t)(d + 2)] - top);
    store_at(a.out, t, (size_t)head * (size_t)d + (size_t)e, x / sum);
  }
}

template <typename T>
static void decode(cudaStream_t stream, const tri_attention_args &a, float *partial, int splits, bool single) {
  int lanes = lanes_for(a.kv.head_dim), chunks = chunks_of(&a);
  dim3 grid(a.q.rows, a.kv.num_kv_heads * chunks, splits);
  if (a.heads_per_kv == 1)
    launch_overlapped(decode_kernel<T, 1>, grid, THREADS, 0, stream, a, *a.batch, partial, lanes, splits, 1, single);
  else
    launch_overlapped(decode_kernel<T, MAX_GROUP>, grid, THREADS, 0, stream, a, *a.batch, partial, lanes, splits,
                      chunks, single);
}

void tri_cuda_decode(cudaStream_t stream, const tri_attention_args *a, float *partial, int splits, bool single) {
  switch (a->kv.dtype) {
  case TRI_BF16: decode<__nv_bfloat16>(stream, *a, partial, splits, single); break;
  case TRI_F16: decode<__half>(stream, *a, partial, splits, single); break;
  default: decode<float>(stream, *a, partial, splits, single); break;
  }
  tri_cuda_merge(stream, a, partial, splits, single);
}

void tri_cuda_merge(cudaStream_t stream, const tri_attention_args *a, const float *partial, int splits, bool single) {
  launch_overlapped(merge_kernel, dim3(a->q.rows, a->num_heads), THREADS, 0, stream, *a, *a->batch, partial, splits,
                    single);
}
