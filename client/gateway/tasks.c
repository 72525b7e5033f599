/* SPDX-License-Identifier: Apache-2.0 */
/* One lock has both queues, the room and what each thread works on. What a task's run uses and writes belongs to the
 * loop until the task is pushed and after it was taken from `ended`, and to a thread in between; `x` and `running` are
 * the loop's throughout, and `stop`, which both use, is atomic. A descriptor wakes the loop, which takes a few ended
 * tasks at a time.
 *
 * A long body does not hold up short ones: of two or more threads one is always left for bodies that are not long.
 *
 *   gw_task_start -> waiting -> a thread's run -> ended -> finish -> ready, or an error, or freed if the client has
 * gone
 *               \-> short and plain: run and finish at once, in the loop */
#include "client/gateway/task_queue.h"
#include "client/gateway/task_room.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/wait.h"

enum {
  MAX_THREADS = 64,
  MAX_WAITING = 2048,
  MAX_WAITING_BYTES = 256 << 20,
  ENDED_AT_ONCE = 16, /* before the loop looks at its sockets again */
  SHORT_BODY = 4096,  /* what is read of it takes less than a thread's waking up */
};

struct gw_tasks {
  const tri_tokenizer *tokenizer;
  pthread_mutex_t lock;
  pthread_cond_t work;
  gw_task_queue waiting, ended;
  gw_task_room room;
  gw_task *current[MAX_THREADS];  /* by thread; NULL: it has none */
  unsigned num_started, num_long; /* threads; of them with a long body */
  bool stop;
  int fd;
  unsigned num_threads;
  pthread_t threads[MAX_THREADS];
};

static bool keep(gw_tasks *s, gw_task *t, size_t bytes) {
  pthread_mutex_lock(&s->lock);
  bool has_room = gw_task_room_set(&s->room, t, bytes);
  pthread_mutex_unlock(&s->lock);
  return has_room;
}

tri_status gw_task_keep(gw_task *t, size_t bytes, tri_error *err) {
  if (!t->tasks || keep(t->tasks, t, bytes)) return TRI_OK;
  return tri_fail(err, TRI_NO_MEMORY, "",
                  "no memory for the request's %zu bytes: those that have no answer yet may keep %d MiB together",
                  bytes, GW_MAX_KEPT_REQUESTS >> 20);
}

size_t gw_tasks_kept(gw_tasks *s) {
  pthread_mutex_lock(&s->lock);
  size_t bytes = s->room.bytes;
  pthread_mutex_unlock(&s->lock);
  return bytes;
}

/* Frees the state of a task that no thread has. */
static void drop(gw_task *t) {
  if (t->tasks) keep(t->tasks, t, 0);
  t->free(t);
}

/* ---- the threads ---- */

static void run(gw_task *t, tri_tokenizer_scratch *scratch) {
  if (!t->plain && !scratch) {
    t->st = tri_fail(&t->err, TRI_NO_MEMORY, "", "out of memory");
    return;
  }
  if (scratch) tri_tokenizer_scratch_stop_at(scratch, &t->stop);
  int64_t began = tri_now_ns();
  t->st = atomic_load(&t->stop) ? TRI_ABORTED : t->run(t, scratch, &t->err);
  t->took_ns = tri_now_ns() - began;
  tri_buf_free(&t->body);
  t->err.status = t->st;
}

static void end(gw_tasks *s, gw_task *t) {
  uint64_t one = 1;
  gw_task_queue_put(&s->ended, t);
  ssize_t ignored = write(s->fd, &one, sizeof one);
  (void)ignored;
}

static void *thread_main(void *arg) {
  gw_tasks *s = arg;
  tri_tokenizer_scratch *scratch = NULL;
  if (s->tokenizer && tri_tokenizer_scratch_create(s->tokenizer, &scratch) != TRI_OK) scratch = NULL;
  pthread_mutex_lock(&s->lock);
  gw_task **current = &s->current[s->num_started++];
  while (!s->stop) {
    bool one_is_left = s->num_threads < 2 || s->num_long + 1 < s->num_threads;
    gw_task *t = gw_task_queue_take(&s->waiting, !one_is_left);
    if (!t) {
      pthread_cond_wait(&s->work, &s->lock);
      continue;
    }
    *current = t;
    bool is_one = gw_task_is_long(t);
    s->num_long += is_one;
    pthread_mutex_unlock(&s->lock);
    run(t, scratch);
    pthread_mutex_lock(&s->lock);
    *current = NULL;
    s->num_long -= is_one;
    end(s, t);
  }
  pthread_mutex_unlock(&s->lock);
  tri_tokenizer_scratch_destroy(scratch);
  return NULL;
}

/* ---- the loop's side ---- */

tri_status gw_tasks_open(const tri_tokenizer *tokenizer, unsigned threads, gw_tasks **out) {
  gw_tasks *s = tri_calloc(1, sizeof *s);
  if (!s) return TRI_NO_MEMORY;
  s->tokenizer = tokenizer;
  s->waiting = (gw_task_queue){.max_len = MAX_WAITING, .max_bytes = MAX_WAITING_BYTES};
  s->room.max_bytes = GW_MAX_KEPT_REQUESTS;
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->work, NULL);
  s->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  pthread_mutex_lock(&s->lock); /* they look at the number of them */
  for (; s->fd >= 0 && s->num_threads < threads && s->num_threads < MAX_THREADS; s->num_threads++)
    if (pthread_create(&s->threads[s->num_threads], NULL, thread_main, s)) break;
  pthread_mutex_unlock(&s->lock);
  if (s->num_threads) {
    *out = s;
    return TRI_OK;
  }
  gw_tasks_close(s);
  return TRI_NO_MEMORY;
}

void gw_tasks_close(gw_tasks *s) {
  if (!s) return;
  pthread_mutex_lock(&s->lock);
  s->stop = true;
  for (unsigned i = 0; i < s->num_started; i++)
    if (s->current[i]) atomic_store(&s->current[i]->stop, true);
  pthread_cond_broadcast(&s->work);
  pthread_mutex_unlock(&s->lock);
  for (unsigned i = 0; i < s->num_threads; i++) pthread_join(s->threads[i], NULL);
  for (gw_task *t; (t = gw_task_queue_take(&s->waiting, false));) drop(t);
  for (gw_task *t; (t = gw_task_queue_take(&s->ended, false));) drop(t);
  if (s->fd >= 0) close(s->fd);
  pthread_cond_destroy(&s->work);
  pthread_mutex_destroy(&s->lock);
  tri_free(s);
}

int gw_tasks_fd(const gw_tasks *s) { return s->fd; }

static void finish(gw_task *t) {
  t->running = false;
  if (!t->x) return drop(t);
  if (!t->plain) {
    t->x->g->counts.templates++;
    t->x->g->counts.template_ns += t->took_ns;
  }
  if (t->st == TRI_OK) return t->ready(t);
  oai_error e = oai_error_of_status(&t->err);
  gw_exchange_fail(t->x, &e);
}

void gw_tasks_take(gw_tasks *s) {
  uint64_t count;
  gw_task_queue ended = {0};
  pthread_mutex_lock(&s->lock);
  for (gw_task *t; ended.len < ENDED_AT_ONCE && (t = gw_task_queue_take(&s->ended, false));)
    gw_task_queue_put(&ended, t);
  ssize_t ignored = s->ended.first ? 0 : read(s->fd, &count, sizeof count); /* it stays readable for the others */
  (void)ignored;
  pthread_mutex_unlock(&s->lock);
  for (gw_task *t; (t = gw_task_queue_take(&ended, false));) finish(t);
}

static tri_status push(gw_tasks *s, gw_task *t) {
  pthread_mutex_lock(&s->lock);
  t->running = gw_task_queue_up(&s->waiting, t);
  bool full = !t->running;
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
  return full ? TRI_AGAIN : TRI_OK;
}

void gw_task_start(gateway *g, http_conn *c, const gw_kind *kind, void *state, gw_task *t) {
  t->max_model_len = g->max_model_len;
  gw_exchange *x = gw_exchange_make(g, c, kind, state);
  if (!x) return; /* the task is gone, too */
  t->x = x;
  t->tasks = g->tasks;
  snprintf(t->client, sizeof t->client, "%s", x->caller);
  http_conn_take_body(c, &t->body);
  if (t->plain && t->body.len <= SHORT_BODY) {
    run(t, NULL);
    return finish(t);
  }
  if (push(g->tasks, t) != TRI_OK)
    gw_exchange_fail(x,
                     &(oai_error){429, "no_capacity", "", "too many requests wait to be read, or for their prompts"});
}

/* A task that waits, or that a thread has, stays until it has ended: gw_tasks_take frees it then. */
void gw_task_leave(gw_task *t) {
  t->x = NULL;
  if (!t->running) return drop(t);
  atomic_store(&t->stop, true);
}
