/* SPDX-License-Identifier: Apache-2.0 */
/* A connection that was lost is made again, and what is kept is asked again over the new one. Nothing here waits: the
 * calls of the program do, and return when something is due.
 *
 *   UP --lost--> AWAY --after a pause: call--> CALLING --link is up: hello sent--> GREETING --hello--> UP
 *                 ^----------- no link, no hello, or not in time -----------------------+
 *
 * lost_ns runs from the loss to the next UP, over all attempts; after reconnect_timeout_ms of it all requests end with
 * an error and the connection is over for good. next_ns is the time of the next step in each phase: AWAY, the next
 * attempt; CALLING and GREETING, the end of this one; UP, when more is sent over a link that was full. In UP a
 * coordinator that says it is leaving is sent nothing more, and its loss follows. */
#include <stdio.h>

#include "client/internal.h"
#include "base/wait.h"

enum {
  PAUSE_MS = 100, /* between two attempts */
  ROOM_MS = 10    /* before more is sent over a connection that was full */
};

/* The link's descriptors must leave the epoll before the link closes them. */
static void hang_up(trireme *c) {
  tri_client_watch_link(c, false);
  tri_zlink_close(c->link);
  c->link = NULL;
  c->phase = CLIENT_AWAY;
  c->next_ns = tri_deadline_after_ms(PAUSE_MS);
}

void tri_client_lost(trireme *c) {
  int64_t now = tri_now_ns(), lasted = c->phase == CLIENT_UP && c->up_ns ? now - c->up_ns : 0;
  hang_up(c);
  c->rest_len = 0;
  c->leaving = false;
  if (!c->lost_ns) c->lost_ns = now;
  tri_kept_lost(c->kept, now, lasted);
}

void tri_client_leaves(trireme *c) {
  c->leaving = true;
  if (!c->lost_ns) c->lost_ns = tri_now_ns();
}

bool trireme_is_away(const trireme *c) { return c->over || c->lost_ns; }

static void give_up(trireme *c) {
  char why[400];
  const char *reason = tri_kept_reason(c->kept);
  snprintf(why, sizeof why, "the coordinator was lost, and none was there again within %g s%s%.250s",
           (double)c->reconnect_ms / 1000, reason[0] ? "; it had ended: " : "", reason);
  tri_kept_end_all(c->kept, why);
  c->over = true;
}

/* Sends what waits, in its order, as far as the link has room. */
static void send_kept(trireme *c) {
  const void *bytes;
  size_t len;
  c->next_ns = TRI_NEVER;
  while (!c->leaving && tri_kept_next(c->kept, &bytes, &len)) {
    tri_status st = tri_zlink_send(c->link, bytes, len);
    if (st == TRI_AGAIN || st == TRI_NO_MEMORY) c->next_ns = tri_deadline_after_ms(ROOM_MS);
    if (st != TRI_OK) return; /* a connection that is lost again is noticed with its reading */
    tri_kept_sent(c->kept);
  }
}

static void call(trireme *c) {
  c->next_ns = tri_deadline_after_ms(PAUSE_MS);
  if (tri_client_open_link(c, NULL) != TRI_OK) return;
  tri_client_watch_link(c, true);
  c->phase = CLIENT_CALLING;
  c->next_ns = tri_deadline_after_ms(c->timeout_ms);
}

/* Returns false without a greeting from there. */
static bool take_greeting(trireme *c) {
  const void *data;
  size_t len;
  tri_status st;
  while ((st = tri_zlink_recv(c->link, &data, &len)) == TRI_OK && !len) continue;
  if (st == TRI_AGAIN) return true;
  if (st == TRI_OK) {
    tri_arena_reset(c->arena);
    st = tri_server_msg_unpack(data, len, c->arena, c->msg, NULL);
  }
  if (st != TRI_OK || c->msg->op != TRI_REPLY_HELLO) return false;
  tri_client_take_hello(c);
  c->phase = CLIENT_UP;
  c->lost_ns = 0;
  c->up_ns = tri_now_ns();
  send_kept(c);
  return true;
}

static bool go_on_calling(trireme *c) {
  tri_zlink_state state = tri_zlink_look(c->link, NULL);
  if (state >= TRI_ZLINK_LOST || tri_zlink_is_unanswered(c->link) || tri_now_ns() >= c->next_ns) return false;
  if (state != TRI_ZLINK_UP) return true;
  if (c->phase == CLIENT_CALLING) {
    if (tri_client_pack_hello(c) != TRI_OK || tri_zlink_send(c->link, c->buf.data, c->buf.len) != TRI_OK) return false;
    c->phase = CLIENT_GREETING;
  }
  return take_greeting(c);
}

void tri_client_turn(trireme *c) {
  if (!c->kept || c->over) return;
  if (tri_now_ns() >= tri_client_give_up_ns(c)) {
    give_up(c);
    return;
  }
  if (c->phase == CLIENT_AWAY && tri_now_ns() >= c->next_ns) call(c);
  if (c->phase == CLIENT_UP)
    send_kept(c);
  else if (c->phase != CLIENT_AWAY && !go_on_calling(c))
    hang_up(c);
}
