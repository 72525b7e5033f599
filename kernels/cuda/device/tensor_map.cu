/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's function that encodes tensor maps, found once and without linking the driver. */
#include "kernels/cuda/device/tensor_map.h"

#include <cuda_runtime.h>

/* The type of cuTensorMapEncodeTiled. */
typedef CUresult encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                                 CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

enum { SINCE = 12000 }; /* the CUDA version that brought it */

static encode_function *find(void) {
  void *found = NULL;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
  cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, SINCE, cudaEnableDefault, &result);
#else
  cudaError_t e = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
  if (e != cudaSuccess || result != cudaDriverEntryPointSuccess) return NULL;
  return (encode_function *)found;
}

tri_status tri_cuda_map_tensor(tri_tensor_map *out, tri_dtype type, const void *base, const tri_tiling *t) {
  static const cuuint32_t steps[TRI_TENSOR_DIMS] = {1, 1, 1, 1, 1};
  CUtensorMapDataType kind = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  static encode_function *const encode = find();
  if (type == TRI_F16) kind = CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  if (type == TRI_I8 || type == TRI_F8_E4M3) kind = CU_TENSOR_MAP_DATA_TYPE_UINT8; /* bits are copied as they are */
  if (type == TRI_F32) kind = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  if (type == TRI_F32)
    swizzle = CU_TENSOR_MAP_SWIZZLE_NONE; /* lines of numbers, no factor of an MMA */
  else if (t->box[0] * tri_dtype_size(type) <= 64)
    swizzle = CU_TENSOR_MAP_SWIZZLE_64B;
  if (!encode) return TRI_UNSUPPORTED;
  CUresult r = encode(out, kind, (cuuint32_t)t->dims, (void *)base, t->size, t->stride + 1, t->box, steps,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return r == CUDA_SUCCESS ? TRI_OK : TRI_INVALID_ARGUMENT;
}
