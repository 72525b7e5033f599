/* SPDX-License-Identifier: Apache-2.0 */
/* The end of everything, and the lines to the coordinator, which are its last words to clients in the end. */
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>

#include "coordinator/up/up.h"
#include "base/line_pipe.h"
#include "base/log.h"
#include "base/wait.h"

enum {
  OVER_MS = 3000,  /* for the coordinator to tell its clients why this process gives up */
  DYING_MS = 3000, /* for a process that was killed to end */
};

/* The whole process group, with what the child itself has started. The first time counts for tri_up_is_stuck. */
void tri_up_kill(pid_t pid, int64_t *killed_ns) {
  if (pid <= 0) return;
  if (!*killed_ns) *killed_ns = tri_now_ns();
  kill(-pid, SIGKILL);
}

bool tri_up_is_stuck(const tri_up *u, pid_t pid, int64_t killed_ns, int64_t now, const char *name) {
  if (pid <= 0 || !killed_ns || now - killed_ns < DYING_MS * 1000000LL) return false;
  tri_log(TRI_LOG_ERROR, u->called, "%s: process %d was killed but does not end: it is left behind", name, (int)pid);
  return true;
}

/* Control bytes of the text become spaces, so that the line ends where it should; a long text is cut. */
bool tri_up_tell(tri_up *u, const char *fmt, ...) {
  char line[768];
  va_list ap;
  va_start(ap, fmt);
  int n = vsnprintf(line, sizeof line - 1, fmt, ap);
  va_end(ap);
  if (n < 0) return false;
  if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
  tri_plain_line(line, (size_t)n);
  line[n++] = '\n';
  return u->coordinator > 0 && tri_line_pipe_put(u->notice_fd, &u->notices, line, (size_t)n);
}

bool tri_up_gateway_stop(tri_up *u, int64_t ms) {
  tri_up_gateway *g = &u->gateway;
  int64_t until = tri_deadline_after_ms(ms);
  if (g->pid <= 0) return false;
  /* Asked again for a sooner end, it tells its clients so. */
  bool sooner = !g->kill_ns || until < g->kill_ns;
  if (sooner) kill(g->pid, SIGTERM);
  if (sooner) g->kill_ns = until;
  return true;
}

/* Ends the gateway and the replicas, but for what the gateway has to tell its clients. */
static void stop_replicas(tri_up *u, int code) {
  if (!u->stopping) u->exit_code = code;
  u->stopping = true;
  tri_up_gateway_stop(u, OVER_MS);
  for (int g = 0; g < u->layout.replicas; g++) tri_up_kill(u->replicas[g].pid, &u->replicas[g].killed_ns);
}

void tri_up_stop_all(tri_up *u, int code) {
  stop_replicas(u, code);
  tri_up_kill(u->coordinator, &u->coordinator_killed_ns);
}

bool tri_up_tell_why(tri_up *u, const char *why) { return tri_up_tell(u, "over the cluster ends, as %s", why); }

void tri_up_give_up(tri_up *u, int code, const char *fmt, ...) {
  char why[TRI_UP_WORDS + 100], told[sizeof why + 40];
  va_list ap;
  if (u->stopping) return;
  va_start(ap, fmt);
  vsnprintf(why, sizeof why, fmt, ap);
  va_end(ap);
  tri_log(TRI_LOG_ERROR, u->called, "%s: giving up", why);
  stop_replicas(u, code);
  u->deadline_ns = tri_deadline_after_ms(OVER_MS);
  snprintf(told, sizeof told, "its supervisor gives up: %s", why);
  if (!tri_up_tell_why(u, told)) tri_up_kill(u->coordinator, &u->coordinator_killed_ns);
}
