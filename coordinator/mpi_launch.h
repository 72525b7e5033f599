/* SPDX-License-Identifier: Apache-2.0 */
/* --launch mpi: the coordinator is rank 0 of the MPI job whose other ranks are the workers. MPI serves to bring their
 * public keys here and the coordinator's address and public key to them, and for nothing else. */
#ifndef TRI_COORDINATOR_MPI_LAUNCH_H
#define TRI_COORDINATOR_MPI_LAUNCH_H

#include <stdbool.h>

#include "comm/wire/boot.h"
#include "coordinator/net/sockets.h"

/* Joins the job. interface: as of tri_network_use. *one_host: every rank runs on this host; *keys: those of the
 * workers, the caller's to free. A start without progress for limit_s ends the process (see start_watch.h), until the
 * hand-out. TRI_USAGE: this is not the first process, or the only one. */
tri_status tri_mpi_launch_join(int *argc, char ***argv, double limit_s, const char *interface, bool *one_host,
                               tri_rank_keys *keys, tri_error *err);
/* The broadcast that the workers wait for. */
tri_status tri_mpi_launch_hand_out(tri_boot *boot, tri_error *err);
void tri_mpi_launch_leave(void);

#endif
