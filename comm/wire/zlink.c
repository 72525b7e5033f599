/* SPDX-License-Identifier: Apache-2.0 */
/* Links: a socket from one peer to a server, and what becomes of its connection. */
#include "comm/wire/zsock_impl.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "comm/wire/socket_owner.h"
#include "base/mem.h"

enum {
  RECONNECT_MS = 100,
  RECONNECT_MAX_MS = 2000,
  CONNECT_MS = 5000,         /* of an attempt, where the system would wait for minutes */
  RECONNECT_NEVER = INT_MAX, /* 24 days; at -1 libzmq drops what it has received as soon as the connection is lost */
  REFUSED_AFTER = 10,        /* handshakes that the server cut short, in a row: so may one with too many at the door */
};

static bool link_set_curve(void *k, const tri_zlink_config *c) {
  return !zmq_setsockopt(k, ZMQ_CURVE_SERVERKEY, c->server_key, TRI_Z_KEY) &&
         !zmq_setsockopt(k, ZMQ_CURVE_PUBLICKEY, c->own->public_key, TRI_Z_KEY) &&
         !zmq_setsockopt(k, ZMQ_CURVE_SECRETKEY, c->own->secret_key, TRI_Z_KEY);
}

static bool link_watch(tri_zlink *l) {
  int events = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
               ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
               ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
  /* An attempt that was not answered is closed, and one for which there was no name or no file is only put off. */
  if (l->config.refuse_unconnected) events |= ZMQ_EVENT_CLOSED | ZMQ_EVENT_CONNECT_RETRIED;
  l->monitor = tri_z_watch(l->z, l->socket, events);
  return l->monitor != NULL;
}

/* A failed attempt may show in more than one event: the first sets the time. */
static void try_again(tri_zlink *l) {
  if (l->state != TRI_ZLINK_CONNECTING || l->again) return;
  l->again = true;
  l->again_ms = tri_z_now_ms() + RECONNECT_MS;
}

/* Looks who listens at the other end of a connection, before anything is sent there. */
static void look_at_owner(tri_zlink *l, int fd) {
  uid_t uid;
  if (!l->config.refuse_unconnected || !tri_z_starts_with(l->endpoint, "ipc://") || !tri_socket_listener(fd, &uid))
    return;
  l->foreign = !tri_socket_is_trusted(l->endpoint + strlen("ipc://"), uid);
  l->owner = uid;
}

/* The states of a link, by what the library's threads tell of its connection:
 *
 *   CONNECTING --handshake--> UP --disconnected--> LOST --handshake--> UP
 *   any --the server says no, REFUSED_AFTER handshakes cut, or a foreign owner--> REFUSED
 *
 * A handshake that succeeds ends REFUSED as well, except for a foreign owner. With refuse_unconnected LOST is final:
 * there is no further attempt. */
void tri_zlink_drain_monitor(tri_zlink *l) {
  int event, value;
  while (l->monitor && tri_z_next_event(l->monitor, &event, &value)) {
    if (event == ZMQ_EVENT_CONNECTED) look_at_owner(l, value);
    if (l->foreign) {
      l->state = TRI_ZLINK_REFUSED;
      continue;
    }
    switch (event) {
    case ZMQ_EVENT_CONNECTED: break;
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
      l->state = TRI_ZLINK_UP;
      l->cut = 0;
      break;
    /* A server that refuses all clients ends handshakes without a word, but so does one that binds anew. */
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
      if (++l->cut >= REFUSED_AFTER) l->state = TRI_ZLINK_REFUSED;
      break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
      l->state = TRI_ZLINK_REFUSED;
      l->cut = 0; /* this one has said why */
      break;
    case ZMQ_EVENT_CONNECT_RETRIED: try_again(l); break;
    default: /* DISCONNECTED or CLOSED; one that follows a refusal says nothing new */
      if (l->state == TRI_ZLINK_UP) {
        l->state = TRI_ZLINK_LOST;
        l->losses++;
      } else {
        try_again(l);
      }
    }
  }
}

/* Messages that were queued for a connection that never came up are dropped with the socket, where the caller wants
 * none sent to another server. */
static void link_stop(tri_zlink *l) {
  if (l->socket && l->monitor) zmq_socket_monitor(l->socket, NULL, 0);
  if (l->socket && l->config.refuse_unconnected && l->state != TRI_ZLINK_UP) tri_z_set_int(l->socket, ZMQ_LINGER, 0);
  if (l->monitor) zmq_close(l->monitor);
  if (l->socket) zmq_close(l->socket);
  l->socket = l->monitor = NULL;
}

/* Makes the socket and lets it connect; returns 0 or an errno. A library that connects anew by itself would send to the
 * next server what the caller means for the one before: its threads know of a loss earlier than this one. Where that
 * must not be, it makes a single attempt, and every further one has a new socket. */
static int link_start(tri_zlink *l) {
  const tri_zlink_config *c = &l->config;
  int backlog = c->backlog > 0 ? c->backlog : TRI_Z_BACKLOG;
  int again = c->refuse_unconnected ? RECONNECT_NEVER : RECONNECT_MS;
  int again_max = c->refuse_unconnected ? 0 : RECONNECT_MAX_MS; /* 0: none */
  l->again = false;
  l->socket = zmq_socket(l->z->ctx, ZMQ_DEALER);
  bool ok = l->socket && tri_z_set_common(l->socket, c->max_message, backlog) &&
            (c->receive_backlog <= 0 || tri_z_set_int(l->socket, ZMQ_RCVHWM, c->receive_backlog)) &&
            (!c->refuse_unconnected || tri_z_set_int(l->socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MS)) &&
            tri_z_set_int(l->socket, ZMQ_RECONNECT_IVL, again) &&
            tri_z_set_int(l->socket, ZMQ_RECONNECT_IVL_MAX, again_max) && (!c->own || link_set_curve(l->socket, c)) &&
            (!tri_z_starts_with(c->endpoint, "tcp://") || tri_z_set_heartbeat(l->socket)) && link_watch(l) &&
            !zmq_connect(l->socket, c->endpoint);
  int e = ok ? 0 : zmq_errno();
  if (e) link_stop(l);
  tri_zlink_drain_monitor(l); /* a descriptor tells of what comes after a look */
  return e;
}

/* Keeps the config for further attempts, with copies of what it points to. */
static void link_keep(tri_zlink *l, const tri_zlink_config *config) {
  l->config = *config;
  snprintf(l->endpoint, sizeof l->endpoint, "%s", config->endpoint);
  l->config.endpoint = l->endpoint;
  if (!config->own) return;
  l->own = *config->own;
  memcpy(l->server_key, config->server_key, sizeof l->server_key);
  l->config.own = &l->own;
  l->config.server_key = l->server_key;
}

tri_status tri_zlink_open(tri_zcontext *z, const tri_zlink_config *config, tri_zlink **out, tri_error *err) {
  tri_status st = TRI_OK;
  tri_zlink *l = NULL;
  if (!tri_z_starts_with(config->endpoint, "tcp://") && !tri_z_starts_with(config->endpoint, "ipc://"))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "endpoint", "%s starts with neither ipc:// nor tcp://",
                    config->endpoint);
  if (strlen(config->endpoint) >= TRI_Z_ENDPOINT_BYTES)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "endpoint", "longer than %d bytes", TRI_Z_ENDPOINT_BYTES - 1);
  if (!config->own != !config->server_key)
    return tri_fail(err, TRI_INVALID_ARGUMENT, config->own ? "server-key" : "key-file",
                    "CURVE needs both a key pair of one's own and the server's public key");
  if (config->server_key) TRI_TRY(tri_zkey_check(config->server_key, "server-key", err));
  l = tri_calloc(1, sizeof *l);
  if (!l) return TRI_NO_MEMORY;
  l->z = z;
  pthread_mutex_lock(&z->lock);
  LIST_INSERT_HEAD(&z->links, l, links);
  pthread_mutex_unlock(&z->lock);
  zmq_msg_init(&l->msg);
  link_keep(l, config);
  int e = link_start(l);
  if (e) TRI_TRY(tri_fail(err, TRI_IO, "endpoint", "cannot use %s: %s", config->endpoint, zmq_strerror(e)));
  *out = l;
  l = NULL;
cleanup:
  tri_zlink_close(l);
  return st;
}

/* The bytes are the link's until the next call. */
tri_status tri_zlink_recv(tri_zlink *l, const void **data, size_t *len) {
  for (int i = 0; i < TRI_Z_DISCARDS_PER_CALL; i++) {
    if (zmq_msg_recv(&l->msg, l->socket, ZMQ_DONTWAIT) < 0) return tri_z_status();
    if (tri_z_discard_rest(l->socket, &l->msg)) continue; /* a server of ours sends single frames */
    *data = zmq_msg_data(&l->msg);
    *len = zmq_msg_size(&l->msg);
    return TRI_OK;
  }
  return TRI_AGAIN;
}

tri_status tri_zlink_send(tri_zlink *l, const void *data, size_t len) {
  if (l->config.refuse_unconnected) {
    tri_zlink_drain_monitor(l);
    if (l->state == TRI_ZLINK_REFUSED) return TRI_PERMISSION;
    if (l->state == TRI_ZLINK_LOST) return TRI_CLOSED;
    if (l->state == TRI_ZLINK_CONNECTING) return TRI_AGAIN;
  }
  return zmq_send(l->socket, data, len, ZMQ_DONTWAIT) < 0 ? tri_z_status() : TRI_OK;
}

/* Polls the monitor for a state that changes, and the socket for room; attempts that refuse_unconnected makes are due
 * at again_ms. */
tri_status tri_zlink_send_wait(tri_zlink *l, const void *data, size_t len, int timeout_ms) {
  int64_t now = tri_z_now_ms(), end = now + timeout_ms;
  for (;;) {
    tri_status st = tri_zlink_send(l, data, len);
    if (st != TRI_AGAIN) return st;
    tri_zlink_drain_monitor(l);
    if (l->state == TRI_ZLINK_REFUSED) return TRI_PERMISSION;
    if (timeout_ms >= 0 && now >= end) return TRI_TIMEOUT;
    bool again = l->config.refuse_unconnected && l->again;
    if (again && now >= l->again_ms) {
      link_stop(l);
      if (link_start(l)) return TRI_IO;
      continue;
    }
    int64_t left = timeout_ms < 0 ? -1 : end - now;
    if (again && (left < 0 || left > l->again_ms - now)) left = l->again_ms - now;
    /* Room without a connection is of no use. */
    bool for_room = !l->config.refuse_unconnected || l->state == TRI_ZLINK_UP;
    zmq_pollitem_t item[2] = {{.socket = l->monitor, .events = ZMQ_POLLIN},
                              {.socket = l->socket, .events = ZMQ_POLLOUT}};
    if (zmq_poll(item, for_room ? 2 : 1, (long)left) < 0 && zmq_errno() == EINTR) return TRI_ABORTED;
    now = tri_z_now_ms();
  }
}

tri_zlink_state tri_zlink_look(tri_zlink *l, unsigned *losses) {
  tri_zlink_drain_monitor(l);
  if (losses) *losses = l->losses;
  return l->state;
}

bool tri_zlink_was_cut(const tri_zlink *l) { return l->cut > 0; }

bool tri_zlink_is_foreign(const tri_zlink *l, unsigned long *uid) {
  *uid = l->owner;
  return l->foreign;
}

bool tri_zlink_is_unanswered(const tri_zlink *l) { return l->again; }

void tri_zlink_close(tri_zlink *l) {
  if (!l) return;
  tri_zcontext *z = l->z;
  pthread_mutex_lock(&z->lock);
  LIST_REMOVE(l, links);
  pthread_mutex_unlock(&z->lock);
  zmq_msg_close(&l->msg);
  link_stop(l);
  explicit_bzero(&l->own, sizeof l->own);
  tri_free(l);
}

bool tri_z_has_message(void *socket) {
  int events = 0;
  size_t size = sizeof events;
  return !zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) && (events & ZMQ_POLLIN);
}

tri_status tri_zlink_fds(const tri_zlink *l, int fds[2]) {
  size_t size = sizeof *fds;
  if (!l->socket || zmq_getsockopt(l->socket, ZMQ_FD, &fds[0], &size)) return TRI_CLOSED;
  size = sizeof *fds;
  return zmq_getsockopt(l->monitor, ZMQ_FD, &fds[1], &size) ? TRI_CLOSED : TRI_OK;
}

bool tri_zlink_has_events(tri_zlink *l) {
  tri_zlink_drain_monitor(l);
  return l->socket && tri_z_has_message(l->socket);
}
