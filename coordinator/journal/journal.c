/* SPDX-License-Identifier: Apache-2.0 */
/* Three numbers of records only grow: durable <= written <= next - 1. Appending moves `next` and fills `pending`;
 * writing empties that into the segment and moves `written`; the thread syncs and moves `durable`. A record becomes
 * durable in the segment in which it was written, so a segment is synced before the next one is begun. The lock is held
 * for the few fields that both threads have, and never during a write or a sync. */
#include "coordinator/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "coordinator/journal/journal_impl.h"
#include "base/mem.h"

/* ---- the thread that syncs ---- */

/* Syncs whenever something was asked for that is not durable. What is asked for during a sync is one more sync after
 * it, however many records that are. The descriptor may be left by its owner meanwhile (journal_leave_segment): then
 * this thread closes it. */
static void *sync_written(void *ctx) {
  tri_journal *j = ctx;
  pthread_mutex_lock(&j->lock);
  while (!j->leaving) {
    if (j->failed || j->removed || j->sync_fd < 0 || j->wanted <= j->durable) {
      pthread_cond_wait(&j->wake, &j->lock);
      continue;
    }
    uint64_t upto = j->wanted;
    uint64_t room = j->sync_room;
    int fd = j->syncing_fd = j->sync_fd;
    pthread_mutex_unlock(&j->lock);
    int e = fdatasync(fd) ? errno : 0;
    bool kept = journal_is_kept(fd, room);
    pthread_mutex_lock(&j->lock);
    j->syncing_fd = -1;
    j->removed |= !kept && fd == j->sync_fd;
    if (fd != j->sync_fd) close(fd); /* its owner has left the segment meanwhile */
    j->failed |= e != 0;
    if (e) j->failure = e;
    if (!e && kept && j->durable < upto) j->durable = upto;
    eventfd_write(j->event_fd, 1);
  }
  pthread_mutex_unlock(&j->lock);
  return NULL;
}

void tri_journal_sync(tri_journal *j) {
  pthread_mutex_lock(&j->lock);
  j->wanted = j->written;
  pthread_cond_signal(&j->wake);
  pthread_mutex_unlock(&j->lock);
}

uint64_t tri_journal_durable(const tri_journal *j) {
  tri_journal *own = (tri_journal *)j;
  pthread_mutex_lock(&own->lock);
  uint64_t n = j->durable;
  pthread_mutex_unlock(&own->lock);
  return n;
}

bool tri_journal_is_removed(const tri_journal *j) {
  tri_journal *own = (tri_journal *)j;
  pthread_mutex_lock(&own->lock);
  bool removed = j->removed;
  pthread_mutex_unlock(&own->lock);
  return removed;
}

int tri_journal_fd(const tri_journal *j) { return j->event_fd; }

/* Nothing continues after a sync that has failed: what it left out may never come to the disk. */
static tri_status check_syncs(tri_journal *j, tri_error *err) {
  pthread_mutex_lock(&j->lock);
  bool failed = j->failed;
  int e = j->failure;
  pthread_mutex_unlock(&j->lock);
  return failed ? tri_fail(err, TRI_IO, "journal", "the journal in %s cannot be synced: %s", j->folder, strerror(e))
                : TRI_OK;
}

tri_status tri_journal_take_sync(tri_journal *j, tri_error *err) {
  eventfd_t ignored;
  eventfd_read(j->event_fd, &ignored);
  return check_syncs(j, err);
}

/* ---- records ---- */

tri_status tri_journal_append(tri_journal *j, uint32_t type, const void *data, size_t len, uint64_t *number) {
  static const char zeros[8];
  if (len > TRI_JOURNAL_MOST_BYTES) return TRI_TOO_LARGE;
  journal_record_head h = {.len = (uint32_t)len, .type = type, .number = j->next, .durable = tri_journal_durable(j)};
  h.sum = journal_sum(j->salt, &h, data);
  TRI_CHECK(tri_buf_reserve(&j->pending, sizeof h + journal_padded(len)));
  tri_buf_append(&j->pending, &h, sizeof h);
  tri_buf_append(&j->pending, data, len);
  tri_buf_append(&j->pending, zeros, journal_padded(len) - len);
  if (number) *number = j->next;
  j->next++;
  return TRI_OK;
}

/* Returns the bytes of the pending records, from the first on, that fit into so much room; *last is the number of the
 * last of them. */
static size_t fitting(const tri_journal *j, uint64_t room, uint64_t *last) {
  size_t n = 0;
  for (journal_record_head h; j->pending_done + n < j->pending.len;) {
    memcpy(&h, j->pending.data + j->pending_done + n, sizeof h);
    size_t bytes = sizeof h + journal_padded(h.len);
    if (n + bytes > room) break;
    n += bytes;
    *last = h.number;
  }
  return n;
}

static size_t first_bytes(const tri_journal *j) {
  journal_record_head h;
  memcpy(&h, j->pending.data + j->pending_done, sizeof h);
  return sizeof h + journal_padded(h.len);
}

/* Nothing waits for a file that there is not. */
static void pass_pending(tri_journal *j) {
  j->pending.len = j->pending_done = 0;
  j->written = j->next - 1;
  pthread_mutex_lock(&j->lock);
  j->durable = j->written;
  pthread_mutex_unlock(&j->lock);
  eventfd_write(j->event_fd, 1);
}

tri_status tri_journal_write(tri_journal *j, tri_error *err) {
  TRI_CHECK(check_syncs(j, err));
  if (j->is_lost) {
    if (j->pending.len || tri_journal_durable(j) < j->written) pass_pending(j);
    return TRI_OK;
  }
  if (j->pending.len && !j->in_use) {
    j->in_use = true;
    journal_make_spare(j);
  }
  while (j->pending_done < j->pending.len) {
    uint64_t last = j->written;
    size_t n = j->fd >= 0 ? fitting(j, j->room - j->at, &last) : 0;
    if (!n) {
      TRI_CHECK(journal_begin_segment(j, JOURNAL_HEAD_BYTES + first_bytes(j), err));
      continue;
    }
    if (!journal_write_at(j->fd, j->pending.data + j->pending_done, n, j->at))
      return tri_fail(err, TRI_IO, "journal", "the journal in %s cannot be written: %s", j->folder, strerror(errno));
    j->at += n;
    j->pending_done += n;
    j->written = last;
  }
  j->pending.len = j->pending_done = 0;
  return TRI_OK;
}

size_t tri_journal_pending_bytes(const tri_journal *j) { return j->pending.len - j->pending_done; }
uint64_t tri_journal_bytes(const tri_journal *j) { return j->num_segments * j->segment_bytes; }
uint64_t tri_journal_segment_bytes(const tri_journal *j) { return j->segment_bytes; }

uint64_t tri_journal_first_of_last(const tri_journal *j, size_t n) {
  if (!j->num_segments) return j->next;
  return j->segments[j->num_segments > n ? j->num_segments - n : 0].first;
}

bool tri_journal_is_full(const tri_journal *j) {
  if (j->is_lost) return false;
  return j->in_use ? j->spare_bytes < j->segment_bytes : j->no_room;
}

/* ---- opening and closing ---- */

/* Clears what was cut: a later start would take what is whole of it for records that follow those written until then.
 */
static bool wipe(const tri_journal *j) {
  static const char zeros[64 << 10];
  for (uint64_t at = j->at, n; at < j->room; at += n) {
    n = j->room - at < sizeof zeros ? j->room - at : sizeof zeros;
    if (!journal_write_at(j->fd, zeros, (size_t)n, at)) return false;
  }
  return true;
}

/* Goes on in the last segment, after its last whole record. */
static tri_status open_last(tri_journal *j, tri_error *err) {
  char name[JOURNAL_NAME_BYTES];
  j->written = j->durable = j->next - 1;
  if (!j->num_segments) return journal_begin_segment(j, 0, err);
  journal_name(j->segments[j->num_segments - 1].first, name);
  j->fd = openat(j->folder_fd, name, O_RDWR | O_CLOEXEC);
  if (j->fd < 0)
    return tri_fail(err, TRI_IO, "journal", "%s/%s cannot be opened: %s", j->folder, name, strerror(errno));
  j->sync_fd = j->fd;
  j->sync_room = j->room;
  journal_head head = journal_head_of(j->salt, j->segments[j->num_segments - 1].first);
  bool whole = j->at > JOURNAL_HEAD_BYTES || journal_write_at(j->fd, &head, sizeof head, 0);
  if (whole && wipe(j) && !fdatasync(j->fd) && !fsync(j->folder_fd)) return TRI_OK;
  return tri_fail(err, TRI_IO, "journal", "%s/%s cannot be written: %s", j->folder, name, strerror(errno));
}

/* A journal has the same salt for ever. */
static tri_status draw_salt(tri_journal *j, tri_error *err) {
  if (j->salt || getrandom(&j->salt, sizeof j->salt, 0) == sizeof j->salt) return TRI_OK;
  return tri_fail(err, TRI_INTERNAL, "journal", "the system has no random numbers: %s", strerror(errno));
}

/* Files that may not become so large would be found out with the first request. */
static tri_status check_size(const tri_journal *j, tri_error *err) {
  struct rlimit most;
  if (getrlimit(RLIMIT_FSIZE, &most) || most.rlim_cur == RLIM_INFINITY || most.rlim_cur >= j->segment_bytes)
    return TRI_OK;
  return tri_fail(
      err, TRI_NO_CAPACITY, "journal",
      "files may have %llu KiB (ulimit -f), and those of a journal have %llu: a larger limit, or --no-journal",
      (unsigned long long)most.rlim_cur >> 10, (unsigned long long)j->segment_bytes >> 10);
}

/* One that has nothing needs none, nor that of an earlier start. */
static void begin_spare(tri_journal *j) {
  j->in_use = j->num_segments && j->segments[0].first <= j->written;
  if (j->in_use) {
    journal_make_spare(j);
  } else {
    journal_empty_spare(j);
    journal_look_for_room(j);
  }
}

/* Jobs have room for what they record next, or there is no start: it would end with their first record. A segment that
 * was not trimmed has some. */
static tri_status begin_room(tri_journal *j, tri_error *err) {
  if (!j->in_use || j->spare_bytes || j->at < j->room) return TRI_OK;
  return journal_begin_segment(j, j->segment_bytes < JOURNAL_SMALL_BYTES ? j->segment_bytes : JOURNAL_SMALL_BYTES, err);
}

tri_status tri_journal_open(const tri_journal_config *config,
                            tri_status (*take)(void *ctx, const tri_journal_record *r, tri_error *err), void *ctx,
                            tri_journal **out, tri_error *err) {
  tri_journal *j = tri_calloc(1, sizeof *j);
  if (!j) return tri_fail(err, TRI_NO_MEMORY, "journal", "no memory");
  *j = (tri_journal){
      .folder_fd = -1, .lock_fd = -1, .fd = -1, .spare_fd = -1, .sync_fd = -1, .syncing_fd = -1, .event_fd = -1};
  pthread_mutex_init(&j->lock, NULL);
  pthread_cond_init(&j->wake, NULL);
  j->segment_bytes = config->segment_bytes ? config->segment_bytes : TRI_JOURNAL_SEGMENT_BYTES;
  tri_status st = TRI_OK;
  if ((size_t)snprintf(j->folder, sizeof j->folder, "%s", config->folder) >= sizeof j->folder)
    st = tri_fail(err, TRI_USAGE, "journal", "the folder's name is too long");
  if (st == TRI_OK) st = check_size(j, err);
  if (st == TRI_OK) st = journal_open_folder(j, err);
  if (st == TRI_OK) st = journal_read_all(j, take, ctx, err);
  if (st == TRI_OK) st = draw_salt(j, err);
  if (st == TRI_OK) st = open_last(j, err);
  if (st == TRI_OK && (j->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
    st = tri_fail(err, TRI_IO, "journal", "no event descriptor: %s", strerror(errno));
  if (st == TRI_OK && pthread_create(&j->thread, NULL, sync_written, j))
    st = tri_fail(err, TRI_NO_MEMORY, "journal", "the thread that syncs the journal cannot be started");
  j->has_thread = st == TRI_OK;
  if (st == TRI_OK) begin_spare(j);
  if (st == TRI_OK) st = begin_room(j, err);
  if (st == TRI_OK)
    *out = j;
  else
    tri_journal_close(j);
  return st;
}

/* Gives back what was allocated and not used. The next start begins a segment; on a full disk it might have no room for
 * one, and finds the rest of this one. */
static void trim(tri_journal *j) {
  if (j->failed || j->fd < 0) return;
  bool full = tri_journal_is_full(j);
  journal_drop_spare(j);
  if (full || ftruncate(j->fd, (off_t)j->at)) return; /* it stays as it is */
  fdatasync(j->fd);
}

static void end_thread(tri_journal *j) {
  if (!j->has_thread) return;
  tri_journal_write(j, NULL);
  pthread_mutex_lock(&j->lock);
  j->leaving = true;
  pthread_cond_signal(&j->wake);
  pthread_mutex_unlock(&j->lock);
  pthread_join(j->thread, NULL);
  fdatasync(j->fd);
  trim(j);
}

void tri_journal_close(tri_journal *j) {
  if (!j) return;
  end_thread(j);
  if (j->fd >= 0) close(j->fd);
  if (j->spare_fd >= 0) close(j->spare_fd);
  journal_close_folder(j);
  if (j->event_fd >= 0) close(j->event_fd);
  pthread_cond_destroy(&j->wake);
  pthread_mutex_destroy(&j->lock);
  tri_buf_free(&j->pending);
  tri_free(j->segments);
  tri_free(j);
}

void tri_journal_remove(tri_journal *j) {
  if (!j) return;
  if (!j->failed && j->num_segments) journal_remove_files(j);
  tri_journal_close(j);
}
