/* SPDX-License-Identifier: Apache-2.0 */
/* The library's context with its threads. */
#include "comm/wire/zsock_impl.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"

enum {
  DESCRIPTORS = 11, /* of a context, 6, and of a socket with its watch and its connection */
};

/* Returns whether the descriptors can be had that the library is going to make: without them it ends the process. */
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
  /* The library's thread is woken by each message. As a batch thread it does not push the sender off the core: a
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
