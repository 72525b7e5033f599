/* SPDX-License-Identifier: Apache-2.0 */
/* A disk that takes records slower than jobs come and end: those that have ended and are not durable are kept for their
 * clients, so that they have to have a bound, at which new jobs are refused. */
#include "tests/unit/core_replay_kit.h"

Suite *suite_core_slow_disk(void);

enum { QUEUE = 3 };

static struct {
  uint64_t last;               /* record */
  int accepted, done;          /* messages to clients */
  char code[64], message[400]; /* of the last error */
} told;

static uint64_t note(void *ctx, const tri_record *r) {
  (void)ctx;
  (void)r;
  return ++told.last;
}

/* There are more clients than the world has streams. */
static tri_status to_client(void *ctx, const tri_peer *to, const tri_server_msg *m) {
  (void)ctx;
  (void)to;
  told.accepted += m->op == TRI_REPLY_ACCEPTED;
  told.done += m->op == TRI_REPLY_DONE;
  if (m->op != TRI_REPLY_ERROR) return TRI_OK;
  snprintf(told.code, sizeof told.code, "%.*s", (int)m->error.code.len, m->error.code.s);
  snprintf(told.message, sizeof told.message, "%.*s", (int)m->error.message.len, m->error.message.s);
  return TRI_OK;
}

static void answer(void *ctx, const tri_peer *to, const tri_server_msg *m) { to_client(ctx, to, m); }

static struct world *create(void) {
  struct world *w = world_create(1);
  memset(&told, 0, sizeof told);
  w->core->cfg.io.record = note;
  w->core->cfg.io.to_client = to_client;
  w->core->cfg.io.answer = answer;
  w->core->cfg.max_queue = QUEUE;
  w->core->jobs->has_journal = true;
  start_replica(w, 0, 1, 1);
  return w;
}

/* Submits a job, which ends at once. Returns whether it was taken. */
static bool run_one(struct world *w, uint64_t id) {
  tri_client_msg m = submit_msg(id);
  tri_peer from = rank_peer(7, 7, 7); /* any that has a name */
  told.code[0] = '\0';
  w->num_assigns = 0;
  tri_core_client(w->core, w->now, &from, &m);
  if (w->num_assigns) say(w, 1, last_job(w), 0, 0, "a", true);
  ck_assert_int_eq(w->core->jobs->num_active, 0);
  return w->num_assigns == 1;
}

static void expect_slow(void) {
  ck_assert_str_eq(told.code, "no_capacity");
  ck_assert_ptr_nonnull(strstr(told.message, "the disk of the journal is slow"));
}

/* Jobs beyond the bound are refused, before any other look at them; those that were taken stay, and are told once they
 * are durable. Then the next one is taken at once. */
START_TEST(so_many_jobs) {
  enum { MOST = MAX_RETAINED + QUEUE };
  struct world *w = create();
  uint64_t id = 0;
  while (++id <= MOST + 1) {
    ck_assert_msg(run_one(w, id), "job %d: %s", (int)id, told.message);
    if (id % 1000 == 0) tick(w, MS);
  }
  for (int i = 0; i < 3; i++) ck_assert(!run_one(w, id++));
  expect_slow();
  tick(w, MS);
  ck_assert(w->core->jobs->num_retained == MOST + 1 && !told.accepted);
  tri_core_durable(w->core, w->now, told.last);
  ck_assert(told.accepted == MOST + 1 && told.done == MOST + 1);
  ck_assert_msg(run_one(w, id), "%s", told.message);
  world_destroy(w);
}
END_TEST

/* So do those that have more than twice the memory that is meant for jobs that have ended. */
START_TEST(so_many_bytes) {
  enum { FIT = 4 };
  struct world *w = create();
  ck_assert(run_one(w, 1));
  w->core->cfg.most_retained = w->core->jobs->retained * FIT / 2;
  for (uint64_t id = 2; id <= FIT + 1; id++) ck_assert_msg(run_one(w, id), "job %d: %s", (int)id, told.message);
  tick(w, MS);
  ck_assert(!run_one(w, 90));
  expect_slow();
  tri_core_durable(w->core, w->now, told.last);
  tick(w, MS);
  ck_assert_msg(run_one(w, 91), "%s", told.message);
  world_destroy(w);
}
END_TEST

/* A text that was taken before is refused as well once it is tokens. */
START_TEST(while_a_text_is_tokenized) {
  struct world *w = create();
  tri_client_msg m = submit_msg(50);
  tri_peer from = rank_peer(7, 7, 7);
  ck_assert(run_one(w, 1));
  m.submit.prompt = (tri_wire_str){"Hello", 5};
  tri_core_client(w->core, w->now, &from, &m);
  ck_assert_int_eq(w->core->jobs->num_tokenizing, 1);
  w->core->cfg.most_retained = 1;
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, some_ids, 3, 0);
  expect_slow();
  world_destroy(w);
}
END_TEST

/* Jobs that have ended and are durable may be many: nothing is refused for that. */
START_TEST(not_the_disk) {
  struct world *w = create();
  w->core->cfg.most_retained = 1;
  for (uint64_t id = 1; id <= 5; id++) {
    ck_assert_msg(run_one(w, id), "%s", told.message);
    tri_core_durable(w->core, w->now, told.last);
  }
  ck_assert_int_eq(w->core->jobs->num_retained, 5);
  world_destroy(w);
}
END_TEST

Suite *suite_core_slow_disk(void) {
  Suite *s = suite_create("core_slow_disk");
  TCase *t = add_case(s, "slow_disk");
  tcase_add_test(t, so_many_jobs);
  tcase_add_test(t, so_many_bytes);
  tcase_add_test(t, while_a_text_is_tokenized);
  tcase_add_test(t, not_the_disk);
  return s;
}
