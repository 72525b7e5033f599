/* SPDX-License-Identifier: Apache-2.0 */
/* The core only passes inputs on: each goes to the part that it is for, then jobs are dispatched if the input may have
 * made room, and what is new goes out (deliver_all). Parts see those below them alone: queue the replicas, jobs both.
 * What replicas have to say to jobs goes through the hooks. */
#include "coordinator/core.h"

#include "coordinator/core_impl.h"
#include "coordinator/jobs/jobs.h"
#include "coordinator/queue/queue.h"
#include "coordinator/replicas/replicas.h"
#include "coordinator/replies.h"
#include "coordinator/stats/stats.h"
#include "base/version.h"

static const replica_hooks hooks = {jobs_lose_replica, jobs_queue_again, job_dispatch};

/* tri_core_destroy also takes a core that is made in part. */
tri_status tri_core_create(const tri_core_config *config, int64_t now, tri_core **out) {
  tri_core *c = tri_calloc(1, sizeof *c);
  if (!c) return TRI_NO_MEMORY;
  c->cfg = *config;
  c->started_ns = now;
  tri_totals_init(&c->totals);
  if (replicas_open(c, &hooks) != TRI_OK || queue_open(c) != TRI_OK || jobs_open(c) != TRI_OK) {
    tri_core_destroy(c);
    return TRI_NO_MEMORY;
  }
  *out = c;
  return TRI_OK;
}

void tri_core_destroy(tri_core *c) {
  if (!c) return;
  jobs_close(c);
  queue_close(c);
  replicas_close(c);
  tri_free(c);
}

/* ---- clients ---- */

static void reply_hello(const tri_core *c, const tri_peer *to, uint64_t id) {
  tri_server_msg m = {.op = TRI_REPLY_HELLO, .id = id, .hello = {wire_str(TRIREME_VERSION), TRI_WIRE_MAX_MESSAGE}};
  c->cfg.io.answer(c->cfg.io.ctx, to, &m);
}

static void reply_models(const tri_core *c, const tri_peer *to, uint64_t id) {
  tri_wire_str names[TRI_CORE_MAX_NAMES];
  uint32_t index, num = 0;
  bool any = replica_pick(c, &index);
  names[num++] = wire_str(c->cfg.model_name);
  for (uint32_t i = 0; i < c->cfg.num_other_names && num < TRI_CORE_MAX_NAMES; i++)
    names[num++] = wire_str(c->cfg.other_names[i]);
  tri_server_msg m = {.op = TRI_REPLY_MODELS,
                      .id = id,
                      .models = {num, names,
                                 any ? replica_facts_of(c, index)->max_model_len : (uint64_t)c->cfg.max_prompt,
                                 c->cfg.tokenizer ? tri_tokenizer_hash(c->cfg.tokenizer) : 0}};
  c->cfg.io.answer(c->cfg.io.ctx, to, &m);
}

void tri_core_client(tri_core *c, int64_t now, const tri_peer *from, const tri_client_msg *m) {
  switch (m->op) {
  case TRI_OP_HELLO: reply_hello(c, from, m->id); break;
  case TRI_OP_SUBMIT:
  case TRI_OP_EMBED:
  case TRI_OP_CLASSIFY: job_submit(c, now, from, m); break;
  case TRI_OP_ATTACH: job_attach(c, now, from, m); break;
  case TRI_OP_CANCEL: job_cancel(c, now, from, m); break;
  case TRI_OP_STATUS: report_status(c, now, from, m->id); break;
  case TRI_OP_STATS: prometheus_reply(c, from, m->id); break;
  case TRI_OP_MODELS: reply_models(c, from, m->id); break;
  case TRI_OP_ROOFLINES: roofline_request(c, now, from, m->id, jobs_have_ended(c) && !c->draining); break;
  case TRI_OP_EXPERTS: experts_request(c, now, from, m->id); break;
  }
  job_dispatch(c, now); /* what was cancelled leaves room */
  deliver_all(c, now);
}

void tri_core_client_error(tri_core *c, int64_t now, const tri_peer *from, uint64_t id, const tri_error *err) {
  (void)now;
  admission_count(c, err);
  answer_error(c, from, id, err);
}

void tri_core_connections_ended(tri_core *c, int64_t now, const tri_connections *ended) {
  deliver_connections_ended(c, now, ended);
}

void tri_core_tokenized(tri_core *c, int64_t now, uint64_t job, tri_status st, const uint32_t *ids, size_t count,
                        size_t second) {
  job_tokenized(c, now, job, st, ids, count, second);
  deliver_all(c, now);
}

void tri_core_schema_refused(tri_core *c, int64_t now, uint64_t job, const tri_error *why) {
  job_schema_refused(c, now, job, why);
  deliver_all(c, now);
}

/* ---- replicas ---- */

/* A leader's messages name neither replica nor rank: the peer tells. The jobs of a lost replica have gone back into the
 * queue, where its tokens are not taken. One that is not ready yet has none. */
static void take_output(tri_core *c, int64_t now, const tri_peer *from, const tri_replica_msg *m) {
  uint32_t index;
  if (!replica_find_led_by(c, from, &index)) return;
  if (m->op == TRI_REPLICA_TOKENS && replica_gives_output(c, index)) job_tokens(c, now, index, &m->tokens);
  if (m->op == TRI_REPLICA_REFUSED) job_refused(c, now, index, m);
  if (m->op == TRI_REPLICA_EMBED_RESULTS) job_results(c, now, index, &m->embed_results);
  job_dispatch(c, now);
}

/* A rank speaks for itself: over the connection on which it has registered. */
static bool is_from_rank(tri_core *c, const tri_peer *from, const tri_replica_msg *m) {
  switch (m->op) {
  case TRI_REPLICA_READY: return replica_has_rank(c, m->ready.replica, m->ready.epoch, 0, from);
  case TRI_REPLICA_HEALTH: return replica_has_rank(c, m->health.replica, m->health.epoch, m->health.rank, from);
  case TRI_REPLICA_ROOFLINES:
    return replica_has_rank(c, m->rooflines.replica, m->rooflines.epoch, m->rooflines.rank, from);
  case TRI_REPLICA_EXPERTS: return replica_has_rank(c, m->experts.replica, m->experts.epoch, m->experts.rank, from);
  case TRI_REPLICA_FAILED: return replica_has_rank(c, m->failed.replica, m->failed.epoch, m->failed.rank, from);
  default: return true; /* of a leader, which is found by its connection, or a registration */
  }
}

void tri_core_worker(tri_core *c, int64_t now, const tri_peer *from, const tri_replica_msg *m) {
  if (!is_from_rank(c, from, m)) return;
  switch (m->op) {
  case TRI_REPLICA_REGISTER: replica_register(c, now, from, &m->reg); break;
  case TRI_REPLICA_READY:
    if (replica_ready(c, now, m)) job_dispatch(c, now);
    break;
  case TRI_REPLICA_HEALTH: replica_health(c, now, &m->health); break;
  case TRI_REPLICA_TOKENS:
  case TRI_REPLICA_REFUSED:
  case TRI_REPLICA_EMBED_RESULTS: take_output(c, now, from, m); break;
  case TRI_REPLICA_ROOFLINES: roofline_take(c, now, m); break;
  case TRI_REPLICA_EXPERTS: experts_take(c, now, m); break;
  case TRI_REPLICA_FAILED: replica_failed(c, now, m); break;
  default: break;
  }
  deliver_all(c, now);
}

void tri_core_replica_died(tri_core *c, int64_t now, uint32_t replica, uint64_t epoch, const char *reason) {
  if (replica_died(c, now, replica, epoch, reason)) jobs_end_late(c, now);
}

void tri_core_replica_expected(tri_core *c, uint32_t replica, uint64_t epoch) { replica_expected(c, replica, epoch); }

void tri_core_replica_held(tri_core *c, uint32_t replica, tri_core_hold hold, int64_t until_ns, const char *reason) {
  replica_held(c, replica, hold, until_ns, reason);
}

void tri_core_stood_still(tri_core *c, int64_t now) { watchdog_suspend(c, now); }

/* ---- time, and the end ---- */

/* Replicas end only after the last job: one that was lost in the drain must leave its jobs to another. */
static void drain_once_idle(tri_core *c) {
  if (c->draining && jobs_have_ended(c)) replicas_drain(c);
}

/* Losses come first, so that their jobs are queued before jobs_tick gives jobs out; what any of these steps has to tell
 * clients goes out at the end. */
void tri_core_tick(tri_core *c, int64_t now) {
  replicas_tick(c, now);
  watchdog_tick(c, now);
  replicas_lease(c, now);
  jobs_tick(c, now);
  roofline_tick(c, now);
  experts_tick(c, now);
  jobs_end_late(c, now);
  deliver_tick(c, now);
  deliver_all(c, now);
  drain_once_idle(c);
}

void tri_core_drain(tri_core *c) {
  c->draining = true;
  drain_once_idle(c);
}

void tri_core_abandon(tri_core *c, int64_t now, const char *reason) {
  jobs_abandon(c, now, reason);
  deliver_all(c, now);
}

/* ---- questions ---- */

bool tri_core_is_idle(const tri_core *c) { return jobs_are_over(c); }

void tri_core_load_of(const tri_core *c, tri_core_load *out) {
  const replicas_sums g = replicas_sum(c);
  *out = (tri_core_load){.prompt_tokens = c->totals.prompt_tokens,
                         .generation_tokens = c->totals.generation_tokens,
                         .kv_blocks = g.kv_blocks,
                         .kv_blocks_used = g.kv_blocks_used,
                         .prefix_queries = g.prefixes.queries,
                         .prefix_hits = g.prefixes.hits,
                         .encoder = c->cfg.model->encoder};
  jobs_count(c, &out->running, &out->waiting);
}

uint64_t tri_core_cached_bytes(const tri_core *c) {
  tri_response_cache_figures f = {0};
  jobs_cache_figures(c, &f);
  return f.bytes;
}

uint64_t tri_core_job_bytes(const tri_core *c) { return queue_job_bytes(c) + jobs_retained_bytes(c); }
void tri_core_set_crowded(tri_core *c, bool crowded) { queue_set_crowded(c, crowded); }
void tri_core_set_facts(tri_core *c, const tri_core_facts *facts) { c->facts = *facts; }
uint64_t tri_core_generated_tokens(const tri_core *c) { return c->totals.generation_tokens; }
uint64_t tri_core_lost(const tri_core *c) { return c->totals.lost; }
