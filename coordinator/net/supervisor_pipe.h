/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's line to the process that started it, `trireme up`: two pipes that are not waited for, of events to
 * it (--event-fd) and of notices from it (--notice-fd), with one line of text for each. */
#ifndef TRI_COORDINATOR_NET_SUPERVISOR_PIPE_H
#define TRI_COORDINATOR_NET_SUPERVISOR_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { TRI_SUPERVISOR_LINE = 768 }; /* bytes of the longest line, with its end */

/* News of a replica that the supervisor has started. */
typedef struct tri_supervisor_event {
  enum { TRI_REPLICA_DIED, TRI_REPLICA_GIVEN_UP, TRI_REPLICA_QUARANTINED, TRI_REPLICA_EXPECTED } kind;
  uint32_t replica;
  uint64_t epoch;     /* of one that died, or of the oldest that may register */
  int64_t seconds;    /* until one that stays down is started again */
  const char *reason; /* for the call */
} tri_supervisor_event;

typedef struct tri_supervisor {
  int event_fd, notice_fd; /* -1: none */
  tri_buf waiting;         /* lines to it for which the pipe had no room */
  bool deaf;               /* no notice can come any more: the supervisor is gone, or notice_fd cannot be read */
  char line[TRI_SUPERVISOR_LINE];
  size_t len;                    /* of what has come of a line */
  char why[TRI_SUPERVISOR_LINE]; /* it gives up; empty: it does not */
  int drain;                     /* the signal that it passes on as a request to drain; 0: none yet */
  void (*on_event)(void *ctx, const tri_supervisor_event *event); /* called while lines are read; optional */
  void *ctx;
} tri_supervisor;

/* Writes one line, whatever words from outside it has: control bytes become spaces. What does not fit into a line is
 * cut; a line for which there is no room waits. */
void tri_supervisor_tell(tri_supervisor *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Writes what waits, or else that this process lives; about once a second. */
void tri_supervisor_alive(tri_supervisor *s);
int tri_supervisor_poll_fd(const tri_supervisor *s); /* readable when there is something; -1: never */
/* Reads what has come. Returns true at a line "over WHY", after which the supervisor ends this process soon: `why` has
 * the reason. "drain SIGNAL" sets `drain`. "expect GROUP EPOCH", "died GROUP EPOCH WHY", "held GROUP given_up SECONDS
 * WHY" and "held GROUP quarantined SECONDS WHY" are events. Other lines are passed over. */
bool tri_supervisor_gives_up(tri_supervisor *s);

#endif
