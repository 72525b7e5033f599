/* SPDX-License-Identifier: Apache-2.0 */
/* The host's IPv4 networks by name, by CIDR, or by the route to a peer. */
#include "comm/wire/network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uint32_t ipv4_of(const struct sockaddr *a) {
  return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr);
}

/* Is the interface, or its address, what one entry of a list names? */
static bool matches(const char *entry, const char *name, uint32_t address) {
  char net[64];
  struct in_addr base;
  const char *slash = strchr(entry, '/');
  if (!slash) return !strcmp(entry, name);
  snprintf(net, sizeof net, "%.*s", (int)(slash - entry), entry);
  int bits = atoi(slash + 1);
  if (inet_pton(AF_INET, net, &base) != 1 || bits < 1 || bits > 32) return false;
  return !((address ^ ntohl(base.s_addr)) >> (32 - bits));
}

static bool listed(const char *list, const char *name, uint32_t address) {
  char entry[64];
  for (const char *at = list;; at++) {
    size_t len = strcspn(at, ",");
    snprintf(entry, sizeof entry, "%.*s", (int)(len < sizeof entry ? len : 0), at);
    if (entry[0] && matches(entry, name, address)) return true;
    at += len;
    if (!*at) return false;
  }
}

static void describe(const struct ifaddrs *a, tri_network *out) {
  uint32_t mask = a->ifa_netmask ? ipv4_of(a->ifa_netmask) : UINT32_MAX;
  struct in_addr own = {.s_addr = htonl(ipv4_of(a->ifa_addr))}, net = {.s_addr = htonl(ipv4_of(a->ifa_addr) & mask)};
  char text[INET_ADDRSTRLEN];
  snprintf(out->interface, sizeof out->interface, "%s", a->ifa_name);
  inet_ntop(AF_INET, &own, out->address, sizeof out->address);
  inet_ntop(AF_INET, &net, text, sizeof text);
  snprintf(out->cidr, sizeof out->cidr, "%s/%d", text, __builtin_popcount(mask));
}

/* own: the address that is looked for; 0: any. */
static bool find(const char *list, uint32_t own, tri_network *out) {
  struct ifaddrs *all = NULL;
  bool found = false;
  if (getifaddrs(&all)) return false;
  for (const struct ifaddrs *a = all; a && !found; a = a->ifa_next) {
    if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || !(a->ifa_flags & IFF_UP)) continue;
    uint32_t address = ipv4_of(a->ifa_addr);
    found = list ? listed(list, a->ifa_name, address) : !(a->ifa_flags & IFF_LOOPBACK);
    found &= !own || own == address;
    if (found) describe(a, out);
  }
  freeifaddrs(all);
  return found;
}

bool tri_network_find(const char *list, tri_network *out) { return find(list, 0, out); }

bool tri_network_towards(const char *endpoint, tri_network *out) {
  static const char scheme[] = "tcp://";
  char host[INET_ADDRSTRLEN];
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)}, own;
  socklen_t size = sizeof own;
  if (strncmp(endpoint, scheme, strlen(scheme)) != 0) return false;
  const char *at = endpoint + strlen(scheme);
  size_t len = strcspn(at, ":");
  if (len >= sizeof host) return false;
  snprintf(host, sizeof host, "%.*s", (int)len, at);
  int fd = inet_pton(AF_INET, host, &to.sin_addr) == 1 ? socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
  if (fd < 0) return false;
  /* No packet leaves: the system looks up the way. */
  bool ok = !connect(fd, (const struct sockaddr *)&to, sizeof to) && !getsockname(fd, (struct sockaddr *)&own, &size);
  close(fd);
  return ok && find(NULL, ntohl(own.sin_addr.s_addr), out);
}

tri_status tri_network_use(const char *list, const char *endpoint, tri_error *err) {
  tri_network n;
  char name[IF_NAMESIZE + 1];
  if (list && !tri_network_find(list, &n))
    return tri_fail(
        err, TRI_USAGE, "interface",
        "--interface \"%.100s\" names no network of this host: it takes names and networks (eth0,10.1.0.0/16)", list);
  if (!list && !tri_network_towards(endpoint, &n)) return TRI_OK;
  snprintf(name, sizeof name, "=%s", n.interface); /* this one, not those whose names begin so */
  setenv("NCCL_SOCKET_IFNAME", name, 0);
  if (!getenv("OMPI_MCA_btl_tcp_if_exclude")) setenv("OMPI_MCA_btl_tcp_if_include", list ? list : n.cidr, 0);
  return TRI_OK;
}
