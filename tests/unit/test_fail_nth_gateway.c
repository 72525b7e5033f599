/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway without memory: each allocation fails once, of its own and of its event loop's, while a request of each
 * kind is answered. The client has an answer, or the end of its connection; nothing is left of either, and the next
 * request is answered as ever. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/gateway/gateway.h"
#include "client/gateway/tasks.h"
#include "tests/unit/fail_nth.h"
#include "tests/unit/fake_kit.h"

Suite *suite_fail_nth_gateway(void);

enum { MOST_TICKS = 3000, ANSWER = 1 << 16 };

static const char endpoint[] = "ipc://" TRI_TEST_SCRATCH "/fail_nth_gateway.sock";

/* A gateway and its one client, which the loop's ticks read for. */
static struct world {
  gateway g;
  pid_t coordinator;
  int fd; /* of the client; -1: it has had all */
  char answer[ANSWER];
  size_t len;
  int ticks;
} w;

static void *allocate(size_t n) { return fail_nth_fails() ? NULL : malloc(n); }
static void *reallocate(void *p, size_t n) { return n && fail_nth_fails() ? NULL : realloc(p, n); }

/* ---- the loop ---- */

static void take_events(void *ctx) {
  gateway *g = ctx;
  trireme_event e;
  while (trireme_next(g->client, 0, &e, NULL) == TRIREME_OK) gw_jobs_take(g, &e);
}

static void take_tasks(void *ctx) {
  gateway *g = ctx;
  gw_tasks_take(g->tasks);
}

static bool is_quiet(const gateway *g) {
  bool quiet = w.fd < 0 && !http_server_connections(g->server);
  for (size_t i = 0; quiet && i < GW_JOB_BUCKETS; i++) quiet = !g->jobs[i];
  return quiet;
}

static void on_tick(void *ctx) {
  gateway *g = ctx;
  ssize_t n = 0;
  while (w.fd >= 0 && (n = recv(w.fd, w.answer + w.len, ANSWER - 1 - w.len, MSG_DONTWAIT)) > 0) w.len += (size_t)n;
  if (w.fd >= 0 && (!n || (n < 0 && errno != EAGAIN))) {
    close(w.fd);
    w.fd = -1;
  }
  w.answer[w.len] = '\0';
  if (++w.ticks > MOST_TICKS || is_quiet(g)) http_server_stop(g->server);
}

static void open_world(void) {
  http_config config = {.address = "127.0.0.1",
                        .max_body = 1 << 20,
                        .max_pending = 1 << 20,
                        .max_bodies = 1 << 24,
                        .max_connections = 10,
                        .head_ms = 100,
                        .body_ms = 100,
                        .idle_ms = 100,
                        .write_ms = 100};
  http_handler handler = {&w.g,        gw_on_head,    gw_on_request,     gw_on_gone,    gw_on_answer,
                          gw_on_error, gw_cors_lines, gw_on_error_lines, gw_on_drained, gw_on_cut};
  trireme_config cc;
  tri_error err = {0};
  signal(SIGPIPE, SIG_IGN);
  event_set_mem_functions(allocate, reallocate, free);
  w.coordinator = fake_start(endpoint, "500"); /* a connection may be gone when the next token comes */
  trireme_config_init(&cc);
  cc.endpoint = endpoint;
  ck_assert_int_eq(trireme_connect(&cc, &w.g.client, NULL), TRIREME_OK);
  ck_assert_int_eq(http_server_open(&config, &handler, &w.g.server, &err), TRI_OK);
  ck_assert_int_eq(http_server_every(w.g.server, 1, on_tick), TRI_OK);
  ck_assert_int_eq(http_server_watch(w.g.server, HTTP_WATCH_COORDINATOR, trireme_fd(w.g.client), take_events), TRI_OK);
  ck_assert_msg(oai_model_open(TRI_SOURCE "/tests/models/abacus", NULL, &w.g.model, &err) == TRI_OK, "%s", err.message);
  w.g.model_fits = true;
  w.g.max_model_len = 2048;
  ck_assert_int_eq(gw_tasks_open(w.g.model.tokenizer, 1, &w.g.tasks), TRI_OK);
  ck_assert_int_eq(http_server_watch(w.g.server, HTTP_WATCH_WORKERS, gw_tasks_fd(w.g.tasks), take_tasks), TRI_OK);
  w.fd = -1;
}

static void close_world(void) {
  http_server_close(w.g.server);
  gw_tasks_close(w.g.tasks);
  oai_model_close(&w.g.model);
  trireme_close(w.g.client);
  fake_stop(w.coordinator, SIGTERM);
  memset(&w, 0, sizeof w);
}

/* ---- requests ---- */

/* Asks, with that allocation failing (0: none), until nothing of it is left. Returns whether one has failed. */
static bool ask(const char *method, const char *path, const char *body, uint64_t n) {
  static char text[1 << 15];
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)http_server_port(w.g.server))};
  int len = snprintf(text, sizeof text,
                     "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n%s",
                     method, path, strlen(body), body);
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  w.fd = socket(AF_INET, SOCK_STREAM, 0);
  w.len = 0;
  w.ticks = 0;
  ck_assert_int_eq(connect(w.fd, (struct sockaddr *)&a, sizeof a), 0);
  ck_assert_int_eq(send(w.fd, text, (size_t)len, MSG_NOSIGNAL), len);
  fail_nth_arm(n);
  ck_assert_int_eq(http_server_run(w.g.server), TRI_OK);
  bool failed = fail_nth_has_failed();
  fail_nth_arm(0);
  ck_assert_msg(w.ticks <= MOST_TICKS, "%s %s, allocation %llu: no end, with %u connections and: %s", method, path,
                (unsigned long long)n, http_server_connections(w.g.server), w.answer);
  return failed;
}

/* Returns the status of the answer; 0: the connection has ended without one. */
static int status(void) {
  int code = 0;
  if (sscanf(w.answer, "HTTP/1.1 %d ", &code) != 1) ck_assert_msg(!w.len, "%s", w.answer);
  return code;
}

static const struct request {
  const char *method, *path, *body;
} requests[] = {
    {"GET", "/live", ""},
    {"GET", "/v1/models", ""},
    {"GET", "/nowhere", ""},
    {"POST", "/v1/completions", "{\"prompt\":\"a b c\",\"max_tokens\":3}"},
    {"POST", "/v1/completions", "{\"prompt\":[\"a\",\"b\",\"c\"],\"max_tokens\":2,\"n\":2,\"user\":\"x\",\"odd\":1}"},
    {"POST", "/v1/completions", "{\"prompt\":\"a b c\",\"max_tokens\":3,\"stream\":true}"},
    {"POST", "/v1/completions", "{\"prompt\":\"error no_capacity\",\"max_tokens\":3}"},
    {"POST", "/v1/completions", "{\"prompt\":"},
    {"POST", "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"1+2=\"}],\"max_tokens\":3}"},
    {"POST", "/v1/chat/completions",
     "{\"messages\":[{\"role\":\"user\",\"content\":\"1+2=\"}],\"max_tokens\":3,\"stream\":true}"},
    {"POST", "/v1/chat/completions", "{\"messages\":7}"},
    {"POST", "/tokenize", "{\"prompt\":\"1+2=\",\"return_token_strs\":true}"},
    {"POST", "/detokenize", "{\"tokens\":[1,2,3]}"},
    {"POST", "/v1/embeddings", "{\"input\":[\"a\",\"b\"]}"},
};

static void fail_each(const struct request *r, const char *body) {
  ask(r->method, r->path, body, 0);
  int want = status();
  uint64_t n = 1;
  ck_assert_int_gt(want, 0);
  for (; ask(r->method, r->path, body, n); n++) {
    int got = status();
    ck_assert_msg(got == want || !got || got == 503 || got == 408, "%s %s, allocation %llu: %s", r->method, r->path,
                  (unsigned long long)n, w.answer);
    if (n % 8) continue;
    ask("GET", "/live", "", 0);
    ck_assert_int_eq(status(), 200);
    ask(r->method, r->path, body, 0);
    ck_assert_int_eq(status(), want);
  }
  ck_assert_uint_gt(n, 3);
}

START_TEST(each_request) { fail_each(&requests[_i], requests[_i].body); }
END_TEST

/* One that a thread reads. */
START_TEST(a_long_body) {
  static char body[8192];
  size_t len = (size_t)snprintf(body, sizeof body, "{\"max_tokens\":2,\"prompt\":\"");
  memset(body + len, 'a', 5000);
  snprintf(body + len + 5000, sizeof body - len - 5000, "\"}");
  fail_each(&requests[3], body);
}
END_TEST

Suite *suite_fail_nth_gateway(void) {
  Suite *s = suite_create("fail_nth_gateway");
  TCase *t = tcase_create("fail_nth_gateway");
  tcase_set_timeout(t, 120);
  tcase_add_checked_fixture(t, open_world, close_world);
  tcase_add_loop_test(t, each_request, 0, sizeof requests / sizeof *requests);
  tcase_add_test(t, a_long_body);
  suite_add_tcase(s, t);
  return s;
}
