/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: bytes to requests, responses to bytes, and the time that each may take.
 *
 *   HEAD --head--> BODY --body--> RESPOND --answer--> FLUSH --written--> HEAD, or LINGER -> OVER
 *     \--refused, or answered at its head: FLUSH--/
 * and from anywhere to OVER, where the client has gone or memory is short.
 *
 * The timer means another thing in each phase: HEAD, the client's next request, and from its first byte the rest of the
 * head; BODY, the whole body; RESPOND, a ping of a stream; LINGER, the time to drop bytes; OVER, at once. Writing has a
 * timeout of its own in libevent, which ends a client that does not read.
 *
 * A connection is not freed inside its own calls: `end` makes the timer due, and on_timer frees it from the loop.
 * So a function may use `c` after a write that failed, and looks at the phase for it. Reading is off from RESPOND to
 * the end of FLUSH: the socket holds what a client sends ahead, and TCP slows it down. */
#include "client/gateway/http_conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "client/gateway/http_conn_impl.h"
#include "base/mem.h"

enum {
  LINGER_MS = 1000,
  LOOK_MS = 200,
  HEAD_BYTES = 4096,
  FIELDS_BYTES = 1024,
  BEHIND_BYTES = 16384,
  SMALL_BODY = 65536
};

static const struct {
  int status;
  const char *text;
} statuses[] = {{200, "OK"},
                {400, "Bad Request"},
                {401, "Unauthorized"},
                {403, "Forbidden"},
                {404, "Not Found"},
                {405, "Method Not Allowed"},
                {408, "Request Timeout"},
                {413, "Content Too Large"},
                {414, "URI Too Long"},
                {415, "Unsupported Media Type"},
                {417, "Expectation Failed"},
                {429, "Too Many Requests"},
                {431, "Request Header Fields Too Large"},
                {500, "Internal Server Error"},
                {501, "Not Implemented"},
                {503, "Service Unavailable"},
                {504, "Gateway Timeout"},
                {505, "HTTP Version Not Supported"}};

const char *http_status_text(int status) {
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
    if (statuses[i].status == status) return statuses[i].text;
  return "Error";
}

const http_parser *http_conn_request(const http_conn *c) { return &c->parser; }
void http_conn_trust(http_conn *c) { c->trusted = true; }
void http_conn_set_data(http_conn *c, void *data) { c->data = data; }
void *http_conn_data(const http_conn *c) { return c->data; }

static void reset(http_conn *c);

/* That of one that is over is due, and frees it. One that has no memory for its timer ends: nothing else would. */
static void set_timer(http_conn *c, int ms) {
  if (c->phase == PHASE_OVER) return;
  struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
  event_del(c->timer);
  if (ms > 0 && event_add(c->timer, &tv)) reset(c);
}

/* libevent writes what is added to a buffer unless it had no memory to look at it. */
static void write_on(http_conn *c) {
  if (evbuffer_get_length(bufferevent_get_output(c->bev)) && bufferevent_enable(c->bev, EV_WRITE)) reset(c);
}

/* Lets the server know how much the connection holds of a body. */
static void count_body(http_conn *c) {
  c->server->body_bytes += c->parser.body.len - c->counted;
  c->counted = c->parser.body.len;
}

void http_conn_take_body(http_conn *c, tri_buf *out) {
  *out = c->parser.body;
  c->parser.body = (tri_buf){0};
  count_body(c);
}

void http_conn_free(http_conn *c) {
  http_server *s = c->server;
  if (c->prev)
    c->prev->next = c->next;
  else
    s->connections = c->next;
  if (c->next)
    c->next->prev = c->prev;
  else
    s->oldest = c->prev;
  s->num_connections--;
  s->body_bytes -= c->counted;
  if (c->timer) event_free(c->timer);
  if (c->hangup) event_free(c->hangup);
  if (c->bev) bufferevent_free(c->bev);
  http_parser_free(&c->parser);
  tri_free(c);
}

/* Ends the connection. The loop frees it, so that the caller still has it until then. */
static void end(http_conn *c) {
  if (c->phase == PHASE_OVER) return;
  c->phase = PHASE_OVER;
  bufferevent_disable(c->bev, EV_READ | EV_WRITE);
  event_del(c->hangup);
  event_active(c->timer, EV_TIMEOUT, 0);
}

/* The client shall not take what it got for the whole: it gets a reset. */
static void reset(http_conn *c) {
  struct linger at_once = {.l_onoff = 1};
  setsockopt(bufferevent_getfd(c->bev), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  end(c);
}

/* The client has gone, or is too slow: the user hears it if it still makes a response. */
static void lose(http_conn *c, http_gone why) {
  bool waits = c->phase == PHASE_RESPOND;
  if (why == HTTP_GONE_SLOW)
    reset(c);
  else
    end(c);
  if (waits) c->server->handler.gone(c->server->handler.ctx, c, why);
}

/* ---- responses ---- */

/* Writes status line and header lines; length: of the body in bytes, or -1 for a stream, whose end is a last chunk or
 * for HTTP/1.0 the end of the connection. */
static void write_head(http_conn *c, int status, const char *type, const char *fields, int64_t length) {
  char head[HEAD_BYTES], more[FIELDS_BYTES] = "", date[40], size[48] = "";
  const http_handler *h = &c->server->handler;
  struct tm tm;
  time_t now = time(NULL);
  h->answering(h->ctx, c, status, fields);
  if (h->fields) h->fields(h->ctx, c, more, sizeof more);
  gmtime_r(&now, &tm);
  strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", &tm);
  if (length >= 0) snprintf(size, sizeof size, "Content-Length: %lld\r\n", (long long)length);
  if (c->chunked) snprintf(size, sizeof size, "Transfer-Encoding: chunked\r\n");
  const char *stays = c->parser.version_1_0 ? "Connection: keep-alive\r\n" : "";
  int n = snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\n%s%s%s%s\r\n", status,
                   http_status_text(status), date, type, size, fields ? fields : "", more,
                   c->close ? "Connection: close\r\n" : stays);
  if (n < 0 || (size_t)n >= sizeof head || bufferevent_write(c->bev, head, (size_t)n)) reset(c);
}

/* The response is whole: the next request is read once this is written. */
static void responded(http_conn *c) {
  if (c->phase == PHASE_OVER) return;
  c->phase = PHASE_FLUSH;
  c->streaming = false;
  bufferevent_disable(c->bev, EV_READ);
  event_del(c->hangup);
  set_timer(c, 0);
  write_on(c);
  /* Nothing that still waits would tell that all is written. */
  if (!evbuffer_get_length(bufferevent_get_output(c->bev)))
    bufferevent_trigger(c->bev, EV_WRITE, BEV_TRIG_IGNORE_WATERMARKS | BEV_TRIG_DEFER_CALLBACKS);
}

/* A body that was refused unread is still on its way: the next request cannot be found after it. */
static bool stays_open(const http_conn *c) {
  bool body_unread = c->in_head && (c->parser.chunked || c->parser.left);
  return c->parser.keep_alive && !c->server->draining && !body_unread;
}

void http_respond(http_conn *c, int status, const char *type, const char *fields, const char *body, size_t len) {
  if (c->phase == PHASE_OVER) return;
  c->close = !stays_open(c);
  c->chunked = false;
  write_head(c, status, type, fields, (int64_t)len);
  bool bodiless = c->parser.method == HTTP_HEAD;
  if (!bodiless && c->phase != PHASE_OVER && bufferevent_write(c->bev, body, len)) reset(c);
  responded(c);
}

/* An answer of the connection's own, after which it ends: the parser has lost its place, or time is up. */
static void refuse(http_conn *c, int status, const char *why) {
  char body[1024], fields[FIELDS_BYTES], more[FIELDS_BYTES / 2] = "";
  const http_handler *h = &c->server->handler;
  size_t n = h->error(h->ctx, status, why, body, sizeof body);
  if (h->error_fields) h->error_fields(h->ctx, c, more, sizeof more);
  const char *hint = status == 405 ? "Allow: GET, HEAD, POST\r\n" : "";
  if (status == 503) hint = "Retry-After: 1\r\n";
  snprintf(fields, sizeof fields, "%s%s", more, hint);
  tri_buf_free(&c->parser.body);
  count_body(c);
  c->parser.keep_alive = false;
  c->parser.method = HTTP_GET;
  http_respond(c, status, "application/json", fields, body, n);
}

bool http_stream_begin(http_conn *c, const char *fields) {
  if (c->phase == PHASE_OVER) return false;
  char more[FIELDS_BYTES];
  c->streaming = true;
  c->chunked = !c->parser.version_1_0;
  c->close = !c->chunked || !stays_open(c);
  /* Proxies shall pass each event on at once. */
  snprintf(more, sizeof more, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s", fields ? fields : "");
  write_head(c, 200, "text/event-stream; charset=utf-8", more, -1);
  c->quiet = true;
  set_timer(c, c->server->config.ping_ms);
  return c->phase != PHASE_OVER;
}

/* Writes the size of a chunk before `end`; returns where it begins. */
static char *put_chunk_size(char *end, size_t len) {
  *--end = '\n';
  *--end = '\r';
  do {
    *--end = "0123456789abcdef"[len & 15];
    len >>= 4;
  } while (len);
  return end;
}

/* Gives the socket what it takes at once, where nothing waits before it: the loop then has nothing to watch, which
 * would be two more system calls for each token. Returns how many bytes it took; an error shows at the next write. */
static size_t write_now(http_conn *c, const struct iovec *pieces, int num) {
  if (evbuffer_get_length(bufferevent_get_output(c->bev))) return 0;
  struct msghdr m = {.msg_iov = (struct iovec *)pieces, .msg_iovlen = (size_t)num};
  ssize_t n = sendmsg(bufferevent_getfd(c->bev), &m, MSG_NOSIGNAL | MSG_DONTWAIT);
  return n > 0 ? (size_t)n : 0;
}

bool http_stream_send(http_conn *c, const char *events, size_t len) {
  if (c->phase == PHASE_OVER) return false;
  struct evbuffer *out = bufferevent_get_output(c->bev);
  char size[18], end[] = "\r\n";
  char *begin = put_chunk_size(size + sizeof size, len);
  struct iovec all[3] = {{begin, (size_t)(size + sizeof size - begin)}, {(char *)events, len}, {end, 2}};
  struct iovec *pieces = c->chunked ? all : all + 1;
  int num = c->chunked ? 3 : 1;
  c->quiet = false;
  size_t written = write_now(c, pieces, num);
  bool ok = true;
  for (int i = 0; ok && i < num; i++) {
    size_t skip = written < pieces[i].iov_len ? written : pieces[i].iov_len;
    written -= skip;
    if (skip < pieces[i].iov_len) ok = !evbuffer_add(out, (char *)pieces[i].iov_base + skip, pieces[i].iov_len - skip);
  }
  if (!ok || evbuffer_get_length(out) > c->server->config.max_pending)
    reset(c);
  else
    write_on(c);
  return c->phase != PHASE_OVER;
}

bool http_stream_behind(const http_conn *c) {
  return c->phase != PHASE_OVER && evbuffer_get_length(bufferevent_get_output(c->bev)) > BEHIND_BYTES;
}

void http_stream_reset(http_conn *c) {
  c->data = NULL;
  reset(c);
}

void http_stream_end(http_conn *c) {
  if (c->phase == PHASE_OVER) return;
  if (c->chunked && bufferevent_write(c->bev, "0\r\n\r\n", 5)) reset(c);
  responded(c);
}

/* ---- requests ---- */

static void await_head(http_conn *c) {
  c->phase = PHASE_HEAD;
  c->begun = c->in_head = c->streaming = c->close = false;
  c->data = NULL;
  bufferevent_enable(c->bev, EV_READ);
}

/* The user may answer at the head, which leaves the phase that was set here; else the body is read. */
static void head_done(http_conn *c) {
  const http_handler *h = &c->server->handler;
  c->phase = PHASE_BODY;
  c->in_head = true;
  h->head(h->ctx, c);
  if (c->phase != PHASE_BODY) return;
  c->in_head = false;
  set_timer(c, c->server->config.body_ms);
  if (c->parser.expects_continue && bufferevent_write(c->bev, "HTTP/1.1 100 Continue\r\n\r\n", 25)) reset(c);
}

/* The client has gone, or has sent ahead. A reset wakes the loop as bytes do, and would keep doing so: after bytes
 * that stay in the socket the connection looks for one now and then. */
static void on_hangup(int fd, short what, void *ctx) {
  http_conn *c = ctx;
  struct pollfd p = {.fd = fd, .events = POLLRDHUP};
  struct timeval again = {.tv_usec = LOOK_MS * 1000};
  bool gone = (what & EV_CLOSED) || (poll(&p, 1, 0) > 0 && (p.revents & (POLLERR | POLLHUP | POLLRDHUP)));
  if (gone) return lose(c, HTTP_GONE_CLOSED);
  event_assign(c->hangup, c->server->base, fd, EV_CLOSED, on_hangup, c);
  event_add(c->hangup, &again);
}

static void request_done(http_conn *c) {
  const http_handler *h = &c->server->handler;
  c->phase = PHASE_RESPOND;
  bufferevent_disable(c->bev, EV_READ);
  set_timer(c, 0);
  event_assign(c->hangup, c->server->base, bufferevent_getfd(c->bev), EV_READ | EV_CLOSED, on_hangup, c);
  event_add(c->hangup, NULL);
  h->request(h->ctx, c);
}

/* Returns whether a client has as many bytes of large bodies here as are free for all, or more. */
static bool has_too_much(const http_conn *c) {
  const http_server *s = c->server;
  const size_t most = s->config.max_bodies;
  size_t own = 0;
  if (!most || c->counted <= SMALL_BODY || s->body_bytes <= most / 2) return false;
  for (const http_conn *o = s->connections; o; o = o->next)
    if (!strcmp(o->peer, c->peer)) own += o->counted;
  return s->body_bytes > most || own > most - s->body_bytes;
}

/* Gives the parser what has come, as far as it belongs to the request that is being read. */
static void read_requests(http_conn *c) {
  struct evbuffer *in = bufferevent_get_input(c->bev);
  while (c->phase == PHASE_HEAD || c->phase == PHASE_BODY) {
    struct evbuffer_iovec piece = {0};
    size_t used;
    evbuffer_peek(in, -1, NULL, &piece, 1);
    if (piece.iov_len && !c->begun) {
      c->begun = true;
      set_timer(c, c->server->config.head_ms);
    }
    http_outcome outcome = http_parse(&c->parser, piece.iov_base, piece.iov_len, &used);
    evbuffer_drain(in, used);
    count_body(c);
    if (outcome == HTTP_MORE && has_too_much(c))
      refuse(c, 503, "too many bytes of unfinished requests wait here");
    else if (outcome == HTTP_HEAD_DONE)
      head_done(c);
    else if (outcome == HTTP_REQUEST_DONE)
      request_done(c);
    else if (outcome == HTTP_REFUSED)
      refuse(c, c->parser.status, c->parser.why);
    else if (!evbuffer_get_length(in))
      return;
  }
}

static void on_read(struct bufferevent *bev, void *ctx) {
  http_conn *c = ctx;
  if (c->phase == PHASE_LINGER || c->phase == PHASE_OVER) {
    struct evbuffer *in = bufferevent_get_input(bev);
    evbuffer_drain(in, evbuffer_get_length(in));
    return;
  }
  read_requests(c);
}

/* Closes for writing, and drops what still comes for a second: to close with bytes unread would send a reset, which may
 * take the response from the client. */
static void linger(http_conn *c) {
  c->phase = PHASE_LINGER;
  shutdown(bufferevent_getfd(c->bev), SHUT_WR);
  bufferevent_enable(c->bev, EV_READ);
  set_timer(c, LINGER_MS);
  on_read(c->bev, c);
}

/* All that was to be written is. */
static void on_written(struct bufferevent *bev, void *ctx) {
  http_conn *c = ctx;
  (void)bev;
  const http_handler *h = &c->server->handler;
  if (c->phase == PHASE_RESPOND && c->streaming && h->drained) h->drained(h->ctx, c);
  if (c->phase != PHASE_FLUSH) return;
  if (c->close || c->server->draining) return linger(c);
  c->used = true;
  http_parser_reset(&c->parser);
  count_body(c);
  await_head(c);
  set_timer(c, c->server->config.idle_ms);
  read_requests(c);
}

static void on_event(struct bufferevent *bev, short what, void *ctx) {
  http_conn *c = ctx;
  (void)bev;
  bool slow = (what & BEV_EVENT_TIMEOUT) && (what & BEV_EVENT_WRITING);
  lose(c, slow ? HTTP_GONE_SLOW : HTTP_GONE_CLOSED);
}

/* Returns whether a client waits to be accepted, who would get nothing. */
static bool has_visitor(const http_server *s) {
  struct pollfd p = {.fd = evconnlistener_get_fd(s->listener), .events = POLLIN};
  return !s->full && poll(&p, 1, 0) > 0;
}

void http_server_look(http_server *s) {
  if (!s->draining || has_visitor(s)) return;
  for (http_conn *c = s->connections; c; c = c->next)
    if (c->phase != PHASE_OVER) return;
  event_base_loopexit(s->base, NULL);
}

static void on_timer(int fd, short what, void *ctx) {
  http_conn *c = ctx;
  http_server *s = c->server;
  (void)fd;
  (void)what;
  if (c->phase == PHASE_RESPOND && c->streaming) {
    bool sent = !c->quiet || http_stream_send(c, ": ping\n\n", 8);
    c->quiet = true;
    set_timer(c, s->config.ping_ms);
    if (!sent) s->handler.gone(s->handler.ctx, c, HTTP_GONE_SLOW);
  } else if ((c->phase == PHASE_HEAD && c->begun) || c->phase == PHASE_BODY) {
    refuse(c, 408, "the request was not whole in time");
  } else {
    http_conn_free(c);
    http_server_look(s);
  }
}

/* ---- its beginning ---- */

/* The list of connections has the newest first; `oldest` is its end. */
void http_conn_open(http_server *s, int fd, const struct sockaddr *from) {
  int on = 1;
  struct timeval limit = {.tv_sec = s->config.write_ms / 1000, .tv_usec = s->config.write_ms % 1000 * 1000};
  http_conn *c = tri_calloc(1, sizeof *c);
  if (!c) {
    close(fd);
    return;
  }
  c->server = s;
  c->next = s->connections;
  if (c->next)
    c->next->prev = c;
  else
    s->oldest = c;
  s->connections = c;
  http_peer_write(from, c->peer);
  s->num_connections++;
  http_parser_init(&c->parser, s->config.max_body);
  c->bev = bufferevent_socket_new(s->base, fd, BEV_OPT_CLOSE_ON_FREE);
  c->timer = event_new(s->base, -1, 0, on_timer, c);
  c->hangup = event_new(s->base, fd, EV_CLOSED, on_hangup, c);
  if (!c->bev || !c->timer || !c->hangup) {
    if (!c->bev) close(fd);
    http_conn_free(c);
    return;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  bufferevent_setcb(c->bev, on_read, on_written, on_event, c);
  bufferevent_set_timeouts(c->bev, NULL, &limit);
  await_head(c);
  set_timer(c, s->draining ? LINGER_MS : s->config.head_ms);
}

/* Returns whether bytes wait in the socket that the loop has not read: a request that came just before a drain. */
static bool has_sent(const http_conn *c) {
  char byte;
  return recv(bufferevent_getfd(c->bev), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void http_conn_drain(http_conn *c) {
  if (c->phase != PHASE_HEAD || c->begun) return;
  if (c->used && !has_sent(c)) return end(c);
  set_timer(c, LINGER_MS);
}

void http_conn_cut(http_conn *c) {
  const http_handler *h = &c->server->handler;
  if (c->phase == PHASE_RESPOND && h->cut)
    h->cut(h->ctx, c);
  else if (c->phase == PHASE_BODY || (c->phase == PHASE_HEAD && c->begun))
    refuse(c, 503, "the server shuts down, and the request was not whole in time");
}

void http_conn_abandon(http_conn *c) {
  if (c->phase == PHASE_RESPOND) lose(c, HTTP_GONE_CLOSED);
}
