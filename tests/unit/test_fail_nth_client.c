/* SPDX-License-Identifier: Apache-2.0 */
/* libtrireme without memory: each allocation fails once while a program connects, asks and hears. A call says so, and
 * the program goes on: what was asked ends, or the connection does. */
#include <check.h>
#include <signal.h>
#include <string.h>

#include "client/trireme.h"
#include "base/wait.h"
#include "tests/unit/fail_nth.h"
#include "tests/unit/fake_kit.h"

Suite *suite_fail_nth_client(void);

static const char endpoint[] = "ipc://" TRI_TEST_SCRATCH "/fail_nth_client.sock";
static pid_t coordinator;

static void start(void) { coordinator = fake_start(endpoint, "0"); }
static void stop(void) { fake_stop(coordinator, SIGTERM); }

static trireme_result connect_to(int reconnect_ms, trireme **out) {
  trireme_config config;
  trireme_error error = {0};
  trireme_config_init(&config);
  config.endpoint = endpoint;
  config.connect_timeout_ms = 5000;
  config.reconnect_timeout_ms = reconnect_ms;
  return trireme_connect(&config, out, &error);
}

/* whole: all of a long answer comes at its end. */
static trireme_result submit(trireme *c, bool whole, uint64_t *id) {
  static const trireme_logit_bias bias = {.id = 5, .bias = 1};
  trireme_request q;
  trireme_request_init(&q);
  q.prompt = "one two three";
  q.prompt_len = strlen(q.prompt);
  q.max_tokens = whole ? 1500 : 3;
  q.no_stream = whole;
  q.logit_bias = &bias;
  q.num_logit_bias = 1;
  return trireme_submit(c, &q, id, NULL);
}

/* Hears all of one request. Returns how that ended; OK with its last event, in front of which no token was left out. */
static trireme_result hear(trireme *c, uint64_t id, bool *failed) {
  int64_t until = tri_deadline_after_ms(10000);
  uint64_t tokens = 0;
  while (tri_now_ns() < until) {
    trireme_event e;
    trireme_result r = trireme_next(c, 1000, &e, NULL);
    if (r == TRIREME_NO_MEMORY) {
      *failed = true; /* the next call goes on, or says that it is over */
      continue;
    }
    if (r != TRIREME_OK) return r;
    if (e.id != id) continue;
    for (size_t i = 0; e.kind == TRIREME_EVENT_TOKENS && i < e.tokens.num; i++) tokens += e.tokens.choices[i]->num_ids;
    if (e.kind == TRIREME_EVENT_DONE && tokens) ck_assert_uint_eq(tokens, e.done.completion_tokens);
    if (e.kind == TRIREME_EVENT_DONE && !tokens) ck_assert_uint_ge(e.done.choices[0]->text_len, 1500);
    for (size_t i = 0; e.kind == TRIREME_EVENT_DONE && i < e.done.num; i++)
      ck_assert_uint_eq(strlen(e.done.choices[i]->text), e.done.choices[i]->text_len);
    if (e.id == id && (e.kind == TRIREME_EVENT_DONE || e.kind == TRIREME_EVENT_ERROR || e.kind == TRIREME_EVENT_MODELS))
      return r;
  }
  return TRIREME_TIMEOUT;
}

/* Everything once; false: a call had no memory. What has no answer is asked again where that can be. */
static bool live(int reconnect_ms, uint64_t n) {
  trireme *c = NULL;
  uint64_t id = 0;
  bool failed = false;
  trireme_result r = connect_to(reconnect_ms, &c);
  if (r) {
    ck_assert_msg(r == TRIREME_NO_MEMORY && !c, "allocation %llu: connecting, %d", (unsigned long long)n, (int)r);
    return false;
  }
  for (int turn = 0; turn < 4; turn++) {
    r = turn ? submit(c, turn == 3, &id) : trireme_ask_models(c, &id, NULL);
    if (r == TRIREME_NO_MEMORY) {
      failed = true;
      continue;
    }
    ck_assert_msg(!r || (failed && r == TRIREME_CLOSED), "allocation %llu: asking, %d", (unsigned long long)n, (int)r);
    if (!r) r = hear(c, id, &failed);
    ck_assert_msg(!r || (failed && r == TRIREME_CLOSED), "allocation %llu: hearing, %d", (unsigned long long)n, (int)r);
    if (trireme_fd(c) < 0) failed = true;
  }
  trireme_close(c);
  return !failed;
}

/* 0: one connection; 1: it may be made again. */
START_TEST(each_call) {
  uint64_t n = 1;
  ck_assert(live(_i * 1000, 0));
  for (bool failed = true; failed; n++) {
    fail_nth_arm(n);
    live(_i * 1000, n);
    failed = fail_nth_has_failed();
    fail_nth_arm(0);
    ck_assert(live(_i * 1000, n)); /* as if nothing had been */
  }
  ck_assert_uint_gt(n, 10);
}
END_TEST

Suite *suite_fail_nth_client(void) {
  Suite *s = suite_create("fail_nth_client");
  TCase *t = tcase_create("fail_nth_client");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, start, stop);
  tcase_add_loop_test(t, each_call, 0, 2);
  suite_add_tcase(s, t);
  return s;
}
