/* SPDX-License-Identifier: Apache-2.0 */
#include "text/tokenizer/trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

/* 384 MiB of nodes: eight for each id of the largest vocabulary that is taken (TOK_MAX_IDS). */
enum { MAX_NODES = 1 << 25 };

/* While building, a node is a range of the sorted tokens that share their first depth bytes. */
typedef struct building {
  const tok_entry **sorted;
  struct range {
    uint32_t low, high, depth;
  } * ranges; /* in addition to the nodes */
  size_t node_cap, range_cap;
} building;

static int compare(const void *x, const void *y) {
  const tok_entry *const *a = x, *const *b = y;
  size_t an = (*a)->len, bn = (*b)->len;
  int c = memcmp((*a)->text, (*b)->text, an < bn ? an : bn);
  return c ? c : (an > bn) - (an < bn);
}

static tri_status add_node(tok_trie *t, building *b, unsigned char byte, struct range r) {
  if (t->count == MAX_NODES) return TRI_TOO_LARGE;
  TRI_CHECK(tri_array_reserve(&t->nodes, t->count, &b->node_cap, 1, sizeof *t->nodes));
  TRI_CHECK(tri_array_reserve(&b->ranges, t->count, &b->range_cap, 1, sizeof *b->ranges));
  b->ranges[t->count] = r;
  t->nodes[t->count++] = (tok_trie_node){.id = TOK_NO_ID, .byte = byte};
  return TRI_OK;
}

/* Node by node, each appending its children after all that came before: siblings end up side by side. */
static tri_status expand(tok_trie *t, building *b, const tok_vocab *v, size_t at) {
  struct range r = b->ranges[at];
  uint32_t low = r.low;
  t->nodes[at].first = (uint32_t)t->count;
  /* A token that ends here is the shortest of its range, and so the first. */
  if (low < r.high && b->sorted[low]->len == r.depth) t->nodes[at].id = (uint32_t)(b->sorted[low++] - v->entries);
  while (low < r.high) {
    unsigned char byte = (unsigned char)b->sorted[low]->text[r.depth];
    uint32_t high = low + 1;
    while (high < r.high && (unsigned char)b->sorted[high]->text[r.depth] == byte) high++;
    TRI_CHECK(add_node(t, b, byte, (struct range){low, high, r.depth + 1}));
    t->nodes[at].count++;
    low = high;
  }
  return TRI_OK;
}

/* Sorting brings tokens with a common beginning together, so that every node stands for one range of them. The array of
 * nodes is its own queue: expanding a node appends to it while the last loop runs. Of tokens with one text only the one
 * that is found has a place. */
tri_status tok_trie_build(tok_trie *t, const tok_vocab *v) {
  building b = {0};
  uint32_t count = 0;
  tri_status st = TRI_NO_MEMORY;
  b.sorted = tri_malloc(v->size + 1, sizeof *b.sorted);
  if (!b.sorted) goto cleanup;
  for (uint32_t id = 0; id < v->size; id++) {
    const tok_entry *e = tok_vocab_at(v, id);
    if (!e || !e->len || tok_vocab_find(v, e->text, e->len) != id) continue;
    if (e->len > TOK_TRIE_LONGEST) TRI_TRY(TRI_TOO_LARGE);
    if (e->len > t->longest) t->longest = e->len;
    b.sorted[count++] = e;
  }
  qsort(b.sorted, count, sizeof *b.sorted, compare);
  TRI_TRY(add_node(t, &b, 0, (struct range){0, count, 0}));
  for (size_t i = 0; i < t->count; i++) TRI_TRY(expand(t, &b, v, i));
cleanup:
  tri_free(b.sorted);
  tri_free(b.ranges);
  return st;
}

void tok_trie_free(tok_trie *t) {
  tri_free(t->nodes);
  *t = (tok_trie){0};
}
