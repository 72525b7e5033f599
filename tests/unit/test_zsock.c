/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets: who gets in, modes of files, multipart messages, identities, rebinding, loss of connections. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "comm/wire/endpoint.h"
#include "comm/wire/socket_lock.h"
#include "comm/wire/zsock.h"
#include "base/wait.h"

Suite *suite_zsock(void);

/* ---- helpers ---- */

static char folder[64];
static tri_zcontext *z;

/* Memory for frames is out. */
static bool no_memory;

int __real_zmq_msg_init_size(zmq_msg_t *m, size_t n);
int __wrap_zmq_msg_init_size(zmq_msg_t *m, size_t n);
int __wrap_zmq_msg_init_size(zmq_msg_t *m, size_t n) {
  if (!no_memory) return __real_zmq_msg_init_size(m, n);
  errno = ENOMEM;
  return -1;
}

static void setup(void) {
  tri_error err = {0};
  strcpy(folder, "/tmp/tri-zsock-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  ck_assert_msg(tri_zcontext_create(&z, &err) == TRI_OK, "%s", err.message);
}

static void teardown(void) {
  tri_zcontext_destroy(z);
  z = NULL;
  ck_assert_msg(rmdir(folder) == 0, "%s is not empty: a socket file was left behind", folder);
}

static const char *ipc(const char *name) {
  static char endpoint[128];
  snprintf(endpoint, sizeof endpoint, "ipc://%s/%s", folder, name);
  return endpoint;
}

static tri_zserver *open_server(const tri_zserver_config *c) {
  tri_error err = {0};
  tri_zserver *s = NULL;
  ck_assert_msg(tri_zserver_open(z, c, &s, &err) == TRI_OK, "%s: %s", err.field, err.message);
  return s;
}

static tri_zlink *open_link(const char *endpoint, const tri_zkeypair *own, const char *server_key) {
  tri_error err = {0};
  tri_zlink *l = NULL;
  tri_zlink_config c = {.endpoint = endpoint,
                        .own = own,
                        .server_key = server_key,
                        .max_message = 1 << 20,
                        .backlog = 100,
                        .refuse_unconnected = true};
  ck_assert_msg(tri_zlink_open(z, &c, &l, &err) == TRI_OK, "%s: %s", err.field, err.message);
  return l;
}

/* The next message at the server within ms. */
static tri_status server_next(tri_zserver *s, int ms, tri_peer *from, const void **data, size_t *len, int *frames) {
  int64_t end = tri_deadline_after_ms(ms);
  for (;;) {
    tri_status st = tri_zserver_recv(s, from, data, len, frames);
    if (st != TRI_AGAIN || tri_now_ns() > end) return st;
    tri_zpoll item = {.server = s, .fd = -1};
    tri_zpoll_wait(&item, 1, 10, NULL);
  }
}

static tri_status link_next(tri_zlink *l, int ms, const void **data, size_t *len) {
  int64_t end = tri_deadline_after_ms(ms);
  for (;;) {
    tri_status st = tri_zlink_recv(l, data, len);
    if (st != TRI_AGAIN || tri_now_ns() > end) return st;
    tri_zpoll item = {.link = l, .fd = -1};
    tri_zpoll_wait(&item, 1, 10, NULL);
  }
}

static void exchange(tri_zserver *s, tri_zlink *l) {
  tri_peer from;
  const void *data;
  size_t len;
  int frames;
  ck_assert_int_eq(tri_zlink_send_wait(l, "ping", 4, 5000), TRI_OK);
  ck_assert_int_eq(server_next(s, 5000, &from, &data, &len, &frames), TRI_OK);
  ck_assert(len == 4 && frames == 1 && !memcmp(data, "ping", 4));
  ck_assert_int_eq(tri_zserver_send(s, &from, "pong!", 5), TRI_OK);
  ck_assert_int_eq(link_next(l, 5000, &data, &len), TRI_OK);
  ck_assert(len == 5 && !memcmp(data, "pong!", 5));
}

/* ---- ipc ---- */

static bool is_foreign(const char *name, uid_t *owner) {
  unsigned long uid = 0;
  tri_zlink *l = open_link(ipc(name), NULL, NULL);
  tri_status st = tri_zlink_send_wait(l, "secret", 6, 5000);
  bool foreign = tri_zlink_is_foreign(l, &uid);
  ck_assert_int_eq(st, foreign ? TRI_PERMISSION : TRI_OK);
  *owner = (uid_t)uid;
  tri_zlink_close(l);
  return foreign;
}

/* Another user's socket where anybody can make one hears nothing; in a folder of that user's own it does. Root alone
 * can be two users. */
START_TEST(owners_of_sockets) {
  enum { OTHER = 54321 };
  tri_peer from;
  const void *data;
  uid_t owner = 0;
  size_t len;
  int frames;
  if (geteuid()) return;
  tri_zserver_config c = {.endpoint = ipc("s"), .max_message = 1 << 20, .backlog = 100};
  ck_assert(!chmod(folder, 0777) && !seteuid(OTHER));
  tri_zserver *s = open_server(&c);
  ck_assert(!seteuid(0));
  ck_assert(is_foreign("s", &owner) && owner == OTHER);
  ck_assert_int_eq(server_next(s, 200, &from, &data, &len, &frames), TRI_AGAIN);
  ck_assert(!chmod(folder, 0755) && is_foreign("s", &owner));
  ck_assert(!chown(folder, OTHER, 0) && !is_foreign("s", &owner));
  ck_assert_int_eq(server_next(s, 5000, &from, &data, &len, &frames), TRI_OK);
  ck_assert(!chmod(folder, 0775) && is_foreign("s", &owner));
  tri_zserver_close(s);
  ck_assert(!chown(folder, 0, 0) && !chmod(folder, 0777));
  s = open_server(&c); /* root's, as anybody sees it */
  ck_assert(!is_foreign("s", &owner));
  tri_zserver_close(s);
}
END_TEST

START_TEST(ipc_mode) {
  struct stat sb;
  mode_t old = umask(0); /* the worst case */
  tri_zserver_config c = {.endpoint = ipc("a.sock"), .max_message = 1 << 20, .backlog = 10};
  tri_zserver *s = open_server(&c);
  umask(old);
  ck_assert_str_eq(tri_zserver_endpoint(s), ipc("a.sock"));
  ck_assert_int_eq(stat(ipc("a.sock") + 6, &sb), 0);
  ck_assert(S_ISSOCK(sb.st_mode));
  ck_assert_uint_eq(sb.st_mode & 07777, 0600);
  tri_zlink *l = open_link(ipc("a.sock"), NULL, NULL);
  exchange(s, l);
  tri_zlink_close(l);
  tri_zserver_close(s);
  ck_assert_int_ne(stat(ipc("a.sock") + 6, &sb), 0);
}
END_TEST

START_TEST(ipc_live_and_stale) {
  tri_error err = {0};
  tri_zserver_config c = {.endpoint = ipc("b.sock"), .max_message = 1 << 20, .backlog = 10};
  tri_zserver *s = open_server(&c), *second = NULL;
  ck_assert_int_eq(tri_zserver_open(z, &c, &second, &err), TRI_IO);
  ck_assert_str_eq(err.field, "endpoint");
  ck_assert_ptr_nonnull(strstr(err.message, "running"));
  tri_zlink *l = open_link(ipc("b.sock"), NULL, NULL);
  exchange(s, l); /* the attempt has not hurt it */
  tri_zlink_close(l);
  tri_zserver_close(s);
  /* What a killed server leaves. */
  struct sockaddr_un addr = {.sun_family = AF_UNIX};
  strcpy(addr.sun_path, ipc("b.sock") + 6);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
  close(fd);
  s = open_server(&c);
  tri_zserver_close(s);
  /* A file that is no socket stays. */
  FILE *f = fopen(ipc("b.sock") + 6, "w");
  fputs("precious", f);
  fclose(f);
  err = (tri_error){0};
  ck_assert_int_eq(tri_zserver_open(z, &c, &second, &err), TRI_INVALID_ARGUMENT);
  struct stat sb;
  ck_assert(!stat(ipc("b.sock") + 6, &sb) && sb.st_size == 8);
  unlink(ipc("b.sock") + 6);
}
END_TEST

/* A socket at which nobody listens yet belongs to whoever has the lock beside it, and another start leaves it alone. */
START_TEST(ipc_about_to_listen) {
  tri_error err = {0};
  tri_zserver_config c = {.endpoint = ipc("l.sock"), .max_message = 1 << 20, .backlog = 10};
  tri_zserver *second = NULL;
  struct sockaddr_un addr = {.sun_family = AF_UNIX};
  struct stat before, now;
  int lock = -1, other = -1;
  strcpy(addr.sun_path, ipc("l.sock") + 6);
  ck_assert_int_eq(tri_socket_lock(addr.sun_path, &lock, &err), TRI_OK);
  ck_assert_int_eq(tri_socket_lock(addr.sun_path, &other, &err), TRI_AGAIN);
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
  ck_assert_int_eq(stat(addr.sun_path, &before), 0);
  ck_assert_int_eq(tri_zserver_open(z, &c, &second, &err), TRI_IO);
  ck_assert_ptr_nonnull(strstr(err.message, "running"));
  ck_assert(!stat(addr.sun_path, &now) && now.st_ino == before.st_ino);
  close(fd);
  close(lock); /* as with the process that had it: its files stay, and are taken over */
  second = open_server(&c);
  ck_assert_int_eq(tri_socket_lock(addr.sun_path, &other, &err), TRI_AGAIN);
  tri_zserver_close(second);
  ck_assert_int_eq(tri_socket_lock(addr.sun_path, &other, &err), TRI_OK);
  tri_socket_unlock(addr.sun_path, other);
}
END_TEST

START_TEST(bad_endpoints) {
  char longer[300];
  memset(longer, 'x', sizeof longer);
  memcpy(longer, "ipc:///", 7);
  longer[299] = '\0';
  const struct {
    const char *endpoint;
    tri_status status;
    bool insecure;
  } cases[] = {{"ipc://", TRI_USAGE, false},
               {"ipc://@abstract", TRI_USAGE, false},
               {"ipc://*", TRI_USAGE, false},
               {"ipc:///no/such/folder/s", TRI_IO, false},
               {longer, TRI_USAGE, false},
               {"udp://1.2.3.4:5", TRI_USAGE, false},
               {"tcp://127.0.0.1:*", TRI_USAGE, false},
               {"tcp://127.0.0.1:80000", TRI_USAGE, true},
               {"tcp://*:65536", TRI_USAGE, true},
               {"tcp://127.0.0.1:x", TRI_USAGE, true},
               {"tcp://127.0.0.1", TRI_USAGE, true},
               {"", TRI_USAGE, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tri_error err = {0};
    tri_zserver *s = NULL;
    tri_zserver_config c = {.endpoint = cases[i].endpoint, .insecure_tcp = cases[i].insecure};
    tri_status st = tri_zserver_open(z, &c, &s, &err);
    ck_assert_msg(st == cases[i].status, "%s: %s, %s", cases[i].endpoint, tri_status_name(st), err.message);
    ck_assert_str_eq(err.field, "endpoint");
    ck_assert_ptr_null(s);
  }
}
END_TEST

/* ---- messages ---- */

START_TEST(multipart) {
  tri_peer from;
  const void *data;
  size_t len;
  int frames;
  tri_zserver_config c = {.endpoint = ipc("m.sock"), .max_message = 1000, .backlog = 10};
  tri_zserver *s = open_server(&c);
  void *ctx = zmq_ctx_new(), *raw = zmq_socket(ctx, ZMQ_DEALER);
  int linger = 0;
  zmq_setsockopt(raw, ZMQ_LINGER, &linger, sizeof linger);
  ck_assert_int_eq(zmq_connect(raw, ipc("m.sock")), 0);
  zmq_send(raw, "one", 3, ZMQ_SNDMORE);
  for (int i = 0; i < 500; i++) zmq_send(raw, "more", 4, ZMQ_SNDMORE);
  zmq_send(raw, "last", 4, 0);
  zmq_send(raw, "single", 6, 0);
  ck_assert_int_eq(server_next(s, 5000, &from, &data, &len, &frames), TRI_OK);
  ck_assert(frames == 502 && len == 3 && !memcmp(data, "one", 3));
  ck_assert_int_eq(server_next(s, 5000, &from, &data, &len, &frames), TRI_OK);
  ck_assert(frames == 1 && len == 6 && !memcmp(data, "single", 6));
  /* A frame above the limit costs the peer its connection, and the server nothing. */
  char big[2000] = "";
  zmq_send(raw, big, sizeof big, 0);
  ck_assert_int_eq(server_next(s, 300, &from, &data, &len, &frames), TRI_AGAIN);
  zmq_close(raw);
  /* A peer with a name that has no room in a tri_peer is not heard; others are. */
  void *named = zmq_socket(ctx, ZMQ_DEALER), *fine = zmq_socket(ctx, ZMQ_DEALER);
  zmq_setsockopt(named, ZMQ_LINGER, &linger, sizeof linger);
  zmq_setsockopt(fine, ZMQ_LINGER, &linger, sizeof linger);
  zmq_setsockopt(named, ZMQ_ROUTING_ID, big + 0, 0);
  memset(big, 'n', 100);
  zmq_setsockopt(named, ZMQ_ROUTING_ID, big, 100);
  zmq_setsockopt(fine, ZMQ_ROUTING_ID, big, 32);
  zmq_connect(named, ipc("m.sock"));
  zmq_send(named, "unheard", 7, 0);
  ck_assert_int_eq(server_next(s, 200, &from, &data, &len, &frames), TRI_AGAIN);
  zmq_connect(fine, ipc("m.sock"));
  zmq_send(fine, "heard", 5, 0);
  ck_assert_int_eq(server_next(s, 5000, &from, &data, &len, &frames), TRI_OK);
  ck_assert(len == 5 && from.len == 32);
  zmq_close(named);
  zmq_close(fine);
  zmq_ctx_term(ctx);
  tri_zserver_close(s);
}
END_TEST

/* Many messages that are dropped hide none behind them. */
START_TEST(dropped) {
  tri_peer from;
  const void *data;
  size_t len;
  int frames, linger = 0, gave_up = 0;
  char name[100];
  tri_zserver_config c = {.endpoint = ipc("d.sock"), .max_message = 1000, .backlog = 1000};
  tri_zserver *s = open_server(&c);
  void *ctx = zmq_ctx_new(), *named = zmq_socket(ctx, ZMQ_DEALER);
  memset(name, 'n', sizeof name);
  zmq_setsockopt(named, ZMQ_LINGER, &linger, sizeof linger);
  zmq_setsockopt(named, ZMQ_ROUTING_ID, name, sizeof name);
  ck_assert_int_eq(zmq_connect(named, c.endpoint), 0);
  ck_assert_int_eq(tri_zserver_recv(s, &from, &data, &len, &frames), TRI_AGAIN);
  ck_assert(!tri_zserver_has_more(s));
  for (int i = 0; i < 200; i++) zmq_send(named, "unheard", 7, 0);
  for (int i = 0; i < 6000 && !gave_up; i++) {
    usleep(10 * 1000);
    ck_assert_int_eq(tri_zserver_recv(s, &from, &data, &len, &frames), TRI_AGAIN);
    gave_up += tri_zserver_has_more(s);
  }
  ck_assert_int_ge(gave_up, 1);
  for (int i = 0; i < 10; i++) ck_assert_int_eq(tri_zserver_recv(s, &from, &data, &len, &frames), TRI_AGAIN);
  ck_assert(!tri_zserver_has_more(s));
  zmq_close(named);
  zmq_ctx_term(ctx);
  tri_zserver_close(s);
}
END_TEST

START_TEST(gone_and_full) {
  tri_peer from;
  const void *data;
  size_t len;
  int frames, sent = 0;
  tri_zserver_config c = {.endpoint = ipc("g.sock"), .max_message = 1 << 20, .backlog = 5};
  tri_zserver *s = open_server(&c);
  tri_zlink *l = open_link(ipc("g.sock"), NULL, NULL);
  ck_assert_int_eq(tri_zlink_send_wait(l, "hi", 2, 5000), TRI_OK);
  ck_assert_int_eq(server_next(s, 5000, &from, &data, &len, &frames), TRI_OK);
  ck_assert_int_eq(tri_zserver_look(s, &from), TRI_OK);
  ck_assert_int_eq(link_next(l, 5000, &data, &len), TRI_OK);
  ck_assert_uint_eq(len, 0);
  /* A client that does not read: its queue ends somewhere. */
  char *block = calloc(1, 100000);
  /* The library's thread still moves messages into the pipe after the queue is full: a full queue is one that stays so.
   */
  for (int full = 0; full < 100 && sent < 10000; full++) {
    while (sent < 10000 && tri_zserver_send(s, &from, block, 100000) == TRI_OK) sent++, full = 0;
    usleep(2000);
  }
  free(block);
  ck_assert_int_ge(sent, 4);
  ck_assert_int_lt(sent, 2000);
  ck_assert_int_eq(tri_zserver_send(s, &from, "x", 1), TRI_AGAIN);
  ck_assert_int_eq(tri_zserver_look(s, &from), TRI_AGAIN);
  tri_zlink_close(l);
  int64_t end = tri_deadline_after_ms(60000);
  tri_status st;
  /* A server reads as well as it writes: that is when the library takes note of who has gone. */
  tri_peer other;
  while ((st = tri_zserver_send(s, &from, "x", 1)) != TRI_CLOSED && tri_now_ns() < end) {
    tri_zserver_recv(s, &other, &data, &len, &frames);
    usleep(1000);
  }
  ck_assert_int_eq(st, TRI_CLOSED);
  ck_assert_int_eq(tri_zserver_look(s, &from), TRI_CLOSED);
  tri_zserver_close(s);
}
END_TEST

/* What is queued for one peer shares a frame until somebody else's turn comes, it is full, or it is flushed. */
/* A connection that ends is told of once, by the descriptor that its messages came with. */
START_TEST(ended) {
  tri_zserver_config c = {.endpoint = ipc("ended.sock"), .max_message = 1 << 20, .backlog = 10, .watch = true};
  tri_zserver *s = open_server(&c);
  tri_peer from;
  const void *data;
  size_t len;
  tri_connections gone = {{0}};
  tri_zlink *stays = open_link(c.endpoint, NULL, NULL), *goes = open_link(c.endpoint, NULL, NULL);
  exchange(s, stays);
  ck_assert_int_eq(tri_zlink_send_wait(goes, "x", 1, 5000), TRI_OK);
  ck_assert_int_eq(server_next(s, 5000, &from, &data, &len, NULL), TRI_OK);
  ck_assert(from.connection > 0 && !tri_zserver_take_ended(s, &gone));
  tri_zlink_close(goes);
  for (int k = 0; k < 6000 && !tri_zserver_take_ended(s, &gone); k++) usleep(10 * 1000);
  ck_assert(tri_connections_may_have(&gone, from.connection));
  ck_assert(!tri_connections_may_have(&gone, from.connection + 1));
  ck_assert(!tri_zserver_take_ended(s, &gone));
  exchange(s, stays);
  tri_zlink_close(stays);
  tri_zserver_close(s);
}
END_TEST

START_TEST(queued) {
  tri_peer from[2];
  const void *data;
  size_t len;
  tri_zserver_config c = {.endpoint = ipc("q.sock"), .max_message = 1 << 20, .backlog = 100};
  tri_zserver *s = open_server(&c);
  tri_zlink *l[2];
  for (int i = 0; i < 2; i++) {
    l[i] = open_link(ipc("q.sock"), NULL, NULL);
    ck_assert_int_eq(tri_zlink_send_wait(l[i], "hi", 2, 5000), TRI_OK);
    ck_assert_int_eq(server_next(s, 5000, &from[i], &data, &len, NULL), TRI_OK);
  }
  ck_assert_int_eq(tri_zserver_queue(s, &from[0], "one", 3), TRI_OK);
  ck_assert_int_eq(tri_zserver_queue(s, &from[0], "two", 3), TRI_OK);
  ck_assert_int_eq(link_next(l[0], 100, &data, &len), TRI_AGAIN);
  ck_assert_int_eq(tri_zserver_queue(s, &from[1], "three", 5), TRI_OK);
  ck_assert_int_eq(link_next(l[0], 5000, &data, &len), TRI_OK);
  ck_assert(len == 6 && !memcmp(data, "onetwo", 6));
  ck_assert_int_eq(tri_zserver_send(s, &from[1], "four", 4),
                   TRI_OK); /* behind what was queued, in a frame of its own */
  ck_assert_int_eq(link_next(l[1], 5000, &data, &len), TRI_OK);
  ck_assert(len == 5 && !memcmp(data, "three", 5));
  ck_assert_int_eq(link_next(l[1], 5000, &data, &len), TRI_OK);
  ck_assert(len == 4 && !memcmp(data, "four", 4));
  /* A large one goes alone, in its turn; many small ones make several frames, and nothing is lost or reordered. */
  static char big[100000];
  ck_assert_int_eq(tri_zserver_queue(s, &from[0], "small", 5), TRI_OK);
  ck_assert_int_eq(tri_zserver_queue(s, &from[0], big, sizeof big), TRI_OK);
  ck_assert_int_eq(link_next(l[0], 5000, &data, &len), TRI_OK);
  ck_assert_uint_eq(len, 5);
  ck_assert_int_eq(link_next(l[0], 5000, &data, &len), TRI_OK);
  ck_assert_uint_eq(len, sizeof big);
  uint32_t next = 0;
  for (uint32_t i = 0; i < 20000; i++) ck_assert_int_eq(tri_zserver_queue(s, &from[0], &i, sizeof i), TRI_OK);
  tri_zserver_flush(s);
  while (next < 20000 && link_next(l[0], 5000, &data, &len) == TRI_OK)
    for (size_t at = 0; at < len; at += sizeof next, next++)
      if (memcmp((const char *)data + at, &next, sizeof next)) ck_abort_msg("out of order at %u", next);
  ck_assert_uint_eq(next, 20000);
  /* Who is gone is known when the first message of a frame is queued. */
  tri_zlink_close(l[1]);
  int64_t end = tri_deadline_after_ms(60000);
  tri_status st;
  while ((st = tri_zserver_queue(s, &from[1], "x", 1)) != TRI_CLOSED && tri_now_ns() < end) {
    tri_zserver_flush(s);
    tri_zserver_recv(s, &from[0], &data, &len, NULL);
    usleep(1000);
  }
  ck_assert_int_eq(st, TRI_CLOSED);
  tri_zserver_close(s);
  tri_zlink_close(l[0]);
}
END_TEST

/* Without memory for a frame its address is not sent, or its turn comes later: no client gets another one's. */
START_TEST(no_memory_for_a_frame) {
  tri_peer from[2];
  const void *data;
  size_t len;
  tri_zserver_config c = {.endpoint = ipc("m.sock"), .max_message = 1 << 20, .backlog = 100};
  tri_zserver *s = open_server(&c);
  tri_zlink *l[2];
  for (int i = 0; i < 2; i++) {
    l[i] = open_link(ipc("m.sock"), NULL, NULL);
    ck_assert_int_eq(tri_zlink_send_wait(l[i], "hi", 2, 5000), TRI_OK);
    ck_assert_int_eq(server_next(s, 5000, &from[i], &data, &len, NULL), TRI_OK);
  }
  ck_assert_int_eq(tri_zserver_queue(s, &from[0], "one", 3), TRI_OK);
  no_memory = true;
  tri_zserver_flush(s);
  ck_assert_int_eq(tri_zserver_queue(s, &from[0], "two", 3), TRI_OK); /* it has room in the frame that waits */
  ck_assert_int_eq(tri_zserver_queue(s, &from[1], "three", 5), TRI_AGAIN);
  ck_assert_int_eq(tri_zserver_send(s, &from[1], "four", 4), TRI_AGAIN);
  no_memory = false;
  ck_assert_int_eq(tri_zserver_queue(s, &from[1], "five", 4), TRI_OK);
  no_memory = true;
  tri_zserver_flush(s);
  no_memory = false;
  tri_zserver_flush(s);
  no_memory = true;
  ck_assert_int_eq(tri_zserver_send(s, &from[0], "six", 3), TRI_AGAIN);
  no_memory = false;
  ck_assert_int_eq(tri_zserver_send(s, &from[1], "seven", 5), TRI_OK);
  ck_assert_int_eq(link_next(l[0], 5000, &data, &len), TRI_OK);
  ck_assert(len == 6 && !memcmp(data, "onetwo", 6));
  ck_assert_int_eq(link_next(l[1], 5000, &data, &len), TRI_OK);
  ck_assert(len == 4 && !memcmp(data, "five", 4));
  ck_assert_int_eq(link_next(l[1], 5000, &data, &len), TRI_OK);
  ck_assert(len == 5 && !memcmp(data, "seven", 5));
  ck_assert_int_eq(link_next(l[0], 100, &data, &len), TRI_AGAIN);
  for (int i = 0; i < 2; i++) tri_zlink_close(l[i]);
  tri_zserver_close(s);
}
END_TEST

START_TEST(rebind) {
  tri_error err = {0};
  struct stat before, after;
  for (int tcp = 0; tcp < 2; tcp++) {
    tri_zserver_config c = {.endpoint = tcp ? "tcp://127.0.0.1:*" : ipc("r.sock"),
                            .insecure_tcp = true,
                            .max_message = 1 << 20,
                            .backlog = 10,
                            .watch = true};
    tri_zserver *s = open_server(&c);
    char endpoint[128];
    snprintf(endpoint, sizeof endpoint, "%s", tri_zserver_endpoint(s));
    /* An address of IPv4 reads as it was given. */
    if (tcp) ck_assert_msg(!strncmp(endpoint, "tcp://127.0.0.1:", 16) && atoi(endpoint + 16), "%s", endpoint);
    if (!tcp) stat(ipc("r.sock") + 6, &before);
    tri_zlink *l = open_link(endpoint, NULL, NULL);
    exchange(s, l);
    unsigned losses;
    ck_assert_int_eq(tri_zlink_look(l, &losses), TRI_ZLINK_UP);
    ck_assert_uint_eq(losses, 0);
    for (int i = 0; i < 5; i++) {
      ck_assert_msg(tri_zserver_rebind(s, &err) == TRI_OK, "%s", err.message);
      ck_assert_str_eq(tri_zserver_endpoint(s), endpoint);
      tri_zlink *fresh = open_link(endpoint, NULL, NULL);
      exchange(s, fresh);
      tri_zlink_close(fresh);
    }
    if (!tcp) ck_assert(!stat(ipc("r.sock") + 6, &after) && after.st_ino == before.st_ino);
    /* The library tells of a loss from a thread of its own, some time after it. */
    for (int64_t end = tri_deadline_after_ms(60000); tri_now_ns() < end; usleep(1000)) {
      tri_zlink_look(l, &losses);
      if (losses) break;
    }
    ck_assert_uint_ge(losses, 1);
    tri_zlink_close(l);
    tri_zserver_close(s);
  }
}
END_TEST

START_TEST(connection_states) {
  unsigned losses;
  const void *data;
  size_t len;
  tri_zlink *l = open_link(ipc("s.sock"), NULL, NULL);
  ck_assert_int_eq(tri_zlink_send(l, "x", 1), TRI_AGAIN); /* nobody is there */
  ck_assert_int_eq(tri_zlink_send_wait(l, "x", 1, 100), TRI_TIMEOUT);
  ck_assert_int_eq(tri_zlink_look(l, &losses), TRI_ZLINK_CONNECTING);
  tri_zserver_config c = {.endpoint = ipc("s.sock"), .max_message = 1 << 20, .backlog = 10};
  tri_zserver *s = open_server(&c);
  exchange(s, l);
  tri_zserver_close(s);
  int64_t end = tri_deadline_after_ms(60000);
  while (tri_zlink_look(l, &losses) != TRI_ZLINK_LOST && tri_now_ns() < end) {
    tri_zpoll item = {.link = l, .fd = -1};
    tri_zpoll_wait(&item, 1, 100, NULL);
    tri_zlink_recv(l, &data, &len);
  }
  ck_assert_int_eq(tri_zlink_look(l, &losses), TRI_ZLINK_LOST);
  ck_assert_uint_eq(losses, 1);
  tri_zlink_close(l);
  /* Without refuse_unconnected, what is sent early waits for the server. */
  tri_error err = {0};
  tri_peer from;
  int frames;
  tri_zlink_config lc = {.endpoint = ipc("s.sock"), .backlog = 10};
  ck_assert_int_eq(tri_zlink_open(z, &lc, &l, &err), TRI_OK);
  ck_assert_int_eq(tri_zlink_send(l, "early", 5), TRI_OK);
  s = open_server(&c);
  ck_assert_int_eq(server_next(s, 5000, &from, &data, &len, &frames), TRI_OK);
  ck_assert(len == 5);
  tri_zlink_close(l);
  tri_zserver_close(s);
}
END_TEST

/* An attempt that the library cannot even begin, here as a part of a name has 63 bytes at most, is tried again. */
START_TEST(no_attempt) {
  char endpoint[128] = "tcp://";
  memset(endpoint + 6, 'x', 70);
  strcpy(endpoint + 76, ":5555");
  tri_zlink *l = open_link(endpoint, NULL, NULL);
  int64_t end = tri_deadline_after_ms(60000);
  while (!tri_zlink_is_unanswered(l) && tri_now_ns() < end) {
    tri_zpoll item = {.link = l, .fd = -1};
    tri_zpoll_wait(&item, 1, 100, NULL);
  }
  ck_assert(tri_zlink_is_unanswered(l));
  ck_assert_int_eq(tri_zlink_send_wait(l, "x", 1, 300), TRI_TIMEOUT);
  ck_assert_int_eq(tri_zlink_look(l, NULL), TRI_ZLINK_CONNECTING);
  tri_zlink_close(l);
}
END_TEST

/* Messages that were sent before the end are received; from then on the link is over, whoever listens there. */
START_TEST(one_connection) {
  enum { FRAMES = 50 };
  tri_peer from;
  const void *data;
  size_t len;
  int frames;
  tri_zserver_config c = {.endpoint = ipc("o.sock"), .max_message = 1 << 20, .backlog = 2 * FRAMES};
  tri_zserver *s = open_server(&c);
  tri_zlink *l = open_link(ipc("o.sock"), NULL, NULL);
  ck_assert_int_eq(tri_zlink_send_wait(l, "ping", 4, 5000), TRI_OK);
  ck_assert_int_eq(server_next(s, 5000, &from, &data, &len, &frames), TRI_OK);
  for (int i = 0; i < FRAMES; i++) ck_assert_int_eq(tri_zserver_send(s, &from, &i, sizeof i), TRI_OK);
  tri_zserver_close(s);
  s = open_server(&c);
  usleep(500 * 1000); /* nobody looks at the link while it would be connected anew */
  ck_assert_int_eq(tri_zlink_send(l, "ping", 4), TRI_CLOSED);
  ck_assert_int_eq(tri_zlink_send_wait(l, "ping", 4, 5000), TRI_CLOSED);
  for (int i = 0; i < FRAMES; i++) {
    ck_assert_int_eq(link_next(l, 5000, &data, &len), TRI_OK);
    ck_assert(len == sizeof i && !memcmp(data, &i, sizeof i));
  }
  ck_assert_int_eq(tri_zlink_recv(l, &data, &len), TRI_AGAIN);
  ck_assert_int_eq(tri_zlink_look(l, NULL), TRI_ZLINK_LOST);
  ck_assert_int_eq(server_next(s, 200, &from, &data, &len, &frames), TRI_AGAIN);
  tri_zlink_close(l);
  tri_zserver_close(s);
}
END_TEST

START_TEST(poll) {
  int p[2], ready = -1;
  ck_assert_int_eq(pipe(p), 0);
  tri_zserver_config c = {.endpoint = ipc("p.sock"), .max_message = 1 << 20, .backlog = 10};
  tri_zserver *s = open_server(&c);
  tri_zpoll items[] = {{.server = s, .fd = -1}, {.fd = p[0]}, {.fd = -1}};
  ck_assert_int_eq(tri_zpoll_wait(items, 3, 10, &ready), TRI_OK);
  ck_assert_int_eq(ready, 0);
  ck_assert_int_eq(write(p[1], "x", 1), 1);
  ck_assert_int_eq(tri_zpoll_wait(items, 3, 1000, &ready), TRI_OK);
  ck_assert(ready == 1 && items[1].ready && !items[0].ready && !items[2].ready);
  close(p[0]);
  close(p[1]);
  tri_zserver_close(s);
}
END_TEST

/* ---- keys ---- */

START_TEST(curve) {
  tri_zkeypair server, friend, stranger, other;
  tri_error err = {0};
  ck_assert_int_eq(tri_zkeypair_make(&server, &err), TRI_OK);
  ck_assert_int_eq(tri_zkeypair_make(&friend, &err), TRI_OK);
  ck_assert_int_eq(tri_zkeypair_make(&stranger, &err), TRI_OK);
  ck_assert_int_eq(tri_zkeypair_make(&other, &err), TRI_OK);
  const char *friends[] = {friend.public_key}, *strangers[] = {stranger.public_key};
  tri_zserver_config c = {.endpoint = "tcp://127.0.0.1:*",
                          .curve = &server,
                          .allowed = friends,
                          .num_allowed = 1,
                          .max_message = 1 << 20,
                          .backlog = 10};
  tri_zserver *s = open_server(&c);
  c.allowed = strangers; /* a second server with another list, in the same context */
  c.curve = &other;
  tri_zserver *s2 = open_server(&c);
  tri_zlink *l = open_link(tri_zserver_endpoint(s), &friend, server.public_key);
  exchange(s, l);
  tri_zlink_close(l);

  l = open_link(tri_zserver_endpoint(s), &stranger, server.public_key);
  ck_assert_int_eq(tri_zlink_send_wait(l, "x", 1, 5000), TRI_PERMISSION);
  ck_assert_int_eq(tri_zlink_look(l, NULL), TRI_ZLINK_REFUSED);
  tri_zlink_close(l);
  l = open_link(tri_zserver_endpoint(s2), &stranger, other.public_key);
  exchange(s2, l);
  tri_zlink_close(l);
  /* the wrong server key, and no keys at all */
  l = open_link(tri_zserver_endpoint(s), &friend, other.public_key);
  ck_assert_int_ne(tri_zlink_send_wait(l, "x", 1, 300), TRI_OK);
  tri_zlink_close(l);
  l = open_link(tri_zserver_endpoint(s), NULL, NULL);
  ck_assert_int_ne(tri_zlink_send_wait(l, "x", 1, 300), TRI_OK);
  tri_zlink_close(l);
  /* a list that is not there lets nobody in */
  c.allowed = NULL;
  tri_zserver *s3 = open_server(&c);
  l = open_link(tri_zserver_endpoint(s3), &friend, other.public_key);
  ck_assert_int_eq(tri_zlink_send_wait(l, "x", 1, 5000), TRI_PERMISSION);
  tri_zlink_close(l);
  /* the list still holds after a rebind */
  ck_assert_int_eq(tri_zserver_rebind(s, &err), TRI_OK);
  l = open_link(tri_zserver_endpoint(s), &stranger, server.public_key);
  ck_assert_int_eq(tri_zlink_send_wait(l, "x", 1, 5000), TRI_PERMISSION);
  tri_zlink_close(l);
  l = open_link(tri_zserver_endpoint(s), &friend, server.public_key);
  exchange(s, l);
  tri_zlink_close(l);
  tri_zserver_close(s);
  tri_zserver_close(s2);
  tri_zserver_close(s3);
}
END_TEST

START_TEST(key_files) {
  char path[128];
  tri_zkeypair k, back;
  tri_error err = {0};
  struct stat sb;
  snprintf(path, sizeof path, "%s/key", folder);
  ck_assert_int_eq(tri_zkeypair_make(&k, &err), TRI_OK);
  ck_assert_int_eq(tri_zkeypair_save(path, &k, &err), TRI_OK);
  ck_assert(!stat(path, &sb) && (sb.st_mode & 07777) == 0600);
  ck_assert_int_eq(tri_zkeypair_load(path, &back, &err), TRI_OK);
  ck_assert(!memcmp(&k, &back, sizeof k));
  ck_assert_int_eq(tri_zkeypair_save(path, &k, &err), TRI_IO); /* not over another */
  ck_assert_str_eq(err.message, "is there already, and is not overwritten");
  err = (tri_error){0};
  chmod(path, 0640);
  ck_assert_int_eq(tri_zkeypair_load(path, &back, &err), TRI_PERMISSION);
  ck_assert_str_eq(err.field, path);
  /* RFC 26's example keys. */
#define SERVER_PUBLIC "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7\n"
#define SERVER_SECRET "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6\n"
#define CLIENT_SECRET "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs\n"
  static const char *const broken[] = {"", "abc\n", SERVER_PUBLIC, SERVER_PUBLIC SERVER_SECRET,
                                       SERVER_PUBLIC CLIENT_SECRET};
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    unlink(path);
    FILE *f = fopen(path, "w");
    fputs(broken[i], f);
    fchmod(fileno(f), 0600);
    fclose(f);
    err = (tri_error){0};
    tri_status st = tri_zkeypair_load(path, &back, &err);
    ck_assert_msg(st == (i == 3 ? TRI_OK : TRI_CORRUPT), "case %zu: %s", i, err.message);
  }
  unlink(path);
  ck_assert_int_eq(mkfifo(path, 0600), 0); /* nobody writes to it */
  err = (tri_error){0};
  ck_assert_int_eq(tri_zkeypair_load(path, &back, &err), TRI_INVALID_ARGUMENT);
  unlink(path);
  err = (tri_error){0};
  ck_assert_int_eq(tri_zkeypair_load(path, &back, &err), TRI_IO);
  /* keys by half, and keys that are none */
  tri_zlink *l = NULL;
  err = (tri_error){0};
  ck_assert_int_eq(tri_zlink_open(z, &(tri_zlink_config){.endpoint = "tcp://127.0.0.1:1", .own = &k}, &l, &err),
                   TRI_INVALID_ARGUMENT);
  ck_assert_int_eq(
      tri_zlink_open(z, &(tri_zlink_config){.endpoint = "tcp://127.0.0.1:1", .own = &k, .server_key = "short"}, &l,
                     &err),
      TRI_INVALID_ARGUMENT);
}
END_TEST

START_TEST(destroy_closes) {
  tri_zserver_config c = {.endpoint = ipc("d.sock"), .max_message = 1 << 20, .backlog = 10};
  tri_zserver *s = open_server(&c);
  tri_zlink *l = open_link(ipc("d.sock"), NULL, NULL);
  exchange(s, l);
  tri_zlink_send(l, "unread", 6);
  tri_zcontext_destroy(z); /* and does not wait for a reader of what was sent */
  z = NULL;
  tri_error err = {0};
  ck_assert_int_eq(tri_zcontext_create(&z, &err), TRI_OK);
}
END_TEST

START_TEST(endpoint_rule) {
  char out[TRI_ENDPOINT_BYTES], expected[128];
  tri_error err = {0};
  setenv("XDG_RUNTIME_DIR", folder, 1);
  setenv("TRIREME_ENDPOINT", "tcp://host:1", 1);
  ck_assert_int_eq(tri_endpoint_resolve("ipc:///x", out, &err), TRI_OK);
  ck_assert_str_eq(out, "ipc:///x");
  ck_assert_int_eq(tri_endpoint_resolve("", out, &err), TRI_OK);
  ck_assert_str_eq(out, "tcp://host:1");
  unsetenv("TRIREME_ENDPOINT");
  ck_assert_int_eq(tri_endpoint_resolve(NULL, out, &err), TRI_OK);
  snprintf(expected, sizeof expected, "ipc://%s/trireme.sock", folder);
  ck_assert_str_eq(out, expected);
  setenv("XDG_RUNTIME_DIR", "/no/such/folder", 1);
  ck_assert_int_eq(tri_endpoint_resolve(NULL, out, &err), TRI_OK);
  snprintf(expected, sizeof expected, "ipc:///tmp/trireme-%u.sock", (unsigned)getuid());
  ck_assert_str_eq(out, expected);
  unsetenv("XDG_RUNTIME_DIR");
}
END_TEST

Suite *suite_zsock(void) {
  Suite *s = suite_create("zsock");
  TCase *c = tcase_create("zsock");
  tcase_set_timeout(c, 60);
  tcase_add_checked_fixture(c, setup, teardown);
  const TTest *const tests[] = {ipc_mode,
                                ipc_live_and_stale,
                                ipc_about_to_listen,
                                no_memory_for_a_frame,
                                bad_endpoints,
                                multipart,
                                dropped,
                                gone_and_full,
                                ended,
                                queued,
                                rebind,
                                connection_states,
                                one_connection,
                                no_attempt,
                                poll,
                                curve,
                                key_files,
                                destroy_closes,
                                endpoint_rule,
                                owners_of_sockets};
  for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
  suite_add_tcase(s, c);
  return s;
}
