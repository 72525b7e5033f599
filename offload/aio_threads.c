/* SPDX-License-Identifier: Apache-2.0 */
/* The same over threads that block in pread. Two rings under one lock, of reads that were asked for and of results.
 * Each has `depth` entries, and as the caller has no more reads than that between submit and wait, neither runs over.
 * The lock is free during pread. */
#include <errno.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "offload/aio.h"
#include "base/mem.h"
#include "base/wait.h"

enum { MAX_THREADS = 16 };

struct result {
  int tag;
  int64_t value;
};

struct threads {
  tri_aio base;
  pthread_mutex_t lock;
  pthread_cond_t asked, ended;
  tri_aio_read *reads;    /* [depth] a ring: of those asked for */
  struct result *results; /* [depth] another: of those that have ended */
  int depth, first_read, num_reads, first_result, num_results;
  bool stop;
  pthread_t thread[MAX_THREADS];
  int num_threads;
};

static void *work(void *ctx) {
  struct threads *t = ctx;
  tri_aio_leave_core();
  pthread_mutex_lock(&t->lock);
  for (;;) {
    while (!t->num_reads && !t->stop) pthread_cond_wait(&t->asked, &t->lock);
    if (t->stop) break;
    tri_aio_read r = t->reads[t->first_read];
    t->first_read = (t->first_read + 1) % t->depth;
    t->num_reads--;
    pthread_mutex_unlock(&t->lock);
    ssize_t n = pread(r.fd, r.to, r.bytes, (off_t)r.offset);
    int64_t value = n < 0 ? -errno : n;
    pthread_mutex_lock(&t->lock);
    t->results[(t->first_result + t->num_results++) % t->depth] = (struct result){r.tag, value};
    pthread_cond_signal(&t->ended);
  }
  pthread_mutex_unlock(&t->lock);
  return NULL;
}

static int threads_submit(tri_aio *a, const tri_aio_read *r) {
  struct threads *t = (struct threads *)a;
  int code = 0;
  pthread_mutex_lock(&t->lock);
  if (t->num_reads == t->depth)
    code = -EBUSY; /* more reads than was said */
  else
    t->reads[(t->first_read + t->num_reads++) % t->depth] = *r;
  pthread_cond_signal(&t->asked);
  pthread_mutex_unlock(&t->lock);
  return code;
}

/* The deadline is one of CLOCK_MONOTONIC, which the condition was made with. A result that has come by the deadline
 * counts, also where the wait says ETIMEDOUT. */
static int threads_wait(tri_aio *a, int timeout_ms, int *tag, int64_t *result) {
  struct threads *t = (struct threads *)a;
  int64_t deadline = tri_deadline_after_ms(timeout_ms);
  struct timespec until = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
  int code = 0;
  pthread_mutex_lock(&t->lock);
  while (!t->num_results && !code) code = pthread_cond_timedwait(&t->ended, &t->lock, &until);
  if (t->num_results) {
    *tag = t->results[t->first_result].tag;
    *result = t->results[t->first_result].value;
    t->first_result = (t->first_result + 1) % t->depth;
    t->num_results--;
    code = 0;
  }
  pthread_mutex_unlock(&t->lock);
  return code == ETIMEDOUT ? -ETIME : -code;
}

static void threads_destroy(tri_aio *a) {
  struct threads *t = (struct threads *)a;
  pthread_mutex_lock(&t->lock);
  t->stop = true;
  pthread_cond_broadcast(&t->asked);
  pthread_mutex_unlock(&t->lock);
  for (int i = 0; i < t->num_threads; i++) pthread_join(t->thread[i], NULL);
  pthread_cond_destroy(&t->asked);
  pthread_cond_destroy(&t->ended);
  pthread_mutex_destroy(&t->lock);
  tri_free(t->reads);
  tri_free(t->results);
  tri_free(t);
}

int tri_aio_threads_create(int depth, tri_aio **out) {
  static const tri_aio_ops ops = {threads_submit, threads_wait, threads_destroy};
  struct threads *t = tri_calloc(1, sizeof *t);
  pthread_condattr_t clock;
  if (!t) return -ENOMEM;
  t->base = (tri_aio){&ops, "threads"};
  t->depth = depth;
  pthread_mutex_init(&t->lock, NULL);
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&t->asked, NULL);
  pthread_cond_init(&t->ended, &clock);
  pthread_condattr_destroy(&clock);
  t->reads = tri_calloc((size_t)depth, sizeof *t->reads);
  t->results = tri_calloc((size_t)depth, sizeof *t->results);
  int code = t->reads && t->results ? 0 : ENOMEM;
  while (!code && t->num_threads < depth && t->num_threads < MAX_THREADS) {
    code = pthread_create(&t->thread[t->num_threads], NULL, work, t);
    if (!code) t->num_threads++;
  }
  if (t->num_threads) code = 0; /* fewer will do */
  if (code) {
    threads_destroy(&t->base);
    return -code;
  }
  *out = &t->base;
  return 0;
}
