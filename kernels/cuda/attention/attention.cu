/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over the cache, and copies of its KV blocks. Written to be right first: a block for each query head of each
 * token, with a running maximum over blocks of keys.
 *
 * It has the shapes that no other kernel takes (choose_attention in ops.c): heads above 256 elements in float32 or
 * above 512, heads of a number of elements that is no multiple of eight, and latent caches that attention/latent_mma.cu
 * refuses. It is simple, not fast: each thread reads a key's row by itself, so that loads do not coalesce, and no load
 * is begun ahead. */
#include "kernels/cuda/attention/attention.cuh"

enum { THREADS = 128, MAX_HEAD = 1024 };

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

/* Attention of any shape. q and out [T, heads * d], keys and values in pages. Grid (T, heads), 128 threads, which take
 * a key each and then values. Shared memory: a query, 128 weights and room for sums, under 5 KiB. */
template <typename T> __global__ static void attention_kernel(tri_attention_args a, tri_batch b) {
  /* The softmax is online: `top` and `sum` are of the keys so far, and acc is scaled by exp(old top - new top) before a
   * block is added. A sink is a score without a value, so that it begins both: top = sink, sum = exp(0). */
  __shared__ float q[MAX_HEAD], p[THREADS], room[WARP];
  int t = blockIdx.x, head = blockIdx.y, d = a.kv.v_dim ? a.kv.v_dim : a.kv.head_dim,
      kv_head = tri_kv_head_of(&a, head);
  view v = view_of(a, b, t);
  const T *values = (const T *)(a.kv.v_dim ? a.kv.k : a.kv.v);
  float acc[MAX_HEAD / THREADS] = {0}, top = a.sinks ? a.sinks[head] : -INFINITY, sum = a.sinks ? 1 : 0;
  for (int i = threadIdx.x; i < a.kv.head_dim; i += THREADS)
    q[i] = load_at(a.q, t, (size_t)head * (size_t)a.kv.head_dim + (size_t)i);
  __syncthreads();
  for (int block = v.first; block <= v.last; block += THREADS) {
    int j = block + (int)threadIdx.x, keys = min(THREADS, v.last + 1 - block);
    float s = -INFINITY;
    if (j <= v.last)
      s = adjust(a, dot_key(q, (const T *)a.kv.k + kv_offset(a.kv, v.kv_blocks, j, kv_head), a.kv.head_dim), head, j,
                 v.position);
    float fresh = fmaxf(top, block_max(s, room)), factor = expf(top - fresh);
    p[threadIdx.x] = j <= v.last ? expf(s - fresh) : 0;
    sum = sum * factor + block_sum(p[threadIdx.x], room); /* ends with a barrier: all of p stands */
    for (int e = threadIdx.x, i = 0; e < d; e += THREADS, i++) {
      float x = acc[i] * factor;
      for (int k = 0; k < keys; k++)
        x += p[k] * (float)values[kv_offset(a.kv, v.kv_blocks, block + k, kv_head) + (size_t)e];
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

/* ---- copies of KV blocks ---- */

enum { COPIES = 96, COPY_THREADS = 256 };

/* Pairs that go at once: none reads or writes what another one writes. They are the kernel's parameter, so that no list
 * has to be copied to the device first. */
struct copies {
  int2 pairs[COPIES]; /* from, to */
  int count;
};

/* Copies whole KV blocks. words: of a block, 16 or 2 bytes long. Grid (pairs, keys and values), 256 threads. */
template <typename T>
__global__ static void copy_kernel(const __grid_constant__ copies c, T *keys, T *values, size_t words) {
  T *cache = blockIdx.y ? values : keys;
  const T *from = cache + (size_t)c.pairs[blockIdx.x].x * words;
  T *to = cache + (size_t)c.pairs[blockIdx.x].y * words;
  for (size_t i = threadIdx.x; i < words; i += COPY_THREADS) to[i] = from[i];
}

static void copy(cudaStream_t stream, const tri_kv_layer &kv, const copies &c) {
  size_t element = kv.dtype == TRI_F32 ? 4 : 2;
  size_t bytes = (size_t)kv.num_kv_heads * (size_t)kv.block_size * (size_t)kv.head_dim * element;
  dim3 grid(c.count, kv.v_dim ? 1 : 2);
  if (!c.count) return;
  if (bytes % sizeof(uint4))
    copy_kernel<<<grid, COPY_THREADS, 0, stream>>>(c, (uint16_t *)kv.k, (uint16_t *)kv.v, bytes / sizeof(uint16_t));
  else
    copy_kernel<<<grid, COPY_THREADS, 0, stream>>>(c, (uint4 *)kv.k, (uint4 *)kv.v, bytes / sizeof(uint4));
}

/* A launch's pairs run in any order. A pair that reads or writes a block that an earlier one writes, or writes one that
 * it reads, begins a new launch, which the stream puts after it. */
static bool goes_with(const copies &c, int from, int to) {
  for (int i = 0; i < c.count; i++)
    if (c.pairs[i].y == from || c.pairs[i].y == to || c.pairs[i].x == to) return false;
  return c.count < COPIES;
}

void tri_cuda_copy_blocks(cudaStream_t stream, const tri_copy_blocks_args *a, void *) {
  copies c = {};
  for (int i = 0; i < a->num_pairs; i++) {
    int from = a->pairs[2 * i], to = a->pairs[2 * i + 1];
    if (from == to) continue;
    if (!goes_with(c, from, to)) {
      copy(stream, a->kv, c);
      c.count = 0;
    }
    c.pairs[c.count++] = make_int2(from, to);
  }
  copy(stream, a->kv, c);
}
