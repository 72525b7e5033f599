/* SPDX-License-Identifier: Apache-2.0 */
/* The largest logit of a row, for greedy rows. One block reads a vocabulary of 128k logits at the rate of one
 * multiprocessor, which takes longer than a norm and an attention of a small step. So few rows have up to eight blocks
 * each, a cluster, in which every thread has all that it reads under way at once, and the first block takes the least
 * of the blocks' ranks. Ranks are different for all elements: no order of threads changes the answer. */
#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/sampling/rank.cuh"

/* MOST: blocks of a row; more are not portable. RESIDENT: blocks that a multiprocessor has room for. */
enum { THREADS = 512, EACH = 8, MOST = 8, RESIDENT = 2 };

/* The largest value that a thread has met, and the first id that has it. */
typedef struct pick {
  float x;
  int id;
} pick;

/* Takes an element that comes after those taken before. Not a number counts as infinity. */
__device__ static inline void take(pick &p, float x, int id) {
  x = x == x ? x : INFINITY;
  if (x > p.x) {
    p.x = x;
    p.id = id;
  }
}

__device__ static inline float element(const float *x, int i, bool there) { return there ? x[i] : -INFINITY; }

/* Returns the least rank among every threads-th four elements of a row from the `first` ones on. Those before the first
 * place of 16 bytes, and after the last one, are the first threads'. They are loaded with the others. */
__device__ static inline uint64_t best_of(const float *x, int n, int first, int threads) {
  int head = min((int)(-((uintptr_t)x / sizeof *x) & 3), n), fours = (n - head) / 4, tail = head + 4 * fours + first;
  const float4 *body = (const float4 *)(x + head);
  float before = element(x, first, first < head), after = element(x, tail, tail < n);
  pick p = {-INFINITY, 0};
  for (int i = first; i < fours; i += EACH * threads) {
    float4 v[EACH];
#pragma unroll
    for (int u = 0; u < EACH; u++) {
      int at = i + u * threads;
      v[u] = at < fours ? body[at] : make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    }
#pragma unroll
    for (int u = 0; u < EACH; u++) {
      int id = head + 4 * (i + u * threads);
      take(p, v[u].x, id);
      take(p, v[u].y, id + 1);
      take(p, v[u].z, id + 2);
      take(p, v[u].w, id + 3);
    }
  }
  return min(min(rank_of(before, first), rank_of(p.x, p.id)), rank_of(after, tail));
}

/* Returns in the first warp the least rank of the block's threads. */
__device__ static inline uint64_t block_best(uint64_t best, uint64_t *of_warps) {
  int lane = threadIdx.x % WARP;
  best = warp_min(best);
  if (!lane) of_warps[threadIdx.x / WARP] = best;
  __syncthreads();
  return threadIdx.x < WARP ? warp_min(of_warps[lane % (THREADS / WARP)]) : best;
}

/* Reports the row's candidate, and none after it, as it is merged with those of other parts of the vocabulary. */
__device__ static inline void report_candidate(const tri_cuda_sample_args &a, uint64_t best) {
  tri_sample_candidate *out = a.part + (size_t)blockIdx.x * (size_t)a.width;
  bool any = value_of(best) > -INFINITY;
  for (int i = threadIdx.x; i < a.width; i += WARP) {
    out[i].logit = i || !any ? -INFINITY : value_of(best);
    if (i)
      out[i].id = TRI_NO_CANDIDATE;
    else
      out[i].id = any ? a.first_id + (uint32_t)best : TRI_BROKEN_CANDIDATE;
  }
}

/* Finds a row's largest logit, and the first of equal ones: its token, or where a.part is, its candidate. logits [R,
 * n]. Grid (R, blocks of a row), which are a cluster, 512 threads. Shared memory: 24 ranks. */
__global__ static void __launch_bounds__(THREADS, RESIDENT) argmax_kernel(tri_cuda_sample_args a) {
  __shared__ uint64_t of_warps[THREADS / WARP], of_blocks[MOST];
  int blocks = (int)gridDim.y, lane = threadIdx.x % WARP;
  let_next_begin();
  if (blocks > 1) arrive_at_cluster();
  wait_for_previous();
  uint64_t best =
      best_of(row_at(a.logits, blockIdx.x), a.logits.cols, blockIdx.y * THREADS + (int)threadIdx.x, blocks * THREADS);
  best = block_best(best, of_warps);
  if (blocks > 1) {
    wait_at_cluster(); /* the first block has begun */
    if (!threadIdx.x) store_in_cluster(address_in_cluster(&of_blocks[blockIdx.y], 0), best);
    meet_cluster();
    best = of_blocks[lane % blocks];
  }
  if (blockIdx.y || threadIdx.x >= WARP) return;
  best = warp_min(best);
  if (a.part)
    report_candidate(a, best);
  else if (!lane)
    report_token(a, token_of(best), !isfinite(value_of(best)));
}

/* Returns the blocks of a row: as many as find room at a time, each with four elements for every thread. */
static unsigned blocks_of(const tri_mat &logits, int num_sms) {
  static const bool has_clusters = can_overlap(argmax_kernel);
  unsigned blocks = 1, most = has_clusters ? MOST : 1;
  while (2 * blocks <= most && (int64_t)logits.rows * 2 * blocks <= (int64_t)RESIDENT * num_sms &&
         (int64_t)logits.cols >= (int64_t)blocks * THREADS * 8)
    blocks *= 2;
  return blocks;
}

void tri_cuda_argmax(cudaStream_t stream, const tri_cuda_sample_args *a, int num_sms) {
  unsigned blocks = blocks_of(a->logits, num_sms);
  launch_together(argmax_kernel, dim3(a->logits.rows, blocks), blocks, THREADS, 0, stream, *a);
}
