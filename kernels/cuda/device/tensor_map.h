/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptions of tensors in a device's memory from which its copy engine takes tiles (sm_90 and later). */
#ifndef TRI_KERNELS_CUDA_DEVICE_TENSOR_MAP_H
#define TRI_KERNELS_CUDA_DEVICE_TENSOR_MAP_H

#include <cuda.h>

#include "kernels/tensor.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef CUtensorMap tri_tensor_map; /* 128 bytes; kernels take it as a __grid_constant__ parameter */

enum { TRI_TENSOR_DIMS = 5 };

/* A tensor and the box that each copy takes of it, the innermost dimension first. */
typedef struct tri_tiling {
  int dims; /* 2 to 5 */
  uint64_t size[TRI_TENSOR_DIMS];
  uint64_t stride[TRI_TENSOR_DIMS]; /* bytes; of the innermost unused, the others multiples of 16 */
  uint32_t box[TRI_TENSOR_DIMS];    /* at most 256 each; innermost 128 or 64 bytes */
} tri_tiling;

/* Describes the tensor of F16, BF16 or I8 at `base`, aligned to 16 bytes. Boxes lie in shared memory as rows of 128
 * bytes, whose pieces of 16 are swizzled by eight rows (hopper.cuh, operand), or of 64 bytes, of which a row's piece p
 * is at p ^ (row / 2 % 4). TRI_INVALID_ARGUMENT where the device cannot have it so, TRI_UNSUPPORTED where the driver
 * knows no such maps. Host only; a microsecond. */
tri_status tri_cuda_map_tensor(tri_tensor_map *out, tri_dtype type, const void *base, const tri_tiling *t);

#ifdef __cplusplus
}
#endif

#endif
