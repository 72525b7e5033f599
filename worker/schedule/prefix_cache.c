/* SPDX-License-Identifier: Apache-2.0 */
/* Entries are indexed by block: a block is held at most once. They are chained in a hash table of at least as many
 * buckets, and those without an owner also in a list by the time of release, both through block numbers, so that all
 * operations but the comparison of tokens are a few words.
 *
 * When an entry is evicted, its number is not given again: what followed it can be found no more, and ages out. */
#include "worker/schedule/prefix_cache.h"

#include <string.h>

#include "base/mem.h"

enum { NONE = -1 };

/* A block that is held. */
struct entry {
  tri_prefix_id behind;
  uint64_t number;      /* of this entry; 0: the block is not held */
  int32_t next;         /* of the same bucket */
  int32_t older, newer; /* of those without an owner */
};

struct tri_prefix_cache {
  tri_prefix_config cfg;
  struct entry *entries; /* [num_blocks] */
  uint32_t *tokens;      /* [num_blocks, block_size] */
  int32_t *buckets;      /* [mask + 1] */
  uint64_t mask;
  uint64_t number; /* the last one given */
  int32_t oldest, newest;
  int num_idle;
  uint64_t num_evicted;
};

/* ---- set-up ---- */

tri_status tri_prefix_cache_create(const tri_prefix_config *config, tri_prefix_cache **out) {
  tri_prefix_cache *c = tri_calloc(1, sizeof *c);
  size_t blocks = (size_t)config->num_blocks, buckets = 1, tokens;
  if (!c) return TRI_NO_MEMORY;
  while (buckets < blocks) buckets *= 2;
  c->cfg = *config;
  if (!c->cfg.hash) c->cfg.hash = tri_siphash;
  c->mask = buckets - 1;
  c->oldest = c->newest = NONE;
  c->entries = tri_calloc(blocks, sizeof *c->entries);
  c->buckets = tri_malloc(buckets, sizeof *c->buckets);
  if (tri_size_mul(blocks, (size_t)config->block_size, &tokens)) c->tokens = tri_calloc(tokens, sizeof *c->tokens);
  if (!c->entries || !c->buckets || !c->tokens) {
    tri_prefix_cache_destroy(c);
    return TRI_NO_MEMORY;
  }
  for (size_t i = 0; i < buckets; i++) c->buckets[i] = NONE;
  *out = c;
  return TRI_OK;
}

void tri_prefix_cache_destroy(tri_prefix_cache *c) {
  if (!c) return;
  tri_free(c->entries);
  tri_free(c->tokens);
  tri_free(c->buckets);
  tri_free(c);
}

/* ---- prefixes ---- */

/* Numbers of entries have 0 in their second word, roots have not. */
static tri_prefix_id id_of(uint64_t number) { return (tri_prefix_id){{number, 0}}; }
static bool same_id(tri_prefix_id a, tri_prefix_id b) { return a.k[0] == b.k[0] && a.k[1] == b.k[1]; }

/* A salt is known by 128 bits of hash under the secret key, for which no other text can be found. */
tri_prefix_id tri_prefix_root(const tri_prefix_cache *c, uint64_t kind, const void *salt, size_t salt_len) {
  tri_sip_key first = c->cfg.key, second = c->cfg.key;
  first.k[0] ^= kind;
  second.k[0] ^= kind;
  second.k[1] = ~second.k[1];
  return (tri_prefix_id){{tri_siphash(first, salt, salt_len), tri_siphash(second, salt, salt_len) | 1}};
}

static int32_t *bucket_of(const tri_prefix_cache *c, tri_prefix_id behind, const uint32_t *tokens) {
  tri_sip_key key = {{c->cfg.key.k[0] ^ behind.k[0], c->cfg.key.k[1] ^ behind.k[1]}};
  return &c->buckets[c->cfg.hash(key, tokens, (size_t)c->cfg.block_size * sizeof *tokens) & c->mask];
}

static uint32_t *tokens_of(const tri_prefix_cache *c, int32_t block) {
  return c->tokens + (size_t)block * (size_t)c->cfg.block_size;
}

static int32_t find_in(const tri_prefix_cache *c, int32_t first, tri_prefix_id behind, const uint32_t *tokens) {
  size_t bytes = (size_t)c->cfg.block_size * sizeof *tokens;
  for (int32_t b = first; b != NONE; b = c->entries[b].next)
    if (same_id(c->entries[b].behind, behind) && !memcmp(tokens_of(c, b), tokens, bytes)) return b;
  return NONE;
}

int32_t tri_prefix_find(const tri_prefix_cache *c, tri_prefix_id behind, const uint32_t *tokens) {
  return find_in(c, *bucket_of(c, behind, tokens), behind, tokens);
}

tri_prefix_id tri_prefix_of(const tri_prefix_cache *c, int32_t block) { return id_of(c->entries[block].number); }

tri_prefix_id tri_prefix_enter(tri_prefix_cache *c, int32_t block, tri_prefix_id behind, const uint32_t *tokens) {
  int32_t *bucket = bucket_of(c, behind, tokens), same = find_in(c, *bucket, behind, tokens);
  if (same != NONE) return tri_prefix_of(c, same);
  c->entries[block] =
      (struct entry){.behind = behind, .number = ++c->number, .next = *bucket, .older = NONE, .newer = NONE};
  memcpy(tokens_of(c, block), tokens, (size_t)c->cfg.block_size * sizeof *tokens);
  *bucket = block;
  return id_of(c->number);
}

/* ---- blocks without an owner ---- */

bool tri_prefix_holds(const tri_prefix_cache *c, int32_t block) { return c->entries[block].number != 0; }

void tri_prefix_release(tri_prefix_cache *c, int32_t block) {
  struct entry *e = &c->entries[block];
  e->older = c->newest;
  e->newer = NONE;
  *(c->newest == NONE ? &c->oldest : &c->entries[c->newest].newer) = block;
  c->newest = block;
  c->num_idle++;
}

void tri_prefix_reclaim(tri_prefix_cache *c, int32_t block) {
  const struct entry *e = &c->entries[block];
  *(e->older == NONE ? &c->oldest : &c->entries[e->older].newer) = e->newer;
  *(e->newer == NONE ? &c->newest : &c->entries[e->newer].older) = e->older;
  c->num_idle--;
}

static void forget(tri_prefix_cache *c, int32_t block) {
  struct entry *e = &c->entries[block];
  int32_t *at = bucket_of(c, e->behind, tokens_of(c, block));
  while (*at != block) at = &c->entries[*at].next;
  *at = e->next;
  e->number = 0;
}

int32_t tri_prefix_evict(tri_prefix_cache *c) {
  int32_t block = c->oldest;
  if (block == NONE) return NONE;
  tri_prefix_reclaim(c, block);
  forget(c, block);
  c->num_evicted++;
  return block;
}

int tri_prefix_num_idle(const tri_prefix_cache *c) { return c->num_idle; }
uint64_t tri_prefix_num_evicted(const tri_prefix_cache *c) { return c->num_evicted; }
