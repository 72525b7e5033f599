/* SPDX-License-Identifier: Apache-2.0 */
/* The log's line of a request that has ended: all of its words, for whoever reads them with a program. */
#include <unistd.h>

#include "comm/wire/zsock.h"
#include "base/foreign.h"
#include "base/log.h"
#include "tests/unit/core_world.h"

Suite *suite_core_request_log(void);

/* ---- what goes to the log ---- */

static int saved_stderr, log_pipe[2];

static void begin_log(void) {
  saved_stderr = dup(2);
  ck_assert_int_eq(pipe(log_pipe), 0);
  fflush(stderr);
  dup2(log_pipe[1], 2);
  close(log_pipe[1]);
}

/* Ends it and leaves the last line of requests in out, without its end. */
static void end_log(char out[1024]) {
  char got[8192];
  size_t n = 0;
  dup2(saved_stderr, 2);
  close(saved_stderr);
  for (ssize_t r; (r = read(log_pipe[0], got + n, sizeof got - 1 - n)) > 0;) n += (size_t)r;
  close(log_pipe[0]);
  got[n] = '\0';
  out[0] = '\0';
  for (char *line = got, *end; (end = strchr(line, '\n')); line = end + 1) {
    *end = '\0';
    if (strstr(line, " request: ")) snprintf(out, 1024, "%.1023s", line);
  }
}

/* Without a replica that is ready. */
static struct world *waiting_world(bool log_requests) {
  return world_create_sharing(
      &(tri_core_config){.max_queue = MAX_QUEUE, .starts_are_told = true, .log_requests = log_requests});
}

static struct world *world_of(bool log_requests) {
  struct world *w = waiting_world(log_requests);
  start_replica(w, 0, 1, 1);
  return w;
}

/* The line as it must be: id is that of the stream, the rest as printed. */
static void expect_line(const char *line, const char *level, const struct stream *s, const char *rest) {
  char id[TRI_REQUEST_ID_TEXT], want[1024];
  tri_request_id_format(&s->request_id, id);
  snprintf(want, sizeof want, "%s - request: id=%s %s", level, id, rest);
  ck_assert_str_eq(line, want);
}

START_TEST(a_line_for_each_end) {
  struct world *w = world_of(true);
  char line[1024];
  tri_client_msg m = submit_msg(1);
  m.submit.caller = (tri_wire_str){"ann", 3};
  m.submit.external_id = (tri_wire_str){"ann-1", 5};
  begin_log();
  struct stream *s = submit(w, "a", &m);
  tick(w, 20 * MS);
  token(w, last_job(w), 0, 0, byte_token['x'], 0, TRI_FINISH_STOP);
  tick(w, 30 * MS);
  token(w, last_job(w), 0, 1, byte_token['y'], TRI_TOKEN_LAST, TRI_FINISH_STOP);
  end_log(line);
  ck_assert(s->done);
  expect_line(line, "INFO", s,
              "external_id=ann-1 client=- caller=ann prompt_tokens=3 generation_tokens=2 cached_tokens=0 queue_ms=0.0 "
              "first_token_ms=20.0 total_ms=50.0 finish=stop");
  ck_assert_ptr_null(strstr(line, "xy"));
  world_destroy(w);
}
END_TEST

START_TEST(an_error_and_an_abort) {
  struct world *w = waiting_world(true);
  char line[1024], key[TRI_OWNER_TEXT], rest[512];
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.deadline_ms = 1000;
  tri_owner owner = {.kind = TRI_OWNER_KEY, .bytes = "@x"};
  tri_owner_text(&owner, key);
  ck_assert_uint_eq(strlen(key), 4 + 40);
  begin_log();
  struct stream *s = submit(w, "a@x", &m);
  tick(w, 2000 * MS);
  end_log(line);
  ck_assert(s->timed_out);
  snprintf(rest, sizeof rest,
           "client=%s prompt_tokens=3 generation_tokens=0 cached_tokens=0 queue_ms=- first_token_ms=- total_ms=2000.0 "
           "finish=abort timed_out=true",
           key);
  expect_line(line, "INFO", s, rest);

  m = submit_msg(2);
  begin_log();
  s = submit(w, "b", &m);
  tri_core_abandon(w->core, w->now + 5 * MS, "it is over");
  tick(w, 10 * MS);
  end_log(line);
  ck_assert_msg(strstr(line, "queue_ms=- first_token_ms=- total_ms=5.0 error=peer_lost"), "%s", line);
  world_destroy(w);
}
END_TEST

/* A request's own fault is no error of the cluster, in the log and in the counts. */
START_TEST(refusals) {
  struct world *w = world_of(true);
  char line[1024], stats[STATS_BYTES] = "", id[TRI_REQUEST_ID_TEXT], want[300];
  tri_client_msg m = submit_msg(1);
  m.submit.sampling.has_max_tokens = true;
  m.submit.sampling.max_tokens = MODEL_LEN;
  begin_log();
  submit(w, "a", &m);
  end_log(line);
  ck_assert_msg(strstr(line, " total_ms=0.0 refused=context_length_exceeded field=max_tokens"), "%s", line);

  m = submit_msg(2);
  m.submit.model = (tri_wire_str){"toys", 4};
  m.submit.caller = (tri_wire_str){"ann", 3};
  m.submit.external_id = (tri_wire_str){"ann-1", 5};
  m.submit.has_request_id = true;
  memset(&m.submit.request_id, 7, sizeof m.submit.request_id);
  begin_log();
  submit(w, "a", &m);
  end_log(line);
  tri_request_id_format(&m.submit.request_id, id);
  snprintf(want, sizeof want,
           "INFO - request: id=%s external_id=ann-1 client=- caller=ann refused=not_found field=model", id);
  ck_assert_str_eq(line, want);

  w->refuse_tokenize = true; /* what is full is nobody's fault */
  m = submit_msg(3);
  m.submit.prompt = (tri_wire_str){"x", 1};
  begin_log();
  submit(w, "a", &m);
  end_log(line);
  ck_assert_msg(strstr(line, " refused=no_capacity"), "%s", line);
  w->stats = stats;
  submit(w, "a", &(tri_client_msg){.op = TRI_OP_STATS, .id = 4});
  ck_assert_ptr_nonnull(strstr(stats, "\ntrireme:request_failure_total 0\n"));
  ck_assert_ptr_nonnull(strstr(stats, "\ntrireme:requests_refused_total{reason=\"tokenizer\"} 1\n"));
  ck_assert_ptr_nonnull(strstr(stats, "\ntrireme:request_invalid_total{reason=\"context_length_exceeded\"} 1\n"));
  ck_assert_ptr_nonnull(strstr(stats, "\ntrireme:request_invalid_total{reason=\"not_found\"} 1\n"));
  w->stats = NULL;
  world_destroy(w);
}
END_TEST

/* Nobody asked for the line: only the level of debugging has it. */
START_TEST(not_asked_for) {
  struct world *w = world_of(false);
  char line[1024];
  for (int debug = 0; debug < 2; debug++) {
    tri_log_setup(debug ? TRI_LOG_DEBUG : TRI_LOG_INFO, "-");
    tri_client_msg m = submit_msg(1 + (uint64_t)debug);
    begin_log();
    struct stream *s = submit(w, "a", &m);
    bytes(w, last_job(w), 0, "x");
    end_log(line);
    if (!debug) ck_assert_str_eq(line, "");
    if (debug)
      expect_line(line, "DEBUG", s,
                  "client=- prompt_tokens=3 generation_tokens=1 cached_tokens=0 queue_ms=0.0 first_token_ms=0.0 "
                  "total_ms=0.0 finish=length");
  }
  tri_log_setup(TRI_LOG_INFO, "-");
  world_destroy(w);
}
END_TEST

START_TEST(owners) {
  char text[TRI_OWNER_TEXT];
  uint32_t uid = 1000;
  tri_owner o = {.kind = TRI_OWNER_USER};
  memcpy(o.bytes, &uid, sizeof uid);
  ck_assert_str_eq(tri_owner_text(&o, text), "uid:1000");
  o.kind = TRI_OWNER_NOBODY;
  ck_assert_str_eq(tri_owner_text(&o, text), "-");
  tri_zkeypair pair;
  ck_assert_int_eq(tri_zkeypair_make(&pair, NULL), TRI_OK);
  TRI_FOREIGN_WROTE(&pair, sizeof pair);
  o.kind = TRI_OWNER_KEY;
  ck_assert(tri_zkey_raw(pair.public_key, o.bytes));
  ck_assert_int_eq(strncmp(tri_owner_text(&o, text), "key:", 4), 0);
  ck_assert_str_eq(text + 4, pair.public_key);
}
END_TEST

Suite *suite_core_request_log(void) {
  Suite *s = suite_create("core_request_log");
  TCase *c = add_case(s, "lines");
  tcase_add_test(c, a_line_for_each_end);
  tcase_add_test(c, an_error_and_an_abort);
  tcase_add_test(c, refusals);
  tcase_add_test(c, not_asked_for);
  tcase_add_test(c, owners);
  return s;
}
