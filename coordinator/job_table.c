/* The jobs that the coordinator knows: found by their own id, by that of the request, or by the client's, in lists of
 * those that are active and those that have ended. */
#include <string.h>

#include "coordinator/state.h"

static job **id_bucket(tri_core *c, uint64_t id) { return &c->by_id[id % NUM_BUCKETS]; }

static job **request_bucket(tri_core *c, const tri_request_id *r) {
  uint64_t h;
  memcpy(&h, r->bytes, sizeof h);
  return &c->by_request[mix64(h) % NUM_BUCKETS];
}

job *job_find(const tri_core *c, uint64_t id) {
  job *j = c->by_id[id % NUM_BUCKETS];
  while (j && j->id != id) j = j->id_chain;
  return j;
}

job *job_find_request(tri_core *c, const tri_request_id *r) {
  job *j = *request_bucket(c, r);
  while (j && memcmp(j->request_id.bytes, r->bytes, sizeof r->bytes)) j = j->request_chain;
  return j;
}

job *job_find_of_client(const tri_core *c, const tri_peer *from, uint64_t client_id) {
  const job_list *lists[] = {&c->active, &c->ended};
  for (int i = 0; i < 2; i++)
    for (job *j = lists[i]->head; j; j = j->next)
      if (j->client_id == client_id && tri_peer_equal(&j->peer, from)) return j;
  return NULL;
}

void job_free(job *j) {
  for (int64_t i = 0; i < j->sampling.n; i++) choice_free(&j->choices[i]);
  tri_free(j->stop_text);
  tri_free(j->bias);
  tri_free(j->prompt);
  tri_free(j->prompt_ids);
  tri_free(j->error);
  embed_free(j->embed);
  tri_free(j);
}

static void list_append(job_list *l, job *j) {
  j->next = NULL;
  j->prev = l->tail;
  *(l->tail ? &l->tail->next : &l->head) = j;
  l->tail = j;
}

static void list_remove(job_list *l, job *j) {
  *(j->prev ? &j->prev->next : &l->head) = j->next;
  *(j->next ? &j->next->prev : &l->tail) = j->prev;
}

void job_forget(tri_core *c, job *j) {
  job **p = id_bucket(c, j->id);
  while (*p != j) p = &(*p)->id_chain;
  *p = j->id_chain;
  p = request_bucket(c, &j->request_id);
  while (*p != j) p = &(*p)->request_chain;
  *p = j->request_chain;
  list_remove(j->state == JOB_ENDED ? &c->ended : &c->active, j);
  if (j->dirty) {
    for (p = &c->dirty; *p != j; p = &(*p)->dirty_next) {
    }
    *p = j->dirty_next;
  }
  if (j->state == JOB_ENDED)
    c->num_retained--;
  else
    c->num_active--;
  embed_release(c, j);
  job_free(j);
}

void job_enlist(tri_core *c, job *j) {
  job **p = id_bucket(c, j->id);
  j->id_chain = *p;
  *p = j;
  p = request_bucket(c, &j->request_id);
  j->request_chain = *p;
  *p = j;
  list_append(&c->active, j);
  c->num_active++;
}

void job_retire(tri_core *c, job *j) {
  list_remove(&c->active, j);
  list_append(&c->ended, j);
  c->num_active--;
  c->num_retained++;
}

void jobs_destroy(tri_core *c) {
  while (c->active.head) job_forget(c, c->active.head);
  while (c->ended.head) job_forget(c, c->ended.head);
}

void job_mark(tri_core *c, job *j) {
  if (j->dirty) return;
  j->dirty = true;
  j->dirty_next = c->dirty;
  c->dirty = j;
}
