/* SPDX-License-Identifier: Apache-2.0 */
/* The records of jobs, seen from the next start: what is durable, what it needs, what is recorded anew so that it needs
 * less, and the jobs that it makes from them.
 *
 * A job that lives for long keeps all records after its first one. It is recorded anew, as one record that has all of
 * it, and what is before that is no longer needed for it once that one is durable.
 *
 * Jobs of a coordinator that ran before are made as if their clients had just asked, get the tokens that they had, and
 * wait in the queue for a replica that continues after those. */
#include "coordinator/jobs/recovery.h"

#include "coordinator/jobs/jobs_impl.h"
#include "base/log.h"

enum {
  JOBS_AT_ONCE = 64,    /* each is looked for among all */
  AT_ONCE = 1 << 20,    /* bytes of one round, but for what a single job has more */
  MOST_OF_ONE = 8 << 20 /* of a job for which there is always room in a segment and the spare */
};

/* ---- what is durable, and what is needed ---- */

/* A job has two records at most: the one that a restart would use now, and one that takes its place once it is durable
 * (moved). Returns whether any still waits for that. */
static bool settle(const tri_core *c, struct job_list *list) {
  bool left = false;
  for (job *j = TAILQ_FIRST(list); j; j = TAILQ_NEXT(j, links)) {
    if (j->moved && j->moved <= c->jobs->durable) {
      j->record = j->moved;
      j->moved = 0;
    }
    left |= j->moved != 0;
  }
  return left;
}

/* Goes over to the records that are durable now. */
static void settle_all(tri_core *c) {
  if (!c->jobs->has_moved) return;
  bool active = settle(c, &c->jobs->active), ended = settle(c, &c->jobs->ended);
  c->jobs->has_moved = active || ended;
}

/* Records up to `before` were durable already, and their jobs were marked then. */
static void mark_durable(tri_core *c, struct job_list *list, uint64_t before) {
  for (job *j = TAILQ_FIRST(list); j; j = TAILQ_NEXT(j, links)) {
    if (j->record <= before || j->accepted_sent) continue;
    if (record_is_durable(c, j)) job_mark(c, j); /* others wait for the next sync */
  }
}

void tri_core_durable(tri_core *c, int64_t now, uint64_t number) {
  uint64_t before = c->jobs->durable;
  c->jobs->durable = number;
  settle_all(c);
  if (!c->jobs->has_undurable || number <= before) return;
  c->jobs->has_undurable = false;
  mark_durable(c, &c->jobs->active, before);
  mark_durable(c, &c->jobs->ended, before);
  deliver_all(c, now);
}

static uint64_t oldest_of(const struct job_list *list, uint64_t least) {
  for (const job *j = TAILQ_FIRST(list); j; j = TAILQ_NEXT(j, links))
    if (j->record && !j->over && j->record < least) least = j->record;
  return least;
}

void tri_core_set_full(tri_core *c, const char *folder) { c->jobs->full = folder; }

uint64_t tri_core_oldest_record(const tri_core *c) {
  return oldest_of(&c->jobs->ended, oldest_of(&c->jobs->active, UINT64_MAX));
}

bool tri_core_owes(const tri_core *c) {
  if (c->ending || !TAILQ_EMPTY(&c->jobs->active)) return true;
  for (const job *j = TAILQ_FIRST(&c->jobs->ended); j; j = TAILQ_NEXT(j, links))
    if (j->record && !j->over && (!j->done_sent || !j->attached)) return true;
  return false;
}

uint64_t tri_core_record_bytes(const tri_core *c) {
  uint64_t bytes = 0;
  for (const job *j = TAILQ_FIRST(&c->jobs->active); j; j = TAILQ_NEXT(j, links))
    if (j->record) bytes += record_bytes(j);
  return bytes;
}

/* ---- jobs are recorded anew ---- */

/* A job that was recorded anew counts from there, so that the next choice is another one. */
static uint64_t place_of(const job *j) { return j->moved ? j->moved : j->record; }

/* Returns the job whose record is the oldest that is needed; NULL where nothing can be done about that one now. */
static job *oldest(const tri_core *c) {
  job *found = NULL;
  for (job *j = TAILQ_FIRST(&c->jobs->active); j; j = TAILQ_NEXT(j, links))
    if (j->record && !j->over && (!found || place_of(j) < place_of(found))) found = j;
  for (const job *j = TAILQ_FIRST(&c->jobs->ended); j && found; j = TAILQ_NEXT(j, links))
    if (j->record && !j->over && j->record < place_of(found)) found = NULL; /* for its minute */
  bool may = found && !found->moved && found->record <= c->jobs->durable && found->state >= JOB_QUEUED;
  return may ? found : NULL;
}

size_t tri_core_compact_room(const tri_core *c, uint64_t before) {
  const job *j = oldest(c);
  size_t bytes = j && j->record < before ? record_bytes(j) : 0;
  return bytes > MOST_OF_ONE ? bytes + bytes / 2 : 0;
}

void tri_core_compact(tri_core *c, int64_t now, uint64_t before, size_t room) {
  size_t bytes = 0;
  for (int i = 0; i < JOBS_AT_ONCE && bytes < AT_ONCE; i++) {
    job *j = oldest(c);
    if (!j || j->record >= before || record_bytes(j) > (room ? room : MOST_OF_ONE)) return;
    room = 0; /* it is the first one's */
    record_whole(c, now, j);
    bytes += record_bytes(j);
  }
}

void tri_core_record_again(tri_core *c, int64_t now) {
  for (job *j = TAILQ_FIRST(&c->jobs->active); j; j = TAILQ_NEXT(j, links))
    if (j->record && !j->over && j->state >= JOB_QUEUED) record_whole(c, now, j);
}

/* ---- jobs of an earlier start ---- */

bool tri_core_restore_whole(tri_core *c, uint64_t id, uint64_t number) {
  job *j = job_find(c, id);
  if (j) j->record = number; /* all before it was there as well */
  return j != NULL;
}

static void put_back_times(job *j, int64_t age_ns) {
  j->submitted_ns -= age_ns;
  if (j->deadline_ns != TRI_NEVER) j->deadline_ns -= age_ns;
}

static const tri_error other_model = {
    .status = TRI_PEER_LOST,
    .message = "another model, or another tokenizer, is served here than when this job was accepted"};

/* The job gets its former number, by next_id; no later one may get a number that was given before. */
static void accept(tri_core *c, int64_t now, int64_t age_ns, const tri_record *r, uint64_t number) {
  tri_peer nobody = {.owner = r->accepted.owner}; /* without a connection */
  tri_client_msg m = r->accepted.msg;
  uint64_t last = c->jobs->next_id;
  m.id = r->job;
  c->jobs->next_id = r->job - 1;
  job_submit(c, now, &nobody, &m);
  if (c->jobs->next_id < last) c->jobs->next_id = last;
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
  c->jobs->restore_failed |= !prompt_keep(j, r->accepted.prompt);
}

/* This start may have fewer replicas than the one before. */
static uint32_t replica_of(const tri_core *c, uint32_t replica) { return replica % c->cfg.num_replicas; }

/* A fact alone: no replica is sent anything. tri_core_restored puts all jobs that are assigned by then back into the
 * queue. */
static void assign(tri_core *c, int64_t then, job *j, const tri_record *r) {
  if (j->state == JOB_ASSIGNED) { /* the replica that it was assigned to before was lost */
    replica_left_job(c, j->replica);
  } else if (j->state != JOB_QUEUED) {
    return;
  }
  queue_remove(c, &j->part);
  j->state = JOB_ASSIGNED;
  j->replica = replica_of(c, r->assigned.replica);
  j->epoch = r->assigned.epoch;
  j->weights_hash = r->assigned.weights_hash;
  j->assigned_ns = then;
  j->runs++;
  replica_got_job(c, j->replica, then);
}

/* job_fail with the error that was recorded; without one the job was cancelled, or its deadline had passed. */
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
  c->jobs->restored_age_ns = age_ns;
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
  case TRI_RECORD_TOKENS: job_tokens(c, now, replica_of(c, r->tokens.replica), r->tokens.tokens); break;
  case TRI_RECORD_ENDED:
    if (j) end(c, now, j, r);
    break;
  case TRI_RECORD_OVER:
    if (j && j->state == JOB_ENDED) job_forget(c, j);
    break;
  case TRI_RECORD_WHOLE:
  case TRI_RECORD_BEGIN: break; /* the recorder takes it apart */
  }
  return c->jobs->restore_failed ? TRI_NO_MEMORY : TRI_OK;
}

/* Ends are facts of this start once `restoring` is false, and recorded: of jobs under which too many replicas have
 * died, and of those for another model. */
void tri_core_restored(tri_core *c, int64_t now) {
  unsigned going_on = 0, ended = 0, of_other = 0;
  jobs_queue_all_again(c, now);
  c->restoring = false;
  c->jobs->restored_age_ns = 0;
  jobs_end_poisoned(c, now);
  for (job *j = TAILQ_FIRST(&c->jobs->active); j; j = TAILQ_NEXT(j, links)) going_on++;
  for (job *j = TAILQ_FIRST(&c->jobs->ended); j; j = TAILQ_NEXT(j, links)) {
    ended++;
    if (!j->of_other) continue;
    record_ended(c, j);
    admission_count(c, &other_model);
    of_other++;
  }
  c->jobs->has_journal = true;
  if (of_other)
    tri_log(TRI_LOG_WARN, "jobs", "%u jobs of the journal were for another model: they ended with an error", of_other);
  if (going_on || ended)
    tri_log(TRI_LOG_INFO, "jobs",
            "%u jobs of the journal continue; the answers of %u ended ones are kept for their clients", going_on,
            ended);
}
