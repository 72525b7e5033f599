/* SPDX-License-Identifier: Apache-2.0 */
/* A peer for comparison: a caching allocator in the manner of PyTorch's for CUDA (its default settings, one stream).
 *
 * Sizes are rounded up to 512 bytes. Up to 1 MiB come from a pool of segments of 2 MiB, others from a second pool of
 * segments of 20 MiB, or, from 10 MiB on, of their own size rounded up to 2 MiB. The smallest free block that is large
 * enough is taken; what is left of it becomes a block of its own, from 512 bytes on in the pool of small sizes and
 * beyond 1 MiB in the other. A freed block merges with its free neighbours. Segments stay, until memory runs out: then
 * those that are wholly free are given back, and it tries again. */
#ifndef TRI_TESTS_BENCH_CACHING_ALLOCATOR_H
#define TRI_TESTS_BENCH_CACHING_ALLOCATOR_H

#include "tests/bench/activation_plan.h"

typedef struct tri_caching_allocator tri_caching_allocator;
typedef struct tri_caching_block tri_caching_block;

tri_status tri_caching_create(tri_activation_memory memory, tri_caching_allocator **out);
/* Blocks that are still in use go, too; NULL is fine. */
void tri_caching_destroy(tri_caching_allocator *a);

tri_status tri_caching_alloc(tri_caching_allocator *a, size_t bytes, tri_caching_block **out);
void tri_caching_free(tri_caching_allocator *a, tri_caching_block *b);
void *tri_caching_data(const tri_caching_block *b);

/* Gives back the segments that are wholly free: torch.cuda.empty_cache(). */
void tri_caching_trim(tri_caching_allocator *a);

#endif
