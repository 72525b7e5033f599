/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct {
  tri_log_level threshold;
  char who[16];
  bool timed, coloured;
} process = {.threshold = TRI_LOG_INFO, .who = "-"};

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

void tri_log(tri_log_level level, const char *component, const char *fmt, ...) {
  static const char *const level_names[] = {"ERROR", "WARN", "INFO", "DEBUG"};
  static const char *const in_colour[] = {"\033[31mERROR\033[0m", "\033[33mWARN\033[0m", "INFO", "DEBUG"};
  if (level > process.threshold) return;
  char line[1024];
  int n = process.timed ? print_time(line, sizeof line) : 0;
  n += snprintf(line + n, sizeof line - (size_t)n, "%s %s %s: ", (process.coloured ? in_colour : level_names)[level],
                process.who, component);
  va_list ap;
  va_start(ap, fmt);
  int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
  va_end(ap);
  size_t len = strnlen(line, sizeof line - 2);
  if (m < 0) len = (size_t)n;
  /* Words from outside may hold line breaks; a log line never does. */
  for (size_t i = 0; i < len; i++)
    if (line[i] == '\n' || line[i] == '\r') line[i] = ' ';
  line[len] = '\n';
  ssize_t ignored = write(STDERR_FILENO, line, len + 1);
  (void)ignored;
}
