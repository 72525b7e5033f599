/* SPDX-License-Identifier: Apache-2.0 */
/* The floors beside a benchmark's figures. The ranks of all groups measure at the same time, so that those who share a
 * machine share its rates and the sums are what the cluster has; they do so only while no job is there, and a job that
 * comes meanwhile waits for them. */
#include <string.h>

#include "coordinator/state.h"

/* A second where each rank has its cores, many where ranks share them. */
#define MEASURE_NS (30 * 1000000000LL)

static bool all_measured(const tri_core *c) {
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    const group *g = &c->groups[i];
    for (uint32_t r = 0; r < g->world && g->state == GROUP_READY; r++)
      if (!g->ranks[r].measured) return false;
  }
  return true;
}

bool floors_are_measured(const tri_core *c, int64_t now) {
  bool waits = false;
  for (int i = 0; i < c->num_asks; i++) waits |= now < c->asks[i].until_ns;
  return waits && !all_measured(c);
}

#define ADD(from, type, name, json) out->sum.name += (from).name;

static void answer(tri_core *c, const floors_ask *a) {
  tri_server_msg m = {.op = TRI_REPLY_FLOORS, .id = a->id};
  for (uint32_t i = 0; i < c->cfg.num_groups && m.floors.num_groups < TRI_STATUS_MAX_GROUPS; i++) {
    const group *g = &c->groups[i];
    if (g->state != GROUP_READY) continue;
    tri_group_floors *out = &m.floors.groups[m.floors.num_groups++];
    *out = (tri_group_floors){.group = i, .ranks = g->world};
    for (uint32_t r = 0; r < g->world; r++) {
      if (!g->ranks[r].measured) continue;
      out->measured++;
      TRI_FLOORS_FIELDS(ADD, g->ranks[r].floors)
    }
  }
  c->cfg.io.answer(c->cfg.io.ctx, &a->peer, &m);
}

static void begin(tri_core *c) {
  tri_group_msg m = {.op = TRI_GROUP_MEASURE};
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    group *g = &c->groups[i];
    for (uint32_t r = 0; r < g->world && g->state == GROUP_READY; r++) {
      g->ranks[r].measured = false;
      c->cfg.io.to_worker(c->cfg.io.ctx, &g->ranks[r].peer, &m);
    }
  }
}

void floors_request(tri_core *c, int64_t now, const tri_peer *from, uint64_t id) {
  tri_error err = {0};
  if (c->num_asks == MAX_ASKS) {
    tri_fail(&err, TRI_NO_CAPACITY, "op", "%d clients wait for floors already", MAX_ASKS);
    answer_error(c, from, id, &err);
    return;
  }
  bool idle = !c->num_active && !c->draining;
  if (idle && !c->num_asks) begin(c);
  /* Under load the answer is what was measured before, if anything was. */
  c->asks[c->num_asks++] = (floors_ask){.peer = *from, .id = id, .until_ns = idle ? now + MEASURE_NS : now};
  floors_tick(c, now);
}

void floors_take(tri_core *c, int64_t now, rank_info *rank, const tri_floors *floors) {
  rank->floors = *floors;
  rank->measured = true;
  floors_tick(c, now);
}

void floors_tick(tri_core *c, int64_t now) {
  if (!c->num_asks) return;
  bool complete = all_measured(c);
  int left = 0;
  for (int i = 0; i < c->num_asks; i++)
    if (complete || now >= c->asks[i].until_ns)
      answer(c, &c->asks[i]);
    else
      c->asks[left++] = c->asks[i];
  c->num_asks = left;
}
