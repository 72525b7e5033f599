/* A descriptor for event loops. ZeroMQ's own are edge-triggered: they tell that its thread has something for this
 * one, and sending takes that in without saying so. The descriptor here is an epoll over them and over an eventfd,
 * which is readable while events that have been taken in are still to be given: poll sees what there is, whoever took
 * it in. */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client/internal.h"

void tri_client_close_fd(trireme *c) {
  if (c->fd >= 0) close(c->fd);
  if (c->ready_fd >= 0) close(c->ready_fd);
  c->fd = c->ready_fd = -1;
  c->ready = false;
}

void tri_client_show_ready(trireme *c, bool may_be) {
  uint64_t value = 1;
  if (c->fd < 0) return;
  bool message = !may_be && tri_zlink_has_events(c->link);
  bool ready = may_be || c->rest_len || message || tri_zlink_look(c->link, NULL) >= TRI_ZLINK_LOST;
  if (ready == c->ready) return;
  /* Neither can fail: the value is 0 or 1, and this is the thread that has the connection. */
  ssize_t n = ready ? write(c->ready_fd, &value, sizeof value) : read(c->ready_fd, &value, sizeof value);
  if (n == (ssize_t)sizeof value) c->ready = ready;
}

int trireme_fd(trireme *c) {
  int inside[3];
  if (c->fd >= 0) return c->fd;
  if (tri_zlink_fds(c->link, inside) != TRI_OK) return -1;
  c->fd = epoll_create1(EPOLL_CLOEXEC);
  c->ready_fd = inside[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  bool ok = c->fd >= 0 && c->ready_fd >= 0;
  for (int i = 0; ok && i < 3; i++) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = inside[i]};
    ok = epoll_ctl(c->fd, EPOLL_CTL_ADD, inside[i], &event) == 0;
  }
  if (ok)
    tri_client_show_ready(c, false);
  else
    tri_client_close_fd(c);
  return c->fd;
}
