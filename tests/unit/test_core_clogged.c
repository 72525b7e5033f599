/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core against recorded actions: a leader whose queue is full takes no job for a while. */
#include "tests/unit/core_replay_kit.h"

Suite *suite_core_clogged(void);

/* A job that is tried again and again within one look would be tried for ever. */
enum { MOST_TRIES = 100 };

static struct {
  tri_status (*to_worker)(void *ctx, const tri_peer *to, tri_replica_msg *m);
  int replica, tries; /* replica: whose leader takes no job; -1: each takes all */
  uint64_t epoch;
} clog;

static tri_status take_or_not(void *ctx, const tri_peer *to, tri_replica_msg *m) {
  tri_peer leader = rank_peer((uint32_t)(clog.replica < 0 ? 0 : clog.replica), clog.epoch, 0);
  if (m->op != TRI_REPLICA_ASSIGN || clog.replica < 0 || !tri_peer_equal(to, &leader))
    return clog.to_worker(ctx, to, m);
  if (++clog.tries > MOST_TRIES) ck_abort_msg("a leader that takes no job is asked without an end");
  return TRI_AGAIN;
}

static void clog_replica(struct world *w, int replica, uint64_t epoch) {
  if (w->core->cfg.io.to_worker != take_or_not) clog.to_worker = w->core->cfg.io.to_worker;
  w->core->cfg.io.to_worker = take_or_not;
  clog.replica = replica;
  clog.epoch = epoch;
  clog.tries = 0;
}

static void submit_many(struct world *w, uint64_t first, int count) {
  for (int i = 0; i < count; i++) {
    tri_client_msg m = submit_msg(first + (uint64_t)i);
    m.submit.sampling.max_tokens = MODEL_LEN - 3; /* so long that a replica gets none ahead */
    m.submit.sampling.has_max_tokens = true;
    submit(w, "a", &m);
  }
}

/* The other replica gets all that it has slots for, the rest waits, and goes to the first one once that takes jobs. */
START_TEST(others_go_on) {
  enum { MORE = 3 };
  struct world *w = world_create(2);
  start_replica(w, 0, 1, 1);
  start_replica(w, 1, 1, 1);
  clog_replica(w, 0, 1);
  submit_many(w, 1, SLOTS + MORE);
  ck_assert_int_eq(w->num_assigns, SLOTS);
  for (int i = 0; i < SLOTS; i++) {
    ck_assert(went_to(&w->assigns[i], 1, 1));
    ck_assert_uint_eq(w->assigns[i].a.job, w->assigns[0].a.job + (uint64_t)i);
  }
  clog.tries = 0;
  for (int i = 1; i <= 5; i++) {
    tick(w, 100 * MS);
    ck_assert_int_eq(clog.tries, i); /* once in each look, whatever waits */
  }
  ck_assert(w->num_assigns == SLOTS && w->core->queue->num_queued == MORE);
  clog.replica = -1;
  tick(w, 100 * MS);
  ck_assert_int_eq(w->num_assigns, SLOTS + MORE);
  for (int i = SLOTS; i < SLOTS + MORE; i++) {
    ck_assert(went_to(&w->assigns[i], 0, 1));
    ck_assert_uint_eq(w->assigns[i].a.job, w->assigns[0].a.job + (uint64_t)i);
  }
  ck_assert_int_eq(w->core->queue->num_queued, 0);
  world_destroy(w);
}
END_TEST

/* With one replica all jobs wait in their order, and none is lost or given twice. */
START_TEST(all_wait) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  clog_replica(w, 0, 1);
  submit_many(w, 1, 3);
  for (int i = 0; i < 5; i++) tick(w, 100 * MS);
  ck_assert(!w->num_assigns && w->core->queue->num_queued == 3);
  ck_assert_uint_eq(w->core->replicas->list[0].facts.jobs, 0);
  clog.replica = -1;
  submit_many(w, 4, 1); /* the next look, before any tick */
  ck_assert_int_eq(w->num_assigns, 4);
  for (int i = 0; i < 4; i++) ck_assert_uint_eq(w->assigns[i].a.job, w->assigns[0].a.job + (uint64_t)i);
  for (int i = 0; i < 4; i++) {
    say(w, 1, w->assigns[i].a.job, 0, 0, "ab", true);
    ck_assert(w->streams[i].done && !w->streams[i].code[0]);
  }
  world_destroy(w);
}
END_TEST

/* A job that runs alone waits for the replica that is kept for it, and other jobs go to the others meanwhile. */
START_TEST(alone_and_clogged) {
  struct world *w = world_create(2);
  start_replica(w, 0, 1, 1);
  submit_many(w, 1, 1);
  uint64_t job = last_job(w);
  restart(w, 1);
  clog_replica(w, 0, 3);
  restart(w, 2);
  ck_assert_int_eq(w->num_assigns, 2);
  ck_assert_uint_eq(w->core->queue->loads[0].alone, job);
  start_replica(w, 1, 1, 1);
  submit_many(w, 2, 2);
  ck_assert_int_eq(w->num_assigns, 4);
  ck_assert(went_to(&w->assigns[2], 1, 1) && went_to(&w->assigns[3], 1, 1));
  ck_assert(w->assigns[2].a.job > job && w->assigns[3].a.job > job);
  clog.replica = -1;
  tick(w, 100 * MS);
  ck_assert_int_eq(w->num_assigns, 5);
  ck_assert(went_to(last_assign(w), 0, 3) && last_job(w) == job);
  world_destroy(w);
}
END_TEST

Suite *suite_core_clogged(void) {
  Suite *suite = suite_create("core_clogged");
  TCase *t = add_case(suite, "clogged");
  tcase_add_test(t, others_go_on);
  tcase_add_test(t, all_wait);
  tcase_add_test(t, alone_and_clogged);
  return suite;
}
