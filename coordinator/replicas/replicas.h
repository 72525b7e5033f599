/* SPDX-License-Identifier: Apache-2.0 */
/* Replica groups: which there are, what they tell of themselves, and whether they live. A group is named by its number;
 * with its epoch that is one start of it. What others have of it stands here. */
#ifndef TRI_COORDINATOR_REPLICAS_REPLICAS_H
#define TRI_COORDINATOR_REPLICAS_REPLICAS_H

#include <stdio.h>

#include "coordinator/core_config.h"

/* Calls on jobs, for what happens to a group. */
typedef struct replica_hooks {
  /* The group is lost: its jobs run elsewhere. reason: for the call. */
  void (*lose_jobs)(tri_core *c, int64_t now, uint32_t index, const char *reason);
  /* Its leader has let go of its jobs, and goes on. Returns how many wait again. */
  unsigned (*take_jobs_back)(tri_core *c, int64_t now, uint32_t index);
  void (*dispatch)(tri_core *c, int64_t now); /* jobs may go to other groups */
} replica_hooks;

tri_status replicas_open(tri_core *c, const replica_hooks *hooks);
void replicas_close(tri_core *c);

/* ---- questions ---- */

/* A start of a group: its limits, as its leader has told them; 0 where it has told nothing. */
typedef struct group_facts {
  uint64_t epoch;
  uint64_t weights_hash;
  uint64_t max_model_len, kv_blocks, block_size; /* tokens, blocks, tokens of a block */
  uint64_t max_num_seqs, step_tokens;            /* that may run at a time; of a step at most */
  uint32_t jobs;                                 /* that it has: group_got_job */
} group_facts;
/* Returns those of a group, as they are at any time until replicas_close. */
const group_facts *group_facts_of(const tri_core *c, uint32_t index);
bool group_takes_jobs(const tri_core *c, uint32_t index);
bool group_gives_output(const tri_core *c, uint32_t index); /* tokens of jobs that it has */
uint64_t group_slots(const tri_core *c, uint32_t index);    /* sequences of all its shards */
/* Picks the group with the least to do of those that take jobs; false: none does. */
bool group_pick(const tri_core *c, uint32_t *index);
/* Returns whether a rank of a start of a group has registered over this connection. */
bool group_has_rank(tri_core *c, uint32_t index, uint64_t epoch, uint32_t rank, const tri_peer *from);
bool group_find_led_by(const tri_core *c, const tri_peer *from, uint32_t *index);
bool replicas_may_serve(const tri_core *c);        /* false: no group is left, and none is expected */
const char *replicas_last_loss(const tri_core *c); /* why the group that was lost last was; empty: none was */

/* ---- jobs of a group ---- */

void group_got_job(tri_core *c, uint32_t index, int64_t now);
void group_left_job(tri_core *c, uint32_t index);
tri_status group_tell_leader(tri_core *c, uint32_t index, tri_group_msg *m); /* as to_worker */

/* ---- what ranks and the supervisor say ---- */

void group_register(tri_core *c, int64_t now, const tri_peer *from, const tri_group_register *r);
bool group_ready(tri_core *c, int64_t now, const tri_group_msg *m); /* true: the group takes jobs from now on */
void group_health(tri_core *c, int64_t now, const tri_group_health *h);
void group_failed(tri_core *c, int64_t now, const tri_group_msg *m);
/* See tri_core_group_expected, tri_core_group_died and tri_core_group_held. died: false, nothing has changed. */
void group_expected(tri_core *c, uint32_t index, uint64_t epoch);
bool group_died(tri_core *c, int64_t now, uint32_t index, uint64_t epoch, const char *reason);
void group_held(tri_core *c, uint32_t index, tri_core_hold hold, int64_t until_ns, const char *reason);
void groups_tick(tri_core *c, int64_t now); /* loses those that died */
void groups_lease(tri_core *c, int64_t now);
/* Tells the groups to finish and leave, once. */
void replicas_drain(tri_core *c);

void watchdog_tick(tri_core *c, int64_t now);
void watchdog_suspend(tri_core *c, int64_t now); /* see tri_core_stood_still */

/* ---- roofline bounds that ranks measure ---- */

/* idle: there is no job, so that they can be measured now. */
void roofline_request(tri_core *c, int64_t now, const tri_peer *from, uint64_t id, bool idle);
void roofline_take(tri_core *c, int64_t now, const tri_group_msg *m);
void roofline_tick(tri_core *c, int64_t now);

/* ---- rows of experts ---- */

/* Writes metrics of the last reports, once every rank has sent one. */
void experts_metrics(const tri_core *c, FILE *f);
void experts_request(tri_core *c, int64_t now, const tri_peer *from, uint64_t id);
void experts_take(tri_core *c, int64_t now, const tri_group_msg *m);
void experts_tick(tri_core *c, int64_t now);

/* ---- figures ---- */

/* Fills in the groups and the ranks of a status. Returns whether a group serves. */
bool replicas_report(const tri_core *c, int64_t now, tri_cluster_status *s);
/* Sums over all groups, by their last reports. */
typedef struct replicas_sums {
  uint64_t kv_blocks, kv_blocks_used;
  uint64_t running, waiting; /* sequences */
  uint64_t preemptions;
  uint64_t slots; /* of the groups that are ready */
  tri_group_swaps swaps;
  tri_group_prefixes prefixes;
} replicas_sums;
replicas_sums replicas_sum(const tri_core *c);
void weight_stream_metrics(const tri_core *c, FILE *f);

#endif
