/* SPDX-License-Identifier: Apache-2.0 */
/* The replica groups that the coordinator knows: found by number and epoch, by their leader, or as the one that gets
 * the next job. */
#include "coordinator/state.h"

group *group_find(tri_core *c, uint32_t index, uint64_t epoch) {
  group *g = index < c->cfg.num_groups ? &c->groups[index] : NULL;
  return g && g->epoch == epoch && g->state != GROUP_ABSENT && g->state != GROUP_LOST ? g : NULL;
}

bool group_is_key_of(const tri_core *c, uint32_t index, uint32_t rank, const tri_peer *from) {
  const tri_core_config *own = &c->cfg;
  if (from->owner.kind != TRI_OWNER_KEY || index >= own->num_groups || rank >= own->group_ranks) return false;
  return !memcmp(own->rank_keys[(size_t)index * own->group_ranks + rank], from->owner.bytes, TRI_OWNER_BYTES);
}

/* A connection's name may be another's once that has ended; its key may not. */
static bool is_of_rank(const tri_core *c, uint32_t index, uint32_t rank, const tri_peer *from) {
  const group *g = &c->groups[index];
  return rank < g->world && g->ranks[rank].known && tri_peer_equal(&g->ranks[rank].peer, from) &&
         group_is_key_of(c, index, rank, from);
}

bool group_has_rank(tri_core *c, uint32_t index, uint64_t epoch, uint32_t rank, const tri_peer *from) {
  return group_find(c, index, epoch) && is_of_rank(c, index, rank, from);
}

bool group_find_led_by(const tri_core *c, const tri_peer *from, uint32_t *index) {
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    if (!is_of_rank(c, i, 0, from)) continue;
    *index = i;
    return true;
  }
  return false;
}

bool group_is_watched(const tri_core *c, const group *g) {
  if (g->state == GROUP_ABSENT || g->state == GROUP_LOST) return false;
  return !(g->state == GROUP_DRAINING && !g->jobs && c->draining); /* its ranks are leaving */
}

bool group_takes_jobs(const tri_core *c, const group *g) {
  if (g->died_ns) return false;
  return g->state == GROUP_READY || (g->state == GROUP_DRAINING && c->draining && !c->drain_sent);
}

static group *pick(const tri_core *c, uint32_t *index, bool kept_too) {
  group *best = NULL;
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    group *g = &c->groups[i];
    if (!group_takes_jobs(c, g) || (g->alone && !kept_too) || (best && best->jobs <= g->jobs)) continue;
    best = g;
    *index = i;
  }
  return best;
}

group *group_pick(const tri_core *c, uint32_t *index) { return pick(c, index, true); }
group *group_pick_shared(const tri_core *c, uint32_t *index) { return pick(c, index, false); }
