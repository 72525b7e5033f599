/* SPDX-License-Identifier: Apache-2.0 */
/* A chained hash table of fixed size with a list by age through the entries. Bytes are counted as the allocator takes
 * them, so that max_bytes is a bound on memory and not on payload. */
#include "coordinator/jobs/response_cache.h"

#include <string.h>
#include <sys/queue.h>

#include "base/mem.h"

enum {
  BYTES_PER_CHAIN = 1024, /* of the cache: the table takes a fiftieth of it at most, and its chains stay short */
  ALLOCATION = 64         /* what a block of memory costs in addition to its bytes, and what these are rounded up to */
};
#define MEMORY_BESIDE ((uint64_t)16 << 20) /* of --memory-cap, whose own least value it is */

typedef struct entry {
  LIST_ENTRY(entry) chain;
  TAILQ_ENTRY(entry) age;
  uint64_t hash;
  size_t key_len, len;
  uint8_t bytes[]; /* the key, then the answer from a multiple of 8 on, which may hold numbers */
} entry;

LIST_HEAD(chain, entry);
TAILQ_HEAD(ages, entry);

struct tri_response_cache {
  tri_response_cache_config cfg;
  struct chain *chains;
  uint64_t mask;    /* their number, a power of two, less 1 */
  struct ages ages; /* the one used last comes first */
  tri_response_cache_figures figures;
};

tri_status tri_response_cache_check(uint64_t max_bytes, uint64_t memory_cap, tri_error *err) {
  if (!max_bytes) return TRI_OK;
  if (max_bytes < TRI_RESPONSE_CACHE_LEAST)
    return tri_fail(err, TRI_USAGE, "response_cache", "response_cache is %llu; allowed are 0, for none, and %d or more",
                    (unsigned long long)max_bytes, TRI_RESPONSE_CACHE_LEAST);
  if (memory_cap < MEMORY_BESIDE || max_bytes > memory_cap - MEMORY_BESIDE)
    return tri_fail(err, TRI_USAGE, "response_cache",
                    "response_cache is %llu, and memory_cap, which it is a part of, %llu: it must be %llu less at "
                    "least, for everything else",
                    (unsigned long long)max_bytes, (unsigned long long)memory_cap, (unsigned long long)MEMORY_BESIDE);
  return TRI_OK;
}

tri_status tri_response_cache_create(const tri_response_cache_config *config, tri_response_cache **out) {
  if (config->max_bytes < TRI_RESPONSE_CACHE_LEAST) return TRI_OUT_OF_RANGE;
  tri_response_cache *c = tri_calloc(1, sizeof *c);
  uint64_t chains = 1;
  while (chains < config->max_bytes / BYTES_PER_CHAIN) chains *= 2;
  if (!c || !(c->chains = tri_calloc(chains, sizeof *c->chains))) {
    tri_free(c);
    return TRI_NO_MEMORY;
  }
  c->cfg = *config;
  if (!c->cfg.hash) c->cfg.hash = tri_siphash;
  c->mask = chains - 1;
  TAILQ_INIT(&c->ages);
  c->figures = (tri_response_cache_figures){.bytes = chains * sizeof *c->chains, .max_bytes = config->max_bytes};
  *out = c;
  return TRI_OK;
}

void tri_response_cache_destroy(tri_response_cache *c) {
  if (!c) return;
  for (entry *e; (e = TAILQ_FIRST(&c->ages));) {
    TAILQ_REMOVE(&c->ages, e, age);
    tri_free(e);
  }
  tri_free(c->chains);
  tri_free(c);
}

/* ---- entries ---- */

/* Answers may begin with numbers of 8 bytes, and bytes[] is aligned with the struct. */
static size_t answer_offset(size_t key_len) { return (key_len + 7) & ~(size_t)7; }

size_t tri_response_cache_entry_bytes(size_t key_len, size_t len) {
  size_t block = sizeof(entry) + answer_offset(key_len) + len;
  return ((block + ALLOCATION - 1) & ~(size_t)(ALLOCATION - 1)) + ALLOCATION;
}

static struct chain *chain_of(const tri_response_cache *c, uint64_t hash) { return &c->chains[hash & c->mask]; }

static entry *find(const tri_response_cache *c, uint64_t hash, const void *key, size_t key_len) {
  entry *e = LIST_FIRST(chain_of(c, hash));
  while (e && (e->hash != hash || e->key_len != key_len || memcmp(e->bytes, key, key_len) != 0))
    e = LIST_NEXT(e, chain);
  return e;
}

static void use(tri_response_cache *c, entry *e) {
  TAILQ_REMOVE(&c->ages, e, age);
  TAILQ_INSERT_HEAD(&c->ages, e, age);
}

static void evict_oldest(tri_response_cache *c) {
  entry *e = TAILQ_LAST(&c->ages, ages);
  TAILQ_REMOVE(&c->ages, e, age);
  LIST_REMOVE(e, chain);
  c->figures.bytes -= tri_response_cache_entry_bytes(e->key_len, e->len);
  c->figures.entries--;
  c->figures.evictions++;
  tri_free(e);
}

/* ---- answers ---- */

const void *tri_response_cache_get(tri_response_cache *c, const void *key, size_t key_len, size_t *len) {
  entry *e = find(c, c->cfg.hash(c->cfg.secret, key, key_len), key, key_len);
  if (!e) {
    c->figures.misses++;
    return NULL;
  }
  c->figures.hits++;
  use(c, e);
  *len = e->len;
  return e->bytes + answer_offset(key_len);
}

/* Returns whether the cache can have an entry of that size at all. */
static bool has_room(const tri_response_cache *c, size_t key_len, size_t len) {
  uint64_t table = (c->mask + 1) * sizeof *c->chains, most = c->cfg.max_bytes - table;
  if (len > TRI_RESPONSE_CACHE_MOST_ANSWER || key_len > most) return false;
  return tri_response_cache_entry_bytes(key_len, len) <= most;
}

/* Others are evicted before the allocation, so that the bound holds at every moment. Without memory the answer is not
 * kept, which is no error. */
void tri_response_cache_put(tri_response_cache *c, const void *key, size_t key_len, const void *answer, size_t len) {
  if (!has_room(c, key_len, len)) return;
  uint64_t hash = c->cfg.hash(c->cfg.secret, key, key_len);
  entry *e = find(c, hash, key, key_len);
  if (e) {
    use(c, e);
    return;
  }
  size_t bytes = tri_response_cache_entry_bytes(key_len, len), from = answer_offset(key_len);
  while (c->figures.bytes + bytes > c->cfg.max_bytes) evict_oldest(c);
  if (!(e = tri_malloc(1, sizeof *e + from + len))) return;
  e->hash = hash;
  e->key_len = key_len;
  e->len = len;
  memcpy(e->bytes, key, key_len);
  if (len) memcpy(e->bytes + from, answer, len);
  LIST_INSERT_HEAD(chain_of(c, hash), e, chain);
  TAILQ_INSERT_HEAD(&c->ages, e, age);
  c->figures.bytes += bytes;
  c->figures.entries++;
}

tri_response_cache_figures tri_response_cache_figures_of(const tri_response_cache *c) { return c->figures; }
