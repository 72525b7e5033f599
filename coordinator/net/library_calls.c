/* SPDX-License-Identifier: Apache-2.0 */
/* The program's own accept, accept4 and recv, which ZeroMQ's library calls in place of the system's: see
 * connection_guard.h. This file does without sys/socket.h, whose declarations have types of the system library's own.
 */
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "coordinator/net/connection_guard.h"

int accept4(int listener, void *address, void *len, int flags);
int accept(int listener, void *address, void *len);
ssize_t recv(int fd, void *to, size_t len, int flags);

int accept4(int listener, void *address, void *len, int flags) {
  return tri_guard_accept(listener, address, len, flags);
}

int accept(int listener, void *address, void *len) { return accept4(listener, address, len, 0); }

ssize_t recv(int fd, void *to, size_t len, int flags) {
  ssize_t n = syscall(SYS_recvfrom, fd, to, len, flags, NULL, NULL);
  if (n > 0) tri_guard_received(fd, (size_t)n);
  return n;
}

/* Stands here so that no guard is without them. */
tri_status tri_connection_guard_open(const char *endpoint, tri_error *err) { return tri_guard_begin(endpoint, err); }
