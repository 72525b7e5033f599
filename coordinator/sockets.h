/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's two sockets: clients connect to one, workers to the other. */
#ifndef TRI_COORDINATOR_SOCKETS_H
#define TRI_COORDINATOR_SOCKETS_H

#include "comm/wire/boot.h"
#include "comm/wire/zsock.h"
#include "coordinator/allowed_keys.h"
#include "runtime/base/serve_options.h"

/* allowed: where the keys go that may connect; it must outlive the socket. */
tri_status tri_client_socket_open(const tri_serve_options *o, tri_zcontext *z, tri_allowed_keys *allowed,
                                  tri_zserver **out, tri_error *err);
/* Fills boot with what the workers need to connect, and writes the boot file. one_host: of the workers and this. */
tri_status tri_worker_socket_open(const tri_serve_options *o, tri_zcontext *z, bool one_host, tri_boot *boot,
                                  tri_zserver **out, tri_error *err);

#endif
