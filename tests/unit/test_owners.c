/* SPDX-License-Identifier: Apache-2.0 */
/* Owners: whose connection a message came over, as the socket finds out by itself. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "comm/wire/zsock.h"
#include "base/wait.h"

Suite *suite_owners(void);

enum { OTHER_USER = 4711 };

static char folder[64], endpoint[128];
static tri_zcontext *z;

static void make_folder(void) {
  strcpy(folder, "/tmp/tri-owners-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(endpoint, sizeof endpoint, "ipc://%s/s", folder);
}

static void remove_folder(void) { rmdir(folder); }

static void open_context(void) {
  tri_error err = {0};
  ck_assert_msg(tri_zcontext_create(&z, &err) == TRI_OK, "%s", err.message);
}

static void setup(void) {
  make_folder();
  open_context();
}

static void teardown(void) {
  tri_zcontext_destroy(z);
  remove_folder();
}

static tri_zserver *open_server(const tri_zserver_config *c) {
  tri_error err = {0};
  tri_zserver *s = NULL;
  ck_assert_msg(tri_zserver_open(z, c, &s, &err) == TRI_OK, "%s: %s", err.field, err.message);
  return s;
}

static tri_owner next_owner(tri_zserver *s) {
  tri_peer from = {0};
  const void *data;
  size_t len;
  int64_t end = tri_deadline_after_ms(60000);
  memset(&from.owner, 0xee, sizeof from.owner);
  while (tri_zserver_recv(s, &from, &data, &len, NULL) != TRI_OK) {
    ck_assert_msg(tri_now_ns() < end, "no message came");
    usleep(1000);
  }
  return from.owner;
}

static tri_owner user(uint32_t uid) {
  tri_owner o = {.kind = TRI_OWNER_USER};
  memcpy(o.bytes, &uid, sizeof uid);
  return o;
}

static void expect(tri_owner got, tri_owner want) {
  ck_assert_int_eq(got.kind, want.kind);
  ck_assert_mem_eq(got.bytes, want.bytes, sizeof got.bytes);
}

static tri_owner owner_over(tri_zserver *s, const tri_zkeypair *own, const char *server_key) {
  tri_error err = {0};
  tri_zlink *l = NULL;
  tri_zlink_config c = {
      .endpoint = tri_zserver_endpoint(s), .own = own, .server_key = server_key, .refuse_unconnected = true};
  ck_assert_msg(tri_zlink_open(z, &c, &l, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(tri_zlink_send_wait(l, "x", 1, 5000), TRI_OK);
  tri_owner owner = next_owner(s);
  tri_zlink_close(l);
  return owner;
}

START_TEST(of_socket_file) {
  tri_zserver *s = open_server(&(tri_zserver_config){.endpoint = endpoint});
  expect(owner_over(s, NULL, NULL), user(getuid()));
  tri_zserver_close(s);
}
END_TEST

/* Sends a message as another user, once there is a byte to be read. */
static int send_as_other(int go) {
  char byte;
  if (read(go, &byte, 1) != 1 || setresuid(OTHER_USER, OTHER_USER, OTHER_USER)) return 1;
  void *ctx = zmq_ctx_new(), *raw = zmq_socket(ctx, ZMQ_DEALER);
  return zmq_connect(raw, endpoint) || zmq_send(raw, "x", 1, 0) != 1 || zmq_close(raw) || zmq_ctx_term(ctx);
}

/* The other process is made before this one has threads, one of which might hold what it needs for ever. */
START_TEST(of_another_user) {
  int go[2], status;
  if (getuid()) return;
  ck_assert_int_eq(pipe(go), 0);
  pid_t pid = fork();
  if (!pid) _exit(send_as_other(go[0]));
  open_context();
  tri_zserver *s = open_server(&(tri_zserver_config){.endpoint = endpoint});
  chmod(folder, 0755); /* a door that is never open: here the other user is to come in */
  chmod(endpoint + strlen("ipc://"), 0666);
  ck_assert_int_eq(write(go[1], "x", 1), 1);
  expect(next_owner(s), user(OTHER_USER));
  ck_assert(waitpid(pid, &status, 0) == pid && !status);
  close(go[0]);
  close(go[1]);
  tri_zserver_close(s);
  tri_zcontext_destroy(z);
}
END_TEST

static void put(int fd, const void *data, size_t len) { ck_assert_int_eq(send(fd, data, len, 0), (ssize_t)len); }

static void get(int fd, void *data, size_t len) { ck_assert_int_eq(recv(fd, data, len, MSG_WAITALL), (ssize_t)len); }

/* ZMTP lets a peer send facts about itself: they are not believed where the socket knows better. As any client this one
 * sends a message only after the server's READY: one that comes earlier is now and then never read. */
START_TEST(of_liar) {
  tri_zserver *s = open_server(&(tri_zserver_config){.endpoint = endpoint});
  static const uint8_t greeting[64] = {0xff, [9] = 0x7f, 3, 0, 'N', 'U', 'L', 'L'};
  static const char ready[] = "\5READY\13Socket-Type\0\0\0\6DEALER"
                              "\14Peer-Address\0\0\0\17localhost:1:1:1"
                              "\7User-Id\0\0\0\50rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7";
  struct sockaddr_un addr = {.sun_family = AF_UNIX};
  uint8_t answer[256], header[2] = {4, sizeof ready - 1};
  snprintf(addr.sun_path, sizeof addr.sun_path, "%.100s", endpoint + strlen("ipc://"));
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  ck_assert_int_eq(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
  put(fd, greeting, sizeof greeting);
  get(fd, answer, sizeof greeting);
  put(fd, header, sizeof header);
  put(fd, ready, sizeof ready - 1);
  get(fd, header, sizeof header);
  get(fd, answer, header[1]);
  put(fd, "\0\1x", 3);
  expect(next_owner(s), user(getuid()));
  close(fd);
  tri_zserver_close(s);
}
END_TEST

START_TEST(of_tcp) {
  tri_zkeypair server, client[2];
  tri_error err = {0};
  ck_assert_int_eq(tri_zkeypair_make(&server, &err), TRI_OK);
  for (int i = 0; i < 2; i++) ck_assert_int_eq(tri_zkeypair_make(&client[i], &err), TRI_OK);
  const char *allowed[] = {client[0].public_key, client[1].public_key};
  tri_zserver_config c = {.endpoint = "tcp://127.0.0.1:*", .curve = &server, .allowed = allowed, .num_allowed = 2};
  tri_zserver *s = open_server(&c);
  for (int i = 0; i < 4; i++) {
    tri_owner want = {.kind = TRI_OWNER_KEY};
    ck_assert_ptr_nonnull(zmq_z85_decode(want.bytes, client[i % 2].public_key));
    expect(owner_over(s, &client[i % 2], server.public_key), want);
  }
  tri_zserver_close(s);
  s = open_server(&(tri_zserver_config){.endpoint = "tcp://127.0.0.1:*", .insecure_tcp = true});
  expect(owner_over(s, NULL, NULL), (tri_owner){.kind = TRI_OWNER_NOBODY});
  tri_zserver_close(s);
}
END_TEST

Suite *suite_owners(void) {
  Suite *s = suite_create("owners");
  TCase *c = tcase_create("owners");
  tcase_set_timeout(c, 60);
  tcase_add_checked_fixture(c, setup, teardown);
  tcase_add_test(c, of_socket_file);
  tcase_add_test(c, of_liar);
  tcase_add_test(c, of_tcp);
  suite_add_tcase(s, c);
  c = tcase_create("users");
  tcase_set_timeout(c, 60);
  tcase_add_checked_fixture(c, make_folder, remove_folder);
  tcase_add_test(c, of_another_user);
  suite_add_tcase(s, c);
  return s;
}
