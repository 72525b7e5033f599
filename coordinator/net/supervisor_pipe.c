/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/net/supervisor_pipe.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/line_pipe.h"
#include "base/log.h"

/* A notice is read as soon as it has come, and a part of a line is kept until its end comes. Neither side waits for the
 * other: a full pipe to the supervisor makes lines wait in memory, in their order. */
#define OVER "over "
#define DRAIN "drain "

void tri_supervisor_tell(tri_supervisor *s, const char *fmt, ...) {
  char line[TRI_SUPERVISOR_LINE];
  va_list ap;
  if (s->event_fd < 0) return;
  va_start(ap, fmt);
  int n = vsnprintf(line, sizeof line - 1, fmt, ap);
  va_end(ap);
  if (n < 0) return;
  if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
  tri_plain_line(line, (size_t)n);
  line[n++] = '\n';
  tri_line_pipe_put(s->event_fd, &s->waiting, line, (size_t)n);
}

void tri_supervisor_alive(tri_supervisor *s) {
  if (tri_line_pipe_flush(s->event_fd, &s->waiting)) tri_supervisor_tell(s, "alive");
}

int tri_supervisor_poll_fd(const tri_supervisor *s) { return s->deaf ? -1 : s->notice_fd; }

static void take_event(const tri_supervisor *s, const char *line) {
  tri_supervisor_event n = {0};
  char kind[16];
  int used = 0;
  if (sscanf(line, "died %" SCNu32 " %" SCNu64 " %n", &n.replica, &n.epoch, &used) == 2 && used)
    n.kind = TRI_REPLICA_DIED;
  else if (sscanf(line, "expect %" SCNu32 " %" SCNu64 "%n", &n.replica, &n.epoch, &used) == 2 && used)
    n.kind = TRI_REPLICA_EXPECTED;
  else if (sscanf(line, "held %" SCNu32 " %15s %" SCNd64 " %n", &n.replica, kind, &n.seconds, &used) == 3 && used)
    n.kind = strcmp(kind, "given_up") ? TRI_REPLICA_QUARANTINED : TRI_REPLICA_GIVEN_UP;
  else
    return;
  n.reason = line + used;
  if (s->on_event) s->on_event(s->ctx, &n);
}

static void take_line(tri_supervisor *s, const char *line) {
  if (!strncmp(line, OVER, strlen(OVER))) snprintf(s->why, sizeof s->why, "%s", line + strlen(OVER));
  if (!strncmp(line, DRAIN, strlen(DRAIN))) s->drain = atoi(line + strlen(DRAIN));
  take_event(s, line);
}

bool tri_supervisor_gives_up(tri_supervisor *s) {
  const size_t most = sizeof s->line - 1;
  bool knew = s->why[0];
  while (tri_supervisor_poll_fd(s) >= 0) {
    if (s->len >= most) s->len = 0; /* no line is so long */
    ssize_t n = read(s->notice_fd, s->line + s->len, most - s->len);
    s->deaf = !n || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n <= 0) break;
    s->len += (size_t)n;
    s->line[s->len] = '\0';
    for (char *end; (end = strchr(s->line, '\n'));) {
      *end = '\0';
      take_line(s, s->line);
      s->len -= (size_t)(end + 1 - s->line);
      memmove(s->line, end + 1, s->len + 1);
    }
  }
  return s->why[0] && !knew;
}
