/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation with checked sizes, and arenas.
 *
 * Sizes are products of numbers that came from files or from the network, so every product goes through
 * tri_size_mul/tri_size_add. Large buffers (weights, KV blocks, activations) are tagged, and the tags' totals make the
 * byte ledger that `trireme plan` predicts.
 *
 * Everything here may be called from any thread, but an arena by one at a time. */
#ifndef TRI_BASE_MEM_H
#define TRI_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* True when the result fits; *out is set only then. */
static inline bool tri_size_mul(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool tri_size_add(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

/* count * size zeroed bytes, 64-byte aligned; NULL on overflow or when memory is out. Free with tri_free. */
void *tri_calloc(size_t count, size_t size);
/* The same without zeroing, for buffers that are written before they are read. */
void *tri_malloc(size_t count, size_t size);
/* Grows a tri_calloc/tri_malloc block; the new tail is zeroed. On failure returns NULL and the old block stays. */
void *tri_grow(void *p, size_t old_count, size_t new_count, size_t size);
char *tri_strdup(const char *s);
char *tri_strndup(const char *s, size_t n);
void tri_free(void *p);

/* The purpose of a large buffer: lines of the ledger. */
typedef enum tri_mem_tag {
  TRI_MEM_WEIGHTS,
  TRI_MEM_KV,
  TRI_MEM_ACTIVATIONS,
  TRI_MEM_STAGING,
  TRI_MEM_TAGS
} tri_mem_tag;

/* Whole pages from the system, transparent huge pages asked for, zeroed. *out is page aligned. */
tri_status tri_pages_alloc(size_t bytes, void **out);
/* The same in small pages: those that were never written to take no memory. */
tri_status tri_small_pages_alloc(size_t bytes, void **out);
void tri_pages_free(void *p, size_t bytes);
/* Keeps the pages that memory lies in from being swapped out, until they are freed. False: this process may not
 * (errno), or not as many: RLIMIT_MEMLOCK. */
bool tri_pages_lock(const void *p, size_t bytes);

/* An arena hands out pieces of growing chunks and frees them all at once. Not thread safe. */
typedef struct tri_arena tri_arena;
tri_status tri_arena_create(size_t chunk_bytes, tri_arena **out);
void *tri_arena_alloc(tri_arena *a, size_t count, size_t size); /* zeroed, 16-byte aligned; NULL when memory is out */
char *tri_arena_strndup(tri_arena *a, const char *s, size_t n);
/* Takes everything back but keeps one chunk for the next round; what is handed out again is zeroed again. */
void tri_arena_reset(tri_arena *a);
void tri_arena_destroy(tri_arena *a); /* NULL is fine */

/* Returns the bytes of this host's memory that are free for use: MemAvailable, or what the limits of this process's
 * control group and of those above it leave, where that is less. */
int64_t tri_host_memory_available(void);
/* Returns what those limits leave; INT64_MAX: there are none. Version 1 and 2. What a group has in the page cache and
 * has not used lately counts as free. groups: a file like /proc/self/cgroup; root: where their files lie,
 * /sys/fs/cgroup. */
int64_t tri_control_group_room(const char *groups, const char *root);

#endif
