/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/caching_allocator.h"

#include "base/mem.h"

static const size_t MIN_BLOCK = 512, SMALL = (size_t)1 << 20, SMALL_SEGMENT = (size_t)2 << 20,
                    LARGE_SEGMENT = (size_t)20 << 20, OWN_SEGMENT = (size_t)10 << 20, ROUND = (size_t)2 << 20;

struct tri_caching_block {
  char *data;
  size_t bytes;
  tri_caching_block *left, *right;          /* neighbours in the segment */
  tri_caching_block *list_prev, *list_next; /* of the same list */
  bool small, free;
};

struct tri_caching_allocator {
  tri_activation_memory memory;
  tri_caching_block *idle[2]; /* free blocks: [0] of large sizes, [1] of small ones */
  tri_caching_block *used;
};

tri_status tri_caching_create(tri_activation_memory memory, tri_caching_allocator **out) {
  tri_caching_allocator *a = tri_calloc(1, sizeof *a);
  if (!a) return TRI_NO_MEMORY;
  a->memory = memory;
  *out = a;
  return TRI_OK;
}

static tri_caching_block **list_of(tri_caching_allocator *a, const tri_caching_block *b) {
  return b->free ? &a->idle[b->small] : &a->used;
}

static void leave_list(tri_caching_allocator *a, tri_caching_block *b) {
  *(b->list_prev ? &b->list_prev->list_next : list_of(a, b)) = b->list_next;
  if (b->list_next) b->list_next->list_prev = b->list_prev;
}

static void enter_list(tri_caching_allocator *a, tri_caching_block *b, bool is_free) {
  b->free = is_free;
  tri_caching_block **head = list_of(a, b);
  b->list_prev = NULL;
  b->list_next = *head;
  if (*head) (*head)->list_prev = b;
  *head = b;
}

static tri_caching_block *smallest_that_holds(const tri_caching_allocator *a, bool small, size_t bytes) {
  tri_caching_block *best = NULL;
  for (tri_caching_block *b = a->idle[small]; b; b = b->list_next)
    if (b->bytes >= bytes && (!best || b->bytes < best->bytes)) best = b;
  return best;
}

static bool segment_bytes(bool small, size_t bytes, size_t *out) {
  *out = small ? SMALL_SEGMENT : LARGE_SEGMENT;
  if (small || bytes < OWN_SEGMENT) return true;
  if (!tri_size_add(bytes, ROUND - 1, out)) return false;
  *out = *out / ROUND * ROUND;
  return true;
}

static tri_status add_segment(tri_caching_allocator *a, bool small, size_t bytes, tri_caching_block **out) {
  size_t size;
  void *data;
  if (!segment_bytes(small, bytes, &size)) return TRI_OVERFLOW;
  tri_caching_block *b = tri_calloc(1, sizeof *b);
  if (!b) return TRI_NO_MEMORY;
  tri_status st = a->memory.alloc(a->memory.ctx, size, &data);
  if (st == TRI_NO_MEMORY) {
    tri_caching_trim(a);
    st = a->memory.alloc(a->memory.ctx, size, &data);
  }
  if (st != TRI_OK) {
    tri_free(b);
    return st;
  }
  *b = (tri_caching_block){.data = data, .bytes = size, .small = small};
  enter_list(a, b, true);
  *out = b;
  return TRI_OK;
}

/* Cuts what lies after the first `bytes` of a free block off, where that is worth a block. */
static tri_status split(tri_caching_allocator *a, tri_caching_block *b, size_t bytes) {
  size_t rest = b->bytes - bytes;
  if (b->small ? rest < MIN_BLOCK : rest <= SMALL) return TRI_OK;
  tri_caching_block *r = tri_calloc(1, sizeof *r);
  if (!r) return TRI_NO_MEMORY;
  *r = (tri_caching_block){.data = b->data + bytes, .bytes = rest, .left = b, .right = b->right, .small = b->small};
  if (r->right) r->right->left = r;
  b->right = r;
  b->bytes = bytes;
  enter_list(a, r, true);
  return TRI_OK;
}

tri_status tri_caching_alloc(tri_caching_allocator *a, size_t bytes, tri_caching_block **out) {
  tri_status st = TRI_OK;
  if (!tri_size_add(bytes ? bytes : 1, MIN_BLOCK - 1, &bytes)) return TRI_OVERFLOW;
  bytes = bytes / MIN_BLOCK * MIN_BLOCK;
  bool small = bytes <= SMALL;
  tri_caching_block *b = smallest_that_holds(a, small, bytes);
  if (!b) st = add_segment(a, small, bytes, &b);
  if (st == TRI_OK) st = split(a, b, bytes);
  if (st != TRI_OK) return st;
  leave_list(a, b);
  enter_list(a, b, false);
  *out = b;
  return TRI_OK;
}

/* b takes over its free right neighbour. */
static void merge_right(tri_caching_allocator *a, tri_caching_block *b) {
  tri_caching_block *r = b->right;
  leave_list(a, r);
  b->bytes += r->bytes;
  b->right = r->right;
  if (b->right) b->right->left = b;
  tri_free(r);
}

void tri_caching_free(tri_caching_allocator *a, tri_caching_block *b) {
  leave_list(a, b);
  enter_list(a, b, true);
  if (b->right && b->right->free) merge_right(a, b);
  if (b->left && b->left->free) merge_right(a, b->left);
}

void *tri_caching_data(const tri_caching_block *b) { return b->data; }

void tri_caching_trim(tri_caching_allocator *a) {
  for (int small = 0; small < 2; small++)
    for (tri_caching_block *b = a->idle[small], *next; b; b = next) {
      next = b->list_next;
      if (b->left || b->right) continue;
      leave_list(a, b);
      a->memory.free(a->memory.ctx, b->data, b->bytes);
      tri_free(b);
    }
}

void tri_caching_destroy(tri_caching_allocator *a) {
  if (!a) return;
  while (a->used) tri_caching_free(a, a->used);
  tri_caching_trim(a);
  tri_free(a);
}
