/* The coordinator's core against recorded actions: clients that are slow, gone or ask twice. */
#include "runtime/base/log.h"
#include "tests/unit/core_world.h"

/* Three jobs of two clients; only the bytes within a peer's length tell clients apart. */
START_TEST(test_clients_counted) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
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
  start_group(w, 0, 1, 1);
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
    start_group(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    m.submit.on_disconnect = go_on ? TRI_DISCONNECT_CONTINUE : TRI_DISCONNECT_CANCEL;
    struct stream *s = submit(w, "a", &m);
    s->closed = true;
    token(w, last_job(w), 0, 0, byte_token['a'], 0, 0);
    ck_assert_int_eq(w->num_aborts, !go_on);
    token(w, last_job(w), 0, 1, byte_token['b'], TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
    struct stream *t = attach(w, 2, s, 0);
    ck_assert(t->done && t->existing);
    expect_text(t, 0, go_on ? "ab" : "a");
    ck_assert_int_eq(t->choice[0].reason, go_on ? TRI_FINISH_LENGTH : TRI_FINISH_ABORT);
    tick(w, MS);
    ck_assert(tri_core_is_idle(w->core));
    world_destroy(w);
  }
}
END_TEST

START_TEST(test_same_request_twice) {
  struct world *w = world_create(1);
  start_group(w, 0, 1, 1);
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
  ck_assert(t->done);
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

START_TEST(test_cancel) {
  struct world *w = world_create(1);
  for (int state = 0; state < 4; state++) { /* being tokenized, queued, running, ended */
    if (state == 2) start_group(w, 0, 1, 1);
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
    if (!state) tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, some_ids, 3, 0); /* comes to nobody */
    if (state == 2) token(w, last_job(w), 0, 1, byte_token['b'], 0, 0);
  }
  ck_assert(tri_core_is_idle(w->core));
  /* By the number of an own earlier submit; another peer's number is not that. */
  tri_client_msg m = submit_msg(50);
  struct stream *s = submit(w, "a", &m), *t = open_stream(w, "b", 51);
  tri_client_msg x = {.op = TRI_OP_CANCEL, .id = 51, .cancel = {.target = 50}};
  tri_core_client(w->core, w->now, &t->peer, &x);
  expect_error(t, "not_found", "request_id");
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
  tcase_add_test(t, test_same_request_twice);
  tcase_add_test(t, test_cancel);
  tcase_add_test(t, test_clients_counted);
  return suite;
}
