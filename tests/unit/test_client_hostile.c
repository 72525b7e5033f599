/* SPDX-License-Identifier: Apache-2.0 */
/* libtrireme where the other side is no coordinator of ours: a thread here that answers the hello, and then sends what
 * nobody asked for. */
#include <check.h>
#include <pthread.h>
#include <time.h>

#include "client/trireme.h"
#include "comm/wire/client.h"
#include "comm/wire/zsock.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/wait.h"

Suite *suite_client_hostile(void);

#define ENDPOINT "ipc://" TRI_TEST_SCRATCH "/hostile.sock"

enum { FRAME_BYTES = 1 << 20, SECONDS = 2 };

static tri_status await_hello(tri_zserver *s, tri_peer *from) {
  const void *data;
  size_t len;
  for (int64_t end = tri_deadline_after_ms(60000); tri_now_ns() < end;) {
    tri_zpoll item = {.server = s, .fd = -1};
    tri_zpoll_wait(&item, 1, 100, NULL);
    if (tri_zserver_recv(s, from, &data, &len, NULL) == TRI_OK) return TRI_OK;
  }
  return TRI_TIMEOUT;
}

/* Frames full of hellos, as many as find room in SECONDS. */
struct flood {
  int most, sent;
  tri_status status;
};

static void *flood_main(void *arg) {
  struct flood *f = arg;
  tri_error err = {0};
  tri_status st = TRI_NO_MEMORY;
  tri_zcontext *z = NULL;
  tri_zserver *s = NULL;
  tri_buf hello = {0}, frame = {0};
  tri_peer to;
  const tri_zserver_config config = {.endpoint = ENDPOINT, .backlog = 1};
  tri_server_msg *m = tri_calloc(1, sizeof *m);
  if (!m) goto cleanup;
  *m = (tri_server_msg){.op = TRI_REPLY_HELLO, .id = 1, .hello = {.version = {"9", 1}, .max_message = FRAME_BYTES}};
  TRI_TRY(tri_server_msg_pack(m, &hello));
  while (frame.len + hello.len <= FRAME_BYTES) TRI_TRY(tri_buf_append(&frame, hello.data, hello.len));
  TRI_TRY(tri_zcontext_create(&z, &err));
  TRI_TRY(tri_zserver_open(z, &config, &s, &err));
  TRI_TRY(await_hello(s, &to));
  TRI_TRY(tri_zserver_send(s, &to, hello.data, hello.len));
  for (int64_t end = tri_deadline_after_ms(1000 * SECONDS); f->sent < f->most && tri_now_ns() < end;) {
    if (tri_zserver_send(s, &to, frame.data, frame.len) == TRI_OK)
      f->sent++;
    else
      nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
cleanup:
  f->status = st;
  tri_zserver_close(s);
  tri_zcontext_destroy(z);
  tri_buf_free(&hello);
  tri_buf_free(&frame);
  tri_free(m);
  return NULL;
}

static trireme *start_flood(struct flood *f, pthread_t *thread) {
  trireme *c = NULL;
  trireme_error error = {0};
  trireme_config config;
  trireme_config_init(&config);
  config.endpoint = ENDPOINT;
  ck_assert_int_eq(pthread_create(thread, NULL, flood_main, f), 0);
  ck_assert_msg(trireme_connect(&config, &c, &error) == TRIREME_OK, "%s", error.message);
  return c;
}

/* A call takes one message, whatever comes behind it. */
START_TEST(test_hellos) {
  struct flood f = {.most = 100000};
  pthread_t thread;
  trireme_event e;
  trireme *c = start_flood(&f, &thread);
  for (int i = 0; i < 1000; i++) ck_assert_int_eq(trireme_next(c, 60000, &e, NULL), TRIREME_PROTOCOL);
  trireme_close(c);
  pthread_join(thread, NULL);
  ck_assert_int_eq(f.status, TRI_OK);
}
END_TEST

/* Messages that a program has not read yet wait with the coordinator. */
START_TEST(test_memory) {
  struct flood f = {.most = 300};
  pthread_t thread;
  trireme *c = start_flood(&f, &thread);
  pthread_join(thread, NULL);
  trireme_close(c);
  ck_assert_int_eq(f.status, TRI_OK);
  ck_assert_msg(f.sent > 10 && f.sent < 80, "%d MiB", f.sent);
}
END_TEST

Suite *suite_client_hostile(void) {
  Suite *suite = suite_create("client_hostile");
  TCase *t = tcase_create("floods");
  tcase_set_timeout(t, 60);
  tcase_add_test(t, test_hellos);
  tcase_add_test(t, test_memory);
  suite_add_tcase(suite, t);
  return suite;
}
