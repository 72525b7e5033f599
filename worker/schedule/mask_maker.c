/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/schedule/mask_maker.h"

#include <pthread.h>

#include "base/ring.h"

/* MOST_TASKS: a choice has one at a time; what finds no room is asked for again. */
enum { MOST_TASKS = 4096, SLEEP_NS = 500000000 };

struct tri_mask_maker {
  tri_ring ring;
  tri_waker asked;
  tri_waker *done;
  atomic_bool stop;
  bool started;
  pthread_t thread;
};

tri_status tri_mask_maker_create(tri_waker *done, tri_mask_maker **out) {
  tri_mask_maker *m = tri_calloc(1, sizeof *m);
  if (!m) return TRI_NO_MEMORY;
  m->done = done;
  if (tri_ring_init(&m->ring, MOST_TASKS) != TRI_OK) {
    tri_free(m);
    return TRI_NO_MEMORY;
  }
  *out = m;
  return TRI_OK;
}

void tri_mask_maker_run(tri_mask_maker *m) {
  for (tri_mask_task *t; (t = tri_ring_pop(&m->ring));) {
    t->run(t);
    if (m->done) tri_waker_wake(m->done);
  }
}

static void *thread_main(void *arg) {
  tri_mask_maker *m = arg;
  while (!atomic_load_explicit(&m->stop, memory_order_acquire)) {
    tri_mask_maker_run(m);
    tri_waker_sleep(&m->asked, SLEEP_NS);
  }
  return NULL;
}

tri_status tri_mask_maker_start(tri_mask_maker *m) {
  if (pthread_create(&m->thread, NULL, thread_main, m)) return TRI_NO_MEMORY;
  m->started = true;
  return TRI_OK;
}

bool tri_mask_maker_ask(tri_mask_maker *m, tri_mask_task *task) {
  if (!tri_ring_push(&m->ring, task)) return false;
  tri_waker_wake(&m->asked);
  return true;
}

void tri_mask_maker_destroy(tri_mask_maker *m) {
  if (!m) return;
  atomic_store_explicit(&m->stop, true, memory_order_release);
  tri_waker_wake(&m->asked);
  if (m->started) pthread_join(m->thread, NULL);
  tri_mask_maker_run(m); /* what was asked for holds what it is part of */
  tri_ring_free(&m->ring);
  tri_free(m);
}
