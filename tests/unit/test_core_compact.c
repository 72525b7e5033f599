/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs that live for long in a journal of small segments: the folder stays small, and a start at any time goes on with
 * all of them as if their records had stayed where they were. */
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "coordinator/journal/recorder.h"
#include "tests/unit/core_replay_kit.h"
#include "tests/unit/scratch_folder.h"

Suite *suite_core_compact(void);

enum { SEGMENT = 16 << 10, MOST_FILES = 10 };
static char folder[SCRATCH_BYTES];
static uint64_t named; /* short jobs so far */

static void set_up(void) {
  named = 0;
  scratch_make(folder);
}

static void tear_down(void) { scratch_remove(folder); }

static struct world *begin(uint64_t epoch) {
  struct world *w = world_create(1);
  tri_error err = {0};
  tri_status st = tri_recorder_open(folder, SEGMENT, w->core, w->now, &w->recorder, &err);
  ck_assert_msg(st == TRI_OK, "%s", err.message);
  if (epoch) start_replica(w, 0, epoch, 1);
  return w;
}

static void die(struct world *w) {
  ck_assert(tri_recorder_write(w->recorder, NULL) == TRI_OK);
  tri_recorder_close(w->recorder);
  w->recorder = NULL;
  world_destroy(w);
}

static int files(void) {
  int n = 0;
  DIR *dir = opendir(folder);
  for (struct dirent *e; (e = readdir(dir));) n += strstr(e->d_name, ".journal") != NULL;
  closedir(dir);
  return n;
}

static tri_client_msg named_msg(uint64_t id, uint8_t first, uint64_t name) {
  tri_client_msg m = submit_msg(id);
  m.submit.has_request_id = true;
  m.submit.request_id.bytes[0] = first;
  memcpy(m.submit.request_id.bytes + 8, &name, sizeof name);
  m.submit.on_disconnect = TRI_DISCONNECT_CONTINUE;
  m.submit.sampling.max_tokens = 100;
  return m;
}

static struct stream *attach_to(struct world *w, uint64_t id, uint8_t first) {
  struct stream former = {0};
  former.request_id.bytes[0] = first;
  return attach_as(w, "b", id, &former);
}

static void tidy(struct world *w) {
  ck_assert(tri_recorder_write(w->recorder, NULL) == TRI_OK);
  uint64_t oldest = tri_core_oldest_record(w->core);
  for (int i = 0; i < 20000; i++) {
    ck_assert(tri_recorder_take_sync(w->recorder, w->core, w->now, NULL) == TRI_OK);
    if ((oldest == UINT64_MAX || w->core->jobs->durable >= oldest) && !w->core->jobs->has_moved) break;
    usleep(100);
  }
  ck_assert(tri_recorder_tidy(w->recorder, w->core, w->now, NULL) == TRI_OK);
}

/* Waits until the job's client has heard of it, as is told where it is durable; it is not there then. */
static void let_go(struct world *w, uint64_t job) {
  struct job *j = job_find(w->core, job);
  ck_assert(tri_recorder_write(w->recorder, NULL) == TRI_OK);
  for (int i = 0; i < 20000 && j->attached; i++) {
    usleep(100);
    ck_assert(tri_recorder_take_sync(w->recorder, w->core, w->now, NULL) == TRI_OK);
  }
  ck_assert(!j->attached);
  w->num_streams--;
}

/* Jobs that come, have an answer and are forgotten, with clients that have gone by then. */
static void pass_by(struct world *w, uint64_t epoch, int count) {
  for (int i = 0; i < count; i++) {
    tri_client_msg m = named_msg(1000 + named, 0xff, named);
    named++;
    struct stream *s = submit(w, "p", &m);
    s->closed = true;
    say(w, epoch, last_job(w), 0, 0, "an answer", true);
    let_go(w, last_job(w));
    w->num_assigns--;
    if (i % 20 == 19) tidy(w);
  }
  for (int i = 0; i < 62; i++) {
    send_health(w, 0, epoch, 0, (uint64_t)i, false);
    tick(w, SECOND);
  }
  for (int i = 0; i < 4; i++) tidy(w);
}

/* One job lives while hundreds come and go, and is started again in between, with its tokens as far as they were. */
START_TEST(one_lives) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7, 0);
  m.submit.sampling.n = 3;
  m.submit.sampling.logprobs = 2;
  m.submit.sampling.prompt_logprobs = 1;
  m.submit.sampling.temperature = 1;
  m.submit.sampling.echo = true;
  m.submit.cache_salt = (tri_wire_str){"salt", 4};
  set_stop(&m, "xyz");
  submit(w, "a", &m);
  uint64_t job = last_job(w), seed = last_assign(w)->a.seed, first = tri_core_oldest_record(w->core);
  say(w, 1, job, 1, 0, "no xyz", false); /* which ends it */
  say(w, 1, job, 2, 0, "over", true);
  say(w, 1, job, 0, 0, "abc", false);
  int most = 0;
  for (uint64_t epoch = 1; epoch <= 3; epoch++) {
    pass_by(w, epoch, 300);
    most = files() > most ? files() : most;
    ck_assert_uint_gt(tri_core_oldest_record(w->core), first);
    first = tri_core_oldest_record(w->core);
    die(w);
    w = begin(epoch + 1);
    const struct assigned *a = last_assign(w);
    ck_assert(a->a.job == job && a->a.seed == seed && a->a.sampling.n == 3 && !strcmp(a->salt, "salt"));
    ck_assert_uint_eq(a->a.num_sampled, 3);
    ck_assert(a->counts[0] == 3 && a->counts[1] == TRI_SAMPLED_ENDED && a->counts[2] == TRI_SAMPLED_ENDED);
  }
  ck_assert_msg(most <= MOST_FILES, "%d files", most);
  struct stream *s = attach_to(w, 1, 7);
  ck_assert(s->accepted == 1 && s->existing && !s->done);
  say(w, 4, job, 0, 3, "abcd", true);
  ck_assert(s->done && s->seed == seed);
  ck_assert_ptr_nonnull(strstr(s->choice[0].text, "abcd"));
  ck_assert_ptr_nonnull(strstr(s->choice[2].text, "over"));
  ck_assert(s->choice[1].stop_string == 0 && s->choice[0].num_logprobs == 4 && s->choice[1].num_logprobs == 6);
  ck_assert_int_eq(s->choice[2].reason, TRI_FINISH_LENGTH);
  die(w);
}
END_TEST

/* The old records go once the new one is durable, and not before; with both there is one job. */
START_TEST(both_are_there) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7, 0);
  submit(w, "a", &m);
  uint64_t job = last_job(w), first = tri_core_oldest_record(w->core);
  say(w, 1, job, 0, 0, "ab", false);
  tidy(w);
  tri_core_compact(w->core, w->now, UINT64_MAX, 0);
  say(w, 1, job, 0, 2, "abc", false);
  ck_assert_uint_eq(tri_core_oldest_record(w->core), first);
  die(w);
  w = begin(2);
  ck_assert_int_eq(w->num_assigns, 1);
  ck_assert_uint_eq(last_assign(w)->a.num_sampled, 3);
  ck_assert_uint_gt(tri_core_oldest_record(w->core), first); /* the journal that was read is durable */
  tri_core_compact(w->core, w->now, UINT64_MAX, 0);
  for (int i = 0; i < 3; i++) tidy(w);
  uint64_t second = tri_core_oldest_record(w->core);
  ck_assert_uint_gt(second, first + 3);
  restart(w, 2); /* what is drawn twice by then is known as such */
  say(w, 3, job, 0, 3, "abcd", false);
  die(w);
  w = begin(4);
  ck_assert_uint_eq(last_assign(w)->a.num_sampled, 4);
  struct stream *s = attach_to(w, 1, 7);
  ck_assert_str_eq(s->choice[0].text, "abcd");
  die(w);
}
END_TEST

/* One that is larger than what there always is room for gets some: it keeps nothing behind it. */
START_TEST(a_large_one_lives) {
  enum { AT_A_TIME = 500, TOKENS = 270000 }; /* of 32 bytes, or more */
  static tri_replica_token t[AT_A_TIME];
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7, 0);
  m.submit.sampling.max_tokens = 1 << 20;
  m.submit.stream = false;
  submit(w, "a", &m);
  uint64_t job = last_job(w), first = tri_core_oldest_record(w->core);
  for (size_t at = 0; at < TOKENS;) {
    for (uint32_t n = 0; n < AT_A_TIME; n++, at++)
      t[n] = (tri_replica_token){.job = job, .offset = at, .token = byte_token['a']};
    send_tokens(w, 0, 1, t, AT_A_TIME);
  }
  ck_assert_uint_gt(tri_core_record_bytes(w->core), 8 << 20);
  for (uint32_t n = 0; n < AT_A_TIME; n++) t[n].job = job + 1000; /* of nobody, but in the journal */
  for (int i = 0; i < 3000; i++) send_tokens(w, 0, 1, t, AT_A_TIME);
  ck_assert(tri_recorder_write(w->recorder, NULL) == TRI_OK);
  int large = files();
  ck_assert_int_gt(large, 1000);
  for (int i = 0; i < 4; i++) tidy(w);
  ck_assert_uint_gt(tri_core_oldest_record(w->core), first);
  ck_assert_int_lt(files(), MOST_FILES);
  die(w);
  w = begin(0);
  ck_assert_uint_eq(job_find(w->core, job)->choices[0].num, TOKENS);
  die(w);
}
END_TEST

/* A job keeps its time, and an ended one stays where it is. */
START_TEST(times_and_ends) {
  struct world *w = begin(1);
  tri_client_msg m = named_msg(1, 7, 0);
  m.submit.sampling.deadline_ms = 300000;
  submit(w, "a", &m);
  for (int i = 0; i < 40; i++) {
    send_health(w, 0, 1, 0, (uint64_t)i, true);
    tick(w, SECOND);
  }
  tidy(w);
  tri_core_compact(w->core, w->now, UINT64_MAX, 0);
  for (int i = 0; i < 3; i++) tidy(w);
  pass_by(w, 1, 300); /* a minute */
  die(w);
  w = begin(2);
  ck_assert_int_eq(w->num_assigns, 1);
  ck_assert(last_assign(w)->a.remaining_ms > 190000 && last_assign(w)->a.remaining_ms <= 260000);
  say(w, 2, last_job(w), 0, 0, "end", true);
  tidy(w);
  uint64_t oldest = tri_core_oldest_record(w->core);
  tri_core_compact(w->core, w->now, UINT64_MAX, 0);
  ck_assert_uint_eq(tri_core_oldest_record(w->core), oldest);
  die(w);
}
END_TEST

Suite *suite_core_compact(void) {
  Suite *s = suite_create("core_compact");
  TCase *t = add_case(s, "compact");
  tcase_set_timeout(t, 60);
  tcase_add_checked_fixture(t, set_up, tear_down);
  tcase_add_test(t, one_lives);
  tcase_add_test(t, both_are_there);
  tcase_add_test(t, a_large_one_lives);
  tcase_add_test(t, times_and_ends);
  return s;
}
