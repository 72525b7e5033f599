/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by http_conn.c, http_peer.c, http_room.c and http_server.c. All of it belongs to the loop's thread. The server
 * owns its connections; one removes itself from the list when it is freed. */
#ifndef TRI_CLIENT_GATEWAY_HTTP_CONN_IMPL_H
#define TRI_CLIENT_GATEWAY_HTTP_CONN_IMPL_H

#include <arpa/inet.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>

#include "client/gateway/http_conn.h"

enum { HTTP_MAX_SIGNALS = 4 };

typedef struct http_signal {
  http_server *server;
  struct event *event;
  void (*fn)(void *ctx, int signal);
} http_signal;

typedef struct http_watch {
  http_server *server;
  struct event *event;
  void (*fn)(void *ctx);
} http_watch;

struct http_server {
  http_config config;
  http_handler handler;
  struct event_base *base;
  struct evconnlistener *listener;
  http_watch watches[HTTP_NUM_WATCHED];
  struct event *tick;
  void (*on_tick)(void *ctx);
  http_signal signals[HTTP_MAX_SIGNALS];
  unsigned num_signals, num_connections;
  http_conn *connections, *oldest;
  size_t body_bytes; /* of all connections */
  bool draining;
  bool full; /* of descriptors: nothing is accepted until one is free again */
};

typedef enum http_phase {
  PHASE_HEAD,    /* reads a head, or waits for one */
  PHASE_BODY,    /* reads a body */
  PHASE_RESPOND, /* the user makes the response */
  PHASE_FLUSH,   /* the response is whole, and not yet written */
  PHASE_LINGER,  /* drops what still comes, so that the client gets the response and not a reset */
  PHASE_OVER,    /* is freed by the loop */
} http_phase;

struct http_conn {
  http_server *server;
  http_conn *next, *prev;
  struct bufferevent *bev;
  struct event *timer;
  struct event *hangup;
  http_phase phase;
  http_parser parser;
  size_t counted; /* bytes of its body that the server knows of */
  char peer[INET6_ADDRSTRLEN];
  void *data;
  bool begun;   /* bytes of a head have come */
  bool in_head; /* the user looks at the head, and the body is not read */
  bool streaming, chunked, close, quiet, trusted;
  bool used; /* a request has been answered */
};

/* Takes a connection from the listener; the descriptor is its own, also on failure. */
void http_conn_open(http_server *s, int fd, const struct sockaddr *from);
/* http_room.c: closes one that waits for its client, so that there is room for another one: the oldest of those that
 * are not trusted, else of those between two requests, else of the unfinished requests of the address that has the most
 * of them (two or more). Returns whether there was one. */
bool http_conn_make_room(http_server *s);
void http_conn_free(http_conn *c);
/* Ends one that waits for a request. One that has just come, or sends, has a second for it. */
void http_conn_drain(http_conn *c);
/* Answers what has no answer yet: a whole request by the user, another one with 503. */
void http_conn_cut(http_conn *c);
/* Ends one that waits for its response. */
void http_conn_abandon(http_conn *c);
/* Stops the loop where a drain has nothing left to wait for. */
void http_server_look(http_server *s);
/* http_peer.c: writes where a connection comes from, of IPv6 the network (64 bits), which is one client's. */
void http_peer_write(const struct sockaddr *from, char out[INET6_ADDRSTRLEN]);
/* A descriptor may be free again. */
void http_server_accept_again(http_server *s);

#endif
