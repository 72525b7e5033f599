/* SPDX-License-Identifier: Apache-2.0 */
/* The core as its parts see it. Each part has a folder: what lies after these pointers is that folder's alone, and
 * others have the functions of its header. */
#ifndef TRI_COORDINATOR_CORE_IMPL_H
#define TRI_COORDINATOR_CORE_IMPL_H

#include <stdio.h>
#include <string.h>

#include "coordinator/core_config.h"
#include "coordinator/stats/totals.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/wait.h"

struct tri_core {
  tri_core_config cfg;
  struct replicas *replicas;
  struct fair_queue *queue;
  struct jobs *jobs;
  tri_totals totals;
  tri_core_facts facts;
  int64_t started_ns;
  bool draining;  /* no new work is taken */
  bool ending;    /* jobs end since the cluster does: the next start continues with them */
  bool restoring; /* jobs of an earlier coordinator are being made */
};

/* Returns the bytes that a block of memory takes, with what the allocator has around it. */
static inline size_t block_bytes(size_t n) { return n ? (n + 127) & ~(size_t)63 : 0; }

static inline uint64_t mix64(uint64_t x) { return tri_mix64(x + TRI_SPLITMIX_STEP); }

/* Copies a text that has no NUL, as far as there is room. */
static inline void copy_text(char *to, size_t cap, tri_wire_str from) {
  size_t n = from.len < cap ? from.len : cap - 1;
  if (n) memcpy(to, from.s, n);
  to[n] = '\0';
}

/* The same of words that people read, in tables and on terminals: as one line. */
static inline void copy_line(char *to, size_t cap, tri_wire_str from) {
  copy_text(to, cap, from);
  tri_plain_line(to, strlen(to));
}

static inline tri_wire_str wire_str(const char *s) { return (tri_wire_str){s, s ? strlen(s) : 0}; }

#endif
