/* SPDX-License-Identifier: Apache-2.0 */
/* Places for the tensors of one inference: the sequence-length-aware allocator of TurboTransformers (Fang et al., PPoPP
 * 2021, section 4.2, Algorithm 1).
 *
 * The owner says of every tensor how many bytes it has and from which operator to which it lives. The plan gives each
 * an offset in one of a list of chunks, so that tensors which live at the same time never share a byte and others may.
 * Tensors are placed from the largest to the smallest: chunk by chunk in the order of their allocation, in the smallest
 * gap that holds the tensor between those that live at the same time, else after the last of them. Where no chunk has
 * room one is allocated: a least size, or the tensor's size and some slack, so that a slightly longer sequence fits,
 * too. Chunks outlive the inference: one that is no longer than an earlier one mostly finds all of its chunks there.
 *
 * Two things differ from the paper.
 * - The paper frees what an inference does not use right after planning it. Lengths are random, so that frees what the
 *   next one asks for. Here the owner says when it is idle, and how many inferences a chunk must have gone unused:
 *   tri_activation_plan_release.
 * - Before a chunk is allocated for a tensor, those that no tensor lies in yet are freed: none of them is as large as
 *   this tensor, and without them the new chunk mostly takes what they would have held. Otherwise every growth leaves
 *   its smaller predecessor after it. keep_small turns this off.
 * The same tensors again always get the same places and allocate nothing. However often a fixed set of inferences comes
 * in whatever order, allocations end unless chunks are released: otherwise one is only ever freed for a larger one.
 *
 * Planning ends the inference before: what its tensors held is lost. Where a device may still be working on it, the
 * free function must wait for that or be ordered after it. Not thread safe; in the steady state a plan takes no memory
 * of its own either. */
#ifndef TRI_TESTS_BENCH_ACTIVATION_PLAN_H
#define TRI_TESTS_BENCH_ACTIVATION_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/backend.h"
#include "base/status.h"

/* A tensor: operator first_op writes it, last_op is the last to read it. Operators are numbered in the order in which
 * they run. */
typedef struct tri_tensor_life {
  size_t bytes; /* at least 1 */
  int first_op, last_op;
} tri_tensor_life;

typedef struct tri_tensor_place {
  int chunk;     /* an index below tri_activation_plan_num_chunks */
  size_t offset; /* bytes */
} tri_tensor_place;

/* The source of chunks, which have the plan's alignment at least. */
typedef struct tri_activation_memory {
  void *ctx;
  tri_status (*alloc)(void *ctx, size_t bytes, void **out);
  void (*free)(void *ctx, void *p, size_t bytes);
} tri_activation_memory;

/* Memory of a backend, which must outlive the plan; counted as activations. */
tri_activation_memory tri_activation_memory_of(tri_backend *be);

enum {
  TRI_MAX_LIVES = 1 << 20,    /* tensors of one inference */
  TRI_MAX_LIFE_OPS = 1 << 20, /* operators of one inference */
};

typedef struct tri_activation_config {
  tri_activation_memory memory;
  size_t chunk_bytes; /* least size of a chunk: the paper's DEFAULT_CHUNK_SIZE */
  int slack_percent;  /* 0 to 1000: of a chunk beyond the tensor that it is allocated for; K_SCALE = 1 + this / 100 */
  size_t alignment;   /* of every tensor; a power of two */
  bool keep_small;    /* do not free chunks to make room for a larger one */
} tri_activation_config;

/* The paper's numbers, 2 MiB and 20%, and a cache line. */
tri_activation_config tri_activation_config_default(tri_activation_memory memory);

typedef struct tri_activation_stats {
  size_t held, high_water; /* bytes of chunks now, and at most */
  uint64_t allocs, frees;  /* of chunks, since the start */
  uint64_t alloc_bytes, free_bytes;
  uint64_t plans; /* that succeeded */
  int64_t last_plan_ns, total_plan_ns;
} tri_activation_stats;

typedef struct tri_activation_plan tri_activation_plan;

/* TRI_INVALID_ARGUMENT: an alignment that is no power of two, a function that is missing. TRI_OUT_OF_RANGE: slack. */
tri_status tri_activation_plan_create(const tri_activation_config *config, tri_activation_plan **out, tri_error *err);
void tri_activation_plan_destroy(tri_activation_plan *p); /* frees its chunks; NULL is fine */

/* Places the n tensors of an inference; the array is not kept. TRI_INVALID_ARGUMENT: a tensor without bytes, or that
 * ends before it begins. TRI_OUT_OF_RANGE: more tensors or operators than the limits. TRI_OVERFLOW: a size that cannot
 * be rounded up. Otherwise what alloc returned: then the chunks that there are stay, and none is in use. After any
 * failure no tensor is placed. */
tri_status tri_activation_plan_make(tri_activation_plan *p, const tri_tensor_life *tensors, int n, tri_error *err);

/* Tensor i of the last plan, and its address. Good until the next plan, also across releases that leave its chunk. */
tri_tensor_place tri_activation_plan_place(const tri_activation_plan *p, int i);
void *tri_activation_plan_data(const tri_activation_plan *p, int i);

int tri_activation_plan_num_tensors(const tri_activation_plan *p);
int tri_activation_plan_num_chunks(const tri_activation_plan *p);
size_t tri_activation_plan_chunk_bytes(const tri_activation_plan *p, int chunk);

/* The owner has nothing to do: frees the chunks that none of the last `unused` plans has a tensor in, and returns their
 * bytes. 1: all but the last plan's, as the paper does. 0: all of them, and no tensor is placed afterwards. */
size_t tri_activation_plan_release(tri_activation_plan *p, int unused);

tri_activation_stats tri_activation_plan_stats(const tri_activation_plan *p);

#endif
