/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that outlive their coordinator: what one core has recorded, another one goes on with, through a journal on the
 * disk. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "coordinator/journal/recorder.h"
#include "tests/unit/core_replay_kit.h"
#include "tests/unit/scratch_folder.h"

Suite *suite_core_restore(void);

static char folder[SCRATCH_BYTES];

static void set_up(void) { scratch_make(folder); }

static void tear_down(void) { scratch_remove(folder); }

/* A coordinator with the journal, and its replica 0 of this epoch. */
static struct world *begin(uint64_t epoch) {
  struct world *w = world_create(1);
  tri_error err = {0};
  tri_status st = tri_recorder_open(folder, 0, w->core, w->now, &w->recorder, &err);
  ck_assert_msg(st == TRI_OK, "%s", err.message);
  if (epoch) start_replica(w, 0, epoch, 1);
  return w;
}

static void write_all(struct world *w) { ck_assert(tri_recorder_write(w->recorder, NULL) == TRI_OK); }

/* What is written becomes durable. */
static void make_durable(struct world *w) {
  write_all(w);
  const tri_core *c = w->core;
  for (int i = 0; i < 5000 && (c->jobs->has_undurable || c->jobs->durable < tri_core_oldest_record(c)); i++) {
    usleep(1000);
    ck_assert(tri_recorder_take_sync(w->recorder, w->core, w->now, NULL) == TRI_OK);
  }
}

/* Ends a coordinator as kill -9 does: what it has written stays, and nothing more comes. */
static void die(struct world *w) {
  write_all(w);
  tri_recorder_close(w->recorder);
  w->recorder = NULL;
  world_destroy(w);
}

static tri_client_msg named_msg(uint64_t id, uint8_t name) {
  tri_client_msg m = submit_msg(id);
  m.submit.has_request_id = true;
  memset(&m.submit.request_id, name, sizeof m.submit.request_id);
  m.submit.on_disconnect = TRI_DISCONNECT_CONTINUE;
  m.submit.sampling.max_tokens = 100;
  return m;
}

static struct stream *attach_to(struct world *w, uint64_t id, uint8_t name) {
  struct stream former = {0};
  memset(&former.request_id, name, sizeof former.request_id);
  return attach_as(w, "b", id, &former);
}

START_TEST(goes_on_behind_its_tokens) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  m.submit.sampling.n = 2;
  m.submit.sampling.logprobs = 2;
  m.submit.sampling.temperature = 1;
  m.submit.cache_salt = (tri_wire_str){"salt", 4};
  set_stop(&m, "xyz");
  submit(w, "a", &m);
  uint64_t job = last_job(w), seed = last_assign(w)->a.seed;
  say(w, 1, job, 0, 0, "abc", false);
  say(w, 1, job, 1, 0, "no xyz", false); /* which ends it */
  die(w);

  w = begin(0);
  struct stream *s = attach_to(w, 1, 7);
  ck_assert(s->accepted == 1 && s->existing && !s->done);
  ck_assert_str_eq(s->choice[0].text, "abc");
  ck_assert_str_eq(s->choice[1].text, "no ");
  ck_assert_int_eq(s->choice[0].num_logprobs, 3);
  start_replica(w, 0, 1, 1);
  const struct assigned *a = last_assign(w);
  ck_assert(a->a.job == job && a->a.seed == seed && a->a.sampling.n == 2 && !strcmp(a->salt, "salt"));
  ck_assert(a->a.num_sampled == 3 && a->a.num_sampled_counts == 2);
  ck_assert(a->counts[0] == 3 && a->counts[1] == TRI_SAMPLED_ENDED);
  ck_assert_uint_eq(a->sampled[2], byte_token['c']);
  say(w, 1, job, 0, 3, "abcd", true);
  ck_assert(s->done && s->seed == seed);
  ck_assert_str_eq(s->choice[0].text, "abcd");
  ck_assert(s->choice[1].stop_string == 0);
  die(w);

  w = begin(1); /* its client may not have read all of it */
  ck_assert_int_eq(w->num_assigns, 0);
  ck_assert_uint_ne(tri_core_oldest_record(w->core), UINT64_MAX);
  s = attach_to(w, 2, 7);
  ck_assert(s->done);
  ck_assert_str_eq(s->choice[0].text, "abcd");
  for (int i = 0; i < 62; i++) {
    send_health(w, 0, 1, 0, (uint64_t)i, false);
    tick(w, SECOND);
  }
  ck_assert_uint_eq(tri_core_oldest_record(w->core), UINT64_MAX);
  die(w);
  w = begin(0);
  ck_assert_str_eq(attach_to(w, 3, 7)->code, "not_found");
  die(w);
}
END_TEST

/* The limits of the queue are for those who ask: what was accepted goes on, however it is divided. */
START_TEST(more_than_the_queue_has_room_for) {
  struct world *w = begin(1);
  for (uint8_t i = 1; i <= 40; i++) {
    tri_client_msg m = named_msg(i, i);
    submit(w, (char[]){(char)('a' + i), 0}, &m);
  }
  uint64_t accepted = (uint64_t)w->core->jobs->num_active;
  ck_assert_uint_gt(accepted, 12);
  die(w);
  w = world_create_sharing(&(tri_core_config){.max_queue = 4, .max_queued_per_client = 1});
  ck_assert(tri_recorder_open(folder, 0, w->core, w->now, &w->recorder, NULL) == TRI_OK);
  ck_assert_uint_eq((uint64_t)w->core->jobs->num_active, accepted);
  die(w);
}
END_TEST

/* A cluster that ends takes no job with it: its clients hear of that, and the next start goes on. What may be the
 * beginning of a stop string stays back until then. */
START_TEST(ends_of_the_cluster) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  set_stop(&m, "bq");
  struct stream *s = submit(w, "a", &m);
  uint64_t job = last_job(w);
  say(w, 1, job, 0, 0, "ab", false);
  make_durable(w);
  tri_core_abandon(w->core, w->now, "the supervisor is gone");
  ck_assert_str_eq(s->code, "coordinator_lost");
  expect_text(s, 0, "a");
  token(w, job, 0, 2, 0, TRI_TOKEN_LAST | TRI_TOKEN_NONE, TRI_FINISH_ABORT); /* the leader lets it go */
  die(w);
  w = begin(1);
  ck_assert_uint_eq(last_assign(w)->a.num_sampled, 2);
  s = attach_to(w, 2, 7);
  expect_text(s, 0, "a");
  say(w, 1, job, 0, 2, "abq", false);
  ck_assert(s->done && s->choice[0].stop_string == 0);
  expect_text(s, 0, "a");
  die(w);
}
END_TEST

/* An end that was asked for takes its jobs along: a client hears that its job has failed, and no start runs it again.
 */
START_TEST(asked_for_end_of_the_cluster) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  struct stream *s = submit(w, "a", &m);
  say(w, 1, last_job(w), 0, 0, "ab", false);
  make_durable(w);
  tri_core_drain(w->core);
  tri_core_abandon(w->core, w->now, "told again");
  ck_assert_str_eq(s->code, "peer_lost");
  make_durable(w);
  die(w);
  w = begin(1);
  ck_assert_int_eq(w->num_assigns, 0);
  ck_assert_int_eq(w->core->jobs->num_active, 0);
  die(w);
}
END_TEST

/* A replica that is not ready for a coordinator has no job of it: the next start must not take what it says of one,
 * either. */
START_TEST(words_before_it_is_ready) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  submit(w, "a", &m);
  uint64_t job = last_job(w);
  say(w, 1, job, 0, 0, "ab", false);
  die(w);
  w = begin(0);
  ck_assert(send_register(w, 0, 1, 0, 1));
  token(w, job, 0, 2, 0, TRI_TOKEN_LAST | TRI_TOKEN_NONE, TRI_FINISH_ABORT);
  die(w);
  w = begin(1);
  ck_assert_int_eq(w->num_assigns, 1);
  ck_assert_uint_eq(last_assign(w)->a.num_sampled, 2);
  die(w);
}
END_TEST

/* A client that submits again is compared with what the first start was asked. */
START_TEST(asked_again) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7), other = named_msg(1, 7);
  m.submit.prompt = (tri_wire_str){"ab", 2};
  m.submit.token_ids = NULL;
  m.submit.num_token_ids = 0;
  m.submit.sampling.echo = true;
  submit(w, "a", &m);
  const uint32_t ids[] = {byte_token['a'], byte_token['b']};
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, ids, 2, 0);
  say(w, 1, last_job(w), 0, 0, "cd", false);
  die(w);
  w = begin(0);
  struct stream *s = submit(w, "b", &other);
  ck_assert_str_eq(s->code, "invalid_argument");
  s = submit(w, "c", &m);
  ck_assert(s->existing);
  ck_assert_str_eq(s->choice[0].text, "abcd");
  die(w);
}
END_TEST

START_TEST(ends_that_were_no_tokens) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  submit(w, "a", &m);
  uint64_t refused = last_job(w);
  m = named_msg(2, 8);
  submit(w, "a", &m);
  tri_client_msg cancel = {
      .op = TRI_OP_CANCEL, .id = 9, .cancel = {.request_id = m.submit.request_id, .has_request_id = true}};
  m = named_msg(3, 9);
  m.submit.sampling.deadline_ms = 1000;
  submit(w, "a", &m);
  uint64_t late = last_job(w);
  for (int i = 0; i < w->num_streams; i++) w->streams[i].again = 1 << 20; /* nothing is read */
  tri_replica_msg no = {.op = TRI_REPLICA_REFUSED,
                        .refused = {.job = refused,
                                    .epoch = 1,
                                    .code = {"no_capacity", 11},
                                    .field = {"prompt", 6},
                                    .message = {"it never fits", 13}}};
  send_worker(w, 0, 1, 0, &no);
  submit(w, "d", &cancel);
  tri_replica_token t = {.job = late, .flags = TRI_TOKEN_NONE, .reason = TRI_FINISH_ABORT};
  send_tokens(w, 0, 1, &t, 1);
  die(w);

  w = begin(1);
  ck_assert_int_eq(w->num_assigns, 0);
  struct stream *s = attach_to(w, 1, 7);
  ck_assert_str_eq(s->message, "it never fits");
  ck_assert_str_eq(s->field, "prompt");
  s = attach_to(w, 2, 8);
  ck_assert(s->done && s->choice[0].reason == TRI_FINISH_ABORT && !s->timed_out);
  s = attach_to(w, 3, 9);
  ck_assert(s->done && s->timed_out);
  die(w);
}
END_TEST

/* A cluster whose last replica is lost still takes jobs until it has ended: the next start knows what their clients
 * have heard, and goes on with those that it has ended itself. */
START_TEST(cancelled_while_it_ends) {
  struct world *w = begin(1);
  w->core->cfg.lost_for_good = true;
  tri_client_msg m = named_msg(1, 7);
  struct stream *s = submit(w, "a", &m);
  make_durable(w);
  lose(w, 0, 1);
  ck_assert_str_eq(s->code, "coordinator_lost");
  m = named_msg(2, 8);
  tri_client_msg cancel = {
      .op = TRI_OP_CANCEL, .id = 9, .cancel = {.request_id = m.submit.request_id, .has_request_id = true}};
  s = submit(w, "a", &m);
  make_durable(w);
  submit(w, "d", &cancel);
  ck_assert(s->accepted == 1 && s->done);
  die(w);
  w = begin(1);
  ck_assert_int_eq(w->num_assigns, 1);
  s = attach_to(w, 1, 8);
  ck_assert(s->done && s->choice[0].reason == TRI_FINISH_ABORT);
  ck_assert(!attach_to(w, 2, 7)->done);
  die(w);
}
END_TEST

/* A replica that was lost in the first start, and the seed of a beam search, which begins anew. */
START_TEST(two_deaths) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7), beams = named_msg(2, 8);
  beams.submit.sampling.num_beams = 2;
  beams.submit.sampling.has_num_beams = true;
  submit(w, "a", &m);
  uint64_t job = last_job(w);
  submit(w, "a", &beams);
  say(w, 1, job, 0, 0, "ab", false);
  restart(w, 1);
  say(w, 2, job, 0, 2, "abc", false);
  die(w);
  w = begin(3);
  ck_assert_int_eq(w->num_assigns, 2);
  ck_assert_uint_eq(w->assigns[0].a.num_sampled, 3);
  ck_assert_uint_eq(w->assigns[1].a.num_sampled_counts, 0);
  struct stream *s = attach_to(w, 1, 7);
  say(w, 3, job, 0, 3, "abcd", true);
  ck_assert(s->done);
  ck_assert_uint_eq(s->completion_tokens, 4);
  die(w);
}
END_TEST

/* Its client hears nothing of a job that is not on the disk yet; its replica works already. */
START_TEST(accepted_is_durable) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  struct stream *s = submit(w, "a", &m);
  ck_assert_int_eq(w->num_assigns, 1);
  say(w, 1, last_job(w), 0, 0, "ab", true);
  tick(w, SECOND);
  ck_assert(!s->accepted && !s->choice[0].num && !s->done);
  make_durable(w);
  ck_assert(s->accepted == 1 && s->done);
  ck_assert_str_eq(s->choice[0].text, "ab");
  die(w);
}
END_TEST

/* Each of two jobs is told of when it is durable, though the second one has tried before the first one was. */
START_TEST(durable_one_by_one) {
  struct world *w = begin(1);
  tri_client_msg m[2] = {named_msg(1, 7), named_msg(2, 8)};
  struct stream *s[2];
  uint64_t job[2];
  for (int i = 0; i < 2; i++) {
    s[i] = submit(w, "a", &m[i]);
    job[i] = last_job(w);
  }
  for (int i = 0; i < 2; i++) say(w, 1, job[i], 0, 0, "ab", true);
  uint64_t first = tri_core_oldest_record(w->core);
  for (uint64_t number = first; !s[1]->done && number < first + 8; number++) {
    ck_assert(s[0]->done == (number > first));
    tri_core_durable(w->core, w->now, number);
  }
  ck_assert(s[0]->done && s[1]->done);
  die(w);
}
END_TEST

START_TEST(no_room_for_records) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  tri_core_set_full(w->core, "/journal");
  struct stream *s = submit(w, "a", &m);
  ck_assert_str_eq(s->code, "no_capacity");
  ck_assert_ptr_nonnull(strstr(s->message, "the disk of the journal is full"));
  tri_cluster_status status = {0};
  w->status = &status;
  submit(w, "b", &(tri_client_msg){.op = TRI_OP_STATUS, .id = 1});
  ck_assert(status.requests_refused == 1 && status.requests_failed == 0);
  ck_assert(status.journal_full.len == 8 && !memcmp(status.journal_full.s, "/journal", 8));
  tri_core_set_full(w->core, NULL);
  m.id = 2;
  submit(w, "a", &m);
  ck_assert_int_eq(w->num_assigns, 1);
  m.id = 3;
  m.submit.request_id.bytes[0] = 8;
  m.submit.prompt = (tri_wire_str){"Hello", 5};
  s = submit(w, "a", &m);
  tri_core_set_full(w->core, "/journal"); /* while its text is made tokens */
  tri_core_tokenized(w->core, w->now, w->tokenize_job, TRI_OK, some_ids, 3, 0);
  ck_assert_str_eq(s->code, "no_capacity");
  ck_assert_int_eq(w->num_assigns, 1);
  die(w);
}
END_TEST

/* Large requests that come at once do not all wait to be written. */
START_TEST(much_to_write) {
  enum { IDS = 100000, ENOUGH = 3 };
  struct world *w = begin(1);
  uint32_t *ids = calloc(IDS, sizeof *ids);
  ck_assert_ptr_nonnull(ids);
  for (uint64_t i = 0; i < ENOUGH; i++) {
    ck_assert(!tri_recorder_has_much(w->recorder));
    tri_client_msg m = named_msg(1 + i, (uint8_t)(7 + i));
    m.submit.sampling.allowed_token_ids = ids;
    m.submit.sampling.num_allowed_token_ids = IDS;
    submit(w, "a", &m);
  }
  ck_assert(tri_recorder_has_much(w->recorder));
  write_all(w);
  ck_assert(!tri_recorder_has_much(w->recorder));
  tri_recorder_tell_room(w->recorder, w->core);
  ck_assert(!w->core->jobs->full);
  free(ids);
  die(w);
}
END_TEST

/* A job that does not go on without its client waits for it for a minute. */
START_TEST(nobody_comes) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  m.submit.on_disconnect = TRI_DISCONNECT_CANCEL;
  submit(w, "a", &m);
  m = named_msg(2, 8);
  submit(w, "a", &m);
  die(w);
  w = begin(1);
  ck_assert_int_eq(w->num_assigns, 2);
  for (int i = 0; i < 59; i++) {
    for (int k = 0; k < 10; k++) tick(w, SECOND / 10);
    send_health(w, 0, 1, 0, (uint64_t)i, true);
  }
  ck_assert_int_eq(w->num_aborts, 0);
  for (int k = 0; k < 30; k++) tick(w, SECOND / 10);
  ck_assert_int_eq(w->num_aborts, 1);
  ck_assert_uint_eq(w->aborts[0], w->assigns[0].a.job);
  die(w);
}
END_TEST

/* A job that is larger than a message is refused, also where no replica is there yet: its record could not be written.
 */
START_TEST(larger_than_a_message) {
  enum { IDS = 262130 };
  struct world *w = begin(0);
  uint32_t *ids = calloc(IDS, sizeof *ids);
  ck_assert_ptr_nonnull(ids);
  tri_client_msg m = named_msg(1, 7);
  m.submit.token_ids = ids;
  m.submit.num_token_ids = IDS;
  struct stream *s = submit(w, "a", &m);
  ck_assert_str_eq(s->code, "no_capacity");
  ck_assert_ptr_nonnull(strstr(s->message, "the limit max_model_len"));
  w->core->cfg.max_prompt = 1 << 20;
  m.id = 2;
  m.submit.request_id.bytes[0] = 9;
  s = submit(w, "a", &m);
  ck_assert_str_eq(s->code, "no_capacity");
  ck_assert_ptr_nonnull(strstr(s->message, "make a message of"));
  m = named_msg(3, 8);
  submit(w, "a", &m);
  write_all(w);
  ck_assert_int_eq(w->core->jobs->num_active, 1);
  free(ids);
  die(w);
}
END_TEST

/* Three replicas die under a job, one of them in an earlier life of the coordinator. */
START_TEST(deaths_are_remembered) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  submit(w, "a", &m);
  restart(w, 1);
  restart(w, 2);
  die(w);
  w = begin(3);
  struct stream *s = attach_to(w, 1, 7);
  ck_assert_int_eq(w->num_assigns, 1);
  lose(w, 0, 3);
  make_durable(w);
  ck_assert_str_eq(s->code, "peer_lost");
  ck_assert_ptr_nonnull(strstr(s->message, "three replicas have died"));
  die(w);
}
END_TEST

START_TEST(for_another_model) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  submit(w, "a", &m);
  die(w);
  w = world_create_for(1, 55, 1, 1);
  ck_assert(tri_recorder_open(folder, 0, w->core, w->now, &w->recorder, NULL) == TRI_OK);
  ck_assert_int_eq(w->core->jobs->num_active, 0);
  struct stream *s = attach_to(w, 1, 7);
  ck_assert_str_eq(s->code, "peer_lost");
  ck_assert_ptr_nonnull(strstr(s->message, "another model"));
  die(w);
  w = begin(1); /* the end that was told stays */
  ck_assert_int_eq(w->num_assigns, 0);
  die(w);
}
END_TEST

/* A prompt that truncate has cut is not cut again, by another limit. */
START_TEST(cut_once) {
  struct world *w = begin(1);
  uint32_t ids[50] = {0};
  tri_client_msg m = named_msg(1, 7);
  m.submit.sampling.truncate = -1;
  m.submit.token_ids = ids;
  m.submit.num_token_ids = 50;
  submit(w, "a", &m);
  die(w);
  w = world_create(1);
  w->core->cfg.max_prompt = 20;
  ck_assert(tri_recorder_open(folder, 0, w->core, w->now, &w->recorder, NULL) == TRI_OK);
  ck_assert_int_eq(w->core->jobs->num_active, 1);
  ck_assert_uint_eq(TAILQ_FIRST(&w->core->jobs->active)->num_prompt, 50);
  die(w);
}
END_TEST

static void expect_stats(struct world *w, const char *const *lines, size_t num) {
  static char stats[STATS_BYTES];
  w->stats = stats;
  tri_client_msg ask = {.op = TRI_OP_STATS, .id = 4711};
  tri_peer peer = open_stream(w, "stats", ask.id)->peer;
  tri_core_client(w->core, w->now, &peer, &ask);
  w->stats = NULL;
  w->num_streams--;
  for (size_t i = 0; i < num; i++) ck_assert_msg(strstr(stats, lines[i]) != NULL, "not %s", lines[i]);
}

/* Work of an earlier start is none of this one, whose counters begin with nothing; what comes now is. */
START_TEST(metrics_are_of_this_start) {
  static const char *const nothing[] = {"trireme:time_to_first_token_seconds_count 0\n",
                                        "trireme:inter_token_latency_seconds_count 0\n",
                                        "trireme:e2e_request_latency_seconds_count 0\n",
                                        "trireme:request_queue_time_seconds_count 0\n",
                                        "trireme:iteration_tokens_total_count 0\n",
                                        "trireme:prompt_tokens_total 0\n",
                                        "trireme:generation_tokens_total 0\n",
                                        "{finished_reason=\"stop\"} 0\n",
                                        "{finished_reason=\"length\"} 0\n",
                                        "{finished_reason=\"abort\"} 0\n",
                                        "trireme:request_failure_total 0\n"};
  static const char *const later[] = {
      "trireme:time_to_first_token_seconds_count 1\n", "trireme:inter_token_latency_seconds_count 2\n",
      "trireme:e2e_request_latency_seconds_count 1\n", "trireme:request_queue_time_seconds_count 1\n",
      "trireme:generation_tokens_total 3\n",           "{finished_reason=\"length\"} 1\n"};
  struct world *w = begin(1);
  for (uint8_t name = 1; name <= 4; name++) {
    tri_client_msg m = named_msg(name, name);
    submit(w, "a", &m);
    if (name < 3) say(w, 1, last_job(w), 0, 0, "abc", name == 2);
    if (name != 3) continue;
    tri_replica_msg no = {.op = TRI_REPLICA_REFUSED,
                          .refused = {.job = last_job(w), .epoch = 1, .code = {"internal", 8}, .message = {"no", 2}}};
    send_worker(w, 0, 1, 0, &no);
  }
  make_durable(w);
  die(w);
  w = begin(0);
  expect_stats(w, nothing, sizeof nothing / sizeof *nothing);
  start_replica(w, 0, 2, 1);
  ck_assert_int_eq(w->num_assigns, 2);
  uint64_t first = w->assigns[0].a.job, other = w->assigns[1].a.job;
  ck_assert_uint_eq(w->assigns[0].a.num_sampled, 3);
  say(w, 2, first, 0, 3, "abcde", true);
  say(w, 2, other, 0, 0, "x", false);
  expect_stats(w, later, sizeof later / sizeof *later);
  die(w);
}
END_TEST

/* Times that come from a journal are those of the record, not of the restart. */
START_TEST(times_of_then) {
  struct world *w = world_create(1);
  tri_client_msg m = named_msg(1, 7);
  tri_record r = {.op = TRI_RECORD_ACCEPTED, .job = 5, .accepted = {.msg = m, .model = record_model(w->core)}};
  ck_assert(tri_core_restore(w->core, w->now, 100 * SECOND, &r, 1) == TRI_OK);
  r = (tri_record){.op = TRI_RECORD_ASSIGNED, .job = 5, .assigned = {.replica = 0, .epoch = 3}};
  ck_assert(tri_core_restore(w->core, w->now, 98 * SECOND, &r, 2) == TRI_OK);
  for (int i = 0; i < 2; i++) {
    tri_replica_token t = {.job = 5, .offset = (uint64_t)i, .token = byte_token['a']};
    if (!i) t.flags = TRI_TOKEN_WAITED;
    t.waited_ns = 1 * SECOND;
    tri_replica_tokens tokens = {.epoch = 3, .tokens = &t, .num = 1};
    r = (tri_record){.op = TRI_RECORD_TOKENS, .tokens = {0, &tokens}};
    ck_assert(tri_core_restore(w->core, w->now, (90 - i) * SECOND, &r, (uint64_t)i + 3) == TRI_OK);
  }
  tri_core_restored(w->core, w->now);
  const job *j = job_find(w->core, 5);
  ck_assert_int_eq(j->first_token_ns - j->submitted_ns, 10 * SECOND);
  ck_assert_int_eq(w->now - j->last_token_ns, 89 * SECOND);
  ck_assert_int_eq(job_queue_ns(j), 3 * SECOND);
  world_destroy(w);
}
END_TEST

/* The cache begins with nothing: which replica's answers those of a journal are is not known. */
START_TEST(the_cache_begins_empty) {
  static const char *const line[] = {"trireme:response_cache_entries 0\n"};
  for (int start = 0; start < 2; start++) {
    struct world *w = world_create_caching(1 << 20);
    ck_assert(tri_recorder_open(folder, 0, w->core, w->now, &w->recorder, NULL) == TRI_OK);
    expect_stats(w, line, 1);
    tri_client_msg m = named_msg(1, 7);
    m.submit.sampling.temperature = 0;
    if (!start) submit(w, "a", &m);
    if (!start) say(w, 1, last_job(w), 0, 0, "abc", true);
    make_durable(w);
    die(w);
  }
}
END_TEST

/* An answer of the response cache is known to the next start, which does not draw it again. */
START_TEST(answered_by_the_cache) {
  struct world *w = world_create_caching(1 << 20);
  ck_assert(tri_recorder_open(folder, 0, w->core, w->now, &w->recorder, NULL) == TRI_OK);
  for (uint8_t name = 7; name < 9; name++) {
    tri_client_msg m = named_msg(name, name);
    m.submit.sampling.temperature = 0;
    submit(w, "a", &m);
    if (name == 7) say(w, 1, last_job(w), 0, 0, "abc", true);
  }
  make_durable(w);
  ck_assert_int_eq(w->num_assigns, 1);
  die(w);
  w = begin(1);
  ck_assert_int_eq(w->num_assigns, 0);
  struct stream *s = attach_to(w, 1, 8);
  ck_assert(s->done);
  ck_assert_str_eq(s->choice[0].text, "abc");
  die(w);
}
END_TEST

/* A cluster that drains stays until the last end is durable, and told. */
START_TEST(idle_once_it_is_durable) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  struct stream *s = submit(w, "a", &m);
  say(w, 1, last_job(w), 0, 0, "ab", true);
  ck_assert(!s->done && !w->core->jobs->num_active);
  ck_assert(!tri_core_is_idle(w->core));
  make_durable(w);
  ck_assert(s->done && tri_core_is_idle(w->core));
  die(w);
}
END_TEST

/* Jobs that have ended and are not durable are many: none is forgotten before its client hears of it. */
START_TEST(owed_on_a_slow_disk) {
  enum { MANY = 50 };
  struct world *w = begin(1);
  struct stream *first = NULL;
  for (uint32_t i = 0; i < MANY; i++) {
    tri_client_msg m = named_msg(1 + i, 7);
    memcpy(m.submit.request_id.bytes, &i, sizeof i);
    m.submit.stream = false;
    struct stream *s = submit(w, "a", &m);
    if (!first) first = s;
    if (w->num_assigns) say(w, 1, last_job(w), 0, 0, "a", true);
    w->num_assigns = 0;
  }
  w->core->cfg.most_retained = 1;
  tick(w, SECOND);
  ck_assert_int_eq(w->core->jobs->num_retained, MANY);
  make_durable(w);
  ck_assert(first->done);
  die(w);
}
END_TEST

/* The name of a first segment whose bytes did not come to be. */
START_TEST(segment_without_bytes) {
  char path[SCRATCH_BYTES + 64];
  struct stat about;
  snprintf(path, sizeof path, "%s/0000000000000001.journal", folder);
  int fd = open(path, O_CREAT | O_WRONLY, 0600);
  ck_assert(fd >= 0 && !close(fd));
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7);
  submit(w, "a", &m);
  write_all(w);
  ck_assert(!stat(path, &about) && about.st_size >= 1 << 20);
  die(w);
  w = begin(1);
  ck_assert_int_eq(w->num_assigns, 1);
  die(w);
}
END_TEST

Suite *suite_core_restore(void) {
  Suite *s = suite_create("core_restore");
  TCase *t = add_case(s, "restore");
  tcase_add_checked_fixture(t, set_up, tear_down);
  tcase_add_test(t, goes_on_behind_its_tokens);
  tcase_add_test(t, asked_again);
  tcase_add_test(t, durable_one_by_one);
  tcase_add_test(t, more_than_the_queue_has_room_for);
  tcase_add_test(t, ends_of_the_cluster);
  tcase_add_test(t, asked_for_end_of_the_cluster);
  tcase_add_test(t, words_before_it_is_ready);
  tcase_add_test(t, ends_that_were_no_tokens);
  tcase_add_test(t, cancelled_while_it_ends);
  tcase_add_test(t, two_deaths);
  tcase_add_test(t, accepted_is_durable);
  tcase_add_test(t, no_room_for_records);
  tcase_add_test(t, much_to_write);
  tcase_add_test(t, nobody_comes);
  tcase_add_test(t, larger_than_a_message);
  tcase_add_test(t, deaths_are_remembered);
  tcase_add_test(t, for_another_model);
  tcase_add_test(t, cut_once);
  tcase_add_test(t, metrics_are_of_this_start);
  tcase_add_test(t, times_of_then);
  tcase_add_test(t, the_cache_begins_empty);
  tcase_add_test(t, answered_by_the_cache);
  tcase_add_test(t, idle_once_it_is_durable);
  tcase_add_test(t, owed_on_a_slow_disk);
  tcase_add_test(t, segment_without_bytes);
  return s;
}
