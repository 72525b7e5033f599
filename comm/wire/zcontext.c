/* SPDX-License-Identifier: Apache-2.0 */
/* The library's context with its threads, and what all sockets have in common. */
#include "comm/wire/zsock_impl.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"

enum {
  HEARTBEAT_MS = 2000,
  HEARTBEAT_TIMEOUT_MS = 6000,
  HANDSHAKE_MS = 5000, /* a peer that connects and says nothing is dropped after this */
  DESCRIPTORS = 11,    /* of a context, 6, and of a socket with its watch and its connection */
};

/* Tells whether the descriptors can be had that the library is going to make: without them it ends the process. */
static tri_status check_descriptors(tri_error *err) {
  int fds[DESCRIPTORS], n = 0, e = 0;
  while (n < DESCRIPTORS && (fds[n] = eventfd(0, EFD_CLOEXEC)) >= 0) n++;
  if (n < DESCRIPTORS) e = errno;
  for (int i = 0; i < n; i++) close(fds[i]);
  if (!e) return TRI_OK;
  struct rlimit limit = {0};
  getrlimit(RLIMIT_NOFILE, &limit);
  return tri_fail(err, TRI_IO, NULL, "cannot open %d files for a connection, only %d: %s (ulimit -n is %llu)",
                  DESCRIPTORS, n, strerror(e), (unsigned long long)limit.rlim_cur);
}

tri_status tri_zcontext_create(tri_zcontext **out, tri_error *err) {
  TRI_CHECK(check_descriptors(err));
  tri_zcontext *z = tri_calloc(1, sizeof *z);
  if (!z) return TRI_NO_MEMORY;
  pthread_mutex_init(&z->lock, NULL);
  z->ctx = zmq_ctx_new();
  /* The library's thread is woken by each message. As a batch thread it does not push whoever sends off the core: a
   * step's messages go out together, with one switch instead of one each. */
  if (z->ctx) zmq_ctx_set(z->ctx, ZMQ_THREAD_SCHED_POLICY, SCHED_BATCH);
  if (z->ctx) z->zap_socket = zmq_socket(z->ctx, ZMQ_REP);
  int e = z->zap_socket ? 0 : zmq_errno();
  if (!e && zmq_bind(z->zap_socket, "inproc://zeromq.zap.01")) e = zmq_errno();
  if (!e) e = pthread_create(&z->zap_thread, NULL, tri_zap_main, z);
  if (e) {
    if (z->zap_socket) zmq_close(z->zap_socket);
    if (z->ctx) zmq_ctx_term(z->ctx);
    pthread_mutex_destroy(&z->lock);
    tri_free(z);
    return tri_fail(err, TRI_INTERNAL, NULL, "cannot start ZeroMQ: %s", zmq_strerror(e));
  }
  *out = z;
  return TRI_OK;
}

void tri_zcontext_destroy(tri_zcontext *z) {
  if (!z) return;
  for (tri_zserver *s; (s = LIST_FIRST(&z->servers));) tri_zserver_close(s);
  for (tri_zlink *l; (l = LIST_FIRST(&z->links));) tri_zlink_close(l);
  zmq_ctx_shutdown(z->ctx); /* ends the ZAP thread's receive */
  pthread_join(z->zap_thread, NULL);
  while (zmq_ctx_term(z->ctx) && zmq_errno() == EINTR) continue;
  pthread_mutex_destroy(&z->lock);
  tri_free(z);
}

void *tri_z_watch(tri_zcontext *z, void *socket, int events) {
  char address[40];
  pthread_mutex_lock(&z->lock);
  snprintf(address, sizeof address, "inproc://watch-%u", z->next_number++);
  pthread_mutex_unlock(&z->lock);
  void *monitor = zmq_socket_monitor(socket, address, events) ? NULL : zmq_socket(z->ctx, ZMQ_PAIR);
  /* Without a limit: the library's thread would wait with everything else for somebody to read. */
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
