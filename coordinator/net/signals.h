/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's signals as bytes in a pipe, for a loop that polls. A signalfd would not do: a library may have
 * started threads before main (OpenBLAS does), which block nothing, and there the default action would end the process.
 */
#ifndef TRI_COORDINATOR_NET_SIGNALS_H
#define TRI_COORDINATOR_NET_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { TRI_SAME_REQUEST_MS = 1000 }; /* a second signal so soon after the first one is the same request */

/* A signal's meaning. */
typedef enum tri_signal_request {
  TRI_SIGNAL_NOTHING,
  TRI_SIGNAL_DRAIN,           /* the first request to end */
  TRI_SIGNAL_AT_ONCE,         /* a later one */
  TRI_SIGNAL_SUPERVISOR_GONE, /* SIGHUP */
  TRI_SIGNAL_JOB_ABORTED,     /* mpirun is about to kill everything */
} tri_signal_request;

typedef struct tri_signal_history {
  bool mpi;        /* mpirun is the parent */
  bool supervised; /* by a process that counts requests, too */
  int64_t first_ns, last_cont_ns;
} tri_signal_history;

/* Catches SIGTERM, SIGINT, SIGUSR1, SIGHUP and SIGCONT, ignores SIGPIPE, and blocks the former in this thread. A byte
 * read from *fd is a signal's number. */
tri_status tri_signals_catch(int *fd, tri_error *err);
/* Returns what a signal asks for, in the light of those before it, and notes it in *h. */
tri_signal_request tri_signals_request(tri_signal_history *h, int number, int64_t now);
/* Lets this thread take them, too. */
void tri_signals_unblock(void);

#endif
