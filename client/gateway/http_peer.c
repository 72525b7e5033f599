/* SPDX-License-Identifier: Apache-2.0 */
/* The other end of a connection: its address, and whose turns it shares. One network of 64 bits of IPv6 counts as one
 * client, as a host may have any address in it; on this host the port tells programs apart. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "client/gateway/http_conn_impl.h"

/* A listener of both families gives clients of IPv4 an address of IPv6 that has theirs at its end: makes it theirs. */
static void unmap(struct sockaddr_storage *a) {
  struct sockaddr_in6 v6;
  struct sockaddr_in v4 = {.sin_family = AF_INET};
  memcpy(&v6, a, sizeof v6);
  if (a->ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return;
  v4.sin_port = v6.sin6_port;
  memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, 4);
  memcpy(a, &v4, sizeof v4);
}

void http_conn_peer(const http_conn *c, char out[HTTP_PEER_BYTES]) {
  struct sockaddr_storage a = {0};
  socklen_t len = sizeof a;
  char text[INET6_ADDRSTRLEN] = "-";
  bool known = !getpeername(bufferevent_getfd(c->bev), (struct sockaddr *)&a, &len);
  unmap(&a);
  const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a;
  const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a;
  if (known && a.ss_family == AF_INET) {
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    if (ntohl(v4->sin_addr.s_addr) >> 24 == 127) {
      snprintf(out, HTTP_PEER_BYTES, "%s:%d", text, ntohs(v4->sin_port));
      return;
    }
  } else if (known && a.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    if (IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr)) {
      snprintf(out, HTTP_PEER_BYTES, "[%s]:%d", text, ntohs(v6->sin6_port));
      return;
    }
  }
  snprintf(out, HTTP_PEER_BYTES, "%s", text);
}

void http_conn_client(const http_conn *c, char out[HTTP_PEER_BYTES]) {
  http_conn_peer(c, out);
  bool here = !strncmp(out, "127.", 4) || out[0] == '[';
  if (!here) snprintf(out, HTTP_PEER_BYTES, "%s", c->peer);
}

void http_peer_write(const struct sockaddr *from, char out[INET6_ADDRSTRLEN]) {
  struct sockaddr_in v4;
  struct sockaddr_in6 v6;
  out[0] = '\0';
  if (from && from->sa_family == AF_INET) {
    memcpy(&v4, from, sizeof v4);
    inet_ntop(AF_INET, &v4.sin_addr, out, INET6_ADDRSTRLEN);
  } else if (from && from->sa_family == AF_INET6) {
    memcpy(&v6, from, sizeof v6);
    if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) memset(v6.sin6_addr.s6_addr + 8, 0, 8);
    inet_ntop(AF_INET6, &v6.sin6_addr, out, INET6_ADDRSTRLEN);
  }
}
