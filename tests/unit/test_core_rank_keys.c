/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank has a key of its own: whoever has another one, were it that of another rank, can neither come as the rank
 * nor speak for it, nor begin a start of a replica that nobody has told of. */
#include "tests/unit/core_world.h"

Suite *suite_core_rank_keys(void);

static const char no_key_of_it[] = "the key of this connection is not that of the rank";
static const char not_begun[] = "the replica was not started with this epoch";
static const char over[] = "this start of the replica is over: there is a newer one, or it was given up";

/* A connection of its own, opened with the key of a rank. */
static tri_peer thief_with_key_of(uint32_t replica, uint32_t rank) {
  tri_peer p = rank_peer(7, 7, 7);
  p.owner = rank_peer(replica, 1, rank).owner;
  return p;
}

static void say(struct world *w, const tri_peer *from, const tri_replica_msg *m) {
  tri_core_worker(w->core, w->now, from, m);
}

static const char *answer_to(struct world *w, const tri_peer *from, uint32_t replica, uint64_t epoch, uint32_t rank) {
  tri_replica_msg m = registration(replica, epoch, rank, 2);
  w->welcome = false;
  strcpy(w->welcome_text, "no answer");
  say(w, from, &m);
  return w->welcome ? "welcome" : w->welcome_text;
}

static bool serves(struct world *w, uint64_t epoch) {
  static uint64_t id;
  tri_client_msg m = submit_msg(++id);
  struct stream *s = submit(w, "a", &m);
  token_of(w, epoch, last_job(w), 0, 0, byte_token['a'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  return s->done && !s->code[0];
}

/* Another rank's key, of the same replica and of another one; a client's; and a connection whose end nobody knows. */
static int thieves(tri_peer out[4]) {
  out[0] = thief_with_key_of(0, 0);
  out[1] = thief_with_key_of(1, 1);
  out[2] = out[3] = rank_peer(7, 7, 7);
  memset(out[2].owner.bytes, 0xee, sizeof out[2].owner.bytes);
  out[3].owner = rank_peer(0, 1, 1).owner; /* its bytes, but no key */
  out[3].owner.kind = TRI_OWNER_USER;
  return 4;
}

/* What another connection says of a rank counts for nothing, were it that of another rank, and nobody takes a rank's
 * place. */
START_TEST(ranks_speak_for_themselves) {
  struct world *w = world_create(2);
  tri_peer stranger = rank_peer(7, 7, 7), other = rank_peer(0, 1, 0), own = rank_peer(0, 1, 1);
  tri_peer *const others[] = {&stranger, &other};
  stranger.owner = own.owner; /* the rank's own key, over another connection */
  for (uint32_t r = 0; r < 2; r++) ck_assert(send_register(w, 0, 1, r, 2));
  tri_replica_msg ready = {.op = TRI_REPLICA_READY, .ready = {.replica = 0, .epoch = 1}};
  say(w, &stranger, &ready);
  say(w, &own, &ready); /* it is no leader */
  ck_assert_int_eq(w->ready, 0);
  send_ready(w, 0, 1);
  ck_assert_int_eq(w->ready, 1);
  tri_replica_msg failed = {.op = TRI_REPLICA_FAILED, .failed = {.replica = 0, .rank = 1, .epoch = 1}};
  tri_replica_msg health = {.op = TRI_REPLICA_HEALTH, .health = {.replica = 0, .rank = 1, .epoch = 1, .step = 9}};
  tri_replica_msg again = registration(0, 1, 1, 2);
  again.reg.pid = 2; /* another process */
  for (int i = 0; i < 2; i++) {
    say(w, others[i], &failed);
    w->welcome = true;
    say(w, others[i], &again);
    ck_assert(!w->welcome && strstr(w->welcome_text, i ? "is not that of the rank" : "another connection"));
  }
  ck_assert_int_eq(w->lost, 0);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  tri_replica_token t = {.job = last_job(w), .token = byte_token['a']};
  tri_replica_msg tokens = {.op = TRI_REPLICA_TOKENS, .tokens = {.epoch = 1, .num = 1, .tokens = &t}};
  say(w, &own, &tokens);
  ck_assert_uint_eq(s->choice[0].num, 0); /* those are the leader's to say */
  for (int i = 0; i < 60; i++) {          /* the rank is silent, whatever others say */
    send_health(w, 0, 1, 0, (uint64_t)i, false);
    for (int k = 0; k < 2; k++) say(w, others[k], &health);
    tick(w, SECOND / 10);
  }
  ck_assert(w->lost == 1 && strstr(w->lost_reason, "rank 1"));
  world_destroy(w);
}
END_TEST

/* Registers the rank of replica 0 over another connection; returns what it is told. */
static const char *come_again(struct world *w, tri_peer *now, const tri_replica_msg *m) {
  static unsigned connections;
  *now = rank_peer(8, 8, ++connections);
  now->owner = rank_peer(0, 1, m->reg.rank).owner;
  w->welcome = false;
  strcpy(w->welcome_text, "no answer");
  say(w, now, m);
  return w->welcome ? "welcome" : w->welcome_text;
}

/* A rank whose connection is lost makes another one. As long as the first counts as there, it is not heard. */
START_TEST(a_rank_comes_back) {
  struct world *w = world_create(1);
  tri_peer now;
  start_replica(w, 0, 1, 2);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  token_of(w, 1, last_job(w), 0, 0, byte_token['a'], 0, 0);
  tri_replica_msg again = registration(0, 1, 1, 2);
  ck_assert_str_eq(come_again(w, &now, &again), "no answer");
  w->lost_peer = rank_peer(0, 1, 1);
  again.reg.host = (tri_wire_str){"other", 5};
  ck_assert_str_eq(come_again(w, &now, &again), "this rank of the replica has registered over another connection");
  again.reg.host = registration(0, 1, 1, 2).reg.host;
  ck_assert_str_eq(come_again(w, &now, &again), "welcome");
  token_of(w, 1, last_job(w), 0, 1, byte_token['b'], 0, 0); /* the leader goes on meanwhile */
  ck_assert_uint_eq(s->choice[0].num, 2);
  ck_assert_int_eq(w->num_assigns, 1);
  ck_assert(w->ready == 1 && !w->lost);
  tri_replica_msg failed = {.op = TRI_REPLICA_FAILED, .failed = {.replica = 0, .rank = 1, .epoch = 1}};
  tri_core_worker(w->core, w->now, &w->lost_peer, &failed); /* what is left of the first counts for nothing */
  ck_assert(!w->lost);
  say(w, &now, &failed);
  ck_assert_int_eq(w->lost, 1);
  world_destroy(w);
}
END_TEST

/* A leader's jobs go with its connection, wait until it is ready again, and nobody has died under them. */
START_TEST(a_leader_comes_back) {
  struct world *w = world_create(1);
  tri_peer now;
  start_replica(w, 0, 1, 2);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  uint64_t job = last_job(w);
  tri_replica_token t = {.job = job, .token = byte_token['a']};
  tri_replica_msg tokens = {.op = TRI_REPLICA_TOKENS, .tokens = {.epoch = 1, .num = 1, .tokens = &t}};
  send_worker(w, 0, 1, 0, &tokens);
  tri_replica_msg again = registration(0, 1, 0, 2),
                  ready = {.op = TRI_REPLICA_READY, .ready = {.replica = 0, .epoch = 1}};
  for (int i = 0; i < 4; i++) { /* more often than a job may have deaths */
    tri_peer before = i ? now : rank_peer(0, 1, 0);
    w->lost_peer = before;
    ck_assert_str_eq(come_again(w, &now, &again), "welcome");
    tick(w, 100 * MS);
    ck_assert_int_eq(w->num_assigns, i + 1);
    t = (tri_replica_token){.job = job, .offset = (uint64_t)i + 1, .token = byte_token['x']};
    say(w, &before, &tokens); /* too late, and too early */
    say(w, &now, &tokens);
    ck_assert_uint_eq(s->choice[0].num, (size_t)i + 1);
    say(w, &now, &ready);
    ck_assert_int_eq(w->num_assigns, i + 2);
    const struct assigned *a = &w->assigns[i + 1];
    ck_assert(tri_peer_equal(&a->to, &now) && a->a.num_sampled == (size_t)i + 1);
    t.token = byte_token['b'];
    say(w, &now, &tokens);
    ck_assert_uint_eq(s->choice[0].num, (size_t)i + 2);
  }
  t = (tri_replica_token){
      .job = job, .offset = 5, .token = byte_token['c'], .flags = TRI_TOKEN_LAST, .reason = TRI_FINISH_LENGTH};
  say(w, &now, &tokens);
  expect_text(s, 0, "abbbbc");
  ck_assert(s->done && !s->code[0] && !w->lost);
  world_destroy(w);
}
END_TEST

START_TEST(nobody_comes_as_another_rank) {
  struct world *w = world_create(2);
  tri_peer other[4];
  int n = thieves(other);
  for (int i = 0; i < n; i++) ck_assert_str_eq(answer_to(w, &other[i], 0, 1, 1), no_key_of_it);
  ck_assert_int_eq(w->came, 0);
  start_replica(w, 0, 1, 2); /* the real ones find their places free */
  ck_assert_int_eq(w->ready, 1);
  ck_assert_int_eq(w->came, 2);
  for (int i = 0; i < n; i++) ck_assert_str_eq(answer_to(w, &other[i], 0, 1, 1), no_key_of_it);
  ck_assert(serves(w, 1) && !w->lost);
  world_destroy(w);
}
END_TEST

/* Nor for another replica, whose ranks have not come, nor under a newer epoch, which it would take for itself. */
START_TEST(nobody_begins_another_start) {
  struct world *w = world_create(2);
  start_replica(w, 0, 1, 2);
  tri_peer thief = thief_with_key_of(0, 1), leader = thief_with_key_of(0, 0);
  ck_assert_str_eq(answer_to(w, &thief, 1, 1, 0), no_key_of_it);
  ck_assert_str_eq(answer_to(w, &thief, 1, 1, 1), no_key_of_it);
  ck_assert_str_eq(answer_to(w, &thief, 0, 2, 0), no_key_of_it);
  ck_assert_str_eq(answer_to(w, &leader, 1, 9, 0), no_key_of_it);
  ck_assert_str_eq(answer_to(w, &thief, 0, 2, 1), not_begun); /* its own rank of a start that nobody has begun */
  ck_assert_str_eq(answer_to(w, &leader, 0, UINT64_MAX, 0), not_begun);
  ck_assert_str_eq(answer_to(w, &thief, 0, 0, 1), over);
  ck_assert_str_eq(answer_to(w, &thief, 0, 1, 2), "there is no such replica or rank in this cluster");
  ck_assert_str_eq(answer_to(w, &thief, 2, 1, 0), "there is no such replica or rank in this cluster");
  ck_assert(serves(w, 1) && !w->lost);
  tri_core_replica_expected(w->core, 0, 2); /* the one that is over has no say any more, nor has who does not come */
  ck_assert_str_eq(answer_to(w, &leader, 0, 3, 0), not_begun);
  start_replica(w, 0, 2, 2);
  ck_assert(serves(w, 2));
  start_replica(w, 1, 1, 2);
  ck_assert_int_eq(w->ready, 3);
  world_destroy(w);
}
END_TEST

/* A replica that is lost is started anew by whoever does that, and by no rank of it. */
START_TEST(a_lost_replica_waits_for_its_start) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_replica_msg failed = {.op = TRI_REPLICA_FAILED, .failed = {.replica = 0, .rank = 0, .epoch = 1}};
  send_worker(w, 0, 1, 0, &failed);
  ck_assert_int_eq(w->lost, 1);
  tri_peer own = thief_with_key_of(0, 0);
  ck_assert_str_eq(answer_to(w, &own, 0, 2, 0), not_begun);
  start_replica(w, 0, 2, 1);
  ck_assert(serves(w, 2));
  world_destroy(w);
}
END_TEST

/* The first start counts until it is lost, where nobody tells of starts. */
START_TEST(without_a_supervisor) {
  struct world *w = world_create_alone(1);
  ck_assert(send_register(w, 0, 4, 0, 2));
  tri_peer thief = thief_with_key_of(0, 1);
  ck_assert_str_eq(answer_to(w, &thief, 0, 5, 1), not_begun);
  ck_assert(send_register(w, 0, 4, 1, 2));
  send_ready(w, 0, 4);
  ck_assert(serves(w, 4));
  tri_replica_msg failed = {.op = TRI_REPLICA_FAILED, .failed = {.replica = 0, .rank = 1, .epoch = 4}};
  send_worker(w, 0, 4, 1, &failed);
  ck_assert(!send_register(w, 0, 4, 0, 2));
  ck_assert(send_register(w, 0, 5, 0, 2));
  world_destroy(w);
}
END_TEST

/* One key does not use up the epochs of its replica, be it in front of the first start or behind one that was lost, and
 * who starts it again is told which epoch it had. */
START_TEST(epochs_are_not_used_up) {
  static const uint64_t most = UINT64_C(1) << 32;
  struct world *w = world_create_alone(1);
  tri_peer thief = thief_with_key_of(0, 1);
  ck_assert_ptr_nonnull(strstr(answer_to(w, &thief, 0, UINT64_MAX, 1), "more than 2^32 after"));
  ck_assert_ptr_nonnull(strstr(answer_to(w, &thief, 0, most + 1, 1), "more than 2^32 after"));
  for (uint64_t epoch = most; epoch <= 3 * most; epoch += most) { /* as far as it gets, with each start lost */
    ck_assert_str_eq(answer_to(w, &thief, 0, epoch, 1), "welcome");
    tri_replica_msg failed = {.op = TRI_REPLICA_FAILED, .failed = {.replica = 0, .rank = 1, .epoch = epoch}};
    say(w, &thief, &failed);
  }
  ck_assert_ptr_nonnull(strstr(answer_to(w, &thief, 0, UINT64_MAX, 1), "; the last one had --epoch 12884901888"));
  ck_assert(!send_register(w, 0, 1, 0, 2));
  ck_assert_ptr_nonnull(strstr(w->welcome_text, "; the last one had --epoch 12884901888"));
  start_replica(w, 0, 3 * most + 1, 2);
  ck_assert(serves(w, 3 * most + 1));
  world_destroy(w);
}
END_TEST

/* The name of a connection that has ended may be taken by another one, which has another key. */
START_TEST(a_name_is_no_key) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 2);
  tri_client_msg m = submit_msg(100);
  struct stream *s = submit(w, "a", &m);
  tri_peer leader = rank_peer(0, 1, 0), rank = rank_peer(0, 1, 1);
  leader.owner = rank.owner;
  rank.owner = rank_peer(0, 1, 0).owner;
  tri_replica_token t = {.job = last_job(w), .token = byte_token['x'], .flags = TRI_TOKEN_LAST};
  tri_replica_msg as_leader[] = {
      {.op = TRI_REPLICA_TOKENS, .tokens = {.epoch = 1, .num = 1, .tokens = &t}},
      {.op = TRI_REPLICA_REFUSED, .refused = {.job = t.job, .epoch = 1, .code = {"no_capacity", 11}}},
      {.op = TRI_REPLICA_FAILED, .failed = {.replica = 0, .rank = 0, .epoch = 1}},
  };
  tri_replica_msg as_rank[] = {
      {.op = TRI_REPLICA_FAILED, .failed = {.replica = 0, .rank = 1, .epoch = 1}},
      {.op = TRI_REPLICA_HEALTH, .health = {.replica = 0, .rank = 1, .epoch = 1, .step = 77}},
  };
  for (size_t i = 0; i < sizeof as_leader / sizeof *as_leader; i++) say(w, &leader, &as_leader[i]);
  for (size_t i = 0; i < sizeof as_rank / sizeof *as_rank; i++) say(w, &rank, &as_rank[i]);
  ck_assert(!w->lost && !s->done && !s->choice[0].num);
  ck_assert_str_eq(answer_to(w, &rank, 0, 1, 1), no_key_of_it);
  token(w, t.job, 0, 0, byte_token['a'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  expect_text(s, 0, "a");
  tri_client_msg ask = {.op = TRI_OP_STATUS, .id = 900};
  submit(w, "b", &ask);
  ck_assert_uint_eq(w->ranks[1].step, 0);
  world_destroy(w);
}
END_TEST

Suite *suite_core_rank_keys(void) {
  Suite *s = suite_create("core_rank_keys");
  TCase *t = add_case(s, "rank_keys");
  tcase_add_test(t, ranks_speak_for_themselves);
  tcase_add_test(t, a_rank_comes_back);
  tcase_add_test(t, a_leader_comes_back);
  tcase_add_test(t, nobody_comes_as_another_rank);
  tcase_add_test(t, nobody_begins_another_start);
  tcase_add_test(t, a_lost_replica_waits_for_its_start);
  tcase_add_test(t, without_a_supervisor);
  tcase_add_test(t, epochs_are_not_used_up);
  tcase_add_test(t, a_name_is_no_key);
  return s;
}
