/* SPDX-License-Identifier: Apache-2.0 */
/* The leader's book of KV blocks: which are free, and how many sequences share each. Sharing is by reference count with
 * copy-on-write (PagedAttention, Kwon et al. 2023, section 4.4). A block that the prefix cache holds is free without an
 * owner like any other, and is taken when there are none that it does not hold.
 *
 * A block is always in exactly one place: on the stack (no reference, not held), in the cache's list of idle blocks (no
 * reference, held), or with its owners (refs > 0, held or not). The same book serves the blocks in the host's memory,
 * which have no cache and one owner each. */
#ifndef TRI_WORKER_SCHEDULE_BLOCK_POOL_H
#define TRI_WORKER_SCHEDULE_BLOCK_POOL_H

#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "worker/schedule/prefix_cache.h"

typedef struct tri_block_pool {
  int32_t *free_list; /* stack of those that the cache does not hold */
  int32_t *refs;
  int num_blocks, num_listed; /* listed: on the stack */
  uint64_t num_released;      /* blocks that have lost their last owner, so far */
  tri_prefix_cache *cache;    /* owned; NULL: none */
} tri_block_pool;

static inline tri_status tri_block_pool_init(tri_block_pool *p, int num_blocks) {
  *p = (tri_block_pool){.num_blocks = num_blocks, .num_listed = num_blocks};
  p->free_list = tri_calloc((size_t)num_blocks, sizeof *p->free_list);
  p->refs = tri_calloc((size_t)num_blocks, sizeof *p->refs);
  if (!p->free_list || !p->refs) return TRI_NO_MEMORY;
  for (int i = 0; i < num_blocks; i++) p->free_list[i] = num_blocks - 1 - i; /* low numbers first */
  return TRI_OK;
}

static inline void tri_block_pool_free(tri_block_pool *p) {
  tri_free(p->free_list);
  tri_free(p->refs);
  tri_prefix_cache_destroy(p->cache);
}

static inline int tri_block_num_free(const tri_block_pool *p) {
  return p->num_listed + (p->cache ? tri_prefix_num_idle(p->cache) : 0);
}

/* A block with one reference, or -1. */
static inline int32_t tri_block_take(tri_block_pool *p) {
  int32_t block = -1;
  if (p->num_listed)
    block = p->free_list[--p->num_listed];
  else if (p->cache)
    block = tri_prefix_evict(p->cache);
  if (block >= 0) p->refs[block] = 1;
  return block;
}

/* One more reference to a block that has some, or that the cache holds. */
static inline void tri_block_share(tri_block_pool *p, int32_t block) {
  if (!p->refs[block]++) tri_prefix_reclaim(p->cache, block);
}

static inline void tri_block_drop(tri_block_pool *p, int32_t block) {
  if (--p->refs[block]) return;
  p->num_released++;
  if (p->cache && tri_prefix_holds(p->cache, block))
    tri_prefix_release(p->cache, block);
  else
    p->free_list[p->num_listed++] = block;
}

#endif
