/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core against recorded actions: clients that are slow, gone or ask twice. */
#include "base/log.h"
#include "tests/unit/core_world.h"

/* Three jobs of two clients; only the bytes within a peer's length tell clients apart. */
START_TEST(test_clients_counted) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *a = submit(w, "one", &m);
  m.id = 2;
  struct stream *b = submit(w, "one", &m);
  submit(w, "two", &m);
  ck_assert(tri_peer_equal(&a->peer, &b->peer));
  ck_assert_int_ne(memcmp(&a->peer, &b->peer, sizeof a->peer), 0);
  tri_peer other = a->peer;
  other.len--;
  ck_assert(!tri_peer_equal(&a->peer, &other));
  other = a->peer;
  other.bytes[other.len - 1]++;
  ck_assert(!tri_peer_equal(&a->peer, &other));
  struct stream *s = open_stream(w, "three", 9);
  tri_client_msg ask = {.op = TRI_OP_STATUS, .id = 9};
  tri_core_client(w->core, w->now, &s->peer, &ask);
  ck_assert_uint_eq(w->clients, 2);
  world_destroy(w);
}
END_TEST

Suite *suite_core_clients(void);

/* ---- clients that are slow, gone or ask twice ---- */

START_TEST(test_slow_client_merges) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  s->again = 1000000;
  bytes(w, last_job(w), 0, "abcdefghijklmnopqrstuvwxyz");
  ck_assert(!tri_core_is_idle(w->core)); /* the end is undelivered */
  s->again = 0;
  tick(w, MS);
  expect_text(s, 0, "abcdefghijklmnopqrstuvwxyz");
  ck_assert(s->done);
  ck_assert_int_eq(s->messages, 3); /* accepted, one of tokens, done */
  ck_assert(tri_core_is_idle(w->core));
  world_destroy(w);
}
END_TEST

START_TEST(test_closed_client) {
  for (int go_on = 0; go_on < 2; go_on++) {
    struct world *w = world_create(1);
    start_replica(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    m.submit.on_disconnect = go_on ? TRI_DISCONNECT_CONTINUE : TRI_DISCONNECT_CANCEL;
    struct stream *s = submit(w, "a", &m);
    s->closed = true;
    token(w, last_job(w), 0, 0, byte_token['a'], 0, 0);
    ck_assert_int_eq(w->num_aborts, !go_on);
    token(w, last_job(w), 0, 1, byte_token['b'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
    struct stream *t = attach(w, 2, s, 0);
    if (go_on) {
      ck_assert(t->done && t->existing);
      expect_text(t, 0, "ab");
      ck_assert_int_eq(t->choice[0].reason, TRI_FINISH_LENGTH);
    } else { /* what nobody was there for any more is unknown, and may be asked for anew under its name */
      expect_error(t, "not_found", "request_id");
      m.id = 3;
      m.submit.request_id = s->request_id;
      m.submit.has_request_id = true;
      t = submit(w, "a", &m);
      ck_assert(t->accepted && !t->existing && !t->done);
      token(w, last_job(w), 0, 0, byte_token['c'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
      expect_text(t, 0, "c");
    }
    tick(w, MS);
    ck_assert(tri_core_is_idle(w->core));
    world_destroy(w);
  }
}
END_TEST

static void pass(struct world *w, bool replica, int ticks, int64_t ns) {
  for (int i = 0; i < ticks; i++) {
    if (replica) send_health(w, 0, 1, 0, 1, false);
    tick(w, ns);
  }
}

/* A client that has gone while there is nothing to tell it is found all the same: while its text is tokenized, while
 * its job waits, and while one runs that says all at its end. One that lets its jobs go on is not looked for. */
START_TEST(test_silent_client) {
  enum { TOKENIZED, QUEUED, RUNS, GOES_ON, CASES };
  for (int k = 0; k < CASES; k++) {
    struct world *w = world_create(1);
    if (k >= RUNS) start_replica(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    m.submit.stream = false;
    if (k == GOES_ON) m.submit.on_disconnect = TRI_DISCONNECT_CONTINUE;
    if (k == TOKENIZED) {
      m.submit.token_ids = NULL;
      m.submit.num_token_ids = 0;
      m.submit.prompt = (tri_wire_str){"ab", 2};
    }
    struct stream *s = submit(w, "a", &m);
    pass(w, k >= RUNS, 3, SECOND);
    int looks = w->looks;
    ck_assert_int_eq(looks > 0, k != GOES_ON);
    pass(w, k >= RUNS, 10, SECOND / 10);
    ck_assert_int_le(w->looks, looks + 1); /* about one in a second */
    ck_assert(!w->stopped_job && !w->num_aborts);
    s->closed = true;
    for (int i = 0; i < 40; i++) {
      pass(w, k >= RUNS, 1, SECOND / 10);
      if (k == RUNS && !w->num_aborts) token(w, last_job(w), 0, (uint64_t)i, byte_token['a'], 0, 0); /* kept back */
    }
    ck_assert_int_eq(w->stopped_job != 0, k == TOKENIZED);
    ck_assert_int_eq(w->num_aborts, k == RUNS);
    ck_assert_int_eq(tri_core_is_idle(w->core), k != GOES_ON);
    world_destroy(w);
  }
}
END_TEST

/* Where the client's connection may have ended it is looked for at once, however long it has been silent, and also
 * where connections end all the time. */
START_TEST(test_ended_connection) {
  for (int all_the_time = 0; all_the_time < 2; all_the_time++) {
    struct world *w = world_create(1);
    tri_client_msg m = submit_msg(1);
    m.submit.stream = false;
    struct stream *s = submit(w, "a", &m);
    pass(w, false, 60, SECOND);
    tri_connections others = {{0}}, own = {{0}};
    tri_connections_add(&others, s->peer.connection + 1);
    tri_connections_add(&own, s->peer.connection);
    int looks = w->looks;
    tri_core_connections_ended(w->core, w->now, &others);
    pass(w, false, 2, SECOND / 10);
    ck_assert(w->looks == looks && !tri_core_is_idle(w->core));
    s->closed = true;
    for (int i = 0; i < 3; i++) {
      if (!i || all_the_time) tri_core_connections_ended(w->core, w->now, &own);
      pass(w, false, 1, SECOND / 10);
    }
    ck_assert(tri_core_is_idle(w->core));
    world_destroy(w);
  }
}
END_TEST

/* Looks stay few: a client that is there and does not read has room for 64 frames. Clients whose jobs lie between each
 * other's are looked for no more often than others. */
START_TEST(test_looks_are_few) {
  struct world *w = world_create(1);
  for (uint64_t id = 1; id <= 8; id++) {
    tri_client_msg m = submit_msg(id);
    m.submit.stream = false;
    submit(w, id % 2 ? "a" : "b", &m);
  }
  pass(w, false, 240, SECOND / 2);
  ck_assert_int_ge(w->looks, 2 * 6);
  ck_assert_int_le(w->looks, 2 * 10);
  world_destroy(w);
}
END_TEST

/* A second request under the id of one that is under way would mix two streams: whatever it asks for. */
START_TEST(test_same_id_twice) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1), other = submit_msg(2);
  struct stream *s = submit(w, "a", &m), *t = submit(w, "a", &other), *u = submit(w, "b", &m);
  tri_client_msg attach = {.op = TRI_OP_ATTACH, .id = 1, .attach = {.request_id = t->request_id}};
  const tri_client_msg *again[] = {&m, &attach};
  for (int i = 0; i < 2; i++) {
    tri_core_client(w->core, w->now, &s->peer, again[i]);
    expect_error(s, "invalid_argument", "id");
    s->done = false;
  }
  ck_assert(!u->done && !t->done && w->num_assigns == 3);
  token(w, w->assigns[0].a.job, 0, 0, byte_token['a'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  ck_assert(s->done);
  expect_text(s, 0, "a");
  *s = (struct stream){.peer = s->peer, .id = 1};
  tri_core_client(w->core, w->now, &s->peer, &m); /* the id is free again */
  ck_assert(s->accepted == 1 && w->num_assigns == 4);
  attach.attach.request_id = s->request_id;
  tri_core_client(w->core, w->now, &s->peer, &attach); /* the job itself */
  ck_assert(s->existing && !s->done);
  world_destroy(w);
}
END_TEST

START_TEST(test_same_request_twice) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.request_id.bytes[3] = 9;
  m.submit.has_request_id = true;
  struct stream *s = submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['a'], 0, 0);
  m.id = 2;
  struct stream *t = submit(w, "b", &m);
  ck_assert(t->existing && !s->existing);
  ck_assert_mem_eq(&t->request_id, &s->request_id, sizeof t->request_id);
  token(w, last_job(w), 0, 1, byte_token['b'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  expect_text(t, 0, "ab");
  expect_error(s, "taken_over", "request_id"); /* the first is told, with what it has */
  expect_text(s, 0, "a");
  ck_assert(t->done && !t->code[0]);
  ck_assert_int_eq(w->num_assigns, 1);
  m.id = 3;
  t = submit(w, "c", &m); /* after the end */
  expect_text(t, 0, "ab");
  ck_assert(t->done && t->existing);
  ck_assert_int_eq(w->num_assigns, 1);
  /* In a minute it is forgotten, and the same request is a new one. */
  tick(w, 61 * SECOND);
  struct stream *u = open_stream(w, "d", 4);
  tri_client_msg a = {.op = TRI_OP_ATTACH, .id = 4, .attach = {t->request_id, 0}};
  tri_core_client(w->core, w->now, &u->peer, &a);
  expect_error(u, "not_found", "request_id");
  world_destroy(w);
}
END_TEST

/* Another prompt or other sampling under a name that is taken is no repetition. */
START_TEST(test_same_name_other_content) {
  static const uint32_t other_ids[] = {10, 11, 13};
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.request_id.bytes[3] = 9;
  m.submit.has_request_id = true;
  struct stream *s = submit(w, "a", &m);
  struct stream *refused[4];
  char stats[STATS_BYTES] = "";
  for (uint64_t i = 0; i < 4; i++) {
    tri_client_msg x = m;
    x.id = 10 + i;
    if (i == 0) x.submit.token_ids = other_ids;
    if (i == 1) {
      x.submit.token_ids = NULL;
      x.submit.prompt = (tri_wire_str){"x", 1};
    }
    if (i == 2) x.submit.sampling.temperature = 0.5;
    if (i == 2) x.submit.sampling.has_temperature = true;
    if (i == 3) set_stop(&x, "y");
    refused[i] = submit(w, "a", &x);
    expect_error(refused[i], "invalid_argument", "request_id");
    ck_assert(strstr(refused[i]->message, i < 2 ? "prompt is another" : "sampling"));
  }
  ck_assert_int_eq(w->num_assigns, 1);
  bytes(w, last_job(w), 0, "ab"); /* the first goes on as if nothing had been */
  expect_text(s, 0, "ab");
  ck_assert(s->done && !s->code[0]);
  m.id = 20;
  ck_assert(submit(w, "a", &m)->existing);
  w->stats = stats; /* such requests are wrong themselves: nothing here has failed */
  submit(w, "a", &(tri_client_msg){.op = TRI_OP_STATS, .id = 21});
  ck_assert_ptr_nonnull(strstr(stats, "\ntrireme:request_failure_total 0\n"));
  ck_assert_ptr_nonnull(strstr(stats, "\ntrireme:request_invalid_total{reason=\"invalid_argument\"} 4\n"));
  w->stats = NULL;
  world_destroy(w);
}
END_TEST

/* A connection that the stream was taken from hears of it, however slowly it reads; one that asks again under the
 * number that it has does not. */
START_TEST(test_taken_over) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  s->again = 10;
  struct stream *t = attach_as(w, "b", 2, s);
  ck_assert(t->existing);
  expect_error(s, "taken_over", "request_id");
  struct stream *u = attach_as(w, "b", 3, s); /* another stream of the same connection */
  expect_error(t, "taken_over", "request_id");
  tri_client_msg x = {.op = TRI_OP_ATTACH, .id = 3, .attach = {s->request_id, 0}};
  u->accepted = 0;
  tri_core_client(w->core, w->now, &u->peer, &x);
  ck_assert(!u->done);
  bytes(w, last_job(w), 0, "ab");
  ck_assert(u->done && !u->code[0]);
  attach_as(w, "c", 4, s); /* behind the last word there is nothing to be told */
  world_destroy(w);
}
END_TEST

/* Jobs of another owner are as good as not there. */
START_TEST(test_owners) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.request_id.bytes[3] = 9;
  m.submit.has_request_id = true;
  struct stream *s = submit(w, "a@x", &m);
  uint64_t job = last_job(w);
  static const char *const others[] = {"b@y", "b"};
  for (uint64_t i = 0; i < 2; i++) {
    expect_error(attach_as(w, others[i], 10 + i, s), "not_found", "request_id");
    expect_error(cancel(w, others[i], 20 + i, s), "not_found", "request_id");
  }
  tri_client_msg by_number = {.op = TRI_OP_CANCEL, .id = 30, .cancel = {.target = 1, .has_target = true}};
  struct stream *t = open_stream(w, "a@x", 30);
  t->peer.owner = (tri_owner){.kind = TRI_OWNER_KEY, .bytes = "@y"}; /* who has the address of one that is gone */
  tri_core_client(w->core, w->now, &t->peer, &by_number);
  expect_error(t, "not_found", "target");
  ck_assert_int_eq(w->num_aborts, 0);
  m.id = 40;
  t = submit(w, "b@y", &m); /* of the same name, and a job of its own */
  ck_assert(!t->existing);
  ck_assert_int_eq(w->num_assigns, 2);
  bytes(w, last_job(w), 0, "theirs");
  bytes(w, job, 0, "mine");
  expect_text(s, 0, "mine");
  expect_text(t, 0, "theirs");
  expect_text(attach_as(w, "c@x", 50, s), 0, "mine"); /* another connection of the owner */
  expect_text(attach_as(w, "c@y", 51, t), 0, "theirs");
  world_destroy(w);
}
END_TEST

/* Names are drawn by the system, each for itself; seeds only where nobody chose one. */
START_TEST(test_names_are_drawn) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  for (uint8_t i = 0; i < 3; i++) {
    tri_client_msg m = submit_msg(i);
    uint8_t first = w->randoms;
    const struct stream *s = submit(w, "a", &m);
    for (int k = 0; k < 16; k++) ck_assert_uint_eq(s->request_id.bytes[k], (uint8_t)(first + k));
    ck_assert_uint_eq((uint8_t)(w->randoms - first), 16); /* this world's seeds come from --seed */
  }
  world_destroy(w);
}
END_TEST

START_TEST(test_cancel) {
  struct world *w = world_create(1);
  for (int state = 0; state < 4; state++) { /* being tokenized, queued, running, ended */
    if (state == 2) start_replica(w, 0, 1, 1);
    tri_client_msg m = submit_msg(10 + (uint64_t)state);
    if (!state) m.submit.prompt = (tri_wire_str){"x", 1};
    m.submit.request_id.bytes[0] = (uint8_t)(state + 1);
    m.submit.has_request_id = true;
    struct stream *s = submit(w, "a", &m);
    s->request_id = m.submit.request_id;
    if (state >= 2) token(w, last_job(w), 0, 0, byte_token['a'], state == 3 ? TRI_TOKEN_LAST : 0, TRI_FINISH_LENGTH);
    struct stream *t = cancel(w, "b", 20 + (uint64_t)state, s);
    ck_assert_int_eq(t->accepted, 1);
    ck_assert(s->done && !s->code[0]);
    ck_assert_int_eq(s->choice[0].reason, state == 3 ? TRI_FINISH_LENGTH : TRI_FINISH_ABORT);
    ck_assert(!s->timed_out);
    ck_assert_int_eq(w->num_aborts, state >= 2);
    ck_assert_uint_eq(w->stopped_job, w->tokenize_job);
    if (!state) tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, some_ids, 3, 0); /* comes to nobody */
    if (state == 2) token(w, last_job(w), 0, 1, byte_token['b'], 0, 0);
  }
  ck_assert(tri_core_is_idle(w->core));
  /* By the number of an own earlier submit; another peer's number is not that. */
  tri_client_msg m = submit_msg(50);
  struct stream *s = submit(w, "a", &m), *t = open_stream(w, "b", 51);
  tri_client_msg x = {.op = TRI_OP_CANCEL, .id = 51, .cancel = {.target = 50}};
  tri_core_client(w->core, w->now, &t->peer, &x);
  expect_error(t, "not_found", "target");
  ck_assert(!s->done);
  x.id = 52;
  t = open_stream(w, "a", 52);
  tri_core_client(w->core, w->now, &t->peer, &x);
  ck_assert(s->done);
  world_destroy(w);
}
END_TEST

Suite *suite_core_clients(void) {
  Suite *suite = suite_create("core_clients");
  tri_log_setup(TRI_LOG_ERROR, "core");
  TCase *t = add_case(suite, "clients");
  tcase_add_test(t, test_slow_client_merges);
  tcase_add_test(t, test_closed_client);
  tcase_add_test(t, test_silent_client);
  tcase_add_test(t, test_ended_connection);
  tcase_add_test(t, test_looks_are_few);
  tcase_add_test(t, test_same_id_twice);
  tcase_add_test(t, test_same_request_twice);
  tcase_add_test(t, test_same_name_other_content);
  tcase_add_test(t, test_taken_over);
  tcase_add_test(t, test_owners);
  tcase_add_test(t, test_names_are_drawn);
  tcase_add_test(t, test_cancel);
  tcase_add_test(t, test_clients_counted);
  return suite;
}
