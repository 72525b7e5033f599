/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a group that is lost. */
#include "coordinator/state.h"
#include "base/log.h"

/* Puts a job back to where its age has it in the queue. */
static void queue_again(tri_core *c, int64_t now, job *j) {
  group *g = &c->groups[j->group];
  if (g->jobs) g->jobs--;
  if (g->alone == j->id) g->alone = 0;
  queue_returned(c, j);
  queue_push(c, now, j);
  j->earlier_preemptions = j->preemptions;
  j->begun_here = j->at_risk = j->cut = false;
}

void jobs_queue_all_again(tri_core *c, int64_t now) {
  for (job *j = TAILQ_FIRST(&c->active); j; j = TAILQ_NEXT(j, links))
    if (j->state == JOB_ASSIGNED) queue_again(c, now, j);
}

unsigned jobs_queue_again(tri_core *c, int64_t now, uint32_t index) {
  unsigned count = 0;
  for (job *j = TAILQ_FIRST(&c->active); j; j = TAILQ_NEXT(j, links)) {
    if (j->state != JOB_ASSIGNED || j->group != index) continue;
    queue_again(c, now, j);
    count++;
  }
  return count;
}

/* Returns how jobs end that the end of the cluster takes with it. Where nobody has asked for that, the next start goes
 * on with those that the journal has, and their clients are told to come back. */
tri_status status_of_end(const tri_core *c) {
  return c->has_journal && !c->draining ? TRI_COORDINATOR_LOST : TRI_PEER_LOST;
}

/* Ends what waits: no group will come. Jobs may come, and be cancelled, until the cluster has ended: their clients hear
 * of that, and the next start has to know it. */
static void end_waiting(tri_core *c, int64_t now, const char *reason) {
  tri_error ran = {0}, queued = {0};
  bool was_ending = c->ending;
  c->ending = true;
  tri_status st = status_of_end(c);
  tri_fail(&ran, st, "", "the group that ran this job was lost: %s", reason);
  tri_fail(&queued, st, "", "the cluster is shutting down, and its last group was lost: %s", reason);
  for (job *j = TAILQ_FIRST(&c->active), *next; j; j = next) {
    next = TAILQ_NEXT(j, links);
    if (j->state == JOB_QUEUED) job_fail(c, now, j, j->runs ? &ran : &queued);
  }
  c->ending = was_ending;
}

void jobs_end_late(tri_core *c, int64_t now) {
  if (c->draining && !replay_has_hope(c)) end_waiting(c, now, c->last_loss);
}

/* Ends jobs whose third death is known, and their end is not. */
void jobs_end_poisoned(tri_core *c, int64_t now) {
  tri_error err = {0};
  tri_fail(&err, TRI_PEER_LOST, "", "three groups have died while they ran this job, which is not tried again");
  for (job *j = TAILQ_FIRST(&c->active), *next; j; j = next) {
    next = TAILQ_NEXT(j, links);
    if (replay_is_given_up(j)) job_fail(c, now, j, &err);
  }
}

void jobs_lose_group(tri_core *c, int64_t now, uint32_t index, const char *reason) {
  tri_error err = {0};
  unsigned waiting = 0;
  snprintf(c->last_loss, sizeof c->last_loss, "%s", reason);
  tri_fail(&err, TRI_PEER_LOST, "",
           "three groups have died while they ran this job, which is not tried again; the last one: %s", reason);
  replay_find_at_risk(c, index);
  for (job *j = TAILQ_FIRST(&c->active), *next; j; j = next) {
    next = TAILQ_NEXT(j, links);
    if (j->state != JOB_ASSIGNED || j->group != index) continue;
    j->deaths += j->at_risk;
    if (j->at_risk) record_died(c, j);
    if (replay_is_given_up(j)) {
      job_fail(c, now, j, &err);
      continue;
    }
    queue_again(c, now, j);
    waiting++;
  }
  if (!replay_has_hope(c))
    end_waiting(c, now, reason);
  else if (waiting)
    tri_log(TRI_LOG_INFO, "jobs", "%u jobs of group %u wait to be run again", waiting, index);
}
