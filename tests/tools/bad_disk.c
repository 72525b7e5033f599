/* SPDX-License-Identifier: Apache-2.0 */
/* A disk whose reads fail or stand still, or that is slow to sync, when a test says so: a library to preload
 * (LD_PRELOAD). The first byte of the file BAD_DISK is looked at by every read, direct ones of io_uring and those of
 * threads: 'e': it fails with EIO; 's': it does not end until there is another byte; anything else: it is left alone.
 * fdatasync looks at it, too: 'd': it takes 50 to 300 ms more. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, NAP_MS = 20 };
typedef int wait_cqe(struct io_uring *, struct io_uring_cqe **, struct __kernel_timespec *);
typedef ssize_t read_at(int, void *, size_t, off_t);
typedef int sync_file(int);

static const volatile char *mode;

__attribute__((constructor)) static void open_switch(void) {
  const char *path = getenv("BAD_DISK");
  int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  void *p = fd < 0 ? MAP_FAILED : mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);
  if (fd >= 0) close(fd);
  if (p != MAP_FAILED) mode = p;
}

static char fault(void) { return mode ? *mode : 0; }
static void nap(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

int io_uring_wait_cqe_timeout(struct io_uring *ring, struct io_uring_cqe **cqe, struct __kernel_timespec *most) {
  wait_cqe *real = (wait_cqe *)dlsym(RTLD_NEXT, "io_uring_wait_cqe_timeout");
  if (fault() == 's') {
    nap(NAP_MS);
    return -ETIME;
  }
  int e = real(ring, cqe, most);
  if (!e && *cqe && fault() == 'e') (*cqe)->res = -EIO;
  return e;
}

ssize_t pread(int fd, void *to, size_t bytes, off_t offset) {
  read_at *real = (read_at *)dlsym(RTLD_NEXT, "pread");
  while (bytes >= BLOCK && fault() == 's') nap(NAP_MS);
  if (bytes < BLOCK || fault() != 'e') return real(fd, to, bytes, offset);
  errno = EIO;
  return -1;
}

int fdatasync(int fd) {
  sync_file *real = (sync_file *)dlsym(RTLD_NEXT, "fdatasync");
  struct timespec now = {0};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (fault() == 'd') nap(50 + now.tv_nsec / 1000 % 251);
  return real(fd);
}
