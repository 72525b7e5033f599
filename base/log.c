/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static struct {
  tri_log_level threshold;
  char who[16];
  bool timed, coloured;
} process = {.threshold = TRI_LOG_INFO, .who = "-"};

/* Lines, also two together, are shorter than PIPE_BUF: a pipe takes them whole or not at all. */
enum { LINE_BYTES = 1536, PATIENCE_MS = 100 };
_Static_assert(2 * LINE_BYTES <= PIPE_BUF, "a pipe may take a part of a line");
static atomic_bool is_stalled; /* stderr has not been read since a line waited for it in vain */
static atomic_uint lost;       /* lines since then */

/* An empty NO_COLOR is one that is not set, as no-color.org has it. */
static bool wants_colours(void) {
  const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
  return isatty(STDERR_FILENO) && !(no && *no) && term && *term && strcmp(term, "dumb") != 0;
}

void tri_log_setup(tri_log_level threshold, const char *who) {
  process.threshold = threshold;
  process.coloured = wants_colours();
  snprintf(process.who, sizeof process.who, "%s", who);
}

void tri_log_with_time(bool on) { process.timed = on; }

/* "2026-11-22T08:31:05.123Z " */
static int print_time(char *to, size_t room) {
  struct timespec now;
  struct tm t;
  clock_gettime(CLOCK_REALTIME, &now);
  gmtime_r(&now.tv_sec, &t);
  int n = (int)strftime(to, room, "%Y-%m-%dT%H:%M:%S", &t);
  return n + snprintf(to + n, room - (size_t)n, ".%03ldZ ", now.tv_nsec / 1000000);
}

tri_log_level tri_log_threshold(void) { return process.threshold; }

/* Writes without waiting where the system can: another process may have filled the pipe just now. */
static ssize_t write_now(const char *line, size_t len) {
  struct iovec v = {.iov_base = (void *)(uintptr_t)line, .iov_len = len};
  struct stat s;
  if (!fstat(STDERR_FILENO, &s) && S_ISFIFO(s.st_mode)) {
    ssize_t n = pwritev2(STDERR_FILENO, &v, 1, -1, RWF_NOWAIT);
    if (n >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS)) return n;
  }
  return write(STDERR_FILENO, line, len);
}

/* Returns false where stderr has not been read for so long that it is full. */
static bool put(const char *line, size_t len) {
  struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
  int n;
  do {
    n = poll(&p, 1, atomic_load(&is_stalled) ? 0 : PATIENCE_MS);
  } while (n < 0 && errno == EINTR);
  bool stalled = !n || (write_now(line, len) < 0 && errno == EAGAIN);
  atomic_store(&is_stalled, stalled);
  return !stalled;
}

/* The first line after lost ones goes out together with their number. */
static void put_or_count(const char *line, size_t len) {
  unsigned missed = atomic_exchange(&lost, 0);
  char text[2 * LINE_BYTES];
  int n = 0;
  if (missed && process.timed) n = print_time(text, sizeof text);
  if (missed)
    n += snprintf(text + n, LINE_BYTES - (size_t)n, "WARN %s log: %u lines lost, as they were not read\n", process.who,
                  missed);
  memcpy(text + n, line, len);
  if (!put(text, (size_t)n + len)) atomic_fetch_add(&lost, missed + 1);
}

void tri_plain_line(char *text, size_t len) {
  for (size_t i = 0; i < len; i++)
    if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) text[i] = ' ';
}

void tri_log(tri_log_level level, const char *component, const char *fmt, ...) {
  static const char *const level_names[] = {"ERROR", "WARN", "INFO", "DEBUG"};
  static const char *const in_colour[] = {"\033[31mERROR\033[0m", "\033[33mWARN\033[0m", "INFO", "DEBUG"};
  if (level > process.threshold) return;
  char line[LINE_BYTES];
  int n = process.timed ? print_time(line, sizeof line) : 0;
  n += snprintf(line + n, sizeof line - (size_t)n, "%s %s %s: ", (process.coloured ? in_colour : level_names)[level],
                process.who, component);
  va_list ap;
  va_start(ap, fmt);
  int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
  va_end(ap);
  size_t len = strnlen(line, sizeof line - 2);
  if (m < 0) len = (size_t)n;
  if (len > (size_t)n) tri_plain_line(line + n, len - (size_t)n); /* what stands before it has the colours */
  line[len] = '\n';
  put_or_count(line, len + 1);
}
