/* The file of --allowed-keys: public keys of the clients that may connect. */
#ifndef TRI_COORDINATOR_ALLOWED_KEYS_H
#define TRI_COORDINATOR_ALLOWED_KEYS_H

#include "comm/wire/zsock.h"

enum { TRI_MAX_ALLOWED_KEYS = 1024 };

typedef struct tri_allowed_keys {
  char keys[TRI_MAX_ALLOWED_KEYS + 1][TRI_Z_KEY]; /* of the file, and the coordinator's own */
  const char *list[TRI_MAX_ALLOWED_KEYS + 1];     /* into keys */
  int count;
} tri_allowed_keys;

/* One key a line; text behind it is a remark. A line that is no key and begins with '#', which may also begin a key,
 * is a comment. */
tri_status tri_allowed_keys_read(const char *path, tri_allowed_keys *out, tri_error *err);
/* Lets in who has the coordinator's own pair, as the gateway of `trireme up` does. It could speak for the coordinator.
 */
void tri_allowed_keys_add_own(tri_allowed_keys *a, const char *public_key);

#endif
