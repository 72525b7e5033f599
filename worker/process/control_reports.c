/* SPDX-License-Identifier: Apache-2.0 */
/* The control thread's reports: this rank's registration anew, its health, what was measured, the rows of its experts,
 * and that the replica is ready. */
#include <limits.h>

#include "base/log.h"
#include "worker/cost/machine_rates.h"
#include "runtime/cost/machine_file.h"
#include "worker/process/control_impl.h"

/* COUNT_MS: between two reports of what experts have had to do, for which a device's steps are waited for. REGISTER_MS:
 * for an answer to a registration, which does not come while the coordinator takes the rank's lost connection for one
 * that is there. */
enum { COUNT_MS = 10000, REGISTER_MS = 1000 };

static void send_health(tri_control *c) {
  tri_replica_msg m = {.op = TRI_REPLICA_HEALTH, .health = tri_health_take(c->w, &c->health)};
  c->sent_layer = (uint32_t)m.health.layer;
  if (atomic_load(&c->w->loaded)) c->sent_step = m.health.step;
  tri_control_send(c, &m);
  if (atomic_load(&c->w->loaded)) tri_health_keep(c->w, &c->health, &m.health.stream);
}

/* `trireme plan` predicts with what a worker has measured of its device. */
static void keep_figures(const tri_worker *w) {
  char path[PATH_MAX], device[TRI_MACHINE_NAME];
  tri_machine_figures f = {w->rooflines.read_bytes_per_s, w->rooflines.flops_per_s};
  tri_error err = {0};
  tri_machine_file_path(path);
  tri_machine_name(w->engine->backend->tactics_key, device);
  if (w->rank || !path[0] || !device[0]) return;
  if (tri_machine_file_add(path, device, tri_measure_type(w->engine), &f, &err) != TRI_OK)
    tri_log(TRI_LOG_WARN, "plan", "the measured rates are not saved: %s", err.message);
}

static void send_rooflines(tri_control *c) {
  const tri_worker *w = c->w;
  tri_replica_msg m = {.op = TRI_REPLICA_ROOFLINES,
                       .rooflines = {.replica = (uint32_t)w->opts.group,
                                     .rank = (uint32_t)w->rank,
                                     .epoch = w->opts.epoch,
                                     .rooflines = w->rooflines}};
  tri_control_send(c, &m);
}

static void send_experts(tri_control *c) {
  tri_worker *w = c->w;
  tri_replica_msg m = {.op = TRI_REPLICA_EXPERTS};
  tri_arena_reset(c->arena);
  if (tri_expert_rows_message(&w->experts, w->engine, c->arena, &m.experts) == TRI_OK) {
    m.experts.replica = (uint32_t)w->opts.group;
    m.experts.rank = (uint32_t)w->rank;
    m.experts.epoch = w->opts.epoch;
    tri_control_send(c, &m);
  }
  atomic_store(&w->experts.counted, false);
}

bool tri_control_is_untold(const tri_control *c) {
  return c->seen_step != c->sent_step || c->sent_layer != TRI_LAYER_IDLE;
}

/* Returns whether there are no steps any more and the last report does not say so: until the next one, status would
 * show a rank that lags, or one in a layer. */
static bool has_come_to_rest(tri_control *c, int64_t now) {
  tri_worker *w = c->w;
  if (!atomic_load(&w->loaded) || atomic_load(&w->engine->progress.layer) != TRI_LAYER_IDLE) return false;
  uint64_t step = atomic_load(&w->engine->progress.step);
  if (step != c->seen_step) {
    c->seen_step = step;
    c->seen_since = now;
  }
  return tri_control_is_untold(c) && !atomic_load(&w->busy) && now - c->seen_since >= TRI_CONTROL_IDLED_MS * 1000000LL;
}

void tri_control_report(tri_control *c) {
  tri_worker *w = c->w;
  int64_t now = tri_now_ns();
  /* Weights that are not to be served are refused before minutes of loading. */
  bool hash_is_new = atomic_load(&w->hashed) && !c->registered_hash;
  bool facts_are_new = atomic_load(&w->loaded) && !c->registered_facts;
  bool unheard = !c->welcomed && now - c->last_register >= REGISTER_MS * 1000000LL;
  if (hash_is_new || facts_are_new || unheard) tri_control_register(c);
  if (atomic_load(&w->ready) && c->welcomed && c->cleared && !c->told_ready && w->rank == 0) {
    tri_replica_msg m = {.op = TRI_REPLICA_READY,
                         .ready = {.replica = (uint32_t)w->opts.group,
                                   .epoch = w->opts.epoch,
                                   .load_seconds = w->load_seconds,
                                   .layer_seconds = w->layer_seconds,
                                   .canary_ids = w->canary_ids,
                                   .num_canary_ids = (size_t)w->num_canary,
                                   .canary_millis = w->canary_millis,
                                   .num_canary_millis = (size_t)w->num_canary}};
    c->told_ready = tri_control_send(c, &m) == TRI_OK;
  }
  if (c->welcomed && atomic_exchange(&w->measured, false)) {
    send_rooflines(c);
    keep_figures(w);
  }
  if (atomic_load(&w->loaded) && now - c->last_count >= COUNT_MS * 1000000LL) {
    tri_expert_rows_ask(&w->experts, w->engine);
    c->last_count = now;
  }
  if (c->welcomed && atomic_load(&w->experts.counted)) send_experts(c);
  bool idled = now - c->last_idled >= TRI_CONTROL_IDLED_MS * 1000000LL && atomic_exchange(&w->idled, false);
  if (idled) c->last_idled = now;
  if (has_come_to_rest(c, now) || idled || now - c->last_health >= c->health_ms * 1000000LL) {
    send_health(c);
    c->last_health = now;
  }
}
