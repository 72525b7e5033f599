/* Routing and experts, written to be right first. */
#include "kernels/cuda/device.cuh"
#include "kernels/ref/moe_route.h"

enum { THREADS = 128, WARPS = THREADS / WARP };

size_t tri_cuda_moe_route_workspace(const tri_moe_route_args *a) {
  return (size_t)a->logits.rows * (2 * (size_t)a->logits.cols + (size_t)a->num_groups) * sizeof(double);
}

/* Routes a token with one thread: the reference's text, in double. logits [T, experts] to ids and weights [T, top_k];
 * scratch [T, 2 * experts + groups]. Grid T / 128, 128 threads. */
__global__ static void route_kernel(tri_moe_route_args a, double *scratch) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  size_t each = 2 * (size_t)a.logits.cols + (size_t)a.num_groups;
  if (t < a.logits.rows) tri_moe_route_row(&a, t, scratch + (size_t)t * each);
}

void tri_cuda_moe_route(cudaStream_t stream, const tri_moe_route_args *a, void *workspace) {
  if (a->logits.rows)
    route_kernel<<<blocks_for((size_t)a->logits.rows, THREADS), THREADS, 0, stream>>>(*a, (double *)workspace);
}

/* The activated hidden units of each choice of each token. */
static tri_mat hidden_of(const tri_moe_experts_args *a, void *workspace) {
  return {(float *)workspace, a->x.rows * a->top_k, a->down.k, a->down.k};
}
static size_t hidden_bytes(const tri_moe_experts_args *a) {
  return ((size_t)a->x.rows * (size_t)a->top_k * (size_t)a->down.k * sizeof(float) + 255) & ~(size_t)255;
}

size_t tri_cuda_moe_experts_workspace(const tri_moe_experts_args *a) {
  if (!a->int8_activations) return hidden_bytes(a);
  return hidden_bytes(a) + tri_cuda_rounded_bytes(a->x.rows, a->x.cols) +
         tri_cuda_rounded_bytes(a->x.rows * a->top_k, a->down.k);
}

/* Rows that weights are multiplied with: floats, or, where q is given, integers. */
typedef struct factors {
  tri_mat x;
  tri_cuda_rounded rounded;
} factors;

__device__ static float dot(const factors &f, size_t i, const tri_weight *w, size_t row) {
  size_t k = (size_t)w->k;
  if (f.rounded.q) {
    int sum = int8_dot(f.rounded.q + i * k, (const int8_t *)w->data + row * k, w->k);
    return (float)sum * f.rounded.scales[i] * w->scale[row];
  }
  const float *x = f.x.data + i * (size_t)f.x.ld;
  float sum = 0;
  for (int j = threadIdx.x % WARP; j < w->k; j += WARP) sum += x[j] * weight_at(w, row, (size_t)j);
  return warp_sum(sum);
}

/* Makes the hidden units of each choice of each token, a warp for each. x [T, h], up [experts, f or 2 f, h], hidden [T
 * * top_k, f]. Grid (T * top_k, f / 4): the second number ends at 65,535. 128 threads. */
__global__ static void up_kernel(tri_moe_experts_args a, factors x, float *hidden) {
  size_t choice = blockIdx.x, f = (size_t)a.down.k, up_n = a.gated ? 2 * f : f, t = choice / (size_t)a.top_k;
  size_t unit = (size_t)blockIdx.y * WARPS + threadIdx.x / WARP;
  int expert = a.experts[choice] - a.first_expert;
  if (unit >= f || expert < 0 || expert >= a.num_experts) return;
  size_t row = (size_t)expert * up_n + unit;
  float gate = dot(x, t, &a.up, row) + (a.up_bias ? a.up_bias[row] : 0), up = 0;
  if (a.gated) up = dot(x, t, &a.up, row + f) + (a.up_bias ? a.up_bias[row + f] : 0);
  float y = (float)(a.gated ? tri_formula_glu(a.act, a.glu_limit, gate, up) : tri_formula_act(a.act, gate));
  if (threadIdx.x % WARP == 0) hidden[choice * f + unit] = y;
}

/* Adds a token's choices in their order, a warp for each element of out. hidden [T * top_k, f], down [experts, h, f],
 * out [T, h]. Grid (T, h / 4), 128 threads. */
__global__ static void down_kernel(tri_moe_experts_args a, factors hidden) {
  size_t h = (size_t)a.x.cols, t = blockIdx.x, i = (size_t)blockIdx.y * WARPS + threadIdx.x / WARP;
  if (i >= h) return;
  float *out = row_at(a.out, (int)t) + i, sum = a.accumulate ? *out : 0;
  for (int c = 0; c < a.top_k; c++) {
    size_t choice = t * (size_t)a.top_k + (size_t)c;
    int expert = a.experts[choice] - a.first_expert;
    if (expert < 0 || expert >= a.num_experts) continue;
    size_t row = (size_t)expert * h + i;
    sum += a.weights[choice] * (dot(hidden, choice, &a.down, row) + (a.down_bias ? a.down_bias[row] : 0));
  }
  if (threadIdx.x % WARP == 0) *out = sum;
}

void tri_cuda_moe_experts(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace) {
  factors x = {a->x, {NULL, NULL}}, hidden = {hidden_of(a, workspace), {NULL, NULL}};
  char *rounded = (char *)workspace + hidden_bytes(a);
  if (!a->x.rows || !a->x.cols) return;
  if (a->int8_activations) x.rounded = tri_cuda_round(stream, a->x, rounded);
  if (a->down.k)
    up_kernel<<<dim3(a->x.rows * a->top_k, blocks_for((size_t)a->down.k, WARPS)), THREADS, 0, stream>>>(*a, x,
                                                                                                        hidden.x.data);
  /* The rows of other ranks' choices hold anything; nobody reads them. */
  if (a->int8_activations)
    hidden.rounded = tri_cuda_round(stream, hidden.x, rounded + tri_cuda_rounded_bytes(a->x.rows, a->x.cols));
  down_kernel<<<dim3(a->x.rows, blocks_for((size_t)a->x.cols, WARPS)), THREADS, 0, stream>>>(*a, hidden);
}
