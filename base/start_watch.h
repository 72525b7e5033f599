/* SPDX-License-Identifier: Apache-2.0 */
/* A watch over the start of a process: a thread that says in the log where the start stands when a phase of it makes no
 * progress, and ends the process when that takes too long. The phase itself may stand in a call that knows no deadline.
 *
 *   tri_start_watch_begin(&s, 300, &err);
 *   tri_start_watch_phase(&s, "connect", NULL);
 *   ...
 *   tri_start_watch_end(&s); */
#ifndef TRI_BASE_START_WATCH_H
#define TRI_BASE_START_WATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { TRI_START_SAY_S = 30 };

/* Seconds without progress after which there is a word: less where the limit is near. */
static inline double tri_start_say_after(double limit_s) {
  return limit_s < 2 * TRI_START_SAY_S ? limit_s / 2 : TRI_START_SAY_S;
}

typedef struct tri_start_watch {
  double limit_s; /* without progress, until the process is ended with TRI_EXIT_FAILED */
  const char *_Atomic phase;
  const uint64_t *_Atomic counter;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t thread;
  bool running, ended;
} tri_start_watch;

/* Starts the thread that watches. *s must stay where it is until the end. */
tri_status tri_start_watch_begin(tri_start_watch *s, double limit_s, tri_error *err);

/* A new phase is progress, and so is each change of its counter (NULL: it has none), which is read with
 * __atomic_load_n. The text and the counter must outlive the watch. */
void tri_start_watch_phase(tri_start_watch *s, const char *phase, const uint64_t *counter);

void tri_start_watch_end(tri_start_watch *s); /* one that never began is fine */

#endif
