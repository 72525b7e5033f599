/* SPDX-License-Identifier: Apache-2.0 */
/* One lock for the queue and the results; it is held for pointers alone, never while a text is tokenized. The loop
 * learns of results by an eventfd. A text that is not wanted any more is stopped by its own flag, which the tokenizer
 * looks at between two words, and comes out as a result all the same: each push has one result. */
#include "coordinator/jobs/tokenize_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "runtime/grammar/schema.h"

enum { MAX_THREADS = 64, MOST_POINTER = 80 };

TAILQ_HEAD(texts, tri_tokenized);

/* A connection with texts that wait. */
struct client {
  TAILQ_ENTRY(client) links;
  tri_peer peer;
  struct texts texts; /* never empty */
};
TAILQ_HEAD(clients, client);

struct tri_tokenize_pool {
  const tri_tokenizer *tokenizer;
  tri_tokenizer_scratch *scratch; /* of tri_tokenize_pool_now */
  size_t max_tokens, max_waiting, num_waiting;
  pthread_mutex_t lock;
  pthread_cond_t work;
  struct clients clients; /* in the order of their turns */
  struct texts out;
  tri_tokenized *running[MAX_THREADS]; /* by thread; NULL: it has none */
  int num_running;
  bool stop;
  int fd, num_threads;
  pthread_t threads[MAX_THREADS];
};

/* ---- what waits ---- */

/* Connections with texts that wait are few; one is found by a walk. */
static struct client *client_of(tri_tokenize_pool *p, const tri_peer *peer) {
  struct client *c = TAILQ_FIRST(&p->clients);
  while (c && !tri_peer_equal(&c->peer, peer)) c = TAILQ_NEXT(c, links);
  if (c || !(c = tri_calloc(1, sizeof *c))) return c;
  c->peer = *peer;
  TAILQ_INIT(&c->texts);
  TAILQ_INSERT_TAIL(&p->clients, c, links);
  return c;
}

static tri_status enqueue(tri_tokenize_pool *p, const tri_peer *from, tri_tokenized *r) {
  if (p->num_waiting >= p->max_waiting) return TRI_AGAIN;
  struct client *c = client_of(p, from);
  if (!c) return TRI_NO_MEMORY;
  TAILQ_INSERT_TAIL(&c->texts, r, links);
  p->num_waiting++;
  return TRI_OK;
}

/* A client leaves with its last text, so the list has none without any. */
static void take_out(tri_tokenize_pool *p, struct client *c, tri_tokenized *r) {
  TAILQ_REMOVE(&c->texts, r, links);
  p->num_waiting--;
  if (!TAILQ_EMPTY(&c->texts)) return;
  TAILQ_REMOVE(&p->clients, c, links);
  tri_free(c);
}

/* Returns the text whose turn it is, after whose client all others come next; NULL: none waits. */
static tri_tokenized *dequeue(tri_tokenize_pool *p) {
  struct client *c = TAILQ_FIRST(&p->clients);
  if (!c) return NULL;
  tri_tokenized *r = TAILQ_FIRST(&c->texts);
  TAILQ_REMOVE(&p->clients, c, links);
  TAILQ_INSERT_TAIL(&p->clients, c, links);
  take_out(p, c, r);
  return r;
}

/* With the lock held. A write to an eventfd fails only where its count is at the limit, and then it can be read anyway.
 */
static void put_out(tri_tokenize_pool *p, tri_tokenized *r) {
  uint64_t one = 1;
  TAILQ_INSERT_TAIL(&p->out, r, links);
  ssize_t ignored = write(p->fd, &one, sizeof one);
  (void)ignored;
}

/* Gives up a job's text, if it waits. */
static void drop(tri_tokenize_pool *p, uint64_t job) {
  for (struct client *c = TAILQ_FIRST(&p->clients); c; c = TAILQ_NEXT(c, links))
    for (tri_tokenized *r = TAILQ_FIRST(&c->texts); r; r = TAILQ_NEXT(r, links)) {
      if (r->job != job) continue;
      take_out(p, c, r);
      r->status = TRI_ABORTED;
      put_out(p, r);
      return;
    }
}

/* ---- the threads ---- */

static tri_status encode(const tri_tokenize_pool *p, tri_tokenizer_scratch *scratch, const tri_core_text *t,
                         const uint32_t **ids, size_t *count, size_t *second) {
  const tri_wire_str *a = &t->text, *b = &t->pair;
  *second = 0;
  if (t->truncate_to && t->keep_end)
    return tri_tokenizer_encode_end(p->tokenizer, scratch, a->s, a->len, t->special, t->truncate_to, ids, count);
  if (t->truncate_to)
    return tri_tokenizer_encode_truncated(p->tokenizer, scratch, a->s, a->len, b->s, b->len, t->truncate_to, ids, count,
                                          second);
  return b->s ? tri_tokenizer_encode_pair(p->tokenizer, scratch, a->s, a->len, b->s, b->len, p->max_tokens, ids, count,
                                          second)
              : tri_tokenizer_encode(p->tokenizer, scratch, a->s, a->len, t->special, p->max_tokens, ids, count);
}

/* Returns whether a job's schema can be kept; else r->why has the field of the request, with the pointer to the place
 * in the schema after it. The network is made for that alone: the replica that gets the job makes its own. */
static bool keeps_schema(tri_tokenized *r) {
  tri_net *net;
  tri_error err = {0};
  const tri_wire_frame *f = &r->in.frame;
  const tri_schema_frame frame = {f->begin.s,       f->separator.s, f->end.s,          f->begin.len,
                                  f->separator.len, f->end.len,     f->most + !f->most};
  const tri_schema_options options = {.frame = &frame};
  if (!r->in.schema.s) return true;
  tri_status st = tri_schema_compile_text(r->in.schema.s, r->in.schema.len, &options, &net, &err);
  if (st == TRI_OK) {
    tri_net_destroy(net);
    return true;
  }
  r->status = tri_fail(&r->why, st, "constraint", "%s", err.message[0] ? err.message : tri_status_text(st));
  bool long_one = strlen(err.field) > MOST_POINTER; /* its end tells more than its beginning */
  const char *pointer = long_one ? err.field + strlen(err.field) - MOST_POINTER : err.field;
  snprintf(r->why.field, sizeof r->why.field, "constraint%s%.*s", long_one ? "..." : "", MOST_POINTER, pointer);
  return false;
}

static void tokenize(const tri_tokenize_pool *p, tri_tokenizer_scratch *scratch, tri_tokenized *r) {
  const uint32_t *ids = r->in.ids;
  if (!keeps_schema(r)) return;
  tri_tokenizer_scratch_stop_at(scratch, &r->stop);
  r->count = r->in.num_ids;
  r->status = r->in.text.s ? encode(p, scratch, &r->in, &ids, &r->count, &r->second) : TRI_OK;
  if (r->status != TRI_OK) return;
  r->ids = tri_malloc(r->count, sizeof *ids);
  if (!r->ids)
    r->status = TRI_NO_MEMORY;
  else if (r->count) /* without tokens ids may be NULL */
    memcpy(r->ids, ids, r->count * sizeof *ids);
}

static void *thread_main(void *arg) {
  tri_tokenize_pool *p = arg;
  tri_tokenizer_scratch *scratch = NULL;
  tri_status ready = tri_tokenizer_scratch_create(p->tokenizer, &scratch);
  pthread_mutex_lock(&p->lock);
  tri_tokenized **running = &p->running[p->num_running++];
  while (!p->stop) {
    tri_tokenized *r = dequeue(p);
    if (!r) {
      pthread_cond_wait(&p->work, &p->lock);
      continue;
    }
    *running = r;
    pthread_mutex_unlock(&p->lock);
    r->status = ready;
    if (ready == TRI_OK) tokenize(p, scratch, r);
    pthread_mutex_lock(&p->lock);
    *running = NULL;
    put_out(p, r);
  }
  pthread_mutex_unlock(&p->lock);
  tri_tokenizer_scratch_destroy(scratch);
  return NULL;
}

tri_status tri_tokenize_pool_create(const tri_tokenizer *t, int threads, size_t max_tokens, size_t max_waiting,
                                    tri_tokenize_pool **out) {
  tri_tokenize_pool *p = tri_calloc(1, sizeof *p);
  if (!p) return TRI_NO_MEMORY;
  p->tokenizer = t;
  p->max_tokens = max_tokens;
  p->max_waiting = max_waiting;
  TAILQ_INIT(&p->clients);
  TAILQ_INIT(&p->out);
  pthread_mutex_init(&p->lock, NULL);
  pthread_cond_init(&p->work, NULL);
  p->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  for (; p->fd >= 0 && p->num_threads < threads && p->num_threads < MAX_THREADS; p->num_threads++)
    if (pthread_create(&p->threads[p->num_threads], NULL, thread_main, p)) break;
  if (p->num_threads < 1 || tri_tokenizer_scratch_create(t, &p->scratch) != TRI_OK) {
    tri_tokenize_pool_destroy(p);
    return TRI_NO_MEMORY;
  }
  *out = p;
  return TRI_OK;
}

void tri_tokenize_pool_destroy(tri_tokenize_pool *p) {
  if (!p) return;
  pthread_mutex_lock(&p->lock);
  p->stop = true;
  for (int i = 0; i < p->num_running; i++)
    if (p->running[i]) p->running[i]->stop = true;
  pthread_cond_broadcast(&p->work);
  pthread_mutex_unlock(&p->lock);
  for (int i = 0; i < p->num_threads; i++) pthread_join(p->threads[i], NULL);
  for (tri_tokenized *r; (r = dequeue(p));) tri_tokenized_free(r);
  for (tri_tokenized *r; (r = TAILQ_FIRST(&p->out)); tri_tokenized_free(r)) TAILQ_REMOVE(&p->out, r, links);
  if (p->fd >= 0) close(p->fd);
  tri_tokenizer_scratch_destroy(p->scratch);
  pthread_cond_destroy(&p->work);
  pthread_mutex_destroy(&p->lock);
  tri_free(p);
}

/* Copies a text to *at, and moves that to its end. */
static tri_wire_str copy_text(char **at, tri_wire_str s) {
  tri_wire_str copy = {s.s ? *at : NULL, s.len};
  if (s.len) memcpy(*at, s.s, s.len);
  *at += s.len;
  return copy;
}

tri_status tri_tokenize_pool_push(tri_tokenize_pool *p, uint64_t job, const tri_core_text *t) {
  static const tri_peer nobody;
  size_t texts = t->text.len + t->pair.len + t->schema.len, ids = t->text.s ? 0 : t->num_ids * sizeof *t->ids;
  texts += t->frame.begin.len + t->frame.separator.len + t->frame.end.len;
  tri_tokenized *r = tri_malloc(sizeof *r + ids + texts, 1); /* all came in one message */
  if (!r) return TRI_NO_MEMORY;
  memset(r, 0, sizeof *r);
  r->job = job;
  r->in = *t;
  r->in.from = NULL; /* it may go */
  if (ids) memcpy(r->room, t->ids, ids);
  r->in.ids = r->room;
  char *at = (char *)r->room + ids;
  r->in.text = copy_text(&at, t->text);
  r->in.pair = copy_text(&at, t->pair);
  r->in.schema = copy_text(&at, t->schema);
  r->in.frame.begin = copy_text(&at, t->frame.begin);
  r->in.frame.separator = copy_text(&at, t->frame.separator);
  r->in.frame.end = copy_text(&at, t->frame.end);
  pthread_mutex_lock(&p->lock);
  tri_status st = enqueue(p, t->from ? t->from : &nobody, r);
  pthread_cond_signal(&p->work);
  pthread_mutex_unlock(&p->lock);
  if (st != TRI_OK) tri_tokenized_free(r);
  return st;
}

void tri_tokenize_pool_stop(tri_tokenize_pool *p, uint64_t job) {
  pthread_mutex_lock(&p->lock);
  for (int i = 0; i < p->num_running; i++)
    if (p->running[i] && p->running[i]->job == job) p->running[i]->stop = true;
  drop(p, job);
  pthread_mutex_unlock(&p->lock);
}

tri_status tri_tokenize_pool_now(tri_tokenize_pool *p, const tri_core_text *text, const uint32_t **ids, size_t *count,
                                 size_t *second) {
  static const uint32_t none;
  *ids = NULL;
  tri_status st = encode(p, p->scratch, text, ids, count, second);
  if (st == TRI_OK && !*ids) *ids = &none; /* no tokens, and yet an answer */
  return st;
}

tri_tokenized *tri_tokenize_pool_pop(tri_tokenize_pool *p) {
  uint64_t count;
  pthread_mutex_lock(&p->lock);
  tri_tokenized *r = TAILQ_FIRST(&p->out);
  if (r) TAILQ_REMOVE(&p->out, r, links);
  if (TAILQ_EMPTY(&p->out)) {
    ssize_t ignored = read(p->fd, &count, sizeof count);
    (void)ignored;
  }
  pthread_mutex_unlock(&p->lock);
  return r;
}

void tri_tokenized_free(tri_tokenized *r) {
  if (!r) return;
  tri_free(r->ids);
  tri_free(r);
}

int tri_tokenize_pool_fd(const tri_tokenize_pool *p) { return p->fd; }
