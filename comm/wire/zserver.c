/* SPDX-License-Identifier: Apache-2.0 */
/* Servers: a socket that many peers connect to, on a file of this host or on TCP. */
#include "comm/wire/zsock_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "comm/wire/endpoint.h"
#include "comm/wire/socket_lock.h"
#include "base/mem.h"

enum {
  LISTEN_BACKLOG = 1024, /* connections that wait for the library to accept them */
  BIND_PAUSE_MS = 50,
  BIND_TRIES = 20,   /* a server that is ending, as one without a supervisor, says its last words for 300 ms */
  REBIND_TRIES = 40, /* the library closes the listener before in a thread of its own */
};

void tri_zserver_allow_files(void) {
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files)) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

static void pause_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

static tri_status ipc_is_alive(const char *path, tri_error *err) {
  return tri_fail(err, TRI_IO, "endpoint",
                  "%s belongs to a server that is running: another one needs another --endpoint", path);
}

/* Removes what a dead server has left at the path; refuses when a live one answers there (*alive) or when it is no
 * socket at all. */
static tri_status ipc_clear_stale(const char *path, const struct sockaddr_un *addr, bool *alive, tri_error *err) {
  struct stat sb;
  if (lstat(path, &sb)) {
    if (errno == ENOENT) return TRI_OK;
    return tri_fail(err, TRI_IO, "endpoint", "cannot look at %s: %s", path, strerror(errno));
  }
  if (!S_ISSOCK(sb.st_mode))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "endpoint", "%s exists and is not a socket", path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return tri_fail(err, TRI_IO, "endpoint", "cannot make a socket: %s", strerror(errno));
  int e = connect(fd, (const struct sockaddr *)addr, sizeof *addr) ? errno : 0;
  close(fd);
  if (e == ECONNREFUSED || e == ENOENT) {
    if (!unlink(path) || errno == ENOENT) return TRI_OK;
    return tri_fail(err, TRI_IO, "endpoint", "cannot remove the dead socket %s: %s", path, strerror(errno));
  }
  *alive = !e || e == EAGAIN || e == EINPROGRESS; /* a full queue has an owner */
  if (*alive) return ipc_is_alive(path, err);
  return tri_fail(err, TRI_PERMISSION, "endpoint", "%s belongs to another process: %s", path, strerror(e));
}

/* Takes the right to the path, and makes room there. */
static tri_status ipc_claim(tri_zserver *s, const struct sockaddr_un *addr, bool *alive, tri_error *err) {
  if (s->lock_fd < 0) {
    tri_status st = tri_socket_lock(s->path, &s->lock_fd, err);
    *alive = st == TRI_AGAIN;
    if (*alive) return ipc_is_alive(s->path, err);
    if (st != TRI_OK) return st;
  }
  return ipc_clear_stale(s->path, addr, alive, err);
}

static tri_status ipc_listen(tri_zserver *s, const char *path, tri_error *err) {
  struct sockaddr_un addr = {.sun_family = AF_UNIX};
  size_t len = strlen(path);
  if (!len || path[0] == '@' || path[0] == '*')
    return tri_fail(err, TRI_USAGE, "endpoint", "ipc:// needs the path of a socket file");
  if (len >= sizeof addr.sun_path)
    return tri_fail(err, TRI_USAGE, "endpoint", "the path of a socket has at most %zu bytes, this one %zu",
                    sizeof addr.sun_path - 1, len);
  memcpy(addr.sun_path, path, len + 1);
  memcpy(s->path, path, len + 1);
  bool alive = false;
  tri_status st = ipc_claim(s, &addr, &alive, err);
  for (int i = 0; alive && i < BIND_TRIES; i++) {
    pause_ms(BIND_PAUSE_MS);
    alive = false;
    tri_error_clear(err);
    st = ipc_claim(s, &addr, &alive, err);
  }
  if (st != TRI_OK) return st;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  struct stat sb;
  /* Linux gives the file the mode of the socket's inode, so it is never wider than this; umask would change it for all
   * threads. */
  if (fd < 0 || fchmod(fd, 0600) || bind(fd, (struct sockaddr *)&addr, sizeof addr) || lstat(path, &sb)) {
    st = tri_fail(err, TRI_IO, "endpoint", "cannot bind %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return st;
  }
  s->dev = sb.st_dev;
  s->ino = sb.st_ino;
  s->listen_fd = fd;
  if ((sb.st_mode & 07777 & ~0600u) != 0)
    return tri_fail(err, TRI_PERMISSION, "endpoint", "%s came out with mode %04o, not 0600", path,
                    (unsigned)sb.st_mode & 07777);
  if (listen(fd, LISTEN_BACKLOG))
    return tri_fail(err, TRI_IO, "endpoint", "cannot listen on %s: %s", path, strerror(errno));
  return TRI_OK;
}

static void ipc_unlisten(tri_zserver *s) {
  struct stat sb;
  if (s->listen_fd >= 0 && !lstat(s->path, &sb) && sb.st_dev == s->dev && sb.st_ino == s->ino) unlink(s->path);
  if (s->listen_fd >= 0) close(s->listen_fd);
  s->listen_fd = -1;
  tri_socket_unlock(s->path, s->lock_fd);
  s->lock_fd = -1;
}

/* Writes an address of IPv4 as people do: the library makes tcp://[::ffff:1.2.3.4]:5 of it. */
static void unmap_ipv4(char *endpoint) {
  static const char mapped[] = "tcp://[::ffff:";
  char *from = endpoint + sizeof mapped - 1, *to = endpoint + strlen("tcp://");
  if (!tri_z_starts_with(endpoint, mapped)) return;
  size_t len = strcspn(from, "]");
  if (from[len] != ']' || !memchr(from, '.', len)) return;
  memmove(to, from, len);
  memmove(to + len, from + len + 1, strlen(from + len));
}

/* NULL is fine. */
static void stop(void *socket, void *monitor) {
  if (socket && monitor) zmq_socket_monitor(socket, NULL, 0);
  if (monitor) zmq_close(monitor);
  if (socket) zmq_close(socket);
}

/* Makes the ROUTER and binds it to s->endpoint. */
static tri_status server_start(tri_zserver *s, tri_error *err) {
  int fd = -1, on = 1, rc = -1;
  void *k = zmq_socket(s->z->ctx, ZMQ_ROUTER);
  /* No lingering while it serves: the queue of a client that has gone would stay in the table, and look full
   * instead of gone. */
  bool ok = k && tri_z_set_common(k, s->max_message, s->backlog) && tri_z_set_int(k, ZMQ_LINGER, 0) &&
            tri_z_set_int(k, ZMQ_RCVHWM, s->receive_backlog) && tri_z_set_int(k, ZMQ_ROUTER_MANDATORY, 1) &&
            tri_z_set_int(k, ZMQ_BACKLOG, LISTEN_BACKLOG) && (!s->is_tcp || tri_z_set_heartbeat(k));
  if (ok && s->has_curve)
    ok = !zmq_setsockopt(k, ZMQ_CURVE_SERVER, &on, sizeof on) &&
         !zmq_setsockopt(k, ZMQ_CURVE_SECRETKEY, s->curve.secret_key, TRI_Z_KEY) &&
         !zmq_setsockopt(k, ZMQ_ZAP_DOMAIN, s->domain->name, strlen(s->domain->name));
  if (ok && s->listen_fd >= 0) {
    fd = fcntl(s->listen_fd, F_DUPFD_CLOEXEC, 0);
    ok = fd >= 0 && tri_z_set_int(k, ZMQ_USE_FD, fd);
  }
  void *monitor = ok && s->watch ? tri_z_watch(s->z, k, ZMQ_EVENT_DISCONNECTED) : NULL;
  ok = ok && (monitor || !s->watch);
  int tries = s->socket ? REBIND_TRIES : BIND_TRIES;
  for (int i = 0; ok && i < tries; i++) {
    if (i) pause_ms(BIND_PAUSE_MS);
    rc = zmq_bind(k, s->endpoint);
    if (!rc || zmq_errno() != EADDRINUSE) break;
  }
  size_t size = sizeof s->endpoint;
  if (rc == 0 && s->is_tcp) ok = !zmq_getsockopt(k, ZMQ_LAST_ENDPOINT, s->endpoint, &size);
  unmap_ipv4(s->endpoint);
  if (ok && rc == 0) {
    s->socket = k;
    s->monitor = monitor;
    return TRI_OK;
  }
  int e = zmq_errno();
  if (fd >= 0 && rc != 0) close(fd);
  stop(k, monitor);
  return tri_fail(err, e == EINVAL ? TRI_USAGE : TRI_IO, "endpoint", "cannot bind %s: %s", s->endpoint,
                  zmq_strerror(e));
}

static tri_status server_check(const tri_zserver_config *c, tri_error *err) {
  if (strlen(c->endpoint) >= TRI_Z_ENDPOINT_BYTES)
    return tri_fail(err, TRI_USAGE, "endpoint", "longer than %d bytes", TRI_Z_ENDPOINT_BYTES - 1);
  bool tcp = tri_z_starts_with(c->endpoint, "tcp://");
  if (!tcp && !tri_z_starts_with(c->endpoint, "ipc://"))
    return tri_fail(err, TRI_USAGE, "endpoint", "%s starts with neither ipc:// nor tcp://", c->endpoint);
  if (tcp && !c->curve && !c->insecure_tcp)
    return tri_fail(err, TRI_USAGE, "endpoint", "%s without CURVE keys would let anybody in", c->endpoint);
  return tri_endpoint_check_bind(c->endpoint, err); /* ZeroMQ would take a port modulo 65536 */
}

tri_status tri_zserver_open(tri_zcontext *z, const tri_zserver_config *config, tri_zserver **out, tri_error *err) {
  tri_status st;
  TRI_CHECK(server_check(config, err));
  tri_zserver *s = tri_calloc(1, sizeof *s);
  if (!s) return TRI_NO_MEMORY;
  s->z = z;
  pthread_mutex_lock(&z->lock);
  LIST_INSERT_HEAD(&z->servers, s, links);
  pthread_mutex_unlock(&z->lock);
  s->listen_fd = s->lock_fd = -1;
  s->max_message = config->max_message;
  s->backlog = config->backlog > 0 ? config->backlog : TRI_Z_BACKLOG;
  s->is_tcp = tri_z_starts_with(config->endpoint, "tcp://");
  s->receive_backlog = config->receive_backlog > 0 ? config->receive_backlog : s->backlog;
  s->watch = config->watch;
  snprintf(s->endpoint, sizeof s->endpoint, "%s", config->endpoint);
  zmq_msg_init(&s->msg);
  if (config->curve) {
    s->curve = *config->curve;
    s->has_curve = true;
    TRI_TRY(tri_zap_domain_make(z, config->allowed, config->allowed ? config->num_allowed : 0, &s->domain, err));
  }
  if (!s->is_tcp) TRI_TRY(ipc_listen(s, s->endpoint + strlen("ipc://"), err));
  TRI_TRY(server_start(s, err));
  *out = s;
  s = NULL;
cleanup:
  tri_zserver_close(s);
  return st;
}

const char *tri_zserver_endpoint(const tri_zserver *s) { return s->endpoint; }

/* Reads the user id out of "NAME:UID:GID:PID", which the library makes of SO_PEERCRED. */
static bool read_user(const char *address, uint32_t *uid) {
  const char *at = address + strlen(address);
  for (int colons = 0; colons < 3; colons++) do
      if (at == address) return false;
    while (*--at != ':');
  char *end;
  errno = 0;
  unsigned long number = strtoul(at + 1, &end, 10);
  *uid = (uint32_t)number;
  return !errno && end > at + 1 && *end == ':' && number <= UINT32_MAX;
}

/* A descriptor (ZMQ_SRCFD) may be another connection's by the time a message is read; the library's notes are those of
 * the message's own, and come before what the peer says of itself under the same names. */
static tri_owner owner_of(const tri_zserver *s, const zmq_msg_t *m) {
  tri_owner owner = {0};
  uint32_t uid;
  const char *key = s->has_curve ? zmq_msg_gets(m, "User-Id") : NULL; /* as the ZAP thread answered */
  const char *address = s->is_tcp || key ? NULL : zmq_msg_gets(m, "Peer-Address");
  if (key && tri_zkey_raw(key, owner.bytes)) {
    owner.kind = TRI_OWNER_KEY;
  } else if (address && read_user(address, &uid)) {
    owner.kind = TRI_OWNER_USER;
    memcpy(owner.bytes, &uid, sizeof uid);
  }
  return owner;
}

tri_status tri_zserver_recv(tri_zserver *s, tri_peer *from, const void **data, size_t *len, int *frames) {
  s->has_more = false;
  if (!s->socket) return TRI_CLOSED;
  for (int i = 0; i < TRI_Z_DISCARDS_PER_CALL; i++) {
    if (zmq_msg_recv(&s->msg, s->socket, ZMQ_DONTWAIT) < 0) return tri_z_status();
    size_t id = zmq_msg_size(&s->msg);
    /* A peer may give itself a name of up to 255 bytes; ours do not, and such a name has no room in a tri_peer. */
    if (id > sizeof from->bytes || !zmq_msg_more(&s->msg)) {
      tri_z_discard_rest(s->socket, &s->msg);
      continue;
    }
    from->len = (uint8_t)id;
    memcpy(from->bytes, zmq_msg_data(&s->msg), id);
    if (zmq_msg_recv(&s->msg, s->socket, ZMQ_DONTWAIT) < 0) return tri_z_status();
    int n = 1 + tri_z_discard_rest(s->socket, &s->msg);
    from->owner = owner_of(s, &s->msg);
    from->connection = zmq_msg_get(&s->msg, ZMQ_SRCFD);
    *data = zmq_msg_data(&s->msg);
    *len = zmq_msg_size(&s->msg);
    if (frames) *frames = n;
    return TRI_OK;
  }
  s->has_more = true;
  return TRI_AGAIN;
}

bool tri_zserver_has_more(const tri_zserver *s) { return s->has_more; }

bool tri_zserver_take_ended(tri_zserver *s, tri_connections *ended) {
  int event, connection;
  bool any = false;
  while (s->monitor && tri_z_next_event(s->monitor, &event, &connection)) {
    if (event != ZMQ_EVENT_DISCONNECTED) continue; /* it says when it is stopped, too */
    tri_connections_add(ended, connection);
    any = true;
  }
  return any;
}

static tri_status send_address(tri_zserver *s, const tri_peer *to) {
  if (!s->socket) return TRI_CLOSED;
  if (zmq_send(s->socket, to->bytes, to->len, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) return TRI_OK;
  return zmq_errno() == EHOSTUNREACH ? TRI_CLOSED : tri_z_status();
}

/* After its address a frame must follow, or the next client's would go to this one: without memory for it nothing of
 * it is sent. */
tri_status tri_zserver_send(tri_zserver *s, const tri_peer *to, const void *data, size_t len) {
  zmq_msg_t m;
  tri_zserver_flush(s);
  if (s->has_frame || zmq_msg_init_size(&m, len)) return TRI_AGAIN;
  if (len) memcpy(zmq_msg_data(&m), data, len);
  tri_status st = send_address(s, to);
  if (st == TRI_OK && zmq_msg_send(&m, s->socket, ZMQ_DONTWAIT) < 0) st = tri_z_status();
  zmq_msg_close(&m);
  return st;
}

tri_status tri_zserver_look(tri_zserver *s, const tri_peer *to) { return tri_zserver_send(s, to, "", 0); }

tri_status tri_zserver_queue(tri_zserver *s, const tri_peer *to, const void *data, size_t len) {
  bool same = s->has_frame && tri_peer_equal(&s->frame_to, to);
  if (!same || len > TRI_Z_FRAME_BYTES - s->frame_len) tri_zserver_flush(s);
  if (s->has_frame && (!same || len > TRI_Z_FRAME_BYTES - s->frame_len)) return TRI_AGAIN;
  if (len > TRI_Z_FRAME_BYTES) return tri_zserver_send(s, to, data, len);
  if (!s->has_frame) {
    /* Ahead of its frame, the address tells whether the peer is there and has room: each message's sender learns it. */
    TRI_CHECK(send_address(s, to));
    s->has_frame = true;
    s->frame_to = *to;
    s->frame_len = 0;
  }
  memcpy(s->frame + s->frame_len, data, len);
  s->frame_len += len;
  return TRI_OK;
}

/* Without memory the frame stays, and its turn comes with the next call. */
void tri_zserver_flush(tri_zserver *s) {
  zmq_msg_t m;
  if (!s->has_frame || zmq_msg_init_size(&m, s->frame_len)) return;
  if (s->frame_len) memcpy(zmq_msg_data(&m), s->frame, s->frame_len);
  s->has_frame = false;
  zmq_msg_send(&m, s->socket, ZMQ_DONTWAIT); /* fails only with the library itself */
  zmq_msg_close(&m);
}

tri_status tri_zserver_rebind(tri_zserver *s, tri_error *err) {
  void *old = s->socket;
  s->has_frame = false;
  zmq_msg_close(&s->msg);
  zmq_msg_init(&s->msg);
  if (old) {
    tri_z_set_int(old, ZMQ_LINGER, 0);
    stop(old, s->monitor);
    s->monitor = NULL;
  }
  tri_status st = server_start(s, err);
  if (st != TRI_OK) s->socket = NULL;
  return st;
}

void tri_zserver_close(tri_zserver *s) {
  if (!s) return;
  tri_zcontext *z = s->z;
  pthread_mutex_lock(&z->lock);
  LIST_REMOVE(s, links);
  pthread_mutex_unlock(&z->lock);
  tri_zserver_flush(s);
  zmq_msg_close(&s->msg);
  if (s->socket) {
    tri_z_set_int(s->socket, ZMQ_LINGER, TRI_Z_LINGER_MS); /* last words may still go out */
    stop(s->socket, s->monitor);
  }
  ipc_unlisten(s);
  tri_zap_domain_free(z, s->domain);
  explicit_bzero(&s->curve, sizeof s->curve);
  tri_free(s);
}
