/* SPDX-License-Identifier: Apache-2.0 */
/* Structures and helpers that the files behind zsock.h share. No other file includes this or the library's header. */
#ifndef TRI_COMM_WIRE_ZSOCK_IMPL_H
#define TRI_COMM_WIRE_ZSOCK_IMPL_H

#include <pthread.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <sys/un.h>
#include <zmq.h>

#include "comm/wire/zsock.h"
#include "base/wait.h"

enum {
  TRI_Z_LINGER_MS = 200,
  TRI_Z_RAW_KEY = 32,
  TRI_Z_ENDPOINT_BYTES = 512,
  TRI_Z_BACKLOG = 1000, /* messages queued per peer, unless the caller says otherwise */
  TRI_Z_DISCARDS_PER_CALL = 64,
  TRI_Z_FRAME_BYTES = 32 << 10, /* queued for one peer before it leaves */
};

/* The keys that one server lets in; the ZAP thread looks them up by the server's domain. */
typedef struct tri_zap_domain {
  LIST_ENTRY(tri_zap_domain) links;
  char name[16];
  uint8_t (*keys)[TRI_Z_RAW_KEY];
  int num_keys;
} tri_zap_domain;

struct tri_zcontext {
  void *ctx;
  pthread_t zap_thread;
  void *zap_socket;
  pthread_mutex_t lock; /* the lists and next_number */
  LIST_HEAD(tri_zap_domains, tri_zap_domain) domains;
  LIST_HEAD(tri_zservers, tri_zserver) servers;
  LIST_HEAD(tri_zlinks, tri_zlink) links;
  unsigned next_number;
};

struct tri_zserver {
  LIST_ENTRY(tri_zserver) links;
  tri_zcontext *z;
  void *socket, *monitor;
  zmq_msg_t msg; /* the message that recv has handed out */
  tri_zap_domain *domain;
  tri_zkeypair curve;
  bool has_curve, is_tcp, watch;
  bool has_more; /* the last receive gave up */
  size_t max_message;
  int backlog, receive_backlog;
  /* ipc: the listening socket is ours, and libzmq gets a duplicate of it, so that neither file nor queue of connections
   * goes away in a rebind, and so that the file's mode is right from its first moment. */
  int listen_fd, lock_fd; /* lock_fd: of the right to the path */
  char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
  dev_t dev;
  ino_t ino;
  char endpoint[TRI_Z_ENDPOINT_BYTES];
  /* queued; the address of frame_to has been sent, frame[] is what follows it */
  bool has_frame;
  tri_peer frame_to;
  size_t frame_len;
  char frame[TRI_Z_FRAME_BYTES];
};

struct tri_zlink {
  LIST_ENTRY(tri_zlink) links;
  tri_zcontext *z;
  void *socket, *monitor;
  zmq_msg_t msg;
  tri_zlink_state state;
  unsigned losses, cut; /* cut: handshakes that ended without a word, in a row */
  bool again;           /* refuse_unconnected: the attempt to connect has failed, and the next one is due at again_ms */
  int64_t again_ms;
  bool foreign; /* another user than expected listens there, owner */
  unsigned long owner;
  tri_zlink_config config; /* its texts and keys point to those below */
  char endpoint[TRI_Z_ENDPOINT_BYTES], server_key[TRI_Z_KEY];
  tri_zkeypair own;
};

/* zap.c */
void *tri_zap_main(void *context); /* the thread; ends when the context does */
tri_status tri_zap_domain_make(tri_zcontext *z, const char *const *keys, int n, tri_zap_domain **out, tri_error *err);
void tri_zap_domain_free(tri_zcontext *z, tri_zap_domain *d); /* NULL is fine */

/* zoptions.c; the setters return false with zmq_errno() set */
bool tri_z_set_int(void *socket, int option, int value);
bool tri_z_set_common(void *socket, size_t max_message, int backlog);
bool tri_z_set_heartbeat(void *socket);
tri_status tri_z_status(void); /* of a send or receive that has just failed */
/* Reads and drops the rest of a message; returns how many frames that were. */
int tri_z_discard_rest(void *socket, const zmq_msg_t *last);

/* Has the library's threads tell of a socket's events, which are read one by one; NULL: it cannot. */
void *tri_z_watch(tri_zcontext *z, void *socket, int events);
bool tri_z_next_event(void *monitor, int *event, int *value);
/* zlink.c: takes in what the library's threads found out about the connection */
void tri_zlink_drain_monitor(tri_zlink *l);
bool tri_z_has_message(void *socket); /* to be received at once */

static inline bool tri_z_starts_with(const char *s, const char *prefix) { return !strncmp(s, prefix, strlen(prefix)); }

static inline int64_t tri_z_now_ms(void) { return tri_now_ns() / 1000000; }

#endif
