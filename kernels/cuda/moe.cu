/* Routing and experts, written to be right first. */
#include "kernels/cuda/device.cuh"
#include "kernels/ref/moe_route.h"

enum { THREADS = 128, WARPS = THREADS / WARP };

size_t tri_cuda_moe_route_workspace(const tri_moe_route_args *a) {
  return (size_t)a->logits.rows * (2 * (size_t)a->logits.cols + (size_t)a->num_groups) * sizeof(double);
}

/* A thread for each token: the reference's text, in double. */
__global__ static void route_kernel(tri_moe_route_args a, double *scratch) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  size_t each = 2 * (size_t)a.logits.cols + (size_t)a.num_groups;
  if (t < a.logits.rows) tri_moe_route_row(&a, t, scratch + (size_t)t * each);
}

void tri_cuda_moe_route(cudaStream_t stream, const tri_moe_route_args *a, void *workspace) {
  if (a->logits.rows)
    route_kernel<<<blocks_for((size_t)a->logits.rows, THREADS), THREADS, 0, stream>>>(*a, (double *)workspace);
}

/* Of each choice of each token: the activated hidden units. */
size_t tri_cuda_moe_experts_workspace(const tri_moe_experts_args *a) {
  return (size_t)a->x.rows * (size_t)a->top_k * (size_t)a->down.k * sizeof(float);
}

__device__ static float dot(const float *x, const tri_weight *w, size_t row) {
  float sum = 0;
  for (int j = threadIdx.x % WARP; j < w->k; j += WARP) sum += x[j] * weight_at(w, row, (size_t)j);
  return warp_sum(sum);
}

/* A warp for each hidden unit of a choice. */
__global__ static void up_kernel(tri_moe_experts_args a, float *hidden) {
  size_t choice = blockIdx.y, f = (size_t)a.down.k, up_n = a.gated ? 2 * f : f;
  size_t unit = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
  int expert = a.experts[choice] - a.first_expert;
  if (unit >= f || expert < 0 || expert >= a.num_experts) return;
  const float *x = row_at(a.x, (int)(choice / (size_t)a.top_k));
  size_t row = (size_t)expert * up_n + unit;
  float gate = dot(x, &a.up, row) + (a.up_bias ? a.up_bias[row] : 0), up = 0;
  if (a.gated) up = dot(x, &a.up, row + f) + (a.up_bias ? a.up_bias[row + f] : 0);
  float y = (float)(a.gated ? tri_formula_glu(a.act, a.glu_limit, gate, up) : tri_formula_act(a.act, gate));
  if (threadIdx.x % WARP == 0) hidden[choice * f + unit] = y;
}

/* A warp for each element of out, which adds its token's choices in their order. */
__global__ static void down_kernel(tri_moe_experts_args a, const float *hidden) {
  size_t f = (size_t)a.down.k, h = (size_t)a.x.cols, t = blockIdx.y;
  size_t i = (size_t)blockIdx.x * WARPS + threadIdx.x / WARP;
  if (i >= h) return;
  float *out = row_at(a.out, (int)t) + i, sum = a.accumulate ? *out : 0;
  for (int c = 0; c < a.top_k; c++) {
    size_t choice = t * (size_t)a.top_k + (size_t)c;
    int expert = a.experts[choice] - a.first_expert;
    if (expert < 0 || expert >= a.num_experts) continue;
    size_t row = (size_t)expert * h + i;
    sum += a.weights[choice] * (dot(hidden + choice * f, &a.down, row) + (a.down_bias ? a.down_bias[row] : 0));
  }
  if (threadIdx.x % WARP == 0) *out = sum;
}

void tri_cuda_moe_experts(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace) {
  float *hidden = (float *)workspace;
  if (!a->x.rows || !a->x.cols) return;
  if (a->down.k)
    up_kernel<<<dim3(blocks_for((size_t)a->down.k, WARPS), a->x.rows * a->top_k), THREADS, 0, stream>>>(*a, hidden);
  down_kernel<<<dim3(blocks_for((size_t)a->x.cols, WARPS), a->x.rows), THREADS, 0, stream>>>(*a, hidden);
}
