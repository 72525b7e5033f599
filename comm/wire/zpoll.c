/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for several sockets and file descriptors at once. */
#include "comm/wire/zsock_impl.h"

#include <errno.h>
#include <poll.h>

enum { MAX_POLL = 32 };

/* Does the work of zmq_poll with half of its system calls, which are most of the cost of a message. A socket's file
 * descriptor tells only that the library's thread has sent events since this side last took them in, which sending does
 * as well; ZMQ_EVENTS takes them in and tells whether there is a message. A monitor is never sent to, and read until it
 * is empty, so that its descriptor is enough. */
struct wait_set {
  struct pollfd fds[MAX_POLL];
  void *sockets[MAX_POLL]; /* NULL: a file descriptor of the caller's */
  int owner[MAX_POLL], count;
};

static bool wait_add(struct wait_set *w, int owner, void *socket, int fd) {
  size_t size = sizeof fd;
  if (w->count == MAX_POLL || (socket && zmq_getsockopt(socket, ZMQ_FD, &fd, &size))) return false;
  w->owner[w->count] = owner;
  w->sockets[w->count] = socket;
  w->fds[w->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
  return true;
}

/* An item may have two descriptors, and counts once. */
static int mark(tri_zpoll *item) {
  int fresh = !item->ready;
  item->ready = true;
  return fresh;
}

/* Returns how many items have become ready, after poll. */
static int wait_look(const struct wait_set *w, tri_zpoll *items) {
  int found = 0;
  for (int i = 0; i < w->count; i++) {
    tri_zpoll *item = &items[w->owner[i]];
    if (!w->fds[i].revents) continue;
    bool is_monitor = item->link && w->sockets[i] == item->link->monitor;
    if (is_monitor) tri_zlink_drain_monitor(item->link);
    if (!w->sockets[i] || is_monitor || tri_z_has_message(w->sockets[i])) found += mark(item);
  }
  return found;
}

tri_status tri_zpoll_wait(tri_zpoll *items, int n, int timeout_ms, int *ready) {
  struct wait_set w = {.count = 0};
  int found = 0;
  if (ready) *ready = 0;
  for (int i = 0; i < n; i++) {
    tri_zpoll *item = &items[i];
    void *socket = NULL;
    if (item->server)
      socket = item->server->socket;
    else if (item->link)
      socket = item->link->socket;
    bool ok = true;
    item->ready = false;
    if (socket) ok = wait_add(&w, i, socket, -1);
    if (item->link && !item->server) ok = ok && wait_add(&w, i, item->link->monitor, -1);
    if (!item->server && !item->link && item->fd >= 0) ok = wait_add(&w, i, NULL, item->fd);
    if (!ok) return w.count == MAX_POLL ? TRI_INVALID_ARGUMENT : TRI_CLOSED;
    if (socket && tri_z_has_message(socket)) found += mark(item);
  }
  int64_t end = timeout_ms > 0 ? tri_z_now_ms() + timeout_ms : 0;
  for (int left = timeout_ms;;) {
    int rc = poll(w.fds, (nfds_t)w.count, found ? 0 : left);
    if (rc < 0 && errno != EINTR) return TRI_IO;
    if (rc > 0) found += wait_look(&w, items);
    if (rc <= 0 || found || timeout_ms == 0) break;
    if (timeout_ms > 0) left = (int)(end - tri_z_now_ms()); /* events, but no message yet */
    if (timeout_ms > 0 && left < 0) left = 0;
  }
  if (ready) *ready = found;
  return TRI_OK;
}
