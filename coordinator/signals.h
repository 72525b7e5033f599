/* The coordinator's signals as bytes in a pipe, for a loop that polls. A signalfd would not do: a library may have
 * started threads before main (OpenBLAS does), which block nothing, and there the default action would end the process.
 */
#ifndef TRI_COORDINATOR_SIGNALS_H
#define TRI_COORDINATOR_SIGNALS_H

#include "runtime/base/status.h"

/* Catches SIGTERM, SIGINT, SIGUSR1, SIGHUP and SIGCONT, ignores SIGPIPE, and blocks the former in this thread. A byte
 * read from *fd is a signal's number. */
tri_status tri_signals_catch(int *fd, tri_error *err);
/* Lets this thread take them, too. */
void tri_signals_unblock(void);

#endif
