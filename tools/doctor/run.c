/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/host/mpi_environment.h"
#include "base/wait.h"
#include "tools/doctor/doctor.h"

enum { NO_PROGRAM = 127, POLL_MS = 50 };

/* A process group of its own, so that a kill reaches what the program has started, and PDEATHSIG, so that it does not
 * outlive this one. Its input is empty: ssh and srun would read this program's. */
tri_status tri_run_start(char *const *argv, tri_running *out, tri_error *err) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) return tri_fail(err, TRI_IO, "pipe", "no pipe: %s", strerror(errno));
  pid_t pid = fork();
  if (!pid) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0) dup2(nothing, STDIN_FILENO);
    tri_leave_mpi_job();
    execvp(argv[0], argv);
    _exit(NO_PROGRAM);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return tri_fail(err, TRI_NO_MEMORY, "fork", "cannot start %s: %s", argv[0], strerror(errno));
  }
  setpgid(pid, pid);
  *out = (tri_running){.pid = pid, .fd = ends[0]};
  return TRI_OK;
}

/* Reads even when `out` is full, since a program whose pipe is full stands still. The end of the output and that of
 * the program are waited for one after the other: a program may close its output and run, and its children may keep
 * the pipe open after its end. */
int tri_run_end(tri_running *r, int64_t deadline_ns, char *out, size_t cap) {
  size_t len = 0;
  int status = 0;
  for (ssize_t n = 1; n != 0;) {
    char rest[512];
    bool full = len + 1 >= cap;
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    if (tri_now_ns() >= deadline_ns) break;
    if (poll(&p, 1, POLL_MS) <= 0) continue;
    n = full ? read(r->fd, rest, sizeof rest) : read(r->fd, out + len, cap - 1 - len);
    if (n < 0) break;
    if (!full) len += (size_t)n;
  }
  out[len] = '\0';
  close(r->fd);
  pid_t ended = 0;
  while (!(ended = waitpid(r->pid, &status, WNOHANG)) && tri_now_ns() < deadline_ns) poll(NULL, 0, POLL_MS);
  if (ended == r->pid) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  kill(-r->pid, SIGKILL);
  waitpid(r->pid, &status, 0);
  return -1;
}
