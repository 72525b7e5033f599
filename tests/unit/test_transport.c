/* SPDX-License-Identifier: Apache-2.0 */
/* Ports that answer to the addresses of a group's hosts alone: to all of them, however many a host has. */
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/comm.h"

Suite *suite_transport(void);

enum { MOST = 64 };

/* The host's addresses: 10.1.0.1 and so on, and loopback at its place as if it were a network's. */
static struct {
  int num, loopback_at; /* num -1: the system does not tell */
  bool v6;
  struct ifaddrs list[MOST];
  struct sockaddr_storage at[MOST];
} host;

int __wrap_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out) {
  if (host.num < 0) {
    errno = EMFILE;
    return -1;
  }
  memset(host.list, 0, sizeof host.list);
  for (int i = 0; i < host.num; i++) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a010001u + (unsigned)i)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr.s6_addr = {0xfd, [15] = (uint8_t)(i + 1)}};
    if (i == host.loopback_at) v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (i == host.loopback_at) v6.sin6_addr = in6addr_loopback;
    if (host.v6)
      memcpy(&host.at[i], &v6, sizeof v6);
    else
      memcpy(&host.at[i], &v4, sizeof v4);
    host.list[i] = (struct ifaddrs){.ifa_addr = (struct sockaddr *)&host.at[i], .ifa_flags = IFF_UP};
    if (i) host.list[i - 1].ifa_next = &host.list[i];
  }
  *out = host.num ? host.list : NULL;
  return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *all);
void __wrap_freeifaddrs(struct ifaddrs *all) { (void)all; }

static int listen_at(bool v6, struct sockaddr_storage *at, socklen_t *len) {
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
  int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
  *len = v6 ? sizeof six : sizeof v4;
  memcpy(at, v6 ? (void *)&six : (void *)&v4, *len);
  if (fd >= 0 && !bind(fd, (struct sockaddr *)at, *len) && !listen(fd, 4) &&
      !getsockname(fd, (struct sockaddr *)at, len))
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

/* Whether somebody from loopback is answered. */
static bool answers(const struct sockaddr_storage *at, socklen_t len, int ms) {
  int fd = socket(at->ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
  socklen_t size = sizeof error;
  struct pollfd p = {.fd = fd, .events = POLLOUT};
  bool there = !connect(fd, (const struct sockaddr *)at, len);
  if (!there && errno == EINPROGRESS)
    there = poll(&p, 1, ms) == 1 && !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) && !error;
  close(fd);
  return there;
}

static void confine(void) {
  tri_comm_config config = {.timeout_ms = 1000};
  tri_comm *c = NULL;
  ck_assert_int_eq(tri_comm_self_create(&config, &c), TRI_OK);
  ck_assert_int_eq(tri_mpi_confine(c), TRI_OK);
  tri_comm_destroy(c);
}

/* 0, 1: IPv4 and IPv6. */
START_TEST(each_address_passes) {
  static const int places[] = {0, 15, 16, 40, MOST - 1};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    struct sockaddr_storage at;
    socklen_t len;
    int fd = listen_at(_i, &at, &len);
    if (fd < 0 && _i) return; /* a host without IPv6 */
    host.v6 = _i;
    host.num = MOST;
    host.loopback_at = places[i];
    confine();
    ck_assert_msg(answers(&at, len, 5000), "address %d of %d is shut out", places[i], MOST);
    host.loopback_at = -1;
    confine();
    ck_assert(!answers(&at, len, 300));
    close(fd);
  }
}
END_TEST

/* A host that cannot tell its addresses is not shut out. */
START_TEST(unknown_addresses) {
  struct sockaddr_storage at;
  socklen_t len;
  int fd = listen_at(false, &at, &len);
  host.num = -1;
  confine();
  ck_assert(answers(&at, len, 5000));
  close(fd);
}
END_TEST

Suite *suite_transport(void) {
  Suite *s = suite_create("transport");
  TCase *t = tcase_create("transport");
  tcase_add_loop_test(t, each_address_passes, 0, 2);
  tcase_add_test(t, unknown_addresses);
  suite_add_tcase(s, t);
  return s;
}
