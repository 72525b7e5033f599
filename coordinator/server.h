/* SPDX-License-Identifier: Apache-2.0 */
/* The server: the sockets, threads, clock and journal around the core. main.c has its loop, server.c what the core
 * calls. */
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
  bool draining, leaving, failed, said_where;
  tri_signal_history signals;
  int64_t drain_deadline, last_tick, last_second;
  struct server_second window[SERVER_WINDOW_S]; /* the last seconds */
  unsigned num_seconds;
  uint64_t tokens_before;
  double cpu_before;
  tri_core_facts facts; /* cpu_us_per_token: when there were tokens last */
  tri_memory_watch memory;
  tri_throughput throughput;
};

/* server.c */
tri_status server_open_model(struct server *s, tri_error *err);
/* Finds out how many replicas and ranks there are; of one MPI job, whose options need not say it, that is known. */
tri_status server_count_ranks(struct server *s, tri_error *err);
/* Makes the core, whose calls go to the server's sockets, threads and journal. */
tri_status server_open_core(struct server *s, tri_error *err);

#endif
