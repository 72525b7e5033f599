/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "runtime/grammar/schema_impl.h"

static size_t slot_of(const schema_table *t, uint64_t hash) { return (size_t)(hash ^ hash >> 32) & (t->room - 1); }

uint32_t schema_table_find(schema_maker *m, const schema_table *t, uint64_t hash, schema_same *same, const void *list,
                           const void *wanted) {
  for (size_t at = t->room ? slot_of(t, hash) : 0; t->room && t->slots[at].number; at = (at + 1) & (t->room - 1)) {
    m->work++;
    if (t->slots[at].hash == hash && same(list, t->slots[at].number - 1, wanted)) return t->slots[at].number - 1;
  }
  return UINT32_MAX;
}

static void put(schema_maker *m, schema_table *t, uint64_t hash, uint32_t number) {
  size_t at = slot_of(t, hash);
  for (; t->slots[at].number; at = (at + 1) & (t->room - 1)) m->work++;
  t->slots[at].hash = hash;
  t->slots[at].number = number;
  t->used++;
}

tri_status schema_table_add(schema_maker *m, schema_table *t, uint64_t hash, uint32_t number) {
  if (2 * (t->used + 1) > t->room) {
    schema_table grown = {.room = t->room ? 2 * t->room : 32};
    grown.slots = tri_arena_alloc(m->arena, grown.room, sizeof *grown.slots);
    if (!grown.slots) return TRI_NO_MEMORY;
    memset(grown.slots, 0, grown.room * sizeof *grown.slots);
    for (size_t i = 0; i < t->room; i++)
      if (t->slots[i].number) put(m, &grown, t->slots[i].hash, t->slots[i].number);
    *t = grown;
  }
  put(m, t, hash, number + 1);
  return schema_work(m, 1);
}
