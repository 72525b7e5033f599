/* SPDX-License-Identifier: Apache-2.0 */
/* The server: the sockets, threads, clock and journal around the core. loop.c has its loop, server.c what the core
 * calls, and how it is made. */
#ifndef TRI_COORDINATOR_SERVER_H
#define TRI_COORDINATOR_SERVER_H

#include "comm/wire/boot.h"
#include "coordinator/journal/recorder.h"
#include "coordinator/net/late_replies.h"
#include "coordinator/memory_watch.h"
#include "coordinator/served_model.h"
#include "coordinator/queue/shares.h"
#include "coordinator/net/signals.h"
#include "coordinator/net/sockets.h"
#include "coordinator/net/supervisor_pipe.h"
#include "coordinator/stats/throughput.h"
#include "coordinator/jobs/tokenize_pool.h"

enum { SERVER_WINDOW_S = 10 }; /* seconds that rates are taken over */

struct server_second {
  uint64_t tokens;
  double cpu_s, wall_s;
};

struct server {
  tri_serve_options opts;
  tri_served_model model;
  tri_zcontext *z;
  tri_zserver *clients, *workers;
  tri_late_replies late;
  tri_tokenize_pool *tokenize_pool;
  tri_core *core;
  tri_recorder *recorder; /* NULL: there is no journal */
  bool recorder_failed;   /* nothing is kept any more, and the end is near */
  tri_arena *arena;
  tri_buf buf;
  tri_boot boot;   /* until it has been handed out */
  bool wrote_boot; /* the boot file is this process's */
  tri_rank_keys keys;
  tri_allowed_keys allowed;
  tri_shares shares;
  int signal_fd;
  tri_supervisor supervisor;
  /* draining: no new jobs, until drain_deadline; leaving: this turn is the last; failed: with an exit code that says
   * so; said_where: the log has had the lines for users, with the first replica that was ready */
  bool draining, leaving, failed, said_where;
  bool cut_short; /* running jobs were not waited for: a second signal, or the supervisor gives up */
  tri_signal_history signals;
  int64_t drain_deadline, last_tick, last_second;
  struct server_second window[SERVER_WINDOW_S]; /* the last seconds */
  unsigned num_seconds;   /* that were counted: the next one goes to this index of the window, which is a ring */
  uint64_t tokens_before; /* as of last_second, as the next */
  double cpu_before;
  tri_core_facts facts; /* cpu_us_per_token: when there were tokens last */
  tri_memory_watch memory;
  tri_throughput throughput;
};

/* ---- server.c ---- */

/* Opens all between the model and the journal, by the options, whose model has been found. s has the keys of ranks that
 * made them by themselves. one_host: of the workers and this. What was opened before a failure is server_close's. */
tri_status server_open(struct server *s, bool one_host, tri_error *err);
void server_close(struct server *s);

/* ---- loop.c ---- */

/* Begins to count, and takes what the supervisor has said: before the first turn. */
void server_begin(struct server *s);
/* Takes what has come, waiting for it so long at most, and what the clock says. */
void server_turn(struct server *s, int wait_ms);
/* Takes turns until the server leaves, and says its last words. */
void server_serve(struct server *s);
void server_take_event(void *ctx, const tri_supervisor_event *n); /* ctx: the server */

#endif
