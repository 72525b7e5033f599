/* SPDX-License-Identifier: Apache-2.0 */
/* The one function that the program looks up in the module, and what the module's files share with it. */
#ifndef TRI_KERNELS_CUDA_FILL_H
#define TRI_KERNELS_CUDA_FILL_H

#include "kernels/backend.h"

#define TRI_CUDA_MODULE "libtrireme-cuda.so"
#define TRI_CUDA_FILL "tri_backend_fill_cuda"
typedef tri_status (*tri_cuda_fill_fn)(tri_backend *be, int device, tri_error *err);

/* Puts the CUDA backend's slots over those already there. device: its number among the visible ones. Refuses with the
 * reason where there is no driver, no such device, or one that this build has no code for. */
tri_status tri_backend_fill_cuda(tri_backend *be, int device, tri_error *err);

void tri_cuda_fill_ops(tri_backend *be);

#endif
