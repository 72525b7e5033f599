/* SPDX-License-Identifier: Apache-2.0 */
#include "base/line_pipe.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WAITING = 1 << 20 };

/* Returns how many bytes were written; -1: there is no reader. */
static ssize_t write_some(int fd, const char *p, size_t n) {
  ssize_t got;
  do got = write(fd, p, n);
  while (got < 0 && errno == EINTR);
  if (got >= 0) return got;
  return errno == EAGAIN ? 0 : -1;
}

bool tri_line_pipe_flush(int fd, tri_buf *waiting) {
  ssize_t n = waiting->len ? write_some(fd, waiting->data, waiting->len) : 0;
  if (n > 0) {
    waiting->len -= (size_t)n;
    memmove(waiting->data, waiting->data + n, waiting->len);
  }
  return !waiting->len;
}

/* A line is written at once where nothing waits, else after what waits: order is kept, and a line is never cut by
 * another. */
bool tri_line_pipe_put(int fd, tri_buf *waiting, const char *line, size_t len) {
  ssize_t n = tri_line_pipe_flush(fd, waiting) ? write_some(fd, line, len) : 0;
  if (n < 0) return false;
  size_t left = len - (size_t)n;
  return left <= MOST_WAITING - waiting->len && tri_buf_append(waiting, line + n, left) == TRI_OK;
}
