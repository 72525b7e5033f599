/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/queue/shares.h"

#include <stdlib.h>
#include <string.h>

static tri_status refuse(tri_error *err, const char *entry, size_t len) {
  return tri_fail(err, TRI_USAGE, "client_share",
                  "--client-share is NAME=WEIGHT,..., with names of at most %d characters and weights of %g to %g, not "
                  "\"%.*s\"",
                  TRI_WIRE_MAX_CALLER, TRI_LEAST_WEIGHT, TRI_MOST_WEIGHT, (int)len, entry);
}

static tri_status add_caller(const char *entry, size_t len, size_t at, tri_shares *out, tri_error *err) {
  const char *equals = memchr(entry, '=', len);
  size_t name = equals ? (size_t)(equals - entry) : 0;
  char *end = NULL;
  if (!name || name > TRI_WIRE_MAX_CALLER) return refuse(err, entry, len);
  if (at == TRI_MAX_CALLER_SHARES)
    return tri_fail(err, TRI_TOO_LARGE, "client_share", "--client-share has at most %d names", TRI_MAX_CALLER_SHARES);
  double weight = strtod(equals + 1, &end);
  if (end != entry + len || !(weight >= TRI_LEAST_WEIGHT && weight <= TRI_MOST_WEIGHT)) return refuse(err, entry, len);
  memcpy(out->names[at], entry, name);
  out->list[out->count++] = (tri_share){.name = out->names[at], .weight = weight};
  return TRI_OK;
}

/* Names of callers first, in the order of the option; then those keys of clients whose weight is not the usual one. */
tri_status tri_shares_read(const char *text, const tri_allowed_keys *keys, tri_shares *out, tri_error *err) {
  out->count = 0;
  for (size_t at = 0; text && *text; at++) {
    size_t len = strcspn(text, ",");
    TRI_CHECK(add_caller(text, len, at, out, err));
    text += len + (text[len] == ',');
  }
  for (int i = 0; i < keys->count && out->count < TRI_MAX_SHARES; i++) {
    tri_share s = {.owner.kind = TRI_OWNER_KEY, .weight = keys->weights[i]};
    if (keys->weights[i] != 1 && tri_zkey_raw(keys->keys[i], s.owner.bytes)) out->list[out->count++] = s;
  }
  return TRI_OK;
}
