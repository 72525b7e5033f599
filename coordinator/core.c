#include "coordinator/core.h"

#include <string.h>

#include "coordinator/state.h"
#include "runtime/base/version.h"

static const double seconds_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
static const double tokens_bounds[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

tri_status tri_core_create(const tri_core_config *config, int64_t now, tri_core **out) {
  tri_core *c = tri_calloc(1, sizeof *c);
  if (!c || !(c->groups = tri_calloc(config->num_groups, sizeof *c->groups))) {
    tri_free(c);
    return TRI_NO_MEMORY;
  }
  c->cfg = *config;
  c->started_ns = now;
  tri_histogram *by_seconds[] = {&c->ttft, &c->itl, &c->e2e, &c->queue_time};
  for (size_t i = 0; i < sizeof by_seconds / sizeof *by_seconds; i++) {
    by_seconds[i]->bounds = seconds_bounds;
    by_seconds[i]->num_bounds = sizeof seconds_bounds / sizeof *seconds_bounds;
  }
  if (encode_open(c) != TRI_OK) {
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
  members_destroy(c);
  tri_free(c->groups), tri_free(c->stats), tri_free(c->labels);
  tri_free(c);
}

static void hello(tri_core *c, const tri_zpeer *from, uint64_t id) {
  tri_server_msg m = {.op = TRI_REPLY_HELLO, .id = id, .hello = {wire_str(TRIREME_VERSION), TRI_WIRE_MAX_MESSAGE}};
  c->cfg.io.to_client(c->cfg.io.ctx, from, &m);
}

static void models(tri_core *c, const tri_zpeer *from, uint64_t id) {
  tri_wire_str name = wire_str(c->cfg.model_name);
  uint32_t index;
  const group *g = member_pick(c, &index);
  tri_server_msg m = {.op = TRI_REPLY_MODELS,
                      .id = id,
                      .models = {1, &name, g ? g->max_model_len : (uint64_t)c->cfg.model->max_position_embeddings}};
  c->cfg.io.to_client(c->cfg.io.ctx, from, &m);
}

void tri_core_client(tri_core *c, int64_t now, const tri_zpeer *from, const tri_client_msg *m) {
  switch (m->op) {
  case TRI_OP_HELLO: hello(c, from, m->id); break;
  case TRI_OP_SUBMIT:
  case TRI_OP_EMBED:
  case TRI_OP_CLASSIFY: job_submit(c, now, from, m); break;
  case TRI_OP_ATTACH: job_attach(c, now, from, m); break;
  case TRI_OP_CANCEL: job_cancel(c, now, from, m); break;
  case TRI_OP_STATUS: report_status(c, now, from, m->id); break;
  case TRI_OP_STATS: report_stats(c, from, m->id); break;
  case TRI_OP_MODELS: models(c, from, m->id); break;
  case TRI_OP_FLOORS: floors_request(c, now, from, m->id); break;
  }
  deliver_all(c, now);
}

void tri_core_client_error(tri_core *c, int64_t now, const tri_zpeer *from, uint64_t id, const tri_error *err) {
  (void)now;
  c->failed++;
  deliver_error(c, from, id, err);
}

void tri_core_encoded(tri_core *c, int64_t now, uint64_t id, tri_status st, const uint32_t *ids, size_t count,
                      size_t second) {
  job *j = job_find(c, id);
  if (!j || j->state != JOB_ENCODING) return; /* cancelled meanwhile */
  if (j->encode) j->encode->second_start = second;
  job_encoded(c, now, j, st, ids, count);
  deliver_all(c, now);
}

void tri_core_worker(tri_core *c, int64_t now, const tri_zpeer *from, const tri_group_msg *m) {
  member_message(c, now, from, m);
  deliver_all(c, now);
}

void tri_core_tick(tri_core *c, int64_t now) {
  members_tick(c, now);
  jobs_tick(c, now);
  floors_tick(c, now);
  deliver_all(c, now);
  if (c->draining && !c->drain_sent && !c->num_active) {
    c->drain_sent = true;
    members_drain(c);
  }
}

void tri_core_drain(tri_core *c, int64_t now) {
  c->draining = true;
  tri_core_tick(c, now);
}

void tri_core_abandon(tri_core *c, int64_t now, const char *reason) {
  tri_error err = {0};
  tri_fail(&err, TRI_PEER_LOST, "", "%s", reason);
  c->draining = true;
  /* A group leaves once it has nothing to compute. */
  while (c->active.head) job_cut(c, now, c->active.head, &err);
  deliver_all(c, now);
}

bool tri_core_is_idle(const tri_core *c) { return !c->num_active && !c->dirty; }

bool tri_core_any_group(const tri_core *c) {
  for (uint32_t i = 0; i < c->cfg.num_groups; i++)
    if (c->groups[i].state == GROUP_STARTING || c->groups[i].state == GROUP_READY ||
        c->groups[i].state == GROUP_DRAINING)
      return true;
  return false;
}

void tri_core_set_facts(tri_core *c, const tri_core_facts *facts) { c->facts = *facts; }
uint64_t tri_core_generated_tokens(const tri_core *c) { return c->generation_tokens; }
