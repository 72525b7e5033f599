/* SPDX-License-Identifier: Apache-2.0 */
/* Guards the clients' socket against three attacks that ZeroMQ's library does not defend against.
 *
 * It ends the process where a connection comes and no descriptor is left (the listener of a socket file asserts on
 * EMFILE), and a message of many frames has no limit: MAXMSGSIZE is one of a frame. Connections that come and go by the
 * thousand take all of its thread, through which the workers are heard as well. It has no hooks for any of it, and a
 * thread that watched from outside would be too late, as the library accepts and reads in a thread of its own. So the
 * program has functions of its own in place of accept, accept4 and recv, which the library then calls
 * (library_calls.c). In addition to the limits of the system they refuse connections while the program still has
 * descriptors, or where more come than a thread can take along with its work, and count what each connection has sent,
 * so that one which sends a message without end is closed and no other.
 *
 * A library that reads in another way is not counted; then the memory watch helps, which costs everybody's connection.
 * There is one guard in a process, as there is one accept. */
#ifndef TRI_COORDINATOR_NET_CONNECTION_GUARD_H
#define TRI_COORDINATOR_NET_CONNECTION_GUARD_H

#include "comm/wire/client.h"

/* Bytes of a message that has not ended, at which its connection is closed: more than the largest that is one frame. */
enum { TRI_GUARD_MOST_BYTES = TRI_WIRE_MAX_MESSAGE + (64 << 10) };
/* New connections of clients in a second, and how many may come at once after a pause; others are refused. */
enum { TRI_GUARD_CONNECTIONS_PER_S = 1000, TRI_GUARD_CONNECTIONS_AT_ONCE = 4000 };

/* Begins, for the socket that listens at this endpoint (ipc:// or tcp://, with its port). A program that calls this is
 * linked with the functions in place of the system's (library_calls.c). */
tri_status tri_connection_guard_open(const char *endpoint, tri_error *err);
void tri_connection_guard_close(void);

/* A whole message has been taken from a connection. */
void tri_connection_guard_message(int connection);
/* Returns whether connections may have sent too much. Then the caller takes messages until none is there, or until it
 * is sure, and calls the last one; these stay suspects until then. */
bool tri_connection_guard_suspects(void);
bool tri_connection_guard_is_sure(void);
/* Closes those that have sent none meanwhile. */
void tri_connection_guard_cut(void);

/* Counts the connections that have had this descriptor. */
uint32_t tri_connection_guard_generation(int connection);
/* Closes the connection with this descriptor, whose client does not read replies that cannot be sent again, unless
 * another one has it by now. */
void tri_connection_guard_end(int connection, uint32_t generation);

typedef struct tri_guard_figures {
  /* Connections, since the start: for which there were no files, which came too fast, which were closed since they sent
   * a message without end, and those that tri_connection_guard_end has closed. */
  uint64_t refused, too_fast, cut, unread;
} tri_guard_figures;
tri_guard_figures tri_connection_guard_figures(void);
/* Logs what is new in them, and forgives each connection a little: heartbeats are bytes of no message. Called once a
 * second. */
void tri_connection_guard_second(void);

/* ---- for library_calls.c ---- */

tri_status tri_guard_begin(const char *endpoint, tri_error *err); /* tri_connection_guard_open */
/* Does what accept4 does, whose arguments these are. */
int tri_guard_accept(int listener, void *address, void *len, int flags);
void tri_guard_received(int fd, size_t bytes);

#endif
