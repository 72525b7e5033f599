/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder: appends the core's records to the journal, and restores the jobs of an earlier start from it. It runs
 * in the server's one thread. A NULL recorder records nothing. */
#ifndef TRI_COORDINATOR_JOURNAL_RECORDER_H
#define TRI_COORDINATOR_JOURNAL_RECORDER_H

#include "coordinator/core.h"

typedef struct tri_recorder tri_recorder;

/* Opens the journal in a folder and restores the core's jobs, which has none yet. TRI_AGAIN: another coordinator has
 * it; TRI_CORRUPT: it is damaged, or of another version. */
tri_status tri_recorder_open(const char *folder, uint64_t segment_bytes, tri_core *core, int64_t now,
                             tri_recorder **out, tri_error *err);
void tri_recorder_close(tri_recorder *k);
/* The same, and removes the journal, of which the next start needs nothing. */
void tri_recorder_remove(tri_recorder *k);

/* tri_core_io's record. */
uint64_t tri_recorder_record(tri_recorder *k, const tri_record *r);
/* Says in which bytes the tokens came that are recorded next: these are kept, which saves packing them again. NULL:
 * none. */
void tri_recorder_came_as(tri_recorder *k, const void *data, size_t len);
/* Writes what was recorded: before anything that tells clients of it. What it returns ends the coordinator. */
tri_status tri_recorder_write(tri_recorder *k, tri_error *err);
/* Returns true where so much waits to be written that it should not wait for more. */
bool tri_recorder_has_much(const tri_recorder *k);
/* Tells the core whether there is room for new jobs: after every write, since a second may bring more than the disk
 * has. */
void tri_recorder_tell_room(tri_recorder *k, tri_core *core);
/* Returns a descriptor that is readable when more is durable; -1 for NULL. */
int tri_recorder_fd(const tri_recorder *k);
/* Tells the core what is durable. */
tri_status tri_recorder_take_sync(tri_recorder *k, tri_core *core, int64_t now, tri_error *err);
/* Forgets what no restart needs, moves what keeps it, and tells the room, too. A journal that was removed is
 * made anew, with the jobs that have not ended. About once a second. */
tri_status tri_recorder_tidy(tri_recorder *k, tri_core *core, int64_t now, tri_error *err);

#endif
