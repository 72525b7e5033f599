/* Routing and the map of the choices. A warp routes a token. Up to 4096 choices one launch does both: the last of its
 * blocks to finish makes the map. More take three: each block counts the choices of its tokens by expert, one block
 * adds the counts up, and all place. */
#include "kernels/cuda/moe_map.cuh"
#include "kernels/cuda/moe_route.cuh"

/* Routes a token: its choices go to `ids`, in shared memory, and to the tables. */
__device__ static void route_to_tables(const tri_moe_route_args &a, int t, double *scratch, int32_t *ids) {
  int32_t *experts = a.experts + (size_t)t * (size_t)a.top_k;
  route_token(a, t, scratch, ids, a.weights + (size_t)t * (size_t)a.top_k);
  for (int c = threadIdx.x % WARP; c < a.top_k; c += WARP) experts[c] = ids[c];
}

/* Tells all threads of the block whether it is the last of the grid to come here; the counter is 0 again behind it. */
__device__ static bool is_last_block(unsigned *counter) {
  __shared__ bool last;
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

/* Where a block's warps route: behind the choices of its tokens, which the map's room begins with. */
__device__ static double *route_room(const tri_moe_route_args &a, int tokens, int *shared) {
  size_t ids = ((size_t)tokens * (size_t)a.top_k + 1) / 2, warp = threadIdx.x / WARP;
  return (double *)shared + ids + warp * room_doubles(a);
}

/* Routes `tokens` tokens with each block, a warp for one at a time, and makes the map if there is one. logits [T, E],
 * experts and weights [T, top_k]. Grid T / tokens, up to 16 warps. Shared memory: the choices, and behind them what a
 * token needs for each warp; or the map's room. */
__global__ __launch_bounds__(MAP_WARPS *WARP) static void route_kernel(tri_moe_route_args a, tri_moe_map_args map,
                                                                       int tokens, unsigned *counter) {
  extern __shared__ double shared[];
  int begin = blockIdx.x * tokens, end = min(begin + tokens, a.logits.rows), num = a.logits.rows * a.top_k;
  int32_t *ids = (int32_t *)shared;
  let_next_begin();
  wait_for_previous();
  for (int t = begin + (int)threadIdx.x / WARP; t < end; t += blockDim.x / WARP)
    route_to_tables(a, t, route_room(a, tokens, ids), ids + (size_t)(t - begin) * (size_t)a.top_k);
  if (!map.map.first) return;
  map_room room = map_room_at(ids, num, map.num_experts);
  if (gridDim.x > 1) {
    if (!is_last_block(counter)) return;
    bring_choices(map, 0, num, room);
  } else if (num <= SMALL_CHOICES) {
    __syncthreads();
    make_small_map(map, ids);
    return;
  }
  keep_own(map, num, room);
  make_map(map, room);
}

/* Routes the tokens of a part and counts its choices; see count_part. Grid T / 32, up to 16 warps. Shared memory as
 * above. */
__global__ __launch_bounds__(MAP_WARPS *WARP) static void route_part_kernel(tri_moe_route_args a, tri_moe_map_args map,
                                                                            int *parts) {
  extern __shared__ double shared[];
  int begin = blockIdx.x * PART_TOKENS, end = min(begin + PART_TOKENS, a.logits.rows), num = (end - begin) * a.top_k;
  int32_t *ids = (int32_t *)shared;
  let_next_begin();
  wait_for_previous();
  for (int t = begin + (int)threadIdx.x / WARP; t < end; t += blockDim.x / WARP)
    route_to_tables(a, t, route_room(a, PART_TOKENS, ids), ids + (size_t)(t - begin) * (size_t)a.top_k);
  map_room room = map_room_at(ids, PART_TOKENS * a.top_k, map.num_experts);
  keep_own(map, num, room);
  count_part(map, begin * a.top_k, num, room, parts);
}

/* ---- launches ---- */

enum { FEWEST_WARPS = 4, ROUNDS = 2 }; /* tokens of a warp where one block has all */

static bool is_fused(const tri_moe_route_args &a) {
  return !a.map.first || (int64_t)a.logits.rows * a.top_k <= FUSED_CHOICES;
}

/* tokens: of a block. */
static size_t shared_bytes(const tri_moe_route_args &a, int warps, int tokens) {
  size_t ids = ((size_t)tokens * (size_t)a.top_k + 1) / 2;
  size_t route = (ids + (size_t)warps * room_doubles(a)) * sizeof(double);
  tri_moe_map_args map = tri_moe_map_of(&a);
  size_t counts = a.map.first ? map_bytes(map, warps) : 0;
  return route > counts ? route : counts;
}

/* The warps that fit; few where there are few tokens, since all their counts are added up. */
static int warps_for(const tri_moe_route_args &a) {
  int warps = MAP_WARPS;
  while (warps > FEWEST_WARPS && warps / 2 >= a.logits.rows) warps /= 2;
  while (warps > 1 && shared_bytes(a, warps, is_fused(a) ? ROUNDS * warps : PART_TOKENS) > MOST_SHARED) warps /= 2;
  return warps;
}

/* Tokens of a block where one launch does all: one block saves the way from block to block. */
static int tokens_for(const tri_moe_route_args &a, int warps) {
  return a.logits.rows <= ROUNDS * warps ? ROUNDS * warps : warps;
}

bool tri_cuda_moe_route_fits(const tri_moe_route_args *a) {
  int tokens = PART_TOKENS;
  if (is_fused(*a)) tokens = ROUNDS;
  return a->logits.cols <= TRI_CUDA_MOE_EXPERTS && shared_bytes(*a, 1, tokens) <= MOST_SHARED;
}

size_t tri_cuda_moe_route_workspace(const tri_moe_route_args *a) {
  tri_moe_map_args map = tri_moe_map_of(a);
  return is_fused(*a) ? 0 : tri_cuda_moe_map_workspace(&map);
}

void tri_cuda_moe_route(cudaStream_t stream, const tri_moe_route_args *a, void *workspace, unsigned *counter) {
  tri_moe_map_args map = tri_moe_map_of(a);
  int warps = warps_for(*a), *parts = (int *)workspace;
  if (is_fused(*a)) { /* without tokens there is a map, too */
    int tokens = tokens_for(*a, warps);
    unsigned blocks = blocks_for((size_t)a->logits.rows, (unsigned)tokens);
    launch_overlapped(route_kernel, dim3(blocks ? blocks : 1), (unsigned)warps * WARP,
                      shared_bytes(*a, warps, tokens), stream, *a, map, tokens, counter);
    return;
  }
  launch_overlapped(route_part_kernel, dim3(blocks_for((size_t)a->logits.rows, PART_TOKENS)), (unsigned)warps * WARP,
                    shared_bytes(*a, warps, PART_TOKENS), stream, *a, map, parts);
  tri_cuda_moe_map_place(stream, &map, parts);
}
