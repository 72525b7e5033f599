/* SPDX-License-Identifier: Apache-2.0 */
/* The log as a text: tri_log of everything that is linked here (--wrap). */
#include <pthread.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/log.h"
#include "tests/stack/stack.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static tri_buf lines;

void __wrap_tri_log(tri_log_level level, const char *component, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

void __wrap_tri_log(tri_log_level level, const char *component, const char *fmt, ...) {
  static const char *const levels[] = {"ERROR", "WARN", "INFO", "DEBUG"};
  char text[4096], line[4300];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  int n = snprintf(line, sizeof line, "%s %s: %s\n", levels[level], component, text);
  pthread_mutex_lock(&lock);
  if (tri_buf_append(&lines, line, (size_t)n) != TRI_OK) abort();
  pthread_mutex_unlock(&lock);
}

const char *log_text(void) {
  pthread_mutex_lock(&lock);
  if (tri_buf_reserve(&lines, 1) != TRI_OK) abort();
  lines.data[lines.len] = '\0';
  pthread_mutex_unlock(&lock);
  return lines.data;
}

void log_clear(void) {
  pthread_mutex_lock(&lock);
  tri_buf_free(&lines);
  pthread_mutex_unlock(&lock);
}

bool log_has(const char *expression) {
  regex_t r;
  ck_assert_msg(!regcomp(&r, expression, REG_EXTENDED | REG_NOSUB | REG_NEWLINE), "%s", expression);
  bool ok = !regexec(&r, log_text(), 0, NULL, 0);
  regfree(&r);
  return ok;
}
