/* Products of up to 16 rows with 16-bit weights of the rows' own type: bound by reading the weights, so everything is
 * arranged around a stream of them. The tensor cores' first operand are 16 rows of w, the second one the rows of x, and
 * as a sum may take its elements in any order, both are loaded in 16-byte pieces straight into the registers in which
 * the tensor cores want them: which element of a piece counts as which one of a 16-element step is the same for both.
 *
 * The warps of a block have the same columns of the result (rows of w) and take turns along k; their sums are added in
 * order. Each warp has weights of AHEAD turns under way, the first ones before the kernel in front has made x. */
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/mma.cuh"

enum { WARPS = 8, THREADS = WARPS * WARP, COLS = 16, ROWS = 8, TURN = 64, PIECE = 8, AHEAD = 2, PAD = 4 };
enum { MOST_ROWS = 2 * ROWS, ENOUGH_BLOCKS = 264, FEW_ROWS = 4 };

/* A gated product has gates in front of as many ups in w; the block's two sets of columns then are a gate's and its
 * up's. */
struct streamed_job {
  tri_linear_args a;
  tri_act act;
  float limit;
};

template <typename T> __device__ static inline uint4 load_piece(const T *p, bool there) {
  return there ? __ldcs((const uint4 *)p) : make_uint4(0, 0, 0, 0);
}
template <typename T> __device__ static inline uint4 load_input(const T *p, bool there) {
  return there ? *(const uint4 *)p : make_uint4(0, 0, 0, 0);
}
/* Rounded to the weights' type, as the library's products have it. */
template <typename T> __device__ static inline uint4 load_input(const float *p, bool there) {
  if (!there) return make_uint4(0, 0, 0, 0);
  float4 low = ((const float4 *)p)[0], high = ((const float4 *)p)[1];
  return make_uint4(mma<T>::pack(low.x, low.y), mma<T>::pack(low.z, low.w), mma<T>::pack(high.x, high.y),
                    mma<T>::pack(high.z, high.w));
}

/* What a lane has of a turn: two rows of w in each set of columns, two pieces of each. */
template <int SETS> struct turn {
  uint4 w[SETS][2][2];

  template <typename T> __device__ inline void load(const tri_weight &weight, const int (&first)[SETS], int k) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int s = 0; s < SETS; s++)
#pragma unroll
      for (int h = 0; h < 2; h++) {
        int row = first[s] + lane / 4 + h * 8;
        const T *from = (const T *)weight.data + (size_t)row * (size_t)weight.k;
#pragma unroll
        for (int p = 0; p < 2; p++) {
          int at = k + p * (TURN / 2) + lane % 4 * PIECE;
          w[s][h][p] = load_piece(from + at, row < weight.n && at < weight.k);
        }
      }
  }
};

__device__ static inline uint32_t part(const uint4 &v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

/* Adds a turn's products with each TILE of eight rows of x. */
template <typename T, typename X, int TILES, int SETS>
__device__ static inline void multiply(const tri_linear_args &a, const turn<SETS> &t, int k,
                                       float (&sum)[SETS][TILES][4]) {
  int lane = threadIdx.x % WARP;
#pragma unroll
  for (int p = 0; p < 2; p++) {
    int at = k + p * (TURN / 2) + lane % 4 * PIECE;
    uint4 x[TILES];
#pragma unroll
    for (int n = 0; n < TILES; n++) {
      int row = n * ROWS + lane / 4;
      x[n] = load_input<T>(row_of<X>(a.x, row) + at, row < a.x.rows && at < a.w.k);
    }
#pragma unroll
    for (int s = 0; s < SETS; s++)
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const uint32_t w[4] = {part(t.w[s][0][p], i), part(t.w[s][1][p], i), part(t.w[s][0][p], i + 1),
                               part(t.w[s][1][p], i + 1)};
#pragma unroll
        for (int n = 0; n < TILES; n++) mma<T>::run(sum[s][n], w, part(x[n], i), part(x[n], i + 1));
      }
  }
}

/* The block's columns of the result: its sets side by side, for each row of x. */
template <int TILES, int SETS> struct sums_of {
  float of[WARPS][TILES * ROWS][SETS * COLS + PAD];

  __device__ inline void put(const float (&sum)[SETS][TILES][4]) {
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
    for (int s = 0; s < SETS; s++)
#pragma unroll
      for (int n = 0; n < TILES; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
          of[warp][n * ROWS + lane % 4 * 2 + i % 2][s * COLS + lane / 4 + i / 2 * 8] = sum[s][n][i];
  }
  __device__ inline float all(int row, int col) const {
    float x = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) x += of[w][row][col];
    return x;
  }
};

__device__ static inline float with_bias(const tri_linear_args &a, int col, float sum) {
  return a.bias ? sum + a.bias[col] : sum;
}

template <typename T, typename X, int TILES, int SETS, bool GATED>
__global__ __launch_bounds__(THREADS) static void streamed_kernel(streamed_job job) {
  __shared__ sums_of<TILES, SETS> room;
  const tri_linear_args &a = job.a;
  constexpr int OUT = GATED ? COLS : SETS * COLS; /* columns of the result of a block */
  int width = GATED ? a.w.n / 2 : a.w.n, col0 = blockIdx.x * OUT, k = threadIdx.x / WARP * TURN, first[SETS];
  float sum[SETS][TILES][4] = {};
  turn<SETS> turns[AHEAD];
  let_next_begin();
#pragma unroll
  for (int s = 0; s < SETS; s++) first[s] = col0 + s * (GATED ? width : COLS);
#pragma unroll
  for (int u = 0; u < AHEAD; u++) turns[u].template load<T>(a.w, first, k + u * WARPS * TURN);
  wait_for_previous();
  for (; k < a.w.k; k += AHEAD * WARPS * TURN)
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      int now = k + u * WARPS * TURN;
      turn<SETS> here = turns[u];
      turns[u].template load<T>(a.w, first, now + AHEAD * WARPS * TURN);
      multiply<T, X, TILES, SETS>(a, here, now, sum);
    }
  room.put(sum);
  __syncthreads();
  for (int i = threadIdx.x; i < a.x.rows * OUT; i += THREADS) {
    int row = i / OUT, c = i % OUT, col = col0 + c;
    if (col >= width) continue;
    float x = with_bias(a, col, room.all(row, c));
    if (GATED)
      x = glu_of(job.act, job.limit, x, with_bias(a, width + col, room.all(row, COLS + c)));
    else if (a.act != TRI_ACT_NONE)
      x = act_of(a.act, x);
    store_at(a.out, row, (size_t)col, a.accumulate ? load_at(a.out, row, (size_t)col) + x : x);
  }
}

template <typename T, typename X, int TILES, int SETS, bool GATED>
static void start(cudaStream_t stream, const streamed_job &job) {
  unsigned width = (unsigned)(GATED ? job.a.w.n / 2 : job.a.w.n);
  launch_overlapped(streamed_kernel<T, X, TILES, SETS, GATED>, dim3(blocks_for(width, GATED ? COLS : SETS * COLS)),
                    THREADS, 0, stream, job);
}

/* One set of columns where two would leave processors without a block; with many rows x is then read too often. */
template <typename T, typename X, int TILES> static void start_sets(cudaStream_t stream, const streamed_job &job) {
  bool one = job.a.x.rows <= FEW_ROWS && blocks_for((size_t)job.a.w.n, 2 * COLS) < ENOUGH_BLOCKS;
  if (TILES == 1 && one)
    start<T, X, 1, 1, false>(stream, job);
  else
    start<T, X, TILES, 2, false>(stream, job);
}

template <typename T, int TILES> static void start_inputs(cudaStream_t stream, const streamed_job &job, bool gated) {
  if (gated)
    start<T, T, TILES, 2, true>(stream, job);
  else if (job.a.x.dtype == TRI_F32)
    start_sets<T, float, TILES>(stream, job);
  else
    start_sets<T, T, TILES>(stream, job);
}

template <typename T> static void start_tiles(cudaStream_t stream, const streamed_job &job, bool gated) {
  if (job.a.x.rows <= ROWS)
    start_inputs<T, 1>(stream, job, gated);
  else
    start_inputs<T, 2>(stream, job, gated);
}

static void start_type(cudaStream_t stream, const streamed_job &job, bool gated) {
  if (job.a.w.dtype == TRI_BF16)
    start_tiles<__nv_bfloat16>(stream, job, gated);
  else
    start_tiles<__half>(stream, job, gated);
}

bool tri_cuda_streamed_fits(const tri_linear_args *a) {
  bool narrow = a->x.dtype == a->w.dtype;
  return (a->w.dtype == TRI_F16 || a->w.dtype == TRI_BF16) && (narrow || a->x.dtype == TRI_F32) &&
         a->x.rows <= MOST_ROWS && a->w.k % PIECE == 0 && a->x.ld % (narrow ? PIECE : 4) == 0 &&
         (uintptr_t)a->x.data % 16 == 0 && (uintptr_t)a->w.data % 16 == 0;
}

void tri_cuda_streamed(cudaStream_t stream, const tri_linear_args *a) {
  if (a->x.rows && a->w.n) start_type(stream, {*a, TRI_ACT_NONE, 0}, false);
}

bool tri_cuda_streamed_gated_fits(const tri_gated_linear_args *a) {
  return a->up.x.dtype == a->up.w.dtype && tri_cuda_streamed_fits(&a->up);
}

void tri_cuda_streamed_gated(cudaStream_t stream, const tri_gated_linear_args *a) {
  streamed_job job = {a->up, a->glu.act, a->glu.limit};
  job.a.out = a->glu.out;
  if (a->up.x.rows && a->up.w.n) start_type(stream, job, true);
}
