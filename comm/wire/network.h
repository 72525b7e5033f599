/* SPDX-License-Identifier: Apache-2.0 */
/* Networks of this host, for what opens connections of its own: MPI and NCCL. */
#ifndef TRI_COMM_WIRE_NETWORK_H
#define TRI_COMM_WIRE_NETWORK_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct tri_network {
  char interface[IF_NAMESIZE];
  char address[INET_ADDRSTRLEN]; /* this host's */
  char cidr[INET_ADDRSTRLEN + 4];
} tri_network;

/* The first IPv4 network of this host that is up and that the list names: "eth0", "10.1.0.0/16", several with commas
 * between them; NULL: any but loopback. */
bool tri_network_find(const char *list, tri_network *out);
/* The network through which this host reaches tcp://ADDRESS:PORT, an address of IPv4. */
bool tri_network_towards(const char *endpoint, tri_network *out);
/* Has MPI's TCP transport, if it is used, and NCCL keep to the networks of the list, or to that towards the endpoint
 * where the list is NULL; before they start. What the environment says already stays. TRI_USAGE: this host has no such
 * network. */
tri_status tri_network_use(const char *list, const char *endpoint, tri_error *err);

#endif
