/* SPDX-License-Identifier: Apache-2.0 */
/* API keys: who may ask. */
#ifndef TRI_CLIENT_GATEWAY_KEYS_H
#define TRI_CLIENT_GATEWAY_KEYS_H

#include <stdbool.h>

#include "client/gateway/http_parse.h"
#include "base/status.h"

typedef struct gw_keys gw_keys; /* NULL: everybody may */
/* Reads a file of `NAME KEY` lines, which its owner alone may read. */
tri_status gw_keys_load(const char *path, gw_keys **out, tri_error *err);
void gw_keys_free(gw_keys *k);
enum { GW_KEY_NAME = 65 }; /* bytes of a key's name, and a NUL */
/* Returns whether an Authorization field is a Bearer of one of the keys, in a time that tells nothing of them; then
 * `name` has that key's. It is empty otherwise, and without keys. */
bool gw_keys_allow(const gw_keys *k, http_str authorization, char name[GW_KEY_NAME]);

#endif
