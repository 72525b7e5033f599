/* Residual and norm in one pass: a block has a row, whose elements stay in its threads' registers between the sum and
 * the result, so that each is read and written once. */
#include "kernels/cuda/device.cuh"

/* What is normed: x + delta_scale * delta, which goes back to x. */
__device__ static inline float4 residual(const tri_norm_args &a, float *x, const float *delta, int j) {
  float4 v = load4(x + j);
  if (!delta) return v;
  float4 d = load4(delta + j);
  v.x += a.delta_scale * d.x, v.y += a.delta_scale * d.y, v.z += a.delta_scale * d.z, v.w += a.delta_scale * d.w;
  store4(x + j, v);
  return v;
}

__device__ static inline float4 gains_of(const tri_norm_args &a, int j) {
  if (!a.weight) return make_float4(1, 1, 1, 1);
  float4 w = load4(a.weight + j);
  return make_float4(w.x + a.weight_offset, w.y + a.weight_offset, w.z + a.weight_offset, w.w + a.weight_offset);
}

/* FOURS: quadruples of elements that a thread has. */
template <typename T, int THREADS, int FOURS>
__global__ __launch_bounds__(THREADS) static void norm_kernel(tri_norm_args a) {
  __shared__ float room[WARP];
  let_next_begin();
  wait_for_previous();
  int t = blockIdx.x, n = a.x.cols;
  float *x = row_at(a.x, t), sum = 0, square = 0, mean = 0;
  const float *delta = a.delta.data ? row_at(a.delta, t) : NULL;
  float4 v[FOURS];
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    int j = 4 * ((int)threadIdx.x + i * THREADS);
    v[i] = j < n ? residual(a, x, delta, j) : make_float4(0, 0, 0, 0);
    sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
  }
  if (a.kind == TRI_NORM_LAYER) mean = block_sum(sum, room) / n;
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    if (4 * ((int)threadIdx.x + i * THREADS) >= n) continue;
    v[i].x -= mean, v[i].y -= mean, v[i].z -= mean, v[i].w -= mean;
    square += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
  }
  square = block_sum(square, room);
  float factor = 1 / sqrtf((a.square_sums ? a.square_sums[t] / a.whole_cols : square / n) + a.eps);
  T *out = row_of<T>(a.out, t);
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    int j = 4 * ((int)threadIdx.x + i * THREADS);
    if (j >= n) continue;
    float4 w = gains_of(a, j), b = a.bias ? load4(a.bias + j) : make_float4(0, 0, 0, 0);
    float4 y = make_float4(v[i].x * factor * w.x + b.x, v[i].y * factor * w.y + b.y, v[i].z * factor * w.z + b.z,
                           v[i].w * factor * w.w + b.w);
    store4(out + j, y);
    if (a.copy.data) store4_at(a.copy, t, j, y);
  }
}

/* Rows of any length and alignment, read again where they are needed again; without out only the sum. */
enum { ANY_THREADS = 512 };
__global__ static void any_norm_kernel(tri_norm_args a) {
  __shared__ float room[WARP];
  int t = blockIdx.x, n = a.x.cols;
  float *x = row_at(a.x, t), sum = 0, square = 0, mean = 0;
  for (int j = threadIdx.x; j < n; j += ANY_THREADS) {
    float v = x[j];
    if (a.delta.data) x[j] = v += a.delta_scale * row_at(a.delta, t)[j];
    sum += v;
  }
  if (!a.out.data) return;
  if (a.kind == TRI_NORM_LAYER) mean = block_sum(sum, room) / n;
  for (int j = threadIdx.x; j < n; j += ANY_THREADS) square += (x[j] - mean) * (x[j] - mean);
  square = block_sum(square, room);
  float factor = 1 / sqrtf((a.square_sums ? a.square_sums[t] / a.whole_cols : square / n) + a.eps);
  for (int j = threadIdx.x; j < n; j += ANY_THREADS) {
    float gain = a.weight ? a.weight[j] + a.weight_offset : 1, y = (x[j] - mean) * factor * gain;
    if (a.bias) y += a.bias[j];
    store_at(a.out, t, (size_t)j, y);
    if (a.copy.data) store_at(a.copy, t, (size_t)j, y);
  }
}

/* One row wants many threads, for its latency; many rows want many elements in each, for their number. */
template <typename T> static bool norm_by_four(cudaStream_t stream, const tri_norm_args &a) {
  enum { FEW_ROWS = 64, WIDE = 1024, NARROW = 256 };
  int n = a.x.cols, rows = a.x.rows;
  if (n <= 4 * NARROW)
    launch_overlapped(norm_kernel<T, NARROW, 1>, dim3(rows), NARROW, 0, stream, a);
  else if (rows <= FEW_ROWS && n <= 4 * WIDE)
    launch_overlapped(norm_kernel<T, WIDE, 1>, dim3(rows), WIDE, 0, stream, a);
  else if (rows <= FEW_ROWS && n <= 16 * WIDE)
    launch_overlapped(norm_kernel<T, WIDE, 4>, dim3(rows), WIDE, 0, stream, a);
  else if (n <= 8 * NARROW)
    launch_overlapped(norm_kernel<T, NARROW, 2>, dim3(rows), NARROW, 0, stream, a);
  else if (n <= 16 * NARROW)
    launch_overlapped(norm_kernel<T, NARROW, 4>, dim3(rows), NARROW, 0, stream, a);
  else if (n <= 32 * NARROW)
    launch_overlapped(norm_kernel<T, NARROW, 8>, dim3(rows), NARROW, 0, stream, a);
  else
    return false;
  return true;
}

static bool is_aligned(const float *p) { return (uintptr_t)p % 16 == 0; }

void tri_cuda_norm(cudaStream_t stream, const tri_norm_args *a, void *workspace) {
  (void)workspace;
  bool fours = a->out.data && in_fours(a->x) && in_fours(a->out) && (!a->delta.data || in_fours(a->delta)) &&
               (!a->copy.data || in_fours(a->copy)) && is_aligned(a->weight) && is_aligned(a->bias),
       done = false;
  if (!a->x.rows) return;
  if (fours)
    done = a->out.dtype == TRI_BF16  ? norm_by_four<__nv_bfloat16>(stream, *a)
           : a->out.dtype == TRI_F16 ? norm_by_four<__half>(stream, *a)
                                     : norm_by_four<float>(stream, *a);
  if (!done) any_norm_kernel<<<a->x.rows, ANY_THREADS, 0, stream>>>(*a);
}
