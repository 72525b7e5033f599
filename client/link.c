/* SPDX-License-Identifier: Apache-2.0 */
/* The link of a connection: it is opened, and greeted; and until when another one is tried. */
#include <stdio.h>
#include <string.h>

#include "client/internal.h"
#include "base/wait.h"

/* Frames of at most TRI_WIRE_MAX_MESSAGE bytes, so that a program which does not read holds 64 MiB. */
enum { UNREAD_FRAMES = 64 };

void tri_client_copy(char *out, size_t cap, tri_wire_str s) {
  snprintf(out, cap, "%.*s", (int)(s.len < cap ? s.len : cap - 1), s.s ? s.s : "");
}

tri_status tri_client_open_link(trireme *c, tri_error *err) {
  tri_zlink_config link = {.endpoint = c->endpoint,
                           .own = c->has_keys ? &c->own : NULL,
                           .server_key = c->server_key[0] ? c->server_key : NULL,
                           .max_message = TRI_WIRE_MAX_MESSAGE,
                           .backlog = 10000,
                           .receive_backlog = UNREAD_FRAMES,
                           .refuse_unconnected = true};
  return tri_zlink_open(c->z, &link, &c->link, err);
}

tri_status tri_client_pack_hello(trireme *c) {
  *c->out = (tri_client_msg){.op = TRI_OP_HELLO, .id = c->next_id++, .hello.client = {c->name, strlen(c->name)}};
  return tri_client_msg_pack(c->out, &c->buf);
}

void tri_client_take_hello(trireme *c) {
  tri_client_copy(c->server_version, sizeof c->server_version, c->msg->hello.version);
  c->max_message = c->msg->hello.max_message;
}

int64_t tri_client_give_up_ns(const trireme *c) {
  return c->lost_ns ? c->lost_ns + c->reconnect_ms * 1000000 : TRI_NEVER;
}

int64_t tri_client_next_ns(const trireme *c) {
  int64_t give_up = tri_client_give_up_ns(c);
  if (c->over) return TRI_NEVER;
  return c->next_ns < give_up ? c->next_ns : give_up;
}
