/* SPDX-License-Identifier: Apache-2.0 */
/* The meaning of a child's end, and when it is started again: arithmetic on times, without a clock of its own. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "coordinator/up/up.h"

#define NS_PER_S 1000000000LL

/* mpirun has an exit code that says what ended one of its ranks. */
enum { SIGNAL_CODE = 128, MOST_SIGNAL = 64, NO_PROGRAM = 127 };

static int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : TRI_EXIT_FAILED; }

bool tri_up_end_is_by_signal(int status) {
  int code = code_of(status);
  return WIFSIGNALED(status) || (code > SIGNAL_CODE && code <= SIGNAL_CODE + MOST_SIGNAL);
}

const char *tri_up_end_text(int status, char out[96]) {
  int code = code_of(status);
  if (WIFSIGNALED(status))
    snprintf(out, 96, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else if (tri_up_end_is_by_signal(status))
    snprintf(out, 96, "ended with code %d: a rank was killed by signal %d (%s)", code, code - SIGNAL_CODE,
             strsignal(code - SIGNAL_CODE));
  else
    snprintf(out, 96, "ended with code %d%s", code, code == TRI_EXIT_REFUSED ? " (refused)" : "");
  return out;
}

static bool is_refusal(int status) {
  int code = code_of(status);
  return code == TRI_EXIT_REFUSED || code == TRI_EXIT_USAGE;
}

int tri_up_end_code(int status) { return is_refusal(status) ? code_of(status) : TRI_EXIT_FAILED; }
bool tri_up_end_is_of_device(int status) { return code_of(status) == TRI_EXIT_DEVICE; }

/* Gives a child that has never worked one more try: that hardly changes. */
static int most_failures(int max_restarts, bool never) { return !never || max_restarts < 1 ? max_restarts : 1; }

/* Returns the pause before a child is started again: none at first, then 1 s, doubled up to 8 s. */
static int64_t restart_delay(int failures) {
  const int most = 3;
  int doublings = failures - 2 < most ? failures - 2 : most;
  return failures > 1 ? NS_PER_S << doublings : 0;
}

/* A refusal, a wrong option or a missing program ends the same way each time: there is no further try. */
bool tri_up_restart(tri_up_restarts *r, int64_t now, int max_restarts, int status, bool soon, bool never) {
  if (!soon) r->given_up = 0;
  r->failures = soon ? r->failures + 1 : 1;
  if (is_refusal(status) || code_of(status) == NO_PROGRAM) return false;
  if (r->failures > most_failures(max_restarts, never)) return false;
  r->restart_ns = now + restart_delay(r->failures);
  return true;
}

void tri_up_restart_served(tri_up_restarts *r, int64_t now, int status, bool soon) {
  if (!soon) r->given_up = 0;
  r->failures = soon ? r->failures + 1 : 1;
  if (is_refusal(status) || code_of(status) == NO_PROGRAM)
    tri_up_restart_later(r, now);
  else
    r->restart_ns = now + restart_delay(r->failures);
}

/* `given_up` counts the times in a row: the end of a child that has run for long clears it. */
int64_t tri_up_restart_later(tri_up_restarts *r, int64_t now) {
  const int64_t first = 30 * NS_PER_S, most = 300 * NS_PER_S;
  int64_t delay = first;
  for (int i = 0; i < r->given_up && delay < most; i++) delay *= 2;
  if (delay > most) delay = most;
  r->given_up++;
  r->restart_ns = now + delay;
  return delay;
}
