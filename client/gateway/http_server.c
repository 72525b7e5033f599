/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: a listener, timers, signals, the descriptor of libtrireme.
 *
 * All events but timers and signals share one priority, so a flood of clients cannot keep the pulse, deadlines or
 * SIGTERM waiting for longer than TURN_MS. A drain ends the loop when no connection is left (http_server_look); the
 * listener stays open until then, so that a client that is connecting gets an answer and not a reset. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/gateway/http_conn_impl.h"
#include "base/log.h"
#include "base/mem.h"

enum { BACKLOG = 1024, TURN_MS = 50 };
/* Priorities of events: timers and signals come first, all else has the one in the middle, which libevent gives by
 * itself. */
enum { FIRST, AFTER, NUM_PRIORITIES = 3 };

static struct timeval of_ms(int ms) { return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}; }

/* One beyond the limit gets an error, without a connection of its own: what it sends is not read. */
static void refuse(http_server *s, int fd) {
  char body[512], head[512], more[256] = "";
  size_t n = s->handler.error(s->handler.ctx, 503, "too many connections", body, sizeof body);
  if (s->handler.error_fields) s->handler.error_fields(s->handler.ctx, NULL, more, sizeof more);
  int len = snprintf(head, sizeof head,
                     "HTTP/1.1 503 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nRetry-After: 1\r\n"
                     "Connection: close\r\n%s\r\n",
                     http_status_text(503), n, more);
  /* The buffer of a new socket has room for it. */
  if (send(fd, head, (size_t)len, MSG_NOSIGNAL | MSG_MORE) == len) (void)!send(fd, body, n, MSG_NOSIGNAL);
  close(fd);
}

static void on_accept(struct evconnlistener *l, int fd, struct sockaddr *from, int len, void *ctx) {
  http_server *s = ctx;
  (void)l;
  (void)len;
  if (s->num_connections >= s->config.max_connections && !http_conn_make_room(s)) return refuse(s, fd);
  http_conn_open(s, fd, from);
}

/* Without descriptors or memory the kernel would tell of the same client again and again. */
static void on_accept_error(struct evconnlistener *l, void *ctx) {
  http_server *s = ctx;
  if (!s->full) tri_log(TRI_LOG_WARN, "gateway", "no more connections for now: %s", strerror(errno));
  s->full = true;
  evconnlistener_disable(l);
}

void http_server_accept_again(http_server *s) {
  if (!s->full) return;
  s->full = false;
  evconnlistener_enable(s->listener);
}

static tri_status bind_address(http_server *s, tri_error *err) {
  const http_config *c = &s->config;
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)c->port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)c->port)};
  bool is_v4 = inet_pton(AF_INET, c->address, &v4.sin_addr) == 1;
  if (!is_v4 && inet_pton(AF_INET6, c->address, &v6.sin6_addr) != 1)
    return tri_fail(err, TRI_USAGE, "http", "\"%.80s\" is no address of numbers", c->address);
  const struct sockaddr *address = is_v4 ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6;
  unsigned flags = LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_REUSEABLE;
  s->listener =
      evconnlistener_new_bind(s->base, on_accept, s, flags, BACKLOG, address, (int)(is_v4 ? sizeof v4 : sizeof v6));
  if (s->listener) evconnlistener_set_error_cb(s->listener, on_accept_error);
  if (s->listener) return TRI_OK;
  return tri_fail(err, TRI_IO, "http", "cannot listen at %s port %d: %s", c->address, c->port, strerror(errno));
}

/* Without a backend that tells of closed peers a client's end would go unnoticed: epoll is one. However much clients
 * have sent, the loop looks at its timers and signals after each TURN_MS, and continues where it was. */
static struct event_base *make_base(void) {
  struct event_config *config = event_config_new();
  struct event_base *base = NULL;
  struct timeval turn = of_ms(TURN_MS);
  if (config && !event_config_require_features(config, EV_FEATURE_EARLY_CLOSE) &&
      !event_config_set_flag(config, EVENT_BASE_FLAG_NOLOCK) &&
      !event_config_set_max_dispatch_interval(config, &turn, -1, AFTER))
    base = event_base_new_with_config(config);
  if (config) event_config_free(config);
  if (base && event_base_priority_init(base, NUM_PRIORITIES)) {
    event_base_free(base);
    return NULL;
  }
  return base;
}

tri_status http_server_open(const http_config *config, const http_handler *handler, http_server **out, tri_error *err) {
  tri_status st = TRI_OK;
  http_server *s = tri_calloc(1, sizeof *s);
  if (!s) return tri_fail(err, TRI_NO_MEMORY, "", "no memory");
  s->config = *config;
  s->handler = *handler;
  s->base = make_base();
  if (!s->base) TRI_TRY(tri_fail(err, TRI_IO, "", "there is no event loop: %s", strerror(errno)));
  TRI_TRY(bind_address(s, err));
  *out = s;
  return TRI_OK;
cleanup:
  http_server_close(s);
  return st;
}

void http_server_close(http_server *s) {
  if (!s) return;
  while (s->connections) http_conn_free(s->connections);
  for (unsigned i = 0; i < s->num_signals; i++) event_free(s->signals[i].event);
  for (int i = 0; i < HTTP_NUM_WATCHED; i++)
    if (s->watches[i].event) event_free(s->watches[i].event);
  if (s->tick) event_free(s->tick);
  if (s->listener) evconnlistener_free(s->listener);
  if (s->base) event_base_free(s->base);
  tri_free(s);
}

int http_server_port(const http_server *s) {
  struct sockaddr_storage a;
  socklen_t len = sizeof a;
  if (getsockname(evconnlistener_get_fd(s->listener), (struct sockaddr *)&a, &len)) return -1;
  const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a;
  const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a;
  return ntohs(a.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
}

unsigned http_server_connections(const http_server *s) { return s->num_connections; }

static void on_watch(int fd, short what, void *ctx) {
  http_watch *w = ctx;
  (void)fd;
  (void)what;
  w->fn(w->server->handler.ctx);
}

tri_status http_server_watch(http_server *s, http_watched which, int fd, void (*fn)(void *ctx)) {
  http_watch *w = &s->watches[which];
  if (w->event) event_free(w->event);
  *w = (http_watch){.server = s, .fn = fn};
  if (fd < 0) return TRI_OK;
  w->event = event_new(s->base, fd, EV_READ | EV_PERSIST, on_watch, w);
  return w->event && !event_add(w->event, NULL) ? TRI_OK : TRI_NO_MEMORY;
}

static void on_tick(int fd, short what, void *ctx) {
  http_server *s = ctx;
  (void)fd;
  (void)what;
  http_server_accept_again(s);
  http_server_look(s);
  s->on_tick(s->handler.ctx);
}

tri_status http_server_every(http_server *s, int ms, void (*fn)(void *ctx)) {
  struct timeval tv = of_ms(ms);
  s->on_tick = fn;
  s->tick = event_new(s->base, -1, EV_PERSIST, on_tick, s);
  return s->tick && !event_priority_set(s->tick, FIRST) && !event_add(s->tick, &tv) ? TRI_OK : TRI_NO_MEMORY;
}

static void on_signal(int number, short what, void *ctx) {
  http_signal *x = ctx;
  (void)what;
  x->fn(x->server->handler.ctx, number);
}

tri_status http_server_on_signal(http_server *s, int number, void (*fn)(void *ctx, int number)) {
  if (s->num_signals == HTTP_MAX_SIGNALS) return TRI_NO_CAPACITY;
  http_signal *x = &s->signals[s->num_signals];
  *x = (http_signal){.server = s, .fn = fn};
  x->event = event_new(s->base, number, EV_SIGNAL | EV_PERSIST, on_signal, x);
  if (!x->event) return TRI_NO_MEMORY;
  s->num_signals++;
  if (event_priority_set(x->event, FIRST)) return TRI_INTERNAL;
  return event_add(x->event, NULL) ? TRI_NO_MEMORY : TRI_OK;
}

tri_status http_server_run(http_server *s) { return event_base_dispatch(s->base) < 0 ? TRI_IO : TRI_OK; }

void http_server_turn(http_server *s) { event_base_loop(s->base, EVLOOP_NONBLOCK); }

void http_server_stop(http_server *s) { event_base_loopbreak(s->base); }

void http_server_drain(http_server *s) {
  if (s->draining) return;
  s->draining = true;
  for (http_conn *c = s->connections; c; c = c->next) http_conn_drain(c);
  http_server_look(s);
}

void http_server_cut(http_server *s) {
  http_server_drain(s);
  for (http_conn *c = s->connections; c; c = c->next) http_conn_cut(c);
}

void http_server_abandon(http_server *s) {
  for (http_conn *c = s->connections; c; c = c->next) http_conn_abandon(c);
}
