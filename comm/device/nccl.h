/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives on device memory through NCCL, ordered on the stream that the CUDA backend's ops go to. A part of the
 * CUDA module: the library is opened at run time, when more than one rank needs it. */
#ifndef TRI_COMM_DEVICE_NCCL_H
#define TRI_COMM_DEVICE_NCCL_H

#include "comm/comm.h"

/* A communicator of the same ranks as host; collective over host. Both host and be must outlive it. Refuses a library
 * that cannot be opened or is too old, and ranks that share a device. Calls return when they are enqueued; sends and
 * receives of a pair of ranks match in their order, whatever their tags. There is no try_recv, barrier or split. Sums
 * come in the same order on every rank: all get the same bits. */
tri_status tri_comm_nccl_create(tri_backend *be, tri_comm *host, tri_comm **out, tri_error *err);

#endif
