/* SPDX-License-Identifier: Apache-2.0 */
/* Reads of streamed weights: each rank has read what its parts say, or copied it over its own link, and shards of this
 * host have what they have in common from each other. */
#include <stdio.h>

#include "tests/modelcheck/modelcheck.h"

/* Bytes of a rank; a step's but for the figures. */
struct reads {
  uint64_t all, own, common; /* of its parts; that it reads; of all, those that are read for several ranks, */
  uint64_t readers;          /* so many */
  tri_stream_figures f;
};

static struct reads count(const tri_engine *e) {
  struct reads r = {0};
  if (!e->offload) return r;
  tri_offload_source s = tri_offload_source_of(e->offload);
  for (int i = 0; i < e->tiers->num_streamed; i++)
    for (int k = 0; k < s.parts[i].num_extents; k++) {
      const tri_stream_extent *x = &s.parts[i].extents[k];
      r.all += x->bytes;
      if (!x->reader || x->reader == tri_split_rank(e->split) + 1) r.own += x->bytes;
    }
  r.common = s.common;
  r.readers = (uint64_t)s.num_readers;
  r.f = tri_weight_stream_figures(tri_offload_stream(e->offload));
  return r;
}

/* A stream is a part of a pass ahead. */
static bool is_right(const struct reads *r) {
  uint64_t n = r->f.passes;
  uint64_t own = r->f.bytes - r->f.peer;
  return own >= n * r->own && own <= (n + 1) * r->own && r->f.read <= own && r->f.bytes >= n * r->all &&
         r->f.bytes <= (n + 1) * r->all;
}

tri_status mc_check_reads(struct mc_check *c, bool *right) {
  struct reads all[64], own = count(c->engine);
  uint64_t bytes = 0, read = 0, again = 0;
  tri_comm *world = c->replica.world;
  if (world->size <= (int)(sizeof all / sizeof *all))
    TRI_CHECK(tri_comm_all_gather(world, &own, all, sizeof own));
  else
    return TRI_OK;
  for (int r = 0; r < world->size; r++) {
    *right &= is_right(&all[r]);
    bytes += all[r].all;
    read += all[r].own;
    if (all[r].readers) again += all[r].common * (all[r].readers - 1);
  }
  /* What several ranks have in common each of them counts, and one reads. */
  for (int r = 0; r < world->size; r++)
    if (all[r].readers > 1) *right &= again % all[r].readers == 0 && read == bytes - again / all[r].readers;
  if (!world->rank && bytes)
    printf("%s reads of %s: %llu of the %llu bytes that all ranks stream in a step\n", *right ? "right" : "WRONG",
           c->dir, (unsigned long long)read, (unsigned long long)bytes);
  return TRI_OK;
}
