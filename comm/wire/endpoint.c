/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints as users give them, checked here since ZeroMQ would report most mistakes late or not at all: a host name
 * that does not resolve is tried again for good, and a port is taken modulo 65536. */
#include "comm/wire/endpoint.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

tri_status tri_endpoint_resolve(const char *given, char out[TRI_ENDPOINT_BYTES], tri_error *err) {
  const char *text = given && *given ? given : getenv(TRI_ENDPOINT_ENV);
  const char *run = getenv("XDG_RUNTIME_DIR");
  struct stat sb;
  int n;
  if (text && *text)
    n = snprintf(out, TRI_ENDPOINT_BYTES, "%s", text);
  else if (run && *run == '/' && !stat(run, &sb) && S_ISDIR(sb.st_mode))
    n = snprintf(out, TRI_ENDPOINT_BYTES, "ipc://%s/trireme.sock", run);
  else
    n = snprintf(out, TRI_ENDPOINT_BYTES, "ipc:///tmp/trireme-%lu.sock", (unsigned long)getuid());
  if (n >= TRI_ENDPOINT_BYTES)
    return tri_fail(err, TRI_TOO_LARGE, "endpoint", "an endpoint has at most %d bytes", TRI_ENDPOINT_BYTES - 1);
  return TRI_OK;
}

/* Returns the port of HOST:PORT, "" where there is none. */
static const char *port_of(const char *address) {
  size_t len = strlen(address);
  const char *colon = len && address[len - 1] == ']' ? NULL : strrchr(address, ':');
  return colon ? colon + 1 : address + len;
}

static tri_status check_port(const char *endpoint, const char *port, unsigned long least, tri_error *err) {
  char *end;
  if (!*port)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "endpoint", "the port is missing in %s: an endpoint is tcp://HOST:PORT",
                    endpoint);
  unsigned long n = strtoul(port, &end, 10);
  if (*end || *port < '0' || *port > '9')
    return tri_fail(err, TRI_INVALID_ARGUMENT, "endpoint", "\"%.40s\" is no port in %s", port, endpoint);
  if (n < least || n > 65535)
    return tri_fail(err, TRI_OUT_OF_RANGE, "endpoint", "port %.20s of %s; allowed are %lu to 65535", port, endpoint,
                    least);
  return TRI_OK;
}

static tri_status check_path(const char *path, tri_error *err) {
  size_t len = strlen(path), most = sizeof((struct sockaddr_un *)0)->sun_path - 1;
  if (!len) return tri_fail(err, TRI_INVALID_ARGUMENT, "endpoint", "ipc:// needs the path of a socket file");
  if (len <= most) return TRI_OK;
  return tri_fail(err, TRI_TOO_LARGE, "endpoint", "the path of a socket has at most %zu bytes, this one %zu", most,
                  len);
}

tri_status tri_endpoint_check(const char *endpoint, tri_error *err) {
  char host[TRI_ENDPOINT_BYTES];
  struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
  if (!strncmp(endpoint, "ipc://", strlen("ipc://"))) return check_path(endpoint + strlen("ipc://"), err);
  if (strncmp(endpoint, "tcp://", strlen("tcp://"))) return TRI_OK;
  const char *from = endpoint + strlen("tcp://"), *source_end = strrchr(from, ';');
  if (source_end) from = source_end + 1; /* tcp://SOURCE;HOST:PORT */
  const char *port = port_of(from);
  TRI_CHECK(check_port(endpoint, port, 1, err));
  size_t len = (size_t)(port - 1 - from);
  if (len >= 2 && *from == '[' && from[len - 1] == ']') {
    from++;
    len -= 2;
  }
  if (!len)
    return tri_fail(err, TRI_INVALID_ARGUMENT, "endpoint", "the host is missing in %s: an endpoint is tcp://HOST:PORT",
                    endpoint);
  if (len >= sizeof host) return tri_fail(err, TRI_TOO_LARGE, "endpoint", "the host of %.100s is too long", endpoint);
  memcpy(host, from, len);
  host[len] = '\0';
  int e = getaddrinfo(host, NULL, &hints, &found);
  if (e)
    return tri_fail(err, TRI_NOT_FOUND, "endpoint", "the host name \"%.100s\" does not resolve: %s", host,
                    gai_strerror(e));
  freeaddrinfo(found);
  return TRI_OK;
}

tri_status tri_endpoint_check_bind(const char *endpoint, tri_error *err) {
  if (strncmp(endpoint, "tcp://", strlen("tcp://"))) return TRI_OK;
  const char *port = port_of(endpoint + strlen("tcp://"));
  if (!strcmp(port, "*") || check_port(endpoint, port, 0, err) == TRI_OK) return TRI_OK;
  if (err) err->status = TRI_USAGE;
  return TRI_USAGE;
}

void tri_endpoint_reachable(const char *endpoint, char out[TRI_ENDPOINT_BYTES]) {
  static const char v4[] = "tcp://0.0.0.0:", v6[] = "tcp://[::]:";
  if (!strncmp(endpoint, v4, strlen(v4)))
    snprintf(out, TRI_ENDPOINT_BYTES, "tcp://127.0.0.1:%s", endpoint + strlen(v4));
  else if (!strncmp(endpoint, v6, strlen(v6)))
    snprintf(out, TRI_ENDPOINT_BYTES, "tcp://[::1]:%s", endpoint + strlen(v6));
  else
    snprintf(out, TRI_ENDPOINT_BYTES, "%s", endpoint);
}
