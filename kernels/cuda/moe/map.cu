/* SPDX-License-Identifier: Apache-2.0 */
/* The map of choices: up to 4096 of them one block makes it. More take three launches: each block counts the choices of
 * its tokens by expert, one block adds the counts up, and all place. The result is a stable counting sort of choices by
 * expert: an expert's rows are in the order of tokens. That order is the same however many blocks make it, so results
 * do not depend on the form that made it. */
#include "kernels/cuda/moe/map.cuh"

enum { SCAN_THREADS = 1024, PLACE_THREADS = 256 };

/* Makes the map of choices that are known. One block of up to 16 warps. Shared memory: its room. */
__global__ __launch_bounds__(MAP_WARPS *WARP) static void map_kernel(tri_moe_map_args a) {
  extern __shared__ int shared[];
  int num = a.num_tokens * a.top_k;
  map_room room = map_room_at(shared, num, a.num_experts);
  let_next_begin();
  wait_for_previous();
  bring_choices(a, 0, num, room);
  keep_own(a, num, room);
  make_map(a, room);
}

/* Counts the choices of a part; see count_part. Grid T / 32, up to 16 warps. Shared memory as above. */
__global__ __launch_bounds__(MAP_WARPS *WARP) static void count_part_kernel(tri_moe_map_args a, int *parts) {
  extern __shared__ int shared[];
  int token = blockIdx.x * PART_TOKENS, begin = token * a.top_k, num = min(PART_TOKENS, a.num_tokens - token) * a.top_k;
  map_room room = map_room_at(shared, PART_TOKENS * a.top_k, a.num_experts);
  let_next_begin();
  wait_for_previous();
  bring_choices(a, begin, num, room);
  keep_own(a, num, room);
  count_part(a, begin, num, room, parts);
}

/* Turns the parts' counts into how many rows the previous parts have, and makes map.first. parts [num_parts, experts].
 * One block of 1024 threads, which cut the parts of each expert into runs. Shared memory: [runs + 1, experts]. */
__global__ __launch_bounds__(SCAN_THREADS) static void scan_parts_kernel(tri_moe_map_args a, int *parts, int num_parts,
                                                                         int runs) {
  extern __shared__ int shared[];
  __shared__ int rows;
  int own = a.num_experts, each = (num_parts + runs - 1) / runs;
  int *totals = shared, *sums = totals + own;
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
__global__ __launch_bounds__(PLACE_THREADS) static void place_kernel(tri_moe_map_args a, const int *parts) {
  int64_t at = (int64_t)blockIdx.x * PLACE_THREADS + threadIdx.x;
  let_next_begin();
  wait_for_previous();
  if (at >= (int64_t)a.num_tokens * a.top_k) return;
  int i = (int)at;
  int e = own_expert(a, a.experts[i]);
  if (e < 0) return;
  int row = a.map.row[i] + parts[(size_t)(i / (PART_TOKENS * a.top_k)) * (size_t)a.num_experts + e];
  a.map.row[i] = row;
  a.map.choice[row] = i;
}

/* ---- launches ---- */

static bool is_fused(const tri_moe_map_args *a) { return (int64_t)a->num_tokens * a->top_k <= FUSED_CHOICES; }

/* The most warps whose counts have room. */
static int warps_of(const tri_moe_map_args *a) {
  int warps = MAP_WARPS;
  while (warps > 1 && map_bytes(*a, warps) > MOST_SHARED) warps /= 2;
  return warps;
}

/* The runs into which the threads of one block cut the parts of each expert. */
static int runs_of(const tri_moe_map_args *a) {
  int runs = SCAN_THREADS / a->num_experts;
  return runs > 1 ? runs : 1;
}

static unsigned parts_of(const tri_moe_map_args *a) { return blocks_for((size_t)a->num_tokens, PART_TOKENS); }

bool tri_cuda_moe_map_fits(const tri_moe_map_args *a) { return map_bytes(*a, 1) <= MOST_SHARED; }

size_t tri_cuda_moe_map_workspace(const tri_moe_map_args *a) {
  return is_fused(a) ? 0 : (size_t)parts_of(a) * (size_t)a->num_experts * sizeof(int);
}

void tri_cuda_moe_map_place(cudaStream_t stream, const tri_moe_map_args *a, int *parts) {
  int runs = runs_of(a);
  size_t shared = (size_t)(runs + 1) * (size_t)a->num_experts * sizeof(int);
  launch_overlapped(scan_parts_kernel, dim3(1), SCAN_THREADS, shared, stream, *a, parts, (int)parts_of(a), runs);
  launch_overlapped(place_kernel, dim3(blocks_for((size_t)a->num_tokens * (size_t)a->top_k, PLACE_THREADS)),
                    PLACE_THREADS, 0, stream, *a, (const int *)parts);
}

void tri_cuda_moe_map(cudaStream_t stream, const tri_moe_map_args *a, void *workspace) {
  unsigned warps = (unsigned)warps_of(a);
  size_t shared = map_bytes(*a, (int)warps);
  if (is_fused(a)) {
    launch_overlapped(map_kernel, dim3(1), warps * WARP, shared, stream, *a);
    return;
  }
  launch_overlapped(count_part_kernel, dim3(parts_of(a)), warps * WARP, shared, stream, *a, (int *)workspace);
  tri_cuda_moe_map_place(stream, a, (int *)workspace);
}
