/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of jobs that wait for a group. Between clients it is start-time fair queueing (Goyal, Vin, Cheng, 1996), in
 * two levels: the owner that has had least service is next, and of it the flow that has; within a flow jobs go by age.
 * Service is tokens over weight. A job is charged when a group gets it, with a guess of its answer, and at its end with
 * what was done. Whoever comes back begins with the service of whoever was last served: nobody saves any up.
 *
 * What a group has been given nobody can take back, so that it gets little more than runs. */
#include "coordinator/state.h"

enum {
  GUESSED_ANSWER = 512, /* tokens of an answer that are charged in advance, at most */
  RESERVE = 16,         /* one in so many of a group's slots is for flows that have few */
  AHEAD = 4,            /* jobs that take few steps: so many times the slots */
  AHEAD_STEPS = 32,     /* few: for each slot, of all that the group has */
  FEW_PENDING = 2,      /* jobs of which a group has shown nothing yet, whatever their prompts */
  PROMPT_STEPS = 4,     /* steps that more of them may fill with their prompts */
  TEXT_STEPS = 16,      /* the same of an encoder, which chooses its batches among them */
};

const char *const queue_refusal_names[NUM_REFUSALS] = {
    [REFUSED_QUEUE] = "max_queue",
    [REFUSED_QUEUE_BYTES] = "max_queue_bytes",
    [REFUSED_CLIENT] = "max_queued_per_client",
    [REFUSED_CLIENT_BYTES] = "max_queue_bytes of one client",
    [REFUSED_QUEUE_TIME] = "max_queue_time",
    [REFUSED_JOURNAL] = "journal",
    [REFUSED_TOKENIZER] = "tokenizer",
};

/* ---- into the queue and out of it ---- */

static uint64_t most_output(const tri_core *c, const job *j) {
  uint64_t most = (uint64_t)c->cfg.max_prompt, left = most > j->num_prompt ? most - j->num_prompt : 1;
  if (j->embed) return 1;
  return j->sampling.max_tokens < 0 || (uint64_t)j->sampling.max_tokens > left ? left
                                                                               : (uint64_t)j->sampling.max_tokens;
}

static bool is_before(const tri_core *c, const job *a, const job *b) {
  if (c->cfg.by_priority && a->sampling.priority != b->sampling.priority)
    return a->sampling.priority < b->sampling.priority;
  return a->id < b->id;
}

/* A flow that had nothing to wait for does not come back with service that it has saved up. */
static void wake(tri_core *c, flow *f) {
  flow_owner *o = f->owner;
  if (!o->queued++ && o->served < c->flow_clock) o->served = c->flow_clock;
  if (f->served < o->clock) f->served = o->clock;
  LIST_INSERT_HEAD(&c->waiting, f, waiting);
}

/* Looks for a job's place from both ends of its flow's queue: a new one mostly belongs at the end, and one of a lost
 * group, or with a sooner priority than all, at the beginning. */
static void insert(const tri_core *c, flow *f, job *j) {
  job *front = TAILQ_FIRST(&f->queue), *back = TAILQ_LAST(&f->queue, queued_jobs);
  while (back && is_before(c, j, back) && !is_before(c, j, front)) {
    front = TAILQ_NEXT(front, queue_links);
    back = TAILQ_PREV(back, queued_jobs, queue_links);
  }
  if (!back)
    TAILQ_INSERT_HEAD(&f->queue, j, queue_links);
  else if (is_before(c, j, back))
    TAILQ_INSERT_BEFORE(front, j, queue_links);
  else
    TAILQ_INSERT_AFTER(&f->queue, back, j, queue_links);
}

void queue_push(tri_core *c, int64_t now, job *j) {
  flow *f = j->part.of;
  uint64_t beams = (uint64_t)j->sampling.num_beams, n = (uint64_t)j->sampling.n;
  j->part.sequences = (uint32_t)(beams > n ? beams : n);
  j->part.steps = j->part.sequences * most_output(c, j);
  j->part.queued_ns = now;
  j->part.in_queue = true;
  j->state = JOB_QUEUED;
  c->num_queued++;
  c->num_queued_alone += replay_runs_alone(j);
  if (c->cfg.by_priority) priorities_add(&c->queued, &j->part.by_priority, j->sampling.priority, 1);
  if (TAILQ_EMPTY(&f->queue)) wake(c, f);
  insert(c, f, j);
}

void queue_remove(tri_core *c, job *j) {
  flow *f = j->part.of;
  if (!j->part.in_queue) return;
  j->part.in_queue = false;
  c->num_queued--;
  c->num_queued_alone -= replay_runs_alone(j);
  if (c->cfg.by_priority) priorities_remove(&c->queued, &j->part.by_priority);
  TAILQ_REMOVE(&f->queue, j, queue_links);
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
static void charge_wait(const job *j, const group *g) {
  uint64_t all = g->sequences + j->part.sequences;
  if (!j->part.early || all <= g->max_num_seqs) return;
  double missing = (double)(all - g->max_num_seqs);
  if (missing > (double)j->part.sequences) missing = (double)j->part.sequences;
  serve(j->part.of, missing * missing * GUESSED_ANSWER / (2 * (double)g->max_num_seqs));
}

void queue_assigned(tri_core *c, job *j, group *g, uint32_t index) {
  flow *f = j->part.of;
  uint64_t answer = most_output(c, j);
  queue_remove(c, j);
  if (f->owner->served > c->flow_clock) c->flow_clock = f->owner->served;
  if (f->served > f->owner->clock) f->owner->clock = f->served;
  j->part.charged = j->num_prompt;
  if (!j->embed) j->part.charged += j->part.sequences * (answer < GUESSED_ANSWER ? answer : GUESSED_ANSWER);
  serve(f, (double)j->part.charged);
  charge_wait(j, g);
  j->part.in_group = j->part.pending = true;
  if (c->cfg.by_priority)
    priorities_add(&g->by_priority, &j->part.by_priority, j->sampling.priority, j->part.sequences);
  g->sequences += j->part.sequences;
  g->steps += j->part.steps;
  g->pending++;
  g->pending_tokens += j->num_prompt;
  f->sequences[index] += j->part.sequences;
}

void queue_begun(tri_core *c, job *j) {
  group *g = &c->groups[j->group];
  if (!j->part.pending) return;
  j->part.pending = false;
  if (g->epoch != j->epoch) return;
  g->pending--;
  g->pending_tokens -= j->num_prompt;
}

/* Ends a job's part of its group, of which it had so many tokens. */
static void leave_group(tri_core *c, job *j, uint64_t done) {
  group *g = &c->groups[j->group];
  flow *f = j->part.of;
  if (!j->part.in_group) return;
  queue_begun(c, j);
  serve(f, (double)done - (double)j->part.charged);
  j->part.in_group = false;
  f->sequences[j->group] -= j->part.sequences;
  if (g->epoch != j->epoch) return; /* it has begun anew, with nothing */
  if (c->cfg.by_priority) priorities_remove(&g->by_priority, &j->part.by_priority);
  g->sequences -= j->part.sequences;
  g->steps -= j->part.steps;
}

void queue_released(tri_core *c, job *j) {
  uint64_t done = j->part.pending ? 0 : j->num_prompt;
  for (int64_t i = 0; i < j->sampling.n; i++) done += j->choices[i].num;
  leave_group(c, j, done);
}

/* Charges nothing: what the job has had so far counts once, at its end. */
void queue_returned(tri_core *c, job *j) { leave_group(c, j, 0); }

/* ---- whose turn it is ---- */

/* Returns the slots of a group that a job finds free: it does not wait for sequences with a later priority. Where one
 * has found none, later ones do not either. */
static uint64_t free_slots_for(const tri_core *c, group *g, const job *j) {
  int64_t priority = j->sampling.priority;
  uint64_t slots = g->max_num_seqs, before = g->sequences;
  if (c->cfg.by_priority) {
    if (g->has_full && priority >= g->full_from) return 0;
    before = priorities_up_to(g->by_priority, priority);
  }
  if (before < slots) return slots - before;
  g->has_full = true;
  g->full_from = priority;
  return 0;
}

/* The last slots are for flows that have fewer than those: one that has many jobs leaves some for whoever comes next,
 * whose job then runs at once. A group whose jobs are all short gets some ahead: it takes them in in a few steps. */
static bool has_slots(tri_core *c, uint32_t index, const flow *f, const job *j, uint64_t needed) {
  group *g = &c->groups[index];
  uint64_t slots = g->max_num_seqs;
  if (!g->sequences || !slots) return true;
  if (g->sequences < AHEAD * slots && g->steps + j->part.steps <= AHEAD_STEPS * slots) return true;
  if (!c->cfg.by_priority && g->sequences >= slots) return false;
  uint64_t free_slots = free_slots_for(c, g, j);
  return free_slots >= needed && (free_slots > slots / RESERVE || f->sequences[index] < free_slots);
}

static bool has_prompt_room(const group *g, const job *j) {
  uint64_t steps = j->embed ? TEXT_STEPS : PROMPT_STEPS;
  if (g->pending < FEW_PENDING || !g->step_tokens) return true;
  return g->pending_tokens + j->num_prompt <= steps * g->step_tokens;
}

/* needed: slots that are to be free. */
static bool has_room(tri_core *c, uint32_t index, const flow *f, const job *j, uint64_t needed) {
  const group *g = &c->groups[index];
  if (!group_takes_jobs(c, g) || g->alone || g->clogged) return false;
  return has_prompt_room(g, j) && has_slots(c, index, f, j, needed);
}

/* Picks the group with room that has least to do; NULL: none has. */
static group *pick_with_room(tri_core *c, const flow *f, const job *j, uint64_t needed, uint32_t *index) {
  group *best = NULL;
  for (uint32_t i = 0; i < c->cfg.num_groups; i++) {
    group *g = &c->groups[i];
    if ((best && best->jobs <= g->jobs) || !has_room(c, i, f, j, needed)) continue;
    best = g;
    *index = i;
  }
  return best;
}

/* Returns a flow's next job that a group takes: its first, but for those that wait for a group to themselves and hold
 * up nobody. NULL: none. */
static job *next_of(tri_core *c, const flow *f, uint32_t *index) {
  for (job *j = TAILQ_FIRST(&f->queue); j; j = TAILQ_NEXT(j, queue_links)) {
    bool alone = replay_runs_alone(j);
    if (alone ? replay_pick_alone(c, j, index) : pick_with_room(c, f, j, j->part.sequences, index)) return j;
    if (!alone) return NULL;
  }
  return NULL;
}

/* Returns the flow's first job, where it only has too few slots for its sequences, of which some are free. NULL: it is
 * not so. It goes to a group all the same, which begins it when the slots are free and gets nothing else until then:
 * others with one sequence each would take every slot that becomes free. */
static job *wide_one_of(tri_core *c, const flow *f, uint32_t *index) {
  job *j = TAILQ_FIRST(&f->queue);
  if (j->part.sequences < 2 || replay_runs_alone(j)) return NULL;
  return pick_with_room(c, f, j, 1, index) ? j : NULL;
}

static bool is_sooner(const tri_core *c, const flow *a, const flow *b) {
  const job *x = TAILQ_FIRST(&a->queue), *y = TAILQ_FIRST(&b->queue);
  if (c->cfg.by_priority && x->sampling.priority != y->sampling.priority)
    return x->sampling.priority < y->sampling.priority;
  if (a->owner != b->owner && a->owner->served != b->owner->served) return a->owner->served < b->owner->served;
  if (a->owner == b->owner && a->served != b->served) return a->served < b->served;
  return x->id < y->id;
}

/* Tells whether a group might have room for some flow's job: mostly none has, and the flows need no look. By priority
 * the soonest job finds most room; but one that runs alone has a group kept for it that has no room, too. */
static bool may_have_room(const tri_core *c, const group *g) {
  uint64_t slots = g->max_num_seqs;
  if (!group_takes_jobs(c, g)) return false;
  if (!slots || g->sequences < slots) return true;
  if (g->sequences < AHEAD * slots && g->steps < AHEAD_STEPS * slots) return true;
  if (!c->cfg.by_priority) return false;
  return c->num_queued_alone || priorities_up_to(g->by_priority, priorities_soonest(c->queued)) < slots;
}

job *queue_next(tri_core *c, group **g, uint32_t *index) {
  flow *best = NULL, *turn = NULL;
  job *first = NULL, *wide = NULL;
  uint32_t at = 0, liked = 0;
  bool any = false;
  for (uint32_t i = 0; i < c->cfg.num_groups && c->num_queued; i++) {
    any |= may_have_room(c, &c->groups[i]);
    c->groups[i].has_full = false;
  }
  if (!any) return NULL;
  for (flow *f = LIST_FIRST(&c->waiting); f; f = LIST_NEXT(f, waiting)) {
    if (!turn || is_sooner(c, f, turn)) turn = f;
    if (best && !is_sooner(c, f, best)) continue;
    job *j = next_of(c, f, &at);
    if (!j) continue;
    best = f;
    first = j;
    *index = at;
  }
  if (turn && turn != best && (wide = wide_one_of(c, turn, &at))) {
    best = turn;
    first = wide;
    *index = at;
  }
  if (!best) return NULL;
  first->part.early = first == wide;
  group *other =
      affinity_pick(c, first, &liked); /* also where it is not taken: affinity_note is of what was looked at */
  if (other && !replay_runs_alone(first) && has_room(c, liked, best, first, first->part.sequences)) *index = liked;
  *g = &c->groups[*index];
  return first;
}
