/* Routing and the map of the choices. A warp routes a token. Up to 4096 choices one launch does both: the last of its
 * blocks to finish makes the map. More take three: each block counts the choices of its tokens by expert, one block
 * adds the counts up, and all place. */
#include "kernels/cuda/moe_map.cuh"
#include "kernels/cuda/moe_route.cuh"

/* Routes a token to its place in the tables. */
__device__ static void route_to_tables(const tri_moe_route_args &a, int t, double *scratch) {
  size_t first = (size_t)t * (size_t)a.top_k;
  route_token(a, t, scratch, a.experts + first, a.weights + first);
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
__global__ __launch_bounds__(MAP_WARPS *WARP) static void route_kernel(tri_moe_route_args a, tri_moe_map_args map,
                                                                       unsigned *counter) {
  extern __shared__ double shared[];
  int warp = threadIdx.x / WARP, t = blockIdx.x * (blockDim.x / WARP) + warp;
  let_next_begin();
  wait_for_previous();
  if (t < a.logits.rows) route_to_tables(a, t, shared + (size_t)warp * room_doubles(a));
  if (a.map.first && is_last_block(counter)) make_map(map, (int *)shared);
}

/* Routes the tokens of a part and counts its choices; see count_part. Grid T / 32, up to 8 warps. Shared memory as
 * above. */
__global__ __launch_bounds__(MAP_WARPS *WARP) static void route_part_kernel(tri_moe_route_args a, tri_moe_map_args map,
                                                                            int *parts) {
  extern __shared__ double shared[];
  int warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
  int begin = blockIdx.x * PART_TOKENS, end = min(begin + PART_TOKENS, a.logits.rows);
  let_next_begin();
  wait_for_previous();
  for (int t = begin + warp; t < end; t += warps) route_to_tables(a, t, shared + (size_t)warp * room_doubles(a));
  __threadfence_block();
  __syncthreads();
  count_part(map, begin, end, (int *)shared, parts);
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
  int warps = MAP_WARPS;
  while (warps > 1 && shared_bytes(a, warps) > MOST_SHARED) warps /= 2;
  return warps;
}

bool tri_cuda_moe_route_fits(const tri_moe_route_args *a) {
  return shared_bytes(*a, 1) <= MOST_SHARED && 2 * (size_t)a->num_experts * sizeof(int) <= MOST_SHARED;
}

size_t tri_cuda_moe_route_workspace(const tri_moe_route_args *a) {
  tri_moe_map_args map = tri_moe_map_of(a);
  return is_fused(*a) ? 0 : tri_cuda_moe_map_workspace(&map);
}

void tri_cuda_moe_route(cudaStream_t stream, const tri_moe_route_args *a, void *workspace, unsigned *counter) {
  tri_moe_map_args map = tri_moe_map_of(a);
  int warps = warps_of(*a), *parts = (int *)workspace;
  size_t shared = shared_bytes(*a, warps);
  if (is_fused(*a)) { /* without tokens there is a map, too */
    unsigned blocks = blocks_for((size_t)a->logits.rows, (unsigned)warps);
    launch_overlapped(route_kernel, dim3(blocks ? blocks : 1), (unsigned)warps * WARP, shared, stream, *a, map,
                      counter);
    return;
  }
  launch_overlapped(route_part_kernel, dim3(blocks_for((size_t)a->logits.rows, PART_TOKENS)), (unsigned)warps * WARP,
                    shared, stream, *a, map, parts);
  tri_cuda_moe_map_place(stream, &map, parts);
}
