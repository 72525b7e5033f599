/* SPDX-License-Identifier: Apache-2.0 */
/* Connections over real sockets: a server in a thread of its own, and clients that behave and that do not. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/gateway/http_conn.h"

/* Events of a stream. */
#define ONE "data: one\n\n"
#define TWO "data: two\n\n"

Suite *suite_http_conn(void);

enum { FLOOD_BYTES = 64 * 1024, WAIT_MS = 60000 }; /* WAIT_MS ends what hangs */

typedef struct world {
  http_server *server;
  pthread_t thread;
  http_conn *streams; /* one at most */
  http_conn *later;   /* a stream that ends some ticks later, when all before it is written */
  int ticks;
  atomic_int closed, slow;
  int long_requests, ticks_before, ticks_between; /* of the last, and since the first of them */
  atomic_int all_ticks;
  int stop_fd;
} world;

static void on_head(void *ctx, http_conn *c) {
  (void)ctx;
  http_str path = http_parser_path(http_conn_request(c));
  if (http_parser_field(http_conn_request(c), "authorization").len) http_conn_trust(c);
  if (path.len == 7 && !memcmp(path.s, "/refuse", 7)) http_respond(c, 401, "text/plain", NULL, "no", 2);
}

static void on_request(void *ctx, http_conn *c) {
  world *w = ctx;
  const http_parser *p = http_conn_request(c);
  http_str path = http_parser_path(p);
  if (path.s[1] == 'e') http_respond(c, 200, "text/plain", "X-Y: z\r\n", p->body.data, p->body.len);
  if (path.s[1] == 'c') {
    char client[HTTP_PEER_BYTES];
    http_conn_client(c, client);
    http_respond(c, 200, "text/plain", NULL, client, strlen(client));
  }
  if (path.s[1] == 'p') http_respond(c, 200, "text/plain", NULL, path.s, path.len);
  if (path.s[1] == 'w') { /* it takes a while */
    int now = atomic_load(&w->all_ticks);
    if (!w->long_requests++) w->ticks_before = now;
    w->ticks_between = now - w->ticks_before;
    usleep(10000);
    http_respond(c, 200, "text/plain", NULL, "w", 1);
  }
  if (path.s[1] == 'f') {
    http_stream_begin(c, NULL);
    w->streams = c;
  }
  if (path.s[1] == 'l') {
    http_stream_begin(c, NULL);
    w->later = c;
    w->ticks = 0;
  }
  if (path.s[1] == 's') {
    http_stream_begin(c, NULL);
    if (http_stream_send(c, ONE, sizeof ONE - 1) && http_stream_send(c, TWO, sizeof TWO - 1)) http_stream_end(c);
  }
}

static void on_gone(void *ctx, http_conn *c, http_gone why) {
  world *w = ctx;
  if (w->streams == c) w->streams = NULL;
  atomic_fetch_add(why == HTTP_GONE_SLOW ? &w->slow : &w->closed, 1);
}

static void on_answering(void *ctx, http_conn *c, int status, const char *fields) {
  (void)fields;
  (void)ctx;
  (void)c;
  (void)status;
}

static size_t on_error(void *ctx, int status, const char *why, char *out, size_t cap) {
  (void)ctx;
  return (size_t)snprintf(out, cap, "%d %s", status, why);
}

static void on_tick(void *ctx) {
  static const char flood[FLOOD_BYTES] = "data: ";
  world *w = ctx;
  atomic_fetch_add(&w->all_ticks, 1);
  if (w->later && ++w->ticks == 20) ck_assert(http_stream_send(w->later, ONE, sizeof ONE - 1));
  if (w->later && w->ticks == 40) {
    http_stream_end(w->later);
    w->later = NULL;
  }
  if (!w->streams || http_stream_send(w->streams, flood, sizeof flood)) return;
  w->streams = NULL;
  atomic_fetch_add(&w->slow, 1);
}

/* 1: to drain; more: to stand still for so many ms. */
static void on_stop(void *ctx) {
  world *w = ctx;
  uint64_t value;
  if (read(w->stop_fd, &value, sizeof value) != sizeof value) return;
  if (value == 1)
    http_server_drain(w->server);
  else
    usleep((useconds_t)value * 1000);
}

static void *run(void *arg) {
  world *w = arg;
  ck_assert_int_eq(http_server_run(w->server), TRI_OK);
  return NULL;
}

static void start_at(world *w, const char *address, int idle_ms, unsigned connections, size_t bodies) {
  http_config config = {.address = address,
                        .max_body = 100000,
                        .max_pending = 1 << 20,
                        .max_bodies = bodies,
                        .max_connections = connections,
                        .head_ms = 200,
                        .body_ms = bodies ? 5000 : 200,
                        .idle_ms = idle_ms,
                        .write_ms = 30000};
  *w = (world){.stop_fd = eventfd(0, EFD_NONBLOCK)};
  http_handler handler = {w, on_head, on_request, on_gone, on_answering, on_error, NULL, NULL, NULL, NULL};
  tri_error err = {0};
  ck_assert_msg(http_server_open(&config, &handler, &w->server, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(http_server_watch(w->server, HTTP_WATCH_COORDINATOR, w->stop_fd, on_stop), TRI_OK);
  ck_assert_int_eq(http_server_every(w->server, 1, on_tick), TRI_OK);
  ck_assert_int_eq(pthread_create(&w->thread, NULL, run, w), 0);
}

static void start_with(world *w, int idle_ms, unsigned connections, size_t bodies) {
  start_at(w, "127.0.0.1", idle_ms, connections, bodies);
}

static void start(world *w, int idle_ms) { start_with(w, idle_ms, 3, 0); }

static void drain(world *w) {
  uint64_t value = 1;
  ck_assert_int_eq(write(w->stop_fd, &value, sizeof value), sizeof value);
}

static void finish(world *w) {
  drain(w);
  pthread_join(w->thread, NULL);
  http_server_close(w->server);
  close(w->stop_fd);
}

/* Connects from 127.0.0.`host`. */
static int dial_from(world *w, unsigned host) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)http_server_port(w->server))};
  struct sockaddr_in own = {.sin_family = AF_INET};
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  own.sin_addr.s_addr = htonl((INADDR_LOOPBACK & ~0xffu) | host);
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  ck_assert_int_eq(bind(fd, (struct sockaddr *)&own, sizeof own), 0);
  ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
  return fd;
}

static int dial(world *w) { return dial_from(w, 1); }

static void say(int fd, const char *s) { ck_assert_int_eq(send(fd, s, strlen(s), MSG_NOSIGNAL), strlen(s)); }

/* Reads until the text has come, or (wanted NULL) until the end. Returns how that ended: bytes, or -errno. */
static ssize_t hear(int fd, const char *wanted, char *out, size_t cap) {
  size_t n = 0;
  out[0] = '\0';
  while (n + 1 < cap && !(wanted && strstr(out, wanted))) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ck_assert_msg(poll(&p, 1, WAIT_MS) == 1, "nothing came behind: %s", out);
    ssize_t got = recv(fd, out + n, cap - 1 - n, 0);
    if (got < 0) return -errno;
    if (!got) break;
    n += (size_t)got;
    out[n] = '\0';
  }
  ck_assert_msg(!wanted || strstr(out, wanted), "not \"%s\": %s", wanted, out);
  return (ssize_t)n;
}

static void await(atomic_int *count, int value) {
  for (int i = 0; i < WAIT_MS && atomic_load(count) < value; i++) usleep(1000);
  ck_assert_int_eq(atomic_load(count), value);
}

/* Waits until the server has read what came before: it looks at all sockets between two ticks. */
static void await_reads(world *w) {
  int until = atomic_load(&w->all_ticks) + 3;
  for (int i = 0; i < WAIT_MS && atomic_load(&w->all_ticks) < until; i++) usleep(1000);
  ck_assert_int_ge(atomic_load(&w->all_ticks), until);
}

START_TEST(in_order) {
  static world w; /* its thread goes on where a test fails */
  char text[4096];
  start(&w, 5000);
  int fd = dial(&w);
  say(fd,
      "GET /p1 HTTP/1.1\r\nHost: a\r\n\r\nPOST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /p3 HTTP/1.1");
  hear(fd, "abc", text, sizeof text);
  const char *first = strstr(text, "\r\n\r\n/p1HTTP/1.1 200 OK\r\n");
  ck_assert_msg(first && strstr(first, "X-Y: z\r\n"), "%s", text);
  say(fd, "\r\nHost: a\r\nConnection: close\r\n\r\n");
  hear(fd, NULL, text, sizeof text);
  ck_assert_msg(strstr(text, "Connection: close\r\n\r\n/p3"), "%s", text);
  close(fd);
  fd = dial(&w);
  say(fd, "HEAD /p1 HTTP/1.0\r\n\r\n");
  hear(fd, NULL, text, sizeof text);
  ck_assert_msg(strstr(text, "Content-Length: 3\r\n") && !strstr(text, "/p1"), "%s", text);
  close(fd);
  finish(&w);
}
END_TEST

START_TEST(streams) {
  static world w; /* its thread goes on where a test fails */
  char text[4096];
  start(&w, 5000);
  int fd = dial(&w);
  say(fd, "GET /s HTTP/1.1\r\nHost: a\r\n\r\n");
  hear(fd, "0\r\n\r\n", text, sizeof text);
  ck_assert_msg(strstr(text, "\r\n\r\nb\r\ndata: one\n\n\r\nb\r\ndata: two\n\n\r\n0\r\n\r\n"), "%s", text);
  say(fd, "GET /s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"); /* without chunks the end is its end */
  hear(fd, NULL, text, sizeof text);
  ck_assert_msg(strstr(text, "\r\n\r\ndata: one\n\ndata: two\n\n"), "%s", text);
  close(fd);
  fd = dial(&w);
  say(fd, "GET /later HTTP/1.1\r\nHost: a\r\n\r\n");
  hear(fd, "\r\n\r\nb\r\ndata: one\n\n\r\n0\r\n\r\n", text, sizeof text);
  say(fd, "GET /later HTTP/1.0\r\n\r\n");
  hear(fd, NULL, text, sizeof text);
  ck_assert_msg(strstr(text, "\r\n\r\ndata: one\n\n"), "%s", text);
  close(fd);
  finish(&w);
}
END_TEST

/* The body of a refused request is not read, and the client gets the answer although it is still sending. */
START_TEST(refused) {
  static world w; /* its thread goes on where a test fails */
  char text[4096], body[60000];
  start(&w, 5000);
  memset(body, 'x', sizeof body);
  int fd = dial(&w);
  say(fd, "POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n");
  ck_assert_int_eq(send(fd, body, sizeof body, MSG_NOSIGNAL), sizeof body);
  ck_assert_int_gt(hear(fd, NULL, text, sizeof text), 0);
  ck_assert_msg(!strncmp(text, "HTTP/1.1 401 ", 13) && strstr(text, "close"), "%s", text);
  close(fd);
  fd = dial(&w);
  say(fd, "POST /e HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n");
  hear(fd, "HTTP/1.1 100 Continue\r\n\r\n", text, sizeof text);
  say(fd, "x");
  hear(fd, "\r\n\r\nx", text, sizeof text);
  say(fd, "what?\r\n");
  hear(fd, NULL, text, sizeof text);
  ck_assert_msg(!strncmp(text, "HTTP/1.1 400 ", 13), "%s", text);
  close(fd);
  finish(&w);
}
END_TEST

START_TEST(hang_up) {
  static world w; /* its thread goes on where a test fails */
  char text[4096];
  start(&w, 5000);
  int one = dial(&w), two = dial(&w);
  say(one, "GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
  say(two, "GET /fl HTTP/1.1\r\nHost: a\r\n\r\n");
  hear(two, "data: ", text, sizeof text);
  close(one);
  await(&w.closed, 1);
  shutdown(two, SHUT_RDWR);
  await(&w.closed, 2);
  close(two);
  /* A reset, alone and behind a request that was sent ahead. */
  for (int ahead = 0; ahead < 2; ahead++) {
    static const struct linger at_once = {.l_onoff = 1};
    int fd = dial(&w);
    say(fd, "GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
    await_reads(&w);
    if (ahead) say(fd, "GET /p HTTP/1.1\r\nHost: a\r\n\r\n");
    await_reads(&w);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
    await(&w.closed, 3 + ahead);
  }
  finish(&w);
}
END_TEST

/* It reads nothing: what waits for it has a limit, and it cannot take the beginning for the whole. */
START_TEST(slow_reader) {
  static world w; /* its thread goes on where a test fails */
  static char text[32 << 20];
  start(&w, 5000);
  int fd = dial(&w);
  say(fd, "GET /f HTTP/1.1\r\nHost: a\r\n\r\n");
  await(&w.slow, 1);
  ck_assert_int_eq(hear(fd, NULL, text, sizeof text), -ECONNRESET);
  close(fd);
  finish(&w);
}
END_TEST

START_TEST(times) {
  static world w; /* its thread goes on where a test fails */
  char text[4096];
  start(&w, 100);
  int silent = dial(&w), head = dial(&w), body = dial(&w);
  say(head, "GET / HT");
  say(body, "POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab");
  ck_assert_int_eq(hear(silent, NULL, text, sizeof text), 0);
  hear(head, NULL, text, sizeof text);
  ck_assert_msg(!strncmp(text, "HTTP/1.1 408 ", 13), "%s", text);
  hear(body, NULL, text, sizeof text);
  ck_assert_msg(!strncmp(text, "HTTP/1.1 408 ", 13), "%s", text);
  close(silent);
  close(head);
  close(body);
  finish(&w);
}
END_TEST

/* One that waits for a request makes room for a new one, the oldest that nobody trusts first; one whose request is
 * under way does not. */
START_TEST(room_for_new_ones) {
  static world w; /* its thread goes on where a test fails */
  char text[4096];
  start(&w, 5000);
  int trusted = dial(&w);
  say(trusted, "GET /p HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\n\r\n");
  hear(trusted, "\r\n\r\n/p", text, sizeof text);
  int silent = dial(&w), half = dial(&w);
  say(half, "GET /p HT");
  await_reads(&w);
  int first = dial(&w);
  ck_assert_int_le(hear(silent, NULL, text, sizeof text), 0);
  say(first, "GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
  await_reads(&w);
  int second = dial(&w);
  ck_assert_int_le(hear(half, NULL, text, sizeof text), 0); /* younger than the trusted one */
  say(second, "GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
  await_reads(&w);
  int third = dial(&w);
  ck_assert_int_le(hear(trusted, NULL, text, sizeof text), 0);
  say(third, "GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
  await_reads(&w);
  int beyond = dial(&w);
  hear(beyond, NULL, text, sizeof text);
  ck_assert_msg(!strncmp(text, "HTTP/1.1 503 ", 13), "%s", text);
  int all[] = {trusted, silent, half, first, second, third, beyond};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) close(all[i]);
  finish(&w);
}
END_TEST

/* Returns whether a new client is answered while the others hold all connections. */
static bool is_answered(world *w) {
  char text[4096];
  int fd = dial(w);
  say(fd, "GET /p HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  hear(fd, NULL, text, sizeof text);
  close(fd);
  return !strncmp(text, "HTTP/1.1 200 ", 13);
}

/* Requests whose body never ends hold no connection for good: not those that nobody trusts, and of the others those of
 * an address with several of them, the oldest first. */
START_TEST(room_for_unfinished_ones) {
  static const char *const heads[] = {
      "GET /p HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n1",
      "POST /e HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nContent-Length: 10\r\n\r\n1",
      "GET /p HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\n\r\nGET /p",
  };
  static world w; /* its thread goes on where a test fails */
  char text[4096];
  start_with(&w, 5000, 3, 1 << 20);
  for (size_t k = 0; k < sizeof heads / sizeof *heads; k++) {
    int all[3];
    for (int i = 0; i < 3; i++) {
      all[i] = dial_from(&w, k ? 1 : 2 + (unsigned)i);
      say(all[i], heads[k]);
      await_reads(&w);
    }
    ck_assert_msg(is_answered(&w), "%s", heads[k]);
    hear(all[0], NULL, text, sizeof text);
    for (int i = 0; i < 3; i++) close(all[i]);
  }
  finish(&w);
}
END_TEST

/* The request of a client with one connection is not given up for those of another one. */
START_TEST(room_by_address) {
  static const unsigned hosts[] = {2, 3, 3};
  static world w; /* its thread goes on where a test fails */
  char text[4096];
  int all[3];
  start_with(&w, 5000, 3, 1 << 20);
  for (int i = 0; i < 3; i++) {
    all[i] = dial_from(&w, hosts[i]);
    say(all[i], "POST /e HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nContent-Length: 2\r\n\r\n1");
    await_reads(&w);
  }
  int first = dial(&w);
  ck_assert_int_le(hear(all[1], NULL, text, sizeof text), 0);
  say(first, "POST /e HTTP/1.1\r\nHost: a\r\nAuthorization: x\r\nContent-Length: 2\r\n\r\n1");
  await_reads(&w);
  ck_assert(!is_answered(&w));
  say(all[0], "2");
  hear(all[0], "\r\n\r\n12", text, sizeof text);
  close(first);
  for (int i = 0; i < 3; i++) close(all[i]);
  finish(&w);
}
END_TEST

/* Waits until the loop has read what was sent before: each answer takes a turn of it, and a turn reads 16 KiB of each.
 */
static void settle(int fd) {
  char text[4096];
  for (int i = 0; i < 30; i++) {
    say(fd, "GET /p HTTP/1.1\r\nHost: a\r\n\r\n");
    hear(fd, "\r\n\r\n/p", text, sizeof text);
  }
}

/* Of large bodies a client has as many bytes here as are free at most; small ones are always taken. */
START_TEST(bodies_have_a_limit) {
  enum { LARGE = 90000, MOST = 4 * LARGE };
  static world w; /* its thread goes on where a test fails */
  static char body[LARGE], answer[LARGE + 4096];
  char text[4096];
  int all[8], cut = 0, num = sizeof all / sizeof *all;
  start_with(&w, 5000, 20, MOST);
  int other = dial(&w);
  memset(body, 'x', sizeof body);
  for (int i = 0; i < num; i++) {
    all[i] = dial(&w);
    say(all[i], "POST /e HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 90001\r\n\r\n");
    ssize_t sent = send(all[i], body, sizeof body, MSG_NOSIGNAL);
    ck_assert(sent == (ssize_t)sizeof body || sent < 0);
    settle(other);
  }
  int small = dial(&w);
  say(small, "POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\ny");
  hear(small, "\r\n\r\ny", text, sizeof text);
  for (int i = 0; i < num; i++) {
    send(all[i], "x", 1, MSG_NOSIGNAL);
    ssize_t n = hear(all[i], NULL, answer, sizeof answer);
    bool refused = n > 0 && !strncmp(answer, "HTTP/1.1 503 ", 13);
    ck_assert_msg(i >= 2 || !strncmp(answer, "HTTP/1.1 200 ", 13), "%d: %.100s", i, answer);
    cut += refused;
    close(all[i]);
  }
  ck_assert_int_eq(cut, num - 2);
  int again = dial(&w); /* what was refused is free again */
  say(again, "POST /e HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 90000\r\n\r\n");
  ck_assert_int_eq(send(again, body, sizeof body, MSG_NOSIGNAL), sizeof body);
  hear(again, NULL, answer, sizeof answer);
  ck_assert_msg(!strncmp(answer, "HTTP/1.1 200 ", 13), "%.100s", answer);
  close(again);
  close(small);
  close(other);
  finish(&w);
}
END_TEST

/* However many requests have come at once: what is due by time does not wait for all of them. */
START_TEST(timers_go_on) {
  enum { NUM = 40 };
  static world w; /* its thread goes on where a test fails */
  char text[4096];
  int all[NUM];
  uint64_t still = 300;
  start_with(&w, 5000, NUM, 0);
  for (int i = 0; i < NUM; i++) {
    all[i] = dial(&w);
    say(all[i], "GET /p HTTP/1.1\r\nHost: a\r\n\r\n");
    hear(all[i], "\r\n\r\n/p", text, sizeof text);
  }
  ck_assert_int_eq(write(w.stop_fd, &still, sizeof still), sizeof still);
  usleep(50000);
  for (int i = 0; i < NUM; i++) say(all[i], "GET /w HTTP/1.1\r\nHost: a\r\n\r\n");
  for (int i = 0; i < NUM; i++) hear(all[i], "\r\n\r\nw", text, sizeof text);
  ck_assert_int_eq(w.long_requests, NUM);
  ck_assert_int_ge(w.ticks_between, 2);
  for (int i = 0; i < NUM; i++) close(all[i]);
  finish(&w);
}
END_TEST

/* A client of this host takes turns by its connection, whatever family the listener is of. */
START_TEST(clients_of_this_host) {
  static const char *const addresses[] = {"127.0.0.1", "::"};
  char text[4096];
  int v6 = socket(AF_INET6, SOCK_STREAM, 0);
  for (int i = 0; i < (v6 < 0 ? 1 : 2); i++) {
    static world w; /* its thread goes on where a test fails */
    start_at(&w, addresses[i], 5000, 3, 0);
    int fd = dial(&w);
    say(fd, "GET /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    hear(fd, NULL, text, sizeof text);
    ck_assert_msg(strstr(text, "\r\n\r\n127.0.0.1:"), "%s", text);
    close(fd);
    finish(&w);
  }
  if (v6 >= 0) close(v6);
}
END_TEST

START_TEST(drains) {
  static world w; /* its thread goes on where a test fails */
  char text[4096];
  start(&w, 5000);
  int idle = dial(&w), busy = dial(&w);
  say(idle, "GET /p HTTP/1.1\r\nHost: a\r\n\r\n");
  hear(idle, "\r\n\r\n/p", text, sizeof text);
  say(busy, "POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nab");
  await_reads(&w); /* its head has been read */
  drain(&w);
  ck_assert_int_eq(hear(idle, NULL, text, sizeof text), 0);
  say(busy, "c");
  hear(busy, NULL, text, sizeof text);
  ck_assert_msg(strstr(text, "Connection: close\r\n\r\nabc"), "%s", text);
  close(busy);
  pthread_join(w.thread, NULL);
  http_server_close(w.server);
  close(w.stop_fd);
  close(idle);
}
END_TEST

Suite *suite_http_conn(void) {
  Suite *s = suite_create("http_conn");
  TCase *c = tcase_create("connections");
  tcase_add_test(c, in_order);
  tcase_add_test(c, streams);
  tcase_add_test(c, refused);
  tcase_add_test(c, hang_up);
  tcase_add_test(c, slow_reader);
  tcase_add_test(c, times);
  tcase_add_test(c, room_for_new_ones);
  tcase_add_test(c, room_for_unfinished_ones);
  tcase_add_test(c, room_by_address);
  tcase_add_test(c, bodies_have_a_limit);
  tcase_add_test(c, timers_go_on);
  tcase_add_test(c, clients_of_this_host);
  tcase_add_test(c, drains);
  suite_add_tcase(s, c);
  return s;
}
