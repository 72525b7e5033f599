/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/load/common_bytes.h"

#include "base/hash.h"

/* A range's name is the weight's id, or a hash of all places where the whole part is one range: ranks that laid a part
 * out differently get different names, and each reads its own. */
enum { SCALES = 1 << 16 }; /* in the name of a range */

/* Scales lie after their weight's elements. */
/* Returns where a weight's scales end: where the next weight of the part begins. */
static size_t end_of(const tri_weight_map *m, int part, int id) {
  const tri_weight_place *first = &m->layers[part / TRI_LAYER_PARTS * TRI_W_COUNT];
  for (int next = id + 1; next < TRI_W_COUNT; next++)
    if (first[next].part == part && first[next].bytes) return first[next].offset;
  return m->part_bytes[part];
}

static uint64_t hash_place(uint64_t h, int id, const tri_weight_place *at) {
  const uint64_t words[] = {(uint64_t)id, at->offset, at->bytes, (uint64_t)at->dtype, at->scale_bytes};
  return tri_hash_bytes(h, words, sizeof words);
}

int tri_common_ranges(const tri_weight_map *m, int part, tri_common_range *ranges) {
  const tri_weight_place *places = &m->layers[part / TRI_LAYER_PARTS * TRI_W_COUNT];
  uint64_t all = TRI_HASH_SEED;
  bool experts = false;
  int n = 0;
  for (int id = 0; id < TRI_W_COUNT; id++) {
    const tri_weight_place *at = &places[id];
    if (at->part != part || !at->bytes) continue;
    all = hash_place(all, id, at);
    experts |= tri_weight_is_of_experts((tri_weight_id)id);
    if (tri_weight_is_of_experts((tri_weight_id)id)) continue;
    ranges[n++] = (tri_common_range){at->offset, at->bytes, (uint64_t)id};
    if (at->scale_bytes)
      ranges[n++] = (tri_common_range){at->scale_offset, end_of(m, part, id) - at->scale_offset, (uint64_t)id | SCALES};
  }
  if (experts || !n) return n;
  ranges[0] = (tri_common_range){0, m->part_bytes[part], all};
  return 1;
}

size_t tri_common_part_bytes(const tri_weight_map *m, int part) {
  tri_common_range ranges[TRI_COMMON_RANGES];
  size_t sum = 0;
  int n = tri_common_ranges(m, part, ranges);
  for (int k = 0; k < n; k++) sum += ranges[k].bytes;
  return sum;
}

size_t tri_common_bytes(const tri_weight_map *m, const tri_tiers *tiers) {
  size_t sum = 0;
  for (int i = 0; i < tiers->num_streamed; i++) sum += tri_common_part_bytes(m, tiers->parts[i]);
  return sum;
}
