/* SPDX-License-Identifier: Apache-2.0 */
/* A peer for comparison: one arena, in which every inference is planned anew by "greedy by size" (Pisarchyk and Lee,
 * "Efficient Memory Management for Deep Neural Net Inference", 2020, arXiv:2001.03288, Algorithm 3): from the largest
 * tensor to the smallest, each goes into the smallest gap between those that live at the same time, else after the
 * last of them. It knows no limit of an offset, so the arena is as large as the plan asks, and no chunk cuts it. */
#ifndef TRI_TESTS_BENCH_GREEDY_ARENA_H
#define TRI_TESTS_BENCH_GREEDY_ARENA_H

#include "tests/bench/activation_plan.h"

typedef struct tri_greedy_arena tri_greedy_arena;

/* exact: the arena always has the size of the inference at hand; otherwise it only ever grows. Either way the old one
 * is freed before the new one is allocated: between inferences nothing in it is needed. */
tri_status tri_greedy_create(tri_activation_memory memory, size_t alignment, bool exact, tri_greedy_arena **out);
void tri_greedy_destroy(tri_greedy_arena *a); /* NULL is fine */

/* Places the n tensors of an inference. After a failure there is no arena. */
tri_status tri_greedy_make(tri_greedy_arena *a, const tri_tensor_life *tensors, int n);
size_t tri_greedy_offset(const tri_greedy_arena *a, int i); /* of tensor i of the last inference */
size_t tri_greedy_bytes(const tri_greedy_arena *a);         /* of the arena */

/* The most bytes that live at one operator: no plan has less. */
size_t tri_live_bytes(const tri_tensor_life *tensors, int n);

#endif
