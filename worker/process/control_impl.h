/* SPDX-License-Identifier: Apache-2.0 */
/* The control thread's state, and what its files do for each other. All of it is that thread's. */
#ifndef TRI_WORKER_PROCESS_CONTROL_IMPL_H
#define TRI_WORKER_PROCESS_CONTROL_IMPL_H

#include <string.h>
#include <sys/utsname.h>

#include "worker/process/health.h"
#include "worker/process/refused_jobs.h"
#include "worker/process/worker.h"

/* Milliseconds between two reports because the leader has run out of work, which short jobs make it do often; and how
 * long a follower, which hears nothing of that, has had no new step when it takes itself for idle. */
enum { TRI_CONTROL_IDLED_MS = 100 };

/* A connection passes through: opened (link), registered (connected), accepted (welcomed), cleared of an earlier
 * coordinator's jobs (cleared), and, once the replica serves, announced as ready (told_ready): from then on jobs are
 * taken. When it is lost all of it begins anew. */
typedef struct tri_control {
  tri_worker *w;
  tri_zcontext *z;
  tri_zlink *link; /* one connection to one coordinator; NULL: none could be opened */
  bool connected;  /* this rank has asked over it to be registered */
  bool welcomed;   /* and is */
  uint64_t line;   /* number of the connection, from 0 on */
  bool cleared;    /* what the leader has for the coordinator comes of jobs that came over this connection */
  tri_arena *arena;
  tri_buf buf;
  tri_outbox *unsent; /* popped, but the socket was full */
  tri_refusals refusals;
  uint64_t seq;                                                           /* of the last message, counted from 1 */
  int health_ms, poll_ms;                                                 /* milliseconds, see HEALTH_MS and POLL_MS */
  int64_t last_health, last_idled, last_lease, last_count, last_register; /* tri_now_ns of each */
  uint64_t seen_step, sent_step;                                          /* when last looked at; in the last report */
  uint32_t sent_layer;                                                    /* in that report */
  int64_t seen_since;                                                     /* since when it is seen_step */
  bool registered_hash, registered_facts, told_ready; /* the coordinator has been sent these over this connection */
  tri_health health;
  struct utsname host;
} tri_control;

static inline tri_wire_str tri_wire_str_of(const char *s) { return (tri_wire_str){s, strlen(s)}; }

/* ---- control_link.c ---- */

/* Sends a message under the next number. TRI_CLOSED without a connection, else as tri_zlink_send. */
tri_status tri_control_send(tri_control *c, tri_replica_msg *m);
void tri_control_register(tri_control *c);
/* Opens a connection. One that is lost is not made again under the same socket: what is sent reaches this coordinator
 * or none. */
tri_status tri_control_open_link(tri_control *c, tri_error *err);
/* Waits so long for a coordinator, and registers. */
void tri_control_connect(tri_control *c, int wait_ms);
/* Closes the connection. The jobs go with their coordinator: its successor gives other ones the same numbers, or gives
 * these again. */
void tri_control_lose_link(tri_control *c);

/* ---- control_reports.c ---- */

/* Sends what is due. There is a connection. */
void tri_control_report(tri_control *c);
/* Returns whether the last report has another step or layer than the rank was seen at. */
bool tri_control_is_untold(const tri_control *c);

#endif
