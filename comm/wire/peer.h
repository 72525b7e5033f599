/* The address of a peer of a server: who a message came from, and where a reply goes. */
#ifndef TRI_COMM_WIRE_PEER_H
#define TRI_COMM_WIRE_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { TRI_PEER_BYTES = 32 };

/* Opaque to all but the sockets, and compared with tri_peer_equal alone: the bytes behind len are not set. */
typedef struct tri_peer {
  uint8_t len;
  uint8_t bytes[TRI_PEER_BYTES];
} tri_peer;

static inline bool tri_peer_equal(const tri_peer *a, const tri_peer *b) {
  return a->len == b->len && !memcmp(a->bytes, b->bytes, a->len);
}

#endif
