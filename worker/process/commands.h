/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's words that the leader's step thread has not taken yet: jobs, and jobs to be aborted, in the order
 * in which they came. That thread looks between two steps, which may take seconds, and a coordinator gives the room of
 * a cancelled job away at once: what does not fit into the ring between both threads waits in a list after it. A job
 * that is aborted there goes at once, so that the list grows with the jobs that the coordinator has here and no
 * further. */
#ifndef TRI_WORKER_PROCESS_COMMANDS_H
#define TRI_WORKER_PROCESS_COMMANDS_H

#include <sys/queue.h>

#include "base/ring.h"
#include "worker/schedule/scheduler.h"

typedef struct tri_command {
  TAILQ_ENTRY(tri_command) links;
  tri_job *job;   /* NULL: abort, */
  uint64_t abort; /* this one */
} tri_command;

typedef struct tri_commands {
  tri_ring ring;
  TAILQ_HEAD(tri_command_list, tri_command) behind; /* the control thread's */
} tri_commands;

tri_status tri_commands_init(tri_commands *c, size_t in_ring);
void tri_commands_free(tri_commands *c); /* with the jobs that it still holds, when one thread is left */

/* ---- the control thread ---- */

tri_status tri_commands_add(tri_commands *c, tri_job *job); /* takes over, unless there is no memory */
/* Ends a job, whose number is below 2^63. One that the step thread has not seen may end here, without a word.
 */
tri_status tri_commands_abort(tri_commands *c, uint64_t id);
bool tri_commands_move(tri_commands *c);   /* into the ring; returns whether any were moved */
void tri_commands_forget(tri_commands *c); /* all but the ring's */
/* Returns whether there are some that the step thread has not taken. */
bool tri_commands_hold(const tri_commands *c);

/* ---- the step thread ---- */

/* Takes a job, which is the caller's then, or NULL and the number of one to abort. False: there is nothing. */
bool tri_commands_take(tri_commands *c, tri_job **job, uint64_t *abort);
void tri_commands_drop(tri_commands *c); /* takes all of the ring's, and destroys the jobs */

#endif
