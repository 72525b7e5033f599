/* SPDX-License-Identifier: Apache-2.0 */
/* Options, events and errors that all sockets of the library share. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "comm/wire/zsock_impl.h"

enum {
  HEARTBEAT_MS = 2000,
  HEARTBEAT_TIMEOUT_MS = 6000,
  HANDSHAKE_MS = 5000, /* a peer that connects and says nothing is dropped after this */
};

void *tri_z_watch(tri_zcontext *z, void *socket, int events) {
  char address[40];
  pthread_mutex_lock(&z->lock);
  snprintf(address, sizeof address, "inproc://watch-%u", z->next_number++);
  pthread_mutex_unlock(&z->lock);
  void *monitor = zmq_socket_monitor(socket, address, events) ? NULL : zmq_socket(z->ctx, ZMQ_PAIR);
  /* Without a limit: the library's thread would stop with everything else until the events are read. */
  if (monitor && tri_z_set_int(monitor, ZMQ_LINGER, 0) && tri_z_set_int(monitor, ZMQ_RCVHWM, 0) &&
      !zmq_connect(monitor, address))
    return monitor;
  if (monitor) zmq_close(monitor);
  return NULL;
}

bool tri_z_next_event(void *monitor, int *event, int *value) {
  struct __attribute__((packed)) {
    uint16_t event;
    uint32_t value;
  } m;
  char address[TRI_Z_ENDPOINT_BYTES];
  if (zmq_recv(monitor, &m, sizeof m, ZMQ_DONTWAIT) != (int)sizeof m) return false;
  zmq_recv(monitor, address, sizeof address, ZMQ_DONTWAIT);
  *event = m.event;
  *value = (int)m.value;
  return true;
}

bool tri_z_set_int(void *s, int option, int value) { return !zmq_setsockopt(s, option, &value, sizeof value); }

bool tri_z_set_common(void *s, size_t max_message, int backlog) {
  int64_t max = max_message ? (int64_t)max_message : -1;
  return tri_z_set_int(s, ZMQ_LINGER, TRI_Z_LINGER_MS) && tri_z_set_int(s, ZMQ_SNDHWM, backlog) &&
         tri_z_set_int(s, ZMQ_RCVHWM, backlog) && tri_z_set_int(s, ZMQ_IPV6, 1) &&
         tri_z_set_int(s, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) && !zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &max, sizeof max);
}

bool tri_z_set_heartbeat(void *s) {
  return tri_z_set_int(s, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS) &&
         tri_z_set_int(s, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS) &&
         tri_z_set_int(s, ZMQ_HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS);
}

/* EINTR is TRI_AGAIN: callers poll again anyway. ETERM and ENOTSOCK say that the context or the socket was closed. */
tri_status tri_z_status(void) {
  int e = zmq_errno();
  if (e == EAGAIN || e == EINTR) return TRI_AGAIN;
  if (e == ENOMEM) return TRI_NO_MEMORY;
  return e == ETERM || e == ENOTSOCK ? TRI_CLOSED : TRI_IO;
}

/* Reads and drops the rest of a message; returns how many frames that were. */
int tri_z_discard_rest(void *socket, const zmq_msg_t *last) {
  int n = 0, more = zmq_msg_more(last);
  zmq_msg_t rest;
  zmq_msg_init(&rest);
  while (more &&
         zmq_msg_recv(&rest, socket, ZMQ_DONTWAIT) >= 0) { /* the parts of a message become readable all at once */
    more = zmq_msg_more(&rest);
    n++;
  }
  zmq_msg_close(&rest);
  return n;
}
