/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the coordinator: one that was killed, or crashed, is started again under the replicas that run. It
 * listens where the one before did, with the same keys, and the replicas' ranks find it. One that ends by itself has a
 * reason. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coordinator/up/up.h"
#include "base/log.h"
#include "base/wait.h"

enum { SILENCE_MS = 5000, STILL_MS = 2000 };

tri_status tri_up_coordinator_start(tri_up *u, tri_error *err) {
  tri_up_restarts *r = &u->coordinator_restarts;
  r->started_ns = tri_now_ns();
  r->restart_ns = 0;
  u->coordinator_killed_ns = 0;
  u->deadline_ns = tri_deadline_after_ms(TRI_UP_START_MS);
  TRI_CHECK(tri_up_spawn_coordinator(u, err));
  tri_up_replicas_tell(u);
  return TRI_OK;
}

void tri_up_coordinator_listens(tri_up *u, const char *endpoint) {
  if (u->away) tri_log(TRI_LOG_INFO, u->called, "the coordinator listens again");
  snprintf(u->endpoint, sizeof u->endpoint, "%s", endpoint);
  u->listening = true;
  u->away = false;
}

static void close_pipes(tri_up *u) {
  if (u->event_fd >= 0) close(u->event_fd);
  if (u->notice_fd >= 0) close(u->notice_fd);
  u->event_fd = u->notice_fd = -1;
  u->line_len = u->notices.len = 0;
}

bool tri_up_coordinator_again(tri_up *u, int status) {
  tri_up_restarts *r = &u->coordinator_restarts;
  int64_t now = tri_now_ns();
  bool soon = now - r->started_ns < TRI_UP_SOON_MS * 1000000LL;
  char text[96];
  if (!WIFSIGNALED(status)) return false;
  if (u->endpoint[0] && u->coordinator_killed_ns) /* it was silent, perhaps since clients kept it busy */
    tri_up_restart_served(r, now, status, soon);
  else if (!tri_up_restart(r, now, u->opts.max_restarts, status, soon, !u->endpoint[0]))
    return false;
  close_pipes(u);
  u->listening = false;
  u->away = true;
  u->deadline_ns = r->restart_ns + TRI_UP_START_MS * 1000000LL;
  tri_log(TRI_LOG_WARN, u->called, "the coordinator %s, starting it again%s; the replicas wait for it",
          tri_up_end_text(status, text), r->restart_ns > now ? " after a pause" : "");
  return true;
}

/* A system that has no process or descriptor left just now may have some later. */
static void start_again(tri_up *u, int64_t now) {
  tri_up_restarts *r = &u->coordinator_restarts;
  tri_error err = {0};
  tri_status st = tri_up_coordinator_start(u, &err);
  if (st == TRI_OK) return;
  close_pipes(u);
  if (!tri_up_restart(r, now, u->opts.max_restarts, tri_exit_code(st) << 8, true, false)) {
    tri_up_give_up(u, TRI_EXIT_FAILED, "%s", err.message);
    return;
  }
  u->deadline_ns = r->restart_ns + TRI_UP_START_MS * 1000000LL;
  tri_log(TRI_LOG_WARN, u->called, "%s: trying again", err.message);
}

void tri_up_coordinator_check(tri_up *u, int64_t now) {
  int64_t restart_ns = u->coordinator_restarts.restart_ns;
  /* Words that came while this process stood still itself are read next. */
  if (now - u->checked_ns > STILL_MS * 1000000LL) u->last_word_ns = now;
  u->checked_ns = now;
  if (u->listening && u->coordinator && !u->stopping && now - u->last_word_ns > SILENCE_MS * 1000000LL) {
    tri_log(TRI_LOG_ERROR, u->called, "the coordinator has been silent for %d s: killing it", SILENCE_MS / 1000);
    u->last_word_ns = now; /* and again, until it is gone */
    tri_up_kill(u->coordinator, &u->coordinator_killed_ns);
  }
  if (u->coordinator || !restart_ns || now < restart_ns || u->stopping || u->draining) return;
  start_again(u, now);
}
