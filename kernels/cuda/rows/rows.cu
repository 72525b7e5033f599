/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that work row by row and only move memory. glu, which moves the most bytes, has three forms, which differ in how
 * many of them a thread has under way. */
#include "kernels/cuda/device/fast_math.cuh"
#include "kernels/cuda/linear/gemm_few_rows.cuh"
#include "kernels/cuda/device/mma.cuh"

enum { THREADS = 256 };

/* Adds up a token's embeddings. ids [T], tables [n, h], out [T, h]. Grid T, 256 threads. */
__global__ static void embed_kernel(tri_embed_args a) {
  int t = blockIdx.x;
  float *out = row_at(a.out, t);
  uint32_t id = a.ids[t];
  if (id & TRI_SAMPLED_ID && a.sampled) id = a.sampled[id & ~TRI_SAMPLED_ID];
  uint32_t row = id - a.first_id; /* wraps to something huge below first_id */
  for (int j = threadIdx.x; j < a.out.cols; j += blockDim.x) {
    float v = row < (uint32_t)a.table.n ? a.scale * weight_at(&a.table, row, (size_t)j) : 0;
    if (a.position_table.data)
      v += weight_at(&a.position_table, (size_t)(a.positions[t] + a.position_offset), (size_t)j);
    if (a.type_table.data) v += weight_at(&a.type_table, a.types ? (size_t)a.types[t] : 0, (size_t)j);
    out[j] = v;
  }
}

void tri_cuda_embed(cudaStream_t stream, const tri_embed_args *a, void *) {
  if (a->out.rows) embed_kernel<<<a->out.rows, THREADS, 0, stream>>>(*a);
}

/* Sums the squares of a row. x [T, n]. Grid T, 256 threads. Shared memory: 32 floats. */
__global__ static void square_sums_kernel(tri_square_sums_args a) {
  __shared__ float room[WARP];
  const float *x = row_at(a.x, blockIdx.x);
  float sum = 0;
  for (int j = threadIdx.x; j < a.x.cols; j += blockDim.x) sum += x[j] * x[j];
  sum = block_sum(sum, room);
  if (!threadIdx.x) a.sums[blockIdx.x] = sum;
}

void tri_cuda_square_sums(cudaStream_t stream, const tri_square_sums_args *a, void *) {
  if (a->x.rows) square_sums_kernel<<<a->x.rows, THREADS, 0, stream>>>(*a);
}

/* Multiplies a row with its gate's sigmoid. x [T, n], gate [T]. Grid T, 256 threads. */
__global__ static void gate_rows_kernel(tri_gate_rows_args a) {
  let_next_begin();
  wait_for_previous();
  float factor = 1 / (1 + expf(-a.gate[blockIdx.x]));
  for (int j = threadIdx.x; j < a.x.cols; j += blockDim.x)
    store_at(a.x, blockIdx.x, (size_t)j, load_at(a.x, blockIdx.x, (size_t)j) * factor);
}

void tri_cuda_gate_rows(cudaStream_t stream, const tri_gate_rows_args *a, void *) {
  if (a->x.rows) launch_overlapped(gate_rows_kernel, dim3(a->x.rows), THREADS, 0, stream, *a);
}

/* Scales and caps a row. x [T, n]. Grid T, 256 threads. */
__global__ static void softcap_kernel(tri_softcap_args a) {
  float *x = row_at(a.x, blockIdx.x);
  for (int j = threadIdx.x; j < a.x.cols; j += blockDim.x) {
    float v = a.scale * x[j];
    x[j] = a.cap > 0 ? a.cap * tanhf(v / a.cap) : v;
  }
}

void tri_cuda_softcap(cudaStream_t stream, const tri_softcap_args *a, void *) {
  if (a->x.rows) softcap_kernel<<<a->x.rows, THREADS, 0, stream>>>(*a);
}

/* Multiplies activated gates with their ups. gate_up [T, 2 f] to out [T, f]. Grid (T, f / 1024), 256 threads, which
 * continue in steps of the grid. */
__global__ static void glu_kernel(tri_glu_args a) {
  int f = a.out.cols, t = blockIdx.x;
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
    glu_kernel<<<grid, THREADS, 0, stream>>>(*a);
  else if (a->out.dtype == TRI_BF16)
    launch_overlapped(glu_kernel_by_four<__nv_bfloat16>, grid, THREADS, 0, stream, *a);
  else if (a->out.dtype == TRI_F16)
    launch_overlapped(glu_kernel_by_four<__half>, grid, THREADS, 0, stream, *a);
  else
    launch_overlapped(glu_kernel_by_four<float>, grid, THREADS, 0, stream, *a);
}

/* Copies chosen rows. x [T, n], rows [M], out [M, n]. Grid M, 256 threads. */
__global__ static void gather_rows_kernel(tri_gather_rows_args a) {
  const float *x = row_at(a.x, a.rows[blockIdx.x]);
  float *out = row_at(a.out, blockIdx.x);
  for (int j = threadIdx.x; j < a.out.cols; j += blockDim.x) out[j] = x[j];
}

void tri_cuda_gather_rows(cudaStream_t stream, const tri_gather_rows_args *a, void *) {
  if (a->out.rows) gather_rows_kernel<<<a->out.rows, THREADS, 0, stream>>>(*a);
}

/* Averages the rows of a sequence. x [T, n], start [S + 1], out [S, n]. Grid S, 256 threads. */
__global__ static void mean_rows_kernel(tri_mean_rows_args a) {
  int begin = a.start[blockIdx.x], end = a.start[blockIdx.x + 1];
  float *out = row_at(a.out, blockIdx.x);
  for (int j = threadIdx.x; j < a.out.cols; j += blockDim.x) {
    float sum = 0;
    for (int i = begin; i < end; i++) sum += row_at(a.x, i)[j];
    out[j] = end > begin ? sum / (end - begin) : 0;
  }
}

void tri_cuda_mean_rows(cudaStream_t stream, const tri_mean_rows_args *a, void *) {
  if (a->out.rows) mean_rows_kernel<<<a->out.rows, THREADS, 0, stream>>>(*a);
}
