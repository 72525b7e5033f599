#include "runtime/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
  tri_log_level threshold;
  char who[16];
} process = {.threshold = TRI_LOG_INFO, .who = "-"};

void tri_log_setup(tri_log_level threshold, const char *who) {
  process.threshold = threshold;
  snprintf(process.who, sizeof process.who, "%s", who);
}

tri_log_level tri_log_threshold(void) { return process.threshold; }

void tri_log(tri_log_level level, const char *component, const char *fmt, ...) {
  static const char *const level_names[] = {"ERROR", "WARN", "INFO", "DEBUG"};
  if (level > process.threshold) return;
  char line[1024];
  int n = snprintf(line, sizeof line, "%s %s %s: ", level_names[level], process.who, component);
  va_list ap;
  va_start(ap, fmt);
  int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
  va_end(ap);
  size_t len = strnlen(line, sizeof line - 2);
  if (m < 0) len = (size_t)n;
  /* What comes from outside may hold line breaks; a log line never does. */
  for (size_t i = 0; i < len; i++)
    if (line[i] == '\n' || line[i] == '\r') line[i] = ' ';
  line[len] = '\n';
  ssize_t ignored = write(STDERR_FILENO, line, len + 1);
  (void)ignored;
}
