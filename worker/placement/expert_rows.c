/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/placement/expert_rows.h"

#include <string.h>

#include "runtime/engine/expert_transfer.h"

static size_t num_slots(const tri_engine *e) { return (size_t)e->shard.slots.count; }
static size_t num_experts(const tri_engine *e) { return (size_t)e->model.moe.num_experts; }

void tri_expert_rows_free(tri_expert_rows *c) {
  tri_free(c->tally);
  tri_free(c->expert_of);
  tri_free(c->earlier);
  *c = (tri_expert_rows){0};
}

static bool make_room(tri_expert_rows *c, const tri_engine *e) {
  size_t layers = (size_t)e->shard.layers.count, n = layers * num_slots(e);
  if (c->tally) return true;
  c->tally = tri_calloc(n, sizeof *c->tally);
  c->expert_of = tri_calloc(n, sizeof *c->expert_of);
  c->earlier = tri_calloc(layers * num_experts(e), sizeof *c->earlier);
  if (c->tally && c->expert_of && c->earlier) return true;
  tri_expert_rows_free(c);
  return false;
}

void tri_expert_rows_ask(tri_expert_rows *c, const tri_engine *e) {
  if (atomic_load(&c->counted) || !e->model.moe.num_experts) return;
  if (atomic_load(&c->asked) || make_room(c, e)) atomic_store(&c->asked, true);
}

bool tri_expert_rows_take(tri_expert_rows *c, const tri_engine *e) {
  if (!atomic_load_explicit(&c->asked, memory_order_relaxed)) return false;
  atomic_store(&c->asked, false);
  if (tri_forward_tally(e->forward, c->tally) != TRI_OK) return false;
  tri_range layers = e->shard.layers;
  const uint64_t *earlier = tri_engine_earlier_rows(e);
  for (int l = 0; l < layers.count; l++)
    for (size_t s = 0; e->model.layer_flags[layers.first + l] & TRI_LAYER_SPARSE && s < num_slots(e); s++)
      c->expert_of[(size_t)l * num_slots(e) + s] =
          tri_expert_of_slot(e->placement, layers.first + l, e->shard.slots.first + (int)s);
  if (earlier) memcpy(c->earlier, earlier, (size_t)layers.count * num_experts(e) * sizeof *earlier);
  c->placement = tri_engine_placement(e);
  if (e->hot) c->hot = tri_hot_experts_stats(e->hot);
  atomic_store(&c->counted, true);
  return true;
}

static tri_replica_hot hot_of(const tri_expert_rows *c, const tri_engine *e) {
  const tri_hot_stats *h = &c->hot;
  return (tri_replica_hot){.slots = e->hot ? (uint64_t)e->shard.p.hot_experts : 0,
                           .rows = h->rows,
                           .device_rows = h->hot_rows,
                           .exchanges = h->exchanges};
}

/* A count of 64 bits as two numbers of the wire's arrays, which have 32: the low one first. */
static void put(uint32_t *to, size_t at, uint64_t count) {
  to[2 * at] = (uint32_t)count;
  to[2 * at + 1] = (uint32_t)(count >> 32);
}

/* Layers without experts are left out, and their numbers do not count. */
tri_status tri_expert_rows_message(const tri_expert_rows *c, const tri_engine *e, tri_arena *arena,
                                   tri_replica_experts *out) {
  tri_range layers = e->shard.layers;
  size_t own = num_slots(e), experts = num_experts(e), n = 0, most = (size_t)layers.count * own;
  uint32_t *rows = tri_arena_alloc(arena, 2 * most + 1, sizeof *rows),
           *expert_of = tri_arena_alloc(arena, most + 1, sizeof *expert_of),
           *earlier = tri_arena_alloc(arena, 2 * (size_t)layers.count * experts + 1, sizeof *earlier);
  if (!rows || !expert_of || !earlier) return TRI_NO_MEMORY;
  *out = (tri_replica_experts){.placement = c->placement,
                               .hot = hot_of(c, e),
                               .first_slot = (uint32_t)e->shard.slots.first,
                               .num_own = (uint32_t)own,
                               .num_slots = (uint32_t)tri_stage_slots(&e->model, e->shard.p)};
  for (int l = 0; l < layers.first + layers.count; l++) {
    if (!(e->model.layer_flags[l] & TRI_LAYER_SPARSE)) continue;
    *(l < layers.first ? &out->first_layer : &out->num_layers) += 1;
    if (l < layers.first) continue;
    size_t from = (size_t)(l - layers.first), told = out->num_layers - 1;
    for (size_t s = 0; s < own; s++, n++) {
      put(rows, n, c->tally[from * own + s].rows);
      expert_of[n] = (uint32_t)c->expert_of[from * own + s];
    }
    for (size_t x = 0; x < experts; x++) put(earlier, told * experts + x, c->earlier[from * experts + x]);
  }
  out->rows = rows;
  out->num_rows = 2 * n;
  out->expert_of = expert_of;
  out->num_expert_of = n;
  out->earlier = earlier;
  out->num_earlier = c->placement ? 2 * out->num_layers * experts : 0;
  return TRI_OK;
}
