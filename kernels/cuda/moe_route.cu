/* Routing and the map of the choices. A warp routes a token, in double, with the formulas and in the order of
 * kernels/ref/moe_route.h. Up to 4096 choices one launch does both: the last of its blocks to finish makes the map.
 * More take three: each block counts the choices of its tokens by expert, one block adds the counts up, and all place.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/moe.h"
#include "kernels/ref/moe_route.h"

enum {
  MOST_WARPS = 8,
  FUSED_CHOICES = 4096,
  PART_TOKENS = 32, /* of a block where there are more choices */
  SCAN_THREADS = 1024,
  PLACE_THREADS = 256,
  MOST_SHARED = (48 << 10) - 64 /* the kernels have some of their own */
};
#define ALL_LANES 0xffffffffu

/* ---- a token ---- */

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

/* Each lane makes its own elements: every 32nd. False where one is no number. */
__device__ static bool score_token(const tri_moe_route_args &a, const float *logits, const token_room &r) {
  int n = a.logits.cols, lane = threadIdx.x % WARP;
  float top = -INFINITY;
  double sum = 0;
  bool number = true;
  for (int e = lane; e < n; e += WARP) {
    float x = logits[e];
    r.score[e] = x;
    top = fmaxf(top, x);
  }
  if (a.score == TRI_MOE_SOFTMAX) {
    top = warp_max(top);
    for (int e = lane; e < n; e += WARP) sum += r.score[e] = exp(r.score[e] - top);
    sum = warp_sum(sum);
  }
  for (int e = lane; e < n; e += WARP) {
    double score = r.score[e];
    if (a.score == TRI_MOE_SOFTMAX) score /= sum;
    if (a.score == TRI_MOE_SIGMOID) score = 1 / (1 + exp(-score));
    r.score[e] = score;
    r.choice[e] = score + (a.bias ? a.bias[e] : 0);
    number &= !isnan(r.choice[e]);
  }
  return number;
}

/* cut_groups of the reference, a lane for each group. */
__device__ static void cut_groups_by_warp(const tri_moe_route_args &a, const token_room &r) {
  int size = a.logits.cols / a.num_groups, lane = threadIdx.x % WARP;
  __syncwarp();
  for (int g = lane; g < a.num_groups; g += WARP)
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

/* The ids of the best, best first, of equal ones the lowest first. */
__device__ static void take_best_by_warp(const token_room &r, int n, int top_k, int32_t *ids) {
  unsigned long long *key = (unsigned long long *)r.choice;
  int lane = threadIdx.x % WARP, at = 0;
  for (int e = lane; e < n; e += WARP) key[e] = key_of(r.choice[e]);
  unsigned long long best = best_of_lane(key, n, &at);
  for (int c = 0; c < top_k; c++) {
    unsigned high = __reduce_max_sync(ALL_LANES, (unsigned)(best >> 32));
    unsigned low = __reduce_max_sync(ALL_LANES, (unsigned)(best >> 32) == high ? (unsigned)best : 0u);
    bool mine = best == ((unsigned long long)high << 32 | low);
    int id = (int)__reduce_min_sync(ALL_LANES, mine ? (unsigned)at : 0xffffffffu);
    if (lane == id % WARP) {
      r.value[c] = r.score[id];
      ids[c] = id;
      key[id] = 0;
      best = best_of_lane(key, n, &at);
    }
  }
  __syncwarp();
}

/* weights_of of the reference from the chosen scores. */
__device__ static void weigh(const tri_moe_route_args &a, const token_room &r, float *weights) {
  bool softmax = a.score == TRI_MOE_TOPK_SOFTMAX;
  int lane = threadIdx.x % WARP;
  double top = r.value[0], sum = 0;
  for (int c = 1; c < a.top_k; c++) top = fmax(top, r.value[c]);
  __syncwarp();
  for (int c = lane; softmax && c < a.top_k; c += WARP) r.value[c] = exp(r.value[c] - top);
  __syncwarp();
  for (int c = 0; c < a.top_k; c++) sum += r.value[c];
  if (!softmax && a.renormalize && a.score == TRI_MOE_SIGMOID) sum += 1e-20;
  if (!softmax && !a.renormalize) sum = 1;
  for (int c = lane; c < a.top_k; c += WARP) weights[c] = (float)(r.value[c] / sum * a.scale);
  __syncwarp();
}

__device__ static void route_token(const tri_moe_route_args &a, int t, double *scratch) {
  token_room r = {scratch, scratch + a.logits.cols, scratch + 2 * a.logits.cols, NULL};
  size_t first = (size_t)t * (size_t)a.top_k;
  int lane = threadIdx.x % WARP;
  r.value = r.group + a.num_groups;
  if (a.kv_slot && a.kv_slot[t] < 0) {
    for (int c = lane; c < a.top_k; c += WARP) {
      a.experts[first + c] = -1;
      a.weights[first + c] = 0;
    }
    return;
  }
  bool numbers = score_token(a, row_at(a.logits, t), r);
  if (!__all_sync(ALL_LANES, numbers)) { /* their order is that of the reference's comparisons */
    __syncwarp();
    if (!lane) tri_moe_route_row(&a, t, scratch);
    __syncwarp();
    return;
  }
  if (a.num_groups > 1) cut_groups_by_warp(a, r);
  take_best_by_warp(r, a.logits.cols, a.top_k, a.experts + first);
  weigh(a, r, a.weights + first);
}

/* ---- the map ---- */

/* Returns the own expert of a choice, or -1. Other blocks may have chosen. */
__device__ static inline int own_expert(const tri_moe_route_args &a, int choice) {
  long long e = (long long)__ldcg(a.experts + choice) - a.first_expert;
  return e >= 0 && e < a.num_experts ? (int)e : -1;
}

/* The part of the choices begin .. end - 1 that a warp has; the order of warps is that of choices. */
typedef struct choices_of_warp {
  int begin, end;
} choices_of_warp;

__device__ static choices_of_warp cut_choices(int begin, int end) {
  int warps = blockDim.x / WARP, each = ((end - begin + warps - 1) / warps + WARP - 1) / WARP * WARP;
  int from = min(begin + (int)(threadIdx.x / WARP) * each, end);
  return {from, min(from + each, end)};
}

/* Gives each own choice its number among its warp's of that expert, in map.row, and counts[warp][expert] how many they
 * are; then counts becomes how many the warps in front have, and totals[expert] how many all have. */
__device__ static void count_choices(const tri_moe_route_args &a, int begin, int end, int *counts, int *totals) {
  int own = a.num_experts, warps = blockDim.x / WARP, lane = threadIdx.x % WARP;
  int *mine = counts + (size_t)(threadIdx.x / WARP) * (size_t)own;
  choices_of_warp part = cut_choices(begin, end);
  for (int e = lane; e < own; e += WARP) mine[e] = 0;
  __syncwarp();
  for (int i0 = part.begin; i0 < part.end; i0 += WARP) {
    int i = i0 + lane, e = i < part.end ? own_expert(a, i) : -1;
    unsigned alike = __match_any_sync(ALL_LANES, e);
    int before = __popc(alike & ((1u << lane) - 1)), base = e >= 0 ? mine[e] : 0;
    __syncwarp();
    if (e >= 0 && !before) mine[e] = base + __popc(alike);
    __syncwarp();
    if (i < part.end) a.map.row[i] = e >= 0 ? base + before : -1;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < own; e += blockDim.x) {
    int sum = 0;
    for (int w = 0; w < warps; w++) {
      int *at = counts + (size_t)w * (size_t)own + e, n = *at;
      *at = sum;
      sum += n;
    }
    totals[e] = sum;
  }
  __syncthreads();
}

/* Turns counts by expert into where each expert begins, by one warp; returns their sum. */
__device__ static int scan_experts(int *counts, int n) {
  int lane = threadIdx.x % WARP, sum = 0;
  for (int e0 = 0; e0 < n; e0 += WARP) {
    int e = e0 + lane, own = e < n ? counts[e] : 0, x = own;
    for (int o = 1; o < WARP; o *= 2) {
      int y = __shfl_up_sync(ALL_LANES, x, o);
      if (lane >= o) x += y;
    }
    if (e < n) counts[e] = sum + x - own;
    sum += __shfl_sync(ALL_LANES, x, WARP - 1);
  }
  return sum;
}

/* Puts where experts begin into the map, and adds their rows to the tally. By all threads of a block and rows is
 * their number. */
__device__ static void end_map(const tri_moe_route_args &a, const int *first, int rows) {
  for (int e = threadIdx.x; e < a.num_experts; e += blockDim.x) {
    int n = (e + 1 < a.num_experts ? first[e + 1] : rows) - first[e];
    a.map.first[e] = first[e];
    if (!a.tally || !n) continue;
    a.tally[e].rows += (uint64_t)n;
    a.tally[e].steps++;
  }
}

/* The whole map, by one block. room: [warps + 1, num_experts]. */
__device__ static void make_map(const tri_moe_route_args &a, int *room) {
  int choices = a.logits.rows * a.top_k, own = a.num_experts, lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  int *first = room, *counts = room + own;
  __shared__ int rows;
  count_choices(a, 0, choices, counts, first);
  if (!warp) {
    int sum = scan_experts(first, own);
    if (!lane) a.map.first[own] = rows = sum;
  }
  __syncthreads();
  end_map(a, first, rows);
  choices_of_warp part = cut_choices(0, choices);
  for (int i = part.begin + lane; i < part.end; i += WARP) {
    int e = own_expert(a, i);
    if (e < 0) continue;
    int row = first[e] + counts[(size_t)warp * (size_t)own + e] + a.map.row[i];
    a.map.row[i] = row;
    a.map.choice[row] = i;
  }
}

/* Tells all threads of the block whether it is the last of the grid to come here; the counter is 0 again behind it. */
__device__ static bool is_last_block(unsigned *counter) {
  __shared__ bool last;
  if (gridDim.x == 1) {
    __syncthreads();
    return true;
  }
  __threadfence();
  __syncthreads();
  if (!threadIdx.x) {
    last = atomicAdd(counter, 1u) == gridDim.x - 1;
    if (last) *counter = 0;
    __threadfence();
  }
  __syncthreads();
  return last;
}

/* Routes a token with each warp, and makes the map if there is one. logits [T, E], experts and weights [T, top_k]. Grid
 * T / warps, up to 8 warps. Shared memory: what a token needs for each warp, or the map's counts. */
__global__ __launch_bounds__(MOST_WARPS *WARP) static void route_kernel(tri_moe_route_args a, unsigned *counter) {
  extern __shared__ double shared[];
  int warp = threadIdx.x / WARP, t = blockIdx.x * (blockDim.x / WARP) + warp;
  let_next_begin();
  wait_for_previous();
  if (t < a.logits.rows) route_token(a, t, shared + (size_t)warp * room_doubles(a));
  if (a.map.first && is_last_block(counter)) make_map(a, (int *)shared);
}

/* Routes the tokens of a part and numbers its choices by expert: parts[part][expert] is how many there are. Grid T /
 * 32, up to 8 warps. Shared memory as above. */
__global__ __launch_bounds__(MOST_WARPS *WARP) static void route_part_kernel(tri_moe_route_args a, int *parts) {
  extern __shared__ double shared[];
  int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP, own = a.num_experts;
  int begin = blockIdx.x * PART_TOKENS, end = min(begin + PART_TOKENS, a.logits.rows);
  int *totals = (int *)shared, *counts = totals + own;
  let_next_begin();
  wait_for_previous();
  for (int t = begin + warp; t < end; t += warps) route_token(a, t, shared + (size_t)warp * room_doubles(a));
  __threadfence_block();
  __syncthreads();
  count_choices(a, begin * a.top_k, end * a.top_k, counts, totals);
  for (int e = threadIdx.x; e < own; e += blockDim.x) parts[(size_t)blockIdx.x * (size_t)own + e] = totals[e];
  choices_of_warp part = cut_choices(begin * a.top_k, end * a.top_k);
  for (int i = part.begin + lane; i < part.end; i += WARP) {
    int e = own_expert(a, i);
    if (e >= 0) a.map.row[i] += counts[(size_t)warp * (size_t)own + e];
  }
}

/* Turns the parts' counts into how many rows the parts in front have, and makes map.first. parts [num_parts, experts].
 * One block of 1024 threads, which cut the parts of each expert into runs. Shared memory: [runs + 1, experts]. */
__global__ __launch_bounds__(SCAN_THREADS) static void scan_parts_kernel(tri_moe_route_args a, int *parts,
                                                                         int num_parts, int runs) {
  extern __shared__ double shared[];
  __shared__ int rows;
  int own = a.num_experts, each = (num_parts + runs - 1) / runs;
  int *totals = (int *)shared, *sums = totals + own;
  let_next_begin();
  wait_for_previous();
  for (int i = threadIdx.x; i < runs * own; i += SCAN_THREADS) {
    int e = i % own, from = i / own * each, to = min(from + each, num_parts), sum = 0;
    for (int p = from; p < to; p++) sum += parts[(size_t)p * (size_t)own + e];
    sums[i] = sum;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < own; e += SCAN_THREADS) {
    int sum = 0;
    for (int run = 0; run < runs; run++) {
      int n = sums[run * own + e];
      sums[run * own + e] = sum;
      sum += n;
    }
    totals[e] = sum;
  }
  __syncthreads();
  if (threadIdx.x < WARP) {
    int sum = scan_experts(totals, own);
    if (!threadIdx.x) a.map.first[own] = rows = sum;
  }
  __syncthreads();
  end_map(a, totals, rows);
  for (int i = threadIdx.x; i < runs * own; i += SCAN_THREADS) {
    int e = i % own, from = i / own * each, to = min(from + each, num_parts), sum = totals[e] + sums[i];
    for (int p = from; p < to; p++) {
      int *at = parts + (size_t)p * (size_t)own + e, n = *at;
      *at = sum;
      sum += n;
    }
  }
}

/* Brings the parts' numbers to their places in the map. parts [T / 32, experts]. Grid T * top_k / 256, 256 threads. */
__global__ __launch_bounds__(PLACE_THREADS) static void place_kernel(tri_moe_route_args a, const int *parts) {
  int64_t at = (int64_t)blockIdx.x * PLACE_THREADS + threadIdx.x;
  let_next_begin();
  wait_for_previous();
  if (at >= (int64_t)a.logits.rows * a.top_k) return;
  int i = (int)at;
  int e = own_expert(a, i);
  if (e < 0) return;
  int row = a.map.row[i] + parts[(size_t)(i / (PART_TOKENS * a.top_k)) * (size_t)a.num_experts + e];
  a.map.row[i] = row;
  a.map.choice[row] = i;
}

/* ---- launches ---- */

static bool is_fused(const tri_moe_route_args &a) {
  return !a.map.first || (int64_t)a.logits.rows * a.top_k <= FUSED_CHOICES;
}

static size_t shared_bytes(const tri_moe_route_args &a, int warps) {
  size_t route = (size_t)warps * room_doubles(a) * sizeof(double);
  size_t map = a.map.first ? (size_t)(warps + 1) * (size_t)a.num_experts * sizeof(int) : 0;
  return route > map ? route : map;
}

static int warps_of(const tri_moe_route_args &a) {
  int warps = MOST_WARPS;
  while (warps > 1 && shared_bytes(a, warps) > MOST_SHARED) warps /= 2;
  return warps;
}

static int runs_of(const tri_moe_route_args &a) {
  int runs = SCAN_THREADS / a.num_experts;
  return runs > 1 ? runs : 1;
}

bool tri_cuda_moe_route_fits(const tri_moe_route_args *a) {
  return shared_bytes(*a, 1) <= MOST_SHARED && 2 * (size_t)a->num_experts * sizeof(int) <= MOST_SHARED;
}

static unsigned parts_of(const tri_moe_route_args &a) { return blocks_for((size_t)a.logits.rows, PART_TOKENS); }

size_t tri_cuda_moe_route_workspace(const tri_moe_route_args *a) {
  return is_fused(*a) ? 0 : (size_t)parts_of(*a) * (size_t)a->num_experts * sizeof(int);
}

void tri_cuda_moe_route(cudaStream_t stream, const tri_moe_route_args *a, void *workspace, unsigned *counter) {
  int warps = warps_of(*a), runs, *parts = (int *)workspace;
  size_t shared = shared_bytes(*a, warps);
  if (is_fused(*a)) { /* without tokens there is a map, too */
    unsigned blocks = blocks_for((size_t)a->logits.rows, (unsigned)warps);
    launch_overlapped(route_kernel, dim3(blocks ? blocks : 1), (unsigned)warps * WARP, shared, stream, *a, counter);
    return;
  }
  runs = runs_of(*a);
  launch_overlapped(route_part_kernel, dim3(parts_of(*a)), (unsigned)warps * WARP, shared, stream, *a, parts);
  launch_overlapped(scan_parts_kernel, dim3(1), SCAN_THREADS, (size_t)(runs + 1) * (size_t)a->num_experts * sizeof(int),
                    stream, *a, parts, (int)parts_of(*a), runs);
  launch_overlapped(place_kernel, dim3(blocks_for((size_t)a->logits.rows * (size_t)a->top_k, PLACE_THREADS)),
                    PLACE_THREADS, 0, stream, *a, (const int *)parts);
}
