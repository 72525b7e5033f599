/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's thread under the simulation's hand: it is the real one, but it and the simulation take turns, so that
 * the seed alone says when a sync begins and ends. */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "tests/sim/disk.h"

static struct {
  thread_state state;
  pthread_t thread;
  sem_t its_turn, our_turn;
  void *(*run)(void *ctx);
  void *ctx;
} it;
static _Thread_local bool is_it;

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *ctx), void *ctx);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *ctx), void *ctx);
int __real_pthread_join(pthread_t thread, void **out);
int __wrap_pthread_join(pthread_t thread, void **out);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __real_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_signal(pthread_cond_t *c);

thread_state sync_thread_state(void) { return it.state; }
bool sync_thread_is_this(void) { return is_it; }

static void take(sem_t *turn) {
  while (sem_wait(turn)) continue; /* a signal */
}

void sync_thread_run(void) {
  if (it.state == THREAD_NONE || it.state == THREAD_ENDED) return;
  sem_post(&it.its_turn);
  take(&it.our_turn);
}

static void hand_over(thread_state state) {
  it.state = state;
  sem_post(&it.our_turn);
  take(&it.its_turn);
}

void sync_thread_await_disk(void) { hand_over(THREAD_SYNCS); }

static void *begin(void *ctx) {
  (void)ctx;
  is_it = true;
  take(&it.its_turn);
  it.run(it.ctx);
  it.state = THREAD_ENDED;
  sem_post(&it.our_turn);
  return NULL;
}

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attr, void *(*run)(void *ctx), void *ctx) {
  if (!disk_mounted()) return __real_pthread_create(out, attr, run, ctx);
  sem_init(&it.its_turn, 0, 0);
  sem_init(&it.our_turn, 0, 0);
  it.state = THREAD_READY;
  it.run = run;
  it.ctx = ctx;
  int e = __real_pthread_create(out, attr, begin, NULL);
  if (e) it.state = THREAD_NONE;
  it.thread = *out;
  return e;
}

int __wrap_pthread_join(pthread_t thread, void **out) {
  if (disk_mounted())
    while (it.state != THREAD_NONE && it.state != THREAD_ENDED) sync_thread_run();
  int e = __real_pthread_join(thread, out);
  if (disk_mounted()) it.state = THREAD_NONE;
  return e;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) {
  if (!is_it) return __real_pthread_cond_wait(c, m);
  pthread_mutex_unlock(m);
  hand_over(THREAD_WAITS);
  pthread_mutex_lock(m);
  return 0;
}

int __wrap_pthread_cond_signal(pthread_cond_t *c) {
  if (!disk_mounted()) return __real_pthread_cond_signal(c);
  if (it.state == THREAD_WAITS) it.state = THREAD_READY;
  return 0;
}
