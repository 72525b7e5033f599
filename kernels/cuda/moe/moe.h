/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the experts' kernels: moe.c chooses one of these for a launch. A header of both languages. */
#ifndef TRI_KERNELS_CUDA_MOE_MOE_H
#define TRI_KERNELS_CUDA_MOE_MOE_H

#include "kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TRI_CUDA_MOE_EXPERTS = TRI_CUDA_TOLD }; /* whose list fits into a block's memory with all else */

/* moe/route.cu. counter: one of the backend's, 0 before and after. */
bool tri_cuda_moe_route_fits(const tri_moe_route_args *a);
size_t tri_cuda_moe_route_workspace(const tri_moe_route_args *a);
void tri_cuda_moe_route(cudaStream_t stream, const tri_moe_route_args *a, void *workspace, unsigned *counter,
                        bool is_hopper);

/* moe/map.cu. place: parts [T / 32, experts] has the counts of parts of 32 tokens; it ends a map that they began. */
bool tri_cuda_moe_map_fits(const tri_moe_map_args *a);
size_t tri_cuda_moe_map_workspace(const tri_moe_map_args *a);
void tri_cuda_moe_map(cudaStream_t stream, const tri_moe_map_args *a, void *workspace);
void tri_cuda_moe_map_place(cudaStream_t stream, const tri_moe_map_args *a, int *parts);

/* moe/decode.cu: weights of 16 bits or of int8 whose rows are cut into 16-byte pieces. */
bool tri_cuda_moe_few_fits(const tri_moe_experts_args *a);
size_t tri_cuda_moe_few_workspace(const tri_moe_experts_args *a);
void tri_cuda_moe_few(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace, int num_sms);

/* moe/plain.cu: any types and shapes. Then the sum of each token's choices, in their order: partial [T * top_k, H]. */
size_t tri_cuda_moe_plain_workspace(const tri_moe_experts_args *a);
void tri_cuda_moe_plain(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace, int num_sms);
void tri_cuda_moe_combine(cudaStream_t stream, const tri_moe_experts_args *a, const float *partial);

/* moe/sum.cu: the sum of each token's choices, in their order, and before that of a choice's parts, in theirs. parts
 * [splits, T * top_k, H] of F32, BF16 or F16, rows of the map; H and out's rows in fours. */
void tri_cuda_moe_sum(cudaStream_t stream, const tri_moe_experts_args *a, const void *parts, tri_dtype type,
                      int splits);

/* moe/grouped.cu, for Hopper: gated experts of 16 or 8 bits with SILU, SWIGLU_OAI, QUICK_GELU or GELU_TANH, of any
 * number of rows. slabs: the lane's counters. */
bool tri_cuda_moe_grouped_fits(const tri_moe_experts_args *a);
size_t tri_cuda_moe_grouped_workspace(const tri_moe_experts_args *a, int num_sms);
cudaError_t tri_cuda_moe_grouped(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace, unsigned *slabs,
                                 int num_sms);

/* moe/grouped_8bit.cu: those of them whose rows are rounded, with many rows. */
bool tri_cuda_moe_8bit_fits(const tri_moe_experts_args *a);
size_t tri_cuda_moe_8bit_workspace(const tri_moe_experts_args *a);
cudaError_t tri_cuda_moe_8bit(cudaStream_t stream, const tri_moe_experts_args *a, void *workspace, unsigned *slabs,
                              int num_sms);

#ifdef __cplusplus
}
#endif

#endif
