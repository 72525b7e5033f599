/* SPDX-License-Identifier: Apache-2.0 */
/* A hash table by shape with open addressing and linear probing. At most half of it is full and nothing is ever
 * removed, so a look-up ends at the shape or at an empty slot, and allocates nothing. */
#include "kernels/gemm_tactics.h"

#include <string.h>

#include "base/hash.h"

enum { FIRST_CAPACITY = 64, MOST_ROWS = 1 << 24 };

tri_status tri_tactics_create(tri_tactics **out) {
  tri_tactics *c = tri_calloc(1, sizeof *c);
  if (c) c->slots = tri_calloc(FIRST_CAPACITY, sizeof *c->slots);
  if (!c || !c->slots) {
    tri_tactics_destroy(c);
    return TRI_NO_MEMORY;
  }
  c->capacity = FIRST_CAPACITY;
  *out = c;
  return TRI_OK;
}

void tri_tactics_destroy(tri_tactics *c) {
  if (!c) return;
  tri_free(c->slots);
  tri_free(c);
}

/* The shape's slot, or the empty one where it would be. There always is an empty one. */
static tri_tactic *slot_of(tri_tactic *slots, size_t capacity, const tri_gemm_shape *shape) {
  size_t i = (size_t)tri_hash_bytes(TRI_HASH_SEED, shape, sizeof *shape) % capacity;
  while (slots[i].shape.m && memcmp(&slots[i].shape, shape, sizeof *shape)) i = (i + 1) % capacity;
  return &slots[i];
}

static tri_status grow(tri_tactics *c) {
  size_t capacity = 2 * c->capacity;
  tri_tactic *slots = tri_calloc(capacity, sizeof *slots);
  if (!slots) return TRI_NO_MEMORY;
  for (size_t i = 0; i < c->capacity; i++)
    if (c->slots[i].shape.m) *slot_of(slots, capacity, &c->slots[i].shape) = c->slots[i];
  tri_free(c->slots);
  c->slots = slots;
  c->capacity = capacity;
  return TRI_OK;
}

tri_status tri_tactics_put(tri_tactics *c, const tri_tactic *tactic) {
  if (tactic->shape.m <= 0) return TRI_INVALID_ARGUMENT;
  tri_tactic *slot = slot_of(c->slots, c->capacity, &tactic->shape);
  if (!slot->shape.m) {
    if (c->count == TRI_TACTICS_MOST) return TRI_TOO_LARGE;
    if (2 * (c->count + 1) > c->capacity) {
      TRI_CHECK(grow(c));
      slot = slot_of(c->slots, c->capacity, &tactic->shape);
    }
    c->count++;
  }
  *slot = *tactic;
  return TRI_OK;
}

tri_status tri_tactics_put_all(tri_tactics *c, const tri_tactics *from) {
  size_t added = 0;
  for (size_t i = 0; i < from->capacity; i++)
    if (from->slots[i].shape.m) added += !tri_tactics_get(c, &from->slots[i].shape);
  tri_status st = c->count + added > TRI_TACTICS_MOST ? TRI_TOO_LARGE : TRI_OK; /* before any is in */
  for (size_t i = 0; i < from->capacity && st == TRI_OK; i++)
    if (from->slots[i].shape.m) st = tri_tactics_put(c, &from->slots[i]);
  return st;
}

const tri_tactic *tri_tactics_get(const tri_tactics *c, const tri_gemm_shape *shape) {
  if (shape->m <= 0 || !c->count) return NULL;
  const tri_tactic *slot = slot_of(c->slots, c->capacity, shape);
  return slot->shape.m ? slot : NULL;
}

/* MOST_ROWS bounds what tri_padded_rows may double to. */
const tri_tactic *tri_tactics_find(const tri_tactics *c, const tri_gemm_shape *shape) {
  tri_gemm_shape padded = *shape;
  const tri_tactic *found = tri_tactics_get(c, shape);
  if (!found && c->count && shape->m > 0 && shape->m <= MOST_ROWS) {
    padded.m = tri_padded_rows(shape->m);
    found = padded.m == shape->m ? NULL : tri_tactics_get(c, &padded);
  }
  return found && found->kind != TRI_TACTIC_DEFAULT ? found : NULL;
}
