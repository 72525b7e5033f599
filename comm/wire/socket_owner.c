/* SPDX-License-Identifier: Apache-2.0 */
/* The system says who listens at a socket file, and whose its folder is. */
#include "comm/wire/socket_owner.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

bool tri_socket_listener(int fd, uid_t *uid) {
  struct ucred peer;
  int domain = 0;
  socklen_t size = sizeof domain;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) || domain != AF_UNIX) return false;
  size = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size)) return false;
  *uid = peer.uid;
  return true;
}

bool tri_socket_is_trusted(const char *path, uid_t uid) {
  char folder[sizeof(((struct sockaddr_un *)0)->sun_path)];
  struct stat sb;
  if (uid == geteuid() || !uid) return true;
  if ((size_t)snprintf(folder, sizeof folder, "%s", path) >= sizeof folder) return false;
  char *slash = strrchr(folder, '/');
  if (slash) slash[slash == folder] = '\0';
  return !stat(slash ? folder : ".", &sb) && sb.st_uid == uid && !(sb.st_mode & (S_IWGRP | S_IWOTH));
}
