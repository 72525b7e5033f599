/* SPDX-License-Identifier: Apache-2.0 */
/* The hardware of a rank: its backend, its other threads, and the cores that those are on. */
#ifndef TRI_WORKER_PROCESS_RANK_HARDWARE_H
#define TRI_WORKER_PROCESS_RANK_HARDWARE_H

#include "comm/comm.h"
#include "base/options/serve_layout.h"

typedef struct tri_rank_hardware {
  tri_backend *backend;
  tri_pool *pool;
  int threads, cores;  /* of the pool; that this process may run on */
  int local_ranks;     /* of all replicas on this host */
  bool oversubscribed; /* the host's ranks have more threads than cores */
} tri_rank_hardware;

/* Finds a rank's number among all ranks of its host, and how many those are: as --places says, or, where that says
 * nothing or does not fit what the launcher has done, as if each replica had as many ranks here. */
void tri_rank_hardware_share(const tri_serve_options *o, int rank, int local_rank, int local_size, int *index,
                             int *count);

/* Collective over world, whose ranks on this host are local_size; those of other replicas have cores, and devices, of
 * their own. With backend `auto` either every rank has a device of its own or all take the CPU. A rank with a device
 * has all its threads, those of other libraries, too, on the cores near it, where those are known; with the CPU each of
 * the pool's has a core of its own. spin_us is the pool's. After a failure the caller destroys whatever *out holds. */
tri_status tri_rank_hardware_take(const tri_serve_options *o, tri_comm *world, int local_rank, int local_size,
                                  int spin_us, tri_rank_hardware *out, tri_error *err);

/* Returns whether each of `count` ranks has a device of its own, by the devices' names one after the other
 * (TRI_DEVICE_NAME bytes each, empty: none). */
bool tri_rank_hardware_devices_differ(const char *names, int count);

#endif
