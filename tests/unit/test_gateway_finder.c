/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway looks for a coordinator: its loop goes on meanwhile. */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "client/gateway/finder.h"
#include "base/mem.h"
#include "tests/unit/fake_kit.h"

Suite *suite_gateway_finder(void);

static const char endpoint[] = "ipc://" TRI_TEST_SCRATCH "/finder.sock";

static trireme_config config_for(int timeout_ms) {
  trireme_config config;
  trireme_config_init(&config);
  config.endpoint = endpoint;
  config.connect_timeout_ms = timeout_ms;
  return config;
}

static bool has_ended(const gw_finder *f, int ms) {
  struct pollfd p = {.fd = gw_finder_fd(f), .events = POLLIN};
  return poll(&p, 1, ms) == 1;
}

/* The call is back while nobody is there, and later tells so. */
START_TEST(nobody_is_there) {
  trireme_config config = config_for(300);
  gw_finder *f = NULL;
  gw_found found = {0};
  unlink(endpoint + sizeof "ipc://" - 1);
  ck_assert_int_eq(gw_finder_start(&config, &f), TRI_OK);
  ck_assert(!has_ended(f, 0));
  ck_assert(has_ended(f, 10000));
  ck_assert_int_ne(gw_finder_take(f, &found), TRIREME_OK);
  ck_assert_ptr_null(found.client);
  ck_assert_int_eq(gw_finder_start(&config, &f), TRI_OK);
  gw_finder_stop(f); /* in the middle */
  gw_finder_stop(NULL);
}
END_TEST

/* What a thread has found is used by another one. */
START_TEST(somebody_is) {
  pid_t coordinator = fake_start(endpoint, "0");
  trireme_config config = config_for(5000);
  gw_finder *f = NULL;
  gw_found found = {0};
  trireme_event e;
  uint64_t id;
  ck_assert_int_eq(gw_finder_start(&config, &f), TRI_OK);
  ck_assert(has_ended(f, 10000));
  ck_assert_int_eq(gw_finder_take(f, &found), TRIREME_OK);
  ck_assert_str_eq(found.name, "fake");
  ck_assert_uint_eq(found.max_model_len, 2048);
  ck_assert_int_eq(trireme_ask_status(found.client, &id, NULL), TRIREME_OK);
  ck_assert_int_eq(trireme_next(found.client, 5000, &e, NULL), TRIREME_OK);
  ck_assert(e.kind == TRIREME_EVENT_STATUS && e.id == id);
  trireme_close(found.client);
  ck_assert_int_eq(gw_finder_start(&config, &f), TRI_OK);
  ck_assert(has_ended(f, 10000));
  gw_finder_stop(f); /* with a connection that nobody has taken */
  fake_stop(coordinator, SIGTERM);
}
END_TEST

static void *send_signals(void *arg) {
  const int numbers[] = {SIGHUP, SIGTERM};
  for (int i = 0; i < 2; i++) {
    usleep(100000);
    pthread_kill(*(pthread_t *)arg, numbers[i]);
  }
  return NULL;
}

/* ---- answers of others ---- */

static const trireme_event *answer; /* what a coordinator answers; NULL: the one that is there does */
static bool no_fd;

trireme_result __real_trireme_next_sized(trireme *c, int timeout_ms, trireme_event *out, size_t size,
                                         trireme_error *error);
trireme_result __wrap_trireme_next_sized(trireme *c, int timeout_ms, trireme_event *out, size_t size,
                                         trireme_error *error) {
  trireme_result r = __real_trireme_next_sized(c, timeout_ms, out, size, error);
  if (!r && answer) memcpy(out, answer, size);
  return r;
}

int __real_trireme_fd(trireme *c);
int __wrap_trireme_fd(trireme *c) { return no_fd ? -1 : __real_trireme_fd(c); }

/* Whatever comes instead of a model is said. */
START_TEST(words_of_failures) {
  static const trireme_event refused = {.kind = TRIREME_EVENT_ERROR, .error = {.code = "x", .message = "not for you"}},
                             empty = {.kind = TRIREME_EVENT_MODELS};
  static const struct {
    const trireme_event *answer;
    trireme_result result;
    const char *code, *message;
  } cases[] = {{&refused, TRIREME_PROTOCOL, "x", "not for you"},
               {&empty, TRIREME_PROTOCOL, "corrupt", "of no model"},
               {NULL, TRIREME_FAILED, "internal", "no descriptor"}};
  pid_t coordinator = fake_start(endpoint, "0");
  trireme_config config = config_for(5000);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    trireme_error error = {.message = "of another failure"};
    gw_found found = {0};
    answer = cases[i].answer;
    no_fd = !answer;
    ck_assert_int_eq(gw_find(&config, &found, &error), cases[i].result);
    ck_assert_str_eq(error.code, cases[i].code);
    ck_assert_msg(strstr(error.message, cases[i].message), "%s", error.message);
    ck_assert_ptr_null(found.client);
  }
  answer = NULL;
  no_fd = false;
  fake_stop(coordinator, SIGTERM);
}
END_TEST

static unsigned num_reloads;

static void on_signal(void *ctx, int number) {
  gateway *g = ctx;
  if (number == SIGTERM)
    g->leaving = true;
  else
    num_reloads++;
}

/* A signal while nobody is there yet: SIGHUP does not end the search, and SIGTERM does, before its time is up. */
START_TEST(signals_before_anybody) {
  trireme_config config = config_for(60000);
  http_config http = {.address = "127.0.0.1", .max_body = 1000, .max_connections = 2};
  gateway *g = tri_calloc(1, sizeof *g);
  http_handler handler = {.ctx = g};
  gw_found found = {0};
  trireme_error error = {0};
  pthread_t self = pthread_self(), other;
  unlink(endpoint + sizeof "ipc://" - 1);
  ck_assert_ptr_nonnull(g);
  ck_assert_int_eq(http_server_open(&http, &handler, &g->server, NULL), TRI_OK);
  ck_assert_int_eq(http_server_on_signal(g->server, SIGHUP, on_signal), TRI_OK);
  ck_assert_int_eq(http_server_on_signal(g->server, SIGTERM, on_signal), TRI_OK);
  ck_assert_int_eq(pthread_create(&other, NULL, send_signals, &self), 0);
  ck_assert_int_eq(gw_find_first(g, &config, &found, &error), TRIREME_INTERRUPTED);
  pthread_join(other, NULL);
  ck_assert(g->leaving);
  ck_assert_uint_eq(num_reloads, 1);
  /* One that came before the search began is not waited past either. */
  g->leaving = false;
  ck_assert_int_eq(raise(SIGTERM), 0);
  ck_assert_int_eq(gw_find_first(g, &config, &found, &error), TRIREME_INTERRUPTED);
  ck_assert(g->leaving);
  http_server_close(g->server);
  tri_free(g);
}
END_TEST

Suite *suite_gateway_finder(void) {
  Suite *s = suite_create("gateway_finder");
  TCase *t = tcase_create("gateway_finder");
  tcase_add_test(t, nobody_is_there);
  tcase_add_test(t, somebody_is);
  tcase_add_test(t, words_of_failures);
  tcase_add_test(t, signals_before_anybody);
  suite_add_tcase(s, t);
  return s;
}
