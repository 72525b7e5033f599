/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of jobs that wait for a replica. Between clients it is start-time fair queueing (Goyal, Vin, Cheng, 1996),
 * in two levels: the owner that has had least service is next, and of it the flow that has; within a flow jobs go by
 * age. Service is tokens over weight. A job is charged when a replica gets it, with a guess of its answer, and at its
 * end with what was done. A flow that was idle begins with the service of the one that was last served: idle flows
 * accrue no credit.
 *
 * A job that a replica has cannot be recalled, so that a replica gets little more than runs.
 *
 * In the paper's words: `served` is a flow's next start tag, the clock is the virtual time, the start tag of what was
 * last begun, and waking takes the later of both. Both levels have a clock of their own: flow_clock for owners, and
 * each owner's for its flows. Clocks only grow; `served` falls again by what a guess was too large.
 *
 * An owner of flows may have half of the room that others leave, and so may each flow of it, so that the next client
 * finds room. */
#include <string.h>

#include "coordinator/queue/queue_impl.h"
#include "coordinator/queue/shares.h"

enum {
  GUESSED_ANSWER = 512, /* tokens of an answer that are charged in advance, at most */
  RESERVE = 16,         /* one in so many of a replica's slots is for flows that have few */
  AHEAD = 4,            /* jobs that take few steps: so many times the slots */
  AHEAD_STEPS = 32,     /* few: for each slot, of all that the replica has */
  FEW_PENDING = 2,      /* jobs of which a replica has shown nothing yet, whatever their prompts */
  PROMPT_STEPS = 4,     /* steps that more of them may fill with their prompts */
  TEXT_STEPS = 16,      /* the same of an encoder, which chooses its batches among them */
};

/* ---- flows ---- */

static bool same_owner(const tri_peer *a, const tri_peer *b) {
  if (!tri_owner_equal(&a->owner, &b->owner)) return false;
  return a->owner.kind != TRI_OWNER_NOBODY || tri_peer_equal(a, b);
}

/* Owners without a key or a user are their connections. */
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
  flow_owner *o = LIST_FIRST(&c->queue->flow_owners[owner_bucket(p)]);
  while (o && !same_owner(&o->peer, p)) o = LIST_NEXT(o, chain);
  return o;
}

static bool is_flow_of(const flow *f, const tri_peer *p, tri_wire_str caller) {
  if (!same_owner(&f->owner->peer, p) || strlen(f->caller) != caller.len) return false;
  return caller.len ? !memcmp(f->caller, caller.s, caller.len) : tri_peer_equal(&f->peer, p);
}

static flow *find_flow(const tri_core *c, const tri_peer *p, tri_wire_str caller) {
  flow *f = LIST_FIRST(&c->queue->flows[flow_bucket(p, caller)]);
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
  LIST_INSERT_HEAD(&c->queue->flow_owners[owner_bucket(p)], o, chain);
  return o;
}

static void free_if_unused(flow_owner *o) {
  if (o->flows) return;
  LIST_REMOVE(o, chain);
  tri_free(o);
}

/* An owner and its flow are made together, and no owner stays without a flow. */
static flow *flow_for(tri_core *c, const tri_peer *p, const char *caller) {
  flow *f = find_flow(c, p, wire_str(caller));
  flow_owner *o = f ? f->owner : owner_for(c, p);
  if (f || !o) return f;
  if (!(f = tri_calloc(1, sizeof *f + c->cfg.num_replicas * sizeof *f->sequences))) {
    free_if_unused(o);
    return NULL;
  }
  f->owner = o;
  f->peer = *p;
  snprintf(f->caller, sizeof f->caller, "%s", caller);
  f->weight = weight_of(c, p, caller);
  TAILQ_INIT(&f->queue);
  LIST_INSERT_HEAD(&c->queue->flows[flow_bucket(p, wire_str(caller))], f, chain);
  o->flows++;
  return f;
}

static void count_bytes(tri_core *c, flow *f, size_t more, size_t less) {
  f->bytes += more - less;
  f->owner->bytes += more - less;
  c->queue->bytes += more - less;
}

/* A client may have one job alone, so that each counts a flow and its owner. */
static size_t flow_bytes(void) { return block_bytes(sizeof(flow)) + block_bytes(sizeof(flow_owner)); }

bool flow_enter(tri_core *c, queue_entry *e, const tri_peer *peer, const char *caller) {
  flow *f = flow_for(c, peer, caller);
  if (!f) return false;
  e->of = f;
  f->jobs++;
  f->owner->jobs++;
  c->queue->num_jobs++;
  count_bytes(c, f, e->bytes + flow_bytes(), 0);
  return true;
}

void flow_resize(tri_core *c, queue_entry *e, size_t bytes) {
  if (e->of) count_bytes(c, e->of, bytes, e->bytes);
  e->bytes = bytes;
}

void flow_leave(tri_core *c, queue_entry *e) {
  flow *f = e->of;
  if (!f) return;
  flow_owner *o = f->owner;
  count_bytes(c, f, 0, e->bytes + flow_bytes());
  o->jobs--;
  c->queue->num_jobs--;
  e->of = NULL;
  if (--f->jobs) return;
  LIST_REMOVE(f, chain);
  tri_free(f);
  o->flows--;
  free_if_unused(o);
}

/* ---- what flows may have ---- */

static const char *const refusal_names[NUM_REFUSALS] = {
    [REFUSED_QUEUE] = "max_queue",
    [REFUSED_QUEUE_BYTES] = "max_queue_bytes",
    [REFUSED_CLIENT] = "max_queued_per_client",
    [REFUSED_CLIENT_BYTES] = "max_queue_bytes of one client",
    [REFUSED_QUEUE_TIME] = "max_queue_time",
    [REFUSED_JOURNAL] = "journal",
    [REFUSED_TOKENIZER] = "tokenizer",
};

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
  c->totals.refused[why]++;
  return tri_fail(err, TRI_NO_CAPACITY, "", "%s: %llu, and the limit %s is %llu; try again in a second", what,
                  (unsigned long long)has, refusal_names[why], (unsigned long long)limit);
}

tri_status flow_check(tri_core *c, const tri_peer *from, tri_wire_str caller, size_t job_bytes, tri_error *err) {
  size_t bytes = job_bytes + flow_bytes();
  flow_owner *o = find_owner(c, from);
  flow *f = o ? find_flow(c, from, caller) : NULL;
  tri_owner_kind kind = from->owner.kind;
  room jobs = {(uint64_t)c->cfg.max_queue, (uint64_t)c->queue->num_jobs, o ? (uint64_t)o->jobs : 0,
               f ? (uint64_t)f->jobs : 0};
  room memory = {c->cfg.max_queue_bytes, c->queue->bytes, o ? o->bytes : 0, f ? f->bytes : 0};
  bool has_some = kind == TRI_OWNER_KEY ? o != NULL : f != NULL;
  uint64_t most = share_of(&jobs, kind), most_bytes = share_of(&memory, kind);
  if (jobs.used >= jobs.limit) return refuse(c, REFUSED_QUEUE, err, "jobs that wait or run", jobs.used, jobs.limit);
  if (c->cfg.max_queued_per_client && (uint64_t)c->cfg.max_queued_per_client < most)
    most = (uint64_t)c->cfg.max_queued_per_client;
  if (jobs.of_flow >= most)
    return refuse(c, REFUSED_CLIENT, err, "jobs of this client that wait or run", jobs.of_flow, most);
  if (c->queue->crowded)
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

/* ---- into the queue and out of it ---- */

static uint64_t most_output(const tri_core *c, const queue_entry *e) {
  uint64_t most = (uint64_t)c->cfg.max_prompt, left = most > e->num_prompt ? most - e->num_prompt : 1;
  if (e->encoder) return 1;
  return e->max_tokens < 0 || (uint64_t)e->max_tokens > left ? left : (uint64_t)e->max_tokens;
}

static bool is_before(const tri_core *c, const queue_entry *a, const queue_entry *b) {
  if (c->cfg.by_priority && a->priority != b->priority) return a->priority < b->priority;
  return a->id < b->id;
}

/* A flow that had nothing to wait for does not return with service that it has saved up. */
static void wake(tri_core *c, flow *f) {
  flow_owner *o = f->owner;
  if (!o->queued++ && o->served < c->queue->flow_clock) o->served = c->queue->flow_clock;
  if (f->served < o->clock) f->served = o->clock;
  LIST_INSERT_HEAD(&c->queue->waiting, f, waiting);
}

/* Looks for a job's place from both ends of its flow's queue: a new one mostly belongs at the end, and one of a lost
 * replica, or with a sooner priority than all, at the beginning. */
static void insert(const tri_core *c, flow *f, queue_entry *e) {
  queue_entry *front = TAILQ_FIRST(&f->queue), *back = TAILQ_LAST(&f->queue, queue_entries);
  while (back && is_before(c, e, back) && !is_before(c, e, front)) {
    front = TAILQ_NEXT(front, links);
    back = TAILQ_PREV(back, queue_entries, links);
  }
  if (!back)
    TAILQ_INSERT_HEAD(&f->queue, e, links);
  else if (is_before(c, e, back))
    TAILQ_INSERT_BEFORE(front, e, links);
  else
    TAILQ_INSERT_AFTER(&f->queue, back, e, links);
}

void queue_push(tri_core *c, int64_t now, queue_entry *e) {
  flow *f = e->of;
  e->steps = e->sequences * most_output(c, e);
  e->queued_ns = now;
  e->in_queue = true;
  c->queue->num_queued++;
  c->queue->num_queued_alone += e->alone;
  if (c->cfg.by_priority) priorities_add(&c->queue->queued, &e->by_priority, e->priority, 1);
  if (TAILQ_EMPTY(&f->queue)) wake(c, f);
  insert(c, f, e);
}

void queue_remove(tri_core *c, queue_entry *e) {
  flow *f = e->of;
  if (!e->in_queue) return;
  e->in_queue = false;
  c->queue->num_queued--;
  c->queue->num_queued_alone -= e->alone;
  if (c->cfg.by_priority) priorities_remove(&c->queue->queued, &e->by_priority);
  TAILQ_REMOVE(&f->queue, e, links);
  if (!TAILQ_EMPTY(&f->queue)) return;
  LIST_REMOVE(f, waiting);
  f->owner->queued--;
}

/* ---- service ---- */

static void serve(flow *f, double tokens) {
  f->served += tokens / f->weight;
  f->owner->served += tokens / f->owner->weight;
}

/* Charges a job that was picked before all of its slots were free for those that stay free for it, in tokens of the
 * others: sequences end evenly over the time of an answer, so that m slots come one after the other in m / slots of it.
 */
static void charge_wait(const queue_entry *e, const replica_load *load) {
  uint64_t slots = load->facts->max_num_seqs;
  uint64_t all = load->sequences + e->sequences;
  if (!e->early || all <= slots) return;
  double missing = (double)(all - slots);
  if (missing > (double)e->sequences) missing = (double)e->sequences;
  serve(e->of, missing * missing * GUESSED_ANSWER / (2 * (double)slots));
}

void queue_assigned(tri_core *c, queue_entry *e, uint32_t index) {
  replica_load *load = load_of(c, index);
  flow *f = e->of;
  uint64_t answer = most_output(c, e);
  queue_remove(c, e);
  if (f->owner->served > c->queue->flow_clock) c->queue->flow_clock = f->owner->served;
  if (f->served > f->owner->clock) f->owner->clock = f->served;
  e->charged = e->num_prompt;
  if (!e->encoder) e->charged += e->sequences * (answer < GUESSED_ANSWER ? answer : GUESSED_ANSWER);
  serve(f, (double)e->charged);
  charge_wait(e, load);
  e->replica = index;
  e->epoch = load->epoch;
  e->in_replica = e->pending = true;
  if (c->cfg.by_priority) priorities_add(&load->by_priority, &e->by_priority, e->priority, e->sequences);
  load->sequences += e->sequences;
  load->steps += e->steps;
  load->pending++;
  load->pending_tokens += e->num_prompt;
  f->sequences[index] += e->sequences;
  prefix_routing_note(c, index);
}

/* Figures of an earlier life of the replica are gone with it: nothing is taken off those of the present one. */
void queue_begun(tri_core *c, queue_entry *e) {
  if (!e->pending) return;
  replica_load *load = load_of(c, e->replica);
  e->pending = false;
  if (load->epoch != e->epoch) return;
  load->pending--;
  load->pending_tokens -= e->num_prompt;
}

/* Ends a job's part of its replica, of which it had so many tokens. */
static void leave_replica(tri_core *c, queue_entry *e, uint64_t done) {
  flow *f = e->of;
  if (!e->in_replica) return;
  queue_begun(c, e);
  serve(f, (double)done - (double)e->charged);
  e->in_replica = false;
  f->sequences[e->replica] -= e->sequences;
  replica_load *load = load_of(c, e->replica);
  if (load->epoch != e->epoch) return; /* it has begun anew, with nothing */
  if (c->cfg.by_priority) priorities_remove(&load->by_priority, &e->by_priority);
  load->sequences -= e->sequences;
  load->steps -= e->steps;
}

void queue_released(tri_core *c, queue_entry *e, uint64_t sampled) {
  leave_replica(c, e, sampled + (e->pending ? 0 : e->num_prompt));
}

/* Charges nothing: what the job has had so far counts once, at its end. A replica that was kept for it is free. */
void queue_returned(tri_core *c, queue_entry *e) {
  replica_load *load = load_of(c, e->replica);
  if (load->alone == e->id) load->alone = 0;
  leave_replica(c, e, 0);
}

/* ---- replicas ---- */

void queue_clog(tri_core *c, uint32_t index) { load_of(c, index)->clogged = c->queue->has_clogged = true; }

void queue_unclog(tri_core *c) {
  for (uint32_t i = 0; c->queue->has_clogged && i < c->cfg.num_replicas; i++) c->queue->loads[i].clogged = false;
  c->queue->has_clogged = false;
}

void queue_release_alone(tri_core *c, uint64_t id) {
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++)
    if (c->queue->loads[i].alone == id) c->queue->loads[i].alone = 0;
}

/* Picks the replica that a job runs alone in, and keeps it until it is idle; false: it is not yet, or takes no job now.
 * One replica at a time is kept, so that the others serve the rest. */
static bool pick_alone(tri_core *c, const queue_entry *e, uint32_t *index) {
  bool any = replica_pick(c, index);
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    const replica_load *load = load_of(c, i);
    if (load->alone && load->alone != e->id) return false;
    if (!load->alone || !replica_takes_jobs(c, i)) continue;
    any = true;
    *index = i;
  }
  if (!any) return false;
  queue_release_alone(c, e->id);
  load_of(c, *index)->alone = e->id;
  return !load_of(c, *index)->facts->jobs && !load_of(c, *index)->clogged;
}

/* ---- whose turn it is ---- */

/* Returns the slots of a replica that a job finds free: it does not wait for sequences with a later priority. Where one
 * has found none, later ones do not either. */
static uint64_t free_slots_for(const tri_core *c, replica_load *load, const queue_entry *e) {
  uint64_t slots = load->facts->max_num_seqs, before = load->sequences;
  if (c->cfg.by_priority) {
    if (load->has_full && e->priority >= load->full_from) return 0;
    before = priorities_up_to(load->by_priority, e->priority);
  }
  if (before < slots) return slots - before;
  load->has_full = true;
  load->full_from = e->priority;
  return 0;
}

/* The last slots are for flows that have fewer than those: one that has many jobs leaves some for the next client,
 * whose job then runs at once. A replica whose jobs are all short gets some ahead: it takes them in in a few steps. */
static bool has_slots(const tri_core *c, uint32_t index, const flow *f, const queue_entry *e, uint64_t needed) {
  replica_load *load = load_of(c, index);
  uint64_t slots = load->facts->max_num_seqs;
  if (!load->sequences || !slots) return true;
  if (load->sequences < AHEAD * slots && load->steps + e->steps <= AHEAD_STEPS * slots) return true;
  if (!c->cfg.by_priority && load->sequences >= slots) return false;
  uint64_t free_slots = free_slots_for(c, load, e);
  return free_slots >= needed && (free_slots > slots / RESERVE || f->sequences[index] < free_slots);
}

static bool has_prompt_room(const replica_load *load, const queue_entry *e) {
  uint64_t step_tokens = load->facts->step_tokens, steps = e->encoder ? TEXT_STEPS : PROMPT_STEPS;
  if (load->pending < FEW_PENDING || !step_tokens) return true;
  return load->pending_tokens + e->num_prompt <= steps * step_tokens;
}

/* needed: slots that are to be free. */
static bool has_room(const tri_core *c, uint32_t index, const flow *f, const queue_entry *e, uint64_t needed) {
  const replica_load *load = load_of(c, index);
  if (!replica_takes_jobs(c, index) || load->alone || load->clogged) return false;
  return has_prompt_room(load, e) && has_slots(c, index, f, e, needed);
}

/* Picks the replica with room that has least to do; false: none has. */
static bool pick_with_room(const tri_core *c, const flow *f, const queue_entry *e, uint64_t needed, uint32_t *index) {
  bool any = false;
  uint32_t least = 0;
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) {
    uint32_t jobs = load_of(c, i)->facts->jobs;
    if ((any && least <= jobs) || !has_room(c, i, f, e, needed)) continue;
    any = true;
    least = jobs;
    *index = i;
  }
  return any;
}

/* Returns a flow's next job that a replica takes: its first, but for those that wait for a replica to themselves and
 * hold up no other. NULL: none. */
static queue_entry *next_of(tri_core *c, const flow *f, uint32_t *index) {
  for (queue_entry *e = TAILQ_FIRST(&f->queue); e; e = TAILQ_NEXT(e, links)) {
    bool alone = e->alone;
    if (alone ? pick_alone(c, e, index) : pick_with_room(c, f, e, e->sequences, index)) return e;
    if (!alone) return NULL;
  }
  return NULL;
}

/* Returns the flow's first job, where it only has too few slots for its sequences, of which some are free. NULL: it is
 * not so. It goes to a replica all the same, which begins it when the slots are free and gets nothing else until then:
 * others with one sequence each would take every slot that becomes free. */
static queue_entry *wide_one_of(tri_core *c, const flow *f, uint32_t *index) {
  queue_entry *e = TAILQ_FIRST(&f->queue);
  if (e->sequences < 2 || e->alone) return NULL;
  return pick_with_room(c, f, e, 1, index) ? e : NULL;
}

static bool is_sooner(const tri_core *c, const flow *a, const flow *b) {
  const queue_entry *x = TAILQ_FIRST(&a->queue), *y = TAILQ_FIRST(&b->queue);
  if (c->cfg.by_priority && x->priority != y->priority) return x->priority < y->priority;
  if (a->owner != b->owner && a->owner->served != b->owner->served) return a->owner->served < b->owner->served;
  if (a->owner == b->owner && a->served != b->served) return a->served < b->served;
  return x->id < y->id;
}

/* Returns whether a replica might have room for some flow's job: mostly none has, and the flows need no look. By
 * priority the soonest job finds most room; but one that runs alone has a replica kept for it that has no room, too. */
static bool may_have_room(const tri_core *c, uint32_t index) {
  const replica_load *load = load_of(c, index);
  uint64_t slots = load->facts->max_num_seqs;
  if (!replica_takes_jobs(c, index)) return false;
  if (!slots || load->sequences < slots) return true;
  if (load->sequences < AHEAD * slots && load->steps < AHEAD_STEPS * slots) return true;
  if (!c->cfg.by_priority) return false;
  return c->queue->num_queued_alone ||
         priorities_up_to(load->by_priority, priorities_soonest(c->queue->queued)) < slots;
}

queue_entry *queue_next(tri_core *c, uint32_t *index) {
  flow *best = NULL, *turn = NULL;
  queue_entry *first = NULL, *wide = NULL;
  uint32_t at = 0, liked = 0;
  bool any = false;
  for (uint32_t i = 0; i < c->cfg.num_replicas && c->queue->num_queued; i++) {
    any |= may_have_room(c, i);
    c->queue->loads[i].has_full = false;
  }
  if (!any) return NULL;
  for (flow *f = LIST_FIRST(&c->queue->waiting); f; f = LIST_NEXT(f, waiting)) {
    if (!turn || is_sooner(c, f, turn)) turn = f;
    if (best && !is_sooner(c, f, best)) continue;
    queue_entry *e = next_of(c, f, &at);
    if (!e) continue;
    best = f;
    first = e;
    *index = at;
  }
  if (turn && turn != best && (wide = wide_one_of(c, turn, &at))) {
    best = turn;
    first = wide;
    *index = at;
  }
  if (!best) return NULL;
  first->early = first == wide;
  /* also where it is not taken: prefix_routing_note is of what was looked at */
  bool likes = prefix_routing_pick(c, first, &liked);
  if (likes && !first->alone && has_room(c, liked, best, first, first->sequences)) *index = liked;
  return first;
}

/* ---- opening and closing ---- */

tri_status queue_open(tri_core *c) {
  if (!(c->queue = tri_calloc(1, sizeof *c->queue))) return TRI_NO_MEMORY;
  c->queue->loads = tri_calloc(c->cfg.num_replicas, sizeof *c->queue->loads);
  if (!c->queue->loads) return TRI_NO_MEMORY;
  for (uint32_t i = 0; i < c->cfg.num_replicas; i++) c->queue->loads[i].facts = replica_facts_of(c, i);
  return prefix_routing_open(c);
}

static void free_flows(tri_core *c) {
  for (size_t i = 0; i < NUM_FLOW_BUCKETS; i++) {
    for (flow *f; (f = LIST_FIRST(&c->queue->flows[i]));) {
      LIST_REMOVE(f, chain);
      tri_free(f);
    }
    for (flow_owner *o; (o = LIST_FIRST(&c->queue->flow_owners[i]));) {
      LIST_REMOVE(o, chain);
      tri_free(o);
    }
  }
}

void queue_close(tri_core *c) {
  if (!c->queue) return;
  free_flows(c);
  prefix_routing_close(c);
  tri_free(c->queue->loads);
  tri_free(c->queue);
}

int64_t queue_count(const tri_core *c) { return c->queue->num_queued; }
uint64_t queue_job_bytes(const tri_core *c) { return c->queue->bytes; }
void queue_set_crowded(tri_core *c, bool crowded) { c->queue->crowded = crowded; }
