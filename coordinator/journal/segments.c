/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a journal: allocated ahead, begun, forgotten. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "coordinator/journal/journal_impl.h"
#include "base/mem.h"

static const char SPARE[] = "spare";
static const uint64_t SMALL_BYTES = 256 << 10; /* the segment of an empty journal */

void journal_name(uint64_t first, char out[JOURNAL_NAME_BYTES]) {
  snprintf(out, JOURNAL_NAME_BYTES, "%016" PRIx64 ".journal", first);
}

bool journal_is_segment(const char *name, uint64_t *first) {
  char made[JOURNAL_NAME_BYTES];
  *first = strtoull(name, NULL, 16);
  journal_name(*first, made);
  return !strcmp(made, name);
}

tri_status journal_add_segment(tri_journal *j, uint64_t first) {
  TRI_CHECK(tri_array_reserve(&j->segments, j->num_segments, &j->cap_segments, 1, sizeof *j->segments));
  j->segments[j->num_segments++] = (journal_segment){first};
  return TRI_OK;
}

/* Makes a file whose every byte has its place on the disk. */
static tri_status allocate(const tri_journal *j, const char *name, uint64_t bytes, int *out, tri_error *err) {
  int fd = openat(j->folder_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), e;
  if (fd < 0) {
    tri_status st = errno == ENOSPC || errno == EDQUOT ? TRI_NO_CAPACITY : TRI_IO;
    return tri_fail(err, st, "journal", "%s/%s cannot be made: %s", j->folder, name, strerror(errno));
  }
  do e = posix_fallocate(fd, 0, (off_t)bytes);
  while (e == EINTR);
  if (!e) {
    *out = fd;
    return TRI_OK;
  }
  close(fd);
  unlinkat(j->folder_fd, name, 0);
  return tri_fail(err, e == ENOSPC || e == EDQUOT || e == EFBIG ? TRI_NO_CAPACITY : TRI_IO, "journal",
                  "%s has no room for %" PRIu64 " MiB of the journal: %s", j->folder, bytes >> 20, strerror(e));
}

static bool open_spare(tri_journal *j) {
  if (j->spare_fd < 0) j->spare_fd = openat(j->folder_fd, SPARE, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  return j->spare_fd >= 0;
}

/* Gives the spare so many bytes; without room it keeps those that it has. */
static tri_status extend_spare(tri_journal *j, uint64_t bytes) {
  int e;
  if (!open_spare(j)) return TRI_IO;
  do e = posix_fallocate(j->spare_fd, 0, (off_t)bytes);
  while (e == EINTR);
  if (e && ftruncate(j->spare_fd, (off_t)j->spare_bytes)) j->spare_bytes = 0;
  if (e) return TRI_NO_CAPACITY;
  j->spare_bytes = bytes;
  return TRI_OK;
}

void journal_make_spare(tri_journal *j) {
  if (j->spare_bytes < j->segment_bytes) extend_spare(j, j->segment_bytes);
}

void journal_empty_spare(tri_journal *j) {
  if (open_spare(j) && !ftruncate(j->spare_fd, 0)) j->spare_bytes = 0;
}

void journal_drop_spare(tri_journal *j) {
  if (j->spare_fd >= 0) close(j->spare_fd);
  j->spare_fd = -1;
  j->spare_bytes = 0;
  if (journal_has_lock(j)) unlinkat(j->folder_fd, SPARE, 0);
}

void journal_look_for_room(tri_journal *j) {
  struct statvfs disk;
  if (!fstatvfs(j->folder_fd, &disk))
    j->no_room = (double)disk.f_bavail * (double)disk.f_frsize < (double)(j->segment_bytes + SMALL_BYTES);
}

tri_status tri_journal_reserve(tri_journal *j, uint64_t bytes) {
  uint64_t size = JOURNAL_HEAD_BYTES + JOURNAL_RECORD_BYTES + journal_padded(bytes);
  return j->is_lost || j->spare_bytes >= size ? TRI_OK : extend_spare(j, size);
}

bool journal_write_at(int fd, const void *p, size_t n, uint64_t at) {
  for (const char *from = p; n;) {
    ssize_t got = pwrite(fd, from, n, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (!got) errno = ENOSPC;
    if (got <= 0) return false;
    from += got;
    at += (uint64_t)got;
    n -= (size_t)got;
  }
  return true;
}

bool journal_is_kept(int fd, uint64_t bytes) {
  struct stat about;
  return fstat(fd, &about) || (about.st_nlink && (uint64_t)about.st_size >= bytes);
}

static tri_status write_head(const tri_journal *j, int fd, uint64_t first, tri_error *err) {
  journal_head head = journal_head_of(j->salt, first);
  if (journal_write_at(fd, &head, sizeof head, 0) && !fdatasync(fd)) return TRI_OK;
  return tri_fail(err, TRI_IO, "journal", "the journal in %s cannot be written: %s", j->folder, strerror(errno));
}

/* Syncs the segment in use, of which its thread then knows nothing more. Where that one is just syncing it, too, it
 * closes it behind that: it has no descriptor of its own, for which there might be no room in the process. */
tri_status journal_leave_segment(tri_journal *j, tri_error *err) {
  int e = 0;
  if (j->fd < 0) return TRI_OK;
  if (fdatasync(j->fd)) e = errno;
  bool kept = journal_is_kept(j->fd, j->room);
  pthread_mutex_lock(&j->lock);
  bool is_in_use = j->syncing_fd == j->fd;
  j->sync_fd = -1;
  j->failed |= e != 0;
  if (e) j->failure = e;
  if (!e && kept && j->durable < j->written) j->durable = j->written;
  pthread_mutex_unlock(&j->lock);
  if (j->event_fd >= 0) eventfd_write(j->event_fd, 1); /* the thread may find nothing left to tell of */
  if (!is_in_use) close(j->fd);
  j->fd = -1;
  return e ? tri_fail(err, TRI_IO, "journal", "the journal in %s cannot be synced: %s", j->folder, strerror(e))
           : TRI_OK;
}

tri_status journal_begin_segment(tri_journal *j, uint64_t bytes, tri_error *err) {
  char name[JOURNAL_NAME_BYTES];
  uint64_t first = j->written + 1, size = bytes > j->segment_bytes ? bytes : j->segment_bytes;
  if (!bytes && size > SMALL_BYTES) size = SMALL_BYTES;
  journal_name(first, name);
  if (!journal_has_lock(j)) return tri_fail(err, TRI_IO, "journal", "%s/lock was removed", j->folder);
  if (!journal_has_segment(j))
    return tri_fail(err, TRI_IO, "journal", "the segment in %s was removed or truncated", j->folder);
  TRI_CHECK(journal_leave_segment(j, err)); /* a segment that has a name says that those before it are whole */
  bool spare = bytes && size <= j->spare_bytes;
  int fd = j->spare_fd;
  if (spare) size = j->spare_bytes;
  if (!spare) TRI_CHECK(allocate(j, name, size, &fd, err));
  tri_status st = write_head(j, fd, first, err);
  if (st == TRI_OK && spare && renameat(j->folder_fd, SPARE, j->folder_fd, name))
    st = tri_fail(err, TRI_IO, "journal", "%s/%s cannot be named: %s", j->folder, name, strerror(errno));
  if (st == TRI_OK && fsync(j->folder_fd))
    st = tri_fail(err, TRI_IO, "journal", "%s cannot be synced: %s", j->folder, strerror(errno));
  bool known = j->num_segments && j->segments[j->num_segments - 1].first == first; /* nothing was written to it */
  if (st == TRI_OK && !known && journal_add_segment(j, first) != TRI_OK)
    st = tri_fail(err, TRI_NO_MEMORY, "journal", "no memory");
  if (st != TRI_OK) {
    if (!spare) close(fd);
    return st;
  }
  if (spare) j->spare_fd = -1;
  if (spare) j->spare_bytes = 0;
  j->fd = fd;
  j->room = size;
  j->at = JOURNAL_HEAD_BYTES;
  pthread_mutex_lock(&j->lock);
  j->sync_fd = fd;
  j->sync_room = size;
  j->removed = false;
  pthread_mutex_unlock(&j->lock);
  if (bytes) journal_make_spare(j);
  return TRI_OK;
}

/* Removes the last segment, of which nothing is needed: a full disk has no room for another one beside it. A crash in
 * between leaves a journal without records. */
static tri_status remove_last(tri_journal *j, tri_error *err) {
  char name[JOURNAL_NAME_BYTES];
  TRI_CHECK(journal_leave_segment(j, err));
  journal_name(j->segments[j->num_segments - 1].first, name);
  if (unlinkat(j->folder_fd, name, 0))
    return tri_fail(err, TRI_IO, "journal", "%s/%s cannot be removed: %s", j->folder, name, strerror(errno));
  j->num_segments--;
  return TRI_OK;
}

static tri_status drop_before(tri_journal *j, uint64_t number, tri_error *err) {
  char name[JOURNAL_NAME_BYTES];
  size_t gone = 0;
  while (gone + 1 < j->num_segments && j->segments[gone + 1].first <= number) gone++;
  for (size_t i = 0; i < gone; i++) {
    journal_name(j->segments[i].first, name);
    if (unlinkat(j->folder_fd, name, 0) && errno != ENOENT)
      return tri_fail(err, TRI_IO, "journal", "%s/%s cannot be removed: %s", j->folder, name, strerror(errno));
  }
  if (!gone) return TRI_OK;
  memmove(j->segments, j->segments + gone, (j->num_segments - gone) * sizeof *j->segments);
  j->num_segments -= gone;
  return TRI_OK;
}

/* Begins with a small segment, and with a spare of no bytes. */
static tri_status empty(tri_journal *j, tri_error *err) {
  journal_empty_spare(j);
  j->in_use = false;
  tri_status st = journal_begin_segment(j, 0, err);
  if (st != TRI_NO_CAPACITY) return st;
  if (err) tri_error_clear(err);
  TRI_CHECK(remove_last(j, err));
  return journal_begin_segment(j, 0, err);
}

tri_status tri_journal_forget(tri_journal *j, uint64_t number, tri_error *err) {
  if (j->is_lost || !journal_has_lock(j)) return TRI_OK; /* what is there may be another's */
  TRI_CHECK(drop_before(j, number, err));
  if (j->in_use)
    journal_make_spare(j);
  else
    journal_look_for_room(j);
  bool all = number > j->written && !j->pending.len && j->num_segments;
  if (!all || j->segments[j->num_segments - 1].first > j->written) return TRI_OK;
  TRI_CHECK(empty(j, err));
  return drop_before(j, number, err);
}
