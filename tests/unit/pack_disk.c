/* SPDX-License-Identifier: Apache-2.0 */
#include "pack_disk.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "offload/pack_form.h"
#include "base/hash.h"

struct disk *disk;

void pack_disk_open(void) {
  disk = mmap(NULL, sizeof *disk, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ck_assert(disk != MAP_FAILED);
}

void pack_disk_close(const char *first, const char *second) {
  const char *const paths[] = {first, second};
  munmap(disk, sizeof *disk);
  for (int i = 0; i < 2; i++) {
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s.part", paths[i]);
    unlink(paths[i]);
    unlink(part);
  }
}

ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t offset);
int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __real_ftruncate(int fd, off_t bytes);
int __real_fstatvfs(int fd, struct statvfs *v);
int __real_rename(const char *from, const char *to);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes);
int __wrap_fstatvfs(int fd, struct statvfs *v);
int __wrap_rename(const char *from, const char *to);
int __wrap_sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags);
int __wrap_fdatasync(int fd);
int __wrap_fsync(int fd);

/* Whatever was not waited for is there in full, in part, or not at all. */
static void lose_power(void) {
  for (int i = disk->num_lost - 1; i >= 0; i--) {
    size_t bytes = disk->lost[i].bytes, kept = 0;
    uint64_t r = tri_splitmix64(&disk->seed);
    if (r % 3 == 0) kept = bytes;
    if (r % 3 == 1) kept = (r >> 8) % bytes;
    __real_pwrite(disk->lost[i].fd, disk->lost[i].old + kept, bytes - kept, disk->lost[i].offset + (off_t)kept);
  }
}

static void die(void) {
  if (disk->kill == KILL_POWER) lose_power();
  _exit(KILLED);
}

/* Two looks at each call: before it and after it. */
static bool is_last(void) { return disk->kill_at && disk->calls == disk->kill_at; }
static void before(void) {
  disk->calls++;
  if (is_last() && (disk->kill == KILL_BEFORE || disk->kill == KILL_POWER)) die();
}
static void after(void) {
  if (is_last()) die();
}

static void remember(int fd, size_t bytes, off_t offset) {
  if (disk->kill != KILL_POWER || !disk->kill_at) return;
  if (disk->num_lost == MOST_LOST) disk->broken = true;
  if (disk->broken) return;
  unsigned char *old = calloc(bytes, 1);
  if (pread(fd, old, bytes, offset) < 0) disk->broken = true;
  disk->lost[disk->num_lost].fd = fd;
  disk->lost[disk->num_lost].offset = offset;
  disk->lost[disk->num_lost].bytes = bytes;
  disk->lost[disk->num_lost++].old = old;
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
  bool part = (uint64_t)offset >= TRI_WEIGHT_PACK_ALIGN, entry = !part && offset >= TRI_READER_BLOCK;
  remember(fd, bytes, offset);
  before();
  if (part && disk->write_errno && disk->part_writes++ == disk->write_fails_at) {
    errno = disk->write_errno;
    return -1;
  }
  if (fd >= MOST_FDS || (entry && disk->unsynced[fd])) disk->broken = true;
  if (part && fd < MOST_FDS) disk->unsynced[fd] = true;
  bool half = is_last() && disk->kill == KILL_HALF_WAY;
  if (disk->short_writes && disk->calls % 4 == 0) {
    errno = EINTR;
    return -1;
  }
  if (half || (disk->short_writes && bytes > 1)) bytes /= 2;
  ssize_t n = __real_pwrite(fd, data, bytes, offset);
  disk->entries += entry && !half;
  after();
  return n;
}

/* Nothing waits for the real disk: what a process has written, another one reads. */
static int sync_file(int fd) {
  int kept = 0;
  before();
  int code = disk->sync_errno;
  disk->sync_errno = 0;
  disk->syncs++;
  if (fd < MOST_FDS) disk->unsynced[fd] = false; /* also where it fails: the kernel forgets what it could not write */
  for (int i = 0; i < disk->num_lost; i++)
    if (disk->lost[i].fd != fd) disk->lost[kept++] = disk->lost[i];
  disk->num_lost = kept;
  after();
  errno = code;
  return code ? -1 : 0;
}
int __wrap_sync_file_range(int fd, off_t offset, off_t bytes, unsigned flags) {
  return fd >= 0 && offset >= 0 && bytes > 0 && flags ? 0 : -1;
}
int __wrap_fdatasync(int fd) { return fd >= 0 ? sync_file(fd) : -1; }
int __wrap_fsync(int fd) { return fd >= 0 ? sync_file(fd) : -1; }

int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes) {
  before();
  errno = disk->fallocates_well-- > 0 ? 0 : disk->fallocate_errno;
  int code = errno ? -1 : __real_fallocate(fd, mode, offset, bytes);
  if (errno == EINTR) disk->fallocate_errno = 0;
  after();
  return code;
}

int __wrap_ftruncate(int fd, off_t bytes) {
  before();
  int code = __real_ftruncate(fd, bytes);
  after();
  return code;
}

int __wrap_fstatvfs(int fd, struct statvfs *v) {
  int code = __real_fstatvfs(fd, v);
  if (disk->room) v->f_bavail = disk->room;
  return code;
}

int __wrap_rename(const char *from, const char *to) {
  before();
  int code = __real_rename(from, to);
  after();
  return code;
}
