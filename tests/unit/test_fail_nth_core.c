/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core without memory: each allocation fails once while jobs are submitted, run, are lost with their
 * group, cancelled and taken over, and while they are restored from a journal. Each stream has one end, which is right
 * or says that there is no memory; the core goes on as if nothing had been. */
#include <stdlib.h>
#include <unistd.h>

#include "coordinator/journal/recorder.h"
#include "tests/unit/core_replay_kit.h"
#include "tests/unit/fail_nth.h"
#include "tests/unit/scratch_folder.h"

Suite *suite_fail_nth_core(void);

static const char text[] = "a text that is longer than sixteen tokens";

static tri_client_msg long_msg(uint64_t id, uint8_t name) {
  tri_client_msg m = submit_msg(id);
  m.submit.has_request_id = true;
  memset(&m.submit.request_id, name, sizeof m.submit.request_id);
  m.submit.on_disconnect = TRI_DISCONNECT_CONTINUE;
  m.submit.sampling.max_tokens = 60;
  m.submit.cache_salt = (tri_wire_str){"salt", 4};
  return m;
}

/* One with everything that needs memory of its own. */
static tri_client_msg rich_msg(uint64_t id, uint8_t name) {
  static const struct tri_wire_bias bias = {.id = 5, .bias = 1};
  static const uint32_t allowed[] = {3, 4, 5};
  tri_client_msg m = long_msg(id, name);
  m.submit.sampling.n = 2;
  m.submit.sampling.logprobs = 2;
  m.submit.sampling.logit_bias = &bias;
  m.submit.sampling.num_logit_bias = 1;
  m.submit.sampling.allowed_token_ids = allowed;
  m.submit.sampling.num_allowed_token_ids = 3;
  set_stop(&m, "xyz");
  return m;
}

/* Returns the job of the stream; 0: it has none, as there was no memory for one. */
static uint64_t job_of(struct world *w, const struct stream *s, const tri_client_msg *m) {
  const job *j = s->done ? NULL : job_find_request(w->core, &s->peer, &m->submit.request_id);
  return j ? j->id : 0;
}

static void speak(struct world *w, uint64_t epoch, uint64_t job, uint32_t choice, size_t from, bool ends) {
  if (job) say(w, epoch, job, choice, from, text, ends);
}

static void expect_end(const struct stream *s, int choices, bool may_fail) {
  ck_assert_msg(s->done, "request %llu has no end", (unsigned long long)s->id);
  if (s->code[0]) {
    ck_assert_msg(may_fail && (!strcmp(s->code, "no_memory") || !strcmp(s->code, "internal")), "%s: %s", s->code,
                  s->message);
    return;
  }
  for (int i = 0; i < choices; i++) expect_text(s, i, text);
}

static void run_job(struct world *w, uint64_t id, uint64_t epoch, bool may_fail) {
  tri_client_msg m = long_msg(id, (uint8_t)id);
  struct stream *s = submit(w, "a", &m);
  speak(w, epoch, job_of(w, s, &m), 0, 0, true);
  tick(w, SECOND / 5);
  expect_end(s, 1, may_fail);
}

/* ---- a life ---- */

static bool is_here(const struct world *w, uint64_t epoch) {
  return w->core->replicas->list[0].facts.epoch == epoch && w->core->replicas->list[0].state == REPLICA_STARTING;
}

static void lose_in_the_middle(struct world *w) {
  tri_client_msg m = rich_msg(1, 1), other = long_msg(2, 2);
  struct stream *s = submit(w, "a", &m), *t = submit(w, "a", &other);
  uint64_t job = job_of(w, s, &m);
  for (size_t i = 0; i < 20 && job; i++)
    for (uint32_t k = 0; k < 2; k++) draw(w, 1, job, k, i, byte_token[(uint8_t)text[i]], 0);
  struct stream *gone = cancel(w, "a", 3, t);
  lose(w, 0, 1);
  tri_core_replica_expected(w->core, 0, 2);
  for (int i = 0; i < 3 && !is_here(w, 2); i++) send_register(w, 0, 2, 0, 1);
  send_ready(w, 0, 2);
  tick(w, SECOND / 5); /* what found no memory is tried again */
  job = job_of(w, s, &m);
  for (uint32_t k = 0; k < 2; k++) speak(w, 2, job, k, 20, true);
  tick(w, SECOND / 5);
  expect_end(s, 2, true);
  ck_assert(t->done && (gone->accepted || gone->done));
}

START_TEST(a_life) {
  uint64_t n = 1;
  bool failed = true;
  for (; failed; n++) {
    struct world *w = world_create(1);
    start_replica(w, 0, 1, 1);
    fail_nth_arm(n);
    lose_in_the_middle(w);
    run_job(w, 4, 2, true);
    failed = fail_nth_has_failed();
    fail_nth_arm(0);
    tick(w, SECOND / 5);
    ck_assert(tri_core_is_idle(w->core));
    if (!failed) expect_end(&w->streams[0], 2, false);
    run_job(w, 5, 2, false);
    world_destroy(w);
  }
  printf("a life: %llu allocations\n", (unsigned long long)n - 2);
  ck_assert_uint_gt(n, 20);
}
END_TEST

/* ---- restarts ---- */

static char folder[SCRATCH_BYTES];

static void set_up(void) { scratch_make(folder); }

static void tear_down(void) { scratch_remove(folder); }

static void die(struct world *w) {
  tri_recorder_close(w->recorder);
  w->recorder = NULL;
  world_destroy(w);
}

/* Two jobs, each with some tokens. */
static void leave_jobs(void) {
  struct world *w = world_create(1);
  ck_assert(tri_recorder_open(folder, 0, w->core, w->now, &w->recorder, NULL) == TRI_OK);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = rich_msg(1, 1), other = long_msg(2, 2);
  struct stream *s = submit(w, "a", &m), *t = submit(w, "a", &other);
  for (size_t i = 0; i < 20; i++) draw(w, 1, job_of(w, s, &m), 1, i, byte_token[(uint8_t)text[i]], 0);
  draw(w, 1, job_of(w, t, &other), 0, 0, byte_token[(uint8_t)text[0]], 0);
  ck_assert(tri_recorder_write(w->recorder, NULL) == TRI_OK);
  die(w);
}

static void expect_jobs(const struct world *w) {
  const job *first = TAILQ_FIRST(&w->core->jobs->active), *second = first ? TAILQ_NEXT(first, links) : NULL;
  ck_assert_msg(first && second, "a job is lost");
  ck_assert(first->choices[1].num == 20 && second->choices[0].num == 1);
  ck_assert(first->sampling.num_allowed_token_ids == 3 && first->salt_len == 4);
}

/* A start without memory for all jobs is none: it would lose some. */
START_TEST(a_restart) {
  uint64_t n = 1;
  leave_jobs();
  for (bool failed = true; failed; n++) {
    struct world *w = world_create(1);
    tri_error err = {0};
    fail_nth_arm(n);
    tri_status st = tri_recorder_open(folder, 0, w->core, w->now, &w->recorder, &err);
    failed = fail_nth_has_failed();
    fail_nth_arm(0);
    ck_assert_msg(st == TRI_OK || (failed && st == TRI_NO_MEMORY && err.message[0]), "allocation %llu: %s, %s",
                  (unsigned long long)n, tri_status_text(st), err.message);
    if (st == TRI_OK) expect_jobs(w);
    die(w);
  }
  printf("a restart: %llu allocations\n", (unsigned long long)n - 2);
  ck_assert_uint_gt(n, 10);
}
END_TEST

/* A record that finds no memory ends the coordinator before a client hears of what it is to keep. */
START_TEST(a_life_with_a_journal) {
  uint64_t n = 1;
  for (bool failed = true; failed; n++) {
    struct world *w = world_create(1);
    ck_assert(tri_recorder_open(folder, 0, w->core, w->now, &w->recorder, NULL) == TRI_OK);
    start_replica(w, 0, 1, 1);
    tri_client_msg m = long_msg(1, 1);
    fail_nth_arm(n);
    struct stream *s = submit(w, "a", &m);
    uint64_t job = job_of(w, s, &m);
    for (size_t i = 0; i < 20 && job; i++) draw(w, 1, job, 0, i, byte_token[(uint8_t)text[i]], 0);
    tri_error err = {0};
    tri_status st = tri_recorder_write(w->recorder, &err);
    failed = fail_nth_has_failed();
    fail_nth_arm(0);
    ck_assert_msg(st == TRI_OK || (failed && st == TRI_NO_MEMORY && err.message[0]), "allocation %llu: %s, %s",
                  (unsigned long long)n, tri_status_text(st), err.message);
    ck_assert(!s->accepted || job); /* nothing was durable yet */
    die(w);
    tear_down();
    set_up();
  }
  printf("a life with a journal: %llu allocations\n", (unsigned long long)n - 2);
  ck_assert_uint_gt(n, 10);
}
END_TEST

Suite *suite_fail_nth_core(void) {
  Suite *s = suite_create("fail_nth_core");
  TCase *t = add_case(s, "fail_nth_core");
  tcase_add_checked_fixture(t, set_up, tear_down);
  tcase_add_test(t, a_life);
  tcase_add_test(t, a_restart);
  tcase_add_test(t, a_life_with_a_journal);
  return s;
}
