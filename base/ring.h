/* SPDX-License-Identifier: Apache-2.0 */
/* Single-producer single-consumer ring of pointers: how a worker's control thread and its step thread talk. */
#ifndef TRI_BASE_RING_H
#define TRI_BASE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"

typedef struct tri_ring {
  _Alignas(64) atomic_size_t head; /* consumer's */
  _Alignas(64) atomic_size_t tail; /* producer's */
  _Alignas(64) void **items;
  size_t mask;
} tri_ring;

/* capacity is rounded up to a power of two. */
static inline tri_status tri_ring_init(tri_ring *r, size_t capacity) {
  size_t n = 1;
  while (n < capacity) n *= 2;
  *r = (tri_ring){.items = tri_calloc(n, sizeof(void *)), .mask = n - 1};
  return r->items ? TRI_OK : TRI_NO_MEMORY;
}

static inline void tri_ring_free(tri_ring *r) { tri_free(r->items); }

/* False when full. */
static inline bool tri_ring_push(tri_ring *r, void *item) {
  size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
  if (tail - atomic_load_explicit(&r->head, memory_order_acquire) > r->mask) return false;
  r->items[tail & r->mask] = item;
  atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
  return true;
}

/* For the producer: the consumer has not taken everything yet. */
static inline bool tri_ring_holds(const tri_ring *r) {
  return atomic_load_explicit(&r->tail, memory_order_relaxed) != atomic_load_explicit(&r->head, memory_order_acquire);
}

/* NULL when empty. */
static inline void *tri_ring_pop(tri_ring *r) {
  size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
  if (head == atomic_load_explicit(&r->tail, memory_order_acquire)) return NULL;
  void *item = r->items[head & r->mask];
  atomic_store_explicit(&r->head, head + 1, memory_order_release);
  return item;
}

#endif
