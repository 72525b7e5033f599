/* SPDX-License-Identifier: Apache-2.0 */
/* The file of --allowed-keys: public keys of the clients that may connect. */
#ifndef TRI_COORDINATOR_NET_ALLOWED_KEYS_H
#define TRI_COORDINATOR_NET_ALLOWED_KEYS_H

#include "comm/wire/zsock.h"

enum { TRI_MAX_ALLOWED_KEYS = 1024 };

/* Weights of clients in the fair queue. */
#define TRI_LEAST_WEIGHT 0.01
#define TRI_MOST_WEIGHT 1000.0

typedef struct tri_allowed_keys {
  char keys[TRI_MAX_ALLOWED_KEYS + 1][TRI_Z_KEY]; /* of the file, and the coordinator's own */
  const char *list[TRI_MAX_ALLOWED_KEYS + 1];     /* into keys */
  double weights[TRI_MAX_ALLOWED_KEYS + 1];
  int count;
} tri_allowed_keys;

/* One key a line; text after it is a remark, but for weight=N directly after the key (1 without it). A line that is
 * no key and begins with '#', which may also begin a key, is a comment. */
tri_status tri_allowed_keys_read(const char *path, tri_allowed_keys *out, tri_error *err);
/* Lets in who has the coordinator's own pair, as the gateway of `trireme up` does. It could speak for the coordinator.
 */
void tri_allowed_keys_add_own(tri_allowed_keys *a, const char *public_key);

#endif
