/* SPDX-License-Identifier: Apache-2.0 */
/* The connection that makes room for a new one, where the server has as many as it may. The order protects work: first
 * those that have shown no key, then those that hold nothing, then half a request of the client with the most of them.
 * A request that is being answered never makes room. */
#include <string.h>

#include "client/gateway/http_conn_impl.h"
#include "base/hash.h"

enum { PEER_BUCKETS = 1024 };

/* One that is not trusted makes room whatever it sends, also a body that never ends: until its request is whole. */
static bool is_unknown(const http_conn *c) { return !c->trusted && c->phase != PHASE_RESPOND; }

static bool is_idle(const http_conn *c) { return c->phase == PHASE_HEAD && !c->begun; }

static bool is_unfinished(const http_conn *c) { return c->phase == PHASE_BODY || (c->phase == PHASE_HEAD && c->begun); }

static http_conn *find_oldest(const http_server *s, bool (*fits)(const http_conn *c)) {
  http_conn *c = s->oldest;
  while (c && !fits(c)) c = c->prev;
  return c;
}

static unsigned bucket(const http_conn *c) {
  return (unsigned)(tri_hash_bytes(TRI_HASH_SEED, c->peer, strlen(c->peer)) % PEER_BUCKETS);
}

/* Returns the oldest unfinished request of the address that has the most of them, so that one client cannot hold all
 * connections with requests that never end. The only one of its address stays. Addresses of one bucket count as one:
 * a count of each address would take the square of the connections. */
static http_conn *find_unfinished(const http_server *s) {
  unsigned counts[PEER_BUCKETS] = {0}, most = 1;
  http_conn *found = NULL;
  for (const http_conn *c = s->oldest; c; c = c->prev)
    if (is_unfinished(c)) counts[bucket(c)]++;
  for (http_conn *c = s->oldest; c; c = c->prev)
    if (is_unfinished(c) && counts[bucket(c)] > most) {
      most = counts[bucket(c)];
      found = c;
    }
  return found;
}

bool http_conn_make_room(http_server *s) {
  http_conn *c = find_oldest(s, is_unknown);
  if (!c) c = find_oldest(s, is_idle);
  if (!c) c = find_unfinished(s);
  if (c) http_conn_free(c);
  return c;
}
