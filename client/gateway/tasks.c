/* SPDX-License-Identifier: Apache-2.0 */
#include "client/gateway/tasks.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/mem.h"
#include "runtime/base/wait.h"

enum { MAX_THREADS = 64, MAX_WAITING = 1024, MAX_WAITING_BYTES = 256 << 20 };

/* First in, first out. */
typedef struct queue {
  gw_task *first, *last;
  unsigned len;
  size_t bytes; /* of their bodies */
} queue;

struct gw_tasks {
  const tri_tokenizer *tokenizer;
  pthread_mutex_t lock;
  pthread_cond_t work;
  queue waiting, ended;
  gw_task *current[MAX_THREADS]; /* by thread; NULL: it has none */
  unsigned num_started;
  bool stop;
  int fd;
  unsigned num_threads;
  pthread_t threads[MAX_THREADS];
};

static void put(queue *q, gw_task *t) {
  t->next = NULL;
  if (q->last)
    q->last->next = t;
  else
    q->first = t;
  q->last = t;
  q->len++;
  q->bytes += t->body.len;
}

static gw_task *take(queue *q) {
  gw_task *t = q->first;
  if (!t) return NULL;
  q->first = t->next;
  if (!q->first) q->last = NULL;
  q->len--;
  q->bytes -= t->body.len;
  return t;
}

/* ---- the threads ---- */

static void run(gw_task *t, tri_tokenizer_scratch *scratch) {
  if (!scratch) {
    t->st = tri_fail(&t->err, TRI_NO_MEMORY, "", "out of memory");
    return;
  }
  tri_tokenizer_scratch_stop_at(scratch, &t->stop);
  int64_t began = tri_now_ns();
  t->st = atomic_load(&t->stop) ? TRI_ABORTED : t->run(t, scratch, &t->err);
  t->took_ns = tri_now_ns() - began;
  t->err.status = t->st;
}

static void end(gw_tasks *s, gw_task *t) {
  uint64_t one = 1;
  put(&s->ended, t);
  ssize_t ignored = write(s->fd, &one, sizeof one);
  (void)ignored;
}

static void *thread_main(void *arg) {
  gw_tasks *s = arg;
  tri_tokenizer_scratch *scratch = NULL;
  if (tri_tokenizer_scratch_create(s->tokenizer, &scratch) != TRI_OK) scratch = NULL;
  pthread_mutex_lock(&s->lock);
  gw_task **current = &s->current[s->num_started++];
  while (!s->stop) {
    gw_task *t = take(&s->waiting);
    if (!t) {
      pthread_cond_wait(&s->work, &s->lock);
      continue;
    }
    *current = t;
    pthread_mutex_unlock(&s->lock);
    run(t, scratch);
    pthread_mutex_lock(&s->lock);
    *current = NULL;
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
  pthread_mutex_init(&s->lock, NULL);
  pthread_cond_init(&s->work, NULL);
  s->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  for (; s->fd >= 0 && s->num_threads < threads && s->num_threads < MAX_THREADS; s->num_threads++)
    if (pthread_create(&s->threads[s->num_threads], NULL, thread_main, s)) break;
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
  for (gw_task *t; (t = take(&s->waiting));) t->free(t);
  for (gw_task *t; (t = take(&s->ended));) t->free(t);
  if (s->fd >= 0) close(s->fd);
  pthread_cond_destroy(&s->work);
  pthread_mutex_destroy(&s->lock);
  tri_free(s);
}

int gw_tasks_fd(const gw_tasks *s) { return s->fd; }

static void finish(gw_task *t) {
  t->running = false;
  if (!t->x) return t->free(t);
  t->x->g->counts.templates++;
  t->x->g->counts.template_ns += t->took_ns;
  if (t->st == TRI_OK) return t->ready(t);
  gw_error e = gw_error_of_status(&t->err);
  gw_exchange_fail(t->x, &e);
}

void gw_tasks_take(gw_tasks *s) {
  uint64_t count;
  pthread_mutex_lock(&s->lock);
  ssize_t ignored = read(s->fd, &count, sizeof count);
  (void)ignored;
  queue ended = s->ended;
  s->ended = (queue){0};
  pthread_mutex_unlock(&s->lock);
  for (gw_task *t; (t = take(&ended));) finish(t);
}

static tri_status push(gw_tasks *s, gw_task *t) {
  pthread_mutex_lock(&s->lock);
  bool full = s->waiting.len >= MAX_WAITING || s->waiting.bytes > MAX_WAITING_BYTES;
  if (!full) put(&s->waiting, t);
  t->running = !full;
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
  return full ? TRI_AGAIN : TRI_OK;
}

void gw_task_start(gateway *g, http_conn *c, const gw_kind *kind, void *state, gw_task *t) {
  const tri_buf *body = &http_conn_request(c)->body;
  t->max_model_len = g->max_model_len;
  t->x = gw_exchange_make(g, c, kind, state, 1);
  if (!t->x) return;
  if (body->len && tri_buf_append(&t->body, body->data, body->len) != TRI_OK)
    return gw_exchange_fail(t->x, &(gw_error){503, "no_memory", "", "out of memory"});
  if (push(g->tasks, t) != TRI_OK)
    gw_exchange_fail(t->x, &(gw_error){429, "no_capacity", "", "too many prompts wait to be rendered"});
}

void gw_task_leave(gw_task *t) {
  t->x = NULL;
  if (!t->running) return t->free(t);
  atomic_store(&t->stop, true);
}
