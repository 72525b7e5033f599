/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of libtrireme only. Functions named tri_client_* are hidden: the library's own symbols are those
 * of trireme.h. None locks, as a connection belongs to one thread at a time. Times are of the monotonic clock in
 * nanoseconds. */
#ifndef TRI_CLIENT_INTERNAL_H
#define TRI_CLIENT_INTERNAL_H

#include "client/kept.h"
#include "client/trireme.h"
#include "comm/wire/client.h"
#include "comm/wire/endpoint.h"
#include "comm/wire/zsock.h"

typedef enum client_phase {
  CLIENT_UP,
  CLIENT_AWAY,    /* the connection was lost, and another one is tried at next_ns */
  CLIENT_CALLING, /* one is being made, */
  CLIENT_GREETING /* and has been sent its hello */
} client_phase;

struct trireme {
  tri_zcontext *z;
  tri_zlink *link; /* NULL in CLIENT_AWAY */
  tri_buf buf;
  tri_arena *arena; /* of the last event */
  const char *rest; /* of the last frame: messages that have not been looked at */
  size_t rest_len;
  tri_server_msg *msg;
  bool no_memory; /* for a text of the event that is being made */
  bool has_msg;   /* it has not been given yet: there was no memory for its event */
  tri_client_msg *out;
  uint64_t next_id;
  int timeout_ms, send_ms;
  /* trireme_fd: an epoll over the link's descriptors, ready_fd, an eventfd, and timer_fd, for what is done by time; -1:
   * it was not asked for */
  int fd, ready_fd, timer_fd;
  int link_fds[2];  /* of the link, that the epoll has */
  bool ready;       /* ready_fd is readable */
  int64_t timer_ns; /* when timer_fd will be */
  bool has_keys;
  bool over; /* what came before the connection ended has been given: nothing is received any more */
  uint64_t max_message;
  char endpoint[TRI_ENDPOINT_BYTES];
  char server_version[64];
  /* The part of connections that are made again: */
  tri_kept *kept; /* NULL: the first connection is the only one */
  client_phase phase;
  bool leaving;         /* the coordinator ends: it is asked nothing more */
  int64_t reconnect_ms; /* how long it is tried */
  int64_t lost_ns;      /* since when there is no coordinator; 0: there is one */
  int64_t up_ns;        /* since when it was there last; 0: never */
  int64_t next_ns;      /* when something is to be done without word from the link */
  tri_zkeypair own;
  char name[256], server_key[TRI_Z_KEY];
};

#pragma GCC visibility push(hidden)
/* Fills in an error (NULL: it is not wanted) and returns r, for `return tri_client_say(...)`. */
__attribute__((format(printf, 5, 6))) trireme_result
tri_client_say(trireme_error *error, trireme_result r, tri_status code, const char *field, const char *fmt, ...);
trireme_result tri_client_fail(trireme_error *error, trireme_result r, const tri_error *err);
/* The same with the result that st stands for; err may be without a status. */
trireme_result tri_client_fail_status(trireme_error *error, tri_status st, const tri_error *err);
/* Gives a program's struct of `size` bytes, whose first member is that size, the defaults, of `known` bytes. Of a size
 * that has no room for itself no more is written than there is room for. */
void tri_client_init_struct(void *to, size_t size, const void *defaults, size_t known);
trireme_result tri_client_check_size(size_t size, size_t known, const char *type, trireme_error *error);
/* Puts a program's struct over the defaults, of `known` bytes, in `to`. */
trireme_result tri_client_take_struct(void *to, size_t known, const void *from, const char *type, trireme_error *error);
/* Turns c->msg into *out, with memory of c->arena. */
trireme_result tri_client_event(trireme *c, trireme_event *out, trireme_error *error);

/* link.c */
/* Copies what a hello or an error from the server says at most. */
void tri_client_copy(char *out, size_t cap, tri_wire_str s);
tri_status tri_client_open_link(trireme *c, tri_error *err);
tri_status tri_client_pack_hello(trireme *c);
void tri_client_take_hello(trireme *c);
/* Return when something is due without word from the link, and when a lost coordinator is given up; TRI_NEVER: never.
 */
int64_t tri_client_next_ns(const trireme *c);
int64_t tri_client_give_up_ns(const trireme *c);

/* fd.c */
/* Makes the descriptor of trireme_fd readable while a call of trireme_next would give something, and where there may be
 * something without looking; at the end of every call that sends or receives. */
void tri_client_show_ready(trireme *c, bool may_be);
void tri_client_watch_link(trireme *c, bool watch); /* after a link's opening, and before its end */
void tri_client_close_fd(trireme *c);

/* reconnect.c */
/* Does what is due for a connection that was lost, and sends what waits, without waiting itself. */
void tri_client_turn(trireme *c);
void tri_client_lost(trireme *c);   /* the connection has ended */
void tri_client_leaves(trireme *c); /* the coordinator says that it ends */

/* connection.c */
/* Sends c->out, which c->buf has the bytes of; what is kept may be sent later. */
trireme_result tri_client_send(trireme *c, int64_t deadline_ns, trireme_error *error);
/* Waits for a message for the program and unpacks it into c->msg. */
trireme_result tri_client_receive(trireme *c, int64_t deadline_ns, trireme_error *error);
#pragma GCC visibility pop

#endif
