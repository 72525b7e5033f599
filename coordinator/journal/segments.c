/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a journal and the files in it: segments are allocated ahead, begun and forgotten; the folder is locked,
 * and made anew where it was removed.
 *
 *   lock                    flock of the coordinator that has the journal, or of `trireme journal` for a moment
 *   spare                   the next segment, allocated; its name becomes a segment's when it is begun
 *   0000000000000001.journal, ...
 *
 * A cleaner of old files, or a user, may remove any of this at any time. A file that is open without its name is worth
 * nothing to the next start, so names are compared with what is open (is_in_place, journal_has_segment) before anything
 * counts as durable, and nothing is removed in a folder without its lock. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "coordinator/journal/journal_impl.h"
#include "base/file.h"
#include "base/xxh3.h"

static const char SPARE[] = "spare";

void journal_name(uint64_t first, char out[JOURNAL_NAME_BYTES]) {
  snprintf(out, JOURNAL_NAME_BYTES, "%016" PRIx64 ".journal", first);
}

uint64_t journal_sum(uint64_t salt, const journal_record_head *h, const void *payload) {
  uint64_t parts[3] = {salt, tri_xxh3(h, offsetof(journal_record_head, sum)), tri_xxh3(payload, h->len)};
  return tri_xxh3(parts, sizeof parts);
}

journal_head journal_head_of(uint64_t salt, uint64_t first) {
  journal_head h = {.mark = JOURNAL_MARK, .first = first, .salt = salt};
  h.sum = tri_xxh3(&h, offsetof(journal_head, sum));
  return h;
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

/* Gives every byte of a file its place on the disk. Returns 0, or an errno. */
static int give_room(int fd, uint64_t bytes) {
  int e;
  do e = posix_fallocate(fd, 0, (off_t)bytes);
  while (e == EINTR);
  return e;
}

static bool is_no_room(int e) { return e == ENOSPC || e == EDQUOT || e == EFBIG; }

/* Makes a file of so many bytes, all with their place on the disk. One without room for them has half of them, or half
 * of that, and so on down to `least`. */
static tri_status allocate(const tri_journal *j, const char *name, uint64_t least, uint64_t *bytes, int *out,
                           tri_error *err) {
  int fd = openat(j->folder_fd, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), e;
  if (fd < 0) {
    tri_status st = errno == ENOSPC || errno == EDQUOT ? TRI_NO_CAPACITY : TRI_IO;
    return tri_fail(err, st, "journal", "%s/%s cannot be made: %s", j->folder, name, strerror(errno));
  }
  while (is_no_room(e = give_room(fd, *bytes)) && *bytes > least && !ftruncate(fd, 0))
    *bytes = *bytes / 2 > least ? *bytes / 2 : least;
  if (!e) {
    *out = fd;
    return TRI_OK;
  }
  close(fd);
  unlinkat(j->folder_fd, name, 0);
  return tri_fail(err, is_no_room(e) ? TRI_NO_CAPACITY : TRI_IO, "journal",
                  "%s has no room for %" PRIu64 " KiB of the journal: %s", j->folder, (*bytes + 1023) >> 10,
                  strerror(e));
}

/* The spare stays open: it could not be opened when the process has no descriptor left. */
static bool open_spare(tri_journal *j) {
  if (j->spare_fd < 0) j->spare_fd = openat(j->folder_fd, SPARE, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  return j->spare_fd >= 0;
}

/* Gives the spare so many bytes; without room it keeps those that it has. */
static tri_status extend_spare(tri_journal *j, uint64_t bytes) {
  if (!open_spare(j)) return TRI_IO;
  int e = give_room(j->spare_fd, bytes);
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
    j->no_room = (double)disk.f_bavail * (double)disk.f_frsize < (double)(j->segment_bytes + JOURNAL_SMALL_BYTES);
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
 * closes it after that: it has no descriptor of its own, for which there might be no room in the process. */
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

/* In this order, so that a failure of the machine leaves nothing that looks like damage: the segment before it is
 * synced; the new one has its bytes and a durable head; then it gets its name, and the folder is synced; then records
 * are written to it. */
tri_status journal_begin_segment(tri_journal *j, uint64_t bytes, tri_error *err) {
  char name[JOURNAL_NAME_BYTES];
  uint64_t first = j->written + 1, size = bytes > j->segment_bytes ? bytes : j->segment_bytes;
  if (!bytes && size > JOURNAL_SMALL_BYTES) size = JOURNAL_SMALL_BYTES;
  journal_name(first, name);
  if (!journal_has_lock(j)) return tri_fail(err, TRI_IO, "journal", "%s/lock was removed", j->folder);
  if (!journal_has_segment(j))
    return tri_fail(err, TRI_IO, "journal", "the segment in %s was removed or truncated", j->folder);
  TRI_CHECK(journal_leave_segment(j, err)); /* a segment that has a name says that those before it are whole */
  bool spare = bytes && size <= j->spare_bytes;
  int fd = j->spare_fd;
  if (spare) size = j->spare_bytes;
  if (!spare) TRI_CHECK(allocate(j, name, bytes ? bytes : size, &size, &fd, err));
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

/* Removes the last segment, of which nothing is needed: a full disk has no room for another one. A crash in
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

/* ---- the folder ---- */

enum { TRIES = 100, LOCK_TRIES = 20, LOCK_WAIT_US = 10000 };

typedef struct place {
  int folder_fd, lock_fd;
} place;

static bool is_same(const struct stat *a, const struct stat *b) {
  return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

static bool has_lock(place at) {
  struct stat lock, named;
  return !fstat(at.lock_fd, &lock) && !fstatat(at.folder_fd, "lock", &named, 0) && is_same(&lock, &named);
}

bool journal_has_lock(const tri_journal *j) { return has_lock((place){j->folder_fd, j->lock_fd}); }

/* Returns whether the folder and its lock are those that their names lead to. */
static bool has_names(const char *name, place at) {
  struct stat folder, named;
  return !fstat(at.folder_fd, &folder) && !stat(name, &named) && is_same(&folder, &named) && has_lock(at);
}

static bool is_in_place(const tri_journal *j) { return has_names(j->folder, (place){j->folder_fd, j->lock_fd}); }

static void close_place(place *at) {
  if (at->lock_fd >= 0) close(at->lock_fd);
  if (at->folder_fd >= 0) close(at->folder_fd);
  *at = (place){-1, -1};
}

static tri_status check_owner(const char *name, int folder_fd, tri_error *err) {
  struct stat about;
  if (fstat(folder_fd, &about) || about.st_uid != geteuid())
    return tri_fail(err, TRI_PERMISSION, "journal", "the folder %s is not this user's", name);
  if (about.st_mode & 077)
    return tri_fail(err, TRI_PERMISSION, "journal",
                    "the folder %s lets others in (mode %04o): it has the texts of requests; make it 0700", name,
                    (unsigned)about.st_mode & 07777);
  return TRI_OK;
}

static tri_status lock(const char *name, int fd, tri_error *err) {
  if (!flock(fd, LOCK_EX | LOCK_NB)) return TRI_OK;
  if (errno == EWOULDBLOCK)
    return tri_fail(err, TRI_AGAIN, "journal", "another coordinator uses the journal in %s", name);
  return tri_fail(err, TRI_IO, "journal", "%s/lock cannot be locked: %s", name, strerror(errno));
}

/* Opens and locks the folder. *moved: it was removed meanwhile, and the next try may find another one. */
static tri_status try_folder(const char *name, place *out, bool *moved, tri_error *err) {
  *moved = false;
  if (mkdir(name, 0700) && errno != EEXIST)
    return tri_fail(err, TRI_IO, "journal", "the folder %s cannot be made: %s", name, strerror(errno));
  place at = {open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), -1};
  if (at.folder_fd < 0)
    return tri_fail(err, TRI_IO, "journal", "the folder %s cannot be opened: %s", name, strerror(errno));
  tri_status st = check_owner(name, at.folder_fd, err);
  if (st == TRI_OK && (at.lock_fd = openat(at.folder_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600)) < 0) {
    st = tri_fail(err, TRI_IO, "journal", "%s/lock cannot be made: %s", name, strerror(errno));
    *moved = errno == ENOENT;
  }
  if (st == TRI_OK) st = lock(name, at.lock_fd, err);
  if (st == TRI_OK && !has_names(name, at)) {
    st = tri_fail(err, TRI_IO, "journal", "the folder %s is removed again and again", name);
    *moved = true;
  }
  if (st == TRI_OK)
    *out = at;
  else
    close_place(&at);
  return st;
}

/* The owner of the lock may remove all of it, so that what was opened meanwhile has no name any more. */
static tri_status open_place(const char *name, place *out, tri_error *err) {
  for (int i = 0;; i++) {
    bool moved;
    tri_status st = try_folder(name, out, &moved, err);
    if (st == TRI_OK || !moved || i == TRIES) return st;
    if (err) tri_error_clear(err);
  }
}

/* `trireme journal` has the lock of a journal for a moment: it is tried for again. */
tri_status journal_open_folder(tri_journal *j, tri_error *err) {
  place at = {-1, -1};
  tri_status st = open_place(j->folder, &at, err);
  for (int i = 0; st == TRI_AGAIN && i < LOCK_TRIES; i++) {
    usleep(LOCK_WAIT_US);
    if (err) tri_error_clear(err);
    st = open_place(j->folder, &at, err);
  }
  j->folder_fd = at.folder_fd;
  j->lock_fd = at.lock_fd;
  return st;
}

void journal_close_folder(tri_journal *j) {
  place at = {j->folder_fd, j->lock_fd};
  close_place(&at);
  j->lock_fd = j->folder_fd = -1;
}

static void remove_segments(tri_journal *j) {
  char name[JOURNAL_NAME_BYTES];
  for (size_t i = 0; i < j->num_segments; i++) {
    journal_name(j->segments[i].first, name);
    unlinkat(j->folder_fd, name, 0);
  }
}

/* A folder that others have files in stays. */
void journal_remove_files(tri_journal *j) {
  if (!is_in_place(j)) return;
  journal_drop_spare(j);
  remove_segments(j);
  unlinkat(j->folder_fd, "lock", 0);
  rmdir(j->folder);
}

bool journal_has_segment(const tri_journal *j) {
  char name[JOURNAL_NAME_BYTES];
  struct stat used, named;
  if (j->fd < 0) return true;
  journal_name(j->segments[j->num_segments - 1].first, name);
  return !fstat(j->fd, &used) && !fstatat(j->folder_fd, name, &named, 0) && is_same(&used, &named) &&
         journal_is_kept(j->fd, j->room);
}

static bool is_folder_of(const tri_journal *j, int folder_fd) {
  struct stat used, named;
  return !fstat(j->folder_fd, &used) && !fstat(folder_fd, &named) && is_same(&used, &named);
}

/* Returns whether a segment in a folder is this journal's own, or a copy of one: by the salt of its head. One that was
 * not begun has none; in the folder that this journal has it is its own. */
static bool is_own(const tri_journal *j, int folder_fd, const char *name) {
  journal_head head = {0};
  int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  ssize_t n = fd >= 0 ? pread(fd, &head, sizeof head, 0) : -1;
  if (fd >= 0) close(fd);
  if (n >= 0 && !head.mark) return is_folder_of(j, folder_fd);
  return n == sizeof head && head.salt == j->salt;
}

/* Refuses a segment that another start has left, of requests that wait for it: they would be lost, or be mixed with
 * these. */
static tri_status refuse_others(tri_journal *j, int folder_fd, const char *name, tri_error *err) {
  if (is_own(j, folder_fd, name)) return TRI_OK;
  return tri_fail(err, TRI_AGAIN, "journal", "%s/%s is of another start's journal: move it away", j->folder, name);
}

static tri_status remove_own(tri_journal *j, int folder_fd, const char *name, tri_error *err) {
  if (!is_own(j, folder_fd, name) || !unlinkat(folder_fd, name, 0)) return TRI_OK;
  return tri_fail(err, TRI_IO, "journal", "%s/%s cannot be removed: %s", j->folder, name, strerror(errno));
}

tri_status journal_each_segment(tri_journal *j, int folder_fd, journal_take_segment *take, tri_error *err) {
  int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
  tri_status st = TRI_OK;
  uint64_t first;
  if (!d) {
    if (fd >= 0) close(fd);
    return tri_fail(err, TRI_IO, "journal", "%s cannot be listed: %s", j->folder, strerror(errno));
  }
  for (struct dirent *e; st == TRI_OK && (e = readdir(d));)
    if (journal_is_segment(e->d_name, &first)) st = take(j, folder_fd, e->d_name, err);
  closedir(d);
  return st;
}

/* Takes the folder that has the name now. Until that is open and locked the old one stays. */
static tri_status move_to_named(tri_journal *j, tri_error *err) {
  place at;
  int why = tri_file_make_folders(j->folder);
  if (why) return tri_fail(err, TRI_IO, "journal", "the folders above %s cannot be made: %s", j->folder, strerror(why));
  TRI_CHECK(open_place(j->folder, &at, err));
  tri_status st = journal_each_segment(j, at.folder_fd, refuse_others, err);
  if (st != TRI_OK) {
    close_place(&at);
    return st;
  }
  journal_drop_spare(j);
  journal_close_folder(j);
  j->folder_fd = at.folder_fd;
  j->lock_fd = at.lock_fd;
  return TRI_OK;
}

static tri_status begin_anew(tri_journal *j, tri_error *err) {
  TRI_CHECK(is_in_place(j) ? journal_each_segment(j, j->folder_fd, refuse_others, err) : move_to_named(j, err));
  j->is_lost = true; /* until there is a segment */
  TRI_CHECK(journal_leave_segment(j, err));
  journal_drop_spare(j);
  TRI_CHECK(journal_each_segment(j, j->folder_fd, remove_own, err)); /* those that are left miss others after them */
  j->num_segments = 0;
  j->in_use = false;
  TRI_CHECK(journal_begin_segment(j, 0, err));
  j->is_lost = false;
  return TRI_OK;
}

/* A folder that only has another name now is this journal's as before: it has the lock, and the segment in use. */
static void lose(tri_journal *j) {
  if (!j->is_lost && journal_has_lock(j) && journal_has_segment(j)) return;
  j->is_lost = true;
  journal_leave_segment(j, NULL);
  journal_drop_spare(j);
  j->num_segments = 0;
}

tri_status tri_journal_renew(tri_journal *j, bool *renewed, tri_error *err) {
  *renewed = false;
  if (!j->is_lost && is_in_place(j) && journal_has_segment(j)) return TRI_OK;
  tri_status st = begin_anew(j, err);
  *renewed = st == TRI_OK;
  if (st != TRI_OK) lose(j);
  return st;
}

bool tri_journal_is_lost(const tri_journal *j) { return j->is_lost; }
