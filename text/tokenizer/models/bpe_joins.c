/* SPDX-License-Identifier: Apache-2.0 */
/* A word may be cut between two first symbols x and y that no merge can join: one that joins them has a left side that
 * ends with x and a right side that begins with y. Merges on the two sides then never meet, so that each side's merges
 * come in the same order (lowest rank, then leftmost) whether the other side is there or not.
 *
 * What a symbol begins and ends with follows from its id: of a merge's result it is what the left side begins with and
 * what the right side ends with. Where two merges with one result disagree, nothing is cut. */
#include "text/tokenizer/models/bpe_joins.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define NONE UINT32_MAX
#define EMPTY UINT64_MAX

typedef struct ends {
  uint32_t begin, end; /* first symbols, NONE while unknown */
} ends;

static bool is_merge(const tok_merge *m) { return m->rank != UINT32_MAX; }

/* Takes a merge's ends over to its result. False: it has others already. */
static bool take_ends(ends *all, const tok_merge *m, bool *changed) {
  uint32_t begin = all[m->left].begin, end = all[m->right].end;
  ends *to = &all[m->id];
  if (begin == NONE || end == NONE) return true;
  if (to->begin == NONE) {
    *to = (ends){begin, end};
    *changed = true;
  }
  return to->begin == begin && to->end == end;
}

/* Each round knows the symbols of one merge more; few tokens are more than a dozen merges deep. */
static bool find_ends(ends *all, const tok_merges *m) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (size_t i = 0; i <= m->mask; i++)
      if (is_merge(&m->slots[i]) && !take_ends(all, &m->slots[i], &changed)) return false;
  }
  return true;
}

static uint64_t *slot(const tok_joins *j, uint64_t pair) {
  size_t i = (size_t)tri_mix64(pair) & j->mask;
  while (j->slots[i] != EMPTY && j->slots[i] != pair) i = (i + 1) & j->mask;
  return &j->slots[i];
}

tri_status tok_joins_init(tok_joins *j, size_t pairs) {
  size_t cap = 16, twice;
  if (!tri_size_mul(pairs, 2, &twice)) return TRI_OVERFLOW;
  while (cap < twice)
    if (!tri_size_mul(cap, 2, &cap)) return TRI_OVERFLOW;
  j->slots = tri_malloc(cap, sizeof *j->slots);
  if (!j->slots) return TRI_NO_MEMORY;
  memset(j->slots, 0xff, cap * sizeof *j->slots); /* EMPTY */
  j->mask = cap - 1;
  return TRI_OK;
}

void tok_joins_add(tok_joins *j, uint32_t left, uint32_t right) {
  uint64_t pair = (uint64_t)left << 32 | right;
  *slot(j, pair) = pair;
}

tri_status tok_joins_build(tok_joins *j, const tok_merges *m, const bool *first, size_t num_ids) {
  ends *all = tri_malloc(num_ids + 1, sizeof *all);
  if (!all) return TRI_NO_MEMORY;
  for (size_t id = 0; id < num_ids; id++) all[id].begin = all[id].end = first[id] ? (uint32_t)id : NONE;
  tri_status st = TRI_OK;
  if (find_ends(all, m)) {
    st = tok_joins_init(j, (m->mask + 1) / 2); /* there are no more pairs than merges */
    for (size_t i = 0; st == TRI_OK && i <= m->mask; i++) {
      const tok_merge *merge = &m->slots[i];
      if (!is_merge(merge) || all[merge->left].end == NONE || all[merge->right].begin == NONE) continue;
      tok_joins_add(j, all[merge->left].end, all[merge->right].begin);
    }
  }
  tri_free(all);
  return st;
}

void tok_joins_free(tok_joins *j) {
  tri_free(j->slots);
  *j = (tok_joins){0};
}

bool tok_joins_can(const tok_joins *j, uint32_t left, uint32_t right) {
  return !j->slots || *slot(j, (uint64_t)left << 32 | right) != EMPTY;
}
