/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of clients in the fair queue: --client-share, and those of the file of allowed keys. */
#ifndef TRI_COORDINATOR_QUEUE_SHARES_H
#define TRI_COORDINATOR_QUEUE_SHARES_H

#include "comm/wire/client.h"
#include "coordinator/net/allowed_keys.h"

/* Weights of service; 1 where nothing is said. */
typedef struct tri_share {
  tri_owner owner;  /* TRI_OWNER_NOBODY: it is a caller's */
  const char *name; /* of the caller */
  double weight;
} tri_share;

enum { TRI_MAX_CALLER_SHARES = 256, TRI_MAX_SHARES = TRI_MAX_ALLOWED_KEYS + TRI_MAX_CALLER_SHARES };

typedef struct tri_shares {
  tri_share list[TRI_MAX_SHARES];
  size_t count;
  char names[TRI_MAX_CALLER_SHARES][TRI_WIRE_MAX_CALLER + 1];
} tri_shares;

/* text: NAME=WEIGHT,... of callers; NULL: none. */
tri_status tri_shares_read(const char *text, const tri_allowed_keys *keys, tri_shares *out, tri_error *err);

#endif
