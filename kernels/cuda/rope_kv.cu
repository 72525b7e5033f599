/* Kernels in front of attention: rotary angles, and the cache's new entries. */
#include "kernels/cuda/device.cuh"
#include "kernels/ref/formulas.h"

enum { THREADS = 128 };

/* Makes a token's angles. positions and rope_len [T] to cos and sin [T, rotary_dim / 2]. Grid T, 128 threads. */
__global__ static void rope_angles_kernel(tri_rope_angles_args a) {
  int t = blockIdx.x, half = a.rotary_dim / 2, len = a.rope_len[t];
  bool beyond = len > a.original_max_len;
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    float f;
    if (a.kind == TRI_ROPE_DYNAMIC && beyond)
      f = tri_formula_dynamic_frequency(a.base, a.factor, len, a.original_max_len, a.rotary_dim, i);
    else
      f = a.kind == TRI_ROPE_BY_LENGTH && beyond ? a.inv_freq_long[i] : a.inv_freq[i];
    double angle = (double)__fmul_rn((float)a.positions[t], f);
    a.cos[(size_t)t * (size_t)half + (size_t)i] = (float)(a.attention_scale * cos(angle));
    a.sin[(size_t)t * (size_t)half + (size_t)i] = (float)(a.attention_scale * sin(angle));
  }
}

void tri_cuda_rope_angles(cudaStream_t stream, const tri_rope_angles_args *a, void *) {
  if (a->num_tokens && a->rotary_dim) rope_angles_kernel<<<a->num_tokens, THREADS, 0, stream>>>(*a);
}

/* ---- heads in memory ---- */

/* A head of d elements, by one warp. */
__device__ static void norm_head(float *x, int d, const float *weight, tri_norm_kind kind, float eps, float offset) {
  int lane = threadIdx.x % WARP;
  float mean = 0, square = 0;
  if (kind == TRI_NORM_LAYER) {
    for (int i = lane; i < d; i += WARP) mean += x[i];
    mean = warp_sum(mean) / d;
  }
  for (int i = lane; i < d; i += WARP) square += (x[i] - mean) * (x[i] - mean);
  float factor = 1 / sqrtf(warp_sum(square) / d + eps);
  for (int i = lane; i < d; i += WARP) x[i] = (x[i] - mean) * factor * (weight[i] + offset);
  __syncwarp();
}

__device__ static void rotate_head(float *x, int rotary_dim, bool interleaved, const float *cosine, const float *sine) {
  int half = rotary_dim / 2;
  for (int i = threadIdx.x % WARP; i < half; i += WARP) {
    float *a = interleaved ? x + 2 * i : x + i, *b = interleaved ? a + 1 : a + half, u = *a, v = *b;
    *a = u * cosine[i] - v * sine[i];
    *b = v * cosine[i] + u * sine[i];
  }
  __syncwarp();
}

/* ---- keys and values ---- */

/* Returns the offset of element 0 of a head's key or value of that slot. */
__device__ static inline size_t place_in(const tri_kv_layer &kv, int64_t slot, int head) {
  size_t kv_block = (size_t)(slot / kv.block_size), in_block = (size_t)(slot % kv.block_size);
  return ((kv_block * (size_t)kv.num_kv_heads + (size_t)head) * (size_t)kv.block_size + in_block) * (size_t)kv.head_dim;
}

/* Which head a warp has: those of queries, of keys, of values, one behind the other. */
struct head_of_row {
  int h, own; /* own: among its kind */
  bool query, value;
  int half; /* pairs that rotate */
  const float *gains;
};
__device__ static inline head_of_row head_of(const tri_qkv_rope_append_args &a, int h) {
  head_of_row r = {h, h, h < a.num_heads, h >= a.num_heads + a.num_kv_heads};
  if (!r.query) r.own -= a.num_heads;
  if (r.value) r.own -= a.num_kv_heads;
  r.half = r.value ? 0 : a.rotary_dim / 2;
  if (r.value)
    r.gains = NULL;
  else
    r.gains = r.query ? a.q_norm : a.k_norm;
  if (r.gains) r.gains += (size_t)r.own * (size_t)a.norm_stride;
  return r;
}

/* The elements of pair p: those that rotate together, behind them what is left, in halves. `second` may be beyond d. */
struct two_of_head {
  int first, second;
};
__device__ static inline two_of_head pair_of(int p, int half, int d, bool interleaved) {
  if (p < half) return interleaved ? two_of_head{2 * p, 2 * p + 1} : two_of_head{p, p + half};
  return {p + half, p + half + (d - 2 * half + 1) / 2};
}

/* PAIRS pairs of a lane; what is not there is 0. */
template <int PAIRS> struct head_pairs { float u[PAIRS], v[PAIRS]; };

template <int PAIRS>
__device__ static inline head_pairs<PAIRS> load_pairs(const float *x, const two_of_head (&at)[PAIRS], int pairs,
                                                      int d) {
  head_pairs<PAIRS> r;
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    bool there = x && (int)threadIdx.x % WARP + i * WARP < pairs;
    r.u[i] = there ? x[at[i].first] : 0;
    r.v[i] = there && at[i].second < d ? x[at[i].second] : 0;
  }
  return r;
}

/* Norms a head's pairs. Elements that are not there stay 0. */
template <int PAIRS>
__device__ static inline void norm_pairs(const tri_qkv_rope_append_args &a, head_pairs<PAIRS> &x,
                                         const head_pairs<PAIRS> &gains, const two_of_head (&at)[PAIRS], int pairs) {
  float mean = 0, square = 0, offset = a.norm_weight_offset;
  int d = a.head_dim, lane = threadIdx.x % WARP;
  if (a.norm_kind == TRI_NORM_LAYER) {
#pragma unroll
    for (int i = 0; i < PAIRS; i++) mean += x.u[i] + x.v[i];
    mean = warp_sum(mean) / d;
  }
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    bool there = lane + i * WARP < pairs;
    x.u[i] = there ? x.u[i] - mean : 0;
    x.v[i] = there && at[i].second < d ? x.v[i] - mean : 0;
    square += x.u[i] * x.u[i] + x.v[i] * x.v[i];
  }
  float factor = 1 / sqrtf(warp_sum(square) / d + a.norm_eps);
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    x.u[i] *= factor * (gains.u[i] + offset);
    x.v[i] *= factor * (gains.v[i] + offset);
  }
}

/* Norms, rotates and stores with a warp for each head of each token, whose elements stay in its registers: all that it
 * reads is read at once, and slots and weights, which no kernel writes, before the wait. qkv [T, (hq + 2 hkv) d] with d
 * up to 64 * PAIRS. Grid (T, (hq + 2 hkv) / 4), 128 threads. */
template <int PAIRS> __global__ __launch_bounds__(THREADS) static void append_kernel(tri_qkv_rope_append_args a) {
  int t = blockIdx.x, d = a.head_dim, pairs = (d + 1) / 2, lane = threadIdx.x % WARP;
  let_next_begin();
  head_of_row head = head_of(a, blockIdx.y * (THREADS / WARP) + threadIdx.x / WARP);
  if (head.h >= a.num_heads + 2 * a.num_kv_heads) return;
  int half = head.half;
  two_of_head at[PAIRS];
#pragma unroll
  for (int i = 0; i < PAIRS; i++) at[i] = pair_of(lane + i * WARP, half, d, a.interleaved);
  int64_t slot = head.query ? -1 : a.kv_slot[t];
  size_t place = slot < 0 ? 0 : place_in(a.kv, slot, head.own);
  head_pairs<PAIRS> gains = load_pairs<PAIRS>(head.gains, at, pairs, d);
  wait_for_previous();
  if (head.query ? !half && !head.gains : slot < 0) return; /* nothing to do, or a padding row */
  float *row = row_at(a.qkv, t) + (size_t)head.h * (size_t)d;
  head_pairs<PAIRS> x = load_pairs<PAIRS>(row, at, pairs, d);
  float cosine[PAIRS], sine[PAIRS];
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    int p = lane + i * WARP;
    size_t angle = (size_t)t * (size_t)half + (size_t)p;
    if (p < half) {
      cosine[i] = a.cos[angle];
      sine[i] = a.sin[angle];
    }
  }
  if (head.gains) norm_pairs<PAIRS>(a, x, gains, at, pairs);
  void *cache = head.value ? a.kv.v : a.kv.k;
#pragma unroll
  for (int i = 0; i < PAIRS; i++) {
    int p = lane + i * WARP;
    float u = x.u[i], v = x.v[i];
    if (p >= pairs) continue;
    if (p < half) {
      u = x.u[i] * cosine[i] - x.v[i] * sine[i];
      v = x.v[i] * cosine[i] + x.u[i] * sine[i];
    }
    bool both = at[i].second < d;
    if (head.query) {
      row[at[i].first] = u;
      if (both) row[at[i].second] = v;
    } else {
      store_as(cache, a.kv.dtype, place + (size_t)at[i].first, u);
      if (both) store_as(cache, a.kv.dtype, place + (size_t)at[i].second, v);
    }
  }
}

/* Only stores keys and values in another type, where nothing is normed or rotated. qkv [T, (hq + 2 hkv) d]. Grid T, 128
 * threads. */
template <typename T> __global__ __launch_bounds__(THREADS) static void store_kernel(tri_qkv_rope_append_args a) {
  enum { PIECE = 8 };
  let_next_begin();
  int t = blockIdx.x, d = a.head_dim, elements = 2 * a.num_kv_heads * d;
  int64_t slot = a.kv_slot[t];
  wait_for_previous();
  if (slot < 0) return; /* a padding row */
  const float *row = row_at(a.qkv, t) + (size_t)a.num_heads * (size_t)d;
  for (int e = threadIdx.x * PIECE; e < elements; e += THREADS * PIECE) {
    int head = e / d;
    bool value = head >= a.num_kv_heads;
    T *rows = (T *)(value ? a.kv.v : a.kv.k);
    T *to = rows + place_in(a.kv, slot, value ? head - a.num_kv_heads : head) + e % d;
    float4 low = load4(row + e), high = load4(row + e + 4);
    store4(to, low);
    store4(to + 4, high);
  }
}

static bool only_stores(const tri_qkv_rope_append_args &a) {
  return !a.rotary_dim && !a.q_norm && !a.k_norm && a.head_dim % 8 == 0 && a.qkv.ld % 4 == 0 &&
         ((uintptr_t)a.qkv.data | (uintptr_t)a.kv.k | (uintptr_t)a.kv.v) % 16 == 0;
}

static void store(cudaStream_t stream, const tri_qkv_rope_append_args &a) {
  dim3 grid(a.qkv.rows);
  switch (a.kv.dtype) {
  case TRI_F16: launch_overlapped(store_kernel<__half>, grid, THREADS, 0, stream, a); break;
  case TRI_BF16: launch_overlapped(store_kernel<__nv_bfloat16>, grid, THREADS, 0, stream, a); break;
  default: launch_overlapped(store_kernel<float>, grid, THREADS, 0, stream, a); break;
  }
}

/* Does the same as append_kernel for heads of any size, in place first. qkv [T, (hq + 2 hkv) d]. Grid (T, (hq + 2 hkv)
 * / 4), 128 threads. */
__global__ static void any_append_kernel(tri_qkv_rope_append_args a) {
  int t = blockIdx.x, d = a.head_dim, lane = threadIdx.x % WARP;
  head_of_row head = head_of(a, blockIdx.y * (THREADS / WARP) + threadIdx.x / WARP);
  if (head.h >= a.num_heads + 2 * a.num_kv_heads) return;
  float *x = row_at(a.qkv, t) + (size_t)head.h * (size_t)d;
  size_t angle = (size_t)t * (size_t)head.half;
  if (head.gains) norm_head(x, d, head.gains, a.norm_kind, a.norm_eps, a.norm_weight_offset);
  if (head.half) rotate_head(x, a.rotary_dim, a.interleaved, a.cos + angle, a.sin + angle);
  if (head.query || a.kv_slot[t] < 0) return;
  size_t at = place_in(a.kv, a.kv_slot[t], head.own);
  for (int i = lane; i < d; i += WARP) store_as(head.value ? a.kv.v : a.kv.k, a.kv.dtype, at + (size_t)i, x[i]);
}

void tri_cuda_qkv_rope_append(cudaStream_t stream, const tri_qkv_rope_append_args *a, void *) {
  dim3 grid(a->qkv.rows, blocks_for((size_t)(a->num_heads + 2 * a->num_kv_heads), THREADS / WARP));
  if (!a->qkv.rows) return;
  if (only_stores(*a))
    store(stream, *a);
  else if (a->head_dim <= 64)
    launch_overlapped(append_kernel<1>, grid, THREADS, 0, stream, *a);
  else if (a->head_dim <= 128)
    launch_overlapped(append_kernel<2>, grid, THREADS, 0, stream, *a);
  else if (a->head_dim <= 256)
    launch_overlapped(append_kernel<4>, grid, THREADS, 0, stream, *a);
  else
    any_append_kernel<<<grid, THREADS, 0, stream>>>(*a);
}

/* ---- latent attention's ---- */

/* Makes the latent and the shared key with the first warp of a token, and a head's rotated query with each other one. q
 * [T, heads * (nope + rope)], kv_a [T, rank + rope], q_out [T, heads * (rank + rope)]. Grid (T, (heads + 1) / 4), 128
 * threads. */
__global__ static void mla_append_kernel(tri_mla_append_args a) {
  size_t t = blockIdx.x, rank = (size_t)a.rank, rope = (size_t)a.rope_dim, nope = (size_t)a.nope_dim;
  const float *co = a.cos + t * (rope / 2), *si = a.sin + t * (rope / 2);
  int lane = threadIdx.x % WARP, h = (int)(blockIdx.y * (THREADS / WARP) + threadIdx.x / WARP) - 1;
  let_next_begin();
  if (h >= a.num_heads) return;
  wait_for_previous();
  if (h >= 0) {
    const float *q = row_at(a.q, (int)t) + (size_t)h * (nope + rope) + nope;
    float *to = row_at(a.q_out, (int)t) + (size_t)h * (rank + rope) + rank;
    for (size_t i = lane; i < rope; i += WARP) to[i] = q[i];
    __syncwarp();
    rotate_head(to, a.rope_dim, a.interleaved, co, si);
    return;
  }
  float *latent = row_at(a.kv_a, (int)t);
  norm_head(latent, a.rank, a.norm, TRI_NORM_RMS, a.norm_eps, 0);
  rotate_head(latent + rank, a.rope_dim, a.interleaved, co, si);
  if (a.kv_slot[t] < 0) return; /* a padding row */
  for (size_t i = lane; i < rank + rope; i += WARP)
    store_as(a.kv.k, a.kv.dtype, (size_t)a.kv_slot[t] * (rank + rope) + i, latent[i]);
}

void tri_cuda_mla_append(cudaStream_t stream, const tri_mla_append_args *a, void *) {
  dim3 grid(a->q.rows, blocks_for((size_t)a->num_heads + 1, THREADS / WARP));
  if (a->q.rows) launch_overlapped(mla_append_kernel, grid, THREADS, 0, stream, *a);
}
