/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of a supervisor is locked (flock) for as long as that lives, however it ends: a folder without a lock is
 * free to be removed, which the next supervisor of the same user does. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "coordinator/up/up.h"

#define PREFIX "trireme-up-"
enum { YOUNG_S = 10, DEPTH = 8 /* of the sessions of Open MPI: host, process, job, rank */ };

/* Removes everything in a folder, and in the folders there, `depth` levels down. Links are removed, not followed. */
static void empty(int fd, int depth) {
  int own = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = own >= 0 ? fdopendir(own) : NULL;
  if (!dir && own >= 0) close(own);
  for (struct dirent *e; dir && (e = readdir(dir));) {
    if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !unlinkat(fd, e->d_name, 0)) continue;
    int sub = depth ? openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (sub >= 0) {
      empty(sub, depth - 1);
      close(sub);
    }
    unlinkat(fd, e->d_name, AT_REMOVEDIR);
  }
  if (dir) closedir(dir);
}

/* Removes the folders that killed supervisors of this user have left: their lock is free. One that is
 * just being made may not have it yet, so that young folders stay. */
void tri_up_folders_clean(const char *base) {
  DIR *dir = opendir(base);
  struct stat sb;
  for (struct dirent *e; dir && (e = readdir(dir));) {
    if (strncmp(e->d_name, PREFIX, strlen(PREFIX))) continue;
    int fd = openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) continue;
    if (!fstat(fd, &sb) && sb.st_uid == geteuid() && time(NULL) - sb.st_ctime > YOUNG_S &&
        !flock(fd, LOCK_EX | LOCK_NB)) {
      empty(fd, DEPTH);
      unlinkat(dirfd(dir), e->d_name, AT_REMOVEDIR);
    }
    close(fd);
  }
  if (dir) closedir(dir);
}

tri_status tri_up_folder_make(const char *base, tri_up_folder *f, tri_error *err) {
  tri_up_folders_clean(base);
  snprintf(f->path, sizeof f->path, "%.200s/" PREFIX "XXXXXX", base);
  if (!mkdtemp(f->path)) {
    tri_status st = tri_fail(err, TRI_IO, "run_dir", "cannot make %s: %s", f->path, strerror(errno));
    f->path[0] = '\0';
    return st;
  }
  f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (f->fd < 0) {
    tri_status st = tri_fail(err, TRI_IO, "run_dir", "cannot open %s: %s", f->path, strerror(errno));
    rmdir(f->path);
    f->path[0] = '\0';
    return st;
  }
  flock(f->fd, LOCK_EX | LOCK_NB);
  return TRI_OK;
}

void tri_up_folder_remove(tri_up_folder *f) {
  if (!f->path[0]) return;
  empty(f->fd, DEPTH);
  close(f->fd);
  rmdir(f->path);
  *f = (tri_up_folder){0};
}
