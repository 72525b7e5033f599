/* SPDX-License-Identifier: Apache-2.0 */
/* Routing and the map of the choices. A warp routes a token. Up to 4096 choices one launch does both: on Hopper the
 * blocks of a cluster make the map where they have a warp for each token, elsewhere the last block to finish does. More
 * take three: each block counts the choices of its tokens by expert, one block adds the counts up, and all place. */
#include "kernels/cuda/moe/cluster.cuh"
#include "kernels/cuda/moe/route.cuh"

enum { LATE = -2 }; /* the first choice of a token in which a logit is no number */

/* Returns to all threads of the block whether it is the last of the grid to come here; the counter is 0 again after it.
 * Each thread fences what it has stored before the block is counted, and the counting thread fences again, so that the
 * last block may read what all have stored. */
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

/* A block's tokens, and its room: their choices, and after them what a token needs, for each warp or, where choices
 * are by logits alone, once. */
struct tokens_of_block {
  int begin, end;
  int32_t *ids; /* [end - begin, top_k] */
  double *scratch;
};

__host__ __device__ static inline size_t choice_doubles(const tri_moe_route_args &a, int tokens) {
  return ((size_t)tokens * (size_t)a.top_k + 1) / 2;
}

__device__ static tokens_of_block tokens_at(const tri_moe_route_args &a, int block, int tokens, double *shared) {
  int begin = block * tokens;
  size_t room = is_by_logits(a) ? 0 : threadIdx.x / WARP * room_doubles(a);
  return {begin, min(begin + tokens, a.logits.rows), (int32_t *)shared, shared + choice_doubles(a, tokens) + room};
}

/* Brings a token's choices to the tables. */
__device__ static void store_choices(const tri_moe_route_args &a, int t, const int32_t *ids) {
  for (int c = threadIdx.x % WARP; c < a.top_k; c += WARP) a.experts[(size_t)t * (size_t)a.top_k + c] = ids[c];
}

/* Routes a block's tokens, a warp for one at a time, to the tables and to its room, which all threads may read after
 * it. One warp does what no numbers are in, of which there should be none. */
__device__ static void route_tokens(const tri_moe_route_args &a, const tokens_of_block &b) {
  int warp = threadIdx.x / WARP, k = a.top_k;
  bool late = false;
  for (int t = b.begin + warp; t < b.end; t += blockDim.x / WARP) {
    int32_t *ids = b.ids + (size_t)(t - b.begin) * (size_t)k;
    bool chosen = route_numbers(a, t, b.scratch, ids, a.weights + (size_t)t * (size_t)k);
    if (chosen)
      store_choices(a, t, ids);
    else if (threadIdx.x % WARP == 0)
      ids[0] = LATE;
    late |= !chosen;
  }
  if (!__syncthreads_or(late)) return;
  for (int t = b.begin; t < b.end && !warp; t++) {
    int32_t *ids = b.ids + (size_t)(t - b.begin) * (size_t)k;
    if (ids[0] != LATE) continue;
    route_without_numbers(a, t, b.scratch, ids, a.weights + (size_t)t * (size_t)k);
    store_choices(a, t, ids);
  }
  __syncthreads();
}

/* Routes `tokens` tokens with each block, and makes the map if there is one. logits [T, E], experts and weights [T,
 * top_k]. Grid T / tokens, up to 16 warps. Shared memory: what tokens_of_block says, or the map's room. */
__global__ __launch_bounds__(MAP_WARPS *WARP) static void route_kernel(tri_moe_route_args a, tri_moe_map_args map,
                                                                       int tokens, unsigned *counter) {
  extern __shared__ double shared[];
  int num = a.logits.rows * a.top_k;
  tokens_of_block own = tokens_at(a, blockIdx.x, tokens, shared);
  let_next_begin();
  wait_for_previous();
  route_tokens(a, own);
  if (!map.map.first) return;
  map_room room = map_room_at(own.ids, num, map.num_experts);
  if (gridDim.x > 1) {
    if (!is_last_block(counter)) return;
    bring_choices(map, 0, num, room);
  } else if (num <= SMALL_CHOICES) {
    make_small_map(map, own.ids);
    return;
  }
  keep_own(map, num, room);
  make_map(map, room);
}

/* Routes a token with each warp and makes the map, by the blocks of a cluster. Grid 1 x T / warps, of 8 or 16 warps.
 * Shared memory: cluster_room_bytes, then what tokens_of_block says. With 1, registers are not spilled to fit more. */
__global__ __launch_bounds__(MAP_WARPS *WARP, 1) static void route_cluster_kernel(tri_moe_route_args a,
                                                                                  tri_moe_map_args map) {
  if (!HAS_HOPPER) return;
  extern __shared__ uint4 room_of_block[];
  __shared__ barrier arrived;
  int warp = threadIdx.x / WARP;
  char *tokens = (char *)room_of_block + cluster_room_bytes(gridDim.y, map.num_experts);
  cluster_room room = cluster_room_at(room_of_block, &arrived, map.num_experts);
  tokens_of_block own = tokens_at(a, blockIdx.y, blockDim.x / WARP, (double *)tokens);
  open_room(room);
  let_next_begin();
  wait_for_previous();
  route_tokens(a, own);
  bool routed = own.begin + warp < own.end;
  make_cluster_map(map, room, own.begin + warp, routed ? own.ids + warp * a.top_k : NULL);
}

/* Routes the tokens of a part and counts its choices; see count_part. Grid T / 32, up to 16 warps. Shared memory as
 * above. */
__global__ __launch_bounds__(MAP_WARPS *WARP) static void route_part_kernel(tri_moe_route_args a, tri_moe_map_args map,
                                                                            int *parts) {
  extern __shared__ double shared[];
  tokens_of_block own = tokens_at(a, blockIdx.x, PART_TOKENS, shared);
  map_room room = map_room_at(own.ids, PART_TOKENS * a.top_k, map.num_experts);
  int num = (own.end - own.begin) * a.top_k;
  let_next_begin();
  wait_for_previous();
  route_tokens(a, own);
  keep_own(map, num, room);
  count_part(map, own.begin * a.top_k, num, room, parts);
}

/* ---- launches ---- */

/* ALONE_TOKENS: up to as many, one block has a warp for each and needs no others. */
enum { FEWEST_WARPS = 4, SPREAD_WARPS = 8, ALONE_TOKENS = MAP_WARPS };

/* True where one launch does all: without a map, or with one that a block can make. */
static bool is_fused(const tri_moe_route_args &a) {
  return !a.map.first || (int64_t)a.logits.rows * a.top_k <= FUSED_CHOICES;
}

/* tokens: of a block. */
static size_t route_bytes(const tri_moe_route_args &a, int warps, int tokens) {
  size_t rooms = is_by_logits(a) ? 1 : (size_t)warps;
  return (choice_doubles(a, tokens) + rooms * room_doubles(a)) * sizeof(double);
}

static size_t shared_bytes(const tri_moe_route_args &a, int warps, int tokens) {
  size_t route = route_bytes(a, warps, tokens);
  tri_moe_map_args map = tri_moe_map_of(&a);
  size_t counts = a.map.first ? map_bytes(map, warps) : 0;
  return route > counts ? route : counts;
}

/* Tokens of a block: where one launch does all, one for each warp. */
static int tokens_for(const tri_moe_route_args &a, int warps) { return is_fused(a) ? warps : (int)PART_TOKENS; }

/* Returns the warps of a block. One block for all tokens saves the way from block to block; beyond its warps, blocks of
 * fewer have more multiprocessors to route on. Few where there are few tokens, since all warps' counts are added up. */
static int warps_for(const tri_moe_route_args &a) {
  int warps = MAP_WARPS;
  if (is_fused(a) && a.logits.rows > MAP_WARPS) warps = SPREAD_WARPS;
  while (warps > FEWEST_WARPS && warps / 2 >= a.logits.rows) warps /= 2;
  while (warps > 1 && shared_bytes(a, warps, tokens_for(a, warps)) > MOST_SHARED) warps /= 2;
  return warps;
}

/* Launches one cluster that has a warp for each token. False where there are too few or too many of them. */
static bool launch_cluster(cudaStream_t stream, const tri_moe_route_args &a, const tri_moe_map_args &map) {
  int rows = a.logits.rows, warps = SPREAD_WARPS;
  if (rows > CLUSTER_BLOCKS * SPREAD_WARPS) warps = MAP_WARPS;
  if (!a.map.first || rows <= ALONE_TOKENS || rows > CLUSTER_BLOCKS * warps) return false;
  unsigned blocks = blocks_for((size_t)rows, (unsigned)warps);
  size_t shared = cluster_room_bytes((int)blocks, a.num_experts) + route_bytes(a, warps, warps);
  if (shared > MOST_SHARED) return false;
  launch_together(route_cluster_kernel, dim3(1, blocks), blocks, (unsigned)warps * WARP, shared, stream, a, map);
  return true;
}

bool tri_cuda_moe_route_fits(const tri_moe_route_args *a) {
  return a->logits.cols <= TRI_CUDA_MOE_EXPERTS && shared_bytes(*a, 1, tokens_for(*a, 1)) <= MOST_SHARED;
}

size_t tri_cuda_moe_route_workspace(const tri_moe_route_args *a) {
  tri_moe_map_args map = tri_moe_map_of(a);
  return is_fused(*a) ? 0 : tri_cuda_moe_map_workspace(&map);
}

void tri_cuda_moe_route(cudaStream_t stream, const tri_moe_route_args *a, void *workspace, unsigned *counter,
                        bool is_hopper) {
  tri_moe_map_args map = tri_moe_map_of(a);
  if (is_hopper && launch_cluster(stream, *a, map)) return;
  int warps = warps_for(*a), tokens = tokens_for(*a, warps), *parts = (int *)workspace;
  unsigned blocks = blocks_for((size_t)a->logits.rows, (unsigned)tokens), threads = (unsigned)warps * WARP;
  size_t shared = shared_bytes(*a, warps, tokens);
  if (is_fused(*a)) { /* without tokens there is a map, too */
    launch_overlapped(route_kernel, dim3(blocks ? blocks : 1), threads, shared, stream, *a, map, tokens, counter);
    return;
  }
  launch_overlapped(route_part_kernel, dim3(blocks), threads, shared, stream, *a, map, parts);
  tri_cuda_moe_map_place(stream, &map, parts);
}
