/* SPDX-License-Identifier: Apache-2.0 */
/* Routing a token by a warp, in double, with the formulas and in the order of kernels/ref/moe_route.h. What is computed
 * for a token takes less time than to fetch the instructions that do it, so loops are not unrolled where that makes
 * them longer. Scores are double because the reference's are: a choice flips where two scores are close, and a flipped
 * expert is not a rounding error. */
#ifndef TRI_KERNELS_CUDA_MOE_ROUTE_CUH
#define TRI_KERNELS_CUDA_MOE_ROUTE_CUH

#include "kernels/cuda/device/device.cuh"
#include "kernels/cuda/moe/moe.h"
#include "kernels/ref/moe_route.h"

enum { FEW = 128, MANY = 256 }; /* experts, of which a lane has four or eight in registers */

/* ---- choices by logits alone ---- */

/* True where the largest logits are chosen, and only they have a weight: Mixtral, Qwen3, gpt-oss. */
__host__ __device__ static inline bool is_by_logits(const tri_moe_route_args &a) {
  return tri_moe_score_of(&a) == TRI_MOE_TOPK_SOFTMAX && !a.bias && a.num_groups <= 1 && a.top_k <= WARP &&
         a.logits.cols <= MANY;
}

/* Numbers in the order of the logits that they stand for, all above 0; both zeros are one. */
__device__ static inline unsigned key_of(float x) {
  unsigned bits = __float_as_uint(x + 0.0f);
  return bits >> 31 ? ~bits : bits | 1u << 31;
}
__device__ static inline float logit_of(unsigned key) { return __uint_as_float(key >> 31 ? key & ~(1u << 31) : ~key); }

/* Chooses the largest of E <= 32 EACH logits, of equal ones the lowest id first. False where one is no number. ids in
 * shared memory. */
template <int EACH>
__device__ static bool choose_by_logits(const tri_moe_route_args &a, const float *logits, int32_t *ids,
                                        float *weights) {
  int n = a.logits.cols, lane = threadIdx.x % WARP, own_id = 0;
  unsigned key[EACH]; /* of every 32nd; 0: taken, or none */
  float own = 0;
  bool number = true;
#pragma unroll
  for (int j = 0; j < EACH; j++) {
    bool there = lane + j * WARP < n;
    float x = there ? logits[lane + j * WARP] : 0;
    number &= !isnan(x);
    key[j] = there ? key_of(x) : 0;
  }
  if (!__all_sync(ALL_LANES, number)) return false;
#pragma unroll 1
  for (int c = 0; c < a.top_k; c++) {
    unsigned best = key[0];
    int at = 0;
#pragma unroll
    for (int j = 1; j < EACH; j++)
      if (key[j] > best) {
        best = key[j];
        at = j;
      }
    unsigned top = __reduce_max_sync(ALL_LANES, best);
    int id = (int)__reduce_min_sync(ALL_LANES, best == top ? (unsigned)(lane + at * WARP) : 0xffffffffu);
#pragma unroll
    for (int j = 0; j < EACH; j++)
      if (lane + j * WARP == id) key[j] = 0;
    if (lane == c) {
      own = logit_of(top);
      own_id = id;
    }
  }
  double most = __shfl_sync(ALL_LANES, own, 0), e = exp((double)own - most), sum = 0;
#pragma unroll 1
  for (int c = 0; c < a.top_k; c++) sum += __shfl_sync(ALL_LANES, e, c);
  if (lane < a.top_k) {
    ids[lane] = own_id;
    weights[lane] = tri_moe_scaled(&a, e / sum, own_id);
  }
  return true;
}

/* ---- all kinds of choices ---- */

/* A warp's room in shared memory. */
typedef struct token_room {
  double *score, *choice, *group, *value; /* [E], [E], [num_groups], [top_k]; the first three as the host's scratch */
} token_room;

__host__ __device__ static inline size_t room_doubles(const tri_moe_route_args &a) {
  return 2 * (size_t)a.logits.cols + (size_t)a.num_groups + (size_t)a.top_k;
}

__device__ static inline double warp_sum(double x) {
  for (int o = WARP / 2; o; o /= 2) x += __shfl_xor_sync(ALL_LANES, x, o);
  return x;
}

/* Numbers in the order of the choices that they stand for, all above 0; both zeros are one. */
__device__ static inline unsigned long long key_of(double x) {
  unsigned long long bits = (unsigned long long)__double_as_longlong(x + 0.0);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

__device__ static inline double choice_of(unsigned long long key) {
  return __longlong_as_double((long long)(key >> 63 ? key & ~(1ull << 63) : ~key));
}

/* Doubles have no warp reduction: the keys' upper halves are compared first, and then the lower halves of those that
 * are equal. */
__device__ static inline unsigned long long warp_max_key(unsigned long long key) {
  unsigned high = __reduce_max_sync(ALL_LANES, (unsigned)(key >> 32));
  unsigned low = __reduce_max_sync(ALL_LANES, (unsigned)(key >> 32) == high ? (unsigned)key : 0u);
  return (unsigned long long)high << 32 | low;
}

/* Brings a lane's logits and biases to its room, BATCH of each under way at a time: one by one they would take longer
 * than all else. Returns the lane's largest logit. */
__device__ static float bring_logits(const tri_moe_route_args &a, const float *logits, const token_room &r) {
  enum { BATCH = MANY / WARP };
  int n = a.logits.cols;
  float top = -INFINITY;
#pragma unroll 1
  for (int first = threadIdx.x % WARP; first < n; first += BATCH * WARP) {
    float x[BATCH], bias[BATCH];
#pragma unroll
    for (int j = 0; j < BATCH; j++) {
      int e = min(first + j * WARP, n - 1);
      x[j] = logits[e];
      bias[j] = a.bias ? a.bias[e] : 0;
    }
#pragma unroll
    for (int j = 0; j < BATCH; j++) {
      int e = first + j * WARP;
      if (e >= n) continue;
      r.score[e] = x[j];
      r.choice[e] = bias[j];
      top = fmaxf(top, x[j]);
    }
  }
  return top;
}

/* Each lane makes its own elements: every 32nd. False where one is no number. */
__device__ static bool score_token(const tri_moe_route_args &a, const float *logits, const token_room &r) {
  int n = a.logits.cols, lane = threadIdx.x % WARP;
  tri_moe_score kind = tri_moe_score_of(&a);
  float top = bring_logits(a, logits, r);
  double sum = 0;
  bool number = true;
  if (kind == TRI_MOE_SOFTMAX) {
    top = warp_max(top);
#pragma unroll 1
    for (int e = lane; e < n; e += WARP) sum += r.score[e] = exp(r.score[e] - top);
    sum = warp_sum(sum);
  }
#pragma unroll 1
  for (int e = lane; e < n; e += WARP) {
    double score = r.score[e];
    if (kind == TRI_MOE_SOFTMAX) score /= sum;
    if (kind == TRI_MOE_SIGMOID) score = 1 / (1 + exp(-score));
    r.score[e] = score;
    number &= !isnan(r.choice[e] += score);
  }
  return number;
}

/* best_sum of the reference for a group of up to 32, an element for each lane. */
__device__ static double best_sum_by_warp(const double *choice, int size, int best) {
  int lane = threadIdx.x % WARP;
  unsigned long long key = lane < size && choice[lane] < INFINITY ? key_of(choice[lane]) : 0;
  double sum = 0;
#pragma unroll 1
  for (int taken = 0; taken < best; taken++) {
    unsigned long long most = warp_max_key(key);
    if (!most) return NAN;
    if (lane == __ffs((int)__ballot_sync(ALL_LANES, key == most)) - 1) key = 0;
    sum += choice_of(most);
  }
  return sum;
}

/* cut_groups of the reference. */
__device__ static void cut_groups_by_warp(const tri_moe_route_args &a, const token_room &r) {
  int size = a.logits.cols / a.num_groups, lane = threadIdx.x % WARP;
  __syncwarp();
  for (int g = 0; g < a.num_groups && size <= WARP; g++) {
    double sum = best_sum_by_warp(r.choice + g * size, size, a.group_best);
    if (!lane) r.group[g] = sum;
  }
  for (int g = lane; g < a.num_groups && size > WARP; g += WARP)
    r.group[g] = best_sum(r.choice + (size_t)g * (size_t)size, size, a.group_best);
  __syncwarp();
  for (int g = lane; g < a.num_groups; g += WARP) {
    int better = 0;
    for (int o = 0; o < a.num_groups; o++) better += r.group[o] > r.group[g] || (r.group[o] == r.group[g] && o < g);
    for (int i = 0; i < size && better >= a.top_groups; i++) r.choice[g * size + i] = -INFINITY;
  }
  __syncwarp();
}

/* A lane's best element that is not taken, the first of equal ones. Taken ones have the key 0. */
__device__ static inline unsigned long long best_of_lane(const unsigned long long *key, int n, int *at) {
  unsigned long long best = 0;
  for (int e = threadIdx.x % WARP; e < n; e += WARP)
    if (key[e] > best) {
      best = key[e];
      *at = e;
    }
  return best;
}

/* The ids of the best, best first, of equal ones the lowest first. Only the lane that loses its best looks for another.
 */
__device__ static void take_best_by_warp(const token_room &r, int n, int top_k, int32_t *ids) {
  unsigned long long *key = (unsigned long long *)r.choice;
  int lane = threadIdx.x % WARP, at = 0;
  for (int e = lane; e < n; e += WARP) key[e] = key_of(r.choice[e]);
  unsigned long long best = best_of_lane(key, n, &at);
  for (int c = 0; c < top_k; c++) {
    unsigned long long most = warp_max_key(best);
    int id = (int)__reduce_min_sync(ALL_LANES, best == most ? (unsigned)at : 0xffffffffu);
    if (lane == id % WARP) {
      r.value[c] = r.score[id];
      ids[c] = id;
      key[id] = 0;
      best = best_of_lane(key, n, &at);
    }
  }
  __syncwarp();
}

/* The same of up to 256, whose keys lie in registers. */
__device__ static void take_best_of_few(const token_room &r, int n, int top_k, int32_t *ids) {
  enum { EACH = MANY / WARP };
  unsigned long long key[EACH];
  int lane = threadIdx.x % WARP;
  __syncwarp();
#pragma unroll
  for (int j = 0; j < EACH; j++) key[j] = lane + j * WARP < n ? key_of(r.choice[lane + j * WARP]) : 0;
#pragma unroll 1
  for (int c = 0; c < top_k; c++) {
    unsigned long long best = key[0];
    int at = 0;
#pragma unroll
    for (int j = 1; j < EACH; j++)
      if (key[j] > best) {
        best = key[j];
        at = j;
      }
    unsigned long long most = warp_max_key(best);
    int id = (int)__reduce_min_sync(ALL_LANES, best == most ? (unsigned)(lane + at * WARP) : 0xffffffffu);
#pragma unroll
    for (int j = 0; j < EACH; j++)
      if (lane + j * WARP == id) key[j] = 0;
    if (lane == id % WARP) {
      r.value[c] = r.score[id];
      ids[c] = id;
    }
  }
  __syncwarp();
}

/* weights_of of the reference from the chosen scores. */
__device__ static void weigh(const tri_moe_route_args &a, const token_room &r, const int32_t *ids, float *weights) {
  bool softmax = tri_moe_score_of(&a) == TRI_MOE_TOPK_SOFTMAX;
  int lane = threadIdx.x % WARP;
  double top = r.value[0], sum = 0;
  if (a.score == TRI_MOE_SPARSEMIXER) {
    for (int c = lane; c < a.top_k; c += WARP)
      weights[c] = tri_moe_scaled(&a, sparse_weight(&a, r.score, ids, c), ids[c]);
    __syncwarp();
    return;
  }
  for (int c = 1; c < a.top_k; c++) top = fmax(top, r.value[c]);
  __syncwarp();
  for (int c = lane; softmax && c < a.top_k; c += WARP) r.value[c] = exp(r.value[c] - top);
  __syncwarp();
  for (int c = 0; c < a.top_k; c++) sum += r.value[c];
  if (!softmax && a.renormalize && a.score == TRI_MOE_SIGMOID) sum += 1e-20;
  if (!softmax && !a.renormalize) sum = 1;
  for (int c = lane; c < a.top_k; c += WARP) weights[c] = tri_moe_scaled(&a, r.value[c] / sum, ids[c]);
  __syncwarp();
}

/* ---- both ---- */

/* Chooses as the reference does where a logit is no number, by one thread: their order is that of its comparisons. */
__device__ static void route_without_numbers(const tri_moe_route_args &a, int t, double *scratch, int32_t *ids,
                                             float *weights) {
  __syncwarp();
  if (threadIdx.x % WARP == 0) tri_moe_choose(&a, t, scratch, ids, weights);
  __syncwarp();
}

/* Chooses token t's experts, [top_k] in shared memory, with their weights. A row that only pads the step has none: its
 * choices are -1. False where a logit is no number: nothing is chosen then. scratch: room_doubles, which is_by_logits
 * does without. */
__device__ static bool route_numbers(const tri_moe_route_args &a, int t, double *scratch, int32_t *ids,
                                     float *weights) {
  token_room r = {scratch, scratch + a.logits.cols, scratch + 2 * a.logits.cols, NULL};
  const float *logits = row_at(a.logits, t);
  int lane = threadIdx.x % WARP;
  bool chosen = true;
  r.value = r.group + a.num_groups;
  if (a.kv_slot && a.kv_slot[t] < 0) {
    for (int c = lane; c < a.top_k; c += WARP) {
      ids[c] = -1;
      weights[c] = 0;
    }
    __syncwarp();
    return true;
  }
  if (is_by_logits(a) && a.logits.cols <= FEW) {
    chosen = choose_by_logits<FEW / WARP>(a, logits, ids, weights);
  } else if (is_by_logits(a)) {
    chosen = choose_by_logits<MANY / WARP>(a, logits, ids, weights);
  } else if ((chosen = __all_sync(ALL_LANES, score_token(a, logits, r)))) {
    if (a.num_groups > 1) cut_groups_by_warp(a, r);
    if (a.logits.cols <= MANY)
      take_best_of_few(r, a.logits.cols, a.top_k, ids);
    else
      take_best_by_warp(r, a.logits.cols, a.top_k, ids);
    weigh(a, r, ids, weights);
  }
  __syncwarp();
  for (int c = lane; chosen && a.slots && c < a.top_k; c += WARP) ids[c] = tri_moe_slot_of(&a, t, ids[c]);
  __syncwarp();
  return chosen;
}

__device__ static void route_token(const tri_moe_route_args &a, int t, double *scratch, int32_t *ids, float *weights) {
  if (!route_numbers(a, t, scratch, ids, weights)) route_without_numbers(a, t, scratch, ids, weights);
}

#endif
