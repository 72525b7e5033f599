#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "coordinator/up/up.h"
#include "runtime/base/log.h"
#include "runtime/base/wait.h"

/* mpirun has an exit code that says what ended one of its ranks. */
const char *tri_up_end_text(int status, char out[96]) {
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  if (WIFSIGNALED(status))
    snprintf(out, 96, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else if (code > 128 && code <= 128 + 64)
    snprintf(out, 96, "ended with code %d: a rank was killed by signal %d (%s)", code, code - 128,
             strsignal(code - 128));
  else
    snprintf(out, 96, "ended with code %d", code);
  return out;
}

/* Gives a child that has never worked one more try: that hardly changes. */
static int most_failures(const tri_up *u, bool never) {
  return !never || u->opts.max_restarts < 1 ? u->opts.max_restarts : 1;
}

/* Returns the pause before a child is started again: none at first, then 1 s, doubled up to 16 s. */
static int64_t restart_delay(int failures) {
  const int most = 4;
  int doublings = failures - 2 < most ? failures - 2 : most;
  return failures > 1 ? 1000000000LL << doublings : 0;
}

void tri_up_restart(tri_up *u, const char *what, tri_up_restarts *r, int status, bool soon, const char *never) {
  int code = WIFEXITED(status) ? WEXITSTATUS(status) : TRI_EXIT_FAILED;
  bool refused = code == TRI_EXIT_REFUSED || code == TRI_EXIT_USAGE;
  bool final = refused || code == 127;
  char text[96];
  r->failures = soon ? r->failures + 1 : 1;
  if (final || r->failures > most_failures(u, never)) {
    const char *more = code == TRI_EXIT_REFUSED ? " (refused)" : "", *and = "";
    if (!final && never) {
      and = ", and ";
      more = never;
    }
    tri_up_give_up(u, refused ? code : TRI_EXIT_FAILED, "%s %s%s%s", what, tri_up_end_text(status, text), and, more);
    return;
  }
  int64_t delay = restart_delay(r->failures);
  r->restart_ns = tri_now_ns() + delay;
  tri_log(TRI_LOG_WARN, "up", "%s %s, starting it again%s", what, tri_up_end_text(status, text),
          delay ? " after a pause" : "");
}
