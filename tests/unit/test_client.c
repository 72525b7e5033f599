/* SPDX-License-Identifier: Apache-2.0 */
/* libtrireme: connecting, structs of other versions of its header, what it asks and what it is answered. The other side
 * is tests/tools/fake_coordinator.c. */
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/trireme.h"
#include "comm/wire/endpoint.h"
#include "base/version.h"
#include "base/wait.h"
#include "tests/unit/fake_kit.h"

Suite *suite_client(void);

#define A60 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

START_TEST(test_endpoints) {
  static const struct {
    const char *endpoint;
    tri_status status;
    const char *says;
  } cases[] = {
      {"ipc:///nowhere", TRI_OK, ""},
      {"ipc://", TRI_INVALID_ARGUMENT, "needs the path"},
      {"ipc://" A60 A60, TRI_TOO_LARGE, "at most 107 bytes, this one 120"},
      {"tcp://127.0.0.1:5555", TRI_OK, ""},
      {"tcp://[::1]:5555", TRI_OK, ""},
      {"tcp://127.0.0.2;127.0.0.1:65535", TRI_OK, ""},
      {"tcp://127.0.0.1", TRI_INVALID_ARGUMENT, "the port is missing"},
      {"tcp://127.0.0.1:", TRI_INVALID_ARGUMENT, "the port is missing"},
      {"tcp://[::1]", TRI_INVALID_ARGUMENT, "the port is missing"},
      {"tcp://", TRI_INVALID_ARGUMENT, "the port is missing"},
      {"tcp://:5", TRI_INVALID_ARGUMENT, "the host is missing"},
      {"tcp://127.0.0.1:x", TRI_INVALID_ARGUMENT, "\"x\" is no port"},
      {"tcp://127.0.0.1:*", TRI_INVALID_ARGUMENT, "\"*\" is no port"},
      {"tcp://127.0.0.1:5x", TRI_INVALID_ARGUMENT, "\"5x\" is no port"},
      {"tcp://127.0.0.1:-1", TRI_INVALID_ARGUMENT, "\"-1\" is no port"},
      {"tcp://127.0.0.1:0", TRI_OUT_OF_RANGE, "allowed are 1 to 65535"},
      {"tcp://127.0.0.1:99999", TRI_OUT_OF_RANGE, "port 99999 "},
      {"tcp://127.0.0.1:99999999999999999999999", TRI_OUT_OF_RANGE, "allowed are 1 to 65535"},
      {"tcp://no-such-host.invalid:5", TRI_NOT_FOUND, "\"no-such-host.invalid\" does not resolve"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_error err = {0};
    ck_assert_msg(tri_endpoint_check(cases[i].endpoint, &err) == cases[i].status, "%s: %s", cases[i].endpoint,
                  err.message);
    ck_assert_msg(strstr(err.message, cases[i].says) != NULL, "%s: %s", cases[i].endpoint, err.message);
    if (cases[i].status) ck_assert_str_eq(err.field, "endpoint");
  }
}
END_TEST

/* A socket that nobody listens at, there after a while. */
static void *bind_late(void *arg) {
  int *fd = arg;
  struct sockaddr_un addr = {.sun_family = AF_UNIX, .sun_path = TRI_TEST_SCRATCH "/late.sock"};
  nanosleep(&(struct timespec){.tv_nsec = 600 * 1000000L}, NULL);
  *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  return *fd < 0 || bind(*fd, (struct sockaddr *)&addr, sizeof addr) ? arg : NULL;
}

START_TEST(test_one_timeout) {
  pthread_t thread;
  void *failed;
  int fd = -1;
  unlink(TRI_TEST_SCRATCH "/late.sock");
  trireme *c = NULL;
  trireme_error error = {0};
  trireme_config config;
  trireme_config_init(&config);
  config.endpoint = "ipc://" TRI_TEST_SCRATCH "/late.sock";
  config.connect_timeout_ms = 1000;
  ck_assert_int_eq(pthread_create(&thread, NULL, bind_late, &fd), 0);
  int64_t start = tri_now_ns();
  trireme_result r = trireme_connect(&config, &c, &error);
  double seconds = (double)(tri_now_ns() - start) * 1e-9;
  ck_assert_int_eq(pthread_join(thread, &failed), 0);
  ck_assert_ptr_null(failed);
  close(fd);
  unlink(TRI_TEST_SCRATCH "/late.sock");
  ck_assert_msg(r == TRIREME_TIMEOUT && strstr(error.message, "no coordinator answers"), "%s", error.message);
  ck_assert_msg(seconds > 0.99, "%.3f s", seconds);
}
END_TEST

/* Takes connections and closes them, as the coordinator does that has no files left for them; until it is closed. */
static void *take_and_close(void *arg) {
  const int *listener = arg;
  for (int fd; (fd = accept(*listener, NULL, NULL)) >= 0;) close(fd);
  return NULL;
}

/* A server that closes connections at once is not taken for one that wants keys. */
START_TEST(test_no_files_left) {
  pthread_t thread;
  struct sockaddr_un addr = {.sun_family = AF_UNIX, .sun_path = TRI_TEST_SCRATCH "/full.sock"};
  trireme *c = NULL;
  trireme_error error = {0};
  trireme_config config;
  unlink(addr.sun_path);
  trireme_config_init(&config);
  config.endpoint = "ipc://" TRI_TEST_SCRATCH "/full.sock";
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ck_assert(fd >= 0 && !bind(fd, (struct sockaddr *)&addr, sizeof addr) && !listen(fd, 8));
  ck_assert_int_eq(pthread_create(&thread, NULL, take_and_close, &fd), 0);
  trireme_result r = trireme_connect(&config, &c, &error);
  shutdown(fd, SHUT_RDWR);
  ck_assert_int_eq(pthread_join(thread, NULL), 0);
  close(fd);
  unlink(addr.sun_path);
  ck_assert_msg(r == TRIREME_REFUSED && strstr(error.message, "closes each connection at once: it has no files left"),
                "%s", error.message);
}
END_TEST

/* ---- with a coordinator ---- */

static const char at[] = "ipc://" TRI_TEST_SCRATCH "/client.sock";
static pid_t coordinator = -1;
static const char *step_us = "0";
static trireme *c;

static void start_coordinator(void) { coordinator = fake_start(at, step_us); }
static void stop_coordinator(int signal) { fake_stop(coordinator, signal); }

static trireme *connect_for(const char *endpoint, int reconnect_ms) {
  trireme *made = NULL;
  trireme_config config;
  trireme_error error = {0};
  trireme_config_init(&config);
  config.endpoint = endpoint;
  config.reconnect_timeout_ms = reconnect_ms;
  ck_assert_msg(trireme_connect(&config, &made, &error) == TRIREME_OK, "%s", error.message);
  return made;
}

static trireme *connect_to(const char *endpoint) { return connect_for(endpoint, 0); }

static void start(void) {
  start_coordinator();
  c = connect_to("ipc://" TRI_TEST_SCRATCH "/client.sock");
}

static void stop(void) {
  trireme_close(c);
  stop_coordinator(SIGTERM);
}

static trireme_event next_event(trireme_event_kind kind, uint64_t id) {
  trireme_event e;
  trireme_error error = {0};
  ck_assert_msg(trireme_next(c, 5000, &e, &error) == TRIREME_OK, "%s", error.message);
  ck_assert_int_eq(e.kind, kind);
  ck_assert_uint_eq(e.id, id);
  return e;
}

/* A size that a library of this version cannot have been given is refused by its name, and changes nothing. */
START_TEST(test_sizes) {
  static const size_t wrong[] = {0, sizeof(size_t), 4096};
  trireme_config config;
  trireme_request request;
  trireme_embed_request embed;
  trireme_event e;
  uint64_t id;
  trireme_config_init(&config);
  trireme_request_init(&request);
  trireme_embed_request_init(&embed);
  ck_assert(config.size == sizeof config && request.size == sizeof request && embed.size == sizeof embed);
  request.prompt = embed.text = "x";
  request.prompt_len = embed.text_len = 1;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    trireme *none = NULL;
    trireme_error error[4] = {{.code = ""}};
    config.size = request.size = embed.size = wrong[i];
    trireme_result r[4] = {trireme_connect(&config, &none, &error[0]), trireme_submit(c, &request, &id, &error[1]),
                           trireme_embed(c, &embed, &id, &error[2]), trireme_next_sized(c, 0, &e, wrong[i], &error[3])};
    for (int k = 0; k < 4; k++) {
      ck_assert_int_eq(r[k], TRIREME_INVALID);
      ck_assert_str_eq(error[k].field, "size");
    }
    ck_assert_ptr_null(none);
  }
  request.size = sizeof request;
  request.max_tokens = 1;
  ck_assert_int_eq(trireme_submit(c, &request, &id, NULL), TRIREME_OK);
  next_event(TRIREME_EVENT_ACCEPTED, id);
  next_event(TRIREME_EVENT_TOKENS, id);
  next_event(TRIREME_EVENT_DONE, id);
}
END_TEST

/* Nothing is written behind a struct, of whatever size. */
START_TEST(test_tiny_structs) {
  _Alignas(max_align_t) unsigned char bytes[64];
  for (size_t size = 0; size < sizeof bytes; size++) {
    for (int kind = 0; kind < 3; kind++) {
      memset(bytes, 0x5a, sizeof bytes);
      if (kind == 0) trireme_config_init_sized((trireme_config *)bytes, size);
      if (kind == 1) trireme_request_init_sized((trireme_request *)bytes, size);
      if (kind == 2) trireme_embed_request_init_sized((trireme_embed_request *)bytes, size);
      for (size_t i = size; i < sizeof bytes; i++) ck_assert_msg(bytes[i] == 0x5a, "byte %zu of %zu", i, size);
    }
  }
}
END_TEST

/* A value that this version does not know is not taken for one that it knows. */
START_TEST(test_early_stopping) {
  trireme_error error = {0};
  trireme_request q;
  trireme_request_init(&q);
  q.prompt = "x";
  q.prompt_len = 1;
  q.early_stopping = (trireme_early_stopping)(TRIREME_EARLY_UNSET + 1);
  ck_assert_int_eq(trireme_submit(c, &q, NULL, &error), TRIREME_INVALID);
  ck_assert_str_eq(error.field, "early_stopping");
  q.early_stopping = TRIREME_EARLY_UNSET;
  ck_assert_int_eq(trireme_submit(c, &q, NULL, &error), TRIREME_OK);
}
END_TEST

/* A program with a shorter struct gets, and gives, its members and no byte behind them. */
START_TEST(test_shorter_structs) {
  enum { SHORT = offsetof(trireme_request, priority), GUARD = 0x5a };
  union {
    trireme_request r;
    unsigned char bytes[sizeof(trireme_request)];
  } q;
  union {
    trireme_event e;
    unsigned char bytes[sizeof(trireme_event)];
  } out;
  const size_t shorter = offsetof(trireme_event, done.queue_ms);
  uint64_t id;
  memset(&q, GUARD, sizeof q);
  trireme_request_init_sized(&q.r, SHORT);
  ck_assert_uint_eq(q.r.size, SHORT);
  ck_assert(q.r.max_tokens == TRIREME_UNSET && q.r.n == 1 && q.r.logprobs == -1);
  for (size_t i = SHORT; i < sizeof q; i++) ck_assert_int_eq(q.bytes[i], GUARD);
  q.r.prompt = "two words";
  q.r.prompt_len = strlen(q.r.prompt);
  q.r.max_tokens = 1;
  ck_assert_int_eq(trireme_submit(c, &q.r, &id, NULL), TRIREME_OK); /* with 0x5a5a... its priority would be refused */
  next_event(TRIREME_EVENT_ACCEPTED, id);
  next_event(TRIREME_EVENT_TOKENS, id);
  memset(&out, GUARD, sizeof out);
  ck_assert_int_eq(trireme_next_sized(c, 5000, &out.e, shorter, NULL), TRIREME_OK);
  ck_assert(out.e.kind == TRIREME_EVENT_DONE && out.e.id == id && out.e.done.num == 1);
  ck_assert(out.e.done.prompt_tokens == 2 && out.e.done.completion_tokens == 1);
  for (size_t i = shorter; i < sizeof out; i++) ck_assert_int_eq(out.bytes[i], GUARD);
}
END_TEST

START_TEST(test_what_it_is_told) {
  uint64_t id;
  ck_assert_str_eq(trireme_server_version(c), TRIREME_VERSION "-fake");
  ck_assert_uint_eq(trireme_max_message(c), 1 << 20);
  ck_assert_str_eq(trireme_endpoint(c), "ipc://" TRI_TEST_SCRATCH "/client.sock");
  ck_assert_int_eq(trireme_ask_models(c, &id, NULL), TRIREME_OK);
  trireme_event e = next_event(TRIREME_EVENT_MODELS, id);
  ck_assert(e.models.num == 1 && e.models.max_model_len == 2048);
  ck_assert_str_eq(e.models.names[0], "fake");
  ck_assert_int_eq(trireme_ask_status(c, &id, NULL), TRIREME_OK);
  e = next_event(TRIREME_EVENT_STATUS, id);
  ck_assert(e.status.num_groups == 1 && e.status.num_ranks == 2 && e.status.vocab_size == 1000);
  ck_assert_str_eq(e.status.groups[0]->state, "ready");
  ck_assert(e.status.num_callers == 1 && !strcmp(e.status.callers[0]->name, "ann"));
  ck_assert(e.status.groups[0]->kv_pages == 1000 && e.status.ranks[1]->rank == 1 && e.status.ranks[1]->pid == 1001);
}
END_TEST

/* With too few descriptors nothing is connected, and the limit is named. */
START_TEST(test_few_descriptors) {
  struct rlimit before;
  int refused = 0, connected = 0;
  ck_assert(!getrlimit(RLIMIT_NOFILE, &before));
  for (rlim_t most = 3; most < 64; most++) {
    trireme *other = NULL;
    trireme_error error = {0};
    trireme_config config;
    trireme_config_init(&config);
    config.endpoint = "ipc://" TRI_TEST_SCRATCH "/client.sock";
    ck_assert(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){most, before.rlim_max}));
    trireme_result r = trireme_connect(&config, &other, &error);
    trireme_close(other);
    ck_assert(!setrlimit(RLIMIT_NOFILE, &before));
    connected += r == TRIREME_OK;
    refused += r == TRIREME_FAILED && strstr(error.message, "ulimit -n is ");
    ck_assert_msg(connected + refused == (int)most - 2, "with %d: %s", (int)most, error.message);
  }
  ck_assert(refused && connected);
}
END_TEST

/* A connection that was lost is over for every call, and the next coordinator there hears nothing of its requests. */
START_TEST(test_lost) {
  trireme_event e;
  trireme_request q;
  trireme_request_init(&q);
  q.prompt = "two words";
  q.prompt_len = strlen(q.prompt);
  q.continue_on_disconnect = true;
  stop_coordinator(SIGKILL);
  start_coordinator();
  nanosleep(&(struct timespec){.tv_nsec = 500 * 1000000L}, NULL); /* for whoever would connect anew */
  for (int i = 0; i < 3; i++) {
    ck_assert_int_eq(trireme_submit(c, &q, NULL, NULL), TRIREME_CLOSED);
    ck_assert_int_eq(trireme_ask_status(c, NULL, NULL), TRIREME_CLOSED);
    ck_assert_int_eq(trireme_next(c, 100, &e, NULL), TRIREME_CLOSED);
  }
  trireme_close(c);
  c = connect_to("ipc://" TRI_TEST_SCRATCH "/client.sock");
  uint64_t id;
  ck_assert_int_eq(trireme_ask_status(c, &id, NULL), TRIREME_OK);
  e = next_event(TRIREME_EVENT_STATUS, id);
  ck_assert(e.status.prompt_tokens == 0 && e.status.running == 0);
}
END_TEST

/* ---- in an event loop ---- */

static bool readable(int fd, int timeout_ms) {
  struct pollfd p = {.fd = fd, .events = POLLIN};
  return poll(&p, 1, timeout_ms) == 1 && p.revents & POLLIN;
}

/* Reads until nothing is there, after which the descriptor is not readable either; returns how many requests ended. */
static int drain(void) {
  int ended = 0;
  trireme_event e;
  trireme_result r;
  while ((r = trireme_next(c, 0, &e, NULL)) == TRIREME_OK)
    ended += e.kind == TRIREME_EVENT_DONE || e.kind == TRIREME_EVENT_STATUS;
  ck_assert_int_eq(r, TRIREME_TIMEOUT);
  return ended;
}

START_TEST(test_poll) {
  enum { REQUESTS = 40 };
  trireme_request q;
  int fd = trireme_fd(c), ended = 0;
  ck_assert_int_ge(fd, 0);
  ck_assert_int_eq(trireme_fd(c), fd);
  ck_assert(!readable(fd, 0));
  trireme_request_init(&q);
  q.prompt = "x";
  q.prompt_len = 1;
  q.max_tokens = 20;
  for (int sent = 0; ended < 2 * REQUESTS;) {
    /* Requests go out between the readings: each takes in news of those before it. */
    for (int i = 0; i < 4 && sent < REQUESTS; i++, sent++) {
      ck_assert_int_eq(trireme_submit(c, &q, NULL, NULL), TRIREME_OK);
      ck_assert_int_eq(trireme_ask_status(c, NULL, NULL), TRIREME_OK);
    }
    ck_assert_msg(readable(fd, 5000), "after %d of %d", ended, 2 * REQUESTS);
    ended += drain();
  }
  ck_assert_int_eq(ended, 2 * REQUESTS);
  ck_assert(!readable(fd, 50));
}
END_TEST

/* Several messages in one frame are as many events, each announced. */
START_TEST(test_poll_one_event_at_a_time) {
  int fd = trireme_fd(c);
  trireme_event e = {.kind = TRIREME_EVENT_ACCEPTED};
  trireme_request q;
  trireme_request_init(&q);
  q.prompt = "x";
  q.prompt_len = 1;
  q.max_tokens = 100;
  for (int i = 0; i < 10; i++) {
    ck_assert_int_eq(trireme_submit(c, &q, NULL, NULL), TRIREME_OK);
    do {
      ck_assert(readable(fd, 5000));
      trireme_result r = trireme_next(c, 0, &e, NULL);
      ck_assert(r == TRIREME_OK || r == TRIREME_TIMEOUT);
      if (r == TRIREME_TIMEOUT) e.kind = TRIREME_EVENT_ACCEPTED;
    } while (e.kind != TRIREME_EVENT_DONE);
  }
}
END_TEST

/* An answer that the sending of something else has taken in keeps it readable. */
START_TEST(test_poll_after_sending) {
  int fd = trireme_fd(c);
  trireme_event e;
  for (int i = 0; i < 50; i++) {
    ck_assert_int_eq(trireme_ask_stats(c, NULL, NULL), TRIREME_OK);
    ck_assert(readable(fd, 5000));
    ck_assert_int_eq(trireme_ask_stats(c, NULL, NULL), TRIREME_OK);
    for (int answers = 0; answers < 2;) {
      ck_assert_msg(readable(fd, 5000), "%d, after %d answers", i, answers);
      answers += trireme_next(c, 0, &e, NULL) == TRIREME_OK;
    }
  }
}
END_TEST

/* The end of the connection is something to read, again and again. */
START_TEST(test_poll_of_the_end) {
  int fd = trireme_fd(c);
  trireme_event e;
  ck_assert(!readable(fd, 0));
  kill(coordinator, SIGKILL);
  trireme_result r = TRIREME_TIMEOUT;
  for (int i = 0; i < 100 && r == TRIREME_TIMEOUT; i++) {
    ck_assert(readable(fd, 5000));
    r = trireme_next(c, 0, &e, NULL);
  }
  ck_assert_int_eq(r, TRIREME_CLOSED);
  ck_assert(readable(fd, 0));
  ck_assert_int_eq(trireme_next(c, 0, &e, NULL), TRIREME_CLOSED);
}
END_TEST

/* ---- with a second connection ---- */

static trireme_request long_request(uint64_t seed) {
  trireme_request q;
  trireme_request_init(&q);
  q.prompt = "x";
  q.prompt_len = 1;
  q.max_tokens = 1500;
  q.has_seed = seed != 0;
  q.seed = seed;
  return q;
}

static void reconnecting(int ms) {
  trireme_close(c);
  stop_coordinator(SIGTERM);
  step_us = "500";
  start_coordinator();
  c = connect_for("ipc://" TRI_TEST_SCRATCH "/client.sock", ms);
}

/* The coordinator that comes back knows no job: one with a seed goes on behind what has come, one without ends. */
START_TEST(test_goes_on) {
  uint64_t id[3], next = 0, text = 0;
  trireme_event e;
  int errors = 0, done = 0;
  reconnecting(20000);
  trireme_request q[2] = {long_request(5), long_request(0)};
  ck_assert_int_eq(trireme_submit(c, &q[0], &id[0], NULL), TRIREME_OK);
  ck_assert_int_eq(trireme_submit(c, &q[1], &id[1], NULL), TRIREME_OK);
  for (int begun = 0; begun < 2;) {
    ck_assert_int_eq(trireme_next(c, 5000, &e, NULL), TRIREME_OK);
    ck_assert_int_ne(e.kind, TRIREME_EVENT_DONE);
    begun += e.kind == TRIREME_EVENT_TOKENS && e.tokens.choices[0]->offset == 0;
    if (e.kind != TRIREME_EVENT_TOKENS || e.id != id[0]) continue;
    next += e.tokens.choices[0]->num_ids;
    text += e.tokens.choices[0]->text_len;
  }
  stop_coordinator(SIGKILL);
  while (!trireme_is_away(c)) {
    trireme_result r = trireme_next(c, 50, &e, NULL);
    ck_assert(r == TRIREME_OK || r == TRIREME_TIMEOUT);
    if (r != TRIREME_OK || e.kind != TRIREME_EVENT_TOKENS || e.id != id[0]) continue;
    next += e.tokens.choices[0]->num_ids;
    text += e.tokens.choices[0]->text_len;
  }
  ck_assert_int_eq(trireme_next(c, 0, &e, NULL), TRIREME_TIMEOUT);
  ck_assert_int_eq(trireme_ask_status(c, &id[2], NULL), TRIREME_OK); /* waits with the others */
  start_coordinator();
  for (bool told = false; done + errors < 2 || !told;) {
    trireme_error error = {0};
    ck_assert_msg(trireme_next(c, 10000, &e, &error) == TRIREME_OK, "%s", error.message);
    ck_assert_int_ne(e.kind, TRIREME_EVENT_ACCEPTED);
    told |= e.kind == TRIREME_EVENT_STATUS && e.id == id[2];
    if (e.kind == TRIREME_EVENT_ERROR) {
      ck_assert(e.id == id[1] && !strcmp(e.error.code, "coordinator_lost"));
      errors++;
    }
    if (e.id != id[0]) continue;
    if (e.kind == TRIREME_EVENT_TOKENS) {
      ck_assert_uint_eq(e.tokens.choices[0]->offset, next);
      next += e.tokens.choices[0]->num_ids;
      text += e.tokens.choices[0]->text_len;
    }
    done += e.kind == TRIREME_EVENT_DONE;
  }
  ck_assert(done == 1 && errors == 1 && next == 1500 && text > 1500);
}
END_TEST

/* An event loop sees it by the same descriptor, and a coordinator that stays away ends what waits. */
START_TEST(test_polled_on) {
  trireme_event e;
  uint64_t id;
  trireme_error error = {0};
  reconnecting(1000);
  int fd = trireme_fd(c);
  stop_coordinator(SIGKILL);
  start_coordinator();
  trireme_request q = long_request(3);
  ck_assert_int_eq(trireme_submit(c, &q, &id, NULL), TRIREME_OK);
  for (int ended = 0; !ended; ended = drain()) ck_assert(readable(fd, 5000));
  ck_assert(!trireme_is_away(c) && trireme_fd(c) == fd);
  ck_assert_int_eq(trireme_submit(c, &q, &id, NULL), TRIREME_OK);
  stop_coordinator(SIGKILL);
  int64_t since = tri_now_ns();
  trireme_result r;
  do {
    ck_assert(readable(fd, 5000));
    r = trireme_next(c, 0, &e, &error);
  } while (r == TRIREME_TIMEOUT || (r == TRIREME_OK && e.kind != TRIREME_EVENT_ERROR));
  double seconds = (double)(tri_now_ns() - since) * 1e-9;
  ck_assert(r == TRIREME_OK && e.id == id && !strcmp(e.error.code, "coordinator_lost"));
  ck_assert_msg(seconds > 0.9, "after %.3f s", seconds);
  for (int i = 0; i < 2; i++) {
    ck_assert(readable(fd, 0));
    ck_assert_int_eq(trireme_next(c, 0, &e, &error), TRIREME_CLOSED);
    ck_assert_int_eq(trireme_submit(c, &q, &id, NULL), TRIREME_CLOSED);
  }
  start_coordinator();
}
END_TEST

Suite *suite_client(void) {
  Suite *suite = suite_create("client");
  TCase *t = tcase_create("connecting");
  tcase_set_timeout(t, 30);
  tcase_add_test(t, test_endpoints);
  tcase_add_test(t, test_one_timeout);
  tcase_add_test(t, test_no_files_left);
  tcase_add_test(t, test_tiny_structs);
  suite_add_tcase(suite, t);
  t = tcase_create("calls");
  tcase_set_timeout(t, 30);
  tcase_add_checked_fixture(t, start, stop);
  tcase_add_test(t, test_sizes);
  tcase_add_test(t, test_shorter_structs);
  tcase_add_test(t, test_early_stopping);
  tcase_add_test(t, test_what_it_is_told);
  tcase_add_test(t, test_few_descriptors);
  tcase_add_test(t, test_lost);
  tcase_add_test(t, test_poll);
  tcase_add_test(t, test_poll_one_event_at_a_time);
  tcase_add_test(t, test_poll_after_sending);
  tcase_add_test(t, test_poll_of_the_end);
  tcase_add_test(t, test_goes_on);
  tcase_add_test(t, test_polled_on);
  suite_add_tcase(suite, t);
  return suite;
}
