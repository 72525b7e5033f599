/* SPDX-License-Identifier: Apache-2.0 */
/* GEMMs of up to 32 rows with weights of 16 bits on Hopper, which are bound by reading the weights: those stream
 * through the copy engine as one factor of wgmma, all rows of x are the other.
 *
 * A block has 64 outputs and a part of k: a warpgroup multiplies, a warp fetches. The parts of k of the same outputs
 * are a cluster: each block adds up an equal share of the sums, which the others send to its shared memory, in the
 * order of the parts. Several blocks share a multiprocessor, and their first stages of weights come before the previous
 * kernel has made x: on a device of 132 of them that is as much as a small layer has. */
#include "kernels/cuda/device/cluster.cuh"
#include "kernels/cuda/device/hopper.cuh"
#include "kernels/cuda/linear/results.cuh"

enum {
  STEP = 64, /* elements of k at a time: 128 bytes */
  LINE = STEP * 2,
  OUTPUTS = 64,
  FEW_ROWS = 2, /* Kernels that stream weights through registers are faster for so many rows of less than */
  FEW_MIB = 24, /* so many MiB (H200: 21 MB lose 2 us, 33 MB gain 1), and of what is large */
  MOST_ROWS = 32,
  MOST_PARTS = 8, /* larger clusters are not portable */
  FEWEST_STEPS = 4,
  MOST_STEPS = 16,    /* of a block, where the GEMM is the default */
  BLOCKS_AT_ONCE = 3, /* of a multiprocessor, whose 228 KiB they share; the system has 1 KiB of each */
  MOST_BYTES = (228 / BLOCKS_AT_ONCE - 1) * 1024,
  ROOM = 75520, /* bytes of a block's stages, and of what is sent to it */
  THREADS = WARPGROUP + WARP,
  ALIGN = 1024
};

/* Shared memory of a block: stages, and in their place, once all have been read, the block's sums; rows of those lie so
 * far apart that a warp's stores meet no bank twice. Others send while stages are still read. */
template <int COLS> struct skinny_room {
  enum {
    WEIGHTS = OUTPUTS * LINE, /* bytes of a stage */
    INPUTS = COLS * LINE,
    SENT = COLS * OUTPUTS / 4 / MOST_PARTS * (MOST_PARTS - 1), /* a share of all other parts, in fours */
    STAGES = (ROOM - SENT * 16) / (WEIGHTS + INPUTS),
    WIDTH = OUTPUTS + 4
  };
  union {
    struct {
      char weights[STAGES][WEIGHTS];
      char inputs[STAGES][INPUTS];
    };
    float sums[COLS][WIDTH];
  };
  float4 sent[SENT]; /* by the other parts, one after the other */
  barrier full[STAGES], empty[STAGES], all_sent;
};

/* A block's steps of k. */
struct skinny_part {
  int begin, end;
};

__device__ static inline skinny_part part_of(int k) {
  int steps = (k + STEP - 1) / STEP, parts = (int)gridDim.y, part = (int)blockIdx.y;
  return {steps * part / parts, steps * (part + 1) / parts};
}

/* By one thread: weights of the first stages at once, rows when the previous kernel has made them. */
template <int COLS>
__device__ static void fetch(const tri_tensor_map *w, const tri_tensor_map *x, const skinny_part &p,
                             skinny_room<COLS> &s) {
  typedef skinny_room<COLS> R;
  int output = blockIdx.x * OUTPUTS, ahead = min(p.end, p.begin + R::STAGES);
  ring_place<R::STAGES> at;
  for (int step = p.begin; step < ahead; step++) {
    int stage = step - p.begin;
    barrier_expect(&s.full[stage], R::WEIGHTS + R::INPUTS);
    tile_load(s.weights[stage], w, &s.full[stage], KEEP_SHORT, step * STEP, output);
  }
  wait_for_previous();
  for (int step = p.begin; step < p.end; step++, at.next()) {
    if (step >= ahead) {
      barrier_wait(&s.empty[at.stage], at.parity ^ 1);
      barrier_expect(&s.full[at.stage], R::WEIGHTS + R::INPUTS);
      tile_load(s.weights[at.stage], w, &s.full[at.stage], KEEP_SHORT, step * STEP, output);
    }
    tile_load(s.inputs[at.stage], x, &s.full[at.stage], KEEP_LONG, step * STEP, 0);
  }
}

/* By a warpgroup: d[outputs, rows], as wgmma leaves them. A stage is released one round late, when mma_wait<1> has seen
 * its MMAs end. */
template <typename T, int COLS>
__device__ static inline void multiply(const skinny_part &p, skinny_room<COLS> &s, float (&d)[COLS / 2]) {
  typedef skinny_room<COLS> R;
  ring_place<R::STAGES> at;
  int last = 0;
  for (int step = p.begin; step < p.end; step++, at.next()) {
    barrier_wait(&s.full[at.stage], at.parity);
    mma_hold(d);
    mma_begin();
#pragma unroll
    for (int i = 0; i < LINE; i += 32)
      wgmma<T, COLS>::run(d, operand(s.weights[at.stage] + i, 0, 8 * LINE),
                          operand(s.inputs[at.stage] + i, 0, 8 * LINE), true);
    mma_commit();
    mma_wait<1>();
    if (step > p.begin && threadIdx.x % WARP == 0) barrier_arrive(&s.empty[last]);
    last = at.stage;
  }
  mma_wait<0>();
  mma_hold(d);
}

/* The sums in fours: those of a row of x and of OUTPUTS outputs are FOURS of them. A block finishes those from `begin`
 * on. */
enum { FOURS = OUTPUTS / 4 };
struct skinny_share {
  int all, each, begin, end;
};

__device__ static inline skinny_share share_of(int rows) {
  int all = rows * FOURS, parts = (int)gridDim.y, each = (all + parts - 1) / parts;
  int begin = min(all, (int)blockIdx.y * each);
  return {all, each, begin, min(all, begin + each)};
}

/* Leaves a warpgroup's sums in shared memory, where all stages have been read by then. */
template <int COLS> __device__ static inline void leave(const float (&d)[COLS / 2], skinny_room<COLS> &s) {
  int lane = threadIdx.x % WARP, output = threadIdx.x / WARP * 16 + lane / 4;
  named_sync(1, WARPGROUP);
#pragma unroll
  for (int j = 0; j < COLS / 8; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) s.sums[8 * j + lane % 4 * 2 + i % 2][output + i / 2 * 8] = d[4 * j + i];
}

/* Sends the other blocks' shares to them. By a warpgroup. */
template <int COLS> __device__ static inline void send_shares(const skinny_share &share, skinny_room<COLS> &s) {
  int part = (int)blockIdx.y;
  for (int i = threadIdx.x; i < share.all; i += WARPGROUP) {
    int to = i / share.each, place = (part - (part > to)) * share.each + i % share.each;
    if (to == part) continue;
    float4 sum = load4(&s.sums[i / FOURS][i % FOURS * 4]);
    send4_in_cluster(
        address_in_cluster(&s.sent[place], to),
        make_uint4(__float_as_uint(sum.x), __float_as_uint(sum.y), __float_as_uint(sum.z), __float_as_uint(sum.w)),
        address_in_cluster(&s.all_sent, to));
  }
}

/* Adds the parts of the block's share up and stores results. By a warpgroup. */
template <int COLS>
__device__ static inline void finish_share(const tri_linear_args &a, const skinny_share &share,
                                           const skinny_room<COLS> &s) {
  int parts = (int)gridDim.y, part = (int)blockIdx.y;
  for (int i = share.begin + (int)threadIdx.x; i < share.end; i += WARPGROUP) {
    int row = i / FOURS, four = i % FOURS * 4, col = blockIdx.x * OUTPUTS + four;
    float4 sum = make_float4(0, 0, 0, 0);
    for (int p = 0; p < parts; p++) {
      float4 more = load4(p == part ? &s.sums[row][four]
                                    : (const float *)&s.sent[(p - (p > part)) * share.each + i - share.begin]);
      sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
    }
    if (col < a.w.n) finish_four(a, row, col, sum);
  }
}

/* By a warpgroup: a part of k, and what the block finishes. */
template <typename T, int COLS>
__device__ static inline void consume(const tri_linear_args &a, const skinny_part &p, skinny_room<COLS> &s) {
  skinny_share share = share_of(a.x.rows);
  float d[COLS / 2] = {};
  multiply<T, COLS>(p, s, d);
  leave<COLS>(d, s);
  wait_at_cluster(); /* all have made their barriers */
  named_sync(1, WARPGROUP);
  send_shares<COLS>(share, s);
  if (share.begin == share.end) return; /* nothing comes */
  if (gridDim.y > 1) wait_for_sent(&s.all_sent);
  wait_for_previous(); /* it may read what this one stores */
  finish_share<COLS>(a, share, s);
}

/* Computes out [M, n] = finished x [M, k] w[n, k]^T, M at most COLS. Grid (n / 64, parts of k), clusters of a column,
 * 160 threads; shared memory: skinny_room. */
template <typename T, int COLS>
__global__ static void __launch_bounds__(THREADS, BLOCKS_AT_ONCE)
    skinny_kernel(const __grid_constant__ tri_linear_args a, const __grid_constant__ tri_tensor_map w,
                  const __grid_constant__ tri_tensor_map x) {
  typedef skinny_room<COLS> R;
  extern __shared__ char space[];
  R &s = *(R *)(((uintptr_t)space + ALIGN - 1) / ALIGN * ALIGN);
  if (!HAS_HOPPER) return;
  let_next_begin();
  if (threadIdx.x == WARPGROUP) {
    prefetch_map(&w);
    prefetch_map(&x);
    for (int i = 0; i < R::STAGES; i++) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], WARPGROUP / WARP);
    }
    barrier_init(&s.all_sent, 1);
    barriers_are_made();
    skinny_share share = share_of(a.x.rows);
    barrier_expect(&s.all_sent, (share.end - share.begin) * ((int)gridDim.y - 1) * (int)sizeof(float4));
  }
  arrive_at_cluster();
  __syncthreads();
  skinny_part p = part_of(a.w.k);
  if (threadIdx.x < WARPGROUP) {
    consume<T, COLS>(a, p, s);
    return;
  }
  if (threadIdx.x == WARPGROUP) fetch<COLS>(&w, &x, p, s);
  wait_at_cluster();
}

/* ---- launches ---- */

bool tri_cuda_skinny_fits(const tri_linear_args *a) {
  uintptr_t places = (uintptr_t)a->x.data | (uintptr_t)a->w.data | (uintptr_t)a->bias;
  bool types = (a->w.dtype == TRI_F16 || a->w.dtype == TRI_BF16) && a->x.dtype == a->w.dtype;
  bool whole = a->w.k % 8 == 0 && a->w.k && a->w.n % 4 == 0 && a->w.n && a->x.ld % 8 == 0 && places % 16 == 0;
  return types && whole && in_fours(a->out) && a->x.rows > 0 && a->x.rows <= MOST_ROWS;
}

static int steps_of(const tri_linear_args *a) { return (a->w.k + STEP - 1) / STEP; }
static int slabs_of(const tri_linear_args *a) { return (a->w.n + OUTPUTS - 1) / OUTPUTS; }

/* Larger GEMMs gain less from an early begin than they lose to the others' rate. With few rows that is so, too, of
 * those with more inputs than outputs: they follow a large GEMM, which leaves them no room to begin early. */
bool tri_cuda_skinny_pays(const tri_linear_args *a, int num_sms) {
  bool small = (int64_t)a->w.n * a->w.k * 2 < (int64_t)FEW_MIB << 20, few = a->x.rows <= FEW_ROWS;
  return !(few && (small || a->w.k > a->w.n)) &&
         (int64_t)slabs_of(a) * steps_of(a) <= (int64_t)MOST_STEPS * BLOCKS_AT_ONCE * num_sms;
}

/* Parts that k may have. Clusters of 5 to 7 leave more of a device empty than they save. */
static const int part_counts[] = {2, 3, 4, 8};

/* The clusters that run at once, by their blocks. */
struct cluster_counts {
  int at_once[MOST_PARTS + 1];
};

template <typename T, int COLS> static cluster_counts count_clusters(size_t bytes) {
  cluster_counts c = {};
  for (int parts : part_counts) {
    cudaLaunchAttribute size = {};
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim.x = size.val.clusterDim.z = 1;
    size.val.clusterDim.y = (unsigned)parts;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1, (unsigned)parts);
    config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = bytes;
    config.attrs = &size;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&c.at_once[parts], skinny_kernel<T, COLS>, &config) == cudaSuccess) continue;
    c.at_once[parts] = 0;
    (void)cudaGetLastError(); /* a device without room for such clusters has not failed */
  }
  return c;
}

/* Parts of k: as many as run at once. A cluster that comes after the others would take as long again. */
static int parts_for(const tri_linear_args *a, const cluster_counts &clusters) {
  int best = 1;
  for (int parts : part_counts)
    if (slabs_of(a) <= clusters.at_once[parts] && steps_of(a) >= parts * FEWEST_STEPS) best = parts;
  return best;
}

template <typename T, int COLS> static cudaError_t launch(cudaStream_t stream, const tri_linear_args *a) {
  uint64_t k = (uint64_t)a->w.k, n = (uint64_t)a->w.n, rows = (uint64_t)a->x.rows;
  tri_tiling weights = {2, {k, n}, {0, k * 2}, {STEP, OUTPUTS}};
  tri_tiling inputs = {2, {k, rows}, {0, (uint64_t)a->x.ld * 2}, {STEP, COLS}};
  constexpr size_t bytes = sizeof(skinny_room<COLS>) + ALIGN;
  static_assert(bytes <= MOST_BYTES, "of a block");
  tri_tensor_map w, x;
  if (tri_cuda_map_tensor(&w, a->w.dtype, a->w.data, &weights) != TRI_OK ||
      tri_cuda_map_tensor(&x, a->w.dtype, a->x.data, &inputs) != TRI_OK)
    return cudaErrorInvalidValue;
  cudaError_t e = allow_shared<skinny_kernel<T, COLS>>(bytes);
  if (e != cudaSuccess) return e;
  static const cluster_counts clusters = count_clusters<T, COLS>(bytes); /* a process has one device */
  unsigned slabs = (unsigned)slabs_of(a), parts = (unsigned)parts_for(a, clusters);
  launch_together(skinny_kernel<T, COLS>, dim3(slabs, parts), parts, THREADS, bytes, stream, *a, w, x);
  return cudaSuccess;
}

template <typename T> static cudaError_t start(cudaStream_t stream, const tri_linear_args *a) {
  if (a->x.rows <= 8) return launch<T, 8>(stream, a);
  return a->x.rows <= 16 ? launch<T, 16>(stream, a) : launch<T, 32>(stream, a);
}

cudaError_t tri_cuda_skinny(cudaStream_t stream, const tri_linear_args *a) {
  return a->w.dtype == TRI_BF16 ? start<__nv_bfloat16>(stream, a) : start<__half>(stream, a);
}
