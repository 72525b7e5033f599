/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Blocks begin at cache lines: vector code loads them aligned, and two threads' blocks share none. tri_grow copies
 * instead of realloc, which keeps no alignment. */
enum { ALIGN = 64 };

void *tri_malloc(size_t count, size_t size) {
  size_t bytes;
  if (!tri_size_mul(count, size, &bytes) || !tri_size_add(bytes, ALIGN - 1, &bytes)) return NULL;
  bytes &= ~(size_t)(ALIGN - 1);
  return aligned_alloc(ALIGN, bytes ? bytes : ALIGN);
}

void *tri_calloc(size_t count, size_t size) {
  void *p = tri_malloc(count, size);
  if (p) memset(p, 0, count * size);
  return p;
}

void *tri_grow(void *p, size_t old_count, size_t new_count, size_t size) {
  if (new_count < old_count) return NULL;
  char *q = tri_malloc(new_count, size);
  if (!q) return NULL;
  if (p) memcpy(q, p, old_count * size);
  memset(q + old_count * size, 0, (new_count - old_count) * size);
  tri_free(p);
  return q;
}

char *tri_strndup(const char *s, size_t n) {
  char *p = tri_malloc(n + 1, 1);
  if (!p) return NULL;
  memcpy(p, s, n);
  p[n] = '\0';
  return p;
}

char *tri_strdup(const char *s) { return tri_strndup(s, strlen(s)); }

void tri_free(void *p) { free(p); }

static tri_status map_pages(size_t bytes, int advice, void **out) {
  if (!bytes) bytes = 1;
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return TRI_NO_MEMORY;
  madvise(p, bytes, advice); /* a wish: small pages are slower, not wrong, and large ones take more */
  *out = p;
  return TRI_OK;
}

tri_status tri_pages_alloc(size_t bytes, void **out) { return map_pages(bytes, MADV_HUGEPAGE, out); }

tri_status tri_small_pages_alloc(size_t bytes, void **out) { return map_pages(bytes, MADV_NOHUGEPAGE, out); }

void tri_pages_free(void *p, size_t bytes) {
  if (p) munmap(p, bytes ? bytes : 1);
}

bool tri_pages_lock(const void *p, size_t bytes) { return !mlock(p, bytes); }

struct chunk {
  struct chunk *next;
  size_t used, size;
  _Alignas(16) char data[];
};

struct tri_arena {
  struct chunk *head;
  size_t chunk_bytes;
};

tri_status tri_arena_create(size_t chunk_bytes, tri_arena **out) {
  tri_arena *a = tri_calloc(1, sizeof *a);
  if (!a) return TRI_NO_MEMORY;
  a->chunk_bytes = chunk_bytes;
  *out = a;
  return TRI_OK;
}

/* Chunks are zeroed when they are made, and what was used of one when it is reset: pieces need no clearing of their
 * own. */
void *tri_arena_alloc(tri_arena *a, size_t count, size_t size) {
  size_t bytes;
  if (!tri_size_mul(count, size, &bytes) || !tri_size_add(bytes, 15, &bytes)) return NULL;
  bytes &= ~(size_t)15;
  struct chunk *c = a->head;
  if (!c || c->size - c->used < bytes) {
    size_t want = bytes > a->chunk_bytes ? bytes : a->chunk_bytes, total;
    if (!tri_size_add(want, sizeof *c, &total)) return NULL;
    c = tri_calloc(1, total);
    if (!c) return NULL;
    c->size = want;
    /* A piece larger than a chunk goes after the current one, whose room stays in use. */
    if (a->head && bytes > a->chunk_bytes) {
      c->next = a->head->next;
      a->head->next = c;
    } else {
      c->next = a->head;
      a->head = c;
    }
  }
  void *p = c->data + c->used;
  c->used += bytes;
  return p;
}

char *tri_arena_strndup(tri_arena *a, const char *s, size_t n) {
  char *p = tri_arena_alloc(a, n + 1, 1);
  if (p) memcpy(p, s, n);
  return p;
}

void tri_arena_reset(tri_arena *a) {
  struct chunk *keep = NULL;
  for (struct chunk *c = a->head, *next; c; c = next) {
    next = c->next;
    if (!keep && c->size <= a->chunk_bytes)
      keep = c;
    else
      tri_free(c);
  }
  if (keep) {
    memset(keep->data, 0, keep->used);
    keep->used = 0;
    keep->next = NULL;
  }
  a->head = keep;
}

void tri_arena_destroy(tri_arena *a) {
  if (!a) return;
  for (struct chunk *c = a->head, *next; c; c = next) {
    next = c->next;
    tri_free(c);
  }
  tri_free(a);
}
