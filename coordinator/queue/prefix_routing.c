/* SPDX-License-Identifier: Apache-2.0 */
/* Prefix-aware routing: with several replicas a job goes to the one that has had a prompt that begins like its own,
 * whose KV blocks it finds there, unless that is much busier than another.
 *
 * Of each replica a table remembers hashes of beginnings of prompts, each of whole KV blocks. It is of a fixed size,
 * and a new hash takes the place of an old one: what it says may be wrong, in which case a prompt is computed once
 * more. */
#include <string.h>

#include "coordinator/queue/queue_impl.h"
#include "base/siphash.h"

/* Beginnings of up to NEAR blocks are all looked at, and of longer ones every STEP-th, up to NUM_POINTS of a prompt.
 * SEEN: hashes of a replica, a power of two. */
enum { NEAR = 64, STEP = 16, NUM_POINTS = 512, SEEN = 1 << 14 };
/* A replica is much busier with more than MANY jobs beyond twice those of the replica that has least. */
enum { MANY = 4 };

typedef struct prefix_router {
  tri_sip_key key;
  uint64_t *seen;              /* [num_replicas, SEEN] */
  uint64_t *epochs;            /* [num_replicas] of the starts that have seen them */
  uint64_t points[NUM_POINTS]; /* of the job that was last looked at */
  size_t num_points;
} prefix_router;

tri_status prefix_routing_open(tri_core *c) {
  size_t num;
  if (!c->cfg.route_by_prefix || c->cfg.num_replicas < 2 || c->cfg.model->encoder) return TRI_OK;
  if (!(c->queue->prefix_router = tri_calloc(1, sizeof *c->queue->prefix_router))) return TRI_NO_MEMORY;
  if (!tri_size_mul(c->cfg.num_replicas, SEEN, &num)) return TRI_NO_MEMORY;
  if (!(c->queue->prefix_router->seen = tri_calloc(num, sizeof *c->queue->prefix_router->seen))) return TRI_NO_MEMORY;
  if (!(c->queue->prefix_router->epochs = tri_calloc(c->cfg.num_replicas, sizeof(uint64_t)))) return TRI_NO_MEMORY;
  return c->cfg.io.random(c->cfg.io.ctx, &c->queue->prefix_router->key, sizeof c->queue->prefix_router->key);
}

void prefix_routing_close(tri_core *c) {
  prefix_router *a = c->queue->prefix_router;
  if (!a) return;
  tri_free(a->seen);
  tri_free(a->epochs);
  tri_free(a);
}

/* A start of a replica begins with an empty cache. */
static uint64_t *seen_of(const tri_core *c, uint32_t index) {
  prefix_router *a = c->queue->prefix_router;
  uint64_t *seen = a->seen + (size_t)index * SEEN, epoch = load_of(c, index)->epoch;
  if (a->epochs[index] != epoch) memset(seen, 0, SEEN * sizeof *seen);
  a->epochs[index] = epoch;
  return seen;
}

/* Returns the hash of a prefix and one more block after it. */
static uint64_t extend(const prefix_router *a, uint64_t prefix, const void *data, size_t bytes) {
  tri_sip_key key = {{a->key.k[0] ^ prefix, a->key.k[1]}};
  return tri_siphash(key, data, bytes) | 1; /* 0 is an empty place */
}

/* Fills points with the hashes of a prompt's beginnings, under its cache salt, as a replica's prefix cache has it. Each
 * hash is the key of the next, so that equal points mean equal beginnings. At least a token of it is left to compute.
 */
static void find_points(prefix_router *a, const queue_entry *e, size_t block) {
  size_t blocks = e->num_prompt && block ? (e->num_prompt - 1) / block : 0;
  uint64_t prefix = extend(a, 0, e->salt, e->salt_len);
  a->num_points = 0;
  for (size_t i = 0; i < blocks && a->num_points < NUM_POINTS; i++) {
    prefix = extend(a, prefix, e->prompt_ids + i * block, block * sizeof *e->prompt_ids);
    if (i < NEAR || i % STEP == 0) a->points[a->num_points++] = prefix;
  }
}

/* Returns how many of the points a replica has had, from the first one on. */
static size_t match(const tri_core *c, uint32_t index) {
  const prefix_router *a = c->queue->prefix_router;
  const uint64_t *seen = seen_of(c, index);
  size_t n = 0;
  while (n < a->num_points && seen[a->points[n] / 2 % SEEN] == a->points[n]) n++;
  return n;
}

/* Returns whether a replica has so much more to do than the one that has least that a prompt is computed once more
 * instead. One without a slot has, where the other has some. */
static bool is_much_busier(const replica_facts *g, const replica_facts *least) {
  if (g->jobs >= g->max_num_seqs && least->jobs < least->max_num_seqs) return true;
  return g->jobs > 2 * least->jobs + MANY;
}

static bool is_shared(const tri_core *c, uint32_t index) {
  return replica_takes_jobs(c, index) && !load_of(c, index)->alone;
}

/* Picks the replica with the least to do of those that are not kept for one job; NULL: none takes any. */
static const replica_facts *pick_shared(const tri_core *c, uint32_t *index) {
  const replica_facts *least = NULL;
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    const replica_facts *g = load_of(c, i)->facts;
    if (!is_shared(c, i) || (least && least->jobs <= g->jobs)) continue;
    least = g;
    *index = i;
  }
  return least;
}

bool prefix_routing_pick(tri_core *c, const queue_entry *e, uint32_t *index) {
  const replica_facts *least = pick_shared(c, index), *best = least;
  if (!c->queue->prefix_router || !least) return least != NULL;
  find_points(c->queue->prefix_router, e, least->block_size);
  size_t most = match(c, *index);
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    const replica_facts *g = load_of(c, i)->facts;
    if (!is_shared(c, i) || is_much_busier(g, least)) continue;
    size_t n = match(c, i);
    if (n < most || (n == most && g->jobs >= best->jobs)) continue;
    best = g;
    most = n;
    *index = i;
  }
  return true;
}

void prefix_routing_note(tri_core *c, uint32_t index) {
  const prefix_router *a = c->queue->prefix_router;
  if (!a) return;
  uint64_t *seen = seen_of(c, index);
  for (size_t i = 0; i < a->num_points; i++) seen[a->points[i] / 2 % SEEN] = a->points[i];
}
