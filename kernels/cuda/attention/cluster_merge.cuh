/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts that the blocks of a cluster share, which merge their splits out of each other's shared memory: no partial
 * results go through memory, and no block has to be the last one. What it costs is two barriers, so it pays for short
 * contexts, too, where those of attention/split_kv.cuh would not. The splits of a context are column blockIdx.y of the
 * grid. */
#ifndef TRI_KERNELS_CUDA_ATTENTION_CLUSTER_MERGE_CUH
#define TRI_KERNELS_CUDA_ATTENTION_CLUSTER_MERGE_CUH

#include "kernels/cuda/attention/split_kv.cuh"
#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/device/fast_math.cuh"

enum { MAX_JOINED = 8 }; /* splits of a cluster: more are not portable */

/* A row of results in shared memory: WIDTH weighted values, their maximum in units of log 2, their sum. Rows lie eight
 * banks apart. */
template <int WIDTH> __device__ static inline float *row_at_width(float *rows, int row) {
  return rows + row * (WIDTH + 8);
}
template <int WIDTH> __host__ __device__ static constexpr size_t row_bytes(int rows) {
  return (size_t)rows * (WIDTH + 8) * sizeof(float);
}

/* Four elements of a row out of the shared memory of all blocks of the cluster. A block k with nothing has the maximum
 * -infinity and so the factor 0. All loads are begun before the first one is used, since each crosses the cluster's
 * network. */
__device__ static inline float4 join_four(const float *soft, const float *values, int splits) {
  float2 s[MAX_JOINED];
  float4 v[MAX_JOINED], all = make_float4(0, 0, 0, 0);
  float top = -INFINITY, sum = 0;
#pragma unroll
  for (int k = 0; k < MAX_JOINED; k++) {
    s[k] = make_float2(-INFINITY, 0);
    v[k] = make_float4(0, 0, 0, 0);
    if (k >= splits) continue;
    s[k] = load2_in_cluster(address_in_cluster(soft, k));
    v[k] = load4_in_cluster(address_in_cluster(values, k));
  }
#pragma unroll
  for (int k = 0; k < MAX_JOINED; k++) top = fmaxf(top, s[k].x);
#pragma unroll
  for (int k = 0; k < MAX_JOINED; k++) {
    float factor = power_of_two(s[k].x - top);
    sum += s[k].y * factor;
    all.x += v[k].x * factor;
    all.y += v[k].y * factor;
    all.z += v[k].z * factor;
    all.w += v[k].w * factor;
  }
  return make_float4(all.x / sum, all.y / sum, all.z / sum, all.w / sum);
}

/* Merges the splits of a token's heads from head0 on, of which every block has left a row in `rows`, to the output.
 * Each block puts together an equal share of the elements, in the order of the splits. */
template <int THREADS, int WIDTH>
__device__ static inline void join_rows(const tri_attention_args &a, float *rows, int t, int head0, int heads) {
  int fours = value_dim(a) / 4, splits = (int)gridDim.y, share = (heads * fours + splits - 1) / splits;
  int first = (int)blockIdx.y * share, end = min(heads * fours, first + share);
  meet_cluster();
  for (int i = first + (int)threadIdx.x; i < end; i += THREADS) {
    int row = i / fours, e = 4 * (i % fours);
    const float *from = row_at_width<WIDTH>(rows, row);
    store_four(a.out, t, (size_t)(head0 + row) * (size_t)value_dim(a) + (size_t)e,
               join_four(from + WIDTH, from + e, splits));
  }
  /* No block leaves while others read its memory. Each thread has had what it stores; the stores are not waited for. */
  arrive_at_cluster();
  wait_at_cluster();
}

#endif
