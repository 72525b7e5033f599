/* SPDX-License-Identifier: Apache-2.0 */
/* Stops one thread of a process, as a call that never returns would, until this program ends or the process does.
 *
 *   stop_thread TID [hold]      writes "stopped" once it is; exit code 77 where the system forbids that. hold: and lets
 *                               the process not end either, as a driver that hangs does not */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
  pid_t tid = argc >= 2 ? (pid_t)atoi(argv[1]) : 0;
  int status;
  if (tid <= 0) return 2;
  if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) || ptrace(PTRACE_INTERRUPT, tid, NULL, NULL)) {
    fprintf(stderr, "stop_thread: %s\n", strerror(errno));
    return errno == EPERM ? 77 : 1;
  }
  if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status)) return 1;
  puts("stopped");
  fflush(stdout);
  while (argc > 2) pause();
  while (waitpid(tid, &status, __WALL) == tid && !WIFEXITED(status) && !WIFSIGNALED(status)) {
  }
  return 0;
}
