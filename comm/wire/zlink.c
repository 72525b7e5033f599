/* Links: a socket from one peer to a server, and what becomes of its connection. */
#include "comm/wire/zsock_impl.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/mem.h"

enum {
  RECONNECT_MS = 100,
  RECONNECT_MAX_MS = 2000,
  REFUSED_AFTER = 3, /* handshakes that the server cut short, in a row */
};

static bool link_set_curve(void *k, const tri_zlink_config *c) {
  return !zmq_setsockopt(k, ZMQ_CURVE_SERVERKEY, c->server_key, TRI_Z_KEY) &&
         !zmq_setsockopt(k, ZMQ_CURVE_PUBLICKEY, c->own->public_key, TRI_Z_KEY) &&
         !zmq_setsockopt(k, ZMQ_CURVE_SECRETKEY, c->own->secret_key, TRI_Z_KEY);
}

/* Has libzmq's threads tell what they find out about the connection, on a pair of inproc sockets. */
static bool link_watch(tri_zlink *l) {
  char address[40];
  pthread_mutex_lock(&l->z->lock);
  snprintf(address, sizeof address, "inproc://link-%u", l->z->next_number++);
  pthread_mutex_unlock(&l->z->lock);
  int events = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
               ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
  if (zmq_socket_monitor(l->socket, address, events)) return false;
  l->monitor = zmq_socket(l->z->ctx, ZMQ_PAIR);
  return l->monitor && tri_z_set_int(l->monitor, ZMQ_LINGER, 0) && !zmq_connect(l->monitor, address);
}

void tri_zlink_drain_monitor(tri_zlink *l) {
  struct __attribute__((packed)) {
    uint16_t event;
    uint32_t value;
  } m;
  char address[TRI_Z_ENDPOINT_BYTES];
  while (l->monitor && zmq_recv(l->monitor, &m, sizeof m, ZMQ_DONTWAIT) == (int)sizeof m) {
    zmq_recv(l->monitor, address, sizeof address, ZMQ_DONTWAIT);
    switch (m.event) {
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
      l->state = TRI_ZLINK_UP;
      l->cut = 0;
      break;
    /* A server that lets nobody in ends handshakes without a word, but so does one that binds anew. */
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
      if (++l->cut >= REFUSED_AFTER) l->state = TRI_ZLINK_REFUSED;
      break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL: l->state = TRI_ZLINK_REFUSED; break;
    default: /* DISCONNECTED; one that follows a refusal or comes before a handshake says nothing new */
      if (l->state == TRI_ZLINK_UP) {
        l->state = TRI_ZLINK_LOST;
        l->losses++;
      }
    }
  }
}

tri_status tri_zlink_open(tri_zcontext *z, const tri_zlink_config *config, tri_zlink **out, tri_error *err) {
  tri_status st = TRI_OK;
  tri_zlink *l = NULL;
  if (!tri_z_starts_with(config->endpoint, "tcp://") && !tri_z_starts_with(config->endpoint, "ipc://"))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "endpoint", "%s starts with neither ipc:// nor tcp://",
                    config->endpoint);
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
  l->socket = zmq_socket(z->ctx, ZMQ_DEALER);
  int immediate = config->refuse_unconnected ? 1 : 0;
  bool ok = l->socket &&
            tri_z_set_common(l->socket, config->max_message, config->backlog > 0 ? config->backlog : TRI_Z_BACKLOG) &&
            tri_z_set_int(l->socket, ZMQ_IMMEDIATE, immediate) &&
            tri_z_set_int(l->socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) &&
            tri_z_set_int(l->socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS) &&
            (!config->own || link_set_curve(l->socket, config)) &&
            (!tri_z_starts_with(config->endpoint, "tcp://") || tri_z_set_heartbeat(l->socket)) && link_watch(l) &&
            !zmq_connect(l->socket, config->endpoint);
  if (!ok) {
    st = tri_fail(err, TRI_IO, "endpoint", "cannot use %s: %s", config->endpoint, zmq_strerror(zmq_errno()));
    goto cleanup;
  }
  *out = l;
  l = NULL;
cleanup:
  tri_zlink_close(l);
  return st;
}

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
  return zmq_send(l->socket, data, len, ZMQ_DONTWAIT) < 0 ? tri_z_status() : TRI_OK;
}

tri_status tri_zlink_send_wait(tri_zlink *l, const void *data, size_t len, int timeout_ms) {
  zmq_pollitem_t item[2] = {{.socket = l->socket, .events = ZMQ_POLLOUT}, {.socket = l->monitor, .events = ZMQ_POLLIN}};
  int64_t now = tri_z_now_ms(), end = now + timeout_ms;
  for (;;) {
    tri_status st = tri_zlink_send(l, data, len);
    if (st != TRI_AGAIN) return st;
    tri_zlink_drain_monitor(l);
    if (l->state == TRI_ZLINK_REFUSED) return TRI_PERMISSION;
    if (timeout_ms >= 0 && now >= end) return TRI_TIMEOUT;
    if (zmq_poll(item, 2, timeout_ms < 0 ? -1 : (long)(end - now)) < 0 && zmq_errno() == EINTR) return TRI_ABORTED;
    now = tri_z_now_ms();
  }
}

tri_zlink_state tri_zlink_look(tri_zlink *l, unsigned *losses) {
  tri_zlink_drain_monitor(l);
  if (losses) *losses = l->losses;
  return l->state;
}

void tri_zlink_close(tri_zlink *l) {
  if (!l) return;
  tri_zcontext *z = l->z;
  pthread_mutex_lock(&z->lock);
  LIST_REMOVE(l, links);
  pthread_mutex_unlock(&z->lock);
  zmq_msg_close(&l->msg);
  if (l->socket && l->monitor) zmq_socket_monitor(l->socket, NULL, 0);
  if (l->monitor) zmq_close(l->monitor);
  if (l->socket) zmq_close(l->socket);
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
