/* SPDX-License-Identifier: Apache-2.0 */
/* Replies that belong to no job, as refusals and answers to `status`, and found their client's queue full. A job says
 * its own words again; of these nobody else knows. They are kept for a while, and beyond that the connection is closed,
 * so that its client knows that it has to ask again: none is lost without a word. */
#ifndef TRI_COORDINATOR_LATE_REPLIES_H
#define TRI_COORDINATOR_LATE_REPLIES_H

#include <sys/queue.h>

#include "comm/wire/zsock.h"

/* Connections for which replies are kept, bytes of one and of all. A reply that is larger than that is kept where it is
 * the only one of its connection. */
enum { TRI_LATE_CONNECTIONS = 64, TRI_LATE_BYTES_OF_ONE = 256 << 10, TRI_LATE_BYTES = 4 << 20 };

typedef struct tri_late_reply {
  STAILQ_ENTRY(tri_late_reply) links;
  size_t len;
  char data[];
} tri_late_reply;

typedef struct tri_late_connection {
  tri_peer peer;
  STAILQ_HEAD(tri_late_queue, tri_late_reply) replies;
  size_t bytes;
  bool closing; /* nothing is kept for it any more, and its end is to be heard of */
} tri_late_connection;

typedef struct tri_late_replies {
  tri_late_connection list[TRI_LATE_CONNECTIONS]; /* the first num */
  int num;
  size_t bytes;
} tri_late_replies;

/* Returns whether replies for this connection wait, behind which others go. */
bool tri_late_replies_wait(const tri_late_replies *r, const tri_peer *to);
/* Keeps a copy, or closes the connection. data NULL: there was no memory for the reply. */
void tri_late_replies_add(tri_late_replies *r, const tri_peer *to, const void *data, size_t len);
/* Sends what clients have room for, and forgets connections that have ended. */
void tri_late_replies_send(tri_late_replies *r, tri_zserver *server);
void tri_late_replies_free(tri_late_replies *r);

#endif
