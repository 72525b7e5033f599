/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core against recorded actions: the plain course of jobs, and what their clients read. */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "tests/unit/core_world.h"

Suite *suite_core_jobs(void);

/* ---- the plain course ---- */

START_TEST(test_submit) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 2);
  ck_assert_int_eq(w->ready, 1);
  tri_client_msg m = submit_msg(5);
  m.submit.sampling.max_tokens = 9;
  m.submit.sampling.deadline_ms = 1500;
  struct stream *s = submit(w, "a", &m);
  ck_assert_int_eq(s->accepted, 1);
  ck_assert(!s->existing);
  ck_assert_uint_eq(s->prompt_tokens, 3);
  ck_assert_int_eq(w->num_assigns, 1);
  const struct assigned *a = &w->assigns[0];
  tri_peer leader = rank_peer(0, 1, 0);
  ck_assert(tri_peer_equal(&a->to, &leader));
  ck_assert_uint_eq(a->a.epoch, 1);
  ck_assert_int_eq(a->a.remaining_ms, 1500);
  ck_assert_int_eq(a->a.sampling.max_tokens, 9);
  ck_assert_mem_eq(a->ids, some_ids, sizeof some_ids);
  ck_assert(!tri_core_is_idle(w->core));
  bytes(w, a->a.job, 0, "h\xc3\xa9!"); /* the first byte of a character alone shows nothing */
  expect_text(s, 0, "h\xc3\xa9!");
  ck_assert(s->done);
  ck_assert_uint_eq(s->choice[0].len_after[1], 1);
  ck_assert_uint_eq(s->choice[0].len_after[2], 1);
  ck_assert_uint_eq(s->choice[0].len_after[3], 3);
  ck_assert_uint_eq(s->completion_tokens, 4);
  ck_assert_int_eq(s->choice[0].reason, TRI_FINISH_LENGTH);
  ck_assert_int_eq(s->choice[0].num_logprobs, 0);
  ck_assert_int_eq(w->num_aborts, 0);
  ck_assert(tri_core_is_idle(w->core));
  ck_assert_uint_eq(tri_core_generated_tokens(w->core), 4);
  world_destroy(w);
}
END_TEST

/* A prompt that is tokenized at once needs no event of its own; so do its refusals. */
START_TEST(test_prompt_tokenized_at_once) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  w->tokenize_now = true;
  w->now_ids = some_ids;
  w->num_now_ids = 3;
  tri_client_msg m = submit_msg(1);
  m.submit.prompt = (tri_wire_str){"Hello", 5};
  struct stream *s = submit(w, "a", &m);
  ck_assert(s->accepted == 1 && s->prompt_tokens == 3);
  ck_assert_int_eq(w->num_assigns, 1);
  ck_assert_uint_eq(w->assigns[0].a.num_token_ids, 3);
  m.id = 2, w->num_now_ids = 0;
  expect_error(submit(w, "a", &m), "invalid_argument", "prompt");
  m.id = 3, w->now_ids = NULL, w->tokenize_now_status = TRI_TOO_LARGE;
  expect_error(submit(w, "a", &m), "no_capacity", "prompt");
  world_destroy(w);
}
END_TEST

/* An offset counts the tokens of one choice: a job with several refuses it rather than repeat the others' in silence.
 */
START_TEST(test_attach_several_choices) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.n = 2;
  struct stream *s = submit(w, "a", &m);
  bytes(w, last_job(w), 0, "ab");
  bytes(w, last_job(w), 1, "xy");
  ck_assert(s->done);
  expect_error(attach(w, 2, s, 1), "invalid_argument", "offset");
  struct stream *t = attach(w, 3, s, 0);
  expect_text(t, 0, "ab");
  expect_text(t, 1, "xy");
  ck_assert(t->done && !t->code[0]);
  world_destroy(w);
}
END_TEST

START_TEST(test_text_prompt) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.prompt = (tri_wire_str){"Hello", 5};
  m.submit.sampling.echo = true;
  m.submit.sampling.n = 2;
  struct stream *s = submit(w, "a", &m);
  ck_assert_int_eq(s->messages, 0); /* the prompt's length is not known yet */
  ck_assert_int_eq(w->tokenizes, 1);
  ck_assert_mem_eq(w->tokenize_text, "Hello", 5);
  ck_assert(w->tokenize_special);
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, some_ids, 3, 0);
  expect_text(s, 0, "Hello");
  expect_text(s, 1, "Hello");
  bytes(w, last_job(w), 1, "xy");
  bytes(w, last_job(w), 0, "z");
  expect_text(s, 0, "Helloz");
  expect_text(s, 1, "Helloxy");
  ck_assert(s->done);
  /* From the first token on the prompt has been read. */
  s = attach(w, 2, s, 1);
  expect_text(s, 0, "Helloz");
  /* Bytes that are not UTF-8 come back as they were read: a client may take texts for such. */
  m.submit.prompt = (tri_wire_str){"a\xff"
                                   "b",
                                   3},
  m.submit.sampling.n = 1, m.id = 2;
  s = submit(w, "b", &m);
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, some_ids, 3, 0);
  expect_text(s, 0,
              "a\xef\xbf\xbd"
              "b");
  m.submit.prompt = (tri_wire_str){"Hello", 5}, m.submit.sampling.n = 2;
  m.id = 3;
  m.submit.add_special_tokens = false;
  submit(w, "a", &m);
  ck_assert(w->tokenizes == 3 && !w->tokenize_special);
  world_destroy(w);
}
END_TEST

/* Token ids are repeated as their text, as far as they have one. */
START_TEST(test_echo_of_ids) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  w->model.vocab_size += 10; /* padded */
  uint32_t ids[] = {byte_token['H'], byte_token[0xc3], byte_token[0xa9], (uint32_t)w->model.vocab_size - 1,
                    byte_token['!']};
  for (int stream = 0; stream < 2; stream++) {
    tri_client_msg m = submit_msg(1 + (uint64_t)stream);
    m.submit.token_ids = ids;
    m.submit.num_token_ids = 5;
    m.submit.sampling.echo = true;
    m.submit.sampling.n = 2;
    m.submit.stream = stream;
    struct stream *s = submit(w, "a", &m);
    expect_text(s, 1, stream ? "H\xc3\xa9!" : "");
    bytes(w, last_job(w), 0, "a");
    bytes(w, last_job(w), 1, "b");
    expect_text(s, 0, "H\xc3\xa9!a");
    expect_text(s, 1, "H\xc3\xa9!b");
    ck_assert(s->done && s->prompt_tokens == 5 && s->completion_tokens == 2);
  }
  world_destroy(w);
}
END_TEST

/* The end of a prompt that is too long counts, and is what an echo shows. */
START_TEST(test_truncate) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  uint64_t fits = MODEL_LEN;
  tri_client_msg m = submit_msg(1);
  m.submit.prompt = (tri_wire_str){"Hello", 5};
  m.submit.sampling.truncate = 3;
  struct stream *s = submit(w, "a", &m);
  ck_assert(w->tokenize_to == 3 && w->tokenize_end && w->tokenize_special);
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_TOO_LARGE, NULL, 0, 0);
  expect_error(s, "out_of_range", "truncate");
  m.id = 2;
  m.submit.sampling.truncate = -1;
  m.submit.sampling.has_max_tokens = false;
  submit(w, "a", &m);
  ck_assert_uint_eq(w->tokenize_to, fits - 1);
  m.id = 3;
  m.submit.sampling.has_max_tokens = true;
  m.submit.sampling.max_tokens = 7;
  submit(w, "a", &m);
  ck_assert_uint_eq(w->tokenize_to, fits - 7);

  uint32_t ids[] = {byte_token['a'], byte_token['b'], byte_token['c'], byte_token['d']};
  m = submit_msg(4);
  m.submit.token_ids = ids;
  m.submit.num_token_ids = 4;
  m.submit.sampling.truncate = 2;
  m.submit.sampling.echo = true;
  s = submit(w, "a", &m);
  bytes(w, last_job(w), 0, "x");
  expect_text(s, 0, "cdx");
  ck_assert_uint_eq(s->prompt_tokens, 2);
  world_destroy(w);
}
END_TEST

/* A full queue at any message of the echo neither loses nor repeats any of it. */
START_TEST(test_echo_slow) {
  for (int pass = 0; pass < 6; pass++)
    for (int again = 1; again < 4; again++) {
      struct world *w = world_create(1);
      start_replica(w, 0, 1, 1);
      tri_client_msg m = submit_msg(1);
      m.submit.prompt = (tri_wire_str){"Hi", 2};
      m.submit.sampling.echo = true;
      m.submit.sampling.n = 3;
      struct stream *s = submit(w, "a", &m);
      s->pass = pass, s->again = again;
      tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, some_ids, 3, 0);
      for (uint32_t i = 0; i < 3; i++) bytes(w, last_job(w), i, "ab");
      for (int i = 0; i < 4; i++) tick(w, MS);
      for (int i = 0; i < 3; i++) expect_text(s, i, "Hiab");
      ck_assert(s->done);
      world_destroy(w);
    }
}
END_TEST

START_TEST(test_not_streamed) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  for (int logprobs = -1; logprobs <= 2; logprobs += 3) {
    tri_client_msg m = submit_msg(10 + (uint64_t)logprobs);
    m.submit.stream = false;
    m.submit.prompt = (tri_wire_str){"Say: ", 5};
    m.submit.sampling.echo = true;
    m.submit.sampling.n = 2;
    m.submit.sampling.logprobs = logprobs;
    struct stream *s = submit(w, "a", &m);
    tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, some_ids, 3, 0);
    bytes(w, last_job(w), 0, "one");
    ck_assert_int_eq(s->messages, 1); /* accepted */
    bytes(w, last_job(w), 1, "two");
    ck_assert(s->done);
    expect_text(s, 0, "Say: one");
    expect_text(s, 1, "Say: two");
    ck_assert_int_eq(s->choice[1].num_logprobs, logprobs < 0 ? 0 : 3); /* logprobs have no place in `done` */
  }
  world_destroy(w);
}
END_TEST

/* A worker's token has no lists of alternatives where none were asked for. */
START_TEST(test_no_alternatives) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.logprobs = 0;
  struct stream *s = submit(w, "a", &m);
  tri_replica_token t = {.job = last_job(w),
                         .token = byte_token['a'],
                         .flags = TRI_TOKEN_LOGPROB | TRI_TOKEN_LAST,
                         .logprob = -(float)byte_token['a']};
  send_tokens(w, 0, 1, &t, 1);
  ck_assert(s->done);
  ck_assert_int_eq(s->choice[0].num_logprobs, 1);
  ck_assert_int_eq(s->choice[0].num_alternatives, 0);
  world_destroy(w);
}
END_TEST

static void send_score(struct world *w, uint64_t job, uint64_t offset, uint32_t id) {
  tri_replica_token t = {
      .job = job, .token = id, .offset = offset, .flags = TRI_TOKEN_PROMPT | TRI_TOKEN_LOGPROB, .logprob = -(float)id};
  send_tokens(w, 0, 1, &t, 1);
}

/* The prompt's come in front of the answer, streamed or not, also for a client that comes back; with max_tokens 0 there
 * is none. */
START_TEST(test_prompt_logprobs) {
  for (int how = 0; how < 3; how++) {
    struct world *w = world_create(1);
    start_replica(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    m.submit.stream = how != 1;
    m.submit.sampling.prompt_logprobs = 0;
    m.submit.sampling.max_tokens = how == 2 ? 0 : 16;
    m.submit.sampling.has_max_tokens = true;
    struct stream *s = submit(w, "a", &m);
    uint64_t job = last_job(w);
    ck_assert_int_eq(w->assigns[0].a.sampling.prompt_logprobs, 0);
    send_score(w, job, 1, some_ids[1]);
    send_score(w, job, 2, some_ids[2]);
    if (how == 2)
      token(w, job, 0, 0, 0, TRI_TOKEN_NONE | TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
    else
      bytes(w, job, 0, "one");
    ck_assert(s->done);
    ck_assert_int_eq(s->num_scored, 3);
    ck_assert(isnan(s->scored[0]) && s->scored[1] == -(float)some_ids[1] && s->scored[2] == -(float)some_ids[2]);
    ck_assert_uint_eq(s->choice[0].num, how == 0 ? 3 : 0);
    ck_assert_int_eq(attach(w, 2, s, 0)->num_scored, 3);
    if (how == 0) ck_assert_int_eq(attach(w, 3, s, 1)->num_scored, 0);
    world_destroy(w);
  }
}
END_TEST

/* A replica that counts wrong, or says what nobody has asked for. */
START_TEST(test_wrong_prompt_logprobs) {
  for (int how = 0; how < 3; how++) {
    struct world *w = world_create(1);
    start_replica(w, 0, 1, 1);
    tri_client_msg m = submit_msg(1);
    m.submit.sampling.prompt_logprobs = how == 2 ? -1 : 0;
    struct stream *s = submit(w, "a", &m);
    if (how < 2) send_score(w, last_job(w), 1, 11);
    if (how < 2) send_score(w, last_job(w), 2, 12);
    send_score(w, last_job(w), (uint64_t)(how == 0 ? 1 : how == 1 ? 3 : 0), 13);
    ck_assert_str_eq(s->code, "internal");
    world_destroy(w);
  }
}
END_TEST

START_TEST(test_several_choices) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.n = 3;
  m.submit.sampling.logprobs = 2;
  struct stream *s = submit(w, "a", &m);
  uint64_t job = last_job(w);
  for (uint64_t i = 0; i < 4; i++)
    for (uint32_t k = 0; k < 3; k++)
      token(w, job, k, i, byte_token['a' + k], i == 3 ? TRI_TOKEN_LAST : 0, k ? TRI_FINISH_LENGTH : TRI_FINISH_STOP);
  ck_assert(s->done);
  expect_text(s, 0, "aaaa");
  expect_text(s, 2, "cccc");
  ck_assert_int_eq(s->choice[0].reason, TRI_FINISH_STOP);
  ck_assert_int_eq(s->choice[1].reason, TRI_FINISH_LENGTH);
  ck_assert_int_eq(s->choice[2].num_logprobs, 4);
  ck_assert_int_eq(s->choice[2].num_alternatives, 8);
  ck_assert_uint_eq(s->completion_tokens, 12);
  world_destroy(w);
}
END_TEST

/* The end-of-sequence token counts and is not text; a padded id has no text. */
/* The end says how often the job was preempted, as its replica told last, also where that came with another choice. */
START_TEST(test_preemptions) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.n = 2;
  struct stream *s = submit(w, "one", &m);
  m.id = 2;
  m.submit.sampling.n = 1;
  struct stream *other = submit(w, "one", &m);
  uint64_t job = w->assigns[0].a.job;
  tri_replica_token t[] = {
      {.job = job, .token = 65, .flags = TRI_TOKEN_PREEMPTED, .preemptions = 1},
      {.job = job, .choice = 1, .token = 65, .flags = TRI_TOKEN_PREEMPTED | TRI_TOKEN_LAST, .preemptions = 3},
      {.job = job, .offset = 1, .token = 66, .flags = TRI_TOKEN_LAST},
      {.job = last_job(w), .token = 65, .flags = TRI_TOKEN_LAST},
  };
  send_tokens(w, 0, 1, t, 4);
  ck_assert(s->done && other->done);
  ck_assert_uint_eq(s->preemptions, 3);
  ck_assert_uint_eq(other->preemptions, 0);
  world_destroy(w);
}
END_TEST

/* A job whose logits are no numbers ends with an error, all of it, and is counted; others go on. */
START_TEST(test_not_finite) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.n = 2;
  struct stream *s = submit(w, "one", &m);
  uint64_t job = last_job(w);
  m.id = 2;
  m.submit.sampling.n = 1;
  struct stream *other = submit(w, "one", &m);
  tri_replica_token t[] = {
      {.job = job, .token = 65},
      {.job = job, .choice = 1, .flags = TRI_TOKEN_NONE, .reason = TRI_FINISH_ERROR},
      {.job = job, .choice = 0, .offset = 1, .token = 65},
      {.job = job, .choice = 0, .flags = TRI_TOKEN_NONE | TRI_TOKEN_LAST, .reason = TRI_FINISH_ABORT},
      {.job = last_job(w), .token = 65, .flags = TRI_TOKEN_LAST},
  };
  send_tokens(w, 0, 1, t, 5);
  ck_assert_str_eq(s->code, "internal");
  ck_assert_ptr_nonnull(strstr(s->message, "are not finite"));
  ck_assert(other->done && !other->code[0]);
  w->stats = calloc(1, STATS_BYTES);
  m = (tri_client_msg){.op = TRI_OP_STATS, .id = 1};
  submit(w, "two", &m);
  ck_assert_ptr_nonnull(strstr(w->stats, "trireme:request_not_finite_total 1\n"));
  ck_assert_ptr_nonnull(strstr(w->stats, "trireme:request_failure_total 1\n"));
  free(w->stats);
  world_destroy(w);
}
END_TEST

/* The end says how much of the prompt its replica had, which can be no more than there is; the replica hears of the
 * salt.
 */
START_TEST(test_cached_tokens) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  for (uint64_t i = 1; i <= 2; i++) {
    tri_client_msg m = submit_msg(i);
    if (i == 1) m.submit.cache_salt = (tri_wire_str){"mine", 4};
    struct stream *s = submit(w, "one", &m);
    ck_assert_str_eq(w->assigns[i - 1].salt, i == 1 ? "mine" : "");
    tri_replica_token t = {.job = last_job(w),
                           .token = 65,
                           .flags = TRI_TOKEN_WAITED | TRI_TOKEN_CACHED | TRI_TOKEN_LAST,
                           .cached = i == 1 ? 1 : UINT32_MAX};
    send_tokens(w, 0, 1, &t, 1);
    ck_assert(s->done);
    ck_assert_uint_eq(s->cached_tokens, i == 1);
  }
  world_destroy(w);
}
END_TEST

/* A job waits until a step takes a part of it in, in its replica as well; one that none takes in, until its end. */
START_TEST(test_queue_time) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "one", &m);
  uint64_t job = last_job(w);
  m.id = 2;
  struct stream *never = submit(w, "one", &m);
  uint64_t other = last_job(w);
  w->now += 50 * MS;
  tri_replica_token t[] = {
      {.job = job, .token = 65, .flags = TRI_TOKEN_WAITED, .waited_ns = 40 * MS},
      {.job = job, .offset = 1, .token = 66, .flags = TRI_TOKEN_LAST},
      {.job = other, .flags = TRI_TOKEN_LAST | TRI_TOKEN_NONE, .reason = TRI_FINISH_ABORT},
  };
  send_tokens(w, 0, 1, t, 3);
  ck_assert(s->done && never->done);
  ck_assert_double_eq(s->queue_ms, 40);
  ck_assert_double_eq(never->queue_ms, 50);
  m.id = 3;
  s = submit(w, "one", &m);
  t[0] = (tri_replica_token){
      .job = last_job(w), .token = 65, .flags = TRI_TOKEN_WAITED | TRI_TOKEN_LAST, .waited_ns = UINT64_MAX};
  w->now += 5 * MS;
  send_tokens(w, 0, 1, t, 1);
  ck_assert_double_eq(s->queue_ms, 5); /* whatever the replica's clock says */
  world_destroy(w);
}
END_TEST

START_TEST(test_tokens_without_text) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['a'], 0, 0);
  token(w, last_job(w), 0, 1, 1000000, 0, 0);
  token(w, last_job(w), 0, 2, byte_token['b'], TRI_TOKEN_LAST | TRI_TOKEN_STOP_ID, TRI_FINISH_STOP);
  ck_assert(s->done);
  expect_text(s, 0, "a");
  ck_assert_uint_eq(s->completion_tokens, 3);
  ck_assert_uint_eq(s->choice[0].num, 3);
  world_destroy(w);
}
END_TEST

Suite *suite_core_jobs(void) {
  Suite *suite = suite_create("core_jobs");
  tri_log_setup(TRI_LOG_ERROR, "core");
  TCase *t = add_case(suite, "jobs");
  tcase_add_test(t, test_submit);
  tcase_add_test(t, test_prompt_tokenized_at_once);
  tcase_add_test(t, test_attach_several_choices);
  tcase_add_test(t, test_text_prompt);
  tcase_add_test(t, test_echo_of_ids);
  tcase_add_test(t, test_truncate);
  tcase_add_test(t, test_echo_slow);
  tcase_add_test(t, test_not_streamed);
  tcase_add_test(t, test_no_alternatives);
  tcase_add_test(t, test_prompt_logprobs);
  tcase_add_test(t, test_wrong_prompt_logprobs);
  tcase_add_test(t, test_several_choices);
  tcase_add_test(t, test_preemptions);
  tcase_add_test(t, test_not_finite);
  tcase_add_test(t, test_cached_tokens);
  tcase_add_test(t, test_queue_time);
  tcase_add_test(t, test_tokens_without_text);
  return suite;
}
