/* SPDX-License-Identifier: Apache-2.0 */
/* The prefix cache: which KV blocks hold which tokens after which others, so that a sequence that begins like an
 * earlier one takes its blocks instead of computing them again (automatic prefix caching, as vLLM has it; the sharing
 * itself is PagedAttention's, Kwon et al. 2023, section 4.4).
 *
 * A full block is found by its tokens and the block before it, which has a number that is never given twice: a chain of
 * numbers stands for all tokens before. A hash under a secret key only finds candidates; tokens and the number of the
 * one before are compared, so that whatever clients send, a block is never taken for another.
 *
 * A block without an owner stays here until it is needed for something else, the one released longest ago first. Who
 * releases the blocks of a sequence begins with the last one, so that of a chain the end goes first.
 *
 * Nothing allocates but tri_prefix_cache_create. */
#ifndef TRI_WORKER_SCHEDULE_PREFIX_CACHE_H
#define TRI_WORKER_SCHEDULE_PREFIX_CACHE_H

#include <stdbool.h>

#include "base/siphash.h"
#include "base/status.h"

typedef struct tri_prefix_cache tri_prefix_cache;

/* Stands for all tokens up to the end of a block, or for none: a root. */
typedef struct tri_prefix_id {
  uint64_t k[2];
} tri_prefix_id;

typedef uint64_t tri_prefix_hash(tri_sip_key key, const void *data, size_t len);

typedef struct tri_prefix_config {
  int num_blocks, block_size;
  tri_sip_key key;       /* secret */
  tri_prefix_hash *hash; /* NULL: SipHash */
} tri_prefix_config;

tri_status tri_prefix_cache_create(const tri_prefix_config *config, tri_prefix_cache **out);
void tri_prefix_cache_destroy(tri_prefix_cache *c); /* NULL is fine */

/* Returns the prefix that the first block of a sequence follows. Sequences of another kind, or under another salt, have
 * another root, and so share nothing. */
tri_prefix_id tri_prefix_root(const tri_prefix_cache *c, uint64_t kind, const void *salt, size_t salt_len);
/* Returns the block with these block_size tokens after a prefix; -1: there is none. */
int32_t tri_prefix_find(const tri_prefix_cache *c, tri_prefix_id behind, const uint32_t *tokens);
/* Returns the prefix that ends with a block that has been found. */
tri_prefix_id tri_prefix_of(const tri_prefix_cache *c, int32_t block);
/* Enters a block, which has an owner, with its tokens, unless another one holds the same. Returns the prefix that ends
 * with them, in either case. */
tri_prefix_id tri_prefix_enter(tri_prefix_cache *c, int32_t block, tri_prefix_id behind, const uint32_t *tokens);

/* ---- for the block pool ---- */

bool tri_prefix_holds(const tri_prefix_cache *c, int32_t block);
/* Takes note that a block that it holds has lost its last owner, or has one again. */
void tri_prefix_release(tri_prefix_cache *c, int32_t block);
void tri_prefix_reclaim(tri_prefix_cache *c, int32_t block);
/* Forgets the block that was released longest ago and returns it; -1: every block has an owner. */
int32_t tri_prefix_evict(tri_prefix_cache *c);
int tri_prefix_num_idle(const tri_prefix_cache *c);         /* blocks without an owner */
uint64_t tri_prefix_num_evicted(const tri_prefix_cache *c); /* since the start */

#endif
