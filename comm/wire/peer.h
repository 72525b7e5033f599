/* SPDX-License-Identifier: Apache-2.0 */
/* The address of a peer of a server: who a message came from, and where a reply goes; and who is behind it. */
#ifndef TRI_COMM_WIRE_PEER_H
#define TRI_COMM_WIRE_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { TRI_PEER_BYTES = 32, TRI_OWNER_BYTES = 32 };

/* The user or key of a connection, as the socket found out by itself: a peer cannot claim to be another. */
typedef enum tri_owner_kind {
  TRI_OWNER_NOBODY, /* the transport does not tell */
  TRI_OWNER_USER,   /* the user id at the other end of a socket file */
  TRI_OWNER_KEY,    /* the public key of a CURVE connection */
} tri_owner_kind;

typedef struct tri_owner {
  tri_owner_kind kind;
  uint8_t bytes[TRI_OWNER_BYTES]; /* zero after what the kind needs */
} tri_owner;

static inline bool tri_owner_equal(const tri_owner *a, const tri_owner *b) {
  return a->kind == b->kind && !memcmp(a->bytes, b->bytes, sizeof a->bytes);
}

/* Opaque to all but the sockets, and compared with tri_peer_equal alone: the bytes after len are not set. */
typedef struct tri_peer {
  uint8_t len;
  uint8_t bytes[TRI_PEER_BYTES];
  int connection; /* its descriptor, when the message came: a hint, as another one may have it by now */
  tri_owner owner;
} tri_peer;

/* Connections that have ended: a bit for each, by its descriptor; several share one. */
enum { TRI_CONNECTION_BITS = 1024 };
typedef struct tri_connections {
  uint64_t bits[TRI_CONNECTION_BITS / 64];
} tri_connections;

static inline void tri_connections_add(tri_connections *s, int connection) {
  unsigned bit = (unsigned)connection % TRI_CONNECTION_BITS;
  s->bits[bit / 64] |= UINT64_C(1) << bit % 64;
}

static inline bool tri_connections_may_have(const tri_connections *s, int connection) {
  unsigned bit = (unsigned)connection % TRI_CONNECTION_BITS;
  return s->bits[bit / 64] >> bit % 64 & 1;
}

static inline bool tri_peer_equal(const tri_peer *a, const tri_peer *b) {
  return a->len == b->len && !memcmp(a->bytes, b->bytes, a->len);
}

#endif
