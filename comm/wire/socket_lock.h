/* SPDX-License-Identifier: Apache-2.0 */
/* The right to bind, replace or remove a socket file: a lock PATH.lock next to it, which ends with its process. A
 * socket that does not answer may be one that is about to listen. */
#ifndef TRI_COMM_WIRE_SOCKET_LOCK_H
#define TRI_COMM_WIRE_SOCKET_LOCK_H

#include "base/status.h"

/* TRI_AGAIN: another process has it. */
tri_status tri_socket_lock(const char *path, int *fd, tri_error *err);
void tri_socket_unlock(const char *path, int fd); /* removes the lock's file; -1 is fine */

#endif
