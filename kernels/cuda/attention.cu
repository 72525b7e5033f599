/* Attention over the cache, and copies of its KV blocks. Written to be right first: a block for each query head of each
 * token, with a running maximum over blocks of keys. */
#include "kernels/cuda/attention.cuh"

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

void tri_cuda_copy_blocks(cudaStream_t stream, const tri_copy_blocks_args *a, void *) {
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
