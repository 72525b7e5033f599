/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/process/outbox_send.h"

static bool is_for_later(tri_status st) { return st == TRI_AGAIN || st == TRI_NO_MEMORY; }

/* Returns how many of an encoder's results, from the first one on, fit into one message. */
static uint32_t fitting(const tri_replica_result *first, uint32_t left) {
  enum { AROUND = 32 }; /* bytes of a result apart from its numbers, at most */
  size_t bytes = 0;
  for (uint32_t n = 0; n < left; n++) {
    bytes += first[n].num_values * sizeof *first[n].values + AROUND;
    if (n && bytes > TRI_WIRE_MAX_RESULT) return n;
  }
  return left;
}

bool tri_outbox_send(tri_outbox *o, uint64_t epoch, tri_status (*send)(void *ctx, tri_replica_msg *m), void *ctx) {
  while (o->num_sent < o->num_results) {
    const tri_replica_result *first = o->results + o->num_sent;
    uint32_t n = fitting(first, o->num_results - o->num_sent);
    tri_replica_msg m = {.op = TRI_REPLICA_EMBED_RESULTS,
                         .embed_results = {.epoch = epoch, .num = n, .results = first}};
    if (is_for_later(send(ctx, &m))) return false;
    o->num_sent += n;
  }
  tri_replica_msg m = {.op = TRI_REPLICA_TOKENS,
                       .tokens = {.epoch = epoch, .step = o->step, .num = o->num, .tokens = o->tokens}};
  return !o->num || !is_for_later(send(ctx, &m));
}
