/* SPDX-License-Identifier: Apache-2.0 */
/* The control thread's connection to the coordinator, and the registration of this rank. A rank registers several
 * times: when it connects, when it knows its weights' hash, and when the engine stands; each registration has what is
 * known by then, and zeros for the rest. */
#include <unistd.h>

#include "base/log.h"
#include "base/version.h"
#include "worker/process/control_impl.h"

tri_status tri_control_send(tri_control *c, tri_replica_msg *m) {
  if (!c->connected) return TRI_CLOSED;
  m->seq = ++c->seq;
  tri_status st = tri_replica_msg_pack(m, &c->buf);
  return st == TRI_OK ? tri_zlink_send(c->link, c->buf.data, c->buf.len) : st;
}

/* Strings are borrowed from c. */
static tri_replica_register registration(tri_control *c) {
  tri_worker *w = c->w;
  tri_replica_register r = {.version = tri_wire_str_of(TRIREME_VERSION),
                            .host = tri_wire_str_of(c->host.nodename),
                            .replica = (uint32_t)w->opts.group,
                            .rank = (uint32_t)w->rank,
                            .world = (uint32_t)w->world,
                            .tp = (uint32_t)w->layout.tp,
                            .pp = (uint32_t)w->layout.pp,
                            .dp = (uint32_t)w->layout.dp,
                            .ep = (uint32_t)w->layout.ep,
                            .epoch = w->opts.epoch,
                            .pid = getpid()};
  if (atomic_load(&w->hashed)) {
    r.weights_hash = w->weights_hash;
    c->registered_hash = true;
  }
  if (atomic_load(&w->loaded)) {
    const tri_limits *l = &w->engine->limits;
    r.model_hash = tri_model_config_hash(&w->engine->model);
    r.max_model_len = (uint64_t)l->max_model_len;
    r.vocab_size = (uint64_t)l->vocab_size;
    uint64_t dp_ranks = (uint64_t)w->layout.dp; /* limits are those of each */
    r.kv_blocks = dp_ranks * (uint64_t)l->num_blocks;
    r.block_size = (uint64_t)l->block_size;
    r.max_num_seqs = dp_ranks * (uint64_t)l->max_num_seqs;
    r.max_num_batched_tokens = dp_ranks * (uint64_t)l->max_num_batched_tokens;
    c->registered_facts = true;
  }
  if (atomic_load(&w->ready)) r.layer_seconds = w->layer_seconds;
  return r;
}

void tri_control_register(tri_control *c) {
  tri_replica_msg m = {.op = TRI_REPLICA_REGISTER, .reg = registration(c)};
  c->last_register = tri_now_ns();
  if (tri_control_send(c, &m) != TRI_OK)
    c->registered_hash = c->registered_facts = false; /* the next report has them */
}

/* ---- the connection ---- */

tri_status tri_control_open_link(tri_control *c, tri_error *err) {
  const tri_worker *w = c->w;
  tri_zlink_config lc = {.endpoint = w->boot.endpoint,
                         .own = &w->boot.own,
                         .server_key = w->boot.server_key,
                         .max_message = TRI_WIRE_MAX_MESSAGE,
                         .backlog = 4096,
                         .refuse_unconnected = true};
  return tri_zlink_open(c->z, &lc, &c->link, err);
}

static void close_link(tri_control *c) {
  tri_zlink_close(c->link);
  c->link = NULL;
  c->connected = c->welcomed = false;
}

void tri_control_connect(tri_control *c, int wait_ms) {
  if (!c->link && tri_control_open_link(c, NULL) != TRI_OK) return;
  tri_replica_msg m = {.op = TRI_REPLICA_REGISTER, .seq = 1, .reg = registration(c)};
  tri_status st = tri_replica_msg_pack(&m, &c->buf);
  if (st == TRI_OK) st = tri_zlink_send_wait(c->link, c->buf.data, c->buf.len, wait_ms);
  c->connected = st == TRI_OK;
  c->last_register = tri_now_ns();
  c->seq = 1;
  if (st != TRI_OK && st != TRI_TIMEOUT && st != TRI_ABORTED) close_link(c); /* the next one is a new attempt */
  if (c->connected && c->line && !c->w->rank) tri_log(TRI_LOG_INFO, "control", "the coordinator is back");
}

void tri_control_lose_link(tri_control *c) {
  tri_worker *w = c->w;
  close_link(c);
  tri_commands_forget(&w->commands);
  tri_refusals_forget(&c->refusals);
  c->cleared = c->told_ready = c->registered_hash = c->registered_facts = false;
  atomic_store(&w->line, ++c->line);
  tri_waker_wake(&w->waker);
  if (!w->rank && !atomic_load(&w->drain) && !atomic_load(&w->stop))
    tri_log(TRI_LOG_WARN, "control", "the coordinator is lost: waiting for another, at most %g s", w->opts.lease);
}
