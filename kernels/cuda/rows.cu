/* Ops that work row by row and only move memory. */
#include "kernels/cuda/device.cuh"
#include "kernels/ref/formulas.h"

enum { THREADS = 256 };

__global__ static void embed_kernel(tri_embed_args a) {
  int t = blockIdx.x;
  float *out = row_at(a.out, t);
  uint32_t row = a.ids[t] - a.first_id; /* wraps to something huge below first_id */
  for (int j = threadIdx.x; j < a.out.cols; j += blockDim.x) {
    float v = row < (uint32_t)a.table.n ? a.scale * weight_at(&a.table, row, (size_t)j) : 0;
    if (a.position_table.data)
      v += weight_at(&a.position_table, (size_t)(a.positions[t] + a.position_offset), (size_t)j);
    if (a.type_table.data) v += weight_at(&a.type_table, a.types ? (size_t)a.types[t] : 0, (size_t)j);
    out[j] = v;
  }
}

void tri_cuda_embed(cudaStream_t stream, const tri_embed_args *a, void *workspace) {
  (void)workspace;
  if (a->out.rows) embed_kernel<<<a->out.rows, THREADS, 0, stream>>>(*a);
}

/* A block for each row, which it reads twice more: the second and third time from a cache. */
__global__ static void norm_kernel(tri_norm_args a) {
  __shared__ float room[WARP];
  int t = blockIdx.x, n = a.x.cols;
  float *x = row_at(a.x, t), sum = 0, square = 0, mean = 0;
  for (int j = threadIdx.x; j < n; j += blockDim.x) {
    if (a.delta.data) x[j] += a.delta_scale * row_at(a.delta, t)[j];
    sum += x[j];
  }
  if (!a.out.data) return;
  if (a.kind == TRI_NORM_LAYER) mean = block_sum(sum, room) / n;
  for (int j = threadIdx.x; j < n; j += blockDim.x) square += (x[j] - mean) * (x[j] - mean);
  square = block_sum(square, room);
  float factor = 1 / sqrtf((a.square_sums ? a.square_sums[t] / a.whole_cols : square / n) + a.eps);
  float *out = row_at(a.out, t);
  for (int j = threadIdx.x; j < n; j += blockDim.x) {
    float gain = a.weight ? a.weight[j] + a.weight_offset : 1;
    out[j] = (x[j] - mean) * factor * gain + (a.bias ? a.bias[j] : 0);
  }
}

void tri_cuda_norm(cudaStream_t stream, const tri_norm_args *a, void *workspace) {
  (void)workspace;
  if (a->x.rows) norm_kernel<<<a->x.rows, THREADS, 0, stream>>>(*a);
}

__global__ static void square_sums_kernel(tri_square_sums_args a) {
  __shared__ float room[WARP];
  const float *x = row_at(a.x, blockIdx.x);
  float sum = 0;
  for (int j = threadIdx.x; j < a.x.cols; j += blockDim.x) sum += x[j] * x[j];
  sum = block_sum(sum, room);
  if (!threadIdx.x) a.sums[blockIdx.x] = sum;
}

void tri_cuda_square_sums(cudaStream_t stream, const tri_square_sums_args *a, void *workspace) {
  (void)workspace;
  if (a->x.rows) square_sums_kernel<<<a->x.rows, THREADS, 0, stream>>>(*a);
}

__global__ static void gate_rows_kernel(tri_gate_rows_args a) {
  float *x = row_at(a.x, blockIdx.x), factor = 1 / (1 + expf(-a.gate[blockIdx.x]));
  for (int j = threadIdx.x; j < a.x.cols; j += blockDim.x) x[j] *= factor;
}

void tri_cuda_gate_rows(cudaStream_t stream, const tri_gate_rows_args *a, void *workspace) {
  (void)workspace;
  if (a->x.rows) gate_rows_kernel<<<a->x.rows, THREADS, 0, stream>>>(*a);
}

__global__ static void softcap_kernel(tri_softcap_args a) {
  float *x = row_at(a.x, blockIdx.x);
  for (int j = threadIdx.x; j < a.x.cols; j += blockDim.x) {
    float v = a.scale * x[j];
    x[j] = a.cap > 0 ? a.cap * tanhf(v / a.cap) : v;
  }
}

void tri_cuda_softcap(cudaStream_t stream, const tri_softcap_args *a, void *workspace) {
  (void)workspace;
  if (a->x.rows) softcap_kernel<<<a->x.rows, THREADS, 0, stream>>>(*a);
}

__global__ static void glu_kernel(tri_glu_args a) {
  const float *in = row_at(a.gate_up, blockIdx.x);
  float *out = row_at(a.out, blockIdx.x);
  int f = a.out.cols;
  for (int j = threadIdx.x; j < f; j += blockDim.x) out[j] = (float)tri_formula_glu(a.act, a.limit, in[j], in[f + j]);
}

void tri_cuda_glu(cudaStream_t stream, const tri_glu_args *a, void *workspace) {
  (void)workspace;
  if (a->out.rows) glu_kernel<<<a->out.rows, THREADS, 0, stream>>>(*a);
}

__global__ static void gather_rows_kernel(tri_gather_rows_args a) {
  const float *x = row_at(a.x, a.rows[blockIdx.x]);
  float *out = row_at(a.out, blockIdx.x);
  for (int j = threadIdx.x; j < a.out.cols; j += blockDim.x) out[j] = x[j];
}

void tri_cuda_gather_rows(cudaStream_t stream, const tri_gather_rows_args *a, void *workspace) {
  (void)workspace;
  if (a->out.rows) gather_rows_kernel<<<a->out.rows, THREADS, 0, stream>>>(*a);
}

__global__ static void mean_rows_kernel(tri_mean_rows_args a) {
  int begin = a.start[blockIdx.x], end = a.start[blockIdx.x + 1];
  float *out = row_at(a.out, blockIdx.x);
  for (int j = threadIdx.x; j < a.out.cols; j += blockDim.x) {
    float sum = 0;
    for (int i = begin; i < end; i++) sum += row_at(a.x, i)[j];
    out[j] = end > begin ? sum / (end - begin) : 0;
  }
}

void tri_cuda_mean_rows(cudaStream_t stream, const tri_mean_rows_args *a, void *workspace) {
  (void)workspace;
  if (a->out.rows) mean_rows_kernel<<<a->out.rows, THREADS, 0, stream>>>(*a);
}
