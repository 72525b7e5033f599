/* SPDX-License-Identifier: Apache-2.0 */
/* The system's calls that the journal makes, as the linker leads them here (-Wl,--wrap): to the disk that is mounted,
 * or on to the system. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "coordinator/journal/journal.h"
#include "tests/sim/disk.h"

#define WRAPS(type, name, ...)                                                                                         \
  type __real_##name(__VA_ARGS__);                                                                                     \
  type __wrap_##name(__VA_ARGS__);                                                                                     \
  type __wrap_##name(__VA_ARGS__)

/* f: NULL for the folder. */
static void describe(const disk_file *f, struct stat *about) {
  memset(about, 0, sizeof *about);
  about->st_uid = geteuid();
  about->st_mode = f ? S_IFREG | 0600 : S_IFDIR | 0700;
  about->st_size = f ? (off_t)f->size : 0;
  about->st_ino = f ? (ino_t)(f - disk_mounted()->files) + 2 : 1;
  const disk_folder *folder = &disk_mounted()->now;
  for (int i = 0; f && i < folder->num; i++) about->st_nlink += folder->entries[i].file == f - disk_mounted()->files;
}

static bool is_ours(int fd) { return disk_mounted() && fd >= DISK_FD; }

WRAPS(tri_status, tri_journal_open, const tri_journal_config *config,
      tri_status (*take)(void *ctx, const tri_journal_record *r, tri_error *err), void *ctx, tri_journal **out,
      tri_error *err) {
  tri_journal_config c = *config;
  if (disk_mounted()) c.segment_bytes = disk_mounted()->segment_bytes;
  return __real_tri_journal_open(&c, take, ctx, out, err);
}

WRAPS(int, mkdir, const char *path, mode_t mode) { return disk_mounted() ? 0 : __real_mkdir(path, mode); }

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
  va_list ap;
  va_start(ap, flags);
  mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
  va_end(ap);
  bool folder = disk_mounted() && !strcmp(path, DISK_FOLDER);
  return folder ? disk_open(disk_mounted(), ".", flags) : __real_open(path, flags, mode);
}

int __real_openat(int at, const char *path, int flags, ...);
int __wrap_openat(int at, const char *path, int flags, ...);
int __wrap_openat(int at, const char *path, int flags, ...) {
  va_list ap;
  va_start(ap, flags);
  mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
  va_end(ap);
  return is_ours(at) ? disk_open(disk_mounted(), path, flags) : __real_openat(at, path, flags, mode);
}

WRAPS(int, close, int fd) {
  if (!is_ours(fd)) return __real_close(fd);
  disk_mounted()->fds[fd - DISK_FD].used = false;
  return 0;
}

WRAPS(int, fstat, int fd, struct stat *about) {
  if (!is_ours(fd)) return __real_fstat(fd, about);
  describe(disk_file_of(disk_mounted(), fd), about);
  return 0;
}

WRAPS(int, stat, const char *path, struct stat *about) {
  if (!disk_mounted() || strcmp(path, DISK_FOLDER) != 0) return __real_stat(path, about);
  describe(NULL, about);
  return 0;
}

WRAPS(int, fstatat, int folder, const char *name, struct stat *about, int flags) {
  if (!is_ours(folder)) return __real_fstatat(folder, name, about, flags);
  const disk_file *f = disk_file_named(disk_mounted(), name);
  if (f) describe(f, about);
  if (!f) errno = ENOENT;
  return f ? 0 : -1;
}

WRAPS(int, fstatvfs, int fd, struct statvfs *about) {
  if (!is_ours(fd)) return __real_fstatvfs(fd, about);
  *about = (struct statvfs){.f_frsize = 4096, .f_bavail = disk_mounted()->is_full ? 0 : 1 << 30};
  return 0;
}

WRAPS(int, ftruncate, int fd, off_t size) {
  return is_ours(fd) ? disk_truncate(disk_mounted(), fd, (size_t)size) : __real_ftruncate(fd, size);
}

WRAPS(int, flock, int fd, int what) { return is_ours(fd) ? 0 : __real_flock(fd, what); }

WRAPS(ssize_t, pwrite, int fd, const void *p, size_t n, off_t at) {
  return is_ours(fd) ? disk_write(disk_mounted(), fd, p, n, at) : __real_pwrite(fd, p, n, at);
}

/* That of the journal's thread takes its time, in which everything else goes on. */
WRAPS(int, fdatasync, int fd) {
  if (!is_ours(fd)) return __real_fdatasync(fd);
  if (!sync_thread_is_this()) return disk_sync(disk_mounted(), fd);
  if (disk_begin_sync(disk_mounted(), fd)) return -1;
  sync_thread_await_disk();
  return disk_end_sync(disk_mounted(), fd);
}

WRAPS(int, fsync, int fd) { return is_ours(fd) ? disk_sync(disk_mounted(), fd) : __real_fsync(fd); }

WRAPS(int, posix_fallocate, int fd, off_t at, off_t n) {
  return is_ours(fd) ? disk_allocate(disk_mounted(), fd, (size_t)(at + n)) : __real_posix_fallocate(fd, at, n);
}

WRAPS(int, renameat, int from_folder, const char *from, int to_folder, const char *to) {
  return is_ours(to_folder) ? disk_rename(disk_mounted(), from, to) : __real_renameat(from_folder, from, to_folder, to);
}

WRAPS(int, unlinkat, int folder, const char *name, int flags) {
  return is_ours(folder) ? disk_unlink(disk_mounted(), name) : __real_unlinkat(folder, name, flags);
}

/* ---- reading ---- */

WRAPS(DIR *, fdopendir, int fd) {
  if (!is_ours(fd)) return __real_fdopendir(fd);
  disk_mounted()->listed = 0;
  disk_mounted()->fds[fd - DISK_FD].used = false;
  return (DIR *)disk_mounted();
}

WRAPS(struct dirent *, readdir, DIR *folder) {
  static struct dirent e;
  disk *d = disk_mounted();
  if (!d || folder != (DIR *)d) return __real_readdir(folder);
  if (d->listed == d->now.num) return NULL;
  memcpy(e.d_name, d->now.entries[d->listed++].name, DISK_NAME);
  return &e;
}

WRAPS(int, closedir, DIR *folder) {
  return disk_mounted() && folder == (DIR *)disk_mounted() ? 0 : __real_closedir(folder);
}

WRAPS(void *, mmap, void *where, size_t n, int protection, int flags, int fd, off_t at) {
  disk *d = disk_mounted();
  if (!is_ours(fd)) return __real_mmap(where, n, protection, flags, fd, at);
  if (d->map || !(d->map = malloc(n))) abort();
  memcpy(d->map, disk_file_of(d, fd)->now, n);
  return d->map;
}

WRAPS(int, munmap, void *p, size_t n) {
  disk *d = disk_mounted();
  if (!d || !p || p != d->map) return __real_munmap(p, n);
  free(d->map);
  d->map = NULL;
  return 0;
}

/* ---- clocks ---- */

WRAPS(int, clock_gettime, clockid_t which, struct timespec *t) {
  if (!disk_mounted() || which != CLOCK_REALTIME) return __real_clock_gettime(which, t);
  *t = (struct timespec){disk_mounted()->wall_ms / 1000, disk_mounted()->wall_ms % 1000 * 1000000};
  return 0;
}
