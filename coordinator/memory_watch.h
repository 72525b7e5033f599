/* SPDX-License-Identifier: Apache-2.0 */
/* The watch over memory that clients can make the library of the sockets hold: a message without end fills it before
 * anything is readable, and only closing the socket frees it. */
#ifndef TRI_COORDINATOR_MEMORY_WATCH_H
#define TRI_COORDINATOR_MEMORY_WATCH_H

#include <stdbool.h>

typedef struct tri_memory_watch {
  double base_mb, cap_mb; /* resident at the start, and how much more may be */
  double kept_mb;         /* of that: held on purpose, within a bound of its own, and not counted */
  double jobs_mb;         /* of that: of jobs, which no socket's closing frees */
  int trims;              /* ticks in which freed memory is still given back */
  int ticks_above;        /* in a row with memory above the cap */
  bool is_crowded;        /* memory is above the cap with what jobs have: no new ones are to be taken */
} tri_memory_watch;

double tri_resident_mb(void); /* of this process */
void tri_memory_watch_begin(tri_memory_watch *w, double cap_mb);
/* Returns true when the client socket, with all its peers, is to be closed and bound anew. Memory that
 * does not return thereby is held elsewhere: after a while it counts as the new base, so that clients are not thrown
 * out for ever. Where jobs have most of it nothing is closed: is_crowded says so until there is room. Called ten times
 * a second with the memory that is resident. */
bool tri_memory_watch_tick(tri_memory_watch *w, double mb);

#endif
