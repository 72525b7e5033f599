#include "comm/wire/zsock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "runtime/base/mem.h"

enum {
  LINGER_MS = 200,
  HEARTBEAT_MS = 2000,
  HEARTBEAT_TIMEOUT_MS = 6000,
  HANDSHAKE_MS = 5000, /* a peer that connects and says nothing is dropped after this */
  RECONNECT_MS = 100,
  RECONNECT_MAX_MS = 2000,
  REFUSED_AFTER = 3, /* handshakes that the server cut short, in a row */
  LISTEN_BACKLOG = 1024,
  REBIND_TRIES = 200,
  RAW_KEY = 32,
  MAX_POLL = 32,
  ENDPOINT_BYTES = 512,
  DISCARDS_PER_CALL = 64,
  FRAME_BYTES = 32 << 10, /* what is queued for one peer before it leaves */
};

/* The keys that one server lets in; the ZAP thread looks them up by the server's domain. */
typedef struct zap_domain {
  struct zap_domain *next;
  char name[16];
  uint8_t (*keys)[RAW_KEY];
  int num_keys;
} zap_domain;

struct tri_zcontext {
  void *ctx;
  pthread_t zap_thread;
  void *zap_socket;
  pthread_mutex_t lock; /* the lists and next_number */
  zap_domain *domains;
  tri_zserver *servers;
  tri_zlink *links;
  unsigned next_number;
};

struct tri_zserver {
  tri_zserver *next;
  tri_zcontext *z;
  void *socket;
  zmq_msg_t msg; /* what recv has handed out */
  zap_domain *domain;
  tri_zkeypair curve;
  bool has_curve, is_tcp;
  size_t max_message;
  int backlog;
  /* ipc: the listening socket is ours, and libzmq gets a duplicate of it, so that neither file nor queue of connections
   * goes away in a rebind, and so that the file's mode is right from its first moment. */
  int listen_fd;
  char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
  dev_t dev;
  ino_t ino;
  char endpoint[ENDPOINT_BYTES];
  /* queued; the address of frame_to has been sent, frame[] is what follows it */
  bool has_frame;
  tri_zpeer frame_to;
  size_t frame_len;
  char frame[FRAME_BYTES];
};

struct tri_zlink {
  tri_zlink *next;
  tri_zcontext *z;
  void *socket, *monitor;
  zmq_msg_t msg;
  tri_zlink_state state;
  unsigned losses, cut; /* cut: handshakes that ended without a word, in a row */
};

/* ---- keys ---- */

static bool key_decode(const char *z85, uint8_t raw[RAW_KEY]) {
  return strlen(z85) == TRI_Z_KEY - 1 && zmq_z85_decode(raw, z85) != NULL;
}

tri_status tri_zkeypair_make(tri_zkeypair *out, tri_error *err) {
  tri_zkeypair k;
  if (zmq_curve_keypair(k.public_key, k.secret_key))
    return tri_fail(err, TRI_UNSUPPORTED, NULL, "cannot make a CURVE key pair: %s", zmq_strerror(zmq_errno()));
  *out = k;
  explicit_bzero(&k, sizeof k);
  return TRI_OK;
}

tri_status tri_zkey_check(const char *key, const char *what, tri_error *err) {
  uint8_t raw[RAW_KEY];
  if (key_decode(key, raw)) return TRI_OK;
  return tri_fail(err, TRI_INVALID_ARGUMENT, what,
                  "a key is %d characters of Z85; this one has %zu or a character outside of Z85", TRI_Z_KEY - 1,
                  strlen(key));
}

static tri_status keypair_read(FILE *f, const char *path, tri_zkeypair *k, tri_error *err) {
  char line[2][128];
  for (int i = 0; i < 2; i++) {
    if (!fgets(line[i], sizeof line[i], f))
      return tri_fail(err, TRI_CORRUPT, path, "a key file has two lines, public and secret key");
    line[i][strcspn(line[i], "\r\n")] = '\0';
    if (strlen(line[i]) != TRI_Z_KEY - 1)
      return tri_fail(err, TRI_CORRUPT, path, "line %d has %zu characters, a key has %d", i + 1, strlen(line[i]),
                      TRI_Z_KEY - 1);
  }
  memcpy(k->public_key, line[0], TRI_Z_KEY);
  memcpy(k->secret_key, line[1], TRI_Z_KEY);
  explicit_bzero(line, sizeof line);
  char derived[TRI_Z_KEY];
  if (zmq_curve_public(derived, k->secret_key) || strcmp(derived, k->public_key))
    return tri_fail(err, TRI_CORRUPT, path, "the two lines are not the public and secret key of one pair");
  return TRI_OK;
}

tri_status tri_zkeypair_load(const char *path, tri_zkeypair *out, tri_error *err) {
  tri_status st = TRI_OK;
  tri_zkeypair k = {0};
  FILE *f = fopen(path, "re");
  struct stat sb;
  if (!f || fstat(fileno(f), &sb)) {
    st = tri_fail(err, TRI_IO, path, "cannot open the key file: %s", strerror(errno));
    goto cleanup;
  }
  if (!S_ISREG(sb.st_mode)) {
    st = tri_fail(err, TRI_INVALID_ARGUMENT, path, "not a regular file");
    goto cleanup;
  }
  if (sb.st_mode & 077) {
    st = tri_fail(err, TRI_PERMISSION, path, "mode %04o lets others read the secret key; make it 0600",
                  (unsigned)sb.st_mode & 07777);
    goto cleanup;
  }
  setvbuf(f, NULL, _IONBF, 0); /* no copy of the secret in a buffer that is freed uncleared */
  TRI_TRY(keypair_read(f, path, &k, err));
  *out = k;
cleanup:
  explicit_bzero(&k, sizeof k);
  if (f) fclose(f);
  return st;
}

tri_status tri_zkeypair_save(const char *path, const tri_zkeypair *k, tri_error *err) {
  /* Never over an existing file: it may be the only copy of a key. */
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0 && errno == EEXIST) return tri_fail(err, TRI_IO, path, "is there already, and is not overwritten");
  if (fd < 0) return tri_fail(err, TRI_IO, path, "cannot create the key file: %s", strerror(errno));
  bool ok = dprintf(fd, "%s\n%s\n", k->public_key, k->secret_key) == 2 * TRI_Z_KEY && !fsync(fd);
  int e = errno;
  ok &= !close(fd);
  if (ok) return TRI_OK;
  unlink(path);
  return tri_fail(err, TRI_IO, path, "cannot write the key file: %s", strerror(e));
}

/* ---- who may connect (ZAP, RFC 27) ---- */

enum { ZAP_VERSION, ZAP_REQUEST, ZAP_DOMAIN, ZAP_ADDRESS, ZAP_IDENTITY, ZAP_MECHANISM, ZAP_KEY, ZAP_FRAMES };

static bool domain_allows(tri_zcontext *z, const char *domain, size_t domain_len, const uint8_t *key) {
  bool found = false;
  pthread_mutex_lock(&z->lock);
  for (const zap_domain *d = z->domains; d && !found; d = d->next) {
    if (strlen(d->name) != domain_len || memcmp(d->name, domain, domain_len)) continue;
    for (int i = 0; i < d->num_keys && !found; i++) found = !memcmp(d->keys[i], key, RAW_KEY);
  }
  pthread_mutex_unlock(&z->lock);
  return found;
}

/* Reads one request into buffers of fixed size; frames beyond them are dropped. Returns the number of frames, or -1 at
 * the end. */
static int zap_read(void *s, char frame[ZAP_FRAMES][256], size_t len[ZAP_FRAMES]) {
  int n = 0, more = 1;
  while (more) {
    char rest[256];
    int got = zmq_recv(s, n < ZAP_FRAMES ? frame[n] : rest, sizeof rest, 0);
    if (got < 0 && zmq_errno() == EINTR) continue;
    if (got < 0) return -1;
    if (n < ZAP_FRAMES) len[n] = (size_t)got < sizeof rest ? (size_t)got : sizeof rest;
    n++;
    size_t size = sizeof more;
    if (zmq_getsockopt(s, ZMQ_RCVMORE, &more, &size)) return -1;
  }
  return n;
}

static void *zap_main(void *arg) {
  tri_zcontext *z = arg;
  void *s = z->zap_socket;
  char frame[ZAP_FRAMES][256];
  size_t len[ZAP_FRAMES];
  for (int n; (n = zap_read(s, frame, len)) >= 0;) {
    char user[TRI_Z_KEY] = "";
    bool ok = n == ZAP_FRAMES && len[ZAP_MECHANISM] == 5 && !memcmp(frame[ZAP_MECHANISM], "CURVE", 5) &&
              len[ZAP_KEY] == RAW_KEY &&
              domain_allows(z, frame[ZAP_DOMAIN], len[ZAP_DOMAIN], (const uint8_t *)frame[ZAP_KEY]);
    if (ok) zmq_z85_encode(user, (const uint8_t *)frame[ZAP_KEY], RAW_KEY);
    const char *code = ok ? "200" : "400", *text = ok ? "OK" : "this key is not on the list";
    zmq_send(s, "1.0", 3, ZMQ_SNDMORE);
    zmq_send(s, frame[ZAP_REQUEST], n > ZAP_REQUEST ? len[ZAP_REQUEST] : 0, ZMQ_SNDMORE);
    zmq_send(s, code, 3, ZMQ_SNDMORE);
    zmq_send(s, text, strlen(text), ZMQ_SNDMORE);
    zmq_send(s, user, strlen(user), ZMQ_SNDMORE);
    zmq_send(s, "", 0, 0);
  }
  zmq_close(s);
  return NULL;
}

static void domain_free(tri_zcontext *z, zap_domain *d) {
  if (!d) return;
  pthread_mutex_lock(&z->lock);
  for (zap_domain **p = &z->domains; *p; p = &(*p)->next)
    if (*p == d) {
      *p = d->next;
      break;
    }
  pthread_mutex_unlock(&z->lock);
  tri_free(d->keys);
  tri_free(d);
}

static tri_status domain_make(tri_zcontext *z, const char *const *keys, int n, zap_domain **out, tri_error *err) {
  zap_domain *d = tri_calloc(1, sizeof *d);
  if (d) d->keys = tri_calloc((size_t)(n > 0 ? n : 1), RAW_KEY);
  if (!d || !d->keys) {
    tri_free(d);
    return TRI_NO_MEMORY;
  }
  for (int i = 0; i < n; i++) {
    if (!keys || !key_decode(keys[i], d->keys[i])) {
      tri_free(d->keys);
      tri_free(d);
      return tri_fail(err, TRI_INVALID_ARGUMENT, "allowed", "key %d of the allow-list is not %d characters of Z85",
                      i + 1, TRI_Z_KEY - 1);
    }
  }
  d->num_keys = n;
  pthread_mutex_lock(&z->lock);
  snprintf(d->name, sizeof d->name, "d%u", z->next_number++);
  d->next = z->domains;
  z->domains = d;
  pthread_mutex_unlock(&z->lock);
  *out = d;
  return TRI_OK;
}

/* ---- context ---- */

tri_status tri_zcontext_create(tri_zcontext **out, tri_error *err) {
  tri_zcontext *z = tri_calloc(1, sizeof *z);
  if (!z) return TRI_NO_MEMORY;
  pthread_mutex_init(&z->lock, NULL);
  z->ctx = zmq_ctx_new();
  /* The library's thread is woken by each message. As a batch thread it does not push whoever sends off the core: a
   * step's messages go out together, with one switch instead of one each. */
  if (z->ctx) zmq_ctx_set(z->ctx, ZMQ_THREAD_SCHED_POLICY, SCHED_BATCH);
  if (z->ctx) z->zap_socket = zmq_socket(z->ctx, ZMQ_REP);
  int e = z->zap_socket ? 0 : zmq_errno();
  if (!e && zmq_bind(z->zap_socket, "inproc://zeromq.zap.01")) e = zmq_errno();
  if (!e) e = pthread_create(&z->zap_thread, NULL, zap_main, z);
  if (e) {
    if (z->zap_socket) zmq_close(z->zap_socket);
    if (z->ctx) zmq_ctx_term(z->ctx);
    pthread_mutex_destroy(&z->lock);
    tri_free(z);
    return tri_fail(err, TRI_INTERNAL, NULL, "cannot start ZeroMQ: %s", zmq_strerror(e));
  }
  *out = z;
  return TRI_OK;
}

void tri_zcontext_destroy(tri_zcontext *z) {
  if (!z) return;
  while (z->servers) tri_zserver_close(z->servers);
  while (z->links) tri_zlink_close(z->links);
  zmq_ctx_shutdown(z->ctx); /* ends the ZAP thread's receive */
  pthread_join(z->zap_thread, NULL);
  while (zmq_ctx_term(z->ctx) && zmq_errno() == EINTR) continue;
  pthread_mutex_destroy(&z->lock);
  tri_free(z);
}

static bool set_int(void *s, int option, int value) { return !zmq_setsockopt(s, option, &value, sizeof value); }

static bool set_common(void *s, size_t max_message, int backlog) {
  int64_t max = max_message ? (int64_t)max_message : -1;
  return set_int(s, ZMQ_LINGER, LINGER_MS) && set_int(s, ZMQ_SNDHWM, backlog) && set_int(s, ZMQ_RCVHWM, backlog) &&
         set_int(s, ZMQ_IPV6, 1) && set_int(s, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) &&
         !zmq_setsockopt(s, ZMQ_MAXMSGSIZE, &max, sizeof max);
}

static bool set_heartbeat(void *s) {
  return set_int(s, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS) && set_int(s, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS) &&
         set_int(s, ZMQ_HEARTBEAT_TTL, HEARTBEAT_TIMEOUT_MS);
}

static bool starts_with(const char *s, const char *prefix) { return !strncmp(s, prefix, strlen(prefix)); }

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void pause_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

/* ---- server ---- */

/* Removes what a dead server has left at the path; refuses when a live one answers there or when it is no socket at
 * all. */
static tri_status ipc_clear_stale(const char *path, const struct sockaddr_un *addr, tri_error *err) {
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
  if (!e || e == EAGAIN || e == EINPROGRESS) /* a full queue has somebody who owns it */
    return tri_fail(err, TRI_IO, "endpoint", "%s belongs to a server that is running", path);
  return tri_fail(err, TRI_PERMISSION, "endpoint", "%s belongs to somebody else: %s", path, strerror(e));
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
  tri_status st = ipc_clear_stale(path, &addr, err);
  if (st) return st;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  struct stat sb;
  /* Linux gives the file the mode of the socket's inode, so it is never wider than this; umask would change it for all
   * threads. */
  if (fd < 0 || fchmod(fd, 0600) || bind(fd, (struct sockaddr *)&addr, sizeof addr) || lstat(path, &sb)) {
    st = tri_fail(err, TRI_IO, "endpoint", "cannot bind %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return st;
  }
  memcpy(s->path, path, len + 1);
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
  if (s->path[0] && !lstat(s->path, &sb) && sb.st_dev == s->dev && sb.st_ino == s->ino) unlink(s->path);
  if (s->listen_fd >= 0) close(s->listen_fd);
  s->listen_fd = -1;
}

/* As people write it: of an address of IPv4 the library makes tcp://[::ffff:1.2.3.4]:5. */
static void unmap_ipv4(char *endpoint) {
  static const char mapped[] = "tcp://[::ffff:";
  char *from = endpoint + sizeof mapped - 1, *to = endpoint + strlen("tcp://");
  if (!starts_with(endpoint, mapped)) return;
  size_t len = strcspn(from, "]");
  if (from[len] != ']' || !memchr(from, '.', len)) return;
  memmove(to, from, len);
  memmove(to + len, from + len + 1, strlen(from + len));
}

/* Makes the ROUTER and binds it to s->endpoint. */
static tri_status server_start(tri_zserver *s, tri_error *err) {
  int fd = -1, on = 1, rc = -1;
  void *k = zmq_socket(s->z->ctx, ZMQ_ROUTER);
  /* No lingering while it serves: the queue of a client that has gone would keep its place in the table, and look full
   * instead of gone. */
  bool ok = k && set_common(k, s->max_message, s->backlog) && set_int(k, ZMQ_LINGER, 0) &&
            set_int(k, ZMQ_ROUTER_MANDATORY, 1) && set_int(k, ZMQ_BACKLOG, LISTEN_BACKLOG) &&
            (!s->is_tcp || set_heartbeat(k));
  if (ok && s->has_curve)
    ok = !zmq_setsockopt(k, ZMQ_CURVE_SERVER, &on, sizeof on) &&
         !zmq_setsockopt(k, ZMQ_CURVE_SECRETKEY, s->curve.secret_key, TRI_Z_KEY) &&
         !zmq_setsockopt(k, ZMQ_ZAP_DOMAIN, s->domain->name, strlen(s->domain->name));
  if (ok && s->listen_fd >= 0) {
    fd = fcntl(s->listen_fd, F_DUPFD_CLOEXEC, 0);
    ok = fd >= 0 && set_int(k, ZMQ_USE_FD, fd);
  }
  for (int i = 0; ok && i < REBIND_TRIES; i++) { /* libzmq closes the old listener of a rebind in a thread of its own */
    rc = zmq_bind(k, s->endpoint);
    if (!rc || zmq_errno() != EADDRINUSE || !s->socket) break;
    pause_ms(10);
  }
  size_t size = sizeof s->endpoint;
  if (rc == 0 && s->is_tcp) ok = !zmq_getsockopt(k, ZMQ_LAST_ENDPOINT, s->endpoint, &size);
  unmap_ipv4(s->endpoint);
  if (ok && rc == 0) {
    s->socket = k;
    return TRI_OK;
  }
  int e = zmq_errno();
  if (fd >= 0 && rc != 0) close(fd);
  if (k) zmq_close(k);
  return tri_fail(err, e == EINVAL ? TRI_USAGE : TRI_IO, "endpoint", "cannot bind %s: %s", s->endpoint,
                  zmq_strerror(e));
}

static tri_status server_check(const tri_zserver_config *c, tri_error *err) {
  if (strlen(c->endpoint) >= ENDPOINT_BYTES)
    return tri_fail(err, TRI_USAGE, "endpoint", "longer than %d bytes", ENDPOINT_BYTES - 1);
  bool tcp = starts_with(c->endpoint, "tcp://");
  if (!tcp && !starts_with(c->endpoint, "ipc://"))
    return tri_fail(err, TRI_USAGE, "endpoint", "%s starts with neither ipc:// nor tcp://", c->endpoint);
  if (tcp && !c->curve && !c->insecure_tcp)
    return tri_fail(err, TRI_USAGE, "endpoint", "%s without CURVE keys would let anybody in", c->endpoint);
  return TRI_OK;
}

tri_status tri_zserver_open(tri_zcontext *z, const tri_zserver_config *config, tri_zserver **out, tri_error *err) {
  tri_status st = server_check(config, err);
  if (st) return st;
  tri_zserver *s = tri_calloc(1, sizeof *s);
  if (!s) return TRI_NO_MEMORY;
  s->z = z;
  s->listen_fd = -1;
  s->max_message = config->max_message;
  s->backlog = config->backlog > 0 ? config->backlog : 1000;
  s->is_tcp = starts_with(config->endpoint, "tcp://");
  snprintf(s->endpoint, sizeof s->endpoint, "%s", config->endpoint);
  zmq_msg_init(&s->msg);
  if (config->curve) {
    s->curve = *config->curve;
    s->has_curve = true;
    TRI_TRY(domain_make(z, config->allowed, config->allowed ? config->num_allowed : 0, &s->domain, err));
  }
  if (!s->is_tcp) TRI_TRY(ipc_listen(s, s->endpoint + strlen("ipc://"), err));
  TRI_TRY(server_start(s, err));
  pthread_mutex_lock(&z->lock);
  s->next = z->servers;
  z->servers = s;
  pthread_mutex_unlock(&z->lock);
  *out = s;
  s = NULL;
cleanup:
  tri_zserver_close(s);
  return st;
}

const char *tri_zserver_endpoint(const tri_zserver *s) { return s->endpoint; }

int tri_zserver_fd(const tri_zserver *s) {
  int fd = -1;
  size_t size = sizeof fd;
  return s->socket && !zmq_getsockopt(s->socket, ZMQ_FD, &fd, &size) ? fd : -1;
}

static tri_status recv_status(void) {
  int e = zmq_errno();
  return e == EAGAIN || e == EINTR ? TRI_AGAIN : e == ETERM || e == ENOTSOCK ? TRI_CLOSED : TRI_IO;
}

/* Reads and drops the rest of a message; returns how many frames that were. */
static int discard_rest(void *socket, const zmq_msg_t *last) {
  int n = 0, more = zmq_msg_more(last);
  zmq_msg_t rest;
  zmq_msg_init(&rest);
  while (more &&
         zmq_msg_recv(&rest, socket, ZMQ_DONTWAIT) >= 0) { /* the parts of a message become readable all at once */
    more = zmq_msg_more(&rest);
    n++;
  }
  zmq_msg_close(&rest);
  return n;
}

tri_status tri_zserver_recv(tri_zserver *s, tri_zpeer *from, const void **data, size_t *len, int *frames) {
  if (!s->socket) return TRI_CLOSED;
  for (int i = 0; i < DISCARDS_PER_CALL; i++) {
    if (zmq_msg_recv(&s->msg, s->socket, ZMQ_DONTWAIT) < 0) return recv_status();
    size_t id = zmq_msg_size(&s->msg);
    /* A peer may give itself a name of up to 255 bytes; ours do not, and such a name has no room in a tri_zpeer. */
    if (id > sizeof from->bytes || !zmq_msg_more(&s->msg)) {
      discard_rest(s->socket, &s->msg);
      continue;
    }
    from->len = (uint8_t)id;
    memcpy(from->bytes, zmq_msg_data(&s->msg), id);
    if (zmq_msg_recv(&s->msg, s->socket, ZMQ_DONTWAIT) < 0) return recv_status();
    int n = 1 + discard_rest(s->socket, &s->msg);
    *data = zmq_msg_data(&s->msg);
    *len = zmq_msg_size(&s->msg);
    if (frames) *frames = n;
    return TRI_OK;
  }
  return TRI_AGAIN;
}

const char *tri_zserver_sender_key(tri_zserver *s) {
  const char *user = s->has_curve ? zmq_msg_gets(&s->msg, "User-Id") : NULL;
  return user ? user : "";
}

static tri_status send_address(tri_zserver *s, const tri_zpeer *to) {
  if (!s->socket) return TRI_CLOSED;
  if (zmq_send(s->socket, to->bytes, to->len, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0) return TRI_OK;
  return zmq_errno() == EHOSTUNREACH ? TRI_CLOSED : recv_status();
}

tri_status tri_zserver_send(tri_zserver *s, const tri_zpeer *to, const void *data, size_t len) {
  tri_zserver_flush(s);
  tri_status st = send_address(s, to);
  if (st) return st;
  return zmq_send(s->socket, data, len, ZMQ_DONTWAIT) < 0 ? recv_status() : TRI_OK;
}

tri_status tri_zserver_queue(tri_zserver *s, const tri_zpeer *to, const void *data, size_t len) {
  bool same = s->has_frame && s->frame_to.len == to->len && !memcmp(s->frame_to.bytes, to->bytes, to->len);
  if (!same || len > FRAME_BYTES - s->frame_len) tri_zserver_flush(s);
  if (len > FRAME_BYTES) return tri_zserver_send(s, to, data, len);
  if (!s->has_frame) {
    /* Ahead of its frame, the address tells whether the peer is there and has room: each message's sender learns it. */
    tri_status st = send_address(s, to);
    if (st) return st;
    s->has_frame = true;
    s->frame_to = *to;
    s->frame_len = 0;
  }
  memcpy(s->frame + s->frame_len, data, len);
  s->frame_len += len;
  return TRI_OK;
}

void tri_zserver_flush(tri_zserver *s) {
  if (!s->has_frame) return;
  s->has_frame = false;
  zmq_send(s->socket, s->frame, s->frame_len, ZMQ_DONTWAIT); /* fails only with the library itself */
}

tri_status tri_zserver_rebind(tri_zserver *s, tri_error *err) {
  void *old = s->socket;
  s->has_frame = false;
  zmq_msg_close(&s->msg);
  zmq_msg_init(&s->msg);
  if (old) {
    set_int(old, ZMQ_LINGER, 0);
    zmq_close(old);
  }
  tri_status st = server_start(s, err);
  if (st) s->socket = NULL;
  return st;
}

void tri_zserver_close(tri_zserver *s) {
  if (!s) return;
  tri_zcontext *z = s->z;
  pthread_mutex_lock(&z->lock);
  for (tri_zserver **p = &z->servers; *p; p = &(*p)->next)
    if (*p == s) {
      *p = s->next;
      break;
    }
  pthread_mutex_unlock(&z->lock);
  tri_zserver_flush(s);
  zmq_msg_close(&s->msg);
  if (s->socket) {
    set_int(s->socket, ZMQ_LINGER, LINGER_MS); /* last words may still go out */
    zmq_close(s->socket);
  }
  ipc_unlisten(s);
  domain_free(z, s->domain);
  explicit_bzero(&s->curve, sizeof s->curve);
  tri_free(s);
}

/* ---- link ---- */

static bool link_set_curve(void *k, const tri_zlink_config *c) {
  return !zmq_setsockopt(k, ZMQ_CURVE_SERVERKEY, c->server_key, TRI_Z_KEY) &&
         !zmq_setsockopt(k, ZMQ_CURVE_PUBLICKEY, c->own->public_key, TRI_Z_KEY) &&
         !zmq_setsockopt(k, ZMQ_CURVE_SECRETKEY, c->own->secret_key, TRI_Z_KEY);
}

/* What libzmq's threads find out about the connection, told on a pair of inproc sockets. */
static bool link_watch(tri_zlink *l) {
  char address[40];
  pthread_mutex_lock(&l->z->lock);
  snprintf(address, sizeof address, "inproc://link-%u", l->z->next_number++);
  pthread_mutex_unlock(&l->z->lock);
  int events = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
               ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
  if (zmq_socket_monitor(l->socket, address, events)) return false;
  l->monitor = zmq_socket(l->z->ctx, ZMQ_PAIR);
  return l->monitor && set_int(l->monitor, ZMQ_LINGER, 0) && !zmq_connect(l->monitor, address);
}

static void link_drain_monitor(tri_zlink *l) {
  struct __attribute__((packed)) {
    uint16_t event;
    uint32_t value;
  } m;
  char address[ENDPOINT_BYTES];
  while (l->monitor && zmq_recv(l->monitor, &m, sizeof m, ZMQ_DONTWAIT) == (int)sizeof m) {
    zmq_recv(l->monitor, address, sizeof address, ZMQ_DONTWAIT);
    switch (m.event) {
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED: l->state = TRI_ZLINK_UP, l->cut = 0; break;
    /* A server that lets nobody in ends handshakes without a word, but so does one that binds anew. */
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
      if (++l->cut >= REFUSED_AFTER) l->state = TRI_ZLINK_REFUSED;
      break;
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL: l->state = TRI_ZLINK_REFUSED; break;
    default: /* DISCONNECTED; one that follows a refusal or comes before a handshake says nothing new */
      if (l->state == TRI_ZLINK_UP) {
        l->state = TRI_ZLINK_LOST;
        l->losses++;
      }
    }
  }
}

tri_status tri_zlink_open(tri_zcontext *z, const tri_zlink_config *config, tri_zlink **out, tri_error *err) {
  tri_status st = TRI_OK;
  tri_zlink *l = NULL;
  if (!starts_with(config->endpoint, "tcp://") && !starts_with(config->endpoint, "ipc://"))
    return tri_fail(err, TRI_INVALID_ARGUMENT, "endpoint", "%s starts with neither ipc:// nor tcp://",
                    config->endpoint);
  if (!config->own != !config->server_key)
    return tri_fail(err, TRI_INVALID_ARGUMENT, config->own ? "server-key" : "key-file",
                    "CURVE needs both a key pair of one's own and the server's public key");
  if (config->server_key) TRI_TRY(tri_zkey_check(config->server_key, "server-key", err));
  l = tri_calloc(1, sizeof *l);
  if (!l) return TRI_NO_MEMORY;
  l->z = z;
  zmq_msg_init(&l->msg);
  l->socket = zmq_socket(z->ctx, ZMQ_DEALER);
  int immediate = config->refuse_unconnected ? 1 : 0;
  bool ok = l->socket && set_common(l->socket, config->max_message, config->backlog > 0 ? config->backlog : 1000) &&
            set_int(l->socket, ZMQ_IMMEDIATE, immediate) && set_int(l->socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) &&
            set_int(l->socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS) &&
            (!config->own || link_set_curve(l->socket, config)) &&
            (!starts_with(config->endpoint, "tcp://") || set_heartbeat(l->socket)) && link_watch(l) &&
            !zmq_connect(l->socket, config->endpoint);
  if (!ok) {
    st = tri_fail(err, TRI_IO, "endpoint", "cannot use %s: %s", config->endpoint, zmq_strerror(zmq_errno()));
    goto cleanup;
  }
  pthread_mutex_lock(&z->lock);
  l->next = z->links;
  z->links = l;
  pthread_mutex_unlock(&z->lock);
  *out = l;
  l = NULL;
cleanup:
  tri_zlink_close(l);
  return st;
}

tri_status tri_zlink_recv(tri_zlink *l, const void **data, size_t *len) {
  for (int i = 0; i < DISCARDS_PER_CALL; i++) {
    if (zmq_msg_recv(&l->msg, l->socket, ZMQ_DONTWAIT) < 0) return recv_status();
    if (discard_rest(l->socket, &l->msg)) continue; /* a server of ours sends single frames */
    *data = zmq_msg_data(&l->msg);
    *len = zmq_msg_size(&l->msg);
    return TRI_OK;
  }
  return TRI_AGAIN;
}

tri_status tri_zlink_send(tri_zlink *l, const void *data, size_t len) {
  return zmq_send(l->socket, data, len, ZMQ_DONTWAIT) < 0 ? recv_status() : TRI_OK;
}

tri_status tri_zlink_send_wait(tri_zlink *l, const void *data, size_t len, int timeout_ms) {
  zmq_pollitem_t item[2] = {{.socket = l->socket, .events = ZMQ_POLLOUT}, {.socket = l->monitor, .events = ZMQ_POLLIN}};
  int64_t now = now_ms(), end = now + timeout_ms;
  for (;;) {
    tri_status st = tri_zlink_send(l, data, len);
    if (st != TRI_AGAIN) return st;
    link_drain_monitor(l);
    if (l->state == TRI_ZLINK_REFUSED) return TRI_PERMISSION;
    if (timeout_ms >= 0 && now >= end) return TRI_TIMEOUT;
    if (zmq_poll(item, 2, timeout_ms < 0 ? -1 : (long)(end - now)) < 0 && zmq_errno() == EINTR) return TRI_ABORTED;
    now = now_ms();
  }
}

tri_zlink_state tri_zlink_look(tri_zlink *l, unsigned *losses) {
  link_drain_monitor(l);
  if (losses) *losses = l->losses;
  return l->state;
}

void tri_zlink_close(tri_zlink *l) {
  if (!l) return;
  tri_zcontext *z = l->z;
  pthread_mutex_lock(&z->lock);
  for (tri_zlink **p = &z->links; *p; p = &(*p)->next)
    if (*p == l) {
      *p = l->next;
      break;
    }
  pthread_mutex_unlock(&z->lock);
  zmq_msg_close(&l->msg);
  if (l->socket && l->monitor) zmq_socket_monitor(l->socket, NULL, 0);
  if (l->monitor) zmq_close(l->monitor);
  if (l->socket) zmq_close(l->socket);
  tri_free(l);
}

/* ---- waiting ---- */

/* What zmq_poll does, with half of its system calls: those are most of what a message costs. A socket's file descriptor
 * tells only that the library's thread has sent news since this side last took them in, which sending does as well;
 * ZMQ_EVENTS takes them in and tells whether there is a message. A monitor is never sent to, and read until it is
 * empty, so that its descriptor is enough. */
struct wait_set {
  struct pollfd fds[MAX_POLL];
  void *sockets[MAX_POLL]; /* NULL: a file descriptor of the caller's */
  int owner[MAX_POLL], count;
};

static bool wait_add(struct wait_set *w, int owner, void *socket, int fd) {
  size_t size = sizeof fd;
  if (w->count == MAX_POLL || (socket && zmq_getsockopt(socket, ZMQ_FD, &fd, &size))) return false;
  w->owner[w->count] = owner;
  w->sockets[w->count] = socket;
  w->fds[w->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
  return true;
}

static bool has_message(void *socket) {
  int events = 0;
  size_t size = sizeof events;
  return !zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) && (events & ZMQ_POLLIN);
}

tri_status tri_zlink_fds(const tri_zlink *l, int fds[2]) {
  size_t size = sizeof *fds;
  if (!l->socket || zmq_getsockopt(l->socket, ZMQ_FD, &fds[0], &size)) return TRI_CLOSED;
  size = sizeof *fds;
  return zmq_getsockopt(l->monitor, ZMQ_FD, &fds[1], &size) ? TRI_CLOSED : TRI_OK;
}

bool tri_zlink_has_news(tri_zlink *l) {
  link_drain_monitor(l);
  return l->socket && has_message(l->socket);
}

static int mark(tri_zpoll *item) {
  int fresh = !item->ready;
  item->ready = true;
  return fresh;
}

/* After poll: how many items have become ready. */
static int wait_look(const struct wait_set *w, tri_zpoll *items) {
  int found = 0;
  for (int i = 0; i < w->count; i++) {
    tri_zpoll *item = &items[w->owner[i]];
    if (!w->fds[i].revents) continue;
    bool is_monitor = item->link && w->sockets[i] == item->link->monitor;
    if (is_monitor) link_drain_monitor(item->link);
    if (!w->sockets[i] || is_monitor || has_message(w->sockets[i])) found += mark(item);
  }
  return found;
}

tri_status tri_zpoll_wait(tri_zpoll *items, int n, int timeout_ms, int *ready) {
  struct wait_set w = {.count = 0};
  int found = 0;
  if (ready) *ready = 0;
  for (int i = 0; i < n; i++) {
    tri_zpoll *item = &items[i];
    void *socket = item->server ? item->server->socket : item->link ? item->link->socket : NULL;
    bool ok = true;
    item->ready = false;
    if (socket) ok = wait_add(&w, i, socket, -1);
    if (item->link && !item->server) ok = ok && wait_add(&w, i, item->link->monitor, -1);
    if (!item->server && !item->link && item->fd >= 0) ok = wait_add(&w, i, NULL, item->fd);
    if (!ok) return w.count == MAX_POLL ? TRI_INVALID_ARGUMENT : TRI_CLOSED;
    if (socket && has_message(socket)) found += mark(item);
  }
  int64_t end = timeout_ms > 0 ? now_ms() + timeout_ms : 0;
  for (int left = timeout_ms;;) {
    int rc = poll(w.fds, (nfds_t)w.count, found ? 0 : left);
    if (rc < 0 && errno != EINTR) return TRI_IO;
    if (rc > 0) found += wait_look(&w, items);
    if (rc <= 0 || found || timeout_ms == 0) break;
    if (timeout_ms > 0 && (left = (int)(end - now_ms())) < 0) left = 0; /* news, but no message yet */
  }
  if (ready) *ready = found;
  return TRI_OK;
}
