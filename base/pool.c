/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pool.h"

#include <linux/futex.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/wait.h"

/* A word that threads wait on to change: they spin for a while, then sleep in the kernel (futex(2)). A thread that
 * changes the word wakes the sleepers, and makes no system call when there are none. */
typedef struct gate {
  _Atomic uint32_t word;
  _Atomic int sleepers;
} __attribute__((aligned(64))) gate;

/* A run: the caller writes fn and ctx, sets `pending`, and raises `start`, which releases what it has written to the
 * workers (acquire in gate_wait); each worker counts `pending` down, and the caller waits until it is 0. No mutex: a
 * step has hundreds of runs of some microseconds each. Each word that threads spin on has a cache line of its own. */
struct tri_pool {
  gate start;   /* number of the run */
  gate pending; /* threads that have not finished it */
  gate turn;    /* number of the barrier */
  _Atomic int arrived __attribute__((aligned(64)));
  void (*fn)(void *, int, int);
  void *ctx;
  int num_threads, spin_us, started;
  bool stop;
  struct worker {
    tri_pool *pool;
    pthread_t thread;
    int index, core;
  } * workers;
};

/* Returns when the word is no longer `old`, with its new value. */
static uint32_t gate_wait(gate *g, uint32_t old, int spin_us) {
  uint32_t v;
  int64_t deadline = spin_us > 0 ? tri_now_ns() + (int64_t)spin_us * 1000 : 0;
  while (deadline) {
    for (int i = 0; i < 128; i++) {
      if ((v = atomic_load_explicit(&g->word, memory_order_acquire)) != old) return v;
      tri_cpu_relax();
    }
    if (tri_now_ns() > deadline) break;
  }
  /* The count goes up before the kernel compares the word, and the waker changes the word before it reads the count:
   * with both sequentially consistent one of the two sees the other. */
  atomic_fetch_add(&g->sleepers, 1);
  while ((v = atomic_load(&g->word)) == old) syscall(SYS_futex, &g->word, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
  atomic_fetch_sub(&g->sleepers, 1);
  return v;
}

static void gate_wake(gate *g) {
  if (atomic_load(&g->sleepers)) syscall(SYS_futex, &g->word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void pin(int core) {
  if (core < 0 || core >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  (void)sched_setaffinity(0, sizeof set, &set); /* a core outside our allowance leaves the thread where it is */
}

static void *work(void *arg) {
  struct worker *w = arg;
  tri_pool *p = w->pool;
  pin(w->core);
  for (uint32_t seen = 0;;) {
    seen = gate_wait(&p->start, seen, p->spin_us);
    if (p->stop) return NULL;
    p->fn(p->ctx, w->index, p->num_threads);
    if (atomic_fetch_sub(&p->pending.word, 1) == 1) gate_wake(&p->pending);
  }
}

tri_status tri_pool_create(int num_threads, const int *cores, int spin_us, tri_pool **out) {
  if (num_threads < 1 || num_threads > 4096) return TRI_OUT_OF_RANGE;
  tri_pool *p = tri_calloc(1, sizeof *p);
  if (!p) return TRI_NO_MEMORY;
  p->num_threads = num_threads;
  p->spin_us = spin_us;
  p->workers = tri_calloc((size_t)num_threads, sizeof *p->workers);
  if (!p->workers) {
    tri_free(p);
    return TRI_NO_MEMORY;
  }
  for (int i = 1; i < num_threads; i++) {
    struct worker *w = &p->workers[i];
    *w = (struct worker){.pool = p, .index = i, .core = cores ? cores[i] : -1};
    if (pthread_create(&w->thread, NULL, work, w)) {
      tri_pool_destroy(p);
      return TRI_NO_CAPACITY;
    }
    p->started = i;
  }
  if (cores) pin(cores[0]);
  *out = p;
  return TRI_OK;
}

void tri_pool_destroy(tri_pool *p) {
  if (!p) return;
  p->stop = true;
  atomic_fetch_add(&p->start.word, 1);
  gate_wake(&p->start);
  for (int i = 1; i <= p->started; i++) pthread_join(p->workers[i].thread, NULL);
  tri_free(p->workers);
  tri_free(p);
}

int tri_pool_size(const tri_pool *p) { return p ? p->num_threads : 1; }

void tri_pool_run(tri_pool *p, void (*fn)(void *ctx, int index, int count), void *ctx) {
  if (!p || p->num_threads == 1) {
    fn(ctx, 0, 1);
    return;
  }
  p->fn = fn;
  p->ctx = ctx;
  atomic_store(&p->pending.word, (uint32_t)p->num_threads - 1);
  atomic_fetch_add(&p->start.word, 1);
  gate_wake(&p->start);
  fn(ctx, 0, p->num_threads);
  for (uint32_t left; (left = atomic_load(&p->pending.word));) gate_wait(&p->pending, left, p->spin_us);
}

/* The last thread to arrive resets the count before it raises `turn`: no thread can arrive at the next barrier before
 * that. */
void tri_pool_barrier(tri_pool *p) {
  if (!p || p->num_threads == 1) return;
  uint32_t turn = atomic_load(&p->turn.word);
  if (atomic_fetch_add(&p->arrived, 1) == p->num_threads - 1) {
    atomic_store(&p->arrived, 0);
    atomic_fetch_add(&p->turn.word, 1);
    gate_wake(&p->turn);
  } else {
    gate_wait(&p->turn, turn, p->spin_us);
  }
}
