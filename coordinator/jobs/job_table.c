/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs that the coordinator knows: found by their own id, by that of the request, or by the client's, in lists of
 * those that are active and those that have ended. A job is in all three tables and one of the lists from job_enlist to
 * job_forget. The tables have a fixed size: chains of a few entries at the usual limits. */
#include <string.h>

#include "coordinator/jobs/jobs_impl.h"

/* By the first half of the id. The owner is no part of the hash: it is compared in the chain. */
static struct job_chain *request_bucket(tri_core *c, const tri_request_id *r) {
  uint64_t h;
  memcpy(&h, r->bytes, sizeof h);
  return &c->jobs->by_request[mix64(h) % NUM_BUCKETS];
}

static struct job_chain *client_bucket(tri_core *c, const tri_peer *peer, uint64_t client_id) {
  return &c->jobs->by_client[mix64(tri_hash_bytes(client_id, peer->bytes, peer->len)) % NUM_BUCKETS];
}

job *job_find(const tri_core *c, uint64_t id) {
  job *j = LIST_FIRST(&c->jobs->by_id[id % NUM_BUCKETS]);
  while (j && j->id != id) j = LIST_NEXT(j, id_chain);
  return j;
}

/* A dropped job is as good as gone: forgetting it here frees its request_id for the request that asks. */
job *job_find_request(tri_core *c, const tri_peer *from, const tri_request_id *r) {
  job *j = LIST_FIRST(request_bucket(c, r));
  while (j &&
         (memcmp(j->request_id.bytes, r->bytes, sizeof r->bytes) || !tri_owner_equal(&j->peer.owner, &from->owner)))
    j = LIST_NEXT(j, request_chain);
  if (!j || !j->dropped) return j;
  job_forget(c, j);
  return NULL;
}

/* Chains begin with what was inserted last, so the first match is the newest. */
job *job_find_of_client(tri_core *c, const tri_peer *from, uint64_t client_id) {
  job *j = LIST_FIRST(client_bucket(c, from, client_id));
  while (j && (j->client_id != client_id || !tri_peer_equal(&j->peer, from) ||
               !tri_owner_equal(&j->peer.owner, &from->owner)))
    j = LIST_NEXT(j, client_chain);
  return j;
}

void job_give(tri_core *c, job *j, const tri_peer *to, uint64_t client_id) {
  LIST_REMOVE(j, client_chain);
  j->peer = *to;
  j->client_id = client_id;
  LIST_INSERT_HEAD(client_bucket(c, to, client_id), j, client_chain);
}

void job_free(job *j) {
  for (int64_t i = 0; i < j->sampling.n; i++) choice_free(&j->choices[i]);
  choice_free(&j->scored);
  tri_free(j->stop_text);
  tri_free(j->bias);
  tri_free(j->allowed);
  tri_free(j->constraint);
  tri_free(j->salt);
  tri_free(j->external_id);
  tri_free(j->prompt);
  tri_free(j->prompt_ids);
  tri_free(j->error);
  embed_free(j->embed);
  tri_free(j);
}

void job_forget(tri_core *c, job *j) {
  record_over(c, j);
  LIST_REMOVE(j, id_chain);
  LIST_REMOVE(j, request_chain);
  LIST_REMOVE(j, client_chain);
  TAILQ_REMOVE(j->state == JOB_ENDED ? &c->jobs->ended : &c->jobs->active, j, links);
  if (j->dirty) {
    job **p = &c->jobs->dirty;
    while (*p != j) p = &(*p)->dirty_next;
    *p = j->dirty_next;
  }
  c->jobs->retained -= j->retained;
  if (j->state == JOB_ENDED)
    c->jobs->num_retained--;
  else
    c->jobs->num_active--;
  embed_release(c, j);
  job_free(j);
}

void job_enlist(tri_core *c, job *j) {
  LIST_INSERT_HEAD(&c->jobs->by_id[j->id % NUM_BUCKETS], j, id_chain);
  LIST_INSERT_HEAD(request_bucket(c, &j->request_id), j, request_chain);
  LIST_INSERT_HEAD(client_bucket(c, &j->peer, j->client_id), j, client_chain);
  TAILQ_INSERT_TAIL(&c->jobs->active, j, links);
  c->jobs->num_active++;
}

size_t job_bytes(const job *j) {
  size_t bytes = block_bytes(sizeof *j + (size_t)j->sampling.n * sizeof *j->choices) + choice_bytes(&j->scored);
  size_t stops = 0;
  for (int i = 0; i < j->sampling.num_stop; i++) stops += j->sampling.stop[i].len;
  bytes += block_bytes(j->prompt_len) + block_bytes(j->salt_len) + block_bytes(stops);
  bytes += j->prompt_ids ? block_bytes(j->num_prompt * sizeof *j->prompt_ids) : 0;
  bytes += j->external_id ? block_bytes(strlen(j->external_id) + 1) : 0;
  bytes += block_bytes((size_t)j->sampling.num_logit_bias * sizeof *j->bias);
  bytes += block_bytes(j->sampling.num_allowed_token_ids * sizeof *j->allowed);
  bytes += block_bytes(tri_wire_constraint_bytes(&j->sampling.constraint));
  bytes += j->embed ? block_bytes(sizeof *j->embed) : 0;
  for (int64_t i = 0; i < j->sampling.n; i++) bytes += choice_bytes(&j->choices[i]);
  return bytes;
}

/* j->retained is kept, so that job_forget takes off exactly what was added here; until then it is 0. */
void job_retire(tri_core *c, job *j) {
  j->retained = job_bytes(j);
  c->jobs->retained += j->retained;
  TAILQ_REMOVE(&c->jobs->active, j, links);
  TAILQ_INSERT_TAIL(&c->jobs->ended, j, links);
  c->jobs->num_active--;
  c->jobs->num_retained++;
}

void job_mark(tri_core *c, job *j) {
  if (j->dirty) return;
  j->dirty = true;
  j->dirty_next = c->jobs->dirty;
  c->jobs->dirty = j;
}

/* ---- all of them ---- */

tri_status jobs_open(tri_core *c) {
  if (!(c->jobs = tri_calloc(1, sizeof *c->jobs))) return TRI_NO_MEMORY;
  TAILQ_INIT(&c->jobs->active);
  TAILQ_INIT(&c->jobs->ended);
  TRI_CHECK(embed_open(c));
  return answers_open(c);
}

void jobs_close(tri_core *c) {
  if (!c->jobs) return;
  c->restoring = true; /* nothing of this is a fact */
  while (!TAILQ_EMPTY(&c->jobs->active)) job_forget(c, TAILQ_FIRST(&c->jobs->active));
  while (!TAILQ_EMPTY(&c->jobs->ended)) job_forget(c, TAILQ_FIRST(&c->jobs->ended));
  answers_close(c);
  tri_free(c->jobs->labels);
  tri_buf_free(&c->jobs->content);
  tri_buf_free(&c->jobs->sampled);
  tri_free(c->jobs);
}

bool jobs_have_ended(const tri_core *c) { return !c->jobs->num_active; }
bool jobs_are_over(const tri_core *c) { return !c->jobs->num_active && !c->jobs->dirty && !c->jobs->has_undurable; }
uint64_t jobs_retained_bytes(const tri_core *c) { return c->jobs->retained; }

const char *jobs_full(const tri_core *c) { return c->jobs->full ? c->jobs->full : ""; }

/* ---- counts ---- */

/* Counts a job for whom it was submitted for; names beyond those that a status has are left out. */
static void count_caller(tri_cluster_status *s, const job *j, bool runs) {
  uint32_t i = 0;
  if (!j->caller[0]) return;
  while (i < s->num_callers && strcmp(s->callers[i].name.s, j->caller) != 0) i++;
  if (i == TRI_STATUS_MAX_CALLERS) return;
  if (i == s->num_callers) s->callers[s->num_callers++] = (tri_caller_status){.name = wire_str(j->caller)};
  *(runs ? &s->callers[i].running : &s->callers[i].waiting) += 1;
}

/* A job that generates runs from its first token on; an encoder's has none. */
static bool is_running(const job *j) { return j->first_token_ns || (j->embed && j->state == JOB_ASSIGNED); }

void jobs_count(const tri_core *c, uint64_t *running, uint64_t *waiting) {
  *running = *waiting = 0;
  for (const job *j = TAILQ_FIRST(&c->jobs->active); j; j = TAILQ_NEXT(j, links))
    *(is_running(j) ? running : waiting) += 1;
}

/* Connections are compared one by one, for a status is rare. Beyond 256 they are not counted. */
void jobs_report(const tri_core *c, tri_cluster_status *s) {
  const job *clients[256];
  for (const job *j = TAILQ_FIRST(&c->jobs->active); j; j = TAILQ_NEXT(j, links)) {
    bool runs = is_running(j);
    *(runs ? &s->running : &s->waiting) += 1;
    count_caller(s, j, runs);
    uint64_t i = 0;
    while (i < s->clients && !tri_peer_equal(&clients[i]->peer, &j->peer)) i++;
    if (i == s->clients && i < 256) clients[s->clients++] = j;
  }
}
