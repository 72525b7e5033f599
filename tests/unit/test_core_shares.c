/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core against recorded actions: what each client may have of the queue, and whose turn it is. */
#include "coordinator/jobs/jobs_impl.h"
#include "coordinator/queue/queue_impl.h"
#include "coordinator/queue/shares.h"
#include "coordinator/replicas/replicas_impl.h"
#include "tests/unit/core_world.h"

Suite *suite_core_shares(void);

/* Submits count jobs from id on; returns how many were accepted. */
static int flood(struct world *w, const char *peer, const char *caller, uint64_t id, int count, int64_t max_tokens) {
  int accepted = 0;
  for (int i = 0; i < count; i++) {
    tri_client_msg m = submit_msg(id + (uint64_t)i);
    m.submit.caller = (tri_wire_str){caller, strlen(caller)};
    m.submit.sampling.max_tokens = max_tokens;
    m.submit.sampling.has_max_tokens = true;
    accepted += submit(w, peer, &m)->accepted;
  }
  return accepted;
}

static struct stream *last_stream(struct world *w) { return &w->streams[w->num_streams - 1]; }

static void start_sized(struct world *w, uint64_t slots, uint64_t step_tokens) {
  tri_replica_msg m = registration(0, 1, 0, 1);
  m.reg.max_num_seqs = slots;
  m.reg.max_num_batched_tokens = step_tokens;
  send_worker(w, 0, 1, 0, &m);
  send_ready(w, 0, 1);
}

/* The client's number of an assigned job, whose jobs have numbers of their own in all clients of a test. Jobs are
 * numbered from 1 in the order in which they were submitted. */
static uint64_t client_id(const struct world *w, int assign) { return w->streams[w->assigns[assign].a.job - 1].id; }

/* Ends an assigned job with so many tokens. */
static void end(struct world *w, int assign, int tokens) {
  uint64_t job = w->assigns[assign].a.job;
  for (int i = 0; i < tokens; i++)
    token(w, job, 0, (uint64_t)i, byte_token['a'], i + 1 == tokens ? TRI_TOKEN_LAST : 0, TRI_FINISH_STOP);
}

static void expect_refusal(const struct stream *s, const char *limit) {
  expect_error(s, "no_capacity", "");
  ck_assert_msg(strstr(s->message, limit) && strstr(s->message, "try again"), "%s", s->message);
}

START_TEST(test_limits_of_jobs) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 40});
  tri_cluster_status status = {0};
  w->status = &status;
  ck_assert_int_eq(flood(w, "a", "", 100, 21, 16), 20); /* half of it all */
  expect_refusal(last_stream(w), "max_queued_per_client is 20");
  ck_assert_int_eq(flood(w, "b", "", 200, 11, 16), 10); /* half of the rest */
  ck_assert_int_eq(flood(w, "c", "", 300, 10, 16), 5);
  for (int i = 0; i < 5; i++)
    ck_assert_int_eq(flood(w, (const char *[]){"d", "e", "f", "g", "h"}[i], "", 400, 1, 16), 1);
  ck_assert_int_eq(flood(w, "i", "", 500, 1, 16), 0);
  expect_refusal(last_stream(w), "max_queue is 40");
  tri_client_msg m = {.op = TRI_OP_STATUS, .id = 1};
  submit(w, "j", &m);
  ck_assert(status.refused_client_jobs == 7 && status.refused_max_queue == 1 && status.waiting == 40);
  ck_assert(status.requests_refused == 8 && status.requests_failed == 0);
  w->stats = calloc(1, STATS_BYTES);
  m.op = TRI_OP_STATS;
  submit(w, "k", &m);
  ck_assert_ptr_nonnull(strstr(w->stats, "trireme:requests_refused_total{reason=\"client_jobs\"} 7\n"));
  ck_assert_ptr_nonnull(strstr(w->stats, "trireme:requests_refused_total{reason=\"max_queue\"} 1\n"));
  ck_assert_ptr_nonnull(strstr(w->stats, "trireme:request_failure_total 0\n"));
  free(w->stats);
  world_destroy(w);
}
END_TEST

START_TEST(test_explicit_limit) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 40, .max_queued_per_client = 3});
  ck_assert_int_eq(flood(w, "a", "", 100, 9, 16), 3);
  ck_assert_int_eq(flood(w, "gateway", "ann", 200, 9, 16), 3); /* callers count, whatever connection asks for them */
  ck_assert_int_eq(flood(w, "gateway", "bob", 300, 9, 16), 3);
  ck_assert_int_eq(flood(w, "gateway", "", 400, 9, 16), 3);
  start_replica(w, 0, 1, 1);
  end(w, 0, 1); /* room again */
  ck_assert_int_eq(flood(w, "a", "", 500, 1, 16), 1);
  world_destroy(w);
}
END_TEST

/* A key has half of what others leave, however many connections it opens, and each of those a half of that. */
START_TEST(test_limits_of_keys) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 40});
  char name[16];
  int accepted = 0;
  for (int i = 0; i < 30; i++) {
    snprintf(name, sizeof name, "%d@key", i);
    accepted += flood(w, name, "", 100 + 10 * (uint64_t)i, 3, 16);
    if (i == 0) ck_assert_int_eq(accepted, 3);
  }
  ck_assert_int_eq(accepted, 20);
  ck_assert_int_eq(flood(w, "x@other", "", 900, 20, 16), 5);
  world_destroy(w);
}
END_TEST

START_TEST(test_limits_of_bytes) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 40, .max_queue_bytes = 400000});
  tri_cluster_status status = {0};
  w->status = &status;
  tri_client_msg m = submit_msg(1);
  uint32_t *allowed = calloc(20000, sizeof *allowed);
  m.submit.sampling.allowed_token_ids = allowed; /* 80000 bytes */
  m.submit.sampling.num_allowed_token_ids = 20000;
  int accepted[3] = {0};
  for (uint64_t i = 0; i < 9; i++) {
    m.id = 10 + i;
    accepted[i / 3] += submit(w, (const char *[]){"a", "b", "c"}[i / 3], &m)->accepted;
    if (i == 2) expect_refusal(last_stream(w), "max_queue_bytes of one client is 200000");
  }
  ck_assert(accepted[0] == 2 && accepted[1] == 1 && accepted[2] == 1); /* the last one fits in as its client's first */
  m.id = 50;
  submit(w, "d", &m);
  expect_refusal(last_stream(w), "max_queue_bytes is 400000");
  m.op = TRI_OP_STATUS;
  submit(w, "e", &m);
  ck_assert(status.refused_client_bytes == 3 && status.refused_max_queue_bytes == 3);
  start_replica(w, 0, 1, 1); /* all have room there, and end */
  ck_assert_int_eq(w->num_assigns, 4);
  for (int i = 0; i < 4; i++) end(w, i, 1);
  m = submit_msg(60);
  m.submit.sampling.allowed_token_ids = allowed;
  m.submit.sampling.num_allowed_token_ids = 20000;
  ck_assert_int_eq(submit(w, "d", &m)->accepted, 1);
  free(allowed);
  world_destroy(w);
}
END_TEST

START_TEST(test_others_come_first) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  ck_assert_int_eq(flood(w, "a", "", 100, 20, 100), 20);
  ck_assert_int_eq(w->num_assigns, SLOTS); /* they are long, and none is given ahead */
  for (int i = 0; i < SLOTS; i++) ck_assert_uint_eq(client_id(w, i), 100 + (uint64_t)i); /* by age */
  flood(w, "b", "", 200, 2, 1);
  ck_assert_int_eq(w->num_assigns, SLOTS);
  end(w, 0, 100);
  ck_assert(w->num_assigns == SLOTS + 1 && client_id(w, SLOTS) == 200);
  end(w, 1, 100);
  ck_assert(w->num_assigns == SLOTS + 2 && client_id(w, SLOTS + 1) == 201);
  end(w, 2, 100);
  ck_assert(w->num_assigns == SLOTS + 3 && client_id(w, SLOTS + 2) == 108);
  world_destroy(w);
}
END_TEST

/* One in sixteen slots is for clients that have few. */
START_TEST(test_reserve) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 200});
  start_sized(w, 48, 0);
  flood(w, "a", "", 100, 60, 100);
  ck_assert_int_eq(w->num_assigns, 45);
  flood(w, "b", "", 200, 5, 100);
  ck_assert(w->num_assigns == 47 && client_id(w, 45) == 200 && client_id(w, 46) == 201);
  flood(w, "c", "", 300, 5, 100);
  ck_assert(w->num_assigns == 48 && client_id(w, 47) == 300);
  flood(w, "d", "", 400, 1, 100);
  ck_assert_int_eq(w->num_assigns, 48); /* all slots are taken */
  world_destroy(w);
}
END_TEST

/* Jobs of few steps are given ahead, as a replica would wait for the next ones else; a client that comes waits for few
 * steps. */
START_TEST(test_ahead) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 200});
  start_replica(w, 0, 1, 1);
  flood(w, "a", "", 100, 60, 1);
  ck_assert_int_eq(w->num_assigns, 4 * SLOTS);
  flood(w, "b", "", 200, 1, 1);
  end(w, 0, 1);
  ck_assert_uint_eq(client_id(w, 4 * SLOTS), 200);
  world_destroy(w);
}
END_TEST

/* A replica that has prompts for some steps gets no more, but always a second one. */
START_TEST(test_prompts) {
  struct world *w = world_create(1);
  start_sized(w, 32, 4); /* 16 tokens are 4 steps */
  flood(w, "a", "", 100, 10, 2);
  ck_assert_int_eq(w->num_assigns, 5);
  token(w, w->assigns[0].a.job, 0, 0, byte_token['a'], 0, 0); /* its prompt is done */
  ck_assert_int_eq(w->num_assigns, 6);
  uint32_t ids[100];
  for (int i = 0; i < 100; i++) ids[i] = 65;
  for (uint64_t i = 0; i < 3; i++) {
    tri_client_msg m = submit_msg(200 + i);
    m.submit.token_ids = ids;
    m.submit.num_token_ids = 100;
    submit(w, "b", &m);
  }
  for (int i = 0; i < 10; i++) end(w, i, i ? 2 : 0);
  for (int i = 0; i < w->num_assigns; i++)
    if (w->assigns[i].a.num_token_ids == 3 && i >= 5) end(w, i, 2);
  int longer = 0;
  for (int i = 0; i < w->num_assigns; i++) longer += w->assigns[i].a.num_token_ids == 100;
  ck_assert_int_eq(longer, 2);
  world_destroy(w);
}
END_TEST

/* A job of several sequences whose turn has come is not kept waiting by others of one, which would take each slot that
 * becomes free. */
START_TEST(test_wide_job) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 400});
  start_sized(w, 8, 0);
  ck_assert_int_eq(flood(w, "a", "", 100, 100, 100), 100);
  ck_assert_int_eq(w->num_assigns, 8);
  tri_client_msg m = submit_msg(300);
  m.submit.sampling.n = 4;
  struct stream *s = submit(w, "b", &m);
  ck_assert(s->accepted && w->num_assigns == 8);
  end(w, 0, 1);
  ck_assert_int_eq(w->num_assigns, 9);
  ck_assert_uint_eq(client_id(w, 8), 300);
  const job *wide = job_find(w->core, w->assigns[8].a.job);
  ck_assert_double_ge(wide->part.of->served,
                      wide->part.charged + 3 * 3 * 512 / 16.); /* for the slots that wait for it */
  for (int i = 1; i < 4; i++) {
    end(w, i, 1);
    ck_assert_int_eq(w->num_assigns, 9); /* it needs those slots */
  }
  end(w, 4, 1);
  ck_assert_int_eq(w->num_assigns, 10); /* the others go on beside it */
  ck_assert_uint_eq(client_id(w, 9), 108);
  world_destroy(w);
}
END_TEST

/* Lets jobs end one after the other, each with so many tokens, and counts in which client's the slots go then. */
static void run(struct world *w, int jobs, int tokens_of_a, int tokens_of_others, int count[3]) {
  memset(count, 0, 3 * sizeof *count);
  for (int i = 0; i < jobs; i++) {
    int before = w->num_assigns;
    end(w, i, client_id(w, i) < 200 ? tokens_of_a : tokens_of_others);
    ck_assert_int_eq(w->num_assigns, before + 1);
    count[client_id(w, before) / 100 - 1]++;
  }
}

START_TEST(test_weights) {
  tri_share shares[] = {{.owner.kind = TRI_OWNER_KEY, .owner.bytes = "@heavy", .weight = 3},
                        {.name = "ann", .weight = 2}};
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 160, .shares = shares, .num_shares = 2});
  int count[3];
  flood(w, "x@heavy", "", 100, 30, 100);
  flood(w, "y@light", "", 200, 30, 100);
  start_replica(w, 0, 1, 1);
  run(w, 20, 100, 100, count);
  ck_assert_msg(count[0] == 15 && count[1] == 5, "%d and %d", count[0], count[1]);
  world_destroy(w);
  w = world_create_sharing(&(tri_core_config){.max_queue = 160, .shares = shares, .num_shares = 2});
  flood(w, "x@one", "ann", 100, 30, 100);
  flood(w, "y@one", "bob", 200, 15, 100);
  start_replica(w, 0, 1, 1);
  run(w, 18, 100, 100, count);
  ck_assert_msg(count[0] == 12 && count[1] == 6, "%d and %d", count[0], count[1]);
  world_destroy(w);
}
END_TEST

/* Owners are equal, however many connections and callers they have; so are those among each other. */
START_TEST(test_two_levels) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 160});
  int count[3];
  flood(w, "x@one", "", 100, 20, 100);
  flood(w, "y@two", "ann", 200, 12, 100);
  flood(w, "z@two", "bob", 300, 12, 100);
  start_replica(w, 0, 1, 1);
  run(w, 20, 100, 100, count);
  ck_assert_msg(count[0] == 10 && count[1] == 5 && count[2] == 5, "%d, %d and %d", count[0], count[1], count[2]);
  world_destroy(w);
}
END_TEST

/* Whose answers end early gets more of them. */
START_TEST(test_service_is_what_was_done) {
  struct world *w = world_create(1);
  int count[3];
  flood(w, "a", "", 100, 18, 100); /* 103 tokens each are charged, and 53 are done */
  flood(w, "b", "", 200, 10, 100);
  start_replica(w, 0, 1, 1);
  run(w, 15, 50, 100, count);
  ck_assert_msg(count[0] >= 9 && count[1] >= 4, "%d and %d", count[0], count[1]);
  world_destroy(w);
}
END_TEST

/* Whoever has waited for nothing for long has not saved up service. */
START_TEST(test_nothing_is_saved) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 200});
  int count[3];
  start_replica(w, 0, 1, 1);
  flood(w, "a", "", 100, 40, 100);
  for (int i = 0; i < 16; i++) end(w, i, 100);
  flood(w, "b", "", 200, 40, 100);
  memset(count, 0, sizeof count);
  for (int i = 16; i < 32; i++) {
    end(w, i, 100);
    count[client_id(w, w->num_assigns - 1) / 100 - 1]++;
  }
  ck_assert_msg(abs(count[0] - count[1]) <= 2, "%d and %d", count[0], count[1]);
  world_destroy(w);
}
END_TEST

START_TEST(test_priorities) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 160, .by_priority = true});
  start_replica(w, 0, 1, 1);
  flood(w, "a", "", 100, 10, 100);
  ck_assert_int_eq(w->num_assigns, SLOTS);
  tri_client_msg m = submit_msg(200);
  m.submit.sampling.priority = 1;
  submit(w, "b", &m);
  ck_assert_int_eq(w->num_assigns, SLOTS);
  m.id = 201;
  m.submit.sampling.priority = -1;
  submit(w, "a", &m);
  ck_assert(w->num_assigns == SLOTS + 1 && client_id(w, SLOTS) == 201); /* it takes the place of one that runs */
  end(w, 0, 100);
  ck_assert_int_eq(w->num_assigns, SLOTS + 1); /* which has a slot again */
  end(w, 1, 100);
  ck_assert(w->num_assigns == SLOTS + 2 && client_id(w, SLOTS + 1) == 108);
  world_destroy(w);
}
END_TEST

/* Whatever priorities come, and in whatever order: each job has its place, against counting those before it. */
START_TEST(test_places_by_priority) {
  enum { JOBS = 60 };
  static const char order[] = "descending, ascending, equal, mixed";
  for (int how = 0; how < 4; how++) {
    struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 400, .by_priority = true});
    int64_t priority[JOBS + 1], step[] = {-1, 1, 0};
    int place = 0;
    for (int i = 1; i <= JOBS; i++) {
      tri_client_msg m = submit_msg((uint64_t)i);
      priority[i] = m.submit.sampling.priority = how < 3 ? i * step[how] : i * 37 % 11;
      submit(w, "a", &m);
    }
    const flow *f = TAILQ_FIRST(&w->core->jobs->active)->part.of;
    for (const queue_entry *j = TAILQ_FIRST(&f->queue); j; j = TAILQ_NEXT(j, links), place++) {
      int before = 0;
      for (int i = 1; i <= JOBS; i++)
        before += priority[i] < priority[j->id] || (priority[i] == priority[j->id] && (uint64_t)i < j->id);
      ck_assert_msg(before == place, "%s, number %d: %d jobs before %d", order, how, before, (int)j->id);
    }
    ck_assert_int_eq(place, JOBS);
    world_destroy(w);
  }
}
END_TEST

START_TEST(test_queue_time) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 40, .max_queue_ns = 2 * SECOND});
  tri_client_msg m = submit_msg(1);
  struct stream *early = submit(w, "a", &m);
  tick(w, SECOND);
  m.id = 2;
  struct stream *late = submit(w, "b", &m);
  tick(w, SECOND - MS);
  ck_assert(!early->done);
  tick(w, MS);
  expect_refusal(early, "max_queue_time");
  ck_assert(!late->done);
  start_replica(w, 0, 1, 1);
  tick(w, 3 * SECOND);
  ck_assert(!late->done && w->num_assigns == 1); /* it waits no more */
  world_destroy(w);
}
END_TEST

/* The counts of replicas and flows stay right when a replica is lost: the next one gets the same jobs, and has no
 * others.
 */
START_TEST(test_lost_replica) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  ck_assert_int_eq(flood(w, "a", "", 100, SLOTS + 2, 100), SLOTS + 2);
  ck_assert_int_eq(w->num_assigns, SLOTS);
  tri_replica_msg m = {.op = TRI_REPLICA_FAILED, .failed = {.epoch = 1}};
  send_worker(w, 0, 1, 0, &m);
  start_replica(w, 0, 2, 1);
  ck_assert_int_eq(w->num_assigns, 2 * SLOTS);
  ck_assert_uint_eq(w->core->queue->loads[0].sequences, SLOTS);
  for (int i = SLOTS; i < 2 * SLOTS + 2; i++) {
    tri_replica_token t = {.job = w->assigns[i].a.job, .token = byte_token['a'], .flags = TRI_TOKEN_LAST};
    send_tokens(w, 0, 2, &t, 1);
  }
  ck_assert_int_eq(w->num_assigns, 2 * SLOTS + 2);
  ck_assert(tri_core_is_idle(w->core));
  const replica_load *g = &w->core->queue->loads[0];
  ck_assert(!g->sequences && !g->steps && !g->pending && !g->pending_tokens && !w->core->replicas->list[0].facts.jobs);
  world_destroy(w);
}
END_TEST

/* What a cancelled job had is there again. */
START_TEST(test_cancelled) {
  struct world *w = world_create_sharing(&(tri_core_config){.max_queue = 32});
  start_replica(w, 0, 1, 1);
  flood(w, "a", "", 100, 16, 100);
  struct stream *queued = &w->streams[15], *assigned = &w->streams[3];
  cancel(w, "a", 900, queued);
  cancel(w, "a", 901, assigned);
  ck_assert(w->num_aborts == 1 && queued->done && assigned->done);
  ck_assert_msg(w->num_assigns == SLOTS + 1 && client_id(w, SLOTS) == 108, "%d", w->num_assigns);
  ck_assert_int_eq(flood(w, "a", "", 200, 3, 100), 2);
  world_destroy(w);
}
END_TEST

Suite *suite_core_shares(void) {
  Suite *s = suite_create("core_shares");
  TCase *t = add_case(s, "shares");
  tcase_add_test(t, test_limits_of_jobs);
  tcase_add_test(t, test_wide_job);
  tcase_add_test(t, test_explicit_limit);
  tcase_add_test(t, test_limits_of_keys);
  tcase_add_test(t, test_limits_of_bytes);
  tcase_add_test(t, test_others_come_first);
  tcase_add_test(t, test_reserve);
  tcase_add_test(t, test_ahead);
  tcase_add_test(t, test_prompts);
  tcase_add_test(t, test_weights);
  tcase_add_test(t, test_two_levels);
  tcase_add_test(t, test_service_is_what_was_done);
  tcase_add_test(t, test_nothing_is_saved);
  tcase_add_test(t, test_priorities);
  tcase_add_test(t, test_places_by_priority);
  tcase_add_test(t, test_queue_time);
  tcase_add_test(t, test_lost_replica);
  tcase_add_test(t, test_cancelled);
  return s;
}
