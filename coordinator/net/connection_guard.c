/* SPDX-License-Identifier: Apache-2.0 */
/* For each descriptor the guard counts the bytes since the last whole message of its connection. Reading (the library's
 * thread) adds; taking a message (the caller's) sets to 0. The two are not in step: bytes of messages that the library
 * has read ahead count although these are whole. So a connection above the limit is a suspect first. The caller then
 * takes messages until none is left, or so many that a whole one of each connection must have come; a suspect of which
 * one came is cleared, and the others are cut.
 *
 * A descriptor may go to another connection at any time. Every decision names a generation with it, and cutting holds
 * the lock under which new connections get their descriptors. */
#include "coordinator/net/connection_guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/wait.h"

enum {
  MOST_DESCRIPTORS = 1 << 20, /* that are counted */
  MOST_RESERVED = 256,        /* descriptors that clients leave, half of them for workers, half for files */
  RESERVED_SHARE = 4,         /* of all, where those are fewer */
  MOST_SUSPECTS = 64,         /* of one look */
  FORGIVEN = 1 << 10,         /* bytes a second */
  SURE = 256,                 /* messages in addition to one of each connection, before a suspect is closed */
};

#define NS_PER_CONNECTION (1000000000LL / TRI_GUARD_CONNECTIONS_PER_S)
/* In place of bytes: of a connection that is being closed, and of one that is no client's. */
#define CUT UINT32_MAX
#define TRUSTED (UINT32_MAX - 1)

/* One for the process, as the functions that the library calls are. The library's thread reads and counts, the caller's
 * decides. */
static struct {
  atomic_bool on;
  _Atomic uint32_t *bytes;       /* [num] of each descriptor: since its last whole message */
  _Atomic uint32_t *generations; /* [num] connections that have had it */
  pthread_mutex_t lock;          /* while it is held, no descriptor becomes another connection of a client */
  int num, reserved, kept; /* reserved: the first descriptor that clients do not get; kept: that no connection gets */
  int spare;               /* of the library's thread: closed to take a connection that is refused then */
  struct sockaddr_un path;
  in_port_t port; /* 0: it is a path */
  atomic_int highest;
  _Atomic uint64_t refused, too_fast, cut, unread;
  int64_t paid_until; /* by connections of clients, each of which pays for its part of a second */
  int suspects[MOST_SUSPECTS], num_suspects; /* -1: it is none any more */
  uint32_t suspected[MOST_SUSPECTS];         /* which connection of that descriptor */
  uint64_t taken;                            /* messages, since they are suspects */
  tri_guard_figures told;
} guard = {.spare = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

/* Returns the count of a descriptor; NULL: the guard is off, or does not count it. */
static _Atomic uint32_t *find(int fd) {
  if (!atomic_load_explicit(&guard.on, memory_order_acquire) || fd < 0 || fd >= guard.num) return NULL;
  return &guard.bytes[fd];
}

/* Returns whether a socket's own address is the one that clients connect to. */
static bool is_of_clients(int fd) {
  union {
    struct sockaddr any;
    struct sockaddr_un un;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
  } a;
  socklen_t len = sizeof a;
  memset(&a, 0, sizeof a);
  if (getsockname(fd, &a.any, &len)) return false;
  if (a.any.sa_family == AF_UNIX) return !guard.port && !strcmp(a.un.sun_path, guard.path.sun_path);
  if (a.any.sa_family == AF_INET) return guard.port && a.in.sin_port == guard.port;
  return a.any.sa_family == AF_INET6 && guard.port && a.in6.sin6_port == guard.port;
}

tri_status tri_guard_begin(const char *endpoint, tri_error *err) {
  static const char ipc[] = "ipc://";
  struct rlimit files = {0};
  getrlimit(RLIMIT_NOFILE, &files);
  int limit = files.rlim_cur < MOST_DESCRIPTORS ? (int)files.rlim_cur : MOST_DESCRIPTORS;
  const char *colon = strrchr(endpoint, ':');
  memset(&guard.path, 0, sizeof guard.path);
  guard.port = 0;
  if (!strncmp(endpoint, ipc, sizeof ipc - 1))
    strncpy(guard.path.sun_path, endpoint + sizeof ipc - 1, sizeof guard.path.sun_path - 1);
  else if (colon)
    guard.port = htons((in_port_t)strtoul(colon + 1, NULL, 10));
  guard.num = limit;
  guard.reserved = limit - (limit / RESERVED_SHARE < MOST_RESERVED ? limit / RESERVED_SHARE : MOST_RESERVED);
  guard.kept = limit - (limit - guard.reserved) / 2;
  guard.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  tri_free(guard.bytes);
  tri_free(guard.generations);
  guard.bytes = tri_calloc((size_t)limit, sizeof *guard.bytes);
  guard.generations = tri_calloc((size_t)limit, sizeof *guard.generations);
  atomic_store(&guard.highest, 0);
  guard.paid_until = 0;
  guard.num_suspects = 0;
  if (guard.spare < 0 || !guard.bytes || !guard.generations) {
    tri_connection_guard_close();
    return tri_fail(err, TRI_NO_MEMORY, "", "no memory or file to guard the connections with");
  }
  atomic_store_explicit(&guard.on, true, memory_order_release);
  return TRI_OK;
}

void tri_connection_guard_close(void) {
  atomic_store(&guard.on, false); /* other threads may still be in a call that counts: the counts stay */
  if (guard.spare >= 0) close(guard.spare);
  guard.spare = -1;
}

/* ---- the library's thread ---- */

/* The library takes ECONNABORTED for a connection that has gone by itself. */
static int refuse(int fd, _Atomic uint64_t *count) {
  if (fd >= 0) close(fd);
  atomic_fetch_add(count, 1);
  errno = ECONNABORTED;
  return -1;
}

/* Takes a connection for which there is no descriptor, so that it does not wait, and the library with it. */
static int refuse_waiting(int listener) {
  if (guard.spare >= 0) close(guard.spare);
  int fd = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
  bool none = fd < 0 && errno == EAGAIN; /* it has given up meanwhile */
  if (fd >= 0) close(fd);
  guard.spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (none) {
    errno = EAGAIN;
    return -1;
  }
  return refuse(-1, &guard.refused);
}

/* Returns whether more clients come than there may be: more than a burst ahead of the rate. A refusal costs the
 * library's thread a third of what a connection does, or less. */
static bool comes_too_fast(void) {
  const int64_t burst = TRI_GUARD_CONNECTIONS_AT_ONCE * NS_PER_CONNECTION;
  const int64_t now = tri_now_ns();
  if (guard.paid_until < now) guard.paid_until = now;
  if (guard.paid_until - now >= burst) return true;
  guard.paid_until += NS_PER_CONNECTION;
  return false;
}

/* Returns what becomes of a new connection. */
static int admit(int listener, int fd, bool of_clients) {
  if (fd < 0) return errno == EMFILE || errno == ENFILE ? refuse_waiting(listener) : -1;
  if (fd >= (of_clients ? guard.reserved : guard.kept)) return refuse(fd, &guard.refused);
  if (of_clients && comes_too_fast()) return refuse(fd, &guard.too_fast);
  _Atomic uint32_t *bytes = find(fd);
  if (bytes) atomic_store(bytes, of_clients ? 0 : TRUSTED);
  if (bytes) atomic_fetch_add(&guard.generations[fd], 1);
  if (bytes && fd > atomic_load(&guard.highest)) atomic_store(&guard.highest, fd);
  return fd;
}

int tri_guard_accept(int listener, void *address, void *len, int flags) {
  bool on = atomic_load_explicit(&guard.on, memory_order_acquire), of_clients = on && is_of_clients(listener);
  if (of_clients) pthread_mutex_lock(&guard.lock); /* other listeners may wait in it */
  int fd = (int)syscall(SYS_accept4, listener, address, len, flags);
  if (on) fd = admit(listener, fd, of_clients);
  if (of_clients) pthread_mutex_unlock(&guard.lock);
  return fd;
}

void tri_guard_received(int fd, size_t bytes) {
  _Atomic uint32_t *b = find(fd);
  if (b && atomic_load_explicit(b, memory_order_relaxed) < UINT32_MAX / 2)
    atomic_fetch_add_explicit(b, (uint32_t)bytes, memory_order_relaxed);
}

/* ---- the caller's thread ---- */

static bool sends_too_much(int fd) {
  _Atomic uint32_t *b = find(fd);
  uint32_t bytes = b ? atomic_load_explicit(b, memory_order_relaxed) : 0;
  return bytes > TRI_GUARD_MOST_BYTES && bytes < TRUSTED;
}

void tri_connection_guard_message(int connection) {
  _Atomic uint32_t *b = find(connection);
  if (b && atomic_load_explicit(b, memory_order_relaxed) != TRUSTED) atomic_store_explicit(b, 0, memory_order_relaxed);
  guard.taken++;
  for (int i = 0; i < guard.num_suspects; i++)
    if (guard.suspects[i] == connection) guard.suspects[i] = -1;
}

bool tri_connection_guard_suspects(void) {
  int highest = atomic_load(&guard.highest);
  for (int i = 0; i < guard.num_suspects; i++)
    if (guard.suspects[i] >= 0) return true; /* it is not certain yet of these */
  guard.num_suspects = 0;
  guard.taken = 0;
  for (int fd = 0; fd <= highest && guard.num_suspects < MOST_SUSPECTS; fd++) {
    uint32_t generation = tri_connection_guard_generation(fd);
    if (!sends_too_much(fd)) continue;
    guard.suspected[guard.num_suspects] = generation;
    guard.suspects[guard.num_suspects++] = fd;
  }
  return guard.num_suspects > 0;
}

/* The library gives a message of each connection in turn, and looks for connections that have new ones after a hundred:
 * a whole message of a suspect would have come by now. */
bool tri_connection_guard_is_sure(void) { return guard.taken > 2 * (uint64_t)atomic_load(&guard.highest) + SURE; }

/* All messages that a suspect had sent by then have been taken, and each would have cleared it: its bytes are of one
 * that has not ended. The library sees the end of the stream, closes the connection, and frees what there was of it. */
void tri_connection_guard_cut(void) {
  pthread_mutex_lock(&guard.lock);
  for (int i = 0; i < guard.num_suspects; i++) {
    int fd = guard.suspects[i];
    if (fd < 0 || tri_connection_guard_generation(fd) != guard.suspected[i] || !sends_too_much(fd)) continue;
    atomic_store(&guard.bytes[fd], CUT);
    if (is_of_clients(fd) && !shutdown(fd, SHUT_RDWR)) atomic_fetch_add(&guard.cut, 1);
  }
  guard.num_suspects = 0;
  pthread_mutex_unlock(&guard.lock);
}

uint32_t tri_connection_guard_generation(int connection) {
  return find(connection) ? atomic_load(&guard.generations[connection]) : 0;
}

void tri_connection_guard_end(int connection, uint32_t generation) {
  pthread_mutex_lock(&guard.lock);
  bool same = tri_connection_guard_generation(connection) == generation;
  if (same && is_of_clients(connection) && !shutdown(connection, SHUT_RDWR)) atomic_fetch_add(&guard.unread, 1);
  pthread_mutex_unlock(&guard.lock);
}

tri_guard_figures tri_connection_guard_figures(void) {
  return (tri_guard_figures){.refused = atomic_load(&guard.refused),
                             .too_fast = atomic_load(&guard.too_fast),
                             .cut = atomic_load(&guard.cut),
                             .unread = atomic_load(&guard.unread)};
}

/* A value that changes meanwhile is left as it is: it may have become a new connection's. */
static void forgive(_Atomic uint32_t *bytes) {
  uint32_t n = atomic_load_explicit(bytes, memory_order_relaxed);
  if (n && n < TRUSTED) atomic_compare_exchange_strong(bytes, &n, n > FORGIVEN ? n - FORGIVEN : 0);
}

void tri_connection_guard_second(void) {
  int highest = atomic_load(&guard.highest);
  for (int fd = 0; fd <= highest && find(fd); fd++) forgive(find(fd));
  tri_guard_figures now = tri_connection_guard_figures();
  if (now.refused > guard.told.refused)
    tri_log(TRI_LOG_WARN, "coordinator", "connections refused: %llu, because few files are left (ulimit -n)",
            (unsigned long long)(now.refused - guard.told.refused));
  if (now.too_fast > guard.told.too_fast)
    tri_log(TRI_LOG_WARN, "coordinator", "connections refused: %llu, more than %d a second",
            (unsigned long long)(now.too_fast - guard.told.too_fast), TRI_GUARD_CONNECTIONS_PER_S);
  if (now.cut > guard.told.cut)
    tri_log(TRI_LOG_WARN, "coordinator", "connections closed: %llu that sent an endless message",
            (unsigned long long)(now.cut - guard.told.cut));
  if (now.unread > guard.told.unread)
    tri_log(TRI_LOG_WARN, "coordinator", "connections closed: %llu whose clients left too many replies unread",
            (unsigned long long)(now.unread - guard.told.unread));
  guard.told = now;
}
