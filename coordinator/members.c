/* Replica groups: they register, become ready, report their health, get leases, and are lost. */
#include <stdio.h>
#include <string.h>

#include "coordinator/state.h"
#include "runtime/base/log.h"

enum { LEASE_NS = 1000000000 };

static void refuse(tri_core *c, const tri_zpeer *to, const char *why) {
  tri_group_msg m = {.op = TRI_GROUP_WELCOME, .welcome = {.ok = false, .message = wire_str(why)}};
  c->cfg.io.to_worker(c->cfg.io.ctx, to, &m);
}

/* Jobs of a group that is no more end with an error. (With a journal they will be assigned again.) */
static void fail_jobs(tri_core *c, int64_t now, uint32_t index, const char *reason) {
  tri_error err = {0};
  tri_fail(&err, TRI_PEER_LOST, "", "the group that ran this job was lost: %s", reason);
  for (job *j = c->active.head, *next; j; j = next) {
    next = j->next;
    if (j->state == JOB_ASSIGNED && j->group == index) job_fail(c, now, j, &err);
  }
}

void member_lose(tri_core *c, int64_t now, uint32_t index, const char *reason) {
  group *g = &c->groups[index];
  if (g->state == GROUP_LOST || g->state == GROUP_ABSENT) return;
  tri_log(TRI_LOG_ERROR, "members", "group %u (epoch %llu) is lost: %s", index, (unsigned long long)g->epoch, reason);
  g->state = GROUP_LOST;
  fail_jobs(c, now, index, reason);
  c->cfg.io.group_lost(c->cfg.io.ctx, index, g->epoch, reason);
}

static bool begin_epoch(tri_core *c, int64_t now, uint32_t index, const tri_group_register *r) {
  group *g = &c->groups[index];
  if (g->state != GROUP_ABSENT && g->state != GROUP_LOST) fail_jobs(c, now, index, "it was started again");
  tri_free(g->ranks);
  *g =
      (group){.state = GROUP_STARTING, .epoch = r->epoch, .tp = r->tp, .pp = r->pp, .world = r->world, .began_ns = now};
  g->ranks = tri_calloc(r->world, sizeof *g->ranks);
  if (g->ranks) return true;
  g->state = GROUP_ABSENT;
  g->world = 0;
  return false;
}

/* Workers that were given other options than this process, as mpirun makes easy. */
static bool layout_fits(const tri_core *c, const tri_group_register *r, char *why, size_t cap) {
  if (!c->cfg.tp || (r->tp == c->cfg.tp && r->pp == c->cfg.pp)) return true;
  snprintf(why, cap, "the workers were started with -tp %u -pp %u, the coordinator with -tp %u -pp %u", r->tp, r->pp,
           c->cfg.tp, c->cfg.pp);
  return false;
}

static bool model_fits(const tri_core *c, const tri_group_register *r, char *why, size_t cap) {
  if (!c->cfg.model_hash || r->model_hash == c->cfg.model_hash) return true;
  snprintf(why, cap, "the workers' model is another than the coordinator's, \"%s\"", c->cfg.model_name);
  return false;
}

static void take_register(tri_core *c, int64_t now, const tri_zpeer *from, const tri_group_register *r) {
  if (r->group >= c->cfg.num_groups || r->world < 1 || r->world > MAX_RANKS || r->rank >= r->world) {
    refuse(c, from, "there is no such group or rank in this cluster");
    return;
  }
  char why[400];
  group *g = &c->groups[r->group];
  if (r->epoch < g->epoch || (g->state == GROUP_LOST && r->epoch == g->epoch)) {
    refuse(c, from, "this start of the group is over: a newer one has registered, or it was given up");
    return;
  }
  bool has_facts = r->rank == 0 && r->max_model_len;
  if ((g->state == GROUP_ABSENT || r->epoch > g->epoch) && !begin_epoch(c, now, r->group, r)) return;
  if (r->world != g->world) {
    refuse(c, from, "the group's ranks disagree about how many they are");
    return;
  }
  if (!layout_fits(c, r, why, sizeof why) || (has_facts && !model_fits(c, r, why, sizeof why))) {
    refuse(c, from, why);
    member_lose(c, now, r->group, why);
    return;
  }
  rank_info *k = &g->ranks[r->rank];
  k->known = true;
  k->peer = *from;
  k->pid = r->pid;
  k->last_report = k->progress_ns = now;
  snprintf(k->host, sizeof k->host, "%.*s", (int)(r->host.len < 63 ? r->host.len : 63), r->host.s ? r->host.s : "");
  if (has_facts) {
    g->model_hash = r->model_hash, g->max_model_len = r->max_model_len, g->vocab_size = r->vocab_size;
    g->kv_pages = r->kv_pages, g->block_size = r->block_size, g->max_num_seqs = r->max_num_seqs;
  }
  tri_group_msg m = {.op = TRI_GROUP_WELCOME, .welcome = {.ok = true}};
  c->cfg.io.to_worker(c->cfg.io.ctx, from, &m);
}

static group *group_of(tri_core *c, uint32_t index, uint64_t epoch) {
  group *g = index < c->cfg.num_groups ? &c->groups[index] : NULL;
  return g && g->epoch == epoch && g->state != GROUP_ABSENT && g->state != GROUP_LOST ? g : NULL;
}

static bool same_service(const group *a, const group *b) {
  return a->model_hash == b->model_hash && a->max_model_len == b->max_model_len && a->block_size == b->block_size;
}

static void take_ready(tri_core *c, int64_t now, uint32_t index, uint64_t epoch, double load_seconds,
                       double block_seconds) {
  group *g = group_of(c, index, epoch);
  if (!g || g->state != GROUP_STARTING) return;
  for (uint32_t i = 0; i < c->cfg.num_groups; i++)
    if (c->groups[i].state == GROUP_READY && !same_service(&c->groups[i], g)) {
      member_lose(c, now, index, "it serves another model, or other limits, than the groups that are ready");
      return;
    }
  g->state = GROUP_READY;
  g->stalled_ns = watchdog_patience(c, block_seconds);
  tri_log(TRI_LOG_INFO, "members", "group %u is ready: tp %u pp %u, %llu KV pages of %llu tokens, loaded in %.2f s",
          index, g->tp, g->pp, (unsigned long long)g->kv_pages, (unsigned long long)g->block_size, load_seconds);
  c->cfg.io.group_ready(c->cfg.io.ctx, index, epoch);
  if (c->drain_sent) members_drain(c); /* too late: the last job has ended */
  job_dispatch(c, now);
}

static void take_health(tri_core *c, int64_t now, const tri_group_health *h) {
  group *g = group_of(c, h->group, h->epoch);
  if (!g || h->rank >= g->world) return;
  rank_info *k = &g->ranks[h->rank];
  if (k->step != h->step || k->block != h->block || k->collective != h->collective) k->progress_ns = now;
  k->last_report = now;
  k->step = h->step, k->block = h->block, k->collective = h->collective;
  k->busy = h->busy;
  if (h->rank) return;
  if (h->busy && !g->busy_since) g->busy_since = now;
  if (!h->busy) g->busy_since = 0;
  if (h->tokens > g->tokens) {
    unsigned i = g->cost.count++ % COST_REPORTS;
    g->cost.tokens[i] = h->tokens - g->tokens;
    g->cost.ns[i] = h->scheduler_ns - g->scheduler_ns;
  }
  g->running = h->running, g->waiting = h->waiting, g->kv_pages_used = h->kv_pages_used;
  g->tokens = h->tokens, g->scheduler_ns = h->scheduler_ns, g->preemptions = h->preemptions;
}

/* The leader's messages say nothing of who sends them but the peer. */
static bool leader_index(const tri_core *c, const tri_zpeer *from, uint32_t *index) {
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    const group *g = &c->groups[i];
    if (g->world && g->ranks[0].known && g->ranks[0].peer.len == from->len &&
        !memcmp(g->ranks[0].peer.bytes, from->bytes, from->len)) {
      *index = i;
      return true;
    }
  }
  return false;
}

void member_message(tri_core *c, int64_t now, const tri_zpeer *from, const tri_group_msg *m) {
  uint32_t index;
  char reason[300];
  switch (m->op) {
  case TRI_GROUP_REGISTER: take_register(c, now, from, &m->reg); break;
  case TRI_GROUP_READY:
    take_ready(c, now, m->ready.group, m->ready.epoch, m->ready.load_seconds, m->ready.block_seconds);
    break;
  case TRI_GROUP_HEALTH: take_health(c, now, &m->health); break;
  case TRI_GROUP_TOKENS:
    if (leader_index(c, from, &index)) job_tokens(c, now, index, &m->tokens);
    break;
  case TRI_GROUP_REFUSED:
    if (leader_index(c, from, &index)) job_refused(c, now, index, m);
    break;
  case TRI_GROUP_ENCODED:
    if (leader_index(c, from, &index)) encode_results(c, now, index, &m->encoded);
    break;
  case TRI_GROUP_FLOORS: {
    group *g = group_of(c, m->floors.group, m->floors.epoch);
    if (g && m->floors.rank < g->world) floors_take(c, now, &g->ranks[m->floors.rank], &m->floors.floors);
    break;
  }
  case TRI_GROUP_FAILED:
    snprintf(reason, sizeof reason, "rank %u: %.*s", m->failed.rank,
             (int)(m->failed.message.len < 250 ? m->failed.message.len : 250),
             m->failed.message.s ? m->failed.message.s : "");
    if (group_of(c, m->failed.group, m->failed.epoch)) member_lose(c, now, m->failed.group, reason);
    break;
  default: break;
  }
}

void members_tick(tri_core *c, int64_t now) {
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    group *g = &c->groups[i];
    if (g->state == GROUP_ABSENT || g->state == GROUP_LOST)
      continue; /* a lost group gets no lease, so that what is left of it ends itself */
    if (g->state == GROUP_DRAINING && !g->jobs && c->draining) continue;
    watchdog_check(c, now, i);
    if (g->state == GROUP_LOST || now - g->last_lease < LEASE_NS) continue;
    g->last_lease = now;
    tri_group_msg m = {.op = TRI_GROUP_LEASE, .lease = {.time_ms = (uint64_t)(now / 1000000)}};
    for (uint32_t r = 0; r < g->world; r++)
      if (g->ranks[r].known) c->cfg.io.to_worker(c->cfg.io.ctx, &g->ranks[r].peer, &m);
  }
}

void members_drain(tri_core *c) {
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    group *g = &c->groups[i];
    tri_group_msg m = {.op = TRI_GROUP_DRAIN};
    if (g->state != GROUP_READY && g->state != GROUP_STARTING) continue;
    g->state = GROUP_DRAINING;
    for (uint32_t r = 0; r < g->world; r++)
      if (g->ranks[r].known) c->cfg.io.to_worker(c->cfg.io.ctx, &g->ranks[r].peer, &m);
  }
}

group *member_pick(tri_core *c, uint32_t *index) {
  group *best = NULL;
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    group *g = &c->groups[i];
    if (g->state != GROUP_READY && !(g->state == GROUP_DRAINING && c->draining && !c->drain_sent)) continue;
    if (best && best->jobs <= g->jobs) continue;
    best = g;
    *index = i;
  }
  return best;
}

void members_destroy(tri_core *c) {
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) tri_free(c->groups[i].ranks);
}
