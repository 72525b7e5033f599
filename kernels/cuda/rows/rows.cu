/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that work row by row and only move memory. Most take four elements a thread, or one where rows are not aligned
 * for that; and all overlap, so that what they read before the wait is the batch's or a weight. glu, which moves the
 * most bytes, has three forms, which differ in how many of them a thread has under way. */
#include "kernels/cuda/device/fast_math.cuh"
#include "kernels/cuda/linear/gemm_few_rows.cuh"
#include "kernels/cuda/device/mma.cuh"

enum { THREADS = 256 };

/* ---- EACH elements of a row, one or four, of each thread ---- */

template <int EACH> __device__ static inline int first_element(void) {
  return EACH * (int)(blockIdx.y * THREADS + threadIdx.x);
}

template <int EACH> __device__ static inline void load_each(const tri_mat &m, int row, int j, float (&x)[EACH]) {
  if constexpr (EACH == 1) {
    x[0] = load_at(m, row, (size_t)j);
  } else {
    float4 v = load4_at(m, row, j);
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
  }
}
template <int EACH> __device__ static inline void store_each(const tri_mat &m, int row, int j, const float (&x)[EACH]) {
  if constexpr (EACH == 1)
    store_at(m, row, (size_t)j, x[0]);
  else
    store4_at(m, row, j, make_float4(x[0], x[1], x[2], x[3]));
}

/* Launches a kernel for one or for four elements of each thread: grid (rows, cols / 256 or 1024), 256 threads. */
template <typename Args>
static void launch_rows(cudaStream_t stream, bool fours, const tri_mat &m, const Args &a, void (*one)(Args),
                        void (*four)(Args)) {
  dim3 grid((unsigned)m.rows, blocks_for((size_t)m.cols, (fours ? 4 : 1) * THREADS));
  if (m.rows && m.cols) launch_overlapped(fours ? four : one, grid, THREADS, 0, stream, a);
}

/* ---- ops ---- */

template <int EACH> __device__ static inline void weights_at(const tri_weight &w, size_t row, int j, float (&x)[EACH]) {
  if constexpr (EACH == 1) {
    x[0] = weight_at(&w, row, (size_t)j);
  } else if (w.dtype == TRI_F8_E4M3) {
#pragma unroll
    for (int i = 0; i < EACH; i++) x[i] = weight_at(&w, row, (size_t)(j + i));
  } else if (w.dtype == TRI_I8) {
    char4 q = *(const char4 *)((const int8_t *)w.data + row * (size_t)w.k + (size_t)j);
    float scale = w.scale[row];
    x[0] = (float)q.x * scale;
    x[1] = (float)q.y * scale;
    x[2] = (float)q.z * scale;
    x[3] = (float)q.w * scale;
  } else {
    load_each(tri_mat{(float *)w.data, w.n, w.k, w.k, w.dtype}, (int)row, j, x);
  }
}
template <int EACH>
__device__ static inline void add_weights(const tri_weight &w, size_t row, int j, float (&x)[EACH]) {
  float y[EACH];
  weights_at(w, row, j, y);
#pragma unroll
  for (int i = 0; i < EACH; i++) x[i] += y[i];
}

/* Adds up a token's embeddings. ids [T], tables [n, h], out [T, h]. Grid (T, h / (256 EACH)), 256 threads. */
template <int EACH> __global__ __launch_bounds__(THREADS) static void embed_kernel(tri_embed_args a) {
  int t = blockIdx.x, j = first_element<EACH>();
  float x[EACH] = {};
  let_next_begin();
  uint32_t id = a.ids[t];
  wait_for_previous();
  if (j >= a.out.cols) return;
  if (id & TRI_SAMPLED_ID && a.sampled) id = a.sampled[id & ~TRI_SAMPLED_ID];
  uint32_t row = id - a.first_id; /* wraps to something huge below first_id */
  if (row < (uint32_t)a.table.n) {
    weights_at(a.table, row, j, x);
#pragma unroll
    for (int i = 0; i < EACH; i++) x[i] *= a.scale;
  }
  if (a.position_table.data) add_weights(a.position_table, (size_t)(a.positions[t] + a.position_offset), j, x);
  if (a.type_table.data) add_weights(a.type_table, a.types ? (size_t)a.types[t] : 0, j, x);
  store_each(a.out, t, j, x);
}

/* Returns true also of a table that is not there. */
static bool in_fours(const tri_weight &w) { return w.k % 4 == 0 && (uintptr_t)w.data % 16 == 0; }

void tri_cuda_embed(cudaStream_t stream, const tri_embed_args *a, void *) {
  bool fours = in_fours(a->out) && in_fours(a->table) && in_fours(a->position_table) && in_fours(a->type_table);
  launch_rows(stream, fours, a->out, *a, embed_kernel<1>, embed_kernel<4>);
}

/* Sums the squares of a row. x [T, n]. Grid T, 256 threads. Shared memory: 32 floats. */
__global__ static void square_sums_kernel(tri_square_sums_args a) {
  __shared__ float room[WARP];
  const float *x = row_at(a.x, blockIdx.x);
  float sum = 0;
  let_next_begin();
  wait_for_previous();
  for (int j = threadIdx.x; j < a.x.cols; j += blockDim.x) sum += x[j] * x[j];
  sum = block_sum(sum, room);
  if (!threadIdx.x) a.sums[blockIdx.x] = sum;
}

void tri_cuda_square_sums(cudaStream_t stream, const tri_square_sums_args *a, void *) {
  if (a->x.rows) launch_overlapped(square_sums_kernel, dim3(a->x.rows), THREADS, 0, stream, *a);
}

/* Multiplies a row with its gate, or with the gate's sigmoid. x [T, n], gate [T]. Grid (T, n / (256 EACH)), 256
 * threads. */
template <int EACH> __global__ __launch_bounds__(THREADS) static void gate_rows_kernel(tri_gate_rows_args a) {
  int t = blockIdx.x, j = first_element<EACH>();
  float x[EACH];
  let_next_begin();
  wait_for_previous();
  if (j >= a.x.cols) return;
  load_each(a.x, t, j, x);
  float factor = a.plain ? a.gate[t] : 1 / (1 + expf(-a.gate[t]));
#pragma unroll
  for (int i = 0; i < EACH; i++) x[i] *= factor;
  store_each(a.x, t, j, x);
}

void tri_cuda_gate_rows(cudaStream_t stream, const tri_gate_rows_args *a, void *) {
  launch_rows(stream, in_fours(a->x), a->x, *a, gate_rows_kernel<1>, gate_rows_kernel<4>);
}

/* Scales and caps a row. x [T, n]. Grid (T, n / (256 EACH)), 256 threads. */
template <int EACH> __global__ __launch_bounds__(THREADS) static void softcap_kernel(tri_softcap_args a) {
  int t = blockIdx.x, j = first_element<EACH>();
  float x[EACH];
  let_next_begin();
  wait_for_previous();
  if (j >= a.x.cols) return;
  load_each(a.x, t, j, x);
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    x[i] *= a.scale;
    if (a.cap > 0) x[i] = a.cap * tanhf(x[i] / a.cap);
  }
  store_each(a.x, t, j, x);
}

void tri_cuda_softcap(cudaStream_t stream, const tri_softcap_args *a, void *) {
  launch_rows(stream, in_fours(a->x), a->x, *a, softcap_kernel<1>, softcap_kernel<4>);
}

/* Multiplies activated gates with their ups. gate_up [T, 2 f] to out [T, f]. Grid (T, f / 1024), 256 threads, which
 * continue in steps of the grid. */
__global__ static void glu_kernel(tri_glu_args a) {
  int f = a.out.cols, t = blockIdx.x;
  let_next_begin();
  wait_for_previous();
  for (int j = blockIdx.y * blockDim.x + threadIdx.x; j < f; j += gridDim.y * blockDim.x)
    store_at(a.out, t, (size_t)j,
             glu_of(a.act, a.limit, load_at(a.gate_up, t, (size_t)j), load_at(a.gate_up, t, (size_t)(f + j))));
}

/* Does the same four elements at a time. gate_up [T, 2 f] to out [T, f]. Grid (T, f / 1024), 256 threads. */
template <typename T> __global__ static void glu_kernel_by_four(tri_glu_args a) {
  int f = a.out.cols, j = 4 * (int)(blockIdx.y * blockDim.x + threadIdx.x);
  let_next_begin();
  wait_for_previous();
  if (j >= f) return;
  const T *in = row_of<T>(a.gate_up, blockIdx.x);
  float4 gate = load4(in + j), up = load4(in + f + j);
  store4(row_of<T>(a.out, blockIdx.x) + j,
         make_float4(glu_of(a.act, a.limit, gate.x, up.x), glu_of(a.act, a.limit, gate.y, up.y),
                     glu_of(a.act, a.limit, gate.z, up.z), glu_of(a.act, a.limit, gate.w, up.w)));
}

/* Does the same eight elements of 16 bits at a time. gate_up [T, 2 f] to out [T, f]. Grid (T, f / 2048), 256 threads.
 */
template <typename T> __global__ __launch_bounds__(THREADS) static void glu_kernel_by_eight(tri_glu_args a) {
  int f = a.out.cols, j = PIECE * (int)(blockIdx.y * blockDim.x + threadIdx.x);
  let_next_begin();
  wait_for_previous();
  if (j >= f) return;
  const T *in = row_of<T>(a.gate_up, blockIdx.x);
  piece<T> raw_gate, raw_up;
  float gate[PIECE], up[PIECE];
  raw_gate.load(in + j);
  raw_up.load(in + f + j);
  raw_gate.widen(gate);
  raw_up.widen(up);
#pragma unroll
  for (int i = 0; i < PIECE; i++)
    gate[i] = a.act == TRI_ACT_SILU ? fast_swish(gate[i], 1) * up[i] : glu_of(a.act, a.limit, gate[i], up[i]);
  *(uint4 *)(row_of<T>(a.out, blockIdx.x) + j) =
      make_uint4(mma<T>::pack(gate[0], gate[1]), mma<T>::pack(gate[2], gate[3]), mma<T>::pack(gate[4], gate[5]),
                 mma<T>::pack(gate[6], gate[7]));
}

/* Returns whether rows can be read and written eight elements at a time. */
static bool in_eights(const tri_mat &m) {
  return m.dtype != TRI_F32 && m.cols % (2 * PIECE) == 0 && m.ld % PIECE == 0 && (uintptr_t)m.data % 16 == 0;
}

static bool glu_by_eight(cudaStream_t stream, const tri_glu_args &a) {
  dim3 grid(a.out.rows, blocks_for((size_t)a.out.cols, PIECE * THREADS));
  if (a.out.cols % PIECE || a.out.dtype != a.gate_up.dtype || !in_eights(a.gate_up) || a.out.ld % PIECE ||
      (uintptr_t)a.out.data % 16)
    return false;
  if (a.out.dtype == TRI_BF16)
    launch_overlapped(glu_kernel_by_eight<__nv_bfloat16>, grid, THREADS, 0, stream, a);
  else
    launch_overlapped(glu_kernel_by_eight<__half>, grid, THREADS, 0, stream, a);
  return true;
}

void tri_cuda_glu(cudaStream_t stream, const tri_glu_args *a, void *) {
  if (!a->out.rows || glu_by_eight(stream, *a)) return;
  dim3 grid(a->out.rows, blocks_for((size_t)a->out.cols, 4 * THREADS));
  if (!in_fours(a->out) || !in_fours(a->gate_up) || a->out.dtype != a->gate_up.dtype)
    launch_overlapped(glu_kernel, grid, THREADS, 0, stream, *a);
  else if (a->out.dtype == TRI_BF16)
    launch_overlapped(glu_kernel_by_four<__nv_bfloat16>, grid, THREADS, 0, stream, *a);
  else if (a->out.dtype == TRI_F16)
    launch_overlapped(glu_kernel_by_four<__half>, grid, THREADS, 0, stream, *a);
  else
    launch_overlapped(glu_kernel_by_four<float>, grid, THREADS, 0, stream, *a);
}

/* Copies chosen rows. x [T, n], rows [M], of the batch, out [M, n]. Grid (M, n / (256 EACH)), 256 threads. */
template <int EACH> __global__ __launch_bounds__(THREADS) static void gather_rows_kernel(tri_gather_rows_args a) {
  int j = first_element<EACH>();
  float x[EACH];
  let_next_begin();
  int row = a.rows[blockIdx.x];
  wait_for_previous();
  if (j >= a.out.cols) return;
  load_each(a.x, row, j, x);
  store_each(a.out, blockIdx.x, j, x);
}

void tri_cuda_gather_rows(cudaStream_t stream, const tri_gather_rows_args *a, void *) {
  bool fours = in_fours(a->x) && in_fours(a->out);
  launch_rows(stream, fours, a->out, *a, gather_rows_kernel<1>, gather_rows_kernel<4>);
}

/* Averages the rows of a sequence. x [T, n], start [S + 1], of the batch, out [S, n]. Grid (S, n / (256 EACH)), 256
 * threads. */
template <int EACH> __global__ __launch_bounds__(THREADS) static void mean_rows_kernel(tri_mean_rows_args a) {
  int j = first_element<EACH>();
  float sum[EACH] = {}, x[EACH];
  let_next_begin();
  int begin = a.start[blockIdx.x], end = a.start[blockIdx.x + 1];
  wait_for_previous();
  if (j >= a.out.cols) return;
  for (int r = begin; r < end; r++) {
    load_each(a.x, r, j, x);
#pragma unroll
    for (int i = 0; i < EACH; i++) sum[i] += x[i];
  }
#pragma unroll
  for (int i = 0; i < EACH; i++) sum[i] = end > begin ? sum[i] / (end - begin) : 0;
  store_each(a.out, blockIdx.x, j, sum);
}

void tri_cuda_mean_rows(cudaStream_t stream, const tri_mean_rows_args *a, void *) {
  bool fours = in_fours(a->x) && in_fours(a->out);
  launch_rows(stream, fours, a->out, *a, mean_rows_kernel<1>, mean_rows_kernel<4>);
}
