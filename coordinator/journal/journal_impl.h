/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of a journal alone. */
#ifndef TRI_COORDINATOR_JOURNAL_JOURNAL_IMPL_H
#define TRI_COORDINATOR_JOURNAL_JOURNAL_IMPL_H

#include <limits.h>
#include <pthread.h>

#include "coordinator/journal/journal.h"
#include "base/buf.h"

enum {
  JOURNAL_HEAD_BYTES = 32,   /* of a segment */
  JOURNAL_RECORD_BYTES = 32, /* of a record, before its payload */
  JOURNAL_NAME_BYTES = 32,
  JOURNAL_SMALL_BYTES = 256 << 10, /* the segment of an empty journal, and the least that a start needs for its jobs */
};
/* "trijrnl3": its last byte counts versions, of records' contents and of the numbers of tri_status in them, too. */
static const uint64_t JOURNAL_MARK = 0x336c6e726a697274;

typedef struct journal_head {
  uint64_t mark, first, salt; /* first: number of its first record */
  uint64_t sum;               /* of the others */
} journal_head;

typedef struct journal_record_head {
  uint32_t len, type;
  uint64_t number, durable, sum;
} journal_record_head;
_Static_assert(sizeof(journal_head) == JOURNAL_HEAD_BYTES, "a segment's head has no gaps");
_Static_assert(sizeof(journal_record_head) == JOURNAL_RECORD_BYTES, "a record's head has no gaps");

typedef struct journal_segment {
  uint64_t first; /* number of its first record, or of the one that it will have */
} journal_segment;

struct tri_journal {
  char folder[PATH_MAX];
  int folder_fd, lock_fd, fd;       /* fd: of the last segment */
  uint64_t segment_bytes, room, at; /* of the last segment: its size, and where the next record goes */
  uint64_t next;                    /* number of the next record */
  uint64_t salt;                    /* of its records' sums: a client cannot write bytes that pass for a record */
  journal_segment *segments;        /* oldest first */
  size_t num_segments, cap_segments;
  uint64_t spare_bytes;
  bool in_use;         /* something was written since it was empty: then there is to be a spare, */
  bool no_room;        /* and else it is known whether there would be one */
  bool is_lost;        /* its files have no names any more, and there are no others: nothing is written */
  int spare_fd;        /* of "spare", open so that it can be begun without a free descriptor; -1: there is none */
  tri_buf pending;     /* records that are not written */
  size_t pending_done; /* bytes of them that are */
  uint64_t written;    /* number of the last record that is written */
  /* Shared with the thread that syncs. */
  pthread_t thread;
  bool has_thread;
  pthread_mutex_t lock;
  pthread_cond_t wake;
  int event_fd;
  int sync_fd;        /* what it syncs: fd */
  uint64_t sync_room; /* of that: room */
  int syncing_fd;     /* what it syncs at the moment, which is open until then; -1: nothing */
  uint64_t wanted, durable;
  bool leaving, failed;
  bool removed; /* the segment in use has no name any more, so that no start will find it, or was truncated */
  int failure;  /* errno of a sync */
};

static inline size_t journal_padded(size_t len) { return (len + 7) & ~(size_t)7; }
uint64_t journal_sum(uint64_t salt, const journal_record_head *h, const void *payload);
/* Returns the head of a segment. */
journal_head journal_head_of(uint64_t salt, uint64_t first);
void journal_name(uint64_t first, char out[JOURNAL_NAME_BYTES]);
/* Returns whether a file of a folder is a segment by its name, and its first record's number by that. */
bool journal_is_segment(const char *name, uint64_t *first);

/* read.c: finds the segments and hands over what they have. Leaves the last one's number, size and end in j,
 * which has no segment where there is none. */
tri_status journal_read_all(tri_journal *j, tri_status (*take)(void *ctx, const tri_journal_record *r, tri_error *err),
                            void *ctx, tri_error *err);

/* segments.c: the folder with its lock, and the files in it. */
tri_status journal_open_folder(tri_journal *j, tri_error *err);
void journal_close_folder(tri_journal *j);
/* Removes the folder with what is in it, where it still has its name. */
void journal_remove_files(tri_journal *j);
/* Returns whether the lock of the open folder is still this journal's: without it the files there may be another's. */
bool journal_has_lock(const tri_journal *j);
/* Returns whether the segment in use has its name in there, and all of its bytes; true where there is none. */
bool journal_has_segment(const tri_journal *j);
/* Begins a segment for the next record, of at least so many bytes; 0: a small one, of an empty journal. It is smaller
 * than others where the disk has no room for a whole one. TRI_NO_CAPACITY: the disk has no room for these bytes. */
tri_status journal_begin_segment(tri_journal *j, uint64_t bytes, tri_error *err);
/* Returns whether a file that is open still has a name, and so many bytes; true where that cannot be told. A segment
 * has all of its bytes from its beginning on: one that has fewer was truncated. */
bool journal_is_kept(int fd, uint64_t bytes);
/* Writes all of it, in as many calls as that takes. False: errno says why not. */
bool journal_write_at(int fd, const void *p, size_t n, uint64_t at);
tri_status journal_add_segment(tri_journal *j, uint64_t first);
/* Hands every segment of a folder to take, whose failure ends it. */
typedef tri_status journal_take_segment(tri_journal *j, int folder_fd, const char *name, tri_error *err);
tri_status journal_each_segment(tri_journal *j, int folder_fd, journal_take_segment *take, tri_error *err);
void journal_make_spare(tri_journal *j);
void journal_empty_spare(tri_journal *j); /* it keeps its descriptor, for which there might be no room later */
void journal_drop_spare(tri_journal *j);
void journal_look_for_room(tri_journal *j); /* of one that is not in use */
/* Syncs the segment in use, and leaves it. */
tri_status journal_leave_segment(tri_journal *j, tri_error *err);

#endif
