/* Products with weights of any stored type, in float32 on the stored values. Few rows of x: a warp for each output
 * column, which reads its weights once for all of them. More: tiles through shared memory. Both add the same numbers as
 * the reference does in another order; no tensor cores, whose inputs would be rounded. */
#include "kernels/cuda/device.cuh"
#include "kernels/ref/formulas.h"

enum { FEW = 8, COLUMN_WARPS = 8, TILE = 64, DEPTH = 16, TILE_THREADS = 256, INT8_THREADS = 256 };

/* Bias, activation, and the old value of out. */
__device__ static inline void finish(const tri_linear_args &a, int row, int col, float sum) {
  float *out = row_at(a.out, row) + col;
  if (a.w.dtype == TRI_I8) sum *= a.w.scale[col];
  if (a.bias) sum += a.bias[col];
  if (a.act != TRI_ACT_NONE) sum = (float)tri_formula_act(a.act, sum);
  *out = a.accumulate ? *out + sum : sum;
}

__global__ static void columns_kernel(tri_linear_args a, int first) {
  int col = blockIdx.x * COLUMN_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP;
  int rows = min(FEW, a.x.rows - first);
  float sum[FEW] = {0};
  if (col >= a.w.n) return;
  for (int j = lane; j < a.w.k; j += WARP) {
    float w = load_as(a.w.data, a.w.dtype, (size_t)col * (size_t)a.w.k + (size_t)j);
#pragma unroll
    for (int i = 0; i < FEW; i++)
      if (i < rows) sum[i] += w * row_at(a.x, first + i)[j];
  }
#pragma unroll
  for (int i = 0; i < FEW; i++) {
    float all = warp_sum(sum[i]);
    if (!lane && i < rows) finish(a, first + i, col, all);
  }
}

/* TILE x TILE results for a block, 4 x 4 for each thread. */
__global__ static void tiles_kernel(tri_linear_args a) {
  __shared__ float xs[DEPTH][TILE + 4], ws[DEPTH][TILE + 4];
  int row0 = blockIdx.y * TILE, col0 = blockIdx.x * TILE, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  float sum[4][4] = {{0}};
  for (int k0 = 0; k0 < a.w.k; k0 += DEPTH) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += TILE_THREADS) {
      int r = i / DEPTH, k = k0 + i % DEPTH;
      bool in = k < a.w.k;
      xs[i % DEPTH][r] = in && row0 + r < a.x.rows ? row_at(a.x, row0 + r)[k] : 0;
      ws[i % DEPTH][r] =
          in && col0 + r < a.w.n ? load_as(a.w.data, a.w.dtype, (size_t)(col0 + r) * (size_t)a.w.k + (size_t)k) : 0;
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < DEPTH; k++) {
      float x[4], w[4];
#pragma unroll
      for (int i = 0; i < 4; i++) x[i] = xs[k][ty * 4 + i], w[i] = ws[k][tx * 4 + i];
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) sum[i][j] += x[i] * w[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      if (row0 + ty * 4 + i < a.x.rows && col0 + tx * 4 + j < a.w.n)
        finish(a, row0 + ty * 4 + i, col0 + tx * 4 + j, sum[i][j]);
}

/* ---- int8 activations ---- */

/* A row of x as integers, as kernels/quantize.h has it; scale NaN where an element is not finite. */
__global__ static void quantize_kernel(tri_mat x, int8_t *out, float *scales) {
  __shared__ float room[WARP];
  const float *row = row_at(x, blockIdx.x);
  float max = 0, odd = 0;
  for (int j = threadIdx.x; j < x.cols; j += blockDim.x) {
    max = fmaxf(max, fabsf(row[j]));
    if (!isfinite(row[j])) odd = 1;
  }
  max = block_max(max, room), odd = block_max(odd, room);
  float factor = max > 1e-30f ? 127 / max : 0;
  for (int j = threadIdx.x; j < x.cols; j += blockDim.x)
    out[(size_t)blockIdx.x * (size_t)x.cols + (size_t)j] = odd ? 0 : (int8_t)lrintf(row[j] * factor);
  if (!threadIdx.x) scales[blockIdx.x] = odd ? NAN : max > 1e-30f ? max / 127 : 0;
}

__global__ static void int8_kernel(tri_linear_args a, const int8_t *x, const float *scales) {
  int col = blockIdx.x * COLUMN_WARPS + threadIdx.x / WARP, lane = threadIdx.x % WARP, row = blockIdx.y, sum = 0;
  if (col >= a.w.n) return;
  const int8_t *w = (const int8_t *)a.w.data + (size_t)col * (size_t)a.w.k;
  x += (size_t)row * (size_t)a.w.k;
  for (int j = lane; j < a.w.k; j += WARP) sum += (int)x[j] * (int)w[j];
  for (int o = WARP / 2; o; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
  if (!lane) finish(a, row, col, (float)sum * scales[row]);
}

static size_t int8_bytes(const tri_linear_args *a) { return ((size_t)a->x.rows * (size_t)a->w.k + 255) & ~(size_t)255; }

size_t tri_cuda_linear_workspace(const tri_linear_args *a) {
  return a->int8_activations ? int8_bytes(a) + (size_t)a->x.rows * sizeof(float) : 0;
}

void tri_cuda_linear(cudaStream_t stream, const tri_linear_args *a, void *workspace) {
  int m = a->x.rows, n = a->w.n;
  unsigned columns = blocks_for((size_t)n, COLUMN_WARPS);
  if (!m || !n) return;
  if (a->int8_activations) {
    int8_t *x = (int8_t *)workspace;
    float *scales = (float *)(x + int8_bytes(a));
    quantize_kernel<<<m, INT8_THREADS, 0, stream>>>(a->x, x, scales);
    int8_kernel<<<dim3(columns, m), COLUMN_WARPS * WARP, 0, stream>>>(*a, x, scales);
  } else if (m <= 2 * FEW) {
    for (int i = 0; i < m; i += FEW) columns_kernel<<<columns, COLUMN_WARPS * WARP, 0, stream>>>(*a, i);
  } else {
    dim3 grid(blocks_for((size_t)n, TILE), blocks_for((size_t)m, TILE));
    tiles_kernel<<<grid, TILE_THREADS, 0, stream>>>(*a);
  }
}

/* A warp for each output of each head. */
__global__ static void head_linear_kernel(tri_head_linear_args a) {
  int n = a.w.n / a.num_heads, t = blockIdx.y, lane = threadIdx.x % WARP;
  int row = blockIdx.x * COLUMN_WARPS + threadIdx.x / WARP;
  if (row >= a.w.n) return;
  const float *x = row_at(a.x, t) + (size_t)(row / n) * (size_t)a.x_stride;
  float sum = 0;
  for (int i = lane; i < a.w.k; i += WARP) sum += x[i] * weight_at(&a.w, (size_t)row, (size_t)i);
  sum = warp_sum(sum);
  if (!lane) row_at(a.out, t)[(size_t)(row / n) * (size_t)a.out_stride + (size_t)(row % n)] = sum;
}

void tri_cuda_head_linear(cudaStream_t stream, const tri_head_linear_args *a, void *workspace) {
  (void)workspace;
  if (!a->x.rows || !a->w.n) return;
  dim3 grid(blocks_for((size_t)a->w.n, COLUMN_WARPS), a->x.rows);
  head_linear_kernel<<<grid, COLUMN_WARPS * WARP, 0, stream>>>(*a);
}
