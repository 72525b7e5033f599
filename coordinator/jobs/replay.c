/* SPDX-License-Identifier: Apache-2.0 */
/* Replays: a job whose group is lost goes back into the queue, and another group, or the next epoch of the same one,
 * goes on with it behind the tokens that have come. Its seed is fixed and a draw is keyed by seed, choice and number of
 * the token, so that the client gets what an undisturbed group would have drawn.
 *
 * A job may be what kills its group. One under which groups have died runs alone, so that it takes no other with it and
 * is not blamed for another, and is given up when that group dies, too. */
#include "coordinator/state.h"

enum { DEATHS_TO_ALONE = 2, MOST_DEATHS = 3 };

bool replay_runs_alone(const job *j) { return j->deaths >= DEATHS_TO_ALONE; }
bool replay_is_given_up(const job *j) { return j->deaths >= MOST_DEATHS; }

/* One group at a time is kept, so that the others serve the rest. */
group *replay_pick_alone(tri_core *c, const job *j, uint32_t *index) {
  group *least = group_pick(c, index);
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    group *g = &c->groups[i];
    if (g->alone && g->alone != j->id) return NULL;
    if (!g->alone || !group_takes_jobs(c, g)) continue;
    least = g;
    *index = i;
  }
  if (!least) return NULL;
  replay_release(c, j);
  least->alone = j->id;
  return least->jobs || least->clogged ? NULL : least;
}

void replay_release(tri_core *c, const job *j) {
  for (uint32_t i = 0; i < c->cfg.num_groups; i++)
    if (c->groups[i].alone == j->id) c->groups[i].alone = 0;
}

/* A supervisor begins no start during a drain: one comes then only if it was begun before. Where nobody tells of
 * starts, any group may be on its way. */
static bool may_come(const tri_core *c, const group *g) {
  if (g->state == GROUP_LOST || g->state == GROUP_ABSENT)
    return c->cfg.starts_are_told ? g->coming : g->state == GROUP_ABSENT;
  return true;
}

bool replay_has_hope(const tri_core *c) {
  if (!c->draining && !c->cfg.lost_for_good) return true;
  for (uint32_t i = 0; i < c->cfg.num_groups; i++)
    if (may_come(c, &c->groups[i])) return true;
  return false;
}
