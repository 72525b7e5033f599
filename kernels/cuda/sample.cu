/* The most probable token of each row, the lowest id on a tie; what is not a number counts as minus infinity. */
#include <limits.h>

#include "kernels/cuda/device.cuh"

enum { THREADS = 1024 };

__device__ static inline void keep_better(float &value, int &id, float other, int other_id) {
  if (other > value || (other == value && other_id < id)) value = other, id = other_id;
}

__global__ static void argmax_kernel(tri_mat logits, int32_t *ids) {
  __shared__ float values[WARP];
  __shared__ int where[WARP];
  const float *row = row_at(logits, blockIdx.x);
  int lane = threadIdx.x % WARP, id = INT_MAX;
  float value = -INFINITY;
  for (int j = threadIdx.x; j < logits.cols; j += THREADS) {
    float x = row[j];
    keep_better(value, id, x == x ? x : -INFINITY, j);
  }
  for (int pass = 0; pass < 2; pass++) {
    for (int o = WARP / 2; o; o /= 2)
      keep_better(value, id, __shfl_xor_sync(0xffffffffu, value, o), __shfl_xor_sync(0xffffffffu, id, o));
    if (pass) break;
    if (!lane) values[threadIdx.x / WARP] = value, where[threadIdx.x / WARP] = id;
    __syncthreads();
    value = values[lane], id = where[lane];
  }
  if (!threadIdx.x) ids[blockIdx.x] = id;
}

void tri_cuda_argmax(cudaStream_t stream, const tri_mat *logits, int32_t *ids) {
  argmax_kernel<<<logits->rows, THREADS, 0, stream>>>(*logits, ids);
}
