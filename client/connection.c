/* SPDX-License-Identifier: Apache-2.0 */
/* A connection: how it begins, and what goes over it.
 *
 * Sending: the message is packed into c->buf. Without kept requests it is sent, for as long as the deadline allows.
 * With them it is kept first; it is sent at once only while the connection is up and nothing older waits, so that
 * requests arrive in the order of the calls.
 * Receiving: a frame holds one message or several. c->rest points into the link's memory of the last frame, and each
 * message is unpacked from there in turn, valid until the next one is. A frame must be used up before the next is
 * taken. The end: a connection may be lost with frames still unread. The loss is noted, one more read is tried, and
 * only when that finds nothing the end counts: all that a coordinator sent before it reaches the program. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "client/internal.h"
#include "base/mem.h"
#include "base/wait.h"

enum {
  SOCKET_POLL_MS = 10,
  AGAIN_MS = 50,
};

void trireme_config_init_sized(trireme_config *config, size_t size) {
  const trireme_config defaults = {.connect_timeout_ms = TRIREME_CONNECT_TIMEOUT_MS,
                                   .reconnect_timeout_ms = TRIREME_RECONNECT_TIMEOUT_MS};
  tri_client_init_struct(config, size, &defaults, sizeof defaults);
}

/* A coordinator without files, or to which too many come at once, takes a connection and closes it. So does one, as
 * seen from here, that wants keys over a socket file, or other keys. */
static trireme_result cut_off(const trireme *c, trireme_error *error) {
  return tri_client_say(error, TRIREME_REFUSED, TRI_PERMISSION, NULL,
                        "the coordinator at %s closes each connection at once: it has no files left for more, or too "
                        "many come (its log says which), or %s",
                        c->endpoint,
                        c->has_keys ? "--server-key is not its public key, or it uses no keys"
                                    : "it wants keys: --key-file, made by trireme keygen, and --server-key");
}

/* Says why there is no connection, as closely as can be told from here: a socket of another user, keys that are missing
 * or wrong, a coordinator that is full, or one that has gone. */
static trireme_result lost(trireme *c, trireme_error *error) {
  bool refused = c->link && tri_zlink_look(c->link, NULL) == TRI_ZLINK_REFUSED;
  unsigned long uid;
  if (refused && tri_zlink_is_foreign(c->link, &uid))
    return tri_client_say(
        error, TRIREME_REFUSED, TRI_PERMISSION, "endpoint",
        "user %lu listens at %s, and nothing was sent there: only sockets of this user, of root, and of the "
        "owner of a folder that no other user may write to are trusted",
        uid, c->endpoint);
  if (refused && tri_zlink_was_cut(c->link)) return cut_off(c, error);
  if (refused && !c->has_keys)
    return tri_client_say(error, TRIREME_REFUSED, TRI_PERMISSION, "key-file",
                          "the coordinator at %s wants keys: --key-file, made by trireme keygen, and --server-key",
                          c->endpoint);
  if (refused)
    return tri_client_say(error, TRIREME_REFUSED, TRI_PERMISSION, NULL,
                          "the coordinator at %s does not let this key in, or --server-key is not its public key, or "
                          "it uses no keys",
                          c->endpoint);
  if (c->kept)
    return tri_client_say(error, TRIREME_CLOSED, TRI_CLOSED, NULL,
                          "the connection to %s was lost, and there was no other for %g s", c->endpoint,
                          (double)c->reconnect_ms / 1000);
  return tri_client_say(error, TRIREME_CLOSED, TRI_CLOSED, NULL, "the connection to %s was lost", c->endpoint);
}

static int ms_until(int64_t deadline_ns) {
  int64_t left = deadline_ns - tri_now_ns();
  return left > 0 ? (int)((left + 999999) / 1000000) : 0;
}

/* Sends c->buf, and waits for room until the deadline. TRIREME_TIMEOUT: nothing of it was sent. */
static trireme_result send_buf(trireme *c, int64_t deadline_ns, trireme_error *error) {
  tri_status st = tri_zlink_send(c->link, c->buf.data, c->buf.len);
  if (st == TRI_AGAIN) st = tri_zlink_send_wait(c->link, c->buf.data, c->buf.len, ms_until(deadline_ns));
  switch (st) {
  case TRI_OK: return TRIREME_OK;
  case TRI_CLOSED:
  case TRI_PERMISSION: return lost(c, error);
  case TRI_TIMEOUT:
    return tri_client_say(error, TRIREME_TIMEOUT, TRI_TIMEOUT, "endpoint", "no request was taken at %s within %d ms",
                          c->endpoint, c->send_ms);
  default: return tri_client_fail_status(error, st, &(tri_error){.status = st});
  }
}

trireme_result tri_client_send(trireme *c, int64_t deadline_ns, trireme_error *error) {
  const void *first;
  size_t len;
  if (c->max_message && c->buf.len > c->max_message)
    return tri_client_say(error, TRIREME_INVALID, TRI_TOO_LARGE, NULL,
                          "the request has %zu bytes; the coordinator takes %llu", c->buf.len,
                          (unsigned long long)c->max_message);
  if (!c->kept) return send_buf(c, deadline_ns, error);
  if (c->over) return lost(c, error);
  bool in_turn = c->phase == CLIENT_UP && !c->leaving && !tri_kept_next(c->kept, &first, &len);
  tri_status st = tri_kept_add(c->kept, c->out, c->buf.data, c->buf.len);
  if (st != TRI_OK) return tri_client_fail_status(error, st, &(tri_error){.status = st});
  if (!in_turn) return TRIREME_OK;
  trireme_result r = send_buf(c, deadline_ns, error);
  if (r == TRIREME_CLOSED || r == TRIREME_REFUSED) return TRIREME_OK; /* the next connection gets it */
  if (r)
    tri_kept_forget(c->kept, c->out->id);
  else
    tri_kept_sent(c->kept);
  return r;
}

/* ---- receiving ---- */

/* The next message of the frame at hand, into c->msg. Without memory it stays there for the next call. */
static trireme_result decode_next(trireme *c, trireme_error *error) {
  tri_error err = {0};
  const char *at = c->rest;
  size_t used = c->rest_len; /* where a message has no end, nothing after it can be found */
  tri_status st = tri_wire_first(at, c->rest_len, &used, &err);
  tri_arena_reset(c->arena);
  if (st == TRI_OK) st = tri_server_msg_unpack(at, used, c->arena, c->msg, &err);
  if (st != TRI_NO_MEMORY) {
    c->rest += used;
    c->rest_len -= used;
  }
  if (st == TRI_OK) return TRIREME_OK;
  return tri_client_fail(error, st == TRI_NO_MEMORY ? TRIREME_NO_MEMORY : TRIREME_PROTOCOL, &err);
}

/* A cancel that finds no room is left out: the job runs to its end unread. */
static void cancel(trireme *c, uint64_t target) {
  *c->out = (tri_client_msg){.op = TRI_OP_CANCEL, .id = c->next_id++, .cancel = {.target = target, .has_target = true}};
  if (tri_client_msg_pack(c->out, &c->buf) == TRI_OK) tri_zlink_send(c->link, c->buf.data, c->buf.len);
}

/* Returns whether the message is one for the program. */
static bool is_given(trireme *c) {
  if (!c->kept) return true;
  switch (tri_kept_take(c->kept, c->arena, c->msg)) {
  case KEPT_GIVE: return true;
  case KEPT_GIVE_AND_CANCEL: cancel(c, c->msg->id); return true;
  case KEPT_DROP: return false;
  case KEPT_LEAVING: tri_client_leaves(c); return false;
  }
  return false;
}

static void take_end(trireme *c) {
  if (c->kept)
    tri_client_lost(c);
  else
    c->over = true;
}

/* Takes a frame, or the end of the connection, where one is there. *again: there may be more. */
static tri_status take_frame(trireme *c, bool *ended, bool *again) {
  const void *data;
  tri_status st = tri_zlink_recv(c->link, &data, &c->rest_len);
  *again = true;
  if (st == TRI_OK) {
    c->rest = data;
    return TRI_OK; /* a frame without messages was to find out whether this client is there */
  }
  if (st != TRI_AGAIN) return st;
  if (*ended) {
    *ended = false;
    take_end(c);
    return TRI_OK;
  }
  *ended = *again = tri_zlink_look(c->link, NULL) >= TRI_ZLINK_LOST; /* what came before may have come meanwhile */
  return TRI_OK;
}

/* Waits until something comes, or is to be done. */
static trireme_result await_news(trireme *c, int64_t deadline_ns, trireme_error *error) {
  int64_t until = tri_client_next_ns(c);
  if (deadline_ns < until) until = deadline_ns;
  if (deadline_ns != TRI_NEVER && !ms_until(deadline_ns))
    return tri_client_say(error, TRIREME_TIMEOUT, TRI_TIMEOUT, NULL, "nothing came in time");
  tri_zpoll item = {.link = c->link, .fd = -1};
  int ready = 0;
  tri_status st = tri_zpoll_wait(&item, 1, until == TRI_NEVER ? -1 : ms_until(until), &ready);
  if (st != TRI_OK) return tri_client_fail_status(error, st, &(tri_error){.status = st});
  if (ready || (until != TRI_NEVER && tri_now_ns() >= until)) return TRIREME_OK;
  return tri_client_say(error, TRIREME_INTERRUPTED, TRI_ABORTED, NULL, "interrupted by a signal");
}

/* The order is fixed: requests that this library has ended itself, messages of the frame at hand, the end, then new
 * frames. Each round does what is due first (tri_client_turn), so that a wait is never for longer than that. */
trireme_result tri_client_receive(trireme *c, int64_t deadline_ns, trireme_error *error) {
  for (bool ended = false, again;;) {
    tri_client_turn(c);
    if (c->kept && tri_kept_take_ended(c->kept, c->msg)) return TRIREME_OK;
    if (c->rest_len) {
      trireme_result r = decode_next(c, error);
      if (r || is_given(c)) return r;
      continue;
    }
    if (c->over) return lost(c, error);
    again = false;
    tri_status st = c->phase == CLIENT_UP ? take_frame(c, &ended, &again) : TRI_OK;
    if (st != TRI_OK) return tri_client_fail_status(error, st, &(tri_error){.status = st});
    if (again) continue;
    trireme_result r = await_news(c, deadline_ns, error);
    if (r) return r;
  }
}

/* ---- connecting ---- */

/* Sends the hello and waits for its answer, which has the limits of this coordinator. Nothing is kept yet, so a loss
 * here is an error of the call. */
static trireme_result say_hello(trireme *c, int64_t deadline, trireme_error *error) {
  tri_status st = tri_client_pack_hello(c);
  if (st == TRI_NO_MEMORY) return tri_client_fail_status(error, st, &(tri_error){.status = st});
  if (st != TRI_OK) return tri_client_say(error, TRIREME_INVALID, TRI_TOO_LARGE, "client_name", "the name is too long");
  trireme_result r = send_buf(c, deadline, error);
  if (!r) r = tri_client_receive(c, deadline, error);
  if (r == TRIREME_TIMEOUT)
    return tri_client_say(
        error, r, TRI_TIMEOUT, "endpoint", "no coordinator answers at %s within %d ms%s", c->endpoint, c->timeout_ms,
        !c->has_keys && !strncmp(c->endpoint, "tcp:", 4) ? "; one that wants keys needs --key-file and --server-key"
                                                         : "");
  if (r) return r;
  if (c->msg->op == TRI_REPLY_ERROR) {
    tri_client_say(error, TRIREME_REFUSED, TRI_PERMISSION, NULL, "%.*s", (int)c->msg->error.message.len,
                   c->msg->error.message.s ? c->msg->error.message.s : "");
    return TRIREME_REFUSED;
  }
  if (c->msg->op != TRI_REPLY_HELLO)
    return tri_client_say(error, TRIREME_PROTOCOL, TRI_CORRUPT, NULL, "%s does not answer like a coordinator",
                          c->endpoint);
  tri_client_take_hello(c);
  return TRIREME_OK;
}

/* A coordinator that starts at the same time as this client may have no socket file yet: that is waited for as an
 * answer would be.
 */
static tri_status await_socket(const char *endpoint, int timeout_ms, int64_t deadline, tri_error *err) {
  struct stat sb;
  const char *path = endpoint + strlen("ipc://");
  if (strncmp(endpoint, "ipc://", strlen("ipc://"))) return TRI_OK;
  while (lstat(path, &sb) && errno == ENOENT) {
    if (tri_now_ns() >= deadline)
      return tri_fail(err, TRI_NOT_FOUND, "endpoint",
                      "no coordinator runs here: there was no socket %s for %d ms; `trireme serve DIR` starts one with "
                      "an HTTP API, `trireme up --model DIR` one without",
                      path, timeout_ms);
    if (nanosleep(&(struct timespec){.tv_nsec = SOCKET_POLL_MS * 1000000L}, NULL))
      return tri_fail(err, TRI_ABORTED, NULL, "interrupted by a signal");
  }
  return TRI_OK;
}

/* Makes the first connection. One that ends before its hello, as where the coordinator binds anew, is made again.
 */
static trireme_result reach(trireme *c, int64_t deadline, trireme_error *error) {
  for (;;) {
    tri_error err = {0};
    tri_status st = tri_client_open_link(c, &err);
    trireme_result r = st != TRI_OK ? tri_client_fail_status(error, st, &err) : say_hello(c, deadline, error);
    bool again = r == TRIREME_CLOSED && c->reconnect_ms && tri_now_ns() < deadline;
    if (!again || nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000L}, NULL)) return r;
    tri_zlink_close(c->link);
    c->link = NULL;
    c->rest_len = 0;
    c->over = false;
  }
}

static tri_status take_config(trireme *c, const trireme_config *config, tri_error *err) {
  const char *name = config->client_name ? config->client_name : "libtrireme";
  TRI_CHECK(tri_endpoint_resolve(config->endpoint, c->endpoint, err));
  TRI_CHECK(tri_endpoint_check(c->endpoint, err));
  if ((size_t)snprintf(c->name, sizeof c->name, "%s", name) >= sizeof c->name)
    return tri_fail(err, TRI_TOO_LARGE, "client_name", "the name is too long");
  c->has_keys = config->key_file != NULL;
  if (config->key_file) TRI_CHECK(tri_zkeypair_load(config->key_file, &c->own, err));
  if (config->server_key) TRI_CHECK(tri_zkey_check(config->server_key, "server-key", err));
  if (config->server_key) memcpy(c->server_key, config->server_key, sizeof c->server_key);
  return TRI_OK;
}

trireme_result trireme_connect(const trireme_config *given, trireme **out, trireme_error *error) {
  tri_error err = {0};
  tri_status st = TRI_OK;
  trireme_config config = {0}; /* a program of an older header knows of no second connection, and gets none */
  trireme_result r = tri_client_take_struct(&config, sizeof config, given, "trireme_config", error);
  if (r) return r;
  trireme *c = tri_calloc(1, sizeof *c);
  if (!c) return TRIREME_NO_MEMORY;
  c->next_id = 1;
  c->fd = c->ready_fd = c->timer_fd = -1;
  c->timeout_ms = config.connect_timeout_ms > 0 ? config.connect_timeout_ms : TRIREME_CONNECT_TIMEOUT_MS;
  c->send_ms = config.send_timeout_ms ? config.send_timeout_ms : c->timeout_ms;
  if (c->send_ms < 0) c->send_ms = 0;
  c->reconnect_ms = config.reconnect_timeout_ms > 0 ? config.reconnect_timeout_ms : 0;
  c->next_ns = TRI_NEVER;
  int64_t deadline = tri_deadline_after_ms(c->timeout_ms);
  c->msg = tri_malloc(1, sizeof *c->msg);
  c->out = tri_malloc(1, sizeof *c->out);
  if (!c->msg || !c->out || tri_arena_create(4096, &c->arena)) st = TRI_NO_MEMORY;
  if (st == TRI_OK) st = take_config(c, &config, &err);
  if (st == TRI_OK) st = await_socket(c->endpoint, c->timeout_ms, deadline, &err);
  if (st == TRI_OK) st = tri_zcontext_create(&c->z, &err);
  r = st != TRI_OK ? tri_client_fail_status(error, st, &err) : reach(c, deadline, error);
  if (!r && c->reconnect_ms && tri_kept_create(c->reconnect_ms * 1000000, &c->kept) != TRI_OK)
    r = tri_client_say(error, TRIREME_NO_MEMORY, TRI_NO_MEMORY, NULL, "no memory for a connection");
  if (r) {
    trireme_close(c);
    return r;
  }
  *out = c;
  return TRIREME_OK;
}

void trireme_close(trireme *c) {
  if (!c) return;
  tri_client_close_fd(c);
  tri_zlink_close(c->link);
  tri_zcontext_destroy(c->z);
  tri_kept_destroy(c->kept);
  tri_arena_destroy(c->arena);
  tri_buf_free(&c->buf);
  explicit_bzero(&c->own, sizeof c->own);
  tri_free(c->msg);
  tri_free(c->out);
  tri_free(c);
}
