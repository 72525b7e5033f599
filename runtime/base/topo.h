/* The machine's cores. topo.c is the only user of hwloc. */
#ifndef TRI_BASE_TOPO_H
#define TRI_BASE_TOPO_H

#include "runtime/base/status.h"

/* Cores that this process may run on (its affinity mask). At least 1. */
int tri_topo_num_cores(void);

/* Cores for `threads` threads of process `index` among `count` on this host: cores[i] is an operating system core
 * number, or -1 for all where the processes want more threads than there are cores (then nothing is pinned, and
 * *oversubscribed is 1). */
tri_status tri_topo_assign(int index, int count, int threads, int *cores, int *oversubscribed);

#endif
