/* SPDX-License-Identifier: Apache-2.0 */
/* The response cache: answers by the requests that they belong to, both of them bytes. It is bounded in bytes, its own
 * overhead included, and lets go what was used longest ago. Two keys are the same where all of their bytes are; a hash
 * only finds them. No call does more work than its key and its answer are long, but for what a put makes room for,
 * which an earlier put has paid.
 *
 * It reads no clock, takes no lock and knows nothing of jobs: coordinator/jobs/answers.c says what a key and an answer
 * are. One thread owns it. */
#ifndef TRI_COORDINATOR_JOBS_RESPONSE_CACHE_H
#define TRI_COORDINATOR_JOBS_RESPONSE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/siphash.h"
#include "base/status.h"

enum {
  TRI_RESPONSE_CACHE_LEAST = 64 << 10,       /* bytes of a cache */
  TRI_RESPONSE_CACHE_MOST_ANSWER = 256 << 10 /* bytes of one answer: a longer one is not kept */
};

typedef struct tri_response_cache tri_response_cache;

typedef struct tri_response_cache_config {
  uint64_t max_bytes; /* of the table and of all entries */
  tri_sip_key secret; /* random, new for each cache, so that no client can fill one chain of the table */
  uint64_t (*hash)(tri_sip_key secret, const void *key, size_t len); /* NULL: tri_siphash; tests have a worse one */
} tri_response_cache_config;

typedef struct tri_response_cache_figures {
  uint64_t hits, misses, evictions; /* since the start */
  uint64_t entries, bytes, max_bytes;
} tri_response_cache_figures;

/* Checks the option --response-cache against --memory-cap, of which it is a part: what is left must do for the rest. */
tri_status tri_response_cache_check(uint64_t max_bytes, uint64_t memory_cap, tri_error *err);

/* max_bytes must be TRI_RESPONSE_CACHE_LEAST at least. */
tri_status tri_response_cache_create(const tri_response_cache_config *config, tri_response_cache **out);
void tri_response_cache_destroy(tri_response_cache *c); /* NULL is fine */

/* Returns the answer of a key, which is then the one used last, and its length; NULL: there is none. It is valid until
 * the next put. Counts a hit or a miss. */
const void *tri_response_cache_get(tri_response_cache *c, const void *key, size_t key_len, size_t *len);
/* Keeps an answer, and lets others go for it. Not one that is too large, alone or for the cache; nor a second answer of
 * one key, for which the first stays, so that all hits are alike. */
void tri_response_cache_put(tri_response_cache *c, const void *key, size_t key_len, const void *answer, size_t len);

/* Returns the bytes that an entry counts for: its key, its answer, and what is around them. */
size_t tri_response_cache_entry_bytes(size_t key_len, size_t len);
tri_response_cache_figures tri_response_cache_figures_of(const tri_response_cache *c);

#endif
