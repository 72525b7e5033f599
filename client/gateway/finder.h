/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the coordinator, which waits for it: once at the start, and later in a thread of its own. */
#ifndef TRI_CLIENT_GATEWAY_FINDER_H
#define TRI_CLIENT_GATEWAY_FINDER_H

#include "client/gateway/gateway.h"

typedef struct gw_finder gw_finder;

/* Connects, and asks for the model: each takes as long as a connection may. On success out->client is the caller's to
 * close. TRIREME_PROTOCOL: the coordinator answered with an error, or serves no model. */
trireme_result gw_find(const trireme_config *config, gw_found *out, trireme_error *error);

/* Does so before the server's loop, whose signals are handled meanwhile: continues after one of them unless that has
 * made the gateway leave, which it says. */
trireme_result gw_find_first(gateway *g, const trireme_config *config, gw_found *out, trireme_error *error);

/* Does the same in a thread. What the configuration points to must stay. */
tri_status gw_finder_start(const trireme_config *config, gw_finder **out);
int gw_finder_fd(const gw_finder *f); /* readable once it has ended */
/* Waits for its end, and gives what it has found. */
trireme_result gw_finder_take(gw_finder *f, gw_found *out);
void gw_finder_stop(gw_finder *f); /* likewise, and closes it; NULL is fine */

#endif
