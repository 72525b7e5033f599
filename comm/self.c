/* SPDX-License-Identifier: Apache-2.0 */
/* The communicator of a replica of one: there is no peer to send to or to receive from. Slots that only a peer could
 * call (isend, recv) stay NULL. */
#include <string.h>

#include "comm/comm.h"
#include "base/mem.h"

/* Every call ends with tri_comm_query, so that a communicator in error says so here as one of several ranks would. */
static tri_status self_all_reduce(tri_comm *c, float *buf, size_t count) {
  (void)buf;
  (void)count;
  return tri_comm_query(c);
}

static tri_status self_all_gather(tri_comm *c, const void *send, void *recv, size_t bytes) {
  if (send != recv) memmove(recv, send, bytes);
  return tri_comm_query(c);
}

static tri_status self_reduce_scatter(tri_comm *c, const float *send, float *recv, size_t count) {
  memcpy(recv, send, count * sizeof *recv);
  return tri_comm_query(c);
}

static tri_status self_all_to_all(tri_comm *c, const void *send, const size_t *send_bytes, void *recv,
                                  const size_t *recv_bytes) {
  if (send_bytes[0] != recv_bytes[0]) return TRI_INVALID_ARGUMENT;
  memcpy(recv, send, send_bytes[0]);
  return tri_comm_query(c);
}

static tri_status self_broadcast(tri_comm *c, void *buf, size_t bytes, int root) {
  (void)buf;
  (void)bytes;
  (void)root;
  return tri_comm_query(c);
}

static tri_status self_barrier(tri_comm *c) { return tri_comm_query(c); }

/* Without isend there is no request that could be active. */
static tri_status self_wait(tri_comm *c, tri_comm_req *req) {
  (void)req;
  return tri_comm_query(c);
}

/* No message ever comes: a caller that looks for one finds none yet. */
static tri_status self_try_recv(tri_comm *c, void *buf, size_t cap, int peer, int tag, size_t *bytes) {
  (void)buf;
  (void)cap;
  (void)peer;
  (void)tag;
  (void)bytes;
  tri_status st = tri_comm_query(c);
  return st == TRI_OK ? TRI_AGAIN : st;
}

static void self_destroy(tri_comm *c) { tri_free(c); }

/* Every color and key give the same part of a single rank: itself. */
static tri_status self_split(tri_comm *c, int color, int key, const tri_comm_config *config, tri_comm **out) {
  (void)color;
  (void)key;
  return tri_comm_self_create(config ? config : &c->cfg, out);
}

static const tri_comm_ops self_ops = {
    .name = "self",
    .all_reduce = self_all_reduce,
    .all_gather = self_all_gather,
    .reduce_scatter = self_reduce_scatter,
    .all_to_all = self_all_to_all,
    .broadcast = self_broadcast,
    .barrier = self_barrier,
    .wait = self_wait,
    .try_recv = self_try_recv,
    .split = self_split,
    .destroy = self_destroy,
};

tri_status tri_comm_self_create(const tri_comm_config *config, tri_comm **out) {
  tri_comm *c = tri_calloc(1, sizeof *c);
  if (!c) return TRI_NO_MEMORY;
  c->ops = &self_ops;
  c->size = 1;
  c->cfg = *config;
  *out = c;
  return TRI_OK;
}
