/* SPDX-License-Identifier: Apache-2.0 */
/* The coordinator's core against recorded actions: which requests are taken, what is refused and how it is said,
 * queues, and what is fixed before a job is given to a replica. */
#include "base/log.h"
#include "tests/unit/core_world.h"

Suite *suite_core_admission(void);

/* ---- refusals ---- */

static void refuse(struct world *w, const tri_client_msg *m, const char *code, const char *field) {
  struct stream *s = submit(w, "r", m);
  expect_error(s, code, field);
  ck_assert_int_eq(s->accepted, 0);
}

START_TEST(test_refused_submits) {
  static uint32_t ids[MODEL_LEN];
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg good = submit_msg(1), m;
  m = good, m.id = 2, m.submit.model = (tri_wire_str){"toys", 4};
  refuse(w, &m, "not_found", "model");
  m = good, m.id = 3, m.submit.num_token_ids = 0;
  refuse(w, &m, "invalid_argument", "prompt");
  m = good, m.id = 4, ids[1] = 4000, m.submit.token_ids = ids, m.submit.num_token_ids = 2;
  refuse(w, &m, "out_of_range", "token_ids");
  ids[1] = 0;
  m = good, m.id = 5, m.submit.token_ids = ids, m.submit.num_token_ids = MODEL_LEN;
  refuse(w, &m, "no_capacity", "prompt");
  ck_assert_uint_eq(w->stopped_job, 0); /* there is no text of theirs to be given up, nor perhaps a tokenizer */
  m = good, m.id = 6, m.submit.sampling.n = SLOTS + 1;
  refuse(w, &m, "out_of_range", "n");
  struct tri_wire_bias bias = {.id = 4000};
  m = good, m.id = 7, m.submit.sampling.num_logit_bias = 1, m.submit.sampling.logit_bias = &bias;
  refuse(w, &m, "out_of_range", "logit_bias");
  m = good, m.id = 13, m.submit.sampling.has_max_tokens = true, m.submit.sampling.max_tokens = MODEL_LEN - 2;
  refuse(w, &m, "no_capacity", "max_tokens");
  m = good, m.id = 12, m.submit.sampling.num_stop_token_ids = 2, m.submit.sampling.stop_token_ids[1] = 4000;
  refuse(w, &m, "out_of_range", "stop_token_ids");
  m = good, m.id = 8, m.submit.sampling.min_tokens = 17;
  refuse(w, &m, "out_of_range", "min_tokens");
  w->refuse_tokenize = true;
  m = good, m.id = 9, m.submit.prompt = (tri_wire_str){"x", 1};
  refuse(w, &m, "no_capacity", ""); /* a queue is full: no field is wrong */
  w->refuse_tokenize = false;
  m.id = 10;
  struct stream *s = submit(w, "a", &m);
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_TOO_LARGE, NULL, 0, 0);
  expect_error(s, "no_capacity", "prompt");
  m.id = 16;
  s = submit(w, "a", &m);
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_NO_CAPACITY, NULL, 0, 0);
  expect_error(s, "no_capacity", "prompt");
  ck_assert_ptr_nonnull(strstr(s->message, "pattern of tokenizer.json"));
  const tri_wire_constraint object = {.kind = TRI_CONSTRAINT_JSON_OBJECT};
  m = good, m.id = 20, m.submit.sampling.constraint = object, m.submit.sampling.num_beams = 2;
  refuse(w, &m, "unsupported", "constraint");
  static const uint32_t some[] = {1, 2};
  m = good, m.id = 21, m.submit.sampling.constraint = object;
  m.submit.sampling.allowed_token_ids = some, m.submit.sampling.num_allowed_token_ids = 2;
  refuse(w, &m, "unsupported", "allowed_token_ids");
  m = good, m.id = 22, m.submit.sampling.constraint = object;
  m.submit.sampling.has_max_tokens = true, m.submit.sampling.max_tokens = 0, m.submit.sampling.prompt_logprobs = 0;
  refuse(w, &m, "unsupported", "constraint");
  m.id = 11, m.op = TRI_OP_EMBED;
  refuse(w, &m, "unsupported", "op");
  ck_assert_int_eq(w->num_assigns, 0);
  ck_assert(tri_core_is_idle(w->core));
  m = good, m.id = 14, m.submit.sampling.has_max_tokens = true, m.submit.sampling.max_tokens = MODEL_LEN - 3;
  submit(w, "a", &m);
  m = good, m.id = 15, m.submit.token_ids = ids, m.submit.num_token_ids = MODEL_LEN - 1; /* room for one, not for 16 */
  submit(w, "a", &m);
  ck_assert_int_eq(w->num_assigns, 2);
  world_destroy(w);
}
END_TEST

/* A schema is looked at by a thread, next to a text or to token ids, before the job is accepted. */
START_TEST(test_schema) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.constraint = (tri_wire_constraint){.kind = TRI_CONSTRAINT_JSON_SCHEMA, .text = {"{\"not\":1}", 9}};
  struct stream *s = submit(w, "a", &m);
  ck_assert(w->tokenize_schema == 9 && w->tokenize_ids == m.submit.num_token_ids && !w->num_assigns && !s->accepted);
  tri_error why = {0};
  tri_fail(&why, TRI_UNSUPPORTED, "constraint/not", "the keyword not cannot be kept");
  tri_core_schema_refused(w->core, w->now, w->tokenize_job, &why);
  expect_error(s, "unsupported", "constraint/not");
  ck_assert(tri_core_is_idle(w->core));
  tri_core_schema_refused(w->core, w->now, w->tokenize_job, &why); /* the job is gone */
  m.id = 2;
  s = submit(w, "a", &m);
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, m.submit.token_ids, m.submit.num_token_ids, 0);
  ck_assert(s->accepted && w->num_assigns == 1);
  ck_assert(w->assigns[0].a.sampling.constraint.kind == TRI_CONSTRAINT_JSON_SCHEMA);
  world_destroy(w);
}
END_TEST

/* A model of several names is served under each. */
START_TEST(test_other_names) {
  static const char *const names[] = {"org/toy", "gpt-4"};
  struct world *w = world_create_sharing(
      &(tri_core_config){.max_queue = MAX_QUEUE, .starts_are_told = true, .other_names = names, .num_other_names = 2});
  start_replica(w, 0, 1, 1);
  tri_client_msg good = submit_msg(1), m = good;
  m.id = 2, m.submit.model = (tri_wire_str){"gpt", 3};
  refuse(w, &m, "not_found", "model");
  ck_assert_ptr_nonnull(strstr(w->streams[w->num_streams - 1].message, "only \"toy\", \"org/toy\", \"gpt-4\""));
  m.id = 3, m.submit.model = (tri_wire_str){"gpt-4", 5};
  submit(w, "a", &m);
  m.id = 4, m.submit.model = (tri_wire_str){"toy", 3};
  submit(w, "a", &m);
  m.id = 5, m.submit.model = (tri_wire_str){"org/toy", 7};
  submit(w, "a", &m);
  ck_assert_int_eq(w->num_assigns, 3);
  world_destroy(w);
}
END_TEST

/* A leader that cannot run a job says why. */
START_TEST(test_refused_by_leader) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  tri_replica_msg r = {
      .op = TRI_REPLICA_REFUSED,
      .refused = {.job = last_job(w), .epoch = 2, .code = {"no_capacity", 11}, .field = {"prompt", 6}}};
  r.refused.message = (tri_wire_str){"too long", 8};
  send_worker(w, 0, 1, 0, &r); /* of another epoch */
  tick(w, 0);
  ck_assert(!s->done);
  r.refused.epoch = 1;
  send_worker(w, 0, 1, 0, &r);
  tick(w, 0);
  expect_error(s, "no_capacity", "prompt");
  ck_assert_str_eq(s->message, "too long");
  m.id = 2;
  s = submit(w, "a", &m);
  r.refused.job = last_job(w);
  r.refused.code = (tri_wire_str){"no_such_code", 12};
  send_worker(w, 0, 1, 0, &r);
  tick(w, 0);
  expect_error(s, "internal", "prompt");
  ck_assert(tri_core_is_idle(w->core));
  world_destroy(w);
}
END_TEST

/* Its words come to the client as one line, which does nothing to a terminal. */
START_TEST(test_words_of_a_leader) {
  static const char why[] = "too\nlong\r\x1b[2J\t\x7fh\xc3\xa9", field[] = "pro\x1bmpt\n";
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  tri_client_msg m = submit_msg(1);
  struct stream *s = submit(w, "a", &m);
  tri_replica_msg r = {.op = TRI_REPLICA_REFUSED,
                       .refused = {.job = last_job(w), .epoch = 1, .code = {"no_capacity", 11}}};
  r.refused.message = (tri_wire_str){why, sizeof why - 1};
  r.refused.field = (tri_wire_str){field, sizeof field - 1};
  send_worker(w, 0, 1, 0, &r);
  tick(w, 0);
  expect_error(s, "no_capacity", "pro mpt ");
  ck_assert_str_eq(s->message, "too long  [2J  h\xc3\xa9");
  world_destroy(w);
}
END_TEST

/* The model's own beams are used where nothing in the request speaks against them, its other values in any search. */
START_TEST(test_model_beams) {
  struct world *w = world_create(1);
  start_replica(w, 0, 1, 1);
  w->model.generation.num_beams = 3;
  w->model.generation.length_penalty = 2;
  w->model.generation.early_stopping = TRI_EARLY_NEVER;
  static const int64_t want[] = {3, 1, 1, 1, 3, 2, 1, 1};
  for (uint64_t i = 0; i < 8; i++) {
    tri_client_msg m = submit_msg(i);
    tri_sampling *p = &m.submit.sampling;
    if (i == 1) p->has_temperature = true;
    if (i == 2) p->n = 4;
    if (i == 3) p->logprobs = 1;
    if (i == 4) p->n = 3, p->has_length_penalty = true, p->length_penalty = 0.5;
    if (i == 5) p->has_num_beams = true, p->num_beams = 2, p->has_temperature = true;
    if (i == 6) p->has_num_beams = true;
    if (i == 7) w->model.generation.num_beams = TRI_WIRE_MAX_BEAMS + 1;
    submit(w, "a", &m);
    const tri_sampling *got = &w->assigns[w->num_assigns - 1].a.sampling;
    ck_assert_int_eq(w->num_assigns, (int)i + 1);
    ck_assert_int_eq(got->num_beams, want[i]);
    if (got->num_beams == 1) continue;
    ck_assert_double_eq(got->length_penalty, i == 4 ? 0.5 : 2);
    ck_assert_int_eq(got->early_stopping, TRI_EARLY_NEVER);
  }
  tri_client_msg m = submit_msg(9);
  m.submit.sampling.has_num_beams = true, m.submit.sampling.num_beams = SLOTS + 1;
  refuse(w, &m, "out_of_range", "num_beams");
  w->model.generation.repetition_penalty = 1.2;
  m.id = 10, m.submit.sampling.num_beams = 2;
  refuse(w, &m, "unsupported", "repetition_penalty");
  world_destroy(w);
}
END_TEST

static void ask_floors(struct world *w, uint64_t id) {
  tri_client_msg m = {.op = TRI_OP_ROOFLINES, .id = id};
  struct stream *s = open_stream(w, "f", id);
  tri_core_client(w->core, w->now, &s->peer, &m);
}

static void send_rooflines(struct world *w, uint32_t replica, uint32_t rank, double x) {
  tri_replica_msg m = {
      .op = TRI_REPLICA_ROOFLINES,
      .rooflines = {.replica = replica, .rank = rank, .epoch = 1, .rooflines = {x, 2 * x, 3 * x, 4 * x, 5 * x}}};
  send_worker(w, replica, 1, rank, &m);
}

START_TEST(test_floors) {
  struct world *w = world_create(2);
  ask_floors(w, 1); /* nobody is there to measure */
  ck_assert(w->floors_answers == 1 && !w->rooflines.num_replicas);
  start_replica(w, 0, 1, 2);
  start_replica(w, 1, 1, 1);
  /* All ranks of all replicas measure; the answer comes when the last one has. */
  ask_floors(w, 2);
  ask_floors(w, 3);
  ck_assert(w->measures == 3 && w->floors_answers == 1);
  send_rooflines(w, 0, 1, 10);
  send_rooflines(w, 1, 0, 100);
  send_rooflines(w, 0, 7, 1000); /* there is no such rank */
  ck_assert_int_eq(w->floors_answers, 1);
  send_rooflines(w, 0, 0, 1);
  ck_assert(w->floors_answers == 3 && w->rooflines.num_replicas == 2);
  ck_assert(w->rooflines.replicas[0].measured == 2 && w->rooflines.replicas[0].sum.read_bytes_per_s == 11);
  ck_assert(w->rooflines.replicas[1].ranks == 1 && w->rooflines.replicas[1].sum.output_token_flops == 500);
  /* While a job is there nothing is measured: the answer is what was. */
  tri_client_msg m = submit_msg(4);
  submit(w, "a", &m);
  ask_floors(w, 5);
  ck_assert(w->measures == 3 && w->floors_answers == 4 && w->rooflines.replicas[0].measured == 2);
  token(w, last_job(w), 0, 0, 65, TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
  /* A rank that does not answer is not waited for without end, and those who wait are not without number. */
  for (uint64_t id = 10; id < 18; id++) ask_floors(w, id);
  m = (tri_client_msg){.op = TRI_OP_ROOFLINES, .id = 18};
  expect_error(submit(w, "f", &m), "no_capacity", "op");
  send_rooflines(w, 0, 0, 1);
  ck_assert(w->measures == 6 && w->floors_answers == 4);
  for (int i = 0; i < 31; i++) {
    for (uint32_t r = 0; r < 2; r++) send_health(w, 0, 1, r, 1, false);
    send_health(w, 1, 1, 0, 1, false);
    tick(w, 1000000000);
  }
  ck_assert(w->floors_answers == 12 && w->rooflines.replicas[0].measured == 1 &&
            w->rooflines.replicas[1].measured == 0);
  world_destroy(w);
}
END_TEST

START_TEST(test_queued_deadline) {
  struct world *w = world_create(1);
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.deadline_ms = 100;
  struct stream *s = submit(w, "a", &m);
  m.id = 2;
  struct stream *late = submit(w, "a", &m);
  late->again = 1;
  tick(w, 99 * MS);
  ck_assert(!s->done);
  tick(w, MS);
  ck_assert(s->done && !s->code[0]);
  ck_assert_int_eq(s->choice[0].reason, TRI_FINISH_ABORT);
  ck_assert(s->timed_out);
  /* A replica that becomes ready between the deadline and the next tick gets nothing: least of all a job without one.
   */
  m.id = 3;
  s = submit(w, "a", &m);
  w->now += 150 * MS;
  start_replica(w, 0, 1, 1);
  ck_assert_int_eq(w->num_assigns, 0);
  ck_assert(s->done && s->timed_out);
  /* Of a job that runs its leader watches the time. */
  m.id = 4;
  s = submit(w, "a", &m);
  token(w, last_job(w), 0, 0, byte_token['a'], 0, 0);
  token(w, last_job(w), 0, 1, 0, TRI_TOKEN_LAST | TRI_TOKEN_NONE, TRI_FINISH_ABORT);
  ck_assert(s->done && s->timed_out);
  world_destroy(w);
}
END_TEST

/* Texts may wait long for the tokenizer's threads: a job whose deadline passes meanwhile ends, and its text is given
 * up. */
START_TEST(test_deadline_while_tokenized) {
  struct world *w = world_create(1);
  tri_client_msg m = submit_msg(1);
  start_replica(w, 0, 1, 1);
  m.submit.token_ids = NULL;
  m.submit.prompt = (tri_wire_str){"some text", 9};
  m.submit.sampling.deadline_ms = 100;
  struct stream *s = submit(w, "a", &m);
  tick(w, 99 * MS);
  ck_assert(!s->done && !w->stopped_job);
  tick(w, MS);
  ck_assert(s->done && s->timed_out);
  ck_assert_uint_eq(w->stopped_job, w->tokenize_job);
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_ABORTED, NULL, 0, 0);
  ck_assert_int_eq(w->num_assigns, 0);
  world_destroy(w);
}
END_TEST

/* ---- the seed ---- */

/* Fixed before assignment: the same request to the same coordinator draws the same, another one does not. */
START_TEST(test_seed) {
  uint64_t seeds[2][3];
  for (int i = 0; i < 2; i++) {
    struct world *w = world_create(1);
    start_replica(w, 0, 1, 1);
    for (uint64_t k = 0; k < 3; k++) {
      tri_client_msg m = submit_msg(k);
      m.submit.sampling.has_seed = k == 2;
      m.submit.sampling.seed = 77;
      struct stream *s = submit(w, "a", &m);
      seeds[i][k] = w->assigns[k].a.seed;
      token(w, last_job(w), 0, 0, 65, TRI_TOKEN_LAST, TRI_FINISH_LENGTH);
      ck_assert_uint_eq(s->seed, seeds[i][k]); /* and its client is told */
    }
    world_destroy(w);
  }
  ck_assert_mem_eq(seeds[0], seeds[1], sizeof seeds[0]);
  ck_assert_uint_ne(seeds[0][0], seeds[0][1]);
  ck_assert(seeds[0][0] >> 53 == 0 && seeds[0][1] >> 53 == 0); /* JSON's integers */
  ck_assert_uint_eq(seeds[0][2], 77);
}
END_TEST

Suite *suite_core_admission(void) {
  Suite *suite = suite_create("core_admission");
  tri_log_setup(TRI_LOG_ERROR, "core");
  TCase *t = add_case(suite, "admission");
  tcase_add_test(t, test_refused_submits);
  tcase_add_test(t, test_schema);
  tcase_add_test(t, test_other_names);
  tcase_add_test(t, test_refused_by_leader);
  tcase_add_test(t, test_words_of_a_leader);
  tcase_add_test(t, test_model_beams);
  tcase_add_test(t, test_floors);
  tcase_add_test(t, test_queued_deadline);
  tcase_add_test(t, test_deadline_while_tokenized);
  tcase_add_test(t, test_seed);
  return suite;
}
