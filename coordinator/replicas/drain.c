/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a cluster: what runs may finish first (drain), or ends with an error (abandon). No new job is taken, and
 * the groups are told to leave once the last job has ended. */
#include "coordinator/state.h"

void drain_groups(tri_core *c) {
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    group *g = &c->groups[i];
    tri_group_msg m = {.op = TRI_GROUP_DRAIN};
    if (g->state != GROUP_READY && g->state != GROUP_STARTING) continue;
    g->state = GROUP_DRAINING;
    for (uint32_t r = 0; r < g->world; r++)
      if (g->ranks[r].known) c->cfg.io.to_worker(c->cfg.io.ctx, &g->ranks[r].peer, &m);
  }
}

void drain_tick(tri_core *c) {
  if (!c->draining || c->drain_sent || c->num_active) return;
  c->drain_sent = true;
  drain_groups(c);
}

/* Jobs have ended whose clients wait for the disk, which may have failed: they get the error of those that have not. */
static void end_undurable(tri_core *c, const tri_error *err) {
  for (job *j = TAILQ_FIRST(&c->ended); j; j = TAILQ_NEXT(j, links)) {
    if (!j->attached || j->done_sent || j->error || j->record <= c->durable) continue;
    if ((j->error = tri_malloc(1, sizeof *err))) *j->error = *err;
    job_mark(c, j);
  }
}

void tri_core_abandon(tri_core *c, int64_t now, const char *reason) {
  tri_error err = {0}, lost = {0};
  tri_status st = status_of_end(c);
  tri_fail(&err, st, "", "%s", reason);
  tri_fail(&lost, st, "", "%s; a group that ran this job was lost before: %s", reason, c->last_loss);
  c->draining = c->ending = true;
  /* A group leaves once it has nothing to compute. */
  for (job *j; (j = TAILQ_FIRST(&c->active));) job_cut(c, now, j, j->state == JOB_QUEUED && j->runs ? &lost : &err);
  end_undurable(c, &err);
  deliver_all(c, now);
}

bool tri_core_is_idle(const tri_core *c) { return !c->num_active && !c->dirty && !c->has_undurable; }
