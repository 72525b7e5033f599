/* The leader's book of KV pages: which are free, and how many sequences share each. Sharing is by reference count with
 * copy-on-write (PagedAttention, Kwon et al. 2023, section 4.4). */
#ifndef TRI_WORKER_BLOCK_POOL_H
#define TRI_WORKER_BLOCK_POOL_H

#include <stdint.h>

#include "runtime/base/mem.h"
#include "runtime/base/status.h"

typedef struct tri_block_pool {
  int32_t *free_list; /* stack */
  int32_t *refs;
  int num_pages, num_free;
} tri_block_pool;

static inline tri_status tri_block_pool_init(tri_block_pool *p, int num_pages) {
  *p = (tri_block_pool){.num_pages = num_pages, .num_free = num_pages};
  p->free_list = tri_calloc((size_t)num_pages, sizeof *p->free_list);
  p->refs = tri_calloc((size_t)num_pages, sizeof *p->refs);
  if (!p->free_list || !p->refs) return TRI_NO_MEMORY;
  for (int i = 0; i < num_pages; i++) p->free_list[i] = num_pages - 1 - i; /* low numbers first */
  return TRI_OK;
}

static inline void tri_block_pool_free(tri_block_pool *p) { tri_free(p->free_list), tri_free(p->refs); }

/* A page with one reference, or -1. */
static inline int32_t tri_block_take(tri_block_pool *p) {
  if (!p->num_free) return -1;
  int32_t page = p->free_list[--p->num_free];
  p->refs[page] = 1;
  return page;
}

static inline void tri_block_share(tri_block_pool *p, int32_t page) { p->refs[page]++; }

static inline void tri_block_drop(tri_block_pool *p, int32_t page) {
  if (--p->refs[page] == 0) p->free_list[p->num_free++] = page;
}

#endif
