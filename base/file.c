/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

void tri_file_open_standard(bool writable) {
  for (int fd = 0; fd < 3; fd++) {
    int how = O_RDONLY;
    if (fd && writable) how = O_WRONLY;
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    int opened = open("/dev/null", how); /* the lowest number that is free */
    if (opened != fd && opened >= 0) close(opened);
  }
}

void tri_program_folder(char out[PATH_MAX]) {
  ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
  out[n > 0 ? n : 0] = 0;
  char *slash = strrchr(out, '/');
  *(slash ? slash + 1 : out) = 0;
}

/* Follows the XDG Base Directory Specification: a variable that is no absolute path counts as not set. */
static void find_file(const char *variable, const char *folder, const char *name, char out[PATH_MAX]) {
  const char *base = getenv(variable), *home = getenv("HOME");
  int n = 0;
  if (base && base[0] == '/') /* the specification has the others ignored */
    n = snprintf(out, PATH_MAX, "%s/trireme/%s", base, name);
  else if (home && home[0] == '/')
    n = snprintf(out, PATH_MAX, "%s/%s/trireme/%s", home, folder, name);
  if (n <= 0 || n >= PATH_MAX) out[0] = 0;
}

void tri_cache_file(const char *name, char out[PATH_MAX]) { find_file("XDG_CACHE_HOME", ".cache", name, out); }
void tri_state_file(const char *name, char out[PATH_MAX]) { find_file("XDG_STATE_HOME", ".local/state", name, out); }

static tri_status refuse(const char *path, const char *what, tri_error *err) {
  return tri_fail(err, TRI_IO, path, "%s: cannot %s: %s", path, what, strerror(errno));
}

tri_status tri_file_read(const char *path, size_t most, char **out, size_t *len, tri_error *err) {
  char *text = NULL;
  tri_status st = TRI_OK;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe without a writer would hold it up */
  if (fd < 0) return errno == ENOENT || errno == ENOTDIR ? TRI_NOT_FOUND : refuse(path, "be opened", err);
  FILE *f = fdopen(fd, "r");
  if (!f) {
    close(fd);
    return tri_fail(err, TRI_NO_MEMORY, path, "%s: no memory", path);
  }
  struct stat s;
  if (fstat(fileno(f), &s) || !S_ISREG(s.st_mode))
    st = tri_fail(err, TRI_IO, path, "%s: not a file", path);
  else if ((uint64_t)s.st_size > most)
    st = tri_fail(err, TRI_TOO_LARGE, path, "%s: %lld bytes, the limit is %zu", path, (long long)s.st_size, most);
  else if (!(text = tri_calloc((size_t)s.st_size + 1, 1)))
    st = tri_fail(err, TRI_NO_MEMORY, path, "%s: no memory for %lld bytes", path, (long long)s.st_size);
  if (st == TRI_OK) {
    size_t n = fread(text, 1, (size_t)s.st_size, f);
    if (ferror(f)) {
      st = refuse(path, "be read", err);
    } else if (n < (size_t)s.st_size) {
      st = tri_fail(err, TRI_IO, path, "%s: it has become shorter while it was read", path);
    } else {
      *out = text;
      *len = n;
      text = NULL;
    }
  }
  tri_free(text);
  fclose(f);
  return st;
}

bool tri_file_is_lfs_pointer(const void *bytes, size_t len) {
  static const char first[] = "version https://git-lfs";
  return len >= sizeof first - 1 && !memcmp(bytes, first, sizeof first - 1);
}

int tri_file_make_folders(const char *path) {
  char folder[PATH_MAX];
  int why = 0;
  if ((size_t)snprintf(folder, sizeof folder, "%s", path) >= sizeof folder) return ENAMETOOLONG;
  for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    why = mkdir(folder, 0700) && errno != EEXIST ? errno : 0;
    *slash = '/';
  }
  return why;
}

bool tri_file_write_all(int fd, const void *data, size_t len) {
  const char *at = data;
  while (len) {
    ssize_t n = write(fd, at, len);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    len -= (size_t)n;
  }
  return true;
}

/* The new file is written next to the old one and renamed over it, which a reader sees at once and whole. durable: its
 * bytes are on the disk before its name is. */
static tri_status replace(const char *path, const void *data, size_t len, bool durable, tri_error *err) {
  char beside[PATH_MAX];
  if ((size_t)snprintf(beside, sizeof beside, "%s.XXXXXX", path) >= sizeof beside)
    return tri_fail(err, TRI_TOO_LARGE, path, "%.200s...: the path is too long", path);
  int no_folder = tri_file_make_folders(path), fd = mkostemp(beside, O_CLOEXEC);
  if (fd < 0 && no_folder) errno = no_folder;
  if (fd < 0) return refuse(path, "be written", err);
  bool written = tri_file_write_all(fd, data, len) && (!durable || !fsync(fd));
  if (close(fd) || !written || rename(beside, path)) {
    tri_status st = refuse(path, "be written", err);
    unlink(beside);
    return st;
  }
  return TRI_OK;
}

tri_status tri_file_replace(const char *path, const void *data, size_t len, tri_error *err) {
  return replace(path, data, len, true, err);
}

tri_status tri_file_replace_soon(const char *path, const void *data, size_t len, tri_error *err) {
  return replace(path, data, len, false, err);
}
