/* Where a rank runs: its backend, the threads beside it, and the cores that those are on. */
#ifndef TRI_WORKER_PLACE_H
#define TRI_WORKER_PLACE_H

#include "comm/comm.h"
#include "runtime/base/serve_options.h"

typedef struct tri_place {
  tri_backend *backend;
  tri_pool *pool;
  int threads, cores;  /* of the pool; that this process may run on */
  bool oversubscribed; /* the host's ranks have more threads than cores */
} tri_place;

/* Groups that share this host, each with as many ranks. */
int tri_place_groups(const tri_serve_options *o);

/* Collective over world, whose ranks on this host are local_size; those of other groups have cores, and devices, of
 * their own. With backend `auto` either every rank has a device of its own or all take the CPU. A rank with a device
 * has all its threads, those of other libraries, too, on the cores near it, where those are known; with the CPU each of
 * the pool's has a core of its own. spin_us is the pool's. What there is of *out after a failure is the caller's to
 * destroy, too. */
tri_status tri_place_rank(const tri_serve_options *o, tri_comm *world, int local_rank, int local_size, int spin_us,
                          tri_place *out, tri_error *err);

/* Whether so many ranks, by the names of their devices one behind the other (TRI_DEVICE_NAME bytes each, empty: none),
 * have a device each. */
bool tri_place_devices_differ(const char *names, int count);

#endif
