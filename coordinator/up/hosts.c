/* A list of hosts: one with too few slots, or with a name that does not exist, is refused before a launcher tries,
 * which takes longer and says more. */
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
  return wrong ? tri_fail(err, TRI_USAGE, "hosts",
                          "--hosts names \"%.100s\", which has no address: %s. Where ssh alone knows it: "
                          "--launcher-args \"--mca plm_rsh_agent ssh\"",
                          name, gai_strerror(wrong))
               : TRI_OK;
}

tri_status tri_up_check_slots(const char *hosts, int tp, int pp, tri_error *err) {
  long long slots = 0;
  for (const char *at = hosts;; at++) {
    size_t len = strcspn(at, ","), name = strcspn(at, ":,");
    const char *number = at + name + 1;
    int digits = 0;
    if (name == len) { /* a host without a number */
      slots++;
    } else {
      long long n = -1;
      if (sscanf(number, "%9lld%n", &n, &digits) != 1 || n < 1 || number + digits != at + len)
        return tri_fail(err, TRI_USAGE, "hosts", "--hosts \"%.100s\": \"%.*s\" is no HOST:RANKS", hosts,
                        len > 100 ? 100 : (int)len, at);
      slots += n;
    }
    at += len;
    if (!*at) break;
  }
  if (slots >= (long long)tp * pp) return TRI_OK;
  return tri_fail(
      err, TRI_USAGE, "hosts",
      "--hosts \"%.100s\" has places for %lld ranks, but tensor-parallel %d x pipeline-parallel %d needs %d", hosts,
      slots, tp, pp, tp * pp);
}

tri_status tri_up_check_hosts(const char *hosts, tri_error *err) {
  for (const char *at = hosts;; at++) {
    char name[MAX_NAME];
    size_t len = strcspn(at, ","), name_len = strcspn(at, ":,");
    if (!name_len || name_len >= sizeof name)
      return tri_fail(err, TRI_USAGE, "hosts",
                      "--hosts \"%.100s\" has an entry without a name: it takes HOST:RANKS,...", hosts);
    snprintf(name, sizeof name, "%.*s", (int)name_len, at);
    TRI_CHECK(check_host(name, err));
    at += len;
    if (!*at) return TRI_OK;
  }
}
