/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a journal, and who has it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/journal_impl.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

enum { TRIES = 100 };

static bool is_same(const struct stat *a, const struct stat *b) {
  return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/* Tells whether the folder and its lock are those that their names lead to. */
static bool has_names(const tri_journal *j) {
  struct stat folder, lock, named;
  return !fstat(j->folder_fd, &folder) && !stat(j->folder, &named) && is_same(&folder, &named) &&
         !fstat(j->lock_fd, &lock) && !fstatat(j->folder_fd, "lock", &named, 0) && is_same(&lock, &named);
}

static tri_status check_owner(const tri_journal *j, tri_error *err) {
  struct stat about;
  if (fstat(j->folder_fd, &about) || about.st_uid != geteuid())
    return tri_fail(err, TRI_PERMISSION, "journal", "the folder %s is not this user's", j->folder);
  if (about.st_mode & 077)
    return tri_fail(err, TRI_PERMISSION, "journal",
                    "the folder %s lets others in (mode %04o): it has the texts of requests; make it 0700", j->folder,
                    (unsigned)about.st_mode & 07777);
  return TRI_OK;
}

static tri_status try_folder(tri_journal *j, tri_error *err) {
  if (mkdir(j->folder, 0700) && errno != EEXIST)
    return tri_fail(err, TRI_IO, "journal", "the folder %s cannot be made: %s", j->folder, strerror(errno));
  j->folder_fd = open(j->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (j->folder_fd < 0)
    return tri_fail(err, TRI_IO, "journal", "the folder %s cannot be opened: %s", j->folder, strerror(errno));
  TRI_CHECK(check_owner(j, err));
  j->lock_fd = openat(j->folder_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (j->lock_fd < 0) return tri_fail(err, TRI_IO, "journal", "%s/lock cannot be made: %s", j->folder, strerror(errno));
  if (flock(j->lock_fd, LOCK_EX | LOCK_NB))
    return tri_fail(err, TRI_AGAIN, "journal", "another coordinator uses the journal in %s", j->folder);
  return TRI_OK;
}

/* Whoever has the lock may remove all of it, so that what was opened meanwhile has no name any more. */
tri_status journal_open_folder(tri_journal *j, tri_error *err) {
  for (int i = 0;; i++) {
    tri_status st = try_folder(j, err);
    bool again =
        j->folder_fd >= 0 && st != TRI_AGAIN && st != TRI_PERMISSION && i < TRIES && (j->lock_fd < 0 || !has_names(j));
    if (!again) return st;
    journal_close_folder(j);
    if (err) tri_error_clear(err);
  }
}

void journal_close_folder(tri_journal *j) {
  if (j->lock_fd >= 0) close(j->lock_fd);
  if (j->folder_fd >= 0) close(j->folder_fd);
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
  if (j->failed || j->num_segments == 0 || !has_names(j)) {
    tri_journal_close(j);
    return;
  }
  journal_drop_spare(j);
  remove_segments(j);
  unlinkat(j->folder_fd, "lock", 0);
  rmdir(j->folder);
  tri_journal_close(j);
}

static bool has_segment(const tri_journal *j) {
  char name[JOURNAL_NAME_BYTES];
  struct stat used, named;
  if (j->fd < 0) return true;
  journal_name(j->segments[j->num_segments - 1].first, name);
  return !fstat(j->fd, &used) && !fstatat(j->folder_fd, name, &named, 0) && is_same(&used, &named);
}

tri_status tri_journal_renew(tri_journal *j, bool *renewed, tri_error *err) {
  *renewed = false;
  if (has_names(j) && has_segment(j)) return TRI_OK;
  TRI_CHECK(journal_leave_segment(j, err));
  journal_drop_spare(j);
  journal_close_folder(j);
  int why = tri_file_make_folders(j->folder);
  if (why) return tri_fail(err, TRI_IO, "journal", "the folders above %s cannot be made: %s", j->folder, strerror(why));
  TRI_CHECK(journal_open_folder(j, err));
  remove_segments(j); /* those that are left miss others behind them */
  j->num_segments = 0;
  j->in_use = false;
  TRI_CHECK(journal_begin_segment(j, 0, err));
  *renewed = true;
  return TRI_OK;
}
