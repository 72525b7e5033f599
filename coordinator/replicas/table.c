/* SPDX-License-Identifier: Apache-2.0 */
/* The replicas that the coordinator knows: found by number and epoch, by their leader, or as the one that gets
 * the next job. */
#include "coordinator/replicas/replicas_impl.h"

/* The epoch keeps out messages of an earlier life of the replica that are still under way. */
replica *replica_find(tri_core *c, uint32_t index, uint64_t epoch) {
  replica *g = index < c->cfg.num_replicas ? replica_at(c, index) : NULL;
  return g && g->facts.epoch == epoch && g->state != REPLICA_ABSENT && g->state != REPLICA_LOST ? g : NULL;
}

bool replica_is_key_of(const tri_core *c, uint32_t index, uint32_t rank, const tri_peer *from) {
  const tri_core_config *own = &c->cfg;
  if (from->owner.kind != TRI_OWNER_KEY || index >= own->num_replicas || rank >= own->replica_ranks) return false;
  return !memcmp(own->rank_keys[(size_t)index * own->replica_ranks + rank], from->owner.bytes, TRI_OWNER_BYTES);
}

/* A connection's name may be another's once that has ended; its key may not. */
static bool is_of_rank(const tri_core *c, uint32_t index, uint32_t rank, const tri_peer *from) {
  const replica *g = replica_at(c, index);
  return rank < g->world && g->ranks[rank].known && tri_peer_equal(&g->ranks[rank].peer, from) &&
         replica_is_key_of(c, index, rank, from);
}

bool replica_has_rank(tri_core *c, uint32_t index, uint64_t epoch, uint32_t rank, const tri_peer *from) {
  return replica_find(c, index, epoch) && is_of_rank(c, index, rank, from);
}

bool replica_find_led_by(const tri_core *c, const tri_peer *from, uint32_t *index) {
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    if (!is_of_rank(c, i, 0, from)) continue;
    *index = i;
    return true;
  }
  return false;
}

bool replica_is_watched(const tri_core *c, const replica *g) {
  if (g->state == REPLICA_ABSENT || g->state == REPLICA_LOST) return false;
  return !(g->state == REPLICA_DRAINING && !g->facts.jobs && c->draining); /* its ranks are leaving */
}

/* While the cluster drains, jobs that wait are still given out, until the leaders have been sent the order to drain. */
bool replica_takes_jobs(const tri_core *c, uint32_t index) {
  const replica *g = replica_at(c, index);
  if (g->died_ns) return false;
  return g->state == REPLICA_READY || (g->state == REPLICA_DRAINING && c->draining && !c->replicas->drain_sent);
}

/* The one with the fewest jobs, and among equals the first. *index is set only where there is one. */
bool replica_pick(const tri_core *c, uint32_t *index) {
  const replica *best = NULL;
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    const replica *g = replica_at(c, i);
    if (!replica_takes_jobs(c, i) || (best && best->facts.jobs <= g->facts.jobs)) continue;
    best = g;
    *index = i;
  }
  return best != NULL;
}

const replica_facts *replica_facts_of(const tri_core *c, uint32_t index) { return &replica_at(c, index)->facts; }

bool replica_gives_output(const tri_core *c, uint32_t index) {
  const replica *g = replica_at(c, index);
  return g->state == REPLICA_READY || g->state == REPLICA_DRAINING;
}

/* max_num_seqs is the limit of one data-parallel rank. */
uint64_t replica_slots(const tri_core *c, uint32_t index) {
  const replica *g = replica_at(c, index);
  return g->facts.max_num_seqs * (g->dp > 1 ? g->dp : 1);
}

/* A supervisor begins no start during a drain: one comes then only if it was begun before. Without a supervisor's word
 * of starts, any replica may be on its way. */
static bool may_come(const tri_core *c, const replica *g) {
  if (g->state == REPLICA_LOST || g->state == REPLICA_ABSENT)
    return c->cfg.starts_are_told ? g->coming : g->state == REPLICA_ABSENT;
  return true;
}

bool replicas_may_serve(const tri_core *c) {
  if (!c->draining && !c->cfg.lost_for_good) return true;
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++)
    if (may_come(c, replica_at(c, i))) return true;
  return false;
}

const char *replicas_last_loss(const tri_core *c) { return c->replicas->last_loss; }

/* ---- jobs of a replica ---- */

void replica_got_job(tri_core *c, uint32_t index, int64_t now) {
  replica *g = replica_at(c, index);
  if (!g->facts.jobs++) g->jobs_since = now;
}

void replica_left_job(tri_core *c, uint32_t index) {
  replica *g = replica_at(c, index);
  if (g->facts.jobs) g->facts.jobs--;
}

tri_status replica_tell_leader(tri_core *c, uint32_t index, tri_replica_msg *m) {
  const replica *g = replica_at(c, index);
  return g->world ? c->cfg.io.to_worker(c->cfg.io.ctx, &g->ranks[0].peer, m) : TRI_CLOSED;
}

/* ---- all of them ---- */

tri_status replicas_open(tri_core *c, const replica_hooks *hooks) {
  if (!(c->replicas = tri_calloc(1, sizeof *c->replicas))) return TRI_NO_MEMORY;
  c->replicas->hooks = *hooks;
  c->replicas->list = tri_calloc(c->cfg.num_replicas, sizeof *c->replicas->list);
  return c->replicas->list ? TRI_OK : TRI_NO_MEMORY;
}

void rank_forget_experts(expert_report *e) {
  tri_free(e->rows);
  tri_free(e->expert_of);
  tri_free(e->earlier);
  *e = (expert_report){0};
}

void replica_forget_experts(replica *g) {
  for (uint32_t r = 0; g->ranks && r < g->world; r++) rank_forget_experts(&g->ranks[r].experts);
}

/* Only ranks of replicas that are ready are asked: without one the answer is true. */
bool ranks_all(const tri_core *c, bool (*is_so)(const replica *g, const rank_info *rank)) {
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    const replica *g = replica_at(c, i);
    for (uint32_t r = 0; r < g->world && g->state == REPLICA_READY; r++)
      if (!is_so(g, &g->ranks[r])) return false;
  }
  return true;
}

/* Questions that stay keep their order. */
void rank_asks_answer(tri_core *c, int64_t now, rank_asks *asks, bool complete,
                      void (*answer)(tri_core *c, const rank_ask *ask)) {
  int left = 0;
  for (int i = 0; i < asks->num; i++)
    if (complete || now >= asks->list[i].until_ns)
      answer(c, &asks->list[i]);
    else
      asks->list[left++] = asks->list[i];
  asks->num = left;
}

void replicas_close(tri_core *c) {
  if (!c->replicas) return;
  for (uint32_t i = 0; c->replicas->list && i < c->cfg.num_replicas; i++) {
    replica_forget_experts(replica_at(c, i));
    tri_free(replica_at(c, i)->ranks);
  }
  tri_free(c->replicas->list);
  tri_free(c->replicas);
}
