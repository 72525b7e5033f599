#include "coordinator/encoder.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "runtime/base/mem.h"

struct queue {
  tri_encoded *head, **tail;
  size_t count;
};

struct tri_encoder {
  const tri_tokenizer *tokenizer;
  tri_tokenizer_scratch *scratch; /* of tri_encoder_now */
  size_t max_tokens, max_waiting;
  pthread_mutex_t lock;
  pthread_cond_t work;
  struct queue in, out;
  bool stop;
  int fd, num_threads;
  pthread_t threads[64];
};

static void queue_push(struct queue *q, tri_encoded *r) {
  r->next = NULL;
  *q->tail = r;
  q->tail = &r->next;
  q->count++;
}

static tri_encoded *queue_pop(struct queue *q) {
  tri_encoded *r = q->head;
  if (!r) return NULL;
  q->head = r->next;
  if (!q->head) q->tail = &q->head;
  q->count--;
  return r;
}

/* A text, or a pair. */
static tri_status encode_any(const tri_encoder *e, tri_tokenizer_scratch *scratch, const char *text, size_t len,
                             const char *pair, size_t pair_len, const uint32_t **ids, size_t *count, size_t *second) {
  *second = 0;
  if (!pair) return tri_tokenizer_encode(e->tokenizer, scratch, text, len, true, e->max_tokens, ids, count);
  return tri_tokenizer_encode_pair(e->tokenizer, scratch, text, len, pair, pair_len, e->max_tokens, ids, count, second);
}

static void encode(const tri_encoder *e, tri_tokenizer_scratch *scratch, tri_encoded *r) {
  const uint32_t *ids;
  r->status = encode_any(e, scratch, r->text, r->len, r->has_pair ? r->text + r->len : NULL, r->pair_len, &ids,
                         &r->count, &r->second);
  if (r->status != TRI_OK) return;
  r->ids = tri_malloc(r->count, sizeof *ids);
  if (r->ids)
    memcpy(r->ids, ids, r->count * sizeof *ids);
  else
    r->status = TRI_NO_MEMORY;
}

static void *thread_main(void *arg) {
  tri_encoder *e = arg;
  tri_tokenizer_scratch *scratch = NULL;
  tri_status ready = tri_tokenizer_scratch_create(e->tokenizer, &scratch);
  pthread_mutex_lock(&e->lock);
  while (!e->stop) {
    tri_encoded *r = queue_pop(&e->in);
    if (!r) {
      pthread_cond_wait(&e->work, &e->lock);
      continue;
    }
    pthread_mutex_unlock(&e->lock);
    r->status = ready;
    if (ready == TRI_OK) encode(e, scratch, r);
    pthread_mutex_lock(&e->lock);
    queue_push(&e->out, r);
    uint64_t one = 1;
    ssize_t ignored = write(e->fd, &one, sizeof one);
    (void)ignored;
  }
  pthread_mutex_unlock(&e->lock);
  tri_tokenizer_scratch_destroy(scratch);
  return NULL;
}

tri_status tri_encoder_create(const tri_tokenizer *t, int threads, size_t max_tokens, size_t max_waiting,
                              tri_encoder **out) {
  tri_encoder *e = tri_calloc(1, sizeof *e);
  if (!e) return TRI_NO_MEMORY;
  e->tokenizer = t;
  e->max_tokens = max_tokens;
  e->max_waiting = max_waiting;
  e->in.tail = &e->in.head;
  e->out.tail = &e->out.head;
  pthread_mutex_init(&e->lock, NULL);
  pthread_cond_init(&e->work, NULL);
  e->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  for (; e->fd >= 0 && e->num_threads < threads && e->num_threads < 64; e->num_threads++)
    if (pthread_create(&e->threads[e->num_threads], NULL, thread_main, e)) break;
  if (e->num_threads < 1 || tri_tokenizer_scratch_create(t, &e->scratch) != TRI_OK) {
    tri_encoder_destroy(e);
    return TRI_NO_MEMORY;
  }
  *out = e;
  return TRI_OK;
}

void tri_encoder_destroy(tri_encoder *e) {
  if (!e) return;
  pthread_mutex_lock(&e->lock);
  e->stop = true;
  pthread_cond_broadcast(&e->work);
  pthread_mutex_unlock(&e->lock);
  for (int i = 0; i < e->num_threads; i++) pthread_join(e->threads[i], NULL);
  for (tri_encoded *r; (r = queue_pop(&e->in));) tri_encoded_free(r);
  for (tri_encoded *r; (r = queue_pop(&e->out));) tri_encoded_free(r);
  if (e->fd >= 0) close(e->fd);
  tri_tokenizer_scratch_destroy(e->scratch);
  pthread_cond_destroy(&e->work);
  pthread_mutex_destroy(&e->lock);
  tri_free(e);
}

tri_status tri_encoder_push(tri_encoder *e, uint64_t job, const char *text, size_t len, const char *pair,
                            size_t pair_len) {
  tri_encoded *r = tri_malloc(sizeof *r + len + pair_len, 1); /* both came in one message */
  if (!r) return TRI_NO_MEMORY;
  memset(r, 0, sizeof *r);
  r->job = job;
  r->len = len;
  memcpy(r->text, text, len);
  r->has_pair = pair != NULL;
  r->pair_len = pair_len;
  if (pair_len) memcpy(r->text + len, pair, pair_len);
  pthread_mutex_lock(&e->lock);
  bool full = e->in.count >= e->max_waiting;
  if (!full) queue_push(&e->in, r);
  pthread_cond_signal(&e->work);
  pthread_mutex_unlock(&e->lock);
  if (full) tri_encoded_free(r);
  return full ? TRI_AGAIN : TRI_OK;
}

tri_status tri_encoder_now(tri_encoder *e, const char *text, size_t len, const char *pair, size_t pair_len,
                           const uint32_t **ids, size_t *count, size_t *second) {
  static const uint32_t none;
  *ids = NULL;
  tri_status st = encode_any(e, e->scratch, text, len, pair, pair_len, ids, count, second);
  if (st == TRI_OK && !*ids) *ids = &none; /* no tokens, and yet an answer */
  return st;
}

tri_encoded *tri_encoder_pop(tri_encoder *e) {
  uint64_t count;
  pthread_mutex_lock(&e->lock);
  tri_encoded *r = queue_pop(&e->out);
  if (!e->out.head) {
    ssize_t ignored = read(e->fd, &count, sizeof count);
    (void)ignored;
  }
  pthread_mutex_unlock(&e->lock);
  return r;
}

void tri_encoded_free(tri_encoded *r) {
  if (!r) return;
  tri_free(r->ids);
  tri_free(r);
}

int tri_encoder_fd(const tri_encoder *e) { return e->fd; }
