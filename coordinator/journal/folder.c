/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a journal, and who has it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/journal/journal_impl.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

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

/* Tells whether the folder and its lock are those that their names lead to. */
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

/* Opens and locks the folder. *moved: somebody removes it meanwhile, and the next try may find another one. */
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

/* Whoever has the lock may remove all of it, so that what was opened meanwhile has no name any more. */
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
void tri_journal_remove(tri_journal *j) {
  if (!j) return;
  if (j->failed || j->num_segments == 0 || !is_in_place(j)) {
    tri_journal_close(j);
    return;
  }
  journal_drop_spare(j);
  remove_segments(j);
  unlinkat(j->folder_fd, "lock", 0);
  rmdir(j->folder);
  tri_journal_close(j);
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

/* Tells whether a segment in a folder is this journal's own, or a copy of one: by the salt of its head. One that was
 * not begun has none; in the folder that this journal has it is nobody else's. */
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
static tri_status refuse_others(const tri_journal *j, int folder_fd, const char *name, tri_error *err) {
  if (is_own(j, folder_fd, name)) return TRI_OK;
  return tri_fail(err, TRI_AGAIN, "journal", "%s/%s is of another start's journal: move it away", j->folder, name);
}

static tri_status remove_own(const tri_journal *j, int folder_fd, const char *name, tri_error *err) {
  if (!is_own(j, folder_fd, name) || !unlinkat(folder_fd, name, 0)) return TRI_OK;
  return tri_fail(err, TRI_IO, "journal", "%s/%s cannot be removed: %s", j->folder, name, strerror(errno));
}

/* Hands every segment of a folder to take, whose failure ends it. */
static tri_status each_segment(const tri_journal *j, int folder_fd,
                               tri_status (*take)(const tri_journal *j, int folder_fd, const char *name,
                                                  tri_error *err),
                               tri_error *err) {
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
  tri_status st = each_segment(j, at.folder_fd, refuse_others, err);
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
  TRI_CHECK(is_in_place(j) ? each_segment(j, j->folder_fd, refuse_others, err) : move_to_named(j, err));
  j->is_lost = true; /* until there is a segment */
  TRI_CHECK(journal_leave_segment(j, err));
  journal_drop_spare(j);
  TRI_CHECK(each_segment(j, j->folder_fd, remove_own, err)); /* those that are left miss others after them */
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
