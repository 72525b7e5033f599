/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels before attention: rotary angles, and the cache's new entries. Both ops write what attention reads right after
 * them, and each element is read and written once, so they are bound by latency: a token's heads are spread over as
 * many blocks as they fill, and what no kernel writes is loaded before the wait. */
#include "kernels/cuda/device/device.cuh"
#include "kernels/ref/formulas.h"

enum { THREADS = 128 };

/* Makes a token's angles, a cosine or a sine with each thread, and with the first one what its queries are multiplied
 * with. positions and rope_len [T] to cos and sin [T, rotary_dim / 2] and q_scale [T]. Grid (T, rotary_dim / 128), 128
 * threads. The product is rounded to float32 and its cosine taken in double, as the reference does. No kernel of a step
 * writes what is read. */
__global__ __launch_bounds__(THREADS) static void rope_angles_kernel(tri_rope_angles_args a) {
  int t = blockIdx.x, half = a.rotary_dim / 2, number = (int)(blockIdx.y * THREADS + threadIdx.x);
  bool sine = number >= half;
  float f;
  let_next_begin();
  if (number >= 2 * half) return;
  int i = number % half, len = a.rope_len[t];
  bool beyond = len > a.original_max_len;
  if (a.kind == TRI_ROPE_DYNAMIC && beyond)
    f = tri_formula_dynamic_frequency(a.base, a.factor, len, a.original_max_len, a.rotary_dim, i);
  else
    f = a.kind == TRI_ROPE_BY_LENGTH && beyond ? a.inv_freq_long[i] : a.inv_freq[i];
  double angle = (double)__fmul_rn((float)a.positions[t], f);
  float scale = a.kind == TRI_ROPE_BY_LENGTH && beyond ? a.attention_scale_long : a.attention_scale;
  float y = (float)(scale * (sine ? sin(angle) : cos(angle)));
  wait_for_previous();
  if (a.q_scale && !number) a.q_scale[t] = tri_formula_q_scale(&a, a.positions[t]);
  (sine ? a.sin : a.cos)[(size_t)t * (size_t)half + (size_t)i] = y;
}

void tri_cuda_rope_angles(cudaStream_t stream, const tri_rope_angles_args *a, void *) {
  dim3 grid((unsigned)a->num_tokens, blocks_for((size_t)a->rotary_dim, THREADS));
  if (a->num_tokens && a->rotary_dim) launch_overlapped(rope_angles_kernel, grid, THREADS, 0, stream, *a);
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

/* Rotates a head's first rotary_dim elements by one warp, in place: pairs are neighbours (interleaved, GPT-J) or half
 * of them apart (GPT-NeoX). */
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
  uint32_t low = (uint32_t)slot, size = (uint32_t)kv.block_size;
  size_t kv_block = low / size, in_block = low % size;
  if (slot >> 32) { /* which takes five times as long */
    kv_block = (size_t)(slot / kv.block_size);
    in_block = (size_t)(slot % kv.block_size);
  }
  return ((kv_block * (size_t)kv.num_kv_heads + (size_t)head) * (size_t)kv.block_size + in_block) * (size_t)kv.head_dim;
}

/* The head that a warp, or a part of one, has: those of queries, of keys, of values, one after the other. */
struct head_of_row {
  int h, own; /* own: among its kind */
  int begin;  /* of its elements in the row */
  bool query, value;
  int half; /* pairs that rotate */
  const float *gains;
};
__device__ static inline head_of_row head_of(const tri_qkv_rope_append_args &a, int h) {
  head_of_row r = {h, h, h * a.head_dim, h < a.num_heads, h >= a.num_heads + a.num_kv_heads};
  if (!r.query) r.own -= a.num_heads;
  if (r.value) r.own -= a.num_kv_heads;
  if (r.value) r.begin -= r.own * (a.head_dim - tri_append_value_dim(&a));
  r.half = r.value ? 0 : a.rotary_dim / 2;
  if (r.value)
    r.gains = a.v_norm;
  else
    r.gains = r.query ? a.q_norm : a.k_norm;
  if (r.gains) r.gains += (size_t)r.own * (size_t)a.norm_stride;
  return r;
}

/* Eight elements of a head, four and four: u[i] and v[i] rotate together, where they do. */
struct eight {
  float4 u, v;
};

/* Places of a lane's eight elements: those of the pairs pair .. pair + 3, of which `half` rotate. Interleaved ones are
 * neighbours; others, and what does not rotate, lie in two halves. */
struct eight_of_head {
  int first, second;
  bool rotates, mixed;
};
__device__ static inline eight_of_head eight_at(int pair, int half, int d, bool interleaved) {
  if (pair < half && interleaved) return {2 * pair, 2 * pair + 4, true, true};
  if (pair < half) return {pair, pair + half, true, false};
  return {pair + half, pair + half + (d - 2 * half) / 2, false, false};
}

/* Elements of a value, of which there are n, and zeros after them. */
template <typename T> __device__ static inline eight load_value(const T *x, const eight_of_head &at, int n) {
  eight e = {};
  if (at.first < n) e.u = load4(x + at.first);
  if (at.second < n) e.v = load4(x + at.second);
  return e;
}

template <typename T> __device__ static inline eight load_eight(const T *x, const eight_of_head &at) {
  float4 u = load4(x + at.first), v = load4(x + at.second);
  if (!at.mixed) return {u, v};
  return {make_float4(u.x, u.z, v.x, v.z), make_float4(u.y, u.w, v.y, v.w)};
}

__device__ static inline void store_eight(void *to, tri_dtype type, size_t from, const eight_of_head &at,
                                          const eight &x) {
  float4 u = x.u, v = x.v;
  if (at.mixed) {
    u = make_float4(x.u.x, x.v.x, x.u.y, x.v.y);
    v = make_float4(x.u.z, x.v.z, x.u.w, x.v.w);
  }
  store4_as(to, type, from + (size_t)at.first, u);
  store4_as(to, type, from + (size_t)at.second, v);
}

__device__ static inline float4 times(float4 a, float4 b) {
  return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}
__device__ static inline float4 plus(float4 a, float4 b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
__device__ static inline float4 all_four(float x) { return make_float4(x, x, x, x); }
__device__ static inline float sum_of(float4 a) { return a.x + a.y + (a.z + a.w); }

/* The sum over `width` neighbouring lanes, a power of two. */
__device__ static inline float lanes_sum(float x, int width) {
  for (int o = width / 2; o; o /= 2) x += __shfl_xor_sync(0xffffffffu, x, o);
  return x;
}

/* Norms a head, which `width` lanes have. Every lane of the warp takes part; those without elements have 0. */
__device__ static inline eight norm_eight(const tri_qkv_rope_append_args &a, eight x, eight gains, bool there,
                                          int width) {
  if (a.norm_kind == TRI_NORM_LAYER) {
    float mean = lanes_sum(sum_of(x.u) + sum_of(x.v), width) / (float)a.head_dim;
    x.u = plus(x.u, all_four(there ? -mean : 0));
    x.v = plus(x.v, all_four(there ? -mean : 0));
  }
  float square = lanes_sum(sum_of(times(x.u, x.u)) + sum_of(times(x.v, x.v)), width);
  float4 factor = all_four(1 / sqrtf(square / (float)a.head_dim + a.norm_eps)), offset = all_four(a.norm_weight_offset);
  return {times(times(x.u, factor), plus(gains.u, offset)), times(times(x.v, factor), plus(gains.v, offset))};
}

__device__ static inline eight rotate_eight(const eight &x, float4 cosine, float4 sine) {
  float4 minus = make_float4(-sine.x, -sine.y, -sine.z, -sine.w);
  return {plus(times(x.u, cosine), times(x.v, minus)), plus(times(x.v, cosine), times(x.u, sine))};
}

__device__ static inline eight scale_eight(const eight &x, float factor) {
  return {times(x.u, all_four(factor)), times(x.v, all_four(factor))};
}

/* Norms, rotates, scales and stores the heads of a token, each by `width` lanes in whose registers its elements stay:
 * all that is read is read at once, and slots and weights, which no kernel writes, before the wait. qkv [T, (hq + 2
 * hkv) d] of type T with d up to 8 * width. Grid (T, (hq + 2 hkv) * width / 128), 128 threads. */
template <typename T>
__global__ __launch_bounds__(THREADS) static void append_kernel(tri_qkv_rope_append_args a, int width) {
  int t = blockIdx.x, d = a.head_dim, part = (int)threadIdx.x % width;
  let_next_begin();
  head_of_row head = head_of(a, (int)(blockIdx.y * THREADS + threadIdx.x) / width);
  bool is_head = head.h < a.num_heads + 2 * a.num_kv_heads && part * 8 < d;
  eight_of_head at = eight_at(part * 4, head.half, d, a.interleaved);
  int64_t slot = head.query || !is_head ? -1 : a.kv_slot[t];
  eight gains = {}, x = {};
  if (is_head && head.gains) gains = load_eight(head.gains, at);
  /* Heads to which nothing is done are left alone, and so are padding rows. */
  bool scales = head.query && a.q_scale,
       works = is_head && (head.query ? head.half || head.gains || scales : slot >= 0);
  wait_for_previous();
  size_t begin = (size_t)head.begin, angle = (size_t)t * (size_t)head.half + (size_t)(part * 4);
  const T *row = row_of<T>(a.qkv, t) + begin;
  if (works && head.value)
    x = load_value(row, at, tri_append_value_dim(&a));
  else if (works)
    x = load_eight(row, at);
  float4 cosine = {}, sine = {};
  if (works && at.rotates) {
    cosine = load4(a.cos + angle);
    sine = load4(a.sin + angle);
  }
  if (a.q_norm || a.k_norm || a.v_norm) {
    eight normed = norm_eight(a, x, gains, is_head, width);
    if (head.gains) x = normed;
  }
  if (!works) return;
  if (at.rotates) x = rotate_eight(x, cosine, sine);
  if (scales) x = scale_eight(x, a.q_scale[t]);
  if (head.value) x = scale_eight(x, tri_append_value_scale(&a));
  if (head.query)
    store_eight(a.qkv.data, a.qkv.dtype, (size_t)t * (size_t)a.qkv.ld + begin, at, x);
  else
    store_eight(head.value ? a.kv.v : a.kv.k, a.kv.dtype, place_in(a.kv, slot, head.own), at, x);
}

/* Only stores keys and values in another type, where nothing is normed or rotated. qkv [T, (hq + 2 hkv) d] of type T.
 * Grid T, 128 threads. */
template <typename T> __global__ __launch_bounds__(THREADS) static void store_kernel(tri_qkv_rope_append_args a) {
  enum { PIECE = 8 };
  let_next_begin();
  int t = blockIdx.x, d = a.head_dim, elements = 2 * a.num_kv_heads * d;
  int64_t slot = a.kv_slot[t];
  wait_for_previous();
  if (slot < 0) return; /* a padding row */
  const T *row = row_of<T>(a.qkv, t) + (size_t)a.num_heads * (size_t)d;
  for (int e = threadIdx.x * PIECE; e < elements; e += THREADS * PIECE) {
    int head = e / d;
    bool value = head >= a.num_kv_heads;
    size_t to = place_in(a.kv, slot, value ? head - a.num_kv_heads : head) + (size_t)(e % d);
    float4 low = load4(row + e), high = load4(row + e + 4);
    store4_as(value ? a.kv.v : a.kv.k, a.kv.dtype, to, low);
    store4_as(value ? a.kv.v : a.kv.k, a.kv.dtype, to + 4, high);
  }
}

/* Does the same as append_kernel for heads of any size. qkv [T, (hq + 2 hkv) d]. Grid (T, (hq + 2 hkv) / 4), 128
 * threads. Shared memory: four heads in float32. */
__global__ static void any_append_kernel(tri_qkv_rope_append_args a) {
  extern __shared__ float heads[];
  int t = blockIdx.x, d = a.head_dim, lane = threadIdx.x % WARP;
  head_of_row head = head_of(a, blockIdx.y * (THREADS / WARP) + threadIdx.x / WARP);
  let_next_begin();
  if (head.h >= a.num_heads + 2 * a.num_kv_heads) return;
  wait_for_previous();
  float *x = heads + threadIdx.x / WARP * (size_t)d, scale = head.value ? tri_append_value_scale(&a) : 1;
  size_t begin = (size_t)head.begin, angle = (size_t)t * (size_t)head.half;
  int n = head.value ? tri_append_value_dim(&a) : d;
  for (int i = lane; i < d; i += WARP) x[i] = i < n ? load_at(a.qkv, t, begin + (size_t)i) : 0;
  __syncwarp();
  if (head.gains) norm_head(x, d, head.gains, a.norm_kind, a.norm_eps, a.norm_weight_offset);
  if (head.half) rotate_head(x, a.rotary_dim, a.interleaved, a.cos + angle, a.sin + angle);
  if (head.query) {
    float factor = a.q_scale ? a.q_scale[t] : 1;
    for (int i = lane; i < d; i += WARP) store_at(a.qkv, t, begin + (size_t)i, x[i] * factor);
    return;
  }
  if (a.kv_slot[t] < 0) return;
  size_t at = place_in(a.kv, a.kv_slot[t], head.own);
  for (int i = lane; i < d; i += WARP) store_as(head.value ? a.kv.v : a.kv.k, a.kv.dtype, at + (size_t)i, scale * x[i]);
}

/* ---- launches ---- */

/* Returns true where a head fits into the registers of one warp's lanes, eight elements each, and all rows are aligned
 * for loads of 16 bytes. */
static bool in_eights(const tri_qkv_rope_append_args &a) {
  uintptr_t places = (uintptr_t)a.qkv.data | (uintptr_t)a.kv.k | (uintptr_t)a.kv.v | (uintptr_t)a.q_norm |
                     (uintptr_t)a.k_norm | (uintptr_t)a.v_norm | (uintptr_t)a.cos | (uintptr_t)a.sin;
  return a.head_dim % 8 == 0 && a.value_dim % 8 == 0 && a.head_dim <= 8 * WARP && a.rotary_dim % 8 == 0 &&
         a.qkv.ld % 4 == 0 && a.norm_stride % 4 == 0 && places % 16 == 0;
}

template <typename T> static void append(cudaStream_t stream, const tri_qkv_rope_append_args &a) {
  int width = 1;
  while (8 * width < a.head_dim) width *= 2;
  unsigned parts = (unsigned)(a.num_heads + 2 * a.num_kv_heads) * (unsigned)width;
  bool stores = !a.rotary_dim && !a.q_norm && !a.k_norm && !a.v_norm && !a.q_scale;
  if (stores && !a.value_dim && !a.value_scale)
    launch_overlapped(store_kernel<T>, dim3(a.qkv.rows), THREADS, 0, stream, a);
  else
    launch_overlapped(append_kernel<T>, dim3(a.qkv.rows, blocks_for(parts, THREADS)), THREADS, 0, stream, a, width);
}

void tri_cuda_qkv_rope_append(cudaStream_t stream, const tri_qkv_rope_append_args *a, void *) {
  dim3 grid(a->qkv.rows, blocks_for((size_t)(a->num_heads + 2 * a->num_kv_heads), THREADS / WARP));
  if (!a->qkv.rows) return;
  if (!in_eights(*a)) {
    launch_overlapped(any_append_kernel, grid, THREADS, THREADS / WARP * a->head_dim * sizeof(float), stream, *a);
    return;
  }
  switch (a->qkv.dtype) {
  case TRI_F16: append<__half>(stream, *a); break;
  case TRI_BF16: append<__nv_bfloat16>(stream, *a); break;
  default: append<float>(stream, *a); break;
  }
}

/* ---- latent attention's ---- */

enum { LATENT_FOURS = 4, MAX_LATENT = 4 * LATENT_FOURS * WARP };

/* Norms and stores a token's latent, by one warp in whose registers it stays. */
__device__ static inline void append_latent(const tri_mla_append_args &a, int t) {
  int lane = threadIdx.x % WARP, rank = a.rank;
  int64_t slot = a.kv_slot[t];
  float4 gains[LATENT_FOURS], x[LATENT_FOURS];
#pragma unroll
  for (int i = 0; i < LATENT_FOURS; i++) gains[i] = load4(a.norm + min(4 * (lane + i * WARP), rank - 4));
  wait_for_previous();
  if (slot < 0) return; /* a padding row */
  const float *from = row_at(a.kv_a, t);
#pragma unroll
  for (int i = 0; i < LATENT_FOURS; i++) {
    int j = 4 * (lane + i * WARP);
    x[i] = j < rank ? load4(from + j) : all_four(0);
  }
  float square = 0;
#pragma unroll
  for (int i = 0; i < LATENT_FOURS; i++) square += sum_of(times(x[i], x[i]));
  float4 factor = all_four(1 / sqrtf(warp_sum(square) / (float)rank + a.norm_eps));
  size_t to = (size_t)slot * (size_t)a.kv.head_dim;
#pragma unroll
  for (int i = 0; i < LATENT_FOURS; i++) {
    int j = 4 * (lane + i * WARP);
    if (j < rank) store4_as(a.kv.k, a.kv.dtype, to + (size_t)j, times(times(x[i], factor), gains[i]));
  }
}

/* Rotates four pairs of a head's query, or of the shared key, which counts as the head after the last one, and scales
 * those of a query. T: of queries. */
template <typename T> __device__ static inline void rotate_pairs(const tri_mla_append_args &a, int t, int h, int pair) {
  int half = a.rope_dim / 2;
  bool query = h < a.num_heads;
  size_t own = (size_t)h, rank = (size_t)a.rank, rope = (size_t)a.rope_dim, nope = (size_t)a.nope_dim;
  int64_t slot = query ? 0 : a.kv_slot[t];
  eight_of_head at = eight_at(pair, half, a.rope_dim, a.interleaved);
  size_t angle = (size_t)t * (size_t)half + (size_t)pair;
  wait_for_previous();
  if (slot < 0) return; /* a padding row */
  float4 cosine = load4(a.cos + angle), sine = load4(a.sin + angle);
  eight x;
  if (query)
    x = load_eight(row_of<T>(a.q, t) + own * (nope + rope) + nope, at);
  else
    x = load_eight(row_at(a.kv_a, t) + rank, at);
  x = rotate_eight(x, cosine, sine);
  if (query && a.q_scale) x = scale_eight(x, a.q_scale[t]);
  if (query)
    store_eight(a.q_out.data, a.q_out.dtype, (size_t)t * (size_t)a.q_out.ld + own * (rank + rope) + rank, at, x);
  else
    store_eight(a.kv.k, a.kv.dtype, (size_t)slot * (rank + rope) + rank, at, x);
}

/* Scales four elements of what a head's query has in the latent's space, in place. */
__device__ static inline void scale_absorbed(const tri_mla_append_args &a, int t, int number) {
  int h = number / (a.rank / 4);
  size_t at = (size_t)h * (size_t)(a.rank + a.rope_dim) + (size_t)(number % (a.rank / 4) * 4);
  wait_for_previous();
  float factor = a.q_scale[t];
  for (size_t i = 0; i < 4; i++) store_at(a.q_out, t, at + i, load_at(a.q_out, t, at + i) * factor);
}

/* Makes the latent with the first warp of a token, four rotated pairs with each other thread and, where queries are
 * scaled, four elements of a head's query in the latent's space with each of those after them, after one round of
 * loads: slots and weights, which no kernel writes, come before the wait. q [T, heads * (nope + rope)] of type T, kv_a
 * [T, rank + rope] with rank up to 512, q_out [T, heads * (rank + rope)]. Grid (T, (32 + (heads + 1) * rope / 8) /
 * 128), 128 threads, with q_scale heads * rank / 4 more. */
template <typename T> __global__ __launch_bounds__(THREADS) static void mla_append_kernel(tri_mla_append_args a) {
  int t = blockIdx.x, number = (int)(blockIdx.y * THREADS + threadIdx.x) - WARP, parts = a.rope_dim / 8;
  let_next_begin();
  if (number < 0)
    append_latent(a, t);
  else if (number < (a.num_heads + 1) * parts)
    rotate_pairs<T>(a, t, number / parts, number % parts * 4);
  else if (a.q_scale && number - (a.num_heads + 1) * parts < a.num_heads * (a.rank / 4))
    scale_absorbed(a, t, number - (a.num_heads + 1) * parts);
}

/* Rotates a head's query of any size and type on its way from q to q_out, by one warp, and scales all of it there. */
__device__ static void rotate_query(const tri_mla_append_args &a, int t, int h, const float *cosine,
                                    const float *sine) {
  int half = a.rope_dim / 2;
  size_t from = (size_t)h * (size_t)(a.nope_dim + a.rope_dim) + (size_t)a.nope_dim,
         to = (size_t)h * (size_t)(a.rank + a.rope_dim) + (size_t)a.rank;
  float factor = a.q_scale ? a.q_scale[t] : 1;
  for (int i = threadIdx.x % WARP; i < half; i += WARP) {
    size_t low = (size_t)(a.interleaved ? 2 * i : i), high = a.interleaved ? low + 1 : low + (size_t)half;
    float u = load_at(a.q, t, from + low), v = load_at(a.q, t, from + high);
    store_at(a.q_out, t, to + low, (u * cosine[i] - v * sine[i]) * factor);
    store_at(a.q_out, t, to + high, (v * cosine[i] + u * sine[i]) * factor);
  }
  to -= (size_t)a.rank;
  for (int i = threadIdx.x % WARP; i < a.rank && a.q_scale; i += WARP)
    store_at(a.q_out, t, to + (size_t)i, load_at(a.q_out, t, to + (size_t)i) * factor);
}

/* Does the same for any shape, the latent and the shared key with the first warp of a token, and a head's rotated query
 * with each other one. Grid (T, (heads + 1) / 4), 128 threads. */
__global__ static void any_mla_append_kernel(tri_mla_append_args a) {
  size_t t = blockIdx.x, rank = (size_t)a.rank, rope = (size_t)a.rope_dim;
  const float *co = a.cos + t * (rope / 2), *si = a.sin + t * (rope / 2);
  int lane = threadIdx.x % WARP, h = (int)(blockIdx.y * (THREADS / WARP) + threadIdx.x / WARP) - 1;
  let_next_begin();
  if (h >= a.num_heads) return;
  wait_for_previous();
  if (h >= 0) {
    rotate_query(a, (int)t, h, co, si);
    return;
  }
  float *latent = row_at(a.kv_a, (int)t);
  norm_head(latent, a.rank, a.norm, TRI_NORM_RMS, a.norm_eps, 0);
  rotate_head(latent + rank, a.rope_dim, a.interleaved, co, si);
  if (a.kv_slot[t] < 0) return; /* a padding row */
  for (size_t i = lane; i < rank + rope; i += WARP)
    store_as(a.kv.k, a.kv.dtype, (size_t)a.kv_slot[t] * (rank + rope) + i, latent[i]);
}

static bool latent_in_fours(const tri_mla_append_args &a) {
  uintptr_t places = (uintptr_t)a.q.data | (uintptr_t)a.kv_a.data | (uintptr_t)a.q_out.data | (uintptr_t)a.kv.k |
                     (uintptr_t)a.norm | (uintptr_t)a.cos | (uintptr_t)a.sin;
  bool rows = a.q.ld % 4 == 0 && a.kv_a.ld % 4 == 0 && a.q_out.ld % 4 == 0;
  return a.rank % 4 == 0 && a.rank <= MAX_LATENT && a.rope_dim > 0 && a.rope_dim % 8 == 0 && a.nope_dim % 4 == 0 &&
         rows && places % 16 == 0;
}

template <typename T> static void append_latents(cudaStream_t stream, const tri_mla_append_args &a) {
  unsigned parts = (unsigned)(a.num_heads + 1) * (unsigned)(a.rope_dim / 8);
  if (a.q_scale) parts += (unsigned)a.num_heads * (unsigned)(a.rank / 4);
  launch_overlapped(mla_append_kernel<T>, dim3(a.q.rows, blocks_for(WARP + parts, THREADS)), THREADS, 0, stream, a);
}

void tri_cuda_mla_append(cudaStream_t stream, const tri_mla_append_args *a, void *) {
  dim3 grid(a->q.rows, blocks_for((size_t)a->num_heads + 1, THREADS / WARP));
  if (!a->q.rows) return;
  if (!latent_in_fours(*a)) {
    launch_overlapped(any_mla_append_kernel, grid, THREADS, 0, stream, *a);
    return;
  }
  switch (a->q.dtype) {
  case TRI_F16: append_latents<__half>(stream, *a); break;
  case TRI_BF16: append_latents<__nv_bfloat16>(stream, *a); break;
  default: append_latents<float>(stream, *a); break;
  }
}
