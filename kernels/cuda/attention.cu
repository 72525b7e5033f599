/* Rotary angles, the cache's new entries, and attention over it. Written to be right first: a block for each query head
 * of each token, with a running maximum over blocks of keys. */
#include "kernels/cuda/attention.cuh"
#include "kernels/ref/formulas.h"

enum { THREADS = 128, MAX_HEAD = 1024 };

__global__ static void rope_angles_kernel(tri_rope_angles_args a) {
  int t = blockIdx.x, half = a.rotary_dim / 2, len = a.rope_len[t];
  bool beyond = len > a.original_max_len;
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    float f = a.kind == TRI_ROPE_DYNAMIC && beyond
                  ? tri_formula_dynamic_frequency(a.base, a.factor, len, a.original_max_len, a.rotary_dim, i)
              : a.kind == TRI_ROPE_BY_LENGTH && beyond ? a.inv_freq_long[i]
                                                       : a.inv_freq[i];
    double angle = (double)__fmul_rn((float)a.positions[t], f);
    a.cos[(size_t)t * (size_t)half + (size_t)i] = (float)(a.attention_scale * cos(angle));
    a.sin[(size_t)t * (size_t)half + (size_t)i] = (float)(a.attention_scale * sin(angle));
  }
}

void tri_cuda_rope_angles(cudaStream_t stream, const tri_rope_angles_args *a, void *workspace) {
  (void)workspace;
  if (a->num_tokens && a->rotary_dim) rope_angles_kernel<<<a->num_tokens, THREADS, 0, stream>>>(*a);
}

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

/* A warp for each head of each token. */
__global__ static void append_kernel(tri_qkv_rope_append_args a) {
  let_next_begin();
  wait_for_previous();
  int t = blockIdx.x, d = a.head_dim, hq = a.num_heads, hkv = a.num_kv_heads, half = a.rotary_dim / 2;
  int lane = threadIdx.x % WARP;
  float *row = row_at(a.qkv, t);
  int64_t slot = a.kv_slot[t];
  int h = blockIdx.y * (THREADS / WARP) + threadIdx.x / WARP;
  if (h < hq + 2 * hkv) {
    float *x = row + (size_t)h * (size_t)d;
    bool value = h >= hq + hkv;
    const float *weight = value ? NULL : h < hq ? a.q_norm : a.k_norm;
    size_t own = (size_t)(h < hq ? h : h - hq) * (size_t)a.norm_stride, angle = (size_t)t * (size_t)half;
    if (weight) norm_head(x, d, weight + own, a.norm_kind, a.norm_eps, a.norm_weight_offset);
    if (half && !value) rotate_head(x, a.rotary_dim, a.interleaved, a.cos + angle, a.sin + angle);
    if (h < hq || slot < 0) return; /* a query, or a padding row */
    size_t page = (size_t)(slot / a.kv.block_size), in_page = (size_t)(slot % a.kv.block_size);
    size_t head = (size_t)(h - hq - (value ? hkv : 0));
    size_t at = ((page * (size_t)hkv + head) * (size_t)a.kv.block_size + in_page) * (size_t)d;
    for (int i = lane; i < d; i += WARP) store_as(value ? a.kv.v : a.kv.k, a.kv.dtype, at + (size_t)i, x[i]);
  }
}

void tri_cuda_qkv_rope_append(cudaStream_t stream, const tri_qkv_rope_append_args *a, void *workspace) {
  (void)workspace;
  dim3 grid(a->qkv.rows, blocks_for((size_t)(a->num_heads + 2 * a->num_kv_heads), THREADS / WARP));
  if (a->qkv.rows) launch_overlapped(append_kernel, grid, THREADS, 0, stream, *a);
}

/* Warp 0 makes the latent and the shared key, the others the queries' rotated parts. */
__global__ static void mla_append_kernel(tri_mla_append_args a) {
  size_t t = blockIdx.x, rank = (size_t)a.rank, rope = (size_t)a.rope_dim, nope = (size_t)a.nope_dim;
  const float *q = row_at(a.q, (int)t), *co = a.cos + t * (rope / 2), *si = a.sin + t * (rope / 2);
  float *out = row_at(a.q_out, (int)t), *latent = row_at(a.kv_a, (int)t);
  int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  for (int h = warp - 1; warp && h < a.num_heads; h += warps - 1) {
    float *to = out + (size_t)h * (rank + rope) + rank;
    for (size_t i = lane; i < rope; i += WARP) to[i] = q[(size_t)h * (nope + rope) + nope + i];
    __syncwarp();
    rotate_head(to, a.rope_dim, a.interleaved, co, si);
  }
  if (warp) return;
  norm_head(latent, a.rank, a.norm, TRI_NORM_RMS, a.norm_eps, 0);
  rotate_head(latent + rank, a.rope_dim, a.interleaved, co, si);
  if (a.kv_slot[t] < 0) return; /* a padding row */
  for (size_t i = lane; i < rank + rope; i += WARP)
    store_as(a.kv.k, a.kv.dtype, (size_t)a.kv_slot[t] * (rank + rope) + i, latent[i]);
}

void tri_cuda_mla_append(cudaStream_t stream, const tri_mla_append_args *a, void *workspace) {
  (void)workspace;
  if (a->q.rows) mla_append_kernel<<<a->q.rows, THREADS, 0, stream>>>(*a);
}

/* q . key, in pieces where the head's size allows it. */
template <typename T> __device__ static float dot_key(const float *q, const T *key, int d) {
  float s = 0;
  if (d % PIECE == 0) {
    for (int i = 0; i < d; i += PIECE) {
      piece<T> raw;
      float wide[PIECE];
      raw.load(key + i);
      raw.widen(wide);
#pragma unroll
      for (int u = 0; u < PIECE; u++) s += q[i + u] * wide[u];
    }
  } else {
    for (int i = 0; i < d; i++) s += q[i] * (float)key[i];
  }
  return s;
}

template <typename T> __global__ static void attention_kernel(tri_attention_args a, tri_batch b) {
  __shared__ float q[MAX_HEAD], p[THREADS], room[WARP];
  int t = blockIdx.x, head = blockIdx.y, d = a.kv.v_dim ? a.kv.v_dim : a.kv.head_dim, kv_head = a.kv_head_of[head];
  view v = view_of(a, b, t);
  const T *values = (const T *)(a.kv.v_dim ? a.kv.k : a.kv.v);
  float acc[MAX_HEAD / THREADS] = {0}, top = a.sinks ? a.sinks[head] : -INFINITY, sum = a.sinks ? 1 : 0;
  for (int i = threadIdx.x; i < a.kv.head_dim; i += THREADS)
    q[i] = row_at(a.q, t)[(size_t)head * (size_t)a.kv.head_dim + (size_t)i];
  __syncthreads();
  for (int block = v.first; block <= v.last; block += THREADS) {
    int j = block + (int)threadIdx.x, keys = min(THREADS, v.last + 1 - block);
    float s = -INFINITY;
    if (j <= v.last)
      s = adjust(a, dot_key(q, (const T *)a.kv.k + kv_offset(a.kv, v.pages, j, kv_head), a.kv.head_dim), head, j,
                 v.position);
    float fresh = fmaxf(top, block_max(s, room)), factor = expf(top - fresh);
    p[threadIdx.x] = j <= v.last ? expf(s - fresh) : 0;
    sum = sum * factor + block_sum(p[threadIdx.x], room); /* ends with a barrier: all of p stands */
    for (int e = threadIdx.x, i = 0; e < d; e += THREADS, i++) {
      float x = acc[i] * factor;
      for (int k = 0; k < keys; k++)
        x += p[k] * (float)values[kv_offset(a.kv, v.pages, block + k, kv_head) + (size_t)e];
      acc[i] = x;
    }
    top = fresh;
    __syncthreads();
  }
  for (int e = threadIdx.x, i = 0; e < d; e += THREADS, i++)
    store_at(a.out, t, (size_t)head * (size_t)d + (size_t)e, acc[i] / sum);
}

void tri_cuda_attention(cudaStream_t stream, const tri_attention_args *a) {
  dim3 grid(a->q.rows, a->num_heads);
  if (!a->q.rows || !a->batch->num_seqs) return;
  switch (a->kv.dtype) {
  case TRI_BF16: attention_kernel<__nv_bfloat16><<<grid, THREADS, 0, stream>>>(*a, *a->batch); break;
  case TRI_F16: attention_kernel<__half><<<grid, THREADS, 0, stream>>>(*a, *a->batch); break;
  default: attention_kernel<float><<<grid, THREADS, 0, stream>>>(*a, *a->batch); break;
  }
}

void tri_cuda_copy_pages(cudaStream_t stream, const tri_copy_pages_args *a, void *workspace) {
  (void)workspace;
  size_t element = a->kv.dtype == TRI_F32 ? 4 : 2;
  size_t bytes = (size_t)a->kv.num_kv_heads * (size_t)a->kv.block_size * (size_t)a->kv.head_dim * element;
  for (int i = 0; i < a->num_pairs; i++) {
    size_t from = (size_t)a->pairs[2 * i] * bytes, to = (size_t)a->pairs[2 * i + 1] * bytes;
    if (from == to) continue;
    cudaMemcpyAsync((char *)a->kv.k + to, (char *)a->kv.k + from, bytes, cudaMemcpyDeviceToDevice, stream);
    if (!a->kv.v_dim)
      cudaMemcpyAsync((char *)a->kv.v + to, (char *)a->kv.v + from, bytes, cudaMemcpyDeviceToDevice, stream);
  }
}
