/* SPDX-License-Identifier: Apache-2.0 */
/* The guard of the clients' socket: connections beyond the descriptors, and messages without end. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "comm/wire/zsock.h"
#include "coordinator/net/connection_guard.h"
#include "base/wait.h"

Suite *suite_connection_guard(void);

static char folder[64], endpoint[100];
static tri_zcontext *z;
static tri_zserver *server;
static tri_zlink *friend_link;

static tri_zlink *open_link(void) {
  tri_error err = {0};
  tri_zlink *l = NULL;
  tri_zlink_config c = {.endpoint = endpoint, .max_message = 1 << 20, .backlog = 100, .refuse_unconnected = true};
  ck_assert_msg(tri_zlink_open(z, &c, &l, &err) == TRI_OK, "%s", err.message);
  return l;
}

/* Takes all messages that are there; returns how many. */
static int drain(void) {
  tri_peer from;
  const void *data;
  size_t len;
  int n = 0;
  for (; tri_zserver_recv(server, &from, &data, &len, NULL) == TRI_OK; n++)
    tri_connection_guard_message(from.connection);
  return n;
}

/* A normal client's message arrives. */
static void check_friend(void) {
  ck_assert_int_eq(tri_zlink_send_wait(friend_link, "ping", 4, 60000), TRI_OK);
  int n = 0;
  for (int i = 0; i < 6000 && !n; i++) {
    n = drain();
    usleep(10 * 1000);
  }
  ck_assert_int_gt(n, 0);
}

static void begin(bool tcp) {
  tri_error err = {0};
  strcpy(folder, "/tmp/tri-guard-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  ck_assert_int_eq(tri_zcontext_create(&z, &err), TRI_OK);
  snprintf(endpoint, sizeof endpoint, "ipc://%s/s", folder);
  tri_zserver_config c = {
      .endpoint = tcp ? "tcp://127.0.0.1:*" : endpoint, .insecure_tcp = true, .max_message = 1 << 20, .backlog = 1000};
  ck_assert_msg(tri_zserver_open(z, &c, &server, &err) == TRI_OK, "%s", err.message);
  snprintf(endpoint, sizeof endpoint, "%s", tri_zserver_endpoint(server));
  ck_assert_int_eq(tri_connection_guard_open(endpoint, &err), TRI_OK);
  friend_link = open_link();
  check_friend();
}

static void end(void) {
  tri_zlink_close(friend_link);
  tri_zserver_close(server);
  tri_zcontext_destroy(z);
  tri_connection_guard_close();
  ck_assert_int_eq(rmdir(folder), 0);
}

/* A connection without the library; -1: there is no descriptor for it. */
static int raw_connect(void) {
  struct sockaddr_un un = {.sun_family = AF_UNIX};
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  bool tcp = !strncmp(endpoint, "tcp", 3);
  int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return -1;
  snprintf(un.sun_path, sizeof un.sun_path, "%s", endpoint + 6);
  in.sin_port = htons((uint16_t)atoi(strrchr(endpoint, ':') + 1));
  const void *address = tcp ? (const void *)&in : (const void *)&un;
  ck_assert_int_eq(connect(fd, address, tcp ? sizeof in : sizeof un), 0);
  fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

/* Says hello, and waits for the library's: it does not take messages before that. */
static void greet(int fd) {
  static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
                              "DEALER";
  char hello[64] = "\xff\0\0\0\0\0\0\0\0\x7f\x03";
  memcpy(hello + 12, "NULL", 4);
  ck_assert_int_eq(write(fd, hello, sizeof hello), sizeof hello);
  ck_assert_int_eq(write(fd, ready, 2 + 0x1c), 2 + 0x1c);
  ssize_t got = 0;
  for (int i = 0; i < 500 && got < (ssize_t)(sizeof hello + sizeof ready - 1); i++) {
    char bytes[256];
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n > 0) got += n;
    usleep(10 * 1000);
  }
  ck_assert_int_ge(got, sizeof hello + sizeof ready - 1);
}

/* Sends frames with more behind them until the guard suspects somebody. */
static void send_without_end(int fd) {
  char frames[18 * 1000];
  size_t at = 0;
  for (size_t i = 0; i < sizeof frames; i += 18) memcpy(frames + i, "\x01\x10xxxxxxxxxxxxxxxx", 18);
  int64_t until = tri_deadline_after_ms(60000);
  while (!tri_connection_guard_suspects() && tri_now_ns() < until) {
    ssize_t n = send(fd, frames + at, sizeof frames - at, MSG_NOSIGNAL);
    if (n > 0) at = (at + (size_t)n) % sizeof frames;
    if (n < 0) usleep(1000);
  }
  ck_assert(tri_connection_guard_suspects());
}

static bool is_closed(int fd) {
  char byte[256];
  for (int i = 0; i < 500; i++) {
    ssize_t n = read(fd, byte, sizeof byte);
    if (!n || (n < 0 && errno != EAGAIN)) return true;
    usleep(10 * 1000);
  }
  return false;
}

START_TEST(test_message_without_end) {
  begin(_i);
  int bad = raw_connect(), quiet = raw_connect();
  uint64_t cut = tri_connection_guard_figures().cut;
  greet(bad);
  greet(quiet);
  send_without_end(bad);
  drain();
  tri_connection_guard_cut();
  ck_assert(is_closed(bad));
  ck_assert_uint_eq(tri_connection_guard_figures().cut, cut + 1);
  check_friend();
  char byte[256];
  while (read(quiet, byte, sizeof byte) > 0) continue;
  ck_assert_int_eq(errno, EAGAIN);
  ck_assert(!tri_connection_guard_suspects()); /* it is dealt with */
  close(bad);
  close(quiet);
  end();
}
END_TEST

/* Whoever sends a lot that ends is suspected until it is taken. */
START_TEST(test_many_messages) {
  begin(_i);
  char *large = calloc(1, 1 << 20);
  uint64_t cut = tri_connection_guard_figures().cut;
  for (int i = 0; i < 8; i++) ck_assert_int_eq(tri_zlink_send_wait(friend_link, large, 1 << 20, 5000), TRI_OK);
  for (int i = 0; i < 6000 && !tri_connection_guard_suspects(); i++) usleep(10 * 1000);
  ck_assert(tri_connection_guard_suspects());
  ck_assert_int_gt(drain(), 0);
  tri_connection_guard_cut();
  check_friend();
  ck_assert_uint_eq(tri_connection_guard_figures().cut, cut);
  free(large);
  end();
}
END_TEST

/* A listener of somebody else, as that of the workers; returns the accepted end, and the other one. */
static int accept_elsewhere(int *other) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(at.sun_path, sizeof at.sun_path, "%s/w", folder);
  ck_assert_int_eq(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
  ck_assert_int_eq(listen(listener, 1), 0);
  *other = socket(AF_UNIX, SOCK_STREAM, 0);
  ck_assert_int_eq(connect(*other, (struct sockaddr *)&at, sizeof at), 0);
  int fd = tri_guard_accept(listener, NULL, NULL, SOCK_CLOEXEC);
  ck_assert_int_ge(fd, 0);
  close(listener);
  unlink(at.sun_path);
  return fd;
}

/* Bytes from workers are charged to no connection, because their messages do not pass this guard. */
START_TEST(test_others_are_no_suspects) {
  begin(false);
  int other, fd = accept_elsewhere(&other);
  tri_guard_received(fd, 2 * TRI_GUARD_MOST_BYTES);
  ck_assert(!tri_connection_guard_suspects());
  tri_connection_guard_message(fd); /* nor does anything make it one */
  tri_connection_guard_second();
  tri_guard_received(fd, 2 * TRI_GUARD_MOST_BYTES);
  ck_assert(!tri_connection_guard_suspects());
  close(fd);
  close(other);
  end();
}
END_TEST

/* The guard is sure once each connection has sent a message, because under steady traffic the queue never empties. */
START_TEST(test_sure_among_others) {
  begin(false);
  int bad = raw_connect();
  uint64_t cut = tri_connection_guard_figures().cut;
  greet(bad);
  send_without_end(bad);
  int n = 0;
  for (; !tri_connection_guard_is_sure() && n < 100000; n++) {
    ck_assert(tri_connection_guard_suspects()); /* it stays one */
    tri_connection_guard_message(0);            /* of somebody else */
  }
  ck_assert_int_gt(n, 100);
  ck_assert_int_lt(n, 100000);
  tri_connection_guard_cut();
  ck_assert(is_closed(bad));
  ck_assert_uint_eq(tri_connection_guard_figures().cut, cut + 1);
  ck_assert(!tri_connection_guard_suspects());
  close(bad);
  end();
}
END_TEST

/* A client that only listens sends heartbeats, for days. */
START_TEST(test_heartbeats) {
  begin(false);
  int last = dup(0); /* the connections have lower numbers */
  for (int i = 0; i < 100000; i++) {
    for (int fd = 0; fd < last; fd++) tri_guard_received(fd, 100);
    tri_connection_guard_second();
    if (i % 1000 == 0) ck_assert(!tri_connection_guard_suspects());
  }
  for (int i = 0; i < 1300; i++) { /* what comes faster than those is forgiven as little */
    for (int fd = 0; fd < last; fd++) tri_guard_received(fd, 2000);
    tri_connection_guard_second();
  }
  ck_assert(tri_connection_guard_suspects());
  close(last);
  end();
}
END_TEST

/* The newest are refused while there are descriptors for others, and when there is none at all. */
START_TEST(test_no_descriptors) {
  enum { MOST = 160 };
  struct rlimit before, few;
  int held[MOST], n = 0;
  getrlimit(RLIMIT_NOFILE, &before);
  few = before;
  few.rlim_cur = MOST;
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
  begin(_i);
  uint64_t refused = tri_connection_guard_figures().refused;
  while (n < MOST && (held[n] = raw_connect()) >= 0) {
    n++;
    usleep(1000);
  }
  ck_assert_int_eq(errno, EMFILE); /* this process has the other ends as well */
  check_friend();
  ck_assert_uint_gt(tri_connection_guard_figures().refused, refused);
  ck_assert(is_closed(held[n - 1])); /* it has the last descriptor, and there is none for the other end */
  for (int i = 0; i < n; i++) close(held[i]);
  ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
  tri_zlink *next = open_link(); /* there is room again */
  int got = 0;
  ck_assert_int_eq(tri_zlink_send_wait(next, "ping", 4, 60000), TRI_OK);
  for (int i = 0; i < 6000 && !(got = drain()); i++) usleep(10 * 1000);
  ck_assert_int_gt(got, 0);
  tri_zlink_close(next);
  end();
}
END_TEST

/* Connections that come and go all the time are refused until there is a pause; the one from before is heard meanwhile.
 */
START_TEST(test_flood) {
  begin(false);
  uint64_t before = tri_connection_guard_figures().too_fast, refused = tri_connection_guard_figures().refused;
  int n = 0;
  for (int64_t until = tri_deadline_after_ms(60000); tri_now_ns() < until; n++) {
    close(raw_connect());
    if (tri_connection_guard_figures().too_fast > before) break;
  }
  ck_assert_uint_gt(tri_connection_guard_figures().too_fast, before);
  ck_assert_int_ge(n, TRI_GUARD_CONNECTIONS_AT_ONCE - 10);
  check_friend();
  for (int i = 0; i < 2000; i++) close(raw_connect()); /* what waits in the listener's queue is taken by the pause */
  usleep(1000 * 1000);
  int fd = raw_connect();
  greet(fd);
  close(fd);
  ck_assert_uint_eq(tri_connection_guard_figures().refused, refused);
  end();
}
END_TEST

Suite *suite_connection_guard(void) {
  Suite *s = suite_create("connection_guard");
  TCase *t = tcase_create("connection_guard");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, test_flood);
  tcase_add_loop_test(t, test_message_without_end, 0, 2); /* 1: over TCP */
  tcase_add_loop_test(t, test_many_messages, 0, 2);
  tcase_add_test(t, test_others_are_no_suspects);
  tcase_add_test(t, test_sure_among_others);
  tcase_add_test(t, test_heartbeats);
  tcase_add_loop_test(t, test_no_descriptors, 0, 2);
  suite_add_tcase(s, t);
  return s;
}
