/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a replica: its ranks register, the replica becomes ready, reports its health, gets leases, and may be
 * lost.
 *
 *   ABSENT -> STARTING     the first rank of a start registers (begin_epoch)
 *   STARTING -> READY      its leader says so, and the replica fits those that serve
 *   READY -> STARTING      its leader's connection was lost and made again: its jobs are queued again
 *   STARTING, READY -> DRAINING  the cluster ends, and the last job has ended
 *   any but ABSENT -> LOST a rank failed, is silent or stands still, or the supervisor saw it end
 *   any -> STARTING        a later epoch registers
 *
 * Every message names the epoch: what an earlier start still has to say finds no replica. */
#include <stdarg.h>
#include <stdio.h>

#include "coordinator/replicas/replicas_impl.h"
#include "base/log.h"

enum {
  LAST_WORDS_NS = 200000000
}; /* from a supervisor's word that a replica ended to its loss: its own may come yet */
static const uint64_t EPOCHS_AHEAD = UINT64_C(1) << 32; /* of the last start: a time in seconds is one, too */

static bool is_here(const replica *g) { return g->state != REPLICA_ABSENT && g->state != REPLICA_LOST; }

static void refuse(const tri_core *c, const tri_peer *to, const char *why) {
  tri_replica_msg m = {.op = TRI_REPLICA_WELCOME, .welcome = {.ok = false, .message = wire_str(why)}};
  c->cfg.io.to_worker(c->cfg.io.ctx, to, &m);
}

static void lose_jobs(tri_core *c, int64_t now, uint32_t index, const char *reason) {
  char *kept = c->replicas->last_loss;
  snprintf(kept, sizeof c->replicas->last_loss, "%.*s", (int)sizeof c->replicas->last_loss - 1, reason);
  c->replicas->hooks.lose_jobs(c, now, index, reason);
}

static void lose(tri_core *c, int64_t now, const tri_core_loss *loss) {
  replica *g = replica_at(c, loss->replica);
  if (!is_here(g)) return;
  tri_log(TRI_LOG_ERROR, "members", "replica %u (epoch %llu) is lost: %s", loss->replica,
          (unsigned long long)g->facts.epoch, loss->reason);
  g->state = REPLICA_LOST;
  snprintf(g->reason, sizeof g->reason, "%s", loss->reason);
  lose_jobs(c, now, loss->replica, loss->reason);
  c->cfg.io.replica_lost(c->cfg.io.ctx, loss);
  c->replicas->hooks.dispatch(c, now);
}

void replica_lose(tri_core *c, int64_t now, uint32_t index, const char *fmt, ...) {
  char reason[400];
  va_list ap;
  va_start(ap, fmt);
  vsnprintf(reason, sizeof reason, fmt, ap);
  va_end(ap);
  tri_core_loss loss = {.replica = index, .rank = -1, .status = TRI_PEER_LOST, .reason = reason};
  loss.epoch = replica_at(c, index)->facts.epoch;
  lose(c, now, &loss);
}

bool replica_died(tri_core *c, int64_t now, uint32_t index, uint64_t epoch, const char *reason) {
  replica *g = index < c->cfg.num_replicas ? replica_at(c, index) : NULL;
  if (g && epoch >= g->expected) g->coming = false;
  if (!g || epoch < g->facts.epoch || g->died_ns) return false;
  bool watched = epoch == g->facts.epoch && replica_is_watched(c, g);
  if (watched) g->died_ns = now;
  /* A lost one has been said more about. */
  if (watched || epoch > g->facts.epoch) snprintf(g->reason, sizeof g->reason, "%s", reason);
  if (!c->replicas->last_loss[0]) snprintf(c->replicas->last_loss, sizeof c->replicas->last_loss, "%s", reason);
  return true;
}

void replica_expected(tri_core *c, uint32_t index, uint64_t epoch) {
  replica *g = index < c->cfg.num_replicas ? replica_at(c, index) : NULL;
  if (!g || epoch < g->expected) return;
  g->expected = epoch;
  g->coming = epoch > g->facts.epoch;
}

void replica_held(tri_core *c, uint32_t index, tri_core_hold hold, int64_t until_ns, const char *reason) {
  replica *g = index < c->cfg.num_replicas ? replica_at(c, index) : NULL;
  if (!g) return;
  g->coming = false;
  g->hold = hold;
  g->hold_until_ns = until_ns;
  snprintf(g->reason, sizeof g->reason, "%s", reason);
}

void replicas_tick(tri_core *c, int64_t now) {
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    const replica *g = replica_at(c, i);
    if (!g->died_ns || now - g->died_ns < LAST_WORDS_NS || !replica_is_watched(c, g)) continue;
    char reason[REASON_BYTES];
    memcpy(reason, g->reason, sizeof reason);
    replica_lose(c, now, i, "%s", reason);
  }
}

/* `expected` alone outlives the former life: everything else, what ranks told included, is of that. */
static bool begin_epoch(tri_core *c, int64_t now, uint32_t index, const tri_replica_register *r) {
  replica *g = replica_at(c, index);
  if (is_here(g)) lose_jobs(c, now, index, g->died_ns ? g->reason : "it was started again");
  replica_forget_experts(g);
  tri_free(g->ranks);
  *g = (replica){.state = REPLICA_STARTING,
                 .facts = {.epoch = r->epoch},
                 .expected = g->expected,
                 .tp = r->tp,
                 .pp = r->pp,
                 .dp = r->dp,
                 .ep = r->ep,
                 .world = r->world,
                 .began_ns = now};
  g->ranks = tri_calloc(r->world, sizeof *g->ranks);
  if (g->ranks) return true;
  g->state = REPLICA_ABSENT;
  g->world = 0;
  return false;
}

/* Workers may have been given other options than this process, as mpirun makes easy. */
static bool layout_fits(const tri_core *c, const tri_replica_register *r, char *why, size_t cap) {
  const tri_core_config *own = &c->cfg;
  if (!own->tp || (r->tp == own->tp && r->pp == own->pp && r->dp == own->dp && r->ep == own->ep)) return true;
  snprintf(
      why, cap,
      "the workers were started with -tp %u -pp %u -dp %u -ep %u, the coordinator with -tp %u -pp %u -dp %u -ep %u",
      r->tp, r->pp, r->dp, r->ep, own->tp, own->pp, own->dp, own->ep);
  return false;
}

static bool model_fits(const tri_core *c, const tri_replica_register *r, char *why, size_t cap) {
  if (!c->cfg.model_hash || r->model_hash == c->cfg.model_hash) return true;
  snprintf(why, cap, "the workers' model is another than the coordinator's, \"%s\"", c->cfg.model_name);
  return false;
}

/* Looked at as soon as they are known, and not after minutes of loading. */
static bool weights_fit(const tri_core *c, const tri_replica_register *r, char *why, size_t cap) {
  const replica own = {.facts = {.weights_hash = r->weights_hash}};
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    const replica *other = replica_at(c, i);
    if (i == r->replica || !replica_takes_jobs(c, i) || weights_are_same(&own, other)) continue;
    weights_say_other(&own, other, i, why, cap);
    return false;
  }
  return true;
}

/* Returns why a start may not register; NULL: it may. Without a supervisor's word, one that is here must be lost
 * before another can follow, and its epoch lies in reach, so that no key of a rank uses all epochs up. */
static const char *refusal_of_start(const tri_core *c, const replica *g, uint64_t epoch) {
  static const char not_begun[] = "the replica was not started with this epoch";
  if (epoch < g->facts.epoch || epoch < g->expected || (g->state == REPLICA_LOST && epoch == g->facts.epoch))
    return "this start of the replica is over: there is a newer one, or it was given up";
  if (is_here(g) && epoch == g->facts.epoch) return NULL;
  if (c->cfg.starts_are_told) return g->expected && epoch == g->expected ? NULL : not_begun;
  if (is_here(g)) return not_begun;
  return epoch - g->facts.epoch <= EPOCHS_AHEAD ? NULL : "its epoch is more than 2^32 after the replica's last start";
}

/* A user who starts replicas by hand has to know which epoch comes next. */
static void refuse_start(const tri_core *c, const tri_peer *to, const replica *g, const char *refusal) {
  char why[200];
  bool by_hand = !c->cfg.starts_are_told && !is_here(g);
  snprintf(why, sizeof why, "%s; the last one had --epoch %llu", refusal, (unsigned long long)g->facts.epoch);
  refuse(c, to, by_hand ? why : refusal);
}

/* ---- a connection that is made again ---- */

/* A connection made again is known by process and host: the rank's key would also be that of a second process with the
 * same files. */
static bool is_same_process(const rank_info *k, const tri_replica_register *r) {
  char host[sizeof k->host];
  copy_line(host, sizeof host, r->host);
  return k->pid == r->pid && !strcmp(k->host, host);
}

/* Asked by a lease: sending to a connection that is gone says so, and to one that is there it does no harm. */
static bool is_connected(const tri_core *c, const rank_info *k) {
  tri_replica_msg m = {.op = TRI_REPLICA_LEASE};
  return c->cfg.io.to_worker(c->cfg.io.ctx, &k->peer, &m) != TRI_CLOSED;
}

/* A leader lets go of its jobs where its connection is lost, as after the end of a coordinator, and says when it is
 * ready again. What another rank has to say is of itself alone. */
static void take_back(tri_core *c, int64_t now, uint32_t index, uint32_t rank) {
  replica *g = replica_at(c, index);
  unsigned waiting = 0;
  if (!rank) {
    waiting = c->replicas->hooks.take_jobs_back(c, now, index);
    g->state = REPLICA_STARTING;
  }
  tri_log(TRI_LOG_WARN, "members", "rank %u of replica %u has reconnected: %u jobs wait to run again", rank, index,
          waiting);
}

/* Returns whether a rank that is known may be heard over this connection from now on. While the one that it had is
 * there, as the end of that may come later than the begin of this one, it gets no answer, and asks again. */
static bool may_come_back(tri_core *c, int64_t now, const tri_peer *from, const tri_replica_register *r) {
  const rank_info *k = &replica_at(c, r->replica)->ranks[r->rank];
  if (!k->known || tri_peer_equal(&k->peer, from)) return true;
  if (!is_same_process(k, r)) {
    refuse(c, from, "this rank of the replica has registered over another connection");
    return false;
  }
  if (is_connected(c, k)) return false;
  take_back(c, now, r->replica, r->rank);
  return true;
}

void replica_register(tri_core *c, int64_t now, const tri_peer *from, const tri_replica_register *r) {
  if (r->replica >= c->cfg.num_replicas || r->world < 1 || r->world > MAX_RANKS || r->rank >= r->world) {
    refuse(c, from, "there is no such replica or rank in this cluster");
    return;
  }
  char why[400];
  replica *g = replica_at(c, r->replica);
  if (!replica_is_key_of(c, r->replica, r->rank, from)) {
    refuse(c, from, "the key of this connection is not that of the rank");
    return;
  }
  const char *refusal = refusal_of_start(c, g, r->epoch);
  if (refusal) {
    refuse_start(c, from, g, refusal);
    return;
  }
  c->cfg.io.rank_came(c->cfg.io.ctx, r->replica, r->epoch, r->rank);
  bool has_facts = r->rank == 0 && r->max_model_len;
  if ((g->state == REPLICA_ABSENT || r->epoch > g->facts.epoch) && !begin_epoch(c, now, r->replica, r)) return;
  if (r->world != g->world) {
    refuse(c, from, "the replica's ranks disagree about their number");
    return;
  }
  bool fits = layout_fits(c, r, why, sizeof why);
  if (has_facts) fits = fits && model_fits(c, r, why, sizeof why);
  if (r->rank == 0) fits = fits && weights_fit(c, r, why, sizeof why);
  if (!fits) {
    refuse(c, from, why);
    replica_lose(c, now, r->replica, "%s", why);
    return;
  }
  rank_info *k = &g->ranks[r->rank];
  if (!may_come_back(c, now, from, r)) return;
  if (!k->known) k->layer = UINT32_MAX; /* no step is under way */
  k->known = true;
  k->peer = *from;
  k->pid = r->pid;
  k->last_report = k->progress_ns = now;
  copy_line(k->host, sizeof k->host, r->host);
  if (has_facts) {
    g->model_hash = r->model_hash;
    g->facts.weights_hash = r->weights_hash;
    g->facts.max_model_len = r->max_model_len;
    g->facts.kv_blocks = r->kv_blocks;
    g->facts.block_size = r->block_size;
    g->facts.max_num_seqs = r->max_num_seqs;
    g->facts.step_tokens = r->max_num_batched_tokens;
    if (g->state == REPLICA_STARTING) g->layer_seconds = r->layer_seconds;
  }
  tri_replica_msg m = {.op = TRI_REPLICA_WELCOME, .welcome = {.ok = true}};
  c->cfg.io.to_worker(c->cfg.io.ctx, from, &m);
}

static void tell_to_drain(tri_core *c) {
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    replica *g = replica_at(c, i);
    tri_replica_msg m = {.op = TRI_REPLICA_DRAIN};
    if (g->state != REPLICA_READY && g->state != REPLICA_STARTING) continue;
    g->state = REPLICA_DRAINING;
    for (uint32_t r = 0; r < g->world; r++)
      if (g->ranks[r].known) c->cfg.io.to_worker(c->cfg.io.ctx, &g->ranks[r].peer, &m);
  }
}

void replicas_drain(tri_core *c) {
  if (c->replicas->drain_sent) return;
  c->replicas->drain_sent = true;
  tell_to_drain(c);
}

bool replica_ready(tri_core *c, int64_t now, const tri_replica_msg *m) {
  uint32_t index = m->ready.replica;
  replica *g = replica_find(c, index, m->ready.epoch);
  if (!g || g->state != REPLICA_STARTING) return false;
  canary_take(&g->canary, m);
  char why[REASON_BYTES];
  if (!replica_is_compatible(c, g, why, sizeof why)) {
    replica_lose(c, now, index, "%s", why);
    return false;
  }
  g->state = REPLICA_READY;
  g->ready_ns = now;
  g->layer_seconds = m->ready.layer_seconds;
  char cache[80] = "";
  if (!c->cfg.model->encoder)
    snprintf(cache, sizeof cache, " %llu KV blocks of %llu tokens,", (unsigned long long)g->facts.kv_blocks,
             (unsigned long long)g->facts.block_size);
  tri_log(TRI_LOG_INFO, "members", "replica %u is ready: tp %u pp %u dp %u ep %u,%s loaded in %.2f s", index, g->tp,
          g->pp, g->dp, g->ep, cache, m->ready.load_seconds);
  c->cfg.io.replica_ready(c->cfg.io.ctx, index, g->facts.epoch);
  if (c->replicas->drain_sent) tell_to_drain(c); /* too late: the last job has ended */
  return true;
}

/* The ranks of a data-parallel rank of several have what their leader says of it. */
static void take_dp_ranks(replica *g, const tri_replica_health *h) {
  if (h->num_dp_ranks != 2 * (size_t)g->dp) return;
  for (uint32_t r = 0; r < g->world; r++) {
    uint32_t d = replica_dp_rank_of(g, r);
    if (2 * d >= h->num_dp_ranks) return;
    g->ranks[r].running = h->dp_ranks[2 * d];
    g->ranks[r].waiting = h->dp_ranks[2 * d + 1];
  }
}

void replica_health(tri_core *c, int64_t now, const tri_replica_health *h) {
  replica *g = replica_find(c, h->replica, h->epoch);
  if (!g || h->rank >= g->world) return;
  rank_info *k = &g->ranks[h->rank];
  if (k->step != h->step || k->layer != h->layer || k->collective != h->collective) k->progress_ns = now;
  k->last_report = now;
  k->step = h->step;
  k->layer = h->layer;
  k->collective = h->collective;
  k->exchange = h->exchange;
  k->stream = h->stream;
  if (h->rank) return;
  if (h->busy && !g->busy_since) g->busy_since = now;
  if (!h->busy) g->busy_since = 0;
  if (h->tokens > g->tokens) {
    unsigned i = g->cost.count++ % COST_REPORTS;
    g->cost.tokens[i] = h->tokens - g->tokens;
    g->cost.ns[i] = h->scheduler_ns - g->scheduler_ns;
  }
  g->running = h->running;
  g->waiting = h->waiting;
  g->prompt_bound = h->prompt_bound;
  g->kv_blocks_used = h->kv_blocks_used;
  g->tokens = h->tokens;
  g->scheduler_ns = h->scheduler_ns;
  g->preemptions = h->preemptions;
  g->rearrangements = h->rearrangements;
  g->experts_moved = h->experts_moved;
  g->moving_ns = h->moving_ns;
  g->swaps = h->swaps;
  g->prefixes = h->prefixes;
  take_dp_ranks(g, h);
}

void replica_failed(tri_core *c, int64_t now, const tri_replica_msg *m) {
  char why[TRI_ERROR_MESSAGE], reason[REASON_BYTES];
  if (!replica_find(c, m->failed.replica, m->failed.epoch)) return;
  copy_line(why, sizeof why, m->failed.message);
  snprintf(reason, sizeof reason, "rank %u: %s", m->failed.rank, why);
  lose(c, now,
       &(tri_core_loss){.replica = m->failed.replica,
                        .epoch = m->failed.epoch,
                        .rank = m->failed.rank,
                        .status = tri_status_of_code(m->failed.code.s, m->failed.code.len),
                        .reason = reason});
}

/* A lost replica gets no lease, so that the rest of it ends itself. */
void replicas_lease(tri_core *c, int64_t now) {
  tri_replica_msg m = {.op = TRI_REPLICA_LEASE, .lease = {.time_ms = (uint64_t)(now / 1000000)}};
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    replica *g = replica_at(c, i);
    if (!replica_is_watched(c, g) || now - g->last_lease < c->cfg.lease_ns) continue;
    g->last_lease = now;
    for (uint32_t r = 0; r < g->world; r++)
      if (g->ranks[r].known) c->cfg.io.to_worker(c->cfg.io.ctx, &g->ranks[r].peer, &m);
  }
}
