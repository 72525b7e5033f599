/* SPDX-License-Identifier: Apache-2.0 */
/* With several groups a job goes to the one that has had a prompt that begins like its own, whose KV blocks it finds
 * there, unless that is much busier than another.
 *
 * Of each group a table remembers hashes of beginnings of prompts, each of whole KV blocks. It is of a fixed size, and
 * a new hash takes the place of an old one: what it says may be wrong, in which case a prompt is computed once more. */
#include <string.h>

#include "coordinator/state.h"
#include "base/siphash.h"

/* Beginnings of up to NEAR blocks are all looked at, and of longer ones every STEP-th, up to NUM_POINTS of a prompt.
 * SEEN: hashes of a group, a power of two. */
enum { NEAR = 64, STEP = 16, NUM_POINTS = 512, SEEN = 1 << 14 };
/* A group is much busier with more than MANY jobs beyond twice those of the group that has least. */
enum { MANY = 4 };

struct prefix_affinity {
  tri_sip_key key;
  uint64_t *seen;              /* [num_groups, SEEN] */
  uint64_t points[NUM_POINTS]; /* of the job that was last looked at */
  size_t num_points;
};

tri_status affinity_open(tri_core *c) {
  size_t num;
  if (!c->cfg.route_by_prefix || c->cfg.num_groups < 2 || c->cfg.model->encoder) return TRI_OK;
  if (!(c->affinity = tri_calloc(1, sizeof *c->affinity))) return TRI_NO_MEMORY;
  if (!tri_size_mul(c->cfg.num_groups, SEEN, &num)) return TRI_NO_MEMORY;
  if (!(c->affinity->seen = tri_calloc(num, sizeof *c->affinity->seen))) return TRI_NO_MEMORY;
  return c->cfg.io.random(c->cfg.io.ctx, &c->affinity->key, sizeof c->affinity->key);
}

void affinity_close(tri_core *c) {
  if (c->affinity) tri_free(c->affinity->seen);
  tri_free(c->affinity);
}

static uint64_t *seen_of(const tri_core *c, uint32_t index) { return c->affinity->seen + (size_t)index * SEEN; }

void affinity_forget(tri_core *c, uint32_t index) {
  if (c->affinity) memset(seen_of(c, index), 0, SEEN * sizeof *c->affinity->seen);
}

/* Returns the hash of a prefix and one more block behind it. */
static uint64_t extend(const prefix_affinity *a, uint64_t prefix, const void *data, size_t bytes) {
  tri_sip_key key = {{a->key.k[0] ^ prefix, a->key.k[1]}};
  return tri_siphash(key, data, bytes) | 1; /* 0 is an empty place */
}

/* Fills points with the hashes of a prompt's beginnings. At least a token of it is left to compute. */
static void find_points(prefix_affinity *a, const job *j, size_t block) {
  size_t blocks = j->num_prompt && block ? (j->num_prompt - 1) / block : 0;
  uint64_t prefix = extend(a, 0, j->salt, j->salt_len);
  a->num_points = 0;
  for (size_t i = 0; i < blocks && a->num_points < NUM_POINTS; i++) {
    prefix = extend(a, prefix, j->prompt_ids + i * block, block * sizeof *j->prompt_ids);
    if (i < NEAR || i % STEP == 0) a->points[a->num_points++] = prefix;
  }
}

/* Returns how many of the points a group has had, from the first one on. */
static size_t match(const tri_core *c, uint32_t index) {
  const prefix_affinity *a = c->affinity;
  const uint64_t *seen = seen_of(c, index);
  size_t n = 0;
  while (n < a->num_points && seen[a->points[n] / 2 % SEEN] == a->points[n]) n++;
  return n;
}

/* Says whether a group has so much to do, beside the one that has least, that a prompt is computed once more instead.
 * One without a slot has, where the other has some. */
static bool is_much_busier(const group *g, const group *least) {
  if (g->jobs >= g->max_num_seqs && least->jobs < least->max_num_seqs) return true;
  return g->jobs > 2 * least->jobs + MANY;
}

group *affinity_pick(tri_core *c, const job *j, uint32_t *index) {
  group *least = group_pick_shared(c, index), *best = least;
  if (!c->affinity || !least) return least;
  find_points(c->affinity, j, least->block_size);
  size_t most = match(c, *index);
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    group *g = &c->groups[i];
    if (!group_takes_jobs(c, g) || g->alone || is_much_busier(g, least)) continue;
    size_t n = match(c, i);
    if (n < most || (n == most && g->jobs >= best->jobs)) continue;
    best = g;
    most = n;
    *index = i;
  }
  return best;
}

void affinity_note(tri_core *c, uint32_t index) {
  const prefix_affinity *a = c->affinity;
  if (!a) return;
  uint64_t *seen = seen_of(c, index);
  for (size_t i = 0; i < a->num_points; i++) seen[a->points[i] / 2 % SEEN] = a->points[i];
}
