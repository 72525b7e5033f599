/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts that several blocks share (Flash-Decoding's arrangement, Dao et al. 2023): each block leaves the partial
 * results of its split, and the one that finishes last merges all of them, in the order of the splits, so that the sums
 * do not depend on which one that is. A kernel of its own for this would cost what a kernel's beginning and end cost;
 * attention/latent_mma.cu, whose partial results are too large for one block, has one. Short contexts of few sequences
 * have splits that meet in a cluster (attention/cluster_merge.cuh).
 */
#ifndef TRI_KERNELS_CUDA_ATTENTION_SPLIT_KV_CUH
#define TRI_KERNELS_CUDA_ATTENTION_SPLIT_KV_CUH

#include "kernels/cuda/attention/split_plan.h"
#include "kernels/cuda/device/device.cuh"
#include "kernels/kv_heads.h"

enum { MAX_SPLITS = 64, SPLIT_EXTRA = 4 };

/* The blocks of a context meet here. */
struct meeting {
  float *partial;     /* [part][head] rows of values, maximum, sum, two for the alignment; a context's: [head][split] */
  unsigned *counters; /* [part][unit]: blocks that are done; zero before and after each kernel */
  int splits, base;   /* of the context: its parts, and the number of the first one */
};

/* Returns the elements of a head's value, a multiple of four. */
__host__ __device__ static inline int value_dim(const tri_attention_args &a) {
  return a.kv.v_dim ? a.kv.v_dim : a.kv.head_dim;
}
__device__ static inline size_t split_pitch(const tri_attention_args &a) { return (size_t)value_dim(a) + SPLIT_EXTRA; }

__device__ static inline float *split_at(const tri_attention_args &a, const meeting &m, int head, int split) {
  size_t row = (size_t)m.base * (size_t)a.num_heads + (size_t)head * (size_t)m.splits + (size_t)split;
  return m.partial + row * split_pitch(a);
}

/* Returns the part of this block's column of the grid, and m for its context. The list comes from the host, before
 * a step's first kernel: it may be read before the wait. */
__device__ static inline tri_attention_part part_of(const tri_attention_part *parts, meeting &m) {
  static_assert(sizeof(tri_attention_part) == 2 * sizeof(int4), "read in two pieces");
  const int4 *from = (const int4 *)(parts + blockIdx.x);
  int4 low = from[0], high = from[1];
  m.splits = high.z;
  m.base = high.w - high.y;
  return {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
}

/* Returns true in the last block of a context and a unit (a row of the grid's y and z), which then sees what all of
 * them have left. The barriers make the block's stores the first thread's to publish, and what that acquires
 * everybody's; a fence of every thread would cost more. */
__device__ static inline bool is_last_split(const meeting &m) {
  __shared__ bool last;
  __syncthreads();
  if (!threadIdx.x) {
    int units = (int)(gridDim.y * gridDim.z), unit = (int)(blockIdx.z * gridDim.y + blockIdx.y);
    unsigned most = (unsigned)m.splits - 1, before; /* the last one's wraps to zero */
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(m.counters + m.base * units + unit), "r"(most)
                 : "memory");
    last = before == most;
  }
  __syncthreads();
  return last;
}

/* Four elements of a row of m, whose alignment is not known. */
__device__ static inline void store_four(const tri_mat &m, int i, size_t j, float4 x) {
  size_t size = m.dtype == TRI_F32 ? 4 : 2, at = (size_t)i * (size_t)m.ld + j;
  char *to = (char *)m.data + at * size;
  if ((uintptr_t)to % (4 * size)) {
    store_as(m.data, m.dtype, at, x.x);
    store_as(m.data, m.dtype, at + 1, x.y);
    store_as(m.data, m.dtype, at + 2, x.z);
    store_as(m.data, m.dtype, at + 3, x.w);
  } else if (m.dtype == TRI_F32) {
    store4((float *)to, x);
  } else if (m.dtype == TRI_F16) {
    store4((__half *)to, x);
  } else {
    store4((__nv_bfloat16 *)to, x);
  }
}

/* ITEMS quadruples of one row, of the splits from `first` on. */
template <int ITEMS>
__device__ static inline void load_splits(float4 (&v)[ITEMS], const float *row, size_t pitch, int first, int splits) {
#pragma unroll
  for (int k = 0; k < ITEMS; k++)
    if (first + k < splits) v[k] = __ldcg((const float4 *)(row + (size_t)(first + k) * pitch));
}

/* The factors of heads * splits partial results, and each head's share of the sink: in room, after the sums. All
 * threads must go through it, and through a barrier before they read. */
template <int THREADS>
__device__ static inline void weigh_splits(const tri_attention_args &a, const float *from, size_t pitch, int head0,
                                           int heads, int splits, float *room) {
  int all = heads * splits;
  float *maxima = room, *sums = maxima + all, *factors = sums + all, *sinks = factors + all;
  for (int p = threadIdx.x; p < all; p += THREADS) {
    float2 s = __ldcg((const float2 *)(from + (size_t)p * pitch + value_dim(a)));
    maxima[p] = s.x;
    sums[p] = s.y;
  }
  __syncthreads();
  for (int p = threadIdx.x; p < all; p += THREADS) {
    int row = p / splits;
    float sink = a.sinks ? a.sinks[head0 + row] : -INFINITY, top = sink;
#pragma unroll 8
    for (int s = 0; s < splits; s++) top = fmaxf(top, maxima[row * splits + s]);
    factors[p] = expf(maxima[p] - top);
    if (p % splits == 0) sinks[row] = expf(sink - top);
  }
}

/* The splits of a token's query heads from head0 on, to the output. room: 3 * heads * splits + heads floats, free once
 * the block has met. What can be read at once is read at once: this is nothing but latencies. */
template <int THREADS>
__device__ static inline void merge_splits(const tri_attention_args &a, const meeting &m, int t, int head0, int heads,
                                           float *room) {
  enum { AHEAD = 16 };
  int splits = m.splits, fours = value_dim(a) / 4;
  size_t pitch = split_pitch(a);
  const float *from = split_at(a, m, head0, 0), *sums = room + heads * splits, *factors = sums + heads * splits,
              *sinks = factors + heads * splits;
  float4 v[AHEAD];
  /* The condition is the block's, not the thread's: all threads meet in weigh_splits, and those without an element only
   * that. */
  for (int i = threadIdx.x; i - (int)threadIdx.x < heads * fours; i += THREADS) {
    int row = min(i / fours, heads - 1), e = 4 * (i % fours);
    const float *values = from + (size_t)(row * splits) * pitch + (size_t)e;
    load_splits<AHEAD>(v, values, pitch, 0, splits);
    if (i == (int)threadIdx.x) {
      weigh_splits<THREADS>(a, from, pitch, head0, heads, splits, room);
      __syncthreads();
    }
    float4 x = make_float4(0, 0, 0, 0);
    float sum = sinks[row];
    for (int first = 0; first < splits; first += AHEAD) {
      if (first) load_splits<AHEAD>(v, values, pitch, first, splits);
#pragma unroll
      for (int k = 0; k < AHEAD; k++) {
        if (first + k >= splits) continue;
        int p = row * splits + first + k;
        float factor = factors[p];
        x.x += v[k].x * factor;
        x.y += v[k].y * factor;
        x.z += v[k].z * factor;
        x.w += v[k].w * factor;
        sum += sums[p] * factor;
      }
    }
    if (i >= heads * fours) continue;
    store_four(a.out, t, (size_t)(head0 + row) * (size_t)value_dim(a) + (size_t)e,
               make_float4(x.x / sum, x.y / sum, x.z / sum, x.w / sum));
  }
}

#endif
