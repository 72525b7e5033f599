/* SPDX-License-Identifier: Apache-2.0 */
/* Agreement of all ranks of a replica: on options, since mpirun gives each program arguments of its own, and
 * on weights, since each host may have its own copy. */
#ifndef TRI_WORKER_PROCESS_AGREEMENT_H
#define TRI_WORKER_PROCESS_AGREEMENT_H

#include "comm/comm.h"
#include "base/options/serve_options.h"

/* Collective over the replica's ranks, which all fail alike: TRI_INVALID_ARGUMENT with the option, and what two of them
 * were started with. */
tri_status tri_agree_on_options(const tri_serve_options *o, tri_comm *world, tri_error *err);

/* The ranks whose hosts' copies have been hashed (others pass 0) must have the same weights. Collective, and all fail
 * alike. */
tri_status tri_agree_on_weights(uint64_t hash, tri_comm *world, tri_error *err);

#endif
