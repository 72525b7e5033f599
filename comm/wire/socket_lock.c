/* SPDX-License-Identifier: Apache-2.0 */
/* The right to a socket's path: flock on a file of its own, which the system lets go of when the process ends, however
 * it ends. The socket file itself cannot be locked, and it stays when a process is killed. */
#include "comm/wire/socket_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { TRIES = 100, LOCK_PATH = sizeof(((struct sockaddr_un *)NULL)->sun_path) + sizeof ".lock" };

static bool write_path(const char *path, char out[LOCK_PATH]) {
  return (size_t)snprintf(out, LOCK_PATH, "%s.lock", path) < LOCK_PATH;
}

/* A process that ends removes the file under its lock, so that one that is opened in between is another file by now. */
static bool is_there(const char *name, int fd) {
  struct stat opened, named;
  return !fstat(fd, &opened) && !stat(name, &named) && opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

tri_status tri_socket_lock(const char *path, int *fd, tri_error *err) {
  char name[LOCK_PATH];
  if (!write_path(path, name)) return tri_fail(err, TRI_USAGE, "endpoint", "the path of a socket is too long");
  for (int i = 0; i < TRIES; i++) {
    *fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0) {
      tri_status st = errno == EACCES || errno == EPERM ? TRI_PERMISSION : TRI_IO;
      return tri_fail(err, st, "endpoint", "cannot open %s: %s", name, strerror(errno));
    }
    if (flock(*fd, LOCK_EX | LOCK_NB)) {
      int e = errno;
      close(*fd);
      *fd = -1;
      if (e == EWOULDBLOCK) return TRI_AGAIN;
      return tri_fail(err, TRI_IO, "endpoint", "cannot lock %s: %s", name, strerror(e));
    }
    if (is_there(name, *fd)) return TRI_OK;
    close(*fd);
    *fd = -1;
  }
  return TRI_AGAIN;
}

void tri_socket_unlock(const char *path, int fd) {
  char name[LOCK_PATH];
  if (fd < 0) return;
  if (write_path(path, name)) unlink(name);
  close(fd);
}
