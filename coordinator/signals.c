#include "coordinator/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

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

void tri_signals_unblock(void) { pthread_sigmask(SIG_UNBLOCK, &signals, NULL); }
