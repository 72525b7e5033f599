/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a rank's experts, for who asks: the step thread takes them between two steps, the control thread tells
 * them. */
#include "worker/placement/expert_counts.h"

#include <string.h>

#include "runtime/engine/expert_transfer.h"

static size_t num_slots(const tri_engine *e) { return (size_t)e->shard.slots.count; }
static size_t num_experts(const tri_engine *e) { return (size_t)e->model.moe.num_experts; }

void tri_expert_counts_forget(tri_worker *w) {
  tri_free(w->experts.tally);
  tri_free(w->experts.expert_of);
  tri_free(w->experts.earlier);
  w->experts = (tri_expert_snapshot){0};
}

static bool make_room(tri_worker *w) {
  const tri_engine *e = w->engine;
  size_t layers = (size_t)e->shard.layers.count, n = layers * num_slots(e);
  if (w->experts.tally) return true;
  w->experts = (tri_expert_snapshot){.tally = tri_calloc(n, sizeof *w->experts.tally),
                                     .expert_of = tri_calloc(n, sizeof *w->experts.expert_of),
                                     .earlier = tri_calloc(layers * num_experts(e), sizeof *w->experts.earlier)};
  if (w->experts.tally && w->experts.expert_of && w->experts.earlier) return true;
  tri_expert_counts_forget(w);
  return false;
}

void tri_expert_counts_ask(tri_worker *w) {
  if (!atomic_load(&w->loaded) || atomic_load(&w->experts_counted) || !w->engine->model.moe.num_experts) return;
  if (atomic_load(&w->count_experts) || make_room(w)) atomic_store(&w->count_experts, true);
}

void tri_expert_counts_take(tri_worker *w) {
  tri_expert_snapshot *to = &w->experts;
  const tri_engine *e = w->engine;
  if (!atomic_load_explicit(&w->count_experts, memory_order_relaxed)) return;
  atomic_store(&w->count_experts, false);
  if (tri_forward_tally(e->forward, to->tally) != TRI_OK) return;
  tri_range layers = e->shard.layers;
  const uint64_t *earlier = tri_engine_earlier_rows(e);
  for (int l = 0; l < layers.count; l++)
    for (size_t s = 0; e->model.layer_flags[layers.first + l] & TRI_LAYER_SPARSE && s < num_slots(e); s++)
      to->expert_of[(size_t)l * num_slots(e) + s] =
          tri_expert_of_slot(e->placement, layers.first + l, e->shard.slots.first + (int)s);
  if (earlier) memcpy(to->earlier, earlier, (size_t)layers.count * num_experts(e) * sizeof *earlier);
  to->placement = tri_engine_placement(e);
  if (e->hot) to->hot = tri_hot_experts_stats(e->hot);
  atomic_store(&w->experts_counted, true);
  tri_control_notify(w);
}

static tri_group_hot hot_of(const tri_worker *w) {
  const tri_hot_stats *h = &w->experts.hot;
  return (tri_group_hot){.slots = w->engine->hot ? (uint64_t)w->engine->shard.p.hot_experts : 0,
                         .rows = h->rows,
                         .device_rows = h->hot_rows,
                         .exchanges = h->exchanges};
}

static void put(uint32_t *to, size_t at, uint64_t count) {
  to[2 * at] = (uint32_t)count;
  to[2 * at + 1] = (uint32_t)(count >> 32);
}

/* Layers without experts are left out, and their numbers do not count. */
tri_status tri_expert_counts_message(const tri_worker *w, tri_arena *arena, tri_group_experts *out) {
  const tri_engine *e = w->engine;
  tri_range layers = e->shard.layers;
  size_t own = num_slots(e), experts = num_experts(e), n = 0, most = (size_t)layers.count * own;
  uint32_t *rows = tri_arena_alloc(arena, 2 * most + 1, sizeof *rows),
           *expert_of = tri_arena_alloc(arena, most + 1, sizeof *expert_of),
           *earlier = tri_arena_alloc(arena, 2 * (size_t)layers.count * experts + 1, sizeof *earlier);
  if (!rows || !expert_of || !earlier) return TRI_NO_MEMORY;
  *out = (tri_group_experts){.group = (uint32_t)w->opts.group,
                             .rank = (uint32_t)w->rank,
                             .epoch = w->opts.epoch,
                             .placement = w->experts.placement,
                             .hot = hot_of(w),
                             .first_slot = (uint32_t)e->shard.slots.first,
                             .num_own = (uint32_t)own,
                             .num_slots = (uint32_t)tri_stage_slots(&e->model, e->shard.p)};
  for (int l = 0; l < layers.first + layers.count; l++) {
    if (!(e->model.layer_flags[l] & TRI_LAYER_SPARSE)) continue;
    *(l < layers.first ? &out->first_layer : &out->num_layers) += 1;
    if (l < layers.first) continue;
    size_t from = (size_t)(l - layers.first), told = out->num_layers - 1;
    for (size_t s = 0; s < own; s++, n++) {
      put(rows, n, w->experts.tally[from * own + s].rows);
      expert_of[n] = (uint32_t)w->experts.expert_of[from * own + s];
    }
    for (size_t x = 0; x < experts; x++) put(earlier, told * experts + x, w->experts.earlier[from * experts + x]);
  }
  out->rows = rows;
  out->num_rows = 2 * n;
  out->expert_of = expert_of;
  out->num_expert_of = n;
  out->earlier = earlier;
  out->num_earlier = w->experts.placement ? 2 * out->num_layers * experts : 0;
  return TRI_OK;
}
