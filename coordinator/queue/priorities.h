/* SPDX-License-Identifier: Apache-2.0 */
/* A set of entries with a priority and a count each, which tells how much there is up to a priority: a digital search
 * tree, whose depth is the bits of a priority at most, whatever priorities there are and in whatever order they come
 * and go. Entries are parts of what they stand for, so that nothing is allocated. */
#ifndef TRI_COORDINATOR_QUEUE_PRIORITIES_H
#define TRI_COORDINATOR_QUEUE_PRIORITIES_H

#include <stdint.h>

enum { PRIORITIES_DEPTH = 65 }; /* entries from the root of a set to a leaf, at most */

/* An entry of one priority is a node of the tree, and others of the same one are in a ring with it. */
typedef struct priority_entry {
  int64_t priority;
  uint64_t count;
  uint64_t same, all; /* of a node: what its ring has, and what that has with all nodes below */
  struct priority_entry *child[2];
  struct priority_entry *prev, *next; /* of the ring */
} priority_entry;

/* A set is its root; NULL: it is empty. */
void priorities_add(priority_entry **set, priority_entry *e, int64_t priority, uint64_t count);
void priorities_remove(priority_entry **set, priority_entry *e); /* one that is in it */
/* Returns the counts of all entries with this priority or a lower one, which is a sooner one. */
uint64_t priorities_up_to(const priority_entry *set, int64_t priority);
int64_t priorities_soonest(const priority_entry *set); /* of a set that is not empty */

#endif
