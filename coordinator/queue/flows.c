/* SPDX-License-Identifier: Apache-2.0 */
/* Flows and what they may have: an owner may have half of the room that others leave, and so may each flow of it, so
 * that whoever comes next finds room. */
#include <string.h>

#include "coordinator/state.h"

static bool same_owner(const tri_peer *a, const tri_peer *b) {
  if (!tri_owner_equal(&a->owner, &b->owner)) return false;
  return a->owner.kind != TRI_OWNER_NOBODY || tri_peer_equal(a, b);
}

static size_t owner_bucket(const tri_peer *p) {
  bool nobody = p->owner.kind == TRI_OWNER_NOBODY;
  uint64_t h = tri_hash_bytes(TRI_HASH_SEED, nobody ? p->bytes : p->owner.bytes, nobody ? p->len : TRI_OWNER_BYTES);
  return mix64(h) % NUM_FLOW_BUCKETS;
}

static size_t flow_bucket(const tri_peer *p, tri_wire_str caller) {
  uint64_t h = tri_hash_bytes(owner_bucket(p), caller.len ? (const uint8_t *)caller.s : p->bytes,
                              caller.len ? caller.len : p->len);
  return mix64(h) % NUM_FLOW_BUCKETS;
}

static flow_owner *find_owner(const tri_core *c, const tri_peer *p) {
  flow_owner *o = LIST_FIRST(&c->flow_owners[owner_bucket(p)]);
  while (o && !same_owner(&o->peer, p)) o = LIST_NEXT(o, chain);
  return o;
}

static bool is_flow_of(const flow *f, const tri_peer *p, tri_wire_str caller) {
  if (!same_owner(&f->owner->peer, p) || strlen(f->caller) != caller.len) return false;
  return caller.len ? !memcmp(f->caller, caller.s, caller.len) : tri_peer_equal(&f->peer, p);
}

static flow *find_flow(const tri_core *c, const tri_peer *p, tri_wire_str caller) {
  flow *f = LIST_FIRST(&c->flows[flow_bucket(p, caller)]);
  while (f && !is_flow_of(f, p, caller)) f = LIST_NEXT(f, chain);
  return f;
}

/* caller: NULL for an owner. */
static double weight_of(const tri_core *c, const tri_peer *p, const char *caller) {
  for (size_t i = 0; i < c->cfg.num_shares; i++) {
    const tri_share *s = &c->cfg.shares[i];
    bool is_caller = s->owner.kind == TRI_OWNER_NOBODY;
    if (caller && is_caller && !strcmp(s->name, caller)) return s->weight;
    if (!caller && !is_caller && tri_owner_equal(&s->owner, &p->owner)) return s->weight;
  }
  return 1;
}

static flow_owner *owner_for(tri_core *c, const tri_peer *p) {
  flow_owner *o = find_owner(c, p);
  if (o || !(o = tri_calloc(1, sizeof *o))) return o;
  o->peer = *p;
  o->weight = weight_of(c, p, NULL);
  LIST_INSERT_HEAD(&c->flow_owners[owner_bucket(p)], o, chain);
  return o;
}

static void free_if_unused(flow_owner *o) {
  if (o->flows) return;
  LIST_REMOVE(o, chain);
  tri_free(o);
}

static flow *flow_for(tri_core *c, const tri_peer *p, const char *caller) {
  flow *f = find_flow(c, p, wire_str(caller));
  flow_owner *o = f ? f->owner : owner_for(c, p);
  if (f || !o) return f;
  if (!(f = tri_calloc(1, sizeof *f + c->cfg.num_groups * sizeof *f->sequences))) {
    free_if_unused(o);
    return NULL;
  }
  f->owner = o;
  f->peer = *p;
  snprintf(f->caller, sizeof f->caller, "%s", caller);
  f->weight = weight_of(c, p, caller);
  TAILQ_INIT(&f->queue);
  LIST_INSERT_HEAD(&c->flows[flow_bucket(p, wire_str(caller))], f, chain);
  o->flows++;
  return f;
}

static void count_bytes(tri_core *c, flow *f, size_t more, size_t less) {
  f->bytes += more - less;
  f->owner->bytes += more - less;
  c->queue_bytes += more - less;
}

bool flow_enter(tri_core *c, job *j) {
  flow *f = flow_for(c, &j->peer, j->caller);
  if (!f) return false;
  j->part.of = f;
  f->jobs++;
  f->owner->jobs++;
  count_bytes(c, f, j->part.bytes, 0);
  return true;
}

void flow_resize(tri_core *c, job *j, size_t bytes) {
  if (j->part.of) count_bytes(c, j->part.of, bytes, j->part.bytes);
  j->part.bytes = bytes;
}

void flow_leave(tri_core *c, job *j) {
  flow *f = j->part.of;
  if (!f) return;
  flow_owner *o = f->owner;
  count_bytes(c, f, 0, j->part.bytes);
  o->jobs--;
  j->part.of = NULL;
  if (--f->jobs) return;
  LIST_REMOVE(f, chain);
  tri_free(f);
  o->flows--;
  free_if_unused(o);
}

void flows_destroy(tri_core *c) {
  for (size_t i = 0; i < NUM_FLOW_BUCKETS; i++) {
    for (flow *f; (f = LIST_FIRST(&c->flows[i]));) {
      LIST_REMOVE(f, chain);
      tri_free(f);
    }
    for (flow_owner *o; (o = LIST_FIRST(&c->flow_owners[i]));) {
      LIST_REMOVE(o, chain);
      tri_free(o);
    }
  }
}

/* ---- limits ---- */

/* A client may have one job alone, so that each counts a flow and its owner. */
size_t flow_bytes(void) { return block_bytes(sizeof(flow)) + block_bytes(sizeof(flow_owner)); }

size_t flow_bytes_of(const tri_submit *s) {
  size_t stops = 0;
  size_t n = block_bytes(sizeof(job) + (size_t)s->sampling.n * sizeof(job_choice));
  n += block_bytes(s->prompt.len) + block_bytes(s->num_token_ids * sizeof *s->token_ids);
  n += block_bytes(s->cache_salt.len) + block_bytes(s->external_id.len);
  n += block_bytes((size_t)s->sampling.num_logit_bias * sizeof *s->sampling.logit_bias);
  n += block_bytes(s->sampling.num_allowed_token_ids * sizeof *s->sampling.allowed_token_ids);
  for (int i = 0; i < s->sampling.num_stop; i++) stops += s->sampling.stop[i].len;
  return n + block_bytes(stops) + flow_bytes();
}

/* One kind of room: jobs, or bytes of them. */
typedef struct room {
  uint64_t limit, used, of_owner, of_flow;
} room;

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* Returns what a flow may have: half of what the others of its owner leave. A user of this host is all of the socket
 * file's clients: it may have everything. */
static uint64_t share_of(const room *r, tri_owner_kind kind) {
  uint64_t for_owner = less(r->limit, r->used - r->of_owner);
  if (kind == TRI_OWNER_KEY) for_owner = (for_owner + 1) / 2;
  return (less(for_owner, r->of_owner - r->of_flow) + 1) / 2;
}

static tri_status refuse(tri_core *c, queue_refusal why, tri_error *err, const char *what, uint64_t has,
                         uint64_t limit) {
  c->refused[why]++;
  return tri_fail(err, TRI_NO_CAPACITY, "", "%s: %llu, and the limit %s is %llu; try again in a second", what,
                  (unsigned long long)has, queue_refusal_names[why], (unsigned long long)limit);
}

tri_status flow_check(tri_core *c, const tri_peer *from, const tri_submit *s, tri_error *err) {
  flow_owner *o = find_owner(c, from);
  flow *f = o ? find_flow(c, from, s->caller) : NULL;
  tri_owner_kind kind = from->owner.kind;
  size_t bytes = flow_bytes_of(s);
  room jobs = {(uint64_t)c->cfg.max_queue, (uint64_t)c->num_active, o ? (uint64_t)o->jobs : 0,
               f ? (uint64_t)f->jobs : 0};
  room memory = {c->cfg.max_queue_bytes, c->queue_bytes, o ? o->bytes : 0, f ? f->bytes : 0};
  bool has_some = kind == TRI_OWNER_KEY ? o != NULL : f != NULL;
  uint64_t most = share_of(&jobs, kind), most_bytes = share_of(&memory, kind);
  if (jobs.used >= jobs.limit) return refuse(c, REFUSED_QUEUE, err, "jobs that wait or run", jobs.used, jobs.limit);
  if (c->cfg.max_queued_per_client && (uint64_t)c->cfg.max_queued_per_client < most)
    most = (uint64_t)c->cfg.max_queued_per_client;
  if (jobs.of_flow >= most)
    return refuse(c, REFUSED_CLIENT, err, "jobs of this client that wait or run", jobs.of_flow, most);
  if (c->crowded)
    return refuse(c, REFUSED_QUEUE_BYTES, err, "bytes of all jobs, with which memory is at its cap", memory.used,
                  memory.limit);
  if (!memory.limit) return TRI_OK;
  if (memory.used && memory.used + bytes > memory.limit)
    return refuse(c, REFUSED_QUEUE_BYTES, err, "bytes of all jobs, with this one", memory.used + bytes, memory.limit);
  if (has_some && memory.of_flow + bytes > most_bytes)
    return refuse(c, REFUSED_CLIENT_BYTES, err, "bytes of this client's jobs, with this one", memory.of_flow + bytes,
                  most_bytes);
  return TRI_OK;
}
