/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core against recorded actions: replicas that drain, are lost, stall, or may not join. */
#include "base/log.h"
#include "tests/unit/core_world.h"

Suite *suite_core_replicas(void);

/* ---- draining ---- */

START_TEST(test_drain) {
  struct world *w = world_create(2);
  start_replica(w, 0, 1, 2);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  tri_core_drain(w->core);
  m.id = 2;
  expect_error(submit(w, "a", &m), "draining", "");
  ck_assert_int_eq(w->drains, 0); /* work is left */
  start_replica(w, 1, 1, 1);      /* late, but it might be needed */
  token(w, last_job(w), 0, 0, byte_token['a'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  ck_assert(s->done);
  tick(w, 100 * MS);
  ck_assert_int_eq(w->drains, 3); /* both ranks of one replica, and the other's */
  ck_assert(tri_core_is_idle(w->core));
  tick(w, 100 * MS);
  ck_assert_int_eq(w->drains, 3);
  start_replica(w, 1, 2, 1); /* too late */
  ck_assert_int_eq(w->drains, 4);
  world_destroy(w);
}
END_TEST

START_TEST(test_abandon) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  struct stream *s[3];
  for (int i = 0; i < 3; i++) {
    tri_client_msg m = submit_msg((uint64_t)i);
    if (i == 2) m.submit.prompt = (tri_wire_str){"x", 1};
    s[i] = submit(w, "a", &m);
  }
  tri_core_abandon(w->core, w->now, "the power goes");
  for (int i = 0; i < 3; i++) {
    expect_error(s[i], "peer_lost", "");
    ck_assert_str_eq(s[i]->message, "the power goes");
  }
  ck_assert(tri_core_is_idle(w->core));
  /* The replica is told of those that it runs, and only then to leave; the third is still being tokenized. */
  ck_assert_int_eq(w->num_aborts, 2);
  for (int i = 0; i < 2; i++) ck_assert(w->aborts[i] == w->assigns[0].a.job || w->aborts[i] == w->assigns[1].a.job);
  ck_assert_uint_ne(w->aborts[0], w->aborts[1]);
  ck_assert_int_eq(w->drains, 0);
  tick(w, 100 * MS);
  ck_assert_int_eq(w->drains, 1);
  world_destroy(w);
}
END_TEST

/* ---- replicas ---- */

START_TEST(test_replica_lost) {
  struct world *w = world_create(2);
  start_replica(w, 0, 1, 2);
  struct stream *s[5];
  for (int i = 0; i < 5; i++) {
    tri_client_msg m = submit_msg((uint64_t)i);
    if (i == 1) m.submit.stream = false;
    if (i == 3) start_replica(w, 1, 1, 1); /* the last two go to the second replica */
    s[i] = submit(w, "a", &m);
  }
  token(w, w->assigns[0].a.job, 0, 0, byte_token['a'], 0, 0);
  tri_replica_msg m = {.op = TRI_REPLICA_FAILED,
                       .failed = {.replica = 0, .rank = 1, .epoch = 1, .message = {"no\ndisk", 7}}};
  send_worker(w, 0, 1, 1, &m);
  ck_assert_int_eq(w->lost, 1);
  ck_assert(strstr(w->lost_reason, "rank 1") && strstr(w->lost_reason, "no disk"));
  /* The other replica goes on with them, the oldest first. */
  tri_peer second = rank_peer(1, 1, 0);
  for (int i = 0; i < 5; i++) ck_assert(!s[i]->done);
  ck_assert_int_eq(w->num_assigns, 8);
  for (int i = 0; i < 3; i++) {
    ck_assert_uint_eq(w->assigns[5 + i].a.job, w->assigns[i].a.job);
    ck_assert(tri_peer_equal(&w->assigns[5 + i].to, &second));
  }
  expect_text(s[0], 0, "a");
  /* What the dead still say reaches nobody, and a second notice of death changes nothing. */
  token(w, w->assigns[0].a.job, 0, 1, byte_token['b'], 0, 0);
  send_worker(w, 0, 1, 0, &m);
  ck_assert_int_eq(w->lost, 1);
  tri_client_msg next = submit_msg(9);
  submit(w, "a", &next);
  ck_assert(tri_peer_equal(&w->assigns[8].to, &second));
  expect_text(s[0], 0, "a");
  world_destroy(w);
}
END_TEST

START_TEST(test_stale_epoch) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *old = submit(w, "a", &m);
  uint64_t old_job = last_job(w);
  start_replica(w, 0, 2, 1); /* started again before anybody noticed the death */
  ck_assert_uint_eq(w->assigns[1].a.epoch, 2);
  ck_assert_uint_eq(w->assigns[1].a.job, old_job);
  cancel(w, "a", 3, old);
  m.id = 2;
  struct stream *s = submit(w, "a", &m);
  ck_assert_uint_eq(w->assigns[2].a.epoch, 2);
  tri_replica_token t = {.job = last_job(w), .token = byte_token['x']};
  send_tokens(w, 0, 1, &t, 1); /* the old leader's peer is unknown */
  tri_replica_msg stale = {.op = TRI_REPLICA_TOKENS, .tokens = {.epoch = 1, .num = 1, .tokens = &t}};
  send_worker(w, 0, 2, 0, &stale); /* the new one's, with an old epoch */
  t.job = old_job;
  send_tokens(w, 0, 2, &t, 1);
  expect_text(s, 0, "");
  t.job = last_job(w);
  send_tokens(w, 0, 2, &t, 1);
  expect_text(s, 0, "x");
  tri_replica_msg failed = {.op = TRI_REPLICA_FAILED, .failed = {.replica = 0, .epoch = 1}};
  send_worker(w, 0, 1, 0, &failed);
  send_ready(w, 0, 1);
  ck_assert_int_eq(w->lost, 0);
  ck_assert(!s->done);
  world_destroy(w);
}
END_TEST

/* A token that does not follow the one before is a fault of the replica's, not a gap in the text. */
START_TEST(test_wrong_offset) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['a'], 0, 0);
  token(w, last_job(w), 7, 1, byte_token['a'], 0, 0); /* no such choice */
  token(w, 12345, 0, 0, byte_token['a'], 0, 0);       /* no such job */
  ck_assert(!s->done);
  token(w, last_job(w), 0, 2, byte_token['b'], 0, 0);
  expect_error(s, "internal", "");
  ck_assert_int_eq(w->num_aborts, 1);
  world_destroy(w);
}
END_TEST

START_TEST(test_balance) {
  struct world *w = world_create(3);
  for (uint32_t g = 0; g < 3; g++) start_replica(w, g, 1, 1);
  int count[3] = {0};
  for (uint64_t i = 0; i < 18; i++) {
    tri_client_msg m = submit_msg(i);
    submit(w, "a", &m);
    for (uint32_t g = 0; g < 3; g++) {
      tri_peer p = rank_peer(g, 1, 0);
      count[g] += tri_peer_equal(&w->assigns[i].to, &p);
    }
  }
  for (int g = 0; g < 3; g++) ck_assert_int_eq(count[g], 6);
  /* The one that finishes gets the next. */
  tri_replica_token t = {.job = w->assigns[1].a.job, .token = 5, .flags = TRI_TOKEN_LAST};
  tri_peer whose = w->assigns[1].to;
  tri_replica_msg m = {.op = TRI_REPLICA_TOKENS, .tokens = {.epoch = 1, .num = 1, .tokens = &t}};
  tri_core_worker(w->core, w->now, &whose, &m);
  tri_client_msg next = submit_msg(99);
  submit(w, "a", &next);
  ck_assert(tri_peer_equal(&w->assigns[18].to, &whose));
  world_destroy(w);
}
END_TEST

/* A busy replica, its ranks reporting each second; from 3 s on rank 1 is silent, or nothing moves any more. */
static int64_t time_of_loss(struct world *w, bool silent, bool busy) {
  start_replica(w, 0, 1, 2);
  int64_t start = w->now;
  for (int i = 0; i < 400 && !w->lost; i++) {
    if (i % 10 == 0)
      for (uint32_t r = 0; r < 2; r++) {
        uint64_t step = i < 30 || silent ? (uint64_t)i : 30;
        if (!(silent && r && i > 30)) send_health(w, 0, 1, r, step, busy);
      }
    tick(w, 100 * MS);
  }
  return w->now - start;
}

START_TEST(test_silent_rank) {
  struct world *w = world_create(1);
  int64_t t = time_of_loss(w, true, true);
  ck_assert_msg(t > 7 * SECOND && t <= 7 * SECOND + 200 * MS, "noticed after %.1f s", (double)t / 1e9);
  ck_assert(strstr(w->lost_reason, "rank 1") && strstr(w->lost_reason, "silent") && strstr(w->lost_reason, "node"));
  ck_assert_int_ge(w->leases, 2 * 7);
  int leases = w->leases;
  tick(w, 2 * SECOND); /* the lost get no lease */
  ck_assert_int_eq(w->leases, leases);
  world_destroy(w);
}
END_TEST

START_TEST(test_stalled_replica) {
  struct world *w = world_create(1);
  int64_t t = time_of_loss(w, false, true);
  ck_assert_msg(t >= 13 * SECOND && t <= 13 * SECOND + 200 * MS, "noticed after %.1f s", (double)t / 1e9);
  ck_assert(strstr(w->lost_reason, "no progress") && strstr(w->lost_reason, "step 30"));
  world_destroy(w);
  w = world_create(1); /* whose layers take long */
  w->layer_seconds = 2;
  t = time_of_loss(w, false, true);
  ck_assert_msg(t >= 23 * SECOND && t <= 23 * SECOND + 200 * MS, "noticed after %.1f s", (double)t / 1e9);
  world_destroy(w);
  w = world_create(1); /* an idle replica may stand still */
  time_of_loss(w, false, false);
  ck_assert_int_eq(w->lost, 0);
  world_destroy(w);
}
END_TEST

/* A replica that never says that it is busy, since its step thread hangs, has a job from 2 s on. */
static int64_t time_of_idle_loss(struct world *w, bool cancels, int64_t measures_until) {
  start_replica(w, 0, 1, 2);
  int64_t start = w->now;
  for (int i = 0; i < 600 && !w->lost; i++) {
    for (uint32_t r = 0; i % 10 == 0 && r < 2; r++) send_health(w, 0, 1, r, 0, false);
    if (i == 19 && measures_until) {
      tri_client_msg ask = {.op = TRI_OP_ROOFLINES, .id = 900};
      submit(w, "floors", &ask);
    }
    if (measures_until && w->now - start == measures_until)
      for (uint32_t r = 0; r < 2; r++) {
        tri_replica_msg m = {.op = TRI_REPLICA_ROOFLINES, .rooflines = {.replica = 0, .rank = r, .epoch = 1}};
        send_worker(w, 0, 1, r, &m);
      }
    tri_client_msg m = submit_msg((uint64_t)i);
    struct stream *s = i == 20 ? submit(w, "a", &m) : NULL;
    if (s && cancels) cancel(w, "a", 1000, s);
    tick(w, 100 * MS);
  }
  return w->now - start;
}

START_TEST(test_stalled_while_idle) {
  struct world *w = world_create(1);
  int64_t t = time_of_idle_loss(w, false, 0);
  ck_assert_msg(w->lost && t >= 12 * SECOND && t <= 12 * SECOND + 200 * MS, "noticed after %.1f s", (double)t / 1e9);
  ck_assert(strstr(w->lost_reason, "no progress"));
  ck_assert(!w->streams[0].done); /* it waits for the replica to come back */
  start_replica(w, 0, 2, 2);
  ck_assert_uint_eq(w->assigns[1].a.job, w->assigns[0].a.job);
  world_destroy(w);
  w = world_create(1); /* whose layers take long */
  w->layer_seconds = 2;
  t = time_of_idle_loss(w, false, 0);
  ck_assert_msg(w->lost && t >= 22 * SECOND && t <= 22 * SECOND + 200 * MS, "noticed after %.1f s", (double)t / 1e9);
  world_destroy(w);
  w = world_create(1); /* nothing waits any more */
  time_of_idle_loss(w, true, 0);
  ck_assert_int_eq(w->lost, 0);
  world_destroy(w);
  w = world_create(1); /* the job waits for the floors, of which the ranks find out until 25 s */
  t = time_of_idle_loss(w, false, 25 * SECOND);
  ck_assert_msg(w->lost && t >= 35 * SECOND - 100 * MS && t <= 35 * SECOND + 200 * MS, "noticed after %.1f s",
                (double)t / 1e9);
  world_destroy(w);
}
END_TEST

static bool begin_start(struct world *w, uint64_t epoch) {
  tri_core_replica_expected(w->core, 0, epoch);
  return send_register(w, 0, epoch, 0, 2);
}

START_TEST(test_refused_registrations) {
  struct world *w = world_create(2);
  ck_assert(!send_register(w, 2, 1, 0, 1));
  ck_assert(strstr(w->welcome_text, "no such replica"));
  ck_assert(!send_register(w, 0, 1, 0, 0));
  ck_assert(!send_register(w, 0, 1, 2, 2));
  ck_assert(!send_register(w, 0, 1, 0, 100000));
  ck_assert(begin_start(w, 5));
  ck_assert(!send_register(w, 0, 5, 1, 3));
  ck_assert(strstr(w->welcome_text, "disagree"));
  ck_assert(!send_register(w, 0, 4, 1, 2));
  ck_assert(strstr(w->welcome_text, "newer"));
  ck_assert(send_register(w, 0, 5, 1, 2));
  /* Given up: the same start may not come back, the next one may. */
  tri_replica_msg m = {.op = TRI_REPLICA_FAILED, .failed = {.replica = 0, .epoch = 5}};
  send_worker(w, 0, 5, 0, &m);
  ck_assert_int_eq(w->lost, 1);
  ck_assert(!send_register(w, 0, 5, 0, 2));
  ck_assert(begin_start(w, 6));
  world_destroy(w);
}
END_TEST

/* Groups must agree about the model: one that does not is never used. */
START_TEST(test_other_model) {
  struct world *w = world_create(2);
  tri_replica_msg m = registration(1, 1, 0, 1);
  m.reg.model_hash = 5;
  start_replica(w, 0, 1, 1);
  send_worker(w, 1, 1, 0, &m);
  send_ready(w, 1, 1);
  ck_assert_int_eq(w->lost, 1);
  ck_assert(strstr(w->lost_reason, "another model"));
  world_destroy(w);
}
END_TEST

/* Jobs are counted by whom they were submitted for, while they are under way. */
START_TEST(test_callers) {
  static tri_cluster_status status;
  static const char *const names[] = {"ann", "bob", "ann", ""};
  struct world *w = world_create(1);
  w->status = &status;
  for (uint64_t i = 0; i < 4; i++) {
    tri_client_msg m = submit_msg(i + 1);
    m.submit.caller = (tri_wire_str){names[i], strlen(names[i])};
    tri_core_client(w->core, w->now, &open_stream(w, "m", i + 1)->peer, &m);
  }
  tri_client_msg ask = {.op = TRI_OP_STATUS, .id = 9};
  tri_core_client(w->core, w->now, &open_stream(w, "m", 9)->peer, &ask);
  ck_assert_uint_eq(status.waiting, 4);
  ck_assert_uint_eq(status.num_callers, 2);
  ck_assert(!memcmp(status.callers[0].name.s, "ann", 4) && status.callers[0].waiting == 2);
  ck_assert(!memcmp(status.callers[1].name.s, "bob", 4) && status.callers[1].waiting == 1);
  world_destroy(w);
}
END_TEST

/* A rank that has told nothing yet is in no layer: 0 is one. */
START_TEST(test_layer_before_reports) {
  static tri_cluster_status status;
  struct world *w = world_create(1);
  w->status = &status;
  send_register(w, 0, 1, 1, 2);
  tri_client_msg m = {.op = TRI_OP_STATUS, .id = 1};
  tri_core_client(w->core, w->now, &open_stream(w, "m", 1)->peer, &m);
  ck_assert_uint_eq(status.num_ranks, 1);
  ck_assert_uint_eq(status.ranks[0].block, UINT32_MAX);
  world_destroy(w);
}
END_TEST

/* A device's KV blocks may be larger than a host's. */
START_TEST(test_other_block_size) {
  struct world *w = world_create(2);
  tri_replica_msg m = registration(1, 1, 0, 1);
  m.reg.block_size *= 4;
  start_replica(w, 0, 1, 1);
  send_worker(w, 1, 1, 0, &m);
  send_ready(w, 1, 1);
  ck_assert_int_eq(w->lost, 0);
  ck_assert_int_eq(w->ready, 2);
  world_destroy(w);
}
END_TEST

static void own_register(struct world *w, uint64_t epoch, uint32_t tp, uint32_t pp, uint64_t hash) {
  tri_replica_msg m = {.op = TRI_REPLICA_REGISTER,
                       .reg = {.world = tp * pp,
                               .tp = tp,
                               .pp = pp,
                               .dp = 1,
                               .ep = 1,
                               .epoch = epoch,
                               .model_hash = hash,
                               .max_model_len = hash ? 1 : 0, /* known once the model is loaded */
                               .block_size = 1}};
  w->welcome = false;
  tri_core_replica_expected(w->core, 0, epoch);
  send_worker(w, 0, epoch, 0, &m);
}

/* Nor may workers have another model than the coordinator, whose tokenizer would make no sense of what they say. */
START_TEST(test_other_model_than_own) {
  struct world *w = world_create_for(1, 99, 0, 0);
  own_register(w, 1, 1, 1, 0);
  ck_assert(w->welcome);
  own_register(w, 1, 1, 1, 5);
  ck_assert(!w->welcome);
  ck_assert_int_eq(w->lost, 1);
  ck_assert(strstr(w->welcome_text, "is another than the coordinator's, \"toy\""));
  send_ready(w, 0, 1);
  ck_assert_int_eq(w->ready, 0);
  own_register(w, 2, 1, 1, 99);
  ck_assert(w->welcome);
  send_ready(w, 0, 2);
  ck_assert_int_eq(w->ready, 1);
  world_destroy(w);
}
END_TEST

START_TEST(test_other_layout_than_own) {
  struct world *w = world_create_for(1, 0, 2, 1);
  own_register(w, 1, 1, 2, 0);
  ck_assert(!w->welcome);
  ck_assert_int_eq(w->lost, 1);
  ck_assert_str_eq(
      w->welcome_text,
      "the workers were started with -tp 1 -pp 2 -dp 1 -ep 1, the coordinator with -tp 2 -pp 1 -dp 1 -ep 1");
  own_register(w, 2, 2, 1, 0);
  ck_assert(w->welcome);
  world_destroy(w);
}
END_TEST

/* Ranks show the shard that they belong to, and what its leader says of it. */
START_TEST(test_dp_ranks) {
  static const uint32_t dp_ranks[] = {5, 1, 7, 0};
  struct world *w = world_create(1);
  tri_client_msg ask = {.op = TRI_OP_STATUS, .id = 1};
  struct stream *s = open_stream(w, "s", 1);
  for (uint32_t r = 0; r < 8; r++) {
    tri_replica_msg m = registration(0, 1, r, 8);
    m.reg.tp = 2;
    m.reg.pp = 2;
    m.reg.dp = 2;
    m.reg.ep = 4;
    send_worker(w, 0, 1, r, &m);
  }
  send_ready(w, 0, 1);
  tri_replica_msg h = {.op = TRI_REPLICA_HEALTH,
                       .health = {.epoch = 1, .running = 12, .waiting = 3, .dp_ranks = dp_ranks, .num_dp_ranks = 4}};
  send_worker(w, 0, 1, 0, &h);
  tri_core_client(w->core, w->now, &s->peer, &ask);
  for (uint32_t r = 0; r < 8; r++) {
    const tri_rank_status *k = &w->ranks[r];
    ck_assert_uint_eq(k->dp_rank, r / 2 % 2);
    ck_assert_uint_eq(k->shard_running, k->dp_rank ? 7 : 5);
    ck_assert_uint_eq(k->shard_waiting, k->dp_rank ? 0 : 1);
  }
  h.health.num_dp_ranks = 2; /* of a replica with other data-parallel ranks */
  h.health.dp_ranks = (const uint32_t[]){9, 9};
  send_worker(w, 0, 1, 0, &h);
  tri_core_client(w->core, w->now, &s->peer, &ask);
  ck_assert_uint_eq(w->ranks[0].shard_running, 5);
  world_destroy(w);
}
END_TEST

Suite *suite_core_replicas(void) {
  Suite *suite = suite_create("core_groups");
  tri_log_setup(TRI_LOG_ERROR, "core");
  TCase *t = add_case(suite, "groups");
  tcase_add_test(t, test_drain);
  tcase_add_test(t, test_abandon);
  tcase_add_test(t, test_replica_lost);
  tcase_add_test(t, test_stale_epoch);
  tcase_add_test(t, test_wrong_offset);
  tcase_add_test(t, test_balance);
  tcase_add_test(t, test_silent_rank);
  tcase_add_test(t, test_stalled_replica);
  tcase_add_test(t, test_stalled_while_idle);
  tcase_add_test(t, test_refused_registrations);
  tcase_add_test(t, test_other_model);
  tcase_add_test(t, test_layer_before_reports);
  tcase_add_test(t, test_callers);
  tcase_add_test(t, test_other_block_size);
  tcase_add_test(t, test_other_model_than_own);
  tcase_add_test(t, test_other_layout_than_own);
  tcase_add_test(t, test_dp_ranks);
  return suite;
}
