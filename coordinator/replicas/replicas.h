/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas: which there are, what they tell of themselves, and whether they live. A replica is named by its number;
 * with its epoch that is one start of it. What others have of it stands here. */
#ifndef TRI_COORDINATOR_REPLICAS_REPLICAS_H
#define TRI_COORDINATOR_REPLICAS_REPLICAS_H

#include <stdio.h>

#include "coordinator/core_config.h"

/* Calls on jobs, for what happens to a replica. */
typedef struct replica_hooks {
  /* The replica is lost: its jobs run elsewhere. reason: for the call. */
  void (*lose_jobs)(tri_core *c, int64_t now, uint32_t index, const char *reason);
  /* Its leader has let go of its jobs, and continues. Returns how many wait again. */
  unsigned (*take_jobs_back)(tri_core *c, int64_t now, uint32_t index);
  void (*dispatch)(tri_core *c, int64_t now); /* jobs may go to other replicas */
} replica_hooks;

tri_status replicas_open(tri_core *c, const replica_hooks *hooks);
void replicas_close(tri_core *c);

/* ---- questions ---- */

/* A start of a replica: its limits, as its leader has told them; 0 where it has told nothing. */
typedef struct replica_facts {
  uint64_t epoch;
  uint64_t weights_hash;
  uint64_t max_model_len, kv_blocks, block_size; /* tokens, blocks, tokens of a block */
  uint64_t max_num_seqs, step_tokens;            /* that may run at a time; of a step at most */
  uint32_t jobs;                                 /* that it has: replica_got_job */
} replica_facts;
/* Returns those of a replica, as they are at any time until replicas_close. */
const replica_facts *replica_facts_of(const tri_core *c, uint32_t index);
bool replica_takes_jobs(const tri_core *c, uint32_t index);
bool replica_gives_output(const tri_core *c, uint32_t index); /* tokens of jobs that it has */
uint64_t replica_slots(const tri_core *c, uint32_t index);    /* sequences of all its data-parallel ranks */
/* Picks the replica with the least to do of those that take jobs; false: none does. */
bool replica_pick(const tri_core *c, uint32_t *index);
/* Returns whether a rank of a start of a replica has registered over this connection. */
bool replica_has_rank(tri_core *c, uint32_t index, uint64_t epoch, uint32_t rank, const tri_peer *from);
bool replica_find_led_by(const tri_core *c, const tri_peer *from, uint32_t *index);
bool replicas_may_serve(const tri_core *c);        /* false: no replica is left, and none is expected */
const char *replicas_last_loss(const tri_core *c); /* why the replica that was lost last was; empty: none was */

/* ---- jobs of a replica ---- */

/* Counts the jobs that a replica has, for replica_pick and the watchdog. */
void replica_got_job(tri_core *c, uint32_t index, int64_t now);
void replica_left_job(tri_core *c, uint32_t index);
tri_status replica_tell_leader(tri_core *c, uint32_t index, tri_replica_msg *m); /* as to_worker */

/* ---- what ranks and the supervisor say ---- */

/* Answers a registration, with a reason where it is refused. A rank may register again, over the same connection with
 * more facts, or over a new one after the old one has ended. A replica that cannot serve with the others is lost. */
void replica_register(tri_core *c, int64_t now, const tri_peer *from, const tri_replica_register *r);
bool replica_ready(tri_core *c, int64_t now, const tri_replica_msg *m); /* true: the replica takes jobs from now on */
void replica_health(tri_core *c, int64_t now, const tri_replica_health *h);
void replica_failed(tri_core *c, int64_t now, const tri_replica_msg *m);
/* See tri_core_replica_expected, tri_core_replica_died and tri_core_replica_held. died: false, nothing has changed. */
void replica_expected(tri_core *c, uint32_t index, uint64_t epoch);
bool replica_died(tri_core *c, int64_t now, uint32_t index, uint64_t epoch, const char *reason);
void replica_held(tri_core *c, uint32_t index, tri_core_hold hold, int64_t until_ns, const char *reason);
void replicas_tick(tri_core *c, int64_t now); /* loses those that died */
void replicas_lease(tri_core *c, int64_t now);
/* Tells the replicas to finish and leave, once. */
void replicas_drain(tri_core *c);

void watchdog_tick(tri_core *c, int64_t now);
void watchdog_suspend(tri_core *c, int64_t now); /* see tri_core_stood_still */

/* ---- roofline bounds that ranks measure ---- */

/* idle: there is no job, so that they can be measured now. */
void roofline_request(tri_core *c, int64_t now, const tri_peer *from, uint64_t id, bool idle);
void roofline_take(tri_core *c, int64_t now, const tri_replica_msg *m);
void roofline_tick(tri_core *c, int64_t now);

/* ---- rows of experts ---- */

/* Writes metrics of the last reports, once every rank has sent one. */
void experts_metrics(const tri_core *c, FILE *f);
void experts_request(tri_core *c, int64_t now, const tri_peer *from, uint64_t id);
void experts_take(tri_core *c, int64_t now, const tri_replica_msg *m);
void experts_tick(tri_core *c, int64_t now);

/* ---- figures ---- */

/* Fills in the replicas and the ranks of a status. Returns whether a replica serves. */
bool replicas_report(const tri_core *c, int64_t now, tri_cluster_status *s);
/* Sums over all replicas, by their last reports. */
typedef struct replicas_sums {
  uint64_t kv_blocks, kv_blocks_used;
  uint64_t running, waiting; /* sequences */
  uint64_t preemptions;
  uint64_t slots;        /* of the replicas that are ready */
  uint32_t prompt_bound; /* not a sum: the least of those that have one; 0: none has */
  tri_replica_swaps swaps;
  tri_replica_prefixes prefixes;
} replicas_sums;
replicas_sums replicas_sum(const tri_core *c);
void weight_stream_metrics(const tri_core *c, FILE *f);

#endif
