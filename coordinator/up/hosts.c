/* Names of hosts: one that does not exist is refused before a launcher tries, which takes longer and says more. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "coordinator/up/up.h"

enum { MAX_NAME = 256 };

static tri_status check_host(const char *name, tri_error *err) {
  struct addrinfo wanted = {.ai_socktype = SOCK_STREAM}, *found = NULL;
  int wrong = getaddrinfo(name, NULL, &wanted, &found);
  if (!wrong) freeaddrinfo(found);
  return wrong ? tri_fail(err, TRI_INVALID_ARGUMENT, "hosts",
                          "--hosts names \"%.100s\", which has no address: %s. Where ssh alone knows it: "
                          "--launcher-args \"--mca plm_rsh_agent ssh\"",
                          name, gai_strerror(wrong))
               : TRI_OK;
}

tri_status tri_up_check_hosts(const char *hosts, tri_error *err) {
  for (const char *at = hosts;; at++) {
    char name[MAX_NAME];
    size_t len = strcspn(at, ","), name_len = strcspn(at, ":,");
    if (!name_len || name_len >= sizeof name)
      return tri_fail(err, TRI_INVALID_ARGUMENT, "hosts",
                      "--hosts \"%.100s\" has an entry without a name: it takes HOST:RANKS,...", hosts);
    snprintf(name, sizeof name, "%.*s", (int)name_len, at);
    tri_status st = check_host(name, err);
    if (st != TRI_OK) return st;
    at += len;
    if (!*at) return TRI_OK;
  }
}
