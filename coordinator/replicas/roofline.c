/* SPDX-License-Identifier: Apache-2.0 */
/* Roofline bounds for a benchmark's figures. The ranks of all replicas measure at the same time, so that those who
 * share a machine share its rates and the sums are what the cluster has; they do so only while no job is there, and a
 * job that comes meanwhile waits for them. */

#include "coordinator/replicas/replicas_impl.h"

/* A second where each rank has its cores, many where ranks share them. */
#define MEASURE_NS (30 * 1000000000LL)

static bool has_measured(const replica *g, const rank_info *rank) {
  (void)g;
  return rank->measured;
}

bool roofline_is_measured(const tri_core *c, int64_t now) {
  bool waits = false;
  for (int i = 0; i < c->replicas->asks.num; i++) waits |= now < c->replicas->asks.list[i].until_ns;
  return waits && !ranks_all(c, has_measured);
}

#define ADD(from, type, name, json) out->sum.name += (from).name;

static void answer(tri_core *c, const rank_ask *a) {
  tri_server_msg m = {.op = TRI_REPLY_ROOFLINES, .id = a->id};
  for (uint32_t i = 0; i < c->cfg.num_replicas && m.rooflines.num_replicas < TRI_STATUS_MAX_REPLICAS; i++) {
    const replica *g = replica_at(c, i);
    if (g->state != REPLICA_READY) continue;
    tri_replica_rooflines *out = &m.rooflines.replicas[m.rooflines.num_replicas++];
    *out = (tri_replica_rooflines){.replica = i, .ranks = g->world};
    for (uint32_t r = 0; r < g->world; r++) {
      if (!g->ranks[r].measured) continue;
      out->measured++;
      TRI_ROOFLINES_FIELDS(ADD, g->ranks[r].rooflines)
    }
  }
  c->cfg.io.answer(c->cfg.io.ctx, &a->peer, &m);
}

static void begin(tri_core *c) {
  tri_replica_msg m = {.op = TRI_REPLICA_MEASURE};
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    replica *g = replica_at(c, i);
    for (uint32_t r = 0; r < g->world && g->state == REPLICA_READY; r++) {
      g->ranks[r].measured = false;
      c->cfg.io.to_worker(c->cfg.io.ctx, &g->ranks[r].peer, &m);
    }
  }
}

void roofline_request(tri_core *c, int64_t now, const tri_peer *from, uint64_t id, bool idle) {
  tri_error err = {0};
  rank_asks *asks = &c->replicas->asks;
  if (asks->num == MAX_ASKS) {
    tri_fail(&err, TRI_NO_CAPACITY, "op", "%d clients wait for floors already", MAX_ASKS);
    answer_error(c, from, id, &err);
    return;
  }
  if (idle && !asks->num) begin(c);
  /* Under load the answer is what was measured before, if anything was. */
  asks->list[asks->num++] = (rank_ask){.peer = *from, .id = id, .until_ns = idle ? now + MEASURE_NS : now};
  roofline_tick(c, now);
}

void roofline_take(tri_core *c, int64_t now, const tri_replica_msg *m) {
  replica *g = replica_find(c, m->rooflines.replica, m->rooflines.epoch);
  if (!g || m->rooflines.rank >= g->world) return;
  rank_info *rank = &g->ranks[m->rooflines.rank];
  rank->rooflines = m->rooflines.rooflines;
  rank->measured = true;
  roofline_tick(c, now);
}

void roofline_tick(tri_core *c, int64_t now) {
  if (c->replicas->asks.num) rank_asks_answer(c, now, &c->replicas->asks, ranks_all(c, has_measured), answer);
}
