/* SPDX-License-Identifier: Apache-2.0 */
/* Compaction that nobody notices: one call records so many jobs and so many bytes, and leaves the largest ones. */
#include "tests/unit/core_replay_kit.h"

Suite *suite_core_compact_bounds(void);

/* These are compact.c's. */
enum { JOBS_AT_ONCE = 64, AT_ONCE = 1 << 20, MOST_OF_ONE = 8 << 20, TOKEN_BYTES = 32 + 10 * TRI_WIRE_MAX_LOGPROBS };

static struct {
  uint64_t last; /* record */
  int moved;     /* jobs that were recorded as a whole */
} facts;

static uint64_t note(void *ctx, const tri_record *r) {
  (void)ctx;
  facts.moved += r->op == TRI_RECORD_WHOLE;
  return ++facts.last;
}

/* A world without a replica, whose records are numbered and kept nowhere. */
static struct world *create(void) {
  struct world *w = world_create(1);
  memset(&facts, 0, sizeof facts);
  w->core->cfg.io.record = note;
  w->core->cfg.max_queue = 1000;
  w->core->cfg.max_prompt = 1 << 20;
  w->core->jobs->has_journal = true;
  return w;
}

static void submit_ids(struct world *w, uint64_t id, const uint32_t *ids, size_t num) {
  tri_client_msg m = submit_msg(id);
  m.submit.token_ids = ids;
  m.submit.num_token_ids = num;
  submit(w, "a", &m);
  ck_assert_uint_eq((uint64_t)w->core->jobs->num_active, id);
}

/* Returns how many jobs one call moves, of those that are older than the record `before`. */
static int compact(struct world *w, uint64_t before) {
  int had = facts.moved;
  tri_core_durable(w->core, w->now, facts.last);
  tri_core_compact(w->core, w->now, before, 0);
  return facts.moved - had;
}

START_TEST(so_many_jobs) {
  enum { MORE = 10, OLD = 4 };
  struct world *w = create();
  for (uint64_t id = 1; id <= OLD + JOBS_AT_ONCE + MORE; id++) submit_ids(w, id, some_ids, 3);
  uint64_t first = tri_core_oldest_record(w->core), end = facts.last + 1;
  ck_assert_int_eq(compact(w, first), 0);
  ck_assert_int_eq(compact(w, first + OLD), OLD);
  ck_assert_int_eq(compact(w, end), JOBS_AT_ONCE);
  ck_assert_int_eq(compact(w, end), MORE);
  ck_assert_int_eq(compact(w, end), 0);
  world_destroy(w);
}
END_TEST

/* A job is not moved before its record is durable, nor again before the one that takes its place is. */
START_TEST(not_before_it_is_durable) {
  struct world *w = create();
  submit_ids(w, 1, some_ids, 3);
  for (int moves = 1; moves <= 3; moves++) {
    tri_core_compact(w->core, w->now, UINT64_MAX, 0);
    ck_assert_int_eq(facts.moved, moves - 1);
    ck_assert_int_eq(compact(w, UINT64_MAX), 1);
  }
  world_destroy(w);
}
END_TEST

/* The job that crosses the bound is the last one of its call. */
START_TEST(so_many_bytes) {
  enum { IDS = AT_ONCE / 4 / 5 * 2, JOBS = 7 }; /* two fifths of the bound */
  struct world *w = create();
  uint32_t *ids = calloc(IDS, sizeof *ids);
  ck_assert_ptr_nonnull(ids);
  for (uint64_t id = 1; id <= JOBS; id++) submit_ids(w, id, ids, IDS);
  uint64_t end = facts.last + 1;
  ck_assert_int_eq(compact(w, end), 3);
  ck_assert_int_eq(compact(w, end), 3);
  ck_assert_int_eq(compact(w, end), 1);
  free(ids);
  world_destroy(w);
}
END_TEST

static void draw_many(struct world *w, uint64_t job, size_t num) {
  enum { AT_A_TIME = 500 };
  static tri_replica_token t[AT_A_TIME];
  for (size_t at = 0; at < num;) {
    uint32_t n = 0;
    for (; n < AT_A_TIME && at < num; n++, at++)
      t[n] = (tri_replica_token){.job = job, .offset = at, .token = byte_token['a'], .flags = TRI_TOKEN_LOGPROB};
    send_tokens(w, 0, 1, t, n);
  }
}

/* A job beyond 8 MiB is moved where somebody has made room for it, and those behind it follow; a little below, both are
 * moved in any case. */
START_TEST(largest_jobs) {
  for (int large = 0; large < 2; large++) {
    struct world *w = create();
    start_replica(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    m.submit.sampling.logprobs = 0;
    m.submit.stream = false;
    submit(w, "a", &m);
    draw_many(w, last_job(w), MOST_OF_ONE / TOKEN_BYTES + (large ? 100 : -100));
    submit_ids(w, 2, some_ids, 3);
    uint64_t bytes = tri_core_record_bytes(w->core), end = facts.last + 1;
    ck_assert(large == (bytes > MOST_OF_ONE));
    int moved = compact(w, end); /* that one is more than a call's bytes */
    ck_assert_int_eq(moved + compact(w, end), large ? 0 : 2);
    size_t room = tri_core_compact_room(w->core, end);
    ck_assert(large ? room > MOST_OF_ONE : !room);
    ck_assert_uint_eq(tri_core_compact_room(w->core, 1), 0); /* nothing is older */
    tri_core_compact(w->core, w->now, end, room);
    ck_assert_int_eq(facts.moved, large ? 1 : 2);
    ck_assert_int_eq(compact(w, end), large ? 1 : 0);
    world_destroy(w);
  }
}
END_TEST

Suite *suite_core_compact_bounds(void) {
  Suite *s = suite_create("core_compact_bounds");
  TCase *t = add_case(s, "bounds");
  tcase_add_test(t, so_many_jobs);
  tcase_add_test(t, not_before_it_is_durable);
  tcase_add_test(t, so_many_bytes);
  tcase_add_test(t, largest_jobs);
  return s;
}
