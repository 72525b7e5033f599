/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and the journal: the core's calls for records and for a restart. A part of coordinator/core.h. */
#ifndef TRI_COORDINATOR_JOBS_RECOVERY_H
#define TRI_COORDINATOR_JOBS_RECOVERY_H

#include "coordinator/core_config.h"

/* Records up to this number are durable: what was accepted with them may be confirmed. */
void tri_core_durable(tri_core *c, int64_t now, uint64_t number);
/* Says that there is no room for records in the journal's folder, which stays where it is: then no new job is taken.
 * NULL: there is. */
void tri_core_set_full(tri_core *c, const char *folder);
/* Makes the jobs of an earlier start anew, from its records in their order, before anything else comes in; age_ns: of
 * the record. After the last one, tri_core_restored. TRI_NO_MEMORY: a job, or a part of one, is not there. */
tri_status tri_core_restore(tri_core *c, int64_t now, int64_t age_ns, const tri_record *r, uint64_t number);
void tri_core_restored(tri_core *c, int64_t now);
/* The same of a record that has all of a job: false where the job is to be made from its parts, as what was before
 * it is not there. */
bool tri_core_restore_whole(tri_core *c, uint64_t job, uint64_t number);
/* Records jobs anew whose first record has a number before this, oldest first and some of them in one call. room: bytes
 * that there are for the first one, 0: as many as there always are. */
void tri_core_compact(tri_core *c, int64_t now, uint64_t before, size_t room);
/* Records all jobs anew that have not ended. */
void tri_core_record_again(tri_core *c, int64_t now);
/* Returns how much room the first one needs that has more than there always is; 0: there is none such. */
size_t tri_core_compact_room(const tri_core *c, uint64_t before);
/* Returns the number of the oldest record that a restart needs; UINT64_MAX: it needs none. */
uint64_t tri_core_oldest_record(const tri_core *c);
/* Returns whether the next start may be asked for a job: one that has not ended, or whose client has gone before it was
 * told. */
bool tri_core_owes(const tri_core *c);
uint64_t tri_core_record_bytes(const tri_core *c); /* about, of records of all jobs that have not ended */

#endif
