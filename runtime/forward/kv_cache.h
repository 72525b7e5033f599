/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's paged KV cache: for each of its layers, num_blocks blocks of block_size tokens (PagedAttention, Kwon et al.
 * 2023). Block numbers are the leader's: every rank of a replica has the same number of blocks and uses them alike.
 *
 * Layer l has its keys, [num_blocks, kv_heads, ...] as tri_kv_layer says, and then its values, in one run of memory
 * for each layer; of latent attention there is one row for both. */
#ifndef TRI_RUNTIME_FORWARD_KV_CACHE_H
#define TRI_RUNTIME_FORWARD_KV_CACHE_H

#include "kernels/backend.h"
#include "runtime/model/layout.h"

/* Layers whose heads have the same sizes: those with a window and those without may differ. Their memory follows each
 * other, so that a block's bytes of all of them are a fixed stride apart, which moves to the host make use of. */
typedef struct tri_kv_group {
  int first, num_layers; /* first: number of the first one in tri_kv_cache.layers */
  size_t stride;         /* bytes of a layer */
} tri_kv_group;
enum { TRI_KV_GROUPS = 2 };

typedef struct tri_kv_cache {
  tri_backend *backend;
  tri_kv_layer *layers; /* [shard.layers.count] */
  int num_layers, num_blocks, block_size;
  tri_kv_group groups[TRI_KV_GROUPS]; /* the second one: layers without a window whose heads are others */
  void *memory;
  size_t bytes;
  /* of the host, for blocks that are not needed now; see tri_move_blocks_args */
  void *pool; /* NULL: none */
  int num_host_blocks;
  size_t pool_bytes;
  int num_turns, turn; /* of its moves, likewise; 0: one turn */
} tri_kv_cache;

/* The type of keys and values where TRI_DTYPE_COUNT leaves it open: that of the weights (`weights`, or as the model has
 * them stored) where 16-bit products round their inputs to it anyway, else float32. */
tri_dtype tri_kv_dtype(const tri_model_config *c, tri_dtype asked, tri_dtype weights, bool narrows_inputs);
/* Bytes that one block takes over all layers of a shard; false on overflow. */
bool tri_kv_block_bytes(const tri_model_config *c, const tri_shard *s, tri_dtype dtype, int block_size, size_t *out);

tri_status tri_kv_cache_create(tri_backend *be, const tri_model_config *c, const tri_shard *s, tri_dtype dtype,
                               int block_size, int num_blocks, tri_kv_cache **out, tri_error *err);
/* A cache for an encoder that feeds a decoder: its layers use the memory of the decoder's first one, in turn, since
 * a layer's keys are not read any more once the next one runs. `from` must outlive it. */
tri_status tri_kv_cache_borrow(const tri_kv_cache *from, int num_layers, tri_kv_cache **out);
/* Takes memory of the host for so many blocks. TRI_NO_CAPACITY where it gives none. */
tri_status tri_kv_cache_add_pool(tri_kv_cache *kv, int num_host_blocks, tri_error *err);
/* Puts a move of blocks between the cache and its pool on the compute stream. pairs: [num_pairs][2]: the cache's block,
 * the pool's; none is named twice. */
void tri_kv_cache_move(const tri_kv_cache *kv, const int32_t *pairs, int num_pairs, bool out);
/* Measures the seconds of a block's way to the pool and back; of a cache that is not in use. */
tri_status tri_kv_cache_measure(const tri_kv_cache *kv, double *block_seconds);
void tri_kv_cache_destroy(tri_kv_cache *kv); /* NULL is fine */

#endif
