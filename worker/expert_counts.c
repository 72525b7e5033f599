/* The rows of a rank's experts, for who asks: the step thread takes them between two steps, the control thread tells
 * them. */
#include "worker/expert_counts.h"

#include "runtime/forward/forward.h"

static size_t num_slots(const tri_engine *e) { return (size_t)e->shard.slots.count; }

void tri_expert_counts_ask(tri_worker *w) {
  if (!atomic_load(&w->loaded) || atomic_load(&w->experts_counted) || !w->engine->model.moe.num_experts) return;
  const tri_engine *e = w->engine;
  if (!w->tally) w->tally = tri_calloc((size_t)e->shard.layers.count * num_slots(e), sizeof *w->tally);
  if (w->tally) atomic_store(&w->count_experts, true);
}

void tri_expert_counts_take(tri_worker *w) {
  if (!atomic_load_explicit(&w->count_experts, memory_order_relaxed)) return;
  atomic_store(&w->count_experts, false);
  if (tri_forward_tally(w->engine->forward, w->tally) != TRI_OK) return;
  atomic_store(&w->experts_counted, true);
  tri_control_notify(w);
}

/* Layers without experts are left out, and their numbers do not count. */
tri_status tri_expert_counts_message(const tri_worker *w, tri_arena *arena, tri_group_experts *out) {
  const tri_engine *e = w->engine;
  tri_range layers = e->shard.layers;
  size_t own = num_slots(e), n = 0, most = (size_t)layers.count * own;
  uint32_t *rows = tri_arena_alloc(arena, 2 * most + 1, sizeof *rows),
           *expert_of = tri_arena_alloc(arena, most + 1, sizeof *expert_of);
  if (!rows || !expert_of) return TRI_NO_MEMORY;
  *out = (tri_group_experts){.group = (uint32_t)w->opts.group,
                             .rank = (uint32_t)w->rank,
                             .epoch = w->opts.epoch,
                             .first_slot = (uint32_t)e->shard.slots.first,
                             .num_own = (uint32_t)own,
                             .num_slots = (uint32_t)tri_stage_slots(&e->model, e->shard.p)};
  for (int l = 0; l < layers.first + layers.count; l++) {
    if (!(e->model.layer_flags[l] & TRI_LAYER_SPARSE)) continue;
    *(l < layers.first ? &out->first_layer : &out->num_layers) += 1;
    for (size_t s = 0; l >= layers.first && s < own; s++, n++) {
      uint64_t count = w->tally[(size_t)(l - layers.first) * own + s].rows;
      rows[2 * n] = (uint32_t)count;
      rows[2 * n + 1] = (uint32_t)(count >> 32);
      expert_of[n] = (uint32_t)tri_expert_of_slot(e->shard.p.placement, l, e->shard.slots.first + (int)s);
    }
  }
  out->rows = rows;
  out->num_rows = 2 * n;
  out->expert_of = expert_of;
  out->num_expert_of = n;
  return TRI_OK;
}
