/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor for event loops. ZeroMQ's own are edge-triggered: they tell that its thread has something for this
 * one, and sending takes that in without saying so. The descriptor here is an epoll over them and over an eventfd,
 * which is readable while events that have been taken in are still to be given: poll sees all of them, whichever call
 * took it in. A timer in addition to them is for what is due without word from ZeroMQ, as the next attempt to connect.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "client/internal.h"
#include "base/wait.h"

void tri_client_close_fd(trireme *c) {
  if (c->fd >= 0) close(c->fd);
  if (c->ready_fd >= 0) close(c->ready_fd);
  if (c->timer_fd >= 0) close(c->timer_fd);
  c->fd = c->ready_fd = c->timer_fd = -1;
  c->ready = false;
}

static void set_timer(trireme *c) {
  int64_t at = tri_client_next_ns(c);
  if (at == c->timer_ns) return;
  c->timer_ns = at;
  struct itimerspec when = {{0}, {0}}; /* zeros: never */
  if (at != TRI_NEVER) when.it_value = (struct timespec){at / 1000000000, at % 1000000000};
  timerfd_settime(c->timer_fd, TFD_TIMER_ABSTIME, &when, NULL); /* cannot fail: these are valid times */
}

static bool has_something(const trireme *c) {
  if (c->has_msg || c->rest_len || c->over || (c->kept && tri_kept_has_ended(c->kept))) return true;
  if (c->phase != CLIENT_UP) return false;
  return tri_zlink_has_events(c->link) || tri_zlink_look(c->link, NULL) >= TRI_ZLINK_LOST;
}

void tri_client_show_ready(trireme *c, bool may_be) {
  uint64_t value = 1;
  if (c->fd < 0) return;
  set_timer(c);
  bool ready = may_be || has_something(c);
  if (ready == c->ready) return;
  /* Neither can fail: the value is 0 or 1, and this is the thread that has the connection. */
  ssize_t n = ready ? write(c->ready_fd, &value, sizeof value) : read(c->ready_fd, &value, sizeof value);
  if (n == (ssize_t)sizeof value) c->ready = ready;
}

static bool add(const trireme *c, int fd) {
  struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
  return fd >= 0 && !epoll_ctl(c->fd, EPOLL_CTL_ADD, fd, &event);
}

/* A descriptor that the kernel has no room for is made up for by the timer: an attempt to connect has an end. */
void tri_client_watch_link(trireme *c, bool watch) {
  if (c->fd < 0 || !c->link) return;
  if (watch && tri_zlink_fds(c->link, c->link_fds) != TRI_OK) return;
  for (int i = 0; i < 2; i++) {
    if (watch)
      add(c, c->link_fds[i]);
    else
      epoll_ctl(c->fd, EPOLL_CTL_DEL, c->link_fds[i], NULL);
  }
}

int trireme_fd(trireme *c) {
  if (c->fd >= 0) return c->fd;
  if (c->link && tri_zlink_fds(c->link, c->link_fds) != TRI_OK) return -1;
  c->fd = epoll_create1(EPOLL_CLOEXEC);
  c->ready_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  c->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  c->timer_ns = TRI_NEVER;
  bool ok = c->fd >= 0 && add(c, c->ready_fd) && add(c, c->timer_fd);
  if (ok && c->link) ok = add(c, c->link_fds[0]) && add(c, c->link_fds[1]);
  if (ok)
    tri_client_show_ready(c, false);
  else
    tri_client_close_fd(c);
  return c->fd;
}
