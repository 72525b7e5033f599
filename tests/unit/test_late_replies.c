/* SPDX-License-Identifier: Apache-2.0 */
/* Replies that belong to no job, for clients that are slow: they come in their order, or the connection ends. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/net/connection_guard.h"
#include "coordinator/net/late_replies.h"
#include "base/wait.h"

Suite *suite_late_replies(void);

enum { BACKLOG = 4, FILL = 30 << 10 };

static char folder[64], endpoint[100];
static tri_zcontext *z;
static tri_zserver *server;
static tri_late_replies *late;

static void begin(void) {
  tri_error err = {0};
  strcpy(folder, "/tmp/tri-late-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(folder));
  snprintf(endpoint, sizeof endpoint, "ipc://%s/s", folder);
  ck_assert_int_eq(tri_zcontext_create(&z, &err), TRI_OK);
  tri_zserver_config c = {.endpoint = endpoint, .max_message = 1 << 20, .backlog = BACKLOG};
  ck_assert_msg(tri_zserver_open(z, &c, &server, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(tri_connection_guard_open(endpoint, &err), TRI_OK);
  late = calloc(1, sizeof *late);
}

static void end(void) {
  tri_late_replies_free(late);
  free(late);
  tri_zserver_close(server);
  tri_zcontext_destroy(z);
  tri_connection_guard_close();
  ck_assert_int_eq(rmdir(folder), 0);
}

/* Returns a client that has said a word, and its address. */
static tri_zlink *open_link(tri_peer *peer) {
  tri_error err = {0};
  tri_zlink *l = NULL;
  const void *data;
  size_t len;
  tri_zlink_config c = {
      .endpoint = endpoint, .max_message = 1 << 20, .backlog = 10, .receive_backlog = 1, .refuse_unconnected = true};
  ck_assert_msg(tri_zlink_open(z, &c, &l, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(tri_zlink_send_wait(l, "x", 1, 5000), TRI_OK);
  int64_t until = tri_deadline_after_ms(60000);
  for (bool here = false; !here && tri_now_ns() < until;) {
    here = tri_zserver_recv(server, peer, &data, &len, NULL) == TRI_OK && *(const char *)data == 'x';
    if (!here) usleep(1000);
  }
  return l;
}

/* Fills the way to a client; returns how many frames that took. */
static int fill(const tri_peer *peer) {
  static const char frame[FILL] = "filling";
  int n = 0;
  for (int quiet = 0; quiet < 20; n++) {
    if (tri_zserver_send(server, peer, frame, sizeof frame) == TRI_OK) {
      quiet = 0;
      continue;
    }
    n--;
    quiet++;
    usleep(2000); /* the library's thread takes what the kernel has room for */
  }
  return n;
}

/* Returns the next frame's bytes, or NULL when the connection has ended. */
static const char *next_frame(tri_zlink *l, size_t *len) {
  const void *data;
  for (int64_t until = tri_deadline_after_ms(60000); tri_now_ns() < until; usleep(500)) {
    tri_late_replies_send(late, tri_now_ns(), server);
    tri_zserver_flush(server);
    if (tri_zlink_recv(l, &data, len) == TRI_OK) return data;
    if (tri_zlink_look(l, NULL) >= TRI_ZLINK_LOST && tri_zlink_recv(l, &data, len) != TRI_OK) return NULL;
  }
  ck_abort_msg("neither a frame nor an end");
}

START_TEST(in_their_order) {
  enum { REPLIES = 1000 };
  tri_peer peer;
  tri_zlink *l = open_link(&peer);
  int fills = fill(&peer);
  for (unsigned i = 0; i < REPLIES; i++) {
    char text[32];
    snprintf(text, sizeof text, "reply %05u", i);
    tri_late_replies_add(late, tri_now_ns(), &peer, text, 11);
    ck_assert(tri_late_replies_wait(late, &peer));
  }
  ck_assert_uint_eq(late->bytes, REPLIES * 11);
  int next = 0;
  while (fills || next < REPLIES) {
    size_t len;
    const char *p = next_frame(l, &len);
    ck_assert_ptr_nonnull(p);
    if (len == FILL && !memcmp(p, "filling", 7)) {
      ck_assert_int_eq(next, 0);
      fills--;
      continue;
    }
    for (size_t at = 0; at < len; at += 11) {
      char number[6] = "";
      memcpy(number, p + at + 6, 5);
      ck_assert_int_eq(atoi(number), next++);
    }
  }
  ck_assert(!tri_late_replies_wait(late, &peer) && !late->num && !late->bytes);
  tri_zlink_close(l);
}
END_TEST

/* Does what the coordinator does ten times a second: it reads all there is, and closes. Returns the peer that said x.
 */
static tri_peer close_late(void) {
  tri_peer from, who = {.len = 0};
  const void *data;
  size_t len;
  for (int i = 0; i < 2 + TRI_LATE_END_MS / 100; i++) {
    while (tri_zserver_recv(server, &from, &data, &len, NULL) == TRI_OK)
      if (*(const char *)data == 'x') who = from;
    tri_late_replies_close(late, tri_now_ns(), server);
    usleep(100 * 1000);
  }
  return who;
}

/* Beyond the bound, without memory, or where nothing is read for too long, the connection ends; the others keep theirs.
 */
START_TEST(too_many) {
  static char reply[TRI_LATE_BYTES_OF_ONE / 2];
  tri_peer slow, other;
  tri_zlink *l = open_link(&slow), *k = open_link(&other);
  uint64_t before = tri_connection_guard_figures().unread;
  fill(&slow);
  fill(&other);
  tri_late_replies_add(late, tri_now_ns(), &other, "kept", 4);
  for (int i = 0; i < 2; i++) tri_late_replies_add(late, tri_now_ns(), &slow, reply, sizeof reply);
  ck_assert_uint_eq(tri_connection_guard_figures().unread, before);
  ck_assert(!late->has_closing);
  if (_i < 2) tri_late_replies_add(late, tri_now_ns(), &slow, _i ? "x" : NULL, (size_t)_i);
  late->list[1].since_ns -= _i == 2 ? 2 * TRI_LATE_MS * 1000000LL : 0;
  tri_late_replies_send(late, tri_now_ns(), server);
  ck_assert(late->has_closing);
  close_late();
  ck_assert_uint_eq(tri_connection_guard_figures().unread, before + 1);
  tri_late_replies_add(late, tri_now_ns(), &slow, "x", 1); /* what comes behind goes with it */
  close_late();
  ck_assert_uint_eq(tri_connection_guard_figures().unread, before + 1);
  ck_assert_uint_eq(late->bytes, 4);
  ck_assert(tri_late_replies_wait(late, &slow));
  size_t len;
  while (next_frame(l, &len)) continue;
  for (int i = 0; i < 500 && tri_late_replies_wait(late, &slow); i++) {
    tri_peer from;
    const void *data;
    tri_zserver_recv(server, &from, &data, &len, NULL); /* the end comes behind what was sent */
    tri_late_replies_close(late, tri_now_ns(), server);
    tri_late_replies_send(late, tri_now_ns(), server);
    usleep(1000);
  }
  ck_assert(!tri_late_replies_wait(late, &slow));
  ck_assert(tri_late_replies_wait(late, &other));
  const char *p;
  while ((p = next_frame(k, &len)) && len == FILL) continue;
  ck_assert(p && len == 4 && !memcmp(p, "kept", 4));
  tri_zlink_close(l);
  tri_zlink_close(k);
}
END_TEST

/* Makes a connection that nothing is read of; returns its descriptor here. */
static int connect_unread(tri_zlink **l) {
  enum { MOST = 256 };
  uint32_t before[MOST];
  tri_error err = {0};
  tri_zlink_config c = {.endpoint = endpoint, .max_message = 100, .backlog = 10, .refuse_unconnected = true};
  for (int i = 0; i < MOST; i++) before[i] = tri_connection_guard_generation(i);
  ck_assert_msg(tri_zlink_open(z, &c, l, &err) == TRI_OK, "%s", err.message);
  ck_assert_int_eq(tri_zlink_send_wait(*l, "x", 1, 5000), TRI_OK);
  for (int i = 0; i < MOST; i++)
    if (tri_connection_guard_generation(i) != before[i]) return i;
  ck_abort_msg("no descriptor");
}

/* Another connection may have got the descriptor of one that has gone with much unread. */
START_TEST(not_anothers) {
  tri_peer gone;
  tri_zlink *k, *l = open_link(&gone);
  uint64_t before = tri_connection_guard_figures().unread;
  if (_i) fill(&gone);
  for (int i = 0; i < 9; i++) ck_assert_int_eq(tri_zlink_send(l, "y", 1), TRI_OK);
  usleep(50 * 1000); /* they are there when the end comes */
  tri_zlink_close(l);
  usleep(300 * 1000);
  gone.connection = connect_unread(&k);
  ck_assert_int_ne(tri_zserver_look(server, &gone), TRI_CLOSED); /* as if it were there */
  tri_late_replies_add(late, tri_now_ns(), &gone, NULL, 0);
  tri_peer other = close_late();
  ck_assert_uint_eq(tri_connection_guard_figures().unread, before);
  tri_late_replies_send(late, tri_now_ns(), server);
  ck_assert_int_eq(late->num, 0);
  ck_assert_int_eq(tri_zserver_send(server, &other, "there", 5), TRI_OK);
  size_t len;
  const char *p = next_frame(k, &len);
  ck_assert(p && len == 5);
  tri_zlink_close(k);
}
END_TEST

/* A descriptor that another connection gets behind that is not closed. */
START_TEST(nor_a_later_ones) {
  tri_peer slow;
  tri_zlink *l = open_link(&slow);
  uint64_t before = tri_connection_guard_figures().unread;
  fill(&slow);
  tri_late_replies_add(late, tri_now_ns(), &slow, NULL, 0);
  late->list[0].generation--;
  close_late();
  ck_assert_uint_eq(tri_connection_guard_figures().unread, before);
  ck_assert_int_eq(tri_zlink_look(l, NULL), TRI_ZLINK_UP);
  tri_zlink_close(l);
}
END_TEST

/* One reply may be larger than what several may be together, and all have a bound, too. */
START_TEST(large_and_many) {
  static char large[TRI_LATE_BYTES_OF_ONE + 1];
  enum { MANY = TRI_LATE_BYTES / TRI_LATE_BYTES_OF_ONE + 1 };
  tri_peer peer;
  tri_zlink *l = open_link(&peer);
  fill(&peer);
  for (int i = 0; i < MANY; i++) { /* as if of others */
    tri_peer p = {.len = 2, .bytes = {(uint8_t)i, (uint8_t)(i >> 8)}, .connection = -1};
    tri_late_replies_add(late, tri_now_ns(), &p, large, sizeof large);
    ck_assert(i == MANY - 1 || late->list[i].bytes == sizeof large);
  }
  ck_assert(late->list[MANY - 1].closing && late->bytes >= TRI_LATE_BYTES);
  for (int i = MANY; i < TRI_LATE_CONNECTIONS + 3; i++) {
    tri_peer p = {.len = 2, .bytes = {(uint8_t)i, (uint8_t)(i >> 8)}, .connection = -1};
    tri_late_replies_add(late, tri_now_ns(), &p, "x", 1);
  }
  ck_assert_int_eq(late->num, TRI_LATE_CONNECTIONS);
  ck_assert_uint_eq(late->dropped, 3);
  tri_late_replies_send(late, tri_now_ns(), server);              /* none of them is there */
  ck_assert_int_eq(late->num, TRI_LATE_CONNECTIONS - (MANY - 1)); /* the others had no room, and are closed */
  close_late();
  tri_late_replies_send(late, tri_now_ns(), server);
  ck_assert(!late->num && !late->bytes);
  tri_zlink_close(l);
}
END_TEST

Suite *suite_late_replies(void) {
  Suite *s = suite_create("late_replies");
  TCase *t = tcase_create("late_replies");
  tcase_set_timeout(t, 60);
  tcase_add_checked_fixture(t, begin, end);
  tcase_add_test(t, in_their_order);
  tcase_add_loop_test(t, too_many, 0, 3);
  tcase_add_loop_test(t, not_anothers, 0, 2);
  tcase_add_test(t, nor_a_later_ones);
  tcase_add_test(t, large_and_many);
  suite_add_tcase(s, t);
  return s;
}
