/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the replicas: each is started again when it ends. One that fails too often, or needs a host that has
 * failed, stays down for some minutes while others serve; where none is left that serves or may return soon,
 * everything ends. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/up/up.h"
#include "base/log.h"
#include "base/wait.h"

/* FAILED_STARTS: in a row, after which a host is avoided. LOST_GRACE_MS: for ranks of a lost replica to leave by
 * themselves. LAST_WORDS_MS: from a replica's end to judging it, in which its words may come by way of the coordinator.
 */
enum { FAILED_STARTS = 3, LOST_GRACE_MS = 500, LAST_WORDS_MS = 200 };
#define NS_PER_S 1000000000LL

tri_status tri_up_replicas_prepare(tri_up *u, tri_error *err) {
  size_t hosts = u->hosts.count > 0 ? (size_t)u->hosts.count : 1;
  u->held_hosts = tri_calloc(hosts, sizeof *u->held_hosts);
  return u->held_hosts ? TRI_OK : tri_fail(err, TRI_NO_MEMORY, "hosts", "no memory");
}

/* ---- hosts ---- */

static int host_of(const tri_up *u, int replica, int rank) {
  size_t world = (size_t)tri_serve_layout_world(&u->layout);
  return u->places ? u->places[(size_t)replica * world + (size_t)rank].host : 0;
}

static const char *host_name(const tri_up *u, int host) { return u->places ? u->hosts.list[host].name : "this host"; }

/* Returns the first host of a replica that is not to be used now; -1: there is none. */
static int held_host_of(const tri_up *u, int replica, int64_t now) {
  for (int r = 0; r < tri_serve_layout_world(&u->layout); r++) {
    int host = host_of(u, replica, r);
    if (u->held_hosts[host].until_ns > now) return host;
  }
  return -1;
}

static void quarantine(tri_up *u, int host, int64_t now, const char *why) {
  tri_up_host *h = &u->held_hosts[host];
  if (!u->opts.quarantine_time) return;
  h->until_ns = now + u->opts.quarantine_time * NS_PER_S;
  snprintf(h->why, sizeof h->why, "%.60s: %.200s", host_name(u, host), why);
  tri_log(TRI_LOG_ERROR, u->called, "%s. The host is not used for %d s while other replicas serve", h->why,
          u->opts.quarantine_time);
}

/* Returns whether what has happened to a replica is held against the host of this rank: that of the rank which has said
 * why, else each host of the replica once. */
static bool is_blamed(const tri_up *u, int replica, int rank) {
  int failed = u->replicas[replica].failed_rank;
  if (failed >= 0) return rank == failed;
  for (int r = 0; r < rank; r++)
    if (host_of(u, replica, r) == host_of(u, replica, rank)) return false;
  return true;
}

/* One more start has failed. On a single host it says nothing about the host: others have no better one. */
static void count_failed_start(tri_up *u, int replica, int64_t now, const char *why) {
  int world = tri_serve_layout_world(&u->layout);
  for (int r = 0; r < world && u->places && u->hosts.count > 1; r++) {
    int host = host_of(u, replica, r);
    if (!is_blamed(u, replica, r)) continue;
    if (++u->held_hosts[host].failed_starts < FAILED_STARTS) continue;
    char text[250];
    snprintf(text, sizeof text, "%d starts in a row failed there, the last because replica %d %.150s",
             u->held_hosts[host].failed_starts, replica, why);
    quarantine(u, host, now, text);
  }
}

/* Holds what has happened against the hosts where it did. */
static void blame_hosts(tri_up *u, int replica, int64_t now, int status, const char *why) {
  const tri_up_replica *g = &u->replicas[replica];
  int world = tri_serve_layout_world(&u->layout);
  char text[300];
  if (g->device_failed || tri_up_end_is_of_device(status)) {
    snprintf(text, sizeof text, "a GPU of replica %d has failed%s%.200s", replica, g->said[0] ? ": " : "", g->said);
    for (int r = 0; r < world; r++)
      if (is_blamed(u, replica, r)) quarantine(u, host_of(u, replica, r), now, text);
  } else if (!g->ready && !tri_up_end_is_by_signal(status)) {
    count_failed_start(u, replica, now, why);
  }
}

void tri_up_replica_ready(tri_up *u, int replica) {
  u->replicas[replica].ready = true;
  for (int r = 0; r < tri_serve_layout_world(&u->layout); r++) u->held_hosts[host_of(u, replica, r)].failed_starts = 0;
}

/* ---- replicas ---- */

/* Returns whether another replica serves, starts, or is about to be started. */
static bool others_are_left(const tri_up *u, int replica) {
  for (int g = 0; g < u->layout.replicas; g++) {
    const tri_up_replica *o = &u->replicas[g];
    if (g != replica && (o->pid > 0 || o->judge_ns || (o->restarts.restart_ns && !o->hold))) return true;
  }
  return false;
}

static void tell_hold(tri_up *u, int replica, int64_t now) {
  const tri_up_replica *g = &u->replicas[replica];
  const char *kind = g->hold == TRI_UP_GIVEN_UP ? "given_up" : "quarantined";
  tri_up_tell(u, "held %d %s %lld %s", replica, kind, (long long)((g->restarts.restart_ns - now) / NS_PER_S),
              g->hold_why);
}

void tri_up_replicas_tell(tri_up *u) {
  for (int i = 0; i < u->layout.replicas; i++) {
    const tri_up_replica *g = &u->replicas[i];
    unsigned long long next = g->epoch + 1;
    if (g->epoch) tri_up_tell(u, "expect %d %llu", i, g->pid > 0 ? next - 1 : next);
    if (g->hold) tell_hold(u, i, tri_now_ns());
  }
}

void tri_up_replicas_drain(tri_up *u) {
  for (int i = 0; i < u->layout.replicas; i++) {
    const tri_up_replica *g = &u->replicas[i];
    if (g->pid > 0 || !g->epoch) continue;
    tri_up_tell(u, "died %d %llu replica %d is not started again in a drain", i, (unsigned long long)g->epoch + 1, i);
  }
}

/* The replica stays down until its restart_ns. */
static void hold(tri_up *u, int replica, tri_up_hold kind, int64_t now, const char *why) {
  tri_up_replica *g = &u->replicas[replica];
  int seconds = (int)((g->restarts.restart_ns - now) / NS_PER_S);
  bool given_up = kind == TRI_UP_GIVEN_UP;
  g->hold = kind;
  snprintf(g->hold_why, sizeof g->hold_why, "%s", why);
  tri_log(TRI_LOG_ERROR, u->called, "replica %d %s: %s. Next start in %d s; the others keep serving", replica,
          given_up ? "is given up for now" : "stays down", why, seconds);
  tell_hold(u, replica, now);
}

void tri_up_replica_lost(tri_up *u, int replica, int rank, const char *code, const char *why) {
  tri_up_replica *g = &u->replicas[replica];
  if (g->pid <= 0 && (!g->judge_ns || rank < 0)) return; /* this process knew it first */
  if (g->pid > 0) tri_log(TRI_LOG_WARN, u->called, "ending replica %d: %s", replica, why);
  g->failed_rank = rank < tri_serve_layout_world(&u->layout) ? rank : -1;
  g->device_failed = !strcmp(code, tri_status_code(TRI_DEVICE_LOST));
  snprintf(g->said, sizeof g->said, "%s", why);
  /* A rank that has said why it fails leaves by itself, and its exit code says whether to try again. */
  if (g->pid > 0) g->kill_ns = tri_deadline_after_ms(LOST_GRACE_MS);
}

/* Decides what follows from its end, or from a start that failed: another start now or after a pause, a hold of minutes
 * while others serve, or the end of everything where no other is left and another start is no use. never: none of its
 * starts has come so far that a rank was heard of. */
static void decide(tri_up *u, int replica, int64_t now, int status, bool soon, bool never, const char *what) {
  tri_up_replica *g = &u->replicas[replica];
  char why[TRI_UP_WORDS + 100];
  bool others = others_are_left(u, replica);
  bool again = tri_up_restart(&g->restarts, now, u->opts.max_restarts, status, soon, never);
  int host = held_host_of(u, replica, now);
  const char *note = again || !never ? "" : ", and no rank of it has ever come up";
  snprintf(why, sizeof why, "replica %d %s%s%s%s", replica, what, note, g->said[0] ? ": " : "", g->said);
  if (!others && !again) {
    tri_up_give_up(u, tri_up_end_code(status), "%s", why);
  } else if (others && host >= 0) {
    g->restarts.restart_ns = u->held_hosts[host].until_ns;
    hold(u, replica, TRI_UP_QUARANTINED, now, u->held_hosts[host].why);
  } else if (!again) {
    tri_up_restart_later(&g->restarts, now);
    hold(u, replica, TRI_UP_GIVEN_UP, now, why);
  } else {
    tri_log(TRI_LOG_WARN, u->called, "%s, starting it again%s", why,
            g->restarts.restart_ns > now ? " after a pause" : "");
  }
}

static void judge_end(tri_up *u, int replica, int64_t now) {
  tri_up_replica *g = &u->replicas[replica];
  int status = g->end_status;
  bool soon = !g->ready || g->end_ns - g->restarts.started_ns < TRI_UP_SOON_MS * 1000000LL;
  char text[96];
  g->judge_ns = 0;
  tri_up_end_text(status, text);
  blame_hosts(u, replica, now, status, text);
  decide(u, replica, now, status, soon, !g->came, text);
}

/* A rank that ends by itself has said why, to the coordinator: that is waited for. One that was killed has not. */
void tri_up_replica_ended(tri_up *u, int replica, int status) {
  tri_up_replica *g = &u->replicas[replica];
  int64_t now = tri_now_ns();
  char text[96];
  g->pid = 0;
  g->kill_ns = g->killed_ns = 0;
  tri_up_folder_remove(&g->segments);
  if (u->stopping) return;
  tri_up_tell(u, "died %d %llu replica %d %s", replica, (unsigned long long)g->epoch, replica,
              tri_up_end_text(status, text));
  if (u->draining) return;
  g->end_status = status;
  g->end_ns = now;
  g->judge_ns = now + LAST_WORDS_MS * 1000000LL;
  if (tri_up_end_is_by_signal(status) || g->failed_rank >= 0) judge_end(u, replica, now);
}

/* A system without a process left just now may have one later: this is one start that has failed, which is held against
 * no host. */
void tri_up_replica_start(tri_up *u, int replica) {
  tri_up_replica *g = &u->replicas[replica];
  tri_error err = {0};
  tri_status st = tri_up_spawn_replica(u, replica, &err);
  if (st == TRI_OK) return;
  snprintf(g->said, sizeof g->said, "%s", err.message);
  decide(u, replica, tri_now_ns(), tri_exit_code(st) << 8, true, false, "was not started");
}

/* Starts a replica whose time has come, unless a host of it has failed meanwhile. */
static void start_due(tri_up *u, int replica, int64_t now) {
  tri_up_replica *g = &u->replicas[replica];
  if (g->pid || !g->restarts.restart_ns || now < g->restarts.restart_ns) return;
  int host = held_host_of(u, replica, now);
  if (host >= 0 && others_are_left(u, replica)) {
    g->restarts.restart_ns = u->held_hosts[host].until_ns;
    hold(u, replica, TRI_UP_QUARANTINED, now, u->held_hosts[host].why);
    return;
  }
  tri_up_replica_start(u, replica);
}

/* A process that hangs in a driver, or that a debugger has, does not end when it is killed. Its jobs wait for a
 * replica, and it need not be the same processes. */
static void leave_behind(tri_up *u, int replica, int64_t now) {
  const tri_up_replica *g = &u->replicas[replica];
  char name[32];
  snprintf(name, sizeof name, "replica %d", replica);
  if (tri_up_is_stuck(u, g->pid, g->killed_ns, now, name))
    tri_up_replica_ended(u, replica, SIGKILL); /* as waitpid tells of such an end */
}

void tri_up_replicas_check(tri_up *u, int64_t now) {
  for (int i = 0; i < u->layout.replicas && !u->stopping; i++) tri_up_start_check(u, i, now);
  for (int i = 0; i < u->layout.replicas; i++) {
    tri_up_replica *g = &u->replicas[i];
    if (!g->kill_ns || now < g->kill_ns) continue;
    g->kill_ns = 0;
    tri_up_kill(g->pid, &g->killed_ns);
  }
  for (int i = 0; i < u->layout.replicas; i++) leave_behind(u, i, now);
  for (int i = 0; i < u->layout.replicas && !u->stopping && !u->draining; i++) {
    const tri_up_replica *g = &u->replicas[i];
    if (g->judge_ns && (g->failed_rank >= 0 || now >= g->judge_ns)) judge_end(u, i, now);
    if (!u->stopping) start_due(u, i, now);
  }
}
