/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/schedule/mask_maker.h"

#include <pthread.h>

#include "base/ring.h"

/* MOST_TASKS: a choice has one at a time; what finds no room is asked for again. */
enum { MOST_TASKS = 4096, SLEEP_NS = 500000000 };

struct tri_mask_maker {
  tri_ring ring;
  tri_waker asked;
  pthread_mutex_t lock; /* of what is to be prepared; held for pointers alone */
  tri_mask_task *first, *last;
  tri_waker to_prepare;
  tri_waker *done;
  atomic_bool stop;
  bool makes, prepares; /* threads that run */
  pthread_t maker, preparer;
};

tri_status tri_mask_maker_create(tri_waker *done, tri_mask_maker **out) {
  tri_mask_maker *m = tri_calloc(1, sizeof *m);
  if (!m) return TRI_NO_MEMORY;
  m->done = done;
  pthread_mutex_init(&m->lock, NULL);
  if (tri_ring_init(&m->ring, MOST_TASKS) != TRI_OK) {
    tri_mask_maker_destroy(m);
    return TRI_NO_MEMORY;
  }
  *out = m;
  return TRI_OK;
}

static tri_mask_task *next_to_prepare(tri_mask_maker *m) {
  pthread_mutex_lock(&m->lock);
  tri_mask_task *t = m->first;
  if (t) m->first = t->next;
  pthread_mutex_unlock(&m->lock);
  return t;
}

static void run(const tri_mask_maker *m, tri_mask_task *t) {
  t->run(t);
  if (m->done) tri_waker_wake(m->done);
}

static void make_all(tri_mask_maker *m) {
  for (tri_mask_task *t; m->ring.items && (t = tri_ring_pop(&m->ring));) run(m, t);
}

static void prepare_all(tri_mask_maker *m) {
  for (tri_mask_task *t; (t = next_to_prepare(m));) run(m, t);
}

void tri_mask_maker_run(tri_mask_maker *m) {
  prepare_all(m);
  make_all(m);
}

static void *make_main(void *arg) {
  tri_mask_maker *m = arg;
  while (!atomic_load_explicit(&m->stop, memory_order_acquire)) {
    make_all(m);
    tri_waker_sleep(&m->asked, SLEEP_NS);
  }
  return NULL;
}

static void *prepare_main(void *arg) {
  tri_mask_maker *m = arg;
  while (!atomic_load_explicit(&m->stop, memory_order_acquire)) {
    prepare_all(m);
    tri_waker_sleep(&m->to_prepare, SLEEP_NS);
  }
  return NULL;
}

tri_status tri_mask_maker_start(tri_mask_maker *m) {
  m->makes = !pthread_create(&m->maker, NULL, make_main, m);
  m->prepares = !pthread_create(&m->preparer, NULL, prepare_main, m);
  return m->makes && m->prepares ? TRI_OK : TRI_NO_MEMORY;
}

bool tri_mask_maker_ask(tri_mask_maker *m, tri_mask_task *task) {
  if (!tri_ring_push(&m->ring, task)) return false;
  tri_waker_wake(&m->asked);
  return true;
}

void tri_mask_maker_prepare(tri_mask_maker *m, tri_mask_task *task) {
  task->next = NULL;
  pthread_mutex_lock(&m->lock);
  if (m->first)
    m->last->next = task;
  else
    m->first = task;
  m->last = task;
  pthread_mutex_unlock(&m->lock);
  tri_waker_wake(&m->to_prepare);
}

void tri_mask_maker_destroy(tri_mask_maker *m) {
  if (!m) return;
  atomic_store_explicit(&m->stop, true, memory_order_release);
  tri_waker_wake(&m->asked);
  tri_waker_wake(&m->to_prepare);
  if (m->makes) pthread_join(m->maker, NULL);
  if (m->prepares) pthread_join(m->preparer, NULL);
  tri_mask_maker_run(m); /* what was asked for holds what it is part of */
  tri_ring_free(&m->ring);
  pthread_mutex_destroy(&m->lock);
  tri_free(m);
}
