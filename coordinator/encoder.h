/* The tokenizer's threads: prompts in, ids out, so that the socket loop never waits for a long text. */
#ifndef TRI_COORDINATOR_ENCODER_H
#define TRI_COORDINATOR_ENCODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/status.h"
#include "runtime/tokenizer/tokenizer.h"

typedef struct tri_encoder tri_encoder;

typedef struct tri_encoded {
  struct tri_encoded *next;
  uint64_t job;
  tri_status status;
  uint32_t *ids;        /* owned by this struct */
  size_t count, second; /* second: see tri_tokenizer_encode_pair */
  size_t len, pair_len;
  bool has_pair;
  char text[]; /* and behind it the pair's */
} tri_encoded;

/* max_tokens: a prompt with more is TRI_TOO_LARGE. max_waiting: prompts in the queue. */
tri_status tri_encoder_create(const tri_tokenizer *t, int threads, size_t max_tokens, size_t max_waiting,
                              tri_encoder **out);
void tri_encoder_destroy(tri_encoder *e); /* NULL is fine */
/* Copies the text, and a second one of which it makes a pair (NULL: none). TRI_AGAIN: the queue is full. */
tri_status tri_encoder_push(tri_encoder *e, uint64_t job, const char *text, size_t len, const char *pair,
                            size_t pair_len);
/* A short text, by the caller's own thread (one at a time). *ids stays valid until the next call and is never NULL. */
tri_status tri_encoder_now(tri_encoder *e, const char *text, size_t len, const char *pair, size_t pair_len,
                           const uint32_t **ids, size_t *count, size_t *second);
/* A finished one, to be given to tri_encoded_free; NULL when there is none. */
tri_encoded *tri_encoder_pop(tri_encoder *e);
void tri_encoded_free(tri_encoded *r);
/* Readable when something has finished; pop clears it. */
int tri_encoder_fd(const tri_encoder *e);

#endif
