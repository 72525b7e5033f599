/* SPDX-License-Identifier: Apache-2.0 */
/* A journal: records that outlive the process that wrote them, in segments of a folder.
 *
 * A record is written (tri_journal_write) when a process that is killed no longer loses it, and durable when a machine
 * that fails does not either: a thread of the journal syncs what was written, one sync for all that came meanwhile
 * (group commit). Segments are files of a fixed size that are allocated before they are used, and the next one is
 * there before it is needed, so that a full disk is known while there is still room for the records of what runs. On
 * such a disk, what does not fit into that room goes into smaller ones. A journal in which nothing is needed has a
 * single small one.
 *
 *   file      NUMBER.journal, by the number of its first record in 16 hex digits
 *   header    mark with the version (8), number of the first record (8), salt (8), XXH3 of these (8); then records
 *   record    bytes of the payload (4), type (4), number (8), number of the last record that was durable by then (8),
 *             XXH3 of the salt, of these and of the payload (8), payload, zeros to 8
 *
 * Records are numbered from 1 on without a gap. What was not durable when the machine failed may be torn in any place:
 * the first record that is not whole, and all after it, are cut, unless one after it says that it was durable. That,
 * and all else that does not fit, is damage, and refused. Little-endian.
 * One thread owns a journal; its own thread only syncs. */
#ifndef TRI_COORDINATOR_JOURNAL_JOURNAL_H
#define TRI_COORDINATOR_JOURNAL_JOURNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct tri_journal tri_journal;

enum {
  TRI_JOURNAL_MOST_BYTES = 128 << 20,   /* of one record */
  TRI_JOURNAL_SEGMENT_BYTES = 16 << 20, /* of a segment, unless it is said otherwise */
};

typedef struct tri_journal_config {
  const char *folder;     /* made where it is missing, for this user alone */
  uint64_t segment_bytes; /* 0: TRI_JOURNAL_SEGMENT_BYTES; a record that is longer has a segment of its own */
} tri_journal_config;

typedef struct tri_journal_record {
  uint32_t type;
  uint64_t number;
  const void *data; /* of the caller of `take`, for the call */
  size_t len;
} tri_journal_record;

/* Opens a folder, locks it, and hands every record that it has to take, oldest first. TRI_AGAIN: another process has
 * it. TRI_CORRUPT: it is damaged, and *err names the file and the place. TRI_NO_CAPACITY: the disk has no room for
 * further records. What take returns ends the reading. */
tri_status tri_journal_open(const tri_journal_config *config,
                            tri_status (*take)(void *ctx, const tri_journal_record *r, tri_error *err), void *ctx,
                            tri_journal **out, tri_error *err);
/* Writes and syncs what there is, and gives back what was allocated ahead, unless the disk is full: the next start has
 * its room then. NULL is fine. */
void tri_journal_close(tri_journal *j);
/* The same, and removes all of it: nothing in it is needed. */
void tri_journal_remove(tri_journal *j);
/* Makes the journal anew with the next record if the folder was removed, or the segment removed or truncated that is
 * in use, and sets *renewed: what was in it is gone. Where that fails the open folder continues while it has its lock
 * and the segment; else the journal is lost until a later call makes it anew. */
tri_status tri_journal_renew(tri_journal *j, bool *renewed, tri_error *err);
/* Returns true where a sync has found the segment in use removed or truncated: what was written since the last one is
 * durable with tri_journal_renew, and what is synced after it. */
bool tri_journal_is_removed(const tri_journal *j);
/* Returns true while the journal is lost: records are taken and pass for durable, and no file has them. */
bool tri_journal_is_lost(const tri_journal *j);

/* Adds a record, which is kept in memory until tri_journal_write. *number may be NULL. */
tri_status tri_journal_append(tri_journal *j, uint32_t type, const void *data, size_t len, uint64_t *number);
/* Writes what was added. TRI_NO_CAPACITY: the disk is full; what was added stays, and the next call tries again. */
tri_status tri_journal_write(tri_journal *j, tri_error *err);
/* Asks for all that was written to become durable. */
void tri_journal_sync(tri_journal *j);
/* Returns the number of the last durable record. */
uint64_t tri_journal_durable(const tri_journal *j);
/* Returns a descriptor that is readable when tri_journal_durable may have changed, or a sync has failed. */
int tri_journal_fd(const tri_journal *j);
/* Takes note of that: TRI_IO when a sync has failed, after which nothing is durable any more. */
tri_status tri_journal_take_sync(tri_journal *j, tri_error *err);

size_t tri_journal_pending_bytes(const tri_journal *j); /* that were added and are not written */
uint64_t tri_journal_bytes(const tri_journal *j);       /* of its segments, as if all were whole */
uint64_t tri_journal_segment_bytes(const tri_journal *j);
/* Returns the number of the first record in the last n segments. */
uint64_t tri_journal_first_of_last(const tri_journal *j, size_t n);
/* Returns true where no further segment could be allocated: what runs may end, and nothing new should begin. */
bool tri_journal_is_full(const tri_journal *j);
/* Makes room for a record of so many bytes in the next segment. TRI_NO_CAPACITY: the disk has none, and nothing has
 * changed. */
tri_status tri_journal_reserve(tri_journal *j, uint64_t bytes);
/* Removes the segments whose records all lie before this number; with `number` after the last record the segment in
 * use goes, too, and nothing is left of any payload. */
tri_status tri_journal_forget(tri_journal *j, uint64_t number, tri_error *err);

#endif
