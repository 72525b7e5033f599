/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of what branches have given, their sum, its addition to the stream and the norm that several readers share, in
 * one pass: as ops of their own they are up to eight short kernels of a layer, which few rows wait for one by one. */
#include "kernels/cuda/rows/row_parts.cuh"

/* ---- gains ---- */

/* Part of a vector of weights, which no kernel writes; beyond its end what is read is not used. */
template <int FOURS>
__device__ static inline void load_gains(part<FOURS> &p, const float *weight, float offset, int first, int threads,
                                         int n) {
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    float4 w =
        weight ? __ldg((const float4 *)(weight + min(4 * (first + i * threads), n - 4))) : make_float4(1, 1, 1, 1);
    float plus = weight ? offset : 0;
    p.v[i] = make_float4(w.x + plus, w.y + plus, w.z + plus, w.w + plus);
  }
}

template <int FOURS> __device__ static inline void scale_part(part<FOURS> &x, float factor, const part<FOURS> &gains) {
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    float4 &v = x.v[i], g = gains.v[i];
    v = make_float4(v.x * factor * g.x, v.y * factor * g.y, v.z * factor * g.z, v.w * factor * g.w);
  }
}

/* x = scale * (x + share * d), which goes back to memory. */
template <int FOURS>
__device__ static inline void add_scaled(part<FOURS> &x, const part<FOURS> &d, float share, float scale, float *row,
                                         int first, int threads, int n) {
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    int j = 4 * (first + i * threads);
    float4 &v = x.v[i], b = d.v[i];
    v = make_float4(scale * (v.x + share * b.x), scale * (v.y + share * b.y), scale * (v.z + share * b.z),
                    scale * (v.w + share * b.w));
    if (j < n) store4(row + j, v);
  }
}

template <int FOURS> __device__ static inline void add_part(part<FOURS> &x, const part<FOURS> &y) {
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    float4 &v = x.v[i], b = y.v[i];
    v = make_float4(v.x + b.x, v.y + b.y, v.z + b.z, v.w + b.w);
  }
}

__device__ static inline float rms_factor(float square, int n, float eps) { return 1 / sqrtf(square / n + eps); }

/* ---- a block has a row ---- */

/* Zeros lie beyond the row's end. */
template <int FOURS> __device__ static inline float squares_of(const part<FOURS> &p) {
  float square = 0;
#pragma unroll
  for (int i = 0; i < FOURS; i++) {
    float4 v = p.v[i];
    square += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w);
  }
  return square;
}

/* Norms one row with one block. x, delta, second and outputs [T, n] with n up to 4 * FOURS * THREADS, outputs of type
 * T, delta and second of type D. EARLY: all gains come before the wait, and need registers until they are used; else
 * the second-level cache has them. Grid T, THREADS threads. Shared memory: 128 floats. */
template <typename T, typename D, int THREADS, int FOURS, bool EARLY>
__global__ __launch_bounds__(THREADS) static void branch_norm_kernel(tri_branch_norm_args a) {
  enum { DELTA, SECOND, SUM, OUTPUT, GAINS = OUTPUT + TRI_BRANCH_NORM_OUTPUTS };
  __shared__ __align__(16) float sums[4][WARP];
  const float *weights[GAINS] = {a.delta_weight, a.second_weight, a.sum_weight, a.weight[0], a.weight[1], a.weight[2]};
  int t = blockIdx.x, n = a.x.cols, first = (int)threadIdx.x;
  part<FOURS> x, d, s, gains[EARLY ? GAINS : 1];
  let_next_begin();
#pragma unroll
  for (int g = 0; g < GAINS; g++) {
    if (EARLY) load_gains(gains[g], weights[g], a.weight_offset, first, THREADS, n);
    if (!EARLY && weights[g] && 32 * first < n) prefetch_line(weights[g] + 32 * first);
  }
  auto gain = [&](int g) -> const part<FOURS> & {
    if (!EARLY) load_gains(gains[0], weights[g], a.weight_offset, first, THREADS, n);
    return gains[EARLY ? g : 0];
  };
  if (32 * first < n) prefetch_line(row_at(a.x, t) + 32 * first); /* weights have gone through the cache since */
  wait_for_previous();
  load_part(x, row_at(a.x, t), first, THREADS, n);
  if (a.delta.data) load_part(d, row_of<D>(a.delta, t), first, THREADS, n);
  if (a.second.data) load_part(s, row_of<D>(a.second, t), first, THREADS, n);
  if (a.delta.data) {
    if (a.delta_weight)
      scale_part(d, rms_factor(sum_over_block<THREADS>(squares_of(d), sums[0]), n, a.eps), gain(DELTA));
    if (a.second_weight)
      scale_part(s, rms_factor(sum_over_block<THREADS>(squares_of(s), sums[1]), n, a.eps), gain(SECOND));
    if (a.second.data) add_part(d, s);
    if (a.sum_weight) scale_part(d, rms_factor(sum_over_block<THREADS>(squares_of(d), sums[2]), n, a.eps), gain(SUM));
    add_scaled(x, d, a.delta_scale, a.x_scale, row_at(a.x, t), first, THREADS, n);
  } else if (a.x_scale != 1) {
    add_scaled(x, x, 0, a.x_scale, row_at(a.x, t), first, THREADS, n);
  }
  if (!a.out[0].data) return;
  float factor = rms_factor(sum_over_block<THREADS>(squares_of(x), sums[3]), n, a.eps);
#pragma unroll
  for (int o = 0; o < TRI_BRANCH_NORM_OUTPUTS; o++) {
    if (!a.out[o].data) return;
    part<FOURS> y = x;
    scale_part(y, factor * a.scale[o], gain(OUTPUT + o));
#pragma unroll
    for (int i = 0; i < FOURS; i++) {
      int j = 4 * (first + i * THREADS);
      if (j < n) store4(row_of<T>(a.out[o], t) + j, y.v[i]);
    }
  }
}

/* ---- rows of any kind ---- */

enum { ANY_THREADS = 512 };

__device__ static inline float gain_at(const tri_branch_norm_args &a, const float *weight, int j) {
  return weight ? weight[j] + a.weight_offset : 1;
}

/* Returns what is added to column j, but for the norm of the sum. */
__device__ static inline float sum_at(const tri_branch_norm_args &a, int t, int j, float delta, float second) {
  float d = load_at(a.delta, t, (size_t)j) * delta * gain_at(a, a.delta_weight, j);
  if (a.second.data) d += load_at(a.second, t, (size_t)j) * second * gain_at(a, a.second_weight, j);
  return d;
}

/* A row of any length, alignment and type, read again where it is needed again. Shapes as above. Grid T, 512 threads.
 * Shared memory: 32 floats. */
__global__ static void any_branch_norm_kernel(tri_branch_norm_args a) {
  __shared__ float room[WARP];
  int t = blockIdx.x, n = a.x.cols;
  float *x = row_at(a.x, t), square = 0, delta = 1, second = 1, sum = 1;
  auto factor_of = [&](const tri_mat &m) {
    float s = 0;
    for (int j = threadIdx.x; j < n; j += ANY_THREADS) s += load_at(m, t, (size_t)j) * load_at(m, t, (size_t)j);
    return rms_factor(block_sum(s, room), n, a.eps);
  };
  let_next_begin();
  wait_for_previous();
  if (a.delta.data && a.delta_weight) delta = factor_of(a.delta);
  if (a.second.data && a.second_weight) second = factor_of(a.second);
  if (a.delta.data && a.sum_weight) {
    float s = 0;
    for (int j = threadIdx.x; j < n; j += ANY_THREADS)
      s += sum_at(a, t, j, delta, second) * sum_at(a, t, j, delta, second);
    sum = rms_factor(block_sum(s, room), n, a.eps);
  }
  for (int j = threadIdx.x; j < n; j += ANY_THREADS) {
    float d = a.delta.data ? sum_at(a, t, j, delta, second) * sum * gain_at(a, a.sum_weight, j) : 0;
    float v = a.x_scale * (x[j] + a.delta_scale * d);
    x[j] = v;
    square += v * v;
  }
  if (!a.out[0].data) return;
  float factor = rms_factor(block_sum(square, room), n, a.eps);
  for (int j = threadIdx.x; j < n; j += ANY_THREADS) {
    float v = x[j] * factor;
    for (int o = 0; o < TRI_BRANCH_NORM_OUTPUTS && a.out[o].data; o++)
      store_at(a.out[o], t, (size_t)j, v * gain_at(a, a.weight[o], j) * a.scale[o]);
  }
}

/* ---- which one ---- */

template <typename T, typename D, int THREADS, int FOURS, bool EARLY>
static void by_block(cudaStream_t stream, const tri_branch_norm_args &a) {
  launch_overlapped(branch_norm_kernel<T, D, THREADS, FOURS, EARLY>, dim3(a.x.rows), THREADS, 0, stream, a);
}

/* A few rows want many threads, for their latency; many rows want many elements in each, for their number. */
template <typename T, typename D> static void norm_of_types(cudaStream_t stream, const tri_branch_norm_args &a) {
  enum { FEW_ROWS = 128 };
  bool few = a.x.rows <= FEW_ROWS;
  if (a.x.cols <= 1024)
    by_block<T, D, 256, 1, true>(stream, a);
  else if (few && a.x.cols <= 4096)
    by_block<T, D, 512, 2, true>(stream, a);
  else if (a.x.cols <= 4096)
    by_block<T, D, 256, 4, false>(stream, a);
  else if (a.x.cols <= 8192)
    by_block<T, D, 512, 4, false>(stream, a);
  else
    by_block<T, D, 1024, 4, false>(stream, a);
}

template <typename D> static bool norm_of_delta(cudaStream_t stream, const tri_branch_norm_args &a) {
  switch (a.out[0].data ? a.out[0].dtype : TRI_F32) {
  case TRI_BF16: norm_of_types<__nv_bfloat16, D>(stream, a); return true;
  case TRI_F16: norm_of_types<__half, D>(stream, a); return true;
  default: norm_of_types<float, D>(stream, a); return true;
  }
}

static bool in_fours_or_none(const tri_mat &m) { return !m.data || in_fours(m); }

/* Returns whether all outputs are of one type, what is added is of another, and all lies as four elements are read. */
static bool is_regular(const tri_branch_norm_args &a) {
  bool same = !a.second.data || a.second.dtype == a.delta.dtype;
  bool fours = in_fours(a.x) && in_fours_or_none(a.delta) && in_fours_or_none(a.second) && is_aligned(a.delta_weight) &&
               is_aligned(a.second_weight) && is_aligned(a.sum_weight);
  for (int i = 0; i < TRI_BRANCH_NORM_OUTPUTS; i++) {
    fours = fours && in_fours_or_none(a.out[i]) && is_aligned(a.weight[i]);
    same = same && (!a.out[i].data || a.out[i].dtype == a.out[0].dtype);
  }
  return same && fours && a.x.cols >= 4 && a.x.cols <= 16384;
}

static bool norm_by_four(cudaStream_t stream, const tri_branch_norm_args &a) {
  if (!is_regular(a)) return false;
  switch (a.delta.data ? a.delta.dtype : TRI_F32) {
  case TRI_BF16: return norm_of_delta<__nv_bfloat16>(stream, a);
  case TRI_F32: return norm_of_delta<float>(stream, a);
  default: return false;
  }
}

void tri_cuda_branch_norm(cudaStream_t stream, const tri_branch_norm_args *a, void *) {
  if (!a->x.rows || !a->x.cols) return;
  if (!norm_by_four(stream, *a)) launch_overlapped(any_branch_norm_kernel, dim3(a->x.rows), ANY_THREADS, 0, stream, *a);
}
