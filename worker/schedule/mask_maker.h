/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that work for constrained answers while the step thread does other things. One makes masks: the step
 * thread asks through a ring, and neither waits nor allocates. The other one prepares what comes from the control
 * thread, as compiling a schema may take longer than a report may be late. Each task itself publishes what comes of it.
 */
#ifndef TRI_WORKER_SCHEDULE_MASK_MAKER_H
#define TRI_WORKER_SCHEDULE_MASK_MAKER_H

#include "base/wait.h"

typedef struct tri_mask_maker tri_mask_maker;

/* A part of what is to be made, which lives until it has run. */
typedef struct tri_mask_task {
  void (*run)(struct tri_mask_task *task);
  struct tri_mask_task *next; /* of those that are to be prepared */
} tri_mask_task;

/* done: woken after each task; NULL: no thread is. Without tri_mask_maker_start tasks wait for tri_mask_maker_run. */
tri_status tri_mask_maker_create(tri_waker *done, tri_mask_maker **out);
tri_status tri_mask_maker_start(tri_mask_maker *m);
void tri_mask_maker_destroy(tri_mask_maker *m); /* runs what has been asked for; NULL is fine */

/* False: as many tasks as there is room for wait. One thread alone asks. */
bool tri_mask_maker_ask(tri_mask_maker *m, tri_mask_task *task);
/* Has the other thread run a task, from any thread. */
void tri_mask_maker_prepare(tri_mask_maker *m, tri_mask_task *task);
/* Runs the tasks that wait, in the caller's thread: of one that has not been started. */
void tri_mask_maker_run(tri_mask_maker *m);

#endif
