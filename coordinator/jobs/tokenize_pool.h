/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer's threads: texts go in, token ids come out, so that the socket loop never waits for a long text. They
 * also find out whether schemas can be kept, which may take as long. The
 * connections that have texts waiting take turns, a text each, so that none waits for all that another has sent. */
#ifndef TRI_COORDINATOR_JOBS_TOKENIZE_POOL_H
#define TRI_COORDINATOR_JOBS_TOKENIZE_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "coordinator/core_config.h"
#include "base/status.h"
#include "text/tokenizer/tokenizer.h"

typedef struct tri_tokenize_pool tri_tokenize_pool;

typedef struct tri_tokenized {
  TAILQ_ENTRY(tri_tokenized) links; /* of its client's texts that wait, or of the results */
  uint64_t job;
  atomic_bool stop; /* the ids are not wanted any more */
  tri_status status;
  tri_error why;        /* the schema is refused; else its status is TRI_OK */
  uint32_t *ids;        /* owned by this struct */
  size_t count, second; /* second: see tri_tokenizer_encode_pair */
  tri_core_text in;     /* it points to what follows */
  uint32_t room[];
} tri_tokenized;

/* max_tokens: a prompt with more is TRI_TOO_LARGE. max_waiting: prompts that wait. */
tri_status tri_tokenize_pool_create(const tri_tokenizer *t, int threads, size_t max_tokens, size_t max_waiting,
                                    tri_tokenize_pool **out);
void tri_tokenize_pool_destroy(tri_tokenize_pool *p); /* NULL is fine */
/* Copies the text. TRI_AGAIN: the queue is full. */
tri_status tri_tokenize_pool_push(tri_tokenize_pool *p, uint64_t job, const tri_core_text *text);
/* Has a job's text given up, at its next word where it is being tokenized. A result comes all the same. */
void tri_tokenize_pool_stop(tri_tokenize_pool *p, uint64_t job);
/* Tokenizes a short text in the caller's own thread (one at a time). *ids stays valid until the next call and is never
 * NULL. */
tri_status tri_tokenize_pool_now(tri_tokenize_pool *p, const tri_core_text *text, const uint32_t **ids, size_t *count,
                                 size_t *second);
/* Returns a finished text, to be given to tri_tokenized_free; NULL when there is none. */
tri_tokenized *tri_tokenize_pool_pop(tri_tokenize_pool *p);
void tri_tokenized_free(tri_tokenized *r);
/* Readable when something has finished; pop clears it. */
int tri_tokenize_pool_fd(const tri_tokenize_pool *p);

#endif
