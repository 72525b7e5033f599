/* SPDX-License-Identifier: Apache-2.0 */
/* Replies that belong to no job, as refusals and answers to `status`, and found their client's queue full. The
 * output of a job can be sent again; these replies cannot. They are kept for a while, and beyond that the connection is
 * closed, so that its client knows that it has to ask again: none is lost without a word.
 *
 * A connection is known by a descriptor, which may be another one's by the time a message of it is read. Once all is
 * read that had come from one that has ended, the library needs a moment to let go of it. So one whose queue is still
 * full some time later was there, and had the descriptor, which no other has got since. */
#ifndef TRI_COORDINATOR_NET_LATE_REPLIES_H
#define TRI_COORDINATOR_NET_LATE_REPLIES_H

#include <sys/queue.h>

#include "comm/wire/zsock.h"

/* Connections for which replies are kept (or that are to be closed), bytes of one and of all, and how long a client may
 * read nothing. A reply that is larger than that is kept where it is the only one of its connection. */
enum {
  TRI_LATE_CONNECTIONS = 1024,
  TRI_LATE_BYTES_OF_ONE = 256 << 10,
  TRI_LATE_BYTES = 4 << 20,
  TRI_LATE_MS = 30000,
  TRI_LATE_END_MS = 500, /* that the library has to let go of a connection that has ended */
};

typedef struct tri_late_reply {
  STAILQ_ENTRY(tri_late_reply) links;
  size_t len;
  char data[];
} tri_late_reply;

typedef struct tri_late_connection {
  tri_peer peer;
  STAILQ_HEAD(tri_late_queue, tri_late_reply) replies;
  size_t bytes;
  int64_t since_ns;    /* that its client has read nothing */
  bool closing;        /* nothing is kept for it any more, */
  uint32_t generation; /* its descriptor is, or was, of this one then (connection_guard.h), */
  int64_t read_ns;     /* all that it had sent has been read since; 0: not yet, */
  bool closed, gone;   /* and it was closed; its end has been heard of */
} tri_late_connection;

typedef struct tri_late_replies {
  tri_late_connection list[TRI_LATE_CONNECTIONS]; /* the first num */
  int num;
  size_t bytes;
  uint64_t dropped; /* replies for which there was no place */
  bool has_closing; /* a connection is to be closed, or its end to be heard of */
} tri_late_replies;

/* Returns whether replies for this connection wait, after which others go. */
bool tri_late_replies_wait(const tri_late_replies *r, const tri_peer *to);
/* Keeps a copy, or has the connection closed. data NULL: there was no memory for the reply. */
void tri_late_replies_add(tri_late_replies *r, int64_t now, const tri_peer *to, const void *data, size_t len);
/* Sends what clients have room for, and forgets connections that have ended. */
void tri_late_replies_send(tri_late_replies *r, int64_t now, tri_zserver *server);
/* Closes those that are to be closed and have had their time, and looks whether they have ended. Called where all
 * messages are read that have come. */
void tri_late_replies_close(tri_late_replies *r, int64_t now, tri_zserver *server);
void tri_late_replies_free(tri_late_replies *r);

#endif
