/* Products of 3 to 32 rows with weights of 16 bits on Hopper, which are bound by reading the weights: those stream
 * through the copy engine as one factor of wgmma, all rows of x are the other.
 *
 * A block has 64 outputs and a part of k: a warpgroup multiplies, a warp fetches. The parts of k of the same outputs
 * are a cluster, whose blocks put their sums together out of each other's shared memory, in the order of the parts.
 * Several blocks share a multiprocessor, and their first stages of weights come before the kernel in front has made x:
 * on a device of 132 of them that is as much as a small layer has. */
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/linear_results.cuh"

enum {
  STEP = 64, /* elements of k at a time: 128 bytes */
  LINE = STEP * 2,
  OUTPUTS = 64,
  FROM_ROWS = 3,
  MOST_ROWS = 32,
  MOST_PARTS = 8, /* larger clusters are not portable */
  FEWEST_STEPS = 4,
  MOST_STEPS = 16,    /* of a block, where the product is the default */
  BLOCKS_AT_ONCE = 3, /* of a multiprocessor */
  STAGES_BYTES = 73 * 1024,
  THREADS = WARPGROUP + WARP,
  ALIGN = 1024
};

/* Shared memory of a block: stages, and in their place, once all have been read, the block's sums. Rows of those lie so
 * far apart that a warp's stores meet no bank twice. */
template <int COLS> struct skinny_room {
  enum {
    WEIGHTS = OUTPUTS * LINE, /* bytes of a stage */
    INPUTS = COLS * LINE,
    STAGES = STAGES_BYTES / (WEIGHTS + INPUTS),
    WIDTH = OUTPUTS + 4
  };
  union {
    struct {
      char weights[STAGES][WEIGHTS];
      char inputs[STAGES][INPUTS];
    };
    float sums[COLS][WIDTH];
  };
  barrier full[STAGES], empty[STAGES];
};

/* A block's steps of k. */
struct skinny_part {
  int begin, end;
};

__device__ static inline skinny_part part_of(int k) {
  int steps = (k + STEP - 1) / STEP, parts = (int)gridDim.y, part = (int)blockIdx.y;
  return {steps * part / parts, steps * (part + 1) / parts};
}

/* By one thread: weights of the first stages at once, rows when the kernel in front has made them. */
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

/* By a warpgroup: d[outputs, rows], as wgmma leaves them. */
template <typename T, int COLS>
__device__ static inline void multiply(const skinny_part &p, skinny_room<COLS> &s, float (&d)[COLS / 2]) {
  typedef skinny_room<COLS> R;
  ring_place<R::STAGES> at;
  int last = 0;
  for (int step = p.begin; step < p.end; step++, at.next()) {
    barrier_wait(&s.full[at.stage], at.parity);
    products_hold(d);
    products_begin();
#pragma unroll
    for (int i = 0; i < LINE; i += 32)
      wgmma<T, COLS>::run(d, operand(s.weights[at.stage] + i, 0, 8 * LINE),
                          operand(s.inputs[at.stage] + i, 0, 8 * LINE), true);
    products_commit();
    products_wait<1>();
    if (step > p.begin && threadIdx.x % WARP == 0) barrier_arrive(&s.empty[last]);
    last = at.stage;
  }
  products_wait<0>();
  products_hold(d);
}

/* Leaves a warpgroup's sums where the cluster's blocks find them. All stages have been read by then. */
template <int COLS> __device__ static inline void leave(const float (&d)[COLS / 2], skinny_room<COLS> &s) {
  int lane = threadIdx.x % WARP, output = threadIdx.x / WARP * 16 + lane / 4;
  named_sync(1, WARPGROUP);
#pragma unroll
  for (int j = 0; j < COLS / 8; j++)
#pragma unroll
    for (int i = 0; i < 4; i++) s.sums[8 * j + lane % 4 * 2 + i % 2][output + i / 2 * 8] = d[4 * j + i];
}

/* Adds the parts up and stores results: each block of the cluster an equal share of them. */
template <int COLS> __device__ static inline void finish_share(const tri_linear_args &a, const skinny_room<COLS> &s) {
  enum { FOURS = OUTPUTS / 4 };
  int parts = (int)gridDim.y, all = a.x.rows * FOURS, share = (all + parts - 1) / parts;
  int begin = (int)blockIdx.y * share, end = min(all, begin + share);
  for (int i = begin + (int)threadIdx.x; i < end; i += THREADS) {
    int row = i / FOURS, four = i % FOURS * 4, col = blockIdx.x * OUTPUTS + four;
    float4 sum = load4_in_cluster(address_in_cluster(&s.sums[row][four], 0));
    for (int p = 1; p < parts; p++) {
      float4 more = load4_in_cluster(address_in_cluster(&s.sums[row][four], p));
      sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
    }
    if (col < a.w.n) finish_four(a, row, col, sum);
  }
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
    barriers_are_made();
  }
  __syncthreads();
  skinny_part p = part_of(a.w.k);
  if (threadIdx.x < WARPGROUP) {
    float d[COLS / 2] = {};
    multiply<T, COLS>(p, s, d);
    leave<COLS>(d, s);
    wait_for_previous(); /* it may read what this one stores */
  } else if (threadIdx.x == WARPGROUP) {
    fetch<COLS>(&w, &x, p, s);
  } else {
    wait_for_previous();
  }
  meet_cluster();
  finish_share<COLS>(a, s);
  arrive_at_cluster(); /* nobody leaves while others read what it has */
  wait_at_cluster();
}

/* ---- launches ---- */

bool tri_cuda_skinny_fits(const tri_linear_args *a) {
  uintptr_t places = (uintptr_t)a->x.data | (uintptr_t)a->w.data | (uintptr_t)a->bias;
  bool types = (a->w.dtype == TRI_F16 || a->w.dtype == TRI_BF16) && a->x.dtype == a->w.dtype;
  bool whole = a->w.k % 8 == 0 && a->w.k && a->w.n % 4 == 0 && a->w.n && a->x.ld % 8 == 0 && places % 16 == 0;
  return types && whole && in_fours(a->out) && a->x.rows >= FROM_ROWS && a->x.rows <= MOST_ROWS;
}

static int steps_of(const tri_linear_args *a) { return (a->w.k + STEP - 1) / STEP; }
static int slabs_of(const tri_linear_args *a) { return (a->w.n + OUTPUTS - 1) / OUTPUTS; }

/* Larger products gain less from an early begin than they lose to the library's rate. */
bool tri_cuda_skinny_pays(const tri_linear_args *a, int num_sms) {
  return (int64_t)slabs_of(a) * steps_of(a) <= (int64_t)MOST_STEPS * BLOCKS_AT_ONCE * num_sms;
}

/* Parts of k: as many as the device has room for at once, as clusters are placed best, of a power of two. */
static int parts_for(const tri_linear_args *a, int num_sms) {
  int parts = 1, at_once = BLOCKS_AT_ONCE * num_sms;
  while (2 * parts <= MOST_PARTS && slabs_of(a) * 2 * parts <= at_once && steps_of(a) >= 2 * parts * FEWEST_STEPS)
    parts *= 2;
  return parts;
}

template <typename T, int COLS> static cudaError_t launch(cudaStream_t stream, const tri_linear_args *a, int num_sms) {
  uint64_t k = (uint64_t)a->w.k, n = (uint64_t)a->w.n, rows = (uint64_t)a->x.rows;
  tri_tiling weights = {2, {k, n}, {0, k * 2}, {STEP, OUTPUTS}};
  tri_tiling inputs = {2, {k, rows}, {0, (uint64_t)a->x.ld * 2}, {STEP, COLS}};
  constexpr size_t bytes = sizeof(skinny_room<COLS>) + ALIGN;
  unsigned slabs = (unsigned)slabs_of(a), parts = (unsigned)parts_for(a, num_sms);
  tri_tensor_map w, x;
  if (tri_cuda_map_tensor(&w, a->w.dtype, a->w.data, &weights) != TRI_OK ||
      tri_cuda_map_tensor(&x, a->w.dtype, a->x.data, &inputs) != TRI_OK)
    return cudaErrorInvalidValue;
  cudaError_t e = allow_shared<skinny_kernel<T, COLS>>(bytes);
  if (e == cudaSuccess)
    launch_together(skinny_kernel<T, COLS>, dim3(slabs, parts), parts, THREADS, bytes, stream, *a, w, x);
  return e;
}

template <typename T> static cudaError_t start(cudaStream_t stream, const tri_linear_args *a, int num_sms) {
  if (a->x.rows <= 8) return launch<T, 8>(stream, a, num_sms);
  return a->x.rows <= 16 ? launch<T, 16>(stream, a, num_sms) : launch<T, 32>(stream, a, num_sms);
}

cudaError_t tri_cuda_skinny(cudaStream_t stream, const tri_linear_args *a, int num_sms) {
  return a->w.dtype == TRI_BF16 ? start<__nv_bfloat16>(stream, a, num_sms) : start<__half>(stream, a, num_sms);
}
