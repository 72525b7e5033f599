/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core against recorded actions: jobs whose replica is lost run again from what has come. */
#include "tests/unit/core_replay_kit.h"

Suite *suite_core_replay(void);

static tri_cluster_status *status_of(struct world *w) {
  static tri_cluster_status status;
  static uint64_t id = 5000;
  w->status = &status;
  tri_client_msg ask = {.op = TRI_OP_STATUS, .id = ++id};
  tri_core_client(w->core, w->now, &open_stream(w, "status", id)->peer, &ask);
  return &status;
}

START_TEST(a_stream_goes_on) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  set_stop(&m, "END");
  struct stream *s = submit(w, "a", &m);
  const struct assigned first = w->assigns[0];
  ck_assert(!first.a.num_sampled_counts && !first.a.num_sampled && !first.a.num_scored);
  say(w, 1, first.a.job, 0, 0, "some E", false);
  lose(w, 0, 1);
  ck_assert(!s->done);
  expect_text(s, 0, "some ");
  tick(w, 100 * MS);
  start_replica(w, 0, 2, 1);
  const struct assigned *again = last_assign(w);
  ck_assert(went_to(again, 0, 2));
  ck_assert(again->a.job == first.a.job && again->a.seed == first.a.seed && again->a.num_token_ids == 3);
  ck_assert(!memcmp(again->ids, some_ids, sizeof some_ids));
  ck_assert(again->a.num_sampled_counts == 1 && again->counts[0] == 6 && again->a.num_sampled == 6);
  for (int i = 0; i < 6; i++) ck_assert_uint_eq(again->sampled[i], byte_token[(uint8_t) "some E"[i]]);
  /* What the former epoch still says comes to nobody, and the stop string is found across the loss. */
  say(w, 1, first.a.job, 0, 6, "some Exx", false);
  say(w, 2, first.a.job, 0, 6, "some END", false);
  ck_assert(s->done && !s->code[0]);
  expect_text(s, 0, "some ");
  ck_assert_uint_eq(s->choice[0].num, 8);
  ck_assert_int_eq(s->choice[0].reason, TRI_FINISH_STOP);
  ck_assert_int_eq(s->choice[0].stop_string, 0);
  ck_assert_int_eq(w->num_aborts, 1); /* the new replica is told to stop */
  ck_assert(tri_core_is_idle(w->core));
  world_destroy(w);
}
END_TEST

/* Choices have tokens of their own, in any number, and those that have ended stay so, by a stop string too. */
START_TEST(choices_go_on) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.n = 4;
  set_stop(&m, "#");
  struct stream *s = submit(w, "a", &m);
  uint64_t job = last_job(w);
  say(w, 1, job, 0, 0, "ab", false);
  say(w, 1, job, 1, 0, "whole", true);
  say(w, 1, job, 2, 0, "cut#", false);
  restart(w, 1);
  const struct assigned *again = last_assign(w);
  ck_assert_uint_eq(again->a.num_sampled_counts, 4);
  ck_assert(again->counts[0] == 2 && again->counts[1] == TRI_SAMPLED_ENDED && again->counts[2] == TRI_SAMPLED_ENDED &&
            again->counts[3] == 0);
  ck_assert_uint_eq(again->a.num_sampled, 2);
  say(w, 2, job, 0, 2, "abc", true);
  ck_assert(!s->done);
  restart(w, 2); /* once more */
  again = last_assign(w);
  ck_assert(again->counts[0] == TRI_SAMPLED_ENDED && again->counts[3] == 0 && !again->a.num_sampled);
  say(w, 3, job, 3, 0, "d", true);
  ck_assert(s->done && !s->code[0]);
  static const char *const want[] = {"abc", "whole", "cut", "d"};
  for (int i = 0; i < 4; i++) expect_text(s, i, want[i]);
  ck_assert_int_eq(w->num_aborts, 0); /* the replica that went on after the stop string is gone */
  world_destroy(w);
}
END_TEST

/* Log probabilities come once each, those of the prompt and those of the answer. */
START_TEST(logprobs_go_on) {
  for (int scored = 0; scored < 3; scored++) {
    struct world *w = world_create(1);
    start_replica(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    m.submit.sampling.logprobs = 2;
    m.submit.sampling.prompt_logprobs = 2;
    struct stream *s = submit(w, "a", &m);
    uint64_t job = last_job(w);
    for (uint64_t i = 1; i <= (uint64_t)scored; i++) draw(w, 1, job, 0, i, some_ids[i], TRI_TOKEN_PROMPT);
    if (scored == 2) say(w, 1, job, 0, 0, "ab", false);
    restart(w, 1);
    ck_assert_uint_eq(last_assign(w)->a.num_scored, (uint64_t)scored + 1);
    ck_assert_uint_eq(last_assign(w)->a.num_sampled, scored == 2 ? 2 : 0);
    for (uint64_t i = (uint64_t)scored + 1; i < 3; i++) draw(w, 2, job, 0, i, some_ids[i], TRI_TOKEN_PROMPT);
    say(w, 2, job, 0, scored == 2 ? 2 : 0, "abc", true);
    ck_assert(s->done && !s->code[0]);
    expect_text(s, 0, "abc");
    ck_assert_uint_eq(s->num_scored, 3);
    ck_assert_int_eq(s->choice[0].num_logprobs, 3);
    ck_assert_int_eq(s->choice[0].num_alternatives, 6);
    world_destroy(w);
  }
}
END_TEST

/* A search begins anew; of an answer of which a part has come that part is not sent twice. */
START_TEST(beams_begin_anew) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.num_beams = 3;
  m.submit.sampling.n = 2;
  struct stream *s = submit(w, "a", &m);
  uint64_t job = last_job(w);
  say(w, 1, job, 0, 0, "first", true);
  say(w, 1, job, 1, 0, "sec", false);
  restart(w, 1);
  ck_assert(!last_assign(w)->a.num_sampled && !last_assign(w)->a.num_sampled_counts);
  say(w, 2, job, 0, 0, "first", true);
  say(w, 2, job, 1, 0, "second", true);
  ck_assert(s->done && !s->code[0]);
  expect_text(s, 0, "first");
  expect_text(s, 1, "second");
  m.id = 2;
  s = submit(w, "a", &m); /* one that does not bring the same */
  say(w, 2, last_job(w), 0, 0, "fir", false);
  restart(w, 2);
  say(w, 3, last_job(w), 0, 0, "fix", false);
  expect_error(s, "internal", "");
  world_destroy(w);
}
END_TEST

/* The lists of a request are there for the next replica, and its salt. */
START_TEST(lists_go_along) {
  static const struct tri_wire_bias bias = {.id = 7, .bias = 2};
  static const uint32_t allowed[] = {20, 21, 22};
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  tri_sampling *p = &m.submit.sampling;
  p->logit_bias = &bias;
  p->num_logit_bias = 1;
  p->allowed_token_ids = allowed;
  p->num_allowed_token_ids = 3;
  p->min_tokens = 4;
  p->max_tokens = 9;
  p->frequency_penalty = 1.5;
  m.submit.cache_salt = (tri_wire_str){"grain", 5};
  submit(w, "a", &m);
  draw(w, 1, last_job(w), 0, 0, 20, 0);
  restart(w, 1);
  const struct assigned *a = last_assign(w);
  ck_assert(a->a.sampling.num_logit_bias == 1 && a->a.sampling.logit_bias[0].id == 7);
  ck_assert(a->a.sampling.num_allowed_token_ids == 3 && a->a.sampling.allowed_token_ids[2] == 22);
  ck_assert(a->a.sampling.min_tokens == 4 && a->a.sampling.max_tokens == 9 && a->a.sampling.frequency_penalty == 1.5);
  ck_assert_str_eq(a->salt, "grain");
  world_destroy(w);
}
END_TEST

/* A choice that its tokens have ended, which its replica could not say any more, ends without another. */
START_TEST(an_end_without_a_token) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  say(w, 1, last_job(w), 0, 0, "ab", false);
  restart(w, 1);
  tri_replica_token t = {
      .job = last_job(w), .offset = 2, .flags = TRI_TOKEN_LAST | TRI_TOKEN_NONE, .reason = TRI_FINISH_LENGTH};
  send_tokens(w, 0, 2, &t, 1);
  ck_assert(s->done && !s->code[0]);
  ck_assert_int_eq(s->choice[0].reason, TRI_FINISH_LENGTH);
  expect_text(s, 0, "ab");
  world_destroy(w);
}
END_TEST

/* A search whose answer ends where it has come to, as the next replica has less room. */
START_TEST(an_end_that_comes_again) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.num_beams = 2;
  struct stream *s = submit(w, "a", &m);
  say(w, 1, last_job(w), 0, 0, "abc", false);
  restart(w, 1);
  say(w, 2, last_job(w), 0, 0, "abc", true);
  ck_assert(s->done && !s->code[0]);
  expect_text(s, 0, "abc");
  world_destroy(w);
}
END_TEST

/* More tokens than a message has room for: the replica draws them again, and none is sent twice. */
START_TEST(more_than_a_message) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.n = 2;
  struct stream *s = submit(w, "a", &m);
  uint64_t job_id = last_job(w);
  say(w, 1, job_id, 0, 0, "abcdef", false);
  say(w, 1, job_id, 1, 0, "x", false);
  job *j = job_find(w->core, job_id);
  j->num_prompt = (TRI_WIRE_MAX_MESSAGE - (16 << 10)) / 4 - 4; /* as if: it leaves room for four ids */
  uint32_t counts[TRI_WIRE_MAX_N];
  tri_replica_assign a = {0};
  ck_assert_int_eq(job_fill_sampled(w->core, j, counts, &a), TRI_OK);
  ck_assert(a.num_sampled_counts == 2 && counts[0] == 0 && counts[1] == 1 && a.num_sampled == 1);
  j->num_prompt = 3;
  restart(w, 1);
  say(w, 2, job_id, 0, 0, "abcdefg", true);
  say(w, 2, job_id, 1, 1, "xy", true);
  ck_assert(s->done && !s->code[0]);
  expect_text(s, 0, "abcdefg");
  expect_text(s, 1, "xy");
  world_destroy(w);
}
END_TEST

/* What is told at the end: preemptions of all replicas, cached tokens and the wait of the first. */
START_TEST(figures) {
  static char stats[STATS_BYTES];
  struct world *w = world_create(1);
  w->stats = stats;
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  tri_replica_token t = {.job = last_job(w), .token = byte_token['a'], .flags = TRI_TOKEN_PREEMPTED | TRI_TOKEN_WAITED};
  t.flags |= TRI_TOKEN_CACHED;
  t.preemptions = 2;
  t.cached = 2;
  t.waited_ns = 5 * MS;
  tick(w, 20 * MS);
  send_tokens(w, 0, 1, &t, 1);
  tick(w, 20 * MS);
  ck_assert_uint_eq(status_of(w)->requests_replayed, 0);
  lose(w, 0, 1);
  ck_assert_uint_eq(status_of(w)->requests_replayed, 0); /* it waits */
  ck_assert_uint_eq(status_of(w)->running, 1);
  tick(w, 20 * MS);
  start_replica(w, 0, 2, 1);
  t.offset = 1;
  t.preemptions = 1;
  t.cached = 1;
  t.flags |= TRI_TOKEN_LAST;
  t.reason = TRI_FINISH_LENGTH;
  tick(w, 20 * MS);
  send_tokens(w, 0, 2, &t, 1);
  ck_assert(s->done && s->preemptions == 3 && s->cached_tokens == 2);
  ck_assert_double_eq_tol(s->queue_ms, 5, 1e-9);
  ck_assert_uint_eq(status_of(w)->requests_replayed, 1);
  ck_assert_uint_eq(status_of(w)->prompt_tokens, 3);
  ck_assert_uint_eq(status_of(w)->generation_tokens, 2);
  tri_client_msg ask = {.op = TRI_OP_STATS, .id = 77};
  tri_core_client(w->core, w->now, &open_stream(w, "stats", 77)->peer, &ask);
  ck_assert(strstr(stats, "\ntrireme:request_replays_total 1\n") != NULL);
  world_destroy(w);
}
END_TEST

Suite *suite_core_replay(void) {
  Suite *s = suite_create("core_replay");
  TCase *t = add_case(s, "streams");
  tcase_add_test(t, a_stream_goes_on);
  tcase_add_test(t, choices_go_on);
  tcase_add_test(t, logprobs_go_on);
  tcase_add_test(t, beams_begin_anew);
  tcase_add_test(t, lists_go_along);
  tcase_add_test(t, an_end_without_a_token);
  tcase_add_test(t, an_end_that_comes_again);
  tcase_add_test(t, more_than_a_message);
  tcase_add_test(t, figures);
  return s;
}
