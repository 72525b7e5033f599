/* SPDX-License-Identifier: Apache-2.0 */
/* The address at which clients find the coordinator by default. */
#ifndef TRI_COMM_WIRE_ENDPOINT_H
#define TRI_COMM_WIRE_ENDPOINT_H

#include "base/status.h"

#define TRI_ENDPOINT_ENV "TRIREME_ENDPOINT"
#define TRI_ENDPOINT_BYTES 512

/* Resolves to `given` when it is a text; else the environment's TRIREME_ENDPOINT; else
 * ipc://$XDG_RUNTIME_DIR/trireme.sock when that folder exists; else ipc:///tmp/trireme-UID.sock. A coordinator binds
 * and a client connects by the same rule. given may be NULL or empty. */
tri_status tri_endpoint_resolve(const char *given, char out[TRI_ENDPOINT_BYTES], tri_error *err);

/* Checks that a client can connect to it. Of ipc:// there must be a path that fits into an address, of tcp:// the port
 * must be one, and the host must have an address: ZeroMQ would keep asking for it in silence. */
tri_status tri_endpoint_check(const char *endpoint, tri_error *err);
/* The same for a server to bind, where it is an option: TRI_USAGE. The port may be * or 0 (any that is free), and what
 * stands before it is left to ZeroMQ, which also knows * and interfaces by name. */
tri_status tri_endpoint_check_bind(const char *endpoint, tri_error *err);

/* The same endpoint for a client of this host: an address that stands for all of the host's is none to connect to. */
void tri_endpoint_reachable(const char *endpoint, char out[TRI_ENDPOINT_BYTES]);

#endif
