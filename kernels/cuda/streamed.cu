/* Products of up to eight rows with 16-bit weights, on sm_90: bound by reading the weights, so everything is arranged
 * around a stream of them that never pauses.
 *
 * There is one block for each processor, which goes from tile to tile of the result's columns (16 rows of w, the first
 * operand of the tensor cores; the rows of x are the second). One warp does nothing but order the bulk copies of the
 * weights into a ring of stages, across the tiles' ends and as far ahead as the ring allows; it needs nothing that the
 * kernel in front computes and does not wait for it. The other warps share out the columns of a stage (elements of k)
 * and add up their sums in a fixed order when a tile is complete. x stays in shared memory, where all of it must fit.
 */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/mma.cuh"

enum { WARPS = 8, WORKERS = WARPS * WARP, THREADS = WORKERS + WARP, ROWS = 16, MOST = 8 };
enum { STAGES = 5, DEPTH = 512, SHARE = DEPTH / WARPS, STEP = 16, PIECE = 8, PAD = 8 };
enum { PITCH = DEPTH + PAD, ROOM_PITCH = ROWS + 4 }; /* elements: neighbouring rows lie in different banks */
enum { MOST_SHARED = 227 << 10 };

/* The sums of the warps, of two tiles in turn: one is read while the next one is written. */
typedef float room_of[2][WARPS][MOST][ROOM_PITCH];

/* A gated product has gates in front of as many ups in w; a tile then is eight of each. */
struct streamed_job {
  tri_linear_args a;
  tri_act act;
  float limit;
  int tiles, width; /* of the result: columns */
};

/* Other devices run code without any of this, and none of them comes here. */
#if __CUDA_ARCH__ >= 900 || !defined(__CUDA_ARCH__)
/* ---- barriers in shared memory that copies report to ---- */

__device__ static inline uint32_t shared_at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ static inline void barrier_init(uint64_t *b, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_at(b)), "r"(count));
}
__device__ static inline void barrier_expect(uint64_t *b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_at(b)), "r"(bytes) : "memory");
}
__device__ static inline void barrier_arrive(uint64_t *b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_at(b)) : "memory");
}
__device__ static inline void barrier_wait(uint64_t *b, uint32_t parity) {
  uint32_t done;
  do
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(shared_at(b)), "r"(parity)
                 : "memory");
  while (!done);
}
/* Weights are read once in a step: they need not push anything else out of the second-level cache. */
__device__ static inline uint64_t read_once(void) {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ static inline void bulk_copy(void *to, const void *from, uint32_t bytes, uint64_t *b, uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
               "%4;" ::"r"(shared_at(to)),
               "l"(from), "r"(bytes), "r"(shared_at(b)), "l"(policy)
               : "memory");
}

/* Of the warps that compute. */
__device__ static inline void meet(void) { asm volatile("bar.sync 1, %0;" ::"n"((int)WARPS * 32) : "memory"); }

/* ---- the stream ---- */

template <typename T> struct ring {
  T *stages;               /* [STAGES][ROWS][PITCH] */
  uint64_t *full, *vacant; /* [STAGES] */

  __device__ inline T *stage(int i) const { return stages + (size_t)(i % STAGES) * ROWS * PITCH; }
  __device__ static inline uint32_t parity(int i) { return (uint32_t)(i / STAGES) & 1; }
};

/* The row of w behind row r of a tile; -1: none. */
template <bool GATED> __device__ static inline int row_of_tile(const streamed_job &job, int tile, int r) {
  constexpr int COLS = GATED ? ROWS / 2 : ROWS;
  int col = tile * COLS + r % COLS;
  return col < job.width ? col + r / COLS * job.width : -1;
}

template <typename T, bool GATED> __device__ static void order_copies(const streamed_job &job, const ring<T> &ring) {
  int lane = threadIdx.x % WARP, k = job.a.w.k, turn = 0;
  uint64_t policy = read_once();
  for (int tile = blockIdx.x; tile < job.tiles; tile += gridDim.x) {
    int row = lane < ROWS ? row_of_tile<GATED>(job, tile, lane) : -1;
    int rows = __popc(__ballot_sync(0xffffffffu, row >= 0));
    const T *from = (const T *)job.a.w.data + (size_t)(row < 0 ? 0 : row) * (size_t)k;
    for (int at = 0; at < k; at += DEPTH, turn++) {
      uint32_t bytes = (uint32_t)min((int)DEPTH, k - at) * (uint32_t)sizeof(T);
      uint64_t *full = &ring.full[turn % STAGES];
      if (turn >= STAGES) barrier_wait(&ring.vacant[turn % STAGES], ring.parity(turn - STAGES));
      if (!lane) barrier_expect(full, bytes * (uint32_t)rows);
      __syncwarp();
      if (row >= 0) bulk_copy(ring.stage(turn) + lane * PITCH, from + at, bytes, full, policy);
    }
  }
}

/* ---- what is done with it ---- */

__device__ static inline int x_pitch(int k) { return k + PAD; }

/* All of x, in the weights' type. */
template <typename T, typename X> __device__ static void keep_inputs(const tri_linear_args &a, T *x) {
  int pieces = a.w.k / PIECE;
  for (int i = threadIdx.x; i < a.x.rows * pieces; i += WORKERS) {
    int row = i / pieces, k = i % pieces * PIECE;
    const X *from = row_of<X>(a.x, row) + k;
    uint4 v;
    if constexpr (sizeof(X) == sizeof(T)) {
      v = *(const uint4 *)from;
    } else {
      float4 low = load4(from), high = load4(from + 4);
      v = make_uint4(mma<T>::pack(low.x, low.y), mma<T>::pack(low.z, low.w), mma<T>::pack(high.x, high.y),
                     mma<T>::pack(high.z, high.w));
    }
    *(uint4 *)(x + row * x_pitch(a.w.k) + k) = v;
  }
}

/* This warp's share of a stage that begins at element `at`. */
template <typename T>
__device__ static inline void multiply(const tri_linear_args &a, const T *w, const T *x, int at, float (&sum)[4]) {
  int lane = threadIdx.x % WARP, from = threadIdx.x / WARP * SHARE, n = min((int)SHARE, a.w.k - at - from);
  const T *w_row = w + lane % ROWS * PITCH + from + lane / ROWS * PIECE;
  const T *x_row = x + min(lane % MOST, a.x.rows - 1) * x_pitch(a.w.k) + at + from + lane / MOST * PIECE;
#pragma unroll
  for (int k = 0; k < SHARE; k += 2 * STEP) {
    uint32_t one[4], two[4], inputs[4];
    if (k >= n) break;
    bool whole = k + STEP < n; /* else the second half is not there, and its addresses are another's */
    load_matrices(inputs, x_row + (whole || lane < WARP / 2 ? k : k - STEP));
    load_matrices(one, w_row + k);
    mma<T>::run(sum, one, inputs[0], inputs[1]);
    if (!whole) break;
    load_matrices(two, w_row + k + STEP);
    mma<T>::run(sum, two, inputs[2], inputs[3]);
  }
}

__device__ static inline float all_warps(const room_of &room, int turn, int row, int col) {
  float x = 0;
#pragma unroll
  for (int w = 0; w < WARPS; w++) x += room[turn][w][row][col];
  return x;
}

__device__ static inline float with_bias(const tri_linear_args &a, int col, float sum) {
  return a.bias ? sum + a.bias[col] : sum;
}

/* The tile's sums, to where they belong. */
template <bool GATED>
__device__ static void finish_tile(const streamed_job &job, int tile, room_of &room, int turn, const float (&sum)[4]) {
  constexpr int COLS = GATED ? ROWS / 2 : ROWS;
  const tri_linear_args &a = job.a;
  int lane = threadIdx.x % WARP;
#pragma unroll
  for (int i = 0; i < 4; i++) room[turn][threadIdx.x / WARP][lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = sum[i];
  meet();
  int c = threadIdx.x % COLS, row = threadIdx.x / COLS, col = tile * COLS + c;
  if (row >= a.x.rows || col >= job.width) return;
  float x = with_bias(a, col, all_warps(room, turn, row, c));
  if (GATED)
    x = glu_of(job.act, job.limit, x, with_bias(a, job.width + col, all_warps(room, turn, row, COLS + c)));
  else if (a.act != TRI_ACT_NONE)
    x = act_of(a.act, x);
  store_at(a.out, row, (size_t)col, a.accumulate ? load_at(a.out, row, (size_t)col) + x : x);
}
#endif

template <typename T, typename X, bool GATED>
__global__ __launch_bounds__(THREADS) static void streamed_kernel(const __grid_constant__ streamed_job job) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char memory[];
  __shared__ room_of room;
  __shared__ uint64_t full[STAGES], vacant[STAGES];
  const ring<T> ring = {(T *)memory, full, vacant};
  T *x = ring.stages + STAGES * ROWS * PITCH;
  const tri_linear_args &a = job.a;
  let_next_begin();
  if (!threadIdx.x) {
    for (int i = 0; i < STAGES; i++) barrier_init(&full[i], 1), barrier_init(&vacant[i], WARPS);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= WORKERS) {
    order_copies<T, GATED>(job, ring);
    return;
  }
  wait_for_previous();
  keep_inputs<T, X>(a, x);
  meet();
  int turn = 0, done = 0;
  for (int tile = blockIdx.x; tile < job.tiles; tile += gridDim.x, done ^= 1) {
    float sum[4] = {};
    for (int at = 0; at < a.w.k; at += DEPTH, turn++) {
      barrier_wait(&full[turn % STAGES], ring.parity(turn));
      multiply<T>(a, ring.stage(turn), x, at, sum);
      __syncwarp();
      if (threadIdx.x % WARP == 0) barrier_arrive(&vacant[turn % STAGES]);
    }
    finish_tile<GATED>(job, tile, room, done, sum);
  }
#endif
}

/* ---- host ---- */

static size_t shared_bytes(const tri_linear_args &a) {
  return 2 * ((size_t)STAGES * ROWS * PITCH + (size_t)a.x.rows * (size_t)(a.w.k + PAD));
}

template <typename T, typename X, bool GATED> static cudaError_t start(cudaStream_t stream, streamed_job job) {
  int device = 0, processors = 0;
  size_t bytes = shared_bytes(job.a);
  cudaError_t e = cudaGetDevice(&device);
  if (e == cudaSuccess) e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (e == cudaSuccess)
    e = cudaFuncSetAttribute(streamed_kernel<T, X, GATED>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
  if (e != cudaSuccess) return e;
  job.width = GATED ? job.a.w.n / 2 : job.a.w.n;
  job.tiles = (int)blocks_for((size_t)job.width, GATED ? ROWS / 2 : ROWS);
  launch_overlapped(streamed_kernel<T, X, GATED>, dim3((unsigned)min(job.tiles, processors)), THREADS, bytes, stream,
                    job);
  return cudaGetLastError();
}

template <typename T> static cudaError_t start_inputs(cudaStream_t stream, const streamed_job &job, bool gated) {
  if (gated) return start<T, T, true>(stream, job);
  return job.a.x.dtype == TRI_F32 ? start<T, float, false>(stream, job) : start<T, T, false>(stream, job);
}

static cudaError_t start_type(cudaStream_t stream, const streamed_job &job, bool gated) {
  return job.a.w.dtype == TRI_BF16 ? start_inputs<__nv_bfloat16>(stream, job, gated)
                                   : start_inputs<__half>(stream, job, gated);
}

/* Only on the devices that the code was made for; its barriers and sums take some of the shared memory, too. */
bool tri_cuda_streamed_fits(const tri_linear_args *a) {
  bool narrow = a->x.dtype == a->w.dtype;
  return (a->w.dtype == TRI_F16 || a->w.dtype == TRI_BF16) && (narrow || a->x.dtype == TRI_F32) && a->x.rows <= MOST &&
         a->w.k > 0 && a->w.k % STEP == 0 && a->x.ld % (narrow ? PIECE : 4) == 0 && (uintptr_t)a->x.data % 16 == 0 &&
         (uintptr_t)a->w.data % 16 == 0 && shared_bytes(*a) + sizeof(room_of) + 1024 <= MOST_SHARED && can_overlap();
}

cudaError_t tri_cuda_streamed(cudaStream_t stream, const tri_linear_args *a) {
  streamed_job job = {*a, TRI_ACT_NONE, 0};
  return a->x.rows && a->w.n ? start_type(stream, job, false) : cudaSuccess;
}

bool tri_cuda_streamed_gated_fits(const tri_gated_linear_args *a) {
  return a->up.x.dtype == a->up.w.dtype && tri_cuda_streamed_fits(&a->up);
}

cudaError_t tri_cuda_streamed_gated(cudaStream_t stream, const tri_gated_linear_args *a) {
  streamed_job job = {a->up, a->glu.act, a->glu.limit};
  job.a.out = a->glu.out;
  return a->up.x.rows && a->up.w.n ? start_type(stream, job, true) : cudaSuccess;
}
