/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP connections on an event loop of one thread; libevent's core is known to http_conn*.[ch] and http_server*.[ch]
 * alone.
 *
 * A connection reads one request, and nothing more until its response is on its way: what a client sends ahead waits in
 * the socket, and is answered in order. While a response is being made the connection only looks whether its client is
 * still there; one that has closed its side, if only for writing, wants no answer. */
#ifndef TRI_CLIENT_GATEWAY_HTTP_CONN_H
#define TRI_CLIENT_GATEWAY_HTTP_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/gateway/http_parse.h"
#include "base/status.h"

typedef struct http_server http_server;
typedef struct http_conn http_conn;

typedef enum http_gone {
  HTTP_GONE_CLOSED, /* the client has hung up, or the connection failed */
  HTTP_GONE_SLOW,   /* it did not read what was sent */
} http_gone;

/* Calls of the server's user. Each request is one head, and then one request, unless head has answered it. */
typedef struct http_handler {
  void *ctx;
  void (*head)(void *ctx, http_conn *c);    /* may answer, which refuses the body */
  void (*request)(void *ctx, http_conn *c); /* answers, now or later */
  /* The client is gone before the answer has ended: the connection is not to be used any more. */
  void (*gone)(void *ctx, http_conn *c, http_gone why);
  /* A response begins, with these header lines of its own; fields may be NULL. */
  void (*answering)(void *ctx, http_conn *c, int status, const char *fields);
  /* Makes the body of an error that the connection itself answers with, into out of cap bytes; returns its length. */
  size_t (*error)(void *ctx, int status, const char *why, char *out, size_t cap);
  /* Makes header lines that every answer has, likewise; NULL: there are none. */
  size_t (*fields)(void *ctx, http_conn *c, char *out, size_t cap);
  /* Makes header lines of an error that the connection itself answers with, likewise; c: NULL for a connection that is
   * not taken; fn NULL: there are none. */
  size_t (*error_fields)(void *ctx, const http_conn *c, char *out, size_t cap);
  /* A stream's client has taken all that was sent to it, after http_stream_behind; NULL: not wanted. */
  void (*drained)(void *ctx, http_conn *c);
  /* The server ends before the answer has: ends it, with an error. NULL: it is not ended. */
  void (*cut)(void *ctx, http_conn *c);
} http_handler;

typedef struct http_config {
  const char *address;          /* of numbers: 127.0.0.1, ::1 */
  int port;                     /* 0: any that is free */
  size_t max_body, max_pending; /* bytes of a request's body, and of a response that wait for its reader */
  size_t max_bodies; /* bytes of all bodies that connections hold; 0: no limit. A client may have as many as are free */
  unsigned max_connections;
  int head_ms, body_ms, idle_ms; /* for the head since its first byte, for the body, and between requests */
  int write_ms;                  /* without any progress */
  int ping_ms;                   /* a stream without events gets a comment after it; 0: none */
} http_config;

/* ---- the server: http_server.c ---- */

tri_status http_server_open(const http_config *config, const http_handler *handler, http_server **out, tri_error *err);
void http_server_close(http_server *s); /* NULL is fine; gone is not called */
int http_server_port(const http_server *s);
/* Descriptors that the loop looks at in addition to its connections. */
typedef enum http_watched {
  HTTP_WATCH_COORDINATOR,
  HTTP_WATCH_FINDER,
  HTTP_WATCH_WORKERS,
  HTTP_NUM_WATCHED
} http_watched;
/* Calls fn whenever the descriptor is readable; in place of the one before, -1: of none. */
tri_status http_server_watch(http_server *s, http_watched which, int fd, void (*fn)(void *ctx));
tri_status http_server_every(http_server *s, int ms, void (*fn)(void *ctx));
tri_status http_server_on_signal(http_server *s, int signal, void (*fn)(void *ctx, int signal));
/* Runs until http_server_stop, or until a drain has ended. */
tri_status http_server_run(http_server *s);
/* Ends connections that wait for a request, and the others after their response; requests are still read. */
void http_server_drain(http_server *s);
/* The same, and ends what is there at once: answers by `cut`, unfinished requests with 503. The loop runs until it
 * is sent. */
void http_server_cut(http_server *s);
void http_server_stop(http_server *s);
/* Handles what has come, a signal above all, without waiting: for the time before http_server_run. */
void http_server_turn(http_server *s);
/* Ends the connections whose response is being made, and calls gone for each: after http_server_run. */
void http_server_abandon(http_server *s);
unsigned http_server_connections(const http_server *s);

/* ---- a request and its response: http_conn.c ---- */

const http_parser *http_conn_request(const http_conn *c);
/* The client may ask what is not for everybody: its connection is closed for a new one when it is idle alone. */
void http_conn_trust(http_conn *c);
/* Moves the request's body, whose memory is the caller's then. */
void http_conn_take_body(http_conn *c, tri_buf *out);
/* Writes the address at the other end; of this host also the port, as "127.0.0.1:1234" or "[::1]:1234". */
enum { HTTP_PEER_BYTES = 65 };
void http_conn_peer(const http_conn *c, char out[HTTP_PEER_BYTES]);
/* Writes whose turns a client without a key shares: those of its address, of IPv6 of its network (64 bits), and on this
 * host, where a proxy before the gateway opens several, those of its connection. */
void http_conn_client(const http_conn *c, char out[HTTP_PEER_BYTES]);
void http_conn_set_data(http_conn *c, void *data); /* the user's; NULL at each head */
void *http_conn_data(const http_conn *c);

/* Answers a request, once for each; body is copied. `fields`: whole lines, each with CR and LF; may be NULL. Without
 * memory, or where all head lines have more than 4 KiB, the client gets a reset. */
void http_respond(http_conn *c, int status, const char *type, const char *fields, const char *body, size_t len);
/* Server-sent events: a 200, any number of events, an end. False: the client is too slow, or there is no memory for it,
 * and the connection is not to be used any more; gone is not called. */
bool http_stream_begin(http_conn *c, const char *fields);
/* Sends whole events, or comments, as they are. */
bool http_stream_send(http_conn *c, const char *events, size_t len);
/* Returns whether more events wait for their reader than a head and what comes with it. */
bool http_stream_behind(const http_conn *c);
void http_stream_end(http_conn *c);
/* Ends the connection in the middle of a stream, so that the client does not take it for whole; gone is not called. */
void http_stream_reset(http_conn *c);
const char *http_status_text(int status);

#endif
