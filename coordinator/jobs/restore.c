/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of a coordinator that ran before this one, from what it has recorded. They are made as if their clients had just
 * asked, get the tokens that they had, and wait in the queue for a group that goes on behind those. */
#include "coordinator/state.h"
#include "base/log.h"

#define ORPHAN_NS (60 * 1000000000LL)

static void put_back_times(job *j, int64_t age_ns) {
  j->submitted_ns -= age_ns;
  if (j->deadline_ns != TRI_NEVER) j->deadline_ns -= age_ns;
}

static const tri_error other_model = {
    .status = TRI_PEER_LOST,
    .message = "another model, or another tokenizer, is served here than when this job was accepted"};

static void accept(tri_core *c, int64_t now, int64_t age_ns, const tri_record *r, uint64_t number) {
  tri_peer nobody = {.owner = r->accepted.owner}; /* without a connection */
  tri_client_msg m = r->accepted.msg;
  uint64_t last = c->next_id;
  m.id = r->job;
  c->next_id = r->job - 1;
  job_submit(c, now, &nobody, &m);
  if (c->next_id < last) c->next_id = last;
  job *j = job_find(c, r->job);
  if (!j) return;
  j->attached = false;
  j->record = number;
  j->orphan_ns = now;
  j->content = (job_content){r->accepted.content.prompt, r->accepted.content.rest};
  put_back_times(j, age_ns);
  if (r->accepted.model != record_model(c)) {
    j->of_other = true;
    job_fail(c, now, j, &other_model);
  }
  if (!r->accepted.prompt.s || !j->echo) return;
  tri_free(j->prompt);
  j->prompt = NULL;
  j->prompt_len = 0;
  c->restore_failed |= !prompt_keep(j, r->accepted.prompt);
}

/* Groups of this start may be fewer than those of the one before. */
static uint32_t group_of(const tri_core *c, uint32_t group) { return group % c->cfg.num_groups; }

static void assign(tri_core *c, int64_t then, job *j, const tri_record *r) {
  if (j->state == JOB_ASSIGNED) { /* the group that it was assigned to before was lost */
    if (c->groups[j->group].jobs) c->groups[j->group].jobs--;
  } else if (j->state != JOB_QUEUED) {
    return;
  }
  queue_remove(c, j);
  j->state = JOB_ASSIGNED;
  j->group = group_of(c, r->assigned.group);
  j->epoch = r->assigned.epoch;
  j->weights_hash = r->assigned.weights_hash;
  j->assigned_ns = then;
  j->runs++;
  c->groups[j->group].jobs++;
}

static void end(tri_core *c, int64_t now, job *j, const tri_record *r) {
  j->timed_out = r->ended.timed_out;
  j->dropped = r->ended.dropped;
  if (r->ended.error)
    job_fail(c, now, j, r->ended.error);
  else
    job_abort(c, now, j);
}

tri_status tri_core_restore(tri_core *c, int64_t now, int64_t age_ns, const tri_record *r, uint64_t number) {
  job *j = r->op == TRI_RECORD_TOKENS ? NULL : job_find(c, r->job);
  c->restoring = true;
  c->restored_age_ns = age_ns;
  switch (r->op) {
  case TRI_RECORD_ACCEPTED:
    if (!j) accept(c, now, age_ns, r, number);
    break;
  case TRI_RECORD_ASSIGNED:
    if (j) assign(c, now - age_ns, j, r);
    break;
  case TRI_RECORD_DIED:
    if (j) j->deaths++;
    break;
  case TRI_RECORD_TOKENS: job_tokens(c, now, group_of(c, r->tokens.group), r->tokens.tokens); break;
  case TRI_RECORD_ENDED:
    if (j) end(c, now, j, r);
    break;
  case TRI_RECORD_OVER:
    if (j && j->state == JOB_ENDED) job_forget(c, j);
    break;
  case TRI_RECORD_WHOLE:
  case TRI_RECORD_BEGIN: break; /* the keeper takes it apart */
  }
  return c->restore_failed ? TRI_NO_MEMORY : TRI_OK;
}

void tri_core_restored(tri_core *c, int64_t now) {
  unsigned going_on = 0, ended = 0, of_other = 0;
  jobs_queue_all_again(c, now);
  c->restoring = false;
  c->restored_age_ns = 0;
  jobs_end_poisoned(c, now);
  for (job *j = TAILQ_FIRST(&c->active); j; j = TAILQ_NEXT(j, links)) going_on++;
  for (job *j = TAILQ_FIRST(&c->ended); j; j = TAILQ_NEXT(j, links)) {
    ended++;
    if (!j->of_other) continue;
    record_ended(c, j);
    admission_count(c, &other_model);
    of_other++;
  }
  c->has_journal = true;
  if (of_other)
    tri_log(TRI_LOG_WARN, "jobs", "%u jobs of the journal are another model's, and have ended with an error", of_other);
  if (going_on || ended)
    tri_log(TRI_LOG_INFO, "jobs", "of the journal %u jobs go on, and %u have ended that clients may still ask for",
            going_on, ended);
}

bool restore_is_orphan(const job *j, int64_t now) {
  return j->orphan_ns && !j->attached && j->on_disconnect == TRI_DISCONNECT_CANCEL && now - j->orphan_ns > ORPHAN_NS;
}
