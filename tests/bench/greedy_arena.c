/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/greedy_arena.h"

#include <string.h>

#include "base/mem.h"

struct tri_greedy_arena {
  tri_activation_memory memory;
  size_t alignment;
  bool exact;
  void *data;
  size_t held;
  int cap;
  size_t *bytes, *offsets; /* [cap] */
  int *order, *placed;     /* [cap] from the largest; placed tensors by offset */
};

tri_status tri_greedy_create(tri_activation_memory memory, size_t alignment, bool exact, tri_greedy_arena **out) {
  tri_greedy_arena *a = tri_calloc(1, sizeof *a);
  if (!a) return TRI_NO_MEMORY;
  a->memory = memory;
  a->alignment = alignment;
  a->exact = exact;
  *out = a;
  return TRI_OK;
}

static void drop(tri_greedy_arena *a) {
  if (a->data) a->memory.free(a->memory.ctx, a->data, a->held);
  a->data = NULL;
  a->held = 0;
}

static void free_arrays(tri_greedy_arena *a) {
  tri_free(a->bytes);
  tri_free(a->offsets);
  tri_free(a->order);
  tri_free(a->placed);
  a->bytes = a->offsets = NULL;
  a->order = a->placed = NULL;
  a->cap = 0;
}

void tri_greedy_destroy(tri_greedy_arena *a) {
  if (!a) return;
  drop(a);
  free_arrays(a);
  tri_free(a);
}

static tri_status reserve(tri_greedy_arena *a, int n) {
  if (n <= a->cap) return TRI_OK;
  free_arrays(a);
  a->bytes = tri_malloc((size_t)n, sizeof *a->bytes);
  a->offsets = tri_malloc((size_t)n, sizeof *a->offsets);
  a->order = tri_malloc((size_t)n, sizeof *a->order);
  a->placed = tri_malloc((size_t)n, sizeof *a->placed);
  if (!a->bytes || !a->offsets || !a->order || !a->placed) {
    free_arrays(a);
    return TRI_NO_MEMORY;
  }
  a->cap = n;
  return TRI_OK;
}

/* Fills bytes and order. */
static tri_status sort_by_size(tri_greedy_arena *a, const tri_tensor_life *tensors, int n) {
  for (int i = 0; i < n; i++) {
    if (!tri_size_add(tensors[i].bytes, a->alignment - 1, &a->bytes[i])) return TRI_OVERFLOW;
    a->bytes[i] &= ~(a->alignment - 1);
    int k = i;
    for (; k > 0 && a->bytes[a->order[k - 1]] < a->bytes[i]; k--) a->order[k] = a->order[k - 1];
    a->order[k] = i;
  }
  return TRI_OK;
}

static bool meet(const tri_tensor_life *a, const tri_tensor_life *b) {
  return a->first_op <= b->last_op && b->first_op <= a->last_op;
}

static size_t offset_for(const tri_greedy_arena *a, const tri_tensor_life *tensors, int num_placed, int t) {
  size_t end = 0, smallest = SIZE_MAX, best = SIZE_MAX;
  for (int i = 0; i < num_placed; i++) {
    int other = a->placed[i];
    if (!meet(&tensors[t], &tensors[other])) continue;
    size_t offset = a->offsets[other], gap = offset > end ? offset - end : 0;
    if (gap >= a->bytes[t] && gap < smallest) {
      smallest = gap;
      best = end;
    }
    if (offset + a->bytes[other] > end) end = offset + a->bytes[other];
  }
  return best != SIZE_MAX ? best : end;
}

static tri_status place_all(tri_greedy_arena *a, const tri_tensor_life *tensors, int n, size_t *total) {
  *total = 0;
  for (int i = 0; i < n; i++) {
    int t = a->order[i], k = i;
    size_t end;
    a->offsets[t] = offset_for(a, tensors, i, t);
    if (!tri_size_add(a->offsets[t], a->bytes[t], &end)) return TRI_OVERFLOW;
    if (end > *total) *total = end;
    for (; k > 0 && a->offsets[a->placed[k - 1]] > a->offsets[t]; k--) a->placed[k] = a->placed[k - 1];
    a->placed[k] = t;
  }
  return TRI_OK;
}

tri_status tri_greedy_make(tri_greedy_arena *a, const tri_tensor_life *tensors, int n) {
  size_t total = 0;
  tri_status st;
  TRI_TRY(reserve(a, n));
  TRI_TRY(sort_by_size(a, tensors, n));
  TRI_TRY(place_all(a, tensors, n, &total));
  if (a->exact ? total == a->held : total <= a->held) return TRI_OK;
  drop(a);
  TRI_TRY(a->memory.alloc(a->memory.ctx, total, &a->data));
  a->held = total;
cleanup:
  if (st != TRI_OK) drop(a);
  return st;
}

size_t tri_greedy_offset(const tri_greedy_arena *a, int i) { return a->offsets[i]; }
size_t tri_greedy_bytes(const tri_greedy_arena *a) { return a->held; }

size_t tri_live_bytes(const tri_tensor_life *tensors, int n) {
  size_t most = 0;
  for (int i = 0; i < n; i++) { /* the sum only grows where a tensor begins */
    size_t sum = 0;
    for (int j = 0; j < n; j++)
      if (tensors[j].first_op <= tensors[i].first_op && tensors[i].first_op <= tensors[j].last_op)
        sum += tensors[j].bytes;
    if (sum > most) most = sum;
  }
  return most;
}
