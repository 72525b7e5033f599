/* SPDX-License-Identifier: Apache-2.0 */
/* A digital search tree (Coffman, Eve, 1970): a node at some depth has the bits of its path first, and what else its
 * priority is does not matter. All nodes below its left child are so sooner than all below its right one, and any leaf
 * may take the place of a node above it. */
#include "coordinator/queue/priorities.h"

#include <stdbool.h>
#include <stddef.h>

/* Returns bits that are in the order of priorities: with the sign flipped, as negative numbers come first. */
static uint64_t bits_of(int64_t priority) { return (uint64_t)priority ^ UINT64_C(1) << 63; }

/* Returns the place of the child to which the next bit leads. */
static priority_entry **step_down(priority_entry *node, uint64_t *bits) {
  uint64_t bit = *bits >> 63;
  *bits <<= 1;
  return &node->child[bit];
}

void priorities_add(priority_entry **set, priority_entry *e, int64_t priority, uint64_t count) {
  priority_entry **at = set;
  uint64_t bits = bits_of(priority);
  *e = (priority_entry){.priority = priority, .count = count, .same = count, .all = count, .prev = e, .next = e};
  while (*at && (*at)->priority != priority) {
    (*at)->all += count;
    at = step_down(*at, &bits);
  }
  priority_entry *node = *at;
  if (!node) {
    *at = e;
    return;
  }
  node->same += count;
  node->all += count;
  e->prev = node;
  e->next = node->next;
  e->next->prev = e;
  node->next = e;
}

static priority_entry **some_child(priority_entry *node) { return &node->child[node->child[0] ? 0 : 1]; }

/* Takes a leaf off the tree whose root is here. */
static priority_entry *take_leaf(priority_entry **at) {
  priority_entry *leaf = *at;
  while (*some_child(leaf)) leaf = *some_child(leaf);
  while (*at != leaf) {
    (*at)->all -= leaf->same;
    at = some_child(*at);
  }
  *at = NULL;
  return leaf;
}

/* Returns the entry that becomes the node instead of one that leaves: another of its ring, else a leaf from below,
 * which may stand anywhere above its place; NULL: none is left. */
static priority_entry *heir_of(priority_entry *node) {
  bool alone = node->next == node;
  if (alone && !*some_child(node)) return NULL;
  priority_entry *heir = alone ? take_leaf(some_child(node)) : node->next;
  if (!alone) heir->same = node->same;
  heir->all = node->all;
  heir->child[0] = node->child[0];
  heir->child[1] = node->child[1];
  return heir;
}

void priorities_remove(priority_entry **set, priority_entry *e) {
  priority_entry **at = set;
  uint64_t bits = bits_of(e->priority);
  while ((*at)->priority != e->priority) {
    (*at)->all -= e->count;
    at = step_down(*at, &bits);
  }
  (*at)->same -= e->count;
  (*at)->all -= e->count;
  if (*at == e) *at = heir_of(e);
  e->prev->next = e->next;
  e->next->prev = e->prev;
}

uint64_t priorities_up_to(const priority_entry *set, int64_t priority) {
  uint64_t sum = 0, bits = bits_of(priority);
  for (const priority_entry *node = set; node; bits <<= 1) {
    uint64_t bit = bits >> 63;
    if (node->priority <= priority) sum += node->same;
    if (bit && node->child[0]) sum += node->child[0]->all;
    node = node->child[bit];
  }
  return sum;
}

int64_t priorities_soonest(const priority_entry *set) {
  int64_t soonest = set->priority;
  for (const priority_entry *node = set; node; node = node->child[node->child[0] ? 0 : 1])
    if (node->priority < soonest) soonest = node->priority;
  return soonest;
}
