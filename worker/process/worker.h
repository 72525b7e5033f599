/* SPDX-License-Identifier: Apache-2.0 */
/* One worker process: what its two threads share.
 *
 * The step thread (main) owns MPI, the engine and, on the leader, the scheduler. The control thread owns ZeroMQ: it
 * talks to the coordinator, reports health and watches the lease. They meet in single-producer rings and atomics,
 * nothing else.
 *
 * A lost coordinator: its successor gives the old numbers to other jobs, so nothing of the old ones may reach it. The
 * control thread raises `line`. The leader sees that before its next step, aborts all jobs, and stores the number in
 * `cleared` once no step, outbox or job of theirs is left. Until then the control thread drops what it would have sent
 * and does not report the replica as ready, so that no new job comes in between. */
#ifndef TRI_WORKER_PROCESS_WORKER_H
#define TRI_WORKER_PROCESS_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/wire/boot.h"
#include "comm/wire/replica.h"
#include "base/ring.h"
#include "base/start_watch.h"
#include "base/wait.h"
#include "runtime/engine/engine.h"
#include "base/options/serve_layout.h"
#include "worker/placement/expert_rows.h"
#include "worker/process/answer_grammars.h"
#include "worker/process/commands.h"
#include "worker/schedule/scheduler.h"

enum { TRI_NUM_OUTBOXES = 8, TRI_CANARY_TOP = 8 };

typedef struct tri_worker {
  tri_serve_options opts;
  bool boot_file_said; /* on the command line, so that no variable takes its place */
  tri_serve_layout layout;
  int rank, world; /* in the replica */
  tri_boot_rank boot;
  tri_replica replica;
  tri_pool *pool;
  tri_backend *backend;
  tri_engine *engine;
  int32_t *host_of; /* [world] by any number; NULL: it does not matter which ranks share one */
  int local_ranks;  /* of all replicas on this host */

  /* control -> step (leader) */
  tri_commands commands;
  tri_waker waker;              /* the leader's step thread sleeps here when idle */
  tri_answer_grammars grammars; /* started by the control thread; jobs use them */
  atomic_bool stop;             /* leave at once: no coordinator any more */
  atomic_bool drain;            /* leave when nothing runs */
  atomic_bool measure;          /* every rank: find out the machine's rooflines, if nothing runs */
  _Atomic uint64_t line;        /* number of the connection to a coordinator: jobs of earlier ones are to be dropped */

  /* step -> control */
  tri_ring outbox_full, outbox_free; /* tri_outbox *; _free runs the other way */
  tri_ring retired;                  /* tri_job * to destroy */
  tri_outbox outboxes[TRI_NUM_OUTBOXES];
  int notify_fd;             /* eventfd: there is something for the control thread */
  atomic_bool hashed;        /* weights_hash is known */
  atomic_bool loaded, ready; /* the engine stands (its facts may be read); the canary has passed */
  atomic_bool leaving;       /* the control thread sends what is left and ends */
  _Atomic uint64_t cleared;  /* of which line the leader knows, and has no job of those before it */
  _Atomic uint64_t scheduler_ns, tokens, preemptions, blocks_used;
  _Atomic uint64_t host_blocks_used, swaps_out, swaps_in, blocks_out, blocks_in; /* see tri_sched_stats */
  _Atomic uint64_t prefix_queries, prefix_hits, prefix_evictions;                /* likewise */
  _Atomic uint64_t rearrangements, experts_moved, moving_ns;                     /* see tri_eplb_stats */
  _Atomic uint32_t running, waiting, prompt_bound; /* prompt_bound: of the last step; 0: it had none */
  _Atomic uint32_t *dp_ranks;                      /* [dp, 2] running and waiting of each; NULL: there is one */
  _Atomic bool busy;
  atomic_bool idled; /* the leader has run out of work: its counters are for the control thread to send */
  double load_seconds, layer_seconds;  /* written before ready, as the next three */
  uint32_t canary_ids[TRI_CANARY_TOP]; /* that the canary's logits put first, see tri_replica_msg */
  uint32_t canary_millis[TRI_CANARY_TOP];
  int num_canary;          /* of them; 0: an encoder has none */
  uint64_t weights_hash;   /* tri_weights_hash, where this rank is the first of its host; 0: not known */
  bool refused;            /* the weights cannot be served: another start would end alike */
  tri_rooflines rooflines; /* written before measured */
  atomic_bool measured;    /* rooflines are for the control thread to send */
  tri_expert_rows experts; /* both ways: the rows of this rank's experts */

  tri_start_watch start_watch; /* until the replica is ready */
  uint64_t warm_steps;         /* of the warm-up, for the watch */
  tri_error failure;           /* set before `leaving` by a worker that could not start or continue */
  pthread_t control;
  bool control_started;
} tri_worker;

/* control.c */
/* Starts the thread. It connects by itself, and tries again for as long as the lease lasts. */
tri_status tri_control_start(tri_worker *w, tri_error *err);
void tri_control_stop(tri_worker *w);   /* sends what is left, for a second at most; called again: nothing */
void tri_control_notify(tri_worker *w); /* any thread: has the control thread look at its rings and atomics */

/* For step threads that have nothing to do: measures when that has been asked for. */
void tri_worker_measure(tri_worker *w);
/* For step threads between two steps: counts the rows of experts when that has been asked for. */
void tri_worker_count_experts(tri_worker *w);

/* leader.c, follower.c: the step loops; they return when it is time to leave. TRI_OK: drained, or told to leave;
 * otherwise *err has the step and why. */
tri_status tri_leader_run(tri_worker *w, tri_error *err);
tri_status tri_follower_run(tri_worker *w, tri_error *err);

#endif
