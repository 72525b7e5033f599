/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the HTTP gateway: a child like the coordinator, which is started when that listens, and again whenever it
 * ends. It writes a byte into a pipe as its loop turns, its pulse: a gateway that hangs would keep the port, so that
 * one without a pulse is killed. In a drain it ends first, since the coordinator has to serve its last answers. */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "comm/wire/endpoint.h"
#include "comm/wire/zsock.h"
#include "coordinator/up/up.h"
#include "base/log.h"
#include "base/wait.h"

/* Silence after which a gateway stands still: its loop shows a pulse five times a second, whatever clients send. Before
 * the first it reads the model's folder, however slow the disk is. One that is to end is given less. */
enum { HALF_SECOND_MS = 500, FIRST_SILENCE_MS = 60000, SILENCE_MS = 8000, LAST_SILENCE_MS = 3000, OWN_PAUSE_MS = 1000 };
/* A gateway whose supervisor was killed just now has its port for a moment more. */
enum { FREED_MS = 1000, LOOK_AGAIN_MS = 50 };

static tri_status add(tri_up *u, const char *name, const char *value, tri_error *err) {
  tri_up_gateway *g = &u->gateway;
  if (g->num_args == TRI_UP_MAX_GATEWAY_ARGS) return tri_fail(err, TRI_TOO_LARGE, "arguments", "too many arguments");
  g->args[g->num_args] = tri_up_argument(u, name, value);
  return g->args[g->num_args++] ? TRI_OK : TRI_NO_MEMORY;
}

/* With keys it is a client of the coordinator with the coordinator's own pair, which is let in. */
static tri_status add_keys(tri_up *u, tri_error *err) {
  const char *file = u->opts.serve.key_file;
  tri_zkeypair pair;
  if (!file) return TRI_OK;
  TRI_CHECK(tri_zkeypair_load(file, &pair, err));
  tri_status st = add(u, "key-file", file, err);
  return st != TRI_OK ? st : add(u, "server-key", pair.public_key, err);
}

tri_status tri_up_gateway_prepare(tri_up *u, const tri_options *opts, tri_error *err) {
  tri_gateway_place place;
  for (size_t i = 0; i < tri_gateway_option_count; i++) {
    const char *name = tri_gateway_option_table[i].name, *text = tri_options_text(opts, name);
    if (!strcmp(name, "http")) text = u->opts.gateway.listen; /* which --host and --port may have made */
    if (!text) continue;
    if (!u->opts.gateway.listen) return tri_fail(err, TRI_USAGE, name, "--%s belongs to --http", name);
    if (tri_gateway_option_table[i].type != TRI_OPT_LIST) TRI_CHECK(add(u, name, text, err));
  }
  const tri_opt_list *origins = &u->opts.gateway.cors_origins;
  for (size_t i = 0; i < origins->count; i++) TRI_CHECK(add(u, "cors-origin", origins->items[i], err));
  TRI_CHECK(tri_gateway_each_origin(&u->opts.gateway, NULL, NULL, err));
  if (!u->opts.gateway.listen) return TRI_OK;
  TRI_CHECK(tri_gateway_place_make(&u->opts.gateway, &place, err));
  TRI_CHECK(add(u, "model", u->opts.serve.model, err));
  return add_keys(u, err);
}

/* Listens there for a moment, as the gateway will; returns 0 or an errno. */
static int try_port(const struct sockaddr *address, socklen_t len) {
  int on = 1, failed = 0;
  int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, address, len) || listen(fd, 1)) failed = errno;
  close(fd);
  return failed;
}

tri_status tri_up_gateway_check_port(const tri_up *u, tri_error *err) {
  tri_gateway_place place;
  if (!u->opts.gateway.listen) return TRI_OK;
  TRI_CHECK(tri_gateway_place_make(&u->opts.gateway, &place, err));
  struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)place.port)};
  struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)place.port)};
  bool is_v4 = inet_pton(AF_INET, place.address, &v4.sin_addr) == 1;
  if (!place.port || (!is_v4 && inet_pton(AF_INET6, place.address, &v6.sin6_addr) != 1)) return TRI_OK;
  const struct sockaddr *address = is_v4 ? (const struct sockaddr *)&v4 : (const struct sockaddr *)&v6;
  int64_t until = tri_deadline_after_ms(FREED_MS);
  int failed = try_port(address, (socklen_t)(is_v4 ? sizeof v4 : sizeof v6));
  while (failed == EADDRINUSE && tri_now_ns() < until) {
    nanosleep(&(struct timespec){.tv_nsec = LOOK_AGAIN_MS * 1000000L}, NULL);
    failed = try_port(address, (socklen_t)(is_v4 ? sizeof v4 : sizeof v6));
  }
  if (!failed) return TRI_OK;
  return tri_fail(err, TRI_IO, "http", "cannot listen at %s port %d: %s%s", place.address, place.port, strerror(failed),
                  failed == EADDRINUSE ? "; --http [ADDR:]PORT, or --port of trireme serve, takes another one" : "");
}

/* Requests over HTTP are no reason for the end of a cluster, which others may ask in another way. */
static bool starts_again(tri_up *u, int status, bool soon, bool never) {
  tri_up_gateway *g = &u->gateway;
  if (!g->has_served) return tri_up_restart(&g->restarts, tri_now_ns(), u->opts.max_restarts, status, soon, never);
  tri_up_restart_served(&g->restarts, tri_now_ns(), status, soon);
  return true;
}

static void start(tri_up *u) {
  tri_error err = {0};
  tri_up_gateway *g = &u->gateway;
  tri_status st = tri_up_spawn_gateway(u, &err);
  if (st == TRI_OK) return;
  if (g->pulse_fd >= 0) close(g->pulse_fd);
  g->pulse_fd = -1;
  bool again = starts_again(u, tri_exit_code(st) << 8, true, false);
  if (again)
    tri_log(TRI_LOG_WARN, u->called, "%s: trying again", err.message);
  else
    tri_up_give_up(u, TRI_EXIT_FAILED, "%s", err.message);
}

void tri_up_gateway_begin(tri_up *u) {
  if (!u->opts.gateway.listen || u->stopping || u->draining || u->gateway.restarts.started_ns) return;
  tri_endpoint_reachable(u->endpoint, u->gateway.endpoint);
  start(u);
}

void tri_up_gateway_ended(tri_up *u, int status) {
  tri_up_gateway *g = &u->gateway;
  bool soon = tri_now_ns() - g->restarts.started_ns < TRI_UP_SOON_MS * 1000000LL;
  g->pid = 0;
  g->kill_ns = 0;
  if (g->pulse_fd >= 0) close(g->pulse_fd);
  g->pulse_fd = -1;
  if (u->draining || u->stopping) return;
  /* One that was killed may have served. */
  bool never = soon && WIFEXITED(status);
  int64_t now = tri_now_ns();
  char text[96];
  tri_up_end_text(status, text);
  if (starts_again(u, status, soon, never))
    tri_log(TRI_LOG_WARN, u->called, "the gateway %s, starting it again%s", text,
            g->restarts.restart_ns > now ? " after a pause" : "");
  else
    tri_up_give_up(u, tri_up_end_code(status), "the gateway %s%s", text,
                   never ? ", and it has never served for long" : "");
}

/* Before it shows its pulse for the first time, it may not catch the signal yet, and would die of it. */
void tri_up_gateway_reload(tri_up *u) {
  tri_up_gateway *g = &u->gateway;
  g->reload = g->pid > 0 && !g->has_begun;
  if (g->pid > 0 && g->has_begun) kill(g->pid, SIGHUP);
}

int64_t tri_up_gateway_drain_ms(const tri_up *u) {
  return (u->opts.gateway.drain_delay + u->opts.gateway.drain_timeout) * 1000;
}

void tri_up_gateway_pulse(tri_up *u) {
  char pulse[64];
  while (read(u->gateway.pulse_fd, pulse, sizeof pulse) == sizeof pulse) continue;
  u->gateway.pulse_ns = tri_now_ns();
  u->gateway.has_begun = u->gateway.has_served = true;
  if (u->gateway.reload) tri_up_gateway_reload(u);
}

static int64_t silence_ms(const tri_up_gateway *g) {
  if (g->kill_ns) return LAST_SILENCE_MS;
  return g->has_begun ? SILENCE_MS : FIRST_SILENCE_MS;
}

/* Has a gateway killed that stands still: nothing else would end its streams, or start another one. */
static void check_pulse(tri_up *u, int64_t now) {
  tri_up_gateway *g = &u->gateway;
  int64_t limit_ms = silence_ms(g), pause = now - g->looked_ns;
  g->looked_ns = now;
  if (pause > OWN_PAUSE_MS * 1000000LL) g->pulse_ns = now; /* this process stood still, too */
  if (g->pid <= 0 || now - g->pulse_ns < limit_ms * 1000000LL) return;
  tri_log(TRI_LOG_ERROR, u->called, "the gateway has been silent for %lld s: killing it", (long long)limit_ms / 1000);
  g->pulse_ns = now; /* and again, until it is gone */
  tri_up_kill(g->pid, &g->killed_ns);
}

void tri_up_gateway_check(tri_up *u, int64_t now) {
  tri_up_gateway *g = &u->gateway;
  check_pulse(u, now);
  if (g->pid > 0 && g->kill_ns && now > g->kill_ns) {
    tri_log(TRI_LOG_WARN, u->called, "the gateway has not ended in time: killing it");
    g->kill_ns = now + HALF_SECOND_MS * 1000000LL; /* and again, until it is gone */
    tri_up_kill(g->pid, &g->killed_ns);
  }
  bool is_due = !g->pid && g->restarts.restart_ns && now >= g->restarts.restart_ns;
  if (is_due && u->listening && !u->stopping && !u->draining) start(u);
}
