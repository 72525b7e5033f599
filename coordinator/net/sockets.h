/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's two sockets: clients connect to one, workers to the other. */
#ifndef TRI_COORDINATOR_NET_SOCKETS_H
#define TRI_COORDINATOR_NET_SOCKETS_H

#include "comm/wire/boot.h"
#include "comm/wire/zsock.h"
#include "base/options/serve_options.h"
#include "coordinator/net/allowed_keys.h"

/* Opens the socket of --endpoint. allowed: where the keys go that may connect; it must outlive the socket. TRI_USAGE: a
 * TCP address without keys, or keys without a list of who may connect. */
tri_status tri_client_socket_open(const tri_serve_options *o, tri_zcontext *z, tri_allowed_keys *allowed,
                                  tri_zserver **out, tri_error *err);
/* The public key of each rank: by them the socket lets in, and the core tells ranks apart. */
typedef struct tri_rank_keys {
  uint32_t replicas, ranks;        /* ranks: of each replica */
  char (*texts)[TRI_Z_KEY];        /* [replicas, ranks] */
  uint8_t (*raw)[TRI_OWNER_BYTES]; /* the same as bytes */
} tri_rank_keys;

void tri_rank_keys_free(tri_rank_keys *k);

/* Fills boot with what the workers need to connect. Where the ranks have not made their keys by themselves (texts is
 * NULL), it makes one for each and writes the boot file. one_host: of the workers and this. */
tri_status tri_worker_socket_open(const tri_serve_options *o, tri_zcontext *z, bool one_host, tri_rank_keys *keys,
                                  tri_boot *boot, tri_zserver **out, tri_error *err);

#endif
