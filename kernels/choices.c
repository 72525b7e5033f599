#include "kernels/choices.h"

#include <string.h>

#include "runtime/base/hash.h"

enum { FIRST_CAPACITY = 64, MOST_ROWS = 1 << 24 };

tri_status tri_choices_create(tri_choices **out) {
  tri_choices *c = tri_calloc(1, sizeof *c);
  if (c) c->slots = tri_calloc(FIRST_CAPACITY, sizeof *c->slots);
  if (!c || !c->slots) {
    tri_choices_destroy(c);
    return TRI_NO_MEMORY;
  }
  c->capacity = FIRST_CAPACITY;
  *out = c;
  return TRI_OK;
}

void tri_choices_destroy(tri_choices *c) {
  if (!c) return;
  tri_free(c->slots);
  tri_free(c);
}

/* The shape's slot, or the empty one where it would be. There always is an empty one. */
static tri_choice *slot_of(tri_choice *slots, size_t capacity, const tri_product_shape *shape) {
  size_t i = (size_t)tri_hash_bytes(TRI_HASH_SEED, shape, sizeof *shape) % capacity;
  while (slots[i].shape.m && memcmp(&slots[i].shape, shape, sizeof *shape)) i = (i + 1) % capacity;
  return &slots[i];
}

static tri_status grow(tri_choices *c) {
  size_t capacity = 2 * c->capacity;
  tri_choice *slots = tri_calloc(capacity, sizeof *slots);
  if (!slots) return TRI_NO_MEMORY;
  for (size_t i = 0; i < c->capacity; i++)
    if (c->slots[i].shape.m) *slot_of(slots, capacity, &c->slots[i].shape) = c->slots[i];
  tri_free(c->slots);
  c->slots = slots;
  c->capacity = capacity;
  return TRI_OK;
}

tri_status tri_choices_put(tri_choices *c, const tri_choice *choice) {
  if (choice->shape.m <= 0) return TRI_INVALID_ARGUMENT;
  tri_choice *slot = slot_of(c->slots, c->capacity, &choice->shape);
  if (!slot->shape.m) {
    if (c->count == TRI_CHOICES_MOST) return TRI_TOO_LARGE;
    if (2 * (c->count + 1) > c->capacity) {
      tri_status st = grow(c);
      if (st != TRI_OK) return st;
      slot = slot_of(c->slots, c->capacity, &choice->shape);
    }
    c->count++;
  }
  *slot = *choice;
  return TRI_OK;
}

tri_status tri_choices_put_all(tri_choices *c, const tri_choices *from) {
  size_t added = 0;
  for (size_t i = 0; i < from->capacity; i++)
    if (from->slots[i].shape.m) added += !tri_choices_get(c, &from->slots[i].shape);
  tri_status st = c->count + added > TRI_CHOICES_MOST ? TRI_TOO_LARGE : TRI_OK; /* before any is in */
  for (size_t i = 0; i < from->capacity && st == TRI_OK; i++)
    if (from->slots[i].shape.m) st = tri_choices_put(c, &from->slots[i]);
  return st;
}

const tri_choice *tri_choices_get(const tri_choices *c, const tri_product_shape *shape) {
  if (shape->m <= 0 || !c->count) return NULL;
  const tri_choice *slot = slot_of(c->slots, c->capacity, shape);
  return slot->shape.m ? slot : NULL;
}

const tri_choice *tri_choices_find(const tri_choices *c, const tri_product_shape *shape) {
  tri_product_shape padded = *shape;
  const tri_choice *found = tri_choices_get(c, shape);
  if (!found && c->count && shape->m > 0 && shape->m <= MOST_ROWS) {
    padded.m = tri_padded_rows(shape->m);
    found = padded.m == shape->m ? NULL : tri_choices_get(c, &padded);
  }
  return found && found->way != TRI_WAY_DEFAULT ? found : NULL;
}
