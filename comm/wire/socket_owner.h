/* SPDX-License-Identifier: Apache-2.0 */
/* The owner of a socket file that is to be connected to: in a folder like /tmp any user may make one under any name. */
#ifndef TRI_COMM_WIRE_SOCKET_OWNER_H
#define TRI_COMM_WIRE_SOCKET_OWNER_H

#include <stdbool.h>
#include <sys/types.h>

/* The user who listens at the other end of a connection; false where it is none to a socket file. */
bool tri_socket_listener(int fd, uid_t *uid);
/* Returns whether a socket at this path may be the user's: this user's own, root's, or that of the folder's owner where
 * no other user may make files in it. */
bool tri_socket_is_trusted(const char *path, uid_t uid);

#endif
