/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/net/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define NS_PER_MS 1000000LL
enum { ABORT_MIN_MS = 500, ABORT_MAX_MS = 5000 }; /* between mpirun's SIGCONT and the SIGTERM of an aborted job */

/* The handler needs the pipe, and has no argument. */
static int signal_pipe[2];
static sigset_t signals;

static void note_signal(int number) {
  int saved = errno;
  uint8_t byte = (uint8_t)number;
  ssize_t ignored = write(signal_pipe[1], &byte, 1);
  (void)ignored;
  errno = saved;
}

tri_status tri_signals_catch(int *fd, tri_error *err) {
  static const int numbers[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGCONT};
  struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
  if (pipe2(signal_pipe, O_NONBLOCK | O_CLOEXEC)) return tri_fail(err, TRI_IO, "pipe", "no pipe: %s", strerror(errno));
  *fd = signal_pipe[0];
  sigemptyset(&signals);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    sigaddset(&signals, numbers[i]);
    sigaction(numbers[i], &action, NULL);
  }
  signal(SIGPIPE, SIG_IGN);
  pthread_sigmask(SIG_BLOCK, &signals, NULL);
  return TRI_OK;
}

tri_signal_request tri_signals_request(tri_signal_history *h, int number, int64_t now) {
  int64_t since_cont = (now - h->last_cont_ns) / NS_PER_MS, since_first = (now - h->first_ns) / NS_PER_MS;
  if (number == SIGCONT) h->last_cont_ns = now;
  if (number == SIGCONT) return TRI_SIGNAL_NOTHING;
  if (number == SIGHUP) return TRI_SIGNAL_SUPERVISOR_GONE;
  /* mpirun announces the end of an aborted job with SIGCONT, SIGTERM a second later and SIGKILL soon after. */
  if (number == SIGTERM && h->mpi && h->last_cont_ns && since_cont > ABORT_MIN_MS && since_cont < ABORT_MAX_MS)
    return TRI_SIGNAL_JOB_ABORTED;
  if (!h->first_ns) {
    h->first_ns = now;
    return TRI_SIGNAL_DRAIN;
  }
  /* Slurm, its script and mpirun may each pass SIGUSR1 on: that is no hurry. Other signals may have been sent to a
   * whole process group, too; a supervisor who passes on a second one has waited as long itself, but had the first one
   * a little earlier. */
  int64_t same = h->supervised ? TRI_SAME_REQUEST_MS * 3 / 4 : TRI_SAME_REQUEST_MS;
  return number == SIGUSR1 || since_first < same ? TRI_SIGNAL_NOTHING : TRI_SIGNAL_AT_ONCE;
}

void tri_signals_unblock(void) { pthread_sigmask(SIG_UNBLOCK, &signals, NULL); }
