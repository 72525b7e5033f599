/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets. The files z*.c behind this header (zkeys, zap, zcontext, zserver, zlink, zpoll) are the only users of
 * ZeroMQ; nothing above them knows the library.
 *
 * Two shapes: a `server` (ROUTER) that many peers connect to, and a `link` (DEALER) from one peer to a server. Messages
 * are single frames (those of a server may hold several, see tri_zserver_queue); a peer that sends several frames in
 * one message has broken the protocol and is answered by the caller with an error.
 *
 * A context is any thread's; a server or link is used by one thread at a time, as the library's sockets have no locks.
 * Sends and receives return at once, but for those with a timeout. */
#ifndef TRI_COMM_WIRE_ZSOCK_H
#define TRI_COMM_WIRE_ZSOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/wire/peer.h"
#include "base/status.h"

typedef struct tri_zcontext tri_zcontext;
typedef struct tri_zserver tri_zserver;
typedef struct tri_zlink tri_zlink;

#define TRI_Z_KEY 41 /* Z85 text of a CURVE key, with its NUL */

typedef struct tri_zkeypair {
  char public_key[TRI_Z_KEY], secret_key[TRI_Z_KEY];
} tri_zkeypair;

tri_status tri_zkeypair_make(tri_zkeypair *out, tri_error *err);
/* Reads a file of two lines (public, secret) with mode 0600; refused when others may read it. */
tri_status tri_zkeypair_load(const char *path, tri_zkeypair *out, tri_error *err);
tri_status tri_zkeypair_save(const char *path, const tri_zkeypair *k, tri_error *err); /* refuses to overwrite */
/* Works out the public key of a secret one. */
tri_status tri_zkey_public(const char *secret_key, char public_key[TRI_Z_KEY], tri_error *err);
/* Checks that key is the Z85 text of a key. what: the option or field that it came from. */
tri_status tri_zkey_check(const char *key, const char *what, tri_error *err);

/* Writes the 32 bytes of a key's text; false: it is none. */
bool tri_zkey_raw(const char *key, uint8_t out[TRI_OWNER_BYTES]);
/* Whose a connection is, as an operator knows it: uid:NUMBER, key:PUBLIC KEY, or a dash where it is not known. */
enum { TRI_OWNER_TEXT = 48 };
const char *tri_owner_text(const tri_owner *o, char out[TRI_OWNER_TEXT]);

tri_status tri_zcontext_create(tri_zcontext **out, tri_error *err);
void tri_zcontext_destroy(tri_zcontext *z); /* closes what is open; never blocks longer than the linger of 200 ms */

typedef struct tri_zserver_config {
  const char *endpoint;      /* ipc://PATH (mode 0600), tcp://ADDRESS:PORT, PORT may be * */
  const tri_zkeypair *curve; /* NULL: none; tcp:// without it is refused unless insecure_tcp */
  bool insecure_tcp;
  const char *const *allowed; /* public keys of clients that may connect (ZAP); NULL with curve: none */
  int num_allowed;
  size_t max_message;  /* per frame */
  int backlog;         /* messages queued per peer before send says TRI_AGAIN */
  int receive_backlog; /* those that wait to be received before a peer is held back; 0: as many */
  bool watch;          /* connections that end are reported, and must be taken */
} tri_zserver_config;

/* Lets this process have as many open files as the system grants it: a connection is one, and the usual soft limit of
 * 1024 is few. */
void tri_zserver_allow_files(void);
tri_status tri_zserver_open(tri_zcontext *z, const tri_zserver_config *config, tri_zserver **out, tri_error *err);
/* Returns the endpoint as bound, with the port filled in. Borrowed. */
const char *tri_zserver_endpoint(const tri_zserver *s);
/* Receives the next message without waiting: TRI_OK, or TRI_AGAIN. from->owner says whose connection it is (of a socket
 * file the user's, with CURVE the key's, else none). *data is valid until the next call. *frames > 1: a
 * multipart message, *data holds its first frame only (of at most max_message bytes) and the rest has been discarded.
 */
tri_status tri_zserver_recv(tri_zserver *s, tri_peer *from, const void **data, size_t *len, int *frames);
/* Returns whether the last call found nothing as it had dropped as many messages of peers with strange names as one
 * call may: more may be there. */
bool tri_zserver_has_more(const tri_zserver *s);
/* TRI_AGAIN: the peer's queue is full. TRI_CLOSED: the peer is gone. */
tri_status tri_zserver_send(tri_zserver *s, const tri_peer *to, const void *data, size_t len);
/* Sends one of several messages in a row: those to one peer leave as one frame, one message after the other, once the
 * frame is full, another peer's turn comes, or tri_zserver_flush is called. */
tri_status tri_zserver_queue(tri_zserver *s, const tri_peer *to, const void *data, size_t len);
void tri_zserver_flush(tri_zserver *s);
/* Finds out whether a peer is there, which only sending tells: by a frame of no messages. As tri_zserver_send. */
tri_status tri_zserver_look(tri_zserver *s, const tri_peer *to);
/* Adds the connections that have ended since the last call; false: none has. What they had sent may still be to be
 * received, and a look may find them there for a moment. */
bool tri_zserver_take_ended(tri_zserver *s, tri_connections *ended);
/* Closes and binds again at the same address: frees what hostile peers made the library hold. */
tri_status tri_zserver_rebind(tri_zserver *s, tri_error *err);
void tri_zserver_close(tri_zserver *s); /* NULL is fine */

typedef struct tri_zlink_config {
  const char *endpoint;
  const tri_zkeypair *own; /* NULL without CURVE */
  const char *server_key;  /* public key of the server; NULL without CURVE */
  size_t max_message;
  int backlog;         /* messages that wait to be sent */
  int receive_backlog; /* frames that wait to be received before the server is held back; 0: as many */
  /* Without it, up to `backlog` messages queue up for a server that is not there (yet, or any more), and a lost
   * connection is made again, by which the server sees a new peer. With it, send says TRI_AGAIN for a server that is
   * not there yet, which send_wait keeps trying to reach, and the first connection is the only one: once it is lost
   * or refused, nothing is sent any more. */
  bool refuse_unconnected;
} tri_zlink_config;

tri_status tri_zlink_open(tri_zcontext *z, const tri_zlink_config *config, tri_zlink **out, tri_error *err);
tri_status tri_zlink_recv(tri_zlink *l, const void **data, size_t *len); /* TRI_AGAIN when nothing is there */
/* TRI_AGAIN: full. With refuse_unconnected also where no connection is yet, TRI_CLOSED: it was lost, TRI_PERMISSION: it
 * was refused. */
tri_status tri_zlink_send(tri_zlink *l, const void *data, size_t len);
/* The same, waiting up to timeout_ms (-1: no limit) for a connection and for room. TRI_TIMEOUT; TRI_PERMISSION: the
 * server does not let this key in; TRI_ABORTED: a signal came. */
tri_status tri_zlink_send_wait(tri_zlink *l, const void *data, size_t len, int timeout_ms);
/* A poll also returns when the state changes. */
typedef enum tri_zlink_state { TRI_ZLINK_CONNECTING, TRI_ZLINK_UP, TRI_ZLINK_LOST, TRI_ZLINK_REFUSED } tri_zlink_state;
tri_zlink_state tri_zlink_look(tri_zlink *l, unsigned *losses); /* losses (may be NULL): connections lost so far */
/* It was refused, or is about to be, without a word: as by a server that has no files left for connections, or whose
 * key is another one. */
bool tri_zlink_was_cut(const tri_zlink *l);
/* It is refused from here: the socket file is of a user who has no business there (socket_owner.h), *uid. */
bool tri_zlink_is_foreign(const tri_zlink *l, unsigned long *uid);
/* With refuse_unconnected: there was no server, and only tri_zlink_send_wait tries again. */
bool tri_zlink_is_unanswered(const tri_zlink *l);
void tri_zlink_close(tri_zlink *l); /* NULL is fine */
/* File descriptors that become readable when the library's thread has something for this one, and stay so until it is
 * taken in, which sending does as well as tri_zlink_has_events: after either, only the latter tells whether something
 * is there. */
tri_status tri_zlink_fds(const tri_zlink *l, int fds[2]);
bool tri_zlink_has_events(tri_zlink *l); /* a message is there to be received; tri_zlink_look is up to date */

/* Waits until one of the sockets has something to read, a file descriptor is readable, a signal came, or timeout_ms has
 * passed (-1: no limit). NULL servers and links, and fds of -1, are skipped. *ready (may be NULL): number of things
 * that are ready. */
typedef struct tri_zpoll {
  tri_zserver *server;
  tri_zlink *link;
  int fd;
  bool ready;
} tri_zpoll;
tri_status tri_zpoll_wait(tri_zpoll *items, int n, int timeout_ms, int *ready);

#endif
