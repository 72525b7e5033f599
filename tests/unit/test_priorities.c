/* SPDX-License-Identifier: Apache-2.0 */
/* Sums by priority, and the queue by priority: right beside their plain definitions, and cheap however many priorities
 * there are. */
#include <check.h>
#include <stdlib.h>

#include "coordinator/queue/priorities.h"
#include "coordinator/queue/queue_impl.h"
#include "coordinator/replicas/replicas_impl.h"

Suite *suite_priorities(void);

static uint64_t drawn; /* so many random numbers */
static uint64_t draw(uint64_t below) { return tri_mix64(++drawn * TRI_SPLITMIX_STEP) % below; }

/* ---- sums ---- */

enum { MANY = 16000, SOME = 200 };

/* Returns a priority: of a few, in a row, any, or with one bit. */
static int64_t some_priority(int kind, int i) {
  if (kind == 0) return (int64_t)draw(5) - 2;
  if (kind == 1) return i - SOME / 2;
  if (kind == 2) return (int64_t)tri_mix64(drawn++);
  return (int64_t)(UINT64_C(1) << draw(64));
}

/* Counts the nodes on the longest path, and checks what each says of those below. */
static int check_node(const priority_entry *e) {
  uint64_t same = 0, all = 0;
  int deepest = 0;
  const priority_entry *twin = e;
  do {
    ck_assert(twin->priority == e->priority && twin->next->prev == twin);
    same += twin->count;
    twin = twin->next;
  } while (twin != e);
  for (int i = 0; i < 2; i++) {
    int depth = e->child[i] ? check_node(e->child[i]) : 0;
    if (e->child[i]) all += e->child[i]->all;
    if (depth > deepest) deepest = depth;
  }
  ck_assert(e->same == same && e->all == all + same);
  return deepest + 1;
}

static void check_sums(const priority_entry *set, const priority_entry *all, const bool *in, int64_t priority) {
  uint64_t sum = 0;
  bool any = false;
  int64_t soonest = INT64_MAX;
  for (int i = 0; i < SOME; i++) {
    if (!in[i]) continue;
    if (all[i].priority <= priority) sum += all[i].count;
    if (all[i].priority < soonest) soonest = all[i].priority;
    any = true;
  }
  ck_assert_uint_eq(priorities_up_to(set, priority), sum);
  ck_assert(any == (set != NULL));
  if (any) ck_assert_int_eq(priorities_soonest(set), soonest);
}

START_TEST(test_sums) {
  static priority_entry all[SOME];
  bool in[SOME] = {0};
  priority_entry *set = NULL;
  drawn = (uint64_t)_i << 32;
  for (int step = 0; step < 4000; step++) {
    int i = (int)draw(SOME);
    if (in[i])
      priorities_remove(&set, &all[i]);
    else
      priorities_add(&set, &all[i], some_priority(_i, i), 1 + draw(9));
    in[i] = !in[i];
    check_sums(set, all, in, some_priority(_i, (int)draw(SOME)));
    check_sums(set, all, in, draw(2) ? INT64_MAX : INT64_MIN);
    if (set) ck_assert_int_le(check_node(set), PRIORITIES_DEPTH);
  }
  for (int i = 0; i < SOME; i++)
    if (in[i]) priorities_remove(&set, &all[i]);
  ck_assert_ptr_null(set);
}
END_TEST

/* However priorities are chosen, no path is longer than their bits. */
START_TEST(test_depth) {
  priority_entry *all = calloc(MANY, sizeof *all), *set = NULL;
  for (int i = 0; i < MANY; i++) priorities_add(&set, &all[i], _i ? INT64_MIN + i : MANY - i, 1);
  ck_assert_int_le(check_node(set), PRIORITIES_DEPTH);
  ck_assert_uint_eq(priorities_up_to(set, INT64_MAX), MANY);
  for (int i = 0; i < MANY; i++) {
    ck_assert_uint_eq(priorities_up_to(set, all[i].priority), _i ? 1 : (uint64_t)(MANY - i));
    priorities_remove(&set, &all[i]);
  }
  ck_assert_ptr_null(set);
  free(all);
}
END_TEST

/* ---- the queue ---- */

enum { GROUP_SLOTS = 64, FLOWS = 8000, RUNNING = 8000, PROMPT = 3 };

/* A core of which there is no more than the queue needs, with one group. */
struct hall {
  tri_core *core;
  replica *replica;
  replica_load *load;
  flow_owner owner;
  flow *flows[FLOWS];
  queue_entry *jobs[FLOWS + RUNNING + 2]; /* that wait or run */
  int num_flows, num_jobs;
  uint64_t last_id;
};

static struct hall *hall_create(int flows, uint64_t slots) {
  struct hall *h = calloc(1, sizeof *h);
  h->core = calloc(1, sizeof *h->core);
  h->core->replicas = calloc(1, sizeof *h->core->replicas);
  h->core->cfg.by_priority = true;
  h->core->cfg.num_replicas = 1;
  h->core->cfg.max_prompt = 4096;
  h->replica = h->core->replicas->list = calloc(1, sizeof *h->replica);
  ck_assert_int_eq(queue_open(h->core), TRI_OK);
  h->load = h->core->queue->loads;
  h->replica->state = REPLICA_READY;
  h->replica->facts = (replica_facts){.epoch = 1, .max_num_seqs = slots};
  h->owner.weight = 1;
  for (h->num_flows = 0; h->num_flows < flows; h->num_flows++) {
    flow *f = h->flows[h->num_flows] = calloc(1, sizeof *f + sizeof *f->sequences);
    f->owner = &h->owner;
    f->weight = 1;
    TAILQ_INIT(&f->queue);
  }
  return h;
}

static void hall_destroy(struct hall *h) {
  for (int i = 0; i < h->num_jobs; i++) free(h->jobs[i]);
  for (int i = 0; i < h->num_flows; i++) free(h->flows[i]);
  free(h->replica);
  queue_close(h->core);
  free(h->core->replicas);
  free(h->core);
  free(h);
}

static queue_entry *come(struct hall *h, flow *f, int64_t priority, uint32_t n, int64_t max_tokens) {
  queue_entry *e = h->jobs[h->num_jobs++] = calloc(1, sizeof *e);
  e->id = ++h->last_id;
  e->num_prompt = PROMPT;
  e->of = f;
  e->priority = priority;
  e->sequences = n;
  e->max_tokens = max_tokens;
  queue_push(h->core, 0, e);
  return e;
}

static void begin(struct hall *h, queue_entry *e) {
  queue_assigned(h->core, e, 0);
  queue_begun(h->core, e);
}

static queue_entry *look(struct hall *h) {
  uint32_t index;
  return queue_next(h->core, &index);
}

static void leave(struct hall *h, int i) {
  queue_remove(h->core, h->jobs[i]);
  queue_released(h->core, h->jobs[i], 0);
  free(h->jobs[i]);
  h->jobs[i] = h->jobs[--h->num_jobs];
}

/* Thousands of priorities run, and thousands of flows wait, each with one of its own: a look at the queue reads sums
 * and no list of jobs, which here is none. */
START_TEST(test_many_priorities) {
  struct hall *h = hall_create(FLOWS, GROUP_SLOTS);
  for (int i = 0; i < RUNNING; i++) begin(h, come(h, h->flows[0], RUNNING - i, 1, 1000));
  for (int i = 0; i < FLOWS; i++) come(h, h->flows[i], RUNNING + i, 1, 1000);
  ck_assert_ptr_null(look(h));
  come(h, h->flows[0], GROUP_SLOTS - 1, 2, 1000); /* there is one slot, of another flow: every one is looked at */
  ck_assert_ptr_null(look(h));
  ck_assert(h->load->has_full && h->load->full_from <= RUNNING + 1);
  queue_entry *small = come(h, h->flows[2], GROUP_SLOTS - 4, 1, 1000); /* and here are four */
  ck_assert_ptr_eq(look(h), small);
  ck_assert_int_le(check_node(h->load->by_priority), PRIORITIES_DEPTH);
  ck_assert_int_le(check_node(h->core->queue->queued), PRIORITIES_DEPTH);
  hall_destroy(h);
}
END_TEST

/* Tells by its plain definition whether the group has slots for a job. */
static bool has_slots(const struct hall *h, const flow *f, const queue_entry *j, uint64_t needed) {
  uint64_t slots = h->replica->facts.max_num_seqs, all = 0, steps = 0, before = 0;
  for (int i = 0; i < h->num_jobs; i++) {
    const queue_entry *k = h->jobs[i];
    if (!k->in_replica) continue;
    all += k->sequences;
    steps += k->steps;
    if (k->priority <= j->priority) before += k->sequences;
  }
  if (!all || (all < 4 * slots && steps + j->steps <= 32 * slots)) return true;
  if (before + needed > slots) return false;
  return slots - before > slots / 16 || f->sequences[0] < slots - before;
}

static bool is_sooner(const flow *a, const flow *b) {
  const queue_entry *x = TAILQ_FIRST(&a->queue), *y = TAILQ_FIRST(&b->queue);
  if (x->priority != y->priority) return x->priority < y->priority;
  return a->served == b->served ? x->id < y->id : a->served < b->served;
}

static queue_entry *plain_look(const struct hall *h) {
  const flow *best = NULL, *turn = NULL;
  for (int i = 0; i < h->num_flows; i++) {
    const flow *f = h->flows[i];
    const queue_entry *j = TAILQ_FIRST(&f->queue);
    if (j && (!turn || is_sooner(f, turn))) turn = f;
    if (j && has_slots(h, f, j, j->sequences) && (!best || is_sooner(f, best))) best = f;
  }
  if (turn && has_slots(h, turn, TAILQ_FIRST(&turn->queue), 1)) best = turn; /* it gets the others later */
  return best ? TAILQ_FIRST(&best->queue) : NULL;
}

START_TEST(test_random_queues) {
  struct hall *h = hall_create(12, _i % 2 ? 8 : 40);
  int priorities = _i < 4 ? 5 : 1000, given = 0;
  drawn = (uint64_t)(_i + 9) << 32;
  for (int step = 0; step < 3000; step++) {
    flow *f = h->flows[draw(12)];
    if (h->num_jobs < 150 && draw(3)) {
      int steps = draw(4) ? 1000 : 1, sequences = draw(4) ? 1 : 5; /* one after the other, whatever the compiler */
      come(h, f, (int64_t)draw((uint64_t)priorities), sequences, steps);
    } else if (h->num_jobs) {
      leave(h, (int)draw((uint64_t)h->num_jobs));
    }
    for (queue_entry *j; (j = look(h)); given++) {
      ck_assert_ptr_eq(j, plain_look(h));
      begin(h, j);
    }
    ck_assert_ptr_null(plain_look(h));
  }
  ck_assert_int_gt(given, 50);
  while (h->num_jobs) leave(h, 0);
  ck_assert(!h->load->by_priority && !h->core->queue->queued && !h->core->queue->num_queued &&
            !h->core->queue->num_queued_alone);
  hall_destroy(h);
}
END_TEST

/* A job that runs alone has a group kept for it, also while no job finds room. */
START_TEST(test_alone) {
  struct hall *h = hall_create(2, 8);
  for (int i = 0; i < 16; i++) begin(h, come(h, h->flows[0], 16 - i, 1, 1000));
  h->replica->facts.jobs = 16;
  queue_entry *suspect = come(h, h->flows[1], 100, 1, 1000);
  ck_assert(!look(h) && !h->load->alone);
  queue_remove(h->core, suspect);
  suspect->alone = true;
  queue_push(h->core, 0, suspect);
  ck_assert(!look(h) && h->load->alone == suspect->id);
  h->replica->facts.jobs = 0;
  while (h->jobs[0] != suspect) leave(h, 0);
  while (h->num_jobs > 1) leave(h, 1);
  ck_assert_ptr_eq(look(h), suspect);
  hall_destroy(h);
}
END_TEST

Suite *suite_priorities(void) {
  Suite *s = suite_create("priorities");
  TCase *t = tcase_create("priorities");
  suite_add_tcase(s, t);
  tcase_set_timeout(t, 60);
  tcase_add_loop_test(t, test_sums, 0, 4);
  tcase_add_loop_test(t, test_depth, 0, 2);
  tcase_add_test(t, test_many_priorities);
  tcase_add_loop_test(t, test_random_queues, 0, 8);
  tcase_add_test(t, test_alone);
  return s;
}
