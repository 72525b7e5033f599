/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/models/bpe_merge.h"

#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"

/* ---- the table ---- */

tri_status tok_merges_init(tok_merges *m, size_t count) {
  size_t cap = 16, twice;
  if (!tri_size_mul(count, 2, &twice)) return TRI_OVERFLOW;
  while (cap < twice)
    if (!tri_size_mul(cap, 2, &cap)) return TRI_OVERFLOW;
  m->slots = tri_malloc(cap, sizeof *m->slots);
  if (!m->slots) return TRI_NO_MEMORY;
  memset(m->slots, 0xff, cap * sizeof *m->slots);
  m->mask = cap - 1;
  return TRI_OK;
}

void tok_merges_free(tok_merges *m) {
  tri_free(m->slots);
  *m = (tok_merges){0};
}

/* Returns the slot that the pair has or would have. */
static tok_merge *slot(const tok_merges *m, uint32_t left, uint32_t right) {
  size_t i = (size_t)tri_mix64((uint64_t)left << 32 | right) & m->mask;
  while (m->slots[i].rank != UINT32_MAX && (m->slots[i].left != left || m->slots[i].right != right))
    i = (i + 1) & m->mask;
  return &m->slots[i];
}

void tok_merges_put(tok_merges *m, tok_merge merge) { *slot(m, merge.left, merge.right) = merge; }

const tok_merge *tok_merges_find(const tok_merges *m, uint32_t left, uint32_t right) {
  const tok_merge *s = slot(m, left, right);
  return s->rank == UINT32_MAX ? NULL : s;
}

/* ---- short words: scan for the lowest rank ---- */

/* Quadratic, but in a word's few symbols, which stay in two cache lines. */
static void merge_short(const tok_merges *m, uint32_t *ids, size_t *n) {
  uint32_t rank[TOK_SHORT_WORD], merged[TOK_SHORT_WORD]; /* of the pair (i, i + 1) */
  size_t count = *n;
  for (size_t i = 0; i + 1 < count; i++) {
    const tok_merge *f = tok_merges_find(m, ids[i], ids[i + 1]);
    rank[i] = f ? f->rank : UINT32_MAX;
    merged[i] = f ? f->id : 0;
  }
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; i++)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == UINT32_MAX) break;
    ids[best] = merged[best];
    count--;
    size_t tail = count - best - 1; /* symbols after the merged one */
    memmove(ids + best + 1, ids + best + 2, tail * sizeof *ids);
    memmove(rank + best, rank + best + 1, tail * sizeof *rank);
    memmove(merged + best, merged + best + 1, tail * sizeof *merged);
    for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < count; i++) {
      const tok_merge *f = tok_merges_find(m, ids[i], ids[i + 1]);
      rank[i] = f ? f->rank : UINT32_MAX;
      merged[i] = f ? f->id : 0;
    }
  }
  *n = count;
}

/* ---- long words: a linked list and a heap of candidates ---- */

#define NONE UINT32_MAX

struct tok_symbol {
  uint32_t id;         /* NONE: merged into the one before */
  uint32_t prev, next; /* NONE at the ends */
};

/* A pair that can merge. It goes stale when either side changes and is then dropped when it comes up. */
struct tok_candidate {
  uint32_t rank, at, id;
};

void tok_merge_work_free(tok_merge_work *w) {
  tri_free(w->symbols);
  tri_free(w->heap);
  *w = (tok_merge_work){0};
}

static tri_status reserve(tok_merge_work *w, size_t n) {
  if (n >= NONE) return TRI_TOO_LARGE;
  TRI_CHECK(tri_array_reserve(&w->symbols, 0, &w->symbol_cap, n, sizeof *w->symbols));
  /* At most n - 1 at first; each of at most n - 1 merges takes one out and puts two in. */
  return tri_array_reserve(&w->heap, 0, &w->heap_cap, 2 * n, sizeof *w->heap);
}

static bool before(struct tok_candidate a, struct tok_candidate b) {
  return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static void sift_down(struct tok_candidate *heap, size_t n, size_t i) {
  struct tok_candidate moving = heap[i];
  for (size_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && before(heap[child + 1], heap[child])) child++;
    if (!before(heap[child], moving)) break;
    heap[i] = heap[child];
  }
  heap[i] = moving;
}

static void push(struct tok_candidate *heap, size_t *n, struct tok_candidate c) {
  size_t i = (*n)++;
  for (; i && before(c, heap[(i - 1) / 2]); i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
  heap[i] = c;
}

static struct tok_candidate pop(struct tok_candidate *heap, size_t *n) {
  struct tok_candidate top = heap[0];
  heap[0] = heap[--*n];
  if (*n) sift_down(heap, *n, 0);
  return top;
}

/* The merge of the symbol at `at` with its successor, NULL when there is none. */
static const tok_merge *merge_at(const tok_merges *m, const struct tok_symbol *symbols, uint32_t at) {
  const struct tok_symbol *s = &symbols[at];
  return s->id == NONE || s->next == NONE ? NULL : tok_merges_find(m, s->id, symbols[s->next].id);
}

static void push_pair(const tok_merges *m, tok_merge_work *w, size_t *count, uint32_t at) {
  const tok_merge *f = merge_at(m, w->symbols, at);
  if (f) push(w->heap, count, (struct tok_candidate){f->rank, at, f->id});
}

/* O(n log n) for n symbols. The heap holds every pair that can merge, and pairs that could before a neighbour changed.
 * The pair at a stale one's place gives another id by now, or none. */
static tri_status merge_long(const tok_merges *m, tok_merge_work *w, uint32_t *ids, size_t *n) {
  TRI_CHECK(reserve(w, *n));
  struct tok_symbol *symbols = w->symbols;
  uint32_t size = (uint32_t)*n;
  size_t count = 0;
  for (uint32_t i = 0; i < size; i++)
    symbols[i] = (struct tok_symbol){ids[i], i ? i - 1 : NONE, i + 1 < size ? i + 1 : NONE};
  for (uint32_t i = 0; i + 1 < size; i++) {
    const tok_merge *f = merge_at(m, symbols, i);
    if (f) w->heap[count++] = (struct tok_candidate){f->rank, i, f->id};
  }
  for (size_t i = count / 2; i--;) sift_down(w->heap, count, i);

  while (count) {
    struct tok_candidate c = pop(w->heap, &count);
    /* Every merge lengthens what the pair at a place spells, so a pair that still gives this id is the one meant. */
    const tok_merge *f = merge_at(m, symbols, c.at);
    if (!f || f->id != c.id) continue;
    struct tok_symbol *left = &symbols[c.at], *right = &symbols[left->next];
    left->id = c.id;
    left->next = right->next;
    right->id = NONE;
    if (left->next != NONE) symbols[left->next].prev = c.at;
    if (left->prev != NONE) push_pair(m, w, &count, left->prev);
    push_pair(m, w, &count, c.at);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i != NONE; i = symbols[i].next) ids[kept++] = symbols[i].id; /* the first is never merged away */
  *n = kept;
  return TRI_OK;
}

tri_status tok_merge_word(const tok_merges *m, tok_merge_work *w, uint32_t *ids, size_t *n) {
  if (*n > TOK_SHORT_WORD) return merge_long(m, w, ids, n);
  merge_short(m, ids, n);
  return TRI_OK;
}
