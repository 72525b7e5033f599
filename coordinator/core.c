/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/core.h"

#include <string.h>

#include "coordinator/state.h"
#include "base/version.h"

static const double seconds_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
static const double tokens_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

tri_status tri_core_create(const tri_core_config *config, int64_t now, tri_core **out) {
  tri_core *c = tri_calloc(1, sizeof *c);
  if (!c || !(c->groups = tri_calloc(config->num_groups, sizeof *c->groups))) {
    tri_free(c);
    return TRI_NO_MEMORY;
  }
  TAILQ_INIT(&c->active);
  TAILQ_INIT(&c->ended);
  c->cfg = *config;
  c->started_ns = now;
  tri_histogram *by_seconds[] = {&c->ttft, &c->itl, &c->e2e, &c->queue_time};
  for (size_t i = 0; i < sizeof by_seconds / sizeof *by_seconds; i++) {
    by_seconds[i]->bounds = seconds_bounds;
    by_seconds[i]->num_bounds = sizeof seconds_bounds / sizeof *seconds_bounds;
  }
  if (embed_open(c) != TRI_OK || answers_open(c) != TRI_OK || affinity_open(c) != TRI_OK) {
    tri_core_destroy(c);
    return TRI_NO_MEMORY;
  }
  c->step_tokens.bounds = tokens_bounds;
  c->step_tokens.num_bounds = sizeof tokens_bounds / sizeof *tokens_bounds;
  *out = c;
  return TRI_OK;
}

void tri_core_destroy(tri_core *c) {
  if (!c) return;
  jobs_destroy(c);
  flows_destroy(c);
  members_destroy(c);
  tri_free(c->groups);
  tri_free(c->labels);
  tri_response_cache_destroy(c->cache);
  affinity_close(c);
  tri_buf_free(&c->content);
  tri_buf_free(&c->drawn);
  tri_buf_free(&c->cache_key);
  tri_buf_free(&c->cache_answer);
  tri_free(c);
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
  case TRI_OP_FLOORS: floors_request(c, now, from, m->id); break;
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

void tri_core_tokenized(tri_core *c, int64_t now, uint64_t id, tri_status st, const uint32_t *ids, size_t count,
                        size_t second) {
  job *j = job_find(c, id);
  if (!j || j->state != JOB_TOKENIZING) return; /* cancelled meanwhile */
  job_tokenized(c, now, j, st, ids, count, second);
  deliver_all(c, now);
}

static void take_floors(tri_core *c, int64_t now, const tri_group_msg *m) {
  group *g = group_find(c, m->floors.group, m->floors.epoch);
  if (g && m->floors.rank < g->world) floors_take(c, now, &g->ranks[m->floors.rank], &m->floors.floors);
}

static void take_experts(tri_core *c, int64_t now, const tri_group_msg *m) {
  group *g = group_find(c, m->experts.group, m->experts.epoch);
  if (g && m->experts.rank < g->world) experts_take(c, now, &g->ranks[m->experts.rank], &m->experts);
}

static void take_ready(tri_core *c, int64_t now, const tri_group_msg *m) {
  if (!member_ready(c, now, m)) return;
  if (c->drain_sent) drain_groups(c); /* too late: the last job has ended */
  job_dispatch(c, now);
}

/* A leader's messages name neither group nor rank: the peer tells. */
static void take_output(tri_core *c, int64_t now, const tri_peer *from, const tri_group_msg *m) {
  uint32_t index;
  if (!group_find_led_by(c, from, &index)) return;
  /* The jobs of a lost group have gone back into the queue, where nobody takes its tokens: a restart must not take them
   * either. One that is not ready yet has none. Nor must a restart take how a group ends what was cut off with the
   * cluster, and goes on with the next start. */
  group_state state = c->groups[index].state;
  if (m->op == TRI_GROUP_TOKENS && (state == GROUP_READY || state == GROUP_DRAINING)) {
    if (!c->ending) record_tokens(c, index, &m->tokens);
    job_tokens(c, now, index, &m->tokens);
  }
  if (m->op == TRI_GROUP_REFUSED) job_refused(c, now, index, m);
  if (m->op == TRI_GROUP_EMBED_RESULTS) job_results(c, now, index, &m->embed_results);
  job_dispatch(c, now);
}

/* A rank speaks for itself: over the connection on which it has registered. */
static bool is_from_rank(tri_core *c, const tri_peer *from, const tri_group_msg *m) {
  switch (m->op) {
  case TRI_GROUP_READY: return group_has_rank(c, m->ready.group, m->ready.epoch, 0, from);
  case TRI_GROUP_HEALTH: return group_has_rank(c, m->health.group, m->health.epoch, m->health.rank, from);
  case TRI_GROUP_FLOORS: return group_has_rank(c, m->floors.group, m->floors.epoch, m->floors.rank, from);
  case TRI_GROUP_EXPERTS: return group_has_rank(c, m->experts.group, m->experts.epoch, m->experts.rank, from);
  case TRI_GROUP_FAILED: return group_has_rank(c, m->failed.group, m->failed.epoch, m->failed.rank, from);
  default: return true; /* of a leader, which is found by its connection, or a registration */
  }
}

void tri_core_worker(tri_core *c, int64_t now, const tri_peer *from, const tri_group_msg *m) {
  if (!is_from_rank(c, from, m)) return;
  switch (m->op) {
  case TRI_GROUP_REGISTER: member_register(c, now, from, &m->reg); break;
  case TRI_GROUP_READY: take_ready(c, now, m); break;
  case TRI_GROUP_HEALTH: member_health(c, now, &m->health); break;
  case TRI_GROUP_TOKENS:
  case TRI_GROUP_REFUSED:
  case TRI_GROUP_EMBED_RESULTS: take_output(c, now, from, m); break;
  case TRI_GROUP_FLOORS: take_floors(c, now, m); break;
  case TRI_GROUP_EXPERTS: take_experts(c, now, m); break;
  case TRI_GROUP_FAILED: member_failed(c, now, m); break;
  default: break;
  }
  deliver_all(c, now);
}

void tri_core_group_died(tri_core *c, int64_t now, uint32_t group, uint64_t epoch, const char *reason) {
  member_died(c, now, group, epoch, reason);
}

void tri_core_group_expected(tri_core *c, uint32_t group, uint64_t epoch) { member_expected(c, group, epoch); }

void tri_core_group_held(tri_core *c, uint32_t group, tri_core_hold hold, int64_t until_ns, const char *reason) {
  member_held(c, group, hold, until_ns, reason);
}

void tri_core_tick(tri_core *c, int64_t now) {
  members_tick(c, now);
  watchdog_tick(c, now);
  members_lease(c, now);
  jobs_tick(c, now);
  floors_tick(c, now);
  experts_tick(c, now);
  jobs_end_late(c, now);
  deliver_tick(c, now);
  deliver_all(c, now);
  drain_tick(c);
}

void tri_core_drain(tri_core *c) {
  c->draining = true;
  drain_tick(c);
}

void tri_core_set_full(tri_core *c, const char *folder) { c->full = folder; }
void tri_core_set_crowded(tri_core *c, bool crowded) { c->crowded = crowded; }
void tri_core_set_facts(tri_core *c, const tri_core_facts *facts) { c->facts = *facts; }
uint64_t tri_core_generated_tokens(const tri_core *c) { return c->generation_tokens; }
uint64_t tri_core_cached_bytes(const tri_core *c) {
  return c->cache ? tri_response_cache_figures_of(c->cache).bytes : 0;
}
uint64_t tri_core_job_bytes(const tri_core *c) { return c->queue_bytes + c->retained; }
uint64_t tri_core_lost(const tri_core *c) { return c->lost; }
