/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/net/late_replies.h"

#include <string.h>

#include "coordinator/net/connection_guard.h"
#include "base/mem.h"

static tri_late_connection *find(const tri_late_replies *r, const tri_peer *to) {
  for (int i = 0; i < r->num; i++)
    if (tri_peer_equal(&r->list[i].peer, to)) return (tri_late_connection *)&r->list[i];
  return NULL;
}

static void drop_first(tri_late_replies *r, tri_late_connection *c) {
  tri_late_reply *first = STAILQ_FIRST(&c->replies);
  STAILQ_REMOVE_HEAD(&c->replies, links);
  c->bytes -= first->len;
  r->bytes -= first->len;
  tri_free(first);
}

static void drop_all(tri_late_replies *r, tri_late_connection *c) {
  while (!STAILQ_EMPTY(&c->replies)) drop_first(r, c);
}

/* The generation says which connection is to be closed: by then its descriptor may be another one's. */
static void give_up(tri_late_replies *r, tri_late_connection *c) {
  drop_all(r, c);
  c->closing = r->has_closing = true;
  c->generation = tri_connection_guard_generation(c->peer.connection);
}

static tri_late_connection *add_connection(tri_late_replies *r, int64_t now, const tri_peer *to) {
  if (r->num == TRI_LATE_CONNECTIONS) return NULL;
  tri_late_connection *c = &r->list[r->num++];
  *c = (tri_late_connection){.peer = *to, .since_ns = now};
  STAILQ_INIT(&c->replies);
  return c;
}

static tri_late_reply *copy(const void *data, size_t len) {
  tri_late_reply *reply = data ? tri_malloc(sizeof *reply + len, 1) : NULL;
  if (!reply) return NULL;
  reply->len = len;
  memcpy(reply->data, data, len);
  return reply;
}

/* The first reply of a connection may have any size: it could never be kept otherwise. */
static bool has_room(const tri_late_replies *r, const tri_late_connection *c, size_t len) {
  if (STAILQ_EMPTY(&c->replies)) return r->bytes < TRI_LATE_BYTES;
  return c->bytes + len <= TRI_LATE_BYTES_OF_ONE && r->bytes + len <= TRI_LATE_BYTES;
}

bool tri_late_replies_wait(const tri_late_replies *r, const tri_peer *to) { return find(r, to) != NULL; }

void tri_late_replies_add(tri_late_replies *r, int64_t now, const tri_peer *to, const void *data, size_t len) {
  tri_late_connection *c = find(r, to);
  if (!c && !(c = add_connection(r, now, to))) {
    r->dropped++;
    return;
  }
  if (c->closing) return;
  tri_late_reply *reply = has_room(r, c, len) ? copy(data, len) : NULL;
  if (!reply) {
    give_up(r, c);
    return;
  }
  STAILQ_INSERT_TAIL(&c->replies, reply, links);
  c->bytes += len;
  r->bytes += len;
}

/* Returns whether the connection is still of interest. */
static bool send_to(tri_late_replies *r, int64_t now, tri_late_connection *c, tri_zserver *server) {
  tri_status st = TRI_OK;
  if (c->closing) return !c->gone;
  while (st == TRI_OK && !STAILQ_EMPTY(&c->replies)) {
    const tri_late_reply *first = STAILQ_FIRST(&c->replies);
    st = tri_zserver_queue(server, &c->peer, first->data, first->len);
    if (st != TRI_OK) break;
    drop_first(r, c);
    c->since_ns = now;
  }
  if (st != TRI_OK && st != TRI_AGAIN) {
    drop_all(r, c);
    return false;
  }
  if (st == TRI_AGAIN && now - c->since_ns > TRI_LATE_MS * 1000000LL) give_up(r, c);
  return st == TRI_AGAIN;
}

void tri_late_replies_send(tri_late_replies *r, int64_t now, tri_zserver *server) {
  int left = 0;
  for (int i = 0; i < r->num; i++) {
    tri_late_connection *c = &r->list[i];
    if (!send_to(r, now, c, server)) continue;
    /* An empty queue's head points to itself, so that it cannot be moved as a part of the struct. */
    if (left != i) {
      r->list[left] = *c;
      STAILQ_INIT(&r->list[left].replies);
      STAILQ_CONCAT(&r->list[left].replies, &c->replies);
    }
    left++;
  }
  r->num = left;
}

/* Everything that came from it has been read once this is called; the library then has TRI_LATE_END_MS to let go of a
 * connection that ended by itself. One that is still there after that is closed. */
static void close_one(tri_late_connection *c, int64_t now, tri_zserver *server) {
  if (!c->read_ns) c->read_ns = now;
  if (now - c->read_ns < TRI_LATE_END_MS * 1000000LL) return;
  c->gone = tri_zserver_look(server, &c->peer) == TRI_CLOSED;
  if (!c->gone && !c->closed) tri_connection_guard_end(c->peer.connection, c->generation);
  c->closed = true;
}

void tri_late_replies_close(tri_late_replies *r, int64_t now, tri_zserver *server) {
  r->has_closing = false;
  for (int i = 0; i < r->num; i++) {
    tri_late_connection *c = &r->list[i];
    if (c->closing && !c->gone) close_one(c, now, server);
    r->has_closing |= c->closing && !c->gone;
  }
}

void tri_late_replies_free(tri_late_replies *r) {
  for (int i = 0; i < r->num; i++) drop_all(r, &r->list[i]);
  r->num = 0;
}
