/* The leader's book of KV blocks: which are free, and how many sequences share each. Sharing is by reference count with
 * copy-on-write (PagedAttention, Kwon et al. 2023, section 4.4). */
#ifndef TRI_WORKER_BLOCK_POOL_H
#define TRI_WORKER_BLOCK_POOL_H

#include <stdint.h>

#include "runtime/base/mem.h"
#include "runtime/base/status.h"

typedef struct tri_block_pool {
  int32_t *free_list; /* stack */
  int32_t *refs;
  int num_blocks, num_free;
} tri_block_pool;

static inline tri_status tri_block_pool_init(tri_block_pool *p, int num_blocks) {
  *p = (tri_block_pool){.num_blocks = num_blocks, .num_free = num_blocks};
  p->free_list = tri_calloc((size_t)num_blocks, sizeof *p->free_list);
  p->refs = tri_calloc((size_t)num_blocks, sizeof *p->refs);
  if (!p->free_list || !p->refs) return TRI_NO_MEMORY;
  for (int i = 0; i < num_blocks; i++) p->free_list[i] = num_blocks - 1 - i; /* low numbers first */
  return TRI_OK;
}

static inline void tri_block_pool_free(tri_block_pool *p) {
  tri_free(p->free_list);
  tri_free(p->refs);
}

/* A block with one reference, or -1. */
static inline int32_t tri_block_take(tri_block_pool *p) {
  if (!p->num_free) return -1;
  int32_t block = p->free_list[--p->num_free];
  p->refs[block] = 1;
  return block;
}

static inline void tri_block_share(tri_block_pool *p, int32_t block) { p->refs[block]++; }

static inline void tri_block_drop(tri_block_pool *p, int32_t block) {
  if (--p->refs[block] == 0) p->free_list[p->num_free++] = block;
}

#endif
